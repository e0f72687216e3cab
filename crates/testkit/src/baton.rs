//! The baton: of several threads, only the one that holds it runs.
//!
//! Invariants:
//! - an actor that is not `current` does nothing but wait for its turn, unless the run was halted;
//! - who goes on is decided by the [`Chooser`] alone, from what is the same in each run of the same
//!   choices, so a run can be repeated;
//! - a choice is only counted where there are two or more to choose from; choice 0 is to go on with
//!   the same actor if it can.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

use conquest_pm::memory::Wake;

use crate::clock::nanoseconds;
use crate::{Clock, Rng, lock};

/// What an actor unwinds with when its run was halted.
pub(crate) struct Halted;

/// Why a run was halted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Halt {
    /// Everybody waits, nobody with a time-out.
    Deadlock,
    /// Too many steps.
    Steps,
}

/// Decides who goes on.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    /// Goes on with the same actor in `stay` of 16 cases, else anybody.
    Random { rng: Rng, stay: u64 },
    /// These choices, then always 0.
    Path(Vec<u8>),
}

/// A choice that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// Which.
    pub(crate) chosen: u8,
    /// Of how many.
    pub(crate) options: u8,
    /// Whether the actor that ran could have gone on: another choice is a preemption.
    pub(crate) preempts: bool,
}

/// The rules of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) steps: u64,
    pub(crate) spins: u32,
    pub(crate) persistent_loads: bool,
    pub(crate) wake_on_change: bool,
    /// Virtual time that each step takes.
    pub(crate) step_time: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    /// Can run; if it has waited, how that ended.
    Ready(Wake),
    Waiting {
        word: u64,
        expected: u32,
        deadline: Option<u64>,
        since: u64,
    },
    Done,
}

#[derive(Debug)]
struct Inner {
    status: Vec<Status>,
    threads: Vec<Option<Thread>>,
    chooser: Chooser,
    choices: Vec<Choice>,
    steps: u64,
    timeouts: u64,
    halt: Option<Halt>,
}

/// Passed among the actors of one run.
#[derive(Debug)]
pub(crate) struct Baton {
    inner: Mutex<Inner>,
    current: AtomicUsize,
    halted: AtomicBool,
    /// All have left; who uses the memory now does so freely.
    over: AtomicBool,
    /// Accesses in a row without a store.
    idle: AtomicU32,
    actors: usize,
    rules: Rules,
    clock: Clock,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) choices: Vec<Choice>,
    pub(crate) steps: u64,
    pub(crate) timeouts: u64,
    pub(crate) halt: Option<Halt>,
}

const NOBODY: usize = usize::MAX;
/// A moment that never comes: 292 years in nanoseconds.
const FOREVER: u64 = 1 << 63;

impl Baton {
    pub(crate) fn new(actors: usize, rules: Rules, chooser: Chooser, clock: Clock) -> Self {
        Baton {
            inner: Mutex::new(Inner {
                status: vec![Status::Ready(Wake::Woken); actors],
                threads: vec![None; actors],
                chooser,
                choices: Vec::new(),
                steps: 0,
                timeouts: 0,
                halt: None,
            }),
            current: AtomicUsize::new(NOBODY),
            halted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            actors,
            rules,
            clock,
        }
    }

    /// Whether `actor` has to take turns.
    pub(crate) fn knows(&self, actor: usize) -> bool {
        actor < self.actors && !self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn persistent_loads(&self) -> bool {
        self.rules.persistent_loads
    }

    /// The calling thread is `me`; returns when it is its turn. The last to enter starts the run.
    pub(crate) fn enter(&self, me: usize) {
        let mut inner = lock(&self.inner);
        inner.threads[me] = Some(std::thread::current());
        if inner.threads.iter().all(Option::is_some) {
            self.hand_on(&mut inner, None, false);
        }
        drop(inner);
        self.await_turn(me);
    }

    /// `me` is finished, in whatever way.
    pub(crate) fn leave(&self, me: usize) {
        let mut inner = lock(&self.inner);
        inner.status[me] = Status::Done;
        if inner.halt.is_none() {
            self.hand_on(&mut inner, None, false);
        }
    }

    /// Before an access: others may go first, and must if `me` has long stored nothing.
    pub(crate) fn pass(&self, me: usize) {
        let spinning = self.idle.fetch_add(1, Ordering::Relaxed) >= self.rules.spins;
        let mut inner = lock(&self.inner);
        inner.steps += 1;
        if inner.steps > self.rules.steps {
            self.halt(&mut inner, Halt::Steps);
        }
        self.pass_time(&mut inner);
        if inner.halt.is_none() {
            self.hand_on(&mut inner, Some(me), spinning);
        }
        drop(inner);
        self.await_turn(me);
    }

    /// A step takes its time: those that have waited enough can go on.
    fn pass_time(&self, inner: &mut Inner) {
        if self.rules.step_time.is_zero() {
            return;
        }
        self.clock.advance(self.rules.step_time);
        let now = self.clock.now();
        for status in &mut inner.status {
            if matches!(*status, Status::Waiting { deadline: Some(at), .. } if at <= now) {
                *status = Status::Ready(Wake::TimedOut);
            }
        }
    }

    /// A word was stored.
    pub(crate) fn stored(&self, word: u64, low: u32) {
        self.idle.store(0, Ordering::Relaxed);
        if self.rules.wake_on_change {
            self.rouse(word, u32::MAX, Some(low));
        }
    }

    /// Up to `count` of those that wait on `word` can go on, the longest waiting first.
    pub(crate) fn wake(&self, word: u64, count: u32) {
        self.rouse(word, count, None);
    }

    fn rouse(&self, word: u64, count: u32, unless: Option<u32>) {
        let mut inner = lock(&self.inner);
        for _ in 0..count {
            let longest = inner
                .status
                .iter_mut()
                .filter_map(|status| match *status {
                    Status::Waiting { word: at, expected, since, .. }
                        if at == word && unless != Some(expected) =>
                    {
                        Some((since, status))
                    }
                    _ => None,
                })
                .min_by_key(|&(since, _)| since);
            let Some((_, status)) = longest else {
                return;
            };
            *status = Status::Ready(Wake::Woken);
        }
    }

    /// Sleeps on `word`, unless it `differs` already.
    pub(crate) fn wait(
        &self,
        me: usize,
        word: u64,
        expected: u32,
        timeout: Duration,
        differs: impl Fn() -> bool,
    ) -> Wake {
        self.pass(me);
        if differs() || self.halted.load(Ordering::SeqCst) {
            return Wake::Woken;
        }
        let mut inner = lock(&self.inner);
        let deadline = self.clock.now().saturating_add(nanoseconds(timeout));
        let deadline = Some(deadline).filter(|&deadline| deadline < FOREVER);
        inner.status[me] = Status::Waiting { word, expected, deadline, since: inner.steps };
        self.hand_on(&mut inner, None, false);
        drop(inner);
        self.await_turn(me);
        match lock(&self.inner).status[me] {
            Status::Ready(wake) => wake,
            Status::Waiting { .. } | Status::Done => Wake::TimedOut,
        }
    }

    /// What came of the run, once all have left: it is over.
    pub(crate) fn outcome(&self) -> Outcome {
        self.over.store(true, Ordering::SeqCst);
        let mut inner = lock(&self.inner);
        Outcome {
            choices: std::mem::take(&mut inner.choices),
            steps: inner.steps,
            timeouts: inner.timeouts,
            halt: inner.halt,
        }
    }

    /// Gives the baton to whoever goes on; `me` held it and may keep it, but not if it is
    /// `spinning` and anybody else can run.
    fn hand_on(&self, inner: &mut Inner, me: Option<usize>, spinning: bool) {
        let before = self.current.load(Ordering::SeqCst);
        let count = self.actors;
        let first = if before == NOBODY { 0 } else { before };
        let ready = |at: &usize| matches!(inner.status[*at], Status::Ready(_));
        let mut options: Vec<usize> =
            (first..first + count).map(|at| at % count).filter(ready).collect();
        let mut preempts = me.is_some();
        if spinning && options.len() > 1 {
            options.remove(0);
            preempts = false;
            self.idle.store(0, Ordering::Relaxed);
        }
        let next = match options.as_slice() {
            [] => match self.expire(inner) {
                Some(next) => next,
                None => return,
            },
            [only] => *only,
            several => {
                let chosen = inner.chooser.choose(inner.choices.len(), several.len(), me.is_some());
                inner.choices.push(Choice {
                    chosen: chosen as u8,
                    options: several.len() as u8,
                    preempts,
                });
                several[chosen]
            }
        };
        if next != before {
            self.idle.store(0, Ordering::Relaxed);
            self.current.store(next, Ordering::SeqCst);
        }
        if Some(next) != me
            && let Some(thread) = &inner.threads[next]
        {
            thread.unpark();
        }
    }

    /// Nobody can run: lets time pass until the first of those that wait has waited enough.
    fn expire(&self, inner: &mut Inner) -> Option<usize> {
        let deadline = |status: &Status| match *status {
            Status::Waiting { deadline, .. } => deadline,
            _ => None,
        };
        let first = (inner.status.iter().enumerate())
            .filter_map(|(at, status)| Some((deadline(status)?, at)))
            .min();
        if let Some((moment, at)) = first {
            self.clock.advance_to(moment);
            inner.timeouts += 1;
            inner.status[at] = Status::Ready(Wake::TimedOut);
            return Some(at);
        }
        if inner.status.iter().any(|status| *status != Status::Done) {
            self.halt(inner, Halt::Deadlock);
        }
        None
    }

    fn halt(&self, inner: &mut Inner, why: Halt) {
        inner.halt.get_or_insert(why);
        self.halted.store(true, Ordering::SeqCst);
        inner.threads.iter().flatten().for_each(Thread::unpark);
    }

    fn await_turn(&self, me: usize) {
        loop {
            if self.halted.load(Ordering::SeqCst) {
                if !std::thread::panicking() {
                    resume_unwind(Box::new(Halted));
                }
                return;
            }
            if self.current.load(Ordering::SeqCst) == me {
                return;
            }
            std::thread::park();
        }
    }
}

impl Chooser {
    /// One of `options`, for choice number `number`; the first is to stay if `can_stay`.
    fn choose(&mut self, number: usize, options: usize, can_stay: bool) -> usize {
        match self {
            Chooser::Random { rng, stay } => {
                if can_stay && rng.chance(*stay, 16) {
                    0
                } else {
                    rng.below(options as u64) as usize
                }
            }
            Chooser::Path(path) => {
                let chosen = path.get(number).copied().unwrap_or(0);
                usize::from(chosen).min(options - 1)
            }
        }
    }
}
