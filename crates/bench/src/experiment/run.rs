//! A part of an experiment under way.

use serde::{Deserialize, Serialize};

use super::many::now;
use crate::calls::{Calls, Source};
use crate::machine::disturbance::{Counted, Disturbance};
use crate::parameters::Parameters;
use crate::random::Random;
use crate::stopwatch::{Batch, Pieces, Stopwatch};
use crate::worker::Request;

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
    /// What was counted when it began, and when.
    counted: Option<(Counted, u64)>,
}

impl<'s> Run<'s> {
    /// Begins with nothing measured what `request` says, on what was reached for it.
    #[must_use]
    pub fn new(source: &'s Source, request: &'s Request) -> Run<'s> {
        Run {
            parameters: request.parameters.clone(),
            calls: source.calls(),
            source,
            random: Random::new(request.seed),
            request,
            // Filled, so that it is memory of its own and not the one page of zeros.
            sweep: vec![1; request.sweep as usize / size_of::<u64>()],
            measured: Vec::new(),
            counted: None,
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

    /// Walks through memory until no cache holds what has to be written back.
    pub fn clean_caches(&self) {
        let sum = self.sweep.iter().step_by(8).fold(0, |sum: u64, word| sum.wrapping_add(*word));
        std::hint::black_box(sum);
    }

    /// Begins a phase: the clock runs.
    pub fn begin(&mut self) -> Stopwatch {
        self.clean_caches();
        self.counted = Some((Counted::now(), now()));
        Stopwatch::start(self.delay())
    }

    /// Ends the phase `phase`.
    pub fn end(&mut self, phase: &'static str, watch: Stopwatch) {
        self.end_all(vec![(phase, watch.stop())]);
    }

    /// Ends the phase `phase`, of which `others` are parts that count something else: how many
    /// there were in all of it.
    pub fn end_with(
        &mut self,
        phase: &'static str,
        watch: Stopwatch,
        others: &[(&'static str, u64)],
    ) {
        let batches = watch.stop();
        let nanoseconds = batches.iter().map(|batch| batch.nanoseconds).sum();
        let of =
            |&(phase, units): &(&'static str, u64)| (phase, vec![Batch { units, nanoseconds }]);
        self.end_all([(phase, batches)].into_iter().chain(others.iter().map(of)).collect());
    }

    /// Begins phases that are done in turn, and timed by [`Run::pieces`].
    pub fn begin_all(&mut self) {
        self.counted = Some((Counted::now(), now()));
    }

    /// A clock for one of them.
    #[must_use]
    pub fn pieces(&self) -> Pieces {
        Pieces::new(self.delay())
    }

    /// Ends all phases that have begun, each with its batches: what disturbed one disturbed all.
    pub fn end_all(&mut self, phases: Vec<(&'static str, Vec<Batch>)>) {
        let (disturbance, began) = match self.counted.take() {
            Some((then, began)) => (then.until_now(), began),
            None => Default::default(),
        };
        let measured = |(phase, batches): (&'static str, Vec<Batch>)| Measured {
            phase: phase.to_owned(),
            began,
            batches,
            disturbance,
        };
        self.measured.extend(phases.into_iter().map(measured));
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
