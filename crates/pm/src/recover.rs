//! Recovery: of a process that died, of a thread that ended, of everything after a power failure.
//!
//! A slot's lanes are taken over while its kernel lock is held, so that no new process can have the
//! slot meanwhile; if whoever recovers dies too, the lock is free again and the lanes it had taken
//! are its own slot's to recover. Every step can be done again.

use core::ops::Range;
use core::sync::atomic::Ordering;

use conquest_format::journal::{Action, Commit, ENTRIES_MAX, Entry};
use conquest_format::volatile::{self, slot};

use crate::Result;
use crate::busy::BitWord;
use crate::core::Core;
use crate::host::Host;
use crate::journal::entry_at;
use crate::memory::Memory;
use crate::thread::Open;

/// A slot that somebody takes, or sees to.
pub(crate) struct TakenSlot<H: Host> {
    pub(crate) claim: H::Claim,
    pub(crate) turn: H::Claim,
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Recovers every process that has died, without waiting for anybody to meet what it left.
    ///
    /// # Errors
    /// Those of the host; [`crate::Error::Corrupt`] if a record is damaged.
    pub fn recover(&self) -> Result<()> {
        let _open = Open::new();
        for number in 0..self.geometry.shape().slots {
            let state = self.geometry.slot(number).plus(slot::STATE);
            if self.value(state, Ordering::Relaxed) != 0 && !self.host.is_claimed(number)? {
                self.recover_slot(number)?;
            }
        }
        self.adopt_orphans()?;
        self.bury_all()
    }

    /// Whether another process is attached that is alive.
    ///
    /// # Errors
    /// Those of the host.
    pub fn is_anyone_else_attached(&self) -> Result<bool> {
        for number in 0..self.geometry.shape().slots {
            if number != self.slot() && self.host.is_claimed(number)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Recovers slot `number`, whose process is dead; false if somebody else is at it or it was
    /// alive after all.
    pub(crate) fn recover_slot(&self, number: u32) -> Result<bool> {
        let Some(taken) = self.claim_slot(number)? else {
            return Ok(false);
        };
        let recovered = self.recover_claimed_slot(number);
        drop(taken);
        recovered.map(|()| true)
    }

    /// Takes the lock of slot `number`, and the turn of seeing to it before that; none if somebody
    /// else has either. As long as he keeps the turn, what a dead process has left there may be as
    /// it was; who has the lock of a slot, and nobody the turn, is who is in the slot.
    pub(crate) fn claim_slot(&self, number: u32) -> Result<Option<TakenSlot<H>>> {
        // To ask costs no descriptor, to claim does.
        if self.host.is_claimed(number)? {
            return Ok(None);
        }
        let Some(turn) = self.host.claim_turn(number)? else {
            return Ok(None);
        };
        Ok(self.host.claim(number)?.map(|claim| TakenSlot { claim, turn }))
    }

    /// Recovers slot `number`, whose kernel lock the caller holds.
    pub(crate) fn recover_claimed_slot(&self, number: u32) -> Result<()> {
        for lane in 0..self.geometry.shape().lanes {
            let owner = self.lane_owner(lane);
            if owner != volatile::ORPHAN
                && volatile::owner_slot(owner) == Some(number)
                && self.try_take(lane, owner)
            {
                self.settle_lane(lane)?;
            }
        }
        // It may have died while it made a lane an orphan, or had adopted one.
        self.tell_of_orphans();
        self.settle_holdings(number);
        let state = self.geometry.slot(number).plus(slot::STATE);
        self.set_value(state, 0, Ordering::Relaxed);
        Ok(())
    }

    /// Recovers the lanes of thread `thread` of this process, if it has ended; whether it had.
    pub(crate) fn recover_own_thread(&self, thread: u32) -> Result<bool> {
        let Some(_turn) = self.thread_turn() else {
            return Ok(false);
        };
        if self.host.is_thread_alive(thread) {
            return Ok(false);
        }
        self.settle_thread(thread)?;
        Ok(true)
    }

    pub(crate) fn settle_thread(&self, thread: u32) -> Result<()> {
        let dead = volatile::owner(self.slot.load(Ordering::Relaxed), thread);
        for lane in 0..self.geometry.shape().lanes {
            if self.lane_owner(lane) == dead && self.try_take(lane, dead) {
                self.settle_lane(lane)?;
            }
        }
        Ok(())
    }

    /// Finishes or drops whatever the dead owner of `lane`, which the caller has taken over, was
    /// doing: record first, then locks, so that nobody sees what the record has yet to change.
    pub(crate) fn settle_lane(&self, lane: u32) -> Result<()> {
        if self.commit_word(lane).is_ok_and(Commit::is_armed) {
            self.unsettle_versions(lane);
        }
        if let Err(error) = self.settle_record(lane) {
            self.fail("a dead process's journal record is damaged");
            return Err(error);
        }
        // What it has changed can't be seen before.
        self.publish_prepared(lane);
        self.end_kept_leases(lane, 0..ENTRIES_MAX, |_| true);
        self.release_all(lane);
        self.wake_followers();
        let is_done = self.intent(lane).code == 0;
        self.settle_slabs(lane);
        if is_done {
            self.leave_lane(lane);
        } else {
            self.orphan_lane(lane);
        }
        Ok(())
    }

    /// Ends the leases that lane `number` has kept for the sake of what `entries` of its record
    /// allocate, where that `is_over`. Those that it goes on with stay. So what is left in the lane
    /// of earlier records does no harm: what it has leased, and does not go on with, is to end.
    pub(crate) fn end_kept_leases(
        &self,
        number: u32,
        entries: Range<u64>,
        is_over: impl Fn(BitWord) -> bool,
    ) {
        for index in entries {
            let at = entry_at(self.geometry.lane(number), index);
            let Some(Entry { target, action: Action::Allocate, .. }) =
                Entry::unpack(self.load_pair(at))
            else {
                continue;
            };
            match self.bit_word(target).filter(|word| is_over(*word)) {
                Some(BitWord::Pages(group, _)) if !self.goes_on_in(number, group) => {
                    self.end_lease(number, group);
                }
                Some(BitWord::Objects(page)) if !self.goes_on_with(number, page) => {
                    self.end_slab_lease(number, page);
                }
                _ => {}
            }
        }
    }

    /// Recovers all lanes when nobody else is attached: after a power failure, or when the last
    /// process died.
    pub(crate) fn recover_all(&self) -> Result<()> {
        for lane in 0..self.geometry.shape().lanes {
            self.settle_record(lane)?;
            if self.intent(lane).code != 0 {
                self.orphan_lane(lane);
            }
        }
        Ok(())
    }
}
