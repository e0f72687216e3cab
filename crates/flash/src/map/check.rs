//! Checking every rule of the tree, and measuring it.

use conquest_pm::check::Reachable;
use conquest_pm::{Ptr, Result};

use super::extent::UNIT_MAX;
use super::node::{Reader, Words, corrupt, is_header_clean, open, open_child, pointer, sorted};
use super::tree::Tree;
use crate::kinds::Node;

/// What a tree consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measure {
    /// Extents.
    pub extents: u64,
    /// Units that they map.
    pub units: u64,
    /// Nodes of 1 KiB.
    pub nodes: u64,
    /// Levels, leaves included; 0 if there is no node.
    pub depth: u64,
}

/// A check under way.
struct Walk<'a, R> {
    reader: &'a R,
    reachable: &'a mut Reachable,
    measure: Measure,
}

impl Tree {
    /// What the tree consists of; checks it, too.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub fn measure<R: Reader>(&self, reader: &R) -> Result<Measure> {
        self.check(reader, &mut Reachable::default())
    }

    /// Checks the whole tree, and adds its nodes to `reachable`.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] for the first rule that is broken.
    pub fn check<R: Reader>(&self, reader: &R, reachable: &mut Reachable) -> Result<Measure> {
        let mut walk = Walk { reader, reachable, measure: Measure::default() };
        if let Some(root) = pointer(reader.word(self.root), self.root)? {
            let mut words = Words::new();
            let level = open(reader, root, None, &mut words)?;
            walk.measure.depth = level + 1;
            // Only a root may be empty, if it is a leaf.
            walk.check(root, &words, level, (0, UNIT_MAX), level == 0)?;
        }
        Ok(walk.measure)
    }
}

impl<R: Reader> Walk<'_, R> {
    /// Checks the node at `node`, and what is below it: all of it belongs into `range`. Levels
    /// count down, and no two slots' ranges have a unit in common: so this ends, and finds nodes
    /// that two slots lead to, as no node but a root is empty.
    fn check(
        &mut self,
        node: Ptr<Node>,
        words: &Words,
        level: u64,
        range: (u64, u64),
        may_be_empty: bool,
    ) -> Result<()> {
        let at = node.offset();
        let wrong = |expected, found| Err(corrupt("node of the map", at, expected, found));
        if !is_header_clean(words) {
            return wrong("a header of zeros behind the level", level);
        }
        self.reachable.object(at);
        self.measure.nodes += 1;
        let slots = sorted(words);
        if slots.is_empty() && !may_be_empty {
            return wrong("a slot that is in use", 0);
        }
        let mut from = range.0;
        for (slot, next) in slots.iter().zip(slots.iter().skip(1).map(Some).chain([None])) {
            if slot.unit < from {
                return wrong("units in the node's range, none twice", slot.unit);
            }
            let end = next.map_or(range.1, |next| next.unit);
            if level > 0 {
                if slot.unit >= end {
                    return wrong("units in the node's range, none twice", slot.unit);
                }
                let mut words = Words::new();
                let child = open_child(self.reader, at, level, *slot, &mut words)?;
                self.check(child, &words, level - 1, (slot.unit, end), false)?;
                from = end;
                continue;
            }
            match slot.extent() {
                Some(extent) if extent.is_valid() && extent.end() <= range.1 => {
                    self.measure.extents += 1;
                    self.measure.units += extent.len;
                    from = extent.end();
                }
                _ => return wrong("extents in the node's range", slot.rest),
            }
        }
        Ok(())
    }
}
