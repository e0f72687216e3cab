//! Protection against wild stores (Conquest 2002, 3.5): outside of windows the persistent part is
//! mapped for reading only, so that a stray pointer of the program faults instead of damaging it.
//!
//! A window is open while an operation of this process is under way. Windows of several threads
//! overlap; the pages are writable while there is any. Opening the first and closing the last cost
//! a change of the mapping's protection, about a microsecond each: this is for programs that want
//! it, not the default.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;

use super::process_lock::ProcessLock;
use super::signals::NoSignals;
use super::sys::checked;

/// The protection of one mapping.
#[derive(Debug)]
pub(super) struct Shield {
    base: NonNull<u8>,
    /// What is protected: before and after the volatile part.
    ranges: [Range<u64>; 2],
    lock: ProcessLock,
    /// Windows open. Changed under the lock.
    windows: AtomicU32,
}

impl Shield {
    /// Protects the mapping of `len` bytes at `base`, except `volatile`.
    ///
    /// # Errors
    /// What the system refuses.
    pub(super) fn raise(base: NonNull<u8>, len: u64, volatile: &Range<u64>) -> io::Result<Shield> {
        let ranges = [0..volatile.start, volatile.end..len];
        let (lock, windows) = (ProcessLock::new(), AtomicU32::new(0));
        let shield = Shield { base, ranges, lock, windows };
        shield.protect(libc::PROT_READ)?;
        Ok(shield)
    }

    /// Opens a window; whether that worked.
    pub(super) fn open(&self) -> bool {
        self.change(|windows| {
            if windows == 0 && self.protect(libc::PROT_READ | libc::PROT_WRITE).is_err() {
                return None;
            }
            Some(windows + 1)
        })
    }

    /// Closes a window.
    pub(super) fn close(&self) {
        self.change(|windows| {
            // If the protection can't be raised again, the pages just stay writable.
            if windows == 1 {
                let _raised = self.protect(libc::PROT_READ);
            }
            windows.checked_sub(1)
        });
    }

    /// In a forked child whose mapping was made anew: its parent's windows are not open here.
    pub(super) fn raise_again(&self) {
        self.change(|_| {
            let _raised = self.protect(libc::PROT_READ);
            Some(0)
        });
    }

    /// Changes the count, alone, and without a signal handler of this thread in between, which
    /// might want a window too.
    fn change(&self, change: impl FnOnce(u32) -> Option<u32>) -> bool {
        let _signals = NoSignals::begin();
        // SAFETY: has no conditions.
        let process = unsafe { libc::getpid() } as u32;
        let _alone = self.lock.lock(process);
        let changed = change(self.windows.load(Ordering::Relaxed));
        if let Some(windows) = changed {
            self.windows.store(windows, Ordering::Relaxed);
        }
        changed.is_some()
    }

    fn protect(&self, protection: libc::c_int) -> io::Result<()> {
        for range in &self.ranges {
            if range.is_empty() {
                continue;
            }
            // SAFETY: within our own mapping, whose bytes no reference points to; who stores
            // without a window faults, as is meant.
            checked(unsafe {
                let start = self.base.as_ptr().add(range.start as usize);
                libc::mprotect(start.cast(), (range.end - range.start) as usize, protection)
            })?;
        }
        Ok(())
    }
}
