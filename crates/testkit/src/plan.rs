//! Which images to build from a log.
//!
//! Between two *ordering points* (a mark, a fence that makes something durable, the end of the log)
//! the set of possible images only grows, so the set just before each ordering point contains all
//! earlier ones. If it is small it is explored exhaustively; else samples are taken there and, so
//! that the small sets on the way are not missed, after each store since the last ordering point.
//!
//! Invariant: a plan depends on its arguments alone. No two of its states have the same image and
//! the same marks behind them.

use std::collections::HashSet;

use crate::inflight::{Candidates, InFlight};
use crate::rng::mix;
use crate::{Event, Failure, Junk, Kind, Options, Rng};

/// One image to check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) failure: Failure,
    /// Events before the crash.
    pub(crate) cut: usize,
    /// For each word in flight, in order, which of its values it holds. Empty for a death.
    pub(crate) choice: Box<[u16]>,
    pub(crate) junk: Junk,
}

/// All images to check, by cut.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) states: Vec<State>,
    pub(crate) cuts: usize,
    pub(crate) sampled: usize,
    pub(crate) duplicates: usize,
}

/// What can fail, and how much is to be tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) options: &'a Options,
    /// Whether power failures show on this memory.
    pub(crate) power: bool,
    /// Whether there is a volatile part.
    pub(crate) volatile: bool,
    pub(crate) budget: usize,
    /// Crashes after fewer events are left out.
    pub(crate) first: usize,
    /// Whether the image at the start has been checked already.
    pub(crate) start_known: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    at: usize,
    failure: Failure,
    /// Not an ordering point: only look at what the last store adds.
    passing: bool,
    /// Images wanted.
    demand: usize,
}

/// Passing cuts in one stretch at most; more are thinned out evenly.
const PASSING_MAX: usize = 256;
/// Random images at a passing cut.
const PASSING_SAMPLES: usize = 8;

/// Plans the crashes of `events`, which begin with `start` in flight.
pub(crate) fn plan(start: &InFlight, events: &[Event], scope: Scope<'_>) -> Plan {
    let cuts = cuts(start, events, scope);
    let mut planner =
        Planner { scope, plan: Plan { cuts: cuts.len(), ..Plan::default() }, seen: HashSet::new() };
    let mut tracker = start.clone();
    if scope.start_known {
        let image = in_memory(&tracker);
        for failure in [Failure::Power, Failure::Death] {
            planner.seen.insert(key(image, failure, 0));
        }
    }
    let (mut at, mut marks) = (0, 0);
    let (level, mut carry) = (level(&cuts, scope.budget), 0);
    for cut in &cuts {
        for event in &events[at..cut.at] {
            tracker.apply(event);
            marks += u64::from(matches!(event.kind, Kind::Mark(_)));
        }
        at = cut.at;
        let share = cut.demand.min(level + carry);
        let before = planner.plan.states.len();
        let share = share.min(scope.budget.saturating_sub(before));
        match cut.failure {
            Failure::Death => planner.death(cut.at, &tracker, marks, share),
            Failure::Power => {
                let last = at.checked_sub(1).map(|last| events[last].kind);
                planner.power(*cut, last, &tracker, marks, share);
            }
        }
        carry = (carry + cut.demand.min(level)) - (planner.plan.states.len() - before);
    }
    planner.plan
}

/// The most that each cut can have, so that all together have `budget`; at least 1.
fn level(cuts: &[Cut], budget: usize) -> usize {
    let (mut low, mut high) = (1, cuts.iter().map(|cut| cut.demand).max().unwrap_or(1));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if cuts.iter().map(|cut| cut.demand.min(middle)).sum::<usize>() <= budget {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn cuts(start: &InFlight, events: &[Event], scope: Scope<'_>) -> Vec<Cut> {
    let options = scope.options;
    let mut tracker = start.clone();
    let mut all = Vec::new();
    let mut puts = Vec::new();
    let mut large = false;
    for at in 0..=events.len() {
        let event = events.get(at);
        let orders = event.is_none_or(|event| match event.kind {
            Kind::Mark(_) => true,
            Kind::Fence => tracker.would_settle(event.actor),
            _ => false,
        });
        if orders && scope.power && options.power {
            let failure = Failure::Power;
            let words = tracker.candidates();
            let mut demand = images(&words);
            if demand > options.exhaustive {
                let thin = puts.len().div_ceil(PASSING_MAX).max(1);
                all.extend(puts.iter().step_by(thin).map(|&(at, images)| {
                    let small = images <= options.exhaustive;
                    let demand = if small { images } else { 3 + PASSING_SAMPLES };
                    Cut { at, failure, passing: true, demand }
                }));
                demand = corners(&words, options) + options.samples;
            }
            all.push(Cut { at, failure, passing: false, demand });
            puts.clear();
            large = false;
        }
        let changes = |event: &Event| !matches!(event.kind, Kind::WriteBack { .. } | Kind::Fence);
        if options.death && (at == 0 || changes(&events[at - 1])) {
            all.push(Cut { at, failure: Failure::Death, passing: false, demand: 1 });
        }
        if let Some(event) = event {
            tracker.apply(event);
            if matches!(event.kind, Kind::Put { .. }) && scope.power && options.power {
                // The set grows until the next ordering point, so a large one need not be counted.
                let images = if large { usize::MAX } else { images(&tracker.candidates()) };
                large = images > options.exhaustive;
                puts.push((at + 1, images));
            }
        }
    }
    all.retain(|cut| cut.at >= scope.first);
    all.sort_by_key(|cut| cut.at);
    all
}

/// Images that [`Planner::corners`] tries at most.
fn corners(words: &[Candidates], options: &Options) -> usize {
    let values: usize = words.iter().map(|word| word.values.len()).sum();
    let pairs = if words.len() > options.pair_words { 0 } else { words.len().pow(2) / 2 };
    2 + 2 * values + pairs
}

/// How many images the words in flight can make.
fn images(words: &[Candidates]) -> usize {
    words.iter().fold(1, |product: usize, word| product.saturating_mul(word.values.len()))
}

/// What a word adds to the hash of an image, nothing if it is as at the start.
fn differs(word: u64, base: u64, value: u64) -> u64 {
    if value == base { 0 } else { mix(mix(word ^ 0x5851_F42D_4C95_7F2D) ^ value) }
}

fn in_memory(tracker: &InFlight) -> u64 {
    let persistent = tracker.in_memory().map(|(word, base, value)| differs(word, base, value));
    let volatile = tracker.volatile().map(|(word, value)| differs(word, !value, value));
    persistent.chain(volatile).fold(0, |all, one| all ^ one)
}

fn key(image: u64, failure: Failure, marks: u64) -> u64 {
    mix(image ^ mix(marks * 2 + u64::from(failure == Failure::Death)))
}

struct Planner<'a> {
    scope: Scope<'a>,
    plan: Plan,
    seen: HashSet<u64>,
}

impl Planner<'_> {
    fn death(&mut self, cut: usize, tracker: &InFlight, marks: u64, share: usize) {
        if share == 0 {
            self.plan.sampled += 1;
        } else if self.seen.insert(key(in_memory(tracker), Failure::Death, marks)) {
            let choice = Box::default();
            let state = State { failure: Failure::Death, cut, choice, junk: Junk::Held };
            self.plan.states.push(state);
        } else {
            self.plan.duplicates += 1;
        }
    }

    fn power(
        &mut self,
        cut: Cut,
        last: Option<Kind>,
        tracker: &InFlight,
        marks: u64,
        share: usize,
    ) {
        let words = tracker.candidates();
        let settled = tracker.settled().map(|(word, base, value)| differs(word, base, value));
        let mut point = Point {
            at: cut.at,
            image: settled.fold(0, |all, one| all ^ one),
            marks,
            words: &words,
            end: self.plan.states.len() + share,
        };
        let images = images(&words);
        if images <= self.scope.options.exhaustive && images <= share {
            // Duplicates cost nothing, so all fit.
            for number in 0..images {
                self.push(&point, point.digits(number));
            }
            return;
        }
        self.plan.sampled += usize::from(!cut.passing);
        let mut rng = Rng::stream(self.scope.options.seed, mix(cut.at as u64));
        if cut.passing {
            let word = match last {
                Some(Kind::Put { word, .. }) => words.iter().position(|w| w.word == word),
                _ => None,
            };
            self.push(&point, point.latest());
            if let Some(word) = word {
                self.push(&point, point.with(point.durable(), word, point.newest(word)));
                self.push(&point, point.with(point.latest(), word, 0));
            }
            self.random(&point, &mut rng, PASSING_SAMPLES);
            return;
        }
        self.corners(&point);
        let samples = self.scope.options.samples;
        let whole = images <= self.scope.options.exhaustive;
        point.end = point.end.min(self.plan.states.len() + if whole { share } else { samples });
        self.random(&point, &mut rng, share);
    }

    /// All and none; all but one, one, and two words that reached the medium.
    fn corners(&mut self, point: &Point<'_>) {
        self.push(point, point.latest());
        self.push(point, point.durable());
        let count = point.words.len();
        for word in 0..count {
            for value in 0..point.words[word].values.len() as u16 {
                self.push(point, point.with(point.latest(), word, value));
                self.push(point, point.with(point.durable(), word, value));
            }
        }
        if count > self.scope.options.pair_words {
            return;
        }
        for one in 0..count {
            for two in one + 1..count {
                let first = point.with(point.durable(), one, point.newest(one));
                self.push(point, point.with(first, two, point.newest(two)));
            }
        }
    }

    /// Random images, until `tries` are made or the point has all it may.
    fn random(&mut self, point: &Point<'_>, rng: &mut Rng, tries: usize) {
        for _ in 0..tries {
            if self.plan.states.len() >= point.end {
                return;
            }
            // Few, half or most of the words new.
            let new = 1 + 3 * rng.below(3);
            let choice = (point.words.iter())
                .map(|word| {
                    if rng.chance(new, 8) { 1 + rng.below(word.values.len() as u64 - 1) } else { 0 }
                })
                .map(|value| value as u16)
                .collect();
            self.push(point, choice);
        }
    }

    /// Adds an image, unless it is known or the point has all it may.
    fn push(&mut self, point: &Point<'_>, choice: Box<[u16]>) {
        if self.plan.states.len() >= point.end {
            return;
        }
        let chosen = point.words.iter().zip(&choice);
        let image = chosen.fold(point.image, |all, (word, &value)| {
            all ^ differs(word.word, word.base, word.values[usize::from(value)])
        });
        let key = key(image, Failure::Power, point.marks);
        if !self.seen.insert(key) {
            self.plan.duplicates += 1;
            return;
        }
        let junk = if self.scope.volatile {
            Junk::ALL[(mix(key ^ self.scope.options.seed) % 3) as usize]
        } else {
            Junk::Held
        };
        self.plan.states.push(State { failure: Failure::Power, cut: point.at, choice, junk });
    }
}

/// A cut with what is in flight there.
struct Point<'a> {
    at: usize,
    /// Hash of the words that are certain.
    image: u64,
    marks: u64,
    words: &'a [Candidates],
    /// States that the plan may have after this point.
    end: usize,
}

impl Point<'_> {
    fn latest(&self) -> Box<[u16]> {
        (0..self.words.len()).map(|word| self.words[word].latest as u16).collect()
    }

    fn durable(&self) -> Box<[u16]> {
        vec![0; self.words.len()].into_boxed_slice()
    }

    /// The latest value of a word, or if that is the durable one, another.
    fn newest(&self, word: usize) -> u16 {
        self.words[word].latest.max(1) as u16
    }

    fn with(&self, mut choice: Box<[u16]>, word: usize, value: u16) -> Box<[u16]> {
        choice[word] = value;
        choice
    }

    /// Image number `number` of all.
    fn digits(&self, mut number: usize) -> Box<[u16]> {
        let digit = |word: &Candidates| {
            let digit = number % word.values.len();
            number /= word.values.len();
            digit as u16
        };
        self.words.iter().map(digit).collect()
    }
}
