//! A store, by the library in the processes that measure.

use std::path::{Path, PathBuf};

use conquest::{CorePlace, NewStore, Placement, Preset, Store};

use super::{Survives, Target, kernel};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::{Error, Result};

/// It.
pub(super) struct StoreTarget {
    directory: PathBuf,
    options: Vec<String>,
}

/// Gives the directory at `path` to `owner`.
///
/// # Errors
/// What the system says.
pub(super) fn give(path: &Path, owner: Option<(u32, u32)>) -> Result<()> {
    let Some((user, group)) = owner else {
        return Ok(());
    };
    std::os::unix::fs::chown(path, Some(user), Some(group))
        .map_err(Error::system(&path.display().to_string()))
}

/// The core of the store that [`make`] makes in `directory`.
pub(crate) fn core(directory: &Path) -> PathBuf {
    directory.join("core")
}

/// Bytes that a core has for `need`: also for inodes, names, trees, and slabs that are not full.
pub(super) fn room(need: Need) -> u64 {
    need.bytes + need.bytes / 4 + need.files * 1536 + (64 << 20)
}

/// Makes a store in the new directory `directory`, with its core beside it: what it was made with.
///
/// # Errors
/// Why it can't be made.
pub(crate) fn make(directory: &Path, need: Need, owner: Option<(u32, u32)>) -> Result<Vec<String>> {
    let bytes = room(need);
    kernel::available("conquest", bytes)?;
    let new = NewStore {
        core: CorePlace::Path(core(directory)),
        size_max: bytes,
        placement: Placement::of(Preset::Simfs),
        owner,
        root_mode: 0o777,
        volume: None,
        ..NewStore::default()
    };
    Store::make(directory, &new)
        .map_err(|error| Error::Target { target: "conquest".into(), reason: error.to_string() })?;
    Ok(vec![format!("a core of {} MiB on tmpfs", bytes >> 20)])
}

/// Removes it.
///
/// # Errors
/// Why it can't be removed.
pub(super) fn destroy(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(Error::system(&directory.display().to_string())),
    }
}

impl StoreTarget {
    /// In the empty directory `directory`, which goes with it.
    pub(super) fn new(directory: PathBuf) -> StoreTarget {
        StoreTarget { directory, options: Vec::new() }
    }
}

impl Target for StoreTarget {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        destroy(&self.directory)?;
        self.options = make(&self.directory, need, owner)?;
        Ok(())
    }

    fn answering(&self) -> Answering {
        Answering::Store { path: self.directory.clone() }
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn survives(&self) -> Survives {
        Survives::Process
    }

    fn remove(&mut self) -> Result<()> {
        destroy(&self.directory)
    }
}

impl Drop for StoreTarget {
    fn drop(&mut self) {
        // What could be said of it was said before.
        let _ = self.remove();
    }
}
