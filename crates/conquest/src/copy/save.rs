//! Saving a store that nobody has attached.
//!
//! As long as it takes, the store's lock and the region's own keep everybody from attaching. A
//! region that was left in disorder is recovered first, by attaching it.
//!
//! An interrupted call is gone on with if the region is the same: the same incarnation of the same
//! region, at the same sequence of its superblock, which is clean. Attaching changes the sequence
//! before anything else, and restoring the incarnation, so nothing in it has changed.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use conquest_format::fs::root;
use conquest_format::geometry::{STATE_CHUNKS, STATE_GROUPS, STATE_ROOTS};
use conquest_format::saved::Header;
use conquest_format::{Offset, WORD};
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Options};

use super::plan::Plan;
use super::writer::{Writer, len_of};
use super::{Meter, SaveOptions, Saved};
use crate::error::failed;
use crate::store::attach::is_store;
use crate::store::directory::{parent, partial};
use crate::store::lock::{StoreLock, absolute};
use crate::store::make::{PATIENCE, hold_alone};
use crate::store::region::{self, Held};
use crate::store::settings::Settings;
use crate::store::{bring_back, live, place};
use crate::{Error, Result, machine};

/// Bytes of the bitmaps that are read at once.
const PIECE: u64 = 1 << 16;
/// Times that a region is recovered: somebody else may attach it and die, without the store.
const RECOVERIES: u32 = 3;

/// Saves the store in `directory`, which nobody may have attached, to the file `to`. Called again
/// after an interruption, it goes on where that was, if the store has not changed.
///
/// # Errors
/// [`Error::Attached`] with who has it attached; [`Error::CopyExists`]; [`Error::Cancelled`], with
/// what was done kept for the next call; what is wrong with the store, or what the system refuses:
/// then nothing is left.
pub fn save(directory: &Path, to: &Path, options: SaveOptions<'_>) -> Result<Saved> {
    is_store(directory)?;
    let directory = absolute(directory);
    let to = std::path::absolute(to).map_err(failed(to, "find its place"))?;
    let _lock = StoreLock::take(&directory, "saving it", PATIENCE)?;
    if !options.force && std::fs::symlink_metadata(&to).is_ok() {
        return Err(Error::CopyExists { path: to });
    }
    let mut settings = Settings::read(&directory)?;
    live::home(&directory, &settings)?;
    bring_back::if_missing(&directory, &mut settings)?;
    let found = live::find(&directory, &settings, false)?;
    live::refuse_torn(&directory, &settings, &found)?;
    let held = quiet(&directory, &found.path)?;
    let saved = save_held(&held, &settings, found.live, &to, options);
    match &saved {
        // What was done is of use to the next call.
        Ok(_) | Err(Error::Cancelled | Error::Busy { .. }) => {}
        // The error to report is the first one.
        Err(_) => _ = crate::store::directory::remove(&partial(&to)),
    }
    saved
}

/// Holds others off the core `path`, after it was recovered if need be.
fn quiet(directory: &Path, path: &Path) -> Result<Box<Held>> {
    for _ in 0..RECOVERIES {
        let held = hold_alone(directory, path)?;
        if held.superblock.clean {
            return Ok(held);
        }
        drop(held);
        region::open(path, Access::default(), Options::default())?.detach()?;
    }
    let holder = "processes that attach and die".to_owned();
    Err(Error::Busy { directory: directory.to_owned(), holder, waited: PATIENCE })
}

fn save_held(
    held: &Held,
    settings: &Settings,
    live: crate::store::settings::Live,
    to: &Path,
    options: SaveOptions<'_>,
) -> Result<Saved> {
    let next_chunk = STATE_ROOTS.plus(root::NEXT_CHUNK * WORD);
    if held.memory.load(next_chunk, Ordering::Relaxed) != 0 {
        return Err(Error::LargeFiles { core: held.memory.path().to_owned() });
    }
    let plan = plan(held)?;
    // Without what is only about this core's place, which the copy does not have.
    let text = Settings { live, next: None, ..settings.clone() }.text();
    let (chunks, bytes) = plan.size(text.len() as u64);
    let header = Header {
        region: held.superblock.uuid,
        store: settings.uuid.0,
        incarnation: live.incarnation.0,
        saved_at: machine::now(),
        sequence: held.superblock.sequence,
        attach_generation: held.superblock.attach_generation,
        shape: held.superblock.shape,
        groups: plan.groups(),
        holding_chunks: holding_chunks(held)?,
        chunks,
        bytes,
    };
    let mut writer = Writer::begin(to, &header, &plan, text.as_bytes())?;
    room(to, &partial(to), len_of(chunks, bytes))?;
    let mut meter = Meter::new(options.progress, bytes);
    let mut resumed = 0;
    let before = writer.chunks();
    let mut data = Vec::new();
    for chunk in plan.chunks(text.len() as u64) {
        if chunk.number < before {
            resumed += if chunk.number == 0 { 0 } else { chunk.len };
            meter.add(chunk.len)?;
            continue;
        }
        data.resize(chunk.len as usize, 0);
        held.memory.read(Offset::new(chunk.at), &mut data);
        healthy(held)?;
        writer.chunk(chunk, &data)?;
        meter.add(chunk.len)?;
    }
    let len = writer.finish(to)?;
    Ok(Saved {
        file: PathBuf::from(to),
        len,
        bytes: bytes - text.len() as u64,
        resumed,
        store: settings.uuid,
        attach_generation: held.superblock.attach_generation,
    })
}

/// Chunks of holdings that the region has space for. What orphans they keep was buried when the
/// region was recovered and everybody detached.
fn holding_chunks(held: &Held) -> Result<u32> {
    let most = held.superblock.shape.chunks;
    let found = held.memory.load(STATE_CHUNKS, std::sync::atomic::Ordering::Relaxed);
    u32::try_from(found).ok().filter(|chunks| *chunks <= most).ok_or(Error::Core(
        conquest_pm::Error::Corrupt {
            what: "number of chunks",
            offset: STATE_CHUNKS,
            expected: "at most the region's maximum",
            found,
        },
    ))
}

/// What of the region is to be saved.
fn plan(held: &Held) -> Result<Plan> {
    let most = held.superblock.shape.max_groups;
    let groups = held.memory.load(STATE_GROUPS, std::sync::atomic::Ordering::Relaxed);
    if groups < 1 || groups > most {
        return Err(Error::Core(conquest_pm::Error::Corrupt {
            what: "number of groups",
            offset: STATE_GROUPS,
            expected: "1 to the region's maximum",
            found: groups,
        }));
    }
    let mut plan = Plan::new(held.geometry.clone(), groups);
    let range = held.geometry.bitmap(0).bytes()..held.geometry.bitmap(groups).bytes();
    let mut piece = vec![0; PIECE as usize];
    for at in range.clone().step_by(PIECE as usize) {
        let len = (range.end - at).min(PIECE) as usize;
        let part = piece.get_mut(..len).unwrap_or_default();
        held.memory.read(Offset::new(at), part);
        plan.learn(at, part);
    }
    healthy(held)?;
    Ok(plan)
}

/// A core that was cut off reads as zeros, which must not be saved.
fn healthy(held: &Held) -> Result<()> {
    match held.memory.failed() {
        None => Ok(()),
        Some(reason) => Err(Error::Core(conquest_pm::Error::Failed { reason })),
    }
}

/// Finds out before the work whether there is room for a file of `len` bytes.
fn room(to: &Path, partial: &Path, len: u64) -> Result<()> {
    let there = std::fs::metadata(partial).map_or(0, |found| found.len());
    let space = place::Space::of(parent(to))?;
    let wanted = len.saturating_sub(there);
    if space.free < wanted {
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        return Err(failed(to, "save to it")(full));
    }
    Ok(())
}
