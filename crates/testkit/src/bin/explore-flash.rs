//! Explores what power cuts leave of small volumes of the flash layer.

use std::process::ExitCode;

use conquest_testkit::cuts::{self, Program};
use conquest_testkit::flash::explore::{explore, replay};

fn main() -> ExitCode {
    cuts::main(&Program { name: "explore-flash", cuts: 100_000, slice: 3000, explore, replay })
}
