//! Rounds: each experiment, again and again, on all targets in turn.

mod counting;
mod together;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::calls::Answering;
use crate::experiment::{Experiment, Measured, Need, On};
use crate::machine::group::Group;
use crate::machine::memory;
use crate::parameters::Parameters;
use crate::process;
use crate::random::Random;
use crate::results::{Found, Row, Sample};
use crate::target::{self, Making, Name, Room, Target};
use crate::worker::{Answer, Purpose, Request};
use crate::{Error, Result};

/// What is to be measured, and how.
pub struct Plan {
    /// Experiments, each with the parameters that it is done with.
    pub experiments: Vec<(&'static dyn Experiment, Vec<Parameters>)>,
    /// Targets. The others are compared with the first one.
    pub targets: Vec<Wanted>,
    /// Samples of each phase on each target. One more round comes first and does not count.
    pub rounds: usize,
    /// So often a run that was disturbed is repeated.
    pub repeats: usize,
    /// How targets in memory follow each other.
    pub follow: Follow,
    /// Whether instructions of the library are counted too, in a simulated processor.
    pub simulates: bool,
    /// Where random numbers begin.
    pub seed: u64,
    /// As whom calls are made: user and group; as who started the program if there is none.
    pub user: Option<(u32, u32)>,
    /// On which processor; on any if there is none.
    pub processor: Option<usize>,
    /// Bytes that are walked through before each phase.
    pub sweep: u64,
    /// What targets are made of.
    pub making: Making,
    /// Longest time for a part of an experiment.
    pub limit: Duration,
}

/// How targets in memory follow each other in a round. Those on disks always go by whole runs: what
/// they leave to be written must not be written in the turn of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Follow {
    /// All are there at once, and take turns of some milliseconds (see [`crate::turns`]).
    Turns,
    /// One after the other.
    Runs,
}

/// A target that is wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted {
    /// Which.
    pub name: Name,
    /// A share of the time by which it is made slower: a test of the method.
    pub delay: f64,
    /// The program by which its calls are made, in place of our own: a test of our loop.
    pub worker: Option<PathBuf>,
    /// As it stands in reports.
    pub label: String,
}

impl Wanted {
    /// The target that `word` names, such as `ramfs`; `ramfs+5%` is one that is made slower, and
    /// `ramfs@./loop` one whose calls are made by the program `./loop`, which has a slash in it.
    #[must_use]
    pub fn parse(word: &str) -> Option<Wanted> {
        let slowed = word.strip_suffix('%').and_then(|rest| rest.rsplit_once('+'));
        let (name, delay) = match slowed {
            Some((name, percent)) => (name, percent.parse::<f64>().ok()? / 100.0),
            None => (word, 0.0),
        };
        if !(0.0..=10.0).contains(&delay) {
            return None;
        }
        // Paths of directories may have such a sign in them.
        let by = name.split_once('@').filter(|(name, by)| !name.contains('/') && by.contains('/'));
        let (name, worker) = by.map_or((name, None), |(name, by)| (name, Some(PathBuf::from(by))));
        let parsed = Name::parse(name)?;
        let slower = slowed.map(|(_, percent)| format!("+{percent}%")).unwrap_or_default();
        let by = worker.as_deref().map(|by| format!("@{}", file_name(by))).unwrap_or_default();
        let label = format!("{}{by}{slower}", parsed.id());
        Some(Wanted { name: parsed, delay, worker, label })
    }
}

/// A program without its directory, of which reports tell nothing.
fn file_name(program: &Path) -> String {
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

/// Who is told while it runs.
pub trait Watcher {
    /// So many runs of so many are done.
    fn progress(&mut self, done: usize, total: usize);
    /// Something that is worth knowing.
    fn note(&mut self, text: &str);
    /// An experiment is done with one set of parameters.
    fn found(&mut self, found: &[Found]);
    /// Whether all should end.
    fn is_stopped(&self) -> bool;
}

/// What was found of one experiment with one set of parameters, and what the targets were.
struct Point<'p> {
    plan: &'p Plan,
    experiment: &'static dyn Experiment,
    parameters: &'p Parameters,
    need: Need,
}

/// What came of a plan.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was found: less if it was stopped, or a target failed.
    pub found: Vec<Found>,
    /// What each target was made with when it was made last.
    pub options: Vec<Vec<String>>,
    /// What was not tried, as it makes no sense: an experiment on a target, and why.
    pub left_out: Vec<String>,
    /// What failed, in words, without paths of directories.
    pub failures: Vec<String>,
}

/// Measures what `plan` says.
///
/// # Errors
/// If the parameters make no sense, or no target can be made at all.
pub fn run(plan: &Plan, room: Option<&Room>, watcher: &mut dyn Watcher) -> Result<Outcome> {
    let mut points = Vec::new();
    for (experiment, all) in &plan.experiments {
        for parameters in all {
            let need = experiment
                .need(parameters)
                .map_err(|reason| Error::Target { target: experiment.id().into(), reason })?;
            points.push(Point { plan, experiment: *experiment, parameters, need });
        }
    }
    let mut targets = Vec::new();
    for wanted in &plan.targets {
        let target = target::target(&wanted.name, &plan.making, plan.limit, room)?;
        targets.push(Alive {
            wanted,
            target,
            options: Vec::new(),
            left_out: Vec::new(),
            failures: Vec::new(),
            in_vain: 0,
        });
    }
    let total = points.len() * (plan.rounds + 1) * targets.len();
    let mut outcome = Outcome::default();
    for (number, point) in points.iter().enumerate() {
        let before = number * (plan.rounds + 1) * targets.len();
        let found = point.measure(&mut targets, watcher, &mut |watcher, done| {
            watcher.progress(before + done, total);
        });
        watcher.found(&found);
        outcome.found.extend(found);
        if watcher.is_stopped() {
            break;
        }
    }
    for alive in targets {
        outcome.options.push(alive.options);
        outcome.left_out.extend(alive.left_out);
        outcome.failures.extend(alive.failures);
    }
    Ok(outcome)
}

/// Bytes of memory that a process which measures takes, besides what it walks through.
const PROCESS: u64 = 32 << 20;

/// Bytes of memory that a file takes at most besides its content.
const PER_FILE: u64 = 4 << 10;
/// Bytes of memory that targets take besides files.
const AROUND: u64 = 256 << 20;

/// In so many rounds one after the other repeating may be in vain before it is given up, until a
/// run is not disturbed.
const IN_VAIN_MAX: usize = 3;

/// A target, what was wanted, and what became of it.
struct Alive<'p> {
    wanted: &'p Wanted,
    target: Box<dyn Target>,
    options: Vec<String>,
    left_out: Vec<String>,
    failures: Vec<String>,
    /// Rounds since it was not disturbed last.
    in_vain: usize,
}

impl Alive<'_> {
    /// `text` without the paths that somebody named.
    fn without_path(&self, text: &str) -> String {
        let text = match &self.wanted.name {
            Name::Directory(path) => text.replace(&*path.to_string_lossy(), &self.wanted.label),
            _ => text.to_owned(),
        };
        match &self.wanted.worker {
            Some(program) => text.replace(&*program.to_string_lossy(), &file_name(program)),
            None => text,
        }
    }
}

impl Point<'_> {
    /// All rounds. A target that fails is left out from then on.
    fn measure(
        &self,
        targets: &mut [Alive<'_>],
        watcher: &mut dyn Watcher,
        progress: &mut dyn FnMut(&mut dyn Watcher, usize),
    ) -> Vec<Found> {
        let phases = self.experiment.phases();
        let row = |alive: &Alive<'_>| Row {
            target: alive.wanted.label.clone(),
            survives: alive.target.survives(),
            samples: Vec::new(),
            counted: Vec::new(),
        };
        let mut found: Vec<Found> = phases
            .iter()
            .map(|phase| Found {
                experiment: self.experiment.id(),
                phase: *phase,
                parameters: self.parameters.clone(),
                rows: targets.iter().map(row).collect(),
            })
            .collect();
        let mut has_failed = self.left_out(targets, watcher);
        self.count(targets, &mut found, watcher);
        let mut done = 0;
        'rounds: for round in 0..=self.plan.rounds {
            for group in self.groups(targets, &has_failed, round) {
                if watcher.is_stopped() {
                    break 'rounds;
                }
                let all = self.undisturbed(targets, &group, round, watcher);
                done += group.len();
                for (number, measured) in group.into_iter().zip(all) {
                    let measured = match measured {
                        Ok(measured) => measured,
                        Err(Error::Stopped) => break 'rounds,
                        Err(error) => {
                            self.fail(targets, &mut has_failed, number, &error, watcher);
                            continue;
                        }
                    };
                    // The first round is for warming up.
                    if round > 0 {
                        keep(&mut found, number, round, &measured);
                    }
                }
                progress(watcher, done);
            }
            done = (round + 1) * targets.len();
        }
        self.tell_twins(targets, watcher);
        found
    }

    /// Tells what both sides of twins are, as nothing else in the table says what they survive.
    fn tell_twins(&self, targets: &[Alive<'_>], watcher: &mut dyn Watcher) {
        for alive in targets.iter().filter(|_| self.experiment.on() == On::Twins) {
            for option in &alive.options {
                watcher.note(&format!("{}: {option}", alive.wanted.label));
            }
        }
    }

    /// All targets that have not failed, those together that take turns, in random order.
    fn groups(&self, targets: &[Alive<'_>], has_failed: &[bool], round: usize) -> Vec<Vec<usize>> {
        let mut random = Random::new(self.plan.seed ^ round as u64);
        let mut order: Vec<usize> = (0..targets.len())
            .filter(|number| has_failed.get(*number).is_some_and(|failed| !failed))
            .collect();
        random.shuffle(&mut order);
        let (together, alone): (Vec<usize>, Vec<usize>) = order
            .into_iter()
            .partition(|number| targets.get(*number).is_some_and(|alive| self.takes_turns(alive)));
        let mut groups: Vec<Vec<usize>> = alone.into_iter().map(|number| vec![number]).collect();
        match self.fit(together.len()) {
            true => groups.extend((!together.is_empty()).then_some(together)),
            false => groups.extend(together.into_iter().map(|number| vec![number])),
        }
        random.shuffle(&mut groups);
        groups
    }

    /// Which targets can't do the experiment. Of each it is told once.
    fn left_out(&self, targets: &mut [Alive<'_>], watcher: &mut dyn Watcher) -> Vec<bool> {
        let mut all = Vec::new();
        for alive in targets {
            let lack = self.lack(alive);
            all.push(lack.is_some());
            let Some(lack) = lack else { continue };
            let text =
                format!("{} on {}: left out: {lack}", self.experiment.id(), alive.wanted.label);
            if !alive.left_out.contains(&text) {
                watcher.note(&text);
                alive.left_out.push(text);
            }
        }
        all
    }

    /// Why a target can't do the experiment, if it can't.
    fn lack(&self, alive: &Alive<'_>) -> Option<&'static str> {
        let is_memory = alive.wanted.name == Name::Memory;
        if self.count_parts() > 1 && is_memory && self.experiment.has_files() {
            return Some("it keeps nothing from one process to the next");
        }
        let is_device = matches!(alive.wanted.name, Name::Device(_));
        let are_twins = matches!(alive.wanted.name, Name::Twins(_));
        let has_no_names = matches!(alive.wanted.name, Name::Raw | Name::Volume);
        match self.experiment.on() {
            On::Files | On::Durable | On::Direct if is_device && self.experiment.has_files() => {
                return Some("it is a device and has no files");
            }
            On::Files | On::Durable if has_no_names && self.experiment.has_files() => {
                return Some("it has no names, only ranges, for direct");
            }
            On::Files | On::Durable | On::Direct if are_twins => {
                return Some("it is two file systems, for volume-filesystems");
            }
            On::Device if !is_device => return Some("it is no device (disk and loop are)"),
            On::Memory if !is_memory => return Some("its volume is in memory (target memory)"),
            On::Twins if !are_twins => {
                return Some("it is not on a volume (volume-ext3, -ext4 and -xfs are)");
            }
            On::Files | On::Durable | On::Direct | On::Device | On::Memory | On::Twins => {}
        }
        self.experiment.lack(&alive.wanted.name)
    }

    /// Leaves a target out from now on.
    fn fail(
        &self,
        targets: &mut [Alive<'_>],
        has_failed: &mut [bool],
        number: usize,
        error: &Error,
        watcher: &mut dyn Watcher,
    ) {
        if let (Some(alive), Some(failed)) = (targets.get_mut(number), has_failed.get_mut(number)) {
            *failed = true;
            let text = format!("{} on {}: {error}", self.experiment.id(), alive.wanted.label);
            watcher.note(&text);
            let text = alive.without_path(&text);
            alive.failures.push(text);
        }
    }

    /// One run of each target of `group`, repeated if one was disturbed.
    fn undisturbed(
        &self,
        targets: &mut [Alive<'_>],
        group: &[usize],
        round: usize,
        watcher: &dyn Watcher,
    ) -> Vec<Result<Vec<Measured>>> {
        let has_hope = |alive: &Alive<'_>| alive.in_vain < IN_VAIN_MAX;
        let repeats = match group.iter().filter_map(|one| targets.get(*one)).all(has_hope) {
            true => self.plan.repeats,
            false => 0,
        };
        let run = |targets: &mut [Alive<'_>]| match group {
            [one] => match targets.get_mut(*one) {
                Some(alive) => vec![self.once(alive, round, Purpose::Time, watcher)],
                None => Vec::new(),
            },
            _ => self.together(targets, group, round, watcher),
        };
        let marks = |all: &[Result<Vec<Measured>>]| {
            let measured = all.iter().flatten().flatten();
            measured.filter(|one| one.disturbance.mark().is_some()).count()
        };
        let mut best = run(targets);
        for _ in 0..repeats {
            if marks(&best) == 0 || round == 0 || best.iter().any(Result::is_err) {
                break;
            }
            let again = run(targets);
            if marks(&again) >= marks(&best) && again.iter().all(Result::is_ok) {
                break;
            }
            best = again;
        }
        // What disturbs it every time is its own doing.
        let is_disturbed = marks(&best) > 0;
        for one in group.iter().filter(|_| round > 0) {
            if let Some(alive) = targets.get_mut(*one) {
                alive.in_vain = if is_disturbed { alive.in_vain + 1 } else { 0 };
            }
        }
        best
    }

    /// One run: a new target, all parts, and the target is removed.
    fn once(
        &self,
        alive: &mut Alive<'_>,
        round: usize,
        purpose: Purpose,
        watcher: &dyn Watcher,
    ) -> Result<Vec<Measured>> {
        // Until it is removed: its pages are counted where they are used first.
        let all = self.need.memory.map(|memory| memory.all + self.plan.sweep + PROCESS);
        let group = all.map(Group::enter).transpose()?;
        self.make(alive)?;
        if self.experiment.has_files() {
            let touch = || memory::touch(self.touched());
            // The group has not enough for what making the target left, and all that it may use.
            match &group {
                Some(group) => group.outside(touch)?,
                None => touch(),
            }
        }
        let done = self.parts(alive, round, purpose, watcher);
        let removed = alive.target.remove();
        let measured = done?;
        removed?;
        Ok(measured)
    }

    /// Bytes of memory that are touched before a run: what a target may use of it.
    fn touched(&self) -> u64 {
        match self.need.memory {
            Some(memory) => memory.all,
            None => 2 * self.need.bytes + self.need.files * PER_FILE + AROUND,
        }
    }

    /// Makes a target.
    fn make(&self, alive: &mut Alive<'_>) -> Result<()> {
        if self.experiment.has_files() {
            alive.target.make(self.need, self.plan.user)?;
            alive.options = alive.target.options();
            let by = alive.wanted.worker.as_deref().map(file_name);
            alive.options.extend(by.map(|program| format!("calls made by the program {program}")));
        }
        Ok(())
    }

    fn count_parts(&self) -> usize {
        self.experiment.phases().iter().map(|phase| phase.part + 1).max().unwrap_or(0)
    }

    fn parts(
        &self,
        alive: &Alive<'_>,
        round: usize,
        purpose: Purpose,
        watcher: &dyn Watcher,
    ) -> Result<Vec<Measured>> {
        let mut all = Vec::new();
        for part in 0..self.count_parts() {
            let request = self.request(alive, part, round, purpose);
            let is_stopped = || watcher.is_stopped();
            let program = self.program(alive);
            let answer = process::run(program, &request, self.plan.limit, &is_stopped)?;
            all.extend(measured(answer, part)?);
        }
        Ok(all)
    }

    /// Who makes a target's calls.
    fn program<'a>(&'a self, alive: &'a Alive<'_>) -> &'a Path {
        alive.wanted.worker.as_ref().unwrap_or(&self.plan.making.program)
    }

    /// What a process has to do.
    fn request(&self, alive: &Alive<'_>, part: usize, round: usize, purpose: Purpose) -> Request {
        Request {
            answering: match self.experiment.has_files() {
                true => alive.target.answering(),
                false => Answering::Null,
            },
            experiment: self.experiment.id().to_owned(),
            part,
            beside: None,
            takes_turns: false,
            parameters: self.parameters.clone(),
            seed: self.plan.seed.wrapping_add(round as u64),
            user: self.plan.user,
            processor: self.plan.processor,
            sweep: if purpose == Purpose::Time { self.plan.sweep } else { 0 },
            delay: alive.wanted.delay,
            purpose,
        }
    }
}

/// What was measured in a part.
fn measured(answer: Answer, part: usize) -> Result<Vec<Measured>> {
    match answer {
        Answer::Done { measured } => Ok(measured),
        Answer::Failed(reason) => Err(Error::Target { target: format!("part {part}"), reason }),
    }
}

/// Keeps a sample of each phase for the target `number`.
fn keep(found: &mut [Found], number: usize, round: usize, measured: &[Measured]) {
    for found in found {
        let of = measured.iter().find(|one| one.phase == found.phase.id);
        if let Some(row) = found.rows.get_mut(number) {
            // Rounds in which there was nothing to keep.
            row.samples.resize(round - 1, None);
            row.samples.push(of.and_then(Sample::of));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Kind;

    #[test]
    fn targets_can_be_made_slower() {
        let plain = Wanted::parse("ramfs").unwrap();
        assert_eq!((plain.delay, plain.label.as_str()), (0.0, "ramfs"));
        let slowed = Wanted::parse("ramfs+5%").unwrap();
        assert_eq!(slowed.name, Name::Kernel(Kind::Ramfs));
        assert!((slowed.delay - 0.05).abs() < 1e-12);
        assert_eq!(slowed.label, "ramfs+5%");
        let directory = Wanted::parse("/srv/files").unwrap();
        assert_eq!(directory.label, "directory");
        let other = Wanted::parse("ramfs@/opt/x/loop+5%").unwrap();
        assert_eq!(other.name, Name::Kernel(Kind::Ramfs));
        assert_eq!(other.worker.as_deref(), Some(Path::new("/opt/x/loop")));
        assert_eq!((other.label.as_str(), plain.worker), ("ramfs@loop+5%", None));
        let place = Wanted::parse("/srv/a@b/files").unwrap();
        assert_eq!((place.label.as_str(), place.worker), ("directory", None));
        assert_eq!(Wanted::parse("ramfs@loop"), None);
        assert_eq!(Wanted::parse("ramfs+x%"), None);
        assert_eq!(Wanted::parse("ramfs+5000%"), None);
        assert_eq!(Wanted::parse("zfs"), None);
    }
}
