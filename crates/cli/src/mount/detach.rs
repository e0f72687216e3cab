//! Taking a mount away.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::reason::{Reason, Result};

/// The program that unmounts for ordinary users.
const HELPER: &str = "fusermount3";
/// Between two looks at it.
const NAP: Duration = Duration::from_millis(5);

/// Takes away what is mounted at `point`, an absolute path without links; at once and whoever uses
/// it, if `is_lazy`: its users keep it until they end.
///
/// # Errors
/// `EBUSY` if somebody uses it; whatever else keeps it, also that it takes longer than `limit`.
pub(crate) fn detach(point: &Path, is_lazy: bool, limit: Duration) -> Result<()> {
    let begin = Instant::now();
    match by_kernel(point, is_lazy, limit) {
        Err(reason) if reason.is(conquest::Errno::EPERM) => {
            by_helper(point, is_lazy, limit.saturating_sub(begin.elapsed()))
        }
        done => done,
    }
}

/// By ourselves. What is still to be written is written first, which takes a server that answers.
fn by_kernel(point: &Path, is_lazy: bool, limit: Duration) -> Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, is_lazy);
    let (done, wait) = mpsc::channel();
    let path = point.to_owned();
    std::thread::Builder::new().spawn(move || done.send(unmount(&path, flags)))?;
    match wait.recv_timeout(limit) {
        Ok(unmounted) => Ok(unmounted?),
        Err(_) => Err(late(limit)),
    }
}

fn by_helper(point: &Path, is_lazy: bool, limit: Duration) -> Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args(is_lazy.then_some("-z")).arg("--").arg(point);
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Reason::rule(format!(
            "only root may unmount without {HELPER} (install it: package fuse3)"
        )),
        _ => Reason::rule(format!("{HELPER}: {}", crate::reason::words(&error))),
    })?;
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(NAP),
            None => {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Err(late(limit));
            }
        }
    };
    let mut said = String::new();
    if let Some(errors) = child.stderr.take() {
        // It has ended, so this does; a process that it left behind has none of its descriptors.
        errors.take(4096).read_to_string(&mut said)?;
    }
    match status.success() {
        true => Ok(()),
        false if said.contains("resource busy") => Err(Errno::BUSY.into()),
        false => Err(Reason::rule(format!("{HELPER} can't: {}", said.trim()))),
    }
}

fn late(limit: Duration) -> Reason {
    Reason::rule(format!(
        "not unmounted after {:.0} s: its server does not answer (use --lazy, or end the server)",
        limit.as_secs_f64()
    ))
}
