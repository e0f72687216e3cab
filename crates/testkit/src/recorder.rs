//! A `Memory` over an [`Image`] that writes every event down.
//!
//! Invariants:
//! - the order of the log is the order in which the stores changed the image: both happen under one
//!   lock;
//! - stores out of bounds, of the wrong part or at odd offsets do nothing, and the first is kept
//!   as the memory's [`RecordingMemory::violation`]; so is a load out of bounds;
//! - [`RecordingMemory::rewind`] gives back the image as it was when the log began.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use conquest_format::{LINE, Offset, WORD};
use conquest_pm::memory::{Memory, Wake};

use crate::baton::Baton;
use crate::inflight::Patch;
use crate::thread::current_actor;
use crate::weak::Weak;
use crate::{Clock, Event, Image, Kind, Mark, Recording, lock};

/// A memory that records; clones share image and log.
#[derive(Clone, Debug)]
pub struct RecordingMemory {
    shared: Arc<Shared>,
}

/// The memory as one actor uses it: a thread, with write-backs of its own.
#[derive(Clone, Debug)]
pub struct Actor {
    shared: Arc<Shared>,
    /// None: whoever the calling thread is.
    id: Option<u32>,
}

#[derive(Debug)]
struct Shared {
    base: Arc<Image>,
    image: Image,
    volatile: Range<u64>,
    needs_write_back: bool,
    log: Mutex<Vec<Event>>,
    violation: Mutex<Option<String>>,
    clock: Clock,
    baton: OnceLock<Arc<Baton>>,
    weak: OnceLock<Mutex<Weak>>,
    steps: AtomicU64,
    step_limit: AtomicU64,
}

/// What a check that takes too many steps unwinds with.
pub(crate) struct TooManySteps;

impl RecordingMemory {
    /// A memory that holds what `base` does, all of it durable. `volatile` is the volatile part in
    /// bytes; without `needs_write_back`, power failures don't show.
    #[must_use]
    pub fn new(base: Arc<Image>, volatile: Range<u64>, needs_write_back: bool) -> Self {
        let shared = Shared {
            image: Image::over(Arc::clone(&base)),
            base,
            volatile,
            needs_write_back,
            log: Mutex::default(),
            violation: Mutex::default(),
            clock: Clock::default(),
            baton: OnceLock::new(),
            weak: OnceLock::new(),
            steps: AtomicU64::new(0),
            step_limit: AtomicU64::new(u64::MAX),
        };
        RecordingMemory { shared: Arc::new(shared) }
    }

    /// The memory as actor `id` uses it.
    #[must_use]
    pub fn actor(&self, id: u32) -> Actor {
        Actor { shared: Arc::clone(&self.shared), id: Some(id) }
    }

    /// The memory as whoever calls uses it: each event is the calling thread's, see
    /// [`crate::become_actor`].
    #[must_use]
    pub fn this_thread(&self) -> Actor {
        Actor { shared: Arc::clone(&self.shared), id: None }
    }

    /// The recording up to now.
    #[must_use]
    pub fn recording(&self) -> Recording {
        Recording {
            base: Arc::clone(&self.shared.base),
            events: lock(&self.shared.log).clone(),
            volatile: self.shared.volatile.clone(),
            needs_write_back: self.shared.needs_write_back,
        }
    }

    /// A copy of what the memory holds now, for a recording that begins here.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Image> {
        Arc::new(self.shared.image.snapshot())
    }

    /// The image, as it is.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.shared.image
    }

    /// Virtual time: passes while actors wait.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.clock.clone()
    }

    /// The first access that no correct program makes.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        lock(&self.shared.violation).clone()
    }

    /// From now on actors known to `baton` take turns by it.
    pub(crate) fn schedule(&self, baton: Arc<Baton>) {
        // A memory is scheduled once, by the run that made it.
        let _ = self.shared.baton.set(baton);
    }

    /// From now on scheduled actors may load older values, where orderings allow it.
    pub(crate) fn weaken(&self, weak: Weak) {
        // As above.
        let _ = self.shared.weak.set(Mutex::new(weak));
    }

    /// Begins a check of up to `steps` steps: one more unwinds with [`TooManySteps`].
    pub(crate) fn begin_check(&self, steps: u64) {
        self.shared.clock.reset();
        *lock(&self.shared.violation) = None;
        self.shared.steps.store(0, Ordering::Relaxed);
        self.shared.step_limit.store(steps, Ordering::Relaxed);
    }

    /// Changes words without writing it down and appends what they held to `undo`.
    pub(crate) fn patch(&self, words: &[Patch], undo: &mut Vec<Patch>) {
        for &(word, value) in words {
            undo.push((word, self.shared.image.set(word, value)));
        }
    }

    /// Takes back the changes in `undo`.
    pub(crate) fn unpatch(&self, undo: &mut Vec<Patch>) {
        while let Some((word, value)) = undo.pop() {
            self.shared.image.set(word, value);
        }
    }

    /// Moves the log into `events` and takes back all it did.
    pub(crate) fn rewind(&self, events: &mut Vec<Event>) {
        events.clear();
        std::mem::swap(events, &mut lock(&self.shared.log));
        for event in events.iter().rev() {
            if let Kind::Put { word, old, .. } | Kind::Store { word, old, .. } = event.kind {
                self.shared.image.set(word, old);
            }
        }
    }
}

/// Which part an access is meant for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Persistent,
    Volatile,
}

/// Whether an update looks at what it replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Store,
    Exchange,
}

#[derive(Clone, Copy, Debug)]
struct Access {
    part: Part,
    how: How,
    order: Ordering,
    /// Of an exchange that changes nothing.
    failure: Ordering,
}

impl Access {
    const PUT: Access = Access {
        part: Part::Persistent,
        how: How::Store,
        order: Ordering::Relaxed,
        failure: Ordering::Relaxed,
    };
    const PUT_BITS: Access = Access { how: How::Exchange, order: Ordering::AcqRel, ..Access::PUT };
}

impl Shared {
    fn complain(&self, what: &str, at: u64) {
        lock(&self.violation).get_or_insert_with(|| {
            format!(
                "{what} at {at:#x}, the region has {:#x} bytes, volatile {:#x?}",
                self.image.len(),
                self.volatile
            )
        });
    }

    /// Whether a store of the word at `at` is allowed in `part`.
    fn admits(&self, part: Part, at: u64) -> bool {
        let what = if !at.is_multiple_of(WORD) {
            "unaligned access"
        } else if at >= self.image.len() {
            "access out of bounds"
        } else if self.volatile.contains(&at) != (part == Part::Volatile) {
            "store into the wrong part"
        } else {
            return true;
        };
        self.complain(what, at);
        false
    }

    fn step(&self) {
        // Lost counts don't matter, so no atomic addition.
        let steps = self.steps.load(Ordering::Relaxed) + 1;
        self.steps.store(steps, Ordering::Relaxed);
        if steps > self.step_limit.load(Ordering::Relaxed) && !std::thread::panicking() {
            resume_unwind(Box::new(TooManySteps));
        }
    }
}

impl Actor {
    fn id(&self) -> u32 {
        self.id.unwrap_or_else(current_actor)
    }

    /// Writes a remark into the log.
    pub fn mark(&self, mark: Mark) {
        self.record(Kind::Mark(mark));
    }

    /// The memory itself.
    #[must_use]
    pub fn memory(&self) -> RecordingMemory {
        RecordingMemory { shared: Arc::clone(&self.shared) }
    }

    fn record(&self, kind: Kind) {
        lock(&self.shared.log).push(Event { actor: self.id(), kind });
    }

    fn baton(&self) -> Option<(&Arc<Baton>, usize)> {
        let id = self.id() as usize;
        self.shared.baton.get().filter(|baton| baton.knows(id)).map(|baton| (baton, id))
    }

    /// Before every event: others may go first.
    fn turn(&self) {
        self.shared.step();
        if let Some((baton, id)) = self.baton() {
            baton.pass(id);
        }
    }

    /// The orderings to keep, if this actor is scheduled on weak memory, and its number.
    fn weak(&self) -> Option<(MutexGuard<'_, Weak>, usize)> {
        let weak = self.shared.weak.get()?;
        let (_, id) = self.baton()?;
        Some((lock(weak), id))
    }

    /// Replaces a word by what `change` makes of it, if anything; returns what it held.
    fn update(&self, access: Access, at: u64, change: impl Fn(u64) -> Option<u64>) -> u64 {
        let Access { part, how, order, .. } = access;
        self.turn();
        if !self.shared.admits(part, at) {
            return 0;
        }
        let word = at / WORD;
        let mut log = lock(&self.shared.log);
        let old = self.shared.image.get(word);
        let new = change(old);
        if let Some((mut weak, id)) = self.weak() {
            match (how, new) {
                (How::Store, Some(new)) => weak.store(id, word, old, new, order),
                (How::Store, None) => {}
                (How::Exchange, Some(_)) => weak.exchange(id, word, old, new, order),
                (How::Exchange, None) => weak.exchange(id, word, old, None, access.failure),
            }
        }
        let Some(new) = new else {
            return old;
        };
        self.shared.image.set(word, new);
        let kind = match part {
            Part::Persistent => Kind::Put { word, old, new },
            Part::Volatile => Kind::Store { word, old, new },
        };
        log.push(Event { actor: self.id(), kind });
        drop(log);
        if let Some((baton, _)) = self.baton() {
            baton.stored(at, new as u32);
        }
        old
    }

    /// The word that covers byte `at`, for loads.
    fn peek(&self, at: u64, order: Ordering) -> u64 {
        self.shared.step();
        if let Some((baton, id)) = self.baton()
            && (baton.persistent_loads() || self.shared.volatile.contains(&at))
        {
            baton.pass(id);
        }
        if at >= self.shared.image.len() {
            self.shared.complain("load out of bounds", at);
            return 0;
        }
        let newest = self.shared.image.get(at / WORD);
        match self.weak() {
            Some((mut weak, id)) => weak.load(id, at / WORD, newest, order),
            None => newest,
        }
    }

    /// A full fence at which nobody else can go first: that of a call to the kernel.
    pub(crate) fn order_all(&self) {
        if let Some((mut weak, id)) = self.weak() {
            weak.full_fence(id);
        }
    }

    /// Stores bytes that `byte` gives by their place, word by word.
    fn put_each(&self, at: Offset, len: u64, byte: impl Fn(u64) -> u8) {
        let (start, end) = (at.bytes(), at.bytes().saturating_add(len));
        if end > self.shared.image.len() {
            self.shared.complain("store of bytes out of bounds", start);
            return;
        }
        let mut word = start / WORD * WORD;
        while word < end {
            self.update(Access::PUT, word, |old| {
                let mut bytes = old.to_le_bytes();
                for (place, slot) in (word..).zip(&mut bytes) {
                    if (start..end).contains(&place) {
                        *slot = byte(place - start);
                    }
                }
                Some(u64::from_le_bytes(bytes))
            });
            word += WORD;
        }
    }
}

impl Memory for Actor {
    fn len(&self) -> u64 {
        self.shared.image.len()
    }

    fn load(&self, at: Offset, order: Ordering) -> u64 {
        if !at.is_aligned(WORD) {
            self.shared.complain("unaligned access", at.bytes());
            return 0;
        }
        self.peek(at.bytes(), order)
    }

    fn read(&self, at: Offset, out: &mut [u8]) {
        let mut place = at.bytes();
        let mut out = out;
        while !out.is_empty() {
            let skip = (place % WORD) as usize;
            let count = out.len().min(WORD as usize - skip);
            let (head, rest) = out.split_at_mut(count);
            head.copy_from_slice(
                &self.peek(place, Ordering::Relaxed).to_le_bytes()[skip..skip + count],
            );
            out = rest;
            place = place.saturating_add(count as u64);
        }
    }

    fn store(&self, at: Offset, value: u64, order: Ordering) {
        let access = Access { part: Part::Volatile, order, ..Access::PUT };
        self.update(access, at.bytes(), |_| Some(value));
    }

    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        order: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let access = Access { part: Part::Volatile, how: How::Exchange, order, failure };
        let found = self.update(access, at.bytes(), |old| (old == current).then_some(new));
        if found == current { Ok(found) } else { Err(found) }
    }

    /// Where memory is weak, others can go first: what was stored before may be seen late, although
    /// what was loaded before was loaded early.
    fn full_fence(&self) {
        if self.weak().is_some() {
            self.turn();
        }
        self.order_all();
    }

    fn load_fence(&self) {
        if let Some((mut weak, id)) = self.weak() {
            weak.load_fence(id);
        }
    }

    /// Without a schedule nobody could wake us: time passes at once.
    fn wait(&self, at: Offset, expected: u32, timeout: Duration) -> Wake {
        self.shared.step();
        if !self.shared.admits(Part::Volatile, at.bytes()) {
            return Wake::TimedOut;
        }
        let differs = || self.shared.image.get(at.bytes() / WORD) as u32 != expected;
        if let Some((baton, id)) = self.baton() {
            return baton.wait(id, at.bytes(), expected, timeout, differs);
        }
        if differs() {
            return Wake::Woken;
        }
        self.shared.clock.advance(timeout);
        Wake::TimedOut
    }

    fn wake(&self, at: Offset, count: u32) {
        self.turn();
        if let Some((baton, _)) = self.baton() {
            baton.wake(at.bytes(), count);
        }
    }

    fn put(&self, at: Offset, value: u64, order: Ordering) {
        self.update(Access { order, ..Access::PUT }, at.bytes(), |_| Some(value));
    }

    fn put_or(&self, at: Offset, bits: u64) {
        self.update(Access::PUT_BITS, at.bytes(), |old| Some(old | bits));
    }

    fn put_and_not(&self, at: Offset, bits: u64) {
        self.update(Access::PUT_BITS, at.bytes(), |old| Some(old & !bits));
    }

    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        let byte = |place: u64| bytes.get(place as usize).copied().unwrap_or(0);
        self.put_each(at, bytes.len() as u64, byte);
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        self.put_each(at, len, |_| 0);
    }

    fn write_back(&self, at: Offset, len: u64) {
        if !self.shared.needs_write_back || len == 0 {
            return;
        }
        self.turn();
        let end = at.bytes().saturating_add(len);
        if end > self.shared.image.len() {
            self.shared.complain("write-back out of bounds", at.bytes());
            return;
        }
        for line in at.bytes() / LINE..end.div_ceil(LINE) {
            self.record(Kind::WriteBack { line });
        }
    }

    fn fence(&self) {
        if self.shared.needs_write_back {
            self.turn();
            self.record(Kind::Fence);
        }
    }

    fn needs_write_back(&self) -> bool {
        self.shared.needs_write_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    fn memory() -> RecordingMemory {
        RecordingMemory::new(Arc::new(Image::new(8192)), 4096..8192, true)
    }

    #[test]
    fn bytes_land_where_they_should_and_rewind_takes_them_back() {
        let memory = memory();
        let actor = memory.actor(0);
        actor.put(Offset::new(8), u64::MAX, SeqCst);
        actor.put_bytes(Offset::new(5), &[1, 2, 3, 4, 5, 6]);
        let mut out = [9; 12];
        actor.read(Offset::new(4), &mut out);
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 255, 255, 255, 255, 255]);
        actor.put_zeros(Offset::new(6), 3);
        actor.put_or(Offset::new(0), 0xF0);
        actor.put_and_not(Offset::new(0), 0x30);
        assert_eq!(actor.load(Offset::new(0), SeqCst), 1 << 40 | 0xC0);
        assert_eq!(actor.load(Offset::new(8), SeqCst), 0xFFFF_FFFF_FF06_0500);
        assert_eq!(memory.violation(), None);
        let mut events = Vec::new();
        memory.rewind(&mut events);
        assert_eq!(events.len(), 7);
        assert_eq!(memory.image().digest(), Image::new(8192).digest());
    }

    #[test]
    fn wrong_accesses_are_noticed_and_do_nothing() {
        type Access = fn(&Actor);
        let accesses: [Access; 6] = [
            |a| a.put(Offset::new(4096), 1, SeqCst),
            |a| a.store(Offset::new(8), 1, SeqCst),
            |a| a.put(Offset::new(4), 1, SeqCst),
            |a| a.put_bytes(Offset::new(8190), &[1; 4]),
            |a| assert_eq!(a.load(Offset::new(u64::MAX - 7), SeqCst), 0),
            |a| a.write_back(Offset::new(8190), 4),
        ];
        for access in accesses {
            let memory = memory();
            access(&memory.actor(0));
            assert!(memory.violation().is_some());
            assert_eq!(memory.recording().events, []);
        }
    }

    #[test]
    fn a_compare_exchange_that_fails_changes_nothing() {
        let memory = memory();
        let actor = memory.this_thread();
        let at = Offset::new(4096);
        assert_eq!(actor.compare_exchange(at, 0, 5, SeqCst, SeqCst), Ok(0));
        assert_eq!(actor.compare_exchange(at, 0, 6, SeqCst, SeqCst), Err(5));
        assert_eq!(memory.recording().events.len(), 1);
        let waited = actor.wait(at, 5, Duration::from_secs(1));
        assert_eq!((waited, memory.clock().now()), (Wake::TimedOut, 1_000_000_000));
        assert_eq!(actor.wait(at, 4, Duration::from_secs(1)), Wake::Woken);
    }
}
