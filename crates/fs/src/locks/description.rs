//! Locks of open file descriptions: they last as long as somebody has the description.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Holding, Tx};

use crate::file_system::lock_of;
use crate::locks::LOCKED;
use crate::locks::table::{CALLED, FLOCK, Lock, OWNER, RECORD, RECORD_OF_OPEN, TURN, WAIT};
use crate::open::share::users;
use crate::{FileSystem, Result};

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Whether the owner of `lock`, which is `holding` on inode `number`, may have lost it by a
    /// death that nobody had noticed, or it is not there any more: then it is worth another look.
    pub(super) fn has_died(&self, holding: Holding, lock: &Lock, number: u64) -> Result<bool> {
        let core = self.core();
        let has_died = match lock.who.kind {
            RECORD | TURN => core.recover_holder(holding)?,
            _ => core.bury_dead(holding)? || self.has_user_died(lock, number)?,
        };
        let now = core.look_at(holding).and_then(|held| self.lock_of_holding(held));
        Ok(has_died || now != Some(*lock))
    }

    /// Whether somebody who had the description on inode `number` that `lock` is of has died.
    fn has_user_died(&self, lock: &Lock, number: u64) -> Result<bool> {
        let core = self.core();
        let Some(home) = core.holding(lock.who.number) else {
            return Ok(false);
        };
        let mut found = Vec::new();
        core.look_at_holdings(self.lock_of(number), |held| {
            if users(core, number, home, &held) {
                found.push(held.holding);
            }
        })?;
        let mut has_died = false;
        for user in found {
            has_died |= core.bury_dead(user)? || core.recover_holder(user)?;
        }
        Ok(has_died)
    }
}

/// The description that the lock `holding` is of.
pub(crate) fn owner<M: Memory, H: Host>(core: &Core<M, H>, holding: Holding) -> Option<Holding> {
    core.holding(core.held(holding, OWNER))
}

/// Gives up all locks on inode `number` of the description `home`, which nobody has any more, and
/// lets those who wait try again. The transaction holds the inode's lock exclusively.
pub(crate) fn release_all<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    number: u64,
    home: Holding,
) -> Result<()> {
    let core: &Core<M, H> = tx.core();
    if core.held(home, LOCKED) == 0 {
        return Ok(());
    }
    let mut locks = Vec::new();
    let mut waits = Vec::new();
    tx.holdings(lock_of(core, number), |held| match held.kind {
        _ if held.key != number => {}
        RECORD_OF_OPEN | FLOCK if owner(core, held.holding) == Some(home) => {
            locks.push(held.holding);
        }
        WAIT => waits.push(held.holding),
        _ => {}
    })?;
    locks.into_iter().for_each(|lock| tx.end_holding(lock));
    for wait in waits {
        core.set_held(wait, CALLED, 1);
        core.wake_held(wait, CALLED);
    }
    Ok(())
}
