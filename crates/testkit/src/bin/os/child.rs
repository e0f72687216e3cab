//! Real processes: forked, signalled, waited for.

use std::time::{Duration, Instant};

use super::system;

/// How a process ended, or that it stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It exited with this code.
    Exit(i32),
    /// This signal killed it.
    Signal(i32),
    /// It stopped, or is traced and stands at a call.
    Stopped,
}

/// A child process; killed and reaped when dropped, killed when its parent dies.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
    reaped: bool,
}

impl Child {
    /// Forks; the child runs `body` and exits with 0, or with 1 if it returns an error.
    pub(crate) fn fork(body: impl FnOnce() -> Result<(), String>) -> Result<Child, String> {
        let parent = std::process::id();
        // SAFETY: the calling process has one thread, so the child may do anything.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(system("fork")),
            0 => {
                die_with(parent);
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

    /// Its number.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
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
        loop {
            if let Some(end) = self.poll(0)? {
                return Ok(end);
            }
        }
    }

    /// Whether it has ended or stopped.
    pub(crate) fn end(&mut self) -> Result<Option<End>, String> {
        self.poll(libc::WNOHANG)
    }

    /// Waits until it ends or stops, for at most `limit`.
    pub(crate) fn wait_for(&mut self, limit: Duration) -> Result<End, String> {
        // Blocked from before the look at the child, the signal that it sends afterwards stays
        // pending: the wait below ends at once.
        let signals = block_child_signal()?;
        let since = Instant::now();
        loop {
            if let Some(end) = self.poll(libc::WNOHANG)? {
                return Ok(end);
            }
            let Some(left) = limit.checked_sub(since.elapsed()) else {
                return Err(format!("process {} neither ended nor stopped", self.pid));
            };
            let left = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: local structures; what came of it is looked at above.
            unsafe {
                libc::sigtimedwait(&raw const signals, std::ptr::null_mut(), &raw const left)
            };
        }
    }

    fn poll(&mut self, options: i32) -> Result<Option<End>, String> {
        let mut status = 0;
        let options = options | libc::WUNTRACED;
        // SAFETY: a local status word; our own child.
        let found = unsafe { libc::waitpid(self.pid, &raw mut status, options) };
        if found < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return Err(system("wait for a process"));
        }
        if found <= 0 {
            return Ok(None);
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

    /// Waits until it has ended well.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        match self.wait()? {
            End::Exit(0) => Ok(()),
            other => Err(format!("a process ended otherwise: {other:?}")),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        while !self.reaped && self.wait().is_ok() {}
    }
}

/// The calling process, a child of `parent`, dies with it: also if it is stopped.
fn die_with(parent: u32) {
    // SAFETY: no memory is passed.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // It may have died before that.
        if libc::getppid() as u32 != parent {
            libc::_exit(3);
        }
    }
}

/// Blocks the signal that a child sends when it ends or stops; the set of it alone.
fn block_child_signal() -> Result<libc::sigset_t, String> {
    // SAFETY: a set of signals is plain data, for which zeros are a valid value.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a local set; the signal does nothing in this process, blocked or not.
    let failed = unsafe {
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut())
    };
    if failed == 0 { Ok(signals) } else { Err("can't block a signal".into()) }
}

/// Signals the calling process itself.
pub(crate) fn signal_self(signal: i32) {
    // SAFETY: to ourselves.
    unsafe { libc::raise(signal) };
}
