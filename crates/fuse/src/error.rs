//! Errors, each naming the object, the reason and the remedy.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What went wrong outside of single requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{object}: {action}: {source}{remedy}")]
    System {
        /// The file or directory.
        object: PathBuf,
        /// What was being done, as a verb phrase.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
        /// What helps.
        remedy: Remedy,
    },
    /// A name that no system call can take.
    #[error("{what} {name:?} has a zero byte in it; choose another one")]
    Name {
        /// What it is a name of.
        what: &'static str,
        /// The name.
        name: OsString,
    },
    /// The program that mounts for ordinary users is not there.
    #[error(
        "{directory}: only root may mount and unmount without fusermount3, and there is no such \
         command that this user may run; install the package fuse3"
    )]
    NoHelper {
        /// The mount point.
        directory: PathBuf,
    },
    /// The program that mounts for ordinary users refused.
    #[error("{directory}: fusermount3 refuses: {said}{remedy}")]
    Helper {
        /// The mount point.
        directory: PathBuf,
        /// What it said.
        said: String,
        /// What helps.
        remedy: Remedy,
    },
    /// The program that mounts for ordinary users did not end.
    #[error(
        "{directory}: fusermount3 has not ended within {} s, and was killed; look what it \
         waits for, and try again", limit.as_secs()
    )]
    HelperSilent {
        /// The mount point.
        directory: PathBuf,
        /// How long it had.
        limit: Duration,
    },
    /// Nothing is mounted there.
    #[error("{directory}: nothing is mounted here; name the directory that it was mounted at")]
    NotMounted {
        /// The directory.
        directory: PathBuf,
    },
    /// Something else is mounted there.
    #[error(
        "{directory}: a {found} from {source_name:?} is mounted on top; unmount that one first"
    )]
    Covered {
        /// The directory.
        directory: PathBuf,
        /// The type of what is mounted.
        found: String,
        /// The name of what is mounted.
        source_name: OsString,
    },
    /// A line of `/proc/self/mountinfo` that makes no sense.
    #[error("/proc/self/mountinfo: {line:?} is no line of it; is /proc what it should be?")]
    MountInfo {
        /// The line.
        line: String,
    },
    /// Connections can't be aborted.
    #[error(
        "FUSE connection {number} can't be aborted: {source}; mount what does it: mount -t fusectl \
         fusectl /sys/fs/fuse/connections"
    )]
    NoControl {
        /// The connection.
        number: u32,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Threads of the session have not ended.
    #[error(
        "{directory}: requests are still being served {} s after the connection was aborted; end \
         the process", limit.as_secs()
    )]
    Hangs {
        /// The mount point.
        directory: PathBuf,
        /// How long they had.
        limit: Duration,
    },
    /// The kernel and this crate have no version of the protocol in common, or the kernel has not
    /// said what was expected of it.
    #[error("FUSE handshake: {reason}")]
    Handshake {
        /// What was wrong, with the remedy.
        reason: String,
    },
}

/// What helps against an error; shown after its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remedy(pub Option<&'static str>);

impl core::fmt::Display for Remedy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// A result of this crate.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

/// A failed system call on `object`.
pub(crate) fn system(
    object: impl Into<PathBuf>,
    action: &'static str,
    source: rustix::io::Errno,
    remedy: Option<&'static str>,
) -> Error {
    Error::System { object: object.into(), action, source: source.into(), remedy: Remedy(remedy) }
}
