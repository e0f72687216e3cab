//! Work that one thread of a process does at a time, and that may come back to itself.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    work: Mutex<()>,
    thread: Mutex<Option<ThreadId>>,
}

/// A turn that the calling thread has.
pub(crate) struct Taken<'t> {
    turn: &'t Turn,
    _work: MutexGuard<'t, ()>,
}

impl Turn {
    /// Whether the calling thread has the turn.
    pub(crate) fn is_mine(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        *thread == Some(thread::current().id())
    }

    /// Waits for the turn, which the calling thread does not have.
    pub(crate) fn take(&self) -> Taken<'_> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(Some(thread::current().id()));
        Taken { turn: self, _work: work }
    }

    fn set(&self, thread: Option<ThreadId>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.turn.set(None);
    }
}
