//! A thread that is stopped at some place until another one lets it go on.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longest wait: more than anything that a test does meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The place at which a thread stops.
#[derive(Debug)]
pub struct Stop {
    is_there: Sender<()>,
    goes_on: Receiver<()>,
}

/// A thread that is to stop, or has stopped. It goes on when this is dropped, whatever the reason.
#[derive(Debug)]
pub struct Stopped {
    is_there: Receiver<()>,
    _go_on: Sender<()>,
}

/// A place, and the thread that comes there.
#[must_use]
pub fn stop() -> (Stop, Stopped) {
    let (here, is_there) = channel();
    let (go_on, goes_on) = channel();
    (Stop { is_there: here, goes_on }, Stopped { is_there, _go_on: go_on })
}

impl Stop {
    /// Stops the calling thread until it is let go.
    ///
    /// # Panics
    /// If that takes longer than [`PATIENCE`]: somebody waits for this thread, it seems.
    pub fn here(self) {
        // If nobody waits for it any more, it need not stop.
        if self.is_there.send(()).is_ok() {
            let gone = self.goes_on.recv_timeout(PATIENCE);
            assert_ne!(gone, Err(RecvTimeoutError::Timeout), "nobody lets this thread go on");
        }
    }
}

impl Stopped {
    /// Waits until the thread is stopped, for [`PATIENCE`] at most; false if it never comes there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.is_there.recv_timeout(PATIENCE).is_ok()
    }

    /// Lets it go on.
    pub fn let_go(self) {}
}
