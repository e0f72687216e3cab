//! Reading what is to be copied: units that the map leads to, as far as they can be read.

use std::mem::take;

use conquest_format::volume::digest;
use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::buffers::Lent;
use crate::index::{Of, Words};
use crate::map::Extent;
use crate::volume::Volume;
use crate::{Error, Result};

/// Where one of so many units of a range is wanted, the range is read as a whole.
const SPARSE: u64 = 4;

/// Units that were read.
pub(crate) struct Gathered<'v> {
    /// Where the map led to them.
    pub(crate) extents: Vec<Extent>,
    /// What they are, one behind the other.
    pub(crate) bytes: Lent<'v>,
    /// Their digests.
    pub(crate) digests: Vec<u32>,
    /// Those that can't be read, which are not among them.
    pub(crate) unreadable: u64,
    /// Why the first of those can't.
    pub(crate) error: Option<Error>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Reads `extents`, all of one segment, of which this was the generation when the map led
    /// there, and which the caller holds. Where the map leads elsewhere by now, it may be that what
    /// is there is read.
    pub(crate) fn gather(&self, extents: &[Extent], generation: u64) -> Result<Gathered<'_>> {
        let size = self.layout.unit as usize;
        let units: u64 = extents.iter().map(|extent| extent.len).sum();
        let mut bytes = self.lend(units as usize * size)?;
        self.read_extents(extents, &mut bytes);
        let mut gathered = Gathered {
            extents: Vec::with_capacity(extents.len()),
            bytes,
            digests: Vec::with_capacity(units as usize),
            unreadable: 0,
            error: None,
        };
        let mut from = 0;
        for extent in extents {
            for index in 0..extent.len {
                let (unit, place) = (extent.unit + index, extent.place + index);
                self.examine(Extent { unit, place, len: 1 }, generation, from, &mut gathered);
                from += size;
            }
        }
        Ok(gathered)
    }

    /// Reads `extents` of the medium to `into`, one behind the other. Of what can't be read, there
    /// is anything.
    fn read_extents(&self, extents: &[Extent], into: &mut [u8]) {
        let size = self.layout.unit;
        let units: u64 = extents.iter().map(|extent| extent.len).sum();
        let first = extents.iter().map(|extent| extent.place).min().unwrap_or(0);
        let end = extents.iter().map(|extent| extent.place + extent.len).max().unwrap_or(first);
        let is_dense = extents.len() > 1 && end - first <= SPARSE * units;
        let whole = if is_dense { self.read_range(first, end) } else { None };
        let (mut rest, mut wanted) = (into, Vec::new());
        for extent in extents {
            let (part, behind) = take(&mut rest).split_at_mut((extent.len * size) as usize);
            let start = ((extent.place - first) * size) as usize;
            match whole.as_ref().and_then(|whole| whole.get(start..start + part.len())) {
                Some(found) => part.copy_from_slice(found),
                None => wanted.push((extent.place, part)),
            }
            rest = behind;
        }
        self.read_beside(&mut wanted);
    }

    /// The units of the medium from `first` to `end`; none if there are some that can't be read.
    fn read_range(&self, first: u64, end: u64) -> Option<Lent<'_>> {
        let mut bytes = self.lend(((end - first) * self.layout.unit) as usize).ok()?;
        self.read_at(first, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Puts the unit of `extent`, which was read to byte `from`, behind those that are right; one
    /// that is not is read once more, from wherever it is now.
    fn examine(&self, extent: Extent, generation: u64, from: usize, gathered: &mut Gathered<'_>) {
        let Extent { unit, place, .. } = extent;
        let size = self.layout.unit as usize;
        let Some(bytes) = gathered.bytes.get_mut(from..from + size) else {
            return;
        };
        let mut found = digest(bytes);
        if self.layout.bind.sum(place, generation, found) != self.sum_of(place) {
            if let Err(error) = self.read_units(unit, bytes) {
                gathered.unreadable += 1;
                gathered.error.get_or_insert(error);
                return;
            }
            found = digest(bytes);
        }
        let to = gathered.digests.len() * size;
        if to < from {
            gathered.bytes.copy_within(from..from + size, to);
        }
        gathered.digests.push(found);
        match gathered.extents.last_mut() {
            Some(last) if last.end() == unit && last.place + last.len == place => last.len += 1,
            _ => gathered.extents.push(extent),
        }
    }

    /// The checksum of the unit at `place`, as it is now.
    fn sum_of(&self, place: u64) -> u32 {
        let core = self.core.as_ref();
        let base = Offset::new(core.segment(self.layout.segment_of(place), Of::Sums));
        let index = place % self.layout.segment;
        let word = core.word(base.plus(index / 2 * WORD));
        if index.is_multiple_of(2) { word as u32 } else { (word >> 32) as u32 }
    }
}
