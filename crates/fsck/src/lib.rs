//! The offline checker: finds every inconsistency of a store's region.
//!
//! It is written from `docs/FORMAT.md`, knows nothing of the engine and only reads, so that it
//! stays honest when the engine is wrong. What it finds is in `docs/FSCK.md`.
//!
//! Invariants:
//! - every byte read is untrusted: no value is used as an offset, an index or a length before it
//!   was compared with what there is;
//! - nothing is followed that could not be reached, so the work is bounded by the region's size,
//!   and no recursion or loop is as deep or long as damaged bytes say;
//! - memory is bounded by the region's size: about six bytes for each page of the present groups
//!   and 100 for each inode;
//! - records that have happened, but are not carried out, are taken as carried out, and what
//!   unfinished intents allow is no finding: a store that a crash left is as consistent as one at
//!   rest.

#![forbid(unsafe_code)]

mod access_list;
mod attributes;
mod bucket;
mod check;
mod chunks;
mod code;
mod content;
mod directory;
mod error;
mod inodes;
mod journal;
mod names;
mod options;
mod orphans;
mod overlay;
mod paths;
mod report;
mod space;
mod state;
mod superblock;
mod view;

pub use code::{Code, Severity};
pub use error::Error;
pub use options::Options;
pub use paths::PATH_MAX;
pub use report::{Counts, File, Finding, MOST_FINDINGS, Report};
pub use view::View;

/// Checks the region in `view`, which nobody changes meanwhile.
///
/// # Errors
/// If nothing can be checked: it is no region, or one of another version, or cut off, or both of
/// its superblock copies are damaged.
pub fn check<V: View + ?Sized>(view: &V, options: &Options<'_>) -> Result<Report, Error> {
    check::run(view, options)
}
