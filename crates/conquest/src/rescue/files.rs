//! Rescuing the data of large files of a core that was on persistent memory or on a battery: only
//! that is on the volume, and the label of each chunk says whose it is.
//!
//! Nothing is believed that was not checked: a label has a checksum, and counts only where it says
//! that it is. What is before its end is the file's, as far as it is allocated. If anything but
//! zeros is behind the size that it says, and before the end, the file reaches to the end of the
//! last page with that: it may have grown since, within its last page or where space was allocated
//! ahead. So nothing is missing; what was cut off last may be there still, and what was being
//! written to a hole, or behind the size, by a process that was killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use conquest_flash::Error as FlashError;
use conquest_format::PAGE;
use conquest_format::fs::chunk::{self, BLOCKS_MAX, BLOCKS_MIN};
use conquest_format::image::ImageDefect;
use conquest_format::inode::offset_of;
use conquest_format::label::{LABEL_BYTES, Label, label_block};
use conquest_format::mark::{MARK_BYTES, Mark};
use conquest_format::volume::BLOCK;

use super::target::Target;
use super::{LargeFile, Rescued, nothing};
use crate::Result;
use crate::copy::large::each_piece;
use crate::copy::{Meter, Progress};
use crate::error::failed;
use crate::store::volume::Volume;

/// Blocks of a page.
const PAGE_BLOCKS: u64 = PAGE / BLOCK;

/// Writes the data of large files that `volume` has, which is marked with `mark`, to files in `to`.
pub(super) fn rescue(
    volume: &Volume,
    mark: &[u8; MARK_BYTES],
    to: &Path,
    progress: Option<Progress<'_>>,
) -> Result<Rescued> {
    let mark = known(volume, mark)?;
    let used = volume.usage().used.saturating_mul(volume.unit());
    let mut meter = Meter::new(progress, used);
    let found = survey(volume, &mark, &mut meter)?;
    let mut chunks_of: BTreeMap<u64, u64> = BTreeMap::new();
    found.labels.iter().for_each(|label| *chunks_of.entry(label.inode).or_default() += 1);
    let mut target = Target::make(to)?;
    let directory = target.directory().to_owned();
    let mut files = Vec::new();
    for label in &found.labels {
        let name = match chunks_of.get(&label.inode) {
            Some(2..) => format!("{}-chunk-{}", label.inode, label.chunk),
            _ => label.inode.to_string(),
        };
        let path = directory.join(name);
        target.will_make(&path);
        let mut copying = Copying::begin(volume, &mark, label, &path)?;
        copying.copy(&mut meter)?;
        let (bytes, lost) = copying.finish()?;
        let &Label { inode, generation, chunk, .. } = label;
        files.push(LargeFile { path, inode, generation, chunk, bytes, lost });
    }
    target.keep()?;
    Ok(Rescued::Files { directory, files, unlabelled: found.unlabelled })
}

/// The mark in `bytes`, of `volume`.
fn known(volume: &Volume, bytes: &[u8; MARK_BYTES]) -> Result<Mark> {
    let mark = match Mark::from_bytes(bytes) {
        Ok(mark) => mark,
        Err(ImageDefect::Version(_)) => {
            return nothing(
                volume,
                "its mark is of another version of this program; use the release that made it",
            );
        }
        Err(_) => {
            return nothing(volume, "its mark is damaged; restore a saved copy of the store");
        }
    };
    let blocks = mark.chunk_blocks;
    if blocks.is_power_of_two() && (BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks) {
        return Ok(mark);
    }
    nothing(volume, "its mark says of chunks what can't be; restore a saved copy of the store")
}

/// What chunks have anything.
#[derive(Default)]
struct Found {
    /// Of those that say whose it is.
    labels: Vec<Label>,
    /// The numbers of the others.
    unlabelled: Vec<u64>,
}

/// Looks for chunks of the space that have anything. What is nowhere costs nothing.
fn survey(volume: &Volume, mark: &Mark, meter: &mut Meter<'_>) -> Result<Found> {
    let blocks = mark.chunk_blocks;
    let mut found = Found::default();
    let mut next = chunk::first(blocks).checked_mul(blocks);
    while let Some(from) = next
        && let Some((block, _)) = volume.allocated_within(from, 1)?
    {
        let number = block / blocks;
        match label(volume, mark, number)? {
            Some(label) => found.labels.push(label),
            None => found.unlabelled.push(number),
        }
        meter.add(PAGE)?;
        next = (number + 1).checked_mul(blocks);
    }
    Ok(found)
}

/// The label of chunk `number`, if it has one that can be.
fn label(volume: &Volume, mark: &Mark, number: u64) -> Result<Option<Label>> {
    let blocks = mark.chunk_blocks;
    // The last one of the space is nobody's.
    if number >= u64::MAX / blocks {
        return Ok(None);
    }
    let mut bytes = [0; LABEL_BYTES];
    match volume.read(label_block(number, blocks), &mut bytes) {
        Ok(()) => {}
        Err(error) if is_loss(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let is_possible = |label: &Label| {
        label.region == mark.region
            && label.chunk == number
            && label.end <= blocks / PAGE_BLOCKS
            && label.size <= chunk::file_max(blocks)
            && offset_of(label.inode).is_some()
    };
    Ok(Label::from_bytes(&bytes).ok().filter(is_possible))
}

/// Whether that is about what was to be read, and other things can be.
const fn is_loss(error: &FlashError) -> bool {
    matches!(error, FlashError::Damaged { .. } | FlashError::Device { .. })
}

/// One file that is being written.
struct Copying<'c> {
    volume: &'c Volume,
    label: &'c Label,
    /// The first block of its chunk.
    first: u64,
    /// Bytes of the file before the end.
    end: u64,
    path: &'c Path,
    file: File,
    /// Bytes that the file has at least because of what is behind the size of the label.
    reach: u64,
    /// Pages that could not be read, and whether the one in which the size is is one of them.
    lost: u64,
    is_last_lost: bool,
}

impl<'c> Copying<'c> {
    fn begin(
        volume: &'c Volume,
        mark: &Mark,
        label: &'c Label,
        path: &'c Path,
    ) -> Result<Copying<'c>> {
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(failed(path, "make it"))?;
        // The label is no data, whatever it says.
        let end = label.end.saturating_mul(PAGE).min(chunk::file_max(mark.chunk_blocks));
        let first = label.chunk * mark.chunk_blocks;
        let (reach, lost, is_last_lost) = (0, 0, false);
        Ok(Copying { volume, label, first, end, path, file, reach, lost, is_last_lost })
    }

    /// Copies what is allocated.
    fn copy(&mut self, meter: &mut Meter<'_>) -> Result<()> {
        let (volume, first, end) = (self.volume, self.first, self.end);
        let mut bytes = Vec::new();
        each_piece(volume, first, end, |at, len| {
            bytes.resize(len as usize, 0);
            match volume.read_once(first + at / BLOCK, &mut bytes) {
                Ok(()) => self.put(at, &bytes)?,
                Err(error) if is_loss(&error) => self.copy_by_pages(at, len)?,
                Err(error) => return Err(error.into()),
            }
            meter.add(len)
        })
    }

    /// Copies those pages of the `len` bytes from `at` on that can be read.
    fn copy_by_pages(&mut self, at: u64, len: u64) -> Result<()> {
        let mut page = [0; PAGE as usize];
        for at in (at..at + len).step_by(PAGE as usize) {
            match self.volume.read(self.first + at / BLOCK, &mut page) {
                Ok(()) => self.put(at, &page)?,
                Err(error) if is_loss(&error) => self.lose(at),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes `bytes`, whole pages, to where they belong, from `at` on; not those that are zeros.
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut at = at;
        let pages = bytes.as_chunks::<{ PAGE as usize }>().0;
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        for run in pages.chunk_by(|one, two| is_zero(one) == is_zero(two)) {
            let run = run.as_flattened();
            if !is_zero(run) {
                let written = self.file.write_all_at(run, at);
                written.map_err(failed(self.path, "write it"))?;
                // All of these count, if anything behind the size does.
                let inside = self.label.size.saturating_sub(at).min(run.len() as u64);
                let behind = run.get(inside as usize..).unwrap_or_default();
                if !is_zero(behind) {
                    self.reach = at + run.len() as u64;
                }
            }
            at += run.len() as u64;
        }
        Ok(())
    }

    /// The page from `at` on can't be read.
    fn lose(&mut self, at: u64) {
        self.lost += 1;
        let size = self.label.size;
        if at >= size {
            // It may have been something.
            self.reach = self.reach.max(at + PAGE);
        } else if at + PAGE > size {
            self.is_last_lost = true;
        }
    }

    /// Makes the file durable: its bytes, and those of them that are lost.
    fn finish(self) -> Result<(u64, u64)> {
        let size = self.label.size.max(self.reach);
        self.file.set_len(size).map_err(failed(self.path, "set its size"))?;
        self.file.sync_all().map_err(failed(self.path, "make it durable"))?;
        let is_cut = self.is_last_lost && size == self.label.size;
        let behind = if is_cut { size.next_multiple_of(PAGE) - size } else { 0 };
        Ok((size, (self.lost * PAGE).saturating_sub(behind)))
    }
}
