//! Huge pages: gathered for space that is new, and obtained or not, as the kernel says afterwards.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conquest_format::{GROUP, PAGE};

use super::mapped::{Mapped, reserve};
use super::sys::{checked, mapped};

/// Groups that get small pages after the kernel had no huge one, or took long to find some.
const PASSED_OVER: u64 = 64;
/// Huge pages that take longer, one by one, had to be made of others.
const LONG: Duration = Duration::from_millis(50);

/// Huge pages for space that is new.
///
/// A small page of shared RAM costs about 2 us when it is touched first, and half of that again in
/// each other process; a huge one 0.1 ms altogether. Kernels give shared RAM none by themselves
/// where `/sys/kernel/mm/transparent_hugepage/shmem_enabled` is `never`, as it is by default, but
/// a process may have pages gathered into one (`MADV_COLLAPSE`, Linux 6.1), unless it is `deny`.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Groups that are still passed over.
    pass_over: AtomicU64,
}

impl Gathering {
    /// Has each whole group of `range` of `file` that has no page yet made one huge page of zeros,
    /// as far as the kernel has any. Whoever needs the space allocates it afterwards as if this had
    /// done nothing: nothing that fails here is an error.
    pub(super) fn gather(&self, file: &File, range: &Range<u64>) {
        let groups = range.start.div_ceil(GROUP)..range.end / GROUP;
        let (mut first, end) = (groups.start, groups.end);
        while first < end && !self.is_passed_over(end - first) {
            let is_without = |group: &u64| has_data(file, group * GROUP).is_ok_and(|has| !has);
            let run = (first..end).take_while(is_without).count() as u64;
            if run > 0 && !gather_soon(file, first, run) {
                self.pass_over.store(PASSED_OVER, Ordering::Relaxed);
            }
            first += run.max(1);
        }
    }

    /// Whether the next `groups` groups are to have small pages.
    fn is_passed_over(&self, groups: u64) -> bool {
        let less = |left: u64| (left > 0).then(|| left.saturating_sub(groups));
        self.pass_over.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Gathers as [`gather`] does; whether that succeeded, and did not take long.
fn gather_soon(file: &File, first: u64, groups: u64) -> bool {
    let begun = Instant::now();
    gather(file, first, groups).is_ok() && begun.elapsed() <= LONG * groups as u32
}

/// Whether the group of `file` at `at` has any page.
fn has_data(file: &File, at: u64) -> io::Result<bool> {
    let at = place(at)?;
    // SAFETY: no memory is passed. The place in the file is used by nobody.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
    match found {
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(false),
            error => Err(error),
        },
        found => Ok(found < at + GROUP as i64),
    }
}

fn place(at: u64) -> io::Result<i64> {
    i64::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// Makes each of `groups` groups of `file` from `first` on, which have no page, one huge page.
fn gather(file: &File, first: u64, groups: u64) -> io::Result<()> {
    for group in first..first + groups {
        // There has to be a page for others to be gathered with.
        // SAFETY: no memory is passed.
        let result =
            unsafe { libc::fallocate(file.as_raw_fd(), 0, place(group * GROUP)?, PAGE as i64) };
        checked(result)?;
    }
    let len = (groups * GROUP) as usize;
    let base = reserve(len, GROUP as usize)?;
    let gathered = gather_at(base, len, file, place(first * GROUP)?);
    // SAFETY: our own pages, which nobody else knows of.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
    gathered
}

/// Maps `len` bytes of `file` at `at` to `base`, which is ours, and has their pages gathered. One
/// call for all, as each waits for what other processors have not put on the kernel's lists yet.
fn gather_at(base: NonNull<u8>, len: usize, file: &File, at: i64) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let sharing = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let (start, raw) = (base.as_ptr().cast(), file.as_raw_fd());
    // SAFETY: replaces pages of our own, to which nobody holds references, by others.
    mapped(unsafe { libc::mmap(start, len, protection, sharing, raw, at) })?;
    // SAFETY: the pages mapped above; this advice changes no byte of them.
    checked(unsafe { libc::madvise(start, len, libc::MADV_COLLAPSE) }).map(drop)
}

/// What became of the wish for huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HugePages {
    /// Whether the kernel accepted the wish.
    pub wanted: bool,
    /// Bytes mapped by huge pages.
    pub obtained_bytes: u64,
    /// Bytes mapped by pages of any size.
    pub mapped_bytes: u64,
}

impl HugePages {
    /// Whether there is any.
    #[must_use]
    pub const fn is_obtained(&self) -> bool {
        self.obtained_bytes > 0
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (obtained, mapped) = (self.obtained_bytes >> 20, self.mapped_bytes >> 20);
        match (self.wanted, self.is_obtained()) {
            (_, true) => write!(f, "obtained: {obtained} of {mapped} MiB mapped so far"),
            (true, false) => write!(f, "not obtained: {mapped} MiB mapped so far in small pages"),
            (false, false) => write!(f, "not obtained: the kernel has none"),
        }
    }
}

impl Mapped {
    /// How much of what this process has touched is in huge pages.
    #[must_use]
    pub fn huge_pages(&self) -> HugePages {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let start = self.address() as u64;
        let (obtained_bytes, mapped_bytes) = sum(&smaps, start, start + self.bytes());
        HugePages { wanted: self.was_advised(), obtained_bytes, mapped_bytes }
    }
}

/// Bytes in huge pages, and in pages of any size, of the mappings between `start` and `end`;
/// `smaps` is the text of `/proc/self/smaps`.
fn sum(smaps: &str, start: u64, end: u64) -> (u64, u64) {
    let mut inside = false;
    let (mut huge, mut any) = (0, 0);
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some(first) = fields.next() else {
            continue;
        };
        if let Some(name) = first.strip_suffix(':') {
            let kilobytes = || fields.next().and_then(|text| text.parse::<u64>().ok());
            match name {
                "Rss" if inside => any += kilobytes_of(kilobytes) << 10,
                "ShmemPmdMapped" | "FilePmdMapped" | "AnonHugePages" if inside => {
                    huge += kilobytes_of(kilobytes) << 10;
                }
                _ => {}
            }
        } else if let Some((from, to)) = first.split_once('-') {
            let address = |text| u64::from_str_radix(text, 16).unwrap_or(u64::MAX);
            inside = address(from) >= start && address(to) <= end;
        }
    }
    (huge, any)
}

fn kilobytes_of(field: impl FnOnce() -> Option<u64>) -> u64 {
    field().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_inside_are_summed() {
        let text = "\
1000-3000 rw-s 00000000 00:17 5 /dev/shm/x
Rss:                  8 kB
ShmemPmdMapped:       4 kB
VmFlags: rd wr sh
3000-5000 r--s 00002000 00:17 5 /dev/shm/x
Rss:                  8 kB
AnonHugePages:        2 kB
FilePmdMapped:        2 kB
5000-6000 rw-p 00000000 00:00 0
Rss:                  4 kB
AnonHugePages:        4 kB
";
        assert_eq!(sum(text, 0x1000, 0x5000), (8 << 10, 16 << 10));
        assert_eq!(sum(text, 0x1000, 0x5800), (8 << 10, 16 << 10));
        assert_eq!(sum("", 0, u64::MAX), (0, 0));
    }

    #[test]
    fn the_report_is_in_words() {
        let mut pages = HugePages { wanted: true, obtained_bytes: 2 << 20, mapped_bytes: 4 << 20 };
        assert_eq!(pages.to_string(), "obtained: 2 of 4 MiB mapped so far");
        pages.obtained_bytes = 0;
        assert!(pages.to_string().starts_with("not obtained: 4 MiB"));
    }
}
