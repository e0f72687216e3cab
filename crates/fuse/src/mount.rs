//! Mounting and unmounting.
//!
//! Who is privileged calls `mount(2)`: it takes the source and the type as arguments of their own,
//! so that names with any bytes come through, and the target by descriptor, so that it can't be
//! replaced on the way. (The newer calls limit strings to 255 bytes.) Everybody else asks
//! `fusermount3`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::connection::Connection;
use crate::device::{self, Device};
use crate::error::{self, Error, Result};
use crate::fusermount;
use crate::mounts::{self, MountEntry};
use crate::options::{MountOptions, Root};

/// A mount made by this process.
#[derive(Clone, Debug)]
pub struct Mounted {
    directory: PathBuf,
    connection: Connection,
}

impl Mounted {
    /// Where it was mounted: an absolute path without links.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its connection.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// Unmounts it; see [`unmount`].
    ///
    /// # Errors
    /// As [`unmount`], and if it is no longer what is mounted there.
    pub fn unmount(&self, is_lazy: bool) -> Result {
        let mounts = mounts::list()?;
        let found = mounts::topmost(&mounts, &self.directory)
            .ok_or_else(|| Error::NotMounted { directory: self.directory.clone() })?;
        if found.connection() != Some(self.connection.number()) {
            return Err(Error::Covered {
                directory: self.directory.clone(),
                found: found.kind.to_string_lossy().into_owned(),
                source_name: found.source.clone(),
            });
        }
        unmount_resolved(&self.directory, is_lazy)
    }
}

/// Mounts a file system at `directory`, as `options` say. Requests wait in the device until there
/// is a session: who looks at the mount before waits as well.
///
/// # Errors
/// If it can't be mounted; then nothing is.
pub fn mount(directory: &Path, options: &MountOptions) -> Result<(Device, Mounted)> {
    options.check()?;
    let failed = |action, source| error::system(directory, action, source, remedy(source));
    let kind = match options.root {
        Root::Directory => OFlags::DIRECTORY,
        Root::File => OFlags::empty(),
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC | kind;
    let target = rustix::fs::open(directory, flags, Mode::empty())
        .map_err(|source| failed("open the mount point", source))?;
    let by_descriptor = descriptor_path(&target);
    let path = std::fs::read_link(&by_descriptor).map_err(|source| Error::System {
        object: by_descriptor.clone(),
        action: "read",
        source,
        remedy: error::Remedy(Some("mount /proc")),
    })?;
    let device = match mount_directly(&by_descriptor, options)? {
        Ok(device) => device,
        Err(Errno::PERM | Errno::ACCESS) => fusermount::mount(&path, options).map(Device::from)?,
        Err(source) => return Err(failed("mount", source)),
    };
    let number = match told_connection(&device) {
        Some(number) => number,
        None => found_connection(&path, options)?,
    };
    Ok((device, Mounted { directory: path, connection: Connection::new(number) }))
}

fn descriptor_path(target: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", target.as_raw_fd()).into()
}

/// Mounts without a helper. The error of the system is one of mounting, or that the device may not
/// be opened.
fn mount_directly(target: &Path, options: &MountOptions) -> Result<Result<Device, Errno>> {
    let device = match Device::open_raw() {
        Ok(device) => device,
        Err(error @ (Errno::PERM | Errno::ACCESS)) => return Ok(Err(error)),
        Err(error) => return Err(device::not_opened(error)),
    };
    let data = options.data(device.as_fd().as_raw_fd())?;
    let (kind, flags, data) = (options.kind(), options.flags(), data.as_c_str());
    let mounted = rustix::mount::mount(&options.source, target, kind, flags, data);
    Ok(mounted.map(|()| device))
}

/// The connection that `device` belongs to, as newer kernels tell it (Linux 6.11).
fn told_connection(device: &Device) -> Option<u32> {
    let path = format!("/proc/self/fdinfo/{}", device.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok())
}

/// The connection of what has just been mounted at `path`. (Who mounts over it in this very moment
/// can be taken for it, if he has the same type.)
fn found_connection(path: &Path, options: &MountOptions) -> Result<u32> {
    let mounts = mounts::list()?;
    let found = mounts::topmost(&mounts, path).filter(|mount| mount.kind == options.kind());
    let number = found.and_then(MountEntry::connection);
    number.ok_or_else(|| Error::NotMounted { directory: path.into() })
}

/// Unmounts what is mounted on top at `directory`. A *lazy* one leaves the tree of names at once,
/// and ends when nobody uses it any more; any other one has to be unused.
///
/// # Errors
/// If nothing is mounted there, it is in use, or this process may not.
pub fn unmount(directory: &Path, is_lazy: bool) -> Result {
    unmount_resolved(&mounts::resolve(directory)?, is_lazy)
}

fn unmount_resolved(directory: &Path, is_lazy: bool) -> Result {
    let lazy = if is_lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(directory, lazy | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            if mounts::topmost(&mounts::list()?, directory).is_none() {
                return Err(Error::NotMounted { directory: directory.into() });
            }
            fusermount::unmount(directory, is_lazy)
        }
        Err(Errno::INVAL) => Err(Error::NotMounted { directory: directory.into() }),
        Err(source) => Err(error::system(directory, "unmount", source, unmount_remedy(source))),
    }
}

fn remedy(error: Errno) -> Option<&'static str> {
    match error {
        Errno::NODEV => Some("the kernel has no FUSE at hand: load it by `modprobe fuse`"),
        Errno::NOTDIR => Some("mount a directory at a directory, and a file at a file"),
        Errno::NOENT => Some("make the mount point first"),
        _ => None,
    }
}

fn unmount_remedy(error: Errno) -> Option<&'static str> {
    match error {
        Errno::BUSY => Some("end who uses it (`fuser -vm DIRECTORY`), or unmount lazily"),
        _ => None,
    }
}
