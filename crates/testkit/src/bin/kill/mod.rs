//! What programs that kill processes share: regions to die on, work shared out to processes, time
//! limits, and counting.

pub(crate) mod crew;
pub(crate) mod limit;
pub(crate) mod region;
pub(crate) mod tally;

use conquest_testkit::Fate;

use crate::os::child::signal_self;

/// Death before the n-th store.
pub(crate) fn death() -> Fate {
    Fate::Call(Box::new(|| signal_self(libc::SIGKILL)))
}

/// A stop before the n-th store.
pub(crate) fn stop() -> Fate {
    Fate::Call(Box::new(|| signal_self(libc::SIGSTOP)))
}
