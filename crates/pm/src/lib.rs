//! A persistent memory region that many processes share and any of them may die in.
//!
//! Everything Conquest keeps in its core stands on this crate: a mapped region with page and slab
//! managers, journal lanes, locks and process slots *inside* it, used by several processes at once,
//! consistent after a power failure and after `kill -9` at any instruction (Conquest 2002, 3.4 and
//! 3.5; SIMFS 4.1 and 4.2).
//!
//! Invariants, each argued in its module:
//! - every store into the region goes through [`memory::Memory`], which also states the crash
//!   model;
//! - a change of the persistent part is a journal record ([`tx`]), or one word that only grows;
//! - nothing points to an object before the object is durable; nothing is visible on persistent
//!   media before it is durable;
//! - no word or allocation bit is ever applied by two parties: a record is retired before any lock
//!   or busy bit over what it changes is let go, and nobody touches a lane whose owner lives;
//! - death is concluded from the kernel only ([`host`]);
//! - volatile words carry the attach generation's tag and need no clearing.

#![deny(unsafe_code)]

mod aside;
pub mod attach;
mod bits;
mod busy;
pub mod check;
pub mod core;
pub mod counting;
pub mod error;
mod feed;
mod grow;
pub mod holdings;
pub mod host;
mod image;
pub mod intent;
mod journal;
mod lane;
mod lock;
pub mod log;
#[expect(unsafe_code, reason = "mapped memory and system calls: the only unsafe modules")]
pub mod media;
pub mod memory;
mod object;
mod pages;
#[expect(unsafe_code, reason = "cache line instructions")]
pub mod persist;
mod read;
mod recover;
mod region;
mod slab;
mod staged;
pub mod superblock;
mod thread;
pub mod tx;
mod wait;

pub use crate::core::{Core, Holder, Options};
pub use error::{Error, Result};
pub use feed::{Batch, BatchWords, Follower, Heard};
pub use holdings::{Held, Holding, LASTING, Parcel, Remains};
pub use image::OVERWRITE_ENTRIES;
pub use lock::Mode;
pub use object::{Object, Place, Ptr};
pub use pages::FreshRun;
pub use read::{Stamp, View};
pub use region::{Access, CountedRegion, Region, load_held};
pub use slab::{Fresh, Untyped};
pub use tx::{Staged, Tx};
