//! A sparse space of 2^64 blocks on files and block devices, that a power cut can't hurt.
//!
//! Writing allocates, trimming gives back, what was never written reads as zeros; several writes
//! can be one that happens as a whole (DFS 3.2). Any process that may open the devices works on
//! them directly, several at once, and any of them may die at any instruction. `docs/FLASH.md` says
//! how.

#![forbid(unsafe_code)]

mod ahead;
mod alike;
mod apply;
mod beside;
mod both;
mod buffers;
mod build;
mod cache;
mod change;
mod check;
mod checkpoint;
mod clean;
mod copies;
pub mod device;
mod durable;
mod error;
mod free;
mod fua;
mod index;
mod info;
mod keep;
mod kept;
pub mod kinds;
mod large;
mod layout;
mod leaves;
mod looked;
pub mod map;
mod members;
mod mirror;
mod names;
mod naming;
mod newest;
mod open;
mod operations;
mod order;
mod pieces;
mod publish;
mod queue;
mod ranges;
mod reads;
mod recover;
mod relocate;
mod reserve;
mod restore;
mod roots;
mod seen;
mod segments;
mod sequential;
mod slots;
mod stand_in;
mod stream;
mod survey;
mod transfer;
mod trims;
mod turn;
mod under_way;
mod verify;
mod volume;
mod writer;
mod writes;
mod zeros;

pub use cache::CACHE_MAX;
pub use check::Finding;
pub use error::{Error, Result};
pub use info::{Identity, Info, Member, Segments, Stream, Usage, Wear, Written};
pub use members::{Body, NewVolume, assemble, assemble_degraded, create};
pub use open::{OpenOptions, Through, create_at, open_device, replace_at};
pub use operations::{ATOMIC_MAX, RANGES_MAX};
pub use queue::{Completion, Job, Queue, Request};
pub use seen::Seen;
pub use verify::{Damage, Verified, Verifying};
pub use volume::Volume;
