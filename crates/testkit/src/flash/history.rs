//! What a volume was told to hold, and what it may hold after a power cut.
//!
//! Each block that is written names the operation that wrote it, so what a volume holds is a row of
//! numbers of operations. By one thread: it is what it was after some row of operations from the
//! first one on, at least all that had returned before a flush that has returned. By several: if a
//! block shows an operation, that has happened, and so has all that had returned before it began.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use conquest_flash::Volume;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use super::recorder::{Event, Mark};
use crate::rng::mix;

/// Bytes of a block.
pub const BLOCK: u64 = 512;
/// Blocks of a unit.
pub const PER_UNIT: u64 = 8;

/// The operation that wrote each block, 0 for none.
pub type State = Vec<u32>;

/// The bytes of block `block` as operation `op` writes it.
#[must_use]
pub fn contents(block: u64, op: u32) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    if op > 0 {
        let first = u64::from(op) << 32 | block;
        for (factor, word) in (1_u64..).step_by(2).zip(bytes.as_chunks_mut::<8>().0) {
            *word = first.wrapping_mul(factor).to_le_bytes();
        }
    }
    bytes
}

/// The operation that wrote `bytes` to block `block`; none if none did.
#[must_use]
pub fn writer(block: u64, bytes: &[u8]) -> Option<u32> {
    let first = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let op = (first >> 32) as u32;
    (bytes == contents(block, op)).then_some(op)
}

/// What the first `blocks` blocks of `volume` hold.
///
/// # Errors
/// What can't be read, or was never written, as text.
pub fn read<M: Memory, H: Host>(volume: &Volume<M, H>, blocks: u64) -> Result<State, String> {
    let mut state = State::with_capacity(blocks as usize);
    let mut bytes = vec![0; 256 * BLOCK as usize];
    let mut at = 0;
    while at < blocks {
        let count = (blocks - at).min(256);
        let part = bytes.get_mut(..(count * BLOCK) as usize).unwrap_or_default();
        volume.read(at, part).map_err(|error| format!("reading from block {at}: {error}"))?;
        for (block, bytes) in (at..).zip(part.chunks(BLOCK as usize)) {
            let op = writer(block, bytes);
            state.push(op.ok_or_else(|| format!("block {block} holds what nobody wrote"))?);
        }
        at += count;
    }
    Ok(state)
}

/// A digest of `state`, which can be kept up to date block by block: the exclusive or of all.
#[must_use]
pub fn digest(state: &[u32]) -> u64 {
    (0..).zip(state).fold(0, |digest, (block, &op)| digest ^ digest_of(block, op))
}

const fn digest_of(block: u64, op: u32) -> u64 {
    if op == 0 { 0 } else { mix(mix(block + 1) ^ op as u64) }
}

/// A change that happens as a whole.
#[derive(Clone, Debug)]
pub struct Step {
    /// Of which operation.
    pub op: u32,
    /// Blocks.
    pub ranges: Vec<Range<u64>>,
    /// What they hold afterwards.
    pub value: u32,
}

impl Step {
    /// Makes `state` what it is after the step.
    pub fn apply(&self, state: &mut State) {
        for block in self.ranges.iter().cloned().flatten() {
            if let Some(slot) = state.get_mut(block as usize) {
                *slot = self.value;
            }
        }
    }
}

/// When, in a log, operations were begun and had returned.
#[derive(Clone, Debug, Default)]
struct Times {
    begun: BTreeMap<u32, usize>,
    done: BTreeMap<u32, usize>,
    /// When the volume was open.
    recovered: usize,
}

/// What a volume was told, by a log.
#[derive(Clone, Debug)]
pub struct History {
    initial: State,
    steps: Vec<Step>,
    times: Times,
    /// Operations that are flushes.
    flushes: BTreeSet<u32>,
    is_ordered: bool,
    /// Digests after so many steps.
    digests: HashMap<u64, Vec<usize>>,
}

impl History {
    /// That of `log`, on a volume that held `initial`: its steps, in order if one thread made them,
    /// and which operations were flushes.
    #[must_use]
    pub fn new(
        initial: State,
        steps: Vec<Step>,
        flushes: BTreeSet<u32>,
        is_ordered: bool,
        log: &[Event],
    ) -> History {
        let mut times = Times { recovered: usize::MAX, ..Times::default() };
        for (at, event) in log.iter().enumerate() {
            match event {
                Event::Mark(Mark::Begun(op)) => drop(times.begun.insert(*op, at)),
                Event::Mark(Mark::Done(op)) => drop(times.done.insert(*op, at)),
                Event::Mark(Mark::Recovered) => times.recovered = at,
                _ => {}
            }
        }
        let mut digests: HashMap<u64, Vec<usize>> = HashMap::new();
        if is_ordered {
            let mut state = initial.clone();
            let mut digest = digest(&state);
            digests.entry(digest).or_default().push(0);
            for (index, step) in steps.iter().enumerate() {
                for block in step.ranges.iter().cloned().flatten() {
                    let old = state.get(block as usize).copied().unwrap_or(0);
                    digest ^= digest_of(block, old) ^ digest_of(block, step.value);
                }
                step.apply(&mut state);
                digests.entry(digest).or_default().push(index + 1);
            }
        }
        History { initial, steps, times, flushes, is_ordered, digests }
    }

    /// The moment before which everything that had returned has to be there, after a cut at `cut`.
    fn flushed(&self, cut: usize) -> usize {
        let flushes = self.flushes.iter().filter(|op| self.is_done(**op, cut));
        flushes.filter_map(|op| self.times.begun.get(op)).copied().max().unwrap_or(0)
    }

    fn is_done(&self, op: u32, before: usize) -> bool {
        self.times.done.get(&op).is_some_and(|&at| at < before)
    }

    fn is_begun(&self, op: u32, before: usize) -> bool {
        self.times.begun.get(&op).is_some_and(|&at| at < before)
    }

    /// Judges what a volume holds after a cut at `cut` of the log.
    ///
    /// # Errors
    /// What it may not hold, as text.
    pub fn judge(&self, cut: usize, state: &State) -> Result<(), String> {
        if self.is_ordered { self.judge_row(cut, state) } else { self.judge_blocks(cut, state) }
    }

    /// The state after `count` steps.
    fn after(&self, count: usize) -> State {
        let mut state = self.initial.clone();
        self.steps.iter().take(count).for_each(|step| step.apply(&mut state));
        state
    }

    fn judge_row(&self, cut: usize, state: &State) -> Result<(), String> {
        let flushed = self.flushed(cut);
        let least = self.steps.iter().take_while(|step| self.is_done(step.op, flushed)).count();
        let most = self.steps.iter().take_while(|step| self.is_begun(step.op, cut)).count();
        let rows = self.digests.get(&digest(state));
        if rows.is_some_and(|rows| rows.iter().any(|row| (least..=most).contains(row))) {
            return Ok(());
        }
        let differing = |count: &usize| {
            let expected = self.after(*count);
            expected.iter().zip(state).filter(|(one, other)| one != other).count()
        };
        let best = (0..=most).min_by_key(differing).unwrap_or(least);
        let expected = self.after(best);
        let wrong: Vec<String> = (0..)
            .zip(expected.iter().zip(state))
            .filter(|(_, (one, other))| one != other)
            .take(6)
            .map(|(block, (one, other)): (u64, _)| format!("block {block}: {one} is {other}"))
            .collect();
        let next = self.steps.get(best);
        Err(format!(
            "not the state after any of {least} to {most} steps; nearest: {best}, {} differ ({}); \
             the step after it: {next:?}",
            differing(&best),
            wrong.join(", ")
        ))
    }

    fn judge_blocks(&self, cut: usize, state: &State) -> Result<(), String> {
        // Whoever can be seen has happened, and so has what had returned before.
        let seen: BTreeSet<u32> = state.iter().copied().collect();
        let begun = |op: &u32| self.times.begun.get(op).copied().unwrap_or(0);
        let certain = seen.iter().map(begun).max().unwrap_or(0).max(self.flushed(cut));
        let mut happened: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let mut possible: BTreeMap<u64, Vec<(u32, u32)>> = BTreeMap::new();
        for step in self.steps.iter().filter(|step| self.is_begun(step.op, cut)) {
            let has_happened =
                self.is_done(step.op, certain) || (step.value > 0 && seen.contains(&step.op));
            for block in step.ranges.iter().cloned().flatten() {
                possible.entry(block).or_default().push((step.op, step.value));
                if has_happened {
                    happened.entry(block).or_default().push(step.op);
                }
            }
        }
        for (block, &value) in (0..).zip(state) {
            let sure = happened.get(&block).map_or(&[][..], Vec::as_slice);
            let initial = self.initial.get(block as usize) == Some(&value) && sure.is_empty();
            let is_over = |op: u32| {
                let done = self.times.done.get(&op).copied().unwrap_or(usize::MAX);
                sure.iter().any(|later| begun(later) > done)
            };
            let writes = possible.get(&block).map_or(&[][..], Vec::as_slice);
            let is_right = writes.iter().any(|&(op, written)| written == value && !is_over(op));
            if !initial && !is_right {
                return Err(format!(
                    "block {block} is of operation {value}; {sure:?} are certain, {writes:?} \
                     possible, the first is {:?}",
                    self.initial.get(block as usize)
                ));
            }
        }
        Ok(())
    }

    /// When the volume was open.
    #[must_use]
    pub const fn recovered(&self) -> usize {
        self.times.recovered
    }

    /// Whether operation `op` is a flush.
    #[must_use]
    pub fn is_flush(&self, op: u32) -> bool {
        self.flushes.contains(&op)
    }
}
