//! A directory for a demonstration, which is gone at the end, however it ends.

use std::path::{Path, PathBuf};

use crate::reason::Result;

/// A directory of its own, with a store in it.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// A new one in the system's directory for temporary files.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new() -> Result<Scratch> {
        let parent = std::env::temp_dir();
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
        let core = self.core();
        if !core.starts_with(&self.0) {
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
