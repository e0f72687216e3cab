//! A directory that is there: the experiment works in a new one in it.

use std::path::{Path, PathBuf};

use super::{Survives, Target};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::{Error, Result};

/// It.
pub(super) struct Directory {
    above: PathBuf,
    own: PathBuf,
}

/// Refuses to put `bytes` into `directory` that it has no space for.
pub(super) fn has_space(directory: &Path, bytes: u64) -> Result<()> {
    let name = directory.display().to_string();
    let space = rustix::fs::statvfs(directory);
    let space = space.map_err(|error| Error::system(&name)(error.into()))?;
    let available = space.f_bavail.saturating_mul(space.f_frsize);
    if available < bytes {
        return Err(Error::Target {
            target: name,
            reason: format!(
                "{} MiB are needed and {} MiB available (make the experiment smaller: --set)",
                bytes >> 20,
                available >> 20
            ),
        });
    }
    Ok(())
}

impl Directory {
    /// In the directory `above`.
    pub(super) fn new(above: &Path) -> Directory {
        let own = above.join(format!("conquest-bench-{}", std::process::id()));
        Directory { above: above.to_owned(), own }
    }
}

impl Target for Directory {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        let named = |path: &Path| Error::system(&path.display().to_string());
        has_space(&self.above, need.bytes)?;
        std::fs::create_dir(&self.own).map_err(named(&self.own))?;
        super::store::give(&self.own, owner)
    }

    fn answering(&self) -> Answering {
        Answering::Directory { path: self.own.clone() }
    }

    fn options(&self) -> Vec<String> {
        let found = rustix::fs::statfs(&self.above).map(|found| found.f_type);
        vec![format!("file system of type {:#x}", found.unwrap_or(0))]
    }

    fn survives(&self) -> Survives {
        // tmpfs and ramfs.
        const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
        let found = rustix::fs::statfs(&self.above).map(|found| found.f_type);
        match found {
            Ok(kind) if IN_MEMORY.contains(&kind) => Survives::Process,
            _ => Survives::PowerAfterSync,
        }
    }

    fn remove(&mut self) -> Result<()> {
        match std::fs::remove_dir_all(&self.own) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(Error::system(&self.own.display().to_string())),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What could be said of it was said before.
        let _ = self.remove();
    }
}
