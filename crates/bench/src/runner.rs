//! Rounds: each experiment, again and again, on all targets in turn.

mod counting;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::calls::Answering;
use crate::experiment::{Experiment, Measured, Need};
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
        let target = target::target(&wanted.name, &plan.making, room)?;
        targets.push(Alive { wanted, target, options: Vec::new(), failures: Vec::new() });
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
        outcome.failures.extend(alive.failures);
    }
    Ok(outcome)
}

/// A target, what was wanted, and what became of it.
struct Alive<'p> {
    wanted: &'p Wanted,
    target: Box<dyn Target>,
    options: Vec<String>,
    failures: Vec<String>,
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
        self.count(targets, &mut found, watcher);
        let mut has_failed = vec![false; targets.len()];
        let mut done = 0;
        'rounds: for round in 0..=self.plan.rounds {
            let mut order: Vec<usize> = (0..targets.len()).collect();
            Random::new(self.plan.seed ^ round as u64).shuffle(&mut order);
            for number in order {
                if watcher.is_stopped() {
                    break 'rounds;
                }
                let mut measured = Vec::new();
                if let (Some(alive), Some(failed)) =
                    (targets.get_mut(number), has_failed.get_mut(number))
                    && !*failed
                {
                    match self.undisturbed(alive, round, watcher) {
                        Ok(good) => measured = good,
                        Err(Error::Stopped) => break 'rounds,
                        Err(error) => {
                            *failed = true;
                            let (experiment, label) = (self.experiment.id(), &alive.wanted.label);
                            let text = format!("{experiment} on {label}: {error}");
                            watcher.note(&text);
                            let text = alive.without_path(&text);
                            alive.failures.push(text);
                        }
                    }
                }
                done += 1;
                progress(watcher, done);
                // The first round is for warming up.
                if round == 0 {
                    continue;
                }
                for found in &mut found {
                    let of = measured.iter().find(|one| one.phase == found.phase.id);
                    if let Some(row) = found.rows.get_mut(number) {
                        // A round that was broken off leaves the others shorter.
                        row.samples.resize(round - 1, None);
                        row.samples.push(of.and_then(Sample::of));
                    }
                }
            }
        }
        found
    }

    /// One run, repeated if it was disturbed.
    fn undisturbed(
        &self,
        alive: &mut Alive<'_>,
        round: usize,
        watcher: &dyn Watcher,
    ) -> Result<Vec<Measured>> {
        let mut measured = self.once(alive, round, Purpose::Time, watcher)?;
        for _ in 0..self.plan.repeats {
            let marks =
                |of: &[Measured]| of.iter().filter(|one| one.disturbance.mark().is_some()).count();
            if marks(&measured) == 0 || round == 0 {
                break;
            }
            let again = self.once(alive, round, Purpose::Time, watcher)?;
            if marks(&again) < marks(&measured) {
                measured = again;
            }
        }
        Ok(measured)
    }

    /// One run: a new target, all parts, and the target is removed.
    fn once(
        &self,
        alive: &mut Alive<'_>,
        round: usize,
        purpose: Purpose,
        watcher: &dyn Watcher,
    ) -> Result<Vec<Measured>> {
        if self.experiment.has_files() {
            alive.target.make(self.need, self.plan.user)?;
            alive.options = alive.target.options();
            let by = alive.wanted.worker.as_deref().map(file_name);
            alive.options.extend(by.map(|program| format!("calls made by the program {program}")));
        }
        let done = self.parts(alive, round, purpose, watcher);
        let removed = alive.target.remove();
        let measured = done?;
        removed?;
        Ok(measured)
    }

    fn parts(
        &self,
        alive: &Alive<'_>,
        round: usize,
        purpose: Purpose,
        watcher: &dyn Watcher,
    ) -> Result<Vec<Measured>> {
        let parts = self.experiment.phases().iter().map(|phase| phase.part + 1).max().unwrap_or(0);
        if parts > 1 && alive.wanted.name == Name::Memory && self.experiment.has_files() {
            return Err(Error::Target {
                target: "memory".into(),
                reason: "keeps nothing from one process to the next".into(),
            });
        }
        let is_directory = matches!(alive.target.answering(), Answering::Directory { .. });
        if self.experiment.program().is_some() && !is_directory {
            return Err(Error::Target {
                target: alive.wanted.label.clone(),
                reason: "no directory, in which a program could work".into(),
            });
        }
        let mut all = Vec::new();
        for part in 0..parts {
            let request = Request {
                answering: match self.experiment.has_files() {
                    true => alive.target.answering(),
                    false => Answering::Null,
                },
                experiment: self.experiment.id().to_owned(),
                part,
                beside: None,
                parameters: self.parameters.clone(),
                seed: self.plan.seed.wrapping_add(round as u64),
                user: self.plan.user,
                processor: self.plan.processor,
                sweep: if purpose == Purpose::Time { self.plan.sweep } else { 0 },
                delay: alive.wanted.delay,
                purpose,
            };
            let is_stopped = || watcher.is_stopped();
            let program = alive.wanted.worker.as_ref().unwrap_or(&self.plan.making.program);
            match process::run(program, &request, self.plan.limit, &is_stopped)? {
                Answer::Done { measured } => all.extend(measured),
                Answer::Failed(reason) => {
                    let target = format!("part {part}");
                    return Err(Error::Target { target, reason });
                }
            }
        }
        Ok(all)
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
