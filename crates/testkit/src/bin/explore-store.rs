//! Explores what power cuts leave of small stores with a volume.

use std::process::ExitCode;

use conquest_testkit::cuts::{self, Program};
use conquest_testkit::store::explore::{explore, replay};

fn main() -> ExitCode {
    cuts::main(&Program { name: "explore-store", cuts: 20_000, slice: 6000, explore, replay })
}
