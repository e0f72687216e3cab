//! Checkpoints: so that the log need not be replayed from its beginning.
//!
//! 1. [`Core::begin_checkpoint`] says from which number on the log is needed still, and which
//!    records before it are, because they are committed and not applied as a whole: their owners
//!    may be stopped.
//! 2. All pages that records below that number have changed, since the last checkpoint began, are
//!    copied ([`Core::copy_page`]) and written with what is sealed afterwards: some now, some
//!    later.
//!    The page with the region's state is among them: no record says how many groups there are.
//! 3. With the last of them the log begins at that number, and has those few records besides.
//!
//! A copy has all that was applied before it was made, and nothing that is not below the cut of
//! what it goes with. What it lacks are records from that number on, and those few.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;

use conquest_format::log::State;

use crate::Result;
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;

/// A checkpoint that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// From which number on the log is needed.
    pub sequence: u64,
    /// Records with smaller numbers that are needed, too.
    pub unapplied: BTreeSet<u64>,
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Begins a checkpoint.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if a lane is damaged.
    pub fn begin_checkpoint(&self) -> Result<Begun> {
        let sequence = self.next_sequence();
        let mut unapplied = BTreeSet::new();
        for lane in 0..self.geometry.shape().lanes {
            // Nobody commits with a smaller number any more.
            let State::Committed(drawn) = self.push(lane) else {
                continue;
            };
            let is_armed = self.commit_word_of(lane, Ordering::Acquire)?.is_armed();
            // Or it is the next record that is armed: that was said before, and this one is
            // applied. If it counted, it would be repeated behind those that came after it.
            let is_same = self.lane_state(lane, Ordering::Relaxed) == State::Committed(drawn);
            if drawn < sequence && is_armed && is_same {
                unapplied.insert(drawn);
            }
        }
        Ok(Begun { sequence, unapplied })
    }
}
