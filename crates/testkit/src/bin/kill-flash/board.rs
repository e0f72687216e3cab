//! What all processes of a run see, whatever happens to one of them: what slices held when this
//! round began, what was begun and done since then, and what was found on the volume.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::memory::Shared;
use crate::space::Space;

/// Words of the board itself.
const CLOCK: usize = 0;
const STOP: usize = 1;
const CAPACITY: usize = 2;
const RESERVED: usize = 3;
const HEADER: usize = 8;
/// Words of a slot: operations before this round; begun in it; done in it; operations in all, with
/// those that change nothing; bytes written; sets looked at; units that were reserved when this
/// round began, and when it ended; requests to queues; writes with reserved space; requests under
/// way.
const BASE: usize = 0;
const BEGUN: usize = 1;
const DONE: usize = 2;
const COUNT: usize = 3;
const BYTES: usize = 4;
const LOOKS: usize = 5;
const SHARE: usize = 6;
const NEXT_SHARE: usize = 7;
const QUEUED: usize = 8;
const RESERVING: usize = 9;
const UNDER_WAY: usize = 10;
const SLOT: usize = 16;
/// Words of an operation in a slot's journal: when it was begun, when it had ended, what came of
/// it, and whether it is known to be on the devices.
const ENTRY: usize = 4;

/// What came of an operation whose process was killed in it, if that can't be known: others have
/// written the same set since, or nothing tells whether more is reserved, or was flushed.
pub(crate) const MAYBE: u64 = u64::MAX;

/// Shared memory with all of it.
pub(crate) struct Board {
    words: Shared,
    slots: usize,
    /// Operations of a slot that a round has room for.
    pub(crate) room: u64,
    blocks: usize,
}

/// An operation of a slot in this round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) begin: u64,
    /// When it had ended; none if it has not.
    pub(crate) end: Option<u64>,
    /// Steps that it has made, or [`MAYBE`].
    pub(crate) steps: u64,
    /// Whether a queue has told that it is on the devices.
    pub(crate) has_landed: bool,
}

impl Board {
    /// For `space`, with room for so many operations of each slot in a round.
    pub(crate) fn new(space: &Space, room: u64) -> Result<Board, String> {
        let (slots, blocks) = (space.slots(), space.blocks);
        let words = HEADER + slots * (SLOT + room as usize * ENTRY) + 2 * blocks;
        Ok(Board { words: Shared::of(words)?, slots, room, blocks })
    }

    fn slot(&self, slot: usize, word: usize) -> &AtomicU64 {
        &self.words[HEADER + slot * SLOT + word]
    }

    fn entry(&self, slot: usize, index: u64, word: usize) -> &AtomicU64 {
        let journals = HEADER + self.slots * SLOT;
        let entry = slot * self.room as usize + index as usize;
        &self.words[journals + entry * ENTRY + word]
    }

    fn values(&self, which: usize) -> &[AtomicU64] {
        let first = self.words.len() - (2 - which) * self.blocks;
        &self.words[first..first + self.blocks]
    }

    /// The values of all blocks of the model when this round began.
    pub(crate) fn base(&self) -> &[AtomicU64] {
        self.values(0)
    }

    /// The values that were found.
    pub(crate) fn found(&self) -> &[AtomicU64] {
        self.values(1)
    }

    /// The next moment: later than all that anybody has seen.
    pub(crate) fn now(&self) -> u64 {
        self.words[CLOCK].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Tells workers to close the volume, or not to.
    pub(crate) fn stop(&self, stop: bool) {
        self.words[STOP].store(stop.into(), Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.words[STOP].load(Ordering::SeqCst) != 0
    }

    /// Units that can have payload.
    pub(crate) fn capacity(&self) -> &AtomicU64 {
        &self.words[CAPACITY]
    }

    /// Units that are reserved, as it was found.
    pub(crate) fn reserved(&self) -> &AtomicU64 {
        &self.words[RESERVED]
    }

    /// Units that slot `slot` had reserved when this round began.
    pub(crate) fn share(&self, slot: usize) -> u64 {
        self.slot(slot, SHARE).load(Ordering::SeqCst)
    }

    /// In the next round it has so many.
    pub(crate) fn set_next_share(&self, slot: usize, units: u64) {
        self.slot(slot, NEXT_SHARE).store(units, Ordering::SeqCst);
    }

    /// Operations that slot `slot` had begun before this round.
    pub(crate) fn before(&self, slot: usize) -> u64 {
        self.slot(slot, BASE).load(Ordering::SeqCst)
    }

    /// Begins an operation at moment `now`: its index in this round.
    pub(crate) fn begin(&self, slot: usize, now: u64) -> u64 {
        let index = self.slot(slot, BEGUN).load(Ordering::SeqCst);
        for word in [1, 3] {
            self.entry(slot, index, word).store(0, Ordering::SeqCst);
        }
        self.entry(slot, index, 0).store(now, Ordering::SeqCst);
        self.slot(slot, BEGUN).store(index + 1, Ordering::SeqCst);
        index
    }

    /// The operation that was begun last is over at moment `now`: `steps` of it have happened.
    pub(crate) fn end(&self, slot: usize, steps: u64, now: u64) {
        let index = self.slot(slot, DONE).load(Ordering::SeqCst);
        self.entry(slot, index, 2).store(steps, Ordering::SeqCst);
        self.entry(slot, index, 1).store(now, Ordering::SeqCst);
        self.slot(slot, DONE).store(index + 1, Ordering::SeqCst);
    }

    /// Operation `index` of slot `slot` in this round is on the devices.
    pub(crate) fn land(&self, slot: usize, index: u64) {
        self.entry(slot, index, 3).store(1, Ordering::SeqCst);
    }

    /// What slot `slot` has begun in this round before moment `cut`, in order, as it was then. At
    /// most the last one has not ended.
    pub(crate) fn entries(&self, slot: usize, cut: u64) -> Vec<Entry> {
        let begun = self.slot(slot, BEGUN).load(Ordering::SeqCst);
        let done = self.slot(slot, DONE).load(Ordering::SeqCst);
        let get = |index, word| self.entry(slot, index, word).load(Ordering::SeqCst);
        let entry = |index| Entry {
            begin: get(index, 0),
            end: (index < done).then(|| get(index, 1)).filter(|&end| end < cut),
            steps: get(index, 2),
            has_landed: get(index, 3) != 0,
        };
        (0..begun).map(entry).take_while(|entry| entry.begin < cut).collect()
    }

    /// Whether there is no room for another operation of slot `slot` in this round.
    pub(crate) fn is_full(&self, slot: usize) -> bool {
        self.slot(slot, BEGUN).load(Ordering::SeqCst) >= self.room
    }

    /// Counts an operation of slot `slot` that wrote so many bytes, or looked at a set.
    pub(crate) fn count(&self, slot: usize, bytes: u64, is_look: bool) {
        self.slot(slot, COUNT).fetch_add(1, Ordering::Relaxed);
        self.slot(slot, BYTES).fetch_add(bytes, Ordering::Relaxed);
        self.slot(slot, LOOKS).fetch_add(is_look.into(), Ordering::Relaxed);
    }

    /// Counts a request to a queue, or a write with reserved space.
    pub(crate) fn count_special(&self, slot: usize, is_queued: bool, is_reserved: bool) {
        self.slot(slot, QUEUED).fetch_add(is_queued.into(), Ordering::Relaxed);
        self.slot(slot, RESERVING).fetch_add(is_reserved.into(), Ordering::Relaxed);
    }

    /// So many requests of slot `slot` are under way.
    pub(crate) fn under_way(&self, slot: usize) -> &AtomicU64 {
        self.slot(slot, UNDER_WAY)
    }

    fn sum(&self, word: usize) -> u64 {
        (0..self.slots).map(|slot| self.slot(slot, word).load(Ordering::Relaxed)).sum()
    }

    /// Operations of all slots.
    pub(crate) fn operations(&self) -> u64 {
        self.sum(COUNT)
    }

    /// Bytes that all have written.
    pub(crate) fn bytes(&self) -> u64 {
        self.sum(BYTES)
    }

    /// Sets that were looked at.
    pub(crate) fn looks(&self) -> u64 {
        self.sum(LOOKS)
    }

    /// Requests to queues.
    pub(crate) fn queued(&self) -> u64 {
        self.sum(QUEUED)
    }

    /// Writes with reserved space.
    pub(crate) fn reserving(&self) -> u64 {
        self.sum(RESERVING)
    }

    /// Begins another round: what was found is what is there. Nobody works.
    pub(crate) fn begin_round(&self) {
        for slot in 0..self.slots {
            let begun = self.slot(slot, BEGUN).swap(0, Ordering::SeqCst);
            self.slot(slot, DONE).store(0, Ordering::SeqCst);
            self.slot(slot, BASE).fetch_add(begun, Ordering::SeqCst);
            let share = self.slot(slot, NEXT_SHARE).load(Ordering::SeqCst);
            self.slot(slot, SHARE).store(share, Ordering::SeqCst);
            self.under_way(slot).store(0, Ordering::SeqCst);
        }
        for (base, found) in self.base().iter().zip(self.found()) {
            base.store(found.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.stop(false);
    }
}
