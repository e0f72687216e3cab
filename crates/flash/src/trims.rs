//! Trims of much at once: done in an instant, and worked off later.
//!
//! A range that is being trimmed stands in a short list, and reads as zeros from then on; its
//! extents leave the map bit by bit. Who writes into such a range takes its own part out of the
//! list, with the very part of the change that completes its record: what is in the map there is
//! then its own.

use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::change::{Change, Step};
use crate::index::{Word, Words};
use crate::kinds;
use crate::map::{Extent, Reader};
use crate::volume::Volume;

/// Ranges that the list holds.
const RANGES: u64 = kinds::TRIMS / (2 * WORD);
/// Extents that are taken out of the map at once. A range with fewer does not come into the list.
const AT_ONCE: usize = 32;
/// Entries of a transaction that taking a range out of the list needs at most.
pub(crate) const ENTRIES: u64 = 2 * RANGES + 4;

/// The list, as `words` have it.
struct List {
    at: Offset,
    count: u64,
}

impl List {
    fn new(words: &impl Words) -> List {
        let count = words.root(Word::TrimCount).min(RANGES);
        List { at: Offset::new(words.root(Word::Trims)), count }
    }

    fn start_at(&self, index: u64) -> Offset {
        self.at.plus(index * 2 * WORD)
    }

    fn range(&self, words: &impl Words, index: u64) -> (u64, u64) {
        let at = self.start_at(index);
        (words.word(at), words.word(at.plus(WORD)))
    }

    fn ranges(&self, words: &impl Words) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count).map(|index| self.range(words, index))
    }
}

/// The part of `extent` that is not being trimmed and comes first; none if all of it is.
fn first_left(words: &impl Words, extent: Extent) -> Option<Extent> {
    let list = List::new(words);
    if list.count == 0 {
        return Some(extent);
    }
    let mut left = extent;
    // Each round skips a range for good.
    for _ in 0..=list.count {
        let hides = |&(start, end): &(u64, u64)| start <= left.unit && left.unit < end;
        match list.ranges(words).find(hides) {
            Some((_, end)) => left = left.within(end, u64::MAX)?,
            None => break,
        }
    }
    let starts = list.ranges(words).map(|(start, _)| start).filter(|&start| start > left.unit);
    left.within(left.unit, starts.min().unwrap_or(u64::MAX))
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// The extent, or a part of one, that `unit` is in, or else the first one behind it, without
    /// what is being trimmed.
    pub(crate) fn find<R: Reader + Words>(
        &self,
        reader: &R,
        unit: u64,
    ) -> conquest_pm::Result<Option<Extent>> {
        let mut at = unit;
        while let Some(extent) = self.map.find(reader, at)? {
            let Some(extent) = extent.within(at, u64::MAX) else {
                break;
            };
            if let Some(left) = first_left(reader, extent) {
                return Ok(Some(left));
            }
            at = extent.end();
        }
        Ok(None)
    }

    /// The parts of `extents` that are not being trimmed.
    pub(crate) fn left_of(&self, words: &impl Words, extents: &mut Vec<Extent>) {
        if words.root(Word::TrimCount) == 0 {
            return;
        }
        let mut left = Vec::new();
        for &extent in extents.iter() {
            let mut rest = Some(extent);
            while let Some(part) = rest.and_then(|rest| first_left(words, rest)) {
                left.push(part);
                rest = extent.within(part.end(), u64::MAX);
            }
        }
        *extents = left;
    }

    /// Takes some of what is being trimmed out of the map; whether there is more. Until that is
    /// done its space counts as used. Whoever writes does some of it; who has time can do it all.
    ///
    /// # Errors
    /// Those of the region.
    pub fn trim_some(&self) -> Result<bool> {
        if self.root(Word::TrimCount) == 0 {
            return Ok(false);
        }
        self.change(|change| change.trim_some())
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Takes `start..end` out of the map, at once or later.
    pub(crate) fn trim(&mut self, start: u64, end: u64, packet: u64) -> Step<()> {
        let mut at = start;
        for _ in 0..AT_ONCE {
            match self.volume.map.find(&self.tx, at)?.filter(|extent| extent.unit < end) {
                Some(extent) => at = extent.end(),
                None => return self.clear(start, end, packet),
            }
        }
        self.make_trim_room(1)?;
        // Ranges of the list are apart, so that what is written cuts one of them at most.
        let (mut first, mut last) = (start, end);
        let mut ranges: Vec<_> = List::new(&self.tx).ranges(&self.tx).collect();
        ranges.retain(|&(from, to)| {
            let is_apart = to < first || last < from;
            if !is_apart {
                (first, last) = (first.min(from), last.max(to));
            }
            is_apart
        });
        ranges.push((first, last));
        // Other records may have been applied before this one.
        self.make_room(ENTRIES)?;
        self.set_trims(&ranges)?;
        Ok(())
    }

    fn set_trims(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        let list = List::new(&self.tx);
        for (index, &(from, to)) in (0..RANGES).zip(ranges) {
            let place = list.start_at(index);
            self.tx.set(place, from)?;
            self.tx.set(place.plus(WORD), to)?;
        }
        self.tx.set(Word::TrimCount.at(), ranges.len() as u64)?;
        Ok(())
    }

    /// Sees to it that the list has room for `ranges` more.
    pub(crate) fn make_trim_room(&mut self, ranges: u64) -> Step<()> {
        while self.tx.root(Word::TrimCount) + ranges > RANGES {
            self.trim_some()?;
        }
        Ok(())
    }

    /// Takes some of the last range of the list out of the map; whether the list has any left.
    pub(crate) fn trim_some(&mut self) -> Step<bool> {
        let list = List::new(&self.tx);
        let Some(last) = list.count.checked_sub(1) else {
            return Ok(false);
        };
        let (start, end) = list.range(&self.tx, last);
        let mut until = start;
        for _ in 0..AT_ONCE {
            match self.volume.map.find(&self.tx, until)?.filter(|extent| extent.unit < end) {
                Some(extent) => until = extent.end().min(end),
                None => until = end,
            }
        }
        let (packet, _) = crate::index::packet_of(self.tx.root(Word::End));
        self.clear(start, until, packet)?;
        self.make_room(8)?;
        if until < end {
            self.tx.set(list.start_at(last), until)?;
            return Ok(true);
        }
        self.tx.set(Word::TrimCount.at(), last)?;
        Ok(last > 0)
    }

    /// Takes `start..end` out of the list, which has room for one more range.
    pub(crate) fn untrim(&mut self, start: u64, end: u64) -> Result<()> {
        let list = List::new(&self.tx);
        if list.count == 0 {
            return Ok(());
        }
        let mut left = Vec::new();
        let before: Vec<_> = list.ranges(&self.tx).collect();
        for &(from, to) in &before {
            left.push((from, to.min(start)));
            left.push((from.max(end), to));
        }
        left.retain(|(from, to)| from < to);
        if left == before { Ok(()) } else { self.set_trims(&left) }
    }
}
