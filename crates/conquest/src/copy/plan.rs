//! Which bytes of a region a saved copy holds, and in which chunks.
//!
//! What is saved follows from the shape, the number of groups and the bitmaps alone, so a copy can
//! be checked against itself: nothing may be missing, and nothing may be there that does not belong
//! there. In the order of offsets:
//!
//! 1. superblocks, state page, lanes, and the bitmaps of the groups that have space: one range;
//! 2. the descriptors of each group with an allocated page: one page;
//! 3. the slab maps of each such group: one page;
//! 4. the allocated pages of the heap.

use core::ops::Range;

use conquest_format::saved::{Chunk, DATA_MAX, KIND_REGION, KIND_SETTINGS};
use conquest_format::{GROUP_PAGES, Geometry, LINE, PAGE, WORD};

/// Words of a group's bitmap.
const WORDS: usize = (LINE / WORD) as usize;

const _: () = assert!(GROUP_PAGES * WORD == PAGE);

/// The part of a region that is in use.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    geometry: Geometry,
    groups: u64,
    /// The bitmaps as they stand in the region, as far as they are known.
    bitmaps: Vec<u8>,
}

impl Plan {
    /// For a region that has space for `groups` groups; its bitmaps are not known yet.
    pub(crate) fn new(geometry: Geometry, groups: u64) -> Plan {
        Plan { geometry, groups, bitmaps: Vec::new() }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn groups(&self) -> u64 {
        self.groups
    }

    /// Where the bitmaps are, as far as they count.
    fn bitmaps_at(&self) -> Range<u64> {
        self.geometry.bitmap(0).bytes()..self.geometry.bitmap(self.groups).bytes()
    }

    /// Takes what `data`, the region's bytes from `at` on, has of the bitmaps. Called in the order
    /// of offsets.
    pub(crate) fn learn(&mut self, at: u64, data: &[u8]) {
        let wanted = self.bitmaps_at();
        let end = at.saturating_add(data.len() as u64).min(wanted.end);
        let start = at.max(wanted.start);
        if start < end {
            let part = data.get((start - at) as usize..(end - at) as usize);
            self.bitmaps.extend_from_slice(part.unwrap_or(&[]));
        }
    }

    /// The words of the bitmap of group `group`.
    fn bitmap(&self, group: u64) -> [u64; WORDS] {
        let start = (group * LINE) as usize;
        let line = self.bitmaps.get(start..start + LINE as usize).unwrap_or(&[]);
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(line.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }

    /// The groups that have an allocated page.
    pub(crate) fn groups_in_use(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.groups).filter(|group| self.has_pages(*group))
    }

    /// Whether page `page` of the heap is allocated.
    pub(crate) fn is_in_use(&self, page: u64) -> bool {
        let (group, page) = (page / GROUP_PAGES, page % GROUP_PAGES);
        let word = self.bitmap(group).get((page / 64) as usize).copied().unwrap_or(0);
        word >> (page % 64) & 1 == 1
    }

    fn has_pages(&self, group: u64) -> bool {
        self.bitmap(group).iter().any(|word| *word != 0)
    }

    /// What is saved whatever the bitmaps say, they included.
    fn fixed(&self) -> Range<u64> {
        0..self.bitmaps_at().end.next_multiple_of(PAGE)
    }

    /// The ranges of bytes that are saved, in order. Those after the first one need the bitmaps.
    fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let page = |at: conquest_format::Offset| at.bytes()..at.bytes() + PAGE;
        let used = || self.groups_in_use();
        let descriptors =
            used().map(move |group| page(self.geometry.descriptor(group * GROUP_PAGES)));
        let maps = used().map(move |group| page(self.geometry.slab_map(group * GROUP_PAGES)));
        let pages = used().flat_map(move |group| {
            let words = self.bitmap(group);
            let is_used = move |page: &u64| {
                let word = words.get((page / 64) as usize).copied().unwrap_or(0);
                word >> (page % 64) & 1 == 1
            };
            let first = group * GROUP_PAGES;
            let pages = (0..GROUP_PAGES).filter(is_used);
            pages.map(move |number| page(self.geometry.page(first + number)))
        });
        std::iter::once_with(|| self.fixed()).chain(merged(descriptors.chain(maps).chain(pages)))
    }

    /// The chunks of a copy whose settings have `settings` bytes, in order, but for those of large
    /// files. Those past the fixed part need the bitmaps.
    pub(crate) fn chunks(&self, settings: u64) -> impl Iterator<Item = Chunk> + '_ {
        let first = Chunk { kind: KIND_SETTINGS, number: 0, at: 0, len: settings, file: 0 };
        let pieces = self.ranges().flat_map(|range| {
            let starts = range.clone().step_by(DATA_MAX as usize);
            starts.map(move |at| at..(at + DATA_MAX).min(range.end))
        });
        let rest = pieces.zip(1..).map(|(piece, number)| Chunk {
            kind: KIND_REGION,
            number,
            at: piece.start,
            len: piece.end - piece.start,
            file: 0,
        });
        std::iter::once(first).chain(rest)
    }

    /// How many chunks that are, and bytes in them.
    pub(crate) fn size(&self, settings: u64) -> (u64, u64) {
        let add = |(chunks, bytes), chunk: Chunk| (chunks + 1, bytes + chunk.len);
        self.chunks(settings).fold((0, 0), add)
    }

    /// Chunks of the settings and the fixed part: those that are known before the bitmaps are.
    pub(crate) fn fixed_chunks(&self) -> u64 {
        1 + self.fixed().end.div_ceil(DATA_MAX)
    }
}

/// The ranges, with those that touch made one.
fn merged(ranges: impl Iterator<Item = Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    let mut ranges = ranges.peekable();
    std::iter::from_fn(move || {
        let mut whole = ranges.next()?;
        while let Some(next) = ranges.next_if(|next| next.start == whole.end) {
            whole.end = next.end;
        }
        Some(whole)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use conquest_format::geometry::Shape;

    fn plan(set: &[u64]) -> Plan {
        let shape = Shape { max_groups: 5, lanes: 300, slots: 3, locks: 64, chunks: 4, log: 0 };
        let mut plan = Plan::new(Geometry::new(shape).unwrap(), 3);
        let at = plan.geometry.bitmap(0).bytes();
        let mut bitmaps = vec![0_u8; 3 * LINE as usize];
        for page in set {
            bitmaps[(page / 8) as usize] |= 1 << (page % 8);
        }
        // In two parts, with something before and behind.
        let split = 70;
        plan.learn(at - 8, &[&[9; 8], &bitmaps[..split]].concat());
        plan.learn(at + split as u64, &[&bitmaps[split..], &[9; 100]].concat());
        plan
    }

    #[test]
    fn what_is_in_use_is_saved_and_nothing_else() {
        let plan = plan(&[0, 1, 2, 5, 511, 512, 1024 + 7]);
        let g = plan.geometry.clone();
        let ranges: Vec<_> = plan.ranges().collect();
        let page = |at: conquest_format::Offset, pages: u64| at.bytes()..at.bytes() + pages * PAGE;
        let expected = [
            0..g.bitmap(0).bytes() + PAGE,
            page(g.descriptor(0), 3),
            page(g.slab_map(0), 3),
            page(g.page(0), 3),
            page(g.page(5), 1),
            page(g.page(511), 2),
            page(g.page(1024 + 7), 1),
        ];
        assert_eq!(ranges, expected);
        let empty = super::tests::plan(&[]);
        assert_eq!(empty.ranges().count(), 1);
    }

    #[test]
    fn no_chunk_is_larger_than_chunks_are() {
        let all: Vec<u64> = (0..3 * GROUP_PAGES).collect();
        let plan = plan(&all);
        let chunks: Vec<Chunk> = plan.chunks(77).collect();
        assert_eq!((chunks[0].kind, chunks[0].len), (KIND_SETTINGS, 77));
        let fixed = plan.fixed().end;
        assert!(fixed > DATA_MAX);
        assert_eq!((chunks[1].at, chunks[1].len), (0, DATA_MAX));
        assert_eq!((chunks[2].at, chunks[2].len), (DATA_MAX, fixed - DATA_MAX));
        assert_eq!(plan.fixed_chunks(), 3);
        assert!(chunks.iter().all(|chunk| chunk.len <= DATA_MAX));
        assert!(chunks.iter().zip(0..).all(|(chunk, number)| chunk.number == number));
        let bytes: u64 = chunks.iter().map(|chunk| chunk.len).sum();
        assert_eq!(plan.size(77), (chunks.len() as u64, bytes));
        assert_eq!(bytes, 77 + fixed + 6 * PAGE + 3 * GROUP_PAGES * PAGE);
    }
}
