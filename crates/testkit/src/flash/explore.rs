//! Goes through the crashes of volumes.
//!
//! A scenario is a recorded run. At each point of its log at which something changes, power cuts
//! leave a few media; each is opened, judged, and some are used again. Some go on: what the power
//! cut left is what another run begins with, recovery included, and its crashes are gone through in
//! the same way.

use core::fmt;
use std::collections::HashSet;
use std::time::Duration;

use super::crash::{Choice, crash};
use super::history::{State, digest, read};
use super::medium::Medium;
use super::phases::{Phases, Watch};
use super::recorder::{Event, Mark, Recorder, Sweep};
use super::scenario::{Recording, Setup, open, record, use_again};
use crate::Rng;
use crate::rng::mix;

/// A power cut: the place in the log, and which of the media that it may leave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cut {
    /// Events of the log before it.
    pub at: usize,
    /// Which medium.
    pub variant: u32,
}

/// Power cuts of a scenario, each in the run that follows the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Of which scenario.
    pub seed: u64,
    /// The cuts.
    pub cuts: Vec<Cut>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        for (index, cut) in self.cuts.iter().enumerate() {
            let sign = if index == 0 { ':' } else { '/' };
            write!(f, "{sign}{}.{}", cut.at, cut.variant)?;
        }
        Ok(())
    }
}

impl Way {
    /// The way that `text` names; none if it names none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Way> {
        let (seed, rest) = text.split_once(':').unwrap_or((text, ""));
        let cut = |text: &str| {
            let (at, variant) = text.split_once('.')?;
            Some(Cut { at: at.parse().ok()?, variant: variant.parse().ok()? })
        };
        let parts = rest.split('/').filter(|part| !part.is_empty());
        Some(Way { seed: seed.parse().ok()?, cuts: parts.map(cut).collect::<Option<_>>()? })
    }

    pub(crate) fn then(&self, cut: Cut) -> Way {
        let mut cuts = self.cuts.clone();
        cuts.push(cut);
        Way { seed: self.seed, cuts }
    }

    /// What is drawn for this way follows from this.
    pub(crate) fn seed(&self) -> u64 {
        let step = |seed, cut: &Cut| mix(mix(seed ^ cut.at as u64) ^ u64::from(cut.variant));
        self.cuts.iter().fold(mix(self.seed), step)
    }
}

/// What was gone through.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Scenarios, and runs that went on from what a crash had left.
    pub scenarios: usize,
    /// Of those, the latter.
    pub continued: usize,
    /// Points of logs.
    pub cuts: usize,
    /// Of those, the ones at which a write was durable by itself.
    pub durable: usize,
    /// Media that were opened.
    pub states: usize,
    /// Of those, the ones that were written to, and opened once more.
    pub used: usize,
    /// What they held.
    pub outcomes: HashSet<u64>,
    /// Cuts while segments were cleaned, begun anew, while a checkpoint was written, while a volume
    /// was opened.
    pub inside: [usize; 4],
    /// What went wrong, with the way to it.
    pub failures: Vec<String>,
    /// Failed states.
    pub failed: usize,
    /// States until the first one of them, it included.
    pub first_failed: Option<usize>,
    /// Time taken.
    pub elapsed: Duration,
}

/// What was being done, in the order of [`Tally::inside`].
pub const INSIDE: [&str; 4] = ["cleaning", "reuse", "checkpoints", "recovery"];

impl Tally {
    fn enter(&mut self, phases: Phases) {
        let Phases { cleaning, reuse, checkpoint, recovery } = phases;
        self.cuts += 1;
        for (count, is_in) in self.inside.iter_mut().zip([cleaning, reuse, checkpoint, recovery]) {
            *count += usize::from(is_in);
        }
    }

    fn fail(&mut self, way: &Way, what: &str) {
        self.failed += 1;
        self.first_failed.get_or_insert(self.states);
        if self.failures.len() < FAILURES {
            self.failures.push(format!("--replay {way}: {what}"));
        }
    }
}

impl core::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        let first = other.first_failed.map(|states| self.states + states);
        self.first_failed = self.first_failed.or(first);
        self.scenarios += other.scenarios;
        self.continued += other.continued;
        self.cuts += other.cuts;
        self.durable += other.durable;
        self.states += other.states;
        self.used += other.used;
        self.outcomes.extend(other.outcomes);
        for (count, more) in self.inside.iter_mut().zip(other.inside) {
            *count += more;
        }
        self.failures.extend(other.failures);
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside: Vec<String> = INSIDE
            .iter()
            .zip(self.inside)
            .map(|(name, count)| format!("{count} in {name}"))
            .collect();
        writeln!(
            f,
            "{} runs ({} on what a crash had left), {} cuts ({}, {} behind durable writes), {} \
             states, {} of them used again, {} distinct outcomes, {:.1} s",
            self.scenarios,
            self.continued,
            self.cuts,
            inside.join(", "),
            self.durable,
            self.states,
            self.used,
            self.outcomes.len(),
            self.elapsed.as_secs_f64(),
        )?;
        if let Some(states) = self.first_failed {
            writeln!(f, "the first failure came with state {states}")?;
        }
        write!(f, "{} passed, {} failed", self.states.saturating_sub(self.failed), self.failed)
    }
}

/// Failures of a scenario that are told, and after which it ends.
const FAILURES: usize = 20;
/// Media that are tried at a cut.
const VARIANTS: u32 = 2;
/// Runs that go on from crashes of the first one, and from crashes of those.
const BRANCHES: [u64; 3] = [4, 2, 0];
/// Crashes of a row.
const ROW: usize = 75;

/// Goes through one of `share` cuts of scenario `seed`.
#[must_use]
pub fn explore(seed: u64, share: u64) -> Tally {
    let mut tally = Tally::default();
    let setup = Setup::of(seed);
    let way = Way { seed, cuts: Vec::new() };
    match setup.fresh() {
        Ok(medium) => {
            let initial = vec![0; setup.space as usize];
            let explorer = Explorer { setup, share, tally: &mut tally };
            explorer.run(&way, &medium, initial, 1);
        }
        Err(what) => tally.fail(&way, &what),
    }
    tally
}

struct Explorer<'t> {
    setup: Setup,
    /// One of so many cuts is gone through.
    share: u64,
    tally: &'t mut Tally,
}

impl Explorer<'_> {
    /// Records the run of `way` and goes through its crashes.
    fn run(mut self, way: &Way, start: &Medium, initial: State, next: u32) {
        self.tally.scenarios += 1;
        self.tally.continued += usize::from(!way.cuts.is_empty());
        let recording = record(&self.setup, way.seed(), start, initial, next);
        let recording = match recording {
            Ok(recording) => recording,
            Err(what) => return self.tally.fail(way, &what),
        };
        let mut rng = Rng::stream(way.seed(), 11);
        let branches = match way.cuts.len() {
            depth if self.setup.is_row => u64::from(depth < ROW),
            depth => BRANCHES.get(depth).copied().unwrap_or(0),
        };
        let is_work = |event: &Event| !matches!(event, Event::Mark(_));
        let end = recording.log.iter().rposition(is_work).unwrap_or(0);
        let is_opening = self.setup.is_tight && !way.cuts.is_empty() && rng.chance(3, 4);
        let end = if is_opening { recording.history.recovered().min(end) } else { end };
        // The first run has to come to where it is full.
        let least = if self.setup.is_tight && way.cuts.is_empty() { end / 4 * 3 } else { 0 };
        let mut chosen: Vec<usize> =
            (0..branches).map(|_| least + rng.below((end - least) as u64) as usize).collect();
        chosen.sort_unstable();
        let mut watch = Watch::new(&recording.start);
        let mut sweep = Sweep::new(recording.start.clone());
        let mut chosen = chosen.into_iter().peekable();
        for (index, event) in recording.log.iter().enumerate() {
            let phases = watch.pass(event);
            let has_changed = sweep.pass(event);
            if !has_changed && !promises(&recording, event) {
                continue;
            }
            if self.tally.failed >= FAILURES {
                return;
            }
            if !rng.chance(1, self.share) {
                continue;
            }
            self.tally.enter(phases);
            self.tally.durable += usize::from(matches!(event, Event::Durable { .. }));
            let at = index + 1;
            let variants = if sweep.pending.is_empty() { 1 } else { VARIANTS };
            for variant in 0..variants {
                let way = way.then(Cut { at, variant });
                let goes_on = variant == 0 && chosen.next_if(|&at| at <= index).is_some();
                let (medium, _) = self.medium(&way, &sweep);
                let state = match self.check(&way, &recording, at, &medium) {
                    Ok(state) => state,
                    Err(what) => {
                        self.tally.fail(&way, &what);
                        continue;
                    }
                };
                self.tally.outcomes.insert(digest(&state));
                if goes_on {
                    let Explorer { setup, share, .. } = self;
                    let explorer = Explorer { setup, share, tally: self.tally };
                    explorer.run(&way, &medium, state, recording.next);
                }
            }
        }
    }

    /// The medium that the last cut of `way` leaves at `sweep`.
    fn medium(&self, way: &Way, sweep: &Sweep) -> (Medium, Choice) {
        let mut rng = Rng::stream(way.seed(), 12);
        let choice = Choice::random(&mut rng);
        (crash(sweep, self.setup.block, choice, &mut rng), choice)
    }

    /// Opens the volume on `medium`, which a cut at `at` left, and judges it: what it holds.
    fn check(
        &mut self,
        way: &Way,
        recording: &Recording,
        at: usize,
        medium: &Medium,
    ) -> Result<State, String> {
        self.tally.states += 1;
        let mut rng = Rng::stream(way.seed(), 13);
        let is_deep = rng.chance(1, 12);
        let recorder = Recorder::new(medium.clone(), is_deep).map_err(|error| error.to_string())?;
        let recorder = recorder.with_fua(self.setup.fua);
        let volume = open(&recorder)?;
        let state = read(&volume, self.setup.space)?;
        recording.history.judge(at, &state)?;
        if rng.chance(1, 3) {
            findings(&volume)?;
        }
        if is_deep {
            self.check_recovery(way, medium, &recorder.take_log(), &state)?;
        }
        if rng.chance(1, 6) {
            self.tally.used += 1;
            use_again(&self.setup, recorder, volume, state.clone(), &mut rng)?;
        }
        Ok(state)
    }

    /// Cuts the power while the volume on `medium` is opened, which did `log` to it: it holds
    /// `state` all the same.
    fn check_recovery(
        &mut self,
        way: &Way,
        medium: &Medium,
        log: &[Event],
        state: &State,
    ) -> Result<(), String> {
        let mut sweep = Sweep::new(medium.clone());
        for (index, event) in log.iter().enumerate() {
            if !sweep.pass(event) {
                continue;
            }
            self.tally.enter(Phases { recovery: true, ..Phases::default() });
            // The remark that comes first in a recorded run.
            let way = way.then(Cut { at: index + 2, variant: 0 });
            let (medium, choice) = self.medium(&way, &sweep);
            self.tally.states += 1;
            let fail = |what: String| format!("cut again, --replay {way} ({choice}): {what}");
            let recorder = Recorder::new(medium, false).map_err(|error| error.to_string())?;
            let recorder = recorder.with_fua(self.setup.fua);
            let now = open(&recorder).and_then(|volume| read(&volume, self.setup.space));
            let now = now.map_err(fail)?;
            if let Some(block) = now.iter().zip(state).position(|(one, other)| one != other) {
                let (now, before) = (now.get(block), state.get(block));
                return Err(fail(format!("block {block} is {now:?}, it was {before:?}")));
            }
        }
        Ok(())
    }
}

/// Whether more has to be there after a cut behind `event` than after one before it.
fn promises(recording: &Recording, event: &Event) -> bool {
    match event {
        Event::Mark(Mark::Done(op)) => recording.history.is_flush(*op),
        _ => false,
    }
}

/// What the volume finds wrong with itself.
fn findings(volume: &super::scenario::TestVolume) -> Result<(), String> {
    let found = volume.check().map_err(|error| format!("check: {error}"))?;
    match found.first() {
        Some(first) => Err(format!("check: {} findings, the first: {first}", found.len())),
        None => Ok(()),
    }
}

/// Does what is done at the last cut of `way`, and tells of it by `tell`.
///
/// # Errors
/// What went wrong, as text.
pub fn replay(way: &Way, mut tell: impl FnMut(String)) -> Result<(), String> {
    let setup = Setup::of(way.seed);
    tell(format!("{setup:?}"));
    let mut medium = setup.fresh()?;
    let mut state = vec![0; setup.space as usize];
    let mut next = 1;
    let mut here = Way { seed: way.seed, cuts: Vec::new() };
    for &cut in &way.cuts {
        let recording = record(&setup, here.seed(), &medium, state.clone(), next)?;
        let mut sweep = Sweep::new(medium.clone());
        recording.log.iter().take(cut.at).for_each(|event| {
            sweep.pass(event);
        });
        here = here.then(cut);
        let mut tally = Tally::default();
        let mut explorer = Explorer { setup, share: 1, tally: &mut tally };
        let (left, choice) = explorer.medium(&here, &sweep);
        let last = recording.log.get(cut.at.saturating_sub(8)..cut.at).unwrap_or_default();
        last.iter().for_each(|event| tell(brief(event)));
        tell(format!("{here}: {choice}, {} writes wait", sweep.pending.len()));
        state = explorer.check(&here, &recording, cut.at, &left)?;
        (medium, next) = (left, recording.next);
    }
    if way.cuts.is_empty() {
        record(&setup, here.seed(), &medium, state, next)?;
    }
    Ok(())
}

/// An event without the bytes.
fn brief(event: &Event) -> String {
    match event {
        Event::Write { request, at, bytes } => {
            let start: String = bytes
                .iter()
                .take(8)
                .map(|&byte| char::from(byte).escape_default().to_string())
                .collect();
            format!("write {request}: {} bytes at {at:#x}, {start}", bytes.len())
        }
        other => format!("{other:?}"),
    }
}
