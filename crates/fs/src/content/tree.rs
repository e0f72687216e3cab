//! Content in many pieces: a radix of pages and runs (SIMFS 2016, 3.1 and 4.1).
//!
//! A node is a page of slots; the file's inode says where the top one is and how many levels there
//! are. A slot that leads nowhere is a hole of all the pages that it could lead to. Nodes may be
//! empty, and a tree may be taller than its pages need.

use core::ops::Range;

use conquest_format::fs::tree::{BITS, SLOTS, Slot, pages_below};
use conquest_format::fs::{DATA, TREE};
use conquest_format::inode::{Content, SIZE_MAX, TREE_HEIGHT_MAX};
use conquest_format::{Offset, PAGE, WORD, pointer};
use conquest_pm::Tx;
use conquest_pm::check::Reachable;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::{Piece, part_of_run, target};
use crate::error::corrupt;
use crate::inode::Draft;
use crate::{Reader, Result};

/// A node in the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) at: Offset,
    /// 1 if its slots lead to pages.
    pub(super) level: u64,
}

impl Node {
    /// The node at `at`, checked to be one.
    pub(super) fn open(reader: &impl Reader, at: Offset, level: u64) -> conquest_pm::Result<Node> {
        reader.core().resolve_run(at, 1, TREE)?;
        Ok(Node { at, level })
    }

    /// The top of a tree.
    pub(super) fn top(reader: &impl Reader, root: u64, height: u64) -> conquest_pm::Result<Node> {
        Node::open(reader, target(root, TREE)?, height)
    }

    /// Where slot `index` stands.
    pub(super) fn word(self, index: u64) -> Offset {
        self.at.plus(index % SLOTS * WORD)
    }

    /// What slot `index` leads to.
    pub(super) fn slot(self, reader: &impl Reader, index: u64) -> conquest_pm::Result<Slot> {
        let word = reader.word(self.word(index));
        let expected = "a slot of a file's tree";
        Slot::unpack(word, self.level)
            .ok_or_else(|| corrupt("slot", self.word(index), expected, word))
    }

    /// The number of the slot on the way to page `page` of the file.
    pub(super) fn index(self, page: u64) -> u64 {
        page / pages_below(self.level) % SLOTS
    }

    /// The slots `wanted`.
    fn slots(self, reader: &impl Reader, wanted: Range<u64>) -> conquest_pm::Result<Slots> {
        let first = wanted.start;
        let slots: conquest_pm::Result<_> = wanted.map(|index| self.slot(reader, index)).collect();
        Ok(Slots { first, slots: slots? })
    }
}

/// Slots of a node, one after the other: as a rule few of them.
struct Slots {
    /// The number of the first one.
    first: u64,
    slots: Vec<Slot>,
}

impl Slots {
    /// All slots of a node, of which the first are `slots`, and the others holes.
    fn all(slots: impl Iterator<Item = Slot>) -> Slots {
        let holes = core::iter::repeat(Slot::Hole);
        Slots { first: 0, slots: slots.chain(holes).take(SLOTS as usize).collect() }
    }

    /// The slots that lead to the pages of the run at `at`.
    fn of_run(at: Offset, pages: u64) -> Slots {
        Slots::all((0..pages).map(|index| Slot::Page(at.plus(index * PAGE))))
    }

    fn place(&self, index: u64) -> Option<usize> {
        index.checked_sub(self.first).map(|place| place as usize)
    }

    /// Slot `index`; a hole if it is none of these.
    fn get(&self, index: u64) -> Slot {
        let slot = self.place(index).and_then(|place| self.slots.get(place));
        slot.copied().unwrap_or(Slot::Hole)
    }

    /// Lets slot `index` be `slot`, if it is one of these.
    fn set(&mut self, index: u64, slot: Slot) {
        if let Some(place) = self.place(index).and_then(|place| self.slots.get_mut(place)) {
            *place = slot;
        }
    }
}

/// Pages that a tree of `height` levels can have.
const fn pages_of(height: u64) -> u64 {
    1 << (BITS as u64 * height)
}

/// [`super::piece`] of a tree.
pub(super) fn piece(
    reader: &impl Reader,
    root: u64,
    height: u64,
    from: u64,
    limit: u64,
) -> conquest_pm::Result<Piece> {
    let page = from / PAGE;
    if page >= pages_of(height) {
        return Ok(Piece::Hole(limit));
    }
    let mut node = Node::top(reader, root, height)?;
    loop {
        let index = node.index(page);
        let below = pages_below(node.level);
        match node.slot(reader, index)? {
            Slot::Node(at) => node = Node::open(reader, at, node.level - 1)?,
            Slot::Hole => {
                // On to the next slot that leads somewhere, or to the end of the node.
                let covered = |end: u64| (page / below - index + end) * below * PAGE - from;
                let is_hole = |&end: &u64| reader.word(node.word(end)) == 0;
                let ends = (index + 1..SLOTS).take_while(|end| covered(*end) < limit);
                let end = index + 1 + ends.take_while(is_hole).count() as u64;
                return Ok(Piece::Hole(covered(end).min(limit)));
            }
            Slot::Page(at) => {
                // On as long as the pages stand in a row.
                let within = from % PAGE;
                let follows = |&next: &u64| {
                    let page = Slot::Page(at.plus((next - index) * PAGE));
                    reader.word(node.word(next)) == page.pack()
                };
                let most = (within + limit).div_ceil(PAGE).min(SLOTS - index);
                let more = (index + 1..index + most).take_while(follows).count() as u64;
                let len = limit.min((1 + more) * PAGE - within);
                return part_of_run(reader, at, within, len).map(Piece::Bytes);
            }
            Slot::Run(at, pages) => {
                let start = from % (below * PAGE);
                if start >= pages * PAGE {
                    return Ok(Piece::Hole(limit.min(below * PAGE - start)));
                }
                let len = limit.min(pages * PAGE - start);
                return part_of_run(reader, at, start, len).map(Piece::Bytes);
            }
        }
    }
}

/// The pages of a tree from page `from` on: their numbers and where they are, at most `most`.
pub(super) fn pages(
    reader: &impl Reader,
    root: u64,
    height: u64,
    from: u64,
    most: usize,
) -> conquest_pm::Result<Vec<(u64, Offset)>> {
    let end = pages_of(height).min(SIZE_MAX / PAGE) * PAGE;
    let mut found = Vec::new();
    let mut at = from * PAGE;
    while at < end && found.len() < most {
        let piece = piece(reader, root, height, at, end - at)?;
        if let Piece::Bytes(place) = piece {
            let pages = (0..place.len() / PAGE).take(most - found.len());
            found.extend(pages.map(|page| (at / PAGE + page, place.offset().plus(page * PAGE))));
        }
        at += piece.len();
    }
    Ok(found)
}

/// Adds the tree to `reachable`; how many pages these are.
pub(super) fn reach(
    reader: &impl Reader,
    root: u64,
    height: u64,
    reachable: &mut Reachable,
) -> Result<u64> {
    let mut left = vec![Node::top(reader, root, height)?];
    let mut pages = 0;
    while let Some(node) = left.pop() {
        reachable.run(node.at, 1);
        pages += 1;
        for index in 0..SLOTS {
            let (at, run) = match node.slot(reader, index)? {
                Slot::Hole => continue,
                Slot::Node(at) => {
                    left.push(Node::open(reader, at, node.level - 1)?);
                    continue;
                }
                Slot::Page(at) => (at, 1),
                Slot::Run(at, pages) => (at, pages),
            };
            reader.core().resolve_run(at, run, DATA)?;
            reachable.run(at, run);
            pages += run;
        }
    }
    Ok(pages)
}

/// Stages a node with `slots` for the file of `draft`.
fn make_node<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    slots: &Slots,
) -> Result<Offset> {
    let mut bytes = [0; PAGE as usize];
    for (to, index) in bytes.chunks_exact_mut(WORD as usize).zip(0..) {
        to.copy_from_slice(&slots.get(index).pack().to_le_bytes());
    }
    let mut run = tx.alloc_run(TREE, 1, None)?;
    tx.append(&mut run, &bytes)?;
    draft.inode.pages += 1;
    Ok(tx.finish_run(run))
}

/// Makes the content of `draft`, an extent, a tree of the same pages.
pub(super) fn plant<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, draft: &mut Draft) -> Result<()> {
    let Content::Extent { root, pages } = draft.inode.content else {
        return Ok(());
    };
    let slots = Slots::of_run(target(root, DATA)?, pages);
    let root = pointer::pack(make_node(tx, draft, &slots)?, TREE);
    draft.inode.content = Content::Tree { root, height: 1 };
    Ok(())
}

/// The way to a node of level 1, which may have to be made.
///
/// What a transaction makes can't be followed before it is committed, so it is made bottom up, and
/// last of all what leads to it changes.
pub(super) struct Way {
    /// The slot in which what is made is to stand; none for the top.
    hook: Option<Offset>,
    /// The level of what stands there.
    level: u64,
    /// The top that there is, if it is to stand below a higher one.
    below: Option<Node>,
    /// The node of level 1, if there is one.
    pub(super) node: Option<Node>,
    /// Its slots, all of them if it is made; if it is there, those that were asked for.
    slots: Slots,
}

impl Way {
    /// The way to the node of level 1 that leads to the pages from `page` of the file of `draft` on
    /// to `end`, and to the one before them, as far as it leads to them, in a tree that is tall
    /// enough for it.
    ///
    /// # Errors
    /// Those of the region.
    pub(super) fn find(reader: &impl Reader, draft: &Draft, page: u64, end: u64) -> Result<Way> {
        let height = (1..TREE_HEIGHT_MAX).find(|&height| page < pages_of(height));
        let height = height.unwrap_or(TREE_HEIGHT_MAX);
        let new = |level, slots| Way { hook: None, level, below: None, node: None, slots };
        let is_new = || Slots::all(core::iter::empty());
        let Some((root, found)) = draft.inode.content.tree() else {
            return Ok(new(height, is_new()));
        };
        let mut node = Node::top(reader, root, found)?;
        if found < height {
            return Ok(Way { below: Some(node), ..new(height, is_new()) });
        }
        while node.level > 1 {
            let hook = Some(node.word(node.index(page)));
            let level = node.level - 1;
            match node.slot(reader, node.index(page))? {
                Slot::Node(at) => node = Node::open(reader, at, level)?,
                Slot::Run(at, pages) => {
                    return Ok(Way { hook, ..new(level, Slots::of_run(at, pages)) });
                }
                _ => return Ok(Way { hook, ..new(level, is_new()) }),
            }
        }
        let index = node.index(page);
        let behind = (index + end.saturating_sub(page)).min(SLOTS);
        let slots = node.slots(reader, index.saturating_sub(1)..behind)?;
        Ok(Way { node: Some(node), ..new(1, slots) })
    }

    /// Where page `page` of the file, one of those that were asked for, is, if it is anywhere.
    pub(super) fn page(&self, page: u64) -> Option<Offset> {
        match self.slots.get(page % SLOTS) {
            Slot::Page(at) => Some(at),
            _ => None,
        }
    }

    /// Whether a run stands in the node's place.
    pub(super) fn is_run(&self) -> bool {
        self.node.is_none() && self.slots.slots.iter().any(|slot| *slot != Slot::Hole)
    }

    /// Whether a run of [`SLOTS`] pages could stand in the node's place.
    pub(super) fn takes_run(&self) -> bool {
        self.node.is_none() && (self.hook.is_some() || self.level > 1)
    }

    /// Stages that page `page` of the file is at `at`.
    pub(super) fn set<M: Memory, H: Host>(
        &mut self,
        tx: &mut Tx<'_, M, H>,
        page: u64,
        at: Offset,
    ) -> Result<()> {
        if let Some(node) = self.node {
            tx.set(node.word(page), Slot::Page(at).pack())?;
        }
        self.slots.set(page % SLOTS, Slot::Page(at));
        Ok(())
    }

    /// Stages the node, if it has to be made, and what leads to it.
    pub(super) fn finish<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        draft: &mut Draft,
        page: u64,
    ) -> Result<()> {
        if self.node.is_some() {
            return Ok(());
        }
        let made = make_node(tx, draft, &self.slots)?;
        self.lead_to(tx, draft, page, Slot::Node(made))
    }

    /// Stages what leads to `lower`, which takes the place of the node on the way to `page`.
    pub(super) fn lead_to<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        draft: &mut Draft,
        page: u64,
        lower: Slot,
    ) -> Result<()> {
        let mut slot = lower;
        for level in 2..=self.level {
            let mut slots = Slots::all(core::iter::empty());
            if level == self.level
                && let Some(top) = self.below
            {
                slots.set(0, raise(tx, draft, top, level - 1)?);
            }
            slots.set(page / pages_below(level) % SLOTS, slot);
            slot = Slot::Node(make_node(tx, draft, &slots)?);
        }
        match self.hook {
            Some(hook) => tx.set(hook, slot.pack())?,
            None => {
                let content = draft.inode.content;
                draft.inode.content = content.with_tree(slot.pack(), self.level);
            }
        }
        Ok(())
    }
}

/// Stages nodes over `top` up to `level`, each with the lower one in its first slot.
fn raise<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    top: Node,
    level: u64,
) -> Result<Slot> {
    let mut slot = Slot::Node(top.at);
    for _ in top.level..level {
        let slots = Slots::all(core::iter::once(slot));
        slot = Slot::Node(make_node(tx, draft, &slots)?);
    }
    Ok(slot)
}
