//! Setting record locks, and giving them up.

use conquest_access::Errno;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Held, Holding, LASTING, Tx};

use crate::inode::FileId;
use crate::locks::table::{FLOCK, Lock, RECORD, TURN, WAIT};
use crate::locks::{Conflict, END, Wait, Waiting};
use crate::{Error, FileSystem, Result};

/// What there is on a file.
#[derive(Default)]
pub(super) struct Found {
    /// Locks of others that are in the way.
    pub(super) conflicts: Vec<(Holding, Lock)>,
    /// Locks of the same owner.
    own: Vec<(Holding, Lock)>,
    /// Waits.
    waits: Vec<(Holding, Lock)>,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// What there is on inode `number`, whose lock the transaction holds, for somebody who wants
    /// `wish`.
    pub(super) fn look(&self, tx: &Tx<'_, M, H>, number: u64, wish: &Lock) -> Result<Found> {
        let mut found = Found::default();
        tx.holdings(self.lock_of(number), |held: Held| {
            let Some(lock) = self.lock_of_holding(held).filter(|_| held.key == number) else {
                return;
            };
            let list = if held.kind == WAIT {
                &mut found.waits
            } else if lock.who == wish.who {
                &mut found.own
            } else if wish.mode.is_some() && lock.conflicts(wish) {
                &mut found.conflicts
            } else {
                return;
            };
            list.push((held.holding, lock));
        })?;
        Ok(found)
    }

    /// Sets `wish`, or gives it up, or begins to wait.
    pub(super) fn set_or_wait(&self, file: FileId, wish: &Lock) -> Result<Option<Waiting>> {
        loop {
            let conflicts = self.try_set(file, wish)?;
            let Some((holding, lock)) = conflicts.first() else {
                return Ok(None);
            };
            if self.has_died(*holding, lock, file.number)? {
                continue;
            }
            let waiting = self.begin_wait(file, wish)?;
            if waiting.is_some() {
                return Ok(waiting);
            }
        }
    }

    /// Sets `wish`, or gives it up.
    pub(crate) fn set_lock(&self, file: FileId, wish: &Lock, wait: Wait) -> Result<()> {
        let until = self.end_of(wait);
        loop {
            let conflicts = self.try_set(file, wish)?;
            let Some((holding, lock)) = conflicts.first() else {
                return Ok(());
            };
            // The dead have no locks, but somebody has to notice.
            if self.has_died(*holding, lock, file.number)? {
                continue;
            }
            if until.is_some_and(|until| self.core().host().now() >= until) {
                return Err(Errno::EAGAIN.into());
            }
            self.wait_for(file, wish)?;
        }
    }

    /// Sets `wish` unless something is in the way: that.
    fn try_set(&self, file: FileId, wish: &Lock) -> Result<Vec<(Holding, Lock)>> {
        let number = file.number;
        let mut tx = self.core().begin()?;
        self.lock(&mut tx, false, [Some(file)])?;
        let mut found = self.look(&tx, number, wish)?;
        if wish.who.kind == FLOCK {
            if found.own.iter().any(|(_, lock)| lock.mode == wish.mode) {
                return Ok(Vec::new());
            }
            // As the kernel does it: whoever wants another lock loses the one that he has first.
            let own = core::mem::take(&mut found.own);
            own.iter().for_each(|(holding, _)| tx.end_holding(*holding));
            if !own.is_empty() {
                self.call_waiting(&tx, number, &found.waits)?;
            }
        }
        if !found.conflicts.is_empty() {
            return Ok(found.conflicts);
        }
        let (gone, left) = replace(&found.own, wish);
        if gone.is_empty() && left.is_empty() {
            return Ok(Vec::new());
        }
        let mut made = Vec::new();
        for lock in &left {
            let lasting = if matches!(lock.who.kind, RECORD | TURN) { 0 } else { LASTING };
            let kind = lock.who.kind | lasting;
            let held = tx.hold(self.lock_of(number), kind, number, &lock.words());
            match held {
                Ok(holding) => made.push(holding),
                Err(error) => {
                    made.into_iter().for_each(|holding| tx.end_holding(holding));
                    return Err(no_locks(error));
                }
            }
        }
        gone.into_iter().for_each(|holding| tx.end_holding(holding));
        // Something may have been given up, or made shared.
        self.call_waiting(&tx, number, &found.waits)?;
        Ok(Vec::new())
    }

    /// Calls those of `waits` in whose way there is nothing any more.
    fn call_waiting(
        &self,
        tx: &Tx<'_, M, H>,
        number: u64,
        waits: &[(Holding, Lock)],
    ) -> Result<()> {
        for (holding, wish) in waits {
            if self.look(tx, number, wish)?.conflicts.is_empty() {
                self.call(*holding);
            }
        }
        Ok(())
    }

    /// The first lock that is in the way of `wish`.
    pub(super) fn find_conflict(&self, file: FileId, wish: &Lock) -> Result<Option<Conflict>> {
        loop {
            let mut found = {
                let mut tx = self.core().begin()?;
                self.lock(&mut tx, false, [Some(file)])?;
                self.look(&tx, file.number, wish)?.conflicts
            };
            found.sort_by_key(|(_, lock)| lock.first);
            let Some(&(holding, lock)) = found.first() else {
                return Ok(None);
            };
            if !self.has_died(holding, &lock, file.number)? {
                return Ok(Some(lock.as_conflict()));
            }
        }
    }
}

/// What becomes of the locks `own` of an owner who sets `wish`: which go, and which come.
fn replace(own: &[(Holding, Lock)], wish: &Lock) -> (Vec<Holding>, Vec<Lock>) {
    let mut gone = Vec::new();
    let mut left = Vec::new();
    let mut whole = *wish;
    for &(holding, lock) in own {
        let overlaps = lock.first <= wish.last && wish.first <= lock.last;
        let touches = lock.first <= wish.last.saturating_add(1).min(END)
            && wish.first <= lock.last.saturating_add(1).min(END);
        if lock.mode == wish.mode {
            if touches {
                // They become one.
                whole.first = whole.first.min(lock.first);
                whole.last = whole.last.max(lock.last);
                gone.push(holding);
            }
        } else if overlaps {
            if lock.first < wish.first {
                left.push(Lock { last: wish.first - 1, ..lock });
            }
            if lock.last > wish.last {
                left.push(Lock { first: wish.last + 1, ..lock });
            }
            gone.push(holding);
        }
    }
    if whole.mode.is_some() {
        left.push(whole);
    }
    (gone, left)
}

pub(super) fn no_locks(error: conquest_pm::Error) -> Error {
    match error {
        conquest_pm::Error::Holdings { .. } => Errno::ENOLCK.into(),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::Mode;
    use crate::locks::table::Who;

    fn lock(first: u64, last: u64, mode: Option<Mode>) -> Lock {
        let who = Who { kind: RECORD, slot: Some(1), number: 0 };
        Lock { who, first, last, mode, process: 1 }
    }

    /// What is locked how after `wish` over `own`, by bytes.
    fn after(own: &[Lock], wish: Lock) -> Vec<(u64, u64, Option<Mode>)> {
        let own: Vec<_> = (0..).map(Holding::from_number).zip(own.iter().copied()).collect();
        let (gone, left) = replace(&own, &wish);
        let kept = own.into_iter().filter(|(holding, _)| !gone.contains(holding));
        let mut all: Vec<_> = kept.map(|(_, lock)| lock).chain(left).collect();
        all.sort_by_key(|lock| lock.first);
        all.into_iter().map(|lock| (lock.first, lock.last, lock.mode)).collect()
    }

    #[test]
    fn locks_of_one_owner_join_split_and_give_way() {
        let shared = Some(Mode::Shared);
        let alone = Some(Mode::Exclusive);
        assert_eq!(after(&[], lock(3, 5, shared)), [(3, 5, shared)]);
        assert_eq!(after(&[lock(0, 2, shared)], lock(3, 5, shared)), [(0, 5, shared)]);
        assert_eq!(
            after(&[lock(0, 9, shared)], lock(3, 5, alone)),
            [(0, 2, shared), (3, 5, alone), (6, 9, shared)]
        );
        assert_eq!(after(&[lock(0, 9, alone)], lock(3, 5, None)), [(0, 2, alone), (6, 9, alone)]);
        assert_eq!(after(&[lock(3, END, shared)], lock(0, END, None)), []);
        assert_eq!(after(&[lock(3, END, shared)], lock(0, 1, shared)).len(), 2);
        assert_eq!(after(&[lock(3, 5, shared)], lock(0, 2, shared)), [(0, 5, shared)]);
        assert_eq!(after(&[lock(4, 5, shared)], lock(0, 2, shared)).len(), 2);
        let both = [lock(0, 1, shared), lock(5, 6, alone)];
        assert_eq!(after(&both, lock(2, 4, shared)), [(0, 4, shared), (5, 6, alone)]);
        assert_eq!(after(&both, lock(0, END, alone)), [(0, END, alone)]);
    }
}
