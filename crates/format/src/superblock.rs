//! The superblock: what a region is, in two checksummed copies.
//!
//! Updates alternate: the copy with the lower sequence is overwritten and made durable, so that a
//! torn update leaves the other one. The valid copy with the higher sequence counts.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum;
use crate::geometry::Shape;
use crate::kind::{KINDS, KindSpec, KindTable};

/// The first eight bytes of a region: "CONQCORE".
pub const MAGIC: [u8; 8] = *b"CONQCORE";
/// The format this crate describes.
pub const FORMAT_VERSION: u32 = 2;
/// How processes work together on one attached region. Two that differ can't be attached at once.
pub const LIVE_PROTOCOL: u32 = 3;
/// Bytes in a superblock copy.
pub const SIZE: usize = 1024;
/// State of a region that everybody has detached from.
pub const CLEAN: u32 = 0x434C_4541;
/// State of a region that is, or was when the power went, attached.
pub const DIRTY: u32 = 0x4449_5254;
/// Incompatible feature: the region has a log.
pub const LOGGED: u64 = 1;
/// Incompatible feature: a region with a log is loaded from its image on a volume, and has a
/// [residency table](crate::residency), which says what is there.
pub const LOADING: u64 = 2;
/// Incompatible features that this crate knows. It knows none of the other two kinds yet.
pub const FEATURES_KNOWN: u64 = LOGGED | LOADING;

/// A superblock copy as it stands on the medium.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    magic: [u8; 8],
    format_version: U32,
    live_protocol: U32,
    features_compatible: U64,
    features_read_only: U64,
    features_incompatible: U64,
    uuid: [u8; 16],
    boot_id: [u8; 16],
    created: U64,
    sequence: U64,
    attach_generation: U64,
    state: U32,
    page_size: U32,
    max_groups: U64,
    lanes: U32,
    slots: U32,
    locks: U32,
    chunks: U32,
    log: U32,
    reserved: [u8; 120],
    kinds: [RawKind; KINDS],
    reserved_end: [u8; 252],
    checksum: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawKind {
    object_size: U16,
    slab_pages: u8,
    reserved: [u8; 5],
}

const _: () = assert!(size_of::<RawSuperblock>() == SIZE);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, checksum) == SIZE - 8);

/// A superblock that has passed every check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the region, for life.
    pub uuid: [u8; 16],
    /// Boot of the machine that attached it last.
    pub boot_id: [u8; 16],
    /// Nanoseconds since 1970 at which it was made.
    pub created: u64,
    /// Updates of the superblock so far.
    pub sequence: u64,
    /// Times that somebody attached while nobody was attached.
    pub attach_generation: u64,
    /// Whether the last attach generation ended with a detach.
    pub clean: bool,
    /// The layout.
    pub shape: Shape,
    /// The kinds of object it holds.
    pub kinds: KindTable,
    /// Live protocol of whoever attached last.
    pub live_protocol: u32,
    /// Features a program may ignore.
    pub features_compatible: u64,
    /// Features a program that only reads may ignore.
    pub features_read_only: u64,
    /// Features a program must know.
    pub features_incompatible: u64,
}

/// Why a superblock copy is not usable. Offsets are bytes from the start of the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// The magic is another one: not a region at all.
    Magic,
    /// The version number is byte-swapped: written on a big-endian machine.
    Endianness,
    /// The checksum does not match: expected and found.
    Checksum(u64, u64),
    /// Another format version.
    Version(u32),
    /// Features that this program does not know and must.
    Features(u64),
    /// A field whose value is impossible, at this offset, with this value.
    Field(u64, u64),
}

impl RawSuperblock {
    /// The copy in `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; SIZE]) -> RawSuperblock {
        zerocopy::transmute!(*bytes)
    }

    /// The copy's bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; SIZE] {
        zerocopy::transmute!(self)
    }

    fn sum(&self) -> u64 {
        let bytes = self.to_bytes();
        checksum(0, bytes.get(..SIZE - 8).unwrap_or(&[]))
    }

    /// Checks everything; the only way to a [`Superblock`]. The order of the checks is that of the
    /// usefulness of the message: a foreign file is named before a corrupt one.
    ///
    /// # Errors
    /// The first [`Defect`] found.
    pub fn check(&self) -> Result<Superblock, Defect> {
        if self.magic != MAGIC {
            return Err(Defect::Magic);
        }
        if self.format_version.get() == FORMAT_VERSION.swap_bytes() {
            return Err(Defect::Endianness);
        }
        if self.format_version.get() != FORMAT_VERSION {
            return Err(Defect::Version(self.format_version.get()));
        }
        if self.sum() != self.checksum.get() {
            return Err(Defect::Checksum(self.sum(), self.checksum.get()));
        }
        let unknown = self.features_incompatible.get() & !FEATURES_KNOWN;
        if unknown != 0 {
            return Err(Defect::Features(unknown));
        }
        let field = |offset: usize, value: u64| Err(Defect::Field(offset as u64, value));
        let clean = match self.state.get() {
            CLEAN => true,
            DIRTY => false,
            other => return field(core::mem::offset_of!(Self, state), other.into()),
        };
        if u64::from(self.page_size.get()) != crate::PAGE {
            let at = core::mem::offset_of!(Self, page_size);
            return field(at, self.page_size.get().into());
        }
        let shape = Shape {
            max_groups: self.max_groups.get(),
            lanes: self.lanes.get(),
            slots: self.slots.get(),
            locks: self.locks.get(),
            chunks: self.chunks.get(),
            log: self.log.get(),
        };
        if (shape.log != 0) != (self.features_incompatible.get() & LOGGED != 0) {
            return field(core::mem::offset_of!(Self, log), shape.log.into());
        }
        let features = self.features_incompatible.get();
        if shape.log == 0 && features & LOADING != 0 {
            return field(core::mem::offset_of!(Self, features_incompatible), features);
        }
        if !shape.is_valid() {
            return field(core::mem::offset_of!(Self, max_groups), shape.max_groups);
        }
        let mut kinds = [KindSpec::UNUSED; KINDS];
        for (at, (spec, raw)) in kinds.iter_mut().zip(&self.kinds).enumerate() {
            *spec = KindSpec { object_size: raw.object_size.get(), slab_pages: raw.slab_pages };
            if !spec.is_valid() {
                let at = core::mem::offset_of!(Self, kinds) + at * size_of::<RawKind>();
                return field(at, spec.object_size.into());
            }
        }
        Ok(Superblock {
            uuid: self.uuid,
            boot_id: self.boot_id,
            created: self.created.get(),
            sequence: self.sequence.get(),
            attach_generation: self.attach_generation.get(),
            clean,
            shape,
            kinds,
            live_protocol: self.live_protocol.get(),
            features_compatible: self.features_compatible.get(),
            features_read_only: self.features_read_only.get(),
            features_incompatible: self.features_incompatible.get(),
        })
    }
}

impl Superblock {
    /// The copy to write, with its checksum.
    #[must_use]
    pub fn to_raw(&self) -> RawSuperblock {
        let kinds = self.kinds.map(|spec| RawKind {
            object_size: spec.object_size.into(),
            slab_pages: spec.slab_pages,
            reserved: [0; 5],
        });
        let mut raw = RawSuperblock {
            magic: MAGIC,
            format_version: FORMAT_VERSION.into(),
            live_protocol: self.live_protocol.into(),
            features_compatible: self.features_compatible.into(),
            features_read_only: self.features_read_only.into(),
            features_incompatible: self.features_incompatible.into(),
            uuid: self.uuid,
            boot_id: self.boot_id,
            created: self.created.into(),
            sequence: self.sequence.into(),
            attach_generation: self.attach_generation.into(),
            state: if self.clean { CLEAN } else { DIRTY }.into(),
            page_size: (crate::PAGE as u32).into(),
            max_groups: self.shape.max_groups.into(),
            lanes: self.shape.lanes.into(),
            slots: self.shape.slots.into(),
            locks: self.shape.locks.into(),
            chunks: self.shape.chunks.into(),
            log: self.shape.log.into(),
            reserved: [0; 120],
            kinds,
            reserved_end: [0; 252],
            checksum: 0.into(),
        };
        raw.checksum = raw.sum().into();
        raw
    }

    /// The tag of volatile words in this attach generation.
    #[must_use]
    pub const fn tag(&self) -> u32 {
        self.attach_generation as u32
    }

    /// The attach generation after this one: the next whose tag is not 0.
    #[must_use]
    pub const fn next_generation(&self) -> u64 {
        let next = self.attach_generation.wrapping_add(1);
        if next as u32 == 0 { next.wrapping_add(1) } else { next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        let mut kinds = [KindSpec::UNUSED; KINDS];
        kinds[3] = KindSpec::object(200).unwrap();
        Superblock {
            uuid: [7; 16],
            boot_id: [8; 16],
            created: 9,
            sequence: 10,
            attach_generation: 11,
            clean: true,
            shape: Shape { max_groups: 4, lanes: 2, slots: 2, locks: 64, chunks: 2, log: 0 },
            kinds,
            live_protocol: LIVE_PROTOCOL,
            features_compatible: 0,
            features_read_only: 0,
            features_incompatible: 0,
        }
    }

    #[test]
    fn round_trips() {
        let raw = superblock().to_raw();
        assert_eq!(RawSuperblock::from_bytes(&raw.to_bytes()).check(), Ok(superblock()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = superblock().to_raw().to_bytes();
        for byte in 0..SIZE {
            for bit in 0..8 {
                let mut bad = bytes;
                bad[byte] ^= 1 << bit;
                assert!(RawSuperblock::from_bytes(&bad).check().is_err(), "{byte} {bit}");
            }
        }
    }

    #[test]
    fn foreign_files_are_named() {
        assert_eq!(RawSuperblock::from_bytes(&[0; SIZE]).check(), Err(Defect::Magic));
        let mut raw = superblock().to_raw();
        raw.format_version = FORMAT_VERSION.swap_bytes().into();
        assert_eq!(raw.check(), Err(Defect::Endianness));
        for other in [FORMAT_VERSION - 1, FORMAT_VERSION + 1] {
            raw.format_version = other.into();
            assert_eq!(raw.check(), Err(Defect::Version(other)));
        }
        let mut newer = superblock();
        newer.features_incompatible = 4;
        assert_eq!(newer.to_raw().check(), Err(Defect::Features(4)));
        newer.features_incompatible = LOADING;
        assert!(matches!(newer.to_raw().check(), Err(Defect::Field(32, LOADING))));
        newer = superblock();
        newer.shape.lanes = 0;
        assert!(matches!(newer.to_raw().check(), Err(Defect::Field(..))));
    }

    #[test]
    fn a_tag_is_never_zero() {
        let mut s = superblock();
        s.attach_generation = u64::from(u32::MAX);
        assert_eq!(s.next_generation(), 1 << 32 | 1);
    }
}
