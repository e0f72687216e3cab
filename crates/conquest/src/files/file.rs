//! Open files.

use std::io::{IoSlice, IoSliceMut, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use conquest_access::{Credentials as Rules, Errno};
use conquest_fs::FileId;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::Allocate;
use conquest_fs::dir::FileType;
use conquest_fs::open::share::Status;
use conquest_fs::open::{BUFFERS_MAX, End, OpenFile, Whence};

use super::handle::Handle;
use super::local::with_copy;
use super::{Metadata, Node};
use crate::name::Name;
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

    /// The same, which the caller called otherwise.
    pub(super) fn called(mut self, name: Name) -> File {
        self.0.set_name(name);
        self
    }

    /// Does `work` with it.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Fs, &Rules<'_>, &OpenFile) -> conquest_fs::Result<T>,
    ) -> Result<T> {
        let open = self.0.own()?;
        let actor = self.0.actor();
        work(actor.fs(), &actor.who(), open).map_err(self.0.called().fail())
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

    /// The flags that can be changed while it is open, for all who share its description.
    ///
    /// # Errors
    /// `EBADF` if this process does not have it open.
    pub fn status(&self) -> Result<Status> {
        self.with(|fs, _, open| Ok(fs.status(open)))
    }

    /// Sets them.
    ///
    /// # Errors
    /// As fcntl(2) has them for `F_SETFL`.
    pub fn set_status(&self, status: Status) -> Result<()> {
        self.with(|fs, who, open| fs.set_status(who, open, status))
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
        Ok(Node { actor: self.0.actor(), id: open.file, called: self.0.called() })
    }

    /// What is known of it.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn metadata(&self) -> Result<Metadata> {
        self.with(|fs, who, open| Ok(fs.stat(open.file)?.seen_by(who))).map(Metadata::new)
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
        self.read_with(&mut [IoSliceMut::new(out)], None, 0)
    }

    /// Reads from byte `offset` on: how many bytes, fewer than there is room for only at the end.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        self.read_with(&mut [IoSliceMut::new(out)], Some(offset), 0)
    }

    /// Reads to the buffers of `out`, one after the other, from `at` on, or from the position,
    /// which is moved then. `flags` are `RWF_` flags.
    ///
    /// # Errors
    /// As preadv2(2).
    pub fn read_with(
        &self,
        out: &mut [IoSliceMut<'_>],
        at: Option<u64>,
        flags: u32,
    ) -> Result<usize> {
        self.with(|fs, _, open| fs.read_vector(open, at, out, flags))
    }

    /// Writes from the position on, or at the end if it was opened to append, and moves the
    /// position behind: how many bytes, fewer only if the store is full.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&self, bytes: &[u8]) -> Result<usize> {
        self.write_with(&[IoSlice::new(bytes)], None, 0)
    }

    /// Writes from byte `offset` on, or at the end if it was opened to append: how many bytes,
    /// fewer only if the store is full.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.write_with(&[IoSlice::new(bytes)], Some(offset), 0)
    }

    /// Writes the bytes of `parts`, one after the other, as one write, from `at` on, or from the
    /// position, which is moved then; or at the end. `flags` are `RWF_` flags.
    ///
    /// # Errors
    /// As pwritev2(2).
    pub fn write_with(&self, parts: &[IoSlice<'_>], at: Option<u64>, flags: u32) -> Result<usize> {
        self.with(|fs, who, open| {
            // What is refused is refused before the bytes are looked at.
            if !open.how.open.write || open.how.path_only {
                return Err(Errno::EBADF.into());
            }
            if parts.len() > BUFFERS_MAX {
                return Err(Errno::EINVAL.into());
            }
            with_copy(parts, |bytes| fs.write_vector(who, open, at, &[IoSlice::new(bytes)], flags))
        })
    }

    /// Copies up to `len` bytes to `target`, as copy_file_range(2), from and to where `from` and
    /// `to` say, or from and to the positions, which are moved then: how many, fewer at the end.
    ///
    /// # Errors
    /// As there; both files have to be of one store (`EXDEV`).
    pub fn copy_range(
        &self,
        from: Option<u64>,
        target: &File,
        to: Option<u64>,
        len: u64,
    ) -> Result<u64> {
        let other = target.0.own()?;
        let is_same_store = Arc::ptr_eq(&self.0.actor().store, &target.0.actor().store);
        self.with(|fs, who, open| match is_same_store {
            true => {
                let source = End { open, at: from };
                fs.copy_range(who, source, End { open: other, at: to }, len, 0)
            }
            false => Err(Errno::EXDEV.into()),
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

    /// Tells whether what was done to it is as durable as its store's medium can make it, which it
    /// is when operations return: see [`crate::Survives`].
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
