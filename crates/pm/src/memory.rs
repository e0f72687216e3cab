//! The one door to a region's bytes.
//!
//! Everything in this crate works on a [`Memory`]: the real mapping (`media::Mapped`), a
//! recording one for the crash explorer, one that dies at its n-th store, or a weak-memory model.
//! So every store into the region, in either part, can be counted, recorded and stopped at.
//!
//! # The crash model
//!
//! This is the only statement of it; simulators implement it and everything else refers to it.
//!
//! - *A process dies* (`kill -9`) between any two instructions. Its earlier stores are all visible
//!   to the others, in program order as far as their memory orderings say; its later ones never
//!   happen. This is all that can happen to a region in ordinary shared RAM.
//! - *The power fails* on a medium that needs write-back. Every aligned 8-byte word of the
//!   persistent part then holds either the value it had at its last durable point or any value
//!   stored since, each word on its own. A word's value becomes durable when a
//!   [`Memory::write_back`] that covers it, made after the store, is followed by a
//!   [`Memory::fence`] of the same thread. The model is weaker than the hardware, which keeps the
//!   order of stores within a line.
//! - The volatile part holds anything after a power failure; its words are recognised by their tag.
//! - Words are never torn: 8 aligned bytes are stored and persisted at once.

use core::sync::atomic::Ordering;
use core::time::Duration;

use conquest_format::Offset;

use crate::Error;

/// How a wait on a volatile word ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The word changed, or somebody woke us: look again.
    Woken,
    /// Time is up.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// A region's bytes.
///
/// Offsets of words are multiples of 8. An implementation must stay memory-safe whatever the
/// offset: out of bounds, loads return 0 and stores do nothing, and the region counts as failed.
/// Other processes store into the same bytes at any time.
pub trait Memory: Send + Sync + 'static {
    /// Bytes of the region: its maximum size.
    fn len(&self) -> u64;

    /// Whether the region has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why this memory can no longer be trusted (its file was truncated, a page was poisoned, an
    /// access was out of bounds), if so.
    fn failure(&self) -> Option<&'static str> {
        None
    }

    /// In a forked child: makes the memory the region's again, if it was cut off because the thread
    /// that forked was inside an operation; whether it was.
    ///
    /// # Errors
    /// If the system refuses.
    fn rejoin(&self) -> crate::Result<bool> {
        Ok(false)
    }

    /// Whether there may be pages that have to be loaded before they can be used. What needs them
    /// has them loaded; the region counts as failed if that is impossible.
    fn is_loading(&self) -> bool {
        false
    }

    /// Says, when a process has looked at the superblock and attaches or detaches, that there is
    /// a residency table or none, and which number the process has in a line of forks.
    ///
    /// # Errors
    /// If what is not resident could not be loaded.
    fn found_table(&self, is_there: bool, life: u32) -> crate::Result<()> {
        let _ = (is_there, life);
        Ok(())
    }

    /// Takes the residency table away, which no superblock names any more, while nobody is
    /// attached: `len` bytes of the file count at least.
    ///
    /// # Errors
    /// If the system refuses: the file is longer than it need be.
    fn drop_table(&self, len: u64) -> crate::Result<()> {
        let _ = len;
        Ok(())
    }

    /// Makes ready the pages of `len` bytes at `at`, which have space: the first stores to them
    /// take no longer than others. Changes no byte; may do nothing.
    fn make_ready(&self, at: Offset, len: u64) {
        let _ = (at, len);
    }

    /// Allows this process to store into the persistent part, until [`Self::close_window`] has been
    /// called as often as this; false if that can't be allowed. Memory without protection against
    /// wild stores always allows it.
    fn open_window(&self) -> bool {
        true
    }

    /// Takes one [`Self::open_window`] back.
    fn close_window(&self) {}

    /// The word at `at`.
    fn load(&self, at: Offset, order: Ordering) -> u64;

    /// Copies the bytes at `at` into `out`. Word by word where aligned, so that a word is never
    /// torn; without any order between words.
    fn read(&self, at: Offset, out: &mut [u8]);

    // --- the volatile part -------------------------------------------------------------------

    /// Stores a word of the volatile part.
    fn store(&self, at: Offset, value: u64, order: Ordering);

    /// Compares and exchanges a word of the volatile part; returns what was found.
    ///
    /// # Errors
    /// The word found, if it was not `current`.
    fn compare_exchange(
        &self,
        at: Offset,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;

    /// A full fence between this thread's volatile stores and its later loads.
    fn full_fence(&self);

    /// A fence that keeps this thread's earlier loads before its later ones.
    fn load_fence(&self);

    /// Sleeps until woken, while the low half of the volatile word at `at` is `expected`, at most
    /// `timeout`.
    fn wait(&self, at: Offset, expected: u32, timeout: Duration) -> Wake;

    /// Wakes up to `count` sleepers on the word at `at`, in any process.
    fn wake(&self, at: Offset, count: u32);

    // --- the persistent part: the store functions --------------------------------------------

    /// Stores a word of the persistent part.
    fn put(&self, at: Offset, value: u64, order: Ordering);

    /// Sets bits of a word of the persistent part, atomically.
    fn put_or(&self, at: Offset, bits: u64);

    /// Clears bits of a word of the persistent part, atomically.
    fn put_and_not(&self, at: Offset, bits: u64);

    /// Stores bytes into the persistent part, at any alignment, without any order between words.
    /// Words that `bytes` covers only in part keep their other bytes; nobody else may store into
    /// these words meanwhile.
    fn put_bytes(&self, at: Offset, bytes: &[u8]);

    /// Stores `len` zero bytes into the persistent part, under the rules of [`Self::put_bytes`].
    fn put_zeros(&self, at: Offset, len: u64);

    /// Starts writing the lines of `len` bytes at `at` back to the medium. They are durable after
    /// the next [`Self::fence`] of this thread. Does nothing on media that need none.
    fn write_back(&self, at: Offset, len: u64);

    /// Waits until what this thread has written back is durable.
    fn fence(&self);

    /// Whether the medium needs write-back: power failures show on it.
    fn needs_write_back(&self) -> bool;
}

/// The permission to store into the persistent part, held until dropped.
#[derive(Debug)]
pub(crate) struct Window<'m, M: Memory>(&'m M);

impl<'m, M: Memory> Window<'m, M> {
    /// Opens a window.
    ///
    /// # Errors
    /// [`Error::Failed`] if the memory can't be made writable.
    pub(crate) fn open(memory: &'m M) -> crate::Result<Self> {
        if memory.open_window() {
            return Ok(Window(memory));
        }
        Err(Error::Failed { reason: "the system does not let the region be written" })
    }
}

impl<M: Memory> Drop for Window<'_, M> {
    fn drop(&mut self) {
        self.0.close_window();
    }
}
