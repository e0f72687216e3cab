//! A process between this program and one that serves a mount, which outlives the one that serves.
//!
//! The last process in a mount namespace unmounts, as it ends, what is mounted there. If a file
//! system of the kernel lies on what somebody serves, and that is the last process, it waits for
//! its own answers: for ever, and no signal ends it. So who serves is started by a guardian, which
//! is in the namespace until it has gone, and with it the connection by which it answers. Whoever
//! unmounts then has an error instead of waiting.
//!
//! The guardian has the reading end of a pipe, of which only who started it has the other one: so
//! it knows when that process has ended, however it did, and ends who serves. Only if the guardian
//! is killed itself, a signal does that in its place.

use std::ffi::OsString;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The program's argument that makes a process one. The limit in seconds comes behind it, and,
/// behind `--`, the command that serves.
pub const ARGUMENT: &str = "bench-guardian";

/// Starts `command` and waits for its end: how it was. It is killed when standard input ends, and
/// after `limit`.
///
/// # Errors
/// What the system says.
pub fn guard(limit: Duration, command: &[OsString]) -> std::io::Result<ExitStatus> {
    let mut serving = Command::new("setpriv");
    serving.args(["--pdeathsig", "KILL"]).args(command).stdin(Stdio::null());
    let mut serving = serving.spawn()?;
    let waited = await_end(limit, Pid::from_child(&serving));
    // It may have ended already.
    let _ = serving.kill();
    let ended = serving.wait();
    waited.and(ended)
}

/// Waits until standard input or the child `serving` ends, or `limit` is over.
fn await_end(limit: Duration, serving: Pid) -> std::io::Result<()> {
    let limit = Timespec::try_from(limit).map_err(std::io::Error::other)?;
    let (told, served) = (std::io::stdin(), pidfd_open(serving, PidfdFlags::empty())?);
    let mut ends = [PollFd::new(&told, PollFlags::IN), PollFd::new(&served, PollFlags::IN)];
    retry_on_intr(|| poll(&mut ends, Some(&limit)))?;
    Ok(())
}
