//! Going over from one core of a store to another one, which may be on another volume.
//!
//! Where a core was restored and a volume made for it, or one is needed no more, three things
//! change: which file is the core, what `store.toml` says, and which volume there is. The new
//! volume is complete before `store.toml` names it, as that of the core that is about to be live
//! (`next`); the new core getting its name is the moment from which on it counts; the volume that
//! is not needed any more goes last. `store.toml.partial` names it meanwhile, so that the next
//! command can clear it away.

use std::path::Path;

use super::directory::{self, SETTINGS, partial};
use super::settings::{Next, Settings, VolumeAt};
use super::{live, volume};
use crate::Result;
use crate::error::failed;

/// Ends the restoring of the store in `directory` in which somebody died: with the new core, if
/// that is in its place, otherwise with the old one. `settings` say afterwards what `store.toml`
/// says, even if that can't be written.
pub(crate) fn settle(directory: &Path, settings: &mut Settings) -> Result<()> {
    let Some(Next { live, change: Some(change) }) = settings.next.clone() else {
        return Ok(());
    };
    let next = Next { live, change: Some(change.clone()) };
    // Where there is no core at all it can only come back of a volume: the new one is complete.
    let is_new = live::is_next(directory, settings, &next)?.unwrap_or(change.volume.is_some());
    let old = settings.volume.clone();
    settings.next = None;
    let loser = if is_new {
        (settings.live, settings.medium, settings.core) = (live, change.medium, change.core);
        settings.volume = change.volume;
        old
    } else {
        change.volume
    };
    finish(directory, settings, loser.as_ref())
}

/// Writes `settings`, which name no core that is about to be live, and clears the volume `loser`
/// away, unless they name that.
pub(crate) fn finish(
    directory: &Path,
    settings: &Settings,
    loser: Option<&VolumeAt>,
) -> Result<()> {
    let loser = loser.filter(|at| settings.volume.as_ref().is_none_or(|it| it.uuid != at.uuid));
    if let Some(at) = loser {
        announce(directory, settings, at)?;
    }
    settings.write(directory)?;
    if let Some(at) = loser {
        volume::clear(directory, at)?;
    }
    directory::remove(&partial(&directory.join(SETTINGS)))
}

/// Says, under a temporary name, that the volume `at` is about to be cleared away.
fn announce(directory: &Path, settings: &Settings, at: &VolumeAt) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let path = directory.join(SETTINGS);
    let found = std::fs::metadata(&path).map_err(failed(&path, "look at it"))?;
    let owner = Some((found.uid(), found.gid()));
    let text = Settings { volume: Some(at.clone()), next: None, ..settings.clone() }.text();
    directory::replace(&partial(&path), text.as_bytes(), found.mode() & 0o777, owner)
}

/// Clears away the volume that was `announced`, if the store in `directory`, which is there, does
/// not have it, nor is about to.
pub(crate) fn clear_announced(directory: &Path, announced: &Settings) -> Result<()> {
    let (Some(at), Ok(present)) = (&announced.volume, Settings::read(directory)) else {
        return Ok(());
    };
    let next = present.next.and_then(|next| next.change).and_then(|change| change.volume);
    // Nor a file that has been given the name since.
    let has =
        |of: Option<&VolumeAt>| of.is_some_and(|it| it.uuid == at.uuid || it.devices == at.devices);
    if has(present.volume.as_ref()) || has(next.as_ref()) {
        return Ok(());
    }
    volume::clear(directory, at)
}
