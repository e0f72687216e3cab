//! A saved copy: the part of a region that is in use, in a file.
//!
//! ```text
//! header | chunk: settings | chunk: region | ... | chunk: large file | ... | trailer
//! ```
//!
//! Each checksum has the one before it as seed, so that the last one covers everything, and a file
//! that was cut off anywhere can be checked as far as it goes, and continued.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum;
use crate::geometry::{Geometry, Shape};

/// The first eight bytes of a saved copy.
pub const MAGIC: [u8; 8] = *b"CONQSAVE";
/// The first four bytes of a chunk.
pub const CHUNK_MAGIC: [u8; 4] = *b"CHNK";
/// The first eight bytes of the trailer.
pub const TRAILER_MAGIC: [u8; 8] = *b"CONQDONE";
/// The version of saved copies that this crate describes.
pub const SAVED_VERSION: u32 = 2;
/// The oldest version that can be read: without large files, and what is said of them is 0.
pub const SAVED_VERSION_LEAST: u32 = 1;
/// Bytes of the header.
pub const HEADER: usize = 4096;
/// Bytes of a chunk before its data.
pub const CHUNK: usize = 64;
/// Bytes of the trailer.
pub const TRAILER: usize = 64;
/// Most bytes of data in a chunk.
pub const DATA_MAX: u64 = 1 << 20;
/// Part of a store that is included: its core.
pub const INCLUDES_CORE: u32 = 1;
/// Part of a store that is included: what its volume has of large files.
pub const INCLUDES_LARGE: u32 = 2;
/// Kind of a chunk: the text of `store.toml`.
pub const KIND_SETTINGS: u32 = 1;
/// Kind of a chunk: bytes of the region.
pub const KIND_REGION: u32 = 2;
/// Kind of a chunk: bytes of a large file, as the volume has them.
pub const KIND_LARGE: u32 = 3;
/// What the trailer says of a copy with nothing missing.
pub const COMPLETE: u32 = 0x444F_4E45;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    included: U32,
    region: [u8; 16],
    store: [u8; 16],
    incarnation: [u8; 16],
    saved_at: U64,
    sequence: U64,
    attach_generation: U64,
    max_groups: U64,
    lanes: U32,
    slots: U32,
    locks: U32,
    data_max: U32,
    groups: U64,
    region_len: U64,
    chunks: U64,
    bytes: U64,
    holding_chunks: U32,
    holding_chunks_max: U32,
    log_chunks: U32,
    reserved_word: U32,
    large_files: U64,
    large_chunks: U64,
    large_bytes: U64,
    volume_bytes: U64,
    reserved: [u8; 3896],
    checksum: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawChunk {
    magic: [u8; 4],
    kind: U32,
    number: U64,
    at: U64,
    len: U64,
    file: U64,
    reserved: [u8; 16],
    checksum: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTrailer {
    magic: [u8; 8],
    chunks: U64,
    bytes: U64,
    state: U32,
    reserved: [u8; 28],
    checksum: U64,
}

impl RawHeader {
    /// What it says of a region of this `shape`.
    fn header(&self, shape: Shape) -> Header {
        // Reserved bytes of older versions say nothing.
        let since_2 = |field: U64| if self.version.get() < 2 { 0 } else { field.get() };
        Header {
            region: self.region,
            store: self.store,
            incarnation: self.incarnation,
            saved_at: self.saved_at.get(),
            sequence: self.sequence.get(),
            attach_generation: self.attach_generation.get(),
            shape,
            groups: self.groups.get(),
            holding_chunks: self.holding_chunks.get(),
            chunks: self.chunks.get(),
            bytes: self.bytes.get(),
            large_files: since_2(self.large_files),
            large_chunks: since_2(self.large_chunks),
            large_bytes: since_2(self.large_bytes),
            volume_bytes: since_2(self.volume_bytes),
        }
    }
}

const _: () = assert!(size_of::<RawHeader>() == HEADER);
const _: () = assert!(size_of::<RawChunk>() == CHUNK);
const _: () = assert!(size_of::<RawTrailer>() == TRAILER);

/// Why a part of a saved copy can't be used. Offsets are bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// It does not begin as such a part does.
    Magic,
    /// Another version.
    Version(u32),
    /// A checksum that does not match: expected and found.
    Checksum(u64, u64),
    /// A field whose value is impossible: its name, its offset, what was expected, what was found.
    Field(&'static str, u64, u64, u64),
}

/// What a copy is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Identity of the region.
    pub region: [u8; 16],
    /// Identity of the store.
    pub store: [u8; 16],
    /// Which of the cores that held the region one after the other.
    pub incarnation: [u8; 16],
    /// Nanoseconds since 1970 at which saving began.
    pub saved_at: u64,
    /// The sequence of the region's superblock.
    pub sequence: u64,
    /// The region's attach generation.
    pub attach_generation: u64,
    /// The region's shape.
    pub shape: Shape,
    /// Groups that have space.
    pub groups: u64,
    /// Chunks of holdings that have space.
    pub holding_chunks: u32,
    /// Chunks of the copy, of any kind.
    pub chunks: u64,
    /// Bytes of data in them.
    pub bytes: u64,
    /// Files whose data is on the volume, or would be if they had any there.
    pub large_files: u64,
    /// Of the chunks, those of large files: the last ones.
    pub large_chunks: u64,
    /// Bytes of data in these.
    pub large_bytes: u64,
    /// Bytes of a file that would be a volume as large as the store's; 0 if it had none.
    pub volume_bytes: u64,
}

impl Header {
    /// The parts of a store that are included.
    const fn included(&self) -> u32 {
        if self.large_files == 0 { INCLUDES_CORE } else { INCLUDES_CORE | INCLUDES_LARGE }
    }

    /// Whether this is a copy of the same state as `other`.
    #[must_use]
    pub fn is_of_same_state(&self, other: &Header) -> bool {
        Header { saved_at: other.saved_at, ..self.clone() } == *other
    }

    /// The header's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER] {
        let region_len = Geometry::new(self.shape).map_or(0, |whole| whole.len_at(self.groups));
        let raw = RawHeader {
            magic: MAGIC,
            version: SAVED_VERSION.into(),
            included: self.included().into(),
            region: self.region,
            store: self.store,
            incarnation: self.incarnation,
            saved_at: self.saved_at.into(),
            sequence: self.sequence.into(),
            attach_generation: self.attach_generation.into(),
            max_groups: self.shape.max_groups.into(),
            lanes: self.shape.lanes.into(),
            slots: self.shape.slots.into(),
            locks: self.shape.locks.into(),
            data_max: (DATA_MAX as u32).into(),
            groups: self.groups.into(),
            region_len: region_len.into(),
            chunks: self.chunks.into(),
            bytes: self.bytes.into(),
            holding_chunks: self.holding_chunks.into(),
            holding_chunks_max: self.shape.chunks.into(),
            log_chunks: self.shape.log.into(),
            reserved_word: 0.into(),
            large_files: self.large_files.into(),
            large_chunks: self.large_chunks.into(),
            large_bytes: self.large_bytes.into(),
            volume_bytes: self.volume_bytes.into(),
            reserved: [0; 3896],
            checksum: 0.into(),
        };
        let mut bytes: [u8; HEADER] = zerocopy::transmute!(raw);
        seal(&mut bytes, 0);
        bytes
    }

    /// The header in `bytes`, checked, and the seed of what follows it.
    ///
    /// # Errors
    /// The first [`Defect`].
    pub fn from_bytes(bytes: &[u8; HEADER]) -> Result<(Header, u64), Defect> {
        let raw: RawHeader = zerocopy::transmute!(*bytes);
        if raw.magic != MAGIC {
            return Err(Defect::Magic);
        }
        let version = raw.version.get();
        if !(SAVED_VERSION_LEAST..=SAVED_VERSION).contains(&version) {
            return Err(Defect::Version(version));
        }
        let seed = check(bytes, 0)?;
        let shape = Shape {
            max_groups: raw.max_groups.get(),
            lanes: raw.lanes.get(),
            slots: raw.slots.get(),
            locks: raw.locks.get(),
            chunks: raw.holding_chunks_max.get(),
            log: raw.log_chunks.get(),
        };
        let Some(geometry) = Geometry::new(shape) else {
            return Err(Defect::Field("shape", 88, 1, shape.max_groups));
        };
        let groups = raw.groups.get();
        if groups < 1 || groups > shape.max_groups {
            return Err(Defect::Field("groups", 112, shape.max_groups, groups));
        }
        let (chunks, most) = (raw.holding_chunks.get(), shape.chunks);
        if chunks > most {
            return Err(Defect::Field("chunks of holdings", 144, most.into(), chunks.into()));
        }
        let header = raw.header(shape);
        let fields = [
            ("parts included", 12, header.included().into(), u64::from(raw.included.get())),
            ("bytes in a chunk", 108, DATA_MAX, u64::from(raw.data_max.get())),
            ("length of the region", 120, geometry.len_at(groups), raw.region_len.get()),
        ];
        for (name, at, expected, found) in fields {
            if expected != found {
                return Err(Defect::Field(name, at, expected, found));
            }
        }
        Ok((header, seed))
    }
}

/// What a chunk holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// [`KIND_SETTINGS`], [`KIND_REGION`] or [`KIND_LARGE`].
    pub kind: u32,
    /// Its place among the chunks, from 0.
    pub number: u64,
    /// The offset of its first byte, in the region or in the large file; 0 for settings.
    pub at: u64,
    /// Bytes of data.
    pub len: u64,
    /// Of a large file: the number of its chunk of the volume's space; otherwise 0.
    pub file: u64,
}

impl Chunk {
    /// The bytes before `data`, after something with the checksum `seed`; and the chunk's checksum.
    #[must_use]
    pub fn to_bytes(&self, seed: u64, data: &[u8]) -> ([u8; CHUNK], u64) {
        let raw = RawChunk {
            magic: CHUNK_MAGIC,
            kind: self.kind.into(),
            number: self.number.into(),
            at: self.at.into(),
            len: self.len.into(),
            file: self.file.into(),
            reserved: [0; 16],
            checksum: 0.into(),
        };
        let mut bytes: [u8; CHUNK] = zerocopy::transmute!(raw);
        let sum = checksum(checksum(seed, body(&bytes)), data);
        put_sum(&mut bytes, sum);
        (bytes, sum)
    }

    /// What the bytes before a chunk's data say: it, and its checksum, which is for
    /// [`Self::check`] to compare when the data is there.
    ///
    /// # Errors
    /// [`Defect::Magic`].
    pub fn from_bytes(bytes: &[u8; CHUNK]) -> Result<(Chunk, u64), Defect> {
        let raw: RawChunk = zerocopy::transmute!(*bytes);
        if raw.magic != CHUNK_MAGIC {
            return Err(Defect::Magic);
        }
        let chunk = Chunk {
            kind: raw.kind.get(),
            number: raw.number.get(),
            at: raw.at.get(),
            len: raw.len.get(),
            file: raw.file.get(),
        };
        Ok((chunk, raw.checksum.get()))
    }

    /// Checks the chunk that begins with `bytes` and has the data `data`, after something with the
    /// checksum `seed`: the seed of what follows.
    ///
    /// # Errors
    /// [`Defect::Checksum`].
    pub fn check(bytes: &[u8; CHUNK], seed: u64, data: &[u8]) -> Result<u64, Defect> {
        let expected = checksum(checksum(seed, body(bytes)), data);
        let found = sum_of(bytes);
        if expected == found { Ok(found) } else { Err(Defect::Checksum(expected, found)) }
    }
}

/// The trailer of the copy with `header`, after a chunk with the checksum `seed`.
#[must_use]
pub fn trailer(header: &Header, seed: u64) -> [u8; TRAILER] {
    let raw = RawTrailer {
        magic: TRAILER_MAGIC,
        chunks: header.chunks.into(),
        bytes: header.bytes.into(),
        state: COMPLETE.into(),
        reserved: [0; 28],
        checksum: 0.into(),
    };
    let mut bytes: [u8; TRAILER] = zerocopy::transmute!(raw);
    seal(&mut bytes, seed);
    bytes
}

/// Checks the trailer `bytes` of the copy with `header`, after a chunk with the checksum `seed`.
///
/// # Errors
/// The first [`Defect`].
pub fn check_trailer(bytes: &[u8; TRAILER], header: &Header, seed: u64) -> Result<(), Defect> {
    let raw: RawTrailer = zerocopy::transmute!(*bytes);
    if raw.magic != TRAILER_MAGIC {
        return Err(Defect::Magic);
    }
    check(bytes, seed)?;
    let fields = [
        ("number of chunks", 8, header.chunks, raw.chunks.get()),
        ("bytes of data", 16, header.bytes, raw.bytes.get()),
        ("state", 24, u64::from(COMPLETE), u64::from(raw.state.get())),
    ];
    match fields.into_iter().find(|(_, _, expected, found)| expected != found) {
        Some((name, at, expected, found)) => Err(Defect::Field(name, at, expected, found)),
        None => Ok(()),
    }
}

/// All but the checksum, which is the last word.
fn body(bytes: &[u8]) -> &[u8] {
    bytes.get(..bytes.len().saturating_sub(8)).unwrap_or(&[])
}

fn sum_of(bytes: &[u8]) -> u64 {
    let word = bytes.last_chunk::<8>().copied().unwrap_or_default();
    u64::from_le_bytes(word)
}

fn put_sum(bytes: &mut [u8], sum: u64) {
    if let Some(word) = bytes.last_chunk_mut::<8>() {
        *word = sum.to_le_bytes();
    }
}

fn seal(bytes: &mut [u8], seed: u64) {
    let sum = checksum(seed, body(bytes));
    put_sum(bytes, sum);
}

fn check(bytes: &[u8], seed: u64) -> Result<u64, Defect> {
    let (expected, found) = (checksum(seed, body(bytes)), sum_of(bytes));
    if expected == found { Ok(found) } else { Err(Defect::Checksum(expected, found)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            region: [1; 16],
            store: [2; 16],
            incarnation: [3; 16],
            saved_at: 4,
            sequence: 5,
            attach_generation: 6,
            shape: Shape { max_groups: 7, lanes: 8, slots: 9, locks: 16, chunks: 20, log: 0 },
            holding_chunks: 12,
            groups: 5,
            chunks: 11,
            bytes: 12,
            large_files: 1,
            large_chunks: 2,
            large_bytes: 8192,
            volume_bytes: 1 << 30,
        }
    }

    #[test]
    fn version_1_has_no_large_files_whatever_is_reserved_there() {
        let none = Header { large_files: 0, ..header() };
        let mut bytes = none.to_bytes();
        bytes[8] = 1;
        seal(&mut bytes, 0);
        let (found, _) = Header::from_bytes(&bytes).unwrap();
        assert_eq!(found, Header { large_chunks: 0, large_bytes: 0, volume_bytes: 0, ..none });
        for version in [0, 3, u32::MAX] {
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            assert_eq!(Header::from_bytes(&bytes), Err(Defect::Version(version)));
        }
    }

    #[test]
    fn headers_round_trip_and_every_flipped_bit_is_found() {
        let bytes = header().to_bytes();
        let (found, seed) = Header::from_bytes(&bytes).unwrap();
        assert_eq!((found, seed), (header(), sum_of(&bytes)));
        for at in 0..HEADER {
            let mut bad = bytes;
            bad[at] ^= 1 << (at % 8);
            assert!(Header::from_bytes(&bad).is_err(), "{at}");
        }
        assert_eq!(Header::from_bytes(&[0; HEADER]), Err(Defect::Magic));
    }

    #[test]
    fn impossible_headers_are_named() {
        let mut bad = header();
        bad.groups = 8;
        assert_eq!(Header::from_bytes(&bad.to_bytes()), Err(Defect::Field("groups", 112, 7, 8)));
        bad.shape.lanes = 0;
        assert!(matches!(Header::from_bytes(&bad.to_bytes()), Err(Defect::Field("shape", ..))));
        for (at, name) in [(12, "parts"), (108, "bytes in"), (120, "length")] {
            let mut bytes = header().to_bytes();
            bytes[at] ^= 1;
            seal(&mut bytes, 0);
            match Header::from_bytes(&bytes) {
                Err(Defect::Field(found, offset, ..)) => {
                    assert!(found.starts_with(name) && offset == at as u64);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn chunks_are_chained() {
        let chunk = Chunk { kind: KIND_LARGE, number: 1, at: 4096, len: 3, file: 64 };
        let (bytes, sum) = chunk.to_bytes(9, b"abc");
        assert_eq!(Chunk::from_bytes(&bytes), Ok((chunk, sum)));
        assert_eq!(Chunk::check(&bytes, 9, b"abc"), Ok(sum));
        assert!(Chunk::check(&bytes, 8, b"abc").is_err());
        assert!(Chunk::check(&bytes, 9, b"abd").is_err());
        for at in 0..CHUNK {
            let mut bad = bytes;
            bad[at] ^= 1 << (at % 8);
            assert!(Chunk::check(&bad, 9, b"abc").is_err(), "{at}");
        }
    }

    #[test]
    fn trailers_are_of_one_header() {
        let bytes = trailer(&header(), 9);
        assert_eq!(check_trailer(&bytes, &header(), 9), Ok(()));
        assert!(check_trailer(&bytes, &header(), 8).is_err());
        for at in 0..TRAILER {
            let mut bad = bytes;
            bad[at] ^= 1 << (at % 8);
            assert!(check_trailer(&bad, &header(), 9).is_err(), "{at}");
        }
        let other = Header { chunks: 10, ..header() };
        let expected = Defect::Field("number of chunks", 8, 10, 11);
        assert_eq!(check_trailer(&bytes, &other, 9), Err(expected));
    }
}
