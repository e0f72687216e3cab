//! Huge pages: obtained or not, as the kernel says afterwards.

use std::fmt;

use super::mapped::Mapped;

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
