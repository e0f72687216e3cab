//! Virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that passes only when somebody makes it; clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Nanoseconds since the clock was made.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Lets `duration` pass.
    pub fn advance(&self, duration: Duration) {
        self.advance_to(self.now().saturating_add(nanoseconds(duration)));
    }

    /// Lets time pass until `moment`, if that is not over yet.
    pub fn advance_to(&self, moment: u64) {
        self.0.fetch_max(moment, Ordering::SeqCst);
    }

    /// Starts again at 0.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

/// `duration` in nanoseconds, at most `u64::MAX`.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
