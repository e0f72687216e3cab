//! A memory that counts what is done to it, for measurements. Nothing is timed on it.
//!
//! *Shared lines* are the lines of 64 bytes into which one call of a caller stores something that
//! another process may have to load: each counts once a call, however often it is stored into.
//! These are the words of locks, with their versions, and of the lane queue; a lane's owner and its
//! place in the change feed, with the notices; holdings and the words for orphans; allocation bits,
//! descriptors, slab maps and their volatile records; and what the heap holds: inodes, dentries and
//! buckets, nodes of trees, with the zeros of new ones.
//!
//! Left out is what others look at only once this process is dead, or never:
//! - journal lanes and image pages;
//! - a lane's volatile record but its first line: the locks that it holds, its leases and hints;
//! - process slots;
//! - pages and objects of the kinds that the layer above calls *content*: what its callers want to
//!   be stored, not what it stores for itself.
//!
//! A line that is exchanged without success counts too: the processor has taken it from the others.

use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashSet;

use conquest_format::descriptor::Descriptor;
use conquest_format::kind::Kind;
use conquest_format::volatile::lane;
use conquest_format::{Geometry, LINE, Offset, WORD};

use crate::Result;
use crate::memory::{Memory, Wake};

/// What has been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Waits for write-backs; none on a medium that needs none.
    pub fences: u64,
    /// Lines written back, each time anew; none on a medium that needs no write-back.
    pub written_back: u64,
    /// Bytes stored into the journal: lanes and image pages.
    pub journal_bytes: u64,
    /// Bytes stored into the persistent part, journal included.
    pub persistent_bytes: u64,
    /// Words of the volatile part stored or exchanged.
    pub volatile_words: u64,
    /// Of these, exchanged.
    pub exchanges: u64,
    /// Words loaded.
    pub loads: u64,
    /// Shared lines of all calls: see the module.
    pub shared_lines: u64,
}

thread_local! {
    /// The lines that the call has stored into that this thread is in, if it is in one.
    static LINES: RefCell<Option<HashSet<u64>>> = const { RefCell::new(None) };
}

/// Any memory, counted.
pub struct Counting<M> {
    memory: M,
    geometry: Geometry,
    places: Places,
    is_content: fn(Kind) -> bool,
    fences: AtomicU64,
    written_back: AtomicU64,
    journal_bytes: AtomicU64,
    persistent_bytes: AtomicU64,
    volatile_words: AtomicU64,
    exchanges: AtomicU64,
    loads: AtomicU64,
    shared_lines: AtomicU64,
}

/// Where things are in a region.
struct Places {
    lanes: Range<u64>,
    images: Range<u64>,
    slots: Range<u64>,
    lane_records: Range<u64>,
}

impl Places {
    fn of(geometry: &Geometry) -> Places {
        let shape = geometry.shape();
        let table = |at: &dyn Fn(u32) -> Offset, count: u32| at(0).bytes()..at(count).bytes();
        Places {
            lanes: table(&|lane| geometry.lane(lane), shape.lanes),
            images: table(&|lane| geometry.image_page(lane), shape.lanes),
            slots: table(&|slot| geometry.slot(slot), shape.slots),
            lane_records: table(&|lane| geometry.lane_record(lane), shape.lanes),
        }
    }

    fn is_journal(&self, at: u64) -> bool {
        self.lanes.contains(&at) || self.images.contains(&at)
    }

    /// Whether only this process uses the line that begins at `at`, as long as it lives.
    fn is_own(&self, at: u64) -> bool {
        let in_record = |start: u64| (at - start) % lane::SIZE;
        self.is_journal(at)
            || self.slots.contains(&at)
            || (self.lane_records.contains(&at) && in_record(self.lane_records.start) >= LINE)
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl<M: Memory> Counting<M> {
    /// Counts what is done to `memory`, a region of this layout, whose kinds `is_content` are for
    /// content.
    pub fn new(memory: M, geometry: &Geometry, is_content: fn(Kind) -> bool) -> Counting<M> {
        Counting {
            memory,
            geometry: geometry.clone(),
            places: Places::of(geometry),
            is_content,
            fences: AtomicU64::new(0),
            written_back: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(0),
            persistent_bytes: AtomicU64::new(0),
            volatile_words: AtomicU64::new(0),
            exchanges: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            shared_lines: AtomicU64::new(0),
        }
    }

    /// What has been done since the last call of this.
    pub fn take(&self) -> Counts {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Counts {
            fences: take(&self.fences),
            written_back: take(&self.written_back),
            journal_bytes: take(&self.journal_bytes),
            persistent_bytes: take(&self.persistent_bytes),
            volatile_words: take(&self.volatile_words),
            exchanges: take(&self.exchanges),
            loads: take(&self.loads),
            shared_lines: take(&self.shared_lines),
        }
    }

    /// Does `work`, which is one call of a caller, and counts its shared lines. What is done
    /// outside of calls has none. A call inside of a call is part of it.
    pub fn call<T>(&self, work: impl FnOnce() -> T) -> T {
        // At a thread's end there is no place for them any more.
        let begun = LINES.try_with(|lines| {
            let mut lines = lines.borrow_mut();
            let is_outer = lines.is_none();
            lines.get_or_insert_default();
            is_outer
        });
        let done = work();
        if begun == Ok(true)
            && let Ok(Some(lines)) = LINES.try_with(RefCell::take)
        {
            let shared = lines.iter().filter(|line| !self.is_private(**line));
            add(&self.shared_lines, shared.count() as u64);
        }
        done
    }

    /// Whether nobody else reads the line at `at` for what is in it. To be asked when a call is
    /// over, because only then new pages have their kinds.
    fn is_private(&self, at: u64) -> bool {
        let kind = self.geometry.page_of(Offset::new(at)).and_then(|page| {
            let word = self.memory.load(self.geometry.descriptor(page), Ordering::Relaxed);
            Descriptor::unpack(word, page).map(Descriptor::kind)
        });
        self.places.is_own(at) || kind.is_some_and(self.is_content)
    }

    /// `len` bytes at `at` are stored into.
    fn touch(&self, at: Offset, len: u64) {
        let _ended = LINES.try_with(|lines| {
            if let Some(lines) = lines.borrow_mut().as_mut() {
                let end = at.bytes().saturating_add(len);
                lines.extend((at.bytes() / LINE..end.div_ceil(LINE)).map(|line| line * LINE));
            }
        });
    }

    fn count_put(&self, at: Offset, len: u64) {
        add(&self.persistent_bytes, len);
        if self.places.is_journal(at.bytes()) {
            add(&self.journal_bytes, len);
        }
    }

    fn put_words(&self, at: Offset) {
        self.count_put(at, WORD);
        self.touch(at, WORD);
    }
}

impl<M: Memory> Memory for Counting<M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn failure(&self) -> Option<&'static str> {
        self.memory.failure()
    }

    fn rejoin(&self) -> Result<bool> {
        self.memory.rejoin()
    }

    fn is_loading(&self) -> bool {
        self.memory.is_loading()
    }

    fn found_table(&self, is_there: bool, life: u32) -> Result<()> {
        self.memory.found_table(is_there, life)
    }

    fn drop_table(&self, len: u64) -> Result<()> {
        self.memory.drop_table(len)
    }

    fn make_ready(&self, at: Offset, len: u64) {
        self.memory.make_ready(at, len);
    }

    fn open_window(&self) -> bool {
        self.memory.open_window()
    }

    fn close_window(&self) {
        self.memory.close_window();
    }

    fn load(&self, at: Offset, order: Ordering) -> u64 {
        add(&self.loads, 1);
        self.memory.load(at, order)
    }

    fn read(&self, at: Offset, out: &mut [u8]) {
        add(&self.loads, (out.len() as u64).div_ceil(WORD));
        self.memory.read(at, out);
    }

    fn store(&self, at: Offset, value: u64, order: Ordering) {
        add(&self.volatile_words, 1);
        self.touch(at, WORD);
        self.memory.store(at, value, order);
    }

    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> core::result::Result<u64, u64> {
        add(&self.volatile_words, 1);
        add(&self.exchanges, 1);
        self.touch(at, WORD);
        self.memory.compare_exchange(at, current, new, success, failure)
    }

    fn full_fence(&self) {
        self.memory.full_fence();
    }

    fn load_fence(&self) {
        self.memory.load_fence();
    }

    fn wait(&self, at: Offset, expected: u32, timeout: Duration) -> Wake {
        self.memory.wait(at, expected, timeout)
    }

    fn wake(&self, at: Offset, count: u32) {
        self.memory.wake(at, count);
    }

    fn put(&self, at: Offset, value: u64, order: Ordering) {
        self.put_words(at);
        self.memory.put(at, value, order);
    }

    fn put_or(&self, at: Offset, bits: u64) {
        self.put_words(at);
        self.memory.put_or(at, bits);
    }

    fn put_and_not(&self, at: Offset, bits: u64) {
        self.put_words(at);
        self.memory.put_and_not(at, bits);
    }

    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        self.count_put(at, bytes.len() as u64);
        self.touch(at, bytes.len() as u64);
        self.memory.put_bytes(at, bytes);
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        self.count_put(at, len);
        self.touch(at, len);
        self.memory.put_zeros(at, len);
    }

    fn write_back(&self, at: Offset, len: u64) {
        if self.memory.needs_write_back() && len > 0 {
            add(&self.written_back, (at.bytes() % LINE + len).div_ceil(LINE));
        }
        self.memory.write_back(at, len);
    }

    fn fence(&self) {
        if self.memory.needs_write_back() {
            add(&self.fences, 1);
        }
        self.memory.fence();
    }

    fn needs_write_back(&self) -> bool {
        self.memory.needs_write_back()
    }
}
