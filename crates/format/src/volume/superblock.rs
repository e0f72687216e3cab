//! The superblock of a volume: which volume, and how it lies on its devices. It stands in the first
//! and in the last whole 4 KiB of each member and is written once, when that becomes one.

use super::{
    ANCHORS, Bind, MIRRORS_MAX, PLACE_MAX, UNIT, UNIT_MAX, first_words, is_sealed, sealed, uuid_of,
    uuid_words,
};

/// The first eight bytes: "CONQVOLU".
pub const MAGIC: [u8; 8] = *b"CONQVOLU";
/// The version of the format that this crate describes.
pub const VERSION: u64 = 1;
/// Bytes of a superblock.
pub const SIZE: usize = 4096;

/// How the members of a volume are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrangement {
    /// Segments lie on them in turn; of one member, all do.
    Striped,
    /// Each has everything.
    Mirrored,
}

/// A superblock that has passed every check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Identity of the volume, for life.
    pub uuid: [u8; 16],
    /// Nanoseconds since 1970 at which it was made.
    pub created: u64,
    /// Which member this is, from 0.
    pub member: u32,
    /// Members.
    pub members: u32,
    /// How they are combined.
    pub arrangement: Arrangement,
    /// Bytes of a unit: a power of two, [`UNIT`] to [`UNIT_MAX`].
    pub unit: u64,
    /// Units of a segment: a power of two, 8 to 65,536.
    pub segment: u64,
    /// Segments: as many on each member as on the others.
    pub segments: u64,
    /// Byte of each member at which the first segment on it begins.
    pub start: u64,
    /// Bytes of this member.
    pub len: u64,
    /// Which device this is of those that were this member: 0 for the one with which the volume was
    /// made, random for those that have replaced it.
    pub stamp: u64,
}

const WORDS: usize = 16;

impl Superblock {
    /// The superblock as it stands on the medium.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let [low, high] = uuid_words(self.uuid);
        let arrangement = match self.arrangement {
            Arrangement::Striped => 0,
            Arrangement::Mirrored => 1,
        };
        let members = u64::from(self.member) | u64::from(self.members) << 32;
        let magic = u64::from_le_bytes(MAGIC);
        // The two zeros: features that a program must know, and those that it may ignore.
        let fields = [magic, VERSION, 0, 0, low, high, self.created, members, arrangement];
        let sizes = [self.unit, self.segment, self.segments, self.start, self.len, self.stamp];
        let mut words = [0; WORDS];
        for (place, word) in words.iter_mut().zip(fields.into_iter().chain(sizes)) {
            *place = word;
        }
        sealed(&mut bytes, Bind::new(self.uuid), &words);
        bytes
    }

    /// The superblock in `bytes`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Result<Superblock, &'static str> {
        let words: [u64; WORDS] = first_words(bytes);
        let [magic, version, incompatible, _, low, high, created, members, arrangement, ..] = words;
        let [.., unit, segment, segments, start, len, stamp, _] = words;
        if magic.to_le_bytes() != MAGIC {
            return Err("it is no member of a volume");
        }
        if version != VERSION {
            return Err("its version of the format is another one");
        }
        let uuid = uuid_of([low, high]);
        if !is_sealed(bytes, Bind::new(uuid)) {
            return Err("its superblock is damaged");
        }
        if incompatible != 0 {
            return Err("it has features that this program does not know");
        }
        let arrangement = match arrangement {
            0 => Arrangement::Striped,
            1 => Arrangement::Mirrored,
            _ => return Err("its members are combined in a way that this program does not know"),
        };
        let found = Superblock {
            uuid,
            created,
            member: members as u32,
            members: (members >> 32) as u32,
            arrangement,
            unit,
            segment,
            segments,
            start,
            len,
            stamp,
        };
        if found.is_possible() { Ok(found) } else { Err("its superblock says what can't be") }
    }

    /// Whether its numbers fit each other.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let turn = match self.arrangement {
            Arrangement::Mirrored => 1,
            Arrangement::Striped => u64::from(self.members.max(1)),
        };
        let rows = self.segments / turn;
        let bytes = self.unit.checked_mul(self.segment).and_then(|bytes| bytes.checked_mul(rows));
        let end = bytes.and_then(|bytes| bytes.checked_add(self.start)?.checked_add(SIZE as u64));
        self.member < self.members
            && (self.arrangement == Arrangement::Striped || self.members <= MIRRORS_MAX)
            && self.unit.is_power_of_two()
            && (UNIT..=UNIT_MAX).contains(&self.unit)
            && self.segment.is_power_of_two()
            && (8..=65536).contains(&self.segment)
            && self.segments > ANCHORS
            && self.segments.is_multiple_of(turn)
            && self.segments.checked_mul(self.segment).is_some_and(|units| units < PLACE_MAX)
            && self.start >= SIZE as u64
            && end.is_some_and(|end| end <= self.len / SIZE as u64 * SIZE as u64)
    }
}
