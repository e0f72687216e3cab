//! Where units were when somebody looked, and writes that are done only if they are there still.
//!
//! A place is written once while its segment is not begun anew. So a unit that is where it was,
//! in a segment of the same generation, has what it had; whoever has written it since, or trimmed
//! it, or copied it elsewhere to clean its segment, has made the map lead elsewhere. This is
//! compared by the very change that publishes what was written.

use conquest_format::volume::BLOCK;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::change::{Change, Step};
use crate::index::{LOCK, Words};
use crate::map::Extent;
use crate::operations::AT_ONCE;
use crate::volume::Volume;
use crate::{Error, Result};

/// Most pieces in which units may be that are to be written over.
const PIECES: usize = 64;

/// Where units have to be for a write to count: they were there before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) unit: u64,
    pub(crate) len: u64,
    /// The first one's place, and the generation of their segment; none if they are nowhere.
    pub(crate) at: Option<(u64, u64)>,
}

/// Where units of the space were: what [`Volume::look_at`] or [`Volume::look_where`] has seen. They
/// follow each other.
#[derive(Clone, Debug)]
pub struct Seen(Vec<Expected>);

impl Seen {
    /// Whether it is about the units from `unit` to `end`, and no others.
    fn is_of(&self, unit: u64, end: u64) -> bool {
        let first = self.0.first().map(|first| first.unit);
        let last = self.0.last().map(|last| last.unit + last.len);
        first == Some(unit) && last == Some(end)
    }

    /// Where they have to be.
    pub(crate) fn expected(&self) -> &[Expected] {
        &self.0
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Reads the unit that begins with block `block`, and notes where it was: for
    /// [`Self::write_atomic_if`].
    ///
    /// # Errors
    /// As [`Self::read`]; [`Error::Range`] also unless `into` is one unit, and begins with it.
    pub fn look_at(&self, block: u64, into: &mut [u8]) -> Result<Seen> {
        let count = self.check_range(block, into.len())?;
        if count != self.per_unit() || !block.is_multiple_of(count) {
            let what = "only whole units can be looked at";
            return Err(Error::Range { block, count, what });
        }
        let unit = block / count;
        Ok(Seen(vec![Expected { unit, len: 1, at: self.read_unit(unit, into)? }]))
    }

    /// Where the `count` blocks from `block` on are, for [`Self::write_over`]. None if they are not
    /// whole units, all of which are allocated; if they are in many pieces; or if they are more
    /// than are written together.
    ///
    /// # Errors
    /// [`Error::Range`], those of the region.
    pub fn look_where(&self, block: u64, count: u64) -> Result<Option<Seen>> {
        self.check_blocks(block, count)?;
        let per = self.per_unit();
        let is_whole = block.is_multiple_of(per) && count.is_multiple_of(per);
        if !is_whole || count == 0 || count > AT_ONCE / BLOCK {
            return Ok(None);
        }
        let (first, end) = (block / per, (block + count) / per);
        let mut seen = Vec::with_capacity(1);
        let is_there = self.core.read(LOCK, |view| {
            seen.clear();
            let mut at = first;
            while at < end {
                let found = self.find(view, at)?.and_then(|extent| extent.within(at, end));
                let Some(Extent { unit, place, len }) = found.filter(|found| found.unit == at)
                else {
                    return Ok(false);
                };
                if seen.len() == PIECES {
                    return Ok(false);
                }
                let (_, generation) = view.usage(self.layout.segment_of(place));
                seen.push(Expected { unit, len, at: Some((place, generation)) });
                at = unit + len;
            }
            Ok(true)
        })?;
        Ok(is_there.then_some(Seen(seen)))
    }

    /// [`Self::write_atomic`], unless what was `seen` has been written since, or is somewhere else:
    /// whether it was done. So of several who want to do what comes next one does, and one who was
    /// stopped does nothing when he goes on.
    ///
    /// # Errors
    /// As [`Self::write_atomic`].
    pub fn write_atomic_if(&self, seen: &Seen, ranges: &[(u64, &[u8])]) -> Result<bool> {
        self.write_ranges_if(seen.expected(), ranges, false).map(|packet| packet.is_some())
    }

    /// Writes `bytes` from block `block` on, where [`Self::look_where`] has `seen` them, all at
    /// once; unless any of these units was written since, trimmed, or copied elsewhere by cleaning:
    /// whether it was done. It takes no more space than there is.
    ///
    /// # Errors
    /// As [`Self::write_atomic`]; [`Error::Range`] also if it is not just what was seen.
    pub fn write_over(&self, block: u64, bytes: &[u8], seen: &Seen) -> Result<bool> {
        let count = self.check_range(block, bytes.len())?;
        let per = self.per_unit();
        let is_whole = block.is_multiple_of(per) && count.is_multiple_of(per);
        if !is_whole || !seen.is_of(block / per, (block + count) / per) {
            let what = "only what was seen can be written over";
            return Err(Error::Range { block, count, what });
        }
        self.write_atomic_if(seen, &[(block, bytes)])
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Whether all units are where they were when they were looked for.
    pub(crate) fn are_as_expected(&self, expected: &[Expected]) -> Step<bool> {
        for one in expected {
            if !self.is_as_expected(one)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_as_expected(&self, &Expected { unit, len, at }: &Expected) -> Step<bool> {
        let (mut now, end) = (unit, unit + len);
        while now < end {
            let found = self.volume.find(&self.tx, now)?;
            let found = found.and_then(|extent| extent.within(now, end));
            let (Some(extent), Some((place, generation))) = (found, at) else {
                return Ok(found.is_none() && at.is_none());
            };
            let is_there = extent.unit == now && extent.place == place + (now - unit);
            let (_, found) = self.tx.usage(self.volume.layout.segment_of(extent.place));
            if !is_there || found != generation {
                return Ok(false);
            }
            now = extent.end();
        }
        Ok(true)
    }
}
