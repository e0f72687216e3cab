//! A transport for the kernel's FUSE protocol: what a file system in user space needs to be asked
//! by the kernel and to answer.
//!
//! The crate knows nothing of what is served. [`wire`] has the protocol's words, as pure functions
//! from bytes to values and back. [`mount()`] gives a device, on which a [`Session`] lets a
//! [`Handler`] answer, each request by a [`Reply`]; a [`Notifier`] tells the kernel what it has not
//! asked for, and a [`Stopper`] ends it all.
//!
//! Invariants, each argued in its module:
//! - every request that takes a reply gets one, whatever the handler does;
//! - an interruption reaches a reply that is kept, whichever of the two comes first;
//! - a reply takes no memory from the heap;
//! - nothing of one request, not even a panic, ends another one or the session.

mod buffer;
mod channel;
mod connection;
mod device;
mod error;
mod fusermount;
mod handler;
mod incident;
mod interrupts;
mod mount;
pub mod mounts;
mod notifier;
mod options;
mod pool;
mod reply;
mod session;
mod stopper;
mod sys;
pub mod wire;
mod workers;

pub use channel::Report;
pub use connection::Connection;
pub use device::Device;
pub use error::{Error, Remedy, Result};
pub use handler::Handler;
pub use incident::Incident;
pub use mount::{Mounted, mount, unmount};
pub use notifier::Notifier;
pub use options::{AccessTimes, MountOptions, Root};
pub use reply::Reply;
/// Error numbers, as system calls give them.
pub use rustix::io::Errno;
pub use session::{Session, SessionOptions};
pub use stopper::{Stopped, Stopper};
pub use wire::{InitFlags, Notice, Offer, Operation, Request, Settings};
