//! Ending a session from outside, such as when the process is asked to end.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::mount::Mounted;

/// How long requests may take to end after their connection was aborted.
const ABORTED_LIMIT: Duration = Duration::from_secs(10);

/// Whether a session has ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    pub(crate) fn set(&self) {
        *self.is.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for it, for at most `limit`: whether it has.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let is = self.is.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is, limit, |is| !*is);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// How a session was ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// Everybody had left.
    Unused,
    /// Somebody was still using it, and now gets errors.
    Aborted,
}

/// Ends the session of a mount, from any thread that serves none of its requests.
#[derive(Clone, Debug)]
pub struct Stopper {
    mounted: Mounted,
    ended: Arc<Ended>,
}

impl Stopper {
    pub(crate) fn new(mounted: &Mounted, ended: &Arc<Ended>) -> Stopper {
        Stopper { mounted: mounted.clone(), ended: Arc::clone(ended) }
    }

    /// Takes the mount out of the tree of names, so that nobody new comes in, gives those who use
    /// it `limit` to leave, and then aborts the connection.
    ///
    /// # Errors
    /// If it can't be unmounted, or the connection not aborted: then the session goes on. Also, if
    /// the handler does not come to an end.
    pub fn stop(&self, limit: Duration) -> Result<Stopped> {
        match self.mounted.unmount(true) {
            // Somebody else was quicker.
            Ok(()) | Err(Error::NotMounted { .. }) => {}
            Err(error) => return Err(error),
        }
        if self.wait(limit) {
            return Ok(Stopped::Unused);
        }
        self.abort()?;
        Ok(Stopped::Aborted)
    }

    /// Waits until the session has ended, for at most `limit`: whether it has.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        self.ended.wait(limit)
    }

    /// Aborts the connection: all requests fail, and the session ends.
    ///
    /// # Errors
    /// If it can't be aborted, or the handler does not come to an end.
    pub fn abort(&self) -> Result {
        // The number of a connection that has ended may be another one's.
        if self.wait(Duration::ZERO) {
            return Ok(());
        }
        self.mounted.connection().abort()?;
        if self.wait(ABORTED_LIMIT) {
            return Ok(());
        }
        let directory = self.mounted.directory().into();
        Err(Error::Hangs { directory, limit: ABORTED_LIMIT })
    }
}
