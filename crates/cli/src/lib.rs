//! The program `conquest`: makes stores, works on the files in them, and brings trees of files in
//! and out.
//!
//! Invariants:
//! - what a command was asked for goes to standard output, everything else to standard error;
//! - exit codes are those of the common tool of the same name: 0 for success, 1 if something could
//!   not be done, 2 for wrong usage;
//! - a store is attached once by a process, whatever a command line names in it.

#![forbid(unsafe_code)]

mod args;
mod clock;
mod commands;
mod copy;
mod json;
mod log;
mod mount;
mod names;
mod output;
mod people;
mod place;
mod progress;

mod reason;
mod report;
mod rng;
mod session;
mod size;
mod stop;
mod tree;
mod who;

use std::process::ExitCode;

/// Runs the program, with the arguments of the process: its exit code.
#[must_use]
pub fn run() -> ExitCode {
    args::run()
}
