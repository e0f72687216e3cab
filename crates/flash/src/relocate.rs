//! Copying units that the map leads to elsewhere: what cleaning and repairing do.
//!
//! Many at once: they are read side by side, written side by side in the order of the space
//! (`copies.rs`), and published (`publish.rs`). A copy counts only if the map still leads to the
//! original then. While some are written, the next ones are read, and those before published.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Range;

use conquest_format::volume::digest;
use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::copies::{Batch, Bytes, Copies, Unit};
use crate::index::{Of, Words};
use crate::map::Extent;
use crate::reads::Reads;
use crate::segments::Temperature;
use crate::volume::Volume;
use crate::writer::Hold;
use crate::{Error, Result};

/// Units that are copied at once.
const AT_ONCE: u64 = 512;
/// So often, before the first of them are looked at.
const READ_AHEAD: usize = 2;
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

/// Originals that are copied at once, of segments that are alike.
struct Originals<'v, M: Memory, H: Host> {
    all: Vec<Original>,
    temperature: Temperature,
    /// Of the segments of which these are the last ones.
    holds: Vec<Hold<'v, M, H>>,
}

/// What is left of a segment.
struct Left<'v, M: Memory, H: Host> {
    all: VecDeque<Original>,
    temperature: Temperature,
    /// Of the segment.
    hold: Option<Hold<'v, M, H>>,
}

/// Originals that are being read.
struct Reading<'v, M: Memory, H: Host> {
    originals: Originals<'v, M, H>,
    /// What has all of them, in their order.
    ranges: Vec<Range<u64>>,
    reads: Reads<'v, M, H>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Copies what is in use in `segments` elsewhere, each to where it goes with its temperature.
    pub(crate) fn relocate(
        &self,
        segments: impl Iterator<Item = (u64, Temperature)>,
    ) -> Result<Relocated> {
        let mut segments = segments.peekable();
        let mut left = Left { all: VecDeque::new(), temperature: Temperature::Cold, hold: None };
        let mut relocated = Relocated::default();
        let (mut reading, mut is_last) = (VecDeque::new(), false);
        let mut writing: Option<Copies<'_, M, H>> = None;
        loop {
            while reading.len() < READ_AHEAD && !is_last && !relocated.is_short {
                let next = self.next_originals(&mut segments, &mut left)?;
                let begun = self.begin_reading(next);
                is_last = begun.is_none();
                reading.extend(begun);
            }
            let Some(batch) = reading.pop_front().filter(|_| !relocated.is_short) else {
                break;
            };
            let batch = self.read_batch(batch, &mut relocated)?;
            let copies = self.begin_copies(batch)?;
            relocated.is_short = copies.is_short();
            // While the next ones are read, and these are written.
            if let Some(before) = writing.replace(copies) {
                self.finish_copies(before, &mut relocated)?;
            }
        }
        if let Some(last) = writing {
            self.finish_copies(last, &mut relocated)?;
        }
        Ok(relocated)
    }

    /// What is to be copied next: what is `left`, and what is in use in the next of `segments`.
    fn next_originals<'v>(
        &'v self,
        segments: &mut Peekable<impl Iterator<Item = (u64, Temperature)>>,
        left: &mut Left<'v, M, H>,
    ) -> Result<Originals<'v, M, H>> {
        let (mut units, mut all, mut holds) = (0, Vec::new(), Vec::new());
        loop {
            while let Some(next) =
                left.all.pop_front_if(|(extent, _)| units == 0 || units + extent.len <= AT_ONCE)
            {
                units += next.0.len;
                all.push(next);
            }
            if left.all.is_empty() {
                holds.extend(left.hold.take());
            }
            // Segments are read as a whole, so none is begun of which much would be left.
            let is_full = !left.all.is_empty() || units >= AT_ONCE / 2;
            let has_same = |(_, next): &(u64, Temperature)| units == 0 || *next == left.temperature;
            let next = if is_full { None } else { segments.next_if(has_same) };
            let Some((segment, temperature)) = next else {
                return Ok(Originals { all, temperature: left.temperature, holds });
            };
            // Otherwise it might be begun anew, and the same unit come to the same place.
            left.hold = Some(self.hold(segment)?);
            let (mut live, generation) = self
                .change(|change| Ok((change.live_extents(segment)?, change.tx.usage(segment).1)))?;
            live.sort_unstable_by_key(|extent| extent.place);
            left.all.extend(live.into_iter().map(|extent| (extent, generation)));
            left.temperature = temperature;
        }
    }

    /// Copies one unit elsewhere, if it is at `place` and can be read.
    pub(crate) fn copy_unit(&self, unit: u64, place: u64) -> Result<()> {
        let segment = self.layout.segment_of(place);
        let hold = self.hold(segment)?;
        let generation = self.change(|change| Ok(change.tx.usage(segment).1))?;
        let original = (Extent { unit, place, len: 1 }, generation);
        let mut relocated = Relocated::default();
        let temperature = Temperature::Cold;
        let originals = Originals { all: vec![original], temperature, holds: vec![hold] };
        if let Some(batch) = self.begin_reading(originals) {
            let batch = self.read_batch(batch, &mut relocated)?;
            let copies = self.begin_copies(batch)?;
            relocated.is_short = copies.is_short();
            self.finish_copies(copies, &mut relocated)?;
        }
        if relocated.is_short { Err(self.no_space()) } else { Ok(()) }
    }

    /// Begins to read `originals`, of segments that the caller holds; none if there are none. Where
    /// the map leads elsewhere by now, anything may be read, which is then in vain.
    fn begin_reading<'v>(&'v self, originals: Originals<'v, M, H>) -> Option<Reading<'v, M, H>> {
        if originals.all.is_empty() {
            return None;
        }
        let unit = self.layout.unit as usize;
        let ranges = self.ranges_of(&originals.all);
        let bytes = |range: &Range<u64>| (range.start, (range.end - range.start) as usize * unit);
        let reads = self.begin_reads(ranges.iter().map(bytes).collect());
        Some(Reading { originals, ranges, reads })
    }

    /// The units of what is being read, as far as they can be.
    fn read_batch<'v>(
        &'v self,
        reading: Reading<'v, M, H>,
        relocated: &mut Relocated,
    ) -> Result<Batch<'v, M, H>> {
        let Reading { originals, ranges, reads } = reading;
        let read = reads.finish()?;
        let unit = self.layout.unit as usize;
        let mut units = Vec::new();
        let mut known = ranges.iter().zip(&read).enumerate().peekable();
        for &(extent, generation) in &originals.all {
            // Both are in the order of their places, segment by segment.
            while known.next_if(|(_, (range, _))| !range.contains(&extent.place)).is_some() {}
            let Some(&(which, (range, bytes))) = known.peek() else {
                continue;
            };
            for index in 0..extent.len {
                let (unit_number, place) = (extent.unit + index, extent.place + index);
                let from = (place - range.start) as usize * unit;
                let bytes = bytes.get(from..from + unit).unwrap_or_default();
                let at = Bytes::Read { which, range: from..from + unit };
                match self.examine(unit_number, place, generation, bytes, at) {
                    Ok(found) => units.push(found),
                    Err(error) => {
                        relocated.unreadable.push(self.layout.segment_of(place));
                        relocated.error.get_or_insert(error);
                    }
                }
            }
        }
        units.sort_unstable_by_key(|found| found.unit);
        let Originals { temperature, holds, .. } = originals;
        Ok(Batch { read, units, temperature, _holds: holds })
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
    /// were read, which are `at`; if these are not right, it is read once more, from wherever it is
    /// now.
    fn examine(
        &self,
        unit: u64,
        place: u64,
        generation: u64,
        bytes: &[u8],
        at: Bytes,
    ) -> Result<Unit> {
        let found = digest(bytes);
        if self.layout.bind.sum(place, generation, found) == self.sum_of(place) {
            return Ok(Unit { unit, place, digest: found, bytes: at });
        }
        let mut again = vec![0; self.layout.unit as usize];
        self.read_units(unit, &mut again)?;
        Ok(Unit { unit, place, digest: digest(&again), bytes: Bytes::Again(again) })
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
