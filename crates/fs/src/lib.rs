//! The file system in the core: objects on a persistent memory region that many processes share.
//!
//! Invariants, each argued in its module:
//! - nothing here stores into the region but through a transaction of `conquest-pm`, so every
//!   change happens as a whole or not at all, whoever dies;
//! - nothing is followed before it is resolved: a damaged region gives errors that name a place,
//!   never a panic, an endless loop or an access out of bounds (Conquest 2002, 3.5);
//! - readers take no lock, make no system call and allocate nothing; what they see may be torn and
//!   counts only once the version of the lock that guards it has been looked at again;
//! - locks are taken in the order of their numbers, each once: first that of [moves](names), then
//!   those of inodes, last that of the lists of chunks. An operation begins no second transaction
//!   while it has one.

#![forbid(unsafe_code)]

pub mod attributes;
mod buffer;
pub mod check;
pub mod content;
pub mod dir;
mod error;
mod extended;
pub mod feed;
mod file_system;
mod inode;
pub mod large;
pub mod locks;
pub mod names;
pub mod open;
pub mod paths;
pub mod placement;
mod reader;
mod statfs;
mod time;
pub mod walk;
pub mod xattr;

pub use conquest_access::{Credentials, Errno};
pub use error::{Error, Result, VolumeError};
pub use file_system::{AfterEach, Clock, FileSystem, LOCKS_MIN, NewFileSystem, finish_intent};
pub use inode::FileId;
pub use reader::Reader;
pub use statfs::Statfs;
