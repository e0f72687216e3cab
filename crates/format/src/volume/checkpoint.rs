//! Checkpoints: the map and all that recovery needs besides, as a row of *leaves* (units), which
//! together hold a row of words, which are *items*.

use super::{Bind, PLACE_MAX, first_words, is_range, is_sealed, sealed};

const MAGIC: u64 = u64::from_le_bytes(*b"CONQCHKP");
const HEAD: usize = 8;

/// A unit of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The checkpoint's.
    pub id: u64,
    /// Which of its units this is, from 0.
    pub index: u64,
    /// The segment in which it goes on where this one ends.
    pub next: u64,
    /// Words of items in it.
    pub words: u64,
}

impl Leaf {
    /// Words of items that a unit of so many bytes holds.
    #[must_use]
    pub const fn room(unit: u64) -> u64 {
        (unit / 8).saturating_sub(HEAD as u64 + 1)
    }

    /// Makes `unit` this one, with `words` in it.
    pub fn fill(&self, bind: Bind, unit: &mut [u8], words: &[u64]) {
        unit.fill(0);
        let fields = [MAGIC, self.id, self.index, self.next, words.len() as u64, 0, 0, 0];
        let all: Vec<u64> = fields.iter().chain(words).copied().collect();
        sealed(unit, bind, &all);
    }

    /// The one in `unit`; none if there is none.
    #[must_use]
    pub fn from_unit(bind: Bind, unit: &[u8]) -> Option<Leaf> {
        let [magic, id, index, next, words, _, _, _] = first_words::<HEAD>(unit);
        let fits = words <= Leaf::room(unit.len() as u64);
        (magic == MAGIC && fits && is_sealed(unit, bind)).then_some(Leaf { id, index, next, words })
    }

    /// The words of items in `unit`.
    pub fn items(self, unit: &[u8]) -> impl Iterator<Item = u64> {
        super::words(unit).skip(HEAD).take(self.words as usize)
    }
}

/// Part of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A segment that was used at least once.
    Segment {
        /// Which.
        segment: u64,
        /// How often it was begun.
        generation: u64,
        /// Whether it is not to be begun again; what is in it counts.
        is_bad: bool,
        /// The number of the packet that was open when it was begun: how old what is in it is.
        birth: u64,
    },
    /// Checksums of the units of a segment, from its first one on, two in each word.
    Sums {
        /// Which.
        segment: u64,
        /// The checksums.
        words: Vec<u64>,
    },
    /// Units that are mapped, in order: first unit, place and length of each range.
    Extents(Vec<[u64; 3]>),
    /// So many units are reserved.
    Reserved(u64),
    /// The end: nothing is missing.
    End,
}

const SEGMENT: u64 = 1;
const SUMS: u64 = 2;
const EXTENTS: u64 = 3;
const RESERVED: u64 = 4;
const END: u64 = 5;
const BAD: u64 = 1 << 63;
/// Where the number of the space is that ranges are of, in the first word of their item. There is
/// one, which has number 0.
const SPACE_SHIFT: u32 = 48;
/// Bits of a place, below those of a length.
const PLACE_BITS: u32 = PLACE_MAX.trailing_zeros();

/// Writes items as words.
#[derive(Debug, Default)]
pub struct ItemWriter {
    words: Vec<u64>,
}

impl ItemWriter {
    /// Adds an item.
    pub fn put(&mut self, item: &Item) {
        let head = |kind: u64, count: u64| kind | count << 8;
        match item {
            Item::Segment { segment, generation, is_bad, birth } => {
                let flag = if *is_bad { BAD } else { 0 };
                self.words.extend([head(SEGMENT, 3), *segment, *generation | flag, *birth]);
            }
            Item::Sums { segment, words } => {
                self.words.extend([head(SUMS, 1 + words.len() as u64), *segment]);
                self.words.extend(words);
            }
            Item::Extents(extents) => {
                self.words.push(head(EXTENTS, 2 * extents.len() as u64));
                let packed = |&[unit, place, len]: &[u64; 3]| [unit, place | len << PLACE_BITS];
                self.words.extend(extents.iter().flat_map(packed));
            }
            Item::Reserved(units) => self.words.extend([head(RESERVED, 1), *units]),
            Item::End => self.words.push(head(END, 0)),
        }
    }

    /// The words that wait to be written.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Takes the first `count` words away.
    pub fn take(&mut self, count: usize) {
        self.words.drain(..count.min(self.words.len()));
    }
}

/// What is no item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemError;

/// Reads items from words that come piece by piece.
#[derive(Debug, Default)]
pub struct ItemReader {
    words: Vec<u64>,
    at: usize,
}

/// Most words of an item: more is no item.
const WORDS_MAX: u64 = 1 << 20;

impl ItemReader {
    /// `words` come next.
    pub fn add(&mut self, words: impl IntoIterator<Item = u64>) {
        self.words.drain(..self.at);
        self.at = 0;
        self.words.extend(words);
    }

    /// The next item, if all of it has come.
    ///
    /// # Errors
    /// [`ItemError`]: nothing behind it can be read.
    pub fn next_item(&mut self) -> Result<Option<Item>, ItemError> {
        let Some((&head, rest)) = self.words.get(self.at..).and_then(<[u64]>::split_first) else {
            return Ok(None);
        };
        let count = head >> 8 & ((1 << (SPACE_SHIFT - 8)) - 1);
        if count > WORDS_MAX || head >> SPACE_SHIFT != 0 {
            return Err(ItemError);
        }
        let Some(words) = rest.get(..count as usize) else {
            return Ok(None);
        };
        let item = match (head & 0xFF, words) {
            (SEGMENT, &[segment, generation, birth]) => {
                let is_bad = generation & BAD != 0;
                Item::Segment { segment, generation: generation & !BAD, is_bad, birth }
            }
            (SUMS, [segment, sums @ ..]) => Item::Sums { segment: *segment, words: sums.to_vec() },
            (EXTENTS, words) if words.len().is_multiple_of(2) => {
                let unpacked = |&[unit, rest]: &[u64; 2]| {
                    let (place, len) = (rest & (PLACE_MAX - 1), rest >> PLACE_BITS);
                    is_range(unit, place, len).then_some([unit, place, len])
                };
                let all: Option<Vec<_>> = words.as_chunks().0.iter().map(unpacked).collect();
                Item::Extents(all.ok_or(ItemError)?)
            }
            (RESERVED, &[units]) => Item::Reserved(units),
            (END, []) => Item::End,
            _ => return Err(ItemError),
        };
        self.at += 1 + count as usize;
        Ok(Some(item))
    }
}
