//! What a region needs of the machine below: space, and the truth about processes.
//!
//! Death is concluded only from here, never from a time-out. The real host is
//! `media::OsHost`; tests use simulated ones.

use core::ops::Range;

use crate::Result;

/// Who a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Process id in its own pid namespace.
    pub process: u32,
    /// Thread id in its own pid namespace, below 2^22.
    pub thread: u32,
    /// Inode number of the pid namespace.
    pub namespace: u64,
}

/// The machine below a region.
pub trait Host: Send + Sync + 'static {
    /// A lock that is held as long as the value, and no longer than the process's memory: through
    /// `SIGSTOP`, not past `kill -9` or `exec`, and not in a forked child: dropping a child's copy
    /// of the value does nothing.
    type Claim: Send + Sync;
    /// A lock that is held as long as there is any copy of the value, in whatever process: a
    /// forked child has one, and it can be sent.
    type Carried: Send + Sync;

    /// Takes the lock of process slot `slot`; none if somebody else has it. A claim of one's own
    /// counts as somebody else's.
    ///
    /// # Errors
    /// If the system refuses for another reason.
    fn claim(&self, slot: u32) -> Result<Option<Self::Claim>>;

    /// As [`Self::claim`], for a process that is yet to come.
    ///
    /// # Errors
    /// If the system refuses for another reason.
    fn claim_to_carry(&self, slot: u32) -> Result<Option<Self::Carried>>;

    /// Takes the turn of seeing to slot `slot`, which is a lock of its own; none if somebody else
    /// has it.
    ///
    /// # Errors
    /// If the system refuses for another reason.
    fn claim_turn(&self, slot: u32) -> Result<Option<Self::Claim>>;

    /// Whether somebody, this process included, has the turn of seeing to slot `slot`.
    ///
    /// # Errors
    /// If the system can't tell.
    fn is_turn_taken(&self, slot: u32) -> Result<bool>;

    /// Whether somebody, this process included, has the lock of slot `slot`.
    ///
    /// # Errors
    /// If the system can't tell.
    fn is_claimed(&self, slot: u32) -> Result<bool>;

    /// Whether anybody has the lock of any slot.
    ///
    /// # Errors
    /// If the system can't tell.
    fn is_anyone_attached(&self) -> Result<bool>;

    /// Takes the lock under which processes attach and detach, one at a time; none if somebody
    /// else has it.
    ///
    /// # Errors
    /// If the system refuses for another reason.
    fn claim_attach(&self) -> Result<Option<Self::Claim>>;

    /// The calling thread. Fast: called by every operation.
    fn identity(&self) -> Identity;

    /// Whether thread `thread` of the calling process exists.
    fn is_thread_alive(&self, thread: u32) -> bool;

    /// Whether the calling process is a forked child of the one that made this value. Fast: called
    /// by every operation.
    fn is_forked(&self) -> bool;

    /// In a forked child: makes this value the child's own, so that it is not forked any more.
    ///
    /// # Errors
    /// If the system refuses.
    fn adopt(&self) -> Result<()>;

    /// The one-letter state of process `process` (`R`, `S`, `T` and so on, as in
    /// `/proc/PID/stat`), if it can be seen from pid namespace `namespace`.
    fn process_state(&self, process: u32, namespace: u64) -> Option<char>;

    /// Backs `ranges` (bytes of the region) with space, extending the file to `len` bytes: from
    /// then on stores there don't fail for lack of space.
    ///
    /// # Errors
    /// [`crate::Error::System`] with `ENOSPC` if there is not enough; then nothing has changed that
    /// matters.
    fn back(&self, ranges: &[Range<u64>], len: u64) -> Result<()>;

    /// The boot of this machine.
    fn boot_id(&self) -> [u8; 16];

    /// Nanoseconds since some fixed moment; never goes back.
    fn now(&self) -> u64;
}
