//! Memory that the machine has, and that it was given by its host.
//!
//! A virtual machine tells its host which memory is free, in pieces as large as huge pages, and the
//! host gives it anew when it is touched: 10 us for 4 KiB have been seen, where 0.5 us are what
//! zeroing takes. Who takes huge pages gets such pieces, and who takes small pages what is left
//! between them. So which target touches how much of what, and what the one before left, decided
//! more than what was to be measured. Therefore memory is touched and freed before each run: what
//! is free then was given by the host already, for each target.

use conquest_pm::media::Medium;
use rustix::fs::{MemfdFlags, memfd_create};

/// Bytes that can be had without taking them from others, as the system sees it; none if it tells
/// nothing.
#[must_use]
pub fn available() -> Option<u64> {
    available_of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The same, of the text of `/proc/meminfo`.
fn available_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes = line.trim().trim_end_matches(" kB").parse::<u64>().ok()?;
    Some(kibibytes << 10)
}

/// Touches `bytes` bytes of memory, and frees them: half of what is available at most. They are
/// small pages first, and then huge ones, as a core has them.
pub fn touch(bytes: u64) {
    let bytes = bytes.min(available().map_or(0, |available| available / 2));
    // Not zeros, or nothing would be touched.
    drop(std::hint::black_box(vec![1_u8; bytes as usize]));
    // Where that can't be had, a core has small pages.
    let file = memfd_create("touched", MemfdFlags::CLOEXEC).ok();
    let medium = file.and_then(|file| Medium::create(file.into(), 0).ok());
    let all = 0..bytes;
    let (Some(_) | None) =
        medium.and_then(|medium| medium.back(std::slice::from_ref(&all), bytes).ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read() {
        let text = "MemTotal:       16000 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(available_of(text), Some(8000 << 10));
        assert_eq!(available_of("MemTotal: 16000 kB\n"), None);
        assert_eq!(available_of("MemAvailable: many kB\n"), None);
    }
}
