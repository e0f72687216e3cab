//! The mark of a volume that has the large files of a region, and not its image.
//!
//! The region has the same one in its [roots](crate::fs::root). It is another one after each time
//! in which they were used, so a copy that is older than the other side is found out.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum;
use crate::image::ImageDefect;

/// Block of the volume's space with the mark, where otherwise an image has its root.
pub const MARK: u64 = crate::image::ROOT;
/// Bytes of the mark.
pub const MARK_BYTES: usize = 4096;
/// The first eight bytes of a mark: "CONQMARK".
pub const MARK_MAGIC: [u8; 8] = *b"CONQMARK";
/// The version of marks that this crate describes.
pub const MARK_VERSION: u32 = 2;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMark {
    magic: [u8; 8],
    version: U32,
    reserved_word: U32,
    region: [u8; 16],
    number: U64,
    chunk_blocks: U64,
    reserved: [u8; MARK_BYTES - 56],
    checksum: U64,
}

const _: () = assert!(size_of::<RawMark>() == MARK_BYTES);

/// Whose volume it is, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The region's identity.
    pub region: [u8; 16],
    /// The low half of the attach generation in which it was given, above a random number.
    pub number: u64,
    /// Blocks of a chunk, as the region says as well: so that what large files are there is seen
    /// without it, by their [labels](crate::label).
    pub chunk_blocks: u64,
}

impl Mark {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MARK_BYTES] {
        let mut raw = RawMark {
            magic: MARK_MAGIC,
            version: MARK_VERSION.into(),
            reserved_word: 0.into(),
            region: self.region,
            number: self.number.into(),
            chunk_blocks: self.chunk_blocks.into(),
            reserved: [0; MARK_BYTES - 56],
            checksum: 0.into(),
        };
        let (covered, _) = raw.as_bytes().split_at(MARK_BYTES - 8);
        raw.checksum = checksum(0, covered).into();
        let mut bytes = [0; MARK_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The mark in `bytes`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn from_bytes(bytes: &[u8; MARK_BYTES]) -> Result<Mark, ImageDefect> {
        let raw = RawMark::read_from_bytes(bytes).map_err(|_| ImageDefect::Magic)?;
        if raw.magic != MARK_MAGIC {
            return Err(ImageDefect::Magic);
        }
        if raw.version.get() != MARK_VERSION {
            return Err(ImageDefect::Version(raw.version.get()));
        }
        let (covered, _) = bytes.split_at(MARK_BYTES - 8);
        let expected = checksum(0, covered);
        if raw.checksum.get() != expected {
            return Err(ImageDefect::Checksum(expected, raw.checksum.get()));
        }
        let (number, chunk_blocks) = (raw.number.get(), raw.chunk_blocks.get());
        Ok(Mark { region: raw.region, number, chunk_blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_round_trip_and_every_flipped_bit_is_noticed() {
        let region = *b"the region\0\0\0\0\0\0";
        let mark = Mark { region, number: 0x0123_4567_89AB_CDEF, chunk_blocks: 1 << 35 };
        let bytes = mark.to_bytes();
        assert_eq!(Mark::from_bytes(&bytes), Ok(mark));
        assert_eq!(bytes.first_chunk(), Some(b"CONQMARK"));
        assert_eq!(bytes[16..32], mark.region);
        assert_eq!(bytes[32..40], mark.number.to_le_bytes());
        assert_eq!(bytes[40..48], mark.chunk_blocks.to_le_bytes());
        for bit in 0..MARK_BYTES * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(Mark::from_bytes(&other).is_err(), "bit {bit}");
        }
        assert_eq!(Mark::from_bytes(&[0; MARK_BYTES]), Err(ImageDefect::Magic));
    }
}
