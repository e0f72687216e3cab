//! Conquest: stores, and what is done with a store as a whole.
//!
//! A *store* is a directory that holds `store.toml` and `core`. Every process that attaches it maps
//! the core and works on it directly; there is no server.
//!
//! ```no_run
//! use std::path::Path;
//! use conquest::{Attach, NewStore, Store};
//!
//! # fn main() -> conquest::Result<()> {
//! Store::make(Path::new("store"), &NewStore::default())?;
//! let store = Store::attach(Path::new("store"), &Attach::default())?;
//! println!("{} bytes free", store.usage().free);
//! store.detach()
//! # }
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
mod id;
mod machine;
pub mod store;
mod user_namespace;

pub use conquest_access::Errno;
pub use copy::{RestoreOptions, Restored, SaveOptions, Saved, restore, save};
pub use error::{Error, Result};
pub use id::Id;
pub use store::attached::Attached;
pub use store::info::{Info, Survives, Usage};
pub use store::new::{CorePlace, Medium, NewStore, Placement, Preset};
pub use store::{Attach, Store};
pub use user_namespace::OwnNamespace;

/// The file system of an attached store.
pub type Fs = conquest_fs::FileSystem<conquest_pm::media::Mapped, conquest_pm::media::OsHost>;
