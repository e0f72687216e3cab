//! Phases of several threads, or several processes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Measured, Run};
use crate::calls::{Answering, CallError, Calls};
use crate::machine::disturbance::Waited;
use crate::process;
use crate::stopwatch::{BATCH, Batch, Stopwatch, Total};
use crate::trace::{Mark, mark};
use crate::turns::Turn;
use crate::worker::{Answer, Purpose, Request};

/// So often it is looked how far the threads have come.
const LOOK: Duration = BATCH;
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

/// Where threads wait while others have the turn.
#[derive(Default)]
struct Gate {
    is_closed: AtomicBool,
    /// How many wait, or have ended.
    still: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    /// How many are still. Nobody panics while he looks.
    fn still(&self) -> MutexGuard<'_, usize> {
        self.still.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops threads between two calls, and waits until all `count` have stopped.
    fn close(&self, count: usize) {
        self.is_closed.store(true, Ordering::Relaxed);
        let moves = |still: &mut usize| *still < count;
        drop(self.changed.wait_while(self.still(), moves));
    }

    fn open(&self) {
        let _still = self.still();
        self.is_closed.store(false, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// A thread that comes by.
    #[cold]
    fn wait(&self) {
        let mut still = self.still();
        *still += 1;
        self.changed.notify_all();
        let is_closed = |_: &mut usize| self.is_closed.load(Ordering::Relaxed);
        let waited = self.changed.wait_while(still, is_closed);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
    }

    /// A thread that has ended.
    fn end(&self) {
        *self.still() += 1;
        self.changed.notify_all();
    }
}

/// Who is told how far a thread has come.
pub enum Counter<'c> {
    /// The clock, if there is one thread: whoever looked from outside would take a part of its
    /// processor, or of the one that shares a core with that.
    Alone(&'c mut Stopwatch),
    /// Who looks from outside.
    Among(&'c Count),
}

impl Counter<'_> {
    /// So many units more are done.
    #[inline]
    pub fn did(&mut self, units: u64) {
        match self {
            Counter::Alone(watch) => watch.did(units),
            Counter::Among(count) => count.did(units),
        }
    }
}

/// How far a thread has come. Alone on its lines, so that counting disturbs nobody else.
#[repr(align(128))]
pub struct Count {
    units: AtomicU64,
    calls: AtomicU64,
    gate: Arc<Gate>,
}

impl Count {
    fn new(gate: &Arc<Gate>) -> Count {
        Count { units: AtomicU64::new(0), calls: AtomicU64::new(0), gate: Arc::clone(gate) }
    }

    #[inline]
    fn did(&self, units: u64) {
        // Only this thread writes it.
        self.units.store(self.units() + units, Ordering::Relaxed);
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.gate.is_closed.load(Ordering::Relaxed) {
            self.gate.wait();
        }
    }

    fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }
}

/// When a thread worked, and the share of that time in which it waited for a processor.
struct Worked {
    begin: Instant,
    end: Instant,
    waited: f64,
}

/// The share of its time for which one of them waited most, if each could have had a processor.
fn waited(all: &[Worked]) -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match all.len() <= processors {
        true => all.iter().map(|one| one.waited).fold(0.0, f64::max),
        false => 0.0,
    }
}

/// What threads do, looked at from outside.
struct Watched<'c> {
    counters: &'c [Count],
    gate: &'c Gate,
    turn: Option<Turn>,
    delay: f64,
}

impl Watched<'_> {
    fn units(&self) -> u64 {
        self.counters.iter().map(Count::units).sum()
    }

    fn slowed(&self, taken: Duration) -> u64 {
        taken.mul_f64(1.0 + self.delay).as_nanos() as u64
    }

    /// Batches until `has_ended`; and whether the turn was passed on.
    fn watch(&mut self, has_ended: &AtomicBool) -> (Vec<Batch>, bool) {
        let (mut batches, mut has_passed, mut is_cold) = (Vec::new(), false, false);
        let (mut then, mut before) = (Instant::now(), self.units());
        while !has_ended.load(Ordering::Acquire) {
            std::thread::sleep(LOOK);
            let turn_up = self.turn.filter(Turn::is_up);
            if turn_up.is_some() {
                self.gate.close(self.counters.len());
            }
            let (now, units) = (Instant::now(), self.units());
            if !std::mem::take(&mut is_cold) {
                let nanoseconds = self.slowed(now - then);
                batches.push(Batch { units: units - before, nanoseconds });
            }
            (then, before) = (now, units);
            if let Some(mut turn) = turn_up {
                turn.pass();
                self.turn = Some(turn);
                (has_passed, is_cold) = (true, true);
                self.gate.open();
                then = Instant::now();
            }
        }
        (batches, has_passed)
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
    // There is no system without this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
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
        W: Fn(usize, &mut dyn Calls, &mut Counter<'_>) -> Result<(), CallError> + Sync,
    {
        if count != 1 {
            return self.several(phase, count, work);
        }
        let mut calls = self.source().calls();
        let mut watch = self.begin();
        work(0, &mut *calls, &mut Counter::Alone(&mut watch))?;
        self.end(phase, watch);
        Ok(())
    }

    /// The same for more than one.
    fn several<W>(&mut self, phase: &'static str, count: usize, work: W) -> Result<(), CallError>
    where
        W: Fn(usize, &mut dyn Calls, &mut Counter<'_>) -> Result<(), CallError> + Sync,
    {
        let gate = Arc::new(Gate::default());
        let counters: Vec<Count> = (0..count).map(|_| Count::new(&gate)).collect();
        let (start, has_ended) = (Barrier::new(count + 1), AtomicBool::new(false));
        // The time is taken here.
        self.clean_caches();
        self.begin_all();
        let (source, is_traced) = (self.source(), self.is_traced());
        let (turn, delay) = (self.turn(), self.delay());
        let mut watched = Watched { counters: &counters, gate: &gate, turn, delay };
        let (done, (mut batches, has_passed)) = std::thread::scope(|scope| {
            let threads: Vec<_> = counters
                .iter()
                .enumerate()
                .map(|(number, counter)| {
                    let (start, has_ended, work) = (&start, &has_ended, &work);
                    scope.spawn(move || {
                        let mut calls = source.calls();
                        start.wait();
                        let (begin, waited) = (Instant::now(), Waited::of_thread());
                        if is_traced {
                            mark(Mark::Begin);
                        }
                        let done = work(number, &mut *calls, &mut Counter::Among(counter));
                        if is_traced {
                            mark(Mark::End);
                        }
                        has_ended.store(true, Ordering::Release);
                        counter.gate.end();
                        let end = Instant::now();
                        done.map(|()| Worked { begin, end, waited: waited.until_now() })
                    })
                })
                .collect();
            start.wait();
            let batches = watched.watch(&has_ended);
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            (ended.collect::<Result<Vec<Worked>, CallError>>(), batches)
        });
        let worked = done?;
        // In the last one somebody had ended.
        if batches.len() > 1 {
            batches.pop();
        }
        if batches.len() < BATCHES_MIN && !has_passed {
            let begin = worked.iter().map(|one| one.begin).min();
            let end = worked.iter().map(|one| one.end).max();
            let taken = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
            let nanoseconds = watched.slowed(taken);
            batches = vec![Batch { units: watched.units(), nanoseconds }];
        }
        let calls = counters.iter().map(|one| one.calls.load(Ordering::Relaxed)).sum();
        self.keep(phase, batches, Total { units: watched.units(), calls }, waited(&worked));
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
        if self.request().answering == Answering::Memory {
            return Err(failed("memory is one process's only".into()));
        }
        if self.request().purpose != Purpose::Time {
            // What each does is what one does alone.
            return Ok(());
        }
        let start = now() + LEAD.as_nanos() as u64;
        let requests = self.requests(number, count, start);
        self.clean_caches();
        self.begin_all();
        let all = std::thread::scope(|scope| ended(begun(scope, &requests)))?;
        let batches = merged(&all);
        if batches.iter().all(|batch| batch.units == 0) {
            return Err(failed("they were not at work at the same time: too short".into()));
        }
        self.end_all(vec![(phase, batches)]);
        Ok(())
    }

    /// Does `work` while `count` processes do what [`super::Experiment::beside`] says of the phase
    /// of number `number`, from `start` on, and waits for them. What they have measured is
    /// nobody's.
    ///
    /// # Errors
    /// That of `work`, or of the first process that failed.
    pub(super) fn among<T>(
        &mut self,
        number: usize,
        count: usize,
        start: u64,
        work: impl FnOnce(&mut Self) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let requests = self.requests(number, count, start);
        std::thread::scope(|scope| {
            let waiting = begun(scope, &requests);
            let done = work(self);
            ended(waiting).and(done)
        })
    }

    /// What `count` processes are to do from `start` on, in the phase of number `number`.
    fn requests(&self, number: usize, count: usize, start: u64) -> Vec<Request> {
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
        (0..count).map(request).collect()
    }
}

/// Processes that were started, each with a thread that waits for it.
type Waiting<'s> = Vec<ScopedJoinHandle<'s, crate::Result<Answer>>>;

/// Starts a process for each of `requests`.
fn begun<'s>(scope: &'s Scope<'s, '_>, requests: &'s [Request]) -> Waiting<'s> {
    let run = |request| {
        scope.spawn(move || process::run(Path::new("/proc/self/exe"), request, LIMIT, &|| false))
    };
    requests.iter().map(run).collect()
}

/// What all of them measured, when they have ended.
fn ended(waiting: Waiting<'_>) -> Result<Vec<Measured>, CallError> {
    let answers: Vec<_> = waiting
        .into_iter()
        .map(|thread| match thread.join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        })
        .collect();
    let mut all = Vec::new();
    for answer in answers {
        match answer.map_err(|error| failed(error.to_string()))? {
            Answer::Done { measured } => all.extend(measured),
            Answer::Failed(reason) => return Err(failed(reason)),
        }
    }
    Ok(all)
}

/// The error of processes beside others.
fn failed(reason: String) -> CallError {
    let source = std::io::Error::other(reason);
    CallError { call: "a process beside others", path: None, source }
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
            amount: None,
        }
    }

    /// Between two closings nothing is done; who has ended is not waited for.
    #[test]
    fn threads_stop_while_others_have_the_turn() {
        let gate = Arc::new(Gate::default());
        let counters: Vec<Count> = (0..3).map(|_| Count::new(&gate)).collect();
        let sum = || counters.iter().map(Count::units).sum::<u64>();
        let is_over = AtomicBool::new(false);
        // Told at the end, when nobody waits for anybody.
        let (mut moved, mut stuck) = (0, 0);
        std::thread::scope(|scope| {
            for (number, counter) in counters.iter().enumerate() {
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) && (number > 0 || counter.units() < 9) {
                        counter.did(1);
                    }
                    counter.gate.end();
                });
            }
            for _ in 0..200 {
                gate.close(3);
                let before = sum();
                std::thread::sleep(Duration::from_micros(50));
                moved += u32::from(sum() != before);
                gate.open();
                let begin = Instant::now();
                while sum() == before && begin.elapsed() < Duration::from_secs(10) && stuck == 0 {
                    std::thread::yield_now();
                }
                stuck += u32::from(sum() == before);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!((moved, stuck), (0, 0));
    }

    #[test]
    fn what_many_do_at_once_counts() {
        // The second one begins 5 ms later and ends 5 ms later; each does 1,000 in 10 ms.
        let first = measured(1_000_000, &[(1000, 10_000_000), (1000, 10_000_000)]);
        let second = measured(6_000_000, &[(2000, 20_000_000)]);
        let batches = merged(&[first.clone(), second]);
        let units: u64 = batches.iter().map(|batch| batch.units).sum();
        let nanoseconds: u64 = batches.iter().map(|batch| batch.nanoseconds).sum();
        assert_eq!((units, nanoseconds, batches.len()), (3000, 15_000_000, 15));
        // Who came too late was not there at the same time.
        let late = measured(90_000_000, &[(1000, 10_000_000)]);
        assert_eq!(merged(&[first, late]), [Batch::default()]);
        assert_eq!(merged(&[]), [Batch::default()]);
    }
}
