//! What the comparison with the kernel consists of: system calls, a file system of its own, random
//! files, and random operations on them.
// Helpers fail as tests do.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic)]

pub mod machine;
pub mod operation;
pub mod predict;
pub mod sys;
pub mod world;
