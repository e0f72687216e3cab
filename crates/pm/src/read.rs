//! Reading without locks.
//!
//! A reader notes the version of the lock that guards what it reads, copies, and then looks at the
//! version again: if it is the same, and was even, what was copied is one committed state. After
//! repeated failure the reader takes the lock shared. Readers pin nothing and write nothing, so a
//! stopped reader stops nobody.

use core::sync::atomic::Ordering;

use conquest_format::Offset;

use crate::core::Core;
use crate::host::Host;
use crate::lock::Mode;
use crate::memory::Memory;
use crate::{Error, Result};

/// Tries before a reader takes the lock. Fewer in a model, where each multiplies the executions.
const TRIES: u32 = if cfg!(loom) { 2 } else { 8 };

/// What a reader may look at. What it sees may be torn until the read as a whole succeeds, so it
/// must not be acted upon before, except by reading on.
pub struct View<'c, M: Memory, H: Host> {
    core: &'c Core<M, H>,
}

impl<M: Memory, H: Host> View<'_, M, H> {
    /// The region, to check pointers with.
    pub fn core(&self) -> &Core<M, H> {
        self.core
    }

    /// The word at `at`.
    pub fn word(&self, at: Offset) -> u64 {
        self.core.memory.load(at, Ordering::Relaxed)
    }

    /// Copies the bytes at `at`.
    pub fn bytes(&self, at: Offset, out: &mut [u8]) {
        self.core.memory.read(at, out);
    }
}

/// What a lock's version was at some time.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    number: u32,
    version: u64,
}

impl<M: Memory, H: Host> Core<M, H> {
    /// The version of what lock `number` guards, before it is read.
    pub fn stamp(&self, number: u32) -> Stamp {
        Stamp { number, version: self.version(number, Ordering::Acquire) }
    }

    /// Whether nothing that the stamp's lock guards has changed since, nor is about to: what was
    /// read in between belongs together.
    pub fn is_current(&self, stamp: Stamp) -> bool {
        self.memory.load_fence();
        stamp.version.is_multiple_of(2)
            && self.version(stamp.number, Ordering::Relaxed) == stamp.version
    }

    /// Reads what lock `number` guards: `look` is called, again if need be, until it has seen one
    /// committed state. An error of `look` counts only if that state was the cause.
    ///
    /// # Errors
    /// Those of `look`, and of taking the lock.
    #[inline]
    pub fn read<T>(
        &self,
        number: u32,
        mut look: impl FnMut(&View<'_, M, H>) -> Result<T>,
    ) -> Result<T> {
        if let Some(seen) = self.try_read(number, &mut look) {
            return seen;
        }
        let view = View { core: self };
        loop {
            let mut tx = self.begin()?;
            match tx.lock(number, Mode::Shared) {
                Ok(()) => return look(&view),
                Err(Error::Again) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads like [`Self::read`], but never takes the lock: none if each of some tries met a
    /// change. So `look` may copy to memory that faults.
    #[inline]
    pub fn try_read<T>(
        &self,
        number: u32,
        mut look: impl FnMut(&View<'_, M, H>) -> Result<T>,
    ) -> Option<Result<T>> {
        if self.host.is_forked()
            && let Err(error) = self.enter()
        {
            return Some(Err(error));
        }
        let view = View { core: self };
        for _ in 0..TRIES {
            let before = self.version(number, Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = look(&view);
                self.memory.load_fence();
                if self.version(number, Ordering::Relaxed) == before {
                    return Some(seen);
                }
            }
            core::hint::spin_loop();
        }
        None
    }
}
