//! The label of a chunk: whose data is in it, for when the core is lost.
//!
//! The volume of a core whose records are durable at once has no image of that: large files are
//! there, and only the core says which one is where. So each chunk says whose it is, in its last
//! page, which no file comes to ([`file_max`](crate::fs::chunk::file_max)). Nothing but looking for
//! files without their core reads it. It is written with what moves the end of a file, and trimmed
//! with the chunk.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum;
use crate::image::ImageDefect;

/// Bytes of a label.
pub const LABEL_BYTES: usize = 4096;
/// The first eight bytes of a label: "CONQFILE".
pub const LABEL_MAGIC: [u8; 8] = *b"CONQFILE";
/// The version of labels that this crate describes.
pub const LABEL_VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLabel {
    magic: [u8; 8],
    version: U32,
    reserved_word: U32,
    region: [u8; 16],
    chunk: U64,
    inode: U64,
    generation: U64,
    size: U64,
    end: U64,
    reserved: [u8; LABEL_BYTES - 80],
    checksum: U64,
}

const _: () = assert!(size_of::<RawLabel>() == LABEL_BYTES);

/// Whose data is in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// The region's identity.
    pub region: [u8; 16],
    /// Number of the chunk.
    pub chunk: u64,
    /// Number of the file's inode.
    pub inode: u64,
    /// Generation of that inode.
    pub generation: u64,
    /// Bytes of the file, when it was written. What is written in front of the end later may make
    /// the file longer.
    pub size: u64,
    /// Pages of the file of which the volume is asked.
    pub end: u64,
}

impl Label {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LABEL_BYTES] {
        let mut raw = RawLabel {
            magic: LABEL_MAGIC,
            version: LABEL_VERSION.into(),
            reserved_word: 0.into(),
            region: self.region,
            chunk: self.chunk.into(),
            inode: self.inode.into(),
            generation: self.generation.into(),
            size: self.size.into(),
            end: self.end.into(),
            reserved: [0; LABEL_BYTES - 80],
            checksum: 0.into(),
        };
        let (covered, _) = raw.as_bytes().split_at(LABEL_BYTES - 8);
        raw.checksum = checksum(0, covered).into();
        let mut bytes = [0; LABEL_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The label in `bytes`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn from_bytes(bytes: &[u8; LABEL_BYTES]) -> Result<Label, ImageDefect> {
        let raw = RawLabel::read_from_bytes(bytes).map_err(|_| ImageDefect::Magic)?;
        if raw.magic != LABEL_MAGIC {
            return Err(ImageDefect::Magic);
        }
        if raw.version.get() != LABEL_VERSION {
            return Err(ImageDefect::Version(raw.version.get()));
        }
        let (covered, _) = bytes.split_at(LABEL_BYTES - 8);
        let expected = checksum(0, covered);
        if raw.checksum.get() != expected {
            return Err(ImageDefect::Checksum(expected, raw.checksum.get()));
        }
        Ok(Label {
            region: raw.region,
            chunk: raw.chunk.get(),
            inode: raw.inode.get(),
            generation: raw.generation.get(),
            size: raw.size.get(),
            end: raw.end.get(),
        })
    }
}

/// The block of the volume's space with the label of chunk `number`, of chunks of `blocks` blocks.
#[must_use]
pub const fn label_block(number: u64, blocks: u64) -> u64 {
    (number + 1) * blocks - crate::PAGE / crate::volume::BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip_and_every_flipped_bit_is_noticed() {
        let label = Label {
            region: *b"the region\0\0\0\0\0\0",
            chunk: 70,
            inode: 5,
            generation: 1 << 48 | 9,
            size: 1_234_567,
            end: 302,
        };
        let bytes = label.to_bytes();
        assert_eq!(Label::from_bytes(&bytes), Ok(label));
        assert_eq!(bytes.first_chunk(), Some(b"CONQFILE"));
        assert_eq!(bytes[16..32], label.region);
        for (at, value) in [(32, 70), (40, 5), (48, 1 << 48 | 9), (56, 1_234_567), (64, 302)] {
            assert_eq!(bytes[at..at + 8], u64::to_le_bytes(value), "{at}");
        }
        for bit in 0..LABEL_BYTES * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(Label::from_bytes(&other).is_err(), "bit {bit}");
        }
        assert_eq!(Label::from_bytes(&[0; LABEL_BYTES]), Err(ImageDefect::Magic));
    }

    #[test]
    fn a_label_is_in_the_last_page_of_its_chunk() {
        assert_eq!(label_block(64, 1 << 32), (65 << 32) - 8);
        assert_eq!(label_block(8, 1 << 35), (9 << 35) - 8);
    }
}
