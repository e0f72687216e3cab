//! Making durable what was done: `fsync`, `fdatasync`, `syncfs` and `sync_file_range`.
//!
//! Every operation is as durable as it can get on the store's medium when it returns: so there is
//! nothing to do but to tell whether the medium has failed. What an operation survives is a
//! property of the medium, and the same with and without a call of these.

use conquest_access::Errno;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::open::OpenFile;
use crate::{FileSystem, Result};

/// Flags of `sync_file_range`.
const RANGE_FLAGS: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE
    | libc::SYNC_FILE_RANGE_WRITE
    | libc::SYNC_FILE_RANGE_WAIT_AFTER;

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// What `fsync` and `fdatasync` do with `open`, and `syncfs` with its whole store: whether all
    /// that was done is as durable as it can get.
    ///
    /// # Errors
    /// `EBADF` if it is open for its name only; [`conquest_pm::Error::Failed`] if the medium has
    /// failed: nothing since then may count.
    pub fn sync(&self, open: &OpenFile) -> Result<()> {
        if open.how.path_only {
            return Err(Errno::EBADF.into());
        }
        Ok(self.core().check_health()?)
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
