//! Making files for volumes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use conquest_uring::Buffer;
use rustix::fs::{FallocateFlags, fallocate};

use super::{Access, FileDevice, uninterrupted};
use crate::device::{Device, invalid};

/// Bytes that are written at once.
const STEP: u64 = 1 << 20;
/// What the length of a file is a multiple of.
const UNIT: u64 = 4096;

/// A file that is removed unless it is finished.
struct Unfinished<'a>(Option<&'a Path>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // The error that led here is told; this one is not worth more.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl FileDevice {
    /// Makes a file of `len` bytes that has all its space, and opens it. Everything in it is
    /// written: where space is only reserved, flushing the first write to it costs a change of the
    /// file system's metadata. When it returns, the file is durable, also its name.
    ///
    /// `mode` is less what the process's umask takes away. `progress` is told how many bytes are
    /// done.
    ///
    /// # Errors
    /// `EINVAL` if `len` is 0 or no multiple of 4096, `EEXIST`, `ENOSPC` and others of the system.
    /// Nothing is left then.
    pub fn create(
        path: &Path,
        len: u64,
        mode: u32,
        progress: &mut dyn FnMut(u64),
    ) -> io::Result<FileDevice> {
        FileDevice::create_reserved(path, len, len, mode, progress)
    }

    /// [`Self::create`], but only the first `written` bytes are written, if the file system can
    /// reserve space: what [`Device::is_written`] is for.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_reserved(
        path: &Path,
        len: u64,
        written: u64,
        mode: u32,
        progress: &mut dyn FnMut(u64),
    ) -> io::Result<FileDevice> {
        if len == 0 || !len.is_multiple_of(UNIT) {
            return Err(invalid());
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(mode).open(path)?;
        let mut unfinished = Unfinished(Some(path));
        let written = if reserve(&file, len)? { written.min(len) } else { len };
        let device = FileDevice::of(path, file, Access::Write)?;
        let zeros = Buffer::new(STEP.min(len) as usize)?;
        let mut at = 0;
        while at < written {
            let count = STEP.min(written - at);
            device.write(at, zeros.get(..count as usize).unwrap_or_default())?;
            at += count;
            progress(at);
        }
        uninterrupted(|| rustix::fs::fsync(&device.file))?;
        let directory = device.path.parent().ok_or_else(invalid)?;
        File::open(directory)?.sync_all()?;
        unfinished.0 = None;
        Ok(device)
    }
}

/// Gives `file` its length and, where the file system can do so, which is true, its space, so that
/// it is in few pieces, and that what does not fit fails at once.
fn reserve(file: &File, len: u64) -> io::Result<bool> {
    match uninterrupted(|| fallocate(file, FallocateFlags::empty(), 0, len)) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            file.set_len(len).map(|()| false)
        }
        outcome => outcome.map(|()| true),
    }
}
