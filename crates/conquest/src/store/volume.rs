//! A store's volume: made, opened, and told from any other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conquest_flash::device::{Device, FileDevice};
use conquest_flash::{NewVolume, OpenOptions, create_at, open_device};
use conquest_format::geometry::{Geometry, Shape};
use conquest_format::volume::{Arrangement, UNIT};
use conquest_pm::media::{Mapped, OsHost};

use super::default_volume;
use super::directory::{self, VOLUME, VOLUME_TWO, partial};
use super::new::{NewStore, VolumePlace};
use super::place::Space;
use super::settings::{Settings, VolumeAt};
use super::shape::within;
use super::shape::{shape, with_log};
use crate::error::failed;
use crate::{Error, Id, Result, machine};

/// A volume that this process has open.
pub(crate) type Volume = conquest_flash::Volume<Mapped, OsHost>;
/// The image of a core on it.
pub(crate) type Image = conquest_image::Image<Mapped, OsHost>;

/// Processes that can have a store's volume open at once.
pub(crate) const PROCESSES: u32 = 256;
/// Of the machine's RAM the cache of a volume has one part of so many at most, if nobody says more
/// or less.
const CACHE_SHARE: u64 = 16;
/// Bytes that it has at most then.
const CACHE_MOST: u64 = 512 << 20;
/// Bytes of a volume's file that are written when it is made. The keeper goes on with that as
/// they are used.
const WRITTEN: u64 = 64 << 20;
/// Where the index of a volume is put: what every Linux system has for shared memory.
pub(crate) const INDEX: &str = "/dev/shm";
/// Bytes at both ends of a device that have to be zeros for it to be empty.
const ENDS: u64 = 65536;
/// Bytes that a volume has at least for the core's log, besides its image.
const LOG_LEAST: u64 = 32 << 20;

/// What `store.toml` is to say of the volume that `new` asks for, of the store in `directory`.
pub(crate) fn planned(directory: &Path, new: &NewStore) -> Result<Option<VolumeAt>> {
    let Some(place) = &new.volume else {
        return Ok(None);
    };
    within("bytes of a volume's cache", new.cache.unwrap_or(0), 0, conquest_flash::CACHE_MAX)?;
    let uuid = Id::random().map_err(failed(directory, "ask for random numbers"))?;
    let devices = match place {
        VolumePlace::Auto | VolumePlace::Size(_) => vec![PathBuf::from(free_name(directory))],
        VolumePlace::Devices { paths, .. } => {
            paths.iter().map(|path| from_root(path)).collect::<Result<_>>()?
        }
    };
    let (index, sync) = (INDEX.into(), new.sync.unwrap_or_default());
    Ok(Some(VolumeAt { uuid, devices, index, sync, cache: new.cache }))
}

/// The name of what is at `path`, from the root, as `store.toml` can have it.
pub(crate) fn from_root(path: &Path) -> Result<PathBuf> {
    let path = std::fs::canonicalize(path).map_err(failed(path, "find it"))?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => {
            let what = "its name is not UTF-8".to_owned();
            Err(Error::Untrusted { path, what })
        }
    }
}

/// The name for a new volume's file: another one than that of the volume that the store in
/// `directory` has, which may stay.
fn free_name(directory: &Path) -> &'static str {
    let present = Settings::read(directory).ok().and_then(|settings| settings.volume);
    let is_taken = present.is_some_and(|at| at.devices.iter().any(|it| it.as_os_str() == VOLUME));
    if is_taken { VOLUME_TWO } else { VOLUME }
}

/// Whether the volume `at` is a file that was made in the store's directory.
pub(crate) fn is_file(at: &VolumeAt) -> bool {
    matches!(at.devices.as_slice(), [one] if one.as_os_str() == VOLUME
        || one.as_os_str() == VOLUME_TWO)
}

/// Makes the volume `at` for `new`, in `directory`. Files that are about to be made are noted in
/// `made`; what is on the devices `own` is to be lost.
pub(crate) fn make(
    directory: &Path,
    at: &VolumeAt,
    new: &NewStore,
    own: &[PathBuf],
    made: &mut Vec<PathBuf>,
) -> Result<()> {
    let is_mirror = matches!(new.volume, Some(VolumePlace::Devices { mirror: true, .. }));
    let arrangement = if is_mirror { Arrangement::Mirrored } else { Arrangement::Striped };
    let volume = NewVolume { uuid: at.uuid.0, created: machine::now(), arrangement, segment: None };
    let Some(VolumePlace::Size(size)) = new.volume else {
        for path in at.devices.iter().filter(|path| !own.contains(path)) {
            check_empty(path, new.force)?;
        }
        let overwrites = new.force || !own.is_empty();
        return Ok(create_at(&at.devices, &volume, overwrites)?);
    };
    let path = directory.join(at.devices.first().map_or(Path::new(VOLUME), PathBuf::as_path));
    let temporary = partial(&path);
    made.push(temporary.clone());
    directory::remove(&temporary)?;
    let size = size.next_multiple_of(UNIT);
    let mode = new.mode & 0o777;
    let file = FileDevice::create_reserved(&temporary, size, WRITTEN, mode, &mut |_| {});
    drop(file.map_err(failed(&temporary, "make the volume"))?);
    let opened = std::fs::File::open(&temporary).map_err(failed(&temporary, "open it"))?;
    directory::own(&temporary, &opened, new.mode, new.owner)?;
    create_at(&[&temporary], &volume, false)?;
    made.push(path.clone());
    directory::put_in_place(&temporary, &path)
}

/// Refuses a volume that `new` asks for, for a store in `directory`, of which it is clear that it
/// can't be made, or is too small for the core. `freed` bytes are going to be free there besides
/// those that are.
pub(crate) fn check_asked(directory: &Path, new: &NewStore, freed: u64) -> Result<()> {
    let (found, name) = match &new.volume {
        None | Some(VolumePlace::Auto) => return Ok(()),
        Some(VolumePlace::Size(size)) => {
            let available = Space::of(directory)?.free.saturating_add(freed);
            let path = directory.join(VOLUME);
            if *size > available {
                return Err(Error::NoRoomForVolume { path, wanted: *size, available });
            }
            (*size, path)
        }
        Some(VolumePlace::Devices { paths, mirror }) => {
            let mut lens = Vec::new();
            for path in paths {
                check_empty(path, new.force)?;
                lens.push(open_device(path)?.len());
            }
            let least = lens.iter().copied().min().unwrap_or(0);
            let usable = if *mirror { least } else { lens.iter().sum() };
            (usable, paths.first().cloned().unwrap_or_default())
        }
    };
    if new.size_max == 0 || !default_volume::is_to_be_logged(directory, new)? {
        // What that is depends on where the core is going to be; or nothing of it is there.
        return Ok(());
    }
    let shape = with_log(shape(new, new.size_max, machine::processors())?);
    let expected = Geometry::new(shape).map_or(0, |geometry| needed(&geometry));
    match found >= expected {
        true => Ok(()),
        false => Err(Error::VolumeTooSmall { volume: name, expected, found }),
    }
}

/// Refuses a device that may hold something, unless that is to be lost.
fn check_empty(path: &Path, force: bool) -> Result<()> {
    let device = open_device(path)?;
    let len = ENDS.min(device.len());
    let mut bytes = vec![0; len as usize];
    for at in [0, device.len() - len] {
        device.read(at, &mut bytes).map_err(failed(path, "read it"))?;
        if !force && bytes.iter().any(|&byte| byte != 0) {
            return Err(Error::NotEmpty { device: path.to_owned() });
        }
    }
    Ok(())
}

/// The devices of the volume `at`, of the store in `directory`.
fn devices(directory: &Path, at: &VolumeAt) -> Vec<PathBuf> {
    at.devices.iter().map(|path| directory.join(path)).collect()
}

/// Opens the volume `at` of the store in `directory`.
pub(crate) fn open(directory: &Path, at: &VolumeAt) -> Result<Volume> {
    let cache = match at.cache {
        Some(bytes) => bytes,
        None => (machine::memory()? / CACHE_SHARE).min(CACHE_MOST),
    };
    let options = OpenOptions {
        directory: at.index.clone(),
        processes: PROCESSES,
        cache,
        ..OpenOptions::default()
    };
    let volume = Volume::open(&devices(directory, at), &options)?;
    let found = volume.identity().map_or(Id([0; 16]), |identity| Id(identity.uuid));
    if found == at.uuid {
        return Ok(volume);
    }
    let (directory, device, expected) = (directory.to_owned(), volume.name(), at.uuid);
    // The error to report is that it is another one.
    let _closed = volume.close();
    Err(Error::VolumeOfAnother { directory, device, expected, found })
}

/// Opens the volume `at`, on which there is a core's image.
pub(crate) fn open_image(directory: &Path, at: &VolumeAt) -> Result<Image> {
    let volume = Arc::new(open(directory, at)?);
    let found = Image::find(Arc::clone(&volume));
    if found.is_err() {
        // Or what it has in memory stayed.
        let _closed = Arc::into_inner(volume).map(Volume::close);
    }
    Ok(found?)
}

/// Closes the volume of `image`, if nobody else has it.
pub(crate) fn close_image(image: Arc<Image>) -> Result<()> {
    let volume = Arc::into_inner(image).map(Image::into_volume).and_then(Arc::into_inner);
    volume.map_or(Ok(()), |volume| Ok(volume.close()?))
}

/// Bytes of a volume that a core of this `geometry` may need: its image, and a log as large as a
/// quarter of that, and not too small.
pub(crate) fn needed(geometry: &Geometry) -> u64 {
    geometry.len() + (geometry.len() / 4).max(LOG_LEAST)
}

/// Refuses a volume that can't hold all that a logged core of `shape` can have, if it is for one,
/// and `large` bytes of large files.
pub(crate) fn check_size(volume: &Volume, shape: Option<Shape>, large: u64) -> Result<()> {
    let info = volume.info()?;
    let found = info.capacity * info.unit;
    let core = shape.and_then(Geometry::new).map_or(0, |geometry| needed(&geometry));
    let expected = core.saturating_add(large);
    match found >= expected {
        true => Ok(()),
        false => Err(Error::VolumeTooSmall { volume: volume.name(), expected, found }),
    }
}

/// Takes away what the volume `at`, which nobody needs any more, has in memory, and its file, if it
/// is one of the store in `directory`. Other devices keep what is on them.
pub(crate) fn clear(directory: &Path, at: &VolumeAt) -> Result<()> {
    if let Ok(volume) = open(directory, at) {
        // The last one to close it frees its memory.
        let _closed = volume.close();
    }
    if is_file(at) {
        for path in &at.devices {
            directory::remove(&directory.join(path))?;
        }
    }
    Ok(())
}

/// Bytes of a file that would be a volume as large as `volume`.
pub(crate) fn bytes(volume: &Volume) -> u64 {
    volume.identity().map_or(0, |identity| {
        let members = identity.members.iter().map(|member| member.bytes);
        match identity.arrangement {
            Arrangement::Mirrored => members.min().unwrap_or(0),
            Arrangement::Striped => members.sum(),
        }
    })
}

/// The same of the volume `at`, which can't be opened, if it is one file; otherwise 0.
pub(crate) fn bytes_by_files(directory: &Path, at: &VolumeAt) -> u64 {
    match devices(directory, at).as_slice() {
        [one] => std::fs::metadata(one).map_or(0, |found| found.len()),
        _ => 0,
    }
}

/// Whether the volume `at` of the store in `directory` is a mirror.
pub(crate) fn is_mirror(directory: &Path, at: &VolumeAt) -> Result<bool> {
    if at.devices.len() < 2 {
        return Ok(false);
    }
    let volume = open(directory, at)?;
    let found = volume.identity().map(|identity| identity.arrangement);
    volume.close()?;
    Ok(found == Some(Arrangement::Mirrored))
}
