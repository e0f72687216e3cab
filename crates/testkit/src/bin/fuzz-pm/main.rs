//! Corrupts regions in every way that a medium, or a program that writes where it should not, may
//! do, and uses them all the same. Whatever happens must be a success or an error: no panic, no
//! access outside the region, nothing endless.
//!
//! `--replay SEED:CASE` runs one case again.

mod case;
mod corrupt;
#[path = "../fuzz/mod.rs"]
mod fuzz;
mod memory;
mod real;

use std::process::ExitCode;

use case::Bases;

/// One case in so many is on real memory.
const REAL: u64 = 400;

fn main() -> ExitCode {
    fuzz::run("fuzz-pm", |seed| {
        let bases = Bases::new(seed)?;
        Ok(move |number, counts: &mut fuzz::Counts| match number % REAL == REAL - 1 {
            true => real::run(seed, number, counts),
            false => bases.run(number, counts),
        })
    })
}
