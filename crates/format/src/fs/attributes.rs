//! Extended attributes of a file: a header, then one item after the other.
//!
//! The inode's word for them is a pointer word. Objects and pages leave its low six bits free; they
//! say of which class of packed contents the object is, plus one, or are 0 for a run.

use crate::checksum;

/// Bits of an inode's word that say what it points to.
pub const CLASS: u64 = 0x3F;
/// Bytes in the header.
pub const HEADER: u64 = 16;
/// Bytes of an item before its name.
pub const ITEM: u64 = 8;
/// Most bytes of all attributes of a file together, header included.
pub const BYTES_MAX: u64 = 1 << 21;
/// Most bytes in a value.
pub const VALUE_MAX: u64 = 1 << 16;

/// The header: two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes in all.
    pub len: u64,
    /// Checksum of the bytes after the header, with the length as seed.
    pub checksum: u64,
}

impl Header {
    /// The header that `bytes` should have, which are header and items.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Header {
        let len = bytes.len() as u64;
        let items = bytes.get(HEADER as usize..).unwrap_or_default();
        Header { len, checksum: checksum(len, items) }
    }

    /// The words.
    #[must_use]
    pub const fn pack(self) -> [u64; 2] {
        [self.len, self.checksum]
    }
}

/// What stands before a name and a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// Bytes of the name, bits 32..40.
    pub name: u64,
    /// Bytes of the value, bits 0..32.
    pub value: u64,
}

impl Item {
    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.value & 0xFFFF_FFFF | (self.name & 0xFF) << 32
    }

    /// The item in `word`; every word is one.
    #[must_use]
    pub const fn unpack(word: u64) -> Item {
        Item { name: word >> 32 & 0xFF, value: word & 0xFFFF_FFFF }
    }
}
