//! The way from a directory's root to the bucket of a hash, and changes at its end.

use conquest_format::fs::NODE;
use conquest_format::fs::node::{self, LEVELS, Slot, slot_of, slots_filled};
use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Result, Tx};

use crate::Reader;
use crate::dir::{Directory, NameHash};
use crate::error::corrupt;

/// The nodes on the way to where the entries of a hash are, or would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) hash: u64,
    nodes: [Offset; LEVELS as usize],
    /// How many nodes there are.
    pub(super) len: u32,
    /// The bucket that the last slot leads to; none if that is empty.
    pub(super) bucket: Option<Offset>,
}

impl Path {
    /// The node of level `level`, one of those on the way, and the hash's slot in it.
    pub(super) fn step(&self, level: u32) -> Option<(Offset, u64)> {
        let node = self.nodes.get(level as usize)?;
        Some((*node, slot_of(self.hash, level)))
    }

    /// The last node and slot, with the node's level; none if the root leads to a bucket or is
    /// empty.
    pub(super) fn last(&self) -> Option<(u32, Offset, u64)> {
        let level = self.len.checked_sub(1)?;
        self.step(level).map(|(node, slot)| (level, node, slot))
    }
}

/// Where slot `slot` of the node at `node` is.
pub(super) fn slot_at(node: Offset, slot: u64) -> Offset {
    node.plus(slot * WORD)
}

/// The slots that what fills `width` slots, a power of two, has if slot `slot` is among them.
pub(super) fn span(slot: u64, width: u64) -> core::ops::Range<u64> {
    let first = slot & !width.saturating_sub(1);
    first..first + width
}

/// The slot at `at`.
pub(super) fn read_slot(reader: &impl Reader, at: Offset) -> Result<Slot> {
    let word = reader.word(at);
    Slot::unpack(word)
        .ok_or_else(|| corrupt("directory slot", at, "0 or a pointer to a bucket or a node", word))
}

/// Checks that there is a node at `at`.
pub(super) fn resolve_node(reader: &impl Reader, at: Offset) -> Result<()> {
    let place = reader.core().resolve_kind(at, NODE)?;
    if place.len() == node::SIZE {
        return Ok(());
    }
    Err(corrupt("directory node", at, "an object of 1024 bytes", place.len()))
}

impl<N: NameHash> Directory<N> {
    /// The way to where the entries of `hash` are.
    pub(super) fn descend(&self, reader: &impl Reader, hash: u64) -> Result<Path> {
        let mut path = Path { hash, nodes: [Offset::NONE; LEVELS as usize], len: 0, bucket: None };
        let mut cell = self.root.content;
        loop {
            let node = match read_slot(reader, cell)? {
                Slot::Empty => return Ok(path),
                Slot::Bucket(at) => return Ok(Path { bucket: Some(at), ..path }),
                Slot::Node(at) => at,
            };
            // The nodes may form a circle, if the region is damaged or a reader comes too late.
            let Some(place) = path.nodes.get_mut(path.len as usize) else {
                let expected = "at most seven nodes on the way to a bucket";
                return Err(corrupt("directory slot", cell, expected, node.bytes()));
            };
            resolve_node(reader, node)?;
            *place = node;
            cell = slot_at(node, slot_of(hash, path.len));
            path.len += 1;
        }
    }

    /// The word that leads to the node of level `level` on the way, or, for its length, to the
    /// bucket.
    pub(super) fn cell(&self, path: &Path, level: u32) -> Offset {
        match level.checked_sub(1).and_then(|above| path.step(above)) {
            Some((node, slot)) => slot_at(node, slot),
            None => self.root.content,
        }
    }

    /// Stages `slot` for all hashes that share `depth` bits with the path's, in its last node.
    pub(super) fn fill<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        path: &Path,
        depth: u32,
        slot: Slot,
    ) -> Result<()> {
        let Some((level, node, chosen)) = path.last() else {
            return tx.set(self.root.content, slot.pack());
        };
        for index in span(chosen, slots_filled(depth, level)) {
            tx.set(slot_at(node, index), slot.pack())?;
        }
        Ok(())
    }

    /// Stages that the count at `at` changes by `change`.
    pub(super) fn count<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        at: Offset,
        change: i64,
    ) -> Result<()> {
        let count = tx.get(at);
        tx.set(at, count.wrapping_add_signed(change))
    }
}
