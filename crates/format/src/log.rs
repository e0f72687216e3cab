//! The log of a logged core: what its records change, from their commit until that is on a volume.
//!
//! The log stands in the region's RAM: a head, a record for each lane, and *chunks* of
//! [`CHUNK`] bytes, each with a header of its own and used by one lane at a time. None of its words
//! has a tag: they are as good as the RAM is, whoever has attached the region since.
//!
//! A record is one *fragment* in a chunk, or several with the same sequence number in as many
//! chunks:
//!
//! | word | fragment |
//! | --- | --- |
//! | 0 | bytes of the fragment, these words included (bits 0..32); its number in the record (32..64) |
//! | 1 | sequence number of the record |
//! | 2.. | items |
//!
//! An item is a word with what it is (bits 0..8) and how much (8..64), and:
//!
//! | item | how much | behind it |
//! | --- | --- | --- |
//! | words (1) | entries | the entries, of two words each, as in the lane; none of them copies |
//! | bytes (2) | bytes | the offset of the first one, and the bytes, zeros up to a whole word |
//! | zeros (3) | bytes | the offset of the first one |
//! | pages (4) | pages | the offset of the first one: their bytes are in the region's image |
//!
//! What changes bytes of a page comes true in the order of the sequence numbers, and, of one
//! record, in the order of its fragments and items. Once a record names a page as a whole, what
//! records with smaller numbers say of it does not count any more.

use crate::journal::{Action, Entry};
use crate::{LINE, Offset, PAGE, WORD};

/// Bytes in a chunk of the log.
pub const CHUNK: u64 = 64 << 10;
/// Largest number of chunks.
pub const CHUNKS_MAX: u32 = 1 << 16;
/// Chunks for each lane, at least.
pub const CHUNKS_PER_LANE: u32 = 2;
/// Bytes in front of the items of a fragment.
pub const FRAGMENT: u64 = 2 * WORD;
/// Number of the first record that a region has.
pub const FIRST: u64 = 1;

/// The head of the log: words on lines of their own.
pub mod head {
    /// Bytes.
    pub const SIZE: u64 = crate::PAGE;
    /// The sequence number that is drawn next.
    pub const NEXT: u64 = 0;
    /// Below which number all records are durable.
    pub const DURABLE: u64 = 64;
    /// Chunks in use, about.
    pub const USED: u64 = 128;
    /// Not 0 if no changes are made, because they could never be durable: why.
    pub const REFUSED: u64 = 136;
    /// Odd while records that name pages are held back for a moment; counts.
    pub const HELD_BACK: u64 = 192;
    /// Chunk from which the next search starts.
    pub const ROTOR: u64 = 256;
    /// Who is writing what is sealed to the volume: an [`owner`](crate::volatile::owner), or 0.
    pub const LEADER: u64 = 320;
    /// Pages named by records that are not durable yet, about.
    pub const PAGES: u64 = 384;
    /// Pages in the core that are about to go somewhere else, durable or not, about: these are not
    /// in [`PAGES`].
    pub const PASSING: u64 = 392;
    /// Times that the region was made again of its volume.
    pub const INCARNATION: u64 = 448;
    /// The keeper's first thread: an [`owner`](crate::volatile::owner).
    pub const KEEPER: u64 = 512;
    /// What the keeper is asked for: [`LEAVE`](super::LEAVE), [`HURRY`](super::HURRY) or
    /// [`PUSH`](super::PUSH); or 0.
    pub const KEEPER_ASKED: u64 = 576;
    /// When records were made durable last, by the clock that orders nothing but itself.
    pub const DURABLE_AT: u64 = 640;
    /// The group that those who wait now belong to: each who begins to write takes the next one.
    pub const GROUP: u64 = 704;
    /// Words that those who wait sleep on, on a line each: one for each [`GROUPS`](super::GROUPS)th
    /// group. Counts, and changes when there is something to look at.
    pub const BELLS: u64 = 768;
}

/// The keeper is to leave.
pub const LEAVE: u64 = 1;
/// The keeper is to make durable what there is, before its time.
pub const HURRY: u64 = 2;

/// The keeper is to let pages that pass go where they are to go.
pub const PUSH: u64 = 3;

/// Groups of those who wait that sleep apart from each other.
pub const GROUPS: u64 = 4;

/// A lane's record in the log.
pub mod lane {
    /// Bytes.
    pub const SIZE: u64 = crate::LINE;
    /// [`State`](super::State).
    pub const STATE: u64 = 0;
    /// Chunk in which the lane's next record begins, plus one.
    pub const CHUNK: u64 = 8;
}

/// A chunk's header.
pub mod chunk {
    /// Bytes.
    pub const SIZE: u64 = crate::LINE;
    /// [`Owner`](super::Owner).
    pub const OWNER: u64 = 0;
    /// Bytes of the fragments in it, and in which life: [`end`](super::end).
    pub const END: u64 = 8;
    /// Sequence number of the last one.
    pub const LAST: u64 = 16;
}

const _: () = assert!(lane::SIZE == LINE && chunk::SIZE == LINE);

/// Whose a chunk is.
///
/// | bits | field |
/// | --- | --- |
/// | 0..16 | lane, plus one; 0 if it is free |
/// | 16 | whether its lane goes on in it |
/// | 17..64 | times that it was begun, modulo 2^47 |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The lane.
    pub lane: Option<u32>,
    /// Whether that goes on in it.
    pub is_held: bool,
    /// Times that it was begun.
    pub life: u64,
}

impl Owner {
    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        let lane = if let Some(lane) = self.lane { lane as u64 + 1 } else { 0 };
        lane & 0xFFFF | (self.is_held as u64) << 16 | self.life << 17
    }

    /// What `word` says.
    #[must_use]
    pub const fn unpack(word: u64) -> Owner {
        let lane = (word & 0xFFFF) as u32;
        Owner { lane: lane.checked_sub(1), is_held: word >> 16 & 1 == 1, life: word >> 17 }
    }

    /// The next life of the chunk, of `lane`, which goes on in it.
    #[must_use]
    pub const fn begun(self, lane: u32) -> Owner {
        Owner { lane: Some(lane), is_held: true, life: (self.life + 1) & ((1 << 47) - 1) }
    }
}

/// The word that says that a chunk has `bytes` in its life number `life`.
#[must_use]
pub const fn end(bytes: u64, life: u64) -> u64 {
    bytes & 0xFFFF_FFFF | life << 32
}

/// Bytes that `word` says that a chunk has in its life number `life`: none if it is of another one.
#[must_use]
pub const fn unpack_end(word: u64, life: u64) -> u64 {
    if word >> 32 == life & 0xFFFF_FFFF { word & 0xFFFF_FFFF } else { 0 }
}

/// How far a lane has come with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// With none.
    None,
    /// It is about to draw a number, or has drawn one and not committed.
    Drawing,
    /// The number that it may have drawn does not count.
    Pushed,
    /// The record with this number is committed.
    Committed(u64),
}

impl State {
    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        match self {
            State::None => 0,
            State::Drawing => 1,
            State::Pushed => 2,
            State::Committed(sequence) => sequence << 2 | 3,
        }
    }

    /// What `word` says; none if it is nothing of this.
    #[must_use]
    pub const fn unpack(word: u64) -> Option<State> {
        match (word & 3, word >> 2) {
            (0, 0) => Some(State::None),
            (1, 0) => Some(State::Drawing),
            (2, 0) => Some(State::Pushed),
            (3, sequence) => Some(State::Committed(sequence)),
            _ => None,
        }
    }
}

/// The first word of a fragment.
#[must_use]
pub const fn fragment(bytes: u64, number: u32) -> u64 {
    bytes & 0xFFFF_FFFF | (number as u64) << 32
}

/// Bytes and number of the fragment with this first `word`; none if it can't be one.
#[must_use]
pub const fn unpack_fragment(word: u64) -> Option<(u64, u32)> {
    let bytes = word & 0xFFFF_FFFF;
    let is_possible = bytes >= FRAGMENT && bytes <= CHUNK && bytes.is_multiple_of(WORD);
    if is_possible { Some((bytes, (word >> 32) as u32)) } else { None }
}

/// What an item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ItemKind {
    /// Entries.
    Words = 1,
    /// Bytes.
    Bytes = 2,
    /// Zeros.
    Zeros = 3,
    /// Pages as a whole.
    Pages = 4,
}

impl ItemKind {
    /// The first word of an item of this kind, of so much.
    #[must_use]
    pub const fn head(self, count: u64) -> u64 {
        self as u64 | count << 8
    }
}

/// What a record changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'b> {
    /// Words, by entries, of which this has the words.
    Words(&'b [[u8; WORD as usize]]),
    /// Bytes.
    Bytes(Offset, &'b [u8]),
    /// So many zeros.
    Zeros(Offset, u64),
    /// So many pages as a whole.
    Pages(Offset, u64),
}

impl<'b> Item<'b> {
    /// The entries, if these are some.
    pub fn entries(self) -> impl Iterator<Item = Entry> + use<'b> {
        let words = if let Item::Words(words) = self { words } else { &[] };
        let pairs = words.as_chunks::<2>().0.iter();
        pairs.filter_map(|pair| Entry::unpack(pair.map(u64::from_le_bytes)))
    }
}

impl<'b> Item<'b> {
    /// The pages that it changes without naming them as a whole: the offsets of their first bytes.
    pub fn changed_pages(self) -> impl Iterator<Item = Offset> + use<'b> {
        let (at, len) = match self {
            Item::Bytes(at, bytes) => (at, bytes.len() as u64),
            Item::Zeros(at, len) => (at, len),
            Item::Words(_) | Item::Pages(..) => (Offset::NONE, 0),
        };
        let words = self.entries().map(|entry| (entry.target, WORD));
        words.chain(core::iter::once((at, len))).flat_map(|(at, len)| {
            let end = at.bytes().saturating_add(len).div_ceil(PAGE);
            (at.bytes() / PAGE..end).map(|page| Offset::new(page * PAGE))
        })
    }
}

/// The items behind the first two words of a fragment. They end where something stands that can be
/// none.
#[derive(Clone, Debug)]
pub struct Items<'b>(&'b [[u8; WORD as usize]]);

impl<'b> Items<'b> {
    /// Those of `fragment`.
    #[must_use]
    pub fn of(fragment: &'b [u8]) -> Self {
        let words = fragment.as_chunks().0;
        Items(words.get((FRAGMENT / WORD) as usize..).unwrap_or_default())
    }

    fn take(&mut self, words: u64) -> Option<&'b [[u8; WORD as usize]]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(words).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u64> {
        self.take(1)?.first().map(|word| u64::from_le_bytes(*word))
    }
}

impl<'b> Iterator for Items<'b> {
    type Item = Item<'b>;

    fn next(&mut self) -> Option<Item<'b>> {
        let head = self.word()?;
        let (kind, count) = (head as u8, head >> 8);
        if kind == ItemKind::Words as u8 {
            let words = self.take(count.checked_mul(2)?)?;
            let is_one = |pair: &[[u8; WORD as usize]; 2]| {
                let entry = Entry::unpack(pair.map(u64::from_le_bytes));
                entry.is_some_and(|entry| entry.action != Action::Copy)
            };
            return words.as_chunks().0.iter().all(is_one).then_some(Item::Words(words));
        }
        let at = Offset::new(self.word()?);
        at.bytes().checked_add(count)?;
        match kind {
            kind if kind == ItemKind::Bytes as u8 => {
                let bytes = self.take(count.div_ceil(WORD))?.as_flattened();
                Some(Item::Bytes(at, bytes.get(..count as usize)?))
            }
            kind if kind == ItemKind::Zeros as u8 => Some(Item::Zeros(at, count)),
            kind if kind == ItemKind::Pages as u8 => {
                let end = at.bytes().checked_add(count.checked_mul(PAGE)?);
                (at.is_aligned(PAGE) && end.is_some()).then_some(Item::Pages(at, count))
            }
            _ => None,
        }
    }
}

/// Fragments that follow each other: the sequence number and number in the record of each, and its
/// bytes. They end where something stands that can be none.
#[derive(Clone, Debug)]
pub struct Fragments<'b>(&'b [u8]);

impl<'b> Fragments<'b> {
    /// Those in `bytes`.
    #[must_use]
    pub const fn of(bytes: &'b [u8]) -> Self {
        Fragments(bytes)
    }

    /// What is behind them.
    #[must_use]
    pub const fn rest(&self) -> &'b [u8] {
        self.0
    }
}

impl<'b> Iterator for Fragments<'b> {
    type Item = (u64, u32, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [first, sequence] = *self.0.as_chunks::<8>().0.first_chunk()?;
        let (bytes, number) = unpack_fragment(u64::from_le_bytes(first))?;
        let (fragment, rest) = self.0.split_at_checked(bytes as usize)?;
        self.0 = rest;
        Some((u64::from_le_bytes(sequence), number, fragment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn states_round_trip() {
        for state in [State::None, State::Drawing, State::Pushed, State::Committed(7)] {
            assert_eq!(State::unpack(state.pack()), Some(state));
        }
        for bad in [4, 5, 6] {
            assert_eq!(State::unpack(bad), None);
        }
    }

    #[test]
    fn owners_round_trip() {
        let owner = Owner { lane: Some(4095), is_held: true, life: (1 << 47) - 1 };
        assert_eq!(Owner::unpack(owner.pack()), owner);
        let next = Owner { lane: Some(7), is_held: true, life: 0 };
        assert_eq!(owner.begun(7), next);
        assert_eq!(Owner::unpack(0), Owner { lane: None, is_held: false, life: 0 });
        let life = 1 << 40 | 7;
        assert_eq!([life, 7, 8].map(|other| unpack_end(end(96, life), other)), [96, 96, 0]);
    }

    #[test]
    fn fragments_and_items_round_trip_and_end_at_what_is_none() {
        let entry = Entry { target: Offset::new(4096), action: Action::Allocate, operand: 5 };
        let [target, operand] = entry.pack();
        let mut words = vec![0, 9];
        words.extend([ItemKind::Words.head(1), target, operand]);
        words.extend([ItemKind::Bytes.head(3), 77, 0x0001_0203]);
        words.extend([ItemKind::Zeros.head(5), 78]);
        words.extend([ItemKind::Pages.head(2), 8192]);
        words[0] = fragment(words.len() as u64 * WORD, 1);
        let one = bytes(&words);
        let two = [&one[..], &one[..], &[0; 32]].concat();
        let mut fragments = Fragments::of(&two);
        for _ in 0..2 {
            let (sequence, number, found) = fragments.next().unwrap();
            assert_eq!((sequence, number, found), (9, 1, &one[..]));
            let mut items = Items::of(found);
            let words = items.next().unwrap();
            assert_eq!(words.entries().collect::<Vec<_>>(), [entry]);
            assert_eq!(items.next(), Some(Item::Bytes(Offset::new(77), &[3, 2, 1])));
            assert_eq!(items.next(), Some(Item::Zeros(Offset::new(78), 5)));
            assert_eq!(items.next(), Some(Item::Pages(Offset::new(8192), 2)));
            assert_eq!(items.next(), None);
        }
        assert_eq!(fragments.next(), None);
        assert_eq!(fragments.rest(), [0; 32]);
    }

    #[test]
    fn what_does_not_fit_is_no_item() {
        let copy = Entry { target: Offset::new(4096), action: Action::Copy, operand: 5 }.pack();
        for bad in [
            &[ItemKind::Words.head(2), 1, 2][..],
            &[ItemKind::Words.head(1), copy[0], copy[1]],
            &[ItemKind::Words.head(u64::MAX)],
            &[ItemKind::Bytes.head(9), 0, 1],
            &[ItemKind::Zeros.head(1 << 55), u64::MAX],
            &[ItemKind::Pages.head(1), 4095],
            &[ItemKind::Pages.head(1 << 52), 4096],
            &[5, 0],
            &[ItemKind::Zeros.head(1)],
        ] {
            assert_eq!(Items(bytes(bad).as_chunks().0).next(), None, "{bad:?}");
        }
        for bad in [0, 8, 17, CHUNK + 8] {
            assert_eq!(unpack_fragment(bad), None);
        }
    }
}
