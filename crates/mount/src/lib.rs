//! The front end for `/dev/fuse`: a store as an ordinary directory for every program.
//!
//! It translates requests of the kernel to operations of the file system, and nothing more. The
//! process is one among those that use the core: what it keeps for itself is what the kernel has in
//! mind (which files it knows, which it has open), and goes with the mount.
//!
//! Invariants:
//! - whether somebody may do something was decided by the kernel (`default_permissions`), which
//!   knows more of the caller than a request tells; flags of files are looked at by the file
//!   system;
//! - no open file takes a descriptor of the host;
//! - nobody who waits for a lock occupies a thread;
//! - what the kernel was told of is counted before it is told, because it forgets by counts.

mod caller;
mod content;
mod controls;
mod directories;
mod dispatch;
mod extended;
mod handles;
mod locks;
mod names;
mod nodes;
mod queue;
mod records;
mod server;
mod stat;
mod trust;

pub use server::{Event, Options, Reporter, Server};
pub use trust::{Stranger, stranger};
