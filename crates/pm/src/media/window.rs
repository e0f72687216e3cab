//! The offsets at which something may be done without a further look.
//!
//! Each load and store of a mapping compares its offset with a window. In a region that is loaded
//! from a volume the windows have only what is never loaded, until all is resident: so each access
//! to anything else comes to where it is seen to that the page is resident, and those that need it
//! no more pay nothing for it.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use conquest_format::WORD;

/// A range of offsets, which gets larger once at most.
#[derive(Debug)]
pub(super) struct Window {
    start: AtomicU64,
    words: AtomicU64,
    /// What it has at the end.
    whole: Range<u64>,
}

impl Window {
    /// One that has `range`, whose ends are multiples of a word, for good.
    pub(super) fn new(range: &Range<u64>) -> Window {
        Window::opening(range, range.clone())
    }

    /// One that has the range `now`, and `whole` when it is opened.
    pub(super) fn opening(now: &Range<u64>, whole: Range<u64>) -> Window {
        let words = (now.end - now.start) / WORD;
        Window { start: AtomicU64::new(now.start), words: AtomicU64::new(words), whole }
    }

    /// Its first offset, and its words.
    #[inline]
    pub(super) fn now(&self) -> (u64, u64) {
        // In the other order than they are stored, so that nobody takes the many words of the
        // opened window for those behind the start of what it was before. The other way round is
        // harmless, all being resident then: who sees any of it also sees what was loaded.
        let words = self.words.load(Ordering::Acquire);
        (self.start.load(Ordering::Acquire), words)
    }

    /// Lets it have all that it is to have: all of that is resident.
    pub(super) fn open(&self) {
        self.start.store(self.whole.start, Ordering::Release);
        self.words.store((self.whole.end - self.whole.start) / WORD, Ordering::Release);
    }

    /// Whether it is to have `len` bytes at `at`.
    pub(super) fn has(&self, at: u64, len: u64) -> bool {
        let Range { start, end } = self.whole;
        at.checked_sub(start).is_some_and(|inside| {
            let bytes = end - start;
            inside <= bytes && len <= bytes - inside
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_opened_once_and_never_has_what_is_out_of_bounds() {
        let window = Window::opening(&(64..128), 0..4096);
        assert_eq!(window.now(), (64, 8));
        assert!(window.has(0, 4096) && window.has(4096, 0) && window.has(4088, 8));
        assert!(!window.has(4089, 8) && !window.has(u64::MAX, 2) && !window.has(8, u64::MAX));
        window.open();
        assert_eq!(window.now(), (0, 512));
        window.open();
        assert_eq!(window.now(), (0, 512));
        assert!(!Window::new(&(0..0)).has(0, 1));
    }
}
