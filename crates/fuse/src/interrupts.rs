//! Signals that have come for requests which nobody knew as waiting.
//!
//! A handler that keeps a reply and the thread that brings the interruption may meet in any order.
//! Each does two things: the handler *enters* the reply where it will find it, then *asks* here;
//! who brings the interruption *remembers* it here, then *asks* the handler. The handler's two are
//! under the lock under which it is asked. So either it asks after the interruption is remembered,
//! or it is asked after the reply was entered: one of the two finds the other.
//!
//! That no worker has got a request yet whose interruption has been read is the same case, so
//! nobody needs to know what the others are doing, and the kernel needs not be told to bring the
//! interruption again (which has to go to the descriptor of the request, and not of that).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Interruptions to remember, at least. Those of requests that have not ended are as many as there
/// are workers; beside them there are only those that came in the moment in which the request was
/// answered, of which the oldest are of no use to anybody.
const ROOM_MIN: usize = 256;

/// The remembered interruptions.
#[derive(Debug)]
pub(crate) struct Interrupts {
    /// How many there are: most requests need to look at no more.
    count: AtomicUsize,
    uniques: Mutex<VecDeque<u64>>,
    room: usize,
}

impl Interrupts {
    /// None, with room for those of `workers`.
    pub(crate) fn new(workers: usize) -> Interrupts {
        let room = ROOM_MIN.max(workers.saturating_mul(4));
        let uniques = Mutex::new(VecDeque::with_capacity(room));
        Interrupts { count: AtomicUsize::new(0), uniques, room }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.uniques.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Request `unique` was interrupted.
    pub(crate) fn remember(&self, unique: u64) {
        let mut uniques = self.lock();
        if !uniques.contains(&unique) {
            if uniques.len() >= self.room {
                uniques.pop_front();
            }
            uniques.push_back(unique);
        }
        self.count.store(uniques.len(), Ordering::Release);
    }

    /// Whether request `unique` was interrupted.
    pub(crate) fn has(&self, unique: u64) -> bool {
        self.count.load(Ordering::Acquire) != 0 && self.lock().contains(&unique)
    }

    /// Request `unique` has been answered, or who waits knows that it was interrupted.
    pub(crate) fn forget(&self, unique: u64) {
        if self.count.load(Ordering::Acquire) != 0 {
            let mut uniques = self.lock();
            uniques.retain(|other| *other != unique);
            self.count.store(uniques.len(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_known_until_it_is_forgotten() {
        let interrupts = Interrupts::new(1);
        assert!(!interrupts.has(4));
        interrupts.remember(4);
        interrupts.remember(4);
        assert!(interrupts.has(4) && !interrupts.has(6));
        interrupts.forget(6);
        assert!(interrupts.has(4));
        interrupts.forget(4);
        assert!(!interrupts.has(4));
    }

    #[test]
    fn the_oldest_is_lost_first() {
        let interrupts = Interrupts::new(1);
        for unique in 0..=ROOM_MIN as u64 {
            interrupts.remember(unique);
        }
        assert!(!interrupts.has(0) && interrupts.has(1) && interrupts.has(ROOM_MIN as u64));
    }
}
