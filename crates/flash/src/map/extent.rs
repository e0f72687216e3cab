//! Units of the space that follow each other on the medium, too.

/// Units of the space: 2^61 of eight blocks of 512 bytes, if a unit has 4 KiB.
pub const UNIT_MAX: u64 = 1 << 61;
/// Units of the medium that a map can name.
pub const PLACE_MAX: u64 = 1 << PLACE_BITS;
/// Units of one extent: fewer than this.
pub const LEN_MAX: u64 = 1 << (64 - PLACE_BITS);

const PLACE_BITS: u32 = 40;

/// A range of units of the space, and where it is on the medium.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// First unit of the space, below [`UNIT_MAX`].
    pub unit: u64,
    /// First unit of the medium, below [`PLACE_MAX`].
    pub place: u64,
    /// Units, at least one and fewer than [`LEN_MAX`].
    pub len: u64,
}

impl Extent {
    /// The unit behind its last one.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.unit.saturating_add(self.len)
    }

    /// The part of it that is in `start..end`, if there is any.
    #[must_use]
    pub fn within(&self, start: u64, end: u64) -> Option<Extent> {
        let (first, last) = (self.unit.max(start), self.end().min(end));
        (first < last).then(|| Extent {
            unit: first,
            place: self.place + (first - self.unit),
            len: last - first,
        })
    }

    /// The extent that this one and `next` are together: none unless that continues it in the space
    /// and on the medium, within one segment of `segment` units, and they are not too long.
    #[must_use]
    pub fn joined(&self, next: &Extent, segment: u64) -> Option<Extent> {
        let is_next = self.end() == next.unit && self.place + self.len == next.place;
        let len = self.len + next.len;
        let is_one = is_next && !next.place.is_multiple_of(segment) && len < LEN_MAX;
        is_one.then_some(Extent { len, ..*self })
    }

    /// Whether a map can hold it.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.len > 0
            && self.len < LEN_MAX
            && self.unit <= UNIT_MAX - self.len
            && self.place <= PLACE_MAX - self.len
    }

    /// As two words of a node: the unit; place and length. The second one is never 0.
    #[must_use]
    pub const fn pack(&self) -> [u64; 2] {
        [self.unit, self.place | self.len << PLACE_BITS]
    }

    /// The extent in two words; none if the second one is 0.
    #[must_use]
    pub const fn unpack(words: [u64; 2]) -> Option<Extent> {
        let [unit, rest] = words;
        if rest == 0 {
            return None;
        }
        Some(Extent { unit, place: rest & (PLACE_MAX - 1), len: rest >> PLACE_BITS })
    }
}
