//! A dentry: what a bucket holds of one entry.
//!
//! It begins at a granule. The first granule is two words, the name follows, padded with zeros to
//! whole granules.
//!
//! | word | bits | field |
//! | --- | --- | --- |
//! | 0 | 0..64 | pointer word to the inode |
//! | 1 | 0..4 | dup: tells entries of the same hash apart |
//! | 1 | 4..8 | file type |
//! | 1 | 8..16 | bytes of the name, 1 to 255 |
//! | 1 | 16..64 | hash: the top 48 bits of the name's keyed hash |

use crate::fs::INODE;
use crate::fs::bucket::GRANULE;
pub use crate::inode::FileType;
use crate::{Offset, pointer};

/// Bits of a name's hash that are used.
pub const HASH_BITS: u32 = 48;
/// Bits of a position below the hash.
pub const DUP_BITS: u32 = 4;
/// Entries that can have the same hash.
pub const DUPS: u64 = 16;
/// Bytes of the longest name.
pub const NAME_MAX: u64 = 255;
/// Granules of the largest dentry.
pub const GRANULES_MAX: u64 = 17;

/// Where an entry stands among those of its directory: 52 bits, the same from its insertion to its
/// removal. Listings go by it, and it is what `telldir` tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(u64);

impl Position {
    /// Before every entry, or at the first one.
    pub const START: Position = Position(0);

    /// The position of entry `dup` of hash `hash`; higher bits of both are ignored.
    #[must_use]
    pub const fn new(hash: u64, dup: u64) -> Position {
        let hash = hash & ((1 << HASH_BITS) - 1);
        Position(hash << DUP_BITS | dup & (DUPS - 1))
    }

    /// The position of number `number`, if there is one.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Position> {
        if number >> (HASH_BITS + DUP_BITS) == 0 { Some(Position(number)) } else { None }
    }

    /// Its number, below 2^52.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The hash of the name there.
    #[must_use]
    pub const fn hash(self) -> u64 {
        self.0 >> DUP_BITS
    }

    /// What tells it from others of the same hash.
    #[must_use]
    pub const fn dup(self) -> u64 {
        self.0 & (DUPS - 1)
    }

    /// The position after it, if there is one.
    #[must_use]
    pub const fn next(self) -> Option<Position> {
        Position::from_number(self.0 + 1)
    }
}

/// A dentry without its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dentry {
    /// The inode's offset.
    pub inode: Offset,
    /// The type of what the inode is.
    pub file_type: FileType,
    /// Where the entry stands.
    pub position: Position,
    /// Bytes of the name.
    pub name_len: u8,
}

impl Dentry {
    /// The dentry's two words.
    #[must_use]
    pub const fn pack(self) -> [u64; 2] {
        let name_len = (self.name_len as u64) << 8;
        let low = self.position.dup() | (self.file_type as u64) << DUP_BITS | name_len;
        [pointer::pack(self.inode, INODE), low | self.position.hash() << 16]
    }

    /// The dentry in two words, if it is one.
    #[must_use]
    pub const fn unpack(words: [u64; 2]) -> Option<Dentry> {
        let [inode, word] = words;
        let name_len = (word >> 8) as u8;
        match (pointer::unpack(inode, INODE), FileType::new((word >> DUP_BITS) as u8 & 15)) {
            (Some(inode), Some(file_type)) if !inode.is_none() && name_len != 0 => {
                Some(Dentry { inode, file_type, position: position_of(word), name_len })
            }
            _ => None,
        }
    }
}

/// The hash in a dentry's second word.
#[must_use]
pub const fn hash_of(word: u64) -> u64 {
    word >> 16
}

/// The position in a dentry's second word.
#[must_use]
pub const fn position_of(word: u64) -> Position {
    Position::new(hash_of(word), word)
}

/// The length of the name in a dentry's second word, in bytes.
#[must_use]
pub const fn name_len_of(word: u64) -> u64 {
    word >> 8 & 0xFF
}

/// Granules of a dentry whose name has `name_len` bytes.
#[must_use]
pub const fn granules(name_len: u64) -> u64 {
    1 + name_len.div_ceil(GRANULE)
}

/// Whether `name` can be an entry's: 1 to [`NAME_MAX`] bytes, no NUL and no slash.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let fits = !name.is_empty() && name.len() as u64 <= NAME_MAX;
    fits && !name.contains(&0) && !name.contains(&b'/')
}

const _: () = assert!(granules(NAME_MAX) == GRANULES_MAX && 1 << DUP_BITS == DUPS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dentries_pack_and_unpack() {
        let position = Position::new(0x1234_5678_9ABC, 5);
        let inode = Offset::new(0x40_0080);
        let dentry = Dentry { inode, file_type: FileType::Regular, position, name_len: 9 };
        let [first, second] = dentry.pack();
        assert_eq!(second, 0x1234_5678_9ABC_0985);
        assert_eq!(Dentry::unpack([first, second]), Some(dentry));
        assert_eq!((hash_of(second), name_len_of(second)), (0x1234_5678_9ABC, 9));
        let bad = [
            [first ^ 64, second],
            [0, second],
            [first, second & !0xFF00],
            [first, second & !0xF0],
            [first, second | 0xF0],
        ];
        for words in bad {
            assert_eq!(Dentry::unpack(words), None, "{words:x?}");
        }
    }

    #[test]
    fn positions_are_ordered_by_hash_and_then_dup() {
        let last = Position::new(u64::MAX, u64::MAX);
        assert_eq!((last.number(), last.next()), ((1 << 52) - 1, None));
        assert_eq!(Position::from_number(1 << 52), None);
        assert_eq!(Position::new(7, 15).next(), Some(Position::new(8, 0)));
        assert!(Position::START < Position::new(0, 1));
        assert_eq!((last.hash(), last.dup()), ((1 << 48) - 1, 15));
    }

    #[test]
    fn types_are_those_of_readdir() {
        let known: Vec<u8> = (0..=255).filter(|&n| FileType::new(n).is_some()).collect();
        assert_eq!(known, [1, 2, 4, 6, 8, 10, 12]);
        assert!(known.iter().all(|&n| FileType::new(n).unwrap() as u8 == n));
    }

    #[test]
    fn names_are_what_posix_says() {
        assert!(is_name(b"a") && is_name(&[b'x'; 255]) && is_name(&[0xFF, b' ', b'\n']));
        for bad in [&b""[..], b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(!is_name(bad));
        }
        assert_eq!((granules(1), granules(16), granules(17), granules(255)), (2, 2, 3, 17));
    }
}
