//! A chunk: a range of the volume's space in which the data of one large file is (DFS 2010, 3.3.1).
//!
//! Chunk `n` of a store whose chunks have `b` blocks begins with block `n * b` of the space, and
//! byte `x` of the file is byte `x` of the chunk. A file keeps its chunk until it is removed, or is
//! so short that it moves back to the core.
//!
//! A chunk may be on one of two lists, that of those of which something is to be trimmed, or to be
//! pushed, and that of those that nobody needs. Their order is no matter, so the checksum does not
//! cover the word that leads on.
//!
//! | word | field |
//! | --- | --- |
//! | 0 | number |
//! | 1 | list: 0 if it is on none, [`LAST`] if no other follows, or a pointer word to the next; with [`WHOLE`] |
//! | 2 | number of the inode that has it, 0 if none has |
//! | 3 | generation of that inode |
//! | 4 | end: pages of the file of which the volume is asked; what it has past these is nothing |
//! | 5 | pages before the end that are allocated on the volume |
//! | 6 | version: grows with whatever changes what the volume has of the file, as [`stepped`] and [`written_over`] say; in units of [`LIFE`], how many files have had the chunk |
//! | 7 | checksum of the words 0 and 2 to 6, its offset as seed |

use crate::{Offset, WORD, checksum};

/// Words in a chunk.
pub const WORDS: usize = 8;
/// Bytes in a chunk.
pub const SIZE: u64 = WORDS as u64 * WORD;
/// The list word of the last one on a list: no pointer word.
pub const LAST: u64 = 1;
/// Set in the list word of one on the first list of which nothing is to be trimmed.
pub const WHOLE: u64 = 2;
/// Of a version, the unit of lives: another one begins when a file gets the chunk.
pub const LIFE: u64 = 1 << 40;
/// Least blocks of a chunk: 1 GiB.
pub const BLOCKS_MIN: u64 = 1 << 21;
/// Most blocks of a chunk: 1 EiB.
pub const BLOCKS_MAX: u64 = 1 << 51;
/// Blocks at the beginning of the space that belong to the image of the core.
pub const IMAGE_BLOCKS: u64 = 1 << 38;

/// What a version grows by with whatever changes what the volume has of the file, but for writes
/// over what is there: these are counted below it.
pub const VERSION_STEP: u64 = 1 << 20;

/// Offsets of the words, in bytes from the chunk's start.
pub mod word {
    /// Number.
    pub const NUMBER: u64 = 0;
    /// List.
    pub const LIST: u64 = 8;
    /// The inode that has it.
    pub const INODE: u64 = 16;
    /// Generation of that inode.
    pub const GENERATION: u64 = 24;
    /// Pages of which the volume is asked.
    pub const END: u64 = 32;
    /// Pages that are allocated.
    pub const ALLOCATED: u64 = 40;
    /// Version.
    pub const VERSION: u64 = 48;
    /// Checksum.
    pub const CHECK: u64 = 56;
}

/// A chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Its number.
    pub number: u64,
    /// List word.
    pub list: u64,
    /// Number of the inode that has it, 0 if none has.
    pub inode: u64,
    /// Generation of that inode.
    pub generation: u64,
    /// Pages of which the volume is asked.
    pub end: u64,
    /// Pages that are allocated, at most as many.
    pub allocated: u64,
    /// Version.
    pub version: u64,
}

impl Chunk {
    /// Its words, if it is at `at`.
    #[must_use]
    pub fn to_words(&self, at: Offset) -> [u64; WORDS] {
        let Chunk { number, list, inode, generation, end, allocated, version } = *self;
        let mut words = [number, list, inode, generation, end, allocated, version, 0];
        words[WORDS - 1] = check(&words, at);
        words
    }

    /// The chunk in `words`, which stand at `at`.
    ///
    /// # Errors
    /// Offset of the word that is wrong, from the chunk's start: these words must not be used.
    pub fn from_words(words: [u64; WORDS], at: Offset) -> Result<Chunk, u64> {
        let [number, list, inode, generation, end, allocated, version, found] = words;
        if check(&words, at) != found {
            return Err(word::CHECK);
        }
        if allocated > end {
            return Err(word::ALLOCATED);
        }
        Ok(Chunk { number, list, inode, generation, end, allocated, version })
    }
}

impl Chunk {
    /// Whether it is on the first list because something of it is to be trimmed; or on the other
    /// one, if no inode has it.
    #[must_use]
    pub const fn is_to_be_trimmed(&self) -> bool {
        self.list != 0 && self.list & WHOLE == 0
    }

    /// The version that it has when a file gets it.
    #[must_use]
    pub const fn next_life(&self) -> u64 {
        (self.version | (LIFE - 1)).wrapping_add(1)
    }

    /// Whether it is the chunk that was `seen`, of the same file since, whatever else has become of
    /// it. (After 2^24 lives one would be taken for another.)
    #[must_use]
    pub const fn is_still(&self, seen: &Chunk) -> bool {
        self.number == seen.number && self.version / LIFE == seen.version / LIFE
    }
}

/// The version behind `version`, when what the volume has of the file has changed otherwise than
/// by a write over what is there.
#[must_use]
pub const fn stepped(version: u64) -> u64 {
    version.wrapping_add(VERSION_STEP)
}

/// The version behind `version`, when pages that the volume has were written over. The last of so
/// many writes that they can't be counted any more is a step: so no version comes twice.
#[must_use]
pub const fn written_over(version: u64) -> u64 {
    version.wrapping_add(1)
}

/// Whether nothing lies between two versions but writes over what is there.
#[must_use]
pub const fn is_same_step(one: u64, other: u64) -> bool {
    one / VERSION_STEP == other / VERSION_STEP
}

/// The checksum of the chunk at `at`.
#[must_use]
pub fn check(words: &[u64; WORDS], at: Offset) -> u64 {
    let mut bytes = [0; (WORDS - 2) * WORD as usize];
    let covered = (0..).zip(words).filter(|(index, _)| *index != 1).map(|(_, word)| word);
    for (to, word) in bytes.chunks_exact_mut(WORD as usize).zip(covered) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    checksum(at.bytes(), &bytes)
}

/// The number of the first chunk behind the core's image, of chunks of `blocks` blocks.
#[must_use]
pub const fn first(blocks: u64) -> u64 {
    IMAGE_BLOCKS.div_ceil(blocks)
}

/// Most bytes in a file with a chunk of `blocks` blocks: a page less than there are.
#[must_use]
pub const fn file_max(blocks: u64) -> u64 {
    blocks * crate::volume::BLOCK - crate::PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_what_was_written_or_nothing() {
        let at = Offset::new(0x4440);
        let chunk = Chunk {
            number: 70,
            list: LAST,
            inode: 5,
            generation: 1 << 48 | 9,
            end: 300,
            allocated: 200,
            version: 7,
        };
        let words = chunk.to_words(at);
        assert_eq!(Chunk::from_words(words, at), Ok(chunk));
        assert_eq!(Chunk::from_words(words, at.plus(64)), Err(word::CHECK));
        for index in 0..WORDS {
            let mut other = words;
            other[index] ^= 1 << 13;
            // The list is no matter of the checksum.
            assert_eq!(Chunk::from_words(other, at).is_ok(), index == 1, "{index}");
        }
        let more = Chunk { allocated: 301, ..chunk }.to_words(at);
        assert_eq!(Chunk::from_words(more, at), Err(word::ALLOCATED));
    }

    #[test]
    fn a_chunk_is_another_one_in_its_next_life() {
        let seen = Chunk {
            number: 70,
            list: 0,
            inode: 5,
            generation: 9,
            end: 300,
            allocated: 200,
            version: 3 * LIFE + 7,
        };
        let changed = Chunk { version: seen.version + 1000, end: 0, list: LAST, ..seen };
        assert!(changed.is_still(&seen) && seen.is_still(&changed));
        let next = Chunk { version: changed.next_life(), ..seen };
        assert_eq!(next.version, 4 * LIFE);
        assert!(!next.is_still(&seen));
        assert!(!Chunk { number: 71, ..seen }.is_still(&seen));
        let last = Chunk { version: u64::MAX, ..seen };
        assert_eq!(last.next_life(), 0);
    }

    #[test]
    fn writes_over_what_is_there_are_counted_below_the_steps() {
        let begin = LIFE + 5 * VERSION_STEP;
        let (over, next) = (written_over(begin), stepped(begin));
        assert_eq!((over, next), (begin + 1, LIFE + 6 * VERSION_STEP));
        assert!(is_same_step(begin, over) && is_same_step(over, begin));
        assert!(!is_same_step(begin, next) && !is_same_step(over, next));
        assert!(!is_same_step(begin, 2 * LIFE + 5 * VERSION_STEP));
        // What was counted stays.
        assert_eq!(stepped(over), next + 1);
        // Neither does it come to where it was: not even the last one that can be counted.
        let last = begin + VERSION_STEP - 1;
        assert!(is_same_step(begin, last) && !is_same_step(begin, written_over(last)));
        assert_eq!((stepped(u64::MAX), written_over(u64::MAX)), (VERSION_STEP - 1, 0));
    }

    #[test]
    fn chunks_begin_behind_the_image() {
        assert_eq!((first(1 << 32), first(1 << 35), first(1 << 40)), (64, 8, 1));
        assert_eq!(file_max(1 << 35), (16 << 40) - 4096);
    }
}
