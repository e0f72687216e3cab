//! Open files.

use std::io::{IoSlice, SeekFrom};
use std::ops::Range;

use conquest_access::{Credentials as Rules, Errno};
use conquest_fs::FileId;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::Allocate;
use conquest_fs::dir::FileType;
use conquest_fs::open::{OpenFile, Whence};

use super::handle::Handle;
use super::local::with_copy;
use super::{Metadata, Node};
use crate::{Fs, Result};

/// An open file, like [`std::fs::File`]. Dropping it closes it.
///
/// The position is the file's, so threads that share it read and write one after the other; each
/// call of a reading or writing method is one `read` or `write`.
#[derive(Debug)]
pub struct File(Handle);

impl File {
    pub(super) fn new(handle: Handle) -> File {
        File(handle)
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.0
    }

    pub(super) fn into_handle(self) -> Handle {
        self.0
    }

    /// Does `work` with it.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Fs, &Rules<'_>, &OpenFile) -> conquest_fs::Result<T>,
    ) -> Result<T> {
        let open = self.0.own()?;
        let session = self.0.session();
        work(session.fs(), &session.who(), open).map_err(self.0.called().fail())
    }

    /// Does `work` with it and a copy of the bytes of `parts`, if it is open to write.
    fn with_bytes<P: std::ops::Deref<Target = [u8]>>(
        &self,
        parts: &[P],
        work: impl FnOnce(&Fs, &Rules<'_>, &OpenFile, &[u8]) -> conquest_fs::Result<usize>,
    ) -> Result<usize> {
        self.with(|fs, who, open| match open.how.open.write && !open.how.path_only {
            false => Err(Errno::EBADF.into()),
            true => with_copy(parts, |bytes| work(fs, who, open, bytes)),
        })
    }

    /// Which file it is.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.0.description().file
    }

    /// Its type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.0.description().file_type
    }

    /// Closes it. Dropping it does the same, but tells no error.
    ///
    /// # Errors
    /// Those of the store: it is closed all the same.
    pub fn close(self) -> Result<()> {
        self.0.close()
    }

    /// The file, for what is no matter of how it was opened: attributes, access lists, flags.
    ///
    /// # Errors
    /// `EBADF` if it is open for its name only.
    pub fn node(&self) -> Result<Node<'_>> {
        let open = self.0.opened()?;
        Ok(Node { session: self.0.session(), id: open.file, called: self.0.called() })
    }

    /// What is known of it.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn metadata(&self) -> Result<Metadata> {
        self.with(|fs, _, open| fs.stat(open.file)).map(Metadata::new)
    }

    /// Sets its permissions to the low twelve bits of `mode`.
    ///
    /// # Errors
    /// As fchmod(2).
    pub fn set_permissions(&self, mode: u32) -> Result<()> {
        self.node()?.set_permissions(mode)
    }

    /// Gives it another user, group or both.
    ///
    /// # Errors
    /// As fchown(2).
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.node()?.set_owner(uid, gid)
    }

    /// Sets when it was last looked at and changed.
    ///
    /// # Errors
    /// As futimens(3).
    pub fn set_times(&self, accessed: SetTime, modified: SetTime) -> Result<()> {
        self.node()?.set_times(accessed, modified)
    }
}

/// Bytes.
impl File {
    /// Reads from the position on, and moves it: how many bytes, fewer than there is room for only
    /// at the end.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self, out: &mut [u8]) -> Result<usize> {
        self.with(|fs, _, open| {
            check_range(open.how.open.read, fs.position(open), out.len())?;
            fs.read_next(open, limited(out))
        })
    }

    /// Reads from byte `offset` on: how many bytes, fewer than there is room for only at the end.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        self.with(|fs, _, open| {
            check_range(open.how.open.read, offset, out.len())?;
            fs.read_at(open, offset, limited(out))
        })
    }

    /// Writes from the position on, or at the end if it was opened to append, and moves the
    /// position behind: how many bytes, fewer only if the store is full.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&self, bytes: &[u8]) -> Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// Writes the bytes of `parts`, one after the other, as one write.
    ///
    /// # Errors
    /// As writev(2).
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> Result<usize> {
        self.with_bytes(parts, |fs, who, open, bytes| {
            check_range(true, fs.position(open), bytes.len())?;
            fs.write_next(who, open, bytes)
        })
    }

    /// Writes from byte `offset` on, or at the end if it was opened to append: how many bytes,
    /// fewer only if the store is full.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.with_bytes(&[bytes], |fs, who, open, bytes| {
            check_range(true, offset, bytes.len())?;
            fs.write_at(who, open, offset, bytes)
        })
    }

    /// Writes all of `bytes` from byte `offset` on.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.write_at(rest, offset.saturating_add(done as u64))? {
                0 => return Err(self.0.called().fail()(Errno::ENOSPC)),
                written => done += written,
            }
        }
        Ok(())
    }

    /// The position.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn position(&self) -> Result<u64> {
        self.seek_to(0, Whence::Current)
    }

    /// Moves the position: where it is then.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn seek(&self, to: SeekFrom) -> Result<u64> {
        match to {
            // What is no offset of a file becomes a negative one, and is refused.
            SeekFrom::Start(offset) => self.seek_to(offset.cast_signed(), Whence::Start),
            SeekFrom::Current(offset) => self.seek_to(offset, Whence::Current),
            SeekFrom::End(offset) => self.seek_to(offset, Whence::End),
        }
    }

    /// Moves the position to the next byte from `from` on that is in no hole: where that is.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_DATA`: `ENXIO` if there is none.
    pub fn seek_data(&self, from: u64) -> Result<u64> {
        self.seek_to(from.cast_signed(), Whence::Data)
    }

    /// Moves the position to the next byte from `from` on that is in a hole, or to the end.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_HOLE`: `ENXIO` if `from` is not inside the file.
    pub fn seek_hole(&self, from: u64) -> Result<u64> {
        self.seek_to(from.cast_signed(), Whence::Hole)
    }

    fn seek_to(&self, offset: i64, whence: Whence) -> Result<u64> {
        self.with(|fs, _, open| fs.seek_to(open, offset, whence))
    }

    /// Makes it as long as `size` bytes.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.with(|fs, who, open| fs.truncate_through(who, open, size))
    }

    /// Sees to it that there is space for the bytes of `range`. Without `keeps_size`, the file
    /// becomes as long as its end.
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn allocate(&self, range: Range<u64>, keeps_size: bool) -> Result<()> {
        self.change_space(range, Allocate::Space { keeps_size })
    }

    /// Makes the bytes of `range` zeros that have space. Without `keeps_size`, the file becomes as
    /// long as its end.
    ///
    /// # Errors
    /// As fallocate(2) with `FALLOC_FL_ZERO_RANGE`.
    pub fn zero(&self, range: Range<u64>, keeps_size: bool) -> Result<()> {
        self.change_space(range, Allocate::Zeros { keeps_size })
    }

    /// Makes the bytes of `range` zeros, and gives back the space of whole pages.
    ///
    /// # Errors
    /// As fallocate(2) with `FALLOC_FL_PUNCH_HOLE`.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        self.change_space(range, Allocate::Hole)
    }

    fn change_space(&self, range: Range<u64>, how: Allocate) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        let is_possible = len > 0 && range.start.max(len) <= i64::MAX as u64;
        self.with(|fs, who, open| match (open.how.path_only, is_possible, open.how.open.write) {
            (true, ..) | (_, true, false) => Err(Errno::EBADF.into()),
            (_, false, _) => Err(Errno::EINVAL.into()),
            _ => fs.allocate(who, open.file, how, range.start, len),
        })
    }

    /// Makes what was done to it durable, as far as its store's medium can: see
    /// [`crate::Survives`].
    ///
    /// # Errors
    /// As fsync(2).
    pub fn sync_all(&self) -> Result<()> {
        self.0.sync()
    }

    /// The same, but for what is not needed to read its bytes.
    ///
    /// # Errors
    /// As fdatasync(2).
    pub fn sync_data(&self) -> Result<()> {
        self.0.sync()
    }
}

/// Refuses bytes that no offset leads to, if the file is open for such a transfer.
fn check_range(is_open_for_it: bool, offset: u64, len: usize) -> core::result::Result<(), Errno> {
    let end = offset.checked_add(len as u64).filter(|end| *end <= i64::MAX as u64);
    if is_open_for_it && end.is_none() { Err(Errno::EINVAL) } else { Ok(()) }
}

/// What of `out` one call fills.
fn limited(out: &mut [u8]) -> &mut [u8] {
    let most = out.len().min(super::local::TRANSFER_MAX);
    out.get_mut(..most).unwrap_or_default()
}
