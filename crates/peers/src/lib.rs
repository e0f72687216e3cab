//! What tests need of the kernel: its file systems to compare with, its system calls as functions,
//! forked children, and memory that is not there.
//!
//! Invariants:
//! - a file system is mounted in a namespace of its own, by a process of its own, and goes with it;
//! - what the machine lacks is said, and fails the test.
// Helpers of tests: they fail as tests do, and their names say what they do.
#![allow(clippy::unwrap_used, clippy::panic)]

pub mod child;
pub mod fault;
pub mod handles;
pub mod machine;
pub mod mapping;
pub mod mounts;
pub mod process;
pub mod sys;
