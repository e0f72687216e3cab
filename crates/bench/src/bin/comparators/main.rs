//! Whether measurements are to be believed: how often the method errs, and whether our own loop is
//! slow, compared with plain C, and with other people's programs, all on ramfs.
//!
//! Whoever measures a file system by a slow loop finds all file systems alike. So the same work is
//! done by others, in pairs and in turn, and the ratio has to be near 1. Both sides are processes
//! of their own, on a file system that is made anew for each. `cargo xtask comparators` starts it.

#![forbid(unsafe_code)]

mod judgement;
mod pairs;
mod plain;
mod trial;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use conquest_bench::machine::caches::Caches;
use conquest_bench::runner::{Follow, Plan};
use conquest_bench::statistics::SAMPLES_MIN;
use conquest_bench::target::{Making, Room};
use conquest_bench::{process, worker};

use judgement::Judgement;

const USAGE: &str = "\
usage: cargo xtask comparators [--rounds N] [--only SUBSTR] [--processor N]
  --rounds N       pairs of runs for each line, at least 5; three times as many beside plain C
                   [default: 15]
  --only SUBSTR    comparisons with this in their name: sprite-small, throughput, postmark, bonnie
                   or fio
  --processor N    keep to this processor";

/// Whom the calls are made as: nobody.
const USER: (u32, u32) = (65_534, 65_534);
/// Pairs of runs for each line with a program, unless told otherwise.
const ROUNDS: usize = 15;

/// Longest time for a part of an experiment.
const LIMIT: Duration = Duration::from_secs(300);
/// So often a run that was disturbed is repeated.
const REPEATS: usize = 2;

/// What to do.
struct Settings {
    rounds: Option<usize>,
    only: Option<String>,
    processor: Option<usize>,
    /// The C loop, compiled.
    plain: PathBuf,
    /// This program, which is also what measures.
    program: PathBuf,
}

impl Settings {
    /// Whether the comparison `name` was asked for.
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

impl Settings {
    /// Pairs of runs for each line.
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(ROUNDS)
    }

    /// How it is measured, whatever and on what.
    fn plan(&self) -> Plan {
        Plan {
            experiments: Vec::new(),
            targets: Vec::new(),
            rounds: self.rounds(),
            repeats: REPEATS,
            follow: Follow::Turns,
            simulates: false,
            seed: 1,
            user: Some(USER),
            processor: self.processor,
            sweep: 2 * Caches::visible().unwrap_or_default().last(),
            making: Making { program: self.program.clone(), disk: PathBuf::from("/var/tmp") },
            limit: LIMIT,
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>, program: PathBuf) -> Option<Settings> {
    let (mut plain, mut only, mut processor, mut rounds) = (None, None, None, None);
    while let Some(word) = words.next() {
        let next = words.next()?;
        match word.as_str() {
            "--rounds" => {
                rounds = Some(next.parse().ok().filter(|count| *count >= SAMPLES_MIN)?);
            }
            "--only" => only = Some(next),
            "--processor" => processor = Some(next.parse().ok()?),
            "--plain" => plain = Some(PathBuf::from(next)),
            _ => return None,
        }
    }
    Some(Settings { rounds, only, processor, plain: plain?, program })
}

fn measure(settings: &Settings, judged: &mut Judgement) -> conquest_bench::Result<()> {
    let used = [settings.program.clone(), settings.plain.clone()];
    let room = Room::enter(&used)?;
    trial::compare(settings, &room, judged)?;
    plain::compare(settings, &room, judged)?;
    pairs::compare(settings, &room, judged)
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.peek().is_some_and(|word| word == process::ARGUMENT) {
        return if worker::work().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let program = std::env::current_exe().unwrap_or_default();
    let Some(settings) = parse(words, program) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut judged = Judgement::default();
    let done = measure(&settings, &mut judged);
    if let Err(error) = &done {
        println!("{error}");
        judged.fail();
    }
    println!("{judged}");
    ExitCode::from(u8::from(!judged.is_good()))
}
