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
//! Memory: removing merges a node with one beside it if both fill at most three quarters of one.
//! So of two nodes beside each other under one parent, of which one was removed from, either both
//! have 24 slots in use or more, or together more than 46. At worst, where removals have left a node
//! of one slot beside each of 24, an extent takes 84 bytes; 17 to 34 if extents are only inserted,
//! 24 if that is at random.

use conquest_format::Offset;
use conquest_pm::{Ptr, Result};

use super::extent::{Extent, UNIT_MAX};
use super::node::{Reader, Slot, around, corrupt, open, open_child, pointer, slots};
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

/// What a look at one leaf has shown.
enum Look {
    Found(Extent),
    /// Nothing there; the next leaf begins at this unit, if there is one.
    Beyond(Option<u64>),
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
        match self.look(reader, unit)? {
            Look::Found(extent) => Ok(Some(extent)),
            Look::Beyond(None) => Ok(None),
            // The next leaf is not empty.
            Look::Beyond(Some(next)) => match self.look(reader, next)? {
                Look::Found(extent) => Ok(Some(extent)),
                Look::Beyond(_) => {
                    Err(corrupt("map", self.root, "leaves that are not empty", next))
                }
            },
        }
    }

    fn look<R: Reader>(&self, reader: &R, unit: u64) -> Result<Look> {
        let Some(root) = pointer(reader.word(self.root), self.root)? else {
            return Ok(Look::Beyond(None));
        };
        let (mut words, mut level) = open(reader, root, None)?;
        let (mut node, mut next) = (root, None);
        while level > 0 {
            let found = around(&words, unit);
            next = found.above.map(|slot| slot.unit).or(next);
            // If all is behind the unit, then also all below the first child.
            let child = found.below.or(found.above);
            let child = child.ok_or_else(|| empty(node))?;
            (node, words) = open_child(reader, node.offset(), level, child)?;
            level -= 1;
        }
        let found = around(&words, unit);
        let here = found.below.and_then(|slot| slot.extent()).filter(|found| found.end() > unit);
        let behind = || found.above.and_then(|slot| slot.extent());
        Ok(here.or_else(behind).map_or(Look::Beyond(next), Look::Found))
    }

    /// Goes down to the leaf that `unit` belongs to, calling `pass` with each inner node on the
    /// way: the leaf; none if the tree has no root.
    pub(super) fn descend<'r, R: Reader>(
        &self,
        reader: &'r R,
        unit: u64,
        mut pass: impl FnMut(&R::Words<'r>, Step),
    ) -> Result<Option<(Ptr<Node>, R::Words<'r>)>> {
        let Some(root) = pointer(reader.word(self.root), self.root)? else {
            return Ok(None);
        };
        let (mut words, mut level) = open(reader, root, None)?;
        let mut node = root;
        while level > 0 {
            let found = around(&words, unit);
            let (child, next) = match (found.below, found.above) {
                (Some(child), next) => (child, next),
                (None, Some(first)) => (first, around(&words, first.unit).above),
                (None, None) => return Err(empty(node)),
            };
            pass(&words, Step { node, level, child, next });
            (node, words) = open_child(reader, node.offset(), level, child)?;
            level -= 1;
        }
        Ok(Some((node, words)))
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
        let mut next = None;
        let pass = |_: &R::Words<'_>, step: Step| next = step.next.map(|slot| slot.unit).or(next);
        if let Some((_, words)) = self.descend(reader, unit, pass)? {
            let extents = slots(&words).filter_map(|slot| slot.extent());
            out.extend(extents.filter(|extent| extent.end() > unit));
            out.sort_unstable();
        }
        Ok(next)
    }
}

/// The error for an inner node that leads nowhere.
#[cold]
fn empty(node: Ptr<Node>) -> conquest_pm::Error {
    corrupt("node of the map", node.offset(), "a slot that is in use", 0)
}
