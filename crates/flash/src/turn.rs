//! Work that one thread of all processes does at a time, and that may come back to itself.
//!
//! What is kept back for making space, checkpoints among it, suffices for one who does so. So the
//! volume has a word for whose turn it is, beside what orders the threads of a process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use conquest_pm::Mode;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::index::{LOCK, Word, Words};
use crate::volume::Volume;

/// Whose turn it is in a process.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    thread: Mutex<Option<ThreadId>>,
    /// A thread that helps the one whose turn it is, and is done before that gives it up.
    helper: Mutex<Option<ThreadId>>,
    /// Somebody else has it now, or nobody; or there may be what others wait for.
    changed: Condvar,
    /// Whether what is kept for checkpoints is let go, by whoever has the turn.
    is_let_go: AtomicBool,
}

/// A turn that the calling thread has, in its process.
struct Taken<'t>(&'t Turn);

/// A turn that the calling thread has.
pub(crate) struct Shared<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    /// Given up last.
    _taken: Taken<'v>,
}

/// Whoever has a turn for so long may be stopped: the next one goes on beside him.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between looks at whose turn it is.
const PAUSE: Duration = Duration::from_millis(1);
/// Waits for holds, at most.
const WAITS: u32 = 5000;

/// The waits for holds of one who needs a segment.
pub(crate) struct Waits {
    count: u32,
    /// Whether there was such a hold when he tried last, as far as he knows.
    was_held: bool,
}

impl Waits {
    /// No wait yet. Nobody has looked before the first try, so there may have been such a hold.
    pub(crate) fn new() -> Waits {
        Waits { count: 0, was_held: true }
    }
}

impl Turn {
    /// Whether the calling thread has the turn, or helps who has it.
    pub(crate) fn is_mine(&self) -> bool {
        let me = Some(thread::current().id());
        let is_me = |thread: &Mutex<Option<ThreadId>>| {
            *thread.lock().unwrap_or_else(PoisonError::into_inner) == me
        };
        is_me(&self.thread) || is_me(&self.helper)
    }

    /// Does `work` for the thread that has the turn, which waits for that before it gives it up.
    pub(crate) fn help<T>(&self, work: impl FnOnce() -> T) -> T {
        let set = |thread| {
            *self.helper.lock().unwrap_or_else(PoisonError::into_inner) = thread;
        };
        set(Some(thread::current().id()));
        let done = work();
        set(None);
        done
    }

    /// Lets go what is kept for checkpoints, or not any more.
    pub(crate) fn let_go(&self, is_let_go: bool) {
        self.is_let_go.store(is_let_go, Ordering::Relaxed);
    }

    /// Whether what is kept for checkpoints is let go.
    pub(crate) fn is_let_go(&self) -> bool {
        self.is_let_go.load(Ordering::Relaxed)
    }

    /// Takes the turn, which the calling thread does not have, after waiting for a moment if
    /// need be; none if that was not enough.
    fn take(&self) -> Option<Taken<'_>> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            let waited = self.changed.wait_timeout(thread, PAUSE);
            thread = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if thread.is_some() {
            return None;
        }
        *thread = Some(thread::current().id());
        Some(Taken(self))
    }

    /// Tells those who wait that there may be what they wait for.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.thread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.tell();
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Whether it is the turn of another process, which lives or has requests under way.
    pub(crate) fn is_others_turn(&self) -> Result<bool> {
        let holder = self.root(Word::Turn);
        Ok(holder != 0 && holder != self.writing.number && self.is_writing(holder)?)
    }

    /// Waits for the turn, which the calling thread does not have.
    pub(crate) fn take_turn(&self) -> Result<Shared<'_, M, H>> {
        loop {
            if let Some(shared) = self.take_turn_unless(|_| Ok(false))? {
                return Ok(shared);
            }
        }
    }

    /// Waits for the turn, which the calling thread does not have; none if that `is_needless`
    /// before, because those who have it have done what it is for: it is told whether they may be
    /// of another process.
    pub(crate) fn take_turn_unless(
        &self,
        is_needless: impl Fn(bool) -> Result<bool>,
    ) -> Result<Option<Shared<'_, M, H>>> {
        let taken = loop {
            if let Some(taken) = self.space.take() {
                break taken;
            }
            self.check_health()?;
            if is_needless(false)? {
                return Ok(None);
            }
        };
        let since = Instant::now();
        loop {
            let holder = self.root(Word::Turn);
            if since.elapsed() > PATIENCE || !self.is_others_turn()? {
                if self.pass_turn(holder, self.writing.number)? {
                    return Ok(Some(Shared { volume: self, _taken: taken }));
                }
            } else if is_needless(true)? {
                return Ok(None);
            } else {
                thread::sleep(PAUSE);
            }
            self.check_health()?;
        }
    }

    /// Passes the turn from writer `from` to `to`; whether `from` still had it.
    fn pass_turn(&self, from: u64, to: u64) -> Result<bool> {
        Ok(self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            let is_so = tx.root(Word::Turn) == from;
            if is_so {
                tx.set(Word::Turn.at(), to)?;
            }
            Ok(is_so)
        })?)
    }

    /// For who has tried in vain: waits a moment if a segment would be free but for somebody else's
    /// hold, who has requests under way; whether there is reason to try again. That is so after
    /// such a hold was last seen, too: it may have been given up since that try looked.
    pub(crate) fn await_holds(&self, waits: &mut Waits) -> Result<bool> {
        let core = self.core.as_ref();
        let held = self.segments_held_by_others()?;
        let is_held = held
            .iter()
            .any(|&segment| segment < self.layout.segments && self.is_reusable(core, segment, &[]));
        let was_held = std::mem::replace(&mut waits.was_held, is_held);
        waits.count += 1;
        if !(is_held || was_held) || waits.count > WAITS {
            return Ok(false);
        }
        if is_held {
            thread::sleep(PAUSE);
        }
        Ok(true)
    }
}

impl<M: Memory, H: Host> Drop for Shared<'_, M, H> {
    fn drop(&mut self) {
        // If it can't be given up, the region has failed for all.
        let _ = self.volume.pass_turn(self.volume.writing.number, 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc;

    use super::*;
    use crate::operations::tests::volume;

    /// Those who wait for space do so for what others make meanwhile.
    #[test]
    fn who_needs_the_turn_no_more_does_not_wait_for_it() {
        let volume = volume();
        let (told, outcome) = mpsc::channel();
        let turn = volume.take_turn().unwrap();
        thread::scope(|scope| {
            for is_needless in [true, false] {
                let (told, volume) = (told.clone(), &volume);
                scope.spawn(move || {
                    let taken = volume.take_turn_unless(|_| Ok(is_needless)).unwrap();
                    told.send((is_needless, taken.is_some())).unwrap();
                });
            }
            assert_eq!(outcome.recv().unwrap(), (true, false));
            assert!(outcome.recv_timeout(Duration::from_millis(50)).is_err());
            drop(turn);
            assert_eq!(outcome.recv().unwrap(), (false, true));
        });
    }

    #[test]
    fn the_turn_is_passed_between_changes_of_the_index() {
        let volume = volume();
        let (told, outcome) = mpsc::channel();
        thread::scope(|scope| {
            let mut tx = volume.core.begin().unwrap();
            tx.lock(LOCK, Mode::Exclusive).unwrap();
            scope.spawn(|| {
                drop(volume.take_turn().unwrap());
                told.send(()).unwrap();
            });
            assert!(outcome.recv_timeout(Duration::from_millis(100)).is_err());
            drop(tx);
            outcome.recv().unwrap();
        });
    }
}
