//! A block device for a file system: a file without a name, behind the loop driver.
//!
//! The file is written in full before, so that the file system below has nothing to allocate. It goes
//! when nobody has it open, and the device lets go of it when it is unmounted: nothing is left behind,
//! even if this process is killed.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::program;
use crate::random::Random;
use crate::{Error, Result};

/// Bytes written at once.
const PIECE: usize = 1 << 20;

/// What this machine lacks for such devices.
pub(super) fn lack() -> Option<String> {
    let is_here = Path::new("/dev/loop-control").exists();
    (!is_here).then(|| "there is no /dev/loop-control (load the kernel module loop)".into())
}

/// The file below the device.
pub(super) struct Backing {
    file: File,
    bytes: u64,
    /// Where it is, for messages.
    directory: PathBuf,
}

/// A device that is set up; it goes when what is mounted from it has gone.
pub(super) struct Device {
    /// Its name.
    pub(super) path: PathBuf,
    /// Whether it goes past the page cache of the file system below.
    pub(super) is_direct: bool,
}

impl Backing {
    /// A file of `bytes` bytes in `directory`.
    ///
    /// # Errors
    /// What the system says: no space.
    pub(super) fn new(directory: &Path, bytes: u64) -> Result<Backing> {
        let named = || {
            Error::system(&format!("a device of {} MiB in {}", bytes >> 20, directory.display()))
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let opened: OwnedFd = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| named()(error.into()))?;
        let mut file = File::from(opened);
        let piece = Random::new(bytes).bytes(PIECE);
        for _ in 0..bytes.div_ceil(PIECE as u64) {
            file.write_all(&piece).map_err(named())?;
        }
        file.sync_all().map_err(named())?;
        Ok(Backing { file, bytes, directory: directory.to_owned() })
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A device on it.
    ///
    /// # Errors
    /// What `losetup` says.
    pub(super) fn attach(&self) -> Result<Device> {
        let own = std::process::id();
        let file = format!("/proc/{own}/fd/{}", self.file.as_raw_fd());
        let direct = ["--find", "--show", "--direct-io=on", &file];
        let through = ["--find", "--show", &file];
        let (path, is_direct) = match program::run("losetup", &direct) {
            Ok(path) => (path, true),
            Err(_) => (program::run("losetup", &through)?, false),
        };
        if path.is_empty() {
            return Err(Error::Target {
                target: self.directory.display().to_string(),
                reason: "losetup names no device".into(),
            });
        }
        Ok(Device { path: PathBuf::from(path), is_direct })
    }
}

impl Device {
    /// Lets it go: at once, or when it is unmounted.
    ///
    /// # Errors
    /// What `losetup` says.
    pub(super) fn let_go(&self) -> Result<()> {
        program::run("losetup", &["--detach", &self.path.to_string_lossy()]).map(drop)
    }
}
