//! What a volume is made of.

mod inset;

use std::io;
use std::path::Path;

pub use inset::Inset;

/// What transfers to and from a device have to keep to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of which each transfer's place and length are multiples: the logical block.
    pub block: u32,
    /// Bytes that the medium writes at once: a power cut leaves others alone. Whole blocks.
    pub physical: u32,
    /// Bytes that have to be written one after the other, from the first, after they were discarded
    /// as a whole; none if every block can be written at any time.
    pub erase: Option<u64>,
    /// Whether written data can be lost before a flush.
    pub is_cached: bool,
    /// Whether discarding does anything.
    pub discards: bool,
}

/// Something that keeps bytes. Each transfer is complete, or has failed, when its call returns; a
/// process that dies in one may leave it to be done later.
///
/// A failed write, or one that the power cut, leaves each physical block as it was, new, or
/// damaged. What was written is there after a power cut if a flush that was begun after the write
/// had returned has succeeded.
pub trait Device: Send + Sync {
    /// What to call it in messages.
    fn name(&self) -> &Path;

    /// Bytes.
    fn len(&self) -> u64;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What transfers have to keep to.
    fn limits(&self) -> Limits;

    /// Reads all of `into` from byte `at` on, wherever `into` is in memory.
    ///
    /// # Errors
    /// `EINVAL` for what [`Self::limits`] or the end rule out, `EIO` and others of the system.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` from byte `at` on, wherever `bytes` are in memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything durable whose write had returned before this call.
    ///
    /// # Errors
    /// `EIO` and others of the system. What is durable then nobody knows.
    fn flush(&self) -> io::Result<()>;

    /// Tells that `len` bytes from `at` on are not needed: what they read as later is open.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn discard(&self, at: u64, len: u64) -> io::Result<()>;

    /// How many copies there are of everything.
    fn copies(&self) -> u32 {
        1
    }

    /// [`Self::read`] from copy number `copy`, below [`Self::copies`].
    ///
    /// # Errors
    /// As [`Self::read`].
    fn read_copy(&self, copy: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        if copy == 0 { self.read(at, into) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Makes the process known as writer `writer`, until this value is dropped, or the process has
    /// ended and everything that it began to write has been written; whether nobody else is.
    ///
    /// # Errors
    /// Those of the system.
    fn enter(&self, writer: u64) -> io::Result<bool>;

    /// Whether somebody else is writer `writer`.
    ///
    /// # Errors
    /// Those of the system.
    fn is_entered(&self, writer: u64) -> io::Result<bool>;

    /// Whether somebody else is a writer, of whatever number.
    ///
    /// # Errors
    /// Those of the system.
    fn is_anyone_entered(&self) -> io::Result<bool>;
}
