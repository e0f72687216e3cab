//! Destroying a store: its core, which takes memory as long as it is there, and its directory.

use std::path::Path;
use std::time::Duration;

use super::attach::is_store;
use super::directory::{self, KEEPER, LOCK};
use super::lock::{StoreLock, absolute};
use super::settings::Settings;
use super::{Store, live, make, switch};
use crate::{Error, Result};

impl Store {
    /// Destroys the store in `directory`, which nobody may have attached: the core, and what makes
    /// the directory a store; the directory itself, if nothing else is in it. Waits up to
    /// `patience` for others. A core that is not the store's live one is left alone, and an error.
    ///
    /// Interrupted, it can be called again.
    ///
    /// # Errors
    /// [`Error::Attached`]; [`Error::NotAStore`]; what is wrong with the store: a copy of another
    /// store's directory does not destroy that one's core.
    pub fn destroy(directory: &Path, patience: Duration) -> Result<()> {
        is_store(directory)?;
        let directory = absolute(directory);
        let lock = StoreLock::take(&directory, "destroying it", patience)?;
        let mut settings = Settings::read(&directory)?;
        live::home(&directory, &settings)?;
        switch::settle(&directory, &mut settings)?;
        match live::find(&directory, &settings, false) {
            // What is gone need not be removed.
            Ok(_) | Err(Error::CoreLost { .. } | Error::CoreGone { .. }) => {}
            Err(error) => return Err(error),
        }
        make::clear_store(&directory)?;
        make::clear_unfinished(&directory)?;
        directory::remove(&directory.join(KEEPER))?;
        directory::remove(&directory.join(LOCK))?;
        drop(lock);
        // Unless there is something else in it, which is not the store's.
        let _left = std::fs::remove_dir(&directory);
        Ok(())
    }
}
