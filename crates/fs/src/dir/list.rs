//! Listing entries in the order of their positions.
//!
//! A listing is a sequence of calls, each from the position at which the one before it ended, with
//! changes in between. Positions don't change, so an entry that is there throughout is seen once.
//!
//! Every turn of the loop goes on to a greater hash. On a damaged directory it ends too, after no
//! more turns than the region has buckets and nodes: a bucket is accepted at one place only, and a
//! node that is entered at its first slot must lead to something.

use core::ops::ControlFlow;

use conquest_format::fs::bucket::{FIRST, GRANULES};
use conquest_format::fs::dentry::{HASH_BITS, NAME_MAX, Position, is_name, position_of};
use conquest_format::fs::node::{BITS, SLOTS};
use conquest_pm::Result;

use crate::Reader;
use crate::dir::bucket::Bucket;
use crate::dir::path::{Path, slot_at};
use crate::dir::{Directory, Entry, NameHash, name};
use crate::error::corrupt;

/// Dentries that the tags of a bucket can claim.
const HEADS_MAX: usize = (GRANULES - FIRST) as usize;

impl<N: NameHash> Directory<N> {
    /// Gives `sink` the entries after position `after`, or all of them, with their names, in the
    /// order of their positions, until it breaks off. Takes no lock, allocates nothing and makes no
    /// system call.
    ///
    /// Inside [`conquest_pm::Core::read`] the whole may be done again, and what was given before
    /// does not count: the caller's closure begins by emptying what `sink` fills.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] names what is damaged on the way.
    pub fn list(
        &self,
        reader: &impl Reader,
        after: Option<Position>,
        mut sink: impl FnMut(&Entry, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut from = match after {
            None => Some(Position::START),
            Some(after) => after.next(),
        };
        while let Some(position) = from {
            let path = self.descend(reader, position.hash())?;
            let end = match path.bucket {
                None => empty_end(reader, &path)?,
                Some(at) => {
                    let bucket = Bucket::open(reader, at, path.hash, path.len)?;
                    if self.list_bucket(reader, &bucket, position, &mut sink)?.is_break() {
                        return Ok(());
                    }
                    bucket.header.end()
                }
            };
            from = (end >> HASH_BITS == 0).then(|| Position::new(end, 0));
        }
        Ok(())
    }

    /// Gives `sink` the entries of `bucket` from position `from` on.
    pub(super) fn list_bucket(
        &self,
        reader: &impl Reader,
        bucket: &Bucket,
        from: Position,
        sink: &mut impl FnMut(&Entry, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let tags = bucket.tags(reader);
        // Position and granule of each, 60 bits together.
        let mut order = [0_u64; HEADS_MAX];
        let mut count = 0;
        for granule in tags.heads() {
            let position = position_of(bucket.second(reader, granule));
            if position >= from
                && let Some(place) = order.get_mut(count)
            {
                *place = position.number() << 8 | granule;
                count += 1;
            }
        }
        let order = order.get_mut(..count).unwrap_or_default();
        order.sort_unstable();
        let mut buffer = [0; NAME_MAX as usize + 1];
        for key in order {
            let granule = *key & (GRANULES - 1);
            let dentry = bucket.dentry(reader, granule)?;
            let name = bucket.read_name(reader, granule, &dentry, &mut buffer);
            let hash = dentry.position.hash();
            let belongs = bucket.header.covers(hash) && name::hash(&self.names, name) == hash;
            if !belongs || !is_name(name) || dentry.position.number() != *key >> 8 {
                let (at, expected) =
                    (bucket.granule(granule), "a name with its hash, in its bucket");
                return Err(corrupt("directory entry", at, expected, hash));
            }
            let entry = Entry {
                inode: dentry.inode,
                file_type: dentry.file_type,
                position: dentry.position,
            };
            if sink(&entry, name).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The first hash after the path's that does not lead to an empty slot of the same node.
fn empty_end(reader: &impl Reader, path: &Path) -> Result<u64> {
    let Some((level, node, slot)) = path.last() else {
        return Ok(1 << HASH_BITS);
    };
    let used = (slot..SLOTS).find(|&index| reader.word(slot_at(node, index)) != 0);
    if slot == 0 && used.is_none() {
        return Err(corrupt("directory node", node, "a slot that is not empty", 0));
    }
    // Hashes here have one bit more, 0, so that every level has its seven.
    let rest = HASH_BITS + 1 - BITS * (level + 1);
    let end = ((path.hash << 1 >> rest) + used.unwrap_or(SLOTS) - slot) << rest >> 1;
    if end > path.hash {
        return Ok(end);
    }
    Err(corrupt("directory node", node, "two slots for each hash at the last level", slot))
}
