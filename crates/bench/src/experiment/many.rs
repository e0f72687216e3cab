//! Phases of several threads, or several processes.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Measured, Run};
use crate::calls::{Answering, CallError, Calls};
use crate::process;
use crate::stopwatch::{Batch, Total};
use crate::trace::{Mark, mark};
use crate::worker::{Answer, Purpose, Request};

/// So often it is looked how far the threads have come.
const LOOK: Duration = Duration::from_millis(2);
/// With fewer looks than this, threads are measured by their own clocks, from the first one's
/// beginning to the last one's end.
const BATCHES_MIN: usize = 8;
/// Processes begin so long after they were started: until then each has reached the files.
const LEAD: Duration = Duration::from_millis(100);
/// Each goes on for so long at least.
const STAY: Duration = Duration::from_millis(250);
/// Longest time for a process. Whoever waits for this one gives up before, and it takes the others
/// with it.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

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

/// What a process does that works beside others in one phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// The number of the phase.
    pub phase: usize,
    /// Which of the processes it is.
    pub number: usize,
    /// When it begins: nanoseconds of the system's monotonic clock.
    pub start: u64,
}

impl Beside {
    /// Until when it goes on at least, so that processes that began late work beside the others.
    pub(super) fn until(&self) -> u64 {
        self.start + STAY.as_nanos() as u64
    }

    /// Waits until it begins.
    pub fn wait(&self) {
        std::thread::sleep(Duration::from_nanos(self.start.saturating_sub(now())));
    }
}

/// Nanoseconds of the system's monotonic clock: the same for all processes.
#[must_use]
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

impl Run<'_> {
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
        self.clean_caches();
        self.begin_all();
        let (source, delay) = (self.source(), self.delay());
        let is_traced = self.is_traced();
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
        self.keep(phase, batches, Total { units: sum(), calls });
        Ok(())
    }

    /// The phase `phase`, the one of number `number`, of `count` processes, each of which reaches
    /// the files by itself and does what [`super::Experiment::beside`] says. Counted is what all
    /// did while none had ended.
    ///
    /// # Errors
    /// The first process that failed.
    pub fn processes(
        &mut self,
        phase: &'static str,
        number: usize,
        count: usize,
    ) -> Result<(), CallError> {
        let failed = |reason: String| CallError {
            call: "a process beside others",
            path: None,
            source: std::io::Error::other(reason),
        };
        if self.request().answering == Answering::Memory {
            return Err(failed("memory is one process's only".into()));
        }
        if self.request().purpose != Purpose::Time {
            // What each does is what one does alone.
            return Ok(());
        }
        let start = now() + LEAD.as_nanos() as u64;
        let request = |process: usize| Request {
            beside: Some(Beside { phase: number, number: process, start }),
            seed: self.request().seed.wrapping_add(process as u64),
            // This process has become them; and what one sweeps, others have just fetched.
            user: None,
            sweep: 0,
            // All of them have the turn of this one.
            takes_turns: false,
            ..self.request().clone()
        };
        let requests: Vec<Request> = (0..count).map(request).collect();
        self.clean_caches();
        self.begin_all();
        let answers = std::thread::scope(|scope| {
            let run = |request| {
                scope.spawn(move || {
                    process::run(Path::new("/proc/self/exe"), request, LIMIT, &|| false)
                })
            };
            let waiting: Vec<_> = requests.iter().map(run).collect();
            let answers = waiting.into_iter().map(|thread| match thread.join() {
                Ok(answer) => answer,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            answers.collect::<Vec<_>>()
        });
        let mut all = Vec::new();
        for answer in answers {
            match answer.map_err(|error| failed(error.to_string()))? {
                Answer::Done { measured } => all.extend(measured),
                Answer::Failed(reason) => return Err(failed(reason)),
            }
        }
        let batches = merged(&all);
        if batches.iter().all(|batch| batch.units == 0) {
            return Err(failed("they were not at work at the same time: too short".into()));
        }
        self.end_all(vec![(phase, batches)]);
        Ok(())
    }
}

/// What several did while none of them had ended, in batches.
fn merged(all: &[Measured]) -> Vec<Batch> {
    let taken = |one: &Measured| one.batches.iter().map(|batch| batch.nanoseconds).sum::<u64>();
    let from = all.iter().map(|one| one.began).max().unwrap_or(0);
    let to = all.iter().map(|one| one.began + taken(one)).min().unwrap_or(0);
    let until = |at: u64| all.iter().map(|one| units_until(one, at)).sum::<f64>().round() as u64;
    let count = (to.saturating_sub(from) / LOOK.as_nanos() as u64).max(1);
    let time = |slice: u64| from + to.saturating_sub(from) * slice / count;
    let slice = |slice: u64| Batch {
        units: until(time(slice + 1)) - until(time(slice)),
        nanoseconds: time(slice + 1) - time(slice),
    };
    (0..count).map(slice).collect()
}

/// How many units one had done at `at`, a time of the monotonic clock: evenly in each batch.
fn units_until(one: &Measured, at: u64) -> f64 {
    let (mut begin, mut units) = (one.began, 0.0);
    for batch in &one.batches {
        let share = at.saturating_sub(begin) as f64 / batch.nanoseconds.max(1) as f64;
        units += batch.units as f64 * share.min(1.0);
        begin += batch.nanoseconds;
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::disturbance::Disturbance;

    fn measured(began: u64, batches: &[(u64, u64)]) -> Measured {
        let batch = |&(units, nanoseconds): &(u64, u64)| Batch { units, nanoseconds };
        Measured {
            phase: "read".into(),
            began,
            batches: batches.iter().map(batch).collect(),
            disturbance: Disturbance::default(),
            whole: None,
        }
    }

    #[test]
    fn what_many_do_at_once_counts() {
        // The second one begins 5 ms later and ends 5 ms later; each does 1,000 in 10 ms.
        let first = measured(1_000_000, &[(1000, 10_000_000), (1000, 10_000_000)]);
        let second = measured(6_000_000, &[(2000, 20_000_000)]);
        let batches = merged(&[first.clone(), second]);
        let units: u64 = batches.iter().map(|batch| batch.units).sum();
        let nanoseconds: u64 = batches.iter().map(|batch| batch.nanoseconds).sum();
        assert_eq!((units, nanoseconds, batches.len()), (3000, 15_000_000, 7));
        // Who came too late was not there at the same time.
        let late = measured(90_000_000, &[(1000, 10_000_000)]);
        assert_eq!(merged(&[first, late]), [Batch::default()]);
        assert_eq!(merged(&[]), [Batch::default()]);
    }
}
