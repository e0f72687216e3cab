//! Real processes: forked, signalled, waited for with a limit.

use std::time::{Duration, Instant};

/// Longest wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// How a process ended, or that it stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It exited with this code.
    Exit(i32),
    /// This signal killed it.
    Signal(i32),
    /// It stopped itself.
    Stopped,
}

/// A child process; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
    reaped: bool,
}

impl Child {
    /// Forks; the child runs `body` and exits with 0, or with 1 if it returns an error.
    pub(crate) fn fork(body: impl FnOnce() -> Result<(), String>) -> Result<Child, String> {
        // SAFETY: the calling process has one thread, so the child may do anything.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(format!("fork: {}", std::io::Error::last_os_error())),
            0 => {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                let code = match done {
                    Ok(Ok(())) => 0,
                    Ok(Err(error)) => {
                        eprintln!("child: {error}");
                        1
                    }
                    Err(_) => 2,
                };
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(code) }
            }
            _ => Ok(Child { pid, reaped: false }),
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: i32) {
        if !self.reaped {
            // SAFETY: to our own child, which has not been reaped: the number is still its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Waits until it ends or stops.
    pub(crate) fn wait(&mut self) -> Result<End, String> {
        let since = Instant::now();
        loop {
            if let Some(end) = self.poll()? {
                return Ok(end);
            }
            if since.elapsed() > LIMIT {
                return Err(format!("process {} neither ended nor stopped", self.pid));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn poll(&mut self) -> Result<Option<End>, String> {
        let mut status = 0;
        // SAFETY: a local status word; our own child.
        let found =
            unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
        if found == 0 {
            return Ok(None);
        }
        if found < 0 {
            return Err(format!("waitpid: {}", std::io::Error::last_os_error()));
        }
        if libc::WIFSTOPPED(status) {
            return Ok(Some(End::Stopped));
        }
        self.reaped = true;
        Ok(Some(if libc::WIFEXITED(status) {
            End::Exit(libc::WEXITSTATUS(status))
        } else {
            End::Signal(libc::WTERMSIG(status))
        }))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        if !self.reaped {
            let _end = self.wait();
        }
    }
}

/// Signals the calling process itself.
pub(crate) fn signal_self(signal: i32) {
    // SAFETY: to ourselves.
    unsafe { libc::raise(signal) };
}

/// Ends the calling process by a signal, unless called again within the limit: what it does next
/// must not take longer.
pub(crate) fn watchdog() {
    // SAFETY: sets a timer of this process.
    unsafe { libc::alarm(2 * LIMIT.as_secs() as u32) };
}
