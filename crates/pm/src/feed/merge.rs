//! Merging the rings of all lanes.
//!
//! Batches are given in the order of their versions, as far as that is sure: a batch that is to
//! come before one that was seen may be published in a ring that was looked at before. So a
//! follower looks at all rings twice. Let `S` be what the first look finds published. Whoever made
//! a change of `S` held its locks after those who changed the same before, so their batches are
//! found by the second look. Of what only the second look finds, let `m` be the least version. Then
//! a batch of `S` whose version is not later than `m` has all that belongs before it in `S`.
//!
//! The others have to wait for the next look, and might wait for ever, as versions of locks that
//! are seldom used stay behind. So before it looks again, the follower raises the floor above which
//! versions of changes are to be. Then at most one more batch of each lane, which was begun before,
//! can come with a lesser version.

use core::sync::atomic::Ordering;

use conquest_format::feed::BatchHeader;
use conquest_format::volatile::{self, head};

use crate::Result;
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;

/// How far a follower has come with each lane.
pub(super) struct Merge {
    rings: Vec<Ring>,
    /// Batches of a later version than this are not sure; none if all are.
    until: Option<u64>,
}

/// How far it has come with one lane.
struct Ring {
    /// Position of the next batch.
    at: u64,
    /// Position up to which it is known that there are batches.
    known: u64,
    /// The header of the next batch, once it was read.
    header: Option<BatchHeader>,
    is_lost: bool,
}

impl Ring {
    /// Skips all that there is.
    fn skip_to(&mut self, position: u64) {
        (self.at, self.known, self.header) = (position, position, None);
        self.is_lost = true;
    }
}

impl Merge {
    /// Begins with what is published from now on.
    pub(super) fn new<M: Memory, H: Host>(core: &Core<M, H>) -> Merge {
        let ring = |number| {
            let at = core.published(number, Ordering::Acquire);
            Ring { at, known: at, header: None, is_lost: false }
        };
        Merge { rings: (0..core.geometry.shape().lanes).map(ring).collect(), until: None }
    }

    /// Whether something was lost that nobody was told of.
    pub(super) fn has_lost(&self) -> bool {
        self.rings.iter().any(|ring| ring.is_lost)
    }

    /// A lane of which something was lost that nobody was told of.
    pub(super) fn take_lost(&mut self) -> Option<u32> {
        let mut rings = (0..).zip(&mut self.rings);
        rings.find_map(|(number, ring)| core::mem::take(&mut ring.is_lost).then_some(number))
    }

    /// Gives up what there is of lane `number`.
    pub(super) fn lose<M: Memory, H: Host>(&mut self, core: &Core<M, H>, number: u32) {
        if let Some(ring) = self.rings.get_mut(number as usize) {
            ring.skip_to(core.published(number, Ordering::Acquire));
        }
    }

    /// Goes on past the next batch of lane `number`, which has `words` words.
    pub(super) fn advance(&mut self, number: u32, words: u64) {
        if let Some(ring) = self.rings.get_mut(number as usize) {
            ring.at = ring.at.wrapping_add(words);
            ring.header = None;
        }
    }

    /// Whether anything is published that was not given yet, or was lost.
    pub(super) fn is_behind<M: Memory, H: Host>(&self, core: &Core<M, H>) -> bool {
        (0..).zip(&self.rings).any(|(number, ring)| {
            ring.is_lost || core.published(number, Ordering::Relaxed) != ring.at
        })
    }

    /// The earliest batch that is sure: its lane, position and header. None if there is none, or if
    /// it has found that something was lost.
    pub(super) fn earliest<M: Memory, H: Host>(
        &mut self,
        core: &Core<M, H>,
    ) -> Result<Option<(u32, u64, BatchHeader)>> {
        let mut found: Option<(u32, u64, BatchHeader)> = None;
        for (number, ring) in (0..).zip(&mut self.rings) {
            let head = ring.head(core, number)?;
            if ring.is_lost {
                // What is told of other lanes may come after what was lost.
                return Ok(None);
            }
            let Some(header) = head else { continue };
            let is_sure = self.until.is_none_or(|until| !volatile::is_later(header.version, until));
            let is_first = found
                .is_none_or(|(.., earliest)| volatile::is_later(earliest.version, header.version));
            if is_sure && is_first {
                found = Some((number, ring.at, header));
            }
        }
        Ok(found)
    }

    /// Looks at all rings; whether there is anything to give.
    pub(super) fn look<M: Memory, H: Host>(&mut self, core: &Core<M, H>) -> Result<bool> {
        let waiting = self.rings.iter().filter_map(|ring| ring.header);
        let latest = waiting.map(|header| header.version);
        let latest =
            latest.reduce(|one, other| if volatile::is_later(other, one) { other } else { one });
        if let Some(latest) = latest {
            raise_floor(core, latest);
        }
        for (number, ring) in (0..).zip(&mut self.rings) {
            ring.known = core.published(number, Ordering::Acquire);
        }
        self.until = None;
        for (number, ring) in (0..).zip(&mut self.rings) {
            let published = core.published(number, Ordering::Acquire);
            if published == ring.known {
                continue;
            }
            match core.batch_header(number, ring.known) {
                Ok(Some(header)) => {
                    let is_least =
                        self.until.is_none_or(|until| volatile::is_later(until, header.version));
                    if is_least {
                        self.until = Some(header.version);
                    }
                }
                Ok(None) => ring.skip_to(core.published(number, Ordering::Acquire)),
                // It is an error once it is next.
                Err(_) => ring.known = published,
            }
        }
        Ok(self.rings.iter().any(|ring| ring.is_lost || ring.at != ring.known))
    }
}

impl Ring {
    /// The header of the next batch that is known.
    fn head<M: Memory, H: Host>(
        &mut self,
        core: &Core<M, H>,
        number: u32,
    ) -> Result<Option<BatchHeader>> {
        if self.header.is_some() || self.at == self.known {
            return Ok(self.header);
        }
        let left = self.known.wrapping_sub(self.at);
        let found = match core.batch_header(number, self.at) {
            Ok(Some(header)) if header.words > left => {
                Err(core.corrupt_batch(number, self.at, header.words))
            }
            found => found,
        };
        match found {
            Ok(Some(header)) => self.header = Some(header),
            // The next call goes on.
            Ok(None) | Err(_) => self.skip_to(core.published(number, Ordering::Acquire)),
        }
        found
    }
}

/// Sees to it that versions of changes that are told are later than `version`, but for those of
/// transactions that are about to commit.
fn raise_floor<M: Memory, H: Host>(core: &Core<M, H>, version: u64) {
    let at = core.geometry.head(head::FEED_FLOOR);
    let mut word = core.memory.load(at, Ordering::Relaxed);
    while volatile::is_later(version, volatile::version(word, core.tag())) {
        let raised = volatile::versioned(core.tag(), version);
        let swapped =
            core.memory.compare_exchange(at, word, raised, Ordering::Relaxed, Ordering::Relaxed);
        match swapped {
            Ok(_) => return,
            Err(found) => word = found,
        }
    }
}
