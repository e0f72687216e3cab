//! Threads: what becomes of an operation whose thread ends in the middle of it.
//!
//! A thread that begins an operation is noted, once a region, by a value of its own that is dropped
//! when it ends, however it ends as long as destructors run (return, panic, `pthread_exit`). If an
//! operation of it is open then, its lanes are settled at once, as a dead process's are. A thread
//! that the kernel ends without any of that is found dead by whoever waits for it.
//!
//! The note holds a [`Weak`] reference: a region that was dropped meanwhile is gone. A thread's
//! first operation on a region allocates memory for it, so it must not be that of a signal handler
//! which has interrupted the allocator.

use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Weak;

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::{Error, Result};

/// Regions that are noted for one thread; threads that use more leave the rest to those who wait.
const NOTED_MAX: usize = 16;

thread_local! {
    /// Operations of this thread that have begun and not ended.
    static OPEN: Cell<u32> = const { Cell::new(0) };
    /// How many of them were begun by the process that this one was forked from.
    static INHERITED: Cell<u32> = const { Cell::new(0) };
    /// The region that this thread used last.
    static LAST: Cell<u64> = const { Cell::new(0) };
    static NOTED: RefCell<Noted> = const { RefCell::new(Noted([const { None }; NOTED_MAX])) };
}

/// A region as its threads see it when they end.
trait Ends {
    fn thread_ends(&self) -> Result<()>;
}

/// Regions that this thread has used.
struct Noted([Option<(u64, Weak<dyn Ends>)>; NOTED_MAX]);

impl Drop for Noted {
    fn drop(&mut self) {
        if OPEN.get() == 0 {
            return;
        }
        for (_, core) in self.0.iter().flatten() {
            // Whoever meets what is left after an error gets that error too.
            let _settled = core.upgrade().map_or(Ok(()), |core| core.thread_ends());
        }
    }
}

/// An operation that has begun and not ended, of the thread that made the value.
pub(crate) struct Open(PhantomData<*const ()>);

impl Open {
    pub(crate) fn new() -> Open {
        OPEN.set(OPEN.get().saturating_add(1));
        Open(PhantomData)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.set(OPEN.get().saturating_sub(1));
        INHERITED.set(INHERITED.get().min(OPEN.get()));
    }
}

/// Called in a forked child: whether the thread that forked was inside an operation.
pub(crate) fn inherit_operations() -> bool {
    INHERITED.set(OPEN.get());
    OPEN.get() != 0
}

/// Whether operations of the process that this one was forked from have not returned yet.
pub(crate) fn has_inherited() -> bool {
    INHERITED.get() != 0
}

/// The right to recover dead threads of the process: one at a time, so that none waits for another
/// that does it. It orders nothing: whoever recovers a lane takes it first, and acquires it so.
pub(crate) struct Turn<'c, M: Memory, H: Host> {
    core: &'c Core<M, H>,
    thread: u32,
}

impl<M: Memory, H: Host> Drop for Turn<'_, M, H> {
    fn drop(&mut self) {
        let turn = &self.core.turn;
        let _left = turn.compare_exchange(self.thread, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Notes that the calling thread uses the region.
    #[inline]
    pub(crate) fn note_thread(&self) {
        if LAST.get() != self.id {
            self.note_thread_again();
        }
    }

    #[cold]
    fn note_thread_again(&self) {
        let noted = NOTED.try_with(|noted| {
            // A signal handler may come between: it leaves the note to the next operation.
            let Ok(mut noted) = noted.try_borrow_mut() else {
                return false;
            };
            if noted.0.iter().flatten().any(|(id, _)| *id == self.id) {
                return true;
            }
            let is_free = |place: &&mut Option<(u64, Weak<dyn Ends>)>| {
                place.as_ref().is_none_or(|(_, core)| core.strong_count() == 0)
            };
            let Some(place) = noted.0.iter_mut().find(is_free) else {
                return true;
            };
            let core: Weak<dyn Ends> = self.this.clone();
            *place = Some((self.id, core));
            true
        });
        if noted == Ok(true) {
            LAST.set(self.id);
        }
    }

    /// The right to recover dead threads; none if a living thread has it, or an operation that the
    /// calling signal handler interrupted.
    pub(crate) fn thread_turn(&self) -> Option<Turn<'_, M, H>> {
        let thread = self.host.identity().thread;
        let mut found = 0;
        loop {
            let taken =
                self.turn.compare_exchange(found, thread, Ordering::Relaxed, Ordering::Relaxed);
            match taken {
                Ok(_) => return Some(Turn { core: self, thread }),
                Err(holder) if holder == thread || self.is_turn_taken(holder) => return None,
                Err(holder) => found = holder,
            }
        }
    }

    fn is_turn_taken(&self, holder: u32) -> bool {
        holder != 0 && self.host.is_thread_alive(holder)
    }

    /// The right to recover dead threads, waited for.
    ///
    /// # Errors
    /// [`Error::OwnLane`] if an operation has it that the calling signal handler interrupted.
    pub(crate) fn wait_for_thread_turn(&self) -> Result<Turn<'_, M, H>> {
        loop {
            if let Some(turn) = self.thread_turn() {
                return Ok(turn);
            }
            if self.turn.load(Ordering::Relaxed) == self.host.identity().thread {
                return Err(Error::OwnLane);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl<M: Memory, H: Host> Ends for Core<M, H> {
    fn thread_ends(&self) -> Result<()> {
        if self.host.is_forked() {
            return Ok(());
        }
        let _turn = self.wait_for_thread_turn()?;
        self.settle_thread(self.host.identity().thread)
    }
}
