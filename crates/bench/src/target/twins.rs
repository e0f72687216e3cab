//! The same file system of the kernel twice: on the space of a volume, and on a device of the same
//! length that has what the volume's device has below it.
//!
//! Both are on loop devices with direct I/O and blocks of 4 KiB. Below the one is the file that
//! `conquest volume export` shows, below the other a file on the disk. That file and the one below the
//! volume were written in full, with zeros, which is what is read from a new volume too.
//! Files are without names, so that all of it goes with this process, however that ends.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};

use conquest_format::volume::Arrangement;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use super::device::{self, Backing};
use super::kernel::Kernel;
use super::server::{LIMIT, NAP, Server, is_mounted};
use super::{Kind, Making, Survives, Target, directory, store};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::volume::new_volume;
use crate::{Error, Result};

/// The directory, in that of the target, of the file system on the volume.
pub const ON_VOLUME: &str = "volume";
/// The same on the bare device.
pub const ON_DEVICE: &str = "device";
/// The file that an exporter shows.
const SPACE: &str = "space";
/// The exporter has mounts of its own, without the file systems on what it shows: even if all
/// processes are killed at once, it is not the one that unmounts those.
const APART: [&str; 4] = ["unshare", "--mount", "--propagation", "unchanged"];
/// Bytes of a block of both devices: parts of a unit are never written.
const SECTOR: &str = "4096";

/// Both.
pub(super) struct Twins {
    label: &'static str,
    directory: PathBuf,
    making: Making,
    limit: Duration,
    on_volume: Kernel,
    on_device: Kernel,
    /// Below the volume.
    disk: Option<Backing>,
    /// Below the other one.
    bare: Option<Backing>,
    server: Option<Server>,
    options: Vec<String>,
}

impl Twins {
    /// File systems of `kind`, as the target `label`, in the empty directory `directory`, for a part
    /// of an experiment that takes no longer than `limit`.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new(
        (label, kind): (&'static str, Kind),
        directory: PathBuf,
        making: &Making,
        limit: Duration,
    ) -> Result<Twins> {
        for name in [ON_VOLUME, ON_DEVICE, "shown", "index"] {
            let path = directory.join(name);
            std::fs::create_dir(&path).map_err(Error::system(&path.display().to_string()))?;
        }
        share(&directory.join("shown"))?;
        let kernel = |name| Kernel::new(kind, directory.join(name), making.disk.clone());
        Ok(Twins {
            on_volume: kernel(ON_VOLUME),
            on_device: kernel(ON_DEVICE),
            label,
            directory,
            making: making.clone(),
            limit,
            disk: None,
            bare: None,
            server: None,
            options: Vec::new(),
        })
    }

    fn point(&self) -> PathBuf {
        self.directory.join("shown")
    }

    fn failed(&self, reason: impl Into<String>) -> Error {
        Error::Target { target: self.label.to_owned(), reason: reason.into() }
    }

    /// The file below the volume: by which path others open it.
    fn make_disk(&mut self, bytes: u64) -> Result<PathBuf> {
        let disk = match self.disk.take() {
            Some(disk) if disk.bytes() == bytes => disk,
            _ => {
                directory::has_space(&self.making.disk, 2 * bytes)?;
                Backing::of_zeros(&self.making.disk, bytes)?
            }
        };
        let path = disk.path();
        self.disk = Some(disk);
        Ok(path)
    }

    /// A new volume on the file `disk`, whose space is shown: by which file.
    fn show(&mut self, disk: &Path) -> Result<PathBuf> {
        let point = self.point();
        // Another one each time, so that nothing of the one before is taken for a part of it.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let new = new_volume(Arrangement::Striped, 0, since.as_nanos() as u64);
        conquest_flash::create_at(&[disk], &new, true)
            .map_err(|error| self.failed(error.to_string()))?;
        let index = self.directory.join("index");
        let (program, limit) = (&self.making.program, self.limit);
        let mut command: Vec<&Path> = APART.iter().map(Path::new).collect();
        command.push(program);
        let words = ["volume", "export", "--foreground", "--log-level", "error", "--index"];
        command.extend(words.iter().map(Path::new));
        command.extend([index.as_path(), Path::new("--fuse"), point.as_path(), disk]);
        self.server = Some(Server::start(self.label, program, &command, &point, limit)?);
        Ok(point.join(SPACE))
    }

    /// Makes and mounts one of them on a loop device on `file`: with which options.
    fn mount(kernel: &mut Kernel, file: &Path, files: u64) -> Result<Vec<String>> {
        let device = device::attach(file, &["--direct-io=on", "--sector-size", SECTOR])?;
        if !device.is_direct {
            let reason = "its loop device goes through the page cache: nothing would be compared";
            return Err(Error::Target { target: "losetup".into(), reason: reason.into() });
        }
        kernel.mount_on(&device.path, files)
    }

    /// Unmounts both. If that takes too long, which the exporter may be to blame for, it is ended,
    /// and whoever waits for it has an error.
    fn unmount(&mut self) -> Result<()> {
        for kernel in [&mut self.on_device, &mut self.on_volume] {
            let Some(at) = kernel.forget() else { continue };
            let (told, is_done) = channel();
            let again = at.clone();
            std::thread::spawn(move || {
                // Who waits may have given up.
                let _ = told.send(rustix::mount::unmount(&again, UnmountFlags::empty()));
            });
            let done = is_done.recv_timeout(LIMIT);
            if done.is_err()
                && let Some(server) = &mut self.server
            {
                server.kill();
            }
            let done = done.or_else(|_| is_done.recv_timeout(LIMIT));
            let slow = |_| Error::Slow(LIMIT);
            let named = Error::system(&at.display().to_string());
            done.map_err(slow)?.map_err(|error| named(error.into()))?;
        }
        Ok(())
    }

    /// Lets the exporter end, as soon as the loop device has let go of the file.
    fn hide(&mut self) -> Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        let (begin, point) = (Instant::now(), self.point());
        while is_mounted(&point) {
            match rustix::mount::unmount(&point, UnmountFlags::empty()) {
                Ok(()) => break,
                Err(_) if begin.elapsed() < LIMIT => std::thread::sleep(NAP),
                Err(error) => {
                    return Err(Error::system(&point.display().to_string())(error.into()));
                }
            }
        }
        server.end()
    }
}

/// Lets what others mount at `point`, who had this process's mounts, be seen here, and the other way
/// round.
fn share(point: &Path) -> Result<()> {
    let named = |error: Errno| Error::system(&point.display().to_string())(error.into());
    rustix::mount::mount_bind(point, point).map_err(named)?;
    rustix::mount::mount_change(point, MountPropagationFlags::SHARED).map_err(named)
}

impl Target for Twins {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        let disk = self.make_disk(need.bytes)?;
        let space = self.show(&disk)?;
        let named = || Error::system(&space.display().to_string());
        let len = std::fs::metadata(&space).map_err(named())?.len();
        let bare = match self.bare.take() {
            Some(bare) if bare.bytes() == len => bare,
            _ => Backing::of_zeros(&self.making.disk, len)?,
        };
        let path = bare.path();
        self.bare = Some(bare);
        let volume = Self::mount(&mut self.on_volume, &space, need.files)?;
        let device = Self::mount(&mut self.on_device, &path, need.files)?;
        for kernel in [&self.on_volume, &self.on_device] {
            store::give(kernel.at(), owner)?;
        }
        self.options = described(len, volume, &device);
        Ok(())
    }

    fn answering(&self) -> Answering {
        Answering::Directory { path: self.directory.clone() }
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn survives(&self) -> Survives {
        Survives::PowerAfterSync
    }

    fn remove(&mut self) -> Result<()> {
        let unmounted = self.unmount();
        let hidden = self.hide();
        unmounted.and(hidden)
    }
}

/// What both were made with, and what they survive, for the report.
fn described(len: u64, volume: Vec<String>, device: &[String]) -> Vec<String> {
    let mebibytes = len >> 20;
    let mut all = vec![
        format!(
            "{ON_VOLUME}: on the space of a volume, {mebibytes} MiB, shown by conquest volume \
             export; a flush of the loop device flushes the volume, and that its file: what was \
             synced survives power, what was written survives the exporter"
        ),
        format!(
            "{ON_DEVICE}: on a file of {mebibytes} MiB on the same disk; a flush of the loop device syncs the file: what was synced survives power"
        ),
        "both: their files were written in full, with zeros".to_owned(),
        format!("both: loop devices with direct I/O, blocks of {SECTOR} bytes"),
    ];
    match volume == device {
        true => all.extend(volume.into_iter().map(|option| format!("both: {option}"))),
        false => {
            all.extend(volume.into_iter().map(|option| format!("{ON_VOLUME}: {option}")));
            all.extend(device.iter().map(|option| format!("{ON_DEVICE}: {option}")));
        }
    }
    all
}

impl Drop for Twins {
    fn drop(&mut self) {
        // Nobody is left who could be told, and whatever is left goes with the namespace.
        let _ = self.remove();
        drop(self.server.take());
        while rustix::mount::unmount(self.point(), UnmountFlags::DETACH).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_says_what_it_survives() {
        let made = |word: &str| vec![format!("mkfs {word}")];
        let said = described(64 << 20, made("x"), &made("x"));
        assert!(said[0].starts_with("volume: ") && said[0].contains(" survives power"));
        assert!(said[1].starts_with("device: ") && said[1].contains("64 MiB"));
        assert_eq!(said[4..], ["both: mkfs x"]);
        let said = described(64 << 20, made("x"), &made("y"));
        assert_eq!(said[4..], ["volume: mkfs x", "device: mkfs y"]);
    }
}
