//! Record locks of open files: of the whole file for its description (`flock`), and of ranges for
//! the process or the description (`fcntl`). Only waiting for them can be interrupted: `EINTR`.

use std::ops::{Bound, RangeBounds};

use conquest_access::Errno;
use conquest_fs::locks::{Conflict, END, Mode, Owner, Record, Wait};

use super::File;
use crate::Result;

impl File {
    /// Gets an exclusive lock on the file, waiting for it. A lock that it has is exchanged, not at
    /// once. Closing the file gives it up.
    ///
    /// # Errors
    /// As flock(2): `EINTR` if a signal came, also one whose handler is to restart calls.
    pub fn lock(&self) -> Result<()> {
        self.lock_as(Mode::Exclusive, Wait::Forever)
    }

    /// Gets a shared lock on the file, waiting for it.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_shared(&self) -> Result<()> {
        self.lock_as(Mode::Shared, Wait::Forever)
    }

    /// Gets an exclusive lock on the file if nobody has one.
    ///
    /// # Errors
    /// As flock(2): `EWOULDBLOCK`.
    pub fn try_lock(&self) -> Result<()> {
        self.lock_as(Mode::Exclusive, Wait::No)
    }

    /// Gets a shared lock on the file if nobody has an exclusive one.
    ///
    /// # Errors
    /// As [`Self::try_lock`].
    pub fn try_lock_shared(&self) -> Result<()> {
        self.lock_as(Mode::Shared, Wait::No)
    }

    /// Gets a lock on the file.
    ///
    /// # Errors
    /// As flock(2): `EWOULDBLOCK` if somebody had one all the time.
    pub fn lock_as(&self, mode: Mode, wait: Wait) -> Result<()> {
        self.with(|fs, _, open| fs.flock(open, Some(mode), wait))
    }

    /// Gives up the lock on the file.
    ///
    /// # Errors
    /// As flock(2).
    pub fn unlock(&self) -> Result<()> {
        self.with(|fs, _, open| fs.flock(open, None, Wait::No))
    }

    /// Gets a lock on the bytes of `range` for `owner`. One of the process's goes when the process
    /// closes any of its files that is the same; one of the description's, when this one is closed.
    ///
    /// # Errors
    /// As fcntl(2) with `F_SETLKW`, or `F_OFD_SETLKW`: `EAGAIN` if somebody had one all the time;
    /// `EDEADLK`; `EINTR`, also for a signal whose handler is to restart calls; `EINVAL` for no
    /// bytes.
    pub fn lock_range(
        &self,
        owner: Owner,
        range: impl RangeBounds<u64>,
        mode: Mode,
        wait: Wait,
    ) -> Result<()> {
        self.set_range(owner, range, Some(mode), wait)
    }

    /// Gives up the locks of `owner` on the bytes of `range`.
    ///
    /// # Errors
    /// As [`Self::lock_range`].
    pub fn unlock_range(&self, owner: Owner, range: impl RangeBounds<u64>) -> Result<()> {
        self.set_range(owner, range, None, Wait::No)
    }

    fn set_range(
        &self,
        owner: Owner,
        range: impl RangeBounds<u64>,
        mode: Option<Mode>,
        wait: Wait,
    ) -> Result<()> {
        if owner != Owner::Open && mode.is_some() {
            self.handle().actor().store.note_records();
        }
        self.with(|fs, _, open| fs.set_record(open, owner, record(&range, mode)?, wait))
    }

    /// The first lock that keeps `owner` from getting this one; none if nothing does.
    ///
    /// # Errors
    /// As fcntl(2) with `F_GETLK`, or `F_OFD_GETLK`.
    pub fn test_range(
        &self,
        owner: Owner,
        range: impl RangeBounds<u64>,
        mode: Mode,
    ) -> Result<Option<Conflict>> {
        self.with(|fs, _, open| fs.test_record(open, owner, record(&range, Some(mode))?))
    }
}

/// The part of a file that `range` is.
fn record(
    range: &impl RangeBounds<u64>,
    mode: Option<Mode>,
) -> core::result::Result<Record, Errno> {
    let first = match range.start_bound() {
        Bound::Included(first) => Some(*first),
        Bound::Excluded(before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let last = match range.end_bound() {
        Bound::Included(last) => Some(*last),
        Bound::Excluded(after) => after.checked_sub(1),
        Bound::Unbounded => Some(END),
    };
    match (first, last) {
        (_, Some(last)) if last > END => Err(Errno::EOVERFLOW),
        (Some(first), Some(last)) if first <= last => Ok(Record { first, last, mode }),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_bytes_of_files() {
        let of = |range: (Bound<u64>, Bound<u64>)| {
            record(&range, None).map(|record| (record.first, record.last))
        };
        let bounds = |range: std::ops::Range<u64>| {
            of((range.start_bound().cloned(), range.end_bound().cloned()))
        };
        assert_eq!(bounds(0..1), Ok((0, 0)));
        assert_eq!(bounds(5..9), Ok((5, 8)));
        assert_eq!(bounds(5..5), Err(Errno::EINVAL));
        assert_eq!(of((Bound::Unbounded, Bound::Unbounded)), Ok((0, END)));
        assert_eq!(of((Bound::Excluded(3), Bound::Included(4))), Ok((4, 4)));
        assert_eq!(of((Bound::Included(0), Bound::Included(END + 1))), Err(Errno::EOVERFLOW));
        assert_eq!(of((Bound::Excluded(u64::MAX), Bound::Unbounded)), Err(Errno::EINVAL));
    }
}
