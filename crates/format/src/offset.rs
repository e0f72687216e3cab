//! The region's only kind of pointer.

use core::fmt;

/// A number of bytes from the start of the region.
///
/// Offsets are never native pointers (Conquest 2002, 3.4): a region may be mapped anywhere. Offset
/// 0 is the superblock and so never a target; it stands for "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Offset(u64);

impl Offset {
    /// "No target".
    pub const NONE: Offset = Offset(0);

    /// The offset `bytes` from the start of the region.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Offset(bytes)
    }

    /// The offset in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// This offset plus `bytes`; saturates, so that an overflow is out of bounds, never a wrap.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Offset(self.0.saturating_add(bytes))
    }

    /// Whether this is [`Offset::NONE`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the offset is a multiple of `alignment` bytes (a power of two).
    #[must_use]
    pub const fn is_aligned(self, alignment: u64) -> bool {
        self.0 & (alignment - 1) == 0
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
