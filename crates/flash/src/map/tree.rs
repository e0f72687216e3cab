//! An ordered tree of extents, and looking things up in it.
//!
//! Rules, which hold whenever a record is committed:
//! - the root word is 0, or leads to a node; a root that is a leaf may be empty, no other node is;
//! - a child's level is one less than its parent's;
//! - in an inner node, units of slots differ, and what is below a child (its slots' units, its
//!   extents with all of their units) is at or behind the unit of its slot and before that of the
//!   next one.
//!
//! One lock guards the whole tree. Who looks things up without it may see words of several states;
//! such a look ends all the same, as levels count down, and reads nothing but nodes.
//!
//! Memory: a full node is split in halves, or, where it is added to at one end, 46 to 16. Removing
//! merges a node that has 23 slots in use or fewer with one beside it under the same parent, if
//! both have 46 together at most. So of two nodes beside each other neither has 23 or fewer and
//! both together 46 or fewer, but for a node from which nothing was removed since the other one
//! became smaller: at worst, nodes of one slot and of 24 alternate, and an extent takes 1024 / 12.5
//! bytes in its leaf, 90 in all. 23 to 25 if extents are only inserted, in order or at random, and
//! 33 after nine of ten were removed at random.

use conquest_format::Offset;
use conquest_pm::{Ptr, Result};

use super::extent::{Extent, UNIT_MAX};
use super::node::{Reader, Slot, Words, above, below, corrupt, open, open_child, pointer, slots};
use crate::kinds::Node;

/// A tree of extents in a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The word that leads to the root: a root word of the region, or a word of an object. 0 if
    /// nothing is mapped.
    pub root: Offset,
    /// Units of a segment: no extent is made longer across a multiple of it. 0: no segments.
    pub segment: u64,
}

/// A node on the way down, and where the way goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) node: Ptr<Node>,
    pub(super) level: u64,
    /// The slot that leads on.
    pub(super) child: Slot,
    /// The slot behind that one.
    pub(super) next: Option<Slot>,
}

impl Tree {
    /// The extent that `unit` is in, or else the first one behind it.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] if the tree is; through a view also when it was changed
    /// meanwhile.
    #[inline]
    pub fn find<R: Reader>(&self, reader: &R, unit: u64) -> Result<Option<Extent>> {
        if unit >= UNIT_MAX {
            return Ok(None);
        }
        if let Some(found) = self.look(reader, unit)? {
            return Ok(Some(found));
        }
        let mut next = None;
        let mut words = Words::new();
        self.descend(reader, unit, &mut words, |_, step| {
            next = step.next.map(|slot| slot.unit).or(next)
        })?;
        let Some(next) = next else {
            return Ok(None);
        };
        // The next leaf is not empty.
        let found = self.look(reader, next)?;
        found.map(Some).ok_or_else(|| corrupt("map", self.root, "leaves that are not empty", next))
    }

    /// What [`Self::find`] finds, if that is in the leaf that `unit` belongs to.
    #[inline]
    fn look<R: Reader>(&self, reader: &R, unit: u64) -> Result<Option<Extent>> {
        let Some(root) = pointer(reader.word(self.root), self.root)? else {
            return Ok(None);
        };
        let mut words = Words::new();
        let (mut node, mut level) = (root, open(reader, root, None, &mut words)?);
        while level > 0 {
            let child = child_for(&words, unit).ok_or_else(|| empty(node))?;
            node = open_child(reader, node.offset(), level, child, &mut words)?;
            level -= 1;
        }
        let here = below(&words, unit).and_then(|slot| slot.extent());
        let here = here.filter(|found| found.end() > unit);
        Ok(here.or_else(|| above(&words, unit).and_then(|slot| slot.extent())))
    }

    /// Goes down to the leaf that `unit` belongs to, calling `pass` with each inner node on the
    /// way: the leaf, whose words are then in `words`; none if the tree has no root.
    pub(super) fn descend<R: Reader>(
        &self,
        reader: &R,
        unit: u64,
        words: &mut Words,
        mut pass: impl FnMut(&Words, Step),
    ) -> Result<Option<Ptr<Node>>> {
        let unit = unit.min(UNIT_MAX);
        let Some(root) = pointer(reader.word(self.root), self.root)? else {
            return Ok(None);
        };
        let (mut node, mut level) = (root, open(reader, root, None, words)?);
        while level > 0 {
            let child = child_for(words, unit).ok_or_else(|| empty(node))?;
            let next = above(words, child.unit);
            pass(words, Step { node, level, child, next });
            node = open_child(reader, node.offset(), level, child, words)?;
            level -= 1;
        }
        Ok(Some(node))
    }

    /// Puts the extents of the leaf that `unit` belongs to, as far as they are not before `unit`,
    /// into `out`, sorted, in place of what is there. Returns the unit from which to go on, none at
    /// the end.
    ///
    /// Who begins at 0 and goes on so has been told of all that was mapped throughout; what was
    /// changed meanwhile may have been seen before, after, or twice.
    ///
    /// # Errors
    /// Those of [`Self::find`].
    pub fn leaf<R: Reader>(
        &self,
        reader: &R,
        unit: u64,
        out: &mut Vec<Extent>,
    ) -> Result<Option<u64>> {
        out.clear();
        let (mut words, mut next) = (Words::new(), None);
        let pass = |_: &Words, step: Step| next = step.next.map(|slot| slot.unit).or(next);
        if self.descend(reader, unit, &mut words, pass)?.is_some() {
            let extents = slots(&words).filter_map(|slot| slot.extent());
            out.extend(extents.filter(|extent| extent.end() > unit));
            out.sort_unstable();
        }
        Ok(next)
    }
}

/// The slot of an inner node whose child `unit` belongs to; none if the node is empty.
#[inline]
pub(super) fn child_for(words: &Words, unit: u64) -> Option<Slot> {
    // What is before all of them belongs to the first one.
    below(words, unit).or_else(|| above(words, unit))
}

/// The error for an inner node that leads nowhere.
#[cold]
pub(super) fn empty(node: Ptr<Node>) -> conquest_pm::Error {
    corrupt("node of the map", node.offset(), "a slot that is in use", 0)
}
