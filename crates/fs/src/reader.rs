//! What can be read from: a view without locks, or a transaction with its changes.

use core::sync::atomic::Ordering;

use conquest_format::Offset;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Tx, View};

/// Reads words of objects. Through a [`View`] these may change from one load to the next; through
/// a [`Tx`] that has locked what guards them they are stable, and its own changes are seen.
pub trait Reader {
    /// The region's bytes.
    type Memory: Memory;
    /// The machine below.
    type Host: Host;

    /// The region, to check pointers with.
    fn core(&self) -> &Core<Self::Memory, Self::Host>;

    /// The word at `at`, which is a multiple of 8 within an object that was resolved.
    fn word(&self, at: Offset) -> u64;

    /// Copies the bytes at `at`, of an object that was resolved, to `out`. What a transaction has
    /// staged is not seen.
    fn bytes(&self, at: Offset, out: &mut [u8]) {
        self.core().memory().read(at, out);
    }
}

/// Reads what is committed, for a transaction that knows what it has staged: looking for that at
/// each word takes time.
pub(crate) struct Committed<'c, M: Memory, H: Host>(pub(crate) &'c Core<M, H>);

impl<M: Memory, H: Host> Reader for Committed<'_, M, H> {
    type Memory = M;
    type Host = H;

    fn core(&self) -> &Core<M, H> {
        self.0
    }

    fn word(&self, at: Offset) -> u64 {
        self.0.memory().load(at, Ordering::Relaxed)
    }
}

impl<M: Memory, H: Host> Reader for View<'_, M, H> {
    type Memory = M;
    type Host = H;

    fn core(&self) -> &Core<M, H> {
        View::core(self)
    }

    fn word(&self, at: Offset) -> u64 {
        View::word(self, at)
    }
}

impl<M: Memory, H: Host> Reader for Tx<'_, M, H> {
    type Memory = M;
    type Host = H;

    fn core(&self) -> &Core<M, H> {
        Tx::core(self)
    }

    fn word(&self, at: Offset) -> u64 {
        self.get(at)
    }
}
