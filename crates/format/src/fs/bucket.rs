//! A bucket: a page of a directory that holds the entries of one range of name hashes.
//!
//! A bucket has 256 granules. The first are its header and one tag byte for each granule; the rest
//! hold dentries. What no tag marks as used means nothing.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..8 | [`Header`] |
//! | 8..16 | reserved |
//! | 16..256 | tag of granule `g` at byte `g` |
//! | 256..4096 | granules 16 to 255 |
//!
//! The header's word:
//!
//! | bits | field |
//! | --- | --- |
//! | 0..48 | prefix: the hash bits that lead here, from bit 47 down; the other bits are 0 |
//! | 48..56 | depth: how many bits these are |
//! | 56..64 | [`MARK`] |

use crate::fs::dentry::HASH_BITS;

/// Bytes in a granule.
pub const GRANULE: u64 = 16;
/// Granules in a bucket.
pub const GRANULES: u64 = 256;
/// The first granule that can hold a dentry: those before it are the header and the tags.
pub const FIRST: u64 = 16;
/// Offset of the header in the page.
pub const HEADER: u64 = 0;
/// The high byte of every header: an empty page is no bucket.
pub const MARK: u64 = 0xB7;

/// Tag of a granule that nothing is in.
pub const TAG_FREE: u8 = 0;
/// Tag of a dentry's granules but the first.
pub const TAG_MORE: u8 = 1;
/// The least tag of a dentry's first granule.
pub const TAG_DENTRY: u8 = 2;
/// How many different tags dentries have.
pub const TAGS: u64 = 254;

/// The tag of a dentry whose name's hash is `hash`: a fingerprint of the 16 bits that choose a
/// bucket last.
#[must_use]
pub const fn tag(hash: u64) -> u8 {
    TAG_DENTRY + ((hash & 0xFFFF) % TAGS) as u8
}

/// Which hashes a bucket holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    depth: u32,
    prefix: u64,
}

impl Header {
    /// The header of the bucket that holds the hashes whose first `depth` bits are those of `hash`;
    /// depths above [`HASH_BITS`] count as that.
    #[must_use]
    pub const fn new(depth: u32, hash: u64) -> Header {
        let depth = if depth < HASH_BITS { depth } else { HASH_BITS };
        let rest = HASH_BITS - depth;
        let prefix = hash & ((1 << HASH_BITS) - 1) & !((1 << rest) - 1);
        Header { depth, prefix }
    }

    /// The hash bits that lead to the bucket.
    #[must_use]
    pub const fn depth(self) -> u32 {
        self.depth
    }

    /// The first hash of the bucket.
    #[must_use]
    pub const fn first(self) -> u64 {
        self.prefix
    }

    /// The hash after the bucket's last one.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.prefix + (1 << (HASH_BITS - self.depth))
    }

    /// Whether `hash` belongs into the bucket.
    #[must_use]
    pub const fn covers(self, hash: u64) -> bool {
        self.prefix <= hash && hash < self.end()
    }

    /// The header's word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.prefix | (self.depth as u64) << HASH_BITS | MARK << 56
    }

    /// The header in `word`, if it is one.
    #[must_use]
    pub const fn unpack(word: u64) -> Option<Header> {
        let depth = word >> HASH_BITS & 0xFF;
        let header = Header::new(depth as u32, word);
        if header.pack() == word { Some(header) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_pack_and_cover_their_range() {
        let hash = 0xABCD_EF01_2345;
        for depth in 0..=HASH_BITS {
            let header = Header::new(depth, hash);
            assert_eq!(Header::unpack(header.pack()), Some(header));
            assert!(header.covers(hash) && header.covers(header.first()));
            assert!(header.covers(header.end() - 1) && !header.covers(header.end()));
            assert!(depth == 0 || !header.covers(hash ^ 1 << (HASH_BITS - depth)));
        }
        assert_eq!(Header::new(99, hash), Header::new(48, hash));
        assert_eq!(Header::new(8, hash).pack(), 0xB708_AB00_0000_0000);
    }

    #[test]
    fn other_words_are_no_headers() {
        let good = Header::new(8, 0xAB << 40).pack();
        let beyond = good & !(0xFF << 48) | 49 << 48;
        for bad in [0, u64::MAX, good | 1, good ^ 1 << 56, beyond] {
            assert_eq!(Header::unpack(bad), None, "{bad:#x}");
        }
    }

    #[test]
    fn tags_tell_dentries_from_the_rest() {
        assert_eq!((tag(0), tag(253), tag(254)), (2, 255, 2));
        assert!((0..1 << 16).all(|hash| tag(hash) >= TAG_DENTRY));
    }
}
