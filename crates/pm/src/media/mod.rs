//! The real machine below a region: what its file is, how it is mapped and kept, who lives.
//!
//! ```text
//! Source -- Medium --+-- Mapped   implements Memory: the bytes
//!                    +-- OsHost   implements Host: space, and the truth about processes
//! ```
//!
//! Everything unsafe of this crate is here and in [`crate::persist`]. What its safety arguments
//! share:
//!
//! - The region's memory is stored to by *other processes* at any time. It is therefore reached
//!   only by atomics on aligned words, or by instruction sequences that amount to them, and no
//!   reference to its bytes ever exists.
//! - The mapping is made once, at its full length, and stays until the value is dropped. Nobody
//!   but the guard in [`sigbus`](self) changes it, and that only replaces pages by other pages, so
//!   an address inside is always mapped. The guard also cuts a child off that was forked inside an
//!   operation, until that has returned and the child begins one of its own.
//! - A file that shrinks under its mapping, or memory that the machine finds poisoned, raises
//!   `SIGBUS`; the guard puts zeros there and marks the region failed, so the access completes.
//!
//! Not protected against: a program that unmaps memory it did not map, that replaces the `SIGBUS`
//! handler after the first attach without calling the one it found, or that makes children by
//! `vfork`, `clone(CLONE_VM)` or system calls of its own, past the functions that run around
//! `fork`, and operates in them.

mod claim;
mod copy;
mod descriptor;
mod devdax;
mod fork;
mod futex;
mod host;
mod huge;
mod identity;
mod kind;
mod mapped;
mod medium;
mod mounts;
mod process;
mod process_lock;
mod residency;
mod shield;
mod sigbus;
mod signals;
mod source;
mod space;
mod swap;
mod sys;
mod window;
mod words;

pub use claim::{Carried, Claim};
pub use host::OsHost;
pub use huge::HugePages;
pub use kind::MediumKind;
pub use mapped::{MapOptions, Mapped};
pub use medium::{Medium, Shrink};
pub use residency::{Fill, FillError, LoadFrom, Progress, Step};
pub use source::Source;
pub use swap::Swap;
