//! A core's image and log on a volume.
//!
//! Blocks below are of 512 bytes, of the volume's space:
//!
//! | from block | what |
//! | --- | --- |
//! | 0 | the image: byte `x` of the region is byte `x` of the space |
//! | [`ROOT`] | the root, of [`ROOT_BYTES`] |
//! | [`LOG`] | the log: parts of epochs, each beginning with a unit of [`UNIT`] bytes |
//!
//! An *epoch* is what is made durable together: records between two cuts, and pages. It has one
//! part, or several that were written one after the other; the last of them is written together
//! with the root that counts it, and with pages of the image, so nothing of an epoch is ever there
//! without the rest. A part has a [`PartHeader`] and then a piece of the epoch's body:
//!
//! | in the body | |
//! | --- | --- |
//! | number of pages, a word | those that are in the log, not in the image |
//! | their offsets in the region, a word each | |
//! | their bytes | |
//! | fragments | to the end |

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum;
use crate::superblock::{Defect, RawSuperblock, SIZE, Superblock};

/// Block with the root.
pub const ROOT: u64 = 1 << 36;
/// Bytes of the root.
pub const ROOT_BYTES: usize = 4096;
/// First block of the log.
pub const LOG: u64 = 1 << 37;
/// Bytes of which parts of epochs are a multiple.
pub const UNIT: u64 = 4096;
/// The first eight bytes of a root: "CONQROOT".
pub const ROOT_MAGIC: [u8; 8] = *b"CONQROOT";
/// The first eight bytes of a part of an epoch: "CONQPART".
pub const PART_MAGIC: [u8; 8] = *b"CONQPART";
/// The version of image and log that this crate describes.
pub const IMAGE_VERSION: u32 = 1;
/// Bytes of a part's header.
pub const PART_HEADER: usize = 64;
/// Where the region's superblock is in the root.
pub const ROOT_SUPERBLOCK: usize = 1024;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRoot {
    magic: [u8; 8],
    version: U32,
    reserved_word: U32,
    epoch: U64,
    cut: U64,
    log_start: U64,
    log_end: U64,
    checkpoint: U64,
    incarnation: U64,
    reserved: [u8; ROOT_SUPERBLOCK - 64],
    superblock: [u8; SIZE],
    reserved_end: [u8; ROOT_BYTES - ROOT_SUPERBLOCK - SIZE - 8],
    checksum: U64,
}

const _: () = assert!(size_of::<RawRoot>() == ROOT_BYTES);

/// The root: which epoch is the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its number; 0 if there was none.
    pub epoch: u64,
    /// Below which number the region's records are there.
    pub cut: u64,
    /// Blocks from [`LOG`] on at which the log begins that is needed, and ends.
    pub log_start: u64,
    /// Where it ends.
    pub log_end: u64,
    /// From which record on the log is needed, but for those that the last checkpoint has repeated.
    pub checkpoint: u64,
    /// Times that the region was made again of this: only the one that was made last goes on.
    pub incarnation: u64,
    /// What the region is.
    pub superblock: Superblock,
}

/// Why a root, or a part of an epoch, is not usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageDefect {
    /// There is none.
    Magic,
    /// Another version.
    Version(u32),
    /// The checksum does not match: expected and found.
    Checksum(u64, u64),
    /// A field that can't be, at this offset, with this value.
    Field(u64, u64),
    /// The region's superblock in it.
    Superblock(Defect),
}

impl Root {
    /// The root's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ROOT_BYTES] {
        let mut raw = RawRoot {
            magic: ROOT_MAGIC,
            version: IMAGE_VERSION.into(),
            reserved_word: 0.into(),
            epoch: self.epoch.into(),
            cut: self.cut.into(),
            log_start: self.log_start.into(),
            log_end: self.log_end.into(),
            checkpoint: self.checkpoint.into(),
            incarnation: self.incarnation.into(),
            reserved: [0; ROOT_SUPERBLOCK - 64],
            superblock: self.superblock.to_raw().to_bytes(),
            reserved_end: [0; ROOT_BYTES - ROOT_SUPERBLOCK - SIZE - 8],
            checksum: 0.into(),
        };
        raw.checksum = sum(raw.as_bytes()).into();
        zerocopy::transmute!(raw)
    }

    /// The root in `bytes`, checked.
    ///
    /// # Errors
    /// The first [`ImageDefect`].
    pub fn from_bytes(bytes: &[u8; ROOT_BYTES]) -> Result<Root, ImageDefect> {
        let raw: RawRoot = zerocopy::transmute!(*bytes);
        if raw.magic != ROOT_MAGIC {
            return Err(ImageDefect::Magic);
        }
        if raw.version.get() != IMAGE_VERSION {
            return Err(ImageDefect::Version(raw.version.get()));
        }
        if sum(bytes) != raw.checksum.get() {
            return Err(ImageDefect::Checksum(sum(bytes), raw.checksum.get()));
        }
        let superblock = RawSuperblock::from_bytes(&raw.superblock).check();
        let superblock = superblock.map_err(ImageDefect::Superblock)?;
        let root = Root {
            epoch: raw.epoch.get(),
            cut: raw.cut.get(),
            log_start: raw.log_start.get(),
            log_end: raw.log_end.get(),
            checkpoint: raw.checkpoint.get(),
            incarnation: raw.incarnation.get(),
            superblock,
        };
        let is_log = root.log_start <= root.log_end && root.log_end < LOG;
        match is_log && root.checkpoint <= root.cut {
            true => Ok(root),
            false => Err(ImageDefect::Field(40, root.log_end)),
        }
    }
}

/// The checksum of all but the last eight bytes.
fn sum(bytes: &[u8]) -> u64 {
    checksum(0, bytes.get(..bytes.len().saturating_sub(8)).unwrap_or_default())
}

/// What stands in front of a part of an epoch.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct RawPart {
    magic: [u8; 8],
    epoch: U64,
    part: U32,
    parts: U32,
    bytes: U64,
    from: U64,
    cut: U64,
    reserved: U64,
    checksum: U64,
}

const _: () = assert!(size_of::<RawPart>() == PART_HEADER);

/// What stands in front of a part of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHeader {
    /// The epoch.
    pub epoch: u64,
    /// Which part, and of how many.
    pub part: u32,
    /// How many.
    pub parts: u32,
    /// Bytes of the body in it.
    pub bytes: u64,
    /// The epoch's first record, and the one behind its last.
    pub from: u64,
    /// The one behind its last.
    pub cut: u64,
}

impl PartHeader {
    fn raw(self) -> RawPart {
        RawPart {
            magic: PART_MAGIC,
            epoch: self.epoch.into(),
            part: self.part.into(),
            parts: self.parts.into(),
            bytes: self.bytes.into(),
            from: self.from.into(),
            cut: self.cut.into(),
            reserved: 0.into(),
            checksum: 0.into(),
        }
    }

    /// Completes `part`, which is room for a header and its body: the header, and zeros up to a
    /// whole unit.
    pub fn complete(self, part: &mut Vec<u8>) {
        let mut raw = self.raw();
        let room = PART_HEADER.min(part.len());
        let (room, body) = part.split_at_mut(room);
        raw.checksum = checksum(sum(raw.as_bytes()), body).into();
        room.copy_from_slice(raw.as_bytes().get(..room.len()).unwrap_or_default());
        part.resize(part.len().next_multiple_of(UNIT as usize), 0);
    }

    /// The header of the part that begins with `bytes`, whose body is not looked at.
    ///
    /// # Errors
    /// [`ImageDefect::Magic`], [`ImageDefect::Field`].
    pub fn from_bytes(bytes: &[u8; PART_HEADER]) -> Result<(PartHeader, u64), ImageDefect> {
        let raw: RawPart = zerocopy::transmute!(*bytes);
        if raw.magic != PART_MAGIC {
            return Err(ImageDefect::Magic);
        }
        let header = PartHeader {
            epoch: raw.epoch.get(),
            part: raw.part.get(),
            parts: raw.parts.get(),
            bytes: raw.bytes.get(),
            from: raw.from.get(),
            cut: raw.cut.get(),
        };
        if header.part >= header.parts || header.bytes > LOG {
            return Err(ImageDefect::Field(16, header.part.into()));
        }
        Ok((header, raw.checksum.get()))
    }

    /// Whether `body` is what goes with this header, of which `found` is the checksum.
    ///
    /// # Errors
    /// [`ImageDefect::Checksum`].
    pub fn check(self, body: &[u8], found: u64) -> Result<(), ImageDefect> {
        let expected = checksum(sum(self.raw().as_bytes()), body);
        if expected == found { Ok(()) } else { Err(ImageDefect::Checksum(expected, found)) }
    }

    /// Blocks that the part has on the volume.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        (PART_HEADER as u64 + self.bytes).next_multiple_of(UNIT) / 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Shape;
    use crate::kind::{KINDS, KindSpec};
    use crate::superblock::{LIVE_PROTOCOL, LOGGED};

    fn root() -> Root {
        Root {
            epoch: 3,
            cut: 9,
            log_start: 8,
            log_end: 16,
            checkpoint: 4,
            incarnation: 2,
            superblock: Superblock {
                uuid: [7; 16],
                boot_id: [8; 16],
                created: 9,
                sequence: 10,
                attach_generation: 11,
                clean: true,
                shape: Shape { max_groups: 4, lanes: 2, slots: 2, locks: 64, chunks: 2, log: 4 },
                kinds: [KindSpec::UNUSED; KINDS],
                live_protocol: LIVE_PROTOCOL,
                features_compatible: 0,
                features_read_only: 0,
                features_incompatible: LOGGED,
            },
        }
    }

    #[test]
    fn roots_round_trip_and_every_flipped_bit_is_found() {
        let bytes = root().to_bytes();
        assert_eq!(Root::from_bytes(&bytes), Ok(root()));
        for at in 0..ROOT_BYTES {
            for bit in 0..8 {
                let mut bad = bytes;
                bad[at] ^= 1 << bit;
                assert!(Root::from_bytes(&bad).is_err(), "{at}.{bit}");
            }
        }
        assert_eq!(Root::from_bytes(&[0; ROOT_BYTES]), Err(ImageDefect::Magic));
        for bad in [Root { log_start: 17, ..root() }, Root { checkpoint: 10, ..root() }] {
            assert!(matches!(Root::from_bytes(&bad.to_bytes()), Err(ImageDefect::Field(..))));
        }
    }

    #[test]
    fn parts_round_trip_and_every_flipped_bit_is_found() {
        let body = [5; 100];
        let header = PartHeader { epoch: 4, part: 1, parts: 2, bytes: 100, from: 3, cut: 7 };
        let mut bytes = [&[0; PART_HEADER][..], &body].concat();
        header.complete(&mut bytes);
        assert_eq!((bytes.len() as u64, header.blocks()), (UNIT, UNIT / 512));
        let is_right = |bytes: &[u8]| {
            let first = bytes.first_chunk().unwrap();
            PartHeader::from_bytes(first).is_ok_and(|(found, sum)| {
                let body = bytes.get(PART_HEADER..PART_HEADER + found.bytes as usize);
                body.is_some_and(|body| found.check(body, sum).is_ok())
            })
        };
        assert!(is_right(&bytes));
        for at in (0..PART_HEADER + body.len()).filter(|at| !(48..56).contains(at)) {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(!is_right(&bad), "{at}.{bit}");
            }
        }
    }
}
