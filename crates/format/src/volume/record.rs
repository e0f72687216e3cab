//! Records: the changes of the map, in the order in which they were made.
//!
//! A record says what a range is afterwards, never what was there before: applied once more, or to
//! a map that has it already, it changes nothing.

use super::{SPACE, is_range};

/// Checksums of units, two in each word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sums<'r> {
    words: &'r [u64],
    len: u64,
}

impl<'r> Sums<'r> {
    /// The first `len` checksums in `words`.
    #[must_use]
    pub const fn new(words: &'r [u64], len: u64) -> Sums<'r> {
        Sums { words, len }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'r> {
        let both = self.words.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]);
        both.take(self.len as usize)
    }

    /// Words that hold the checksums of `len` units.
    #[must_use]
    pub const fn words(len: u64) -> u64 {
        len.div_ceil(2)
    }
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'r> {
    /// `len` units from `unit` on are at `place`, with these checksums.
    Write {
        /// First unit of the space.
        unit: u64,
        /// First unit of the medium.
        place: u64,
        /// Units.
        len: u64,
        /// Of each of them.
        sums: Sums<'r>,
    },
    /// The same, of units whose checksums are known already: they were at other units of the space.
    Place {
        /// First unit of the space.
        unit: u64,
        /// First unit of the medium.
        place: u64,
        /// Units.
        len: u64,
    },
    /// `len` units from `unit` on are nowhere: they read as zeros.
    Hole {
        /// First unit of the space.
        unit: u64,
        /// Units.
        len: u64,
    },
    /// `segment` was begun anew, for payload, in `generation`.
    Begin {
        /// Which.
        segment: u64,
        /// Higher than it ever was.
        generation: u64,
    },
    /// `segment` is not to be begun any more: writing to it has failed.
    Bad {
        /// Which.
        segment: u64,
    },
    /// So many units are reserved.
    Reserved {
        /// In all.
        units: u64,
    },
    /// The records before this one that no last one ended are void.
    Void,
}

/// What is no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordError {
    /// The word at which it was to begin, from the first.
    pub at: usize,
}

const WRITE: u64 = 1;
const PLACE: u64 = 2;
const HOLE: u64 = 3;
const BEGIN: u64 = 4;
const RESERVED: u64 = 5;
const VOID: u64 = 6;
const BAD: u64 = 7;

const LAST: u64 = 1 << 8;
/// The number of the space that a range is of. There is one, which has number 0.
const SPACE_NUMBER: u64 = 0xFFFF << 16;
const LEN_SHIFT: u32 = 32;
/// Words of a record before its checksums.
const FIXED: usize = 3;

impl Record<'_> {
    /// Words that it takes.
    #[must_use]
    pub const fn words(&self) -> u64 {
        match self {
            Record::Write { len, .. } => FIXED as u64 + Sums::words(*len),
            _ => FIXED as u64,
        }
    }

    /// Units of payload that a record of so many words can name with their checksums.
    #[must_use]
    pub const fn sums_in(words: u64) -> u64 {
        words.saturating_sub(FIXED as u64).saturating_mul(2)
    }

    /// Adds it to `words`. Records up to the next `last` one happen together. If what it says can't
    /// be, such as a range of [`LEN_MAX`](super::LEN_MAX) units, nobody can read it.
    pub fn put(&self, last: bool, words: &mut Vec<u64>) {
        let flag = if last { LAST } else { 0 };
        let (kind, len, first, second) = match *self {
            Record::Write { unit, place, len, .. } => (WRITE, len, unit, place),
            Record::Place { unit, place, len } => (PLACE, len, unit, place),
            Record::Hole { unit, len } => (HOLE, 0, unit, len),
            Record::Begin { segment, generation } => (BEGIN, 0, segment, generation),
            Record::Bad { segment } => (BAD, 0, segment, 0),
            Record::Reserved { units } => (RESERVED, 0, units, 0),
            Record::Void => (VOID, 0, 0, 0),
        };
        words.extend([kind | flag | len << LEN_SHIFT, first, second]);
        if let Record::Write { sums, len, .. } = self {
            words.extend(sums.words.iter().take(Sums::words(*len) as usize));
        }
    }
}

/// The records in words, each with whether it is the last of those that happen together.
#[derive(Clone, Debug)]
pub struct Records<'r> {
    words: &'r [u64],
    at: usize,
}

impl<'r> Records<'r> {
    /// Those in `words`.
    #[must_use]
    pub const fn new(words: &'r [u64]) -> Records<'r> {
        Records { words, at: 0 }
    }

    /// Words of the record that begins with `head`; none if none does.
    #[must_use]
    pub const fn len_at(head: u64) -> Option<u64> {
        match head & 0xFF {
            WRITE => Some(FIXED as u64 + Sums::words(head >> LEN_SHIFT)),
            PLACE..=BAD => Some(FIXED as u64),
            _ => None,
        }
    }

    /// The word at which the next one begins.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    fn parse(&mut self) -> Option<(Record<'r>, bool)> {
        let rest = self.words.get(self.at..)?;
        let (&[head, first, second], rest) = rest.split_first_chunk::<FIXED>()?;
        let len = head >> LEN_SHIFT;
        let (unit, place) = (first, second);
        let record = match head & 0xFF {
            WRITE..=HOLE if head & SPACE_NUMBER != 0 => return None,
            WRITE if is_range(unit, place, len) => {
                let words = rest.get(..Sums::words(len) as usize)?;
                self.at += words.len();
                Record::Write { unit, place, len, sums: Sums::new(words, len) }
            }
            PLACE if is_range(unit, place, len) => Record::Place { unit, place, len },
            HOLE if second > 0 && second <= SPACE && unit <= SPACE - second => {
                Record::Hole { unit, len: second }
            }
            BEGIN => Record::Begin { segment: first, generation: second },
            RESERVED => Record::Reserved { units: first },
            VOID => Record::Void,
            BAD => Record::Bad { segment: first },
            _ => return None,
        };
        self.at += FIXED;
        Some((record, head & LAST != 0))
    }
}

impl<'r> Iterator for Records<'r> {
    type Item = Result<(Record<'r>, bool), RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.words.len() {
            return None;
        }
        let at = self.at;
        let parsed = self.parse().ok_or(RecordError { at });
        if parsed.is_err() {
            self.at = self.words.len();
        }
        Some(parsed)
    }
}
