//! Making a store.
//!
//! In order, under the store's lock: what it is going to be, under a temporary name; the link to
//! the core; the core, built under a temporary name; `store.toml`, with which the store is there. A
//! death before that leaves a directory without `store.toml`, in which the next one who makes a
//! store finds by the temporary settings what is to be cleared away.

use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conquest_format::GROUP;
use conquest_format::fs;
use conquest_format::geometry::{Geometry, Shape};
use conquest_format::mark::Mark;
use conquest_format::volume::BLOCK;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Fill, MediumKind};

use super::directory::{self, CORE, LOCK, SETTINGS, VOLUME, VOLUME_TWO, partial};
use super::identity::FileId;
use super::live::core_path;
use super::lock::{StoreLock, absolute};
use super::new::{CHUNK_DEFAULT, CorePlace, Medium, NewStore};
use super::place::{self, CoreFile};
use super::region::{self, Hold};
use super::settings::{Home, Live, Settings, VolumeAt};
use super::shape::{groups_in, shape, shape_within, with_log, within};
use super::volume::{self, Image, Volume};
use super::{Store, bytes, default_place, default_volume, grow, mark, switch};
use crate::error::failed;
use crate::store::attached::Names;
use crate::{Error, Id, Result, machine};

/// How long to wait for others who do something with the store.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes for which there is space from the start if the user does not say: a core takes what it
/// needs, like a tmpfs.
const SIZE_DEFAULT: u64 = 16 << 20;

impl Store {
    /// Makes a store in `directory`, which is made, or is empty. Whatever goes wrong, what was made
    /// is removed again.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a store, unless that is to be replaced; what else is in the
    /// way.
    pub fn make(directory: &Path, new: &NewStore) -> Result<()> {
        within("bytes in a file", new.file_size_max, 1, i64::MAX as u64)?;
        let least_chunk = fs::chunk::BLOCKS_MIN * BLOCK;
        let most_chunk = fs::chunk::BLOCKS_MAX * BLOCK;
        let chunk = new.chunk.unwrap_or(CHUNK_DEFAULT);
        within("bytes of a chunk", chunk, least_chunk, most_chunk)?;
        if !chunk.is_power_of_two() {
            let what = "a chunk's bytes are a power of two";
            return Err(Error::VolumeRule { directory: directory.to_owned(), what });
        }
        within("percentage of space that is reserved", new.reserve, 0, fs::RESERVE_MAX)?;
        let is_new = std::fs::symlink_metadata(directory).is_err();
        directory::prepare(directory, new)?;
        let directory = absolute(directory);
        let lock = StoreLock::take(&directory, "making it", PATIENCE)?;
        let made = lock.own(&directory, new.mode, new.owner).and_then(|()| {
            // What is clear before anything is removed is told before.
            let freed = freed_by_replacing(&directory, new)?;
            let new = default_volume::decided(&directory, new, freed)?;
            volume::check_asked(&directory, &new, freed)?;
            clear_the_way(&directory)?;
            let mut maker = Maker::new(&directory, &new);
            // The error to report is the first one.
            maker.make().inspect_err(|_| maker.undo())
        });
        if made.is_err() && is_new {
            let _removed = directory::remove(&directory.join(LOCK));
            let _removed = std::fs::remove_dir(&directory);
        }
        drop(lock);
        made
    }
}

/// The making of one store.
#[derive(Debug)]
pub(crate) struct Maker<'n> {
    directory: &'n Path,
    new: &'n NewStore,
    /// Files made so far, to be removed if it fails.
    made: Vec<PathBuf>,
    /// Devices for a volume that hold what is to be lost, as they are the store's own.
    own_devices: Vec<PathBuf>,
}

impl<'n> Maker<'n> {
    pub(crate) fn new(directory: &'n Path, new: &'n NewStore) -> Maker<'n> {
        Maker { directory, new, made: Vec::new(), own_devices: Vec::new() }
    }

    /// What is on `devices` is to be lost, if a volume is made there.
    pub(crate) fn may_overwrite(&mut self, devices: &[PathBuf]) {
        self.own_devices.extend_from_slice(devices);
    }

    pub(crate) fn new_store(&self) -> &'n NewStore {
        self.new
    }

    fn make(&mut self) -> Result<()> {
        let (directory, new) = (self.directory, self.new);
        let uuid = Id::random().map_err(failed(directory, "ask for random numbers"))?;
        let file = match &new.core {
            CorePlace::Default => {
                let size = if new.size == 0 { SIZE_DEFAULT } else { new.size };
                default_place::choose(directory, new, uuid, size)?
            }
            CorePlace::Path(path) => place::named(directory, path)?,
        };
        let region = Id::random().map_err(failed(directory, "ask for random numbers"))?;
        let medium =
            volume_rule(directory, new, place::medium_on(&file.path, &file.kind, new.medium)?)?;
        let mut settings = self.settings(uuid, region, medium, &file)?;
        self.announce(&settings)?;
        if file.is_linked {
            self.link(&file.path)?;
        }
        settings.live.file = self.build(&file, &settings)?;
        self.settle(&settings)
    }

    /// Writes `store.toml`: from now on the store is there.
    pub(crate) fn settle(&mut self, settings: &Settings) -> Result<()> {
        let (text, mode) = (settings.text(), self.new.mode & 0o777);
        let path = self.directory.join(SETTINGS);
        self.made.push(path.clone());
        directory::replace(&path, text.as_bytes(), mode, self.new.owner)?;
        // Only now: until the store is there, it says what a death leaves behind.
        directory::remove(&partial(&path))
    }

    /// What `store.toml` is going to say, except of which file the core is.
    pub(crate) fn settings(
        &self,
        uuid: Id,
        region: Id,
        medium: Medium,
        file: &CoreFile,
    ) -> Result<Settings> {
        let directory = self.directory;
        let look = std::fs::metadata(directory).map_err(failed(directory, "look at it"))?;
        Ok(Settings {
            uuid,
            created: machine::now(),
            medium,
            core: file.is_linked.then(|| file.path.clone()),
            placement: self.new.placement,
            volume: volume::planned(directory, self.new)?,
            home: Home::of(directory, look.ino()),
            live: Live {
                region,
                incarnation: Id::random().map_err(failed(directory, "ask for random numbers"))?,
                boot: machine::boot()?,
                file: FileId { device: (0, 0), inode: 0 },
            },
            next: None,
            document: toml_edit::DocumentMut::new(),
        })
    }

    /// Says, under a temporary name, what is about to be made.
    pub(crate) fn announce(&mut self, settings: &Settings) -> Result<()> {
        use std::io::Write;
        let path = partial(&self.directory.join(SETTINGS));
        self.made.push(path.clone());
        let mut file = std::fs::File::create(&path).map_err(failed(&path, "make it"))?;
        directory::own(&path, &file, self.new.mode, self.new.owner)?;
        file.write_all(settings.text().as_bytes()).map_err(failed(&path, "write it"))?;
        file.sync_all().map_err(failed(&path, "make it durable"))?;
        directory::sync(self.directory)
    }

    pub(crate) fn link(&mut self, target: &Path) -> Result<()> {
        let link = self.directory.join(CORE);
        self.made.push(link.clone());
        std::os::unix::fs::symlink(target, &link).map_err(failed(&link, "link to the core"))?;
        if let Some((user, group)) = self.new.owner {
            let given = std::os::unix::fs::lchown(&link, Some(user), Some(group));
            given.map_err(failed(&link, "give it to its owner"))?;
        }
        directory::sync(self.directory)
    }

    /// Makes the volume for a core of `region`, if there is to be one, and on it the core's image,
    /// if that is logged, or its mark.
    fn make_volume(&mut self, settings: &Settings, region: &NewRegion) -> Result<OnVolume> {
        let Some(at) = &settings.volume else {
            return Ok(OnVolume::Nothing);
        };
        if settings.medium != Medium::Logged {
            let opened = self.make_volume_for(at, None, 0)?;
            let (number, region) = (mark::first(self.directory)?, settings.live.region.0);
            let chunk_blocks = self.new.chunk.unwrap_or(CHUNK_DEFAULT) / BLOCK;
            return match mark::write(&opened, &Mark { region, number, chunk_blocks }) {
                Ok(()) => Ok(OnVolume::Mark(Box::new(opened), number)),
                Err(error) => {
                    let _closed = opened.close();
                    Err(error)
                }
            };
        }
        let opened = Arc::new(self.make_volume_for(at, Some(region.shape), 0)?);
        let made = Image::make(Arc::clone(&opened), region);
        if made.is_err() {
            // Or what it has in memory stayed.
            let _closed = Arc::into_inner(opened).map(Volume::close);
        }
        Ok(OnVolume::Image(Arc::new(made?)))
    }

    /// Makes the core: under a temporary name, but for a device. Which file it is.
    fn build(&mut self, file: &CoreFile, settings: &Settings) -> Result<FileId> {
        let (shape, groups) = sizes(self.new, file, settings.medium)?;
        let temporary = file.partial();
        self.will_make(file, None)?;
        if file.is_device()
            && let Some(geometry) = Geometry::new(shape)
        {
            bytes::wipe_device(&temporary, &geometry)?;
        }
        let new = NewRegion {
            shape,
            kinds: fs::kinds(),
            uuid: settings.live.region.0,
            created: machine::now(),
            groups,
        };
        let on_volume = self.make_volume(settings, &new)?;
        let made = region::make(&temporary, self.new, &new, &on_volume);
        on_volume.close()?;
        made.map_err(|error| match error {
            Error::Core(error) => grow::no_room(error, &temporary, groups * GROUP),
            other => other,
        })?;
        finish(&temporary, file, self.new.mode, self.new.owner)?;
        self.put_in_place(file)?;
        let look = std::fs::metadata(&file.path).map_err(failed(&file.path, "look at it"))?;
        Ok(FileId::of(&look))
    }

    /// The core is about to be built under its temporary name, which nothing may have. A device is
    /// built on as it is: what it holds must be `old`, or be lost by the user's wish.
    pub(crate) fn will_make(&mut self, file: &CoreFile, old: Option<Id>) -> Result<()> {
        if file.is_device() {
            return match region::identity(&file.path) {
                Ok(found) if Some(found) == old => Ok(()),
                Ok(_) if self.new.force => hold_alone(self.directory, &file.path).map(drop),
                Ok(_) => Err(Error::CoreExists { core: file.path.clone() }),
                Err(_) => Ok(()),
            };
        }
        self.made.push(file.partial());
        directory::remove(&file.partial())
    }

    /// Makes the volume `at`, and opens it: for a logged core of `shape`, if it is for one, and
    /// `large` bytes of large files.
    pub(crate) fn make_volume_for(
        &mut self,
        at: &VolumeAt,
        shape: Option<Shape>,
        large: u64,
    ) -> Result<Volume> {
        volume::make(self.directory, at, self.new, &self.own_devices, &mut self.made)?;
        let opened = volume::open(self.directory, at)?;
        match volume::check_size(&opened, shape, large) {
            Ok(()) => Ok(opened),
            Err(error) => {
                // Or what it has in memory stayed. The error to report is the first one.
                let _closed = opened.close();
                Err(error)
            }
        }
    }

    /// Gives the complete core its name.
    pub(crate) fn put_in_place(&mut self, file: &CoreFile) -> Result<()> {
        if file.is_device() {
            return Ok(());
        }
        self.made.push(file.path.clone());
        directory::put_in_place(&file.partial(), &file.path)
    }

    /// What was made so far stays, whatever comes.
    pub(crate) fn forget(&mut self) {
        self.made.clear();
    }

    /// Removes what was made, the last thing first.
    pub(crate) fn undo(&mut self) {
        while let Some(path) = self.made.pop() {
            let _removed = directory::remove(&path);
        }
    }
}

/// What a new core has on its volume, which is open.
pub(crate) enum OnVolume {
    /// There is none.
    Nothing,
    /// Its image.
    Image(Arc<Image>),
    /// Its large files only, and the volume's mark.
    Mark(Box<Volume>, u64),
}

impl OnVolume {
    fn close(self) -> Result<()> {
        let volume = match self {
            OnVolume::Nothing => None,
            OnVolume::Image(image) => {
                Arc::into_inner(image).map(Image::into_volume).and_then(Arc::into_inner)
            }
            OnVolume::Mark(volume, _) => Some(*volume),
        };
        volume.map_or(Ok(()), |volume| Ok(volume.close()?))
    }
}

/// Gives the complete core `temporary` its owner and permissions, and makes it durable.
pub(crate) fn finish(
    temporary: &Path,
    file: &CoreFile,
    mode: u32,
    owner: Option<(u32, u32)>,
) -> Result<()> {
    if matches!(file.kind, MediumKind::DevDax { .. }) {
        return Ok(());
    }
    // Where others may rename files, nothing but what was made here is opened.
    let mut options = std::fs::File::options();
    let opened = options.read(true).custom_flags(libc::O_NOFOLLOW).open(temporary);
    let opened = opened.map_err(failed(temporary, "open it"))?;
    directory::own(temporary, &opened, mode, owner)?;
    place::sync_core(temporary, &file.kind)
}

/// The medium of a new store's core, which is on `medium` by itself: with a volume, its RAM is made
/// durable there.
pub(crate) fn volume_rule(directory: &Path, new: &NewStore, medium: Medium) -> Result<Medium> {
    let is_about_volume = new.sync.is_some() || new.chunk.is_some() || new.cache.is_some();
    let what = match (medium, &new.volume) {
        (_, None) if is_about_volume => "it has no volume (name one with --volume)",
        (Medium::Logged | Medium::Battery | Medium::Dax, Some(_)) => return Ok(medium),
        (Medium::Ram, Some(_)) if new.medium == Medium::Auto => return Ok(Medium::Logged),
        (Medium::Logged, None) => "a core on logged RAM needs a volume (name one with --volume)",
        (_, Some(_)) => {
            "a volume is for cores in RAM (use --medium logged or battery, or leave it out) and on \
             persistent memory"
        }
        _ => return Ok(medium),
    };
    Err(Error::VolumeRule { directory: directory.to_owned(), what })
}

/// The shape of the new core, and the groups that it has space for at first.
fn sizes(new: &NewStore, file: &CoreFile, medium: Medium) -> Result<(Shape, u64)> {
    let processors = machine::processors();
    let space = file.space()?;
    let shape = match (new.size_max, &file.kind) {
        (0, MediumKind::DevDax { size, .. }) => shape_within(new, *size, processors)?,
        (0, _) => shape(new, (machine::memory()? / 2).min(space.total).max(GROUP), processors)?,
        (size_max, _) => shape(new, size_max, processors)?,
    };
    let shape = if medium == Medium::Logged { with_log(shape) } else { shape };
    let most = shape.max_groups * GROUP;
    let size = if new.size == 0 { SIZE_DEFAULT.min((most / 2).max(GROUP)) } else { new.size };
    within("bytes for which there is space from the start", size, 1, most)?;
    Ok((shape, groups_in(size)))
}

/// Bytes that are free in the file system of `directory` when the store there, if there is one, has
/// been replaced by `new`; refuses that if it is not wanted.
fn freed_by_replacing(directory: &Path, new: &NewStore) -> Result<u64> {
    if !directory.join(SETTINGS).exists() {
        return Ok(0);
    }
    if !new.force {
        return Err(Error::Exists { directory: directory.to_owned() });
    }
    let volume = Settings::read(directory).ok().and_then(|settings| settings.volume);
    let file = volume.filter(volume::is_file);
    Ok(file.map_or(0, |at| volume::bytes_by_files(directory, &at)))
}

/// Removes the store that is in `directory`, if there is one, and what a death left there.
fn clear_the_way(directory: &Path) -> Result<()> {
    if directory.join(SETTINGS).exists() {
        clear_store(directory)?;
    }
    clear_unfinished(directory)
}

/// Removes the store in `directory`, which nobody may have attached.
pub(crate) fn clear_store(directory: &Path) -> Result<()> {
    let settings = Settings::read(directory).ok();
    if let Some(settings) = &settings {
        let core = core_path(directory, settings);
        let is_its = |uuid| {
            let next = settings.next.as_ref().map(|next| &next.live);
            next.into_iter().chain([&settings.live]).any(|live| live.region == uuid)
        };
        remove_core(directory, &core, is_its)?;
    } else if let Ok(core) = std::fs::canonicalize(directory.join(CORE)) {
        // Nothing says whose that is. In the store's directory, or where cores are put, it is its.
        let is_near = core.starts_with(directory) || default_place::is_ours(&core);
        remove_core(directory, &core, |_| is_near)?;
    }
    if let Some(Settings { volume, next, .. }) = settings {
        let next = next.and_then(|next| next.change).and_then(|change| change.volume);
        for at in volume.iter().chain(&next) {
            volume::clear(directory, at)?;
        }
    }
    for name in [SETTINGS, CORE] {
        directory::remove(&directory.join(name))?;
    }
    directory::sync(directory)
}

/// Removes what a death left of the making of a store.
pub(crate) fn clear_unfinished(directory: &Path) -> Result<()> {
    if let Some(settings) = announced(directory) {
        let core = core_path(directory, &settings);
        clear_partial(directory, &core)?;
        remove_core(directory, &core, |uuid| uuid == settings.live.region)?;
        if let Some(at) = &settings.volume {
            volume::clear(directory, at)?;
        }
    }
    clear_names(directory)?;
    directory::remove(&directory.join(CORE))?;
    directory::sync(directory)
}

/// Removes what a death left of the restoring of a core, in the directory of a store.
pub(crate) fn clear_partials(directory: &Path) -> Result<()> {
    if let Some(settings) = announced(directory) {
        let core = settings.core.clone().unwrap_or_else(|| directory.join(CORE));
        clear_partial(directory, &core)?;
        switch::clear_announced(directory, &settings)?;
    }
    clear_names(directory)
}

/// What was about to be made in `directory` when somebody died.
fn announced(directory: &Path) -> Option<Settings> {
    let path = partial(&directory.join(SETTINGS));
    let bytes = std::fs::read(&path).ok()?;
    Settings::parse(&path, &bytes).ok()
}

/// The user that this process acts for.
fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn clear_names(directory: &Path) -> Result<()> {
    directory::remove(&partial(&directory.join(CORE)))?;
    for name in [VOLUME, VOLUME_TWO] {
        directory::remove(&partial(&directory.join(name)))?;
    }
    let settings = directory.join(SETTINGS);
    let announced = partial(&settings);
    directory::remove(&directory::unwritten(&announced))?;
    directory::remove(&directory::unwritten(&settings))?;
    directory::remove(&announced)
}

/// Removes what was to become the core `path`. The settings of somebody else's directory can name
/// any file: there, only one where cores are put.
fn clear_partial(directory: &Path, path: &Path) -> Result<()> {
    let is_mine = std::fs::metadata(directory).is_ok_and(|found| found.uid() == me());
    if is_mine || default_place::is_ours(path) { directory::remove(&partial(path)) } else { Ok(()) }
}

/// Removes the core `path` if it holds a region that `is_its`, and nobody has it attached. A file
/// that holds no region stays, as it may be anything.
fn remove_core(directory: &Path, path: &Path, is_its: impl Fn(Id) -> bool) -> Result<()> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    // The settings of somebody else's directory can name any region: there, only what is his.
    let owner = std::fs::metadata(directory).map_or(me(), |found| found.uid());
    let is_known = owner == me() || owner == found.uid();
    if is_known && found.is_file() && found.len() == 0 && default_place::is_ours(path) {
        // Emptied by somebody who died before he could remove it.
        return directory::remove(path);
    }
    if !is_known || !region::identity(path).is_ok_and(is_its) {
        return Ok(());
    }
    let _held = hold_alone(directory, path)?;
    if let Some(core) = directory::OldCore::open(path)? {
        core.empty(path)?;
        directory::remove(path)?;
    }
    Ok(())
}

/// Holds others off the region on `path`, the core of the store in `directory`.
pub(crate) fn hold_alone(directory: &Path, path: &Path) -> Result<Box<region::Held>> {
    hold_whole(directory, path, None)
}

/// The same, with all of it there, if it can be loaded from `fill`.
pub(crate) fn hold_whole(
    directory: &Path,
    path: &Path,
    fill: Option<Arc<dyn Fill>>,
) -> Result<Box<region::Held>> {
    let directory = directory.to_owned();
    match region::hold(path, PATIENCE, fill)? {
        Hold::Held(held) => Ok(held),
        Hold::Attached(who) => Err(Error::Attached { directory, who: Names(who) }),
        Hold::Busy(waited) => {
            let holder = "processes that attach or detach".to_owned();
            Err(Error::Busy { directory, holder, waited })
        }
    }
}
