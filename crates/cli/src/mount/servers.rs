//! Which process serves a mount, and waiting for its end.
//!
//! The server writes nothing for this: the kernel knows who has a FUSE connection's device open,
//! and tells the connection's number (Linux 6.17 and newer), which is that of the mount's device.
//! Older kernels tell only who has the device of FUSE open; of those it is the one called
//! `conquest` whose last argument is the mount point. A descriptor of the process is taken while it
//! serves, so that no other process that gets its number later is waited for. A lock on a file
//! would need a store that can be found and written to by whoever unmounts.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

use super::processes::Process;
use super::table::{self, Mount};

/// The device that servers work on.
const DEVICE: &str = "/dev/fuse";

/// A process that serves a mount.
pub(crate) struct Server {
    process: Process,
    descriptor: OwnedFd,
}

impl Server {
    /// The processes that serve `mount`: one, or none if it has ended or can't be seen.
    pub(crate) fn of(mount: &Mount) -> Vec<Server> {
        let serves = |process: &Process| process.0 != std::process::id() && serves(*process, mount);
        let open = |process: Process| {
            let number = Pid::from_raw(process.0.try_into().ok()?)?;
            let descriptor = pidfd_open(number, PidfdFlags::empty()).ok()?;
            // Had the number become another's in between, that one would not serve.
            serves(&process).then_some(Server { process, descriptor })
        };
        Process::all().filter(serves).filter_map(open).collect()
    }

    /// Waits until it has ended, for `limit` at most; whether it has.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut ended = [PollFd::new(&self.descriptor, PollFlags::IN)];
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut ended, timeout.as_ref()) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Its number.
    pub(crate) const fn number(&self) -> u32 {
        self.process.0
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn serves(process: Process, mount: &Mount) -> bool {
    let descriptors = process.descriptors().unwrap_or_default();
    descriptors.into_iter().any(|number| {
        let link = std::fs::read_link(process.file(&format!("fd/{number}")));
        if !link.is_ok_and(|link| link.as_os_str() == DEVICE) {
            return false;
        }
        let told = process.descriptor(number).unwrap_or_default();
        match table::field(&told, "fuse_connection") {
            Some(connection) => connection.parse() == Ok(mount.device.1),
            None => !can_tell() && is_called_for(process, mount),
        }
    })
}

/// Whether the kernel tells connections.
fn can_tell() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok));
    version >= (Some(6), Some(17))
}

/// Whether `process` was started to serve at the mount point of `mount`.
fn is_called_for(process: Process, mount: &Mount) -> bool {
    let arguments = std::fs::read(process.file("cmdline")).unwrap_or_default();
    let last = arguments.trim_ascii_end().strip_suffix(b"\0").unwrap_or(&arguments);
    let last = last.rsplit(|byte| *byte == 0).next().unwrap_or_default();
    process.name().as_deref() == Some("conquest") && last == mount.directory.as_os_str().as_bytes()
}
