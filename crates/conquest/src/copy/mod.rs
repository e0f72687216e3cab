//! Saved copies: a store's core, and what its volume has of large files, on a disk, and back.
//!
//! `docs/FORMAT.md` says what is in such a file. It is built as `NAME.partial` and gets its name
//! when it is complete and durable. Who is interrupted can go on where he was, as long as the store
//! has not changed since.

mod checked;
mod fill;
pub(crate) mod large;
mod plan;
mod reader;
mod restore;
mod save;
mod writer;

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;

use conquest_format::saved::Defect;

use crate::store::new::{CorePlace, Medium, VolumePlace};
use crate::store::sync_mode::SyncMode;
use crate::{Error, Id, Result};

pub use restore::restore;
pub use save::save;

/// Told of how far the work has come, in bytes: done, and in all. What it returns says whether to
/// go on.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// How to save a store.
#[derive(Default)]
pub struct SaveOptions<'p> {
    /// Replaces an older file of that name, once the new one is complete.
    pub force: bool,
    /// Told of how far the work has come.
    pub progress: Option<Progress<'p>>,
}

impl fmt::Debug for SaveOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveOptions").field("force", &self.force).finish_non_exhaustive()
    }
}

/// What was saved.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Saved {
    /// The file.
    pub file: PathBuf,
    /// Its bytes.
    pub len: u64,
    /// Bytes of the region in it.
    pub bytes: u64,
    /// Bytes of large files that were on the volume.
    pub large_bytes: u64,
    /// Of both, bytes that an interrupted call had saved before.
    pub resumed: u64,
    /// The store's identity.
    pub store: Id,
    /// The attach generation that was saved.
    pub attach_generation: u64,
}

/// How to restore a store.
#[derive(Default)]
pub struct RestoreOptions<'p> {
    /// Where the core is put; by default where it was, or as for a new store.
    pub core: CorePlace,
    /// What the core is kept on; by default what the copy's was, if that can be had there.
    pub medium: Medium,
    /// Where its volume is made; by default where that of the store is that is there, and for a
    /// store that is not there yet a file in its directory, as large as the volume that the saved
    /// store had, if it had one and the medium is not another one.
    pub volume: Option<VolumePlace>,
    /// Who waits until what he has done is durable on the volume; by default as it was.
    pub sync: Option<SyncMode>,
    /// Loses what is in the way: a core that has changed since the copy was saved, another store,
    /// a store that can't be read. Never one that somebody has attached.
    pub force: bool,
    /// Makes another store with the same files, instead of the same store again.
    pub new_identity: bool,
    /// User and group that own the files of a store that is not there yet; none for the caller.
    pub owner: Option<(u32, u32)>,
    /// Permissions of the files of a store that is not there yet; 0 for 0600.
    pub mode: u32,
    /// Told of how far the work has come: the copy is read twice.
    pub progress: Option<Progress<'p>>,
}

impl fmt::Debug for RestoreOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreOptions")
            .field("core", &self.core)
            .field("medium", &self.medium)
            .field("volume", &self.volume)
            .field("force", &self.force)
            .field("new_identity", &self.new_identity)
            .finish_non_exhaustive()
    }
}

/// What was restored.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Restored {
    /// The store's directory.
    pub directory: PathBuf,
    /// Its core.
    pub core: PathBuf,
    /// The devices of its volume; none if it has none.
    pub volume: Vec<PathBuf>,
    /// The store's identity.
    pub store: Id,
    /// Bytes of the region that were restored.
    pub bytes: u64,
    /// Bytes of large files that are on the volume.
    pub large_bytes: u64,
    /// Nanoseconds since 1970 at which the copy was saved.
    pub saved_at: u64,
    /// The attach generation that was saved.
    pub attach_generation: u64,
}

/// The state of somebody's progress.
pub(crate) struct Meter<'p> {
    told: Option<Progress<'p>>,
    done: u64,
    total: u64,
}

impl<'p> Meter<'p> {
    pub(crate) fn new(told: Option<Progress<'p>>, total: u64) -> Meter<'p> {
        Meter { told, done: 0, total }
    }

    /// Now `bytes` more are done.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<()> {
        self.done = self.done.saturating_add(bytes).min(self.total);
        let go_on = match &mut self.told {
            Some(told) => told(self.done, self.total),
            None => ControlFlow::Continue(()),
        };
        if go_on.is_break() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// The error for `defect` of the part of the copy `path` that begins at `offset`.
pub(crate) fn damaged(path: &std::path::Path, offset: u64, part: Part, defect: Defect) -> Error {
    let path = path.to_owned();
    let (at, what, expected, found) = match defect {
        Defect::Version(found) => {
            let known = conquest_format::saved::SAVED_VERSION;
            return Error::CopyVersion { path, found, known };
        }
        Defect::Magic => (0, part.beginning(), 1, 0),
        Defect::Checksum(expected, found) => (0, part.checksum(), expected, found),
        Defect::Field(what, at, expected, found) => (at, what, expected, found),
    };
    Error::CopyDamaged { path, offset: offset.saturating_add(at), what, expected, found }
}

/// A part of a saved copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Header,
    Chunk,
    Trailer,
}

impl Part {
    const fn beginning(self) -> &'static str {
        match self {
            Part::Header => "beginning of the header",
            Part::Chunk => "beginning of a chunk",
            Part::Trailer => "beginning of the trailer",
        }
    }

    const fn checksum(self) -> &'static str {
        match self {
            Part::Header => "checksum of the header",
            Part::Chunk => "checksum of a chunk",
            Part::Trailer => "checksum of the trailer",
        }
    }
}
