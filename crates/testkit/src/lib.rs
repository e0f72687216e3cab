//! What the tests of Conquest run on: simulated memory, hosts, schedules and crashes.
//!
//! - [`Image`]: a sparse copy-on-write region image.
//! - [`RecordingMemory`]: a `Memory` over an image that keeps a totally ordered log of every store.
//! - [`schedule`]: deterministic interleavings of several threads on one memory.
//! - [`mod@explore`]: every image that a crash may leave of a log, each recovered and checked.
//! - [`SimHost`]: processes, claims, space and time without an operating system.
//! - [`shelf`]: a structure on the region that uses all of it, and can tell half-done operations.
//! - [`files`]: operations on a small tree of files, and what a tree is.
//! - [`judge`]: the offline checker, asked about all of them.
//! - [`scenario`]: recorded runs of a shelf and the oracle for their crashes.
//! - [`cuts`]: what explorers of power cuts have in common.
//! - [`flash`]: volumes, and what power cuts leave of them.
//! - [`store`]: stores with a logged core and large files, and what power cuts leave of those.
//! - [`DyingMemory`]: any memory, with an accident before its n-th store.
//! - [`WatchedMemory`]: a memory of which each look is seen.
//!
//! Invariants:
//! - the crash model is that of `conquest_pm::memory` and is implemented in one place here,
//!   [`inflight`];
//! - everything is a function of a seed: the same recording, options and seed give the same states,
//!   failures and replay strings, however many threads work;
//! - memories simulated here are sequentially consistent, so orderings too weak for real hardware
//!   are not found, except under schedules that ask for weak memory.

#![forbid(unsafe_code)]

mod baton;
mod clock;
mod crash_point;
pub mod cuts;
mod dying;
pub mod explore;
pub mod files;
pub mod flash;
mod image;
pub mod inflight;
pub mod judge;
mod log;
mod options;
mod plan;
mod recorder;
mod replay;
mod rng;
pub mod scenario;
pub mod schedule;
pub mod shelf;
mod sim_host;
pub mod stop;
pub mod store;
mod summary;
mod thread;
mod watched_memory;
mod weak;
mod worker;

pub use clock::Clock;
pub use crash_point::{CrashPoint, Failure, Junk};
pub use dying::{Died, DyingMemory, Fate};
pub use explore::{explore, replay};
pub use image::Image;
pub use log::{Event, Kind, Mark, Recording};
pub use options::Options;
pub use recorder::{Actor, RecordingMemory};
pub use rng::Rng;
pub use sim_host::{SimClaim, SimHost, World};
pub use summary::Summary;
pub use thread::{become_actor, current_actor};
pub use watched_memory::{Look, WatchedMemory};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after somebody panicked: what these locks guard is consistent at every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
