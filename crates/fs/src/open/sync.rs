//! Making durable what was done: `fsync`, `fdatasync`, `syncfs` and `sync_file_range`.
//!
//! On most media every operation is as durable as it can get when it returns: there is nothing to
//! do but to tell whether the medium has failed, and to make durable what was overwritten of large
//! files on the volume. A region with a log is made durable: all that was
//! committed before, of whatever file, so a file's name and earlier renames are durable with it.

use conquest_access::Errno;
use conquest_format::inode::Content;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::open::OpenFile;
use crate::{FileSystem, Result};

/// Flags of `sync_file_range`.
const RANGE_FLAGS: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE
    | libc::SYNC_FILE_RANGE_WRITE
    | libc::SYNC_FILE_RANGE_WAIT_AFTER;

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// What `fsync` and `fdatasync` do with `open`: makes all that was done as durable as it can
    /// get.
    ///
    /// # Errors
    /// `EBADF` if it is open for its name only; those of [`Self::sync_all`].
    pub fn sync(&self, open: &OpenFile) -> Result<()> {
        if open.how.path_only {
            return Err(Errno::EBADF.into());
        }
        self.push_many()?;
        self.core().make_durable()?;
        let is_on_volume = self.threshold().is_some()
            && matches!(self.inode(open.file)?.content, Content::Large { .. });
        if is_on_volume { self.settle() } else { Ok(()) }
    }

    /// What `syncfs` does: makes all that was done in the store as durable as it can get.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Failed`] if the medium has failed, [`conquest_pm::Error::NotDurable`]
    /// if the volume has: nothing since then may count.
    pub fn sync_all(&self) -> Result<()> {
        self.push_many()?;
        self.core().make_durable()?;
        if self.threshold().is_some() { self.settle() } else { Ok(()) }
    }

    /// What `sync_file_range` does: [`Self::sync`], whatever the range of bytes.
    ///
    /// # Errors
    /// As [`Self::sync`]; `EINVAL` for flags that are not known, and a negative or endless range.
    pub fn sync_range(&self, open: &OpenFile, offset: i64, len: i64, flags: u32) -> Result<()> {
        let is_range = offset >= 0 && len >= 0 && offset.checked_add(len).is_some();
        match flags & !RANGE_FLAGS {
            _ if open.how.path_only => Err(Errno::EBADF.into()),
            0 if is_range => self.sync(open),
            _ => Err(Errno::EINVAL.into()),
        }
    }
}
