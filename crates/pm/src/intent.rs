//! Intents: work longer than a lane holds, in steps, finished whoever dies.
//!
//! An intent is eight words in its lane: a code and seven arguments, which belong to whoever
//! registered the handler. The transaction that begins the work sets it; each step is a
//! transaction that changes things and the intent together; the last one clears it. A process that
//! dies in between leaves the lane to whoever recovers it, as an orphan; the next operation of
//! anybody, or the next attach, adopts it and goes on.

use core::sync::atomic::Ordering;

use conquest_format::journal::{Action, Entry, INTENT, INTENT_WORDS};
use conquest_format::volatile::{self, head};
use conquest_format::{Offset, WORD};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::tx::Tx;
use crate::{Error, Result};

/// Unfinished work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    /// What kind of work; 0 for none.
    pub code: u64,
    /// Where it stands, in the handler's terms.
    pub arguments: [u64; INTENT_WORDS as usize - 1],
}

impl<M: Memory, H: Host> Core<M, H> {
    fn intent_word(&self, lane: u32, index: u64) -> Offset {
        self.geometry.lane(lane).plus(INTENT + index * WORD)
    }

    /// The intent in lane `lane`, which the caller owns.
    pub(crate) fn intent(&self, lane: u32) -> Intent {
        let word = |index: u64| self.memory.load(self.intent_word(lane, index), Ordering::Relaxed);
        Intent { code: word(0), arguments: core::array::from_fn(|index| word(index as u64 + 1)) }
    }

    /// Takes the steps of the intent in lane `lane`, which the caller owns, until it is done.
    pub(crate) fn finish_intent(&self, lane: u32) -> Result<()> {
        loop {
            let intent = self.intent(lane);
            if intent.code == 0 {
                return Ok(());
            }
            let Some(handler) = &self.options.intents else {
                return Err(Error::UnknownIntent { lane, code: intent.code });
            };
            let mut tx = self.begin_on(lane, false, false)?;
            // Whoever began it may be somebody else, or has returned.
            tx.disown();
            let stepped = handler(&mut tx, intent).and_then(|()| tx.commit_step());
            drop(tx);
            match stepped {
                Ok(()) | Err(Error::Again) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets the flag that says that there may be orphans. It is exchanged, never stored: whoever
    /// takes it learns of the orphans of all who have set it since it was last taken.
    pub(crate) fn tell_of_orphans(&self) {
        let flag = self.geometry.head(head::ORPHANS);
        let (Ok(_) | Err(_)) = self.update(flag, 0, Ordering::Release, |_| Some(1));
    }

    /// Adopts and finishes the intents of dead processes, if there are any.
    pub(crate) fn adopt_orphans(&self) -> Result<()> {
        let flag = self.geometry.head(head::ORPHANS);
        // The flag is taken in one step: a lane that becomes an orphan meanwhile is seen below, or
        // its flag stays.
        if self.value(flag, Ordering::Relaxed) == 0 || !self.replace(flag, 1, 0, Ordering::Acquire)
        {
            return Ok(());
        }
        for lane in 0..self.geometry.shape().lanes {
            if self.lane_owner(lane) == volatile::ORPHAN && self.try_take(lane, volatile::ORPHAN) {
                if let Err(error) = self.finish_intent(lane) {
                    self.orphan_lane(lane);
                    return Err(error);
                }
                self.leave_lane(lane);
            }
        }
        Ok(())
    }
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// Stages `intent` as the lane's, in place of the one before.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the lane is full.
    pub fn set_intent(&mut self, intent: Intent) -> Result<()> {
        let words = core::iter::once(intent.code).chain(intent.arguments);
        for (index, operand) in words.enumerate() {
            let target = self.core.intent_word(self.lane, index as u64);
            self.stage(Entry { target, action: Action::Set, operand })?;
        }
        Ok(())
    }
}
