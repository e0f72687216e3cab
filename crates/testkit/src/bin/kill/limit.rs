//! How long anything may take.

use std::time::Duration;

/// Longest wait for a process.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// While it lives, the calling process is ended by `SIGALRM` if it takes too long: a process that
/// works on a region may hang there, as those that it kills and stops may.
pub(crate) struct Watchdog(());

impl Watchdog {
    /// The time starts now.
    pub(crate) fn start() -> Watchdog {
        // SAFETY: sets a timer of this process.
        unsafe { libc::alarm(2 * LIMIT.as_secs() as u32) };
        Watchdog(())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // SAFETY: cancels the timer.
        unsafe { libc::alarm(0) };
    }
}
