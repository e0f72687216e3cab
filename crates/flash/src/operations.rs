//! Reading, writing, trimming, moving.

use conquest_format::volume::{BLOCK, Record, Sums};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::change::{Change, Step};
use crate::index::{Count, Word, Words};
use crate::large::{Piece, Placed, REQUEST};
use crate::layout::INLINE;
use crate::map::Extent;
use crate::seen::Expected;
use crate::segments::{FAILURES_MAX, Room, Temperature};
use crate::stream::UNFLUSHED_MAX;
use crate::transfer::{self, Found, digests};
use crate::volume::Volume;
use crate::writer::Hold;
use crate::{Error, Result};

/// Bytes of a large write that are written, and put into the map, together.
pub(crate) const AT_ONCE: u64 = 8 << 20;
/// Most ranges of an atomic write.
pub const RANGES_MAX: usize = 256;
/// Most bytes of an atomic write: its records are in the index together.
pub const ATOMIC_MAX: u64 = 64 << 20;
/// Bytes of payload of an atomic write that go into packets, at most: the rest gets room of its
/// own, as a packet waits for those before it.
const INLINE_AT_ONCE: u64 = 4 * INLINE;

/// Units to be written.
struct Part<'b> {
    unit: u64,
    bytes: &'b [u8],
    digests: Vec<u32>,
    /// Where they are, if they are on the device already.
    rooms: Vec<Room>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    pub(crate) fn per_unit(&self) -> u64 {
        self.layout.unit / BLOCK
    }

    pub(crate) fn check_range(&self, block: u64, bytes: usize) -> Result<u64> {
        let bytes = bytes as u64;
        let count = bytes / BLOCK;
        let refuse = |what| Err(Error::Range { block, count, what });
        if !bytes.is_multiple_of(BLOCK) {
            return refuse("transfers are of whole blocks");
        }
        self.check_blocks(block, count)?;
        Ok(count)
    }

    /// Refuses what goes beyond the space: its blocks have all numbers but the last.
    pub(crate) fn check_blocks(&self, block: u64, count: u64) -> Result<()> {
        if block.checked_add(count).is_some() {
            return Ok(());
        }
        Err(Error::Range { block, count, what: "it goes beyond the end of the space" })
    }

    /// Reads from block `block` on. What was never written, or was trimmed, reads as zeros.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::Damaged`], those of the devices.
    pub fn read(&self, block: u64, into: &mut [u8]) -> Result<()> {
        self.check_range(block, into.len())?;
        let (unit, skip) = (block / self.per_unit(), block % self.per_unit() * BLOCK);
        let (size, len) = (self.layout.unit, into.len() as u64);
        if skip == 0 && len.is_multiple_of(size) {
            return self.read_units(unit, into);
        }
        let mut whole = vec![0; (skip + len).next_multiple_of(size) as usize];
        self.read_units(unit, &mut whole)?;
        let part = whole.get(skip as usize..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(part.unwrap_or_default());
        Ok(())
    }

    /// Writes from block `block` on. What others read meanwhile is, for each unit, old or new. It
    /// is durable when a later [`Volume::flush`] has returned.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::NoSpace`], those of the devices.
    pub fn write(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.write_told(block, bytes).map(drop)
    }

    /// [`Self::write`]: the packet with the last record of it.
    pub(crate) fn write_told(&self, block: u64, bytes: &[u8]) -> Result<u64> {
        self.check_range(block, bytes.len())?;
        let (mut block, mut rest, mut packet) = (block, bytes, 0);
        while !rest.is_empty() {
            let skip = block % self.per_unit() * BLOCK;
            // So that what follows begins with a unit.
            let len = (AT_ONCE - skip).min(rest.len() as u64);
            let (now, later) = rest.split_at(len as usize);
            packet = self.write_ranges(&[(block, now)], false)?;
            block += len / BLOCK;
            rest = later;
        }
        Ok(packet)
    }

    /// Writes several ranges at once: after a failure of any kind all of them are as they were, or
    /// all new. Others who read meanwhile may see some of them before others.
    ///
    /// # Errors
    /// [`Error::Range`], also if two overlap; [`Error::TooMany`]; [`Error::TooLarge`] above
    /// [`ATOMIC_MAX`], or if free space is in so many pieces that what names them is too much;
    /// [`Error::NoSpace`]; those of the devices.
    pub fn write_atomic(&self, ranges: &[(u64, &[u8])]) -> Result<()> {
        self.write_ranges(ranges, false).map(drop)
    }

    /// [`Self::write_atomic`], or [`Self::write_reserved`]: the packet with the last record of it.
    pub(crate) fn write_ranges(&self, ranges: &[(u64, &[u8])], is_reserved: bool) -> Result<u64> {
        self.write_ranges_if(&[], ranges, is_reserved).map(Option::unwrap_or_default)
    }

    /// The same if units are where they were `seen`; none if they are not.
    pub(crate) fn write_ranges_if(
        &self,
        seen: &[Expected],
        ranges: &[(u64, &[u8])],
        is_reserved: bool,
    ) -> Result<Option<u64>> {
        self.check_ranges(ranges)?;
        let bytes = ranges.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        loop {
            let mut owned = Vec::new();
            let mut expected = Vec::new();
            self.complete(ranges, &mut owned, &mut expected)?;
            let mut parts = self.parts(ranges, &owned);
            let holds = self.place(&mut parts)?;
            let done = self.change(|change| {
                if !change.are_as_expected(seen)? {
                    return Ok(Some(None));
                }
                if !change.are_as_expected(&expected)? {
                    return Ok(None);
                }
                change.take_space(&parts, is_reserved)?;
                change.write_parts(&parts)?;
                Ok(Some(Some(change.last_packet())))
            });
            let done = done.map_err(|error| match error {
                Error::TooLarge { most, .. } => Error::TooLarge { bytes, most },
                other => other,
            })?;
            drop(holds);
            if let Some(packet) = done {
                self.flush_if_due()?;
                return Ok(packet);
            }
        }
    }

    fn check_ranges(&self, ranges: &[(u64, &[u8])]) -> Result<()> {
        if ranges.len() > RANGES_MAX {
            let (wanted, most) = (ranges.len() as u64, RANGES_MAX as u64);
            return Err(Error::TooMany { wanted, most });
        }
        let (bytes, most) = (ranges.iter().map(|(_, bytes)| bytes.len() as u64).sum(), ATOMIC_MAX);
        if bytes > most {
            return Err(Error::TooLarge { bytes, most });
        }
        let mut sorted = Vec::new();
        for &(block, bytes) in ranges {
            sorted.push((block, self.check_range(block, bytes.len())?));
        }
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            if let &[(first, count), (second, _)] = pair
                && first + count > second
            {
                let what = "it overlaps with another one that is written at the same time";
                return Err(Error::Range { block: first, count, what });
            }
        }
        Ok(())
    }

    /// Reads the units that `ranges` have only parts of, and puts the parts in: whole units, by
    /// number.
    fn complete(
        &self,
        ranges: &[(u64, &[u8])],
        owned: &mut Vec<(u64, Vec<u8>)>,
        expected: &mut Vec<Expected>,
    ) -> Result<()> {
        let size = self.layout.unit as usize;
        for (unit, start, bytes) in self.partial(ranges) {
            let index = match owned.iter().position(|(known, _)| *known == unit) {
                Some(index) => index,
                None => {
                    let mut whole = vec![0; size];
                    let at = self.read_unit(unit, &mut whole)?;
                    expected.push(Expected { unit, len: 1, at });
                    owned.push((unit, whole));
                    owned.len() - 1
                }
            };
            let whole = owned.get_mut(index).map(|(_, whole)| whole.as_mut_slice());
            let place = whole.and_then(|whole| whole.get_mut(start..start + bytes.len()));
            if let Some(place) = place {
                place.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// The units of which `ranges` have only a part: from which byte of the unit on, and what.
    fn partial<'b>(&self, ranges: &[(u64, &'b [u8])]) -> Vec<(u64, usize, &'b [u8])> {
        let size = self.layout.unit as usize;
        let mut found = Vec::new();
        for &(block, bytes) in ranges {
            let (mut unit, mut rest) = (block / self.per_unit(), bytes);
            let start = (block % self.per_unit() * BLOCK) as usize;
            if start > 0 {
                let (head, behind) = rest.split_at(rest.len().min(size - start));
                found.push((unit, start, head));
                (unit, rest) = (unit + 1, behind);
            }
            let whole = rest.len() / size * size;
            if whole < rest.len() {
                let tail = rest.get(whole..).unwrap_or_default();
                found.push((unit + (whole / size) as u64, 0, tail));
            }
        }
        found
    }

    /// Reads a unit, and says where it was.
    pub(crate) fn read_unit(&self, unit: u64, into: &mut [u8]) -> Result<Option<(u64, u64)>> {
        let found =
            |pieces: Vec<transfer::Piece>| pieces.into_iter().next().and_then(|piece| piece.found);
        let at = |found: &Found| (found.place, found.generation);
        self.check_health()?;
        loop {
            let before = found(self.look(unit, 1)?);
            let is_read = before.as_ref().is_some_and(|found| self.read_from_ring(found, into));
            if !is_read {
                self.read_units(unit, into)?;
            }
            let before = before.as_ref().map(at);
            if found(self.look(unit, 1)?).as_ref().map(at) == before {
                return Ok(before);
            }
        }
    }

    /// The whole units of `ranges`, with those that were completed.
    fn parts<'b>(&self, ranges: &[(u64, &'b [u8])], owned: &'b [(u64, Vec<u8>)]) -> Vec<Part<'b>> {
        let size = self.layout.unit;
        let part = |unit: u64, bytes: &'b [u8]| Part {
            unit,
            bytes,
            digests: digests(bytes, size),
            rooms: Vec::new(),
        };
        let mut parts: Vec<_> = owned.iter().map(|(unit, whole)| part(*unit, whole)).collect();
        for &(block, bytes) in ranges {
            let skip = (size - block % self.per_unit() * BLOCK) % size;
            let rest = bytes.get(skip as usize..).unwrap_or_default();
            let whole = rest.get(..rest.len() / size as usize * size as usize);
            let whole = whole.unwrap_or_default();
            if !whole.is_empty() {
                parts.push(part(block.div_ceil(self.per_unit()), whole));
            }
        }
        parts
    }

    /// Writes those of `parts` that are too large for packets to room of their own.
    fn place(&self, parts: &mut [Part<'_>]) -> Result<Vec<Hold<'_, M, H>>> {
        let mut inline = 0;
        let mut pieces = Vec::new();
        for (part, Part { bytes, .. }) in parts.iter().enumerate() {
            let len = bytes.len() as u64;
            if len <= INLINE && inline + len <= INLINE_AT_ONCE {
                inline += len;
                continue;
            }
            pieces.extend(bytes.chunks(REQUEST).map(|bytes| Piece { part, bytes }));
        }
        let mut holds = Vec::new();
        for Placed { part, room, hold } in self.write_pieces(&pieces)? {
            if let Some(part) = parts.get_mut(part) {
                part.rooms.push(room);
            }
            holds.push(hold);
        }
        Ok(holds)
    }

    /// Writes as much of `bytes` as a record can name to room of its own: which, and the hold of
    /// its segment. A place that can't be written is avoided from then on, if others can.
    pub(crate) fn write_to_room(
        &self,
        temperature: Temperature,
        bytes: &[u8],
    ) -> Result<(Room, Hold<'_, M, H>)> {
        // Held, so that nobody begins them anew meanwhile.
        let mut failed = Vec::new();
        loop {
            let (room, hold) = self.room(temperature, bytes.len() as u64 / self.layout.unit)?;
            let part = bytes.get(..(room.len * self.layout.unit) as usize);
            match self.write_room(&room, part.unwrap_or_default()) {
                Ok(()) => {
                    self.retire(&failed)?;
                    return Ok((room, hold));
                }
                Err(error) => {
                    let segment = self.layout.segment_of(room.place);
                    self.change(|change| change.close(segment))?;
                    failed.push((segment, hold));
                    if failed.len() == FAILURES_MAX {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Room for up to `wanted` units, as many as a record can name; and the hold of its segment.
    pub(crate) fn room(
        &self,
        temperature: Temperature,
        wanted: u64,
    ) -> Result<(Room, Hold<'_, M, H>)> {
        let hold = self.spare_hold()?;
        // With what voids its group, if it has one.
        let words = self.layout.record_room() - Record::Void.words();
        let wanted = wanted.min(Record::sums_in(words));
        let room = self.change(|change| change.take_room(temperature, wanted, &hold))?;
        Ok((room, hold))
    }

    /// Flushes if much has been written since somebody did: recovery has to read it all.
    pub(crate) fn flush_if_due(&self) -> Result<()> {
        self.trim_some()?;
        match self.root(Word::Unflushed) > UNFLUSHED_MAX {
            true => self.flush(),
            false => self.checkpoint_if_due(),
        }
    }

    /// Takes `count` blocks from `block` on out of use: they read as zeros, their space is free.
    ///
    /// # Errors
    /// [`Error::Range`], those of the devices.
    pub fn trim(&self, block: u64, count: u64) -> Result<()> {
        self.check_blocks(block, count)?;
        let per = self.per_unit();
        let end = block + count;
        let (first, last) = (block.div_ceil(per), end / per);
        if first >= last {
            return self.write_zeros(block, count);
        }
        self.write_zeros(block, first * per - block)?;
        self.write_zeros(last * per, end - last * per)?;
        self.forget_kept(first, last)?;
        self.change(|change| {
            change.append(&Record::Hole { unit: first, len: last - first }, true)
        })?;
        self.flush_if_due()
    }

    /// Moves `count` blocks from block `from` on to block `to` on, all at once: what was there is
    /// gone, and where they were reads as zeros. Nothing is copied.
    ///
    /// # Errors
    /// [`Error::Range`] if that are not whole units, or they overlap; [`Error::TooMany`] if they
    /// are in more pieces than [`RANGES_MAX`]; those of the devices.
    pub fn move_blocks(&self, from: u64, to: u64, count: u64) -> Result<()> {
        self.check_blocks(from, count)?;
        self.check_blocks(to, count)?;
        let per = self.per_unit();
        let refuse = |what| Err(Error::Range { block: from, count, what });
        if !(from | to | count).is_multiple_of(per) {
            return refuse("only whole units can be moved");
        }
        if from.max(to) - from.min(to) < count {
            return refuse("what is moved overlaps with where it goes");
        }
        let (from, to, len) = (from / per, to / per, count / per);
        if len == 0 {
            return Ok(());
        }
        self.change(|change| change.move_units(from, to, len))?;
        self.flush_if_due()
    }

    /// Writes zeros to parts of one or two units, where there is anything.
    fn write_zeros(&self, block: u64, count: u64) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let per = self.per_unit();
        let (first, last) = (block / per, (block + count - 1) / per);
        for unit in first..=last {
            // The last unit ends behind the last number that there is.
            let end = (unit + 1).saturating_mul(per);
            let (from, to) = (block.max(unit * per), (block + count).min(end));
            let is_hole = self.look(unit, 1)?.iter().all(|piece| piece.found.is_none());
            if !is_hole {
                self.write(from, &vec![0; ((to - from) * BLOCK) as usize])?;
            }
        }
        Ok(())
    }

    /// The first range of blocks at or behind `block` that is allocated, if there is one: its first
    /// block and how many.
    ///
    /// # Errors
    /// Those of the region.
    pub fn allocated(&self, block: u64) -> Result<Option<(u64, u64)>> {
        self.allocated_within(block, u64::MAX)
    }

    /// [`Self::allocated`] for who needs to know no more than about `count` blocks: the range may
    /// go on behind these, and is told to end there, or somewhat later.
    ///
    /// # Errors
    /// Those of the region.
    pub fn allocated_within(&self, block: u64, count: u64) -> Result<Option<(u64, u64)>> {
        let per = self.per_unit();
        let (unit, enough) = (block / per, block.saturating_add(count).div_ceil(per));
        let found = self.core.read(crate::index::LOCK, |view| {
            let mut found = self.find(view, unit)?;
            while let Some(extent) = found.filter(|extent| extent.end() < enough) {
                let next = self.find(view, extent.end())?;
                match next.filter(|next| next.unit == extent.end()) {
                    Some(next) => {
                        let len = extent.len + next.len;
                        found = Some(Extent { len, ..extent });
                    }
                    None => break,
                }
            }
            Ok(found)
        })?;
        // Behind the last block there is a number that none has.
        let range = found.map(|extent| {
            let first = (extent.unit * per).max(block);
            (first, extent.end().saturating_mul(per) - first)
        });
        Ok(range.filter(|(_, count)| *count > 0))
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Adds the records that move `len` units from `from` to `to`.
    fn move_units(&mut self, from: u64, to: u64, len: u64) -> Step<()> {
        let mut extents = Vec::new();
        let mut at = from;
        while let Some(extent) = self.volume.find(&self.tx, at)? {
            let Some(extent) = extent.within(at, from + len) else {
                break;
            };
            extents.push(extent);
            at = extent.end();
        }
        if extents.len() > RANGES_MAX {
            let (wanted, most) = (extents.len() as u64, RANGES_MAX as u64);
            return Err(Error::TooMany { wanted, most }.into());
        }
        self.append(&Record::Hole { unit: to, len }, false)?;
        for Extent { unit, place, len } in extents {
            let unit = unit - from + to;
            self.append(&Record::Place { unit, place, len }, false)?;
        }
        self.append(&Record::Hole { unit: from, len }, true)
    }

    /// Refuses if the space does not suffice for `parts`; takes what is reserved for them, if
    /// `is_reserved`.
    fn take_space(&mut self, parts: &[Part<'_>], is_reserved: bool) -> Step<()> {
        let used = self.tx.root(Word::Live) + self.tx.root(Word::Reserved);
        let all: u64 = parts.iter().map(|part| part.digests.len() as u64).sum();
        if !is_reserved && used + all <= self.volume.capacity(&self.tx) {
            return Ok(());
        }
        // What is being trimmed counts, too.
        while self.trim_some()? {}
        let mut new = all;
        for part in parts {
            let (mut at, end) = (part.unit, part.unit + part.digests.len() as u64);
            while let Some(extent) = self.volume.find(&self.tx, at)? {
                let Some(extent) = extent.within(at, end) else {
                    break;
                };
                new -= extent.len;
                at = extent.end();
            }
        }
        let reserved = self.tx.root(Word::Reserved);
        let taken = if is_reserved { new.min(reserved) } else { 0 };
        self.refuse_full(new - taken)?;
        if taken > 0 {
            self.set_reserved(reserved - taken, false)?;
        }
        Ok(())
    }

    /// Adds the records for `parts`, with the payload of those that have no room of their own.
    fn write_parts(&mut self, parts: &[Part<'_>]) -> Step<()> {
        let size = self.volume.layout.unit;
        for (index, part) in parts.iter().enumerate() {
            let is_last_part = index + 1 == parts.len();
            let all = part.digests.len() as u64;
            let mut done = 0;
            let mut rooms = part.rooms.iter();
            while done < all {
                let rest = part.bytes.get((done * size) as usize..).unwrap_or_default();
                let (place, generation, len) = match rooms.next() {
                    Some(room) => (room.place, room.generation, room.len),
                    None => self.put_inline(rest)?,
                };
                let digests = part.digests.get(done as usize..(done + len) as usize);
                let words = self.volume.sums(place, generation, digests.unwrap_or_default());
                let sums = Sums::new(&words, len);
                let unit = part.unit + done;
                done += len;
                let record = Record::Write { unit, place, len, sums };
                self.append(&record, is_last_part && done == all)?;
            }
        }
        let bytes: u64 = parts.iter().map(|part| part.bytes.len() as u64).sum();
        let unflushed = self.tx.root(Word::Unflushed) + bytes;
        self.tx.set(Word::Unflushed.at(), unflushed)?;
        self.count_units(Count::Asked, bytes / size)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

    use std::sync::Arc;

    use conquest_format::volume::{Arrangement, Record};
    use conquest_pm::attach::NewRegion;
    use conquest_pm::media::{Mapped, OsHost, Source};
    use conquest_pm::{Access, Options, Region};

    use super::*;
    use crate::device::{Limits, MemoryDevice};
    use crate::index::Word;
    use crate::{NewVolume, assemble, create};

    /// A device in memory with a new volume, whose segments have 16 units.
    pub(crate) fn device() -> MemoryDevice {
        let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
        let device = MemoryDevice::new("memory", 2 * 65536 + (256 << 16), limits).unwrap();
        let arrangement = Arrangement::Striped;
        let new = NewVolume { uuid: [7; 16], created: 1, arrangement, segment: Some(16) };
        create(&[Arc::new(device.as_other())], &new).unwrap();
        device
    }

    /// The volume on `device`, as after a restart of the machine.
    pub(crate) fn recovered(device: &MemoryDevice) -> Volume<Mapped, OsHost> {
        let body = assemble(vec![Arc::new(device.as_other())]).unwrap();
        let file = rustix::fs::memfd_create("index", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let source = || Source::Descriptor(file.try_clone().unwrap());
        let (shape, kinds, uuid) = (body.shape(4), body.kinds(), body.uuid());
        let new = NewRegion { shape, kinds, uuid, created: 1, groups: 1 };
        Region::create(source(), 0o600, &new).unwrap();
        let region = Region::open(source(), &body.kinds(), Access::default(), Options::default());
        Volume::recover(region.unwrap(), &body).unwrap()
    }

    /// A new volume in memory, with segments of 16 units.
    pub(crate) fn volume() -> Volume<Mapped, OsHost> {
        recovered(&device())
    }

    /// A transaction that is nearly full of what came before is no reason for any step to fail.
    #[test]
    fn each_step_has_room_however_much_was_staged_before() {
        let volume = volume();
        let bytes = vec![7; volume.layout.unit as usize];
        let fill = |change: &mut Change<'_, _, _>, left| -> Step<()> {
            while change.tx.room() > left {
                change.tx.set(Word::Failed.at(), 0)?;
            }
            Ok(())
        };
        for left in 0..100 {
            for count in 1..3 {
                let ranges: Vec<_> = (0..count).map(|at| (at << 10, bytes.as_slice())).collect();
                let parts = volume.parts(&ranges, &[]);
                let write = |change: &mut Change<'_, _, _>| {
                    fill(change, left)?;
                    change.write_parts(&parts)
                };
                let told = |error| panic!("{count} ranges with {left} entries left: {error}");
                volume.change(write).unwrap_or_else(told);
            }
            for record in [Record::Hole { unit: 1 << 30, len: 1 }, Record::Reserved { units: left }]
            {
                let note = |change: &mut Change<'_, _, _>| {
                    change.append(&record, true)?;
                    fill(change, left)
                };
                volume.change(note).unwrap_or_else(|error| panic!("{record:?}, {left}: {error}"));
            }
        }
    }
}
