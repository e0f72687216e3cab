//! Bringing a core back of its volume, after a restart of the machine.
//!
//! In order, under the store's lock: the core is built under a temporary name, with what its log
//! changes; `store.toml` names it as the one that is about to be live (`next`); it gets its name;
//! it is the live one. A death at any moment leaves nothing, or a core that can be attached, and
//! what is on the volume is as it was. The rest is loaded when it is used, and by the keeper.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::directory::{self, CORE, SETTINGS};
use super::identity::FileId;
use super::make::finish;
use super::new::{CorePlace, Medium, NewStore};
use super::place::{self, CoreFile};
use super::settings::{Live, Next, Settings, VolumeAt};
use super::volume::{self, Image};
use super::{default_place, live, region};
use crate::error::failed;
use crate::{Error, Id, Result, machine};

/// Brings the core of the store in `directory` back, if it is to come from the volume and there is
/// none: then this is its image, which is to be closed. `settings` say afterwards what
/// `store.toml` says.
pub(crate) fn if_missing(directory: &Path, settings: &mut Settings) -> Result<Option<Arc<Image>>> {
    if settings.medium != Medium::Logged {
        return Ok(None);
    }
    let Some(at) = settings.volume.clone() else {
        let what = "its core needs a volume, and store.toml names none; restore a saved copy";
        return Err(Error::VolumeRule { directory: directory.to_owned(), what });
    };
    let named = live::core_path(directory, settings);
    match std::fs::metadata(&named) {
        Ok(_) => Ok(None),
        Err(error) if super::settings::is_absent(&error) => {
            bring_back(directory, settings, &at).map(Some)
        }
        Err(error) => Err(failed(&named, "look at the core")(error)),
    }
}

fn bring_back(directory: &Path, settings: &mut Settings, at: &VolumeAt) -> Result<Arc<Image>> {
    let image = Arc::new(volume::open_image(directory, at)?);
    match build(directory, settings, &image) {
        Ok(()) => Ok(image),
        Err(error) => {
            // The error to report is the first one.
            let _closed = volume::close_image(image);
            Err(error)
        }
    }
}

/// Makes the core of the store in `directory` of `image`, and puts it in its place. `settings` say
/// afterwards what `store.toml` says.
pub(crate) fn build(directory: &Path, settings: &mut Settings, image: &Arc<Image>) -> Result<()> {
    let new = as_it_was(directory, settings)?;
    let region = image.region()?;
    if Id(region.uuid) != settings.live.region {
        let (expected, found) = (settings.live.region, Id(region.uuid));
        let core = image.volume().name();
        let directory = directory.to_owned();
        return Err(Error::CoreOfAnother { directory, core, expected, found });
    }
    let file = place_again(directory, settings, &new)?;
    let temporary = file.partial();
    directory::remove(&temporary)?;
    let made = region::bring_back(&temporary, &new, &region, image)
        .and_then(|()| put_in_place(directory, settings, &file, &new));
    if made.is_err() {
        // The error to report is the first one.
        let _removed = directory::remove(&temporary);
    }
    made
}

/// The store as it would be made now: with the owner and the permissions that it has.
fn as_it_was(directory: &Path, settings: &Settings) -> Result<NewStore> {
    let path = directory.join(SETTINGS);
    let found = std::fs::metadata(&path).map_err(failed(&path, "look at it"))?;
    Ok(NewStore {
        core: settings.core.clone().map_or(CorePlace::Default, CorePlace::Path),
        medium: settings.medium,
        owner: Some((found.uid(), found.gid())),
        mode: found.mode() & 0o777,
        volume: None,
        ..NewStore::default()
    })
}

/// Where the core goes: where it was, or, if that was chosen for the user, where one would go now.
fn place_again(directory: &Path, settings: &Settings, new: &NewStore) -> Result<CoreFile> {
    let file = match &settings.core {
        Some(path) if !default_place::is_ours(path) => place::named(directory, path)?,
        _ => default_place::choose(directory, new, settings.uuid, 0)?,
    };
    place::medium_on(&file.path, &file.kind, Medium::Logged)?;
    Ok(file)
}

fn put_in_place(
    directory: &Path,
    settings: &mut Settings,
    file: &CoreFile,
    new: &NewStore,
) -> Result<()> {
    let temporary = file.partial();
    finish(&temporary, file, new.mode, new.owner)?;
    let look = std::fs::metadata(&temporary).map_err(failed(&temporary, "look at it"))?;
    let next = Live {
        region: settings.live.region,
        incarnation: Id::random().map_err(failed(directory, "ask for random numbers"))?,
        boot: machine::boot()?,
        file: FileId::of(&look),
    };
    settings.next = Some(Next { live: next, change: None });
    settings.write(directory)?;
    directory::put_in_place(&temporary, &file.path)?;
    let was = settings.core.replace(file.path.clone()).filter(|_| file.is_linked);
    if !file.is_linked {
        settings.core = None;
    } else if was.as_ref() != Some(&file.path) {
        let link = directory.join(CORE);
        directory::remove(&link)?;
        std::os::unix::fs::symlink(&file.path, &link).map_err(failed(&link, "link to the core"))?;
        directory::sync(directory)?;
    }
    (settings.live, settings.next) = (next, None);
    settings.write(directory)
}
