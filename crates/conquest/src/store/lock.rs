//! The lock under which something is done with a store as a whole: making, attaching, saving,
//! restoring it, and every change of `store.toml`.
//!
//! It is a lock of the kernel on an open file, so it ends with its holder, however that ends. What
//! stands in the file is for messages only.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::directory::{LOCK, SETTINGS};
use crate::error::failed;
use crate::{Error, Result};

/// Sleep between two tries.
const NAP: Duration = Duration::from_millis(2);
/// Most bytes of the file that are shown.
const TEXT_MAX: u64 = 100;

/// The lock of a store, held until dropped.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
}

impl StoreLock {
    /// Waits up to `patience` for the lock of the store in `directory`, to do `what`.
    pub(crate) fn take(directory: &Path, what: &str, patience: Duration) -> Result<StoreLock> {
        let path = directory.join(LOCK);
        let since = Instant::now();
        loop {
            let file = open(directory, &path)?;
            if try_lock(&path, &file)? && is_at(&file, &path) {
                let mut lock = StoreLock { file };
                lock.sign(what);
                return Ok(lock);
            }
            let waited = since.elapsed();
            if waited > patience {
                let directory = directory.to_owned();
                return Err(Error::Busy { directory, holder: holder(file), waited });
            }
            std::thread::sleep(NAP);
        }
    }

    /// Gives the lock's file the permissions and the owner of a new store.
    pub(crate) fn own(&self, directory: &Path, mode: u32, owner: Option<(u32, u32)>) -> Result<()> {
        super::directory::own(&directory.join(LOCK), &self.file, mode, owner)
    }

    /// Says in the file who has it. That this fails, as without the right to write, harms nobody.
    fn sign(&mut self, what: &str) {
        let text = format!("process {} ({what})\n", std::process::id());
        let _signed = self.file.set_len(0).and_then(|()| self.file.rewind());
        let _signed = self.file.write_all(text.as_bytes());
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Also for a child that was forked meanwhile and has the file open: it is one lock.
        let _unlocked = self.file.set_len(0);
        let _unlocked = self.file.unlock();
    }
}

/// Opens the lock's file, for writing if that is allowed. Made if it is missing and the directory
/// is a store's.
fn open(directory: &Path, path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let opened = match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mode = std::fs::metadata(directory.join(SETTINGS)).map_or(0o600, |s| s.mode());
            options.create(true).mode(mode & 0o777).open(path)
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EROFS)) => {
            options.write(false).open(path)
        }
        result => result,
    };
    opened.map_err(failed(path, "open the store's lock"))
}

fn try_lock(path: &Path, file: &File) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Interrupted => {
            Ok(false)
        }
        Err(TryLockError::Error(error)) => Err(failed(path, "lock the store")(error)),
    }
}

/// Whether `path` still names `file`: who removes it must not let two have the lock.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |found: &std::fs::Metadata, named: &std::fs::Metadata| {
        (found.dev(), found.ino()) == (named.dev(), named.ino())
    };
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(found), Ok(named)) => same(&found, &named),
        _ => false,
    }
}

/// Who has the lock, as the file says.
fn holder(file: File) -> String {
    let mut bytes = Vec::new();
    let _read = file.take(TEXT_MAX).read_to_end(&mut bytes);
    let text: String = String::from_utf8_lossy(&bytes).lines().take(1).collect();
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    if text.is_empty() { "a process that did not say its name".to_owned() } else { text }
}

/// The absolute name of `directory`, as far as the system tells it.
pub(crate) fn absolute(directory: &Path) -> PathBuf {
    std::fs::canonicalize(directory)
        .or_else(|_| std::path::absolute(directory))
        .unwrap_or_else(|_| directory.to_owned())
}
