//! Corrupts regions in every way that a medium, or a program that writes where it should not, may
//! do, and uses them all the same. Whatever happens must be a success or an error: no panic, no
//! access outside the region, nothing endless.
//!
//! `--replay SEED:CASE` runs one case again.

mod case;
mod corrupt;
mod memory;
mod real;

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use case::{Bases, Counts};

/// One case in so many is on real memory.
const REAL: u64 = 400;
/// Longest time of one case.
const LIMIT: Duration = Duration::from_secs(60);
/// Failures that are described.
const DESCRIBED: usize = 20;
/// Bytes of memory for all of it.
const MEMORY: u64 = 4 << 30;

/// The case at work and since when.
static NOW: Mutex<Option<(u64, u64, Instant)>> = Mutex::new(None);

fn main() -> ExitCode {
    let mut seconds = 60;
    let mut seed = 1;
    let mut replay = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        let number = value.parse::<u64>().ok();
        match (argument.as_str(), number, value.split_once(':')) {
            ("--seconds", Some(number), _) => seconds = number,
            ("--seed", Some(number), _) => seed = number,
            ("--replay", _, Some((first, second))) => {
                replay = first.parse::<u64>().ok().zip(second.parse::<u64>().ok());
            }
            _ => {
                eprintln!("usage: fuzz-pm [--seconds N] [--seed S] [--replay SEED:CASE]");
                return ExitCode::from(2);
            }
        }
    }
    limit_memory();
    case::keep_panics();
    watch();
    let (from, count) = replay.map_or((0, u64::MAX), |(of, number)| {
        seed = of;
        (number, 1)
    });
    match fuzz(seed, from, count, Duration::from_secs(seconds)) {
        Ok(code) => code,
        Err(error) => {
            println!("FAILED {error}\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn fuzz(seed: u64, from: u64, count: u64, time: Duration) -> Result<ExitCode, String> {
    let begin = Instant::now();
    let bases = Bases::new(seed)?;
    let mut counts = Counts::new();
    let (mut passed, mut failures) = (0_u64, Vec::new());
    for number in (from..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        if begin.elapsed() > time || failures.len() > 200 {
            break;
        }
        note(Some((seed, number, Instant::now())));
        let result = if number % REAL == REAL - 1 {
            real::run(seed, number, &mut counts)
        } else {
            bases.run(number, &mut counts)
        };
        match result {
            Ok(()) => passed += 1,
            Err(error) => {
                if failures.len() < DESCRIBED {
                    println!("FAILED --replay {seed}:{number}: {error}");
                }
                failures.push(number);
            }
        }
    }
    note(None);
    for (outcome, count) in &counts {
        println!("{count:>9} {outcome}");
    }
    println!("{passed} passed, {} failed", failures.len());
    Ok(ExitCode::from(u8::from(!failures.is_empty())))
}

fn note(case: Option<(u64, u64, Instant)>) {
    if let Ok(mut now) = NOW.lock() {
        *now = case;
    }
}

/// Ends the program if one case takes too long.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = NOW.lock().map_or(None, |now| *now);
            if let Some((seed, number, since)) = now
                && since.elapsed() > LIMIT
            {
                println!("FAILED --replay {seed}:{number}: does not end\n0 passed, 1 failed");
                std::process::exit(1);
            }
        }
    });
}

/// An absurd allocation fails instead of taking the machine down.
fn limit_memory() {
    let limit = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
    // SAFETY: the structure is ours and outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
}
