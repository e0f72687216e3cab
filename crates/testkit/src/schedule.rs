//! Deterministic interleavings of several actors on one memory.
//!
//! Each actor is a real thread, but only one runs at a time; at every store, exchange, write-back,
//! fence, wait, wake and volatile load (and at persistent loads, if asked for) the schedule decides
//! who goes on. So a run is a function of its choices, and can be repeated.
//!
//! A wait ends by a wake, or by a time-out if nobody else can run: virtual time passes only then,
//! unless each step takes some.
//! As with a futex, a sleeper is not woken by a change of the word alone, so that forgotten wakes
//! are found: as a deadlock, or as time-outs in the [`Schedules`]. If nobody can run and nobody's
//! wait has a time-out (one of centuries, such as [`std::time::Duration::MAX`], is none), the run
//! fails as a deadlock.
//!
//! An actor that loads again and again without a store has to let others go on after some time, so
//! waiting in a loop is allowed.

use core::fmt;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::baton::{Baton, Choice, Chooser, Halt, Halted, Outcome, Rules};
use crate::weak::Weak;
use crate::worker::panic_message;
use crate::{Actor, Died, RecordingMemory, Rng, become_actor};

/// Which schedules to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Search {
    /// Runs chosen at random: run `n` follows from the seed and `n`.
    Random {
        /// The seed.
        seed: u64,
        /// The first run.
        first: u64,
        /// How many.
        runs: u64,
    },
    /// All runs with up to so many preemptions, that is, changes to another actor where the one
    /// that ran could have gone on; depth first.
    Exhaustive {
        /// Preemptions in one run.
        preemptions: u32,
        /// Runs at most.
        runs: u64,
    },
    /// The one run of these choices.
    Path(Vec<u8>),
}

/// The purpose of the random numbers that choose stale values.
const STALE: u64 = 0x57A1E;

/// How to run schedules.
#[derive(Clone, Debug)]
pub struct ScheduleOptions {
    /// Actors, from 0; the memory's other actors are not scheduled.
    pub actors: u32,
    /// Which schedules.
    pub search: Search,
    /// Steps of one run at most; more is a failure.
    pub steps: u64,
    /// Steps of one actor in a row without a store, after which another one goes on.
    pub spins: u32,
    /// Whether others can go first at persistent loads too.
    pub persistent_loads: bool,
    /// Whether a change of the word ends a wait, unlike with a real futex.
    pub wake_on_change: bool,
    /// Virtual time that each step takes. If it is zero, time passes only when nobody can run.
    pub step_time: Duration,
    /// Whether loads may return older values, where the orderings of C11 allow it; at most eight
    /// actors then.
    pub weak_memory: bool,
    /// Decides which older values these are, together with the run's own seed, if it has one.
    pub stale_seed: u64,
    /// Failures to describe; all are counted.
    pub described: usize,
}

impl Default for ScheduleOptions {
    fn default() -> Self {
        ScheduleOptions {
            actors: 2,
            search: Search::Random { seed: 1, first: 0, runs: 1000 },
            steps: 100_000,
            spins: 64,
            persistent_loads: false,
            wake_on_change: false,
            step_time: Duration::ZERO,
            weak_memory: false,
            stale_seed: 0,
            described: 10,
        }
    }
}

/// What came of many runs.
#[derive(Clone, Debug, Default)]
pub struct Schedules {
    /// Runs.
    pub runs: u64,
    /// Digests that the verdict returned.
    pub outcomes: HashSet<u64>,
    /// Runs that failed.
    pub failed: u64,
    /// The first failures, each with its replay string in front.
    pub failures: Vec<String>,
    /// Steps of all runs.
    pub steps: u64,
    /// Waits that ended by a time-out, because nobody else could run.
    pub timeouts: u64,
    /// Whether these were all the runs there are within the bound.
    pub complete: bool,
    /// Time taken.
    pub elapsed: Duration,
}

impl fmt::Display for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "FAILED {failure}")?;
        }
        writeln!(
            f,
            "{} schedules{}, {} steps, {} time-outs, {} distinct outcomes, {:.2} s",
            self.runs,
            if self.complete { " (all)" } else { "" },
            self.steps,
            self.timeouts,
            self.outcomes.len(),
            self.elapsed.as_secs_f64(),
        )?;
        write!(f, "{} passed, {} failed", self.runs - self.failed, self.failed)
    }
}

/// The search that repeats the run of a failure, given the failure or what stands before its colon
/// and blank; none if that is no replay string.
#[must_use]
pub fn parse(name: &str) -> Option<Search> {
    let name = name.split(": ").next()?;
    if let Some(path) = name.strip_prefix("schedule:path=") {
        let digit = |c: char| c.to_digit(36).map(|digit| digit as u8);
        return path.chars().map(digit).collect::<Option<_>>().map(Search::Path);
    }
    let (seed, first) = name.strip_prefix("schedule:seed=0x")?.split_once(",run=")?;
    let seed = u64::from_str_radix(seed, 16).ok()?;
    Some(Search::Random { seed, first: first.parse().ok()?, runs: 1 })
}

struct Job<S> {
    baton: Arc<Baton>,
    memory: RecordingMemory,
    state: Arc<S>,
}

/// Runs schedules.
///
/// For each, `setup` makes a fresh memory and what else the actors share; `body` is what each actor
/// does; `verdict` looks at the result, of runs whose actors all succeeded, and returns a digest of
/// it. A panic is a failure, but an actor may unwind with [`Died`]: it is dead, the others go on.
pub fn run<S, B, V>(
    options: &ScheduleOptions,
    mut setup: impl FnMut() -> (RecordingMemory, S),
    body: B,
    mut verdict: V,
) -> Schedules
where
    S: Send + Sync,
    B: Fn(&S, u32, &Actor) -> Result<(), String> + Sync,
    V: FnMut(&S, &RecordingMemory) -> Result<u64, String>,
{
    let begin = Instant::now();
    let mut found = Schedules::default();
    let mut search = Progress::new(&options.search);
    let (result_to, results) = channel();
    std::thread::scope(|scope| {
        let threads: Vec<Sender<Job<S>>> = (0..options.actors)
            .map(|actor| {
                let (jobs_to, jobs) = channel();
                let (result_to, body) = (result_to.clone(), &body);
                scope.spawn(move || act(actor, &jobs, &result_to, body));
                jobs_to
            })
            .collect();
        while let Some((chooser, name)) = search.next_run() {
            let (memory, state) = setup();
            if options.weak_memory {
                memory.weaken(Weak::new(search.stream(STALE ^ options.stale_seed)));
            }
            let rules = Rules {
                steps: options.steps,
                spins: options.spins,
                persistent_loads: options.persistent_loads,
                wake_on_change: options.wake_on_change,
                step_time: options.step_time,
            };
            let actors = options.actors as usize;
            let baton = Arc::new(Baton::new(actors, rules, chooser, memory.clock()));
            memory.schedule(Arc::clone(&baton));
            let state = Arc::new(state);
            for thread in &threads {
                let (baton, state) = (Arc::clone(&baton), Arc::clone(&state));
                // A thread ends only after this loop.
                let _ = thread.send(Job { baton, memory: memory.clone(), state });
            }
            let said: Result<(), String> = results.iter().take(actors).fold(Ok(()), Result::and);
            let outcome = baton.outcome();
            found.runs += 1;
            found.steps += outcome.steps;
            found.timeouts += outcome.timeouts;
            let result = judge(&outcome, said, || verdict(&state, &memory));
            match result {
                Ok(digest) => {
                    found.outcomes.insert(digest);
                }
                Err(why) => {
                    found.failed += 1;
                    if found.failures.len() < options.described {
                        let name = name.unwrap_or_else(|| path_name(&outcome.choices));
                        found.failures.push(format!("{name}: {why}"));
                    }
                }
            }
            search.ran(outcome.choices);
        }
    });
    found.complete = search.complete;
    found.elapsed = begin.elapsed();
    found
}

/// One actor's thread: does its part in run after run.
fn act<S>(
    actor: u32,
    jobs: &Receiver<Job<S>>,
    result_to: &Sender<Result<(), String>>,
    body: &impl Fn(&S, u32, &Actor) -> Result<(), String>,
) {
    become_actor(actor);
    for Job { baton, memory, state } in jobs {
        let handle = memory.actor(actor);
        let done = catch_unwind(AssertUnwindSafe(|| {
            baton.enter(actor as usize);
            body(&state, actor, &handle)
        }));
        drop((handle, memory, state));
        baton.leave(actor as usize);
        let result = done.unwrap_or_else(|payload| {
            // A halted run has its own message.
            if payload.is::<Halted>() || payload.is::<Died>() {
                Ok(())
            } else {
                Err(panic_message(payload.as_ref()))
            }
        });
        let result = result.map_err(|why| format!("actor {actor}: {why}"));
        if result_to.send(result).is_err() {
            return;
        }
    }
}

fn judge(
    outcome: &Outcome,
    said: Result<(), String>,
    verdict: impl FnOnce() -> Result<u64, String>,
) -> Result<u64, String> {
    match outcome.halt {
        Some(Halt::Deadlock) => Err(String::from("deadlock: everybody waits, with no time-out")),
        Some(Halt::Steps) => Err(format!("still running after {} steps", outcome.steps)),
        None => {
            said?;
            catch_unwind(AssertUnwindSafe(verdict))
                .unwrap_or_else(|payload| Err(panic_message(payload.as_ref())))
        }
    }
}

fn path_name(choices: &[Choice]) -> String {
    let digit = |choice: &Choice| char::from_digit(u32::from(choice.chosen), 36).unwrap_or('0');
    let path: String = choices.iter().map(digit).collect();
    format!("schedule:path={}", path.trim_end_matches('0'))
}

/// How far a search has come.
struct Progress<'a> {
    search: &'a Search,
    runs: u64,
    /// Of the next run; none if there is none.
    path: Option<Vec<u8>>,
    complete: bool,
}

impl<'a> Progress<'a> {
    fn new(search: &'a Search) -> Self {
        let path = match search {
            Search::Path(path) => path.clone(),
            Search::Random { .. } | Search::Exhaustive { .. } => Vec::new(),
        };
        Progress { search, runs: 0, path: Some(path), complete: false }
    }

    /// The next run, with its name if it has one before it has run.
    fn next_run(&mut self) -> Option<(Chooser, Option<String>)> {
        match *self.search {
            Search::Random { seed, first, runs } => {
                let run = first + self.runs;
                if self.runs == runs {
                    return None;
                }
                let mut rng = Rng::stream(seed, run);
                let stay = [0, 8, 12, 15][rng.below(4) as usize];
                let name = format!("schedule:seed={seed:#x},run={run}");
                Some((Chooser::Random { rng, stay }, Some(name)))
            }
            Search::Exhaustive { runs, .. } if self.runs == runs => None,
            Search::Exhaustive { .. } | Search::Path(_) => {
                Some((Chooser::Path(self.path.take()?), None))
            }
        }
    }

    /// Random numbers of the run for purpose `purpose`.
    fn stream(&self, purpose: u64) -> Rng {
        match *self.search {
            Search::Random { seed, first, .. } => Rng::stream(seed ^ purpose, first + self.runs),
            Search::Exhaustive { .. } | Search::Path(_) => Rng::new(purpose),
        }
    }

    /// The run made these choices.
    fn ran(&mut self, choices: Vec<Choice>) {
        self.runs += 1;
        let Search::Exhaustive { preemptions, .. } = *self.search else {
            return;
        };
        let preempts = |choice: &Choice| choice.preempts && choice.chosen > 0;
        let mut spent = choices.iter().filter(|choice| preempts(choice)).count() as u32;
        for at in (0..choices.len()).rev() {
            let choice = choices[at];
            spent -= u32::from(preempts(&choice));
            let price = u32::from(choice.preempts);
            if choice.chosen + 1 < choice.options && spent + price <= preemptions {
                let mut path: Vec<u8> = choices[..at].iter().map(|c| c.chosen).collect();
                path.push(choice.chosen + 1);
                self.path = Some(path);
                return;
            }
        }
        self.complete = true;
    }
}
