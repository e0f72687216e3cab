//! Locks: exclusive or shared, held by a lane, recoverable exactly.
//!
//! A lock's word names the lane that holds it exclusively. A shared hold stands in no counter: the
//! lane's own record names it, and a lane that takes the lock exclusively looks through the
//! records. So whatever a dead lane held is known from its record and the lock word together:
//!
//! - the record names a lock *before* the lane tries for it and until *after* it has let go;
//! - an exclusive hold is real if the lock word names the lane too; a shared one is real as such.
//!
//! The flag READERS says that records may name the lock as shared; it is set by every shared taker
//! and cleared only by an exclusive holder that has found none. A shared taker writes its record,
//! then changes the lock word, if that names no exclusive holder; an exclusive taker changes the
//! lock word, then looks at the records. Both changes are atomic and of one word, so one comes
//! first: either the shared taker sees the exclusive one and gives way, or the exclusive one
//! acquires the shared taker's release and sees its record.
//!
//! No system call while nobody waits. Locks are taken in the order of the caller's choice: the
//! caller prevents cycles.

use core::sync::atomic::Ordering;

use conquest_format::volatile::{self, lane, lock};
use conquest_format::{Offset, WORD};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::wait::Patience;
use crate::{Error, Result};

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Together with other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// The lock under which the region grows; it stands in the head of the volatile part.
pub(crate) const GROW_LOCK: u32 = 0x3FFF_FFFF;

const OWNER: u32 = 0xFFFF;

fn owner_of(value: u32) -> Option<u32> {
    (value & OWNER).checked_sub(1)
}

impl<M: Memory, H: Host> Core<M, H> {
    pub(crate) fn lock_word(&self, number: u32) -> Offset {
        if number == GROW_LOCK {
            self.geometry.head(volatile::head::GROW)
        } else {
            self.geometry.lock(number)
        }
    }

    /// The lane that holds lock `number` exclusively; orders nothing.
    pub(crate) fn holder(&self, number: u32) -> Option<u32> {
        owner_of(self.value(self.lock_word(number).plus(lock::WORD), Ordering::Relaxed))
    }

    /// Word `place` of lane `holder`'s held list.
    pub(crate) fn held_word(&self, holder: u32, place: u32) -> Offset {
        self.geometry.lane_record(holder).plus(lane::HELD + u64::from(place) * WORD)
    }

    /// Names lock `number` at `place` of lane `holder`'s held list.
    fn note_held(&self, holder: u32, place: u32, number: u32, mode: Mode) {
        let name = volatile::held(number, mode == Mode::Shared);
        // The update of the lock's word that follows makes it known.
        self.set_value(self.held_word(holder, place), name, Ordering::Relaxed);
    }

    /// Takes the name at `place` off lane `holder`'s held list.
    pub(crate) fn forget_held(&self, holder: u32, place: u32) {
        self.set_value(self.held_word(holder, place), 0, Ordering::Release);
    }

    /// Takes lock `number` for lane `holder`, whose held list has room at `place`.
    pub(crate) fn acquire(
        &self,
        holder: u32,
        place: u32,
        number: u32,
        mode: Mode,
        interruptible: bool,
    ) -> Result<()> {
        self.note_held(holder, place, number, mode);
        let mut patience = Patience::new(interruptible);
        let taken = match mode {
            Mode::Exclusive => self.acquire_exclusive(holder, number, &mut patience),
            Mode::Shared => self.acquire_shared(holder, place, number, &mut patience),
        };
        if taken.is_err() {
            self.forget_held(holder, place);
        }
        taken
    }

    fn acquire_exclusive(&self, holder: u32, number: u32, patience: &mut Patience) -> Result<()> {
        let at = self.lock_word(number).plus(lock::WORD);
        // Whoever has slept leaves the flag for those who may still sleep.
        let mut flag = 0;
        loop {
            let take = |value: u32| (value & OWNER == 0).then_some(value | (holder + 1) | flag);
            match self.update(at, 0, Ordering::AcqRel, take) {
                Ok(value) => {
                    if value & lock::READERS != 0 {
                        let waited = self.wait_for_readers(holder, number, patience);
                        if let Err(error) = waited {
                            self.release_word(number, 0);
                            return Err(error);
                        }
                    }
                    return Ok(());
                }
                Err(_) => {
                    self.wait_for_owner(number, patience)?;
                    flag = lock::WAITERS;
                }
            }
        }
    }

    fn acquire_shared(
        &self,
        holder: u32,
        place: u32,
        number: u32,
        patience: &mut Patience,
    ) -> Result<()> {
        let at = self.lock_word(number).plus(lock::WORD);
        loop {
            let enter = |value: u32| (value & OWNER == 0).then_some(value | lock::READERS);
            if self.update(at, 0, Ordering::AcqRel, enter).is_ok() {
                return Ok(());
            }
            // Give way: an exclusive taker may be waiting for this very name to go.
            self.forget_held(holder, place);
            self.name_is_gone(at);
            self.wait_for_owner(number, patience)?;
            self.note_held(holder, place, number, Mode::Shared);
        }
    }

    /// Waits a while for lock `number` to lose its exclusive holder.
    pub(crate) fn wait_for_owner(&self, number: u32, patience: &mut Patience) -> Result<()> {
        let at = self.lock_word(number).plus(lock::WORD);
        let value = self.value(at, Ordering::Relaxed);
        let Some(owner) = owner_of(value) else {
            return Ok(());
        };
        if owner >= self.geometry.shape().lanes {
            return Err(self.corrupt_lock(at, value));
        }
        let has_owner = !matches!(self.lane_owner(owner), 0 | volatile::ORPHAN);
        if patience.is_lost(has_owner) {
            return Err(self.corrupt_lock(at, value));
        }
        self.refuse_own(owner, number)?;
        if patience.spin() {
            return Ok(());
        }
        let flag = |value: u32| (value & OWNER != 0).then_some(value | lock::WAITERS);
        match self.update(at, 0, Ordering::Relaxed, flag) {
            Ok(value) => self.sleep(patience, at, value | lock::WAITERS, Some(owner)),
            Err(_) => Ok(()),
        }
    }

    /// Refuses to wait for an operation of the calling thread: the caller is a signal handler that
    /// interrupted it.
    fn refuse_own(&self, owner: u32, number: u32) -> Result<()> {
        let at = self.geometry.lane_record(owner).plus(lane::OWNER);
        // What the thread itself has stored it sees in any case.
        match self.value(at, Ordering::Relaxed) == self.me() {
            false => Ok(()),
            // It was the parent's before this child was forked in the middle of it.
            true if self.host.is_forked() => Err(Error::ForkedInside),
            true => Err(Error::OwnLock { lock: number }),
        }
    }

    fn corrupt_lock(&self, at: Offset, value: u32) -> Error {
        self.damaged("lock word", at, "the number of a lane in use", u64::from(value))
    }

    /// With lock `number` held exclusively by `holder`, waits until no lane holds it shared, and
    /// clears the flags READERS and DRAINING.
    fn wait_for_readers(&self, holder: u32, number: u32, patience: &mut Patience) -> Result<()> {
        let at = self.lock_word(number).plus(lock::WORD);
        while let Some(reader) = self.find_reader(holder, number) {
            self.refuse_own(reader, number)?;
            if patience.spin() {
                continue;
            }
            let flag = |value: u32| Some(value | lock::DRAINING);
            let (Ok(value) | Err(value)) = self.update(at, 0, Ordering::Relaxed, flag);
            // Either the reader sees the flag when it lets go, or its name is gone already.
            self.memory.full_fence();
            if self.find_reader(holder, number).is_none() {
                break;
            }
            self.sleep(patience, at, value | lock::DRAINING, Some(reader))?;
        }
        let clear = |value: u32| Some(value & !(lock::READERS | lock::DRAINING));
        let (Ok(_) | Err(_)) = self.update(at, 0, Ordering::Relaxed, clear);
        Ok(())
    }

    /// A lane other than `holder` whose record names lock `number` as shared.
    fn find_reader(&self, holder: u32, number: u32) -> Option<u32> {
        let lanes = self.geometry.shape().lanes;
        (0..lanes).filter(|&lane| lane != holder).find(|&lane| {
            let owner = self.geometry.lane_record(lane).plus(lane::OWNER);
            !matches!(self.value(owner, Ordering::Acquire), 0 | volatile::ORPHAN)
                && (0..lane::HELD_MAX as u32).any(|place| {
                    let name = self.value(self.held_word(lane, place), Ordering::Acquire);
                    volatile::unpack_held(name) == Some((number, true))
                })
        })
    }

    /// Lets go of lock `number`, held by lane `holder` and named at `place`.
    pub(crate) fn release(&self, holder: u32, place: u32, number: u32, mode: Mode) {
        match mode {
            Mode::Exclusive => {
                self.release_word(number, 0);
                self.forget_held(holder, place);
            }
            Mode::Shared => {
                self.forget_held(holder, place);
                self.name_is_gone(self.lock_word(number).plus(lock::WORD));
            }
        }
    }

    /// After a name has been taken off a list: wakes all who sleep on the lock at `at`, the holder
    /// that waits for the name among them. Its flag goes, so that it finds the word changed if it
    /// has seen the name and is about to sleep. Nobody else sets this flag: the reader, which may
    /// come to sleep on the word at once, would otherwise make the word what it was.
    fn name_is_gone(&self, at: Offset) {
        self.memory.full_fence();
        let clear = |value: u32| (value & lock::DRAINING != 0).then_some(value & !lock::DRAINING);
        if self.update(at, 0, Ordering::Relaxed, clear).is_ok() {
            self.memory.wake(at, u32::MAX);
        }
    }

    /// Lets go of lock `number`, which gets the flags `flags`.
    fn release_word(&self, number: u32, flags: u32) {
        let at = self.lock_word(number).plus(lock::WORD);
        let leave = |value: u32| Some(value & (lock::READERS | lock::HOLDINGS) | flags);
        let (Ok(value) | Err(value)) = self.update(at, 0, Ordering::AcqRel, leave);
        if value & lock::WAITERS != 0 {
            self.memory.wake(at, 1);
        }
    }

    /// Lets go of everything that the record of lane `dead` names, after its journal record is
    /// settled. The caller owns the lane now.
    pub(crate) fn release_all(&self, dead: u32) {
        for place in 0..lane::HELD_MAX as u32 {
            let name = self.value(self.held_word(dead, place), Ordering::Relaxed);
            let Some((number, shared)) = volatile::unpack_held(name) else {
                continue;
            };
            if !shared && self.holder(number) == Some(dead) {
                self.settle_version(number, self.told_version(dead));
                // It may have died while it asked for holdings.
                let flags = if number == GROW_LOCK { 0 } else { lock::HOLDINGS };
                self.release_word(number, flags);
                self.forget_held(dead, place);
            } else {
                self.release(dead, place, number, Mode::Shared);
            }
        }
    }

    // --- versions ----------------------------------------------------------------------------

    //
    // A change gives all locks under which it is made the same version, which is later than any of
    // them had: so of two changes that have a lock in common, the later one has the later version.

    /// The version of what lock `number` guards; odd while a change is being applied.
    pub(crate) fn version(&self, number: u32, order: Ordering) -> u64 {
        let word = self.memory.load(self.lock_word(number).plus(lock::VERSION), order);
        volatile::version(word, self.tag())
    }

    /// Sets the version of lock `number`, which the caller holds exclusively.
    pub(crate) fn set_version(&self, number: u32, version: u64) {
        let at = self.lock_word(number).plus(lock::VERSION);
        self.memory.store(at, volatile::versioned(self.tag(), version), Ordering::Release);
    }

    /// Makes odd the versions of what lane `dead` holds exclusively, before its record is applied
    /// by whoever has taken the lane over: it may have died before it had done that itself.
    pub(crate) fn unsettle_versions(&self, dead: u32) {
        for place in 0..lane::HELD_MAX as u32 {
            let name = self.value(self.held_word(dead, place), Ordering::Relaxed);
            let Some((number, false)) = volatile::unpack_held(name) else {
                continue;
            };
            let version = self.version(number, Ordering::Relaxed);
            if self.holder(number) == Some(dead) && version.is_multiple_of(2) {
                self.set_version(number, version | 1);
            }
        }
    }

    /// Makes the version of lock `number` even again after its holder's death, and no earlier than
    /// `least`, which a change of his may have had.
    fn settle_version(&self, number: u32, least: u64) {
        let version = self.version(number, Ordering::Relaxed);
        let even =
            if version.is_multiple_of(2) { version } else { volatile::next_version(version) };
        let settled = if volatile::is_later(least, even) { least } else { even };
        if settled != version {
            self.set_version(number, settled);
        }
    }
}
