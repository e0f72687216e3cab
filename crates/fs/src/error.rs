//! Errors of the file system.

use conquest_format::Offset;

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
}

/// What an operation of this crate returns.
pub type Result<T> = core::result::Result<T, Error>;

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
