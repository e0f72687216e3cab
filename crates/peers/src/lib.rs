//! File systems of the kernel for tests to compare with, and its system calls as functions.
//!
//! Invariants:
//! - a file system is mounted in a namespace of its own, by a process of its own, and goes with it;
//! - what the machine lacks is said, and fails the test.
// Helpers of tests: they fail as tests do, and their names say what they do.
#![allow(clippy::unwrap_used, clippy::panic)]

pub mod machine;
pub mod process;
pub mod sys;
