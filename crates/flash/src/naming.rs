//! A thread that gets named what is durable, while another one makes space.
//!
//! Segments that cleaning has emptied are free when a flushed packet says that the copies are
//! durable. That takes two flushes, for which cleaning need not wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::volume::Volume;

/// Between looks at whether it is over.
const PAUSE: Duration = Duration::from_millis(50);

/// The thread in a process, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Naming {
    rounds: Mutex<Rounds>,
    changed: Condvar,
}

/// What it has been asked for, and has done.
#[derive(Debug, Default)]
struct Rounds {
    is_there: bool,
    asked: u64,
    begun: u64,
    done: u64,
    /// Whether one has failed since somebody has begun to make space.
    has_failed: bool,
}

/// Ends what was asked for when this is dropped.
pub(crate) struct Asking<'n>(&'n Naming);

/// That there is a thread, until this is dropped.
struct There<'n>(&'n Naming);

impl Naming {
    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'n>(&'n self, rounds: MutexGuard<'n, Rounds>) -> MutexGuard<'n, Rounds> {
        self.changed.wait_timeout(rounds, PAUSE).unwrap_or_else(PoisonError::into_inner).0
    }

    /// For whoever makes space, and may ask until this is dropped: the thread uses space that is
    /// kept for him.
    pub(crate) fn asking(&self) -> Asking<'_> {
        self.rounds().has_failed = false;
        Asking(self)
    }

    /// Asks for what is durable from now on to be named; false if nobody does that.
    pub(crate) fn ask(&self) -> bool {
        let mut rounds = self.rounds();
        if !rounds.is_there || rounds.has_failed {
            return false;
        }
        if rounds.asked == rounds.begun {
            rounds.asked += 1;
            self.changed.notify_all();
        }
        true
    }

    /// Asks, and waits until it is done; false if it can't be.
    pub(crate) fn ask_and_wait(&self) -> bool {
        if !self.ask() {
            return false;
        }
        let mut rounds = self.rounds();
        let round = rounds.asked;
        while rounds.is_there && rounds.done < round {
            rounds = self.wait(rounds);
        }
        rounds.is_there && !rounds.has_failed
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut rounds = self.0.rounds();
        rounds.asked = rounds.begun;
        while rounds.is_there && rounds.done < rounds.begun {
            rounds = self.0.wait(rounds);
        }
    }
}

impl Drop for There<'_> {
    fn drop(&mut self) {
        *self.0.rounds() = Rounds::default();
        self.0.changed.notify_all();
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Gets named what is durable when asked to, until it `is_over`. For one thread of a process.
    pub(crate) fn name_when_asked(&self, is_over: &AtomicBool) {
        self.naming.rounds().is_there = true;
        let _there = There(&self.naming);
        loop {
            let mut rounds = self.naming.rounds();
            while rounds.asked == rounds.begun {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                rounds = self.naming.wait(rounds);
            }
            rounds.begun = rounds.asked;
            drop(rounds);
            let outcome = self.space.help(|| self.name_durable());
            let mut rounds = self.naming.rounds();
            rounds.done = rounds.begun;
            rounds.has_failed |= outcome.is_err();
            self.naming.changed.notify_all();
        }
    }
}
