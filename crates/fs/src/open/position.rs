//! The position of an open file: where the next read or write begins.

use conquest_access::Errno;
use conquest_format::inode::FileType;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::Seek;
use crate::open::OpenFile;
use crate::{FileSystem, Result};

/// Word of a holding: the position, in bytes, or a directory's cookie.
const POSITION: u64 = 1;

/// What an offset is counted from: `SEEK_SET` and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// The beginning.
    Start,
    /// The position.
    Current,
    /// The end.
    End,
    /// The next data from the offset on.
    Data,
    /// The next hole from the offset on.
    Hole,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// The position of `open`.
    pub fn position(&self, open: &OpenFile) -> u64 {
        self.core().held(open.home, POSITION)
    }

    /// Sets the position of `open`.
    pub(crate) fn set_position(&self, open: &OpenFile, position: u64) {
        self.core().set_held(open.home, POSITION, position);
    }

    /// Moves the position of `open` on from `from` to `to`; whether it was still there.
    pub(crate) fn advance(&self, open: &OpenFile, from: u64, to: u64) -> bool {
        self.core().replace_held(open.home, POSITION, from, to)
    }

    /// Sets the position of `open`, as `lseek`: the new one.
    ///
    /// # Errors
    /// - `EBADF`: it is open for its name only;
    /// - `EINVAL`: it would be before the beginning, or farther than a file can be long; or it is a
    ///   directory, in which there are only cookies to return to;
    /// - `ENXIO`: there is no such data or hole;
    /// - those of [`FileSystem::stat`] and [`FileSystem::seek`].
    pub fn seek_to(&self, open: &OpenFile, offset: i64, whence: Whence) -> Result<u64> {
        if open.how.path_only {
            return Err(Errno::EBADF.into());
        }
        let is_directory = open.file_type == FileType::Directory;
        if is_directory && !matches!(whence, Whence::Start | Whence::Current) {
            // Positions there are cookies.
            return Err(Errno::EINVAL.into());
        }
        let most = if is_directory { i64::MAX } else { self.size_max().cast_signed() };
        let base = match whence {
            Whence::Start => 0,
            Whence::Current => self.position(open).cast_signed(),
            Whence::End => self.stat(open.file)?.size.cast_signed(),
            Whence::Data | Whence::Hole => {
                let what = if whence == Whence::Data { Seek::Data } else { Seek::Hole };
                let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                let found = self.seek(open.file, what, from)?;
                self.set_position(open, found);
                return Ok(found);
            }
        };
        let position = base.checked_add(offset).filter(|new| (0..=most).contains(new));
        let position = position.ok_or(Errno::EINVAL)?.cast_unsigned();
        self.set_position(open, position);
        Ok(position)
    }
}
