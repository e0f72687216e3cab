//! Running the test programs, with no mutant and with each.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::operators::Mutant;
use super::{Program, VARIABLE};
use crate::Failure;
use crate::child::{self, Ended};

/// A program may take this many times as long as without a mutant, and
const SLOWER: u32 = 8;
/// this much more, before it counts as hanging.
const GRACE: Duration = Duration::from_secs(5);
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

fn attempt(
    program: &Program,
    mutant: u32,
    limit: Duration,
    directory: &Path,
    job: usize,
) -> Result<Ended, Failure> {
    let scratch = directory.join(format!("scratch-{job}"));
    std::fs::create_dir_all(&scratch).map_err(|e| Failure::system("can't make", &scratch, &e))?;
    let mut command = Command::new(&program.executable);
    command.args(&program.arguments).current_dir(&program.directory);
    command.env(VARIABLE, mutant.to_string());
    command.envs(program.variables.iter().copied());
    command.env("TMPDIR", &scratch).env("RUST_BACKTRACE", "0");
    child::run_logged(&mut command, limit, &directory.join(format!("trial-{job}.log")))
}

/// What is known of a program.
pub(super) struct Record {
    /// Its time with no mutant.
    time: Duration,
    /// How long a trial may take.
    limit: Duration,
    /// Mutants it has caught.
    catches: AtomicUsize,
}

/// Runs every program with no mutant, at most `most` each.
pub(super) fn baseline(
    programs: &[Program],
    directory: &Path,
    most: Duration,
) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    for program in programs {
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
        println!("no mutant: {:.1} s {}", time.as_secs_f64(), program.name);
        let limit = (time * SLOWER + GRACE).min(most);
        records.push(Record { time, limit, catches: AtomicUsize::new(0) });
    }
    Ok(records)
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

    fn one(&self, mutant: &Mutant, job: usize) -> Result<Verdict, Failure> {
        // First what is quick and has caught many.
        let mut order: Vec<_> = self.programs.iter().zip(self.records).enumerate().collect();
        order.sort_by_key(|(_, (_, record))| {
            record.time / (1 + record.catches.load(Ordering::Relaxed) as u32)
        });
        for (by, (program, record)) in order {
            let ended = attempt(program, mutant.number, record.limit, self.directory, job)?;
            if !ended.is_well() {
                record.catches.fetch_add(1, Ordering::Relaxed);
                let is_hang = ended == Ended::TimedOut;
                return Ok(Verdict::Caught { by, is_hang });
            }
        }
        Ok(Verdict::Survived)
    }
}
