//! Files and block devices.

mod create;
mod locks;
mod properties;

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use conquest_uring::Buffer;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fdatasync, fstat, seek};
use rustix::io::{ReadWriteFlags, pwrite, pwritev2};

use super::{Device, Limits, broken};
use properties::Properties;

/// Bytes that are copied at once where memory is not aligned.
const BOUNCE: usize = 1 << 20;

/// What a device is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// To read it. Writing, discarding and entering fail with `EROFS`.
    Read,
    /// To read and write it.
    Write,
}

/// A regular file or a block device. Transfers go past the kernel's cache where the system can do
/// that.
///
/// *Writers are locks* of the open file description: the one by which this value transfers, so that
/// the kernel lets go of them when it is closed everywhere and no request is under way. So:
/// - a forked child has it too: it must not use it, and the locks last until it has ended, executed
///   something else or dropped its copy;
/// - so does whoever made a descriptor of this one (see [`AsFd`]);
/// - locks belong to the file by which the device was opened: two device nodes of one device (in
///   containers that make their own) don't know of each other's. [`Self::inode`] tells them apart.
#[derive(Debug)]
pub struct FileDevice {
    path: PathBuf,
    file: File,
    properties: Properties,
    access: Access,
    /// Whether a flush has failed. Held while one is under way, because the kernel tells each error
    /// to one of them only.
    has_failed: Mutex<bool>,
}

/// That nobody else has a device, as long as it is not dropped.
#[derive(Debug)]
pub struct Exclusive {
    /// Closing it gives it up.
    _file: File,
}

fn open(path: &Path, access: Access, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::Write).custom_flags(flags).open(path)
}

/// Does `call` again as long as signals interrupt it.
fn uninterrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

impl FileDevice {
    /// Opens what is at `path`. Of a file, it takes whole blocks.
    ///
    /// # Errors
    /// `EINVAL` for what is neither a regular file nor a block device; those of the system.
    pub fn open(path: &Path, access: Access) -> io::Result<FileDevice> {
        // Asked before: opening a pipe or a character device may wait, or do something.
        properties::is_regular(&rustix::fs::stat(path)?)?;
        FileDevice::of(path, open(path, access, 0)?, access)
    }

    fn of(path: &Path, file: File, access: Access) -> io::Result<FileDevice> {
        let properties = Properties::of(&file)?;
        let path = std::path::absolute(path)?;
        Ok(FileDevice { path, file, properties, access, has_failed: Mutex::new(false) })
    }

    /// Keeps others from having it: who claims it too, or a block device that is mounted or
    /// otherwise in use as a whole. None if one of them was first. Who has merely opened it is not
    /// kept from anything.
    ///
    /// # Errors
    /// `ESTALE` if something else is at its path now; those of the system.
    pub fn claim_exclusively(&self) -> io::Result<Option<Exclusive>> {
        self.claim_at(&self.path)
    }

    /// The same, wherever it is now: it may have another path, or none any more.
    ///
    /// # Errors
    /// Those of the system.
    pub fn claim_opened(&self) -> io::Result<Option<Exclusive>> {
        let opened = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match self.claim_at(Path::new(&opened)) {
            // There may be no such directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.claim_exclusively(),
            claimed => claimed,
        }
    }

    fn claim_at(&self, path: &Path) -> io::Result<Option<Exclusive>> {
        let flags = if self.properties.is_regular { 0 } else { libc::O_EXCL };
        let file = match open(path, Access::Read, flags) {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (ours, found) = (fstat(&self.file)?, fstat(&file)?);
        if (ours.st_dev, ours.st_ino) != (found.st_dev, found.st_ino) {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        if self.properties.is_regular {
            match file.try_lock() {
                Ok(()) => {}
                Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
                Err(std::fs::TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(Some(Exclusive { _file: file }))
    }

    /// Device and number of the file that writers are locks of: those who find different ones here
    /// don't know of each other.
    ///
    /// # Errors
    /// Those of the system.
    pub fn inode(&self) -> io::Result<(u64, u64)> {
        let found = fstat(&self.file)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Whether transfers go past the kernel's cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.properties.memory.is_some()
    }

    fn admit(&self, at: u64, len: u64) -> io::Result<()> {
        self.properties.limits.admit(self.properties.len, at, len)
    }

    /// As [`Self::admit`], and that it may be written. A file that has become shorter would take
    /// what is written behind its end, and have a hole before it, which reads as zeros.
    fn admit_writing(&self, at: u64, len: u64) -> io::Result<()> {
        self.admit(at, len)?;
        if self.access == Access::Read {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        self.has_its_length()
    }

    /// By the place that nobody uses, as all transfers name theirs. Who asks by `stat` is told of
    /// the times, too: then the next write makes them anew, and the next flush has to write them,
    /// which takes as long once more.
    fn has_its_length(&self) -> io::Result<()> {
        let is_shorter =
            self.properties.is_regular && seek(&self.file, SeekFrom::End(0))? < self.properties.len;
        if is_shorter { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Whether the system can transfer to and from memory from `first` on.
    fn takes(&self, first: *const u8) -> bool {
        let memory = self.properties.memory.unwrap_or(1);
        first.addr().is_multiple_of(memory as usize)
    }

    /// Reads into memory that is aligned.
    fn read_aligned(&self, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let count = uninterrupted(|| rustix::io::pread(&self.file, &mut *into, at))?;
            // Less than a block is only what is before an end that should not be there.
            if count == 0 || !count.is_multiple_of(self.properties.limits.block as usize) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += count as u64;
            into = into.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Writes from memory wherever it is, durably if it `is_durable`.
    fn write_all(&self, at: u64, bytes: &[u8], is_durable: bool) -> io::Result<()> {
        if self.takes(bytes.as_ptr()) {
            return self.write_aligned(at, bytes, is_durable);
        }
        let mut buffer = Buffer::new(bytes.len().clamp(1, BOUNCE))?;
        let mut at = at;
        for part in bytes.chunks(BOUNCE) {
            let copy = buffer.get_mut(..part.len()).unwrap_or_default();
            copy.copy_from_slice(part);
            self.write_aligned(at, copy, is_durable)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes from memory that is aligned.
    fn write_aligned(&self, mut at: u64, mut bytes: &[u8], is_durable: bool) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = uninterrupted(|| match is_durable {
                // Where the device has FUA, the kernel makes requests with it of that.
                true => pwritev2(&self.file, &[IoSlice::new(bytes)], at, ReadWriteFlags::DSYNC),
                false => pwrite(&self.file, bytes, at),
            })?;
            if count == 0 || !count.is_multiple_of(self.properties.limits.block as usize) {
                return Err(broken());
            }
            at += count as u64;
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Does `work`, by which something becomes durable, unless that has failed before.
    fn make_durable(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            return Err(broken());
        }
        let outcome = work().and_then(|()| self.has_its_length());
        *has_failed = outcome.is_err();
        outcome
    }

    /// Tells the system that `len` bytes from `at` on are not needed, in one of the ways that it
    /// may know: discarding, or zeros for which the medium need not be written.
    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for way in [punch | FallocateFlags::NO_HIDE_STALE, punch] {
            match uninterrupted(|| fallocate(&self.file, way, at, len)) {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                outcome => return outcome,
            }
        }
        Ok(())
    }
}

/// For requests that are made in other ways than by [`Device`]: of a descriptor made of this one,
/// they are the same writer's, and their errors come to flushes of both.
impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Device for FileDevice {
    fn name(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.properties.len
    }

    fn limits(&self) -> Limits {
        self.properties.limits
    }

    /// # Errors
    /// As [`Device::read`], and `UnexpectedEof` if it has become shorter.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.admit(at, into.len() as u64)?;
        if self.takes(into.as_ptr()) {
            return self.read_aligned(at, into);
        }
        let mut buffer = Buffer::new(into.len().clamp(1, BOUNCE))?;
        let mut at = at;
        for part in into.chunks_mut(BOUNCE) {
            let bytes = buffer.get_mut(..part.len()).unwrap_or_default();
            self.read_aligned(at, bytes)?;
            part.copy_from_slice(bytes);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// # Errors
    /// As [`Device::write`], and `UnexpectedEof` if it has become shorter.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.admit_writing(at, bytes.len() as u64)?;
        self.write_all(at, bytes, false)
    }

    /// One at a time, as flushes are: the kernel may make one of it, and tell its error here.
    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.properties.limits.fua {
            self.write(at, bytes)?;
            return self.flush();
        }
        self.admit_writing(at, bytes.len() as u64)?;
        self.make_durable(|| self.write_all(at, bytes, true))
    }

    /// One at a time. After one that has failed, all fail: what was lost then is not in the
    /// kernel's cache any more, so a later one that succeeds would say nothing about it.
    fn flush(&self) -> io::Result<()> {
        self.make_durable(|| uninterrupted(|| fdatasync(&self.file)))
    }

    /// Of a file, nothing: its space would have to be allocated again.
    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.admit_writing(at, len)?;
        let step = self.properties.granularity;
        let (first, end) = (at.next_multiple_of(step), (at + len) / step * step);
        if !self.properties.limits.discards || first >= end {
            return Ok(());
        }
        self.punch(first, end - first)
    }

    /// What is reserved the system tells as a hole.
    fn is_written(&self, at: u64, len: u64) -> io::Result<bool> {
        self.admit(at, len)?;
        if !self.properties.is_regular || len == 0 {
            return Ok(true);
        }
        Ok(seek(&self.file, SeekFrom::Hole(at))? >= at + len)
    }

    fn files(&self) -> io::Result<Vec<File>> {
        Ok(vec![self.file.try_clone()?])
    }

    fn file_count(&self) -> usize {
        1
    }

    fn route(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        self.admit(at, len).ok().map(|()| (0, at))
    }

    fn route_write(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        self.admit_writing(at, len).ok().map(|()| (0, at))
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        if self.access == Access::Read {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        locks::take(&self.file, writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        locks::free(&self.file, writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        locks::is_taken(&self.file, writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        locks::is_any_taken(&self.file)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_written_durably_is_there_from_any_memory() {
        let name = format!("conquest-durable-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut device = FileDevice::create(&path, 1 << 22, 0o600, &mut |_| {}).unwrap();
        // As on a device that has it: the system makes any such write durable.
        device.properties.limits.fua = true;
        let mut bytes = Buffer::new((1 << 21) + 4096).unwrap();
        for (number, byte) in bytes.iter_mut().enumerate() {
            *byte = (number % 251) as u8;
        }
        let block = device.limits().block as usize;
        for (at, from, len) in [(0, 0, 4096), (8192, 1, 1 << 21), (4096, 512, block)] {
            let written = bytes.get(from..from + len).unwrap();
            device.write_durable(at, written).unwrap();
            let mut found = vec![0; len];
            device.read(at, &mut found).unwrap();
            assert!(found == written, "{len} bytes at {at}");
        }
        let end = device.len();
        assert!(device.write_durable(end, bytes.get(..4096).unwrap()).is_err());
        device.flush().unwrap();
        // What has failed may have been a flush.
        device.file.set_len(4096).unwrap();
        assert!(device.write_durable(0, bytes.get(..4096).unwrap()).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn after_one_that_has_failed_flushes_fail() {
        let name = format!("conquest-not-durable-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut device = FileDevice::create(&path, 1 << 20, 0o600, &mut |_| {}).unwrap();
        device.properties.limits.fua = true;
        assert!(device.make_durable(|| Err(broken())).is_err());
        let bytes = vec![1; 4096];
        assert!(device.flush().is_err() && device.write_durable(0, &bytes).is_err());
        device.write(0, &bytes).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
