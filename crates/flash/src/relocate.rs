//! Copying units that the map leads to elsewhere: what cleaning and repairing do.
//!
//! Many at once: they are read side by side, written side by side in the order of the space, and
//! published (`publish.rs`). A copy counts only if the map still leads to the original then.

use std::borrow::Cow;
use std::ops::Range;

use conquest_format::volume::digest;
use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::beside::{Beside, Done};
use crate::index::{Of, Words};
use crate::map::Extent;
use crate::publish::Copied;
use crate::segments::{Room, Temperature};
use crate::volume::Volume;
use crate::writer::Hold;
use crate::{Error, Result};

/// Units that are copied at once.
const AT_ONCE: u64 = 1024;
/// Where one of so many units of a range is wanted, the range is read as a whole.
const SPARSE: u64 = 4;

/// What has come of copying.
#[derive(Default)]
pub(crate) struct Relocated {
    /// Units that were copied.
    pub(crate) units: u64,
    /// The segment of each unit that can't be read.
    pub(crate) unreadable: Vec<u64>,
    /// Why the first of those can't.
    pub(crate) error: Option<Error>,
    /// Whether there was no space for more.
    pub(crate) is_short: bool,
}

/// Where the map led, and the generation of the segment there then.
type Original = (Extent, u64);

/// A unit that was read.
struct Unit<'b> {
    unit: u64,
    place: u64,
    digest: u32,
    bytes: Cow<'b, [u8]>,
}

/// Units that have a copy in room of its own, of which nobody uses the segment anew meanwhile.
struct Placed<'v, M: Memory, H: Host> {
    room: Room,
    _hold: Hold<'v, M, H>,
    /// Which of the units that were read.
    units: Range<usize>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Copies what is in use in `segments` elsewhere.
    pub(crate) fn relocate(&self, segments: &[u64], temperature: Temperature) -> Result<Relocated> {
        // Otherwise one might be begun anew, and the same unit come to the same place.
        let holds: Result<Vec<_>> = segments.iter().map(|&segment| self.hold(segment)).collect();
        let _holds = holds?;
        let mut all: Vec<Original> = Vec::new();
        for &segment in segments {
            let (mut live, generation) = self
                .change(|change| Ok((change.live_extents(segment)?, change.tx.usage(segment).1)))?;
            live.sort_unstable_by_key(|extent| extent.place);
            all.extend(live.into_iter().map(|extent| (extent, generation)));
        }
        let mut relocated = Relocated::default();
        let mut rest = all.as_slice();
        while !rest.is_empty() && !relocated.is_short {
            let mut units = 0;
            let few = rest.iter().take_while(|(extent, _)| {
                units += extent.len;
                units <= AT_ONCE
            });
            let (now, later) = rest.split_at(few.count().max(1));
            self.copy(now, temperature, &mut relocated)?;
            rest = later;
        }
        Ok(relocated)
    }

    /// Copies one unit elsewhere, if it is at `place` and can be read.
    pub(crate) fn copy_unit(&self, unit: u64, place: u64) -> Result<()> {
        let segment = self.layout.segment_of(place);
        let _hold = self.hold(segment)?;
        let generation = self.change(|change| Ok(change.tx.usage(segment).1))?;
        let original = (Extent { unit, place, len: 1 }, generation);
        let mut relocated = Relocated::default();
        self.copy(&[original], Temperature::Cold, &mut relocated)?;
        if relocated.is_short { Err(self.no_space()) } else { Ok(()) }
    }

    /// Copies `originals`, of segments that the caller holds, as far as they can be read and there
    /// is space. Where the map leads elsewhere by now, anything may be read, which is then in vain.
    fn copy(
        &self,
        originals: &[Original],
        temperature: Temperature,
        relocated: &mut Relocated,
    ) -> Result<()> {
        let unit = self.layout.unit as usize;
        let ranges = self.ranges_of(originals);
        let wanted: Vec<_> = ranges
            .iter()
            .map(|range| (range.start, (range.end - range.start) as usize * unit))
            .collect();
        let mut read = self.read_ranges(&wanted);
        for (read, (place, len)) in read.iter_mut().zip(wanted) {
            if read.is_none() {
                // Of what can't be read, there is anything.
                let mut bytes = self.lend(len)?;
                let _ = self.read_at(place, &mut bytes);
                *read = Some(bytes);
            }
        }
        let mut units = Vec::new();
        let mut known = ranges.iter().zip(&read).peekable();
        for &(extent, generation) in originals {
            // Both are in the order of their places, segment by segment.
            while known.next_if(|(range, _)| !range.contains(&extent.place)).is_some() {}
            let Some((range, Some(bytes))) = known.peek() else {
                continue;
            };
            for index in 0..extent.len {
                let (unit_number, place) = (extent.unit + index, extent.place + index);
                let from = (place - range.start) as usize * unit;
                let bytes = bytes.get(from..from + unit).unwrap_or_default();
                match self.examine(unit_number, place, generation, bytes) {
                    Ok(found) => units.push(found),
                    Err(error) => {
                        relocated.unreadable.push(self.layout.segment_of(place));
                        relocated.error.get_or_insert(error);
                    }
                }
            }
        }
        units.sort_unstable_by_key(|found| found.unit);
        self.write_and_publish(&units, temperature, relocated)
    }

    /// Ranges of the medium that have all of `originals`, each in one of them, in their order.
    fn ranges_of(&self, originals: &[Original]) -> Vec<Range<u64>> {
        let segment_of = |(extent, _): &Original| self.layout.segment_of(extent.place);
        let mut ranges = Vec::new();
        for of_one in originals.chunk_by(|one, next| segment_of(one) == segment_of(next)) {
            let (Some((first, _)), Some((last, _))) = (of_one.first(), of_one.last()) else {
                continue;
            };
            let (start, end) = (first.place, last.place + last.len);
            let units: u64 = of_one.iter().map(|(extent, _)| extent.len).sum();
            if end - start <= SPARSE * units {
                ranges.push(self.widened(start..end));
            } else {
                ranges.extend(of_one.iter().map(|(one, _)| one.place..one.place + one.len));
            }
        }
        ranges
    }

    /// A range with all of `range`, which is within a segment, for which memory is kept: where what
    /// was not written can be read, too.
    fn widened(&self, range: Range<u64>) -> Range<u64> {
        if self.is_ordered() {
            return range;
        }
        let len = (range.end - range.start).next_power_of_two().min(self.layout.segment);
        let first = self.layout.first_place(self.layout.segment_of(range.start));
        let start = range.start.min(first + self.layout.segment - len);
        start..start + len
    }

    /// The unit that was at `place` when its segment had this `generation`, and of which `bytes`
    /// were read; if these are not right, it is read once more, from wherever it is now.
    fn examine<'b>(
        &self,
        unit: u64,
        place: u64,
        generation: u64,
        bytes: &'b [u8],
    ) -> Result<Unit<'b>> {
        let found = digest(bytes);
        if self.layout.bind.sum(place, generation, found) == self.sum_of(place) {
            return Ok(Unit { unit, place, digest: found, bytes: Cow::Borrowed(bytes) });
        }
        let mut again = vec![0; self.layout.unit as usize];
        self.read_units(unit, &mut again)?;
        Ok(Unit { unit, place, digest: digest(&again), bytes: Cow::Owned(again) })
    }

    /// The checksum of the unit at `place`, as it is now.
    fn sum_of(&self, place: u64) -> u32 {
        let core = self.core.as_ref();
        let base = Offset::new(core.segment(self.layout.segment_of(place), Of::Sums));
        let index = place % self.layout.segment;
        let word = core.word(base.plus(index / 2 * WORD));
        if index.is_multiple_of(2) { word as u32 } else { (word >> 32) as u32 }
    }

    /// Writes `units`, which are in the order of the space, elsewhere, and publishes them.
    fn write_and_publish(
        &self,
        units: &[Unit<'_>],
        temperature: Temperature,
        relocated: &mut Relocated,
    ) -> Result<()> {
        let mut placed = Vec::new();
        match self.write_copies(units, temperature, &mut placed) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => relocated.is_short = true,
            Err(error) => return Err(error),
        }
        let mut copied = Vec::new();
        for one in &placed {
            relocated.units += one.units.len() as u64;
            let mut place = one.room.place;
            let of_one = units.get(one.units.clone()).unwrap_or_default();
            let is_run = |unit: &Unit<'_>, next: &Unit<'_>| {
                unit.unit + 1 == next.unit && unit.place + 1 == next.place
            };
            for run in of_one.chunk_by(is_run) {
                let Some(first) = run.first() else {
                    continue;
                };
                let len = run.len() as u64;
                copied.push(Copied {
                    old: Extent { unit: first.unit, place: first.place, len },
                    room: Room { place, len, ..one.room },
                    digests: run.iter().map(|unit| unit.digest).collect(),
                });
                place += len;
            }
        }
        self.publish(&copied)
    }

    /// Writes `units` elsewhere; which of them were `placed`, those that could be if there is no
    /// space for all.
    fn write_copies<'v>(
        &'v self,
        units: &[Unit<'_>],
        temperature: Temperature,
        placed: &mut Vec<Placed<'v, M, H>>,
    ) -> Result<()> {
        let beside = self.beside();
        let left = match beside.takes_writes() {
            true => self.write_side_by_side(beside, units, temperature, placed)?,
            false => std::iter::once(0..units.len()).collect(),
        };
        for range in left {
            self.write_in_turn(units, range, temperature, placed)?;
        }
        placed.sort_unstable_by_key(|one| one.units.start);
        Ok(())
    }

    /// Writes `units` side by side: those that are left, because they could not be written.
    fn write_side_by_side<'v>(
        &'v self,
        mut beside: Beside<'_, M, H>,
        units: &[Unit<'_>],
        temperature: Temperature,
        placed: &mut Vec<Placed<'v, M, H>>,
    ) -> Result<Vec<Range<usize>>> {
        let (mut at, mut is_short) = (0, false);
        let mut begun = Vec::new();
        while at < units.len() && beside.has_room() && !is_short {
            let (room, hold) = match self.room(temperature, (units.len() - at) as u64) {
                Ok(given) => given,
                // What was begun counts all the same.
                Err(Error::NoSpace { .. }) => {
                    is_short = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let next = at + room.len as usize;
            let buffer = self.exact_buffer((room.len * self.layout.unit) as usize);
            let not_begun = match buffer {
                Ok(mut buffer) => {
                    put_together(units.get(at..next).unwrap_or_default(), &mut buffer);
                    beside.write(begun.len(), room.place, buffer)
                }
                Err(_) => None,
            };
            not_begun.into_iter().for_each(|buffer| self.buffers.give(buffer));
            begun.push((Placed { room, _hold: hold, units: at..next }, false));
            at = next;
        }
        let mut done = beside.wait();
        while !done.is_empty() {
            for Done { tag, buffer, is_whole } in done {
                if let Some((one, is_written)) = begun.get_mut(tag) {
                    // Nobody names what is there yet, so it may be written again.
                    *is_written = is_whole || self.write_room(&one.room, &buffer).is_ok();
                }
                self.buffers.give(buffer);
            }
            done = beside.wait();
        }
        let (mut left, mut failed) = (Vec::new(), Vec::new());
        for (one, is_written) in begun {
            if is_written {
                placed.push(one);
                continue;
            }
            let segment = self.layout.segment_of(one.room.place);
            self.change(|change| change.close(segment))?;
            failed.push((segment, one._hold));
            left.push(one.units);
        }
        if !placed.is_empty() {
            self.retire(&failed)?;
        }
        left.push(at..units.len());
        if is_short { Err(self.no_space()) } else { Ok(left) }
    }

    /// Writes the `range` of `units`, one room after the other.
    fn write_in_turn<'v>(
        &'v self,
        units: &[Unit<'_>],
        range: Range<usize>,
        temperature: Temperature,
        placed: &mut Vec<Placed<'v, M, H>>,
    ) -> Result<()> {
        let size = self.layout.unit as usize;
        let wanted = units.get(range.clone()).unwrap_or_default();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut bytes = self.lend(wanted.len() * size)?;
        put_together(wanted, &mut bytes);
        let (mut at, mut rest) = (range.start, &*bytes);
        while !rest.is_empty() {
            let (room, hold) = self.write_to_room(temperature, rest)?;
            let next = at + room.len as usize;
            placed.push(Placed { room, _hold: hold, units: at..next });
            rest = rest.get(room.len as usize * size..).unwrap_or_default();
            at = next;
        }
        Ok(())
    }
}

/// Puts the bytes of `units` into `into`, one behind the other.
fn put_together(units: &[Unit<'_>], into: &mut [u8]) {
    let mut rest = into;
    for unit in units {
        let (part, behind) = rest.split_at_mut(unit.bytes.len().min(rest.len()));
        if part.len() == unit.bytes.len() {
            part.copy_from_slice(&unit.bytes);
        }
        rest = behind;
    }
}
