//! Devices without a file system: what volumes are on.
//!
//! A device is made once, and kept from one run to the next as long as it is large enough: what an
//! experiment has put on it may be used again. It goes with this process, however that ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};
use rustix::io::FdFlags;
use rustix::mount::UnmountFlags;

use super::device::{self, Backing};
use super::{ROOT_MOUNTS, Survives, Target, directory, kernel, room, store};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::{Error, Result};

/// Which one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bare {
    /// A file.
    Disk,
    /// A block device in memory.
    Loop,
}

impl Bare {
    /// Its name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Bare::Disk => "disk",
            Bare::Loop => "loop",
        }
    }

    /// What it is, in a line.
    pub(super) fn about(self) -> &'static str {
        match self {
            Bare::Disk => "a file on a disk as a device, for volumes",
            Bare::Loop => "a loop device in memory, for volumes",
        }
    }

    /// What this machine lacks to make it.
    pub(super) fn lack(self, is_root: bool) -> Option<String> {
        match self {
            Bare::Disk => None,
            Bare::Loop if !is_root => Some(ROOT_MOUNTS.into()),
            Bare::Loop => device::lack(),
        }
    }
}

/// One of them.
pub(super) struct Device {
    bare: Bare,
    /// The directory that its file is in. What is mounted there is its own, if it is in memory.
    directory: PathBuf,
    made: Option<Made>,
    options: Vec<String>,
}

/// What there is of one.
struct Made {
    backing: Backing,
    path: PathBuf,
    /// A block device lives as long as this is open, or a process that measures has it.
    _device: Option<File>,
}

/// Bytes of a file system in memory besides those of the file in it.
const AIR: u64 = 1 << 20;

impl Device {
    /// A file in the directory `disk`.
    pub(super) fn on_disk(disk: &Path) -> Device {
        Device::new(Bare::Disk, disk.to_owned())
    }

    /// A loop device on a file in memory, which is mounted at `directory`.
    pub(super) fn in_memory(directory: PathBuf) -> Device {
        Device::new(Bare::Loop, directory)
    }

    fn new(bare: Bare, directory: PathBuf) -> Device {
        Device { bare, directory, made: None, options: Vec::new() }
    }

    fn make_file(&mut self, bytes: u64, owner: Option<(u32, u32)>) -> Result<Made> {
        directory::has_space(&self.directory, bytes)?;
        let backing = Backing::new(&self.directory, bytes)?;
        let named = || Error::system("a file without a name");
        if let Some((user, group)) = owner {
            std::os::unix::fs::fchown(backing.file(), Some(user), Some(group)).map_err(named())?;
        }
        // The processes that measure have it too, and open it by its number.
        rustix::io::fcntl_setfd(backing.file(), FdFlags::empty())
            .map_err(|error| named()(error.into()))?;
        let path = format!("/proc/self/fd/{}", backing.file().as_raw_fd()).into();
        self.options = vec![format!("a file of {} MiB", bytes >> 20)];
        Ok(Made { backing, path, _device: None })
    }

    fn make_loop(&mut self, bytes: u64, owner: Option<(u32, u32)>) -> Result<Made> {
        kernel::available(self.bare.id(), bytes)?;
        let options = format!("mode=755,size={}", bytes + AIR);
        room::mount("tmpfs", &self.directory, "tmpfs", &options)?;
        let made = self.attach(bytes, owner);
        if made.is_err() {
            self.unmount();
        }
        made
    }

    /// A loop device on a file in what is mounted.
    fn attach(&mut self, bytes: u64, owner: Option<(u32, u32)>) -> Result<Made> {
        let backing = Backing::new(&self.directory, bytes)?;
        let device = backing.attach()?;
        let (path, file) = self.open(&device.path, owner)?;
        let way = if device.is_direct { "direct I/O" } else { "through the page cache below" };
        self.options = vec![format!("{} MiB loop device on tmpfs", bytes >> 20), way.to_owned()];
        Ok(Made { backing, path, _device: Some(file) })
    }

    /// Opens `device` by a node of our own, which goes with what is mounted: nobody else's rights
    /// change.
    fn open(&self, device: &Path, owner: Option<(u32, u32)>) -> Result<(PathBuf, File)> {
        let named = |path: &Path| Error::system(&path.display().to_string());
        let number = rustix::fs::stat(device).map_err(|error| named(device)(error.into()))?.st_rdev;
        let node = self.directory.join("device");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &node, FileType::BlockDevice, mode, number)
            .map_err(|error| named(&node)(error.into()))?;
        store::give(&node, owner)?;
        let file = File::options().read(true).write(true).open(&node).map_err(named(&node))?;
        Ok((node, file))
    }

    fn unmount(&self) {
        // It goes with this process at the latest.
        let _ = rustix::mount::unmount(&self.directory, UnmountFlags::DETACH);
    }

    fn forget(&mut self) {
        if self.made.take().is_some() && self.bare == Bare::Loop {
            self.unmount();
        }
    }
}

impl Target for Device {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        let bytes = need.bytes.next_multiple_of(1 << 20);
        if self.made.as_ref().is_some_and(|made| made.backing.bytes() == bytes) {
            return Ok(());
        }
        self.forget();
        let made = match self.bare {
            Bare::Disk => self.make_file(bytes, owner)?,
            Bare::Loop => self.make_loop(bytes, owner)?,
        };
        self.made = Some(made);
        Ok(())
    }

    fn answering(&self) -> Answering {
        let path = self.made.as_ref().map(|made| made.path.clone()).unwrap_or_default();
        Answering::Device { path }
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn survives(&self) -> Survives {
        match self.bare {
            Bare::Disk => Survives::PowerAfterSync,
            Bare::Loop => Survives::Process,
        }
    }

    fn remove(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.forget();
    }
}
