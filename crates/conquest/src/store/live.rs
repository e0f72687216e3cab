//! Which core is a store's live one: found, and told from any other.
//!
//! | what stands in the core's place | decision |
//! | --- | --- |
//! | the live core, in this boot | it is attached |
//! | the core that was about to replace it (`next`) | it is the live one now |
//! | on a disk or persistent memory: the same inode, after a restart | it is the live one |
//! | nothing, and the live core was in RAM before a restart | lost |
//! | nothing otherwise | gone: removed, or not mounted here |
//! | a file with another region | another store's core |
//! | another file with this region | foreign: a copy, or another container's |

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use conquest_format::superblock::Superblock;

use super::directory::{CORE, SETTINGS};
use super::identity::{FileId, Place};
use super::new::Medium;
use super::place::is_volatile;
use super::region;
use super::settings::{Home, Live, Next, Settings, is_absent};
use crate::error::failed;
use crate::{Error, Id, Result, machine};

/// The live core, found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its file, from the root, without symbolic links.
    pub(crate) path: PathBuf,
    /// What `store.toml` should say of it.
    pub(crate) live: Live,
    /// Its superblock, as it stood.
    pub(crate) superblock: Superblock,
}

/// Where the core of the store in `directory` is, as far as can be told.
pub(crate) fn core_path(directory: &Path, settings: &Settings) -> PathBuf {
    let link = directory.join(CORE);
    if std::fs::symlink_metadata(&link).is_err()
        && let Some(path) = &settings.core
    {
        return path.clone();
    }
    match std::fs::read_link(&link) {
        Ok(target) => directory.join(target),
        Err(_) => link,
    }
}

/// Finds the live core of the store in `directory`; with `adopt`, the file that is in its place is
/// the live core if it holds the store's region.
pub(crate) fn find(directory: &Path, settings: &Settings, adopt: bool) -> Result<Found> {
    let named = core_path(directory, settings);
    let boot = machine::boot()?;
    let found = match std::fs::metadata(&named) {
        Ok(found) => found,
        Err(error) if is_absent(&error) => return Err(absent(directory, settings, named, boot)),
        Err(error) => return Err(failed(&named, "look at the core")(error)),
    };
    let path = std::fs::canonicalize(&named).map_err(failed(&named, "find the core"))?;
    let here = Place { file: FileId::of(&found), boot };
    let next = settings.next.as_ref();
    let known = || next.map(|next| &next.live).into_iter().chain([&settings.live]);
    let matching = known().find(|live| is_same(live, here, settings.medium));
    let superblock = region::peek_path(&path)?;
    let uuid = Id(superblock.uuid);
    let is_right = match matching {
        Some(live) => live.region == uuid,
        None => known().any(|live| live.region == uuid),
    };
    let directory = directory.to_owned();
    if !is_right {
        let expected = settings.live.region;
        return Err(Error::CoreOfAnother { directory, core: path, expected, found: uuid });
    }
    let incarnation = match matching {
        Some(live) => live.incarnation,
        // It need not be what the live one was, even if it has come as far.
        None if adopt => Id::random().map_err(failed(&path, "ask for random numbers"))?,
        None => {
            let expected = Place { file: settings.live.file, boot: settings.live.boot };
            return Err(Error::CoreForeign { directory, core: path, expected, found: here });
        }
    };
    let live = Live { region: uuid, incarnation, boot, file: here.file };
    Ok(Found { path, live, superblock })
}

/// Whether the file `here` is the core `live`, which is on `medium`.
fn is_same(live: &Live, here: Place, medium: Medium) -> bool {
    if live.boot == here.boot {
        return live.file == here.file;
    }
    // After a restart devices may have other numbers, but files on them are the same.
    !is_volatile(medium) && live.file.inode == here.file.inode
}

/// Whether the core that is about to replace the live one of the store in `directory` is in its
/// place; none if there is no core at all.
pub(crate) fn is_next(directory: &Path, settings: &Settings, next: &Next) -> Result<Option<bool>> {
    let named = core_path(directory, settings);
    let found = match std::fs::metadata(&named) {
        Ok(found) => found,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(failed(&named, "look at the core")(error)),
    };
    let here = Place { file: FileId::of(&found), boot: machine::boot()? };
    let medium = next.change.as_ref().map_or(settings.medium, |change| change.medium);
    Ok(Some(is_same(&next.live, here, medium)))
}

fn absent(directory: &Path, settings: &Settings, core: PathBuf, boot: Id) -> Error {
    let (directory, expected) = (directory.to_owned(), settings.live.boot);
    if is_volatile(settings.medium) && expected != boot {
        return Error::CoreLost { directory, core, expected, found: boot };
    }
    Error::CoreGone { directory, core }
}

/// Refuses a core on a disk file that was attached when the machine stopped: the kernel may have
/// written any of its pages back, in any order, which no journal can repair. Where only processes
/// have died, all they stored is there.
pub(crate) fn refuse_torn(directory: &Path, settings: &Settings, found: &Found) -> Result<()> {
    let is_torn = settings.medium == Medium::Disk
        && !found.superblock.clean
        && found.superblock.boot_id != found.live.boot.0;
    if is_torn {
        let (directory, core) = (directory.to_owned(), found.path.clone());
        return Err(Error::CoreTorn { directory, core });
    }
    Ok(())
}

/// Where the store in `directory` is at home now. Refused if the directory is a copy, and the store
/// that it is a copy of is still where it was.
pub(crate) fn home(directory: &Path, settings: &Settings) -> Result<Home> {
    let look = std::fs::metadata(directory).map_err(failed(directory, "look at it"))?;
    let here = Home::of(directory, look.ino());
    let old = &settings.home;
    let is_at_home = std::fs::metadata(&old.path).is_ok_and(|found| found.ino() == old.inode);
    if here.inode == old.inode {
        // Under another name only, as in a container.
        return Ok(if is_at_home { old.clone() } else { here });
    }
    let is_there = here.path != old.path
        && is_at_home
        && old.path.join(SETTINGS).exists()
        && Settings::read(&old.path).is_ok_and(|found| found.uuid == settings.uuid);
    if is_there {
        let (directory, original) = (directory.to_owned(), old.path.clone());
        return Err(Error::Copied { directory, original });
    }
    Ok(here)
}
