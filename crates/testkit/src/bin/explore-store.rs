//! Explores what power cuts leave of small stores with a volume.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use conquest_testkit::flash::explore::Way;
use conquest_testkit::store::explore::{Tally, explore, replay};

const USAGE: &str = "\
usage: explore-store [--cuts N] [--states N] [--seed S] [--slice] [--each N] [--jobs N]
                     [--replay WAY]

--states ends it after so many states, whatever the cuts; --slice is --cuts 6000; --each looks at
one in so many cuts.";

/// Cuts after which it is told how far it has come.
const TOLD: usize = 2500;

struct Options {
    cuts: usize,
    states: usize,
    seed: u64,
    each: u64,
    jobs: usize,
    way: Option<Way>,
}

fn options() -> Option<Options> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options =
        Options { cuts: 20_000, states: usize::MAX, seed: 1, each: 1, jobs, way: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--slice" {
            options.cuts = 6000;
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

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match &options.way {
        Some(way) => match replay(way, |line| println!("{line}")) {
            Ok(()) => {
                println!("1 passed, 0 failed");
                ExitCode::SUCCESS
            }
            Err(what) => {
                println!("FAILED {what}\n0 passed, 1 failed");
                ExitCode::FAILURE
            }
        },
        None => explore_all(&options),
    }
}

/// Goes through scenarios until there were so many cuts, several at once.
fn explore_all(options: &Options) -> ExitCode {
    let begin = Instant::now();
    let next = AtomicU64::new(options.seed);
    let total = Mutex::new(Tally::default());
    let lock = || total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let is_over = {
                        let total = lock();
                        total.cuts >= options.cuts
                            || total.states >= options.states
                            || total.failed >= 20
                    };
                    if is_over {
                        return;
                    }
                    let tally = explore(next.fetch_add(1, Ordering::Relaxed), options.each);
                    for failure in &tally.failures {
                        println!("FAILED {failure}");
                    }
                    let mut total = lock();
                    let before = total.cuts / TOLD;
                    *total += tally;
                    if total.cuts / TOLD > before {
                        let seconds = begin.elapsed().as_secs();
                        println!("{} cuts, {} states, {seconds} s", total.cuts, total.states);
                    }
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.elapsed = begin.elapsed();
    println!("{total}");
    ExitCode::from(u8::from(total.failed > 0))
}
