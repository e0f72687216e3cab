//! Following the feed: reading batches, and sleeping until there are more.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use conquest_format::feed::{BATCH_HEADER, BATCH_MAX, BatchHeader, RING_WORDS};
use conquest_format::volatile::{head, lane};

use super::merge::Merge;
use crate::core::Core;
use crate::host::Host;
use crate::memory::{Memory, Wake};
use crate::wait::NAP;
use crate::{Error, Result};

/// Room for the notices of one batch.
pub type BatchWords = [u64; (BATCH_MAX - BATCH_HEADER) as usize];

/// What a follower hears next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The notices of one journal record.
    Batch(Batch),
    /// The follower was too slow, or the lane is damaged: it has lost batches of this lane. It goes
    /// on with later ones.
    Lost(u32),
    /// Nothing more at present.
    Nothing,
}

/// A batch of notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The lane that has told it.
    pub lane: u32,
    /// Its place among the lane's, which no other one has or had.
    pub position: u64,
    /// Slot of the process that told it; none if nobody knows of the change for having made it.
    pub slot: Option<u32>,
    /// The version that the change gave its locks.
    pub version: u64,
    /// Words of its notices.
    pub words: usize,
}

/// Follows the change feed of a region from some moment on. Whatever is seen to change afterwards
/// is heard of, or that it was lost: in the order of the changes for all that one lock guards.
pub struct Follower<M: Memory, H: Host> {
    core: Arc<Core<M, H>>,
    merge: Merge,
}

impl<M: Memory, H: Host> core::fmt::Debug for Follower<M, H> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Begins to follow the change feed.
    pub fn follow(self: &Arc<Self>) -> Follower<M, H> {
        Follower { core: Arc::clone(self), merge: Merge::new(self) }
    }

    /// Copies words of lane `number`'s ring from `position` on; whether they are still there.
    fn copy_ring(&self, number: u32, position: u64, out: &mut [u64]) -> bool {
        for (index, word) in (0..).zip(&mut *out) {
            let at = self.geometry.ring_word(number, position.wrapping_add(index));
            *word = self.memory.load(at, Ordering::Relaxed);
        }
        self.memory.load_fence();
        let limit = self.memory.load(self.feed_word(number, lane::FEED_LIMIT), Ordering::Relaxed);
        limit.wrapping_sub(position) <= RING_WORDS
    }

    /// The header of the batch at `position` of lane `number`, which was published; none if it was
    /// overwritten.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is none.
    pub(super) fn batch_header(&self, number: u32, position: u64) -> Result<Option<BatchHeader>> {
        let mut words = [0; BATCH_HEADER as usize];
        if !self.copy_ring(number, position, &mut words) {
            return Ok(None);
        }
        let header = BatchHeader::unpack(words, position);
        header.ok_or_else(|| self.corrupt_batch(number, position, words[0])).map(Some)
    }

    /// The error for a batch of lane `number` that can't be.
    #[cold]
    pub(super) fn corrupt_batch(&self, number: u32, position: u64, found: u64) -> Error {
        Error::Corrupt {
            what: "change feed",
            offset: self.geometry.ring_word(number, position),
            expected: "a batch of notices that stands there",
            found,
        }
    }
}

impl<M: Memory, H: Host> Follower<M, H> {
    /// The region.
    pub fn core(&self) -> &Arc<Core<M, H>> {
        &self.core
    }

    /// What comes next; the notices of a batch are copied to `out`. Takes no lock, allocates
    /// nothing, and waits for nobody.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a ring is damaged: what was in it is lost, the next call goes on;
    /// [`Error::Failed`].
    pub fn next(&mut self, out: &mut BatchWords) -> Result<Heard> {
        let core = &self.core;
        if core.host.is_forked() {
            core.enter()?;
        }
        core.check_health()?;
        loop {
            if let Some(number) = self.merge.take_lost() {
                return Ok(Heard::Lost(number));
            }
            let Some((number, position, header)) = self.merge.earliest(core)? else {
                if self.merge.has_lost() || self.merge.look(core)? {
                    continue;
                }
                return Ok(Heard::Nothing);
            };
            let words = (header.words - BATCH_HEADER) as usize;
            let first = position.wrapping_add(BATCH_HEADER);
            let out = out.get_mut(..words).unwrap_or_default();
            if core.copy_ring(number, first, out) {
                self.merge.advance(number, header.words);
                let BatchHeader { slot, version, .. } = header;
                return Ok(Heard::Batch(Batch { lane: number, position, slot, version, words }));
            }
            self.merge.lose(core, number);
        }
    }

    /// Sleeps until there is something to hear, or `patience` has passed; whether there is.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when a signal arrives; [`Error::Failed`].
    pub fn wait(&self, patience: Duration) -> Result<bool> {
        let core = &self.core;
        let at = core.geometry.head(head::FEED_SLEEPERS);
        let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let until = core.host.now().saturating_add(patience);
        loop {
            core.check_health()?;
            if self.merge.is_behind(core) {
                return Ok(true);
            }
            let odd = |count: u32| count.is_multiple_of(2).then(|| count.wrapping_add(1));
            let seen = match core.update(at, 0, Ordering::Relaxed, odd) {
                Ok(even) => even.wrapping_add(1),
                Err(odd) => odd,
            };
            // Either whoever publishes sees the flag, or this sees what was published.
            core.memory.full_fence();
            if self.merge.is_behind(core) {
                return Ok(true);
            }
            let left = Duration::from_nanos(until.saturating_sub(core.host.now()));
            if left.is_zero() {
                return Ok(false);
            }
            if core.memory.wait(at, seen, left.min(NAP)) == Wake::Interrupted {
                return Err(Error::Interrupted);
            }
        }
    }
}
