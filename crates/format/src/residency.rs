//! Which pages of a region are there, while it is loaded from its image on a volume.
//!
//! The *residency table* stands behind the heap at its maximum size, in a region whose superblock
//! has the feature [`LOADING`](crate::superblock::LOADING): a head of one page, and one bit for
//! each page of the region. A page is *resident* if its bit is set, or if it is none of those that
//! are loaded: these are the pages that the image could have something of, when the region was
//! begun. Nobody has loaded or stored a byte of another one; the image has them as they were.

use core::ops::Range;

use crate::{GROUP, GROUP_PAGES, Geometry, LINE, Offset, PAGE, WORD};

/// Bytes of the head.
pub const HEAD: u64 = PAGE;
/// What the region's state is, a word of the head.
pub const STATE: u64 = 0;
/// The region's incarnation: which one of those that were made of the volume may be loaded from it.
pub const INCARNATION: u64 = 8;
/// Groups of which there are pages to be loaded.
pub const LOADED_GROUPS: u64 = 16;
/// Chunks of holdings of which there are.
pub const LOADED_CHUNKS: u64 = 24;
/// Bytes that the file would have without the table.
pub const FILE_LEN: u64 = 32;

/// States.
pub mod state {
    /// It is being made: all pages that the image can have count as pages that are loaded.
    pub const NEW: u64 = 0;
    /// There may be pages that are not resident.
    pub const LOADING: u64 = 1;
    /// All are resident, for good.
    pub const WHOLE: u64 = 2;
}

/// Words of bits of a group.
pub const GROUP_WORDS: usize = (GROUP_PAGES / 64) as usize;

const _: () = assert!(GROUP_WORDS as u64 * WORD == LINE);

/// The pages of a group, as bits.
pub type GroupPages = [u64; GROUP_WORDS];

impl Geometry {
    /// Where the residency table is.
    #[must_use]
    pub const fn residency(&self) -> Range<u64> {
        let bits = (self.len() / GROUP * LINE).next_multiple_of(PAGE);
        self.len()..self.len() + HEAD + bits
    }

    /// The line of bits of the group of pages number `group`, counted from the region's start: its
    /// heap and its tables are treated alike.
    #[must_use]
    pub const fn residency_line(&self, group: u64) -> Offset {
        Offset::new(self.len() + HEAD + group * LINE)
    }

    /// The ranges of pages of which the image of a region with `groups` groups and `chunks` chunks
    /// of holdings can have something, in their order.
    #[must_use]
    pub fn loaded(&self, groups: u64, chunks: u32) -> Vec<Range<u64>> {
        let mut ranges = self.space(0, groups);
        ranges.extend(self.chunk_space(0, chunks));
        // The first one has the superblocks as well.
        let first = crate::geometry::STATE.bytes();
        let mut ranges: Vec<Range<u64>> = ranges
            .into_iter()
            .map(|range| range.start.max(first)..range.end)
            .filter(|range| range.start < range.end && self.is_logged(range.start))
            .collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// What the image never has, and is used all the time: the lanes' image pages, the log, and the
    /// volatile part, which follow each other.
    #[must_use]
    pub const fn never_loaded(&self) -> Range<u64> {
        self.image_page(0).bytes()..self.volatile().end
    }
}

/// The pages of group `group`, counted from the region's start, that are in `ranges`.
#[must_use]
pub fn pages_in(ranges: &[Range<u64>], group: u64) -> GroupPages {
    let (start, end) = (group * GROUP, (group + 1) * GROUP);
    let mut pages = [0; GROUP_WORDS];
    for range in ranges.iter().filter(|range| range.start < end && range.end > start) {
        let (from, to) = (range.start.max(start) - start, range.end.min(end) - start);
        let (from, to) = (from / PAGE, to.div_ceil(PAGE));
        for (word, first) in pages.iter_mut().zip((0..).step_by(64)) {
            let below = |page: u64| match page.saturating_sub(first) {
                0 => 0,
                count @ 1..64 => (1 << count) - 1,
                _ => u64::MAX,
            };
            *word |= below(to) & !below(from);
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{STATE as STATE_PAGE, Shape};

    fn geometry() -> Geometry {
        let shape = Shape { max_groups: 5, lanes: 4, slots: 3, locks: 64, chunks: 2, log: 8 };
        Geometry::new(shape).unwrap()
    }

    #[test]
    fn the_table_is_behind_the_heap_and_has_a_bit_for_each_page() {
        let g = geometry();
        let table = g.residency();
        assert_eq!(table.start, g.len());
        let groups = g.len() / GROUP;
        assert_eq!(g.residency_line(0).bytes(), table.start + HEAD);
        assert!(g.residency_line(groups - 1).bytes() + LINE <= table.end);
        assert!(table.end.is_multiple_of(PAGE));
    }

    #[test]
    fn what_is_loaded_is_what_is_logged_of_the_groups_that_there_are() {
        let g = geometry();
        let ranges = g.loaded(2, 1);
        assert!(ranges.iter().zip(&ranges[1..]).all(|(a, b)| a.end <= b.start), "{ranges:?}");
        let is_in = |at: u64| ranges.iter().any(|range| range.contains(&at));
        for page in 0..g.len() / PAGE {
            let at = page * PAGE;
            assert!(g.is_logged(at) || !is_in(at), "{at}");
            let pages = pages_in(&ranges, at / GROUP);
            let bit = pages[(page % GROUP_PAGES / 64) as usize] >> (page % 64) & 1 == 1;
            assert_eq!(bit, is_in(at), "{at}");
        }
        let tables = [g.lane(3), g.bitmap(1), g.descriptor(1023), g.orphan(0)];
        for at in tables.into_iter().chain([STATE_PAGE, g.page(1023)]) {
            assert!(is_in(at.bytes()), "{at}");
        }
        assert!(!is_in(g.page(1024).bytes()) && !is_in(0) && !is_in(g.image_page(0).bytes()));
        let never = g.never_loaded();
        assert!(ranges.iter().all(|range| range.end <= never.start || range.start >= never.end));
        assert!(never.contains(&g.log_chunk(0).bytes()) && never.contains(&g.head(0).bytes()));
    }
}
