//! The keeper: a process that makes durable what nobody waits for.
//!
//! It attaches the region like any other. Who wants the region for himself asks it to leave, and
//! nobody counts it among those who use the region.

use core::sync::atomic::Ordering;
use core::time::Duration;

use conquest_format::log::{HURRY, LEAVE, PUSH, chunk as header, head, unpack_end};
use conquest_format::volatile::{self, slot};
use conquest_format::{Geometry, Offset, PAGE};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;

/// What of a region is not durable yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lag {
    /// Records.
    pub records: u64,
    /// Bytes that have to be written for them, about.
    pub bytes: u64,
    /// Since when there may be some; none if there are none.
    pub age: Option<Duration>,
}

/// What the keeper is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Nothing.
    Nothing,
    /// To let pages that [pass](crate::Tx::pages_pass) go where they are to go.
    Push,
    /// To make durable what there is, before its time.
    Hurry,
    /// To leave.
    Leave,
}

/// The slot of the keeper of the region in `memory`, of attach generation `tag`, if the process
/// that has that slot is one.
pub fn keeper_slot(memory: &impl Memory, geometry: &Geometry, tag: u32) -> Option<u32> {
    if geometry.shape().log == 0 {
        return None;
    }
    let word = memory.load(geometry.log_head(head::KEEPER), Ordering::Relaxed) as u32;
    let number = volatile::owner_slot(word).filter(|&slot| slot < geometry.shape().slots)?;
    let process = memory.load(Offset::plus(geometry.slot(number), slot::PID), Ordering::Relaxed);
    // Another process may have its slot since.
    let is_its = volatile::current(process, tag) == Some(volatile::owner_thread(word));
    is_its.then_some(number)
}

/// Asks the keeper of the region in `memory` to leave.
pub fn ask_keeper_to_leave(memory: &impl Memory, geometry: &Geometry) {
    if geometry.shape().log != 0 {
        let at = geometry.log_head(head::KEEPER_ASKED);
        memory.store(at, LEAVE, Ordering::Relaxed);
        memory.wake(at, u32::MAX);
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// The calling process, whose first thread calls this, is the keeper from now on.
    pub fn become_keeper(&self) {
        let word = u64::from(self.me());
        self.memory.store(self.geometry.log_head(head::KEEPER_ASKED), 0, Ordering::Relaxed);
        self.memory.store(self.geometry.log_head(head::KEEPER), word, Ordering::Relaxed);
    }

    /// Whether some process is the keeper.
    pub fn has_keeper(&self) -> bool {
        keeper_slot(&self.memory, &self.geometry, self.tag()).is_some()
    }

    /// Sleeps so long, or until the keeper is asked for something: what that is.
    pub fn await_asked(&self, timeout: Duration) -> Asked {
        let at = self.geometry.log_head(head::KEEPER_ASKED);
        if self.memory.load(at, Ordering::Relaxed) == 0 {
            self.memory.wait(at, 0, timeout);
        }
        let (order, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        loop {
            let asked = match self.memory.load(at, Ordering::Relaxed) {
                0 => return Asked::Nothing,
                PUSH => Asked::Push,
                HURRY => Asked::Hurry,
                // That stays.
                _ => return Asked::Leave,
            };
            let word = if asked == Asked::Push { PUSH } else { HURRY };
            if self.memory.compare_exchange(at, word, 0, order, failure).is_ok() {
                return asked;
            }
        }
    }

    /// Asks the keeper to make durable what there is, before its time.
    pub(super) fn hurry_keeper(&self) {
        self.ask_keeper(HURRY, &[0, PUSH]);
    }

    /// Asks the keeper to let pages that pass go where they are to go.
    pub(super) fn have_keeper_push(&self) {
        self.ask_keeper(PUSH, &[0]);
    }

    /// Asks the keeper for `what`, if it is asked for no more than one of `less`.
    fn ask_keeper(&self, what: u64, less: &[u64]) {
        let at = self.geometry.log_head(head::KEEPER_ASKED);
        let (order, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let found = self.memory.load(at, Ordering::Relaxed);
        if less.contains(&found)
            && self.memory.compare_exchange(at, found, what, order, failure).is_ok()
        {
            self.memory.wake(at, 1);
        }
    }

    /// Whether another living process than this one and the keeper has the region attached.
    ///
    /// # Errors
    /// Those of the host.
    pub fn is_anyone_else_at_work(&self) -> crate::Result<bool> {
        let keeper = keeper_slot(&self.memory, &self.geometry, self.tag());
        for number in 0..self.geometry.shape().slots {
            let is_other = number != self.slot() && Some(number) != keeper;
            if is_other && self.host.is_claimed(number)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What is not durable yet: looks at all chunks of the log.
    pub fn lag(&self) -> Lag {
        let (durable, next) = (self.durable(), self.next_sequence());
        if next <= durable {
            return Lag::default();
        }
        let pages = self.log_word(head::PAGES, Ordering::Relaxed) + self.passing_pages();
        let mut bytes = pages * PAGE;
        for number in 0..self.geometry.shape().log {
            let owner = self.owner(number, Ordering::Relaxed);
            let last = self.header(number, header::LAST, Ordering::Relaxed);
            if owner.lane.is_some() && last >= durable {
                bytes +=
                    unpack_end(self.header(number, header::END, Ordering::Relaxed), owner.life);
            }
        }
        let since = self.log_word(head::DURABLE_AT, Ordering::Relaxed);
        let age = Duration::from_nanos(self.host.now().saturating_sub(since));
        Lag { records: next - durable, bytes, age: Some(age) }
    }
}
