//! A small data structure on `pm` that uses all of it, with every fact stored twice, so that a
//! state that is not exactly "each operation happened or didn't" can be told.
//!
//! A shelf has [`LISTS`] singly linked lists of nodes, each under its own lock. A node carries an
//! id, contents computed from the id, and possibly a run of pages with contents computed from the
//! id too. Root words hold, per list, the first node, the sum of the ids and the number of nodes;
//! per actor, the operations done, pushes and pops; and what clears have taken.
//!
//! Clearing a list is an intent: one step a node.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use conquest_format::geometry::STATE_ROOTS;
use conquest_format::kind::{KINDS, Kind, KindSpec, KindTable};
use conquest_format::{Offset, PAGE, WORD};
use conquest_pm::check::{Finding, Reachable};
use conquest_pm::host::Host;
use conquest_pm::intent::Intent;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Error, Mode, Object, Ptr, Result, Tx};

use crate::rng::Rng;

/// Lists on a shelf.
pub const LISTS: u32 = 3;
/// Actors that a shelf counts apart.
pub const ACTORS: u32 = 8;
/// Words in a node, of which the first [`HEAD`] are fields and those past [`FILLED`] say how often
/// it was touched.
const NODE_WORDS: u64 = 48;
const FILLED: u64 = 24;
const HEAD: u64 = 5;
const NEXT: u64 = 0;
const ID: u64 = 1;
const RUN: u64 = 2;
const PAGES: u64 = 3;
const TOUCHED: u64 = 4;
/// Words of a run that say which node's it is, and those after them that say how often that was
/// touched: more bytes than a checksum covers.
const RUN_HEAD: u64 = 8;
const RUN_TOUCHED: u64 = 144;

/// Pages of a run that leaves little of a group. Such runs are checked in samples only.
pub const FILLER: u64 = 500;

/// Code of the intent that clears a list: its only argument is the list.
const CLEAR: u64 = 1;

/// A node of a list.
#[derive(Debug)]
pub struct Node;

const NODE: Kind = kind(1);
const PAPER: Kind = kind(2);

const fn kind(number: u8) -> Kind {
    match Kind::new(number) {
        Some(kind) => kind,
        None => kind(0),
    }
}

impl Object for Node {
    const KIND: Kind = NODE;
}

/// The kinds of a region that holds a shelf.
#[must_use]
pub fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    if let Some(spec) = kinds.get_mut(usize::from(NODE.number())) {
        *spec = KindSpec::object(NODE_WORDS * WORD).unwrap_or_default();
    }
    if let Some(spec) = kinds.get_mut(usize::from(PAPER.number())) {
        *spec = KindSpec::RUN;
    }
    kinds
}

/// One operation on a shelf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Puts a new node with this id, and a run of so many pages, at the front of a list.
    Push {
        /// The list.
        list: u32,
        /// The node's id; ids differ.
        id: u64,
        /// Pages of its run, 0 for none.
        pages: u64,
    },
    /// Puts several new nodes, each with a run of so many pages, at the front of a list, at once.
    PushMany {
        /// The list.
        list: u32,
        /// The first node's id; the others' are [`Op::id_after`] it.
        id: u64,
        /// Nodes.
        count: u64,
        /// Pages of each run, 0 for none.
        pages: u64,
    },
    /// Frees the first node of a list and its run, if there is one.
    Pop {
        /// The list.
        list: u32,
    },
    /// Moves the first node, if there is one, to the front of another list.
    Move {
        /// From this list.
        from: u32,
        /// To this list.
        to: u32,
    },
    /// Adds one to a word of the first node, if there is one, and overwrites what says the same.
    Touch {
        /// The list.
        list: u32,
    },
    /// Takes all nodes off a list, one step each.
    Clear {
        /// The list.
        list: u32,
    },
}

impl Op {
    /// The id of the node that [`Op::PushMany`] makes `index` nodes after the one with `id`.
    #[must_use]
    pub const fn id_after(id: u64, index: u64) -> u64 {
        id + (index << 24)
    }

    /// A random operation of the `number`-th step of `actor`, with runs of up to `pages` pages.
    #[must_use]
    pub fn random(rng: &mut Rng, actor: u32, number: u64, pages: u64) -> Op {
        let list = rng.below(u64::from(LISTS)) as u32;
        match rng.below(16) {
            0..=5 => {
                let pages = if rng.below(3) == 0 { 1 + rng.below(pages) } else { 0 };
                Op::Push { list, id: u64::from(actor + 1) << 32 | number, pages }
            }
            6 => {
                // Many small ones, or, where pages are cheap, few whose runs don't fit one group.
                let small = pages < 10 || rng.chance(1, 2);
                let (count, pages) = if small { (12, 0) } else { (3, 190) };
                Op::PushMany { list, id: u64::from(actor + 1) << 32 | number, count, pages }
            }
            7..=9 => Op::Pop { list },
            10..=12 => Op::Move { from: list, to: (list + 1 + rng.below(2) as u32) % LISTS },
            13 | 14 => Op::Touch { list },
            _ => Op::Clear { list },
        }
    }
}

/// What a shelf holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Ids and touches, per list from the front.
    pub lists: Vec<Vec<(u64, u64)>>,
    /// Operations done, per actor.
    pub done: Vec<u64>,
    /// Pushes less pops, per actor, wrapping.
    pub balance: Vec<u64>,
    /// Nodes that clears have taken.
    pub cleared: u64,
}

impl Contents {
    /// An empty shelf.
    #[must_use]
    pub fn new() -> Contents {
        Contents {
            lists: vec![Vec::new(); LISTS as usize],
            done: vec![0; ACTORS as usize],
            balance: vec![0; ACTORS as usize],
            cleared: 0,
        }
    }

    /// What the shelf holds after `op` of `actor`: the model.
    pub fn apply(&mut self, actor: u32, op: Op) {
        let mut balance = 0_i64;
        match op {
            Op::Push { list, id, .. } => {
                self.lists[list as usize].insert(0, (id, 0));
                balance = 1;
            }
            Op::PushMany { list, id, count, .. } => {
                for index in 0..count {
                    self.lists[list as usize].insert(0, (Op::id_after(id, index), 0));
                }
                balance = count as i64;
            }
            Op::Pop { list } => {
                let list = &mut self.lists[list as usize];
                if !list.is_empty() {
                    list.remove(0);
                    balance = -1;
                }
            }
            Op::Move { from, to } => {
                if !self.lists[from as usize].is_empty() {
                    let node = self.lists[from as usize].remove(0);
                    self.lists[to as usize].insert(0, node);
                }
            }
            Op::Touch { list } => {
                if let Some(first) = self.lists[list as usize].first_mut() {
                    first.1 += 1;
                }
            }
            Op::Clear { list } => {
                self.cleared += self.lists[list as usize].len() as u64;
                self.lists[list as usize].clear();
            }
        }
        self.done[actor as usize] += 1;
        let slot = &mut self.balance[actor as usize];
        *slot = slot.wrapping_add_signed(balance);
    }

    /// What the shelf holds after an operation of `actor` for which there was no space.
    pub fn skip(&mut self, actor: u32) {
        self.done[actor as usize] += 1;
    }

    /// Nodes on all lists.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.lists.iter().map(|list| list.len() as u64).sum()
    }

    /// Whether what the actors and clears have counted adds up to what is there.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let pushed = self.balance.iter().fold(0, |sum: u64, balance| sum.wrapping_add(*balance));
        pushed == self.nodes().wrapping_add(self.cleared)
    }
}

fn root(index: u64) -> Offset {
    STATE_ROOTS.plus(index * WORD)
}
fn first_of(list: u32) -> Offset {
    root(u64::from(list))
}
fn sum_of(list: u32) -> Offset {
    root(4 + u64::from(list))
}
fn count_of(list: u32) -> Offset {
    root(8 + u64::from(list))
}
fn cleared_of(list: u32) -> Offset {
    root(12 + u64::from(list))
}
fn done_of(actor: u32) -> Offset {
    root(16 + u64::from(actor))
}
fn balance_of(actor: u32) -> Offset {
    root(32 + u64::from(actor))
}

/// Word `index` of the contents of node `id`.
fn pattern(id: u64, index: u64) -> u64 {
    (id ^ index << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

fn wrong(what: &'static str, at: Offset, found: u64) -> Error {
    Error::Corrupt { what, offset: at, expected: "what the shelf's rules say", found }
}

fn word_of<M: Memory, H: Host>(core: &Core<M, H>, node: Ptr<Node>, index: u64) -> Result<Offset> {
    let place = core.resolve(node)?;
    place.word(index).ok_or(wrong("node", node.offset(), index))
}

/// Does `op` as `actor`, whose operations are done by one thread at a time; false if there was no
/// space for it, and it counts as done without having done anything.
///
/// # Errors
/// Those of the region.
pub fn perform<M: Memory, H: Host>(core: &Core<M, H>, actor: u32, op: Op) -> Result<bool> {
    loop {
        let mut tx = core.begin()?;
        let committed = match (stage(&mut tx, actor, op), op) {
            (Ok(()), Op::Clear { .. }) => return tx.commit_and_finish().map(|()| true),
            (Ok(()), _) => tx.commit(),
            (Err(error), _) => {
                drop(tx);
                Err(error)
            }
        };
        match committed {
            Ok(()) => return Ok(true),
            Err(Error::Again) => std::thread::yield_now(),
            Err(Error::NoSpace { .. }) => return skip(core, actor).map(|()| false),
            Err(error) => return Err(error),
        }
    }
}

/// Counts an operation that could not be done.
fn skip<M: Memory, H: Host>(core: &Core<M, H>, actor: u32) -> Result<()> {
    let mut tx = core.begin()?;
    let done = tx.get(done_of(actor));
    tx.set(done_of(actor), done + 1)?;
    tx.commit()
}

fn stage<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, actor: u32, op: Op) -> Result<()> {
    let done = tx.get(done_of(actor));
    tx.set(done_of(actor), done.wrapping_add(1))?;
    match op {
        Op::Push { list, id, pages } => {
            tx.lock(list, Mode::Exclusive)?;
            push(tx, list, id, pages)?;
            count(tx, actor, 1)
        }
        Op::PushMany { list, id, count: nodes, pages } => {
            tx.lock(list, Mode::Exclusive)?;
            for index in 0..nodes {
                push(tx, list, Op::id_after(id, index), pages)?;
            }
            count(tx, actor, nodes as i64)
        }
        Op::Pop { list } => {
            tx.lock(list, Mode::Exclusive)?;
            if pop(tx, list)? { count(tx, actor, -1) } else { Ok(()) }
        }
        Op::Move { from, to } => {
            tx.lock(from.min(to), Mode::Exclusive)?;
            tx.lock(from.max(to), Mode::Exclusive)?;
            match take_first(tx, from)? {
                Some(node) => put_first(tx, to, node),
                None => Ok(()),
            }
        }
        Op::Touch { list } => {
            tx.lock(list, Mode::Exclusive)?;
            let first = Ptr::<Node>::from_word(tx.get(first_of(list)), first_of(list))?;
            if first.is_none() {
                return Ok(());
            }
            let at = word_of(tx.core(), first, TOUCHED)?;
            let touched = tx.get(at).wrapping_add(1);
            tx.set(at, touched)?;
            overwrite(tx, first, touched)
        }
        Op::Clear { list } => {
            let mut arguments = [0; 7];
            arguments[0] = u64::from(list);
            tx.set_intent(Intent { code: CLEAR, arguments })
        }
    }
}

/// Overwrites the words of `node`, and of its run, that say how often it was touched.
fn overwrite<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    node: Ptr<Node>,
    touched: u64,
) -> Result<()> {
    let place = tx.core().resolve(node)?;
    let run = tx.get(word_of(tx.core(), node, RUN)?);
    let pages = tx.get(word_of(tx.core(), node, PAGES)?);
    let mut parts = vec![place.part(FILLED * WORD, (NODE_WORDS - FILLED) * WORD)];
    if pages > 0 {
        let run = tx.core().resolve_run(Offset::new(run), 1, PAPER)?;
        parts.push(run.part(RUN_HEAD * WORD, RUN_TOUCHED * WORD));
    }
    for part in parts {
        let part = part.ok_or(wrong("node", node.offset(), touched))?;
        let words = vec![touched.to_le_bytes(); (part.len() / WORD) as usize];
        tx.overwrite(part, words.as_flattened())?;
    }
    Ok(())
}

fn count<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, actor: u32, change: i64) -> Result<()> {
    let at = balance_of(actor);
    let value = tx.get(at).wrapping_add_signed(change);
    tx.set(at, value)
}

fn push<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, list: u32, id: u64, pages: u64) -> Result<()> {
    let mut run = Offset::NONE;
    if pages > 0 {
        let mut fresh = tx.alloc_run(PAPER, pages, None)?;
        let head: Vec<u8> =
            (0..RUN_HEAD).flat_map(|word| pattern(id, word).to_le_bytes()).collect();
        tx.append(&mut fresh, &head)?;
        run = tx.finish_run(fresh);
    }
    let node = tx.alloc::<Node>()?;
    tx.fill_word(&node, ID, id)?;
    tx.fill_word(&node, RUN, run.bytes())?;
    tx.fill_word(&node, PAGES, pages)?;
    for word in HEAD..FILLED {
        tx.fill_word(&node, word, pattern(id, word))?;
    }
    let node = tx.seal(node);
    put_new(tx, list, node, id)
}

/// Links a node that the transaction has just made.
fn put_new<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    list: u32,
    node: Ptr<Node>,
    id: u64,
) -> Result<()> {
    let first = tx.get(first_of(list));
    tx.set(node.offset().plus(NEXT * WORD), first)?;
    link(tx, list, node, id)
}

fn link<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    list: u32,
    node: Ptr<Node>,
    id: u64,
) -> Result<()> {
    tx.set(first_of(list), node.word())?;
    let sum = tx.get(sum_of(list)).wrapping_add(id);
    tx.set(sum_of(list), sum)?;
    let count = tx.get(count_of(list)).wrapping_add(1);
    tx.set(count_of(list), count)
}

fn put_first<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, list: u32, node: Ptr<Node>) -> Result<()> {
    let id = tx.get(word_of(tx.core(), node, ID)?);
    let first = tx.get(first_of(list));
    let next = word_of(tx.core(), node, NEXT)?;
    tx.set(next, first)?;
    link(tx, list, node, id)
}

fn take_first<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, list: u32) -> Result<Option<Ptr<Node>>> {
    let first = Ptr::<Node>::from_word(tx.get(first_of(list)), first_of(list))?;
    if first.is_none() {
        return Ok(None);
    }
    let next = tx.get(word_of(tx.core(), first, NEXT)?);
    let id = tx.get(word_of(tx.core(), first, ID)?);
    tx.set(first_of(list), next)?;
    let sum = tx.get(sum_of(list)).wrapping_sub(id);
    tx.set(sum_of(list), sum)?;
    let count = tx.get(count_of(list)).wrapping_sub(1);
    tx.set(count_of(list), count)?;
    Ok(Some(first))
}

fn pop<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, list: u32) -> Result<bool> {
    let Some(node) = take_first(tx, list)? else {
        return Ok(false);
    };
    let run = tx.get(word_of(tx.core(), node, RUN)?);
    let pages = tx.get(word_of(tx.core(), node, PAGES)?);
    if pages > 0 {
        tx.free_run(Offset::new(run), pages, PAPER)?;
    }
    tx.free(node)?;
    Ok(true)
}

/// Takes one step of an intent of the shelf.
///
/// # Errors
/// Those of the region; [`Error::UnknownIntent`] for an intent that is not the shelf's.
pub fn step<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, intent: Intent) -> Result<()> {
    if intent.code != CLEAR || intent.arguments[0] >= u64::from(LISTS) {
        return Err(Error::UnknownIntent { lane: 0, code: intent.code });
    }
    let list = intent.arguments[0] as u32;
    tx.lock(list, Mode::Exclusive)?;
    if pop(tx, list)? {
        let cleared = tx.get(cleared_of(list)).wrapping_add(1);
        return tx.set(cleared_of(list), cleared);
    }
    tx.set_intent(Intent::default())
}

/// Reads list `list` without its lock, or with it, `shared`, and checks it.
///
/// # Errors
/// Those of the region, and if the list is not as some operation left it.
pub fn look<M: Memory, H: Host>(core: &Core<M, H>, list: u32, shared: bool) -> Result<()> {
    if !shared {
        return core.read(list, |view| look_at(view.core(), list, |at| view.word(at)));
    }
    loop {
        let mut tx = core.begin()?;
        match tx.lock(list, Mode::Shared) {
            Ok(()) => return look_at(core, list, |at| core.memory().load(at, Ordering::Relaxed)),
            Err(Error::Again) => {}
            Err(error) => return Err(error),
        }
    }
}

fn look_at<M: Memory, H: Host>(
    core: &Core<M, H>,
    list: u32,
    load: impl Fn(Offset) -> u64,
) -> Result<()> {
    let (mut next, mut sum) = (load(first_of(list)), 0_u64);
    let count = load(count_of(list));
    for _ in 0..count {
        let node = Ptr::<Node>::from_word(next, first_of(list))?;
        let id = load(word_of(core, node, ID)?);
        let last = word_of(core, node, FILLED - 1)?;
        if load(last) != pattern(id, FILLED - 1) {
            return Err(wrong("node's contents", last, load(last)));
        }
        let touched = load(word_of(core, node, TOUCHED)?);
        for index in FILLED..NODE_WORDS {
            let at = word_of(core, node, index)?;
            if load(at) != touched {
                return Err(wrong("node's touches", at, load(at)));
            }
        }
        sum = sum.wrapping_add(id);
        next = load(word_of(core, node, NEXT)?);
    }
    if next != 0 || sum != load(sum_of(list)) {
        return Err(wrong("list's sum or count", sum_of(list), sum));
    }
    Ok(())
}

/// Operations that `actor` has done.
pub fn done<M: Memory, H: Host>(core: &Core<M, H>, actor: u32) -> u64 {
    core.memory().load(done_of(actor), Ordering::Acquire)
}

/// Reads the whole shelf, checking every rule, and the managers against what it reaches. For a
/// region at rest.
///
/// # Errors
/// What breaks the rules; findings of the managers' check are returned beside the contents.
pub fn examine<M: Memory, H: Host>(core: &Core<M, H>) -> Result<(Contents, Vec<Finding>)> {
    let load = |at| core.memory().load(at, Ordering::Acquire);
    let mut contents = Contents::new();
    let mut reachable = Reachable::default();
    for list in 0..LISTS {
        let mut next = load(first_of(list));
        let mut sum = 0_u64;
        let mut seen = BTreeSet::new();
        while next != 0 {
            let node = Ptr::<Node>::from_word(next, first_of(list))?;
            let word = |index| Ok::<u64, Error>(load(word_of(core, node, index)?));
            let (id, pages) = (word(ID)?, word(PAGES)?);
            check_node(core, node, id, Offset::new(word(RUN)?), pages)?;
            reachable.object(node.offset());
            reachable.run(Offset::new(word(RUN)?), pages);
            sum = sum.wrapping_add(id);
            let nodes = &mut contents.lists[list as usize];
            nodes.push((id, word(TOUCHED)?));
            if !seen.insert(node.offset()) {
                return Err(wrong("list without an end", first_of(list), next));
            }
            next = word(NEXT)?;
        }
        let count = contents.lists[list as usize].len() as u64;
        if load(sum_of(list)) != sum || load(count_of(list)) != count {
            return Err(wrong("list's sum or count", sum_of(list), sum));
        }
        contents.cleared = contents.cleared.wrapping_add(load(cleared_of(list)));
    }
    for actor in 0..ACTORS {
        contents.done[actor as usize] = load(done_of(actor));
        contents.balance[actor as usize] = load(balance_of(actor));
    }
    if !contents.adds_up() {
        return Err(wrong("balance of pushes and pops", balance_of(0), contents.nodes()));
    }
    let findings = core.check(&reachable)?;
    Ok((contents, findings))
}

fn check_node<M: Memory, H: Host>(
    core: &Core<M, H>,
    node: Ptr<Node>,
    id: u64,
    run: Offset,
    pages: u64,
) -> Result<()> {
    let load = |at| core.memory().load(at, Ordering::Acquire);
    let touched = load(word_of(core, node, TOUCHED)?);
    for index in HEAD..NODE_WORDS {
        let at = word_of(core, node, index)?;
        let expected = if index < FILLED { pattern(id, index) } else { touched };
        if load(at) != expected {
            return Err(wrong("node's contents", at, load(at)));
        }
    }
    if pages == 0 {
        return Ok(());
    }
    core.resolve_run(run, pages, PAPER)?;
    for index in 0..RUN_HEAD + RUN_TOUCHED {
        let expected = if index < RUN_HEAD { pattern(id, index) } else { touched };
        if load(run.plus(index * WORD)) != expected {
            return Err(wrong("run's contents", run, load(run.plus(index * WORD))));
        }
    }
    let mut page = [0; PAGE as usize];
    for number in (0..pages).step_by(if pages < FILLER { 1 } else { 99 }) {
        let at = run.plus(number * PAGE);
        core.memory().read(at, &mut page);
        let from = if number == 0 { ((RUN_HEAD + RUN_TOUCHED) * WORD) as usize } else { 0 };
        // As slices, which are compared at once: kill tests look at millions of pages.
        if page[from..] != [0; PAGE as usize][from..] {
            return Err(wrong("byte of a former life", at, number));
        }
    }
    Ok(())
}
