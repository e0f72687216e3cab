//! Real programs on a mounted store whose power is cut: whatever they had acknowledged is there.
//!
//! The volume of the store is the file of a *disk*, a file system of ours that records in one order
//! what is done to the file and what the programs acknowledge (`disk.rs`). The programs work once;
//! then, for many places in the record, the file is made what a power cut there may leave of it, by
//! the crash model of `conquest_testkit::flash`; all processes are killed and all of `/dev/shm` is
//! gone; the store is mounted again, and a suite looks at what is there.
//!
//! `cargo xtask conform cuts` runs this, in namespaces of its own: it takes all of `/dev/shm`.

#![forbid(unsafe_code)]

mod control;
mod crew;
mod disk;
mod machine;
mod mail;
mod postgresql;
mod processes;
mod record;
mod spool;
mod sqlite;
mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use suite::{Counts, Options, Suite};

/// What went wrong, in words.
type Outcome<T> = Result<T, String>;

const USAGE: &str = "\
usage: cut-programs SUITE --program CONQUEST --place DIRECTORY --keep DIRECTORY
                    [--cuts N] [--seed S] [--seconds N] [--replay RECORD@EVENT:SEED]

SUITE is sqlite, postgresql or spool. It needs namespaces of mounts and of its own /dev/shm, as
`cargo xtask conform cuts` makes them.";

fn suite(name: &str) -> Option<Box<dyn Suite>> {
    match name {
        "sqlite" => Some(Box::new(sqlite::Sqlite)),
        "postgresql" => Some(Box::new(postgresql::Postgresql)),
        "spool" => Some(Box::new(spool::Spool)),
        _ => None,
    }
}

fn options(words: &[String]) -> Option<Options> {
    let mut options = Options {
        program: PathBuf::new(),
        place: PathBuf::new(),
        keep: PathBuf::new(),
        cuts: 200,
        seed: 1,
        time: Duration::from_secs(20),
        replay: None,
    };
    for pair in words.chunks(2) {
        let [name, value] = pair else { return None };
        let number = value.parse::<u64>().ok();
        match name.as_str() {
            "--program" => options.program = value.into(),
            "--place" => options.place = value.into(),
            "--keep" => options.keep = value.into(),
            "--cuts" => options.cuts = number?,
            "--seed" => options.seed = number?,
            "--seconds" => options.time = Duration::from_secs(number?),
            "--replay" => {
                let (record, cut) = value.rsplit_once('@')?;
                let (event, seed) = cut.split_once(':')?;
                options.replay = Some((record.into(), event.parse().ok()?, seed.parse().ok()?));
            }
            _ => return None,
        }
    }
    Some(options)
}

/// What this program does as one of the processes that it starts.
fn role(words: &[&str]) -> Option<Outcome<()>> {
    Some(match words {
        ["disk", point, source, len] => control::serve(Path::new(point), source, len.parse().ok()?),
        ["mail", rest @ ..] => mail::role(rest),
        _ => return None,
    })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let shown: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(outcome) = role(&shown) {
        if let Err(why) = &outcome {
            eprintln!("{why}");
        }
        return ExitCode::from(u8::from(outcome.is_err()));
    }
    let asked = words.split_first().and_then(|(name, rest)| Some((suite(name)?, options(rest)?)));
    let Some((suite, options)) = asked else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let counts = suite::run(&*suite, &options).unwrap_or_else(|why| {
        println!("{}: FAILED: {why}", suite.name());
        Counts { passed: 0, failed: 1 }
    });
    println!("{} passed, {} failed", counts.passed, counts.failed);
    ExitCode::from(u8::from(counts.failed > 0))
}
