//! A region in the heap: fast, with nothing recorded, for volumes that are opened very often.
//!
//! All loads and stores are sequentially consistent, so fences have nothing to do.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, OnceLock};

use conquest_format::{Offset, PAGE, WORD};
use conquest_pm::memory::Memory;
use conquest_pm::memory::Wake;

use crate::Clock;

const WORDS: u64 = PAGE / WORD;
/// How long a sleeper sleeps, by the clock of the machine and by the simulated one.
const NAP: Duration = Duration::from_micros(50);

type Page = Box<[AtomicU64]>;

/// A region in the heap of this process, zeros at first; clones are the same region. Nobody sleeps
/// in it for longer than a moment.
#[derive(Clone, Debug)]
pub struct HeapMemory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pages: Vec<OnceLock<Page>>,
    clock: Clock,
    is_misused: AtomicBool,
}

/// What a [`HeapMemory`] held at some time; no page of which nothing was ever stored.
#[derive(Clone, Debug, Default)]
pub struct HeapCopy {
    pages: Vec<Option<Arc<[u64]>>>,
}

impl HeapMemory {
    /// One of `len` bytes, whose sleepers make `clock` pass.
    #[must_use]
    pub fn new(len: u64, clock: Clock) -> HeapMemory {
        let mut pages = Vec::new();
        pages.resize_with(len.div_ceil(PAGE) as usize, OnceLock::new);
        HeapMemory { shared: Arc::new(Shared { pages, clock, is_misused: AtomicBool::new(false) }) }
    }

    /// One that holds what `copy` says, whose sleepers make `clock` pass.
    #[must_use]
    pub fn of(copy: &HeapCopy, clock: Clock) -> HeapMemory {
        let memory = HeapMemory::new(copy.pages.len() as u64 * PAGE, clock);
        for (page, words) in memory.shared.pages.iter().zip(&copy.pages) {
            if let Some(words) = words {
                page.get_or_init(|| words.iter().copied().map(AtomicU64::new).collect());
            }
        }
        memory
    }

    /// What it holds now. Pages that are as they were `before` are not copied again.
    #[must_use]
    pub fn copy(&self, before: &HeapCopy) -> HeapCopy {
        let mut before = before.pages.iter();
        let copy = |page: &OnceLock<Page>| {
            let known = before.next().and_then(Option::as_ref);
            let words = || page.get().into_iter().flatten().map(|word| word.load(Ordering::SeqCst));
            match known.filter(|known| words().eq(known.iter().copied())) {
                Some(known) => Some(Arc::clone(known)),
                None => page.get().map(|_| words().collect()),
            }
        };
        HeapCopy { pages: self.shared.pages.iter().map(copy).collect() }
    }

    /// The word at byte `at`; none if its page was never stored into.
    fn peek(&self, at: u64) -> Option<&AtomicU64> {
        let Some(page) = self.shared.pages.get((at / PAGE) as usize) else {
            self.shared.is_misused.store(true, Ordering::SeqCst);
            return None;
        };
        page.get()?.get((at % PAGE / WORD) as usize)
    }

    /// The word at byte `at`, to store into.
    fn word(&self, at: u64) -> Option<&AtomicU64> {
        let Some(page) = self.shared.pages.get((at / PAGE) as usize) else {
            self.shared.is_misused.store(true, Ordering::SeqCst);
            return None;
        };
        let page = page.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        page.get((at % PAGE / WORD) as usize)
    }

    /// Calls `set` with each word of `len` bytes from `at` on: the word, the range of its bytes
    /// that is meant, and where the bytes are in the transfer.
    fn each(at: u64, len: u64, mut set: impl FnMut(u64, core::ops::Range<usize>, usize)) {
        let mut done = 0;
        while done < len {
            let skip = (at + done) % WORD;
            let count = (WORD - skip).min(len - done);
            set(at + done - skip, skip as usize..(skip + count) as usize, done as usize);
            done += count;
        }
    }

    fn put_each(&self, at: u64, len: u64, bytes: impl Fn(usize) -> u8) {
        HeapMemory::each(at, len, |word, range, from| {
            let Some(word) = self.word(word) else {
                return;
            };
            let mut value = word.load(Ordering::SeqCst).to_le_bytes();
            for (index, byte) in value.iter_mut().enumerate() {
                if range.contains(&index) {
                    *byte = bytes(from + index - range.start);
                }
            }
            word.store(u64::from_le_bytes(value), Ordering::SeqCst);
        });
    }
}

impl Memory for HeapMemory {
    fn len(&self) -> u64 {
        self.shared.pages.len() as u64 * PAGE
    }

    fn failure(&self) -> Option<&'static str> {
        self.shared.is_misused.load(Ordering::SeqCst).then_some("an access was out of bounds")
    }

    fn load(&self, at: Offset, _order: Ordering) -> u64 {
        self.peek(at.bytes()).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    fn read(&self, at: Offset, out: &mut [u8]) {
        HeapMemory::each(at.bytes(), out.len() as u64, |word, range, from| {
            let value = self.peek(word).map_or(0, |word| word.load(Ordering::SeqCst));
            let bytes = value.to_le_bytes();
            let part = bytes.get(range).unwrap_or_default();
            if let Some(into) = out.get_mut(from..from + part.len()) {
                into.copy_from_slice(part);
            }
        });
    }

    fn store(&self, at: Offset, value: u64, _order: Ordering) {
        if let Some(word) = self.word(at.bytes()) {
            word.store(value, Ordering::SeqCst);
        }
    }

    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<u64, u64> {
        let word = self.word(at.bytes()).ok_or(0_u64)?;
        word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn full_fence(&self) {}

    fn load_fence(&self) {}

    fn wait(&self, at: Offset, expected: u32, timeout: Duration) -> Wake {
        if self.load(at, Ordering::SeqCst) as u32 != expected {
            return Wake::Woken;
        }
        std::thread::sleep(NAP.min(timeout));
        self.shared.clock.advance(NAP.min(timeout));
        if timeout <= NAP { Wake::TimedOut } else { Wake::Woken }
    }

    fn wake(&self, _at: Offset, _count: u32) {}

    fn put(&self, at: Offset, value: u64, order: Ordering) {
        self.store(at, value, order);
    }

    fn put_or(&self, at: Offset, bits: u64) {
        if let Some(word) = self.word(at.bytes()) {
            word.fetch_or(bits, Ordering::SeqCst);
        }
    }

    fn put_and_not(&self, at: Offset, bits: u64) {
        if let Some(word) = self.word(at.bytes()) {
            word.fetch_and(!bits, Ordering::SeqCst);
        }
    }

    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        self.put_each(at.bytes(), bytes.len() as u64, |at| bytes.get(at).copied().unwrap_or(0));
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        let page = |at: u64| self.shared.pages.get((at / PAGE) as usize);
        let (mut at, end) = (at.bytes(), at.bytes() + len);
        while at < end {
            let count = (PAGE - at % PAGE).min(end - at);
            // What was never stored into is zeros.
            if page(at).is_none_or(|page| page.get().is_some()) {
                self.put_each(at, count, |_| 0);
            }
            at += count;
        }
    }

    fn write_back(&self, _at: Offset, _len: u64) {}

    fn fence(&self) {}

    fn needs_write_back(&self) -> bool {
        false
    }
}
