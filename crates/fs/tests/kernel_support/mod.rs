//! What the comparison with the kernel consists of.
// Helpers fail as tests do.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic)]

pub mod caller;
pub mod handles;
pub mod operation;
pub mod sides;
pub mod tree;
