//! The file's bytes: from bytes to the blocks of the volume.
//!
//! A write of whole blocks goes to the volume as it is, which makes each unit old or new. Any other
//! one reads the blocks that it has parts of, and writes them as wholes: nobody else writes
//! through this file meanwhile, because what he writes in between would be lost.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use conquest_flash::Result;
use conquest_format::volume::BLOCK;
use conquest_pm::media::{Mapped, OsHost};
use rustix::io::Errno;

/// An open volume.
pub type Volume = conquest_flash::Volume<Mapped, OsHost>;

/// Bytes of the longest file: as many whole pages as offsets of files can count.
pub const SIZE_MAX: u64 = i64::MAX as u64 / conquest_format::PAGE * conquest_format::PAGE;

/// The first bytes of a volume's space.
pub struct Space {
    volume: Arc<Volume>,
    size: u64,
    /// Held exclusively by who writes parts of blocks, shared by who writes whole ones.
    parts: RwLock<()>,
    /// Held by who works off what was cleared.
    settling: Mutex<()>,
}

/// Whole blocks around some bytes: the first one, how many bytes they have, and how many of them
/// come before those.
struct Around {
    block: u64,
    bytes: usize,
    skip: usize,
}

impl Around {
    fn new(offset: u64, len: usize) -> Around {
        let skip = (offset % BLOCK) as usize;
        let bytes = (skip + len).next_multiple_of(BLOCK as usize);
        Around { block: offset / BLOCK, bytes, skip }
    }

    fn is_exact(&self, len: usize) -> bool {
        self.skip == 0 && self.bytes == len
    }
}

impl Space {
    /// The first `size` bytes of the space of `volume`: whole units, [`SIZE_MAX`] at most.
    #[must_use]
    pub fn new(volume: Arc<Volume>, size: u64) -> Space {
        Space {
            volume,
            size: size.min(SIZE_MAX),
            parts: RwLock::default(),
            settling: Mutex::default(),
        }
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// `len`, or as many as there are from `offset` on.
    fn clipped(&self, offset: u64, len: usize) -> usize {
        let rest = self.size.saturating_sub(offset);
        usize::try_from(rest).map_or(len, |rest| rest.min(len))
    }

    /// Bytes of memory that [`Space::read`] needs for `len` bytes from `offset` on.
    pub(crate) fn room(&self, offset: u64, len: usize) -> usize {
        Around::new(offset, self.clipped(offset, len)).bytes
    }

    /// Reads `len` bytes from `offset` on, fewer only at the end, to somewhere in `room`, which has
    /// as many bytes as [`Space::room`] says.
    pub(crate) fn read<'r>(&self, offset: u64, len: usize, room: &'r mut [u8]) -> Result<&'r [u8]> {
        let len = self.clipped(offset, len);
        let around = Around::new(offset, len);
        self.volume.read(around.block, room)?;
        Ok(room.get(around.skip..).and_then(|rest| rest.get(..len)).unwrap_or_default())
    }

    /// Writes `bytes` from `offset` on, as many as fit: how many.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let bytes = bytes.get(..self.clipped(offset, bytes.len())).unwrap_or_default();
        let around = Around::new(offset, bytes.len());
        if around.is_exact(bytes.len()) {
            let _whole = self.parts.read().unwrap_or_else(PoisonError::into_inner);
            self.volume.write(around.block, bytes)?;
        } else {
            let _part = self.parts.write().unwrap_or_else(PoisonError::into_inner);
            let mut whole = vec![0; around.bytes];
            self.volume.read(around.block, &mut whole)?;
            if let Some(place) = whole.get_mut(around.skip..around.skip + bytes.len()) {
                place.copy_from_slice(bytes);
            }
            self.volume.write(around.block, &whole)?;
        }
        Ok(bytes.len())
    }

    /// Makes `len` bytes from `offset` on zeros, and gives back what can be of their space.
    pub(crate) fn clear(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.size);
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        if offset >= end {
            return Ok(());
        }
        if first > last {
            // All of it is in one block.
            return self.zero(offset, end);
        }
        self.zero(offset, first * BLOCK)?;
        self.zero(last * BLOCK, end)?;
        let _whole = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        self.volume.trim(first, last - first)
    }

    /// Works off what was cleared, unless somebody does: until then its space counts as used.
    pub(crate) fn settle(&self) -> Result<()> {
        if let Ok(_alone) = self.settling.try_lock() {
            while self.volume.trim_some()? {}
        }
        Ok(())
    }

    /// Writes zeros to a part of a block, unless they are there.
    fn zero(&self, offset: u64, end: u64) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        let len = (end - offset) as usize;
        let around = Around::new(offset, len);
        let _part = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let mut whole = vec![0; around.bytes];
        self.volume.read(around.block, &mut whole)?;
        let place = whole.get_mut(around.skip..around.skip + len).unwrap_or_default();
        if place.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        place.fill(0);
        self.volume.write(around.block, &whole)
    }

    /// Where the next bytes with space are, from `offset` on; none if there are no more.
    pub(crate) fn data(&self, offset: u64) -> Result<Option<u64>> {
        let found = self.allocated(offset)?;
        Ok(found.map(|(start, _)| start.max(offset)).filter(|start| *start < self.size))
    }

    /// Where the next hole is, from `offset` on; at the latest at the end.
    pub(crate) fn hole(&self, offset: u64) -> Result<u64> {
        Ok(match self.allocated(offset)? {
            Some((start, end)) if start <= offset => end.min(self.size),
            _ => offset,
        })
    }

    /// The first range with space at or behind the block that `offset` is in: first byte, and
    /// first one behind it.
    fn allocated(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let found = self.volume.allocated(offset / BLOCK)?;
        Ok(found.map(|(first, count)| {
            (first.saturating_mul(BLOCK), first.saturating_add(count).saturating_mul(BLOCK))
        }))
    }

    /// The first byte with space that the file does not show, if there is one.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn hidden(&self) -> Result<Option<u64>> {
        Ok(self.allocated(self.size)?.map(|(start, _)| start))
    }

    /// Bytes of the volume that the file takes. What is just being trimmed may count still.
    pub(crate) fn used(&self) -> Result<u64> {
        let mut hidden = 0;
        let mut at = self.size;
        while let Some((start, end)) = self.allocated(at)? {
            hidden += end - start;
            if end <= at {
                break;
            }
            at = end;
        }
        let usage = self.volume.usage();
        Ok((usage.used * self.volume.unit()).saturating_sub(hidden))
    }

    /// Makes durable what was written and cleared before.
    pub(crate) fn flush(&self) -> Result<()> {
        self.volume.flush()
    }
}

/// The error number of `error`, and whether whoever runs the export should know of it.
pub(crate) fn number(error: &conquest_flash::Error) -> Errno {
    use conquest_flash::Error as E;
    match error {
        E::NoSpace { .. } => Errno::NOSPC,
        E::Range { .. } | E::TooMany { .. } | E::TooLarge { .. } => Errno::INVAL,
        _ => Errno::IO,
    }
}
