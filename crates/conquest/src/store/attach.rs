//! Attaching a store. What it costs does not depend on the number of files, however the store was
//! left: a look at `store.toml`, and what it costs to attach a region.

use std::path::Path;
use std::sync::Arc;

use conquest_pm::core::DurableMaker;
use conquest_pm::media::{Fill, Mapped, OsHost};
use conquest_pm::{Access, Holder, Options, Region};

use super::backing::{self, Backing};
use super::directory::SETTINGS;
use super::keeper::Program;
use super::large::LargeSpace;
use super::loading::{OfVolume, may_lack};
use super::lock::{StoreLock, absolute};
use super::new::Medium;
use super::settings::{Home, Live, Settings, is_absent};
use super::{Attach, Store, bring_back, live, make, region, switch};
use crate::error::failed;
use crate::files::actor::Attachment;
use crate::{Error, Fs, Result};

impl Store {
    /// Attaches the store in `directory`: finds its live core, checks that it is the right one, and
    /// attaches it.
    ///
    /// # Errors
    /// What is wrong with the store, or who is in the way.
    pub fn attach(directory: &Path, how: &Attach) -> Result<Store> {
        let given = directory;
        is_store(given)?;
        let directory = absolute(given);
        let lock = StoreLock::take(&directory, "attaching it", how.patience)?;
        // Half a core takes memory. That it stays, as without the right to write, harms nobody.
        let _cleared = make::clear_partials(&directory);
        let mut settings = Settings::read(&directory)?;
        let home = live::home(&directory, &settings)?;
        // What can't be written is found out again by the next one.
        let _settled = switch::settle(&directory, &mut settings);
        let is_logged = settings.medium == Medium::Logged;
        let backing = settings.volume.clone();
        let backing = backing.map(|at| Backing::new(&directory, at, is_logged, how.keeper.clone()));
        let image = bring_back::if_missing(&directory, &mut settings)?;
        let was_brought_back = image.is_some();
        // What has it open if nothing comes of this.
        let opened = Opened(backing.as_deref());
        if let (Some(backing), Some(image)) = (&backing, image) {
            backing.keep(image);
        }
        let found = live::find(&directory, &settings, how.adopt)?;
        if !how.adopt {
            live::refuse_torn(&directory, &settings, &found)?;
        }
        let access = Access { write_back: how.write_back, shield: how.shield };
        let options = Options {
            make_durable: make_durable(backing.as_ref(), &found),
            fill: fill(backing.as_ref(), &found)?,
            on_slow: how.on_slow.clone().map(|told| -> Box<dyn Fn(Holder) + Send + Sync> {
                Box::new(move |holder| told(holder))
            }),
            attach_patience: how.patience,
            ..Options::default()
        };
        let core = region::open(&found.path, access, options)?;
        let uuid = region::superblock(&core)?.uuid;
        if uuid != found.live.region.0 {
            // Replaced between the look and the attaching.
            let (expected, found_id) = (found.live.region, crate::Id(uuid));
            let core = found.path;
            return Err(Error::CoreOfAnother { directory, core, expected, found: found_id });
        }
        let swap = how.keep_from_swap.then(|| core.memory().keep_from_swap());
        let fs = region::files(Arc::clone(&core))?;
        let fs = match &backing {
            Some(backing) => on_volume(fs, backing, core),
            None => fs,
        };
        note(&directory, &mut settings, found.live, home, how.adopt)?;
        let was_dirty = !found.superblock.clean;
        if how.keeper == Program::This {
            // Before anybody can look who has it attached, to have the store for himself.
            fs.core().become_keeper();
        }
        // From here on it is closed when the store is detached.
        opened.stays();
        // It attaches the store, too.
        drop(lock);
        if let Some(backing) = &backing {
            backing.ensure_keeper();
        }
        let attachment = Arc::new(Attachment::new(fs, found.path, settings.uuid, backing));
        Ok(Store { directory, settings, swap, was_dirty, was_brought_back, attachment })
    }
}

/// `fs`, the files in `core`, with what they need of the volume `backing`.
fn on_volume(fs: Fs, backing: &Arc<Backing>, core: Arc<Region>) -> Fs {
    let fs = fs.with_space(Box::new(LargeSpace::new(Arc::clone(backing), core)));
    let fs = if backing.is_synchronous() { fs.synchronous() } else { fs };
    match backing.after_each() {
        Some(after_each) => fs.with_after_each(after_each),
        None => fs,
    }
}

/// Notes which core is the live one, and where the store in `directory` is at home, if that is not
/// known: it is found out again next time, unless it `must` be written.
fn note(
    directory: &Path,
    settings: &mut Settings,
    live: Live,
    home: Home,
    must: bool,
) -> Result<()> {
    let is_known = settings.live == live && settings.next.is_none() && settings.home == home;
    if is_known {
        return Ok(());
    }
    (settings.live, settings.next, settings.home) = (live, None, home);
    let written = settings.write(directory);
    if must { written } else { Ok(()) }
}

/// A volume that is closed if the store is not attached after all.
struct Opened<'b>(Option<&'b Backing>);

impl Opened<'_> {
    /// It is attached.
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // The error to report is the first one.
        let _closed = self.0.map(|backing| backing.close(Some(0)));
    }
}

/// What the core that was `found` is loaded from, if not all of it is there: it is open.
fn fill(backing: Option<&Arc<Backing>>, found: &live::Found) -> Result<Option<Arc<dyn Fill>>> {
    match backing {
        Some(backing) if may_lack(&found.superblock) => {
            backing.image_of(0)?;
            Ok(Some(Arc::new(OfVolume(Arc::clone(backing)))))
        }
        _ => Ok(None),
    }
}

/// What the core that was `found` needs to make itself durable.
fn make_durable(
    backing: Option<&Arc<Backing>>,
    found: &live::Found,
) -> Option<DurableMaker<Mapped, OsHost>> {
    match backing {
        Some(backing) if backing.is_logged() => Some(backing.maker()),
        _ if found.superblock.shape.log != 0 => Some(backing::forgetful()),
        _ => None,
    }
}

/// Refuses what is no store, before anything is made or locked there.
pub(crate) fn is_store(directory: &Path) -> Result<()> {
    let path = directory.join(SETTINGS);
    match std::fs::symlink_metadata(&path) {
        Ok(_) => Ok(()),
        Err(error) if is_absent(&error) => {
            Err(Error::NotAStore { directory: directory.to_owned() })
        }
        Err(error) => Err(failed(&path, "look at it")(error)),
    }
}
