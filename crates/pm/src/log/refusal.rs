//! That a region takes no changes, because they could never be made durable.

use core::sync::atomic::Ordering;

use conquest_format::log::head;

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;

/// Why what is changed could never be made durable. Its number stands in the log
/// ([`head::REFUSED`]), for all processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no volume.
    Missing = 1,
    /// The volume is another one's.
    Other = 2,
    /// The volume lacks what was made durable.
    Older = 3,
    /// The volume has what the region has not made.
    Newer = 4,
    /// The region was made again of its volume since.
    Superseded = 5,
    /// What stands on the volume is damaged, or of another release.
    Unreadable = 6,
    /// The volume's devices have failed.
    Failed = 7,
}

impl Refusal {
    fn of(number: u64) -> Option<Refusal> {
        use Refusal::{Failed, Missing, Newer, Older, Other, Superseded, Unreadable};
        match number {
            0 => None,
            1 => Some(Missing),
            2 => Some(Other),
            3 => Some(Older),
            4 => Some(Newer),
            5 => Some(Superseded),
            6 => Some(Unreadable),
            // A later release may know more reasons: what they have in common is this one.
            _ => Some(Failed),
        }
    }

    /// The same as a clause.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Refusal::Missing => "its volume is not there",
            Refusal::Other => "the volume in place of its own is another store's",
            Refusal::Older => "its volume is an older copy",
            Refusal::Newer => "another core has gone on with its volume",
            Refusal::Superseded => "its core was brought back elsewhere since",
            Refusal::Unreadable => "its volume can't be read",
            Refusal::Failed => "its volume's devices have failed",
        }
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Why no changes are to be made, if so. One load of a line that seldom changes.
    #[inline]
    pub fn refusal(&self) -> Option<Refusal> {
        if !self.is_logged() {
            return None;
        }
        Refusal::of(self.log_word(head::REFUSED, Ordering::Relaxed))
    }

    /// Says to all processes why no changes are to be made, or that they may be. What is being
    /// changed meanwhile may still be committed.
    pub fn refuse(&self, why: Option<Refusal>) {
        if self.is_logged() && self.refusal() != why {
            let word = why.map_or(0, |why| why as u64);
            self.memory.store(self.geometry.log_head(head::REFUSED), word, Ordering::Relaxed);
        }
    }
}
