//! A part of an experiment under way.

use serde::{Deserialize, Serialize};

use super::many::now;
use crate::calls::{Calls, Source};
use crate::machine::disturbance::{Counted, Disturbance};
use crate::machine::work::{Done, Stores, Work};
use crate::parameters::Parameters;
use crate::random::Random;
use crate::simulation::Simulated;
use crate::stopwatch::{Batch, Pieces, Stopwatch, Total};
use crate::trace::{Mark, mark};
use crate::turns::Turn;
use crate::worker::{Purpose, Request};

/// What was measured of one phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Which.
    pub phase: String,
    /// When it began: nanoseconds of the system's monotonic clock.
    #[serde(default)]
    pub began: u64,
    /// Its batches, in order.
    pub batches: Vec<Batch>,
    /// What else the machine did.
    pub disturbance: Disturbance,
    /// What is known of the whole phase only; none of what is a part of another one.
    pub whole: Option<Whole>,
    /// What was found, if it is no rate.
    #[serde(default)]
    pub amount: Option<f64>,
}

/// What is known of a whole phase, but not of its batches.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Whole {
    /// How much was done.
    pub total: Total,
    /// What it made the system do.
    pub work: Work,
    /// What it did to the memory of a store, if that was counted.
    pub stores: Option<Stores>,
    /// System calls, if they were counted.
    pub system_calls: Option<u64>,
    /// What was done in a simulated processor, if it was.
    #[serde(default)]
    pub simulated: Option<Simulated>,
}

/// What there was when a phase began.
struct Begun {
    counted: Counted,
    done: Done,
    /// Nanoseconds of the system's monotonic clock.
    at: u64,
}

/// What a part of an experiment has at hand.
pub struct Run<'s> {
    /// What is to be done.
    pub parameters: Parameters,
    /// The calls of this thread.
    pub calls: Box<dyn Calls + Send + 's>,
    source: &'s Source,
    /// Random numbers: the same for every target and every part of a round.
    pub random: Random,
    request: &'s Request,
    /// Walked through before each phase, so that no line of the caches has to be written back in it
    /// that was changed before it (MB 8); empty if the caches are left as they are.
    sweep: Vec<u64>,
    measured: Vec<Measured>,
    begun: Option<Begun>,
    turn: Option<Turn>,
}

impl<'s> Run<'s> {
    /// Begins with nothing measured what `request` says, on what was reached for it.
    #[must_use]
    pub fn new(source: &'s Source, request: &'s Request, turn: Option<Turn>) -> Run<'s> {
        Run {
            parameters: request.parameters.clone(),
            calls: source.calls(),
            source,
            random: Random::new(request.seed),
            request,
            // Filled, so that it is memory of its own and not the one page of zeros.
            sweep: vec![1; request.sweep as usize / size_of::<u64>()],
            measured: Vec::new(),
            begun: None,
            turn,
        }
    }

    /// What is to be done.
    #[must_use]
    pub(super) fn request(&self) -> &'s Request {
        self.request
    }

    /// A share of its time by which everything is made slower.
    pub(super) fn delay(&self) -> f64 {
        self.request.delay
    }

    /// By whom calls are answered.
    #[must_use]
    pub fn source(&self) -> &'s Source {
        self.source
    }

    /// The turn, if this process takes turns.
    pub(super) fn turn(&self) -> Option<Turn> {
        self.turn
    }

    /// Whether marks are made for who counts system calls, or instructions.
    pub(super) fn is_traced(&self) -> bool {
        matches!(self.request.purpose, Purpose::Calls | Purpose::Instructions)
    }

    fn mark(&self, what: Mark) {
        if self.is_traced() {
            mark(what);
        }
    }

    /// Walks through memory until no cache holds what has to be written back.
    pub fn clean_caches(&self) {
        let sum = self.sweep.iter().step_by(8).fold(0, |sum: u64, word| sum.wrapping_add(*word));
        std::hint::black_box(sum);
    }

    /// Begins phases that are done in turn, and timed by [`Run::pieces`], or by somebody else.
    pub fn begin_all(&mut self) {
        // What was done before is forgotten.
        let _before = self.source.take_counts();
        self.begun = Some(Begun { counted: Counted::now(), done: Done::now(), at: now() });
    }

    /// Begins a phase: the clock runs.
    pub fn begin(&mut self) -> Stopwatch {
        self.clean_caches();
        self.begin_all();
        let watch = Stopwatch::start(self.delay(), self.turn);
        self.mark(Mark::Begin);
        watch
    }

    /// Ends the phase `phase`.
    pub fn end(&mut self, phase: &'static str, watch: Stopwatch) {
        self.mark(Mark::End);
        let total = watch.total();
        self.keep(phase, watch.stop(), total, 0.0);
    }

    /// Ends the phase `phase`, of which `others` are parts that count something else: how many
    /// there were in all of it.
    pub fn end_with(
        &mut self,
        phase: &'static str,
        watch: Stopwatch,
        others: &[(&'static str, u64)],
    ) {
        self.end(phase, watch);
        let last = self.measured.last();
        let disturbance = last.map(|last| last.disturbance).unwrap_or_default();
        let batches = last.map(|last| last.batches.as_slice()).unwrap_or_default();
        let nanoseconds = batches.iter().map(|batch| batch.nanoseconds).sum();
        let parts =
            others.iter().map(|&(phase, units)| (phase, vec![Batch { units, nanoseconds }]));
        self.push(parts, disturbance, last.map_or(0, |last| last.began));
    }

    /// A clock for one of several phases that are done in turn.
    #[must_use]
    pub fn pieces(&self) -> Pieces {
        Pieces::new(self.delay())
    }

    /// Ends all phases that have begun, each with its batches: what disturbed one disturbed all.
    pub fn end_all(&mut self, phases: Vec<(&'static str, Vec<Batch>)>) {
        self.end_all_with(phases, &[]);
    }

    /// The same, with phases besides of which numbers were found that are no rates.
    pub fn end_all_with(
        &mut self,
        phases: Vec<(&'static str, Vec<Batch>)>,
        amounts: &[(&'static str, f64)],
    ) {
        let begun = self.begun.take();
        let began = begun.as_ref().map_or(0, |begun| begun.at);
        let disturbance = begun.map(|begun| begun.counted.until_now()).unwrap_or_default();
        self.push(phases.into_iter(), disturbance, began);
        self.measured.extend(amounts.iter().map(|&(phase, amount)| Measured {
            phase: phase.to_owned(),
            began,
            batches: Vec::new(),
            disturbance,
            whole: None,
            amount: Some(amount),
        }));
        self.end_turn();
    }

    /// Lets the others end the phase.
    fn end_turn(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.end_phase();
        }
    }

    /// Keeps phases that are parts of something: of all that, more is not known of each.
    fn push(
        &mut self,
        phases: impl Iterator<Item = (&'static str, Vec<Batch>)>,
        disturbance: Disturbance,
        began: u64,
    ) {
        self.measured.extend(phases.map(|(phase, batches)| Measured {
            phase: phase.to_owned(),
            began,
            batches,
            disturbance,
            whole: None,
            amount: None,
        }));
    }

    /// Keeps the phase that has begun, in which `total` was done; other threads than this one
    /// waited for a processor for the share `waited` of the time.
    pub(super) fn keep(
        &mut self,
        phase: &'static str,
        batches: Vec<Batch>,
        total: Total,
        waited: f64,
    ) {
        let begun = self.begun.take();
        let mut work = begun.as_ref().map(|begun| begun.done.until_now()).unwrap_or_default();
        if self.turn.is_some() {
            // It was done for others.
            work.elsewhere = None;
        }
        let began = begun.as_ref().map_or(0, |begun| begun.at);
        let disturbance = begun.map(|begun| begun.counted.until_now()).unwrap_or_default();
        let disturbance = Disturbance { waited: disturbance.waited.max(waited), ..disturbance };
        let (phase, stores) = (phase.to_owned(), self.source.take_counts().map(Stores::from));
        let whole = Some(Whole { total, work, stores, ..Whole::default() });
        let amount = None;
        self.measured.push(Measured { phase, began, batches, disturbance, whole, amount });
        self.mark(Mark::Kept);
        self.end_turn();
    }

    /// Leaves the caches to the phases: for experiments that show what comes of it.
    pub fn leave_caches(&mut self) {
        self.sweep = Vec::new();
    }

    /// What was measured.
    #[must_use]
    pub fn finish(self) -> Vec<Measured> {
        self.measured
    }
}
