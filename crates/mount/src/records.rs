//! Which owners have record locks through which handles: so that locks go when POSIX says so, and
//! closing costs nothing for those who have none.
//!
//! The kernel tells of two events: that a process closes a descriptor (`FLUSH`, with the owner),
//! which ends all its locks on the file, and that a handle is gone (`RELEASE`). The latter ends
//! locks of open file descriptions (`F_OFD_SETLK`), which come as those of an owner of their own
//! that is never flushed, because such an owner has only that one handle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An inode's number, and one who may have locks there.
type Owned = (u64, u64);

/// Owners who may have record locks.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// By which handles they have got them.
    owners: Mutex<BTreeMap<Owned, Vec<u64>>>,
    /// How many owners there are.
    count: AtomicUsize,
}

impl Records {
    fn owners(&self) -> MutexGuard<'_, BTreeMap<Owned, Vec<u64>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `owner` is about to have a lock on inode `number` by `handle`.
    pub(crate) fn note(&self, number: u64, owner: u64, handle: u64) {
        let mut owners = self.owners();
        let handles = owners.entry((number, owner)).or_default();
        if !handles.contains(&handle) {
            handles.push(handle);
        }
        self.count.store(owners.len(), Ordering::SeqCst);
    }

    /// Whether `owner` may have locks on inode `number`; from now on it has none.
    pub(crate) fn flush(&self, number: u64, owner: u64) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut owners = self.owners();
        let had = owners.remove(&(number, owner)).is_some();
        self.count.store(owners.len(), Ordering::SeqCst);
        had
    }

    /// The owners who may have locks on inode `number` by `handle` alone; from now on they have
    /// none.
    pub(crate) fn release(&self, number: u64, handle: u64) -> Vec<u64> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut owners = self.owners();
        let mut gone = Vec::new();
        for ((_, owner), handles) in owners.range_mut((number, 0)..=(number, u64::MAX)) {
            let before = handles.len();
            handles.retain(|of| *of != handle);
            if handles.is_empty() && before > 0 {
                gone.push(*owner);
            }
        }
        for owner in &gone {
            owners.remove(&(number, *owner));
        }
        self.count.store(owners.len(), Ordering::SeqCst);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_go_with_a_flush_or_with_the_last_handle() {
        let records = Records::default();
        assert!(!records.flush(1, 7));
        records.note(1, 7, 100);
        records.note(1, 7, 101);
        records.note(1, 8, 100);
        records.note(2, 7, 200);
        assert_eq!(records.release(1, 100), [8], "7 may have got its locks by 101");
        assert!(records.flush(1, 7));
        assert!(!records.flush(1, 7));
        assert_eq!(records.release(1, 101), []);
        assert_eq!(records.release(2, 200), [7]);
        assert_eq!(records.release(2, 200), []);
    }

    #[test]
    fn a_handle_that_goes_leaves_locks_got_later_by_another_one() {
        let records = Records::default();
        records.note(1, 7, 100);
        assert!(records.flush(1, 7));
        records.note(1, 7, 101);
        assert_eq!(records.release(1, 100), []);
        assert!(records.flush(1, 7));
    }
}
