//! Inserting an entry where there is room for it.

use conquest_format::fs::bucket::{GRANULE, Header, TAG_MORE, tag};
use conquest_format::fs::dentry::{
    DUPS, Dentry, FileType, HASH_BITS, Position, granules, position_of,
};
use conquest_format::fs::node::{BITS, Slot, slots_filled};
use conquest_format::{Offset, WORD};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::dir::bucket::{Bucket, Tags};
use crate::dir::page::NewBucket;
use crate::dir::path::{Path, slot_at, span};
use crate::dir::{Directory, Entry, Name, NameHash};
use crate::{Error, Reader, Result};

/// What came of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Insert {
    /// It is staged; the entry will have this position.
    Done(Position),
    /// There is an entry of this name; nothing is staged.
    Exists(Entry),
    /// [`Directory::make_room`] first; nothing is staged.
    NoRoom,
}

/// What there is for a name in the bucket of its hash.
pub(super) enum Vacancy {
    /// An entry of this name.
    Taken(Entry),
    /// Granules from this one on, and a position.
    Free(u64, Position),
    /// Too few granules.
    Full,
}

impl<N: NameHash> Directory<N> {
    /// Stages an entry `name` for the inode at `inode`, of type `file_type`. The transaction holds
    /// the directory's lock exclusively. It takes at most 68 journal entries and a page.
    ///
    /// # Errors
    /// [`Error::Collisions`] if too many entries have the name's hash; those of the region, of
    /// which [`conquest_pm::Error::Corrupt`] names what is damaged.
    pub fn insert<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        name: &Name<'_>,
        inode: Offset,
        file_type: FileType,
    ) -> Result<Insert> {
        let path = self.descend(tx, name.hash())?;
        let dentry = |position| Dentry { inode, file_type, position, name_len: name.len() as u8 };
        let position = match path.bucket {
            None => {
                let position = Position::new(path.hash, 0);
                self.begin_bucket(tx, &path, name, dentry(position))?;
                position
            }
            Some(at) => {
                let bucket = Bucket::open(tx, at, path.hash, path.len)?;
                let tags = bucket.tags(tx);
                match self.vacancy(tx, &bucket, &tags, name)? {
                    Vacancy::Taken(entry) => return Ok(Insert::Exists(entry)),
                    Vacancy::Full => return Ok(Insert::NoRoom),
                    Vacancy::Free(granule, position) => {
                        stage_dentry(tx, &bucket, &tags, granule, name, dentry(position))?;
                        position
                    }
                }
            }
        };
        self.count(tx, self.root.entries, 1)?;
        Ok(Insert::Done(position))
    }

    /// What there is for `name` in `bucket`, to which its hash leads.
    pub(super) fn vacancy(
        &self,
        reader: &impl Reader,
        bucket: &Bucket,
        tags: &Tags,
        name: &Name<'_>,
    ) -> Result<Vacancy> {
        let mut dups = 0_u64;
        for (granule, word) in bucket.of_hash(reader, tags, name.hash()) {
            if bucket.is_named(reader, granule, word, name) {
                return Ok(Vacancy::Taken(bucket.entry(reader, granule)?));
            }
            dups |= 1 << position_of(word).dup();
        }
        let dup = u64::from(dups.trailing_ones());
        if dup >= DUPS {
            return Err(self.collisions(name, dup));
        }
        Ok(match tags.free_run(granules(name.len())) {
            Some(granule) => Vacancy::Free(granule, Position::new(name.hash(), dup)),
            None => Vacancy::Full,
        })
    }

    pub(super) fn collisions(&self, name: &Name<'_>, found: u64) -> Error {
        Error::Collisions { directory: self.root.content, hash: name.hash(), found }
    }

    /// Stages a bucket with nothing but `dentry` where there is none: it takes as many slots as
    /// are empty.
    fn begin_bucket<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        path: &Path,
        name: &Name<'_>,
        dentry: Dentry,
    ) -> Result<()> {
        let depth = empty_depth(tx, path);
        let mut page = NewBucket::new();
        let words = dentry.pack().into_iter().chain(name.words());
        let fits = page.add(tag(path.hash), granules(name.len()), words);
        debug_assert!(fits, "an empty page holds any name");
        let at = page.finish(tx, Header::new(depth, path.hash))?;
        self.count(tx, self.root.pages, 1)?;
        Ok(self.fill(tx, path, depth, Slot::Bucket(at))?)
    }
}

/// The depth of the bucket that would take up all the empty slots around the one that `path` ends
/// in.
fn empty_depth(reader: &impl Reader, path: &Path) -> u32 {
    let Some((level, node, slot)) = path.last() else {
        return 0;
    };
    let mut depth = (BITS * (level + 1)).min(HASH_BITS);
    while depth > BITS * level + 1 {
        let mut wider = span(slot, slots_filled(depth - 1, level));
        if wider.any(|index| reader.word(slot_at(node, index)) != 0) {
            break;
        }
        depth -= 1;
    }
    depth
}

/// Stages `dentry`, whose name is `name`, at granule `granule` of `bucket`.
fn stage_dentry<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    bucket: &Bucket,
    tags: &Tags,
    granule: u64,
    name: &Name<'_>,
    dentry: Dentry,
) -> Result<()> {
    // The dentry's words are journalled too: an insertion is one record, with no fence for bytes
    // prepared outside of it, and undone by dropping it. All its words are set: the granules hold
    // what was there before.
    let count = granules(name.len());
    let at = bucket.granule(granule);
    let words = dentry.pack().into_iter().chain(name.words()).chain(core::iter::repeat(0));
    for (word, index) in words.zip(0..count * GRANULE / WORD) {
        tx.set(at.plus(index * WORD), word)?;
    }
    let mut new = *tags;
    new.set(granule, tag(name.hash()));
    (1..count).for_each(|more| new.set(granule + more, TAG_MORE));
    Ok(new.stage(tx, bucket.at, tags)?)
}
