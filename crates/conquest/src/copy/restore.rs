//! Restoring a store from a saved copy.
//!
//! In order: the whole copy is checked; then what is in the way; then, under the store's lock, the
//! new volume is made, if there is to be one, and what belongs on it is put there; the core is
//! built under a temporary name, from the copy, which is checked once more while it is read, or of
//! that volume; `store.toml` names both as what is about to be live (`next`); the core gets its
//! name; it is the live one; a volume that is not needed any more goes. A death at any moment
//! leaves the old core and its volume or the new ones in place, and what is left besides is removed
//! by the next call.
//!
//! A volume on devices can't be kept until another one on them is complete: a store on the same
//! devices is gone once restoring has begun, and a death leaves what the next call clears away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conquest_format::Geometry;
use conquest_format::geometry::STATE;
use conquest_format::mark::Mark;
use conquest_format::volume::BLOCK;
use conquest_fs::large::NewLarge;
use conquest_pm::attach::NewRegion;

use super::checked::{self, Copy};
use super::fill::{self, Wanted};
use super::{Meter, RestoreOptions, Restored};
use crate::error::failed;
use crate::store::bytes::Blank;
use crate::store::directory::{self, CORE, OldCore, SETTINGS};
use crate::store::identity::FileId;
use crate::store::lock::{StoreLock, absolute};
use crate::store::make::{Maker, PATIENCE, finish, hold_alone, volume_rule};
use crate::store::new::{CHUNK_DEFAULT, CorePlace, Medium, NewStore, VolumePlace};
use crate::store::place::{self, CoreFile};
use crate::store::region::{self, Held};
use crate::store::settings::{Change, Live, Next, Settings, VolumeAt};
use crate::store::shape::reshaped;
use crate::store::volume::{self, Volume};
use crate::store::{bring_back, default_place, live, make, mark, switch};
use crate::{Error, Id, Result, machine};

/// Restores the store that was saved to `from` in `directory`: a store of the same identity, or a
/// directory that is made or is empty.
///
/// # Errors
/// What is wrong with the copy: then nothing was touched. What is in the way, or what the system
/// refuses: then the old core, if there is one, is as it was, unless its volume was on devices that
/// the new one is on. [`Error::Cancelled`], the same.
pub fn restore(from: &Path, directory: &Path, options: RestoreOptions<'_>) -> Result<Restored> {
    let RestoreOptions { progress, .. } = options;
    let options = RestoreOptions { progress: None, ..options };
    let (copy, mut meter) = checked::open(from, progress)?;
    let new = new_store(directory, &options, &copy.settings);
    let is_new = std::fs::symlink_metadata(directory).is_err();
    directory::prepare(directory, &new)?;
    let directory = absolute(directory);
    let lock = StoreLock::take(&directory, "restoring it", PATIENCE)?;
    let restored = restore_in(&directory, &options, from, copy, new, &mut meter);
    if restored.is_err() && is_new {
        // The error to report is the first one.
        let _removed = directory::remove(&directory.join(directory::LOCK));
        let _removed = std::fs::remove_dir(&directory);
    }
    drop(lock);
    restored
}

/// The same in `directory`, which is there, under its lock.
fn restore_in(
    directory: &Path,
    options: &RestoreOptions<'_>,
    from: &Path,
    copy: Copy,
    new: NewStore,
    meter: &mut Meter<'_>,
) -> Result<Restored> {
    let present = present(directory, options, &copy)?;
    let volume = wanted_volume(directory, options, &copy, present.as_ref())?;
    let was = present.as_ref().unwrap_or(&copy.settings).volume.as_ref();
    let sync = options.sync.or(was.or(copy.settings.volume.as_ref()).map(|at| at.sync));
    let sync = sync.filter(|_| volume.is_some());
    let new = NewStore { volume, sync, ..new };
    let maker = Maker::new(directory, &new);
    let mut restorer = Restorer { directory, options, from, maker, copy };
    let restored = match present {
        Some(settings) => restorer.replace(settings, meter),
        None => restorer.begin(None, meter),
    };
    if restored.is_err() {
        // The error to report is the first one.
        restorer.maker.undo();
    }
    restored
}

/// What a store would be that is made for the copy.
fn new_store(directory: &Path, options: &RestoreOptions<'_>, settings: &Settings) -> NewStore {
    use std::os::unix::fs::MetadataExt;
    let (mut owner, mut mode) = (options.owner, options.mode);
    // A store that is there keeps its owner and permissions.
    if let Ok(found) = std::fs::metadata(directory.join(SETTINGS)) {
        (owner, mode) = (Some((found.uid(), found.gid())), found.mode() & 0o777);
    }
    NewStore {
        core: options.core.clone(),
        medium: options.medium,
        placement: settings.placement,
        owner,
        mode: if mode == 0 { 0o600 } else { mode },
        force: options.force,
        volume: None,
        ..NewStore::default()
    }
}

/// The settings of the store that is there and is to get the core; none if a new one is to be made.
fn present(
    directory: &Path,
    options: &RestoreOptions<'_>,
    copy: &Copy,
) -> Result<Option<Settings>> {
    if !directory.join(SETTINGS).exists() {
        make::clear_unfinished(directory)?;
        return Ok(None);
    }
    let settings = match Settings::read(directory) {
        Err(_) if options.force => None,
        found => Some(found?),
    };
    let saved = copy.settings.uuid;
    match settings {
        Some(mut found) if found.uuid == saved && !options.new_identity => {
            make::clear_partials(directory)?;
            switch::settle(directory, &mut found)?;
            Ok(Some(found))
        }
        Some(found) if !options.force => {
            let (directory, expected) = (directory.to_owned(), found.uuid);
            Err(Error::CopyOfAnother { directory, expected, found: saved })
        }
        _ => {
            make::clear_store(directory)?;
            make::clear_unfinished(directory)?;
            Ok(None)
        }
    }
}

/// Where the volume of the restored store is to be; none if it is to have none.
fn wanted_volume(
    directory: &Path,
    options: &RestoreOptions<'_>,
    copy: &Copy,
    present: Option<&Settings>,
) -> Result<Option<VolumePlace>> {
    let header = &copy.reader.header;
    let rule = |what| Err(Error::VolumeRule { directory: directory.to_owned(), what });
    let needs_none = header.large_files == 0;
    let size = |bytes: u64| (bytes > 0).then_some(VolumePlace::Size(bytes));
    let medium = with_volume(options, copy);
    let is_for_one = match medium {
        Medium::Battery | Medium::Dax => copy.settings.volume.is_some(),
        medium => matches!(medium, Medium::Auto | Medium::Logged),
    };
    let named = options.volume.as_ref().filter(|place| **place != VolumePlace::Auto);
    let place = match (named, present) {
        (Some(place), _) => Some(place.clone()),
        (None, _) if !is_for_one => None,
        (None, Some(Settings { volume: Some(at), .. })) => present_volume(directory, at, header)?,
        (None, Some(_)) if options.medium == Medium::Auto => None,
        // A core that can't be in RAM has no volume, if it needs none.
        (None, None) if needs_none && !is_in_ram(directory, options) => None,
        (None, _) => size(header.volume_bytes),
    };
    match &place {
        None if !needs_none => Err(Error::LargeFiles { directory: directory.to_owned() }),
        None if options.medium == Medium::Logged => {
            rule("a core on logged RAM needs a volume (name one with --volume)")
        }
        None if options.sync.is_some() => rule("--sync is for stores with a volume"),
        Some(_)
            if !matches!(medium, Medium::Battery | Medium::Dax)
                && reshaped(header.shape, true).is_none() =>
        {
            rule(NO_LOG)
        }
        _ => Ok(place),
    }
}

/// Why a core can't be logged.
const NO_LOG: &str = "the store that was saved has no log, and is too small to get one (make one \
                      with `conquest mkfs --volume`, restore the copy to another directory, and \
                      copy the files)";

/// The medium to ask for if there is to be a volume: the copy's, if that is durable without an
/// image, and had one.
fn with_volume(options: &RestoreOptions<'_>, copy: &Copy) -> Medium {
    let Settings { medium, volume, .. } = &copy.settings;
    let is_kept = options.medium == Medium::Auto
        && volume.is_some()
        && matches!(medium, Medium::Battery | Medium::Dax);
    if is_kept { *medium } else { options.medium }
}

/// The volume that takes the place of `at`, which the store has that is there.
fn present_volume(
    directory: &Path,
    at: &VolumeAt,
    header: &conquest_format::saved::Header,
) -> Result<Option<VolumePlace>> {
    if volume::is_file(at) {
        let present = volume::bytes_by_files(directory, at);
        let bytes = if header.volume_bytes > 0 { header.volume_bytes } else { present };
        return Ok(Some(VolumePlace::Size(bytes)));
    }
    let (paths, mirror) = (at.devices.clone(), volume::is_mirror(directory, at)?);
    Ok(Some(VolumePlace::Devices { paths, mirror }))
}

/// Whether the core may be in RAM, as far as the place for it is named.
fn is_in_ram(directory: &Path, options: &RestoreOptions<'_>) -> bool {
    let CorePlace::Path(path) = &options.core else {
        return true;
    };
    place::named(directory, path).is_ok_and(|file| {
        place::medium_on(&file.path, &file.kind, Medium::Auto).is_ok_and(|it| it == Medium::Ram)
    })
}

/// The restoring of one store.
struct Restorer<'o, 'p> {
    directory: &'o Path,
    options: &'o RestoreOptions<'p>,
    from: &'o Path,
    maker: Maker<'o>,
    copy: Copy,
}

/// What a store keeps whose volume is made anew in its place.
struct Kept {
    settings: Settings,
    core: CoreFile,
}

impl Restorer<'_, '_> {
    // --- a store that is not there ------------------------------------------------------------

    fn begin(&mut self, kept: Option<Kept>, meter: &mut Meter<'_>) -> Result<Restored> {
        let saved = self.copy.settings.clone();
        if !self.options.new_identity && !self.options.force {
            self.refuse_double(&saved)?;
        }
        let random = || Id::random().map_err(failed(self.directory, "ask for random numbers"));
        let is_new = self.options.new_identity;
        let uuid = if is_new { random()? } else { saved.uuid };
        let region = if is_new { random()? } else { saved.live.region };
        let (document, file) = match kept {
            Some(kept) => (kept.settings.document, kept.core),
            None => (saved.document, self.choose(uuid)?),
        };
        if std::fs::symlink_metadata(&file.path).is_ok() && !file.is_device() {
            return Err(Error::CoreExists { core: file.path });
        }
        let mut settings = self.settings(uuid, region, &file)?;
        settings.document = document;
        self.maker.announce(&settings)?;
        if file.is_linked {
            self.maker.link(&file.path)?;
        }
        settings.live.file = self.build(&file, &settings, None, meter)?;
        self.maker.put_in_place(&file)?;
        self.maker.settle(&settings)?;
        Ok(self.restored(&file.path, &settings))
    }

    /// Refuses to make a second store of an identity whose first one still lives where it was.
    fn refuse_double(&self, saved: &Settings) -> Result<()> {
        let original = &saved.home.path;
        let lives = Settings::read(original).is_ok_and(|there| {
            there.uuid == saved.uuid && live::find(original, &there, false).is_ok()
        });
        if lives {
            let (directory, original) = (self.directory.to_owned(), original.clone());
            return Err(Error::OriginalLives { directory, original });
        }
        Ok(())
    }

    fn settings(&self, uuid: Id, region: Id, file: &CoreFile) -> Result<Settings> {
        let new = self.maker.new_store();
        let on = |wanted| place::medium_on(&file.path, &file.kind, wanted);
        let medium = match new.volume {
            Some(_) => {
                on(with_volume(self.options, &self.copy)).or_else(|_| on(self.options.medium))?
            }
            None => on(self.medium(file))?,
        };
        let medium = volume_rule(self.directory, new, medium)?;
        self.maker.settings(uuid, region, medium, file)
    }

    /// The medium to ask for: a battery is kept where there can be one.
    fn medium(&self, file: &CoreFile) -> Medium {
        let was = match self.copy.settings.medium {
            // Without a volume it is that.
            Medium::Logged => Medium::Ram,
            other => other,
        };
        let is_possible = place::medium_on(&file.path, &file.kind, was).is_ok();
        if self.options.medium == Medium::Auto && is_possible { was } else { self.options.medium }
    }

    // --- a store that is there ----------------------------------------------------------------

    fn replace(&mut self, mut old: Settings, meter: &mut Meter<'_>) -> Result<Restored> {
        live::home(self.directory, &old)?;
        if !self.options.force {
            // What is not in RAM is not lost, and may be newer.
            let image = bring_back::if_missing(self.directory, &mut old)?;
            // It is about to be replaced.
            let _closed = image.map(volume::close_image);
        }
        let held = self.hold_old(&old)?;
        let old_path = live::core_path(self.directory, &old);
        let file = self.place_again(&old, &old_path)?;
        if let Some(at) = old.volume.clone().filter(|at| self.is_on_same_devices(at)) {
            self.check_fits(&at)?;
            drop(held);
            make::clear_store(self.directory)?;
            let own: Vec<PathBuf> = at.devices.iter().map(|it| self.directory.join(it)).collect();
            self.maker.may_overwrite(&own);
            return self.begin(Some(Kept { settings: old, core: file }), meter);
        }
        let region = self.copy.settings.live.region;
        let mut settings = Settings { document: old.document.clone(), ..old };
        let planned = self.settings(settings.uuid, region, &file)?;
        self.maker.announce(&Settings { next: None, ..planned.clone() })?;
        let incarnation = planned.live.incarnation;
        let id = self.build(&file, &planned, Some(settings.live.region), meter)?;
        let old_core = match &held {
            Some(_) => OldCore::open(&old_path)?,
            None => None,
        };
        let live = Live { region, incarnation, boot: machine::boot()?, file: id };
        self.put_in_place(&mut settings, live, &planned, &file)?;
        if file.path != old_path {
            self.relink(&file)?;
        }
        let loser = std::mem::replace(&mut settings.volume, planned.volume);
        (settings.live, settings.next) = (live, None);
        (settings.medium, settings.core, settings.home) =
            (planned.medium, planned.core, planned.home);
        switch::finish(self.directory, &settings, loser.as_ref())?;
        if let Some(core) = old_core {
            core.empty(&old_path)?;
            if file.path != old_path {
                directory::remove(&old_path)?;
            }
        }
        drop(held);
        Ok(self.restored(&file.path, &settings))
    }

    /// Names the core `live` as the one that is about to be live, with what `planned` says besides,
    /// and gives it its name.
    fn put_in_place(
        &mut self,
        settings: &mut Settings,
        live: Live,
        planned: &Settings,
        file: &CoreFile,
    ) -> Result<()> {
        let (medium, core) = (planned.medium, planned.core.clone());
        let change = Change { medium, core, volume: planned.volume.clone() };
        settings.next = Some(Next { live, change: Some(change) });
        settings.write(self.directory)?;
        if file.is_device() {
            return Ok(());
        }
        if let Err(error) = directory::put_in_place(&file.partial(), &file.path) {
            if planned.volume.is_some() {
                settings.next = None;
                // The error to report is the first one. The volume goes, so nothing may name it.
                let _written = settings.write(self.directory);
            }
            return Err(error);
        }
        self.maker.forget();
        Ok(())
    }

    /// Whether the new volume is on a device that the present one, `at`, is on.
    fn is_on_same_devices(&self, at: &VolumeAt) -> bool {
        let Some(VolumePlace::Devices { paths, .. }) = &self.maker.new_store().volume else {
            return false;
        };
        let found = |path: &PathBuf| std::fs::canonicalize(self.directory.join(path)).ok();
        let present: Vec<PathBuf> = at.devices.iter().filter_map(found).collect();
        let wanted = |path: &PathBuf| std::fs::canonicalize(path).ok();
        paths.iter().filter_map(wanted).any(|path| present.contains(&path))
    }

    /// Refuses what does not fit on the devices of the present volume `at`, as far as they are the
    /// same and can be read: before anything on them is lost.
    fn check_fits(&self, at: &VolumeAt) -> Result<()> {
        let header = &self.copy.reader.header;
        let count = match &self.maker.new_store().volume {
            Some(VolumePlace::Devices { paths, .. }) => paths.len(),
            _ => 0,
        };
        let is_logged =
            !matches!(with_volume(self.options, &self.copy), Medium::Battery | Medium::Dax);
        let shape = reshaped(header.shape, true).unwrap_or(header.shape);
        let shape = is_logged.then_some(shape);
        match volume::open(self.directory, at) {
            Ok(volume) if count == at.devices.len() => {
                let checked = volume::check_size(&volume, shape, header.large_bytes);
                volume.close()?;
                checked
            }
            Ok(volume) => Ok(volume.close()?),
            Err(_) => Ok(()),
        }
    }

    /// Holds others off the old core, if it is there; refused if somebody has it attached, or if
    /// what is in it would be lost.
    fn hold_old(&self, old: &Settings) -> Result<Option<Box<Held>>> {
        let (directory, force) = (self.directory, self.options.force);
        let found = match live::find(directory, old, false) {
            Ok(found) => found,
            // It is lost for good.
            Err(Error::CoreLost { .. }) => return Ok(None),
            // It may be somewhere else, or be somebody else's.
            Err(_) if force => {
                let path = live::core_path(directory, old);
                return match hold_alone(directory, &path) {
                    Ok(held) => Ok(Some(held)),
                    Err(error @ (Error::Attached { .. } | Error::Busy { .. })) => Err(error),
                    // There is nothing, or no region.
                    Err(_) => Ok(None),
                };
            }
            Err(error) => return Err(error),
        };
        let held = hold_alone(directory, &found.path)?;
        let (header, superblock) = (&self.copy.reader.header, &held.superblock);
        let is_saved = found.live.incarnation.0 == header.incarnation
            && superblock.sequence == header.sequence
            && superblock.clean;
        if !is_saved && !force {
            return Err(Error::CoreNewer {
                directory: directory.to_owned(),
                core: superblock.attach_generation,
                copy: header.attach_generation,
            });
        }
        Ok(Some(held))
    }

    /// The place for the new core: that of the old one, unless another is asked for, or it was
    /// chosen by default.
    fn place_again(&self, old: &Settings, old_path: &Path) -> Result<CoreFile> {
        let is_elsewhere = match &self.options.core {
            CorePlace::Default => default_place::is_ours(old_path),
            CorePlace::Path(path) => std::path::absolute(path).is_ok_and(|path| path != old_path),
        };
        if is_elsewhere {
            return self.choose(old.uuid);
        }
        let found = std::fs::metadata(old_path);
        if found.is_ok_and(|found| !found.is_file()) {
            return place::named(self.directory, old_path);
        }
        let is_linked = old_path != self.directory.join(CORE);
        if is_linked {
            self.trust_link()?;
        }
        let kind = place::probe(old_path)?;
        Ok(CoreFile { path: old_path.to_owned(), is_linked, kind })
    }

    /// Refuses to go by a link that somebody else may have made: it leads anywhere.
    fn trust_link(&self) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let (path, me) = (self.directory, rustix::process::geteuid().as_raw());
        let found = std::fs::metadata(path).map_err(failed(path, "look who owns it"))?;
        if found.uid() == me || found.uid() == 0 {
            return Ok(());
        }
        let what = format!("user {} chose where its core goes; name the place", found.uid());
        Err(Error::Untrusted { path: path.to_owned(), what })
    }

    /// Makes the link to the core lead to `file`.
    fn relink(&self, file: &CoreFile) -> Result<()> {
        let link = self.directory.join(CORE);
        if !file.is_linked {
            return Ok(());
        }
        let temporary = directory::partial(&link);
        directory::remove(&temporary)?;
        let linked = std::os::unix::fs::symlink(&file.path, &temporary);
        linked.map_err(failed(&temporary, "link to the core"))?;
        directory::put_in_place(&temporary, &link)
    }

    // --- both ---------------------------------------------------------------------------------

    fn choose(&self, uuid: Id) -> Result<CoreFile> {
        let header = &self.copy.reader.header;
        let size = Geometry::new(header.shape).map_or(0, |whole| {
            whole.space(0, header.groups).iter().map(|range| range.end - range.start).sum()
        });
        match &self.options.core {
            CorePlace::Default => {
                default_place::choose(self.directory, self.maker.new_store(), uuid, size)
            }
            CorePlace::Path(path) => place::named(self.directory, path),
        }
    }

    /// Builds the core of the store that `settings` are of, under its temporary name, and before it
    /// the volume, if there is to be one: which file it is. Where `old` is, it may be lost.
    fn build(
        &mut self,
        file: &CoreFile,
        settings: &Settings,
        old: Option<Id>,
        meter: &mut Meter<'_>,
    ) -> Result<FileId> {
        let temporary = file.partial();
        self.maker.will_make(file, old)?;
        let region = settings.live.region;
        match &settings.volume {
            Some(at) if settings.medium == Medium::Logged => {
                self.build_logged(&temporary, at, region, meter)?;
            }
            at => self.build_plain(&temporary, file, at.as_ref(), region, meter)?,
        }
        let (mode, owner) = (self.maker.new_store().mode, self.maker.new_store().owner);
        finish(&temporary, file, mode, owner)?;
        let look = std::fs::metadata(&temporary).map_err(failed(&temporary, "look at it"))?;
        Ok(FileId::of(&look))
    }

    /// Builds a core without an image: with no log, if it can be without. Makes the volume `at` for
    /// its large files, if there is to be one.
    fn build_plain(
        &mut self,
        temporary: &Path,
        file: &CoreFile,
        at: Option<&VolumeAt>,
        region: Id,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let large = self.copy.reader.header.large_bytes;
        let volume = match at {
            Some(at) => Some(self.maker.make_volume_for(at, None, large)?),
            None => None,
        };
        let built = self.build_core(temporary, file, volume.as_ref(), region, meter);
        let closed = volume.map_or(Ok(()), Volume::close);
        built?;
        Ok(closed?)
    }

    /// [`Self::build_plain`] with its volume, which is open.
    fn build_core(
        &mut self,
        temporary: &Path,
        file: &CoreFile,
        volume: Option<&Volume>,
        region: Id,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let mode = self.maker.new_store().mode;
        let header = &self.copy.reader.header;
        let (was, groups) = (header.shape, header.groups);
        let shape = reshaped(was, false).unwrap_or(was);
        let chunks = header.holding_chunks.min(shape.chunks);
        let geometry = Geometry::new(shape).ok_or_else(|| Error::TooSmall {
            core: temporary.to_owned(),
            expected: was.max_groups,
            found: 0,
        })?;
        let mut blank = Blank::make(temporary, file, mode, &geometry, (groups, chunks))?;
        let (text, seed) = self.copy.text;
        self.copy.reader.rewind(text, seed)?;
        meter.add(text)?;
        let large = volume.map(|_| self.new_large());
        let mark = volume.map_or(Ok(0), |_| mark::first(self.directory))?;
        let plan = self.copy.reader.region(text, meter, |at, data| {
            if (at..at + data.len() as u64).contains(&STATE.bytes()) {
                let mut data = data.to_vec();
                fill::place_large(at, &mut data, large, mark);
                blank.put(at, &data);
            } else {
                blank.put(at, data);
            }
            Ok(())
        })?;
        if let Some(volume) = volume {
            let read = |at: u64, out: &mut [u8]| {
                blank.read(at, out);
                Ok(())
            };
            let labels = Some(region);
            let chunk_blocks =
                fill::put_large(&mut self.copy, volume, &plan, (&read, labels), meter)?;
            mark::write(volume, &Mark { region: region.0, number: mark, chunk_blocks })?;
        }
        self.copy.reader.end()?;
        if region.0 != self.copy.reader.header.region || shape != was {
            checked::rewrite(temporary, blank.first(), region, shape)?;
        }
        blank.finish()
    }

    /// Makes the volume `at` with what the copy has, and brings the core back of it.
    fn build_logged(
        &mut self,
        temporary: &Path,
        at: &VolumeAt,
        region: Id,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let new = self.maker.new_store();
        let header = &self.copy.reader.header;
        let (was, large) = (header.shape, header.large_bytes);
        let Some(shape) = reshaped(was, true) else {
            let directory = self.directory.to_owned();
            return Err(Error::VolumeRule { directory, what: NO_LOG });
        };
        let (kinds, created) = (self.copy.superblock.kinds, self.copy.superblock.created);
        let wanted = Wanted {
            from: self.from,
            region: NewRegion { shape, kinds, uuid: region.0, created, groups: 1 },
            large: self.new_large(),
        };
        let volume = Arc::new(self.maker.make_volume_for(at, Some(shape), large)?);
        let made = fill::fill(&mut self.copy, &volume, &wanted, meter)
            .and_then(|image| region::bring_back(temporary, new, &wanted.region, &Arc::new(image)));
        let closed = Arc::into_inner(volume).map_or(Ok(()), Volume::close);
        made?;
        Ok(closed?)
    }

    /// Where large files go, if the copy does not say it.
    fn new_large(&self) -> NewLarge {
        let new = self.maker.new_store();
        NewLarge {
            threshold: new.placement.threshold,
            chunk_blocks: new.chunk.unwrap_or(CHUNK_DEFAULT) / BLOCK,
        }
    }

    fn restored(&self, core: &Path, settings: &Settings) -> Restored {
        let header = &self.copy.reader.header;
        let devices = settings.volume.iter().flat_map(|at| &at.devices);
        Restored {
            directory: self.directory.to_owned(),
            core: PathBuf::from(core),
            volume: devices.map(|path| self.directory.join(path)).collect(),
            store: settings.uuid,
            bytes: self.copy.bytes,
            large_bytes: header.large_bytes,
            saved_at: header.saved_at,
            attach_generation: header.attach_generation,
        }
    }
}
