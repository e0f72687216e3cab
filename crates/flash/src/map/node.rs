//! Nodes of the map: objects of 1 KiB, and how their words are read.
//!
//! | word | leaf | inner node |
//! | --- | --- | --- |
//! | 0 | 0 | level: 1 above leaves |
//! | 1..4 | 0 | 0 |
//! | 4 + 2i | the extent's unit | a unit that nothing below the child is before |
//! | 5 + 2i | the extent's place and length; 0 if the slot is empty | pointer to the child, or 0 |
//!
//! Slots are in no order, so what is put in or taken out is two words. The first word of an empty
//! slot means nothing.

use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Error, Ptr, Result, Tx, View};

use super::extent::{Extent, UNIT_MAX};
use crate::kinds::{NODE, Node};

/// Words before the first slot.
const HEADER: usize = 4;
/// Slots of a node.
pub const SLOTS: usize = ((NODE / WORD) as usize - HEADER) / 2;
/// Levels of a tree at most, leaves included. Ten would do for one extent a unit.
pub const LEVELS_MAX: u64 = 16;

/// More than there is between any two units; what wraps around below 0 is, too.
const FAR: u64 = 1 << 63;

/// What nodes are read from: a [`View`], through which the words of a node may be those of several
/// states, or a [`Tx`] that has locked the tree, which sees its own changes.
pub trait Reader {
    /// The region's bytes.
    type Memory: Memory;
    /// The machine below.
    type Host: Host;

    /// The region, to check pointers with.
    fn core(&self) -> &Core<Self::Memory, Self::Host>;

    /// The word at `at`: that of a root.
    fn word(&self, at: Offset) -> u64;

    /// Copies the words of the node at `at`, which was resolved, to `words`.
    fn node(&self, at: Offset, words: &mut Words);
}

/// The words of a node, each as it was at some time. One copy is faster than a load for each.
#[derive(Clone, Copy, Debug)]
pub struct Words([u8; NODE as usize]);

impl Words {
    /// Words that are all 0, to read a node to.
    #[inline]
    pub(super) const fn new() -> Words {
        Words([0; NODE as usize])
    }

    /// Word number `index`, below 128.
    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.0.as_chunks().0.get(index).map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Both words of each slot.
    #[inline]
    fn pairs(&self) -> impl Iterator<Item = [u64; 2]> {
        let (words, _) = self.0.as_chunks().0.as_chunks();
        let pair =
            |[first, second]: &[[u8; 8]; 2]| [first, second].map(|word| u64::from_le_bytes(*word));
        words.iter().skip(HEADER / 2).map(pair)
    }

    /// Changes word `index` of the copy.
    fn set_word(&mut self, index: usize, value: u64) {
        if let Some(word) = self.0.as_chunks_mut().0.get_mut(index) {
            *word = value.to_le_bytes();
        }
    }

    /// Changes slot `index` of the copy.
    pub(super) fn set(&mut self, index: usize, [first, second]: [u64; 2]) {
        self.set_word(first_word(index), first);
        self.set_word(first_word(index) + 1, second);
    }
}

impl<M: Memory, H: Host> Reader for View<'_, M, H> {
    type Memory = M;
    type Host = H;

    #[inline]
    fn core(&self) -> &Core<M, H> {
        View::core(self)
    }

    #[inline]
    fn word(&self, at: Offset) -> u64 {
        View::word(self, at)
    }

    #[inline]
    fn node(&self, at: Offset, words: &mut Words) {
        self.bytes(at, &mut words.0);
    }
}

impl<M: Memory, H: Host> Reader for Tx<'_, M, H> {
    type Memory = M;
    type Host = H;

    fn core(&self) -> &Core<M, H> {
        Tx::core(self)
    }

    fn word(&self, at: Offset) -> u64 {
        self.get(at)
    }

    #[inline]
    fn node(&self, at: Offset, words: &mut Words) {
        self.bytes(at, &mut words.0);
    }
}

/// A slot that is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// Which one.
    pub(super) index: usize,
    /// The unit: an extent's first, or one that nothing below the child is before.
    pub(super) unit: u64,
    /// Place and length, or the child's pointer word.
    pub(super) rest: u64,
}

impl Slot {
    /// The extent in a leaf's slot.
    pub(super) fn extent(&self) -> Option<Extent> {
        Extent::unpack([self.unit, self.rest])
    }
}

/// The index of the first word of slot `index`.
const fn first_word(index: usize) -> usize {
    HEADER + 2 * index
}

/// Where the first word of slot `index` of the node at `at` is.
pub(super) fn slot_at(at: Offset, index: usize) -> Offset {
    at.plus(first_word(index) as u64 * WORD)
}

/// The slots in use.
pub(super) fn slots(words: &Words) -> impl Iterator<Item = Slot> {
    let slots = words.pairs().enumerate();
    slots.filter(|(_, [_, rest])| *rest != 0).map(|(index, [unit, rest])| Slot {
        index,
        unit,
        rest,
    })
}

/// The slots in use, by their units.
pub(super) fn sorted(words: &Words) -> Vec<Slot> {
    let mut slots: Vec<Slot> = slots(words).collect();
    slots.sort_unstable_by_key(|slot| slot.unit);
    slots
}

/// The slots that are not in use.
pub(super) fn free_slots(words: &Words) -> impl Iterator<Item = usize> {
    words.pairs().enumerate().filter(|(_, [_, rest])| *rest == 0).map(|(index, _)| index)
}

/// The slot in use for which `distance` of its unit is least; none if all are [`FAR`] or more.
/// Without a branch for each slot: as they are in no order, none could be predicted.
#[inline]
fn nearest(words: &Words, distance: impl Fn(u64) -> u64) -> Option<Slot> {
    let (mut least, mut at) = (FAR, SLOTS);
    for (index, [unit, rest]) in words.pairs().enumerate() {
        // The highest bit of a number or of its negative is set, but for 0.
        let distance = distance(unit) | !(rest | rest.wrapping_neg()) & FAR;
        at = if distance < least { index } else { at };
        least = least.min(distance);
    }
    let [unit, rest] = [words.word(first_word(at)), words.word(first_word(at) + 1)];
    // No larger one is in a tree by the rules, and callers count on there being no such.
    (at < SLOTS && unit <= UNIT_MAX).then_some(Slot { index: at, unit, rest })
}

/// The last slot in use at `unit`, at most [`UNIT_MAX`], or before it.
#[inline]
pub(super) fn below(words: &Words, unit: u64) -> Option<Slot> {
    nearest(words, |found| unit.wrapping_sub(found))
}

/// The first slot in use behind `unit`, which is at most [`UNIT_MAX`].
#[inline]
pub(super) fn above(words: &Words, unit: u64) -> Option<Slot> {
    nearest(words, |found| found.wrapping_sub(unit).wrapping_sub(1))
}

/// A tree's error at `at`.
#[cold]
pub(super) fn corrupt(what: &'static str, at: Offset, expected: &'static str, found: u64) -> Error {
    Error::Corrupt { what, offset: at, expected, found }
}

/// The node that `word`, which was read at `at`, points to; none for 0.
pub(super) fn pointer(word: u64, at: Offset) -> Result<Option<Ptr<Node>>> {
    let ptr = Ptr::<Node>::from_word(word, at)?;
    Ok((!ptr.is_none()).then_some(ptr))
}

/// Reads the node at `ptr` to `words`: its level, which is `level`, if that is known.
#[inline]
pub(super) fn open<R: Reader>(
    reader: &R,
    ptr: Ptr<Node>,
    level: Option<u64>,
    words: &mut Words,
) -> Result<u64> {
    // Before what is there is known to be a node: so both are fetched at once.
    reader.node(ptr.offset(), words);
    reader.core().resolve(ptr)?;
    let found = words.word(0);
    if found >= LEVELS_MAX || level.is_some_and(|level| level != found) {
        return Err(corrupt("node of the map", ptr.offset(), "a node of the next level", found));
    }
    Ok(found)
}

/// Reads the node that `slot` of the one at `at`, of level `level`, leads to.
#[inline]
pub(super) fn open_child<R: Reader>(
    reader: &R,
    at: Offset,
    level: u64,
    slot: Slot,
    words: &mut Words,
) -> Result<Ptr<Node>> {
    let from = slot_at(at, slot.index);
    let child = pointer(slot.rest, from)?
        .ok_or_else(|| corrupt("slot of the map", from, "a pointer to a node", slot.rest))?;
    let below = level
        .checked_sub(1)
        .ok_or_else(|| corrupt("node of the map", at, "a node above leaves", level))?;
    open(reader, child, Some(below), words)?;
    Ok(child)
}

/// Whether the header's other words are 0.
pub(super) fn is_header_clean(words: &Words) -> bool {
    (1..HEADER).all(|index| words.word(index) == 0)
}
