//! Journal lanes: redo records in the persistent part.
//!
//! A lane is one page. Its first line is the header, its second the intent, the rest are entries:
//!
//! | word | header |
//! | --- | --- |
//! | 0 | commit word: sequence (bits 0..48), entries (48..60), prepared ranges (60..64); both counts 0 when retired |
//! | 1 | checksum |
//! | 2 | pages in use, as this lane counts them (two's complement; the sum over lanes is the truth) |
//! | 3..8 | zero |
//!
//! | word | intent |
//! | --- | --- |
//! | 0 | intent code, 0 for none |
//! | 1..8 | arguments, owned by the code's handler |
//!
//! An entry is two words: the target offset with the action in its three low bits, and the operand.
//! One of action 3 copies bytes from the lane's image page, a page of its own ([`ImagePart`]).
//! A prepared range is two words after the last entry: offset and length in bytes.
//!
//! The checksum is [`checksum`](crate::checksum) over the lane's number and the commit word (two
//! words, seed 0), then over the entries and ranges, then over the present bytes of each prepared
//! range in turn, each of these in pieces of [`PIECE`] bytes and a shorter last one.
//! A commit word with a nonzero entry count and a matching checksum is a committed
//! record; one that does not match never happened.

use crate::kind::Kind;
use crate::{Offset, PAGE, WORD};

/// Bytes in a lane.
pub const LANE: u64 = PAGE;
/// Offset of the commit word in a lane.
pub const COMMIT: u64 = 0;
/// Offset of the checksum in a lane.
pub const CHECKSUM: u64 = 8;
/// Offset of the count of pages in use in a lane.
pub const PAGES_USED: u64 = 16;
/// Offset of the intent in a lane.
pub const INTENT: u64 = 64;
/// Words in an intent.
pub const INTENT_WORDS: u64 = 8;
/// Offset of the first entry in a lane.
pub const ENTRIES: u64 = 128;
/// Bytes in an entry or a prepared range.
pub const ENTRY: u64 = 2 * WORD;
/// Entries and prepared ranges that a lane holds.
pub const ENTRIES_MAX: u64 = (LANE - ENTRIES) / ENTRY;
/// Prepared ranges that a record can cover.
pub const RANGES_MAX: u64 = 15;
/// Bytes that the prepared ranges of one record may have together.
pub const RANGE_BYTES_MAX: u64 = 1024;

/// Bytes in a lane's image page.
pub const IMAGE: u64 = PAGE;

/// Bytes that are checksummed at once.
pub const PIECE: u64 = 256;

const SEQUENCE_BITS: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// A lane's commit word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Commit {
    /// Records this lane has committed, modulo 2^48.
    pub sequence: u64,
    /// Entries of the record; 0 when the lane is retired.
    pub entries: u64,
    /// Prepared ranges of the record.
    pub ranges: u64,
}

impl Commit {
    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.sequence & SEQUENCE_MASK) | (self.entries & 0xFFF) << 48 | (self.ranges & 0xF) << 60
    }

    /// The commit word in `word`; none if its counts exceed a lane.
    #[must_use]
    pub const fn unpack(word: u64) -> Option<Commit> {
        let commit = Commit {
            sequence: word & SEQUENCE_MASK,
            entries: word >> 48 & 0xFFF,
            ranges: word >> 60,
        };
        let room = commit.entries + commit.ranges <= ENTRIES_MAX;
        if room && (commit.entries != 0 || commit.ranges == 0) { Some(commit) } else { None }
    }

    /// Whether a record stands in the lane (its checksum decides whether it was committed).
    #[must_use]
    pub const fn is_armed(self) -> bool {
        self.entries != 0
    }

    /// The word that retires this record.
    #[must_use]
    pub const fn retired(self) -> Commit {
        Commit { sequence: self.sequence, entries: 0, ranges: 0 }
    }

    /// The commit word of the next record.
    #[must_use]
    pub const fn next(self, entries: u64, ranges: u64) -> Commit {
        Commit { sequence: (self.sequence + 1) & SEQUENCE_MASK, entries, ranges }
    }
}

/// What an entry does to its word, or words. Each action can be done again with the same result, as
/// long as nobody else has changed these words (or, for bits, those bits) in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Store the operand.
    Set,
    /// Set the operand's bits: pages or objects become allocated.
    Allocate,
    /// Clear the operand's bits: pages or objects become free.
    Free,
    /// Store words of the lane's image page, as the operand says, to the target and what follows
    /// it: an [`ImagePart`].
    Copy,
}

/// A part of a lane's image page: the operand of [`Action::Copy`].
///
/// | bits | field |
/// | --- | --- |
/// | 0..16 | offset in the lane's image page, in bytes |
/// | 16..32 | length in bytes |
/// | 32..40 | kind of the pages that are changed |
/// | 40..64 | 0 |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImagePart {
    /// Its first byte: a multiple of 8.
    pub from: u64,
    /// Its bytes: a multiple of 8, not 0.
    pub len: u64,
    /// The kind of all pages that it is copied to.
    pub kind: Kind,
}

impl ImagePart {
    /// The operand.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.from & 0xFFFF | (self.len & 0xFFFF) << 16 | (self.kind.number() as u64) << 32
    }

    /// The part that `operand` says; none if it has parts of words, or nothing, or more than an
    /// image page has.
    #[must_use]
    pub const fn unpack(operand: u64) -> Option<ImagePart> {
        let (from, len) = (operand & 0xFFFF, operand >> 16 & 0xFFFF);
        let Some(kind) = Kind::new((operand >> 32 & 0xFF) as u8) else {
            return None;
        };
        let is_whole = from % WORD == 0 && len % WORD == 0;
        if is_whole && len != 0 && from + len <= IMAGE && operand >> 40 == 0 {
            Some(ImagePart { from, len, kind })
        } else {
            None
        }
    }
}

/// One entry of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The word changed, or the first of several.
    pub target: Offset,
    /// How it is changed.
    pub action: Action,
    /// The new value, or the bits, or what is copied.
    pub operand: u64,
}

impl Entry {
    /// The entry's two words. The target is a multiple of 8.
    #[must_use]
    pub const fn pack(self) -> [u64; 2] {
        let action = match self.action {
            Action::Set => 0,
            Action::Allocate => 1,
            Action::Free => 2,
            Action::Copy => 3,
        };
        [self.target.bytes() & !7 | action, self.operand]
    }

    /// The entry in two words; none if the action is unknown.
    #[must_use]
    pub const fn unpack(words: [u64; 2]) -> Option<Entry> {
        let action = match words[0] & 7 {
            0 => Action::Set,
            1 => Action::Allocate,
            2 => Action::Free,
            3 => Action::Copy,
            _ => return None,
        };
        Some(Entry { target: Offset::new(words[0] & !7), action, operand: words[1] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_words_round_trip_and_refuse_what_does_not_fit() {
        let commit = Commit { sequence: 5, entries: 3, ranges: 2 };
        assert_eq!(Commit::unpack(commit.pack()), Some(commit));
        assert_eq!(Commit::unpack(commit.retired().pack()), Some(commit.retired()));
        assert!(!commit.retired().is_armed());
        let next = Commit { sequence: SEQUENCE_MASK, entries: 0, ranges: 0 }.next(1, 0);
        assert_eq!(next.sequence, 0);
        assert_eq!(Commit::unpack(0xFFF << 48), None);
        assert_eq!(Commit::unpack(1 << 60), None);
    }

    #[test]
    fn entries_round_trip() {
        for action in [Action::Set, Action::Allocate, Action::Free, Action::Copy] {
            let entry = Entry { target: Offset::new(4096), action, operand: 77 };
            assert_eq!(Entry::unpack(entry.pack()), Some(entry));
        }
        assert_eq!(Entry::unpack([4, 0]), None);
    }

    #[test]
    fn copies_round_trip_and_refuse_what_is_no_part_of_an_image_page() {
        let kind = Kind::new(63).unwrap();
        for copy in
            [ImagePart { from: 0, len: IMAGE, kind }, ImagePart { from: IMAGE - 8, len: 8, kind }]
        {
            assert_eq!(ImagePart::unpack(copy.pack()), Some(copy));
        }
        let good = ImagePart { from: 64, len: 128, kind };
        for bad in [
            ImagePart { len: 0, ..good },
            ImagePart { from: 65, ..good },
            ImagePart { len: 127, ..good },
            ImagePart { len: IMAGE - 56, ..good },
        ] {
            assert_eq!(ImagePart::unpack(bad.pack()), None, "{bad:?}");
        }
        assert_eq!(ImagePart::unpack(good.pack() | 1 << 38), None);
        assert_eq!(ImagePart::unpack(good.pack() | 1 << 40), None);
    }
}
