//! Record locks: those of `fcntl`, of a process or of an open file description, and those of
//! `flock` (fcntl(2), F_SETLK and F_OFD_SETLK; flock(2)).
//!
//! Each lock is a holding of the process that set it, under the lock that guards the inode, so it
//! goes with the process, unless it is of a description that others share: then it goes with the
//! last one who does. Each wait is a holding too: whoever gives up a lock wakes those that no
//! longer conflict, and whoever is about to wait can find out who waits for whom.
//!
//! | words of the holding | lock | wait |
//! | --- | --- | --- |
//! | 0, 1 | first and last byte | the same, of what is waited for |
//! | 2 | whether it is exclusive | the same |
//! | 3 | owner: a number of the process's own, or the description | the same |
//! | 4 | process id, as the owner sees it | |
//! | 5 | | not 0 once it is worth another try: a word to sleep on |

mod description;
mod set;
mod table;
mod wait;

use core::time::Duration;

use conquest_access::Errno;

use crate::open::OpenFile;
use crate::{FileSystem, Result};
use conquest_pm::Holding;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

pub(crate) use description::{owner, release_all};
pub(crate) use table::{FLOCK, Lock, RECORD_OF_OPEN, TURN, Who};

use table::RECORD;

/// The last byte that a lock can cover.
pub const END: u64 = i64::MAX as u64;

/// Whom a lock excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Exclusive locks: a read lock.
    Shared,
    /// All other locks: a write lock.
    Exclusive,
}

/// Whose a lock of `fcntl` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The calling process's, under a number of its own: of the one user that it works for, 0.
    Process(u64),
    /// The same, of a user that is a process itself: `F_GETLK` tells that one.
    Client {
        /// The number of its own.
        number: u64,
        /// The process id of the user.
        process: u32,
    },
    /// The open file description's.
    Open,
}

/// What to do while a lock of somebody else is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Give up at once.
    No,
    /// Wait for so long at most; up to 20 ms longer.
    AtMost(Duration),
    /// Wait, whatever it takes.
    Forever,
}

/// A part of a file, and what is to become of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The first byte.
    pub first: u64,
    /// The last byte, at most [`END`].
    pub last: u64,
    /// The lock that it gets; none to give it up.
    pub mode: Option<Mode>,
}

/// A lock that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
    /// The lock.
    pub mode: Mode,
    /// The process that set it, in its own pid namespace; none for a description's.
    pub process: Option<u32>,
}

/// A wait for a lock in which nobody sleeps. Everybody knows of it until
/// [`FileSystem::end_wait`].
#[derive(Debug)]
#[must_use = "a wait has to be ended"]
pub struct Waiting {
    /// The lock that guards the inode.
    lock: u32,
    holding: Holding,
}

/// Word of a description: not 0 if it may have locks.
const LOCKED: u64 = 2;

impl Owner {
    /// The kind of holding that its locks are.
    const fn kind(self) -> u8 {
        match self {
            Owner::Process(_) | Owner::Client { .. } => RECORD,
            Owner::Open => RECORD_OF_OPEN,
        }
    }
}

impl Record {
    /// The part of a file that `fcntl` means by an offset, from the start of the file, and a
    /// length: 0 is to the end, whatever that is; less than 0 is before the offset.
    ///
    /// # Errors
    /// `EINVAL` if it begins before the file, `EOVERFLOW` if it ends past what files can have.
    pub fn new(offset: i64, len: i64, mode: Option<Mode>) -> core::result::Result<Record, Errno> {
        let (first, last) = match len {
            0 => (offset, i64::MAX),
            1.. => (offset, offset.checked_add(len - 1).ok_or(Errno::EOVERFLOW)?),
            _ => (offset.checked_add(len).ok_or(Errno::EINVAL)?, offset.wrapping_sub(1)),
        };
        let [first, last] = [first, last].map(|byte| u64::try_from(byte).ok());
        match (first, last) {
            (Some(first), Some(last)) => Ok(Record { first, last, mode }),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Sets or gives up a lock of `owner` on a part of `open`: as `F_SETLK`, or, if it may `wait`,
    /// `F_SETLKW`. Locks that the owner has there already give way to it.
    ///
    /// # Errors
    /// - `EBADF`: it is not open for reading (a shared lock) or writing (an exclusive one);
    /// - `EAGAIN`: a lock is in the way, still;
    /// - `EDEADLK`: its owner waits, directly or not, for a lock of this process;
    /// - `EINTR`: a signal came while it waited; `ENOLCK`: too many locks; those of the region.
    pub fn set_record(
        &self,
        open: &OpenFile,
        owner: Owner,
        record: Record,
        wait: Wait,
    ) -> Result<()> {
        let wish = self.record_wish(open, owner, record)?;
        self.set_lock(open.file, &wish, wait)
    }

    /// As [`Self::set_record`], but does not sleep: if a lock is in the way, a wait begins that
    /// everybody knows of. When [`Self::is_called`] says so, and from time to time, it has to be
    /// ended and begun again. For servers of files, with many users who wait.
    ///
    /// # Errors
    /// As [`Self::set_record`].
    pub fn begin_record(
        &self,
        open: &OpenFile,
        owner: Owner,
        record: Record,
    ) -> Result<Option<Waiting>> {
        let wish = self.record_wish(open, owner, record)?;
        self.set_or_wait(open.file, &wish)
    }

    /// The lock that `owner` wants on a part of `open`, if it is open for that.
    fn record_wish(&self, open: &OpenFile, owner: Owner, record: Record) -> Result<table::Lock> {
        let is_open_for_it = match record.mode {
            _ if open.how.path_only => false,
            Some(Mode::Shared) => open.how.open.read,
            Some(Mode::Exclusive) => open.how.open.write,
            None => true,
        };
        if !is_open_for_it {
            return Err(Errno::EBADF.into());
        }
        if owner == Owner::Open {
            self.note_locked(open);
        }
        Ok(self.wish(open, owner.kind(), owner, record))
    }

    /// The first lock that would keep `owner` from setting `record`, which has a mode, if there is
    /// one: as `F_GETLK`.
    ///
    /// # Errors
    /// `EBADF` if it is open for its name only, `EINVAL` without a mode; those of the region.
    pub fn test_record(
        &self,
        open: &OpenFile,
        owner: Owner,
        record: Record,
    ) -> Result<Option<Conflict>> {
        if open.how.path_only {
            return Err(Errno::EBADF.into());
        }
        if record.mode.is_none() {
            return Err(Errno::EINVAL.into());
        }
        self.find_conflict(open.file, &self.wish(open, owner.kind(), owner, record))
    }

    /// Gives up the locks that `owner` of this process has on the file of `open`: what closing any
    /// descriptor of the file does.
    ///
    /// # Errors
    /// Those of the region.
    pub fn release_records(&self, open: &OpenFile, owner: Owner) -> Result<()> {
        let whole = Record { first: 0, last: END, mode: None };
        match self.set_record(open, owner, whole, Wait::No) {
            Err(crate::Error::Refused(Errno::EBADF)) => Ok(()),
            released => released,
        }
    }

    /// Notes that the description of `open` may have locks.
    fn note_locked(&self, open: &OpenFile) {
        self.core().set_held(open.home, LOCKED, 1);
    }

    /// Gives up the locks of the description of `open`, if it has any.
    pub(crate) fn release_locks(&self, open: &OpenFile) -> Result<()> {
        if self.core().held(open.home, LOCKED) == 0 {
            return Ok(());
        }
        self.flock(open, None, Wait::No)?;
        self.release_records(open, Owner::Open)
    }

    /// Gives the description of `open` a lock on its file, or takes it away: as `flock`.
    ///
    /// # Errors
    /// `EBADF` if it is open for its name only; `EAGAIN` (`EWOULDBLOCK`), `EINTR`, `ENOLCK`; those
    /// of the region.
    pub fn flock(&self, open: &OpenFile, mode: Option<Mode>, wait: Wait) -> Result<()> {
        let wish = self.flock_wish(open, mode)?;
        self.set_lock(open.file, &wish, wait)
    }

    /// As [`Self::flock`], but does not sleep: see [`Self::begin_record`].
    ///
    /// # Errors
    /// As [`Self::flock`].
    pub fn begin_flock(&self, open: &OpenFile, mode: Option<Mode>) -> Result<Option<Waiting>> {
        let wish = self.flock_wish(open, mode)?;
        self.set_or_wait(open.file, &wish)
    }

    fn flock_wish(&self, open: &OpenFile, mode: Option<Mode>) -> Result<table::Lock> {
        if open.how.path_only {
            return Err(Errno::EBADF.into());
        }
        let whole = Record { first: 0, last: END, mode };
        if mode.is_some() {
            self.note_locked(open);
        }
        Ok(self.wish(open, FLOCK, Owner::Open, whole))
    }
}
