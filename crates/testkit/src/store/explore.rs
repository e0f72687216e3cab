//! Goes through the power cuts of stores.
//!
//! A scenario is a recorded run. At each point of its log at which something changes, cuts leave a
//! few media; of each the store is brought back, checked, judged, and some are used again. Some go
//! on: what the cut left is what another run begins with, and its cuts are gone through in the same
//! way, those while the store is brought back included.

use super::machine::{Machine, Start};
use super::phases::{Phase, Phases};
use super::run::{Recording, Setup, record};
use super::tree::{Tree, read};
use super::use_again::use_again;
use crate::Rng;
use crate::cuts::{Cut, FAILURES, Tally, Way};
use crate::flash::crash::{Choice, crash};
use crate::flash::{Event, Mark, Medium, Sweep};
use crate::judge::judge_attached;

/// Media that are tried at a cut.
const VARIANTS: u32 = 2;
/// Runs that go on from cuts of the first one, and from cuts of those.
const BRANCHES: [u64; 3] = [4, 1, 0];
/// Cuts of a row.
const ROW: usize = 12;
/// Times that what threads do is done again, to find the cut that is to be repeated.
const TIMES: u32 = 20;

/// Goes through one of `share` cuts of scenario `seed`.
#[must_use]
pub fn explore(seed: u64, share: u64) -> Tally {
    let mut tally = Tally::default();
    let setup = Setup::of(seed);
    let way = Way { seed, cuts: Vec::new() };
    match setup.fresh() {
        Ok(start) => {
            let initial = vec![Tree::default(); setup.actors];
            let mut explorer = Explorer { setup, share, tally: &mut tally };
            explorer.run(&way, &start, initial, 1);
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
    /// Records the run of `way` and goes through its cuts.
    fn run(&mut self, way: &Way, start: &Start, initial: Vec<Tree>, next: u32) {
        self.tally.runs += 1;
        self.tally.continued += usize::from(!way.cuts.is_empty());
        let recording = match record(&self.setup, way.seed(), start, initial, next) {
            Ok(recording) => recording,
            Err(what) => return self.tally.fail(way, &what),
        };
        let mut rng = Rng::stream(way.seed(), 11);
        let mut chosen = self.chosen(way, &recording, &mut rng).into_iter().peekable();
        let mut phase = Phase::new(&recording.start.medium, &recording.kinds);
        let mut sweep = Sweep::new(recording.start.medium.clone());
        for (index, event) in recording.log.iter().enumerate() {
            let has_changed = sweep.pass(event);
            let phases = phase.pass(event, &sweep);
            let is_other =
                has_changed || recording.history.promises(index) || self.setup.core_stays;
            if !is_other {
                continue;
            }
            if self.tally.failed >= FAILURES {
                return;
            }
            if !rng.chance(1, self.share) {
                continue;
            }
            self.tally.enter(doing(phases, recording.has_stopped, &self.setup));
            let at = index + 1;
            let is_one = sweep.pending.is_empty() && !self.setup.core_stays;
            let variants = if is_one { 1 } else { VARIANTS };
            for variant in 0..variants {
                let way = way.then(Cut { at, variant });
                let goes_on = variant == 0 && chosen.next_if(|&at| at <= index).is_some();
                let (left, choice) = self.left(&way, &recording, &sweep);
                let trees = match self.check(&way, &recording, at, &left) {
                    Ok(trees) => trees,
                    Err(what) => {
                        self.tally.fail(&way, &format!("({choice}) {what}"));
                        continue;
                    }
                };
                if goes_on {
                    self.run(&way, &left, trees, recording.next);
                }
            }
        }
    }

    /// Before which events of the run of `way` cuts are from which another run goes on.
    fn chosen(&self, way: &Way, recording: &Recording, rng: &mut Rng) -> Vec<usize> {
        let branches = match way.cuts.len() {
            depth if self.setup.is_row => u64::from(depth < ROW),
            depth => BRANCHES.get(depth).copied().unwrap_or(0),
        };
        let is_work = |event: &Event| !matches!(event, Event::Mark(_));
        let end = recording.log.iter().rposition(is_work).unwrap_or(0);
        // Some while the store is brought back.
        let end = match rng.chance(1, 4) {
            true => recording.history.started().min(end),
            false => end,
        };
        let mut chosen: Vec<usize> =
            (0..branches).map(|_| rng.below(end as u64) as usize).collect();
        chosen.sort_unstable();
        chosen
    }

    /// The medium that the last cut of `way` leaves at `sweep`.
    fn medium(&self, way: &Way, sweep: &Sweep) -> (Medium, Choice) {
        let mut rng = Rng::stream(way.seed(), 12);
        let choice = Choice::random(&mut rng);
        (crash(sweep, self.setup.block, choice, &mut rng), choice)
    }

    /// What the last cut of `way`, in a run of this `recording`, leaves at `sweep`: of a core that
    /// stays what it was just before the next event, or, the second time, before the last one.
    fn left(&self, way: &Way, recording: &Recording, sweep: &Sweep) -> (Start, Choice) {
        let (medium, choice) = self.medium(way, sweep);
        let before = way.cuts.last().map_or(0, |cut| cut.at - (cut.variant as usize & 1));
        let core = recording.core_before(before).cloned();
        (Start { medium, core }, choice)
    }

    /// Brings back the store of `left`, which a cut at `at` left, and judges it: its files.
    fn check(
        &mut self,
        way: &Way,
        recording: &Recording,
        at: usize,
        left: &Start,
    ) -> Result<Vec<Tree>, String> {
        self.tally.states += 1;
        let mut rng = Rng::stream(way.seed(), 13);
        let is_deep = rng.chance(1, 24);
        let recorder = self.setup.device(left.medium.clone(), is_deep)?;
        let machine = Machine::start(&recorder, left.core.as_ref(), 1)?;
        let process = machine.first()?;
        let trees = read(&process.files, self.setup.actors, None)?;
        recording.history.judge(at, &trees)?;
        sound(&machine, &mut rng)?;
        let outcome = trees.iter().fold(1, |all: u64, tree| all.rotate_left(9) ^ tree.digest());
        self.tally.outcomes.insert(outcome);
        if is_deep {
            self.check_restart(way, left, &recorder.take_log(), &trees)?;
        }
        if rng.chance(1, 4) {
            self.tally.used += 1;
            use_again(&self.setup, machine, trees.clone(), &mut rng)?;
        }
        Ok(trees)
    }

    /// Cuts the power while the store of `left` is brought back, which did `log` to the device:
    /// its files are `trees` all the same.
    fn check_restart(
        &mut self,
        way: &Way,
        left: &Start,
        log: &[Event],
        trees: &[Tree],
    ) -> Result<(), String> {
        let mut sweep = Sweep::new(left.medium.clone());
        for (index, event) in log.iter().enumerate() {
            if !sweep.pass(event) {
                continue;
            }
            let phases = Phases { restart: true, ..Phases::default() };
            self.tally.enter(doing(phases, false, &self.setup));
            // The remark that comes first in a recorded run.
            let way = way.then(Cut { at: index + 2, variant: 0 });
            let (medium, choice) = self.medium(&way, &sweep);
            self.tally.states += 1;
            let fail = |what: String| format!("cut again, --replay {way} ({choice}): {what}");
            let recorder = self.setup.device(medium, false)?;
            let machine = Machine::start(&recorder, left.core.as_ref(), 1).map_err(fail)?;
            let now = read(&machine.first()?.files, trees.len(), None).map_err(fail)?;
            if let Some(actor) = now.iter().zip(trees).position(|(one, other)| one != other) {
                return Err(fail(format!("other files of actor {actor} than before")));
            }
        }
        Ok(())
    }
}

/// What is being done; in a run in which one is stopped in a sync, and another one comes first, if
/// it `has_stopped`.
fn doing(phases: Phases, has_stopped: bool, setup: &Setup) -> [(&'static str, bool); 8] {
    let Phases { epoch, checkpoint, restart, trim, volume } = phases;
    [
        ("epochs", epoch),
        ("checkpoints", checkpoint),
        ("restarts", restart),
        ("trims", trim),
        ("cleaning", volume.cleaning),
        ("reuse", volume.reuse),
        ("runs with one stopped", has_stopped),
        ("runs with a core that stays", setup.core_stays),
    ]
}

/// That the parts of the store find nothing wrong with themselves, nor the offline checker.
fn sound(machine: &Machine, rng: &mut Rng) -> Result<(), String> {
    let process = machine.first()?;
    let census = process.files.check().map_err(|error| format!("check: {error}"))?;
    if let Some(first) = census.findings.first() {
        return Err(format!("check: {first}"));
    }
    if rng.chance(1, 3) {
        judge_attached(process.files.core()).map_err(|what| format!("fsck: {what}"))?;
    }
    if rng.chance(1, 3) {
        let found = process.volume.check().map_err(|error| format!("volume: {error}"))?;
        if let Some(first) = found.first() {
            return Err(format!("volume: {first}"));
        }
    }
    Ok(())
}

/// Does what is done at the last cut of `way`, and tells of it by `tell`. Where actors are threads,
/// this is tried several times, as the same cut is another one each time.
///
/// # Errors
/// What went wrong, as text.
pub fn replay(way: &Way, tell: &mut dyn FnMut(String)) -> Result<(), String> {
    let setup = Setup::of(way.seed);
    tell(format!("{setup:?}"));
    if !setup.threads {
        return replay_once(setup, way, tell);
    }
    tell("actors are threads, so each run is another one".to_owned());
    let seed = Way { seed: way.seed, cuts: Vec::new() };
    for _ in 0..TIMES {
        let tally = explore(seed.seed, 1);
        if let Some(first) = tally.failures.first() {
            return Err(first.clone());
        }
    }
    Ok(())
}

fn replay_once(setup: Setup, way: &Way, tell: &mut dyn FnMut(String)) -> Result<(), String> {
    let mut start = setup.fresh()?;
    let mut trees = vec![Tree::default(); setup.actors];
    let mut next = 1;
    let mut here = Way { seed: way.seed, cuts: Vec::new() };
    for &cut in &way.cuts {
        let recording = record(&setup, here.seed(), &start, trees, next)?;
        let mut sweep = Sweep::new(start.medium.clone());
        recording.log.iter().take(cut.at).for_each(|event| _ = sweep.pass(event));
        here = here.then(cut);
        let mut tally = Tally::default();
        let mut explorer = Explorer { setup, share: 1, tally: &mut tally };
        let (left, choice) = explorer.left(&here, &recording, &sweep);
        tell(format!("{here}: {choice}, {} writes wait", sweep.pending.len()));
        for event in recording.log.iter().take(cut.at) {
            if let Event::Mark(Mark::Begun(number)) = event
                && let Some(op) = recording.operations.get(number)
            {
                tell(format!("  {number}: {op}"));
            }
        }
        trees = explorer.check(&here, &recording, cut.at, &left)?;
        (start, next) = (left, recording.next);
    }
    if way.cuts.is_empty() {
        record(&setup, here.seed(), &start, trees, next)?;
    }
    Ok(())
}
