//! How a volume is divided: units, segments, and what is kept back.

use conquest_format::PAGE;
use conquest_format::volume::{ANCHORS, BLOCK, Bind, Packet, Superblock};

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

    /// Whether `len` units from `unit` on can be where the device has `place`: they are in the
    /// space, and there in one segment.
    pub(crate) const fn can_lead(&self, unit: u64, place: u64, len: u64) -> bool {
        let per = self.unit / BLOCK;
        let last = u64::MAX / per;
        self.can_be(place, len) && unit <= last && len <= last - unit + 1
    }

    /// Whether `len` units from `place` on can be payload: those of one segment.
    pub(crate) const fn can_be(&self, place: u64, len: u64) -> bool {
        place < self.segments * self.segment && len <= self.rest_of(place)
    }

    /// The first place of `segment`.
    pub(crate) const fn first_place(&self, segment: u64) -> u64 {
        // Where a damaged number leads there is nothing.
        segment.saturating_mul(self.segment)
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

    /// Segments that are kept back from payload: those that the stream, checkpoints and cleaning
    /// have open or hold ready, and a share without which cleaning would gain little.
    pub(crate) const fn spare(&self) -> u64 {
        SPARE_LEAST + self.segments / SPARE_SHARE
    }

    /// Segments that are cleaned at once, at most: so that much is read and written side by side.
    pub(crate) const fn cleaned_most(&self) -> u64 {
        match CLEANED / self.segment {
            0 => 1,
            most if most > CLEANED_MOST => CLEANED_MOST,
            most => most,
        }
    }

    /// Segments that what users write leaves to cleaning, so that it can clean many at once.
    pub(crate) const fn cleaned_room(&self) -> u64 {
        let (share, most) = (self.segments / CLEANED_SHARE, self.cleaned_most());
        if share < most { share } else { most }
    }

    /// Units that can have payload or be reserved.
    pub(crate) const fn capacity(&self) -> u64 {
        self.segments.saturating_sub(ANCHORS + self.spare()) * self.segment
    }

    /// Segments that may be bad without a loss of capacity: half of the share without which
    /// cleaning would gain little.
    pub(crate) const fn bad_most(&self) -> u64 {
        self.segments / SPARE_SHARE - self.segments / (2 * SPARE_SHARE)
    }

    /// [`Self::capacity`] when so many segments are bad.
    pub(crate) const fn capacity_without(&self, bad: u64) -> u64 {
        let lost = bad.saturating_sub(self.bad_most()).saturating_mul(self.segment);
        self.capacity().saturating_sub(lost)
    }

    /// Roots that an anchor segment takes before the next one is used.
    pub(crate) const fn roots_per_anchor(&self) -> u64 {
        if self.segment < 64 { self.segment } else { 64 }
    }

    /// The places of both copies of the root with this sequence number. They are in different
    /// anchors, and as far from the start of those.
    pub(crate) const fn root_places(&self, sequence: u64) -> [u64; 2] {
        let per = self.roots_per_anchor();
        let all = ANCHORS * per;
        let index = sequence % all;
        let other = (index + all / 2) % all;
        [self.first_place(index / per) + index % per, self.first_place(other / per) + other % per]
    }
}

/// Two of the stream, three with room for payload, two of a checkpoint beside two of the next, and
/// seven that are free or about to be so.
const SPARE_LEAST: u64 = 16;
/// One of so many segments.
const SPARE_SHARE: u64 = 14;
/// Units of segments that are cleaned at once, and how many segments that is at most.
const CLEANED: u64 = 4096;
const CLEANED_MOST: u64 = 64;
/// One of so many segments is left to cleaning.
const CLEANED_SHARE: u64 = 256;
