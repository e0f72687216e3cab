//! Handles: the open files of the kernel, by numbers. None of them takes a descriptor of the host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use conquest_fs::open::OpenFile;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;

/// Slots for open files.
#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Option<OpenFile>>,
    free: Vec<usize>,
}

/// All open files of a mount.
#[derive(Debug)]
pub(crate) struct Handles {
    shards: [Mutex<Shard>; SHARDS],
    /// Where the next one goes, so that threads hardly meet.
    next: AtomicUsize,
}

impl Handles {
    pub(crate) fn new() -> Handles {
        Handles { shards: Default::default(), next: AtomicUsize::new(0) }
    }

    fn shard(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.shards[at % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of `handle` in its shard.
    fn slot(handle: u64) -> usize {
        usize::try_from(handle / SHARDS as u64).unwrap_or(usize::MAX)
    }

    /// A handle for `open`.
    pub(crate) fn add(&self, open: OpenFile) -> u64 {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shard(at);
        let slot = shard.free.pop().unwrap_or(shard.slots.len());
        match shard.slots.get_mut(slot) {
            Some(free) => *free = Some(open),
            None => shard.slots.push(Some(open)),
        }
        (slot * SHARDS + at) as u64
    }

    /// What has `handle`.
    pub(crate) fn get(&self, handle: u64) -> Option<OpenFile> {
        *self.shard(handle as usize).slots.get(Self::slot(handle))?
    }

    /// Takes `handle` away from what has it.
    pub(crate) fn remove(&self, handle: u64) -> Option<OpenFile> {
        let mut shard = self.shard(handle as usize);
        let slot = Self::slot(handle);
        let open = shard.slots.get_mut(slot)?.take()?;
        shard.free.push(slot);
        Some(open)
    }

    /// Takes all handles away.
    pub(crate) fn clear(&self) -> Vec<OpenFile> {
        let mut all = Vec::new();
        for at in 0..SHARDS {
            let mut shard = self.shard(at);
            shard.free.clear();
            all.extend(shard.slots.drain(..).flatten());
        }
        all
    }
}
