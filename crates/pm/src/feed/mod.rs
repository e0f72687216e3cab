//! The change feed: what has changed, for whoever keeps something of it in mind.
//!
//! Each lane has a ring. A transaction [tells](Tx::tell) its *notices*, which are words that belong
//! to the layer above; those of one journal record are a *batch*, which counts once the lane's
//! position is moved past it:
//!
//! | step | if the process dies after it |
//! | --- | --- |
//! | limit: up to where the ring may be overwritten | nothing counts |
//! | notices | nothing counts |
//! | header and version, then what is prepared | the batch counts: it is of something that did not happen, which is harmless |
//! | the record is committed and applied | the batch counts |
//! | position | the batch counts |
//! | versions become even, locks are let go | |
//!
//! Whoever settles the lane moves the position, before he lets go of its locks. So *nobody sees a
//! change whose notice can't be found*: readers who take no lock look at versions.
//!
//! *Order.* Lanes share nothing that would order their batches, but changes that belong in an order
//! have a lock in common, and a change gives all its locks a later version than any of them had. So
//! the order of versions is right for all that one lock guards, and within a lane. See
//! [`Follower`] for how rings are merged by it.
//!
//! *Followers* register nowhere and write nothing, but for two words in the head of the volatile
//! part: one says that somebody sleeps, the other, rarely, that versions must go on. A position has
//! 64 bits and never begins anew, so that no word has to be cleared when an attach generation
//! begins.

mod follower;
mod merge;

pub use follower::{Batch, BatchWords, Follower, Heard};

use core::sync::atomic::Ordering;

use conquest_format::feed::{BATCH_HEADER, BATCH_MAX, BatchHeader, RING_WORDS};
use conquest_format::volatile::{self, head, lane};
use conquest_format::{Offset, WORD};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::tx::Tx;
use crate::{Error, Result};

impl<M: Memory, H: Host> Core<M, H> {
    fn feed_word(&self, number: u32, word: u64) -> Offset {
        self.geometry.lane_record(number).plus(word)
    }

    /// Position up to which lane `number`'s batches count.
    fn published(&self, number: u32, order: Ordering) -> u64 {
        self.memory.load(self.feed_word(number, lane::FEED), order)
    }

    /// Makes it known that words of lane `number`'s ring are stored up to position `end`. What the
    /// limit was in an earlier attach generation can be anything.
    fn limit_ring(&self, number: u32, end: u64) {
        let at = self.feed_word(number, lane::FEED_LIMIT);
        let ahead = end.wrapping_sub(self.memory.load(at, Ordering::Relaxed)).cast_signed();
        // Never less in this generation, though a batch may have been dropped.
        if ahead > 0 || ahead < -BATCH_MAX.cast_signed() {
            self.memory.store(at, end, Ordering::Relaxed);
        }
    }

    /// Stores `words` into lane `number`'s ring. Whoever sees one of them sees the limit, too.
    fn store_ring(&self, number: u32, position: u64, words: &[u64]) {
        for (index, word) in (0..).zip(words) {
            let at = self.geometry.ring_word(number, position.wrapping_add(index));
            self.memory.store(at, *word, Ordering::Release);
        }
    }

    /// The version of lane `number`'s latest batch.
    pub(crate) fn told_version(&self, number: u32) -> u64 {
        let word = self.memory.load(self.feed_word(number, lane::FEED_VERSION), Ordering::Relaxed);
        volatile::version(word, self.tag())
    }

    /// The version that the next batch of lane `number` has to be above.
    pub(crate) fn least_version(&self, number: u32) -> u64 {
        let floor = self.memory.load(self.geometry.head(head::FEED_FLOOR), Ordering::Relaxed);
        let floor = volatile::version(floor, self.tag());
        let told = self.told_version(number);
        if volatile::is_later(floor, told) { floor } else { told }
    }

    /// Publishes what the dead owner of lane `number` had prepared, if anything. The caller owns
    /// the lane, and has settled its record.
    pub(crate) fn publish_prepared(&self, number: u32) {
        let published = self.published(number, Ordering::Relaxed);
        let word = self.memory.load(self.feed_word(number, lane::FEED_PREPARED), Ordering::Relaxed);
        let Some(prepared) = volatile::current(word, self.tag()) else {
            return;
        };
        let words = u64::from(prepared.wrapping_sub(published as u32));
        if words == 0 {
            return;
        }
        let mut end = published.wrapping_add(words);
        if words > BATCH_MAX {
            // Damaged. What is told is not known any more, and nobody must miss that.
            end = published.wrapping_add(2 * RING_WORDS);
            self.limit_ring(number, end);
            self.prepare(number, end);
        } else {
            self.disown_batch(number, published, words);
        }
        self.memory.store(self.feed_word(number, lane::FEED), end, Ordering::Release);
    }

    /// Makes the batch at `position` nobody's own: its process has not come to know of it.
    fn disown_batch(&self, number: u32, position: u64, words: u64) {
        let version = self.told_version(number);
        let header = BatchHeader { words, slot: None, version };
        self.store_ring(number, position, &header.pack(position));
    }

    /// Says that the batch that ends at position `end` is complete.
    fn prepare(&self, number: u32, end: u64) {
        let at = self.feed_word(number, lane::FEED_PREPARED);
        self.set_value(at, end as u32, Ordering::Release);
    }

    /// Wakes the followers that sleep. One that begins to sleep at this moment, so that neither
    /// processor has seen the other's store, sleeps a nap (20 ms) too long. Not so where the locks'
    /// release, which comes before this, is a full fence, as on x86.
    pub(crate) fn wake_followers(&self) {
        let at = self.geometry.head(head::FEED_SLEEPERS);
        if self.value(at, Ordering::Relaxed).is_multiple_of(2) {
            return;
        }
        let none = |count: u32| (!count.is_multiple_of(2)).then(|| count.wrapping_add(1));
        if self.update(at, 0, Ordering::Relaxed, none).is_ok() {
            self.memory.wake(at, u32::MAX);
        }
    }
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// Tells `notice` of what the transaction stages: it is published when the record is applied,
    /// before anybody can see that, and dropped with the transaction.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if a record's notices have more than 510 words; [`Error::ForkedInside`].
    pub fn tell(&mut self, notice: &[u64]) -> Result<()> {
        self.refuse_child()?;
        let start = self.told.max(BATCH_HEADER);
        let end = start + notice.len() as u64;
        if end > BATCH_MAX {
            return Err(Error::TooLarge { what: "words of notices", wanted: end, most: BATCH_MAX });
        }
        let published = self.core.published(self.lane, Ordering::Relaxed);
        self.core.limit_ring(self.lane, published.wrapping_add(end));
        self.core.store_ring(self.lane, published.wrapping_add(start), notice);
        self.told = end;
        Ok(())
    }

    /// Makes what the transaction tells nobody's own: it is not what this process was asked to do.
    pub fn disown(&mut self) {
        self.is_nobodys = true;
    }

    /// Makes a batch of what was told, with `version`, which counts unless it is dropped.
    pub(crate) fn prepare_batch(&self, version: u64) {
        if self.told == 0 {
            return;
        }
        let core = self.core;
        let position = core.published(self.lane, Ordering::Relaxed);
        let slot = core.slot.load(Ordering::Relaxed);
        let slot = (!self.is_nobodys).then_some(slot);
        let header = BatchHeader { words: self.told, slot, version };
        core.store_ring(self.lane, position, &header.pack(position));
        let latest = volatile::versioned(core.tag(), version);
        let at = core.feed_word(self.lane, lane::FEED_VERSION);
        core.memory.store(at, latest, Ordering::Relaxed);
        core.prepare(self.lane, position.wrapping_add(self.told));
    }

    /// Publishes the batch that was prepared, if there is one.
    pub(crate) fn publish_batch(&mut self) {
        if self.told == 0 {
            return;
        }
        let position = self.core.published(self.lane, Ordering::Relaxed);
        let end = position.wrapping_add(core::mem::take(&mut self.told));
        let at = self.core.feed_word(self.lane, lane::FEED);
        self.core.memory.store(at, end, Ordering::Release);
        self.has_told = true;
    }
}

const _: () = assert!(BATCH_MAX < RING_WORDS && WORD == 8);
