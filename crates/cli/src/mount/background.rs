//! A server in the background: the command starts another process of the same program, and ends
//! when that one says that it is ready.
//!
//! A process that has a store attached must not fork, and a forked process of several threads can
//! do little; so the new process is started before anything is attached, by executing the program
//! anew. The two talk over a socket, which is the new process's standard input: it says `R` when it
//! is ready, or a letter for the kind of failure, and the reason in words. If it says nothing, it
//! has ended, and its status tells how. If the command has ended before the server is ready, the
//! server finds nobody to tell, and gives up.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::failure::Failure;
use crate::reason::{Reason, Result};

/// Longest wait for a server: attaching waits for others, and may have to recover a large store.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
/// Longest wait for the end of a process that has nothing more to do.
const LIMIT_OF_END: Duration = Duration::from_secs(5);
/// Most bytes of a reason.
const REASON_MAX: u64 = 16 << 10;
/// Said by a server that is ready.
const READY: u8 = b'R';

/// Starts `command`, whose process has a [`Parent`], and waits until it serves; at most `limit`.
///
/// # Errors
/// Why it does not, in its own words.
pub(crate) fn start(mut command: Command, limit: Duration) -> core::result::Result<(), Failure> {
    let (ours, theirs) = UnixStream::pair().map_err(Reason::from)?;
    command.stdin(OwnedFd::from(theirs));
    let child = command.spawn().map_err(|error| {
        let words = crate::reason::words(&error);
        Reason::rule(format!("the program can't be started anew: {words} (is /proc mounted?)"))
    });
    let mut child = child?;
    // It has the other end now, and nobody else: so its end can be seen.
    drop(command);
    match heard(&ours, limit)? {
        Some(said) => understood(&said, &mut child),
        None => {
            // It may have ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
            let seconds = limit.as_secs_f64();
            let text = format!("the server was not ready after {seconds:.0} s, and was ended");
            Err(Reason::Rule(text).into())
        }
    }
}

/// All that a server says until it says no more; none if that takes longer than `limit`.
fn heard(from: &UnixStream, limit: Duration) -> Result<Option<Vec<u8>>> {
    let end = Instant::now() + limit;
    let mut said = Vec::new();
    let mut bytes = [0; 512];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || said.len() as u64 > REASON_MAX {
            return Ok(None);
        }
        from.set_read_timeout(Some(left))?;
        match { from }.read(&mut bytes) {
            Ok(0) => return Ok(Some(said)),
            Ok(read) => said.extend(bytes.iter().take(read)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            // It was ended with something unread.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return Ok(Some(said));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What it means.
fn understood(said: &[u8], child: &mut Child) -> core::result::Result<(), Failure> {
    let reason = |words: &[u8]| Reason::rule(String::from_utf8_lossy(words));
    match said {
        [READY] => Ok(()),
        [b'U', words @ ..] => Err(Failure::Usage(reason(words))),
        [b'F', words @ ..] => Err(Failure::Failed(reason(words))),
        _ => {
            let how = ended(child).map_or("without a word".to_owned(), |status| {
                match (status.signal(), status.code()) {
                    (Some(signal), _) => format!("by signal {signal}"),
                    (None, code) => format!("with exit code {}", code.unwrap_or(0)),
                }
            });
            let text = format!("the server ended {how} before it was ready (try it with -f)");
            Err(Reason::Rule(text).into())
        }
    }
}

/// How `child` has ended, which it has told already.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let end = Instant::now() + LIMIT_OF_END;
    while Instant::now() < end {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            done => return done.ok().flatten(),
        }
    }
    None
}

/// Who started this process, and waits until it is ready.
pub(crate) struct Parent(UnixStream);

impl Parent {
    /// Leaves the session of who started the process, the directory, and files that were open. To
    /// be called before the process has opened any itself.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn leave() -> Result<Parent> {
        close_inherited();
        let parent = Parent(std::io::stdin().as_fd().try_clone_to_owned()?.into());
        rustix::process::setsid()?;
        std::env::set_current_dir("/")?;
        Ok(parent)
    }

    /// Says that the process is ready, and lets go of the standard streams.
    ///
    /// # Errors
    /// If there is nobody any more to be told.
    pub(crate) fn ready(self) -> Result<()> {
        let nowhere = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&nowhere)?;
        rustix::stdio::dup2_stdout(&nowhere)?;
        rustix::stdio::dup2_stderr(&nowhere)?;
        self.say(&[READY])
    }

    /// Says why the process is not going to be ready.
    pub(crate) fn failed(self, failure: &Failure) {
        let mut said = vec![failure.letter()];
        said.extend(failure.reason().to_string().bytes().take(REASON_MAX as usize - 1));
        // Whoever does not listen does not want to know.
        let _ = self.say(&said);
    }

    fn say(mut self, bytes: &[u8]) -> Result<()> {
        self.0.set_write_timeout(Some(LIMIT_OF_END))?;
        let words = "who started the server has ended before it was ready";
        self.0.write_all(bytes).map_err(|_| Reason::rule(words))?;
        // Standard input is another descriptor of the same end.
        Ok(self.0.shutdown(Shutdown::Both)?)
    }
}

/// Closes all but the standard streams: locks and pipes of who gave the command are no server's.
fn close_inherited() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The listing itself is over when they are closed.
    for number in numbers.collect::<Vec<_>>() {
        if number > 2 {
            // That of the listing is closed already.
            let _ = nix::unistd::close(number);
        }
    }
}

#[cfg(test)]
mod tests;
