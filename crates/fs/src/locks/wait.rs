//! Waiting for record locks, and finding out that it would be for ever.

use conquest_access::Errno;
use conquest_pm::Holding;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::inode::FileId;
use crate::locks::set::no_locks;
use crate::locks::table::{CALLED, Lock, RECORD, WAIT, Who};
use crate::locks::{Wait, Waiting};
use crate::{FileSystem, Result};

/// Who waits for whom is followed so far, as in Linux: whoever waits at the end of a longer way is
/// taken for somebody who will be done.
const WAY_MAX: usize = 10;

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// When waiting ends, in nanoseconds on the host's clock; never, if that is none.
    pub(super) fn end_of(&self, wait: Wait) -> Option<u64> {
        let now = || self.core().host().now();
        match wait {
            Wait::No => Some(0),
            Wait::AtMost(limit) => {
                let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
                Some(now().saturating_add(limit))
            }
            Wait::Forever => None,
        }
    }

    /// Sleeps until another try to set `wish` may succeed, not for long.
    pub(super) fn wait_for(&self, file: FileId, wish: &Lock) -> Result<()> {
        let Some(waiting) = self.begin_wait(file, wish)? else {
            return Ok(());
        };
        let slept = self.core().sleep_on(waiting.holding, CALLED, 0);
        self.end_wait(waiting)?;
        Ok(slept?)
    }

    /// Lets everybody know that `wish` is waited for; nothing if nothing is in its way any more.
    pub(super) fn begin_wait(&self, file: FileId, wish: &Lock) -> Result<Option<Waiting>> {
        let number = file.number;
        let lock = self.lock_of(number);
        let mut tx = self.core().begin()?;
        // Whoever begins to wait does so alone, so that the last of a circle sees it.
        let looks_around = wish.who.kind == RECORD;
        self.lock(&mut tx, looks_around, [Some(file)])?;
        let found = self.look(&tx, number, wish)?;
        if found.conflicts.is_empty() {
            return Ok(None);
        }
        if looks_around {
            self.refuse_circle(wish.who, &found.conflicts)?;
        }
        let holding = tx.hold(lock, WAIT, number, &wish.words()).map_err(no_locks)?;
        Ok(Some(Waiting { lock, holding }))
    }

    /// Whether another try is worth while: somebody has given up what was in the way. Who waits
    /// tries again from time to time in any case, because a lock may go with a process that has
    /// died.
    #[must_use]
    pub fn is_called(&self, waiting: &Waiting) -> bool {
        self.core().held(waiting.holding, CALLED) != 0
    }

    /// Ends a wait.
    ///
    /// # Errors
    /// Those of the region.
    pub fn end_wait(&self, waiting: Waiting) -> Result<()> {
        Ok(self.core().let_go(waiting.lock, waiting.holding)?)
    }

    /// Calls who waits with `holding` to try again.
    pub(super) fn call(&self, holding: Holding) {
        self.core().set_held(holding, CALLED, 1);
        self.core().wake_held(holding, CALLED);
    }

    /// Refuses to let `who` wait for the owners of `conflicts`, if one of them waits for him.
    ///
    /// A circle is complete when the last one begins to wait. Others' locks may change meanwhile,
    /// but not those of anybody who waits.
    fn refuse_circle(&self, who: Who, conflicts: &[(Holding, Lock)]) -> Result<()> {
        let mut seen: Vec<Who> = Vec::new();
        let mut next: Vec<Who> = conflicts.iter().map(|(_, lock)| lock.who).collect();
        for _ in 0..WAY_MAX {
            let owners = core::mem::take(&mut next);
            for owner in owners {
                if owner == who {
                    return Err(Errno::EDEADLK.into());
                }
                if owner.kind == RECORD && !seen.contains(&owner) {
                    seen.push(owner);
                    self.add_obstacles(owner, &mut next)?;
                }
            }
        }
        Ok(())
    }

    /// Adds to `owners` those of the locks that `owner` waits for.
    fn add_obstacles(&self, owner: Who, owners: &mut Vec<Who>) -> Result<()> {
        let core = self.core();
        let mut wishes = Vec::new();
        core.holdings_of(owner.slot.unwrap_or(u32::MAX), |held| {
            let is_waiting = held.kind == WAIT && core.held(held.holding, CALLED) == 0;
            if let Some(wish) = self.lock_of_holding(held).filter(|_| is_waiting)
                && wish.who == owner
            {
                wishes.push((held.key, wish));
            }
        });
        for (number, wish) in wishes {
            core.look_at_holdings(self.lock_of(number), |held| {
                if let Some(lock) = self.lock_of_holding(held)
                    && held.key == number
                    && held.kind != WAIT
                    && lock.conflicts(&wish)
                {
                    owners.push(lock.who);
                }
            })?;
        }
        Ok(())
    }
}
