//! The change feed: a ring for each lane, with batches of notices.
//!
//! A batch stands at a *position*: words told by the lane so far, in 64 bits. Position `p` is word
//! `p % RING_WORDS` of the ring. What notices say is the business of the layer above.
//!
//! | word of a batch | bits | field |
//! | --- | --- | --- |
//! | 0 | 0..16 | words, these two included |
//! | 0 | 16..26 | slot of the process that told it, plus one; 0 for nobody |
//! | 0 | 32..64 | low half of the position |
//! | 1 | 0..48 | version that the change has given its locks |
//! | 2 and up | | notices |

/// Bytes of a lane's ring.
pub const RING: u64 = 16_384;
/// Words of a lane's ring.
pub const RING_WORDS: u64 = RING / crate::WORD;
/// Words of a batch before its notices.
pub const BATCH_HEADER: u64 = 2;
/// Most words of a batch: a quarter of a ring.
pub const BATCH_MAX: u64 = 512;

/// The beginning of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Words, the header included.
    pub words: u64,
    /// The slot of the process that told it; none for nobody.
    pub slot: Option<u32>,
    /// The version that the change has given its locks.
    pub version: u64,
}

impl BatchHeader {
    /// Its words, for a batch at `position`.
    #[must_use]
    pub const fn pack(&self, position: u64) -> [u64; BATCH_HEADER as usize] {
        let slot = match self.slot {
            Some(slot) => slot as u64 + 1,
            None => 0,
        };
        let place = (position & 0xFFFF_FFFF) << 32;
        [place | (slot & 0x3FF) << 16 | self.words & 0xFFFF, self.version]
    }

    /// The header in `words`, if they are one of a batch at `position`.
    #[must_use]
    pub const fn unpack(words: [u64; BATCH_HEADER as usize], position: u64) -> Option<Self> {
        let [first, version] = words;
        let slot = (first >> 16 & 0xFFFF) as u32;
        let header = BatchHeader { words: first & 0xFFFF, slot: slot.checked_sub(1), version };
        let is_possible = first >> 32 == position & 0xFFFF_FFFF
            && header.words > BATCH_HEADER
            && header.words <= BATCH_MAX
            && slot <= crate::volatile::slot::MAX
            && version >> crate::volatile::VERSION_BITS == 0;
        if is_possible { Some(header) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_where_it_stands() {
        let position = 0x1_2345_6789_ABCD;
        for slot in [None, Some(0), Some(1022)] {
            let header = BatchHeader { words: 7, slot, version: 10 };
            assert_eq!(BatchHeader::unpack(header.pack(position), position), Some(header));
            assert_eq!(BatchHeader::unpack(header.pack(position), position + 1), None);
        }
        let bad = |words, version| BatchHeader { words, slot: None, version }.pack(0);
        assert_eq!(BatchHeader::unpack(bad(BATCH_HEADER, 2), 0), None);
        assert_eq!(BatchHeader::unpack(bad(BATCH_MAX + 1, 2), 0), None);
        assert_eq!(BatchHeader::unpack(bad(BATCH_MAX, 1 << 48), 0), None);
        assert!(BatchHeader::unpack(bad(BATCH_MAX, 2), 0).is_some());
        assert_eq!(BatchHeader::unpack([3 | 1024 << 16, 2], 0), None);
    }
}
