//! A connection of the kernel's FUSE, and the file by which it is aborted.
//!
//! Aborting ends all requests, those that hang too, and lets the server's reads return. It needs
//! the control file system `fusectl`, which most machines have mounted; who is privileged can have
//! it without.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FsWord, Mode, OFlags, fstatfs, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::{Error, Result};

/// Where the control file system is mounted.
const CONTROL: &str = "/sys/fs/fuse/connections";
/// Its magic number: `FUSE_CTL_SUPER_MAGIC` of `linux/magic.h`.
const CONTROL_MAGIC: FsWord = 0x6573_5543;

/// A connection between a mount and its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection(u32);

impl Connection {
    /// The connection of this number, which is the minor number of its mount's device.
    #[must_use]
    pub fn new(number: u32) -> Connection {
        Connection(number)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// Ends it: all requests fail, and later ones; its mounts stay, dead, until they are unmounted.
    /// That it has ended already is no error. Numbers are used again: who aborts has to know that
    /// the mount is still there.
    ///
    /// # Errors
    /// If the control file system is not there, or this process may not.
    pub fn abort(self) -> Result {
        let failed = |source: Errno| Error::NoControl { number: self.0, source: source.into() };
        let control = control().map_err(failed)?;
        let name = format!("{}/abort", self.0);
        let file = match openat(&control, &*name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(failed)?,
        };
        rustix::io::write(&file, b"1").map(drop).map_err(failed)
    }

    /// Whether it is there: mounted somewhere, or used by somebody although it was unmounted.
    ///
    /// # Errors
    /// If the control file system is not there.
    pub fn is_there(self) -> Result<bool> {
        let failed = |source: Errno| Error::NoControl { number: self.0, source: source.into() };
        let control = control().map_err(failed)?;
        match rustix::fs::statat(&control, &*self.0.to_string(), rustix::fs::AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

/// The root of the control file system: where it is mounted, or else nowhere.
fn control() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(mounted) = rustix::fs::open(CONTROL, flags, Mode::empty())
        && fstatfs(&mounted)?.f_type == CONTROL_MAGIC
    {
        return Ok(mounted);
    }
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}
