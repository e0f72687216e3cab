//! Errors of the file system.

use conquest_access::Errno;
use conquest_format::Offset;
use conquest_pm::log::Refusal;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The region below says so.
    #[error(transparent)]
    Core(#[from] conquest_pm::Error),
    /// No room for a name, because too many names of the directory have its hash: there are more
    /// than 16, or their dentries fill a bucket. Hashes are keyed, so nobody can choose such names.
    #[error(
        "directory with its root at offset {directory}: {found} entries have the hash \
         {hash:#014x}, which is all there can be; choose another name"
    )]
    Collisions {
        /// Offset of the word that holds the directory's root.
        directory: Offset,
        /// The hash, 48 bits.
        hash: u64,
        /// Entries that have it.
        found: u64,
    },
    /// The rules of file systems refuse it.
    #[error("{0}")]
    Refused(Errno),
    /// Nothing can be changed, because it could never be made durable.
    #[error("nothing can be changed: {0}")]
    NoChanges(Refusal),
    /// The volume, on which large files' data is, says so.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// It is about a large file, whose data is on a volume that this process does not have.
    #[error("the file's data is on the store's volume, which is not at hand")]
    NoVolume,
    /// The file is there no more.
    #[error("the file is there no more")]
    Stale,
    /// The region is not one for this file system.
    #[error("{what}: expected {expected}, found {found}")]
    Unfit {
        /// What of it.
        what: &'static str,
        /// What was expected, and what to do.
        expected: &'static str,
        /// What was found.
        found: u64,
    },
}

/// What went wrong on the volume.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct VolumeError {
    /// The error number that a system call would give: `ENOSPC` or `EIO`.
    pub errno: Errno,
    /// What it was, as a sentence.
    pub reason: String,
}

/// What an operation of this crate returns.
pub type Result<T> = core::result::Result<T, Error>;

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::Refused(errno)
    }
}

impl Error {
    /// The error number that a system call would give.
    #[must_use]
    pub fn errno(&self) -> Errno {
        use conquest_pm::Error as Core;
        match self {
            Error::Refused(errno) => *errno,
            Error::Volume(error) => error.errno,
            Error::NoChanges(_) => Errno::EROFS,
            Error::NoVolume => Errno::EIO,
            Error::Stale => Errno::ESTALE,
            Error::Collisions { .. } => Errno::ENOSPC,
            Error::Unfit { .. } => Errno::EINVAL,
            Error::Core(Core::NoSpace { .. }) => Errno::ENOSPC,
            Error::Core(Core::Holdings { .. }) => Errno::ENFILE,
            Error::Core(Core::Interrupted) => Errno::EINTR,
            Error::Core(Core::OwnLock { .. }) => Errno::EDEADLK,
            Error::Core(_) => Errno::EIO,
        }
    }
}

/// The error for something in the region that breaks a rule.
#[cold]
pub(crate) fn corrupt(
    what: &'static str,
    offset: Offset,
    expected: &'static str,
    found: u64,
) -> conquest_pm::Error {
    conquest_pm::Error::Corrupt { what, offset, expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_region_have_numbers() {
        use conquest_pm::Error as Core;
        let number = |error: Core| Error::Core(error).errno();
        assert_eq!(number(Core::Interrupted), Errno::EINTR);
        assert_eq!(number(Core::OwnLock { lock: 1 }), Errno::EDEADLK);
        assert_eq!(number(corrupt("something", Offset::NONE, "something else", 0)), Errno::EIO);
    }
}
