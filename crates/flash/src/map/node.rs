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

use core::sync::atomic::Ordering;

use conquest_format::journal::{Action, ENTRIES, ENTRY, Entry};
use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::tx::STAGED_MAX;
use conquest_pm::{Core, Error, Ptr, Result, Tx, View};

use super::extent::Extent;
use crate::kinds::{NODE, Node};

/// Words of a node.
const WORDS: usize = (NODE / WORD) as usize;
/// Words before the first slot.
const HEADER: usize = 4;
/// Slots of a node.
pub const SLOTS: usize = (WORDS - HEADER) / 2;
/// Levels of a tree at most, leaves included. Ten would do for one extent a unit.
pub const LEVELS_MAX: u64 = 16;

/// What nodes are read from: a [`View`], whose words may change from one load to the next, or a
/// [`Tx`] that has locked the tree, which sees its own changes.
pub trait Reader {
    /// The region's bytes.
    type Memory: Memory;
    /// The machine below.
    type Host: Host;
    /// The words of one node.
    type Words<'a>: Words
    where
        Self: 'a;

    /// The region, to check pointers with.
    fn core(&self) -> &Core<Self::Memory, Self::Host>;

    /// The word at `at`: that of a root.
    fn word(&self, at: Offset) -> u64;

    /// The words of the node at `at`, which was resolved.
    fn node(&self, at: Offset) -> Self::Words<'_>;
}

/// The words of a node.
pub trait Words {
    /// Word number `index`, below 128.
    fn word(&self, index: usize) -> u64;
}

/// A node as readers without locks see it: each word is loaded when it is asked for.
#[expect(missing_debug_implementations, reason = "a region is no value to print")]
pub struct Live<'a, M: Memory, H: Host> {
    view: &'a View<'a, M, H>,
    at: Offset,
}

impl<M: Memory, H: Host> Words for Live<'_, M, H> {
    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.view.word(self.at.plus(index as u64 * WORD))
    }
}

impl<'c, M: Memory, H: Host> Reader for View<'c, M, H> {
    type Memory = M;
    type Host = H;
    type Words<'a>
        = Live<'a, M, H>
    where
        Self: 'a;

    fn core(&self) -> &Core<M, H> {
        View::core(self)
    }

    fn word(&self, at: Offset) -> u64 {
        View::word(self, at)
    }

    fn node(&self, at: Offset) -> Live<'_, M, H> {
        Live { view: self, at }
    }
}

/// A node as it was at one time.
#[derive(Clone, Copy, Debug)]
pub struct Copied([u64; WORDS]);

impl Words for Copied {
    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }
}

impl Copied {
    /// Changes slot `index` of the copy.
    pub(super) fn set(&mut self, index: usize, slot: [u64; 2]) {
        if let Some([first, second]) = self.0.get_mut(first_word(index)..first_word(index) + 2) {
            [*first, *second] = slot;
        }
    }
}

impl<M: Memory, H: Host> Reader for Tx<'_, M, H> {
    type Memory = M;
    type Host = H;
    type Words<'a>
        = Copied
    where
        Self: 'a;

    fn core(&self) -> &Core<M, H> {
        Tx::core(self)
    }

    fn word(&self, at: Offset) -> u64 {
        self.get(at)
    }

    /// The node with what is staged for it: one pass over the staged entries, where [`Tx::get`]
    /// would take one for each word.
    fn node(&self, at: Offset) -> Copied {
        let core = Tx::core(self);
        let load = |at| core.memory().load(at, Ordering::Relaxed);
        let mut words: [u64; WORDS] =
            core::array::from_fn(|index| load(at.plus(index as u64 * WORD)));
        // Entries stand in the lane in the order in which they were staged.
        let lane = core.geometry().lane((self.number() >> 48) as u32).plus(ENTRIES);
        for index in 0..STAGED_MAX - self.room() {
            let entry = lane.plus(index * ENTRY);
            let target = load(entry);
            let Some(within) = target.checked_sub(at.bytes()).filter(|within| *within < NODE)
            else {
                continue;
            };
            let staged = Entry::unpack([target, load(entry.plus(WORD))]);
            if let Some(Entry { action: Action::Set, operand, .. }) = staged
                && let Some(word) = words.get_mut((within / WORD) as usize)
            {
                *word = operand;
            }
        }
        Copied(words)
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

/// The slots in use around a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// The last one at the unit or before it.
    pub(super) below: Option<Slot>,
    /// The first one behind the unit.
    pub(super) above: Option<Slot>,
}

/// The index of the first word of slot `index`.
const fn first_word(index: usize) -> usize {
    HEADER + 2 * index
}

/// Where the first word of slot `index` of the node at `at` is.
pub(super) fn slot_at(at: Offset, index: usize) -> Offset {
    at.plus(first_word(index) as u64 * WORD)
}

/// Slot `index`, if it is in use.
#[inline]
pub(super) fn slot(words: &impl Words, index: usize) -> Option<Slot> {
    let rest = words.word(first_word(index) + 1);
    (rest != 0).then(|| Slot { index, unit: words.word(first_word(index)), rest })
}

/// The slots in use.
pub(super) fn slots<W: Words>(words: &W) -> impl Iterator<Item = Slot> {
    (0..SLOTS).filter_map(move |index| slot(words, index))
}

/// The slots in use, by their units.
pub(super) fn sorted(words: &impl Words) -> Vec<Slot> {
    let mut slots: Vec<Slot> = slots(words).collect();
    slots.sort_unstable_by_key(|slot| slot.unit);
    slots
}

/// The first slot that is not in use.
pub(super) fn free_slot(words: &impl Words) -> Option<usize> {
    (0..SLOTS).find(|&index| slot(words, index).is_none())
}

/// The slots around `unit`. Second words are loaded only where the first one is nearer than what
/// was found before: few times, as slots are in no order.
#[inline]
pub(super) fn around(words: &impl Words, unit: u64) -> Around {
    let (mut below, mut above) = (None, None);
    let (mut least_below, mut least_above) = (u64::MAX, u64::MAX);
    for index in 0..SLOTS {
        let found = words.word(first_word(index));
        let (side, least, distance) = match unit.checked_sub(found) {
            Some(distance) => (&mut below, &mut least_below, distance),
            None => (&mut above, &mut least_above, found - unit),
        };
        if distance < *least
            && let Some(slot) = slot(words, index)
        {
            (*side, *least) = (Some(slot), distance);
        }
    }
    Around { below, above }
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

/// The words of the node at `ptr` and its level, which is `level`, if that is known.
pub(super) fn open<R: Reader>(
    reader: &R,
    ptr: Ptr<Node>,
    level: Option<u64>,
) -> Result<(R::Words<'_>, u64)> {
    let place = reader.core().resolve(ptr)?;
    let words = reader.node(place.offset());
    let found = words.word(0);
    if found >= LEVELS_MAX || level.is_some_and(|level| level != found) {
        return Err(corrupt("node of the map", ptr.offset(), "a node of the next level", found));
    }
    Ok((words, found))
}

/// The node below the one at `at` of level `level` that `slot` leads to, opened.
pub(super) fn open_child<R: Reader>(
    reader: &R,
    at: Offset,
    level: u64,
    slot: Slot,
) -> Result<(Ptr<Node>, R::Words<'_>)> {
    let from = slot_at(at, slot.index);
    let child = pointer(slot.rest, from)?
        .ok_or_else(|| corrupt("slot of the map", from, "a pointer to a node", slot.rest))?;
    let below = level
        .checked_sub(1)
        .ok_or_else(|| corrupt("node of the map", at, "a node above leaves", level))?;
    Ok((child, open(reader, child, Some(below))?.0))
}

/// Whether the header's other words are 0.
pub(super) fn is_header_clean(words: &impl Words) -> bool {
    (1..HEADER).all(|index| words.word(index) == 0)
}
