//! Saving a store that nobody has attached.
//!
//! As long as it takes, the store's lock and the region's own keep everybody from attaching. A
//! region that was left in disorder is recovered first, by attaching it.
//!
//! An interrupted call is gone on with if the region is the same: the same incarnation of the same
//! region, at the same sequence of its superblock, which is clean. Attaching changes the sequence
//! before anything else, and restoring the incarnation, so nothing in it has changed, nor what the
//! volume has of large files, which is changed by those who have the store attached.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conquest_format::fs::root;
use conquest_format::geometry::{STATE_CHUNKS, STATE_GROUPS, STATE_ROOTS};
use conquest_format::saved::{Chunk, Header, KIND_LARGE, KIND_SETTINGS};
use conquest_format::{Offset, WORD};
use conquest_fs::large::Marks;
use conquest_pm::log::Stands;
use conquest_pm::media::Fill;
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Options};

use super::large::Region;
use super::plan::Plan;
use super::writer::{Take, Writer, len_of};
use super::{Meter, SaveOptions, Saved};
use crate::error::failed;
use crate::store::attach::is_store;
use crate::store::directory::{parent, partial};
use crate::store::lock::{StoreLock, absolute};
use crate::store::make::{PATIENCE, hold_whole};
use crate::store::new::Medium;
use crate::store::quiet::whole;
use crate::store::region::{self, Held};
use crate::store::settings::{Live, Settings, VolumeAt};
use crate::store::volume::{self, Volume};
use crate::store::{bring_back, live, mark, place, switch};
use crate::{Error, Id, Result, machine};

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
    switch::settle(&directory, &mut settings)?;
    let image = bring_back::if_missing(&directory, &mut settings)?;
    let (held, live) = whole(&directory, &settings, image, |found, fill| {
        live::refuse_torn(&directory, &settings, &found)?;
        Ok((quiet(&directory, &found.path, fill)?, found.live))
    })?;
    let saved = save_held(&directory, &held, &settings, live, &to, options);
    match &saved {
        // What was done is of use to the next call.
        Ok(_) | Err(Error::Cancelled | Error::Busy { .. }) => {}
        // The error to report is the first one.
        Err(_) => _ = crate::store::directory::remove(&partial(&to)),
    }
    saved
}

/// Holds others off the core `path`, after it was recovered if need be.
fn quiet(directory: &Path, path: &Path, fill: Option<Arc<dyn Fill>>) -> Result<Box<Held>> {
    for _ in 0..RECOVERIES {
        let held = hold_whole(directory, path, fill.clone())?;
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
    directory: &Path,
    held: &Held,
    settings: &Settings,
    live: Live,
    to: &Path,
    options: SaveOptions<'_>,
) -> Result<Saved> {
    let plan = plan(held)?;
    // Without what is only about this core's place, which the copy does not have.
    let text = Settings { live, next: None, ..settings.clone() }.text();
    let mut source = Source { held, plan: &plan, volume: None, text: &text };
    let (volume, volume_bytes) = open_volume(directory, settings, &source)?;
    source.volume = volume.as_ref();
    let saved = source.save(settings, live, to, volume_bytes, options);
    // What was read of it is right, whatever comes of that.
    let _closed = volume.map(Volume::close);
    saved
}

/// The volume of the store, which is the right one, and the bytes of a file that would be as large;
/// no volume if there is none, or nothing of it is needed.
fn open_volume(
    directory: &Path,
    settings: &Settings,
    source: &Source<'_>,
) -> Result<(Option<Volume>, u64)> {
    let is_needed = source.large_files()? > 0;
    let Some(at) = &settings.volume else {
        return match is_needed {
            true => Err(Error::LargeFiles { directory: directory.to_owned() }),
            false => Ok((None, 0)),
        };
    };
    let opened = match settings.medium {
        Medium::Logged => open_logged(directory, at, source.held, is_needed),
        _ => open_marked(directory, at, source.held, is_needed),
    };
    let volume = match opened {
        Ok(volume) => volume,
        Err(error) if is_needed => return Err(error),
        // Of a store whose volume is gone, what is in the core can still be saved.
        Err(_) => return Ok((None, volume::bytes_by_files(directory, at))),
    };
    let bytes = volume.as_ref().map_or(0, volume::bytes);
    Ok((volume, bytes))
}

/// The volume `at` with the image of the core that is `held`, which it has to fit if it
/// `is_needed`.
fn open_logged(
    directory: &Path,
    at: &VolumeAt,
    held: &Held,
    is_needed: bool,
) -> Result<Option<Volume>> {
    let image = volume::open_image(directory, at)?;
    let checked = match Stands::of(&held.memory, &held.geometry) {
        Some(stands) if is_needed => image.check_region(held.superblock.uuid, stands),
        _ => Ok(()),
    };
    let volume = Arc::into_inner(image.into_volume());
    if let Err(error) = checked {
        // The error to report is the first one.
        let _closed = volume.map(Volume::close);
        return Err(error.into());
    }
    Ok(volume)
}

/// The same of a core that has its large files there, and no image.
fn open_marked(
    directory: &Path,
    at: &VolumeAt,
    held: &Held,
    is_needed: bool,
) -> Result<Option<Volume>> {
    let volume = volume::open(directory, at)?;
    let word = |index| {
        let at = STATE_ROOTS.plus(index * WORD);
        held.memory.load(at, std::sync::atomic::Ordering::Relaxed)
    };
    let known = Marks { seen: word(root::MARK), next: word(root::NEXT_MARK) };
    match mark::check(directory, &volume, Id(held.superblock.uuid), known) {
        Err(error) if is_needed => {
            let _closed = volume.close();
            Err(error)
        }
        _ => Ok(Some(volume)),
    }
}

/// What is saved.
struct Source<'s> {
    held: &'s Held,
    plan: &'s Plan,
    volume: Option<&'s Volume>,
    /// The settings.
    text: &'s str,
}

impl Source<'_> {
    /// Calls `look` with the region.
    fn look<T>(&self, look: impl FnOnce(&Region<'_>) -> Result<T>) -> Result<T> {
        let read = |at: u64, out: &mut [u8]| {
            self.held.memory.read(Offset::new(at), out);
            healthy(self.held)
        };
        look(&Region { plan: self.plan, kinds: &self.held.superblock.kinds, read: &read })
    }

    /// How many large files there are.
    fn large_files(&self) -> Result<u64> {
        let mut count = 0;
        self.look(|region| {
            region.each_file(|_| {
                count += 1;
                Ok(())
            })
        })?;
        Ok(count)
    }

    /// Calls `take` with all chunks, in order, and the blocks of the volume at which those of large
    /// files begin.
    fn each_chunk(&self, take: Take<'_>) -> Result<()> {
        let mut number = 0;
        for chunk in self.plan.chunks(self.text.len() as u64) {
            take(chunk, 0)?;
            number = chunk.number + 1;
        }
        let Some(volume) = self.volume else {
            return Ok(());
        };
        self.look(|region| {
            region.each_file(|file| {
                file.each_piece(volume, |at, len| {
                    take(file.chunk(number, at, len), file.block(at))?;
                    number += 1;
                    Ok(())
                })
            })
        })
    }

    /// The header of the copy.
    fn header(&self, settings: &Settings, live: Live, volume_bytes: u64) -> Result<Header> {
        let superblock = &self.held.superblock;
        let (mut chunks, mut bytes, mut large_chunks, mut large_bytes) = (0, 0, 0, 0);
        self.each_chunk(&mut |chunk, _| {
            let is_large = u64::from(chunk.kind == KIND_LARGE);
            (chunks, bytes) = (chunks + 1, bytes + chunk.len);
            large_chunks += is_large;
            large_bytes += is_large * chunk.len;
            Ok(())
        })?;
        Ok(Header {
            region: superblock.uuid,
            store: settings.uuid.0,
            incarnation: live.incarnation.0,
            saved_at: machine::now(),
            sequence: superblock.sequence,
            attach_generation: superblock.attach_generation,
            shape: superblock.shape,
            groups: self.plan.groups(),
            holding_chunks: holding_chunks(self.held)?,
            chunks,
            bytes,
            large_files: self.large_files()?,
            large_chunks,
            large_bytes,
            volume_bytes,
        })
    }

    fn save(
        &self,
        settings: &Settings,
        live: Live,
        to: &Path,
        volume_bytes: u64,
        options: SaveOptions<'_>,
    ) -> Result<Saved> {
        let header = self.header(settings, live, volume_bytes)?;
        let text = self.text.as_bytes();
        let mut writer = Writer::begin(to, &header, &|take| self.each_chunk(take), text)?;
        room(to, &partial(to), len_of(header.chunks, header.bytes))?;
        let mut meter = Meter::new(options.progress, header.bytes);
        let mut resumed = 0;
        let before = writer.chunks();
        let mut data = Vec::new();
        self.each_chunk(&mut |chunk, block| {
            if chunk.number < before {
                resumed += if chunk.kind == KIND_SETTINGS { 0 } else { chunk.len };
                return meter.add(chunk.len);
            }
            self.read(chunk, block, &mut data)?;
            writer.chunk(chunk, &data)?;
            meter.add(chunk.len)
        })?;
        let len = writer.finish(to)?;
        Ok(Saved {
            file: PathBuf::from(to),
            len,
            bytes: header.bytes - header.large_bytes - text.len() as u64,
            large_bytes: header.large_bytes,
            resumed,
            store: settings.uuid,
            attach_generation: self.held.superblock.attach_generation,
        })
    }

    /// Reads the data of `chunk`, of a large file from `block` on.
    fn read(&self, chunk: Chunk, block: u64, data: &mut Vec<u8>) -> Result<()> {
        data.resize(chunk.len as usize, 0);
        match self.volume.filter(|_| chunk.kind == KIND_LARGE) {
            Some(volume) => Ok(volume.read(block, data)?),
            None => {
                self.held.memory.read(Offset::new(chunk.at), data);
                healthy(self.held)
            }
        }
    }
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
