//! Reading and writing open files, at their position and elsewhere.

use conquest_access::{Credentials, Errno};
use conquest_format::inode::{FileType, Inode, flag};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::{Begin, Fill, WriteAt};
use crate::inode::{Draft, FileId};
use crate::names::Listing;
use crate::open::OpenFile;
use crate::open::share::Status;
use crate::{Error, FileSystem, Result, file_system::Attempt};

impl OpenFile {
    /// Whether it was opened for reading.
    fn check_readable(&self) -> Result<()> {
        match (self.how.path_only || !self.how.open.read, self.file_type) {
            (true, _) => Err(Errno::EBADF.into()),
            (false, FileType::Directory) => Err(Errno::EISDIR.into()),
            (false, _) => Ok(()),
        }
    }

    /// Whether it was opened for writing.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.how.path_only || !self.how.open.write { Err(Errno::EBADF.into()) } else { Ok(()) }
    }
}

/// Whether a look at the content of `inode` is to be noted: if it is the first one since a change,
/// or the last one was more than a day before the file was opened (relatime, mount(8)).
pub(super) fn is_look_due(inode: &Inode, is_old: bool) -> bool {
    // Times of one moment are equal: the look comes after the change.
    let is_seen = inode.atime > inode.mtime && inode.atime > inode.ctime;
    (!is_seen || is_old) && inode.flags & flag::NOATIME == 0
}

/// How bytes are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteManner {
    /// At the end, wherever that is.
    pub(super) appends: bool,
    /// They are durable when the call returns.
    pub(super) sync: bool,
    /// Whole pages go to the volume at once, if the file is large.
    pub(super) direct: bool,
}

impl WriteManner {
    /// As `open`, whose flags are `status`, has it, if nothing else is asked for.
    fn of(open: &OpenFile, status: Status) -> WriteManner {
        WriteManner { appends: status.append, sync: open.how.sync, direct: status.direct }
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Whether a look through `open` at the content of `inode` is to be noted.
    pub(super) fn notes_access(&self, open: &OpenFile, inode: &Inode) -> bool {
        is_look_due(inode, open.old_access == Some(inode.atime))
            && !self.status(open).no_access_time
    }

    /// Reads bytes from `from` on to `out`, as `pread`: how many, fewer only at the file's end.
    ///
    /// # Errors
    /// `EBADF` if it is not open for reading, `EISDIR`; those of [`FileSystem::read_file`].
    pub fn read_at(&self, open: &OpenFile, from: u64, out: &mut [u8]) -> Result<usize> {
        open.check_readable()?;
        let (len, inode) = self.read_steps(open.file, Some(open), from, out)?;
        if let Some(inode) = inode
            && self.notes_access(open, &inode)
        {
            self.note_access(open.file)?;
        }
        Ok(len)
    }

    /// The entries of the directory `open`, as [`FileSystem::list`], noting that it was looked at.
    ///
    /// # Errors
    /// `EBADF` if it is not open for reading; those of [`FileSystem::list`].
    pub fn list_open<'b>(
        &self,
        open: &OpenFile,
        cookie: u64,
        out: &'b mut [u8],
    ) -> Result<Listing<'b>> {
        if open.how.path_only || !open.how.open.read {
            return Err(Errno::EBADF.into());
        }
        let listing = self.list(open.file, cookie, out)?;
        if self.notes_access(open, &self.inode(open.file)?) {
            self.note_access(open.file)?;
        }
        Ok(listing)
    }

    /// Reads bytes from the position on to `out`, as `read`, and moves the position past them.
    /// Bytes are read by one of those who share the position only. They are as they were at a
    /// moment before it moved.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_next(&self, open: &OpenFile, out: &mut [u8]) -> Result<usize> {
        loop {
            let from = self.free_position(open)?;
            let len = self.read_at(open, from, out)?;
            if len == 0 || self.advance(open, from, from + len as u64) {
                return Ok(len);
            }
        }
    }

    /// Writes `bytes` from `at` on, as `pwrite`; with `O_APPEND`, at the end. How many, fewer only
    /// if the store is full, or the file as long as it can be.
    ///
    /// # Errors
    /// `EBADF` if it is not open for writing; those of [`FileSystem::write`].
    pub fn write_at(
        &self,
        who: &Credentials,
        open: &OpenFile,
        at: u64,
        bytes: &[u8],
    ) -> Result<usize> {
        open.check_writable()?;
        let manner = WriteManner::of(open, self.status(open));
        self.write_through(who, open, Some(at), manner, Fill::Bytes(bytes))
    }

    /// Writes `bytes` from the position on, as `write`, and moves the position past them; with
    /// `O_APPEND`, at the end. Those who share the position write behind each other.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_next(&self, who: &Credentials, open: &OpenFile, bytes: &[u8]) -> Result<usize> {
        open.check_writable()?;
        let manner = WriteManner::of(open, self.status(open));
        self.write_through(who, open, None, manner, Fill::Bytes(bytes))
    }

    /// Writes `fill` from `at` on, or from the position, which is moved then; or at the end: how
    /// many bytes. The file is open for writing.
    pub(super) fn write_through(
        &self,
        who: &Credentials,
        open: &OpenFile,
        at: Option<u64>,
        manner: WriteManner,
        fill: Fill<'_>,
    ) -> Result<usize> {
        let from = match at {
            _ if manner.appends => Some(WriteAt::End),
            Some(at) => Some(WriteAt::Offset(at)),
            None => None,
        };
        let moved = at.is_none().then_some(open);
        let begin = Begin { from, moved, is_direct: manner.direct };
        let (_, len) = self.write_fill(who, open.file, begin, fill)?;
        self.sync_written(open, manner.sync)?;
        Ok(len as usize)
    }

    /// Makes durable what was written to `open` if that is asked for, by the call or by the file's
    /// flag `S`.
    pub(super) fn sync_written(&self, open: &OpenFile, is_asked: bool) -> Result<()> {
        let is_wanted = || -> Result<bool> {
            // Elsewhere it is durable already, but for what the volume has.
            let is_due = self.core().is_logged() || self.threshold().is_some();
            Ok(is_asked || is_due && self.inode(open.file)?.flags & flag::SYNC != 0)
        };
        if is_wanted()? { self.sync(open) } else { Ok(()) }
    }

    /// Makes the file as long as `size` bytes, as `ftruncate`.
    ///
    /// # Errors
    /// `EBADF` if it is open for its name only, `EINVAL` if it is not open for writing, or no
    /// regular file; those of [`FileSystem::truncate_open`].
    pub fn truncate_through(&self, who: &Credentials, open: &OpenFile, size: u64) -> Result<()> {
        match open.check_writable() {
            Ok(()) => self.truncate_open(who, open.file, size),
            Err(error) if open.how.path_only => Err(error),
            Err(_) => Err(Errno::EINVAL.into()),
        }
    }

    /// Notes that the content of `file` was looked at now.
    pub(super) fn note_access(&self, file: FileId) -> Result<()> {
        let noted = self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let mut draft = Draft::open(tx, file)?;
            let changed = draft.inode.mtime.max(draft.inode.ctime);
            // Later than the change, so that the next look is not noted again.
            draft.inode.atime = self.now().max(changed.saturating_add(1));
            draft.stage(tx)?;
            Ok(Attempt::Done(()))
        });
        match noted {
            // What was read counts, whatever becomes of the note.
            Err(Error::Stale | Error::Refused(_) | Error::NoChanges(_)) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
