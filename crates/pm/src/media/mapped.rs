//! The region in this process's address space.

use core::ptr::NonNull;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use conquest_format::{GROUP, PAGE};

use super::descriptor::Kept;
use super::kind::MediumKind;
use super::medium::Medium;
use super::residency::{LoadFrom, Loading};
use super::shield::Shield;
use super::sigbus::{Reason, Watch};
use super::sys::{checked, failed, mapped};
use super::window::Window;
use crate::persist::{Machine, Request, WriteBack};
use crate::{Error, Result};

/// How to map a region.
#[derive(Clone, Debug, Default)]
pub struct MapOptions {
    /// For reading only: everything except this range, the volatile part, whose ends are multiples
    /// of a page.
    pub read_only: Option<Range<u64>>,
    /// How stores are made durable.
    pub write_back: Request,
    /// Whether stores outside of operations fault, in everything except this range, the volatile
    /// part, whose ends are multiples of a page. Costs about two microseconds an operation.
    pub shield: Option<Range<u64>>,
    /// Where pages that are not resident are loaded from, in a region that has a residency table.
    pub load_from: Option<LoadFrom>,
}

/// A region's whole maximum length, mapped. The file may be shorter, and grow beneath.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    /// Bytes of the region.
    len: u64,
    /// Bytes that are mapped: with the residency table, if there is one.
    mapped: u64,
    loads: Window,
    stores: Window,
    puts: Window,
    /// How pages that are not resident yet are loaded.
    loading: Option<Loading>,
    policy: WriteBack,
    watch: &'static Watch,
    /// The file, for a forked child that was cut off from it.
    kept: Kept,
    /// For reading only: what can be stored to all the same.
    read_only: Option<[Range<u64>; 2]>,
    kind: MediumKind,
    path: PathBuf,
    /// Whether the kernel took the advice to use huge pages.
    advised: bool,
    shield: Option<Shield>,
}

// SAFETY: `base` is the address of a mapping that belongs to the value, not to a thread.
unsafe impl Send for Mapped {}
// SAFETY: shared use only touches the mapping by atomics and copies of whole words, as other
// processes do all the time.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `len` bytes of `medium`, a multiple of its granularity, at an address that is a
    /// multiple of 2 MiB.
    ///
    /// # Errors
    /// What the system refuses: address space, permission. [`Error::Shape`] for an impossible
    /// length or range, [`Error::Unsharable`] for persistent memory on a processor whose
    /// write-back instructions are not known.
    pub fn map(medium: &Medium, len: u64, options: &MapOptions) -> Result<Mapped> {
        let kind = medium.kind().clone();
        let path = medium.path().to_owned();
        check(&path, &kind, len, options.read_only.as_ref().or(options.shield.as_ref()))?;
        let machine = Machine::detect();
        let policy = machine.choose(&kind, options.write_back);
        if kind.is_persistent_memory() && machine.best() == WriteBack::None {
            return Err(Error::Unsharable {
                path,
                kind: format!("{kind} on a processor of unknown write-back instructions"),
                remedy: "tmpfs or a memfd",
            });
        }
        let file = medium.reopen()?;
        let load_from = options.load_from.as_ref();
        let mapped = load_from.map_or(len, LoadFrom::end).max(len);
        let base = reserve(mapped as usize, kind.granularity().max(GROUP) as usize)
            .map_err(failed(&path, "reserve address space for the region"))?;
        let read_only = options.read_only.as_ref().map(|volatile| [volatile.clone(), len..mapped]);
        let ready = put_file(base, mapped, &file, &kind, read_only.as_ref())
            .and_then(|()| Kept::new(file))
            .and_then(|kept| {
                let start = base.as_ptr().expose_provenance();
                Watch::register(start, mapped as usize, &kept).map(|watch| (watch, kept))
            });
        let (watch, kept) = ready.map_err(|error| {
            // SAFETY: our own reservation, which nobody else knows of.
            unsafe { libc::munmap(base.as_ptr().cast(), mapped as usize) };
            failed(&path, "map the region")(error)
        })?;
        // A dump of the program must not carry the region's whole length.
        advise(base, mapped as usize, libc::MADV_DONTDUMP);
        // What is never loaded can be used at once; the rest when all is resident.
        let now = load_from.map_or(0..len, LoadFrom::never_loaded);
        let (stores, puts) = match &options.read_only {
            Some(volatile) => (Window::new(volatile), Window::new(&(0..0))),
            None => (Window::opening(&now, 0..len), Window::opening(&now, 0..len)),
        };
        let mut made = Mapped {
            base,
            len,
            mapped,
            loads: Window::opening(&now, 0..len),
            stores,
            puts,
            loading: None,
            policy,
            watch,
            kept,
            read_only,
            advised: advise(base, len as usize, libc::MADV_HUGEPAGE),
            kind,
            path,
            shield: None,
        };
        made.raise_shield(options.shield.as_ref())?;
        made.loading = load_from.map(|from| Loading::begin(from.clone(), &made)).transpose()?;
        Ok(made)
    }

    fn raise_shield(&mut self, volatile: Option<&Range<u64>>) -> Result<()> {
        let Some(volatile) = volatile else { return Ok(()) };
        let raised = Shield::raise(self.base, self.len, volatile);
        self.shield = Some(raised.map_err(failed(&self.path, "protect the region"))?);
        Ok(())
    }

    /// The protection against wild stores, if asked for.
    #[inline]
    pub(super) fn shield(&self) -> Option<&Shield> {
        self.shield.as_ref()
    }

    /// In a forked child whose mapping was cut off: maps the file again.
    pub(super) fn map_again(&self) -> Result<bool> {
        if !self.watch.is_cut() {
            return Ok(false);
        }
        let action = "map the region again";
        let file = self.kept.reopen(Some(&self.path)).map_err(failed(&self.path, action))?;
        let (base, len) = (self.base, self.mapped);
        put_file(base, len, &file, &self.kind, self.read_only.as_ref())
            .map_err(failed(&self.path, action))?;
        advise(base, len as usize, libc::MADV_DONTDUMP);
        advise(base, self.len as usize, libc::MADV_HUGEPAGE);
        self.watch.rejoined();
        if let Some(shield) = &self.shield {
            shield.raise_again();
        }
        Ok(true)
    }

    /// Why nothing more should be done here, if so: a fault, or an impossible offset. Sticky.
    #[inline]
    #[must_use]
    pub fn failed(&self) -> Option<&'static str> {
        self.watch.failed()
    }

    /// How stores are made durable.
    #[inline]
    #[must_use]
    pub fn policy(&self) -> WriteBack {
        self.policy
    }

    /// What the region is on.
    #[must_use]
    pub fn kind(&self) -> &MediumKind {
        &self.kind
    }

    /// The name of the region's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the persistent part is mapped for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// Where the region is mapped, as a number: a multiple of 2 MiB.
    #[must_use]
    pub fn address(&self) -> usize {
        self.base.addr().get()
    }

    /// Makes page-table entries for `range` now instead of at the first touch of each page. The
    /// range must have space.
    ///
    /// # Errors
    /// What the system refuses; `EINVAL` by kernels older than 5.14.
    pub fn populate(&self, range: Range<u64>) -> Result<()> {
        let how =
            if self.is_read_only() { libc::MADV_POPULATE_READ } else { libc::MADV_POPULATE_WRITE };
        self.advise_range(range, how, "populate its mapping")
    }

    /// Gathers the pages of `range`, which must have space, into huge pages now.
    ///
    /// # Errors
    /// What the system refuses: there may be no free huge page, or the medium has none.
    pub fn collapse(&self, range: Range<u64>) -> Result<()> {
        self.advise_range(range, libc::MADV_COLLAPSE, "gather it into huge pages")
    }

    fn advise_range(&self, range: Range<u64>, how: i32, action: &'static str) -> Result<()> {
        let start = range.start.min(self.len) / PAGE * PAGE;
        let end = range.end.min(self.len);
        if start >= end {
            return Ok(());
        }
        loop {
            let at = self.base().wrapping_add(start as usize);
            // SAFETY: the range is inside our mapping; this advice changes no byte of it.
            let result = unsafe { libc::madvise(at.cast(), (end - start) as usize, how) };
            match checked(result) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&self.path, action)(error)),
            }
        }
    }

    pub(super) fn was_advised(&self) -> bool {
        self.advised
    }

    #[inline]
    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.len
    }

    /// Bytes that are mapped.
    pub(super) fn bytes_mapped(&self) -> u64 {
        self.mapped
    }

    /// How pages that are not resident are loaded, if there may be any.
    pub(super) fn loading(&self) -> Option<&Loading> {
        self.loading.as_ref()
    }

    /// Whether a forked child has pages of its own instead of the file's.
    pub(super) fn is_cut(&self) -> bool {
        self.watch.is_cut()
    }

    /// All is resident: loads and stores need not ask any more.
    pub(super) fn open_windows(&self) {
        [&self.loads, &self.stores, &self.puts].into_iter().for_each(Window::open);
    }

    /// The address of the byte at `at`.
    ///
    /// # Safety
    /// `at` is at most the mapping's length.
    #[inline]
    pub(super) unsafe fn address_of(&self, at: u64) -> NonNull<u8> {
        // SAFETY: inside the mapping, or one past its end, by the caller's word.
        unsafe { self.base.add(at as usize) }
    }

    /// Where loads may be made.
    #[inline]
    pub(super) fn loads(&self) -> &Window {
        &self.loads
    }

    /// Where stores into the volatile part may be made.
    #[inline]
    pub(super) fn stores(&self) -> &Window {
        &self.stores
    }

    /// Where stores into the persistent part may be made.
    #[inline]
    pub(super) fn puts(&self) -> &Window {
        &self.puts
    }

    pub(super) fn fail(&self, reason: Reason) {
        self.watch.fail(reason);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.watch.release();
        // SAFETY: our own mapping, to which no reference can exist any more: they borrow self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped as usize) };
    }
}

fn check(path: &Path, kind: &MediumKind, len: u64, volatile: Option<&Range<u64>>) -> Result<()> {
    let shape =
        |what, value, least, most| Error::Shape { path: path.to_owned(), what, value, least, most };
    let most = (1 << 46) / kind.granularity() * kind.granularity();
    let least = kind.granularity();
    if len < least || len > most || !len.is_multiple_of(least) {
        return Err(shape("length in bytes of the region", len, least, most));
    }
    let Some(range) = volatile else {
        return Ok(());
    };
    let aligned = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
    if !aligned || range.start > range.end || range.end > len {
        return Err(shape("end of the volatile part", range.end, range.start, len));
    }
    Ok(())
}

/// Reserves `len` bytes of address space at a multiple of `align`, a power of two.
pub(super) fn reserve(len: usize, align: usize) -> std::io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let wide = len + align;
    // SAFETY: at an address of the kernel's choice: no memory in use is touched.
    let result = unsafe { libc::mmap(core::ptr::null_mut(), wide, libc::PROT_NONE, flags, -1, 0) };
    let start = mapped(result)?;
    let before = start.addr().next_multiple_of(align) - start.addr();
    let base = start.wrapping_add(before);
    for (at, len) in [(start, before), (base.wrapping_add(len), align - before)] {
        if len > 0 {
            // SAFETY: an end of the reservation just made, which nobody else knows of.
            unsafe { libc::munmap(at.cast(), len) };
        }
    }
    NonNull::new(base).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Maps `len` bytes of `file` over the pages at `base`, which are ours.
fn put_file(
    base: NonNull<u8>,
    len: u64,
    file: &File,
    kind: &MediumKind,
    read_only: Option<&[Range<u64>; 2]>,
) -> std::io::Result<()> {
    let protection = match read_only {
        Some(_) => libc::PROT_READ,
        None => libc::PROT_READ | libc::PROT_WRITE,
    };
    let sharing = match kind {
        MediumKind::FsDax { .. } => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
        _ => libc::MAP_SHARED,
    };
    // SAFETY: replaces pages of our own, to which nobody holds references, by others.
    let result = unsafe {
        libc::mmap(
            base.as_ptr().cast(),
            len as usize,
            protection,
            sharing | libc::MAP_NORESERVE | libc::MAP_FIXED,
            file.as_raw_fd(),
            0,
        )
    };
    mapped(result)?;
    read_only.into_iter().flatten().try_for_each(|range| allow_stores(base, range))
}

/// Makes a part of a mapping for reading only writable: the volatile part, the residency table.
fn allow_stores(base: NonNull<u8>, range: &Range<u64>) -> std::io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let at = base.as_ptr().wrapping_add(range.start as usize);
    let len = (range.end - range.start) as usize;
    // SAFETY: pages of our own mapping, which nobody uses yet.
    checked(unsafe { libc::mprotect(at.cast(), len, libc::PROT_READ | libc::PROT_WRITE) })?;
    Ok(())
}

/// Gives the kernel advice on our mapping that changes no byte; whether it was taken.
fn advise(base: NonNull<u8>, len: usize, advice: i32) -> bool {
    // SAFETY: our own mapping; the advice passed here changes no byte of it.
    unsafe { libc::madvise(base.as_ptr().cast(), len, advice) == 0 }
}
