//! Looking units up in rising order, with one way down for all of them.

use conquest_format::WORD;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Ptr, Result, Tx};

use super::assign::replaces;
use super::extent::{Extent, UNIT_MAX};
use super::node::{
    LEVELS_MAX, Reader, Words, above, below, corrupt, open, open_child, pointer, slot_at,
};
use super::tree::{Tree, child_for, empty};
use crate::kinds::Node;

/// Where a look for units in rising order stands: the nodes on the way to the last one. It knows
/// the map as it was, so it is to be forgotten when that is changed by other means than
/// [`Tree::replace`]: whoever has one holds the map's lock meanwhile.
#[derive(Debug, Default)]
pub struct Cursor {
    /// Nodes that were read, from the root on; those from `depth` on are only memory.
    steps: Vec<Step>,
    depth: usize,
    /// The last unit that was looked for.
    last: u64,
}

#[derive(Debug)]
struct Step {
    node: Ptr<Node>,
    level: u64,
    /// What is below it is before this unit.
    end: u64,
    words: Words,
}

impl Cursor {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Cursor {
        Cursor::default()
    }

    /// Forgets what it has seen, because the map has changed.
    pub fn forget(&mut self) {
        self.depth = 0;
    }

    fn lowest(&self) -> Option<&Step> {
        self.depth.checked_sub(1).and_then(|index| self.steps.get(index))
    }

    /// Goes one level down, to the node with these words.
    fn enter(&mut self, node: Ptr<Node>, level: u64, end: u64, words: Words) {
        let step = Step { node, level, end, words };
        match self.steps.get_mut(self.depth) {
            Some(place) => *place = step,
            None => self.steps.push(step),
        }
        self.depth += 1;
    }

    /// Goes to the leaf that `unit` belongs to; false if the tree has no root.
    fn seek<R: Reader>(&mut self, tree: &Tree, reader: &R, unit: u64) -> Result<bool> {
        if unit < self.last {
            self.forget();
        }
        self.last = unit;
        while self.lowest().is_some_and(|step| unit >= step.end) {
            self.depth -= 1;
        }
        if self.depth == 0 {
            let Some(root) = pointer(reader.word(tree.root), tree.root)? else {
                return Ok(false);
            };
            let mut words = Words::new();
            let level = open(reader, root, None, &mut words)?;
            self.enter(root, level, u64::MAX, words);
        }
        for _ in 0..LEVELS_MAX {
            let Some(step) = self.lowest().filter(|step| step.level > 0) else {
                break;
            };
            let child = child_for(&step.words, unit).ok_or_else(|| empty(step.node))?;
            let end = above(&step.words, child.unit).map_or(step.end, |next| next.unit);
            let level = step.level;
            let mut words = Words::new();
            let node = open_child(reader, step.node.offset(), level, child, &mut words)?;
            self.enter(node, level - 1, end, words);
        }
        Ok(true)
    }
}

impl Tree {
    /// [`Self::find`], with what `cursor` knows of the way: the units that are looked for one after
    /// the other had better be in rising order.
    ///
    /// # Errors
    /// Those of [`Self::find`].
    pub fn find_next<R: Reader>(
        &self,
        cursor: &mut Cursor,
        reader: &R,
        unit: u64,
    ) -> Result<Option<Extent>> {
        let mut at = unit;
        while at < UNIT_MAX && cursor.seek(self, reader, at)? {
            let Some(leaf) = cursor.lowest() else {
                break;
            };
            let here = below(&leaf.words, at).and_then(|slot| slot.extent());
            let here = here.filter(|found| found.end() > at);
            let found = here.or_else(|| above(&leaf.words, at).and_then(|slot| slot.extent()));
            if found.is_some() || leaf.end == u64::MAX {
                return Ok(found);
            }
            if leaf.end <= at {
                return Err(corrupt("map", self.root, "leaves in order", leaf.end));
            }
            at = leaf.end;
        }
        Ok(None)
    }

    /// Makes the map lead from the range of `found`, which was found last by `cursor` in the
    /// transaction, to `place`, if that takes one entry of it: not if it belongs together with what
    /// is beside it there. Returns whether it is done.
    ///
    /// # Errors
    /// Those of the region.
    pub fn replace<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        cursor: &mut Cursor,
        found: Extent,
        place: u64,
    ) -> Result<bool> {
        let extent = Extent { place, ..found };
        let depth = cursor.depth;
        let Some(leaf) = depth.checked_sub(1).and_then(|index| cursor.steps.get_mut(index)) else {
            return Ok(false);
        };
        let slot = below(&leaf.words, found.unit).filter(|slot| slot.extent() == Some(found));
        let Some(slot) = slot.filter(|_| extent.is_valid() && replaces(&leaf.words, found, extent))
        else {
            return Ok(false);
        };
        let [first, second] = extent.pack();
        tx.set(slot_at(leaf.node.offset(), slot.index).plus(WORD), second)?;
        leaf.words.set(slot.index, [first, second]);
        Ok(true)
    }
}
