//! A part of an experiment under way.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::calls::{CallError, Calls, Source};
use crate::machine::disturbance::{Counted, Disturbance};
use crate::machine::work::{Done, Stores, Work};
use crate::parameters::Parameters;
use crate::random::Random;
use crate::stopwatch::{Batch, Stopwatch, Total};
use crate::trace::{Mark, mark};

/// What was measured of one phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Which.
    pub phase: String,
    /// Its batches, in order.
    pub batches: Vec<Batch>,
    /// What else the machine did.
    pub disturbance: Disturbance,
    /// What is known of the whole phase only; none of what is a part of another one.
    pub whole: Option<Whole>,
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
}

/// So often it is looked how far the threads have come.
const LOOK: Duration = Duration::from_millis(2);

/// With fewer looks than this, threads are measured by their own clocks, from the first one's
/// beginning to the last one's end.
const BATCHES_MIN: usize = 8;

/// How far a thread has come. Alone on its lines, so that counting disturbs nobody else.
#[derive(Default)]
#[repr(align(128))]
pub struct Counter {
    units: AtomicU64,
    calls: AtomicU64,
}

impl Counter {
    /// So many units more are done.
    #[inline]
    pub fn did(&self, units: u64) {
        // Only this thread writes it.
        self.units.store(self.units() + units, Ordering::Relaxed);
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }
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
    delay: f64,
    /// Walked through before each phase, so that no line of the caches has to be written back in it
    /// that was changed before it (MB 8); empty if the caches are left as they are.
    sweep: Vec<u64>,
    measured: Vec<Measured>,
    begun: Option<(Counted, Done)>,
    /// Whether marks are made for who counts system calls.
    is_traced: bool,
}

impl<'s> Run<'s> {
    /// Begins with nothing measured. `sweep` is how many bytes are walked through before each
    /// phase.
    #[must_use]
    pub fn new(
        source: &'s Source,
        parameters: Parameters,
        seed: u64,
        delay: f64,
        sweep: u64,
    ) -> Run<'s> {
        Run {
            parameters,
            calls: source.calls(),
            source,
            random: Random::new(seed),
            delay,
            // Filled, so that it is memory of its own and not the one page of zeros.
            sweep: vec![1; sweep as usize / size_of::<u64>()],
            measured: Vec::new(),
            begun: None,
            is_traced: false,
        }
    }

    /// Marks phases for who counts system calls.
    pub fn be_traced(&mut self) {
        self.is_traced = true;
    }

    fn mark(&self, what: Mark) {
        if self.is_traced {
            mark(what);
        }
    }

    /// Cleans the caches, and looks at what is counted.
    fn prepare(&mut self) {
        let sum = self.sweep.iter().step_by(8).fold(0, |sum: u64, word| sum.wrapping_add(*word));
        std::hint::black_box(sum);
        // What was done before is forgotten.
        let _before = self.source.take_counts();
        self.begun = Some((Counted::now(), Done::now()));
    }

    /// Begins a phase: the clock runs.
    pub fn begin(&mut self) -> Stopwatch {
        self.prepare();
        let watch = Stopwatch::start(self.delay);
        self.mark(Mark::Begin);
        watch
    }

    /// Ends the phase `phase`.
    pub fn end(&mut self, phase: &'static str, watch: Stopwatch) {
        self.mark(Mark::End);
        let total = watch.total();
        self.keep(phase, watch.stop(), total);
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
        for &(phase, units) in others {
            let batches = vec![Batch { units, nanoseconds }];
            let (phase, whole) = (phase.to_owned(), None);
            self.measured.push(Measured { phase, batches, disturbance, whole });
        }
    }

    /// Ends a phase that was measured by somebody else.
    pub fn tell(&mut self, phase: &'static str, batch: Batch) {
        self.mark(Mark::End);
        self.keep(phase, vec![batch], Total::default());
    }

    fn keep(&mut self, phase: &'static str, batches: Vec<Batch>, total: Total) {
        let begun = self.begun.take();
        let work = begun.as_ref().map(|(_, then)| then.until_now()).unwrap_or_default();
        let disturbance = begun.map(|(then, _)| then.until_now()).unwrap_or_default();
        let (phase, stores) = (phase.to_owned(), self.source.take_counts().map(Stores::from));
        let whole = Some(Whole { total, work, stores, system_calls: None });
        self.measured.push(Measured { phase, batches, disturbance, whole });
        self.mark(Mark::Kept);
    }

    /// A phase of `count` threads, each of which does `work` with its number, calls of its own, and
    /// a counter. Counted is until the first of them ends: what others do alone is not what many
    /// do.
    ///
    /// # Errors
    /// The first call that failed.
    pub fn threads<W>(
        &mut self,
        phase: &'static str,
        count: usize,
        work: W,
    ) -> Result<(), CallError>
    where
        W: Fn(usize, &mut dyn Calls, &Counter) -> Result<(), CallError> + Sync,
    {
        let counters: Vec<Counter> = (0..count).map(|_| Counter::default()).collect();
        let (start, has_ended) = (Barrier::new(count + 1), AtomicBool::new(false));
        let sum = || counters.iter().map(Counter::units).sum::<u64>();
        // The time is taken here.
        self.prepare();
        let (source, delay, is_traced) = (self.source, self.delay, self.is_traced);
        let slowed = |taken: Duration| taken.mul_f64(1.0 + delay).as_nanos() as u64;
        let mut batches = Vec::new();
        let done = std::thread::scope(|scope| {
            let threads: Vec<_> = counters
                .iter()
                .enumerate()
                .map(|(number, counter)| {
                    let (start, has_ended, work) = (&start, &has_ended, &work);
                    scope.spawn(move || {
                        let mut calls = source.calls();
                        start.wait();
                        let begin = Instant::now();
                        if is_traced {
                            mark(Mark::Begin);
                        }
                        let done = work(number, &mut *calls, counter);
                        if is_traced {
                            mark(Mark::End);
                        }
                        has_ended.store(true, Ordering::Release);
                        done.map(|()| (begin, Instant::now()))
                    })
                })
                .collect();
            start.wait();
            let (mut then, mut before) = (Instant::now(), sum());
            while !has_ended.load(Ordering::Acquire) {
                std::thread::sleep(LOOK);
                let (now, units) = (Instant::now(), sum());
                batches.push(Batch { units: units - before, nanoseconds: slowed(now - then) });
                (then, before) = (now, units);
            }
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.collect::<Result<Vec<(Instant, Instant)>, CallError>>()
        });
        let times = done?;
        // In the last one somebody had ended.
        batches.pop();
        if batches.len() < BATCHES_MIN {
            let begin = times.iter().map(|(begin, _)| *begin).min();
            let end = times.iter().map(|(_, end)| *end).max();
            let taken = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
            batches = vec![Batch { units: sum(), nanoseconds: slowed(taken) }];
        }
        let calls = counters.iter().map(|one| one.calls.load(Ordering::Relaxed)).sum();
        let total = Total { units: sum(), calls };
        self.keep(phase, batches, total);
        Ok(())
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
