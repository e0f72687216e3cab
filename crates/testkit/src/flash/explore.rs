//! Goes through the crashes of volumes.
//!
//! A scenario is a recorded run. At each point of its log at which something changes, power cuts
//! leave a few media; each is opened, judged, and some are used again. Some go on: what the power
//! cut left is what another run begins with, recovery included, and its crashes are gone through in
//! the same way.

use super::crash::{Choice, crash};
use super::history::{State, digest, read};
use super::medium::Medium;
use super::phases::{Phases, Watch};
use super::recorder::{Event, Mark, Recorder, Sweep};
use super::scenario::{Recording, Setup, open, record, use_again};
use crate::Rng;
use crate::cuts::{Cut, FAILURES, Tally, Way};

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
        self.tally.runs += 1;
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
            self.tally.enter(doing(phases, event));
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
            self.tally.enter(doing(Phases { recovery: true, ..Phases::default() }, event));
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

/// What is being done behind `event`.
fn doing(phases: Phases, event: &Event) -> [(&'static str, bool); 5] {
    let Phases { cleaning, reuse, checkpoint, recovery } = phases;
    [
        ("cleaning", cleaning),
        ("reuse", reuse),
        ("checkpoints", checkpoint),
        ("recovery", recovery),
        ("durable writes", matches!(event, Event::Durable { .. })),
    ]
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
pub fn replay(way: &Way, tell: &mut dyn FnMut(String)) -> Result<(), String> {
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
