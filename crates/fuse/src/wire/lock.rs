//! Locks of parts of files.

use super::abi::WireLock;
use super::malformed::Fault;

/// Which of the two kinds of locks, which do not see each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// `fcntl`: parts of files, of processes or open files.
    Posix,
    /// `flock`: whole files, of open files.
    Flock,
}

/// What a lock is to be, or is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum LockType {
    /// Shared.
    Read = 0,
    /// Exclusive.
    Write = 1,
    /// None: what is there is to go; in a reply, nothing is in the way.
    Unlock = 2,
}

/// A lock of a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileLock {
    /// The first byte.
    pub start: u64,
    /// The last byte; `i64::MAX` for however long the file is.
    pub end: u64,
    /// What it is.
    pub lock_type: LockType,
    /// The process that has it, as the mount's process numbers go; 0 if it has none there.
    pub pid: u32,
}

impl FileLock {
    pub(crate) const fn from_wire(lock: WireLock) -> Result<FileLock, Fault> {
        let lock_type = match lock.lock_type {
            0 => LockType::Read,
            1 => LockType::Write,
            2 => LockType::Unlock,
            other => return Err(Fault::Value { what: "type of lock", value: other as u64 }),
        };
        Ok(FileLock { start: lock.start, end: lock.end, lock_type, pid: lock.pid })
    }

    pub(crate) const fn to_wire(self) -> WireLock {
        let lock_type = self.lock_type as u32;
        WireLock { start: self.start, end: self.end, lock_type, pid: self.pid }
    }
}
