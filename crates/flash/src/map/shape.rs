//! What keeps the tree's nodes filled: splitting, merging, and the root.

use conquest_format::WORD;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Error, Fresh, Ptr, Result, Tx};

use super::edit::{Path, has_room};
use super::node::{
    LEVELS_MAX, SLOTS, Slot, Words, below, free_slots, open, open_child, slot_at, slots, sorted,
};
use super::tree::{Step, Tree};
use crate::kinds::Node;

/// Slots of a node that two were merged into, at most.
const MERGED_MAX: usize = SLOTS * 3 / 4;
/// Slots in use up to which a node is looked at for merging.
const SPARSE_MAX: usize = MERGED_MAX / 2;
/// Slots that are split off a node that is only added to at one end.
const SPLIT_OFF: usize = SLOTS - MERGED_MAX;
/// Entries for a new object: its bit, and the page's and the map's of a new slab.
const MADE: u64 = 4;
/// Entries of one step of a change, at most: splitting a node is two new ones, moved slots, and
/// one that leads there; merging takes less, and so does any other step in a tree of 16 levels.
pub const STEP: u64 = 2 * MADE + MERGED_MAX as u64 + 2;

const _: () = assert!(2 * SPARSE_MAX as u64 + 4 <= STEP && 2 * LEVELS_MAX + 2 <= STEP);

/// What a look at a path has led to.
enum Tidied {
    /// There is nothing to do.
    Nothing,
    /// Something is to be done, but there is no room for it.
    NoRoom,
    /// Something was staged.
    Something,
}

impl Path {
    /// Whether a node on the way could be merged, or the root give way to its child.
    pub(super) fn is_sparse(&self) -> bool {
        let inner = self.steps.iter().skip(1).any(|(_, used)| *used <= SPARSE_MAX);
        let leaf = !self.steps.is_empty() && self.used <= SPARSE_MAX;
        leaf || inner || self.steps.first().is_some_and(|(_, used)| *used == 1)
    }
}

impl Tree {
    /// Stages a root for a tree that has none; false, as it can't be followed yet.
    pub(super) fn plant<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        kept: u64,
    ) -> Result<bool> {
        if has_room(tx, MADE + 1 + kept)? {
            let leaf = tx.alloc::<Node>()?;
            let leaf = tx.seal(leaf);
            tx.set(self.root, leaf.word())?;
        }
        Ok(false)
    }

    /// Splits one full node on the way to the leaf of `path`, the highest one that has to be split
    /// before the leaf can be. False, as nothing can be done with the new one yet.
    pub(super) fn split<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        path: &Path,
        unit: u64,
        kept: u64,
    ) -> Result<bool> {
        if !has_room(tx, STEP + kept)? {
            return Ok(false);
        }
        let (mut full, mut level, mut hook) = (path.leaf, 0, None);
        for (step, _) in path.steps.iter().rev() {
            if let Some(free) = free_slots(&Self::open_step(tx, step)?).next() {
                hook = Some(slot_at(step.node.offset(), free));
                break;
            }
            (full, level) = (step.node, step.level);
        }
        let mut words = Words::new();
        open(tx, full, Some(level), &mut words)?;
        let all = sorted(&words);
        let is_behind = all.last().is_some_and(|last| unit > last.unit);
        let is_before = all.first().is_some_and(|first| unit < first.unit);
        let kept = match (is_behind, is_before) {
            (true, _) => SLOTS - SPLIT_OFF,
            (_, true) => SPLIT_OFF,
            _ => SLOTS / 2,
        };
        let moved = all.get(kept..).unwrap_or_default();
        let Some(first) = moved.first() else {
            return Ok(false);
        };
        let made = make(tx, level, moved.iter().map(|slot| [slot.unit, slot.rest]))?;
        match hook {
            Some(hook) => {
                tx.set(hook, first.unit)?;
                tx.set(hook.plus(WORD), made.word())?;
            }
            None if level + 1 < LEVELS_MAX => {
                let both = [[0, full.word()], [first.unit, made.word()]];
                let root = make(tx, level + 1, both.into_iter())?;
                tx.set(self.root, root.word())?;
            }
            None => {
                let (what, most) = ("levels of a map", LEVELS_MAX);
                return Err(Error::TooLarge { what, wanted: level + 2, most });
            }
        }
        for slot in moved {
            tx.set(slot_at(full.offset(), slot.index).plus(WORD), 0)?;
        }
        Ok(false)
    }

    /// Merges nodes on the way to `unit`, until there is nothing to merge: whether that is so.
    pub(super) fn tidy<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        unit: u64,
        kept: u64,
    ) -> Result<bool> {
        // Each time there is a node less.
        while let Some(path) = self.path(tx, unit)? {
            match self.tidy_once(tx, &path, kept)? {
                Tidied::Something => {}
                Tidied::Nothing => break,
                Tidied::NoRoom => return Ok(false),
            }
        }
        Ok(true)
    }

    fn tidy_once<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        path: &Path,
        kept: u64,
    ) -> Result<Tidied> {
        if let Some((root, 1)) = path.steps.first() {
            if !has_room(tx, 2 + kept)? {
                return Ok(Tidied::NoRoom);
            }
            tx.set(self.root, root.child.rest)?;
            tx.free(root.node)?;
            return Ok(Tidied::Something);
        }
        let children = path.steps.iter().skip(1).map(|(_, used)| *used).chain([path.used]);
        let pairs: Vec<_> = path.steps.iter().map(|(step, _)| step).zip(children).collect();
        for (parent, used) in pairs.into_iter().rev() {
            if used > SPARSE_MAX {
                continue;
            }
            let words = Self::open_step(tx, parent)?;
            let unit = parent.child.unit;
            let before = unit.checked_sub(1).and_then(|unit| below(&words, unit));
            for beside in [before, parent.next].into_iter().flatten() {
                let mut other = Words::new();
                open_child(tx, parent.node.offset(), parent.level, beside, &mut other)?;
                if used + slots(&other).count() > MERGED_MAX {
                    continue;
                }
                if !has_room(tx, STEP + kept)? {
                    return Ok(Tidied::NoRoom);
                }
                let (left, right) = if beside.unit < unit {
                    (beside, parent.child)
                } else {
                    (parent.child, beside)
                };
                self.merge(tx, parent, left, right)?;
                return Ok(Tidied::Something);
            }
        }
        Ok(Tidied::Nothing)
    }

    /// Merges the nodes that two slots of a node, one behind the other, lead to.
    fn merge<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        parent: &Step,
        left: Slot,
        right: Slot,
    ) -> Result<()> {
        let at = parent.node.offset();
        let (mut left_words, mut right_words) = (Words::new(), Words::new());
        let left_node = open_child(tx, at, parent.level, left, &mut left_words)?;
        let right_node = open_child(tx, at, parent.level, right, &mut right_words)?;
        let (lower, upper) = (sorted(&left_words), sorted(&right_words));
        let is_left_kept = lower.len() >= upper.len();
        // Where leaves meet, extents may continue each other.
        let seam = if parent.level > 1 { None } else { lower.last().zip(upper.first()) };
        let joined = seam.and_then(|(last, first)| {
            let joined = last.extent()?.joined(&first.extent()?, self.segment)?;
            Some((joined, if is_left_kept { last.index } else { first.index }))
        });
        let (kept, kept_words, gone, moved) = if is_left_kept {
            (left_node, left_words, right_node, upper.get(usize::from(joined.is_some())..))
        } else {
            let len = lower.len() - usize::from(joined.is_some());
            (right_node, right_words, left_node, lower.get(..len))
        };
        let mut put = |index, [unit, rest]: [u64; 2]| {
            tx.set(slot_at(kept.offset(), index), unit)?;
            tx.set(slot_at(kept.offset(), index).plus(WORD), rest)
        };
        if let Some((joined, index)) = joined {
            put(index, joined.pack())?;
        }
        for (index, slot) in free_slots(&kept_words).zip(moved.unwrap_or_default()) {
            put(index, [slot.unit, slot.rest])?;
        }
        let gone_slot = if is_left_kept { right } else { left };
        if !is_left_kept {
            tx.set(slot_at(at, right.index), left.unit)?;
        }
        tx.set(slot_at(at, gone_slot.index).plus(WORD), 0)?;
        tx.free(gone)
    }
}

/// Makes a node of level `level` with `slots`, out of sight.
pub(super) fn make<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    level: u64,
    slots: impl Iterator<Item = [u64; 2]>,
) -> Result<Ptr<Node>> {
    let node: Fresh<Node> = tx.alloc()?;
    tx.fill_word(&node, 0, level)?;
    for (index, [unit, rest]) in slots.enumerate() {
        let word = slot_at(conquest_format::Offset::NONE, index).bytes() / WORD;
        tx.fill_word(&node, word, unit)?;
        tx.fill_word(&node, word + 1, rest)?;
    }
    Ok(tx.seal(node))
}
