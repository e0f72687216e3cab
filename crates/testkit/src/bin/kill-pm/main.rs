//! Kills and stops real processes on a real region: before every store of every operation, during
//! recovery, and at random under load. Nothing acknowledged may be lost, nothing leaked, nothing
//! half done.

mod arena;
mod every_store;
mod process;
mod random;
mod tally;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut kills = 10_000;
    let mut seed = 1;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = arguments.next().and_then(|value| value.parse().ok());
        match (argument.as_str(), number) {
            ("--kills", Some(number)) => kills = number,
            ("--seed", Some(number)) => seed = number,
            _ => {
                eprintln!("usage: kill-pm [--kills N] [--seed S]");
                return ExitCode::from(2);
            }
        }
    }
    let mut tally = tally::Tally::default();
    // A slice looks at every store of an operation, but not at every pair of stores.
    let step = if kills >= 10_000 { 1 } else { 23 };
    every_store::death_at_every_store(&mut tally, 1);
    every_store::stop_at_every_store(&mut tally, 1);
    every_store::death_in_recovery(&mut tally, step);
    random::kill_at_random(&mut tally, kills, seed);
    ExitCode::from(u8::from(!tally.close()))
}
