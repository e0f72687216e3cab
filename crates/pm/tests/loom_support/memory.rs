//! The region's bytes: watched words are loom's, all others plain.

use std::collections::{HashMap, HashSet};
use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_format::{Offset, WORD};
use conquest_pm::memory::{Memory, Wake};
use loom::cell::UnsafeCell;
use loom::sync::Condvar;
use loom::sync::atomic::{AtomicU64, fence};

use super::{Waits, Words, locked};

/// What an actor unwinds with that dies.
pub(crate) struct Died;

/// Finds changes that are not ordered by the locks (or whatever else is to order them).
pub(crate) struct Guard(UnsafeCell<()>);

// SAFETY: nothing is ever read or written in the cell; loom checks who would have.
unsafe impl Send for Guard {}
// SAFETY: as above.
unsafe impl Sync for Guard {}

impl Guard {
    /// A guard of an execution.
    pub(crate) fn new() -> Arc<Guard> {
        Arc::new(Guard(UnsafeCell::new(())))
    }

    /// Panics unless every other access happened before this one.
    pub(crate) fn change(&self) {
        self.0.with_mut(|_| ());
    }

    /// Panics unless every other change happened before this look.
    pub(crate) fn look(&self) {
        self.0.with(|_| ());
    }
}

/// Called before each store into the persistent part: actor, offset, and the value or bits.
pub(crate) type Hook = Box<dyn Fn(u32, Offset, u64) + Send + Sync>;

/// A word of loom's.
///
/// Of each object loom remembers only the last access, and takes two loads for independent: a load
/// of one thread is forgotten when another thread loads too, and when that one then stores, loom
/// does not try the store before the first load. So every access is announced by a change of a
/// second object, which changes nothing and orders nothing.
struct Watched {
    word: AtomicU64,
    accesses: AtomicU64,
}

struct Futex {
    bucket: loom::sync::Mutex<()>,
    sleepers: Condvar,
}

/// What all processes map.
pub(crate) struct Region {
    len: u64,
    waits: Waits,
    /// What an execution starts from.
    image: Mutex<Words>,
    changed: Mutex<Words>,
    watched: Mutex<HashMap<u64, Arc<Watched>>>,
    futexes: Mutex<HashMap<u64, Arc<Futex>>>,
    hook: Mutex<Option<Arc<Hook>>>,
    /// Stores that each doomed actor has left.
    doomed: Mutex<HashMap<u32, u64>>,
    dead: Mutex<HashSet<u32>>,
    stores: Mutex<HashMap<u32, u64>>,
}

impl Region {
    pub(super) fn new(len: u64, waits: Waits) -> Arc<Region> {
        Arc::new(Region {
            len,
            waits,
            image: Mutex::default(),
            changed: Mutex::default(),
            watched: Mutex::default(),
            futexes: Mutex::default(),
            hook: Mutex::default(),
            doomed: Mutex::default(),
            dead: Mutex::default(),
            stores: Mutex::default(),
        })
    }

    /// Makes the bytes as they are what executions start from.
    pub(super) fn keep(&self) {
        locked(&self.image).extend(locked(&self.changed).drain());
    }

    pub(super) fn start(&self, words: &[Offset]) {
        locked(&self.changed).clear();
        locked(&self.doomed).clear();
        locked(&self.dead).clear();
        locked(&self.stores).clear();
        *locked(&self.hook) = None;
        let word = |at: &Offset| {
            let word = AtomicU64::new(self.plain(at.bytes()));
            (at.bytes(), Arc::new(Watched { word, accesses: AtomicU64::new(0) }))
        };
        let watched = words.iter().map(word).collect();
        *locked(&self.watched) = watched;
        let mut futexes = HashMap::new();
        if self.waits == Waits::ForEver {
            for at in words {
                let futex = Futex { bucket: loom::sync::Mutex::new(()), sleepers: Condvar::new() };
                futexes.insert(at.bytes(), Arc::new(futex));
            }
        }
        *locked(&self.futexes) = futexes;
    }

    /// Calls `hook` from now on, in this execution.
    pub(crate) fn set_hook(&self, hook: impl Fn(u32, Offset, u64) + Send + Sync + 'static) {
        *locked(&self.hook) = Some(Arc::new(Box::new(hook)));
    }

    pub(super) fn doom(&self, actor: u32, stores: u64) {
        locked(&self.doomed).insert(actor, stores);
    }

    /// `actor` does nothing any more.
    pub(super) fn die(&self, actor: u32) {
        locked(&self.dead).insert(actor);
    }

    /// Stores that `actor` has made in this execution.
    pub(crate) fn stores(&self, actor: u32) -> u64 {
        locked(&self.stores).get(&actor).copied().unwrap_or(0)
    }

    fn plain(&self, at: u64) -> u64 {
        let changed = locked(&self.changed).get(&at).copied();
        changed.unwrap_or_else(|| locked(&self.image).get(&at).copied().unwrap_or(0))
    }

    fn set_plain(&self, at: u64, value: u64) {
        if value == 0 && !locked(&self.image).contains_key(&at) {
            locked(&self.changed).remove(&at);
        } else {
            locked(&self.changed).insert(at, value);
        }
    }

    /// The word at `at`, about to be accessed, if it is watched.
    fn watched(&self, at: Offset) -> Option<Arc<Watched>> {
        assert!(at.is_aligned(WORD) && at.bytes() < self.len, "out of bounds: {at}");
        let watched = locked(&self.watched).get(&at.bytes()).map(Arc::clone)?;
        watched.accesses.fetch_add(0, Ordering::Relaxed);
        Some(watched)
    }
}

/// The region as one process maps it.
pub(crate) struct ModelMemory {
    region: Arc<Region>,
    actor: u32,
}

impl ModelMemory {
    pub(super) fn new(region: &Arc<Region>, actor: u32) -> Self {
        ModelMemory { region: Arc::clone(region), actor }
    }

    /// Whether nothing has an effect any more: the actor has died, or the model has failed.
    fn is_dead(&self) -> bool {
        std::thread::panicking() || locked(&self.region.dead).contains(&self.actor)
    }

    /// Before each store: whether it happens. Unwinds if the actor dies now.
    fn may_store(&self) -> bool {
        if self.is_dead() {
            if std::thread::panicking() {
                return false;
            }
            resume_unwind(Box::new(Died));
        }
        if let Some(left) = locked(&self.region.doomed).get_mut(&self.actor) {
            if *left == 0 {
                self.region.die(self.actor);
                resume_unwind(Box::new(Died));
            }
            *left -= 1;
        }
        *locked(&self.region.stores).entry(self.actor).or_default() += 1;
        true
    }

    fn tell(&self, at: Offset, value: u64) {
        let hook = locked(&self.region.hook).clone();
        if let Some(hook) = hook {
            hook(self.actor, at, value);
        }
    }

    fn set(&self, at: Offset, value: u64, order: Ordering) {
        match self.region.watched(at) {
            Some(watched) => watched.word.store(value, order),
            None => self.region.set_plain(at.bytes(), value),
        }
    }
}

impl Memory for ModelMemory {
    fn len(&self) -> u64 {
        self.region.len
    }

    fn load(&self, at: Offset, order: Ordering) -> u64 {
        if self.is_dead() {
            return 0;
        }
        match self.region.watched(at) {
            Some(watched) => watched.word.load(order),
            None => self.region.plain(at.bytes()),
        }
    }

    fn read(&self, at: Offset, out: &mut [u8]) {
        for (index, byte) in out.iter_mut().enumerate() {
            let place = at.bytes() + index as u64;
            let word = self.load(Offset::new(place / WORD * WORD), Ordering::Relaxed);
            *byte = word.to_le_bytes()[(place % WORD) as usize];
        }
    }

    fn store(&self, at: Offset, value: u64, order: Ordering) {
        if self.may_store() {
            self.set(at, value, order);
        }
    }

    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        if !self.may_store() {
            return Ok(current);
        }
        if let Some(watched) = self.region.watched(at) {
            return watched.word.compare_exchange(current, new, success, failure);
        }
        let found = self.region.plain(at.bytes());
        if found != current {
            return Err(found);
        }
        self.region.set_plain(at.bytes(), new);
        Ok(found)
    }

    fn full_fence(&self) {
        if !self.is_dead() {
            fence(Ordering::SeqCst);
        }
    }

    fn load_fence(&self) {
        if !self.is_dead() {
            fence(Ordering::Acquire);
        }
    }

    fn wait(&self, at: Offset, expected: u32, _timeout: Duration) -> Wake {
        if self.is_dead() {
            resume_unwind(Box::new(Died));
        }
        if self.region.waits == Waits::TimeOut {
            loom::thread::yield_now();
            return Wake::TimedOut;
        }
        let futex = locked(&self.region.futexes).get(&at.bytes()).map(Arc::clone);
        let futex = futex.expect("a watched word");
        // As in the kernel: the word is looked at under the lock under which sleepers are woken.
        let bucket = futex.bucket.lock().unwrap();
        fence(Ordering::SeqCst);
        if self.load(at, Ordering::Relaxed) as u32 == expected {
            drop(futex.sleepers.wait(bucket).unwrap());
        }
        Wake::Woken
    }

    fn wake(&self, at: Offset, count: u32) {
        if self.is_dead() || self.region.waits == Waits::TimeOut {
            return;
        }
        let futex = locked(&self.region.futexes).get(&at.bytes()).map(Arc::clone);
        let Some(futex) = futex else { return };
        let _bucket = futex.bucket.lock().unwrap();
        if count == 1 {
            futex.sleepers.notify_one();
        } else {
            futex.sleepers.notify_all();
        }
    }

    fn put(&self, at: Offset, value: u64, order: Ordering) {
        if self.may_store() {
            self.tell(at, value);
            self.set(at, value, order);
        }
    }

    fn put_or(&self, at: Offset, bits: u64) {
        if self.may_store() {
            self.tell(at, bits);
            match self.region.watched(at) {
                Some(watched) => drop(watched.word.fetch_or(bits, Ordering::AcqRel)),
                None => self.region.set_plain(at.bytes(), self.region.plain(at.bytes()) | bits),
            }
        }
    }

    fn put_and_not(&self, at: Offset, bits: u64) {
        if self.may_store() {
            self.tell(at, bits);
            match self.region.watched(at) {
                Some(watched) => drop(watched.word.fetch_and(!bits, Ordering::AcqRel)),
                None => self.region.set_plain(at.bytes(), self.region.plain(at.bytes()) & !bits),
            }
        }
    }

    fn put_bytes(&self, at: Offset, bytes: &[u8]) {
        if !self.may_store() {
            return;
        }
        for (index, &byte) in bytes.iter().enumerate() {
            let place = at.bytes() + index as u64;
            let word = Offset::new(place / WORD * WORD);
            let mut value = self.load(word, Ordering::Relaxed).to_le_bytes();
            value[(place % WORD) as usize] = byte;
            self.set(word, u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }

    fn put_zeros(&self, at: Offset, len: u64) {
        if self.may_store() {
            for word in (at.bytes()..at.bytes() + len).step_by(WORD as usize) {
                self.set(Offset::new(word), 0, Ordering::Relaxed);
            }
        }
    }

    fn write_back(&self, _at: Offset, _len: u64) {}

    fn fence(&self) {}

    fn needs_write_back(&self) -> bool {
        false
    }
}
