//! What a power cut may leave of a device.
//!
//! What was written before a flush that was begun afterwards and has returned is there. Each other
//! block that was written is, independently, as it was or as any of these writes made it; if the
//! write was under way, it may also be garbage, or fail to be read.

use core::fmt;
use std::collections::BTreeMap;

use super::medium::{Medium, SECTOR};
use super::recorder::{Pending, Sweep};
use crate::Rng;

/// Which of the blocks that may have been written are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Choice {
    /// None.
    Old,
    /// All, the newest.
    New,
    /// Those before a random one, in the order in which they were written.
    Prefix,
    /// All but one.
    SingleOld,
    /// One.
    SingleNew,
    /// Each with a chance of so many eighths.
    Random(u8),
    /// Whole requests, each with a chance of one half.
    Requests,
    /// All, but what is under way is garbage or unreadable, in part.
    Garbage,
    /// As [`Choice::Random`], with garbage.
    RandomGarbage,
}

const CHOICES: [Choice; 12] = [
    Choice::Old,
    Choice::New,
    Choice::Prefix,
    Choice::SingleOld,
    Choice::SingleNew,
    Choice::Random(1),
    Choice::Random(4),
    Choice::Random(7),
    Choice::Requests,
    Choice::Garbage,
    Choice::RandomGarbage,
    Choice::Prefix,
];

impl Choice {
    /// A choice by chance.
    pub fn random(rng: &mut Rng) -> Choice {
        let index = rng.below(CHOICES.len() as u64) as usize;
        CHOICES.get(index).copied().unwrap_or(Choice::New)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What happens to a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Old,
    /// As write number so of those that wait made it.
    By(usize),
    Junk,
    Bad,
}

/// The medium after a power cut at `sweep`, of a device that writes `block` bytes at once.
#[must_use]
pub fn crash(sweep: &Sweep, block: u64, choice: Choice, rng: &mut Rng) -> Medium {
    let mut medium = sweep.durable.clone();
    // Who wrote each block, in order.
    let mut blocks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, pending) in sweep.pending.iter().enumerate() {
        let end = pending.at + pending.bytes.len() as u64;
        for number in pending.at / block..end.div_ceil(block) {
            blocks.entry(number).or_default().push(index);
        }
    }
    let mut order: Vec<(usize, u64)> = Vec::new();
    for (&number, writers) in &blocks {
        order.extend(writers.iter().map(|&index| (index, number)));
    }
    order.sort_unstable();
    let special = rng.below(order.len() as u64) as usize;
    let chosen: Vec<bool> = sweep.pending.iter().map(|_| rng.chance(1, 2)).collect();
    let special_block = order.get(special).map(|&(_, number)| number);
    for (&number, writers) in &blocks {
        let newest = writers.last().map_or(Fate::Old, |&index| Fate::By(index));
        let any = |rng: &mut Rng| {
            let index = writers.get(rng.below(writers.len() as u64) as usize);
            index.map_or(Fate::Old, |&index| Fate::By(index))
        };
        let last_of = |wanted: &dyn Fn(usize) -> bool| {
            let found = writers.iter().rev().find(|&&index| wanted(index));
            found.map_or(Fate::Old, |&index| Fate::By(index))
        };
        let is_special = special_block == Some(number);
        let is_open = writers.iter().any(|&i| sweep.pending.get(i).is_some_and(|p| !p.is_done));
        let random = |rng: &mut Rng, eighths: u8| match rng.chance(eighths.into(), 8) {
            true => any(rng),
            false => Fate::Old,
        };
        let mut fate = match choice {
            Choice::Old => Fate::Old,
            Choice::New | Choice::Garbage => newest,
            Choice::Prefix => {
                last_of(&|index| order.get(special).is_some_and(|&point| (index, number) < point))
            }
            Choice::SingleOld if is_special => Fate::Old,
            Choice::SingleOld => newest,
            Choice::SingleNew if is_special => any(rng),
            Choice::SingleNew => Fate::Old,
            Choice::Random(eighths) => random(rng, eighths),
            Choice::RandomGarbage => random(rng, 4),
            Choice::Requests => last_of(&|index| chosen.get(index) == Some(&true)),
        };
        let has_garbage = matches!(choice, Choice::Garbage | Choice::RandomGarbage);
        if has_garbage && is_open && rng.chance(1, 3) {
            fate = if rng.chance(1, 2) { Fate::Junk } else { Fate::Bad };
        }
        put(&mut medium, &sweep.pending, (number * block, block), fate, rng);
    }
    medium
}

/// Does what `fate` says to the block of `len` bytes at `at`.
fn put(medium: &mut Medium, pending: &[Pending], (at, len): (u64, u64), fate: Fate, rng: &mut Rng) {
    match fate {
        Fate::Old => {}
        Fate::By(index) => {
            let Some(by) = pending.get(index) else {
                return;
            };
            // A request may end within a block.
            let (from, to) = (at.max(by.at), (at + len).min(by.at + by.bytes.len() as u64));
            let part = by.bytes.get((from - by.at) as usize..(to - by.at) as usize);
            medium.write(from, part.unwrap_or_default());
        }
        Fate::Junk => {
            let words = (0..len / 8).flat_map(|_| rng.word().to_le_bytes());
            medium.write(at, &words.collect::<Vec<u8>>());
        }
        Fate::Bad => medium.spoil(at.next_multiple_of(SECTOR), len),
    }
}
