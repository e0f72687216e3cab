//! The directory that something is rescued to, of which nothing is left if that fails.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::failed;
use crate::store::directory;
use crate::store::lock::absolute;
use crate::{Error, Result};

/// Refuses `to` unless it is not there, or is an empty directory: whether it is there.
pub(super) fn check(to: &Path) -> Result<bool> {
    let mut entries = match std::fs::read_dir(to) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_there(to) => {
            return Ok(false);
        }
        Err(error) => return Err(failed(to, "list it")(error)),
    };
    match entries.next() {
        None => Ok(true),
        Some(Ok(entry)) => {
            let name = entry.file_name().to_string_lossy().into_owned();
            Err(Error::NotEmptyDirectory { directory: to.to_owned(), name })
        }
        Some(Err(error)) => Err(failed(to, "list it")(error)),
    }
}

/// Whether anything has the name, as a link that leads nowhere.
fn is_there(to: &Path) -> bool {
    std::fs::symlink_metadata(to).is_ok()
}

/// A directory, and what was made in it, which is removed again unless it is kept.
#[derive(Debug)]
pub(super) struct Target {
    /// Its name, from the root.
    directory: PathBuf,
    is_new: bool,
    /// What was made, or is about to be.
    made: Vec<PathBuf>,
}

impl Target {
    /// The directory `to`, which is made if it is not there, for nobody else to look into.
    pub(super) fn make(to: &Path) -> Result<Target> {
        let is_new = !check(to)?;
        if is_new {
            let made = DirBuilder::new().mode(0o700).create(to);
            made.map_err(failed(to, "make the directory"))?;
        }
        Ok(Target { directory: absolute(to), is_new, made: Vec::new() })
    }

    /// Its name.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// `path` is about to be made, which is not there: to be removed if this comes to nothing.
    pub(super) fn will_make(&mut self, path: &Path) {
        self.made.push(path.to_owned());
    }

    /// All is there: makes the names durable, and keeps it.
    pub(super) fn keep(mut self) -> Result<()> {
        directory::sync(&self.directory)?;
        if self.is_new {
            directory::sync(directory::parent(&self.directory))?;
        }
        (self.is_new, self.made) = (false, Vec::new());
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        while let Some(path) = self.made.pop() {
            // The error to report is another one.
            let _removed = directory::remove(&path);
        }
        if self.is_new {
            let _removed = std::fs::remove_dir(&self.directory);
        }
    }
}
