//! Holding signals back.

/// All signals of this thread, held back until dropped.
pub(super) struct NoSignals(libc::sigset_t);

impl NoSignals {
    pub(super) fn begin() -> NoSignals {
        // SAFETY: both sets are local, and filled before they are read.
        unsafe {
            let mut all = core::mem::zeroed();
            let mut before = core::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            NoSignals(before)
        }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut());
        }
    }
}
