//! Whether a store has a volume, and how large, if the user does not say.
//!
//! On an ordinary machine a core is in RAM, which a power failure empties, and the store's
//! directory is on a disk: then the volume is a file there. It takes its space at once, so that
//! nobody else can take it from the store later.

use std::path::Path;

use conquest_format::GROUP;
use conquest_format::geometry::Geometry;
use conquest_format::volume::UNIT;
use conquest_pm::media::MediumKind;

use super::directory::VOLUME;
use super::new::{CorePlace, Medium, NewStore, VolumePlace};
use super::place::{self, Space};
use super::shape::{shape, with_log};
use super::volume::needed;
use crate::{Error, Result, machine};

/// Times the core's maximum: so there is more for large files than there is RAM.
const TIMES: u64 = 4;
/// Of the free space of the file system, one part of so many, unless the core needs more.
const SHARE: u64 = 4;
/// Bytes that it has at least.
const LEAST: u64 = 128 << 20;
/// What the layer itself keeps is less than one part of so many, and these bytes.
const KEPT_SHARE: u64 = 8;
const KEPT: u64 = 48 << 20;

/// `new`, with what it leaves open about the volume of the store in `directory` decided; `freed`
/// bytes are going to be free there besides those that are.
pub(crate) fn decided(directory: &Path, new: &NewStore, freed: u64) -> Result<NewStore> {
    if new.volume != Some(VolumePlace::Auto) {
        return Ok(new.clone());
    }
    if !is_for_volume(directory, new)? {
        return Ok(NewStore { volume: None, ..new.clone() });
    }
    let free = Space::of(directory)?.free.saturating_add(freed);
    let share = free / SHARE;
    let size_max = match new.size_max {
        0 => ((machine::memory()? / 2).min(share / TIMES) / GROUP * GROUP).max(GROUP),
        size_max => size_max,
    };
    let wished = size_max.saturating_mul(TIMES).min(share);
    let size = wished.max(least(new, size_max)?).max(LEAST) / UNIT * UNIT;
    if size > free {
        let path = directory.join(VOLUME);
        return Err(Error::NoRoomForVolume { path, wanted: size, available: free });
    }
    Ok(NewStore { volume: Some(VolumePlace::Size(size)), size_max, ..new.clone() })
}

/// Bytes of a volume that has room for a core that can grow to `size_max`.
fn least(new: &NewStore, size_max: u64) -> Result<u64> {
    let shape = with_log(shape(new, size_max, machine::processors())?);
    let needed = Geometry::new(shape).map_or(0, |geometry| needed(&geometry));
    Ok(needed + needed / (KEPT_SHARE - 1) + KEPT)
}

/// Whether the core is going to be in RAM, and the store's directory is not.
fn is_for_volume(directory: &Path, new: &NewStore) -> Result<bool> {
    Ok(is_on_disk(&directory.join(VOLUME))? && is_to_be_logged(directory, new)?)
}

/// Whether the core is going to be in RAM that needs a volume to outlive the power, if it is to.
pub(crate) fn is_to_be_logged(directory: &Path, new: &NewStore) -> Result<bool> {
    match (new.medium, &new.core) {
        (Medium::Logged, _) | (Medium::Auto, CorePlace::Default) => Ok(true),
        (Medium::Auto, CorePlace::Path(path)) => {
            let core = place::named(directory, path)?;
            let natural = place::medium_on(&core.path, &core.kind, Medium::Auto);
            Ok(natural? == Medium::Ram)
        }
        _ => Ok(false),
    }
}

/// Whether a file `path` would be on a disk.
pub(crate) fn is_on_disk(path: &Path) -> Result<bool> {
    match place::probe(path) {
        Ok(MediumKind::Disk { .. }) | Err(Error::Core(conquest_pm::Error::Unsharable { .. })) => {
            Ok(true)
        }
        Ok(_) => Ok(false),
        Err(error) => Err(error),
    }
}
