//! Signals that ask a server to end, as something to wait for.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

use crate::reason::Result;

/// `SIGTERM`, `SIGINT` and `SIGHUP`, which end the process no more: each is a byte in a pipe.
pub(crate) struct Signals {
    ids: Vec<SigId>,
    from: UnixStream,
    to: UnixStream,
}

impl Signals {
    /// From now on those signals only ask.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn listen() -> Result<Signals> {
        let (from, to) = UnixStream::pair()?;
        let mut signals = Signals { ids: Vec::new(), from, to };
        for number in [SIGTERM, SIGINT, SIGHUP] {
            signals.ids.push(pipe::register(number, signals.to.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Waits for a signal, or for [`Signals::wake`], for `limit` at most; whether one came.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait(&self, limit: Duration) -> Result<bool> {
        // One byte, one signal: of more than the pipe holds, some are left out.
        self.from.set_read_timeout(Some(limit))?;
        match (&self.from).read(&mut [0]) {
            Ok(read) => Ok(read > 0),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a wait, or the next one.
    pub(crate) fn wake(&self) {
        // If there is no room, there is enough to wake whoever waits.
        let _ = (&self.to).write(&[0]);
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            unregister(id);
        }
    }
}
