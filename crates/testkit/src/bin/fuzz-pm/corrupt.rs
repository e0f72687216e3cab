//! Corruption: random, and aimed at each structure with everything around it valid.

use conquest_format::descriptor::Descriptor;
use conquest_format::geometry::{STATE_GROUPS, STATE_ROOTS, STATE_SLAB_GROUPS, SUPERBLOCKS};
use conquest_format::journal::{self, Commit, ImagePart};
use conquest_format::kind::Kind;
use conquest_format::superblock::{RawSuperblock, SIZE, Superblock};
use conquest_format::volatile::{self, group, head, lane, lock, slab, slot};
use conquest_format::{GROUP_PAGES, Geometry, LINE, Offset, PAGE, WORD, checksum, pointer};
use conquest_testkit::Rng;

use crate::memory::Change;

/// What changes words, and its name.
type Named<'a> = (&'static str, fn(&mut Aim<'a>));

/// What corruption is aimed at.
fn aims<'a>() -> [Named<'a>; 14] {
    [
        ("flipped bits", Aim::flip),
        ("random words", Aim::random),
        ("a range of zeros or ones", Aim::fill),
        ("words from elsewhere", Aim::copy),
        ("pages swapped", Aim::swap),
        ("a superblock", Aim::superblock),
        ("a state word", Aim::state),
        ("a record", Aim::record),
        ("an intent", Aim::intent),
        ("bitmaps", Aim::bitmaps),
        ("descriptors", Aim::descriptors),
        ("slab maps", Aim::slab_maps),
        ("pointers", Aim::pointers),
        ("volatile words", Aim::volatile),
    ]
}

/// One corruption in the making.
struct Aim<'a> {
    rng: &'a mut Rng,
    geometry: &'a Geometry,
    /// The words as they are.
    get: &'a dyn Fn(u64) -> u64,
    tag: u32,
    changes: Vec<Change>,
}

/// A random corruption of the region whose word number `n` is `get(n)`, where volatile words have
/// `tag`: its name and the words that it changes.
pub(crate) fn corruption(
    rng: &mut Rng,
    geometry: &Geometry,
    get: &dyn Fn(u64) -> u64,
    tag: u32,
) -> (&'static str, Vec<Change>) {
    // Volatile words are many kinds of words: they get a third.
    let aims = aims();
    let last = aims.len() - 1;
    let choice = if rng.chance(1, 4) { last } else { rng.below(aims.len() as u64) as usize };
    let (name, aim) = aims[choice.min(last)];
    let mut state = Aim { rng, geometry, get, tag, changes: Vec::new() };
    for _ in 0..=state.rng.below(3) {
        aim(&mut state);
    }
    (name, state.changes)
}

impl Aim<'_> {
    fn set(&mut self, at: Offset, value: u64) {
        self.changes.push((at.bytes() / WORD, value));
    }

    fn load(&self, at: Offset) -> u64 {
        let word = at.bytes() / WORD;
        let changed = self.changes.iter().rev().find(|(changed, _)| *changed == word);
        changed.map_or_else(|| (self.get)(word), |&(_, value)| value)
    }

    fn groups(&self) -> u64 {
        self.load(STATE_GROUPS).clamp(1, self.geometry.shape().max_groups)
    }

    /// The offset of a word that matters.
    fn place(&mut self) -> Offset {
        let g = self.geometry;
        let lanes = u64::from(g.shape().lanes);
        let (from, bytes) = match self.rng.below(14) {
            0 => (Offset::NONE, 2 * PAGE),
            1 => (STATE_GROUPS, 512),
            2 | 3 => (g.lane(0), lanes * PAGE),
            4 => (g.bitmap(0), self.groups() * LINE),
            5 => (g.descriptor(0), 64 * WORD),
            6 => (g.slab_map(0), 64 * WORD),
            7 => (g.head(0), 64 + 64 * WORD),
            8 => (g.slot(0), u64::from(g.shape().slots) * slot::SIZE),
            9 => (g.queue_cell(0), 16 * WORD),
            10 => (g.lane_record(0), lanes * lane::SIZE),
            11 => (g.lock(0), u64::from(g.shape().locks) * lock::SIZE),
            12 => (g.class(0).0, self.groups() * (8 + group::SIZE)),
            _ => (g.page(0), 64 * PAGE),
        };
        Offset::new(from.bytes() + self.rng.below(bytes / WORD) * WORD)
    }

    /// A number chosen to do harm.
    fn hostile(&mut self) -> u64 {
        let len = self.geometry.len();
        let numbers = [
            0,
            1,
            2,
            7,
            63,
            64,
            65,
            511,
            512,
            u64::from(u32::MAX),
            1 << 32,
            1 << 63,
            u64::MAX,
            u64::MAX - 7,
            len,
            len - 8,
            len - 1,
            self.geometry.volatile().start,
            self.geometry.page(0).bytes(),
            self.geometry.page(0).bytes() + 4,
            self.geometry.shape().max_groups,
            self.geometry.shape().max_groups * GROUP_PAGES,
        ];
        match self.rng.below(4) {
            0 => self.rng.word(),
            1 => self.rng.below(5000),
            _ => numbers[self.rng.below(numbers.len() as u64) as usize],
        }
    }

    fn flip(&mut self) {
        for _ in 0..=self.rng.below(8) {
            let at = self.place();
            let bit = self.rng.below(64);
            let value = self.load(at) ^ 1 << bit;
            self.set(at, value);
        }
    }

    fn random(&mut self) {
        for _ in 0..=self.rng.below(8) {
            let at = self.place();
            let value = self.hostile();
            self.set(at, value);
        }
    }

    fn fill(&mut self) {
        let at = self.place();
        let value = if self.rng.chance(1, 2) { 0 } else { u64::MAX };
        for word in 0..=self.rng.below(512) {
            self.set(at.plus(word * WORD), value);
        }
    }

    fn copy(&mut self) {
        let (from, to) = (self.place(), self.place());
        for word in 0..=self.rng.below(64) {
            let value = self.load(from.plus(word * WORD));
            self.set(to.plus(word * WORD), value);
        }
    }

    fn swap(&mut self) {
        let page = |at: Offset| Offset::new(at.bytes() / PAGE * PAGE);
        let (one, two) = (page(self.place()), page(self.place()));
        for word in 0..PAGE / WORD {
            let (at, there) = (one.plus(word * WORD), two.plus(word * WORD));
            let (a, b) = (self.load(at), self.load(there));
            self.set(at, b);
            self.set(there, a);
        }
    }

    /// Both copies, or one: fields changed, checksums right.
    fn superblock(&mut self) {
        let both = self.rng.chance(3, 4);
        let word = self.rng.below(SIZE as u64 / WORD - 1) as usize;
        let half = self.rng.chance(1, 2);
        let value = self.hostile();
        let count = if both { 2 } else { 1 };
        for copy in SUPERBLOCKS.into_iter().take(count) {
            let mut bytes = [0; SIZE];
            for (index, piece) in bytes.chunks_mut(8).enumerate() {
                piece.copy_from_slice(&self.load(copy.plus(index as u64 * WORD)).to_le_bytes());
            }
            // Fields stand at 88 to 132, kinds from 252; others are less interesting.
            let word = if half { 11 + word % 6 } else { word };
            let old = self.load(copy.plus(word as u64 * WORD));
            let new = if half { old & 0xFFFF_FFFF | value << 32 } else { value };
            bytes[word * 8..word * 8 + 8].copy_from_slice(&new.to_le_bytes());
            let sum = checksum(0, &bytes[..SIZE - 8]);
            bytes[SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
            for (index, piece) in bytes.chunks(8).enumerate() {
                let piece = piece.try_into().unwrap_or_default();
                self.set(copy.plus(index as u64 * WORD), u64::from_le_bytes(piece));
            }
        }
    }

    fn state(&mut self) {
        let roots = STATE_ROOTS.plus(self.rng.below(64) * WORD);
        let at = [STATE_GROUPS, STATE_SLAB_GROUPS, roots][self.rng.below(3) as usize];
        let value = self.hostile();
        self.set(at, value);
    }

    /// A target of an entry or a range.
    fn target(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => self.hostile(),
            1 => self.geometry.page(0).bytes() + self.rng.below(PAGE * 8),
            _ => self.place().bytes(),
        }
    }

    /// What a record copies, mostly to pages of the shelf.
    fn part(&mut self) -> u64 {
        let number = 1 + self.rng.below(3) as u8;
        let (from, len) = (self.rng.below(PAGE / 8) * 8, self.rng.below(PAGE / 8 + 2) * 8);
        Kind::new(number).map_or(0, |kind| ImagePart { from, len, kind }.pack())
    }

    /// An armed record with a checksum that matches.
    fn record(&mut self) {
        let number = self.rng.below(u64::from(self.geometry.shape().lanes)) as u32;
        let at = self.geometry.lane(number);
        let wild = self.rng.chance(1, 8);
        let entries = if wild { self.rng.below(4096) } else { 1 + self.rng.below(20) };
        let ranges = if self.rng.chance(1, 2) { self.rng.below(16) } else { 0 };
        for index in 0..(entries + ranges).min(journal::ENTRIES_MAX) {
            let place = at.plus(journal::ENTRIES + index * journal::ENTRY);
            let target = self.target();
            let action = self.rng.below(4);
            let is_entry = index < entries;
            let first = if is_entry { target & !7 | action } else { target };
            let second = match (is_entry, action) {
                (true, 3) => self.part(),
                (true, _) => self.hostile(),
                (false, _) => self.rng.below(80),
            };
            self.set(place, first);
            let second = if self.rng.chance(1, 10) { self.hostile() } else { second };
            self.set(place.plus(WORD), second);
        }
        let commit = Commit { sequence: self.rng.below(1 << 48), entries, ranges };
        let sum = self.record_sum(number, commit);
        self.set(at.plus(journal::CHECKSUM), sum);
        self.set(at.plus(journal::COMMIT), commit.pack());
        if self.rng.chance(1, 2) {
            // As a dead process leaves it.
            let owner = u64::from(volatile::owner(self.rng.below(3) as u32, 9));
            self.tagged(self.geometry.lane_record(number).plus(lane::OWNER), owner);
        }
    }

    fn record_sum(&self, number: u32, commit: Commit) -> u64 {
        let at = self.geometry.lane(number);
        let mut head = Vec::new();
        head.extend(u64::from(number).to_le_bytes());
        head.extend(commit.pack().to_le_bytes());
        let mut sum = checksum(0, &head);
        let start = at.plus(journal::ENTRIES).bytes();
        sum = self.sum(sum, start, (commit.entries + commit.ranges) * journal::ENTRY);
        for index in commit.entries..commit.entries + commit.ranges {
            let place = at.plus(journal::ENTRIES + index * journal::ENTRY);
            let len = self.load(place.plus(WORD)).min(journal::RANGE_BYTES_MAX);
            sum = self.sum(sum, self.load(place), len);
        }
        sum
    }

    fn sum(&self, mut sum: u64, at: u64, len: u64) -> u64 {
        let byte = |at: u64| {
            let word = self.load(Offset::new(at / WORD * WORD));
            word.to_le_bytes()[(at % WORD) as usize]
        };
        let mut done = 0;
        while done < len {
            let size = (len - done).min(journal::PIECE);
            let from = at.saturating_add(done);
            let bytes: Vec<u8> = (0..size).map(|index| byte(from.saturating_add(index))).collect();
            sum = checksum(sum, &bytes);
            done += size;
        }
        sum
    }

    fn intent(&mut self) {
        let number = self.rng.below(u64::from(self.geometry.shape().lanes)) as u32;
        let at = self.geometry.lane(number).plus(journal::INTENT);
        let code = if self.rng.chance(2, 3) { 1 } else { self.hostile() };
        self.set(at, code);
        let list = if self.rng.chance(1, 2) { self.rng.below(3) } else { self.hostile() };
        self.set(at.plus(WORD), list);
        if self.rng.chance(1, 2) {
            let owner = u64::from(volatile::ORPHAN);
            self.tagged(self.geometry.lane_record(number).plus(lane::OWNER), owner);
            let flag = self.rng.below(2);
            self.tagged(self.geometry.head(head::ORPHANS), flag);
        }
    }

    fn bitmaps(&mut self) {
        let number = self.rng.below(self.groups());
        let at = self.geometry.bitmap(number).plus(self.rng.below(8) * WORD);
        let value = if self.rng.chance(1, 2) { u64::MAX } else { self.hostile() };
        self.set(at, value);
    }

    fn page(&mut self) -> u64 {
        if self.rng.chance(3, 4) { self.rng.below(40) } else { self.rng.below(GROUP_PAGES) }
    }

    fn kind(&mut self) -> Kind {
        let number = if self.rng.chance(1, 2) { 1 + self.rng.below(2) } else { self.rng.below(64) };
        kind(number as u8)
    }

    fn descriptors(&mut self) {
        let page = self.page();
        let kind = self.kind();
        let what = match self.rng.below(3) {
            0 => Descriptor::Run(kind),
            1 => Descriptor::Slab(kind),
            _ => Descriptor::SlabTail(kind, 1 + self.rng.below(6)),
        };
        self.set(self.geometry.descriptor(page), what.pack(page));
        if self.rng.chance(1, 2) {
            let at = self.geometry.bitmap(0).plus(page / 64 * WORD);
            let value = self.load(at) | 1 << (page % 64);
            self.set(at, value);
        }
    }

    fn slab_maps(&mut self) {
        let page = self.page();
        let value = self.hostile();
        self.set(self.geometry.slab_map(page), value);
    }

    /// A pointer with valid check bits to anywhere, in a root or in a node.
    fn pointers(&mut self) {
        let kind = kind(1);
        let target = if self.rng.chance(1, 2) {
            self.geometry.page(self.rng.below(4)).bytes() + self.rng.below(42) * 192
        } else {
            self.target()
        };
        let word = pointer::pack(Offset::new(target & ((1 << 48) - 1)), kind);
        let at = if self.rng.chance(1, 2) {
            STATE_ROOTS.plus(self.rng.below(3) * WORD)
        } else {
            self.geometry.page(0).plus(self.rng.below(84) * 192 + self.rng.below(5) * WORD)
        };
        self.set(at, word);
    }

    fn tagged(&mut self, at: Offset, value: u64) {
        self.set(at, volatile::tagged(self.tag, value as u32));
    }

    /// Versions, and a word of the feed of the lane whose record is at `record`.
    fn feed(&mut self, record: Offset) {
        let number = self.rng.below(4) as u32;
        let feed = [lane::FEED, lane::FEED_LIMIT, lane::FEED_PREPARED, lane::FEED_VERSION];
        let places = [
            self.geometry.lock(number).plus(lock::VERSION),
            self.geometry.head(head::FEED_FLOOR),
            self.geometry.head(head::FEED_SLEEPERS),
            record.plus(feed[number as usize]),
        ];
        let at = places[self.rng.below(4) as usize];
        let hostile = self.hostile();
        let value = match self.rng.below(3) {
            0 => hostile,
            1 => volatile::versioned(self.tag, hostile),
            _ => volatile::tagged(self.tag, hostile as u32),
        };
        self.set(at, value);
    }

    fn volatile(&mut self) {
        let g = self.geometry.clone();
        let record = g.lane_record(self.rng.below(u64::from(g.shape().lanes)) as u32);
        let hostile = self.hostile();
        let owner = match self.rng.below(4) {
            0 => hostile,
            1 => u64::from(volatile::ORPHAN),
            _ => self.rng.below(1024) << 22 | self.rng.below(4),
        };
        let lane = self.rng.below(6);
        let small = if self.rng.chance(1, 2) { lane } else { hostile };
        let held = 1 << 31 | self.rng.below(2) << 30 | small & 0x3FFF_FFFF;
        let number = self.rng.below(self.groups());
        let page = self.page();
        let random = self.rng.below(64);
        let choices = [
            (g.lock(self.rng.below(4) as u32), small | self.rng.below(4) << 16),
            (g.head(head::GROW), small),
            (record.plus(lane::OWNER), owner),
            (record.plus(lane::HELD + self.rng.below(16) * WORD), held),
            (record.plus(lane::LEASE_LOW + self.rng.below(6) * WORD), small),
            (record.plus(lane::RECLAIM), hostile),
            (record.plus(lane::FREED), hostile),
            (record.plus(lane::SEARCH), hostile),
            (
                record.plus(lane::SLABS + WORD),
                if hostile.is_multiple_of(2) { hostile } else { page },
            ),
            (g.head(head::QUEUE_NEXT), hostile),
            (g.head(head::QUEUE_SERVING), hostile),
            (g.head(head::BELL), hostile),
            (g.queue_cell(self.rng.below(1024) as u32), owner),
            (g.head(head::ROTOR), hostile),
            (g.head(head::ORPHANS), self.rng.below(2)),
            (g.head(head::FAILED), self.rng.below(2)),
            (g.head(head::PARTIAL_FROM + random * WORD), hostile),
            (g.class(number).0, hostile),
            (g.group_record(number).plus(group::LEASE), small),
            (g.group_record(number).plus(group::PARTIAL), hostile),
            (g.group_record(number).plus(group::BUSY + self.rng.below(16) * WORD), hostile),
            (g.slab_record(page).plus(slab::LEASE), small | random << 16),
            (g.slab_record(page).plus(slab::BUSY), hostile),
            (g.slot(self.rng.below(3) as u32).plus(slot::STATE), self.rng.below(2)),
            (g.slot(self.rng.below(3) as u32).plus(slot::PID), hostile),
        ];
        let (at, value) = choices[self.rng.below(choices.len() as u64) as usize];
        self.tagged(at, value);
        if self.rng.chance(1, 8) {
            self.feed(record);
        }
        if self.rng.chance(1, 3) {
            // What a dead process left is looked at by whoever recovers it.
            let number = self.rng.below(u64::from(g.shape().slots)) as u32;
            self.tagged(record.plus(lane::OWNER), u64::from(volatile::owner(number, 9)));
            self.tagged(g.slot(number).plus(slot::STATE), 1);
        }
    }
}

const fn kind(number: u8) -> Kind {
    match Kind::new(number) {
        Some(kind) => kind,
        None => kind(0),
    }
}

/// The superblock that counts, if any does.
pub(crate) fn superblock(get: &dyn Fn(u64) -> u64) -> Option<Superblock> {
    let read = |copy: Offset| {
        let mut bytes = [0; SIZE];
        for (index, piece) in (0..).zip(bytes.chunks_mut(8)) {
            piece.copy_from_slice(&get(copy.bytes() / WORD + index).to_le_bytes());
        }
        RawSuperblock::from_bytes(&bytes).check().ok()
    };
    let copies = SUPERBLOCKS.map(read);
    copies.into_iter().flatten().max_by_key(|copy| copy.sequence)
}

/// The tag of the attach generation after the one in the superblocks.
pub(crate) fn next_tag(get: &dyn Fn(u64) -> u64) -> u32 {
    superblock(get).map_or(1, |found| found.next_generation() as u32)
}
