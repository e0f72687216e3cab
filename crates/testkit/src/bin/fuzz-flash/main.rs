//! Corrupts volumes, as media do and with right checksums, and uses them all the same. Whatever
//! happens must be a success or an error: no panic, nothing endless, and nothing that was never
//! written.
//!
//! `--replay SEED:CASE` runs one case again.

mod base;
mod case;
mod corrupt;
#[path = "../fuzz/mod.rs"]
mod fuzz;

use std::process::ExitCode;

use case::Bases;

fn main() -> ExitCode {
    fuzz::run("fuzz-flash", |seed| {
        let bases = Bases::new(seed)?;
        Ok(move |number, counts: &mut fuzz::Counts| bases.run(number, counts))
    })
}
