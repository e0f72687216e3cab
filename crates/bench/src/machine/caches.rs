//! The caches between the processor and its memory.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// One cache that holds data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cache {
    /// 1 is next to the processor.
    pub level: u32,
    /// How much it holds.
    pub bytes: u64,
    /// How many processors share it.
    pub shared_by: u32,
}

/// The caches of one processor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Caches(pub Vec<Cache>);

impl Default for Caches {
    /// Sizes that are common where none can be seen.
    fn default() -> Caches {
        let sizes = [(1, 32 << 10), (2, 1 << 20), (3, 32 << 20)];
        Caches(sizes.map(|(level, bytes)| Cache { level, bytes, shared_by: 1 }).to_vec())
    }
}

impl Caches {
    /// What the system says of the first processor's; none if it says nothing.
    #[must_use]
    pub fn visible() -> Option<Caches> {
        Caches::described_in(Path::new("/sys/devices/system/cpu/cpu0/cache"))
    }

    fn described_in(directory: &Path) -> Option<Caches> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).ok()?.flatten() {
            let word = |name: &str| {
                let text = std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
                text.trim().to_owned()
            };
            if !matches!(word("type").as_str(), "Data" | "Unified") {
                continue;
            }
            let (Ok(level), Some(bytes)) = (word("level").parse(), bytes(&word("size"))) else {
                continue;
            };
            found.push(Cache { level, bytes, shared_by: processors(&word("shared_cpu_list")) });
        }
        found.sort_by_key(|cache| cache.level);
        (!found.is_empty()).then_some(Caches(found))
    }

    /// Their sizes, in bytes, the smallest first.
    #[must_use]
    pub fn steps(&self) -> Vec<u64> {
        self.0.iter().map(|cache| cache.bytes).collect()
    }

    /// Bytes of the largest one.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.steps().into_iter().max().unwrap_or(0)
    }
}

/// `32K` as the system writes it.
fn bytes(word: &str) -> Option<u64> {
    let (digits, shift) = match word.as_bytes().last()? {
        b'K' => (word.trim_end_matches('K'), 10),
        b'M' => (word.trim_end_matches('M'), 20),
        _ => (word, 0),
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

/// How many there are in a list such as `0-3,8`.
fn processors(list: &str) -> u32 {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        Some(last.saturating_sub(first) + 1)
    };
    list.split(',').filter_map(count).sum::<u32>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_understood() {
        assert_eq!(bytes("32K"), Some(32 << 10));
        assert_eq!(bytes("32768K"), Some(32 << 20));
        assert_eq!(bytes("2M"), Some(2 << 20));
        assert_eq!(bytes("512"), Some(512));
        assert_eq!((bytes(""), bytes("K")), (None, None));
        assert_eq!(processors("0"), 1);
        assert_eq!(processors("0-3,8,10-11"), 7);
        assert_eq!(processors(""), 1);
        assert_eq!(Caches::described_in(Path::new("/nowhere")), None);
        assert_eq!(Caches::default().last(), 32 << 20);
    }
}
