//! Builds images and has them checked, on one thread.
//!
//! Invariants:
//! - the three memories (one per [`Junk`]) hold, between two states, what is certain at the outer
//!   cut: its durable words, and the one for [`Junk::Held`] also its volatile words;
//! - a check leaves no trace in them: its log and the words of its state are taken back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::inflight::{Candidates, InFlight, Patch};
use crate::plan::{Scope, State, plan};
use crate::recorder::TooManySteps;
use crate::replay::Step;
use crate::rng::mix;
use crate::summary::Summary;
use crate::{
    CrashPoint, Event, Failure, Image, Junk, Kind, Mark, Options, Recording, RecordingMemory, Rng,
    replay,
};

/// What a test does with an image: recover, look, and return a digest of what it found.
pub(crate) trait Check:
    Fn(&RecordingMemory, &CrashPoint<'_>) -> Result<u64, String>
{
}
impl<C: Fn(&RecordingMemory, &CrashPoint<'_>) -> Result<u64, String>> Check for C {}

/// The images that the memories of all workers are based on, by [`Junk`].
pub(crate) fn bases(recording: &Recording, seed: u64) -> [Arc<Image>; 3] {
    let (zeros, random) =
        (Image::over(Arc::clone(&recording.base)), Image::over(Arc::clone(&recording.base)));
    // Tags of earlier attach generations only: one of the recording can't have been left before
    // the recording used it. What it left itself is [`Junk::Held`]. A process that dies early may
    // have begun one more generation without a store of its own.
    let tags = recording.events.iter().filter_map(|event| match event.kind {
        Kind::Store { new, .. } => Some(new >> 32),
        _ => None,
    });
    let first = tags.filter(|tag| *tag != 0).min().unwrap_or(0);
    let mut rng = Rng::stream(seed, 0x6A75_6E6B);
    for word in recording.volatile.start / 8..recording.volatile.end / 8 {
        if zeros.get(word) != 0 {
            zeros.set(word, 0);
        }
        let mut value = rng.word();
        if rng.chance(1, 2) {
            let tag = first.saturating_sub(2 + rng.below(3));
            value = tag << 32 | value & 0xFFFF_FFFF;
        }
        random.set(word, value);
    }
    [Arc::clone(&recording.base), Arc::new(zeros), Arc::new(random)]
}

/// A place in a log: what is in flight there.
#[derive(Clone, Debug, Default)]
struct Place {
    at: usize,
    tracker: InFlight,
    words: Vec<Candidates>,
}

impl Place {
    fn at_start(tracker: InFlight) -> Self {
        let words = tracker.candidates();
        Place { at: 0, tracker, words }
    }

    fn advance(&mut self, events: &[Event], to: usize) {
        if self.at < to {
            events[self.at..to].iter().for_each(|event| self.tracker.apply(event));
            self.at = to;
            self.words = self.tracker.candidates();
        }
    }
}

/// What is certain where a log begins, beside what the memories hold.
#[derive(Clone, Debug, Default)]
struct Ground {
    /// The memory whose volatile part is "held".
    memory: usize,
    persistent: Vec<Patch>,
    volatile: Vec<Patch>,
}

/// How a state came about, crash by crash.
struct Trail<'a> {
    outer: Option<&'a Trail<'a>>,
    state: &'a State,
    words: &'a [Candidates],
}

impl Trail<'_> {
    fn steps(&self) -> Vec<Step> {
        let mut steps = self.outer.map_or_else(Vec::new, Trail::steps);
        steps.push(Step::new(self.state, self.words));
        steps
    }
}

/// One thread's part of an exploration.
pub(crate) struct Worker<'a, C> {
    recording: &'a Recording,
    options: &'a Options,
    check: &'a C,
    memories: [RecordingMemory; 3],
    place: Place,
    marks: Vec<(u32, Mark)>,
    /// Crashes are put into one of so many recoveries.
    stride: u64,
    /// What this worker found; failures come with the number of their outer state.
    pub(crate) found: Summary,
    pub(crate) failures: Vec<(usize, String)>,
}

impl<'a, C: Check> Worker<'a, C> {
    /// A worker on a plan of `states` states.
    pub(crate) fn new(
        recording: &'a Recording,
        options: &'a Options,
        bases: &[Arc<Image>; 3],
        check: &'a C,
        states: usize,
    ) -> Self {
        let wanted = states.saturating_mul(options.inner_each);
        let stride = wanted.div_ceil(options.inner_states.max(1)).max(1) as u64;
        let memory = |base: &Arc<Image>| {
            let volatile = recording.volatile.clone();
            RecordingMemory::new(Arc::clone(base), volatile, recording.needs_write_back)
        };
        Worker {
            recording,
            options,
            check,
            memories: [memory(&bases[0]), memory(&bases[1]), memory(&bases[2])],
            place: Place::default(),
            marks: Vec::new(),
            stride,
            found: Summary::default(),
            failures: Vec::new(),
        }
    }

    /// Checks state number `number` of the plan, and the crashes during its recovery. States must
    /// come in the order of their cuts.
    pub(crate) fn visit(&mut self, number: usize, state: &State) {
        self.advance(state.cut);
        let place = std::mem::take(&mut self.place);
        let trail = Trail { outer: None, state, words: &place.words };
        self.found.states += 1;
        self.explore(number, &Ground::default(), &place, &trail, 0);
        self.place = place;
    }

    /// Checks the one state that `steps` lead to.
    pub(crate) fn replay(&mut self, steps: &[Step]) -> Result<u64, String> {
        let mut ground = Ground::default();
        let mut events = Vec::new();
        let mut place = Place::default();
        for (depth, step) in steps.iter().enumerate() {
            let log = if depth == 0 { &self.recording.events } else { &events };
            if step.cut > log.len() {
                return Err(format!("no event {} at depth {depth}", step.cut));
            }
            if depth == 0 {
                self.advance(step.cut);
                place = std::mem::take(&mut self.place);
            } else {
                place.advance(log, step.cut);
            }
            let state = step.state(&place.words)?;
            let (result, log) = self.run(&ground, &place, &state, steps[0].cut, depth);
            if depth + 1 == steps.len() {
                return result;
            }
            events = log;
            (ground, place) = next(&ground, &place, &state);
        }
        Err(String::from("nothing to replay"))
    }

    /// Moves the outer place on; what became certain goes into the memories for good.
    fn advance(&mut self, to: usize) {
        let from = self.place.at;
        if from >= to {
            return;
        }
        let events = &self.recording.events;
        for event in &events[from..to] {
            if let Kind::Mark(mark) = event.kind {
                self.marks.push((event.actor, mark));
            }
        }
        self.place.advance(events, to);
        let mut undo = Vec::new();
        let settled = self.place.tracker.drain_settled();
        for memory in &self.memories {
            memory.patch(&settled, &mut undo);
        }
        let volatile = self.place.tracker.drain_volatile();
        self.memories[Junk::Held.index()].patch(&volatile, &mut undo);
    }

    fn explore(
        &mut self,
        number: usize,
        ground: &Ground,
        place: &Place,
        trail: &Trail<'_>,
        depth: usize,
    ) {
        let outer_cut = self.place_of(trail);
        let (result, events) = self.run(ground, place, trail.state, outer_cut, depth);
        match result {
            Ok(digest) => {
                self.found.outcomes.insert(digest);
            }
            Err(why) => {
                self.found.failed += 1;
                if self.failures.len() < self.options.described {
                    let name = replay::format(self.options.seed, &trail.steps());
                    self.failures.push((number, format!("{name}: {why}")));
                }
                return;
            }
        }
        let skipped =
            depth == 0 && !mix(self.options.seed ^ number as u64).is_multiple_of(self.stride);
        if depth >= self.options.depth || events.is_empty() || skipped {
            return;
        }
        let (ground, mut place) = next(ground, place, trail.state);
        let scope = Scope {
            options: self.options,
            first: 0,
            power: self.recording.needs_write_back,
            volatile: !self.recording.volatile.is_empty(),
            budget: (self.options.inner_each >> (2 * depth)).max(1),
            start_known: true,
        };
        let plan = plan(&place.tracker, &events, scope);
        self.found.duplicates += plan.duplicates;
        for state in &plan.states {
            place.advance(&events, state.cut);
            let trail = Trail { outer: Some(trail), state, words: &place.words };
            self.found.inner_states += 1;
            self.explore(number, &ground, &place, &trail, depth + 1);
        }
    }

    fn place_of(&self, trail: &Trail<'_>) -> usize {
        trail.outer.map_or(trail.state.cut, |outer| self.place_of(outer))
    }

    /// Builds the image of `state`, has it checked, and takes all back. Returns what the check said
    /// and its events up to the end of recovery.
    fn run(
        &self,
        ground: &Ground,
        place: &Place,
        state: &State,
        outer_cut: usize,
        depth: usize,
    ) -> (Result<u64, String>, Vec<Event>) {
        let memory = match state.junk {
            Junk::Held => &self.memories[ground.memory],
            junk => &self.memories[junk.index()],
        };
        let mut undo = Vec::new();
        memory.patch(&ground.persistent, &mut undo);
        memory.patch(&persistent(place, state), &mut undo);
        if state.junk == Junk::Held {
            memory.patch(&ground.volatile, &mut undo);
            memory.patch(&place.tracker.volatile().collect::<Vec<_>>(), &mut undo);
        }
        let (failure, marks) = (state.failure, self.marks.as_slice());
        let point = CrashPoint { failure, event: outer_cut, depth, marks };
        memory.begin_check(self.options.steps);
        let checked = catch_unwind(AssertUnwindSafe(|| (self.check)(memory, &point)));
        let mut result = checked.unwrap_or_else(|payload| {
            Err(if payload.is::<TooManySteps>() {
                format!("still running after {} loads and stores", self.options.steps)
            } else {
                panic_message(payload.as_ref())
            })
        });
        if let (Ok(_), Some(violation)) = (&result, memory.violation()) {
            result = Err(violation);
        }
        let mut events = Vec::new();
        memory.rewind(&mut events);
        memory.unpatch(&mut undo);
        let recovered = |event: &Event| event.kind == Kind::Mark(Mark::Recovered);
        events.truncate(events.iter().position(recovered).unwrap_or(events.len()));
        if !events.iter().any(|e| matches!(e.kind, Kind::Put { .. } | Kind::Store { .. })) {
            events.clear();
        }
        (result, events)
    }
}

/// The persistent words of `state`.
fn persistent(place: &Place, state: &State) -> Vec<Patch> {
    if state.failure == Failure::Death {
        return place.tracker.in_memory().map(|(word, _, value)| (word, value)).collect();
    }
    let chosen = place.words.iter().zip(&state.choice);
    let chosen = chosen.map(|(word, &value)| (word.word, word.values[usize::from(value)]));
    let settled = place.tracker.settled().map(|(word, _, value)| (word, value));
    settled.chain(chosen).collect()
}

/// The ground and the place where the log of the recovery from `state` begins. After a death, the
/// words in flight still are.
fn next(ground: &Ground, place: &Place, state: &State) -> (Ground, Place) {
    let mut ground = ground.clone();
    if state.failure == Failure::Death {
        let mut tracker = place.tracker.clone();
        tracker.bury();
        ground.persistent.extend(tracker.drain_settled());
        ground.volatile.extend(tracker.drain_volatile());
        return (ground, Place::at_start(tracker));
    }
    ground.persistent.extend(persistent(place, state));
    if state.junk == Junk::Held {
        ground.volatile.extend(place.tracker.volatile());
    } else {
        ground.memory = state.junk.index();
        ground.volatile.clear();
    }
    (ground, Place::default())
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.as_deref().unwrap_or("with something that is no text"))
}
