//! Descriptors that live in somebody else's process.
//!
//! The host program may close descriptors that it does not know (`closefrom`, daemons, shells), or
//! put others under their numbers. So a kept descriptor is numbered high, is checked against the
//! file's identity before and after every use that matters, and is never closed when it stands for
//! another file.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::sys::checked;

/// Kept descriptors are numbered from here up, where the limit allows.
const HIGH: libc::c_int = 512;

/// Which file this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// What `fstat` says of a file.
pub(super) struct Status {
    pub(super) id: FileId,
    pub(super) mode: u32,
    pub(super) len: u64,
    pub(super) links: u64,
    /// Of a device.
    pub(super) number: u64,
}

impl Status {
    /// Major and minor number of the device that the file is on.
    pub(super) fn device(&self) -> (u32, u32) {
        (libc::major(self.id.device), libc::minor(self.id.device))
    }
}

/// Asks the kernel about descriptor `raw`, whatever it stands for.
pub(super) fn status(raw: RawFd) -> io::Result<Status> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the pointer is to a `stat` of our own; a number that is no descriptor gives EBADF.
    checked(unsafe { libc::fstat(raw, stat.as_mut_ptr()) })?;
    // SAFETY: fstat succeeded, so it filled the structure.
    let stat = unsafe { stat.assume_init() };
    Ok(Status {
        id: FileId { device: stat.st_dev, inode: stat.st_ino },
        mode: stat.st_mode,
        len: u64::try_from(stat.st_size).unwrap_or(0),
        links: u64::from(stat.st_nlink as u32),
        number: stat.st_rdev,
    })
}

/// A descriptor of ours.
#[derive(Debug)]
pub(super) struct Kept {
    raw: RawFd,
    id: FileId,
}

impl Kept {
    /// Keeps `file`, under a high number where possible.
    pub(super) fn new(file: File) -> io::Result<Kept> {
        let low = file.into_raw_fd();
        // SAFETY: no memory is passed; `low` is a descriptor that we own.
        let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, HIGH) };
        let raw = if high == -1 {
            low
        } else {
            // SAFETY: into_raw_fd gave up ownership of `low`, and we close it once.
            drop(unsafe { File::from_raw_fd(low) });
            high
        };
        let id = status(raw)?.id;
        Ok(Kept { raw, id })
    }

    pub(super) fn raw(&self) -> RawFd {
        self.raw
    }

    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// Whether the number still stands for our file.
    pub(super) fn is_ours(&self) -> bool {
        status(self.raw).is_ok_and(|status| status.id == self.id)
    }

    /// What the kernel calls the file: its path, `/memfd:NAME (deleted)` or the like.
    pub(super) fn name(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.raw)).ok()
    }

    /// Opens the same file once more: a new open file description. Goes by `path` if the
    /// descriptor was closed or replaced.
    pub(super) fn reopen(&self, path: Option<&Path>) -> io::Result<File> {
        let ours = format!("/proc/self/fd/{}", self.raw);
        let mut reason = None;
        for name in [Some(Path::new(&ours)), path].into_iter().flatten() {
            // Only what already proved to be the file is opened: opening another may have effects.
            match std::fs::metadata(name) {
                Ok(found) if self.is(&found) => {}
                _ => continue,
            }
            match File::options().read(true).write(true).open(name) {
                Ok(file) if self.is(&file.metadata()?) => return Ok(file),
                Ok(_) => {}
                Err(error) => reason = Some(error),
            }
        }
        Err(reason.unwrap_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "its descriptor was closed by the program and its name is gone or stands for \
                 another file; detach and attach again",
            )
        }))
    }

    fn is(&self, found: &std::fs::Metadata) -> bool {
        found.dev() == self.id.device && found.ino() == self.id.inode
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: no memory is passed. The number stands for our file and we close it once.
            unsafe { libc::close(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn kept_descriptors_are_high_and_not_inherited_by_programs() {
        let kept = Kept::new(File::open("/dev/null").unwrap()).unwrap();
        assert!(kept.raw() >= HIGH);
        // SAFETY: no memory is passed.
        let flags = unsafe { libc::fcntl(kept.raw(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        assert!(kept.is_ours());
    }

    #[test]
    fn a_replaced_descriptor_is_noticed_and_not_closed() {
        let kept = Kept::new(File::open("/dev/null").unwrap()).unwrap();
        let other = File::open("/dev/zero").unwrap();
        // SAFETY: no memory is passed; replaces the kept descriptor on purpose.
        unsafe { libc::dup3(other.as_raw_fd(), kept.raw(), libc::O_CLOEXEC) };
        assert!(!kept.is_ours());
        assert!(kept.reopen(None).is_err());
        assert!(kept.reopen(Some(Path::new("/dev/zero"))).is_err());
        assert!(kept.reopen(Some(Path::new("/dev/null"))).is_ok());
        let raw = kept.raw();
        drop(kept);
        assert!(status(raw).is_ok());
        // SAFETY: no memory is passed; closes the duplicate made above.
        unsafe { libc::close(raw) };
    }
}
