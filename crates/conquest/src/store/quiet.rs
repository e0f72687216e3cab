//! Stores with a volume that are to be looked at from outside.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conquest_pm::media::Fill;

use super::loading::may_lack;
use super::lock::{StoreLock, absolute};
use super::settings::Settings;
use super::volume::{self, Image};
use super::{Store, bring_back, live, region, switch};
use crate::Result;

impl Store {
    /// Sees to it that all of the core of the store in `directory` is there, and that its keeper
    /// has left. Waits up to `patience` for others. A store without a volume is left as it is,
    /// whatever is wrong with it, and so is one that others have attached.
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
        let image = bring_back::if_missing(&directory, &mut settings)?;
        whole(&directory, &settings, image, |found, fill| {
            // Whatever comes of it, nobody is held off any longer.
            region::hold(&found.path, patience, fill).map(drop)
        })
    }
}

/// Calls `hold` with the core of the store in `directory`, and what it can be loaded from if not
/// all of it is there: its `image`, if that is open already.
pub(crate) fn whole<T>(
    directory: &Path,
    settings: &Settings,
    image: Option<Arc<Image>>,
    hold: impl FnOnce(live::Found, Option<Arc<dyn Fill>>) -> Result<T>,
) -> Result<T> {
    let mut image = image;
    let work = || {
        let found = live::find(directory, settings, false)?;
        if image.is_none()
            && may_lack(&found.superblock)
            && let Some(at) = &settings.volume
        {
            image = Some(Arc::new(volume::open_image(directory, at)?));
        }
        let fill = image.as_ref().map(|image| -> Arc<dyn Fill> { Arc::<Image>::clone(image) });
        hold(found, fill)
    };
    let done = work();
    // The error to report is the first one; and what was read of it is right.
    let _closed = image.map(volume::close_image);
    done
}
