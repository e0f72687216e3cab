//! Work in the background: whoever has a volume open may have a thread for it, the *keeper*.
//!
//! Without one, space is made, and checkpoints are written, by whoever comes upon the need, who
//! waits for that. With one he calls the keeper before there is a need, and goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::clean::could;
use crate::volume::Volume;

/// One of so many segments is kept free by a keeper, besides those that are left to others: at
/// least and at most so many.
const SHARE: u64 = 128;
const AHEAD: std::ops::RangeInclusive<u64> = 2..=32;
/// Between looks at whether it is over.
const PAUSE: Duration = Duration::from_millis(50);

/// Between looks at whether there is nothing to do.
const MOMENT: Duration = Duration::from_micros(50);

/// The keeper in a process, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    thread: Mutex<Option<Thread>>,
    is_called: AtomicBool,
    is_busy: AtomicBool,
}

/// That the calling thread is the keeper, until this is dropped.
struct Kept<'k>(&'k Keeping);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        *self.0.thread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.is_busy.store(false, Ordering::SeqCst);
    }
}

impl Keeping {
    /// The calling thread is the keeper from now on; none if there is one.
    fn begin(&self) -> Option<Kept<'_>> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = thread.is_none();
        thread.get_or_insert_with(thread::current);
        is_free.then(|| Kept(self))
    }

    /// Calls the keeper; whether there is one, and another thread than the calling one.
    pub(crate) fn call(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let is_another = |keeper: &&Thread| keeper.id() != thread::current().id();
        let Some(keeper) = thread.as_ref().filter(is_another) else {
            return false;
        };
        if !self.is_called.swap(true, Ordering::SeqCst) {
            keeper.unpark();
        }
        true
    }

    /// Whether there is a keeper, which is at work or about to be.
    fn is_at_work(&self) -> bool {
        let is_kept = self.thread.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        is_kept && (self.is_called.load(Ordering::SeqCst) || self.is_busy.load(Ordering::SeqCst))
    }
}

/// Says that something is over when this is dropped.
struct Ending<'o>(&'o AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<M: Memory, H: Host> Volume<M, H>
where
    Self: Sync,
{
    /// Does `work` while a thread makes space and writes checkpoints, before others come upon the
    /// need to and have to wait, and another one helps it. A process has one keeper, each may have
    /// one; ending it takes up to 50 ms, and what it is doing.
    pub fn with_keeper<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ending = Ending(&is_over);
            // Whoever needs what it can't do meets the same error.
            scope.spawn(|| self.keep(&is_over).is_ok());
            work()
        })
    }

    /// Waits until the keeper, if there is one, has done what there was to do: for those who
    /// measure.
    pub fn await_keeper(&self) {
        while self.keeping.is_at_work() {
            thread::sleep(MOMENT);
        }
    }

    /// Is the keeper until it `is_over`, unless there is one.
    fn keep(&self, is_over: &AtomicBool) -> Result<()> {
        let Some(_kept) = self.keeping.begin() else {
            return Ok(());
        };
        thread::scope(|scope| {
            scope.spawn(|| self.name_when_asked(is_over));
            self.keep_on(is_over)
        })
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Makes space and writes checkpoints when called to, until it `is_over`.
    fn keep_on(&self, is_over: &AtomicBool) -> Result<()> {
        while !is_over.load(Ordering::Acquire) {
            // Before nobody calls any more: who asks finds one or the other.
            self.keeping.is_busy.store(true, Ordering::SeqCst);
            let is_called = self.keeping.is_called.swap(false, Ordering::SeqCst);
            if is_called {
                could(self.make_space(self.kept_ahead()))?;
                self.checkpoint_if_due()?;
            }
            self.keeping.is_busy.store(false, Ordering::SeqCst);
            if !is_called {
                thread::park_timeout(PAUSE);
            }
        }
        Ok(())
    }

    /// Calls the keeper if so many segments are too few to be left `free`.
    pub(crate) fn call_if_short(&self, free: u64, left: u64) {
        if free < left + self.kept_ahead() / 2 {
            self.keeping.call();
        }
    }

    pub(crate) fn kept_ahead(&self) -> u64 {
        (self.layout.segments / SHARE).clamp(*AHEAD.start(), *AHEAD.end())
    }
}
