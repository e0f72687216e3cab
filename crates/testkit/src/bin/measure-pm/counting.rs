//! A memory that counts what is done to it. Never timed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conquest_format::{Geometry, LINE, Offset, WORD};
use conquest_pm::memory::{Memory, Wake};

/// What has been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Waits for write-backs.
    pub(crate) fences: u64,
    /// Lines written back, each time anew.
    pub(crate) lines: u64,
    /// Bytes stored into the journal.
    pub(crate) journal_bytes: u64,
    /// Bytes stored into the persistent part, journal included.
    pub(crate) persistent_bytes: u64,
    /// Words of the volatile part stored or exchanged.
    pub(crate) volatile_words: u64,
    /// Of these, exchanged.
    pub(crate) exchanges: u64,
    /// Words loaded.
    pub(crate) loads: u64,
}

/// Any memory, counted.
pub(crate) struct Counting<M> {
    memory: M,
    journal: Range<u64>,
    fences: AtomicU64,
    lines: AtomicU64,
    journal_bytes: AtomicU64,
    persistent_bytes: AtomicU64,
    volatile_words: AtomicU64,
    exchanges: AtomicU64,
    loads: AtomicU64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl<M: Memory> Counting<M> {
    /// Counts what is done to `memory`, a region of this layout.
    pub(crate) fn new(memory: M, geometry: &Geometry) -> Counting<M> {
        let lanes = geometry.shape().lanes;
        Counting {
            memory,
            journal: geometry.lane(0).bytes()..geometry.lane(lanes).bytes(),
            fences: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(0),
            persistent_bytes: AtomicU64::new(0),
            volatile_words: AtomicU64::new(0),
            exchanges: AtomicU64::new(0),
            loads: AtomicU64::new(0),
        }
    }

    /// What has been done since the last call.
    pub(crate) fn take(&self) -> Counts {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Counts {
            fences: take(&self.fences),
            lines: take(&self.lines),
            journal_bytes: take(&self.journal_bytes),
            persistent_bytes: take(&self.persistent_bytes),
            volatile_words: take(&self.volatile_words),
            exchanges: take(&self.exchanges),
            loads: take(&self.loads),
        }
    }

    fn count_put(&self, at: Offset, len: u64) {
        add(&self.persistent_bytes, len);
        if self.journal.contains(&at.bytes()) {
            add(&self.journal_bytes, len);
        }
    }
}

impl<M: Memory> Memory for Counting<M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn failure(&self) -> Option<&'static str> {
        self.memory.failure()
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
        self.memory.store(at, value, order);
    }

    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        add(&self.volatile_words, 1);
        add(&self.exchanges, 1);
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
        self.count_put(at, WORD);
        self.memory.put(at, value, order);
    }

    fn put_or(&self, at: Offset, bits: u64) {
        self.count_put(at, WORD);
        self.memory.put_or(at, bits);
    }

    fn put_and_not(&self, at: Offset, bits: u64) {
        self.count_put(at, WORD);
        self.memory.put_and_not(at, bits);
    }

    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        self.count_put(at, bytes.len() as u64);
        self.memory.put_bytes(at, bytes);
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        self.count_put(at, len);
        self.memory.put_zeros(at, len);
    }

    fn write_back(&self, at: Offset, len: u64) {
        if self.memory.needs_write_back() && len > 0 {
            add(&self.lines, (at.bytes() % LINE + len).div_ceil(LINE));
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
