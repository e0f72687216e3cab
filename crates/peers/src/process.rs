//! Processes that tests fork: told what to do through a socket, killed, waited for.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::sys::call;

/// Longest wait for an answer, or for an end.
const LIMIT: Duration = Duration::from_secs(60);

/// The two ends of a line between the one who asks and a process that answers.
pub struct Line {
    asks: UnixStream,
    answers: UnixStream,
}

impl Line {
    /// A new line, to be made before the process.
    ///
    /// # Panics
    /// If the machine has no sockets left.
    #[must_use]
    pub fn new() -> Line {
        let (asks, answers) = UnixStream::pair().unwrap();
        asks.set_read_timeout(Some(LIMIT)).unwrap();
        Line { asks, answers }
    }

    /// Asks for `what`: the answer; none if the process has ended.
    ///
    /// # Panics
    /// If there is none in time.
    pub fn ask(&self, what: u64) -> Option<String> {
        (&self.asks).write_all(&what.to_le_bytes()).ok()?;
        let mut length = [0; 8];
        (&self.asks).read_exact(&mut length).ok()?;
        let mut text = vec![0; u64::from_le_bytes(length) as usize];
        (&self.asks).read_exact(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Answers until nobody asks any more.
    pub fn serve(&self, mut answer: impl FnMut(u64) -> String) {
        let mut what = [0; 8];
        while (&self.answers).read_exact(&mut what).is_ok() {
            let text = answer(u64::from_le_bytes(what));
            let message = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
            if (&self.answers).write_all(&message).is_err() {
                return;
            }
        }
    }
}

impl Default for Line {
    fn default() -> Line {
        Line::new()
    }
}

/// A process that may be anybody's child; killed when this is dropped.
pub struct Process(File);

impl Drop for Process {
    fn drop(&mut self) {
        self.send(libc::SIGKILL);
    }
}

impl Process {
    /// Process `pid`, which has not been waited for.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn find(pid: u32) -> Process {
        let raw = call!(SYS_pidfd_open, pid, 0).unwrap() as i32;
        // SAFETY: the descriptor is new, and ours.
        Process(unsafe { File::from_raw_fd(raw) })
    }

    /// Sends it a signal.
    pub fn send(&self, signal: i32) {
        let none = core::ptr::null::<libc::siginfo_t>();
        // It may have ended.
        let (Ok(_) | Err(_)) = call!(SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, none, 0);
    }

    /// Kills it, and waits until it has ended: its locks are free and its files are closed.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn kill(&self) {
        self.send(libc::SIGKILL);
        assert!(readable(&self.0, LIMIT), "a process did not end in time");
    }
}

/// Whether there is something to read, or becomes so within `limit`: of a process, its end.
pub fn readable(file: &impl AsRawFd, limit: Duration) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure of our own.
    let ready = unsafe { libc::poll(&raw mut poll, 1, limit.as_millis() as i32) };
    ready == 1
}

/// Takes over the children of those who end, and waits for all that have ended.
pub fn reap() {
    let _set = call!(SYS_prctl, libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    let mut status = 0;
    // SAFETY: a number of our own.
    while unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } > 0 {}
}

/// From now on this process, which has one thread, is an ordinary user for good: `user`, with
/// `group` and no other group.
///
/// # Panics
/// If the machine refuses.
pub fn become_user(user: u32, group: u32) {
    call!(SYS_setgroups, 0_usize, core::ptr::null::<u32>()).unwrap();
    call!(SYS_setresgid, group, group, group).unwrap();
    call!(SYS_setresuid, user, user, user).unwrap();
}
