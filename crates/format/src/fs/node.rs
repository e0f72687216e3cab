//! A directory node: 128 slots, chosen by seven bits of a name's hash.
//!
//! A slot is 0, or a pointer word to a bucket, or a pointer word to another node with bit 0 set.
//! Objects are aligned to 64 bytes, so bit 0 is never part of an offset; the check bits alone can't
//! tell the two, because one pointer word in 2^16 is good for either kind.

use crate::fs::dentry::HASH_BITS;
use crate::fs::{BUCKET, NODE};
use crate::{Offset, WORD, pointer};

/// Slots in a node.
pub const SLOTS: u64 = 128;
/// Hash bits that choose a slot.
pub const BITS: u32 = 7;
/// Bytes of a node.
pub const SIZE: u64 = SLOTS * WORD;
/// Nodes on the longest way to a bucket: they use up all bits of a hash.
pub const LEVELS: u32 = 7;
/// Bit of a slot that points to a node.
pub const TO_NODE: u64 = 1;

/// What a slot, or a directory's root, leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// No entry has such a hash.
    Empty,
    /// The bucket at this offset.
    Bucket(Offset),
    /// The node at this offset.
    Node(Offset),
}

impl Slot {
    /// The slot's word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        match self {
            Slot::Empty => 0,
            Slot::Bucket(at) => pointer::pack(at, BUCKET),
            Slot::Node(at) => pointer::pack(at, NODE) | TO_NODE,
        }
    }

    /// The slot in `word`, if it is one.
    #[must_use]
    pub const fn unpack(word: u64) -> Option<Slot> {
        let is_node = word & TO_NODE != 0;
        let kind = if is_node { NODE } else { BUCKET };
        match pointer::unpack(word & !TO_NODE, kind) {
            Some(at) if at.is_none() => {
                if is_node {
                    None
                } else {
                    Some(Slot::Empty)
                }
            }
            Some(at) => Some(if is_node { Slot::Node(at) } else { Slot::Bucket(at) }),
            None => None,
        }
    }
}

/// The slot that `hash` chooses in a node of level `level`, which is below [`LEVELS`]; the root
/// node is of level 0.
#[must_use]
pub const fn slot_of(hash: u64, level: u32) -> u64 {
    // The last level would use one bit more than there are: it is 0.
    (hash << 1 >> (HASH_BITS + 1).saturating_sub(BITS * (level + 1))) & (SLOTS - 1)
}

/// Slots that a bucket of depth `depth` fills in a node of level `level`; 0 if it can't be there.
#[must_use]
pub const fn slots_filled(depth: u32, level: u32) -> u64 {
    let (least, most) = (BITS * level + 1, BITS * (level + 1));
    if depth < least || depth > most || depth > HASH_BITS { 0 } else { 1 << (most - depth) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_tell_what_they_lead_to() {
        for target in (1..1 << 18).map(|line| Offset::new(line * 64)) {
            for slot in [Slot::Bucket(target), Slot::Node(target)] {
                assert_eq!(Slot::unpack(slot.pack()), Some(slot));
            }
        }
        assert_eq!(Slot::unpack(0), Some(Slot::Empty));
        assert_eq!(Slot::unpack(TO_NODE), None);
        assert_eq!(Slot::unpack(Slot::Node(Offset::new(64)).pack() ^ 1 << 50), None);
    }

    #[test]
    fn the_levels_use_up_a_hash() {
        let hash = 0x8123_4567_89AB;
        let bits = (0..LEVELS).fold(0, |bits, level| bits << BITS | slot_of(hash, level));
        assert_eq!(bits, hash << 1);
    }

    #[test]
    fn buckets_fill_powers_of_two() {
        assert_eq!((slots_filled(0, 0), slots_filled(1, 0), slots_filled(7, 0)), (0, 64, 1));
        assert_eq!((slots_filled(7, 1), slots_filled(8, 1), slots_filled(15, 1)), (0, 64, 0));
        assert_eq!((slots_filled(48, 6), slots_filled(49, 6)), (2, 0));
    }
}
