//! `cargo xtask mutants CRATE`: mutation testing.
//!
//! The workspace is copied, all mutants of the crate are built into the copy at once, each behind a
//! test of the environment variable `CONQUEST_MUTANT`, and the tests are run once for each mutant.
//! A mutant that no test notices shows what the tests don't check.

mod build;
mod checks;
mod effects;
mod operators;
mod rewrite;
mod rules;
mod sample;
mod slices;
mod subject;
mod survivors;
#[cfg(test)]
mod tests;
mod trial;
mod verdicts;

use core::fmt::Write;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::tally::Tally;
use crate::{Failure, tree};

use build::Copy;
use operators::Mutant;
use subject::Subject;
use trial::{Verdict, Work};
use verdicts::Verdicts;

/// The module that the copy of the crate gets.
const MODULE: &str = "conquest_mutant";
/// The environment variable that holds the number of the mutant that is on.
const VARIABLE: &str = "CONQUEST_MUTANT";

/// The environment variable that names a file, to which the numbers of mutants that a program comes
/// by are added.
const REACHED: &str = "CONQUEST_REACHED";

/// What was asked for.
struct Options {
    /// What is mutated: `pm` for `crates/pm`.
    name: String,
    jobs: usize,
    /// Parts of descriptions, one of which a mutant has; all mutants if empty.
    only: Vec<String>,
    is_list: bool,
    /// Longest time for one test program with one mutant.
    limit: Duration,
    /// Whether files that are normally left out are included.
    is_all: bool,
    /// Whether accepted survivors are tried too.
    tries_accepted: bool,
    /// So many of the mutants, chosen at random; all of them if `None`.
    sample: Option<usize>,
    /// Where the random numbers begin that choose them.
    seed: u64,
    /// Whether those that an earlier run noticed are not tried again.
    resumes: bool,
    /// Parts of names of programs that are not run, as they take long: what survives then may
    /// still be noticed by them.
    without: Vec<String>,
}

impl Options {
    fn asks_for(&self, mutant: &Mutant) -> bool {
        let text = mutant.describe();
        self.only.is_empty() || self.only.iter().any(|part| text.contains(part))
    }
}

fn parse(arguments: &[String]) -> Result<Options, Failure> {
    let usage = |what: String| Failure::Usage(format!("mutants: {what}"));
    let mut options = Options {
        name: String::new(),
        jobs: 2,
        only: Vec::new(),
        is_list: false,
        limit: Duration::from_secs(60),
        is_all: false,
        tries_accepted: false,
        sample: None,
        seed: 1,
        resumes: false,
        without: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || {
            let value = rest.next().cloned();
            value.ok_or_else(|| usage(format!("{argument} needs a value")))
        };
        let number = |value: String| match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(usage(format!("{argument}: {value:?} is no positive number"))),
        };
        match argument.as_str() {
            "--jobs" => options.jobs = number(value()?)? as usize,
            "--only" => options.only.push(value()?),
            "--list" => options.is_list = true,
            "--all" => options.is_all = true,
            "--accepted" => options.tries_accepted = true,
            "--resume" => options.resumes = true,
            "--without" => options.without.push(value()?),
            "--sample" => options.sample = Some(number(value()?)? as usize),
            "--seed" => options.seed = number(value()?)?.into(),
            "--seconds-per-mutant" => {
                options.limit = Duration::from_secs(number(value()?)?.into());
            }
            other if options.name.is_empty() && !other.starts_with('-') => {
                other.clone_into(&mut options.name);
            }
            other => return Err(usage(format!("unexpected argument {other:?}"))),
        }
    }
    Ok(options)
}

/// Runs `cargo xtask mutants`.
pub(crate) fn run(arguments: &[String]) -> Result<Tally, Failure> {
    let options = parse(arguments)?;
    let root = tree::root();
    let directory = root.join("target/mutants");
    let Some(subject) = Subject::find(&root, &options.name) else {
        let what = format!("mutants: there is no library crate crates/{}", options.name);
        return Err(Failure::Usage(what));
    };
    let mut copy = Copy::new(&root, &directory, subject, options.is_all)?;
    if options.is_list {
        return list(&copy, &options, (&root, &directory));
    }
    let listed = survivors::read(&root, &options.name)?;
    let _alone = build::take(&directory)?;
    let is_run = |name: &str| !options.without.iter().any(|part| name.contains(part));
    let programs = copy.build(is_run)?;
    let is_built = |mutant: &&Mutant| !copy.disabled.contains(&mutant.number);
    let mut chosen: Vec<&Mutant> =
        copy.mutants.iter().filter(|it| options.asks_for(it)).filter(is_built).collect();
    // What was asked for first is tried first.
    chosen.sort_by_key(|mutant| {
        let text = mutant.describe();
        options.only.iter().position(|part| text.contains(part))
    });
    if let Some(count) = options.sample {
        sample::take(&mut chosen, count, options.seed);
    }
    println!(
        "{} mutants, {} to try; {} do not compile and are left out",
        copy.mutants.len(),
        chosen.len(),
        copy.disabled.len()
    );
    let records = trial::baseline(&programs, is_run, &directory, options.limit)?;
    if !copy.mutants.is_empty() {
        trial::check_reached(&records, &directory)?;
    }
    let names: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
    let earlier =
        Verdicts::open((&root, &directory), &options.name, copy.texts(), options.resumes)?;
    let known = |mutant: &Mutant| {
        let is_accepted = listed.iter().any(|entry| entry.is_for(mutant));
        if is_accepted && !options.tries_accepted {
            return Some(Verdict::Survived);
        }
        earlier.of(mutant, &names)
    };
    let note = |mutant: &Mutant, verdict| earlier.add(mutant, verdict, &names);
    let work =
        Work { mutants: &chosen, programs: &programs, records: &records, directory: &directory };
    let verdicts = work.all(options.jobs, known, note)?;
    let outcome = Outcome {
        results: chosen.into_iter().zip(verdicts).collect(),
        names,
        is_whole: options.only.is_empty() && options.sample.is_none(),
        listed,
    };
    let (report, tally) = outcome.report();
    print!("{report}");
    write(&directory.join("report.txt"), &report)?;
    Ok(tally)
}

/// Prints the mutants that are asked for; those without a verdict, if a run would go on.
fn list(
    copy: &Copy,
    options: &Options,
    (root, directory): (&Path, &Path),
) -> Result<Tally, Failure> {
    let earlier = Verdicts::read((root, directory), &options.name, copy.texts());
    let accepted = survivors::read(root, &options.name)?;
    let is_open = |mutant: &&Mutant| {
        !options.resumes || !earlier.has(mutant) && !accepted.iter().any(|it| it.is_for(mutant))
    };
    let chosen: Vec<&Mutant> =
        copy.mutants.iter().filter(|it| options.asks_for(it)).filter(is_open).collect();
    for mutant in &chosen {
        println!("{:>5} {}", mutant.number, mutant.describe());
    }
    println!("{} mutants, none tried", chosen.len());
    Ok(Tally::default())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| Failure::system("can't write", path, &e))
}

/// A program that may notice a mutant.
struct Program {
    /// What it is called in the report.
    name: String,
    executable: PathBuf,
    arguments: Vec<String>,
    /// Variables of its environment: names and values.
    variables: Vec<(&'static str, &'static str)>,
    /// Where it runs.
    directory: PathBuf,
}

/// What came out.
struct Outcome<'a> {
    results: Vec<(&'a Mutant, Verdict)>,
    names: Vec<String>,
    /// Whether every mutant was tried.
    is_whole: bool,
    listed: Vec<survivors::Accepted>,
}

impl Outcome<'_> {
    fn report(&self) -> (String, Tally) {
        let mut text = String::new();
        let mut tally = Tally::default();
        let mut accepted = 0_u64;
        let mut operators: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut files: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut catches = vec![0_u64; self.names.len()];
        let mut hangs = 0_u64;
        let mut file = "";
        for (mutant, verdict) in &self.results {
            let is_caught = matches!(verdict, Verdict::Caught { .. });
            for count in [
                operators.entry(mutant.operator).or_default(),
                files.entry(&mutant.file).or_default(),
            ] {
                count.0 += u64::from(is_caught);
                count.1 += 1;
            }
            if let Verdict::Caught { by, is_hang } = verdict {
                tally.passed += 1;
                hangs += u64::from(*is_hang);
                if let Some(catches) = catches.get_mut(*by) {
                    *catches += 1;
                }
                continue;
            }
            if file != mutant.file {
                file = &mutant.file;
                _ = writeln!(text, "\nsurvivors in {file}:");
            }
            let entry = self.listed.iter().find(|entry| entry.is_for(mutant));
            _ = writeln!(text, "  {} (#{})", mutant.describe(), mutant.occurrence);
            if let Some(entry) = entry {
                accepted += 1;
                _ = writeln!(text, "    accepted: {}", entry.reason);
            } else {
                tally.failed += 1;
            }
        }
        tally.failed += self.stale(&mut text);
        _ = writeln!(text, "\ncaught, by operator:");
        for (operator, (caught, all)) in operators {
            _ = writeln!(text, "  {operator:8} {caught:>5} of {all:>5}");
        }
        _ = writeln!(text, "caught, by file:");
        for (file, (caught, all)) in files {
            _ = writeln!(text, "  {caught:>5} of {all:>5} {file}");
        }
        _ = writeln!(text, "caught, by program ({hangs} by hanging):");
        for (name, catches) in self.names.iter().zip(catches) {
            _ = writeln!(text, "  {catches:>5} {name}");
        }
        _ = writeln!(
            text,
            "{} mutants: {} caught, {accepted} accepted survivors, {} other failures",
            self.results.len(),
            tally.passed,
            tally.failed
        );
        (text, tally)
    }

    /// Reports accepted survivors that are none; counts those for which there is no mutant.
    fn stale(&self, text: &mut String) -> u64 {
        let mut count = 0;
        for entry in &self.listed {
            match self.results.iter().find(|(mutant, _)| entry.is_for(mutant)) {
                Some((_, Verdict::Survived)) => {}
                Some(_) => _ = writeln!(text, "\naccepted survivor was caught: {entry}"),
                None if self.is_whole => {
                    count += 1;
                    _ = writeln!(text, "\naccepted survivor matches no mutant: {entry}");
                }
                None => {}
            }
        }
        count
    }
}
