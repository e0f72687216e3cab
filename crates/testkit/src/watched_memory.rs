//! A memory by which tests come in between: something happens before each look at it.
//!
//! [`WatchedMemory`] calls its watch before each load and each reading, which may do what it likes
//! by other memories of the same region: change it, stop the thread, note what was asked for. All
//! else goes to the memory unseen.

use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;

use conquest_format::Offset;
use conquest_pm::memory::{Memory, Wake};

use crate::Actor;

/// A look at a memory.
#[derive(Clone, Copy, Debug)]
pub enum Look {
    /// At a word.
    Load(Offset),
    /// At so many bytes.
    Read(Offset, usize),
}

type Watch = Box<dyn Fn(Look) + Send + Sync>;

/// A memory of which all looks are seen.
pub struct WatchedMemory {
    memory: Actor,
    watch: Watch,
}

impl WatchedMemory {
    /// `memory`, where `watch` is called before each look.
    #[must_use]
    pub fn new(memory: Actor, watch: impl Fn(Look) + Send + Sync + 'static) -> WatchedMemory {
        WatchedMemory { memory, watch: Box::new(watch) }
    }
}

impl fmt::Debug for WatchedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedMemory").finish_non_exhaustive()
    }
}

impl Memory for WatchedMemory {
    fn load(&self, at: Offset, order: Ordering) -> u64 {
        (self.watch)(Look::Load(at));
        self.memory.load(at, order)
    }

    fn read(&self, at: Offset, out: &mut [u8]) {
        (self.watch)(Look::Read(at, out.len()));
        self.memory.read(at, out);
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn store(&self, at: Offset, value: u64, order: Ordering) {
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
        self.memory.put(at, value, order);
    }

    fn put_or(&self, at: Offset, bits: u64) {
        self.memory.put_or(at, bits);
    }

    fn put_and_not(&self, at: Offset, bits: u64) {
        self.memory.put_and_not(at, bits);
    }

    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        self.memory.put_bytes(at, bytes);
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        self.memory.put_zeros(at, len);
    }

    fn write_back(&self, at: Offset, len: u64) {
        self.memory.write_back(at, len);
    }

    fn fence(&self) {
        self.memory.fence();
    }

    fn needs_write_back(&self) -> bool {
        self.memory.needs_write_back()
    }
}
