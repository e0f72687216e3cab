//! Taking ranges out of the map, and putting extents in.
//!
//! What is staged is staged in records that each leave a tree by the rules. Objects made by a
//! record can't be followed before that is committed, so a record that makes a node is always
//! the end of a part.

use core::ops::Range;

use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::tx::STAGED_MAX;
use conquest_pm::{Error, Ptr, Result, Tx};

use super::extent::{Extent, LEN_MAX};
use super::node::{
    Slot, Words, above, below, corrupt, free_slots, open, open_child, slot_at, slots,
};
use super::tree::{Step, Tree};
use crate::kinds::Node;

/// How much of a transaction a change may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Entries that are left for the caller.
    pub kept: u64,
    /// Entries that the caller stages for each extent that it is told of, at most.
    pub each: u64,
}

/// The way to a leaf, and the leaf as the transaction sees it.
pub(super) struct Path {
    /// Inner nodes from the root on, with their slots in use.
    pub(super) steps: Vec<(Step, usize)>,
    pub(super) leaf: Ptr<Node>,
    pub(super) words: Words,
    /// The leaf's slots in use.
    pub(super) used: usize,
    /// Where the next leaf begins: the slot, its node's offset and level.
    pub(super) next: Option<(Slot, Offset, u64)>,
}

/// How far a range has been taken out of a leaf.
pub(super) enum Cut {
    Whole,
    /// Up to this unit: the transaction has no room for more.
    Until(u64),
    /// Not at all: the leaf has no slot for the second part of what the range is within.
    Full,
}

impl Path {
    /// Stages that slot `index` of the leaf is `slot`, of which the first word may be so already.
    fn set<M: Memory, H: Host>(
        &mut self,
        tx: &mut Tx<'_, M, H>,
        index: usize,
        slot: [u64; 2],
        is_first_set: bool,
    ) -> Result<()> {
        let at = slot_at(self.leaf.offset(), index);
        if !is_first_set {
            tx.set(at, slot[0])?;
        }
        tx.set(at.plus(WORD), slot[1])?;
        self.words.set(index, slot);
        Ok(())
    }

    /// Entries that [`Tree::add`] may take.
    pub(super) fn entries_to_add(&self) -> u64 {
        self.steps.len() as u64 + 2
    }

    /// Entries that [`Tree::unlink`] may take.
    fn entries_to_unlink(&self) -> u64 {
        self.steps.len() as u64 + 2
    }

    /// The unit at which the next leaf begins.
    pub(super) fn limit(&self) -> u64 {
        self.next.map_or(u64::MAX, |(slot, ..)| slot.unit)
    }
}

/// Whether `tx` has room for `wanted` entries.
///
/// # Errors
/// [`Error::TooLarge`] if none could have.
pub(super) fn has_room<M: Memory, H: Host>(tx: &Tx<'_, M, H>, wanted: u64) -> Result<bool> {
    if wanted > STAGED_MAX {
        return Err(Error::TooLarge { what: "journal entries", wanted, most: STAGED_MAX });
    }
    Ok(tx.room() >= wanted)
}

/// Refuses what no map can hold.
pub(super) fn refuse_invalid(extent: &Extent) -> Result<()> {
    if extent.is_valid() {
        return Ok(());
    }
    let most = LEN_MAX - 1;
    Err(Error::TooLarge { what: "units of an extent", wanted: extent.len, most })
}

impl Tree {
    /// The way to the leaf that `unit` belongs to.
    pub(super) fn path<M: Memory, H: Host>(
        &self,
        tx: &Tx<'_, M, H>,
        unit: u64,
    ) -> Result<Option<Path>> {
        let (mut steps, mut next) = (Vec::new(), None);
        let mut words = Words::new();
        let found = self.descend(tx, unit, &mut words, |words, step| {
            next = step.next.map(|slot| (slot, step.node.offset(), step.level)).or(next);
            steps.push((step, slots(words).count()));
        })?;
        Ok(found.map(|leaf| {
            let used = slots(&words).count();
            Path { steps, leaf, words, used, next }
        }))
    }

    /// Takes out of the map what it has for `range`, and calls `removed` with each part of it, in
    /// order. That may stage changes of its own, of nothing that belongs to the tree.
    ///
    /// Returns whether all is done. If not, the caller commits what is staged before it does
    /// anything else with the tree, and calls again; it leaves at least [`super::STEP`] entries
    /// besides what `room` says then. After an error the transaction is to be dropped.
    ///
    /// # Errors
    /// Those of the region; that of `removed`; [`Error::TooLarge`] if `room` leaves none. A range
    /// inside an extent makes two of it, so even removing may need memory: [`Error::NoSpace`].
    pub fn clear<'c, M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'c, M, H>,
        range: Range<u64>,
        room: Room,
        mut removed: impl FnMut(&mut Tx<'c, M, H>, Extent) -> Result<()>,
    ) -> Result<bool> {
        let mut from = range.start;
        let mut is_one_leaf = true;
        while from < range.end {
            let Some(mut path) = self.path(tx, from)? else {
                return Ok(true);
            };
            let after = path.entries_to_unlink();
            match self.cut(tx, &mut path, &range, room, after, &mut removed)? {
                Cut::Whole => {}
                Cut::Until(_) => return Ok(false),
                Cut::Full => return self.split(tx, &path, from, room.kept),
            }
            if path.used == 0 && !path.steps.is_empty() {
                self.unlink(tx, &path)?;
                is_one_leaf = false;
            } else if path.limit() < range.end {
                from = path.limit();
                is_one_leaf = false;
            } else if is_one_leaf && !path.is_sparse() {
                return Ok(true);
            } else {
                break;
            }
        }
        let (first, last) = (range.start, range.end.saturating_sub(1));
        Ok(self.tidy(tx, first, room.kept)? && self.tidy(tx, last, room.kept)?)
    }

    /// Takes `range` out of the leaf of `path`, as far as there is room for that and `after`
    /// entries more.
    pub(super) fn cut<'c, M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'c, M, H>,
        path: &mut Path,
        range: &Range<u64>,
        room: Room,
        after: u64,
        removed: &mut impl FnMut(&mut Tx<'c, M, H>, Extent) -> Result<()>,
    ) -> Result<Cut> {
        let part_of = |slot: Slot| {
            let old = slot.extent()?;
            Some((old.within(range.start, range.end)?, old, slot.index))
        };
        let mut parts: Vec<(Extent, Extent, usize)> =
            slots(&path.words).filter_map(part_of).collect();
        parts.sort_unstable();
        for (part, old, index) in parts {
            if !has_room(tx, 3 + room.each + after + room.kept)? {
                return Ok(Cut::Until(part.unit));
            }
            let before = old.within(0, part.unit);
            let behind = old.within(part.end(), u64::MAX);
            match (before, behind) {
                (None, None) => {
                    path.set(tx, index, [old.unit, 0], true)?;
                    path.used -= 1;
                }
                (Some(before), None) => path.set(tx, index, before.pack(), true)?,
                (None, Some(behind)) => path.set(tx, index, behind.pack(), false)?,
                (Some(before), Some(behind)) => {
                    let Some(free) = free_slots(&path.words).next() else {
                        return Ok(Cut::Full);
                    };
                    path.set(tx, index, before.pack(), true)?;
                    path.set(tx, free, behind.pack(), false)?;
                    path.used += 1;
                }
            }
            removed(tx, part)?;
        }
        Ok(Cut::Whole)
    }

    /// Puts `extent` into the map, which has nothing there; what it continues, or what continues
    /// it, becomes one with it, if it is in the same leaf and segment. `kept` entries are left for
    /// the caller.
    ///
    /// Returns whether it is done; if not, as [`Self::clear`].
    ///
    /// # Errors
    /// Those of the region; [`Error::TooLarge`] if no map can hold the extent, or `kept` leaves no
    /// room; [`Error::Corrupt`] if something is there.
    pub fn insert<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        extent: Extent,
        kept: u64,
    ) -> Result<bool> {
        refuse_invalid(&extent)?;
        let Some(mut path) = self.path(tx, extent.unit)? else {
            return self.plant(tx, kept);
        };
        // All levels twice: units of slots become smaller on the way down, and larger beside it.
        let raised = path.steps.len() as u64;
        if !has_room(tx, path.entries_to_add() + raised + kept)? {
            return Ok(false);
        }
        if !self.add(tx, &mut path, extent)? {
            return self.split(tx, &path, extent.unit, kept);
        }
        if let Some((slot, node, level)) = path.next
            && slot.unit < extent.end()
        {
            let there = self.find(tx, slot.unit)?.filter(|found| found.unit < extent.end());
            refuse_mapped(self.root, there)?;
            self.raise(tx, node, level, slot, extent.end())?;
        }
        Ok(true)
    }

    /// Adds `extent` to the leaf of `path`, whose limit may be within it; false if there is no
    /// slot for it.
    pub(super) fn add<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        path: &mut Path,
        extent: Extent,
    ) -> Result<bool> {
        let before = below(&path.words, extent.unit);
        let before = before.and_then(|slot| Some((slot.extent()?, slot.index)));
        let behind = above(&path.words, extent.unit);
        let behind = behind.and_then(|slot| Some((slot.extent()?, slot.index)));
        let there = before.filter(|(before, _)| before.end() > extent.unit);
        let there = there.or(behind.filter(|(behind, _)| behind.unit < extent.end()));
        refuse_mapped(path.leaf.offset(), there.map(|(there, _)| there))?;
        let first =
            before.and_then(|(before, at)| Some((before.joined(&extent, self.segment)?, at)));
        let whole = first.map_or(extent, |(joined, _)| joined);
        let last = behind.and_then(|(behind, at)| Some((whole.joined(&behind, self.segment)?, at)));
        match (first, last) {
            (Some((_, first)), Some((whole, last))) => {
                path.set(tx, first, whole.pack(), true)?;
                path.set(tx, last, [0, 0], true)?;
                path.used -= 1;
            }
            (Some((whole, index)), None) => path.set(tx, index, whole.pack(), true)?,
            (None, Some((whole, index))) => path.set(tx, index, whole.pack(), false)?,
            (None, None) => {
                let Some(free) = free_slots(&path.words).next() else {
                    return Ok(false);
                };
                path.set(tx, free, extent.pack(), false)?;
                path.used += 1;
            }
        }
        for (step, _) in &path.steps {
            if step.child.unit > extent.unit {
                tx.set(slot_at(step.node.offset(), step.child.index), extent.unit)?;
            }
        }
        Ok(true)
    }

    /// Makes `unit` the one at which what `slot` of the node at `at` leads to begins: nothing below
    /// it is before that.
    fn raise<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        at: Offset,
        level: u64,
        slot: Slot,
        unit: u64,
    ) -> Result<()> {
        let (mut at, mut level, mut slot, mut words) = (at, level, slot, Words::new());
        while slot.unit < unit {
            tx.set(slot_at(at, slot.index), unit)?;
            if level <= 1 {
                break;
            }
            let child = open_child(tx, at, level, slot, &mut words)?;
            (at, level) = (child.offset(), level - 1);
            let first = slots(&words).min_by_key(|slot| slot.unit);
            slot = first.ok_or_else(|| corrupt("node of the map", at, "a slot in use", 0))?;
        }
        Ok(())
    }

    /// Stages the freeing of the leaf of `path`, which is empty, and of what led to nothing else.
    fn unlink<M: Memory, H: Host>(&self, tx: &mut Tx<'_, M, H>, path: &Path) -> Result<()> {
        tx.free(path.leaf)?;
        for (step, used) in path.steps.iter().rev() {
            if *used > 1 {
                return tx.set(slot_at(step.node.offset(), step.child.index).plus(WORD), 0);
            }
            tx.free(step.node)?;
        }
        tx.set(self.root, 0)
    }

    /// The node of a step, opened.
    pub(super) fn open_step<M: Memory, H: Host>(tx: &Tx<'_, M, H>, step: &Step) -> Result<Words> {
        let mut words = Words::new();
        open(tx, step.node, Some(step.level), &mut words)?;
        Ok(words)
    }
}

/// Refuses to map what is mapped: `there`.
fn refuse_mapped(at: Offset, there: Option<Extent>) -> Result<()> {
    match there {
        None => Ok(()),
        Some(there) => Err(corrupt("range of the map", at, "nothing mapped there", there.unit)),
    }
}
