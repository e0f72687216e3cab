//! How a volume is divided: units, segments, and what is kept back.

use conquest_format::PAGE;
use conquest_format::volume::{ANCHORS, Bind, Packet, Superblock};

/// Bytes of payload up to which a write goes into packets of the stream.
pub(crate) const INLINE: u64 = 65536;
/// Bytes of payload that a packet takes.
const PAYLOAD: u64 = 2 * INLINE;

/// The numbers of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bytes of a unit.
    pub(crate) unit: u64,
    /// Units of a segment.
    pub(crate) segment: u64,
    /// Segments.
    pub(crate) segments: u64,
    /// What checksums are bound to.
    pub(crate) bind: Bind,
}

impl Layout {
    pub(crate) fn new(superblock: &Superblock) -> Layout {
        let &Superblock { unit, segment, segments, uuid, .. } = superblock;
        Layout { unit, segment, segments, bind: Bind::new(uuid) }
    }

    /// The segment that `place` is in.
    pub(crate) const fn segment_of(&self, place: u64) -> u64 {
        place / self.segment
    }

    /// Units from `place` to the end of its segment.
    pub(crate) const fn rest_of(&self, place: u64) -> u64 {
        self.segment - place % self.segment
    }

    /// The first place of `segment`.
    pub(crate) const fn first_place(&self, segment: u64) -> u64 {
        segment * self.segment
    }

    /// Bytes of the checksums of a segment.
    pub(crate) const fn sums_bytes(&self) -> u64 {
        self.segment * 4
    }

    /// Units of payload that a packet can have.
    pub(crate) const fn payload_units(&self) -> u64 {
        PAYLOAD / self.unit
    }

    /// Pages of a packet in the region.
    pub(crate) const fn packet_pages(&self) -> u64 {
        (self.unit + PAYLOAD) / PAGE
    }

    /// Words of records that a packet holds.
    pub(crate) const fn record_room(&self) -> u64 {
        Packet::room(self.unit)
    }

    /// Segments that are kept back from payload: for cleaning, the stream, checkpoints and trims.
    pub(crate) const fn spare(&self) -> u64 {
        let share = self.segments / 14;
        if share < SPARE_LEAST { SPARE_LEAST } else { share }
    }

    /// Units that can have payload or be reserved.
    pub(crate) const fn capacity(&self) -> u64 {
        self.segments.saturating_sub(ANCHORS + self.spare()) * self.segment
    }

    /// Roots that an anchor segment takes before the next one is used.
    pub(crate) const fn roots_per_anchor(&self) -> u64 {
        if self.segment < 64 { self.segment } else { 64 }
    }

    /// The place of the root with this sequence number.
    pub(crate) const fn root_place(&self, sequence: u64) -> u64 {
        let per = self.roots_per_anchor();
        let index = sequence % (ANCHORS * per);
        self.first_place(index / per) + index % per
    }
}

/// Segments that are kept back at least: two for the stream, two for what is cleaned, two for a
/// checkpoint beside the one before it, two that cleaning fills.
const SPARE_LEAST: u64 = 10;
