//! Any memory, with an accident before its n-th store.
//!
//! What counts as one store: a `store`, `put`, `put_or` or `put_and_not`; a `compare_exchange`,
//! whether it succeeds or not; and each piece of a `put_bytes` or `put_zeros`, which is cut at word
//! boundaries into single words, or into up to 16 pieces if it covers more than 16 words. On memory
//! that needs it, each write-back and fence counts as one too. Loads, waits and wakes don't.
//! Counting starts at 1; all threads that use
//! the value count together.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use conquest_format::{Offset, WORD};
use conquest_pm::memory::{Memory, Wake};

use crate::lock;

/// Pieces of one store of bytes at most.
const PIECES: u64 = 16;

/// What happens before the n-th store.
pub enum Fate {
    /// Nothing: only count.
    Live,
    /// This is called, and if it returns, the store happens and all goes on: for `SIGKILL`, which
    /// doesn't return, and `SIGSTOP`, which may.
    Call(Box<dyn FnMut() + Send>),
    /// This is called, then the thread unwinds with [`Died`]. From the call on no store has any
    /// effect, whoever makes it: destructors that run on the way store nothing.
    Unwind(Box<dyn FnMut() + Send>),
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fate::Live => "Live",
            Fate::Call(_) => "Call",
            Fate::Unwind(_) => "Unwind",
        })
    }
}

/// What a simulated death unwinds with: catch it where the process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Died {
    /// The store that never happened.
    pub store: u64,
}

/// A memory that counts its stores and meets its fate before one of them.
#[derive(Debug)]
pub struct DyingMemory<M> {
    memory: M,
    stores: AtomicU64,
    last: AtomicU64,
    fate: Mutex<Fate>,
    dead: AtomicBool,
}

impl<M: Memory> DyingMemory<M> {
    /// `memory`, which meets `fate` before store number `store` (from 1).
    pub fn new(memory: M, store: u64, fate: Fate) -> Self {
        DyingMemory {
            memory,
            stores: AtomicU64::new(0),
            last: AtomicU64::new(store),
            fate: Mutex::new(fate),
            dead: AtomicBool::new(false),
        }
    }

    /// `memory`, whose stores are only counted.
    pub fn counting(memory: M) -> Self {
        DyingMemory::new(memory, 0, Fate::Live)
    }

    /// Stores so far, without those after death.
    pub fn stores(&self) -> u64 {
        self.stores.load(Ordering::SeqCst)
    }

    /// Lets it meet `fate` before the `count`-th store from now (from 1); what it was to meet
    /// before is forgotten.
    pub fn meet(&self, count: u64, fate: Fate) {
        *lock(&self.fate) = fate;
        self.last.store(self.stores() + count, Ordering::SeqCst);
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Counts one store; whether it is to happen.
    fn lives(&self) -> bool {
        if self.is_dead() {
            return false;
        }
        let number = self.stores.fetch_add(1, Ordering::SeqCst) + 1;
        if number != self.last.load(Ordering::SeqCst) {
            return true;
        }
        match &mut *lock(&self.fate) {
            Fate::Live => return true,
            Fate::Call(call) => {
                call();
                return true;
            }
            Fate::Unwind(call) => {
                self.dead.store(true, Ordering::SeqCst);
                self.stores.fetch_sub(1, Ordering::SeqCst);
                call();
            }
        }
        if !std::thread::panicking() {
            resume_unwind(Box::new(Died { store: number }));
        }
        false
    }

    /// Calls `piece` with each piece of `len` bytes at `at` that is still to be stored.
    fn each_piece(&self, at: Offset, len: u64, piece: impl Fn(u64, u64)) {
        let end = at.bytes().checked_add(len);
        if end.is_none_or(|end| end > self.memory.len()) {
            // Out of bounds: nothing is stored, and the memory says so.
            return piece(0, len);
        }
        let words = (at.bytes() % WORD + len).div_ceil(WORD);
        let step = words.div_ceil(PIECES).max(1) * WORD;
        let mut done = 0;
        while done < len {
            let boundary = (at.bytes() + done) / WORD * WORD + step;
            let next = (boundary - at.bytes()).min(len);
            if !self.lives() {
                return;
            }
            piece(done, next - done);
            done = next;
        }
    }
}

impl<M: Memory> Memory for DyingMemory<M> {
    fn open_window(&self) -> bool {
        self.memory.open_window()
    }

    fn close_window(&self) {
        self.memory.close_window();
    }

    fn failure(&self) -> Option<&'static str> {
        // Whatever still runs on the way out of a simulated death must not wait for anything.
        if self.is_dead() { Some("the process died") } else { self.memory.failure() }
    }

    fn rejoin(&self) -> conquest_pm::Result<bool> {
        self.memory.rejoin()
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn load(&self, at: Offset, order: Ordering) -> u64 {
        self.memory.load(at, order)
    }

    fn read(&self, at: Offset, out: &mut [u8]) {
        self.memory.read(at, out);
    }

    fn store(&self, at: Offset, value: u64, order: Ordering) {
        if self.lives() {
            self.memory.store(at, value, order);
        }
    }

    /// After death it seems to succeed where it could, so that no destructor tries for ever.
    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        if self.lives() {
            return self.memory.compare_exchange(at, current, new, success, failure);
        }
        let found = self.memory.load(at, Ordering::SeqCst);
        if found == current { Ok(found) } else { Err(found) }
    }

    fn full_fence(&self) {
        self.memory.full_fence();
    }

    fn load_fence(&self) {
        self.memory.load_fence();
    }

    fn wait(&self, at: Offset, expected: u32, timeout: Duration) -> Wake {
        if self.is_dead() {
            return Wake::TimedOut;
        }
        self.memory.wait(at, expected, timeout)
    }

    fn wake(&self, at: Offset, count: u32) {
        if !self.is_dead() {
            self.memory.wake(at, count);
        }
    }

    fn put(&self, at: Offset, value: u64, order: Ordering) {
        if self.lives() {
            self.memory.put(at, value, order);
        }
    }

    fn put_or(&self, at: Offset, bits: u64) {
        if self.lives() {
            self.memory.put_or(at, bits);
        }
    }

    fn put_and_not(&self, at: Offset, bits: u64) {
        if self.lives() {
            self.memory.put_and_not(at, bits);
        }
    }

    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        self.each_piece(at, bytes.len() as u64, |from, len| {
            self.memory.put_bytes(at.plus(from), &bytes[from as usize..(from + len) as usize]);
        });
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        self.each_piece(at, len, |from, len| self.memory.put_zeros(at.plus(from), len));
    }

    fn write_back(&self, at: Offset, len: u64) {
        if !self.memory.needs_write_back() || self.lives() {
            self.memory.write_back(at, len);
        }
    }

    fn fence(&self) {
        if !self.memory.needs_write_back() || self.lives() {
            self.memory.fence();
        }
    }

    fn needs_write_back(&self) -> bool {
        self.memory.needs_write_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Actor, Image, RecordingMemory};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;

    fn actor() -> Actor {
        RecordingMemory::new(Arc::new(Image::new(8192)), 4096..8192, true).actor(0)
    }

    fn script(memory: &impl Memory) {
        memory.put(Offset::new(0), 1, SeqCst);
        memory.store(Offset::new(4096), 2, SeqCst);
        let _ = memory.compare_exchange(Offset::new(4096), 0, 3, SeqCst, SeqCst);
        memory.put_bytes(Offset::new(13), &[7; 20]);
        memory.put_zeros(Offset::new(1024), 8 * 100);
        memory.write_back(Offset::new(0), 64);
        memory.fence();
        memory.put_or(Offset::new(0), 8);
        memory.put_and_not(Offset::new(0), 1);
    }

    #[test]
    fn stores_are_counted_as_documented() {
        let memory = DyingMemory::counting(actor());
        script(&memory);
        // 20 bytes at 13 touch the words at 8, 16, 24 and 32; 100 words make 15 pieces of 7.
        // And a write-back and a fence.
        assert_eq!(memory.stores(), 3 + 4 + 15 + 2 + 2);
    }

    #[test]
    fn the_nth_store_never_happens_and_none_after_it() {
        let whole = DyingMemory::counting(actor());
        script(&whole);
        let events = whole.memory.memory().recording().events;
        let mut lengths = Vec::new();
        for nth in 1..=whole.stores() {
            let called = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&called);
            let fate = Fate::Unwind(Box::new(move || {
                count.fetch_add(1, SeqCst);
            }));
            let memory = DyingMemory::new(actor(), nth, fate);
            let died = catch_unwind(AssertUnwindSafe(|| script(&memory))).unwrap_err();
            assert_eq!(died.downcast_ref::<Died>(), Some(&Died { store: nth }));
            assert_eq!((memory.stores(), called.load(SeqCst)), (nth - 1, 1));
            script(&memory);
            let prefix = memory.memory.memory().recording().events;
            assert_eq!(prefix, events[..prefix.len()]);
            lengths.push(prefix.len());
        }
        // The exchange fails, so dying before it or before the store after it looks the same.
        assert_eq!(lengths[..8], [0, 1, 2, 2, 3, 4, 5, 6]);
        assert!(lengths.is_sorted());
    }

    #[test]
    fn a_call_that_returns_lets_the_store_happen() {
        let memory = DyingMemory::new(actor(), 1, Fate::Call(Box::new(|| {})));
        script(&memory);
        assert_eq!(memory.load(Offset::new(0), SeqCst), 8);
        assert!(!memory.is_dead());
    }
}
