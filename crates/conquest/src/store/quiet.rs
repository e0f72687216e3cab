//! Stores with a volume that are to be looked at from outside.

use std::path::Path;
use std::time::Duration;

use super::lock::{StoreLock, absolute};
use super::settings::Settings;
use super::{Store, bring_back, live, region, switch};
use crate::Result;

impl Store {
    /// Sees to it that the core of the store in `directory` is there, and that its keeper has left.
    /// Waits up to `patience` for others. A store without a volume is left as it is, whatever is
    /// wrong with it, and so is one that others have attached.
    ///
    /// # Errors
    /// Why the core can't be brought back of the volume.
    pub fn quiet(directory: &Path, patience: Duration) -> Result<()> {
        let directory = absolute(directory);
        let has_volume = |settings: &Settings| settings.volume.is_some();
        if !Settings::read(&directory).is_ok_and(|settings| has_volume(&settings)) {
            return Ok(());
        }
        let _lock = StoreLock::take(&directory, "looking at it", patience)?;
        let mut settings = Settings::read(&directory)?;
        switch::settle(&directory, &mut settings)?;
        bring_back::if_missing(&directory, &mut settings)?;
        let found = live::find(&directory, &settings, false)?;
        // Whatever comes of it, nobody is held off any longer.
        drop(region::hold(&found.path, patience)?);
        Ok(())
    }
}
