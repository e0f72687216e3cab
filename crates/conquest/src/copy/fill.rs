//! Putting what a copy has on a new volume: the core's image, and large files.
//!
//! The root of the image comes last, when everything else is durable: a volume on which it is not
//! has no core. The core is brought back of the volume then, as after a restart of the machine, so
//! what is restored is what would come back.

use std::path::Path;
use std::sync::Arc;

use conquest_format::fs::{chunk, root};
use conquest_format::geometry::{Geometry, STATE, STATE_ROOTS};
use conquest_format::journal::{COMMIT, Commit};
use conquest_format::log::FIRST;
use conquest_format::volume::BLOCK;
use conquest_format::{PAGE, WORD};
use conquest_fs::large::NewLarge;
use conquest_pm::attach::NewRegion;

use super::Meter;
use super::checked::Copy;
use super::large::{Read, Region};
use super::plan::Plan;
use crate::store::volume::{Image, Volume};
use crate::{Error, Id, Result};

/// Numbers of records that a copy may have had at most: as many again are left.
const NUMBER_MOST: u64 = 1 << 47;

/// What is to be on a volume besides what a copy says.
pub(crate) struct Wanted<'w> {
    /// What the copy is called in messages.
    pub(crate) from: &'w Path,
    /// The region, with a log.
    pub(crate) region: NewRegion,
    /// Where large files go, if the copy does not say it.
    pub(crate) large: NewLarge,
}

/// Puts what `copy` has on `volume`, which is new and has nothing: the image of its core.
pub(crate) fn fill(
    copy: &mut Copy,
    volume: &Arc<Volume>,
    wanted: &Wanted<'_>,
    meter: &mut Meter<'_>,
) -> Result<Image> {
    let (text, seed) = copy.text;
    copy.reader.rewind(text, seed)?;
    meter.add(text)?;
    let plan = copy.reader.plan()?;
    let geometry = plan.geometry().clone();
    let mut next = FIRST;
    let plan = copy.reader.region(text, meter, |at, data| {
        next = next.max(next_number(&geometry, at, data));
        if (at..at + data.len() as u64).contains(&STATE.bytes()) {
            let mut data = data.to_vec();
            place_large(at, &mut data, Some(wanted.large), 0);
            return put(volume, at, &data);
        }
        put(volume, at, data)
    })?;
    if next > NUMBER_MOST {
        let (path, what) = (wanted.from.to_owned(), "number of a record");
        let (expected, found) = (NUMBER_MOST, next);
        return Err(Error::CopyDamaged { path, offset: 0, what, expected, found });
    }
    put_large(copy, volume, &plan, (&|at, out| read_image(volume, at, out), None), meter)?;
    copy.reader.end()?;
    Ok(Image::make_of(Arc::clone(volume), &wanted.region, next)?)
}

/// The number behind those of the records that lanes have had, as far as `data`, the region's bytes
/// from `at` on, has them: what they have made is never mistaken for what comes.
fn next_number(geometry: &Geometry, at: u64, data: &[u8]) -> u64 {
    let lanes = 0..geometry.shape().lanes;
    let numbers = lanes.filter_map(|lane| {
        let start = geometry.lane(lane).plus(COMMIT).bytes().checked_sub(at)?;
        let word = data.get(start as usize..)?.first_chunk()?;
        Some(Commit::unpack(u64::from_le_bytes(*word)).map_or(0, |commit| commit.sequence))
    });
    numbers.max().map_or(FIRST, |last| last + 2)
}

/// Says in `data`, the region's bytes from `at` on, that the volume's mark is `mark`, and where the
/// data of large files goes, if that is not said there, and is to be.
pub(crate) fn place_large(at: u64, data: &mut [u8], large: Option<NewLarge>, mark: u64) {
    let start = |number: u64| STATE_ROOTS.plus(number * WORD).bytes().saturating_sub(at) as usize;
    let get = |data: &[u8], number| {
        let word = data.get(start(number)..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    let set = |data: &mut [u8], number, value: u64| {
        let word = data.get_mut(start(number)..).and_then(|rest| rest.first_chunk_mut());
        if let Some(word) = word {
            *word = value.to_le_bytes();
        }
    };
    set(data, root::MARK, mark);
    set(data, root::NEXT_MARK, mark);
    let Some(large) = large.filter(|_| get(data, root::CHUNK_BLOCKS) == 0) else {
        return;
    };
    let most = get(data, root::FILE_MAX).min(chunk::file_max(large.chunk_blocks));
    set(data, root::FILE_MAX, most);
    set(data, root::THRESHOLD, large.threshold);
    set(data, root::CHUNK_BLOCKS, large.chunk_blocks);
}

/// Writes `data`, the region's bytes from `at` on, to their place in the image; not superblocks,
/// nor pages of zeros, which are there.
fn put(volume: &Volume, at: u64, data: &[u8]) -> Result<()> {
    let mut at = at;
    let pages = data.as_chunks::<{ PAGE as usize }>().0;
    let is_zero = |page: &[u8; PAGE as usize]| page.iter().all(|byte| *byte == 0);
    for run in pages.chunk_by(|one, two| is_zero(one) == is_zero(two)) {
        let skipped = (STATE.bytes().saturating_sub(at) / PAGE).min(run.len() as u64);
        let (_, rest) = run.split_at(skipped as usize);
        if rest.first().is_some_and(|page| !is_zero(page)) {
            volume.write((at + skipped * PAGE) / BLOCK, rest.as_flattened())?;
        }
        at += run.len() as u64 * PAGE;
    }
    Ok(())
}

/// Writes what the copy has of large files to where their chunks are, as the region says, of which
/// `read` reads; and labels, if the region that is given is going to have these: how many blocks a
/// chunk has.
pub(crate) fn put_large(
    copy: &mut Copy,
    volume: &Volume,
    plan: &Plan,
    (read, labelled): (Read<'_>, Option<Id>),
    meter: &mut Meter<'_>,
) -> Result<u64> {
    let region = Region { plan, kinds: &copy.superblock.kinds, read };
    let reader = &mut copy.reader;
    let mut chunk = reader.large_chunk()?;
    let mut files = 0;
    region.each_file(|file| {
        files += 1;
        while let Some(found) = chunk.filter(|found| found.file == file.number) {
            if found.at + found.len > file.end {
                return Err(reader.misplaced(found, file.end));
            }
            volume.write(file.block(found.at), reader.data())?;
            meter.add(found.len)?;
            chunk = reader.large_chunk()?;
        }
        match labelled {
            Some(region) if file.end > 0 => Ok(file.put_label(volume, region)?),
            _ => Ok(()),
        }
    })?;
    match chunk {
        Some(found) => Err(reader.misplaced(found, 0)),
        None => reader.check_files(files).and_then(|()| region.chunk_blocks()),
    }
}

/// Reads the region's bytes from `at` on of its image.
fn read_image(volume: &Volume, at: u64, out: &mut [u8]) -> Result<()> {
    let skip = at % PAGE;
    let mut whole = vec![0; (skip + out.len() as u64).next_multiple_of(PAGE) as usize];
    volume.read((at - skip) / BLOCK, &mut whole)?;
    let part = whole.get(skip as usize..).and_then(|rest| rest.get(..out.len()));
    out.copy_from_slice(part.unwrap_or_default());
    Ok(())
}
