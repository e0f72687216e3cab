//! Conquest: stores, and the files in them, for programs.
//!
//! A *store* is a directory that holds `store.toml` and `core`. Every process that attaches it maps
//! the core and works on it directly; there is no server.
//!
//! ```no_run
//! use std::io::Write;
//! use std::path::Path;
//! use conquest::{Attach, NewStore, Store};
//!
//! fn main() -> std::io::Result<()> {
//!     Store::make(Path::new("store"), &NewStore::default())?;
//!     let store = Store::attach(Path::new("store"), &Attach::default())?;
//!     let files = store.files()?;
//!     files.create_dir("/notes")?;
//!     writeln!(files.create("/notes/first")?, "kept in memory")?;
//!     for entry in files.read_dir("/notes")? {
//!         println!("{}", entry?.file_name().display());
//!     }
//!     Ok(store.detach()?)
//! }
//! ```
//!
//! Invariants, each argued in its module:
//! - a store has one live core, and `store.toml` says which: any other one is refused;
//! - whatever replaces something is complete under another name before it gets the right one, so a
//!   death at any moment leaves the old one or the new one;
//! - nobody who died keeps others out: all locks are the kernel's, and end with their holders;
//! - nothing that was read is believed before it was checked.

#![forbid(unsafe_code)]

pub mod copy;
mod error;
mod files;
mod id;
mod machine;
mod name;
pub mod quote;
pub mod rescue;
pub mod store;
mod user_namespace;

pub use conquest_access::{
    Access, Acl, AclKind, Capabilities, Capability, Entry as AclEntry, Errno, Qualifier, Removal,
    flag,
};
pub use conquest_fs::attributes::{SetTime, Stat};
pub use conquest_fs::dir::FileType;
pub use conquest_fs::locks::{Conflict, Mode as LockMode, Owner as LockOwner, Wait};
pub use conquest_fs::names::{LISTED_MAX, Listed, Listing, New, Renaming};
pub use conquest_fs::open::BUFFERS_MAX;
pub use conquest_fs::open::share::Status;
pub use conquest_fs::placement::{Form, Placed, Stays, THRESHOLD};
pub use conquest_fs::walk::Last;
pub use conquest_fs::xattr::Setting;
pub use conquest_fs::{FileId, Statfs};
pub use conquest_pm::Holder;
pub use conquest_pm::persist::WriteBack;
pub use copy::{RestoreOptions, Restored, SaveOptions, Saved, restore, save};
pub use error::{Error, Result};
pub use files::{
    Credentials, Dir, DirEntry, Done, Entries, File, FileError, Files, Metadata, Node, OpenOptions,
    Operation, Parcel, ReadDir, Resolve,
};
pub use id::Id;
pub use name::Name;
pub use rescue::{LargeFile, RescueOptions, Rescued, rescue};
pub use store::attached::Attached;
pub use store::info::{Info, Survives, Usage, VolumeStands};
pub use store::keeper::{Program as KeeperProgram, keep, keeper_of};
pub use store::new::{CorePlace, Medium, NewStore, Placement, Preset, VolumePlace};
pub use store::sync_mode::SyncMode;
pub use store::{Attach, Store};
pub use user_namespace::OwnNamespace;

/// The file system of an attached store.
pub type Fs = conquest_fs::FileSystem<conquest_pm::media::Mapped, conquest_pm::media::OsHost>;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
