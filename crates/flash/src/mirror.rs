//! Members of a mirror that have failed: known to all, and for good.
//!
//! A member that has not taken what another one has, or not made it durable, must not be taken
//! for one that has it: by nobody, and not after a restart. So whoever sees it fail tells the
//! others, by the index, before what it was about counts as written; and before anything counts as
//! durable, a root is, on the others, that says so. Until then nobody was told that there is
//! something which only the others have.

use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use conquest_pm::Mode;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::device::Standing;
use crate::index::{LOCK, Noted, Word, Words};
use crate::volume::Volume;
use crate::{Error, Result};

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Whether there is more than one copy of everything.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.device.copies() > 1
    }

    /// Uses members as all others do: to be called, with what is to be written held, before that
    /// is.
    pub(crate) fn learn_standing(&self) {
        if !self.is_mirrored() {
            return;
        }
        let core = self.core.as_ref();
        let mut adopted = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let (failed, restored) = (core.noted(Noted::Failed), core.noted(Noted::Restored));
        let now = Standing { failed, restored };
        if *adopted != now {
            self.device.adopt(now);
            *adopted = now;
        }
    }

    /// Tells all others which members were seen to fail: to be called before anything counts that
    /// may not be on them.
    pub(crate) fn tell_failures(&self) -> Result<()> {
        let seen = self.device.failures();
        if seen == 0 {
            return Ok(());
        }
        let all = self.all_copies();
        let mut adopted = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        *adopted = self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            let before = tx.noted(Noted::Failed);
            let (failed, restored) = (before | seen, tx.noted(Noted::Restored) & !seen);
            // Each of them lacks something that the others have.
            if failed == all {
                tx.set(Word::Failed.at(), 1)?;
            }
            if before == 0 {
                tx.set(tx.noted_at(Noted::Since), now())?;
            }
            tx.set(tx.noted_at(Noted::Failed), failed)?;
            tx.set(tx.noted_at(Noted::Restored), restored)?;
            Ok(Standing { failed, restored })
        })?;
        self.device.adopt(*adopted);
        drop(adopted);
        self.check_health()
    }

    /// Tells all others which members this process does not have: they fail by that, as they don't
    /// get what it writes.
    pub(crate) fn tell_missing(&self) -> Result<()> {
        let missing = self.device.missing();
        if missing == 0 {
            self.learn_standing();
            return Ok(());
        }
        let all = self.all_copies();
        let is_some_left = self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            let before = tx.noted(Noted::Failed);
            let failed = before | missing;
            if failed == all {
                return Ok(false);
            }
            if before == 0 {
                tx.set(tx.noted_at(Noted::Since), now())?;
            }
            tx.set(tx.noted_at(Noted::Failed), failed)?;
            tx.set(tx.noted_at(Noted::Restored), tx.noted(Noted::Restored) & !missing)?;
            tx.set(tx.noted_at(Noted::Missing), tx.noted(Noted::Missing) | missing)?;
            Ok(true)
        })?;
        self.learn_standing();
        if is_some_left {
            return Ok(());
        }
        let what = "they have it open with members of the mirror that have what these lack";
        Err(Error::InUse { device: self.name(), what })
    }

    /// Notes which devices the members of a mirror are. Others may have other ones for the same
    /// members, since those were replaced: they can't work together.
    pub(crate) fn check_stamps(&self, stamps: &[Option<u64>]) -> Result<()> {
        if !self.is_mirrored() {
            return Ok(());
        }
        let are_theirs = self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            for (number, stamp) in (0..).zip(stamps) {
                let Some(stamp) = stamp else { continue };
                let (at, mine) = (tx.stamp_at(number), stamp.wrapping_add(1));
                match tx.word(at) {
                    0 => tx.set(at, mine)?,
                    theirs if theirs != mine => return Ok(false),
                    _ => {}
                }
            }
            Ok(true)
        })?;
        if are_theirs {
            return Ok(());
        }
        let what = "they have another device for one of its members, which was replaced";
        Err(Error::InUse { device: self.name(), what })
    }

    /// All copies, a bit each.
    fn all_copies(&self) -> u64 {
        u64::MAX >> (64 - self.device.copies().clamp(1, 64))
    }

    /// Sees to it that a durable root says which members have failed.
    pub(crate) fn note_failures(&self) -> Result<()> {
        let core = self.core.as_ref();
        // Without a root of this life, none is to be renewed: the first one says it.
        let is_noted = || {
            core.noted(Noted::Failed) == core.noted(Noted::InRoot) || core.noted(Noted::Lives) == 0
        };
        while self.is_mirrored() && !is_noted() {
            self.renew_root()?;
        }
        Ok(())
    }
}
