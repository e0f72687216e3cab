//! Restoring a store from a saved copy.
//!
//! In order: the whole copy is checked; then what is in the way; then, under the store's lock, the
//! core is built under a temporary name from the copy, which is checked once more while it is read;
//! `store.toml` names it as the core that is about to be live (`next`); it gets its name; it is the
//! live one. A death at any moment leaves the old core or the new one in place, and what is left
//! under a temporary name is removed by the next call.

use std::path::{Path, PathBuf};

use conquest_format::Geometry;

use super::checked::{self, Copy};
use super::{Meter, RestoreOptions, Restored};
use crate::error::failed;
use crate::store::bytes::Blank;
use crate::store::directory::{self, CORE, OldCore, SETTINGS};
use crate::store::identity::FileId;
use crate::store::lock::{StoreLock, absolute};
use crate::store::make::{Maker, PATIENCE, finish, hold_alone};
use crate::store::new::{CorePlace, Medium, NewStore};
use crate::store::place::{self, CoreFile};
use crate::store::region::Held;
use crate::store::settings::{Live, Settings};
use crate::store::{default_place, live, make};
use crate::{Error, Id, Result, machine};

/// Restores the store that was saved to `from` in `directory`: a store of the same identity, or a
/// directory that is made or is empty.
///
/// # Errors
/// What is wrong with the copy: then nothing was touched. What is in the way, or what the system
/// refuses: then the old core, if there is one, is as it was. [`Error::Cancelled`], the same.
pub fn restore(from: &Path, directory: &Path, options: RestoreOptions<'_>) -> Result<Restored> {
    let RestoreOptions { progress, core, .. } = options;
    let options = RestoreOptions { progress: None, core: core.clone(), ..options };
    let (copy, mut meter) = checked::open(from, progress)?;
    let new = new_store(directory, &options, &copy.settings);
    let is_new = std::fs::symlink_metadata(directory).is_err();
    directory::prepare(directory, &new)?;
    let directory = absolute(directory);
    let lock = StoreLock::take(&directory, "restoring it", PATIENCE)?;
    let mut restorer = Restorer {
        directory: &directory,
        options: &options,
        maker: Maker::new(&directory, &new),
        copy,
    };
    let restored = restorer.restore(&mut meter);
    if restored.is_err() {
        // The error to report is the first one.
        restorer.maker.undo();
        if is_new {
            let _removed = directory::remove(&directory.join(directory::LOCK));
            let _removed = std::fs::remove_dir(&directory);
        }
    }
    drop(lock);
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

/// The restoring of one store.
struct Restorer<'o> {
    directory: &'o Path,
    options: &'o RestoreOptions<'o>,
    maker: Maker<'o>,
    copy: Copy,
}

impl Restorer<'_> {
    fn restore(&mut self, meter: &mut Meter<'_>) -> Result<Restored> {
        match self.present()? {
            Some(settings) => self.replace(settings, meter),
            None => self.begin(meter),
        }
    }

    /// The settings of the store that is there and is to get the core; none if a new one is to be
    /// made.
    fn present(&self) -> Result<Option<Settings>> {
        let (directory, force) = (self.directory, self.options.force);
        if !directory.join(SETTINGS).exists() {
            make::clear_unfinished(directory)?;
            return Ok(None);
        }
        let settings = match Settings::read(directory) {
            Err(_) if force => None,
            found => Some(found?),
        };
        let saved = self.copy.settings.uuid;
        match settings {
            Some(found) if found.uuid == saved && !self.options.new_identity => Ok(Some(found)),
            Some(found) if !force => {
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

    // --- a store that is not there ------------------------------------------------------------

    fn begin(&mut self, meter: &mut Meter<'_>) -> Result<Restored> {
        let saved = self.copy.settings.clone();
        if !self.options.new_identity && !self.options.force {
            self.refuse_double(&saved)?;
        }
        let random = || Id::random().map_err(failed(self.directory, "ask for random numbers"));
        let is_new = self.options.new_identity;
        let uuid = if is_new { random()? } else { saved.uuid };
        let region = if is_new { random()? } else { saved.live.region };
        let file = self.choose(uuid)?;
        if std::fs::symlink_metadata(&file.path).is_ok() && !file.is_device() {
            return Err(Error::CoreExists { core: file.path });
        }
        let mut settings = self.settings(uuid, region, &file)?;
        settings.document = saved.document;
        self.maker.announce(&settings)?;
        if file.is_linked {
            self.maker.link(&file.path)?;
        }
        settings.live.file = self.build(&file, region, None, meter)?;
        self.maker.put_in_place(&file)?;
        self.maker.settle(&settings)?;
        Ok(self.restored(&file.path, uuid))
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
        let wanted = self.medium(file);
        self.maker.settings(uuid, region, place::medium_on(&file.path, &file.kind, wanted)?, file)
    }

    /// The medium to ask for: a battery is kept where there can be one.
    fn medium(&self, file: &CoreFile) -> Medium {
        let was = match self.copy.settings.medium {
            // What a copy has of a log nothing waits for.
            Medium::Logged => Medium::Ram,
            other => other,
        };
        let is_possible = place::medium_on(&file.path, &file.kind, was).is_ok();
        if self.options.medium == Medium::Auto && is_possible { was } else { self.options.medium }
    }

    // --- a store that is there ----------------------------------------------------------------

    fn replace(&mut self, old: Settings, meter: &mut Meter<'_>) -> Result<Restored> {
        if old.volume.is_some() {
            let what = "its core is on a volume, which a copy can't replace (restore to another \
                        directory, or destroy this store before)";
            return Err(Error::VolumeRule { directory: self.directory.to_owned(), what });
        }
        make::clear_partials(self.directory)?;
        live::home(self.directory, &old)?;
        let held = self.hold_old(&old)?;
        let old_path = live::core_path(self.directory, &old);
        let file = self.place_again(&old, &old_path)?;
        let region = self.copy.settings.live.region;
        let mut settings = Settings { document: old.document.clone(), ..old };
        let planned = self.settings(settings.uuid, region, &file)?;
        let announced = Settings { next: None, ..planned.clone() };
        self.maker.announce(&announced)?;
        let incarnation = planned.live.incarnation;
        let id = self.build(&file, region, Some(settings.live.region), meter)?;
        let old_core = match &held {
            Some(_) => OldCore::open(&old_path)?,
            None => None,
        };
        let next = Live { region, incarnation, boot: machine::boot()?, file: id };
        settings.next = Some(next);
        settings.write(self.directory)?;
        if !file.is_device() {
            directory::put_in_place(&file.partial(), &file.path)?;
            self.maker.forget();
        }
        if file.path != old_path {
            self.relink(&file)?;
        }
        (settings.live, settings.next) = (next, None);
        (settings.medium, settings.core, settings.home) =
            (planned.medium, planned.core, planned.home);
        settings.write(self.directory)?;
        directory::remove(&directory::partial(&self.directory.join(SETTINGS)))?;
        if let Some(core) = old_core {
            core.empty(&old_path)?;
            if file.path != old_path {
                directory::remove(&old_path)?;
            }
        }
        drop(held);
        Ok(self.restored(&file.path, settings.uuid))
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

    /// Builds the core under its temporary name: which file it is. Where `old` is, it may be lost.
    fn build(
        &mut self,
        file: &CoreFile,
        region: Id,
        old: Option<Id>,
        meter: &mut Meter<'_>,
    ) -> Result<FileId> {
        let temporary = file.partial();
        self.maker.will_make(file, old)?;
        let (mode, owner) = (self.maker.new_store().mode, self.maker.new_store().owner);
        let plan = self.copy.reader.plan()?;
        let (geometry, groups) = (plan.geometry(), plan.groups());
        let chunks = self.copy.reader.header.holding_chunks;
        let mut blank = Blank::make(&temporary, file, mode, geometry, (groups, chunks))?;
        let (text, seed) = self.copy.text;
        self.copy.reader.rewind(text, seed)?;
        meter.add(text)?;
        self.copy.reader.region(text, meter, |at, data| {
            blank.put(at, data);
            Ok(())
        })?;
        if region.0 != self.copy.reader.header.region {
            checked::rename_region(&temporary, blank.first(), region)?;
        }
        blank.finish()?;
        finish(&temporary, file, mode, owner)?;
        let look = std::fs::metadata(&temporary).map_err(failed(&temporary, "look at it"))?;
        Ok(FileId::of(&look))
    }

    fn restored(&self, core: &Path, store: Id) -> Restored {
        let header = &self.copy.reader.header;
        Restored {
            directory: self.directory.to_owned(),
            core: PathBuf::from(core),
            store,
            bytes: self.copy.bytes,
            saved_at: header.saved_at,
            attach_generation: header.attach_generation,
        }
    }
}
