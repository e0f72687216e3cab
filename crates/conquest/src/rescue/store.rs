//! Rescuing a store whose core was logged: its image is on the volume.
//!
//! A store is made that has the volume, and no core; then its core is brought back, as whoever
//! attaches such a store would do. So a death in the middle leaves a store. That begins another
//! incarnation, and whoever has an older core of this volume can't make that durable any more.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conquest_format::WORD;
use conquest_format::fs::root;
use conquest_format::geometry::STATE_ROOTS;
use conquest_pm::media::{Medium as MediumFile, Source};

use super::target::Target;
use super::{Rescued, nothing};
use crate::error::failed;
use crate::store::directory::{self, CORE, LOCK, SETTINGS, unwritten};
use crate::store::lock::StoreLock;
use crate::store::make::{Maker, PATIENCE};
use crate::store::new::{Medium, NewStore, Placement, Preset, THRESHOLD_NONE};
use crate::store::settings::{Settings, VolumeAt};
use crate::store::sync_mode::SyncMode;
use crate::store::volume::{Image, Volume, from_root};
use crate::store::{bring_back, default_place, place};
use crate::{Id, Result};

/// Makes a store in `to` of the image on `volume`, which is on `devices`, and whose index is in
/// `index` while it is open.
pub(super) fn rescue(
    volume: &Arc<Volume>,
    devices: &[PathBuf],
    index: &Path,
    to: &Path,
) -> Result<Rescued> {
    let image = Arc::new(Image::find(Arc::clone(volume))?);
    let region = Id(image.region()?.uuid);
    let at = found_at(volume, devices, index)?;
    let mut target = Target::make(to)?;
    let directory = target.directory().to_owned();
    target.will_make(&directory.join(LOCK));
    let new = NewStore { medium: Medium::Logged, volume: None, ..NewStore::default() };
    let lock = StoreLock::take(&directory, "rescuing it", PATIENCE)?;
    lock.own(&directory, new.mode, new.owner)?;
    let store = Id::random().map_err(failed(&directory, "ask for random numbers"))?;
    let file = default_place::choose(&directory, &new, store, 0)?;
    place::medium_on(&file.path, &file.kind, Medium::Logged)?;
    let planned = Maker::new(&directory, &new).settings(store, region, Medium::Logged, &file)?;
    // Where the core is, it says when that is there.
    let mut settings = Settings { volume: Some(at), core: None, ..planned };
    let path = directory.join(SETTINGS);
    let made = [file.partial(), file.path, directory.join(CORE), unwritten(&path), path.clone()];
    made.iter().for_each(|path| target.will_make(path));
    directory::replace(&path, settings.text().as_bytes(), new.mode & 0o777, new.owner)?;
    bring_back::build(&directory, &mut settings, &image)?;
    let core = settings.core.clone().unwrap_or_else(|| directory.join(CORE));
    settings.placement = placement(&core)?;
    settings.write(&directory)?;
    target.keep()?;
    drop(lock);
    Ok(Rescued::Store { directory, store, core })
}

/// What `store.toml` is to say of `volume`. How it was synced, nothing says any more.
fn found_at(volume: &Volume, devices: &[PathBuf], index: &Path) -> Result<VolumeAt> {
    let Some(identity) = volume.identity() else {
        return nothing(volume, "it was not opened by its devices; name them");
    };
    if identity.members.iter().any(|member| member.path.is_none()) {
        return nothing(
            volume,
            "there is a core on it, and the store of that needs all members; put another device \
             in the place of the one that is missing (conquest volume replace), and name both",
        );
    }
    Ok(VolumeAt {
        uuid: Id(identity.uuid),
        devices: devices.iter().map(|path| from_root(path)).collect::<Result<_>>()?,
        index: from_root(index)?,
        sync: SyncMode::default(),
        cache: None,
    })
}

/// Where contents of files go, as the region on `core` says.
fn placement(core: &Path) -> Result<Placement> {
    let medium = MediumFile::open(Source::from(core))?;
    let word = |number: u64| {
        let mut bytes = [0; WORD as usize];
        medium.peek(STATE_ROOTS.plus(number * WORD).bytes(), &mut bytes)?;
        Ok::<u64, conquest_pm::Error>(u64::from_le_bytes(bytes))
    };
    if word(root::CHUNK_BLOCKS)? == 0 {
        return Ok(Placement::default());
    }
    let threshold = word(root::THRESHOLD)?;
    let preset = match threshold {
        0 => Preset::Dfs,
        THRESHOLD_NONE.. => Preset::Simfs,
        _ => Preset::Conquest,
    };
    Ok(Placement { threshold, preset })
}
