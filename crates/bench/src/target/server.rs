//! The program `conquest`, serving a mount while a target is there.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Longest wait for the mount, and for its end.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// What a target may take longer than the part of the experiment that is done on it: making and
/// removing it.
const AROUND: Duration = Duration::from_secs(600);
/// Between two looks.
pub(super) const NAP: Duration = Duration::from_millis(2);
/// The kernel's number for FUSE.
const FUSE: i64 = 0x6573_5546;

/// A process that serves. It is killed when this is dropped, when this process ends, and if it is
/// still there when everything should long be over: so nobody waits for it for ever.
pub(super) struct Server {
    target: &'static str,
    child: Arc<Mutex<Child>>,
    /// The watch ends with it.
    _over: Sender<()>,
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a mount of FUSE is at `point`.
pub(super) fn is_mounted(point: &Path) -> bool {
    rustix::fs::statfs(point).is_ok_and(|found| found.f_type == FUSE)
}

impl Server {
    /// Starts `program` with `arguments`, which is to mount something at `point`, and waits until
    /// it has. What is measured there takes no longer than `limit`. Errors name `target`.
    ///
    /// # Errors
    /// What it says if it does not; if it takes too long.
    pub(super) fn start(
        target: &'static str,
        program: &Path,
        arguments: &[&Path],
        point: &Path,
        limit: Duration,
    ) -> Result<Server> {
        // If this process is killed, so is the server, and with it the namespace goes.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).args(arguments);
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(Error::system("conquest"))?;
        let child = Arc::new(Mutex::new(child));
        let (over, is_over) = channel();
        let watched = Arc::clone(&child);
        std::thread::spawn(move || {
            if is_over.recv_timeout(limit + AROUND) == Err(RecvTimeoutError::Timeout) {
                // It may end at this moment.
                let _ = lock(&watched).kill();
            }
        });
        let server = Server { target, child, _over: over };
        server.await_mount(point)?;
        Ok(server)
    }

    fn failed(&self, reason: impl Into<String>) -> Error {
        Error::Target { target: self.target.to_owned(), reason: reason.into() }
    }

    fn await_mount(&self, point: &Path) -> Result<()> {
        let begin = Instant::now();
        while !is_mounted(point) {
            if lock(&self.child).try_wait().ok().flatten().is_some() {
                let mut said = String::new();
                if let Some(from) = &mut lock(&self.child).stderr {
                    // What can't be read is not told.
                    let _ = std::io::Read::read_to_string(from, &mut said);
                }
                return Err(self.failed(said.trim()));
            }
            if begin.elapsed() > LIMIT {
                return Err(self.failed(format!("not mounted after {} s", LIMIT.as_secs())));
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Waits for its end; ends it if that takes too long.
    ///
    /// # Errors
    /// If it had to.
    pub(super) fn end(self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            if lock(&self.child).try_wait().map_err(Error::system("the server"))?.is_some() {
                return Ok(());
            }
            std::thread::sleep(NAP);
        }
        self.kill();
        Err(self.failed(format!("the server has not ended after {} s", LIMIT.as_secs())))
    }

    /// Ends it at once: who waits for it has an error.
    pub(super) fn kill(&self) {
        // It may end at this moment.
        let _ = lock(&self.child).kill();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = lock(&self.child).wait();
    }
}
