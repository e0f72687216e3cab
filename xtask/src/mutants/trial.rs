//! Running the test programs, with no mutant and with each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::operators::Mutant;
use super::{Program, REACHED, VARIABLE};
use crate::Failure;
use crate::child::{self, Ended};

/// A program may take this many times as long as without a mutant, and
const SLOWER: u32 = 8;
/// this much more, before it counts as hanging.
const GRACE: Duration = Duration::from_secs(5);
/// Of how many trials what is expected of a program counts as much as what it has done;
const WEIGHT: f64 = 2.0;
/// and what is expected of one that has not been tried.
const FIRST: f64 = 0.2;
/// How often a program is tried that does not end, as long as it does not end without a mutant.
const TRIES: u32 = 5;
/// Mutants between two lines that tell how far we are.
const PROGRESS: usize = 50;

/// What became of a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Program number `by` noticed it.
    Caught {
        /// The program's place in the list.
        by: usize,
        /// Whether it noticed by not coming to an end.
        is_hang: bool,
    },
    /// No program noticed it.
    Survived,
}

/// The command that runs `program` as that `job`.
fn command_of(program: &Program, directory: &Path, job: usize) -> Result<Command, Failure> {
    let scratch = directory.join(format!("scratch-{job}"));
    std::fs::create_dir_all(&scratch).map_err(|e| Failure::system("can't make", &scratch, &e))?;
    let mut command = Command::new(&program.executable);
    command.args(&program.arguments).current_dir(&program.directory);
    command.env_remove(REACHED).envs(program.variables.iter().copied());
    command.env("TMPDIR", &scratch).env("RUST_BACKTRACE", "0");
    Ok(command)
}

fn attempt(
    program: &Program,
    mutant: u32,
    limit: Duration,
    directory: &Path,
    job: usize,
) -> Result<Ended, Failure> {
    let mut command = command_of(program, directory, job)?;
    command.env(VARIABLE, mutant.to_string());
    child::run_logged(&mut command, limit, &directory.join(format!("trial-{job}.log")))
}

/// What is known of a program.
pub(super) struct Record {
    /// Its time with no mutant.
    time: Duration,
    /// How long a trial may take.
    limit: Duration,
    /// Mutants that it comes by; all of them if that could not be found out.
    reached: Option<BTreeSet<u32>>,
    /// By file: mutants that it was tried with, and those that it has caught.
    counts: Mutex<BTreeMap<String, Counts>>,
}

/// How often a program was tried, and has caught.
#[derive(Clone, Copy, Default)]
struct Counts {
    tried: u32,
    caught: u32,
}

impl Record {
    /// Of a program that is not run.
    fn left_out() -> Record {
        let (time, limit) = (Duration::ZERO, Duration::ZERO);
        Record { time, limit, reached: Some(BTreeSet::new()), counts: Mutex::default() }
    }

    fn count(&self, mutant: &Mutant, is_caught: bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // What it does in all files says something of each.
        for name in [mutant.file.as_str(), ""] {
            let counts = counts.entry(name.to_owned()).or_default();
            counts.tried += 1;
            counts.caught += u32::from(is_caught);
        }
    }

    /// The time that it takes for each mutant of `file` that it catches, as far as is known.
    fn cost(&self, file: &str) -> f64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |name: &str| counts.get(name).copied().unwrap_or_default();
        let share = |counts: Counts, before: f64| {
            (f64::from(counts.caught) + WEIGHT * before) / (f64::from(counts.tried) + WEIGHT)
        };
        self.time.as_secs_f64() / share(of(file), share(of(""), FIRST))
    }
}

/// Runs every program that `is_run` by its name with no mutant, at most `most` each. The others
/// count as coming by no mutant.
pub(super) fn baseline(
    programs: &[Program],
    is_run: impl Fn(&str) -> bool,
    directory: &Path,
    most: Duration,
) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    for program in programs {
        if !is_run(&program.name) {
            println!("left out: {}", program.name);
            records.push(Record::left_out());
            continue;
        }
        let start = Instant::now();
        let ended = attempt(program, 0, most, directory, 0)?;
        let time = start.elapsed();
        if !ended.is_well() {
            let log = std::fs::read_to_string(directory.join("trial-0.log")).unwrap_or_default();
            let name = &program.name;
            let what = format!("{log}\n{name} fails without a mutant: {ended}");
            return Err(Failure::Broken(what));
        }
        if time * 2 > most {
            return Err(Failure::Broken(format!(
                "{} takes {:.1} s without a mutant; give at least {} --seconds-per-mutant",
                program.name,
                time.as_secs_f64(),
                time.as_secs() * 3 + 1
            )));
        }
        let reached = reached(program, directory, most)?;
        let count = reached.as_ref().map_or("all".into(), |reached| reached.len().to_string());
        println!("no mutant: {:.1} s, comes by {count}: {}", time.as_secs_f64(), program.name);
        let limit = (time * SLOWER + GRACE).min(most);
        records.push(Record { time, limit, reached, counts: Mutex::default() });
    }
    Ok(records)
}

/// Refuses programs that come by no mutant at all, of which each would count as a survivor.
pub(super) fn check_reached(records: &[Record], directory: &Path) -> Result<(), Failure> {
    let comes_by_none =
        |record: &Record| record.reached.as_ref().is_some_and(|reached| reached.is_empty());
    if !records.iter().all(comes_by_none) {
        return Ok(());
    }
    Err(Failure::Broken(format!(
        "no program comes by any mutant: something else has written to the copy of the sources; \
         remove {0}/src and {0}/build, and let nothing write there while mutants are tried",
        directory.display()
    )))
}

/// The mutants that `program` comes by; none if it does not end well while that is noted.
fn reached(
    program: &Program,
    directory: &Path,
    most: Duration,
) -> Result<Option<BTreeSet<u32>>, Failure> {
    let path = directory.join("reached");
    // There need be none.
    _ = std::fs::remove_file(&path);
    let mut command = command_of(program, directory, 0)?;
    command.env(REACHED, &path);
    let ended = child::run_logged(&mut command, most, &directory.join("trial-0.log"))?;
    let lines = std::fs::read_to_string(&path).unwrap_or_default();
    Ok(ended.is_well().then(|| lines.lines().filter_map(|line| line.parse().ok()).collect()))
}

/// What is tried, with what.
pub(super) struct Work<'a> {
    /// In this order.
    pub(super) mutants: &'a [&'a Mutant],
    /// What may notice them.
    pub(super) programs: &'a [Program],
    /// What is known of each program.
    pub(super) records: &'a [Record],
    /// Where programs may leave something.
    pub(super) directory: &'a Path,
}

/// What came out for the mutants at those places.
type Results = Mutex<Vec<(usize, Result<Verdict, Failure>)>>;

impl Work<'_> {
    /// Tries each mutant of which nothing is `known`, `jobs` at a time, and has it noted.
    pub(super) fn all(
        &self,
        jobs: usize,
        known: impl Fn(&Mutant) -> Option<Verdict> + Sync,
        note: impl Fn(&Mutant, Verdict) -> Result<(), Failure> + Sync,
    ) -> Result<Vec<Verdict>, Failure> {
        let next = AtomicUsize::new(0);
        let results = Results::default();
        let start = Instant::now();
        let try_one = |mutant: &Mutant, job| {
            if let Some(verdict) = known(mutant) {
                self.learn(mutant, verdict);
                return Ok(verdict);
            }
            let verdict = self.one(mutant, job)?;
            if verdict == Verdict::Survived {
                println!("survived: {}", mutant.describe());
            }
            note(mutant, verdict)?;
            Ok(verdict)
        };
        let work = |job| {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(mutant) = self.mutants.get(at) else {
                    return;
                };
                let verdict = try_one(mutant, job);
                if verdict.is_err() {
                    next.store(self.mutants.len(), Ordering::Relaxed);
                }
                let mut results = results.lock().unwrap_or_else(|poison| poison.into_inner());
                results.push((at, verdict));
                if results.len().is_multiple_of(PROGRESS) {
                    let seconds = start.elapsed().as_secs();
                    println!("{} of {} tried, {seconds} s", results.len(), self.mutants.len());
                }
            }
        };
        thread::scope(|scope| {
            let work = &work;
            for job in 0..jobs {
                scope.spawn(move || work(job));
            }
        });
        let mut results = results.into_inner().unwrap_or_else(|poison| poison.into_inner());
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, verdict)| verdict).collect()
    }

    /// Counts what an earlier run has found out.
    fn learn(&self, mutant: &Mutant, verdict: Verdict) {
        if let Verdict::Caught { by, .. } = verdict
            && let Some(record) = self.records.get(by)
        {
            record.count(mutant, true);
        }
    }

    fn one(&self, mutant: &Mutant, job: usize) -> Result<Verdict, Failure> {
        let comes_by = |record: &Record| {
            record.reached.as_ref().is_none_or(|reached| reached.contains(&mutant.number))
        };
        let all = self.programs.iter().zip(self.records).enumerate();
        let mut order: Vec<_> = all
            .filter(|(_, (_, record))| comes_by(record))
            .map(|it| (it.1.1.cost(&mutant.file), it))
            .collect();
        order.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        for (_, (by, (program, record))) in order {
            let ended = self.trial(mutant.number, program, record, job)?;
            record.count(mutant, !ended.is_well());
            if !ended.is_well() {
                let is_hang = ended == Ended::TimedOut;
                return Ok(Verdict::Caught { by, is_hang });
            }
        }
        Ok(Verdict::Survived)
    }

    /// Runs `program` with a mutant. That it does not come to an end counts only if it does without
    /// one at that time: the machine may be busy with something else.
    fn trial(
        &self,
        mutant: u32,
        program: &Program,
        record: &Record,
        job: usize,
    ) -> Result<Ended, Failure> {
        for _ in 0..TRIES {
            let ended = attempt(program, mutant, record.limit, self.directory, job)?;
            if ended != Ended::TimedOut {
                return Ok(ended);
            }
            let start = Instant::now();
            let without = attempt(program, 0, record.limit, self.directory, job)?;
            if without.is_well() && start.elapsed() * 2 < record.limit {
                return Ok(ended);
            }
        }
        let name = &program.name;
        Err(Failure::Broken(format!("the machine is too busy: {name} takes too long as it is")))
    }
}

#[test]
fn programs_that_come_by_no_mutant_are_refused() {
    let come_by = |all: &[Option<&[u32]>]| {
        let record = |reached: &Option<&[u32]>| Record {
            time: Duration::ZERO,
            limit: Duration::ZERO,
            reached: reached.map(|numbers| numbers.iter().copied().collect()),
            counts: Mutex::default(),
        };
        let records: Vec<Record> = all.iter().map(record).collect();
        check_reached(&records, Path::new("/x")).is_ok()
    };
    assert!(!come_by(&[Some(&[]), Some(&[])]));
    assert!(come_by(&[Some(&[]), Some(&[7])]));
    // That could not be found out.
    assert!(come_by(&[Some(&[]), None]));
}
