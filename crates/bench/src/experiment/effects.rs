//! The four effects of the companion paper, each by itself (MB 4, 5, 6): the corrected benchmark
//! with one thing put back as it was.
//!
//! The corrected benchmark reads several files, of which the first does not count, from clean
//! caches, page by page, each page once, with as many calls in one phase as in the other: read in
//! order, at random, or again, files should be as fast. What differs once one thing is put back is
//! that thing's doing.
//!
//! All phases are done in turn, in random order; the first turn does not count. What was timed for
//! a millisecond is not done again: phases that are compared read as much, so they end together.

use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::files::consume;
use super::{Effect, Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError, Calls, Opened};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;
use crate::stopwatch::{BATCH, Pieces};

/// The experiment.
pub(super) struct Effects;

/// Bytes of one access.
const ACCESS: u64 = 4096;
/// Most turns: where calls cost next to nothing, a millisecond would take for ever.
const TURNS: usize = 256;

const PHASES: [Phase; 10] = [
    bytes("read-clean"),
    bytes("read-clean-again"),
    bytes("read-after-write"),
    bytes("read-again"),
    bytes("sequential"),
    bytes("random"),
    bytes("random-unaligned"),
    bytes("sequential-reused"),
    bytes("random-reused"),
    bytes("sequential-without-seek"),
];

const fn bytes(id: &'static str) -> Phase {
    Phase { id, unit: Unit::Bytes, part: 0 }
}

const EFFECTS: [Effect; 4] = [
    Effect {
        id: "after-write",
        about: "the first read of a file that was just written, against the second (MB 4)",
        is_gain: false,
        original: ["read-after-write", "read-again"],
        corrected: ["read-clean", "read-clean-again"],
    },
    Effect {
        id: "unaligned",
        about: "random accesses at any byte, against sequential ones (MB 5)",
        is_gain: false,
        original: ["random-unaligned", "sequential"],
        corrected: ["random", "sequential"],
    },
    Effect {
        id: "reuse",
        about: "random accesses to a file that was just read, against sequential ones (MB 6)",
        is_gain: true,
        original: ["random-reused", "sequential-reused"],
        corrected: ["random", "sequential"],
    },
    Effect {
        id: "extra-call",
        about: "random accesses, against sequential ones that make one call less (MB 6)",
        is_gain: false,
        original: ["random", "sequential-without-seek"],
        corrected: ["random", "sequential"],
    },
];

impl Experiment for Effects {
    fn id(&self) -> &'static str {
        "effects"
    }

    fn about(&self) -> &'static str {
        "what the companion paper found: a benchmark with one thing wrong, and corrected (MB 4-6)"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn effects(&self) -> &'static [Effect] {
        &EFFECTS
    }

    fn points(&self, size: Size, caches: &Caches) -> Vec<Parameters> {
        let steps = caches.steps();
        // Either side of each cache.
        let mut sizes: Vec<u64> = match size {
            Size::Smoke => vec![64 << 10],
            Size::Short => steps.iter().take(2).flat_map(|step| [step / 2, step * 4]).collect(),
            Size::Full => steps.iter().flat_map(|step| [step / 2, step * 4]).collect(),
        };
        sizes.iter_mut().for_each(|bytes| *bytes = (*bytes).max(2 * ACCESS));
        sizes.sort_unstable();
        sizes.dedup();
        sizes.into_iter().map(|bytes| Parameters::of(&[("bytes", bytes), ("files", 11)])).collect()
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let bytes = in_range(parameters, "bytes", 2 * ACCESS..=1 << 40)?;
        let files = in_range(parameters, "files", 2..=1 << 10)?;
        Ok(Need { bytes: bytes * files, files, ..Need::default() })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let mut all = All::new(run)?;
        run.begin_all();
        let mut turns = 0;
        while turns < TURNS {
            let is_left = |turn: &Turn| turns < 2 || !all.is_enough(turn.phases());
            let mut order: Vec<Turn> = TURN.into_iter().filter(is_left).collect();
            if order.is_empty() {
                break;
            }
            all.random.shuffle(&mut order);
            for turn in order {
                turn.take(run, &mut all)?;
            }
            if turns == 0 {
                all.times.iter_mut().for_each(Pieces::forget);
            }
            turns += 1;
        }
        all.files.iter().try_for_each(|file| run.calls.close(*file))?;
        let times = all.times.into_iter().map(Pieces::finish);
        run.end_all(PHASES.iter().map(|phase| phase.id).zip(times).collect());
        Ok(())
    }
}

/// What is done in turn; some do two phases.
#[derive(Clone, Copy)]
enum Turn {
    AfterWrite,
    AfterWriteClean,
    Clean(Order),
    Reused(Order),
}

const TURN: [Turn; 8] = [
    Turn::AfterWrite,
    Turn::AfterWriteClean,
    Turn::Clean(Order::Sequential),
    Turn::Clean(Order::Random),
    Turn::Clean(Order::Unaligned),
    Turn::Clean(Order::WithoutSeek),
    Turn::Reused(Order::Sequential),
    Turn::Reused(Order::Replaced),
];

/// Where a file is accessed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Page after page.
    Sequential,
    /// The same, without the call that other orders need.
    WithoutSeek,
    /// Each page once.
    Random,
    /// Each page once, and half of the next one.
    Unaligned,
    /// Any page, so that some come twice and others not at all.
    Replaced,
}

impl Order {
    /// The phase that reads so from clean caches, or what was just read.
    fn phase(self, is_reused: bool) -> &'static str {
        match (self, is_reused) {
            (Order::Sequential, false) => "sequential",
            (Order::Sequential, true) => "sequential-reused",
            (Order::WithoutSeek, _) => "sequential-without-seek",
            (Order::Unaligned, _) => "random-unaligned",
            (Order::Random | Order::Replaced, false) => "random",
            (Order::Random | Order::Replaced, true) => "random-reused",
        }
    }

    /// Where a file of `bytes` bytes is accessed.
    fn offsets(self, random: &mut Random, bytes: u64) -> Vec<u64> {
        let mut offsets: Vec<u64> = (0..bytes / ACCESS).map(|at| at * ACCESS).collect();
        match self {
            Order::Sequential | Order::WithoutSeek => {}
            Order::Random => random.shuffle(&mut offsets),
            Order::Unaligned => {
                random.shuffle(&mut offsets);
                let moved = |at: u64, by: u64| (at + by).min(bytes - ACCESS);
                offsets.iter_mut().for_each(|at| *at = moved(*at, random.below(ACCESS)));
            }
            Order::Replaced => {
                let pages = bytes / ACCESS;
                offsets.iter_mut().for_each(|at| *at = random.below(pages) * ACCESS);
            }
        }
        offsets
    }
}

/// The files, and what each phase took.
struct All {
    files: Vec<Opened>,
    bytes: u64,
    content: Vec<u8>,
    random: Random,
    /// One for each phase.
    times: Vec<Pieces>,
}

impl All {
    /// New files, open.
    fn new(run: &mut Run<'_>) -> Result<All, CallError> {
        let mut all = All {
            files: Vec::new(),
            bytes: run.parameters.get("bytes"),
            content: run.random.bytes(ACCESS as usize),
            random: run.random.clone(),
            times: PHASES.iter().map(|_| run.pieces()).collect(),
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        for number in 0..run.parameters.get("files") {
            all.files.push(run.calls.open(&calls::path(&format!("large{number}")), flags)?);
        }
        all.write(&mut *run.calls, false)?;
        Ok(all)
    }

    /// Whether each of `phases` was timed for long enough.
    fn is_enough(&self, phases: [&str; 2]) -> bool {
        let known = PHASES.iter().zip(&self.times);
        let mut own = known.filter(|(phase, _)| phases.contains(&phase.id));
        own.all(|(_, pieces)| pieces.taken() >= BATCH)
    }

    /// Those that a phase works on: one, or all.
    fn some(&self, is_one: bool) -> Vec<Opened> {
        let count = if is_one { 1 } else { self.files.len() };
        self.files.iter().take(count).copied().collect()
    }

    /// Writes files anew, in order.
    fn write(&mut self, calls: &mut dyn Calls, is_one: bool) -> Result<(), CallError> {
        for file in self.some(is_one) {
            calls.seek(file, 0)?;
            for _ in 0..self.bytes / ACCESS {
                calls.write(file, &self.content)?;
            }
            calls.sync(file)?;
        }
        Ok(())
    }

    /// Reads files in an order: how many bytes there were, and how long it took. The first of
    /// several does not count.
    fn read(
        &mut self,
        calls: &mut dyn Calls,
        order: Order,
        is_one: bool,
    ) -> Result<(u64, Duration), CallError> {
        let files = self.some(is_one);
        let (random, bytes) = (&mut self.random, self.bytes);
        let offsets: Vec<Vec<u64>> = files.iter().map(|_| order.offsets(random, bytes)).collect();
        let (mut units, mut begin) = (0, Instant::now());
        for (number, (file, offsets)) in files.iter().zip(&offsets).enumerate() {
            if number == 1 {
                (units, begin) = (0, Instant::now());
            }
            calls.seek(*file, 0)?;
            for offset in offsets {
                if order != Order::WithoutSeek {
                    calls.seek(*file, *offset)?;
                }
                let count = calls.read(*file, &mut self.content)?;
                consume(&self.content);
                units += count as u64;
            }
        }
        Ok((units, begin.elapsed()))
    }

    /// Reads the last file, in order; its time does not count.
    fn read_last(&mut self, calls: &mut dyn Calls) -> Result<(), CallError> {
        let Some(file) = self.files.last() else { return Ok(()) };
        calls.seek(*file, 0)?;
        for _ in 0..self.bytes / ACCESS {
            calls.read(*file, &mut self.content)?;
            consume(&self.content);
        }
        Ok(())
    }

    /// Times a reading for `phase`.
    fn time(
        &mut self,
        calls: &mut dyn Calls,
        phase: &str,
        order: Order,
        is_one: bool,
    ) -> Result<(), CallError> {
        let (units, taken) = self.read(calls, order, is_one)?;
        let at = PHASES.iter().position(|known| known.id == phase);
        if let Some(pieces) = at.and_then(|at| self.times.get_mut(at)) {
            pieces.add(units, taken);
        }
        Ok(())
    }
}

impl Turn {
    /// Those that it does; the same twice if it does one.
    fn phases(self) -> [&'static str; 2] {
        match self {
            Turn::AfterWrite => ["read-after-write", "read-again"],
            Turn::AfterWriteClean => ["read-clean", "read-clean-again"],
            Turn::Clean(order) => [order.phase(false); 2],
            Turn::Reused(order) => [order.phase(true); 2],
        }
    }

    fn take(self, run: &mut Run<'_>, all: &mut All) -> Result<(), CallError> {
        match self {
            Turn::AfterWrite => {
                // What is written is in no cache, as if it had been made just now; but what reads
                // it has just read something else.
                run.clean_caches();
                all.read_last(&mut *run.calls)?;
                all.write(&mut *run.calls, true)?;
                self.phases()
                    .into_iter()
                    .try_for_each(|phase| all.time(&mut *run.calls, phase, Order::Sequential, true))
            }
            Turn::AfterWriteClean => {
                all.write(&mut *run.calls, false)?;
                self.phases().into_iter().try_for_each(|phase| {
                    run.clean_caches();
                    all.time(&mut *run.calls, phase, Order::Sequential, false)
                })
            }
            Turn::Clean(order) => {
                run.clean_caches();
                all.time(&mut *run.calls, order.phase(false), order, false)
            }
            Turn::Reused(order) => {
                // It is the state in which a phase before has left it.
                all.read(&mut *run.calls, Order::Sequential, true)?;
                all.time(&mut *run.calls, order.phase(true), order, true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_what_they_say() {
        let mut random = Random::new(1);
        let bytes = 64 * ACCESS;
        let pages: Vec<u64> = (0..64).map(|at| at * ACCESS).collect();
        assert_eq!(Order::Sequential.offsets(&mut random, bytes), pages);
        let mut shuffled = Order::Random.offsets(&mut random, bytes);
        assert_ne!(shuffled, pages);
        shuffled.sort_unstable();
        assert_eq!(shuffled, pages);
        let unaligned = Order::Unaligned.offsets(&mut random, bytes);
        assert!(unaligned.iter().all(|at| at + ACCESS <= bytes));
        assert!(unaligned.iter().filter(|at| !at.is_multiple_of(ACCESS)).count() > 50);
        let replaced = Order::Replaced.offsets(&mut random, bytes);
        let different: std::collections::BTreeSet<_> = replaced.iter().collect();
        assert!(replaced.len() == 64 && different.len() < 60);
    }

    #[test]
    fn effects_are_of_phases_that_there_are() {
        let is_phase = |id: &&str| PHASES.iter().any(|phase| phase.id == *id);
        let done: Vec<&str> = TURN.into_iter().flat_map(Turn::phases).collect();
        assert!(done.iter().all(is_phase));
        assert!(PHASES.iter().all(|phase| done.contains(&phase.id)));
        for effect in EFFECTS {
            assert!(effect.original.iter().chain(&effect.corrected).all(is_phase));
        }
    }
}
