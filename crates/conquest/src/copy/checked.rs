//! A saved copy that was checked from its beginning to its end, before anything is touched.

use std::path::Path;

use conquest_format::PAGE;
use conquest_format::geometry::Shape;
use conquest_format::superblock::{LOADING, LOGGED, SIZE, Superblock};
use conquest_pm::superblock;

use super::reader::Reader;
use super::{Meter, Progress};
use crate::store::settings::Settings;
use crate::{Error, Id, Result};

/// A copy that was checked.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) reader: Reader,
    /// The settings in it.
    pub(crate) settings: Settings,
    /// Bytes of their text, and the checksum behind it.
    pub(crate) text: (u64, u64),
    /// Bytes of the region.
    pub(crate) bytes: u64,
    /// The superblock of the region.
    pub(crate) superblock: Superblock,
}

/// Opens the copy `from` and checks all of it. Half of the work, as far as `progress` is told, is
/// still to be done then.
pub(crate) fn open<'p>(from: &Path, progress: Option<Progress<'p>>) -> Result<(Copy, Meter<'p>)> {
    let mut reader = Reader::open(from)?;
    let mut meter = Meter::new(progress, reader.header.bytes.saturating_mul(2));
    let text = reader.settings()?;
    let settings = Settings::parse(from, &text)?;
    let text = (text.len() as u64, reader.seed);
    meter.add(text.0)?;
    let mut first = Vec::new();
    let mut bytes = 0;
    reader.region(text.0, &mut meter, |at, data| {
        if at == 0 {
            first = data.get(..2 * PAGE as usize).unwrap_or(data).to_vec();
        }
        bytes += data.len() as u64;
        Ok(())
    })?;
    while let Some(chunk) = reader.large_chunk()? {
        meter.add(chunk.len)?;
    }
    reader.end()?;
    let (found, header) = (superblock_in(from, &first)?, &reader.header);
    let is_same = found.uuid == header.region
        && found.shape == header.shape
        && found.sequence == header.sequence
        && found.clean;
    if !is_same {
        return Err(Error::CopyDamaged {
            path: from.to_owned(),
            offset: 0,
            what: "superblock that differs from the header: its sequence",
            expected: header.sequence,
            found: found.sequence,
        });
    }
    Ok((Copy { reader, settings, text, bytes, superblock: found }, meter))
}

/// The superblock that counts, in the first pages of a region.
fn superblock_in(path: &Path, pages: &[u8]) -> Result<Superblock> {
    let copy = |at: usize| -> [u8; SIZE] {
        let bytes = pages.get(at..).and_then(|rest| rest.first_chunk::<SIZE>());
        bytes.copied().unwrap_or([0; SIZE])
    };
    Ok(superblock::choose(path, &[copy(0), copy(PAGE as usize)])?)
}

/// Gives the region whose superblocks' pages are `first` the identity `region`, and another `shape`
/// in which everything that counts is where it was.
pub(crate) fn rewrite(path: &Path, first: &mut [u8], region: Id, shape: Shape) -> Result<()> {
    let old = superblock_in(path, first)?;
    let others = old.features_incompatible & !(LOGGED | LOADING);
    let features_incompatible = if shape.log == 0 { others } else { others | LOGGED };
    let new = Superblock { uuid: region.0, shape, features_incompatible, ..old };
    first.fill(0);
    let at = (new.sequence % 2 * PAGE) as usize;
    if let Some(place) = first.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<SIZE>()) {
        *place = new.to_raw().to_bytes();
    }
    Ok(())
}
