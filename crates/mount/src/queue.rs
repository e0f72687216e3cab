//! Those who wait for locks. They occupy no thread: one thread tries again for all of them.
//!
//! It is called when this mount gives something up, and looks now and then at what other processes
//! may have called for. Each wait stands in the region too, so all who wait for locks of a store,
//! however they came to it, know of each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conquest::{Fs, Store};
use conquest_fs::locks::Waiting;
use conquest_fuse::Reply;

use crate::locks::Wish;
use crate::server::number;

/// How often somebody looks whether other processes have given something up.
const LOOK: Duration = Duration::from_millis(10);
/// After this time another try is made in any case: a lock may have gone with a process that died.
const TRY: Duration = Duration::from_millis(100);

/// Somebody who waits.
#[derive(Debug)]
struct Waiter {
    unique: u64,
    wish: Wish,
    waiting: Waiting,
    tried: Instant,
    reply: Reply,
}

/// Who waits, and whom the thread is busy with.
#[derive(Debug, Default)]
struct State {
    waiters: Vec<Waiter>,
    /// The request that is tried at the moment, and whether it was interrupted since.
    trial: Option<(u64, bool)>,
    thread: Option<JoinHandle<()>>,
    /// Something may have been given up.
    is_called: bool,
    is_ending: bool,
}

/// What the thread and the mount share.
struct Shared {
    store: Arc<Store>,
    state: Mutex<State>,
    bell: Condvar,
    /// How many wait: who gives something up need not look if nobody does.
    count: AtomicUsize,
}

/// All who wait.
pub(crate) struct Queue(Arc<Shared>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fs(&self) -> &Fs {
        self.store.fs()
    }

    /// What the thread does until it has to end.
    fn work(&self) {
        let mut state = self.state();
        loop {
            if state.is_ending {
                return;
            }
            state.is_called = false;
            let due: Vec<u64> = {
                let is_due = |waiter: &&Waiter| {
                    self.fs().is_called(&waiter.waiting) || waiter.tried.elapsed() >= TRY
                };
                state.waiters.iter().filter(is_due).map(|waiter| waiter.unique).collect()
            };
            for unique in due {
                state = self.try_again(state, unique);
            }
            if state.is_called || state.is_ending {
                continue;
            }
            state = if state.waiters.is_empty() {
                self.bell.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.bell.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    /// Tries to get what request `unique` waits for, unless it was interrupted meanwhile. The lock
    /// is given back for the time of the trial.
    fn try_again<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        unique: u64,
    ) -> MutexGuard<'s, State> {
        let Some(at) = state.waiters.iter().position(|waiter| waiter.unique == unique) else {
            return state;
        };
        let Waiter { wish, waiting, reply, .. } = state.waiters.swap_remove(at);
        state.trial = Some((unique, false));
        drop(state);
        let ended = self.fs().end_wait(waiting);
        let tried = ended.and_then(|()| wish.begin(self.fs()));
        let mut state = self.state();
        let was_interrupted = matches!(state.trial.take(), Some((_, true)));
        match tried {
            Ok(Some(waiting)) if !was_interrupted && !state.is_ending => {
                let tried = Instant::now();
                state.waiters.push(Waiter { unique, wish, waiting, tried, reply });
            }
            Ok(Some(waiting)) => self.give_up(waiting, reply),
            Ok(None) => reply.empty(),
            Err(error) => reply.error(number(error.errno())),
        }
        self.count.store(state.waiters.len(), Ordering::SeqCst);
        state
    }

    fn give_up(&self, waiting: Waiting, reply: Reply) {
        // If the region has failed, nobody waits for it any more.
        let _ended = self.fs().end_wait(waiting);
        reply.error(rustix::io::Errno::INTR);
    }
}

impl core::fmt::Debug for Queue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Queue").field("state", &self.0.state).finish_non_exhaustive()
    }
}

impl Queue {
    pub(crate) fn new(store: Arc<Store>) -> Queue {
        Queue(Arc::new(Shared {
            store,
            state: Mutex::default(),
            bell: Condvar::new(),
            count: AtomicUsize::new(0),
        }))
    }

    /// Answers request `unique` once it has what it wishes.
    pub(crate) fn wait(&self, unique: u64, wish: Wish, reply: Reply) {
        let shared = &self.0;
        let waiting = match wish.begin(shared.fs()) {
            Ok(None) => return reply.empty(),
            Ok(Some(waiting)) => waiting,
            Err(error) => return reply.error(number(error.errno())),
        };
        let mut state = shared.state();
        // Asked for after the interruption could be passed on to this queue: see `Handler`.
        if state.is_ending || reply.was_interrupted() {
            return shared.give_up(waiting, reply);
        }
        if state.thread.is_none() {
            let shared = Arc::clone(shared);
            let builder = std::thread::Builder::new().name("locks".into());
            match builder.spawn(move || shared.work()) {
                Ok(thread) => state.thread = Some(thread),
                Err(_) => {
                    let _ended = self.0.fs().end_wait(waiting);
                    return reply.error(rustix::io::Errno::NOLCK);
                }
            }
        }
        let tried = Instant::now();
        state.waiters.push(Waiter { unique, wish, waiting, tried, reply });
        shared.count.store(state.waiters.len(), Ordering::SeqCst);
        state.is_called = true;
        shared.bell.notify_one();
    }

    /// Something was given up by which somebody may be helped.
    pub(crate) fn look(&self) {
        if self.0.count.load(Ordering::SeqCst) != 0 {
            self.0.state().is_called = true;
            self.0.bell.notify_one();
        }
    }

    /// Lets request `unique` wait no longer; whether it did.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let mut state = self.0.state();
        if let Some((_, was_interrupted)) =
            state.trial.as_mut().filter(|(trial, _)| *trial == unique)
        {
            *was_interrupted = true;
            return true;
        }
        let Some(at) = state.waiters.iter().position(|waiter| waiter.unique == unique) else {
            return false;
        };
        let Waiter { waiting, reply, .. } = state.waiters.swap_remove(at);
        self.0.count.store(state.waiters.len(), Ordering::SeqCst);
        self.0.give_up(waiting, reply);
        true
    }

    /// Lets nobody wait any longer, and ends the thread.
    pub(crate) fn stop(&self) {
        let (thread, waiters) = {
            let mut state = self.0.state();
            state.is_ending = true;
            (state.thread.take(), core::mem::take(&mut state.waiters))
        };
        self.0.count.store(0, Ordering::SeqCst);
        self.0.bell.notify_one();
        for Waiter { waiting, reply, .. } in waiters {
            self.0.give_up(waiting, reply);
        }
        if let Some(thread) = thread {
            // It has panicked otherwise, and there is nothing left that it could spoil.
            let _ended = thread.join();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.stop();
    }
}
