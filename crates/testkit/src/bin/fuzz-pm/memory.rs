//! A memory in which words change by themselves, and a machine with one living thread.

use std::backtrace::Backtrace;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conquest_format::Offset;
use conquest_pm::Result;
use conquest_pm::host::{Host, Identity};
use conquest_pm::memory::{Memory, Wake};
use conquest_testkit::{Actor, SimClaim, SimHost};

/// What an endless case unwinds with: where it was.
pub(crate) struct Endless(pub(crate) String);

/// A word's number and what it becomes.
pub(crate) type Change = (u64, u64);

/// A memory that changes words before given steps, and ends what takes too many.
pub(crate) struct Flipping {
    memory: Actor,
    steps: AtomicU64,
    limit: u64,
    /// In the order of their steps.
    changes: Vec<(u64, Change)>,
    /// How many of them have happened.
    done: AtomicU64,
}

impl Flipping {
    pub(crate) fn new(memory: Actor, limit: u64, changes: Vec<(u64, Change)>) -> Flipping {
        Flipping { memory, steps: AtomicU64::new(0), limit, changes, done: AtomicU64::new(0) }
    }

    fn step(&self) -> &Actor {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        loop {
            let done = self.done.load(Ordering::Relaxed);
            match self.changes.get(done as usize) {
                Some(&(at, (word, value))) if at <= step => {
                    self.memory.memory().image().set(word, value);
                    self.done.store(done + 1, Ordering::Relaxed);
                }
                _ => break,
            }
        }
        if step > self.limit && !std::thread::panicking() {
            resume_unwind(Box::new(Endless(Backtrace::force_capture().to_string())));
        }
        &self.memory
    }
}

impl Memory for Flipping {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn load(&self, at: Offset, order: Ordering) -> u64 {
        self.step().load(at, order)
    }

    fn read(&self, at: Offset, out: &mut [u8]) {
        self.step().read(at, out);
    }

    fn store(&self, at: Offset, value: u64, order: Ordering) {
        self.step().store(at, value, order);
    }

    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> core::result::Result<u64, u64> {
        self.step().compare_exchange(at, current, new, success, failure)
    }

    fn full_fence(&self) {
        self.step().full_fence();
    }

    fn load_fence(&self) {
        self.step().load_fence();
    }

    fn wait(&self, at: Offset, expected: u32, timeout: Duration) -> Wake {
        self.step().wait(at, expected, timeout)
    }

    fn wake(&self, at: Offset, count: u32) {
        self.step().wake(at, count);
    }

    fn put(&self, at: Offset, value: u64, order: Ordering) {
        self.step().put(at, value, order);
    }

    fn put_or(&self, at: Offset, bits: u64) {
        self.step().put_or(at, bits);
    }

    fn put_and_not(&self, at: Offset, bits: u64) {
        self.step().put_and_not(at, bits);
    }

    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        self.step().put_bytes(at, bytes);
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        self.step().put_zeros(at, len);
    }

    fn write_back(&self, at: Offset, len: u64) {
        self.step().write_back(at, len);
    }

    fn fence(&self) {
        self.step().fence();
    }

    fn needs_write_back(&self) -> bool {
        self.memory.needs_write_back()
    }
}

/// A simulated host whose processes have one thread each.
pub(crate) struct OneThread(pub(crate) SimHost);

impl Host for OneThread {
    type Claim = SimClaim;
    type Carried = SimClaim;

    fn claim(&self, slot: u32) -> Result<Option<SimClaim>> {
        self.0.claim(slot)
    }

    fn claim_to_carry(&self, slot: u32) -> Result<Option<SimClaim>> {
        self.0.claim_to_carry(slot)
    }

    fn claim_turn(&self, slot: u32) -> Result<Option<SimClaim>> {
        self.0.claim_turn(slot)
    }

    fn is_turn_taken(&self, slot: u32) -> Result<bool> {
        self.0.is_turn_taken(slot)
    }

    fn is_claimed(&self, slot: u32) -> Result<bool> {
        self.0.is_claimed(slot)
    }

    fn is_anyone_attached(&self) -> Result<bool> {
        self.0.is_anyone_attached()
    }

    fn claim_attach(&self) -> Result<Option<SimClaim>> {
        self.0.claim_attach()
    }

    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn is_thread_alive(&self, thread: u32) -> bool {
        thread == self.0.identity().thread
    }

    fn is_forked(&self) -> bool {
        self.0.is_forked()
    }

    fn adopt(&self) -> Result<()> {
        self.0.adopt()
    }

    fn process_state(&self, process: u32, namespace: u64) -> Option<char> {
        self.0.process_state(process, namespace)
    }

    fn back(&self, ranges: &[Range<u64>], len: u64) -> Result<()> {
        self.0.back(ranges, len)
    }

    fn boot_id(&self) -> [u8; 16] {
        self.0.boot_id()
    }

    fn now(&self) -> u64 {
        self.0.now()
    }
}
