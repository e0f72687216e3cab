//! A directory for a demonstration, which is gone at the end, however it ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use conquest::Store;

use crate::reason::Result;

/// Longest wait for who still has the store.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where temporary files outlive a restart, by the standard of hierarchies.
const LASTING: &str = "/var/tmp";
/// The type of file systems in memory, of statfs(2).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A directory of its own, with a store in it.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// A new one in the system's directory for temporary files; in the one whose files outlive a
    /// restart, if the other one is in memory.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new() -> Result<Scratch> {
        let parent = std::env::temp_dir();
        let is_in_memory = rustix::fs::statfs(&parent).is_ok_and(|found| found.f_type == TMPFS);
        let lasting = Path::new(LASTING);
        let other = Some(lasting).filter(|path| is_in_memory && path.is_dir());
        other.map_or_else(|| Scratch::below(&parent), Scratch::below)
    }

    fn below(parent: &Path) -> Result<Scratch> {
        for number in 0..1000 {
            let path = parent.join(format!("conquest-demo-{}-{number}", std::process::id()));
            let made = rustix::fs::mkdir(&path, rustix::fs::Mode::from_raw_mode(0o700));
            match made {
                Err(rustix::io::Errno::EXIST) => {}
                made => {
                    made?;
                    return Ok(Scratch(path));
                }
            }
        }
        Err(rustix::io::Errno::EXIST.into())
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Where the store's core is, which may be elsewhere.
    pub(super) fn core(&self) -> PathBuf {
        let core = self.0.join("store/core");
        std::fs::canonicalize(&core).unwrap_or(core)
    }

    /// Removes all of it.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn remove(self) -> Result<()> {
        self.clear()?;
        Ok(())
    }

    fn clear(&self) -> std::io::Result<()> {
        // A store that is not complete, or whose files are gone in part, is removed by hand.
        let _destroyed = Store::destroy(&self.0.join("store"), PATIENCE);
        let core = self.core();
        if core.exists() && !core.starts_with(&self.0) {
            std::fs::remove_file(core)?;
        }
        std::fs::remove_dir_all(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.exists() {
            let core = self.core();
            if let Err(error) = self.clear() {
                let words = crate::reason::words(&error);
                let path = crate::place::host_label(&self.0);
                let core = crate::place::host_label(&core);
                eprintln!("conquest: demo: {path}: {words} (remove it, and {core}, by hand)");
            }
        }
    }
}
