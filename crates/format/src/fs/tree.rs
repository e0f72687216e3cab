//! A page of a file's tree: 512 slots, chosen by nine bits of a page's number in the file.
//!
//! A node of level 1 leads to pages of data, a node of level `l` to nodes of level `l - 1`, or, at
//! level 2, to a run that takes the place of such a node and its first pages. Offsets of pages have
//! twelve bits to spare: bit 0 tells a run from a node (the check bits alone can't, because one
//! pointer word in 2^16 is good for either kind), and nine more say how long it is.

use crate::fs::{DATA, TREE};
use crate::{Offset, PAGE, WORD, pointer};

/// Slots in a node.
pub const SLOTS: u64 = PAGE / WORD;
/// Bits of a page's number that choose a slot.
pub const BITS: u32 = 9;
/// Bit of a slot that leads to a run.
pub const TO_RUN: u64 = 1;
/// Bits of a slot that leads to a run: its pages less one.
pub const RUN_PAGES: u64 = (SLOTS - 1) << 1;

/// What a slot leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Nothing: these bytes of the file are zeros.
    Hole,
    /// A node of the next lower level.
    Node(Offset),
    /// A page of data.
    Page(Offset),
    /// A run of so many pages of data, 1 to [`SLOTS`].
    Run(Offset, u64),
}

impl Slot {
    /// The slot's word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        match self {
            Slot::Hole => 0,
            Slot::Node(at) => pointer::pack(at, TREE),
            Slot::Page(at) => pointer::pack(at, DATA),
            Slot::Run(at, pages) => pointer::pack(at, DATA) | TO_RUN | (pages - 1) << 1 & RUN_PAGES,
        }
    }

    /// The slot in `word`, which stands in a node of `level`, 1 or more; none if it can't be there.
    #[must_use]
    pub const fn unpack(word: u64, level: u64) -> Option<Slot> {
        if word == 0 {
            return Some(Slot::Hole);
        }
        let is_run = word & TO_RUN != 0;
        let pages = ((word & RUN_PAGES) >> 1) + 1;
        let kind = if level == 1 || is_run { DATA } else { TREE };
        let pointer = if is_run { word & !(TO_RUN | RUN_PAGES) } else { word };
        match pointer::unpack(pointer, kind) {
            Some(at) if !at.is_none() && at.is_aligned(PAGE) => match (level, is_run) {
                (1, false) => Some(Slot::Page(at)),
                (2, true) => Some(Slot::Run(at, pages)),
                (2.., false) => Some(Slot::Node(at)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Pages of a file that a slot of a node of `level`, 1 to
/// [`TREE_HEIGHT_MAX`](crate::inode::TREE_HEIGHT_MAX), leads to.
#[must_use]
pub const fn pages_below(level: u64) -> u64 {
    1 << (BITS as u64 * (level - 1))
}

const _: () = assert!(SLOTS == 1 << BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_good_for_its_level_only() {
        let at = Offset::new(0x12_3456_7000);
        let slots = [Slot::Node(at), Slot::Page(at), Slot::Run(at, 1), Slot::Run(at, SLOTS)];
        let found = |level| slots.map(|slot| Slot::unpack(slot.pack(), level) == Some(slot));
        assert_eq!(found(1), [false, true, false, false]);
        assert_eq!(found(2), [true, false, true, true]);
        assert_eq!(found(3), [true, false, false, false]);
        assert_eq!(Slot::unpack(0, 1), Some(Slot::Hole));
        assert_eq!(Slot::unpack(Slot::Page(Offset::new(0x40)).pack(), 1), None);
        assert_eq!(Slot::unpack(TO_RUN, 2), None);
        assert_eq!((pages_below(1), pages_below(3)), (1, SLOTS * SLOTS));
    }
}
