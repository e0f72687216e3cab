//! Mounting a store, or the space of a volume, as far as it does not matter how files are served.
//!
//! Invariants:
//! - the process that serves is started before a store is attached or a volume opened
//!   ([`background`]);
//! - whoever waits, waits for a limited time;
//! - who looks for users or servers of a mount asks no server ([`users`]).

pub(crate) mod background;
pub(crate) mod detach;
pub(crate) mod failure;
pub(crate) mod notify;
pub(crate) mod options;
pub(crate) mod point;
mod privileges;
mod processes;
pub(crate) mod server;
pub(crate) mod servers;
pub(crate) mod serving;
pub(crate) mod signals;
pub(crate) mod space;
pub(crate) mod start;
pub(crate) mod table;
pub(crate) mod users;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::log::Log;
use crate::reason::Result;
use options::MountOptions;

/// What is to be mounted, where, and how.
pub(crate) struct MountRequest {
    /// What the mount is said to be of.
    pub(crate) source: OsString,
    /// The mount point: a directory, from the root and without links.
    pub(crate) point: PathBuf,
    pub(crate) options: MountOptions,
    /// For whatever happens while it is mounted.
    pub(crate) log: Arc<Log>,
}

/// Serves a mount until it is unmounted. Behind a trait so that the program can be tested without
/// one.
pub(crate) trait Serve {
    /// Attaches or opens what is to be served, and mounts it; returns once it is mounted, and can
    /// be used as soon as [`Serve::run`] is called. The standard error is still that of who gave
    /// the command.
    ///
    /// # Errors
    /// Why it is not mounted; then nothing is left of it.
    fn mount(&mut self, request: &MountRequest) -> Result<Box<dyn End>>;

    /// Serves; returns once it is unmounted, and what was served is detached or closed.
    ///
    /// # Errors
    /// Why it could not go on.
    fn run(&mut self) -> Result<()>;
}

/// Ends a mount, from a thread of its own, while it is served. [`Serve::run`] returns soon after.
pub(crate) trait End: Send {
    /// Unmounts; if `is_lazy`, those who use it keep it until they end.
    ///
    /// # Errors
    /// `EBUSY` if somebody uses it; what else keeps it.
    fn unmount(&self, is_lazy: bool) -> Result<()>;

    /// Ends the connection with the kernel: whoever uses the mount gets errors.
    ///
    /// # Errors
    /// What the system says.
    fn abort(&self) -> Result<()>;
}
