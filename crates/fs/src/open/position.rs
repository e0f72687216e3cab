//! The position of an open file: where the next read or write begins.
//!
//! Who writes at the position, or appends, moves it while he holds the file's lock: others who
//! share it write behind him. Until he is done its word says that it is taken, so that nobody else
//! moves it: they wait for the lock. If he dies before, it is where it was, and what he wrote to
//! the file is written over by the next one: nobody had been told that it was there.
//!
//! Who reads at the position moves it only if it still is where he has read, and else reads again.

use conquest_access::Errno;
use conquest_format::inode::FileType;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Holding};

use crate::content::Seek;
use crate::open::OpenFile;
use crate::{FileSystem, Result};

/// Word of a holding: the position, in bytes, or a directory's cookie.
const POSITION: u64 = 1;
/// Bit of that word: somebody writes at the position, who holds the file's lock exclusively.
const TAKEN: u64 = 1 << 63;

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

/// The position of a description, taken until this is dropped by one who holds the file's lock
/// exclusively all the time.
pub(crate) struct Taken<'f, M: Memory, H: Host> {
    core: &'f Core<M, H>,
    home: Holding,
    /// Where it is.
    pub(crate) from: u64,
    /// Where it will be.
    pub(crate) to: u64,
}

impl<M: Memory, H: Host> Drop for Taken<'_, M, H> {
    fn drop(&mut self) {
        self.core.set_held(self.home, POSITION, self.to);
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// The position of `open`.
    pub fn position(&self, open: &OpenFile) -> u64 {
        self.core().held(open.home, POSITION) & !TAKEN
    }

    /// Takes the position of `open`, whose file's lock the caller holds exclusively.
    pub(crate) fn take_position(&self, open: &OpenFile) -> Taken<'_, M, H> {
        let (core, home) = (self.core(), open.home);
        loop {
            let word = core.held(home, POSITION);
            // Whoever had taken it has died: the lock is ours.
            let from = word & !TAKEN;
            if core.replace_held(home, POSITION, word, from | TAKEN) {
                return Taken { core, home, from, to: from };
            }
        }
    }

    /// The position of `open` when nobody has taken it.
    pub(super) fn free_position(&self, open: &OpenFile) -> Result<u64> {
        loop {
            let word = self.core().held(open.home, POSITION);
            if word & TAKEN == 0 {
                return Ok(word);
            }
            let mut tx = self.core().begin()?;
            self.lock(&mut tx, false, [Some(open.file)])?;
            drop(self.take_position(open));
        }
    }

    /// Moves the position of `open`, which is free, on from `from` to `to`; whether it was there.
    pub(super) fn advance(&self, open: &OpenFile, from: u64, to: u64) -> bool {
        self.core().replace_held(open.home, POSITION, from, to)
    }

    /// Moves the position of `open` to what `to` makes of it: there.
    pub(super) fn move_position(
        &self,
        open: &OpenFile,
        to: impl Fn(u64) -> Result<u64>,
    ) -> Result<u64> {
        loop {
            let from = self.free_position(open)?;
            let to = to(from)?;
            if from == to || self.advance(open, from, to) {
                return Ok(to);
            }
        }
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
            Whence::Start => Some(0),
            Whence::Current => None,
            Whence::End => Some(self.stat(open.file)?.size.cast_signed()),
            Whence::Data | Whence::Hole => {
                let what = if whence == Whence::Data { Seek::Data } else { Seek::Hole };
                let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                let found = self.seek(open.file, what, from)?;
                return self.move_position(open, |_| Ok(found));
            }
        };
        self.move_position(open, |from| {
            let base = base.unwrap_or(from.cast_signed());
            let position = base.checked_add(offset).filter(|new| (0..=most).contains(new));
            Ok(position.ok_or(Errno::EINVAL)?.cast_unsigned())
        })
    }
}
