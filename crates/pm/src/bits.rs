//! A group's 512 allocation bits as a value: finding runs of free pages.

use conquest_format::GROUP_PAGES;

/// Words in a group's bitmap.
pub(crate) const WORDS: usize = (GROUP_PAGES / 64) as usize;

/// A copy of a group's bits; a set bit can't be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupBits(pub(crate) [u64; WORDS]);

/// Pages `start..start + len` of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Run {
    /// The run's bits, as pairs of word and bits.
    pub(crate) fn words(self) -> impl Iterator<Item = (u64, u64)> {
        let end = self.start + self.len;
        (self.start / 64..end.div_ceil(64)).map(move |word| {
            let from = self.start.max(word * 64) - word * 64;
            let to = end.min(word * 64 + 64) - word * 64;
            (word, (u64::MAX >> (64 - (to - from))) << from)
        })
    }
}

impl GroupBits {
    /// The first page at or after `from` whose bit is `set`; [`GROUP_PAGES`] if none is.
    fn find(&self, from: u64, set: bool) -> u64 {
        let mut page = from;
        while page < GROUP_PAGES {
            let word = self.0.get((page / 64) as usize).copied().unwrap_or(0);
            let word = if set { word } else { !word } >> (page % 64);
            if word != 0 {
                return page + u64::from(word.trailing_zeros());
            }
            page = (page / 64 + 1) * 64;
        }
        GROUP_PAGES
    }

    /// The runs of free pages, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.runs_from(0)
    }

    /// The runs of free pages at or after page `from`, in order; of a run around it, what is left.
    fn runs_from(&self, mut from: u64) -> impl Iterator<Item = Run> {
        core::iter::from_fn(move || {
            let start = self.find(from, false);
            if start == GROUP_PAGES {
                return None;
            }
            from = self.find(start, true);
            Some(Run { start, len: from - start })
        })
    }

    /// Pages in the longest run of free pages.
    pub(crate) fn longest(&self) -> u64 {
        if self.0 == [0; WORDS] {
            return GROUP_PAGES;
        }
        self.runs().map(|run| run.len).max().unwrap_or(0)
    }

    /// Where to allocate `pages` pages: in the shortest run that holds them, of several the first
    /// one from `cursor` on. A run around the cursor is used from the cursor on, if the rest is
    /// long enough, so that pages freed last are used last.
    pub(crate) fn best_fit(&self, pages: u64, cursor: u64) -> Option<Run> {
        let mut best: Option<(u64, u64, u64)> = None;
        for run in self.runs().filter(|run| run.len >= pages) {
            let around = run.start < cursor && cursor + pages <= run.start + run.len;
            let start = if around { cursor } else { run.start };
            let distance = (start + GROUP_PAGES - cursor) % GROUP_PAGES;
            let key = (run.len, distance, start);
            if best.is_none_or(|best| key < best) {
                best = Some(key);
            }
        }
        best.map(|(_, _, start)| Run { start, len: pages })
    }

    /// Where to allocate `pages` pages so that what was freed last is used last: the first place
    /// from `cursor` on, round and round.
    pub(crate) fn next_fit(&self, pages: u64, cursor: u64) -> Option<Run> {
        let fits = |run: &Run| run.len >= pages;
        let after = self.runs_from(cursor).find(fits);
        let found = after.or_else(|| self.runs().find(fits))?;
        Some(Run { start: found.start, len: pages })
    }

    /// Whether the pages of `run` are all free.
    pub(crate) fn is_free(&self, run: Run) -> bool {
        run.start + run.len <= GROUP_PAGES && self.find(run.start, true) >= run.start + run.len
    }

    /// Sets the bits of word `word`.
    pub(crate) fn occupy(&mut self, word: u64, bits: u64) {
        if let Some(found) = self.0.get_mut(word as usize) {
            *found |= bits;
        }
    }

    /// Whether page `page` of the group is free.
    pub(crate) fn has(&self, page: u64) -> bool {
        self.find(page, false) == page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(free: &[(u64, u64)]) -> GroupBits {
        let mut bits = GroupBits([u64::MAX; WORDS]);
        for &(start, len) in free {
            for (word, mask) in (Run { start, len }).words() {
                bits.0[word as usize] &= !mask;
            }
        }
        bits
    }

    #[test]
    fn runs_are_those_that_were_freed() {
        let free = [(0, 1), (5, 60), (100, 300), (511, 1)];
        let bits = bits(&free);
        let found: Vec<_> = bits.runs().map(|run| (run.start, run.len)).collect();
        assert_eq!(found, free);
        assert_eq!(bits.longest(), 300);
        assert!(bits.has(5) && !bits.has(65));
        assert_eq!(GroupBits([0; WORDS]).longest(), 512);
        assert_eq!(GroupBits([u64::MAX; WORDS]).longest(), 0);
    }

    #[test]
    fn the_shortest_run_that_fits_is_taken_and_the_cursor_decides_among_equals() {
        let bits = bits(&[(10, 4), (20, 2), (30, 2), (40, 100)]);
        let start = |pages, cursor| bits.best_fit(pages, cursor).map(|run| run.start);
        assert_eq!(start(1, 0), Some(20));
        assert_eq!(start(2, 25), Some(30));
        assert_eq!(start(2, 31), Some(20));
        assert_eq!(start(3, 0), Some(10));
        assert_eq!(start(5, 50), Some(50));
        assert_eq!(start(100, 50), Some(40));
        assert_eq!(start(101, 0), None);
    }

    #[test]
    fn places_are_used_in_turn() {
        let bits = bits(&[(10, 4), (20, 2), (40, 100)]);
        let start = |pages, cursor| bits.next_fit(pages, cursor).map(|run| run.start);
        assert_eq!(start(1, 0), Some(10));
        assert_eq!(start(1, 12), Some(12));
        assert_eq!(start(3, 12), Some(40));
        assert_eq!(start(3, 138), Some(10));
        assert_eq!(start(100, 41), Some(40));
        assert_eq!(start(101, 0), None);
        assert_eq!(start(1, 511), Some(10));
    }

    #[test]
    fn an_empty_group_is_used_in_turn() {
        let empty = GroupBits([0; WORDS]);
        assert_eq!(empty.best_fit(1, 7), Some(Run { start: 7, len: 1 }));
        assert_eq!(empty.best_fit(8, 508), Some(Run { start: 0, len: 8 }));
        assert_eq!(empty.best_fit(512, 9), Some(Run { start: 0, len: 512 }));
        assert!(!bits(&[(1, 1)]).is_free(Run { start: 1, len: 2 }));
        assert!(bits(&[(1, 2)]).is_free(Run { start: 1, len: 2 }));
        assert!(!empty.is_free(Run { start: 511, len: 2 }));
    }
}
