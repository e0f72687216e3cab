//! What stands on the devices of a volume.
//!
//! Everything is in *units* of 4 KiB or of a physical block, if that is larger. A *place* is the
//! number of a unit on the volume's devices taken as one; a *segment* is a row of units that is
//! used and given back as a whole. What stands at a place is told by what it says of itself, and by
//! a checksum that is bound to the volume and to where it belongs: [`Bind`].

mod checkpoint;
mod packet;
mod record;
mod root;
mod superblock;

pub use checkpoint::{Item, ItemError, ItemReader, ItemWriter, Leaf};
pub use packet::{HEADER_WORDS, PACKETS, Packet};
pub use record::{Record, RecordError, Records, Sums};
pub use root::{Checkpoint, LIVES_MAX, Life, Root, SEQUENCES, STAND_INS_MAX, StandIn};
pub use superblock::{Arrangement, MAGIC, SIZE, Superblock, VERSION};

use crate::checksum;

/// Bytes of the space that an address counts.
pub const BLOCK: u64 = 512;
/// Bytes of the smallest unit.
pub const UNIT: u64 = 4096;
/// Bytes of the largest unit.
pub const UNIT_MAX: u64 = 65536;
/// Segments that hold roots, the first of a volume.
pub const ANCHORS: u64 = 4;
/// Units of the space, if they are the smallest: what records name is below this.
pub const SPACE: u64 = 1 << 61;
/// Places of a volume are below this.
pub const PLACE_MAX: u64 = 1 << 40;
/// Most members of a mirror.
pub const MIRRORS_MAX: u32 = 64;
/// Units of a range that is somewhere: fewer than this.
pub const LEN_MAX: u64 = 1 << 24;

/// What a checksum is bound to, besides the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind(u64);

impl Bind {
    /// To the volume of this UUID.
    #[must_use]
    pub fn new(volume: [u8; 16]) -> Bind {
        Bind(checksum(0, &volume))
    }

    /// To a number, too.
    #[must_use]
    pub const fn with(self, number: u64) -> Bind {
        let mut mixed = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^= mixed >> 32;
        mixed = mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Bind(mixed ^ mixed >> 29)
    }

    /// The checksum of metadata that says where it belongs.
    #[must_use]
    pub fn checksum(self, bytes: &[u8]) -> u64 {
        checksum(self.0, bytes)
    }

    /// The checksum of a unit of payload at `place`, in its segment's `generation`, from its
    /// [`digest`]. So moving a unit to another place changes its checksum without a look at its
    /// bytes, and what goes wrong on the way is found.
    #[must_use]
    pub const fn sum(self, place: u64, generation: u64, digest: u32) -> u32 {
        let bound = self.with(place).with(generation).0;
        digest ^ (bound ^ bound >> 32) as u32
    }

    /// The digest of which [`Bind::sum`] made `sum`.
    #[must_use]
    pub const fn digest(self, place: u64, generation: u64, sum: u32) -> u32 {
        self.sum(place, generation, sum)
    }
}

/// Half of XXH3-64: what a unit's bytes are.
#[must_use]
pub fn digest(bytes: &[u8]) -> u32 {
    let whole = checksum(0, bytes);
    (whole ^ whole >> 32) as u32
}

/// The words of `bytes`, little-endian; a last one that is not whole is left out.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Puts `words` into `bytes` from the front, as many as fit.
pub fn put_words(bytes: &mut [u8], words: impl IntoIterator<Item = u64>) {
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
}

/// The words of a UUID.
pub(crate) const fn uuid_words(uuid: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(uuid);
    [both as u64, (both >> 64) as u64]
}

/// The UUID in two words.
pub(crate) const fn uuid_of([low, high]: [u64; 2]) -> [u8; 16] {
    (low as u128 | (high as u128) << 64).to_le_bytes()
}

/// Whether `len` units from `unit` on can be at `place` and behind it.
pub(crate) const fn is_range(unit: u64, place: u64, len: u64) -> bool {
    len > 0 && len < LEN_MAX && unit <= SPACE - len && place <= PLACE_MAX - len
}

/// A unit that begins with `fields`; the last word of the unit is the checksum of all before it.
pub(crate) fn sealed(unit: &mut [u8], bind: Bind, fields: &[u64]) {
    put_words(unit, fields.iter().copied());
    if let Some((body, sum)) = unit.split_last_chunk_mut::<8>() {
        *sum = bind.checksum(body).to_le_bytes();
    }
}

/// Whether `unit` is one, and its last word the checksum of all before it.
pub(crate) fn is_sealed(unit: &[u8], bind: Bind) -> bool {
    let is_whole = unit.len() as u64 >= UNIT;
    let ends = unit.split_last_chunk::<8>().filter(|_| is_whole);
    ends.is_some_and(|(body, sum)| bind.checksum(body) == u64::from_le_bytes(*sum))
}

/// The first `N` words of `unit`; zeros if it is shorter.
pub(crate) fn first_words<const N: usize>(unit: &[u8]) -> [u64; N] {
    let mut found = [0; N];
    for (place, word) in found.iter_mut().zip(words(unit)) {
        *place = word;
    }
    found
}

#[cfg(test)]
mod tests;
