//! A block device for a file system: a file without a name, behind the loop driver.
//!
//! The file is written in full before, so that the file system below has nothing to allocate. It goes
//! when nobody has it open, and the device lets go of it when it is unmounted: nothing is left behind,
//! even if this process is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, Mode, OFlags, fadvise};

use crate::program;
use crate::random::Random;
use crate::{Error, Result};

/// Makes a device, opens it, sees to it that it goes when nobody has it open, and tells its name; has
/// it open until standard input ends. It is a process of its own, which goes on if this one is
/// killed: there is no moment at which a device is left.
const ATTACH: &str = r#"
    device=$(losetup --find --show "$@") || exit
    command exec 3<"$device"
    losetup --detach "$device" && echo "$device" && read -r _
"#;
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
}

/// A device that is set up; it goes when this has gone, and all who have it open or mounted.
pub(super) struct Device {
    /// Its name.
    pub(super) path: PathBuf,
    /// Whether it goes past the page cache of the file system below.
    pub(super) is_direct: bool,
    _open: File,
}

impl Backing {
    /// A file of `bytes` bytes at random in `directory`.
    ///
    /// # Errors
    /// What the system says: no space.
    pub(super) fn new(directory: &Path, bytes: u64) -> Result<Backing> {
        Backing::of(directory, bytes, &Random::new(bytes).bytes(PIECE))
    }

    /// The same, of zeros, which are written too.
    ///
    /// # Errors
    /// What the system says: no space.
    pub(super) fn of_zeros(directory: &Path, bytes: u64) -> Result<Backing> {
        Backing::of(directory, bytes, &vec![0; PIECE])
    }

    /// The same, of repeats of `piece`.
    fn of(directory: &Path, bytes: u64, piece: &[u8]) -> Result<Backing> {
        let named = || {
            Error::system(&format!("a device of {} MiB in {}", bytes >> 20, directory.display()))
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let opened: OwnedFd = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| named()(error.into()))?;
        let mut file = File::from(opened);
        for _ in 0..bytes.div_ceil(PIECE as u64) {
            file.write_all(piece).map_err(named())?;
        }
        file.sync_all().map_err(named())?;
        // The system would keep it where memory is limited, and targets would have to take it back.
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| named()(error.into()))?;
        Ok(Backing { file, bytes })
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file, as others can name it while this process has it.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// A device on it.
    ///
    /// # Errors
    /// What `losetup` says.
    pub(super) fn attach(&self) -> Result<Device> {
        let file = self.path();
        attach(&file, &["--direct-io=on"]).or_else(|_| attach(&file, &[]))
    }
}

/// A device on `file`, made with `options` of `losetup`.
///
/// # Errors
/// What `losetup` and the system say.
pub(super) fn attach(file: &Path, options: &[&str]) -> Result<Device> {
    let mut words = vec![OsStr::new("-c"), OsStr::new(ATTACH), OsStr::new("losetup")];
    words.extend(options.iter().map(OsStr::new));
    words.push(file.as_os_str());
    let (path, waiting) = program::until_told("sh", &words)?;
    // From now on it lives as long as this process has it.
    let _open = File::open(&path).map_err(Error::system(&path))?;
    drop(waiting);
    let is_direct = is_direct(Path::new(&path));
    Ok(Device { path: PathBuf::from(path), is_direct, _open })
}

/// Whether the loop device at `path` goes past the page cache below.
fn is_direct(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let said = std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop/dio"));
    said.is_ok_and(|said| said.trim() == "1")
}
