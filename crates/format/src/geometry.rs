//! Where everything is in a region, computed from six numbers in the superblock.
//!
//! ```text
//! persistent   superblocks | state | lanes | bitmaps | descriptors | slab maps | orphans | images
//!              | chunks of the log
//! volatile     head | slots | queue | lanes | rings | locks | log | classes | groups | slabs
//!              | owners | chunks
//! persistent   heap: groups of 512 pages, 2 MiB aligned
//! ```
//!
//! Tables are laid out for the maximum size; of each only the part that the present size needs is
//! backed by space.

use core::ops::Range;

use crate::{GROUP, GROUP_PAGES, LINE, Offset, PAGE, WORD, feed, journal, log, volatile};

/// Words of roots in the state page, owned by the layer above.
pub const ROOTS: u64 = 64;
/// Largest number of groups: a page number plus one has 32 bits (just under 16 TiB).
pub const GROUPS_MAX: u64 = (1 << 23) - 1;

/// The numbers that fix a region's layout for life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Groups the region can grow to, 1 to [`GROUPS_MAX`].
    pub max_groups: u64,
    /// Journal lanes, 1 to [`volatile::lane::MAX`].
    pub lanes: u32,
    /// Process slots, 1 to [`volatile::slot::MAX`].
    pub slots: u32,
    /// Locks, a power of two up to [`volatile::lock::MAX`].
    pub locks: u32,
    /// Chunks of holdings, 1 to [`volatile::holding::CHUNKS_MAX`].
    pub chunks: u32,
    /// Chunks of the log, at least [`log::CHUNKS_PER_LANE`] for each lane, up to
    /// [`log::CHUNKS_MAX`]; 0 if there is no log.
    pub log: u32,
}

impl Shape {
    /// Whether all six numbers are within their limits.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.max_groups >= 1
            && self.max_groups <= GROUPS_MAX
            && self.lanes >= 1
            && self.lanes <= volatile::lane::MAX
            && self.slots >= 1
            && self.slots <= volatile::slot::MAX
            && self.locks.is_power_of_two()
            && self.locks <= volatile::lock::MAX
            && self.chunks >= 1
            && self.chunks <= volatile::holding::CHUNKS_MAX
            && (self.log == 0 || self.log >= log::CHUNKS_PER_LANE * self.lanes)
            && self.log <= log::CHUNKS_MAX
    }
}

/// The layout of one region. All ranges are in bytes from the region's start.
#[derive(Clone, Debug)]
pub struct Geometry {
    shape: Shape,
    lanes: Offset,
    bitmaps: Offset,
    descriptors: Offset,
    slab_maps: Offset,
    orphans: Offset,
    images: Offset,
    log_chunks: Offset,
    volatile: Offset,
    slots: Offset,
    queue: Offset,
    lane_records: Offset,
    rings: Offset,
    locks: Offset,
    log_head: Offset,
    log_lanes: Offset,
    log_headers: Offset,
    classes: Offset,
    groups: Offset,
    slabs: Offset,
    chunk_owners: Offset,
    chunks: Offset,
    heap: Offset,
}

/// Bytes of the words for the orphans of one chunk.
const ORPHANS: u64 = volatile::holding::PER_CHUNK * WORD;

/// The two superblock copies.
pub const SUPERBLOCKS: [Offset; 2] = [Offset::new(0), Offset::new(PAGE)];
/// The state page: words that change while the region is attached.
pub const STATE: Offset = Offset::new(2 * PAGE);
/// Groups that have space, a word of the state page.
pub const STATE_GROUPS: Offset = STATE;
/// The mask of slab groups: numbers of groups that have slabs are covered by its bits.
pub const STATE_SLAB_GROUPS: Offset = Offset::new(2 * PAGE + WORD);
/// Chunks of holdings that have space, a word of the state page.
pub const STATE_CHUNKS: Offset = Offset::new(2 * PAGE + 2 * WORD);
/// First of the [`ROOTS`] root words.
pub const STATE_ROOTS: Offset = Offset::new(2 * PAGE + LINE);

impl Geometry {
    /// The layout for `shape`; none if the shape is not valid.
    #[must_use]
    pub fn new(shape: Shape) -> Option<Geometry> {
        if !shape.is_valid() {
            return None;
        }
        let pages = shape.max_groups * GROUP_PAGES;
        let mut end = Offset::new(3 * PAGE);
        let mut table = |bytes: u64| {
            let at = end;
            end = Offset::new((at.bytes() + bytes).next_multiple_of(PAGE));
            at
        };
        let lanes = table(u64::from(shape.lanes) * journal::LANE);
        let bitmaps = table(shape.max_groups * LINE);
        let descriptors = table(pages * WORD);
        let slab_maps = table(pages * WORD);
        let orphans = table(u64::from(shape.chunks) * ORPHANS);
        let images = table(u64::from(shape.lanes) * journal::IMAGE);
        let log_chunks = table(u64::from(shape.log) * log::CHUNK);
        let volatile = table(volatile::head::SIZE);
        let slots = table(u64::from(shape.slots) * volatile::slot::SIZE);
        let queue = table(volatile::QUEUE_CELLS * WORD);
        let lane_records = table(u64::from(shape.lanes) * volatile::lane::SIZE);
        let rings = table(u64::from(shape.lanes) * feed::RING);
        let locks = table(u64::from(shape.locks) * volatile::lock::SIZE);
        let has_log = u64::from(shape.log != 0);
        let log_head = table(has_log * log::head::SIZE);
        let log_lanes = table(has_log * u64::from(shape.lanes) * log::lane::SIZE);
        let log_headers = table(u64::from(shape.log) * log::chunk::SIZE);
        let classes = table(shape.max_groups.div_ceil(volatile::CLASSES_PER_WORD) * WORD);
        let groups = table(shape.max_groups * volatile::group::SIZE);
        let slabs = table(pages * volatile::slab::SIZE);
        let chunk_owners = table(u64::from(shape.chunks) * WORD);
        let chunks = table(u64::from(shape.chunks) * volatile::holding::CHUNK);
        let heap = Offset::new(end.bytes().next_multiple_of(GROUP));
        Some(Geometry {
            shape,
            lanes,
            bitmaps,
            descriptors,
            slab_maps,
            orphans,
            images,
            log_chunks,
            volatile,
            slots,
            queue,
            lane_records,
            rings,
            locks,
            log_head,
            log_lanes,
            log_headers,
            classes,
            groups,
            slabs,
            chunk_owners,
            chunks,
            heap,
        })
    }

    /// The numbers it was made from.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Lane `lane` of the journal.
    #[must_use]
    pub const fn lane(&self, lane: u32) -> Offset {
        self.lanes.plus(lane as u64 * journal::LANE)
    }

    /// The eight words of group `group`'s bitmap, one line; a set bit is an allocated page.
    #[must_use]
    pub const fn bitmap(&self, group: u64) -> Offset {
        self.bitmaps.plus(group * LINE)
    }

    /// All bitmaps.
    #[must_use]
    pub const fn bitmaps(&self) -> Range<u64> {
        self.bitmaps.bytes()..self.bitmaps.bytes() + self.shape.max_groups * LINE
    }

    /// The descriptor of page `page`.
    #[must_use]
    pub const fn descriptor(&self, page: u64) -> Offset {
        self.descriptors.plus(page * WORD)
    }

    /// The map word of the slab whose head is page `page`; a set bit is an allocated object.
    #[must_use]
    pub const fn slab_map(&self, page: u64) -> Offset {
        self.slab_maps.plus(page * WORD)
    }

    /// All slab maps.
    #[must_use]
    pub const fn slab_maps(&self) -> Range<u64> {
        let start = self.slab_maps.bytes();
        start..start + self.shape.max_groups * GROUP_PAGES * WORD
    }

    /// A word of the head of the volatile part.
    #[must_use]
    pub const fn head(&self, word: u64) -> Offset {
        self.volatile.plus(word)
    }

    /// Process slot `slot`.
    #[must_use]
    pub const fn slot(&self, slot: u32) -> Offset {
        self.slots.plus(slot as u64 * volatile::slot::SIZE)
    }

    /// Cell of ticket `ticket` in the lane queue.
    #[must_use]
    pub const fn queue_cell(&self, ticket: u32) -> Offset {
        self.queue.plus(ticket as u64 % volatile::QUEUE_CELLS * WORD)
    }

    /// The volatile record of lane `lane`.
    #[must_use]
    pub const fn lane_record(&self, lane: u32) -> Offset {
        self.lane_records.plus(lane as u64 * volatile::lane::SIZE)
    }

    /// The word of lane `lane`'s ring that position `position` of the feed is.
    #[must_use]
    pub const fn ring_word(&self, lane: u32, position: u64) -> Offset {
        self.rings.plus(lane as u64 * feed::RING + position % feed::RING_WORDS * WORD)
    }

    /// Lock `lock`; numbers past the end wrap.
    #[must_use]
    pub const fn lock(&self, lock: u32) -> Offset {
        self.locks.plus((lock & (self.shape.locks - 1)) as u64 * volatile::lock::SIZE)
    }

    /// The word that holds group `group`'s class, and the class's place in it in bits.
    #[must_use]
    pub const fn class(&self, group: u64) -> (Offset, u32) {
        let per_word = volatile::CLASSES_PER_WORD;
        (self.classes.plus(group / per_word * WORD), (group % per_word * (32 / per_word)) as u32)
    }

    /// The volatile record of group `group`.
    #[must_use]
    pub const fn group_record(&self, group: u64) -> Offset {
        self.groups.plus(group * volatile::group::SIZE)
    }

    /// The volatile record of the slab whose head is page `page`.
    #[must_use]
    pub const fn slab_record(&self, page: u64) -> Offset {
        self.slabs.plus(page * volatile::slab::SIZE)
    }

    /// The owner of chunk `chunk` of holdings.
    #[must_use]
    pub const fn chunk_owner(&self, chunk: u32) -> Offset {
        self.chunk_owners.plus(chunk as u64 * WORD)
    }

    /// Chunk `chunk` of holdings.
    #[must_use]
    pub const fn chunk(&self, chunk: u32) -> Offset {
        self.chunks.plus(chunk as u64 * volatile::holding::CHUNK)
    }

    /// The word that names the file which holding `holding` keeps although it has no name.
    #[must_use]
    pub const fn orphan(&self, holding: u32) -> Offset {
        self.orphans.plus(holding as u64 * WORD)
    }

    /// The image page of lane `lane`.
    #[must_use]
    pub const fn image_page(&self, lane: u32) -> Offset {
        self.images.plus(lane as u64 * journal::IMAGE)
    }

    /// A word of the head of the log.
    #[must_use]
    pub const fn log_head(&self, word: u64) -> Offset {
        self.log_head.plus(word)
    }

    /// The record of lane `lane` in the log.
    #[must_use]
    pub const fn log_lane(&self, lane: u32) -> Offset {
        self.log_lanes.plus(lane as u64 * log::lane::SIZE)
    }

    /// The header of chunk `chunk` of the log.
    #[must_use]
    pub const fn log_header(&self, chunk: u32) -> Offset {
        self.log_headers.plus(chunk as u64 * log::chunk::SIZE)
    }

    /// The first byte of chunk `chunk` of the log.
    #[must_use]
    pub const fn log_chunk(&self, chunk: u32) -> Offset {
        self.log_chunks.plus(chunk as u64 * log::CHUNK)
    }

    /// Whether byte `at` is one that outlives the region's RAM on a volume: it belongs to the
    /// persistent part, and neither to a superblock nor to an image page or the log.
    #[must_use]
    pub const fn is_logged(&self, at: u64) -> bool {
        at >= STATE.bytes() && at < self.images.bytes()
            || at >= self.heap.bytes() && at < self.len()
    }

    /// The volatile part.
    #[must_use]
    pub const fn volatile(&self) -> Range<u64> {
        self.volatile.bytes()..self.heap.bytes()
    }

    /// The first byte of page `page` of the heap.
    #[must_use]
    pub const fn page(&self, page: u64) -> Offset {
        self.heap.plus(page * PAGE)
    }

    /// The page of the heap that `at` lies in; none before the heap or past the maximum size.
    #[must_use]
    pub const fn page_of(&self, at: Offset) -> Option<u64> {
        if at.bytes() < self.heap.bytes() || at.bytes() >= self.len() {
            return None;
        }
        Some((at.bytes() - self.heap.bytes()) / PAGE)
    }

    /// Bytes of the region at its maximum size: what is mapped at attach.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.heap.bytes() + self.shape.max_groups * GROUP
    }

    /// Never: a layout has at least one group.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of the region when `groups` groups have space: the file's length.
    #[must_use]
    pub const fn len_at(&self, groups: u64) -> u64 {
        self.heap.bytes() + groups * GROUP
    }

    /// The ranges of the region that need space when it grows from `from` groups to `to`, in bytes.
    /// With `from` 0 the fixed tables are included.
    #[must_use]
    pub fn space(&self, from: u64, to: u64) -> Vec<Range<u64>> {
        let mut ranges = Vec::with_capacity(8);
        if from == 0 {
            ranges.push(0..self.bitmaps.bytes());
            // The image pages, and the volatile part up to what depends on the groups.
            ranges.push(self.images.bytes()..self.classes.bytes());
        }
        let pages = |groups: u64| groups * GROUP_PAGES;
        let mut table = |at: Offset, from: u64, to: u64| {
            let start = (at.bytes() + from) / PAGE * PAGE;
            ranges.push(start..(at.bytes() + to).next_multiple_of(PAGE));
        };
        table(self.bitmaps, from * LINE, to * LINE);
        table(self.descriptors, pages(from) * WORD, pages(to) * WORD);
        table(self.slab_maps, pages(from) * WORD, pages(to) * WORD);
        let class_words = |groups: u64| groups.div_ceil(volatile::CLASSES_PER_WORD) * WORD;
        table(self.classes, class_words(from), class_words(to));
        table(self.groups, from * volatile::group::SIZE, to * volatile::group::SIZE);
        let slab_bytes = |groups: u64| pages(groups) * volatile::slab::SIZE;
        table(self.slabs, slab_bytes(from), slab_bytes(to));
        ranges.push(self.len_at(from)..self.len_at(to));
        ranges
    }

    /// The ranges of the region that need space for it to have `to` chunks instead of `from`.
    #[must_use]
    pub fn chunk_space(&self, from: u32, to: u32) -> [Range<u64>; 3] {
        let tables = [
            (self.orphans, ORPHANS),
            (self.chunk_owners, WORD),
            (self.chunks, volatile::holding::CHUNK),
        ];
        tables.map(|(at, size)| {
            let start = (at.bytes() + u64::from(from) * size) / PAGE * PAGE;
            start..(at.bytes() + u64::from(to) * size).next_multiple_of(PAGE)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape { max_groups: 5, lanes: 4, slots: 3, locks: 64, chunks: 2, log: 8 }
    }

    #[test]
    fn tables_are_disjoint_and_in_order() {
        let g = Geometry::new(shape()).unwrap();
        let pages = 5 * GROUP_PAGES;
        let ends = [
            (STATE_ROOTS.bytes() + ROOTS * WORD, g.lane(0)),
            (g.lane(4).bytes(), g.bitmap(0)),
            (g.bitmap(5).bytes(), g.descriptor(0)),
            (g.descriptor(pages).bytes(), g.slab_map(0)),
            (g.slab_map(pages).bytes(), g.orphan(0)),
            (g.orphan(2 * 56).bytes(), g.image_page(0)),
            (g.image_page(4).bytes(), g.log_chunk(0)),
            (g.log_chunk(8).bytes(), g.head(0)),
            (g.head(volatile::head::SIZE).bytes(), g.slot(0)),
            (g.slot(3).bytes(), g.queue_cell(0)),
            (g.queue_cell(1023).bytes() + WORD, g.lane_record(0)),
            (g.lane_record(4).bytes(), g.ring_word(0, 0)),
            (g.ring_word(3, feed::RING_WORDS - 1).bytes() + WORD, g.lock(0)),
            (g.lock(63).bytes() + 16, g.log_head(0)),
            (g.log_head(log::head::SIZE).bytes(), g.log_lane(0)),
            (g.log_lane(4).bytes(), g.log_header(0)),
            (g.log_header(8).bytes(), g.class(0).0),
            (g.class(4).0.bytes() + WORD, g.group_record(0)),
            (g.group_record(5).bytes(), g.slab_record(0)),
            (g.slab_record(pages).bytes(), g.chunk_owner(0)),
            (g.chunk_owner(2).bytes(), g.chunk(0)),
            (g.chunk(2).bytes(), g.page(0)),
        ];
        for (end, next) in ends {
            assert!(end <= next.bytes(), "{end} {next}");
            assert!(next.is_aligned(WORD));
        }
        assert!(g.page(0).is_aligned(GROUP));
        assert_eq!(g.page(pages).bytes(), g.len());
        assert_eq!(g.page_of(g.page(7)), Some(7));
        assert_eq!(g.page_of(Offset::new(g.len())), None);
        assert_eq!(g.page_of(Offset::new(g.page(0).bytes() - 1)), None);
    }

    #[test]
    fn growing_step_by_step_backs_what_growing_at_once_backs() {
        let g = Geometry::new(shape()).unwrap();
        let mut whole = vec![false; (g.len() / PAGE) as usize];
        let mut steps = whole.clone();
        let mark = |pages: &mut Vec<bool>, ranges: Vec<Range<u64>>| {
            for range in ranges {
                for page in range.start / PAGE..range.end.div_ceil(PAGE) {
                    pages[page as usize] = true;
                }
            }
        };
        mark(&mut whole, g.space(0, 5));
        for groups in 0..5 {
            mark(&mut steps, g.space(groups, groups + 1));
        }
        assert_eq!(whole, steps);
    }

    #[test]
    fn shapes_out_of_range_are_refused() {
        for bad in [
            Shape { max_groups: 0, ..shape() },
            Shape { max_groups: GROUPS_MAX + 1, ..shape() },
            Shape { lanes: 0, ..shape() },
            Shape { lanes: volatile::lane::MAX + 1, ..shape() },
            Shape { slots: 0, ..shape() },
            Shape { slots: volatile::slot::MAX + 1, ..shape() },
            Shape { locks: 3, ..shape() },
            Shape { chunks: 0, ..shape() },
            Shape { log: 7, ..shape() },
            Shape { log: log::CHUNKS_MAX + 1, ..shape() },
            Shape { chunks: volatile::holding::CHUNKS_MAX + 1, ..shape() },
        ] {
            assert!(Geometry::new(bad).is_none());
        }
        assert_eq!(crate::kind::KINDS, 64);
        let lane = |first: u64, words: u64| first + words * WORD;
        use volatile::lane::{SIZE, SLABS};
        assert!(lane(SLABS, crate::kind::KINDS as u64) <= SIZE);
    }
}
