//! Removing and replacing entries. What a removal empties is given back at once.

use conquest_format::Offset;
use conquest_format::fs::bucket::{HEADER, Header, TAG_FREE};
use conquest_format::fs::dentry::{Dentry, FileType, HASH_BITS, Position, granules};
use conquest_format::fs::node::{BITS, SLOTS, Slot, slots_filled};
use conquest_format::fs::{BUCKET, NODE};
use conquest_format::{WORD, pointer};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Ptr, Result, Tx};

use crate::dir::bucket::Bucket;
use crate::dir::find::Found;
use crate::dir::path::{Path, read_slot, slot_at, span};
use crate::dir::{Directory, NameHash, Node};

impl<N: NameHash> Directory<N> {
    /// Stages the removal of the entry at `position`; whether there was one. The transaction holds
    /// the directory's lock exclusively. It takes at most 68 journal entries.
    ///
    /// # Errors
    /// Those of the region, of which [`conquest_pm::Error::Corrupt`] names what is damaged.
    pub fn remove<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        position: Position,
    ) -> Result<bool> {
        let Some(Found { path, bucket, tags, granule }) = self.locate(tx, position)? else {
            return Ok(false);
        };
        let dentry = bucket.dentry(tx, granule)?;
        let mut left = tags;
        for more in 0..granules(u64::from(dentry.name_len)) {
            left.set(granule + more, TAG_FREE);
        }
        if left.is_empty() {
            self.drop_bucket(tx, &path, &bucket)?;
        } else {
            left.stage(tx, bucket.at, &tags)?;
        }
        self.count(tx, self.root.entries, -1)?;
        Ok(true)
    }

    /// Stages that the entry at `position` names the inode at `inode`, of type `file_type`;
    /// whether there is one. Name and position stay. The transaction holds the directory's lock
    /// exclusively. It takes 2 journal entries.
    ///
    /// # Errors
    /// Those of the region, of which [`conquest_pm::Error::Corrupt`] names what is damaged.
    pub fn replace<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        position: Position,
        inode: Offset,
        file_type: FileType,
    ) -> Result<bool> {
        let Some(Found { bucket, granule, .. }) = self.locate(tx, position)? else {
            return Ok(false);
        };
        let dentry = bucket.dentry(tx, granule)?;
        let [first, second] = Dentry { inode, file_type, ..dentry }.pack();
        let at = bucket.granule(granule);
        tx.set(at, first)?;
        if dentry.file_type != file_type {
            tx.set(at.plus(WORD), second)?;
        }
        Ok(true)
    }

    /// Stages that `bucket`, at the end of `path`, is no more. Its buddy, the bucket of the hashes
    /// that differ in the last bit of the prefix, takes over if it is of the same depth.
    fn drop_bucket<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        path: &Path,
        bucket: &Bucket,
    ) -> Result<()> {
        tx.free_run(bucket.at, 1, BUCKET)?;
        self.count(tx, self.root.pages, -1)?;
        let depth = bucket.header.depth();
        let Some((level, node, slot)) = path.last() else {
            return tx.set(self.root.content, Slot::Empty.pack());
        };
        let width = slots_filled(depth, level);
        let Some(buddy) = buddy(tx, path, node, slot ^ width, depth) else {
            return self.prune(tx, path, width);
        };
        let header = Header::new(depth - 1, path.hash);
        tx.set(buddy.at.plus(HEADER), header.pack())?;
        let to_buddy = Slot::Bucket(buddy.at);
        if header.depth() == BITS * level {
            // It would fill the node: it takes the node's place.
            free_node(tx, node, self.cell(path, level))?;
            return tx.set(self.cell(path, level), to_buddy.pack());
        }
        self.fill(tx, path, depth, to_buddy)
    }

    /// Stages that `width` slots at the end of `path` are empty, and that nodes with no other slot
    /// are no more.
    fn prune<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        path: &Path,
        mut width: u64,
    ) -> Result<()> {
        for level in (0..path.len).rev() {
            let Some((node, slot)) = path.step(level) else {
                break;
            };
            let emptied = span(slot, width);
            let mut others = (0..SLOTS).filter(|index| !emptied.contains(index));
            if others.any(|index| tx.get(slot_at(node, index)) != 0) {
                for index in emptied {
                    tx.set(slot_at(node, index), Slot::Empty.pack())?;
                }
                return Ok(());
            }
            free_node(tx, node, self.cell(path, level))?;
            width = 1;
        }
        tx.set(self.root.content, Slot::Empty.pack())
    }
}

/// The bucket at slot `slot` of `node`, if it is of depth `depth` like the one at the path's end.
///
/// One that can't be resolved is left alone: it may be what this transaction has just inserted
/// into, and whatever is wrong with it will be found by whoever uses it.
fn buddy<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    path: &Path,
    node: Offset,
    slot: u64,
    depth: u32,
) -> Option<Bucket> {
    let Ok(Slot::Bucket(at)) = read_slot(tx, slot_at(node, slot)) else {
        return None;
    };
    let hash = path.hash ^ 1 << HASH_BITS.checked_sub(depth)?;
    let bucket = Bucket::open(tx, at, hash, path.len).ok()?;
    (bucket.header.depth() == depth).then_some(bucket)
}

/// Stages the freeing of the node at `node`, to which the word at `cell` leads.
fn free_node<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, node: Offset, cell: Offset) -> Result<()> {
    tx.free(Ptr::<Node>::from_word(pointer::pack(node, NODE), cell)?)
}
