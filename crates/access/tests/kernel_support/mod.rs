//! What the comparison with the kernel consists of: random files and random operations on them.
// Helpers fail as tests do.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic)]

pub mod operation;
pub mod predict;
pub mod world;
