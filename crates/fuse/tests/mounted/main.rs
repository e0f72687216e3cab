//! A file system in memory, really mounted, in a mount namespace of its own.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod memory;
mod place;
mod root;
mod users;
