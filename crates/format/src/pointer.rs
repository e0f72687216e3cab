//! Pointer words: how one object names another.
//!
//! Bits 0..48 are the target's offset; bits 48..64 are [`check16`] of the offset at
//! the target's kind plus one. The word 0 is "none". So a stray word, or a pointer to an object of
//! another kind, is refused before it is followed.

use crate::kind::Kind;
use crate::{Offset, check16};

const OFFSET_MASK: u64 = (1 << 48) - 1;

/// The word that points to an object of `kind` at `target`.
#[must_use]
pub const fn pack(target: Offset, kind: Kind) -> u64 {
    if target.is_none() {
        return 0;
    }
    let offset = target.bytes() & OFFSET_MASK;
    offset | (check16(offset, kind.number() as u64 + 1) as u64) << 48
}

/// The target of a pointer word to an object of `kind`, [`Offset::NONE`] for 0; none if the check
/// bits don't match.
#[must_use]
pub const fn unpack(word: u64, kind: Kind) -> Option<Offset> {
    if word == 0 {
        return Some(Offset::NONE);
    }
    let target = Offset::new(word & OFFSET_MASK);
    if !target.is_none() && pack(target, kind) == word { Some(target) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_good_for_its_kind_only() {
        let (a, b) = (Kind::new(1).unwrap(), Kind::new(2).unwrap());
        let target = Offset::new(0x12_3456_7840);
        assert_eq!(unpack(pack(target, a), a), Some(target));
        assert_eq!(unpack(pack(target, a), b), None);
        assert_eq!(unpack(pack(target, a) ^ 0x40, a), None);
        assert_eq!(unpack(0, a), Some(Offset::NONE));
        assert_eq!(pack(Offset::NONE, a), 0);
    }
}
