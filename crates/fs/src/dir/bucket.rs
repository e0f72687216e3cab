//! Reading a bucket.
//!
//! Tags are compared eight at a time, in a word; then the hash, then the name. A dentry is looked
//! at only within the bucket's page, whatever its words say.

use conquest_format::fs::bucket::{
    self, FIRST, GRANULE, GRANULES, HEADER, Header, TAG_DENTRY, TAG_FREE, tag,
};
use conquest_format::fs::dentry::{self, Dentry, NAME_MAX};
use conquest_format::fs::{BUCKET, node};
use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Result, Tx};

use crate::Reader;
use crate::dir::Entry;
use crate::dir::name::Name;
use crate::error::corrupt;

/// Words of a bucket's page that hold its header and tags.
const TAG_WORDS: usize = (GRANULES / WORD) as usize;
const ONES: u64 = u64::from_le_bytes([1; 8]);
const LOW_BITS: u64 = u64::from_le_bytes([0x7F; 8]);

/// A bucket that was found where its header says it belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bucket {
    pub(super) at: Offset,
    pub(super) header: Header,
}

/// The top bit of each byte of `word` that is 0.
const fn zero_bytes(word: u64) -> u64 {
    // No carry leaves its byte, so exactly these bits are left.
    !((word & LOW_BITS).wrapping_add(LOW_BITS) | word | LOW_BITS)
}

/// The tags of a bucket; those of the granules that hold header and tags are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tags([u64; TAG_WORDS]);

impl Tags {
    pub(super) fn get(&self, granule: u64) -> u8 {
        let word = self.0.get((granule / WORD) as usize).copied().unwrap_or(0);
        (word >> (granule % WORD * 8)) as u8
    }

    pub(super) fn set(&mut self, granule: u64, tag: u8) {
        let shift = granule % WORD * 8;
        if let Some(word) = self.0.get_mut((granule / WORD) as usize) {
            *word = *word & !(0xFF << shift) | u64::from(tag) << shift;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The granules whose byte in what `mask` makes of the tag words has its top bit set.
    fn masked(&self, mask: impl Fn(u64) -> u64) -> impl Iterator<Item = u64> {
        self.0.iter().zip(0_u64..).flat_map(move |(&word, index)| {
            let mut left = mask(word);
            core::iter::from_fn(move || {
                let byte = u64::from(left.checked_ilog2()?);
                left &= !(1 << byte);
                Some(index * WORD + byte / 8)
            })
        })
    }

    /// The granules with tag `tag`, which is not 0, in no particular order.
    fn matching(&self, tag: u8) -> impl Iterator<Item = u64> {
        let wanted = ONES * u64::from(tag);
        self.masked(move |word| zero_bytes(word ^ wanted))
    }

    /// The first granules of dentries, in no particular order.
    pub(super) fn heads(&self) -> impl Iterator<Item = u64> {
        // Tags from TAG_DENTRY on are those with a bit above the lowest.
        const { assert!(TAG_DENTRY == 2) };
        self.masked(|word| !zero_bytes(word & !ONES) & !LOW_BITS)
    }

    /// The first of `count` free granules in a row.
    pub(super) fn free_run(&self, count: u64) -> Option<u64> {
        let mut run = 0;
        for granule in FIRST..GRANULES {
            run = if self.get(granule) == TAG_FREE { run + 1 } else { 0 };
            if run == count {
                return Some(granule + 1 - count);
            }
        }
        None
    }

    /// Stages what differs from `before`, the tags of the bucket at `at`.
    pub(super) fn stage<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        at: Offset,
        before: &Tags,
    ) -> Result<()> {
        for ((new, old), index) in self.0.iter().zip(&before.0).zip(0_u64..) {
            if new != old {
                tx.set(at.plus(index * WORD), *new)?;
            }
        }
        Ok(())
    }
}

impl Bucket {
    /// The bucket at `at`, to which `hash` has led past `nodes` nodes.
    pub(super) fn open(reader: &impl Reader, at: Offset, hash: u64, nodes: u32) -> Result<Bucket> {
        reader.core().resolve_run(at, 1, BUCKET)?;
        let word = reader.word(at.plus(HEADER));
        let fits = |header: &Header| {
            let depth = header.depth();
            let level = nodes.checked_sub(1);
            let fits = level.map_or(depth == 0, |level| node::slots_filled(depth, level) > 0);
            fits && header.covers(hash)
        };
        match Header::unpack(word).filter(fits) {
            Some(header) => Ok(Bucket { at, header }),
            None => {
                let expected = "a header with the depth and prefix that lead here";
                Err(corrupt("directory bucket", at, expected, word))
            }
        }
    }

    pub(super) fn tags(&self, reader: &impl Reader) -> Tags {
        let mut tags = Tags([0; TAG_WORDS]);
        for (tag, index) in tags.0.iter_mut().zip(0_u64..).skip((FIRST / WORD) as usize) {
            *tag = reader.word(self.at.plus(index * WORD));
        }
        tags
    }

    /// Where granule `granule` is.
    pub(super) fn granule(&self, granule: u64) -> Offset {
        self.at.plus(granule * GRANULE)
    }

    /// The second word of the dentry at granule `granule`.
    pub(super) fn second(&self, reader: &impl Reader, granule: u64) -> u64 {
        reader.word(self.granule(granule).plus(WORD))
    }

    /// The granules, and second words, of the dentries of `hash`.
    pub(super) fn of_hash(
        &self,
        reader: &impl Reader,
        tags: &Tags,
        hash: u64,
    ) -> impl Iterator<Item = (u64, u64)> {
        tags.matching(tag(hash))
            .map(|granule| (granule, self.second(reader, granule)))
            .filter(move |&(_, word)| dentry::hash_of(word) == hash)
    }

    /// The dentry at granule `granule`, which has a name's length in the page.
    pub(super) fn dentry(&self, reader: &impl Reader, granule: u64) -> Result<Dentry> {
        let at = self.granule(granule);
        let words = [reader.word(at), self.second(reader, granule)];
        let fits = |dentry: &Dentry| self.holds(granule, u64::from(dentry.name_len));
        Dentry::unpack(words).filter(fits).ok_or_else(|| {
            let expected = "a pointer to an inode, a file type and a length within the page";
            corrupt("directory entry", at, expected, words[1])
        })
    }

    /// Whether a dentry at granule `granule` with a name of `len` bytes ends within the page.
    fn holds(&self, granule: u64, len: u64) -> bool {
        granule + dentry::granules(len) <= bucket::GRANULES
    }

    pub(super) fn entry(&self, reader: &impl Reader, granule: u64) -> Result<Entry> {
        let Dentry { inode, file_type, position, .. } = self.dentry(reader, granule)?;
        Ok(Entry { inode, file_type, position })
    }

    /// Whether the dentry at granule `granule`, whose second word is `word`, has the name `name`.
    pub(super) fn is_named(
        &self,
        reader: &impl Reader,
        granule: u64,
        word: u64,
        name: &Name<'_>,
    ) -> bool {
        let at = self.granule(granule + 1);
        dentry::name_len_of(word) == name.len()
            && self.holds(granule, name.len())
            && name.words().zip(0..).all(|(word, i)| reader.word(at.plus(i * WORD)) == word)
    }

    /// Copies the name of `dentry` at granule `granule` into `buffer`.
    pub(super) fn read_name<'b>(
        &self,
        reader: &impl Reader,
        granule: u64,
        dentry: &Dentry,
        buffer: &'b mut [u8; NAME_MAX as usize + 1],
    ) -> &'b [u8] {
        let at = self.granule(granule + 1);
        let len = usize::from(dentry.name_len);
        let words = buffer.chunks_exact_mut(WORD as usize).zip(0_u64..);
        for (chunk, index) in words.take(len.div_ceil(WORD as usize)) {
            chunk.copy_from_slice(&reader.word(at.plus(index * WORD)).to_le_bytes());
        }
        buffer.get(..len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(of: &[(u64, u8)]) -> Tags {
        let mut tags = Tags([0; TAG_WORDS]);
        of.iter().for_each(|&(granule, tag)| tags.set(granule, tag));
        tags
    }

    fn sorted(granules: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut granules: Vec<u64> = granules.collect();
        granules.sort_unstable();
        granules
    }

    #[test]
    fn tags_are_found_exactly() {
        // Neighbours that differ in the lowest bit, and the highest tags.
        let tags = tags(&[(16, 2), (17, 1), (18, 3), (19, 2), (254, 255), (255, 254), (40, 128)]);
        assert_eq!(sorted(tags.matching(2)), [16, 19]);
        assert_eq!(sorted(tags.matching(3)), [18]);
        assert_eq!(sorted(tags.matching(255)), [254]);
        assert_eq!(sorted(tags.heads()), [16, 18, 19, 40, 254, 255]);
        assert_eq!((tags.get(254), tags.get(17), tags.get(20)), (255, 1, 0));
    }

    #[test]
    fn free_runs_are_long_enough() {
        let mut tags = tags(&[(16, 9), (20, 9), (255, 9)]);
        assert_eq!(tags.free_run(3), Some(17));
        assert_eq!(tags.free_run(4), Some(21));
        assert_eq!(tags.free_run(235), None);
        (17..255).for_each(|granule| tags.set(granule, 1));
        assert_eq!(tags.free_run(1), None);
        tags.set(255, TAG_FREE);
        assert_eq!((tags.free_run(1), tags.free_run(2)), (Some(255), None));
    }
}
