//! On-media layouts of a Conquest store.
//!
//! This crate is the only place where a size, an offset or a bit position of the core's region, or
//! of what stands on the devices of a volume, is written down. It does no I/O and has no logic
//! beyond packing, unpacking and checking, so that a checker can use it without trusting the
//! engine. `docs/FORMAT.md` says the same things in prose and tables; a test compares the two.
//!
//! Invariants:
//! - every multi-byte value is little-endian and every word that changes after `mkfs` is an aligned
//!   8-byte word;
//! - an [`Offset`] is a number of bytes from the start of the region and means the same on every
//!   machine that maps it (Conquest 2002, 3.6);
//! - a value read from a region is untrusted until one of the checks here has accepted it.

#![forbid(unsafe_code)]

mod check;
pub mod descriptor;
pub mod feed;
pub mod fs;
pub mod geometry;
pub mod image;
pub mod inode;
pub mod journal;
pub mod kind;
pub mod label;
pub mod log;
pub mod mark;
mod offset;
pub mod pointer;
pub mod residency;
pub mod saved;
pub mod superblock;
pub mod volatile;
pub mod volume;

pub use check::{Checksum, check16, checksum};
pub use geometry::Geometry;
pub use offset::Offset;

/// Bytes in a word, the unit of atomic change.
pub const WORD: u64 = 8;
/// Bytes in a cache line, the unit of write-back.
pub const LINE: u64 = 64;
/// Bytes in a page, the unit of the page manager.
pub const PAGE: u64 = 4096;
/// Pages in a group: the unit of growth and of exclusive allocation, one huge page.
pub const GROUP_PAGES: u64 = 512;
/// Bytes in a group.
pub const GROUP: u64 = PAGE * GROUP_PAGES;
