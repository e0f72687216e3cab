//! The program of an explorer of power cuts.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::tally::{FAILURES, Tally};
use super::way::Way;
use crate::lock;

/// Time after which it is told how far it has come.
const TOLD: Duration = Duration::from_secs(30);

/// Does what is done at the last cut of a way, and tells of it; what went wrong, as text.
pub type Replay = fn(&Way, &mut dyn FnMut(String)) -> Result<(), String>;

/// What a program explores.
pub struct Program {
    /// The program's name.
    pub name: &'static str,
    /// How many cuts it goes through if nothing else is asked for.
    pub cuts: usize,
    /// How many are a slice.
    pub slice: usize,
    /// Goes through one in so many cuts (the second number) of a scenario (the first one).
    pub explore: fn(u64, u64) -> Tally,
    /// Repeats one cut.
    pub replay: Replay,
}

struct Options {
    cuts: usize,
    states: usize,
    seed: u64,
    each: u64,
    jobs: usize,
    way: Option<Way>,
}

/// Does what the command line asks for.
#[must_use]
pub fn main(program: &Program) -> ExitCode {
    let Some(options) = options(program, std::env::args().skip(1)) else {
        let Program { name, slice, .. } = program;
        eprintln!(
            "usage: {name} [--cuts N] [--states N] [--seed S] [--slice] [--each N] [--jobs N] \
             [--replay WAY]\n\n\
             --states ends it after so many states, whatever the cuts; --slice is --cuts {slice}; \
             --each looks at\none in so many cuts."
        );
        return ExitCode::from(2);
    };
    match &options.way {
        Some(way) => match (program.replay)(way, &mut |line| println!("{line}")) {
            Ok(()) => {
                println!("1 passed, 0 failed");
                ExitCode::SUCCESS
            }
            Err(what) => {
                println!("FAILED {what}\n0 passed, 1 failed");
                ExitCode::FAILURE
            }
        },
        None => explore_all(program, &options),
    }
}

fn options(program: &Program, mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let cuts = program.cuts;
    let mut options = Options { cuts, states: usize::MAX, seed: 1, each: 1, jobs, way: None };
    while let Some(argument) = arguments.next() {
        if argument == "--slice" {
            options.cuts = program.slice;
            continue;
        }
        let value = arguments.next()?;
        let number = value.parse::<u64>().ok();
        match argument.as_str() {
            "--cuts" => options.cuts = number? as usize,
            "--states" => options.states = number? as usize,
            "--seed" => options.seed = number?,
            "--each" => options.each = number?.max(1),
            "--jobs" => options.jobs = number?.clamp(1, 64) as usize,
            "--replay" => options.way = Some(Way::parse(&value)?),
            _ => return None,
        }
    }
    Some(options)
}

/// Goes through scenarios until there were so many cuts, several at once.
fn explore_all(program: &Program, options: &Options) -> ExitCode {
    let begin = Instant::now();
    let next = AtomicU64::new(options.seed);
    let total = Mutex::new((Tally::default(), begin));
    let is_over = |total: &Tally| {
        total.cuts >= options.cuts || total.states >= options.states || total.failed >= FAILURES
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while !is_over(&lock(&total).0) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let tally = (program.explore)(seed, options.each);
                    for failure in &tally.failures {
                        println!("FAILED {failure}");
                    }
                    let (total, told) = &mut *lock(&total);
                    *total += tally;
                    if told.elapsed() > TOLD {
                        *told = Instant::now();
                        let seconds = begin.elapsed().as_secs();
                        println!("{} cuts, {} states, {seconds} s", total.cuts, total.states);
                    }
                }
            });
        }
    });
    let (mut total, _) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.elapsed = begin.elapsed();
    println!("{total}");
    ExitCode::from(u8::from(total.failed > 0))
}
