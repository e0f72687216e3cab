//! Experiments that compare file systems, by the method of Conquest's companion paper.
//!
//! A *target* is what is measured: a directory, a file system of the kernel made on the spot, a
//! store by the library or mounted, or a floor. An *experiment* is a number of *phases*, each a
//! loop over the same [calls](calls::Calls) for every target. A *round* does an experiment once on
//! each target, in random order, each time on a new, empty target and in new processes; it gives
//! one *sample* for each phase and target. What is compared are the samples of one round, so that
//! what changes over time changes both.

#![forbid(unsafe_code)]

pub mod calls;
pub mod experiment;
pub mod guardian;
pub mod machine;
pub mod operation;
pub mod parameters;
pub mod process;
pub mod program;
pub mod random;
pub mod report;
pub mod results;
pub mod runner;
pub mod simulation;
pub mod statistics;
pub mod stopwatch;
pub mod target;
pub mod trace;
pub mod turns;
pub mod volume;
pub mod worker;

mod error;

pub use error::{Error, Result};
