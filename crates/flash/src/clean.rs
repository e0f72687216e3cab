//! Cleaning: what is still in use in a segment goes elsewhere, so that the segment is free.
//!
//! Segments are chosen by what is gained, how old it is and what it costs. What was copied once
//! goes to segments for what is cold, because it has outlived what was written with it. A copy
//! counts only if the map still leads to the original when it does: who overwrites meanwhile wins.

use conquest_format::volume::{Record, Sums};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::change::{Change, Step};
use crate::gather::Gathered;
use crate::index::{Of, Slot, Use, Word, Words, packet_of};
use crate::map::Extent;
use crate::segments::{Room, Temperature};
use crate::volume::Volume;
use crate::{Error, Result};

/// One of so many segments is cleaned ahead, and most that are.
const SHARE: u64 = 256;
const TOGETHER: u64 = 8;
/// Units that are copied at once.
const AT_ONCE: u64 = 1024;
/// Copies that are published under one hold of the lock.
const PUBLISHED: usize = 32;

/// Units that were copied.
struct Copied<'g> {
    /// Where the map led.
    old: Extent,
    /// Where they are now.
    room: Room,
    digests: &'g [u32],
}

/// Whether something could be done; it can't if there is no space for it.
pub(crate) fn could(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::NoSpace { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Makes segments free, until what users write can have so many.
    ///
    /// What was cleaned is free when a flushed packet says that its copies are durable. Packets say
    /// so in passing, if there is time: so more is cleaned than is needed now, and one flush does
    /// for what was cleaned last time.
    pub(crate) fn make_space(&self, segments: u64) -> Result<()> {
        let has_space = || Ok(self.count_free()? >= self.left_by(Temperature::Hot) + segments);
        let Some(_turn) = self.take_turn_unless(has_space)? else {
            return Ok(());
        };
        let ahead = (self.layout.segments / SHARE).clamp(1, TOGETHER);
        let (mut idle, mut waits) = (0, 0);
        let mut unreadable = None;
        let mut last = 0;
        while self.trim_some()? {}
        self.flush()?;
        self.level()?;
        loop {
            self.check_health()?;
            self.make_ready()?;
            let free = self.count_free()?;
            // Copying may need a segment before it gains one.
            idle = if free > last { 0 } else { idle + 1 };
            last = free;
            let wanted = self.left_by(Temperature::Hot) + segments;
            let (unnamed, unrooted) = self.dead_segments();
            let is_free = free >= wanted;
            // Those who write can go on as long as there are more than these.
            let is_urgent = free <= self.left_by(Temperature::Hot);
            self.space.tell();
            let missing = (wanted + 2 * ahead).saturating_sub(free + unnamed);
            if is_free && missing == 0 {
                return Ok(());
            }
            let spare = free.saturating_sub(self.left_by(Temperature::Cold));
            let most = missing.min(spare).min(TOGETHER);
            let is_short = !is_free;
            let has_done = if is_short && free + unnamed >= wanted {
                could(self.name_durable())?
            } else {
                (unrooted > 2 * ahead + self.checkpoint_needs() && could(self.checkpoint())?)
                    || self.clean_best(most, is_urgent, &mut unreadable)?
                    || (is_short && unnamed > 0 && could(self.name_durable())?)
                    || (is_short && unrooted > 0 && could(self.checkpoint())?)
                    || (is_short && self.clean_at_last(&mut unreadable)?)
            };
            if !has_done && self.await_holds(&mut waits)? {
                continue;
            }
            if idle > 2 * self.layout.segments || !has_done {
                return match unreadable {
                    _ if is_free => Ok(()),
                    Some(error) => Err(error),
                    None => Err(self.no_space()),
                };
            }
        }
    }

    /// Gets what has been left in a segment for too long out of it, if there is space for that.
    fn level(&self) -> Result<()> {
        let Some(segment) = self.laggard() else {
            return Ok(());
        };
        if self.count_free()? <= self.left_by(Temperature::Cold) {
            return Ok(());
        }
        could(self.clean_as(segment, Temperature::Cold2).map(drop)).map(drop)
    }

    /// Segments that can be begun anew.
    pub(crate) fn count_free(&self) -> Result<u64> {
        self.change(|change| Ok(self.free_segments(&change.tx, false)?.0))
    }

    /// Cleans up to `most` segments, those that gain most, or, if space `is_short`, most at once;
    /// whether there was any, and space for it. Why something is `unreadable` there, if it is.
    fn clean_best(
        &self,
        most: u64,
        is_short: bool,
        unreadable: &mut Option<Error>,
    ) -> Result<bool> {
        let mut has_done = false;
        for segment in self.victims(most as usize, is_short) {
            let cleaned = self.clean(segment).map(|why| *unreadable = why.or(unreadable.take()));
            if !could(cleaned)? {
                break;
            }
            has_done = true;
        }
        Ok(has_done)
    }

    /// Cleans one segment with space that is kept for a checkpoint: whoever was killed while he
    /// made space may have left no other. It comes back without one.
    fn clean_at_last(&self, unreadable: &mut Option<Error>) -> Result<bool> {
        self.space.let_go(true);
        let outcome = self.clean_best(1, true, unreadable);
        self.space.let_go(false);
        outcome
    }

    /// Segments in which nothing is in use, and which wait for a flush; or for a checkpoint.
    fn dead_segments(&self) -> (u64, u64) {
        let core = self.core.as_ref();
        let (open, _) = packet_of(core.root(Word::End));
        let current = self.layout.segment_of(core.packet(open, Slot::Place));
        let (named, rooted) = (core.root(Word::Named), core.root(Word::RootPacket));
        let next = core.root(Word::NextStream);
        let (mut unnamed, mut unrooted) = (0, 0);
        for segment in 0..self.layout.segments {
            if core.segment(segment, Of::Live) > 0 {
                continue;
            }
            let touched = core.segment(segment, Of::Touched);
            match core.usage(segment).0 {
                Use::Stream if segment == current || segment == next => {}
                Use::Stream if core.segment(segment, Of::Last) >= rooted => unrooted += 1,
                Use::Payload | Use::Stream if touched >= named && touched > 0 => unnamed += 1,
                _ => {}
            }
        }
        (unnamed, unrooted)
    }

    /// Up to `most` segments whose cleaning gains most for what it costs, the best one first; if
    /// space `is_short`, whatever it is that others will die of.
    fn victims(&self, most: usize, is_short: bool) -> Vec<u64> {
        let core = self.core.as_ref();
        let (open, _) = packet_of(core.root(Word::End));
        let in_use = self.segments_in_use();
        // Those of the stream take a checkpoint to be free.
        let needs_payload = self.space.is_let_go();
        let score = |segment: u64| {
            let live = core.segment(segment, Of::Live);
            let dead = self.layout.segment.saturating_sub(live);
            if live == 0 || dead == 0 || !self.can_be_cleaned(segment, &in_use) {
                return 0.0;
            }
            if needs_payload && core.usage(segment).0 != Use::Payload {
                return 0.0;
            }
            let age = open.saturating_sub(core.segment(segment, Of::Birth)) + 1;
            let age = if is_short { 1.0 } else { (age as f64).sqrt() };
            dead as f64 * age / (self.layout.segment + live) as f64
        };
        let scores = (0..self.layout.segments).map(|segment| (score(segment), segment));
        let mut best: Vec<(f64, u64)> = Vec::with_capacity(most + 1);
        for found in scores.filter(|(score, _)| *score > 0.0) {
            if best.len() < most || best.last().is_some_and(|(least, _)| found.0 > *least) {
                let at = best.partition_point(|(score, _)| *score >= found.0);
                best.insert(at, found);
                best.truncate(most);
            }
        }
        best.into_iter().map(|(_, segment)| segment).collect()
    }

    /// The segments in which the stream goes on, or that have room for payload.
    pub(crate) fn segments_in_use(&self) -> [Option<u64>; 5] {
        let core = self.core.as_ref();
        let (open, _) = packet_of(core.root(Word::End));
        let current = self.layout.segment_of(core.packet(open, Slot::Place));
        let payload = |word| core.root(word).checked_sub(1);
        [
            payload(Word::OpenHot),
            payload(Word::OpenCold),
            payload(Word::OpenCold2),
            Some(current),
            Some(core.root(Word::NextStream)),
        ]
    }

    /// Whether there is something in `segment` that can be copied elsewhere, and nothing is added,
    /// as to those `in_use`.
    pub(crate) fn can_be_cleaned(&self, segment: u64, in_use: &[Option<u64>]) -> bool {
        let core = self.core.as_ref();
        matches!(core.usage(segment).0, Use::Payload | Use::Stream)
            && core.segment(segment, Of::Live) > core.segment(segment, Of::Unreadable)
            && !in_use.contains(&Some(segment))
    }

    /// Copies what is in use in `segment` elsewhere; why some of it can't be read, if that is so.
    pub(crate) fn clean(&self, segment: u64) -> Result<Option<Error>> {
        let core = self.core.as_ref();
        let temperature = match (core.usage(segment).0, core.segment(segment, Of::Age)) {
            (Use::Payload, age) if age > 0 => Temperature::Cold2,
            _ => Temperature::Cold,
        };
        self.clean_as(segment, temperature)
    }

    /// [`Self::clean`], to segments for `temperature`.
    fn clean_as(&self, segment: u64, temperature: Temperature) -> Result<Option<Error>> {
        // Otherwise it might be begun anew, and the same unit come to the same place.
        let _hold = self.hold(segment)?;
        let (live, generation) =
            self.change(|change| Ok((change.live_extents(segment)?, change.tx.usage(segment).1)))?;
        let (mut unreadable, mut error) = (0, None);
        let mut rest = live.as_slice();
        while !rest.is_empty() {
            let mut units = 0;
            let few = rest.iter().take_while(|extent| {
                units += extent.len;
                units <= AT_ONCE
            });
            let (now, later) = rest.split_at(few.count().max(1));
            let gathered = self.gather(now, generation)?;
            self.relocate(&gathered, temperature)?;
            unreadable += gathered.unreadable;
            error = error.or(gathered.error);
            rest = later;
        }
        if unreadable > 0 {
            self.change(|change| {
                let at = change.tx.segment_at(segment, Of::Unreadable);
                Ok(change.tx.set(at, unreadable)?)
            })?;
        }
        Ok(error)
    }

    /// Copies one unit elsewhere, if it is at `place` and can be read.
    pub(crate) fn copy_unit(&self, unit: u64, place: u64) -> Result<()> {
        let segment = self.layout.segment_of(place);
        let _hold = self.hold(segment)?;
        let generation = self.change(|change| Ok(change.tx.usage(segment).1))?;
        let gathered = self.gather(&[Extent { unit, place, len: 1 }], generation)?;
        self.relocate(&gathered, Temperature::Cold)
    }

    /// Writes what was gathered elsewhere, and publishes the copies; those that could be made, if
    /// there is no space for all.
    fn relocate(&self, gathered: &Gathered<'_>, temperature: Temperature) -> Result<()> {
        let size = self.layout.unit as usize;
        let all = gathered.digests.len() as u64;
        let mut originals = gathered.extents.iter().copied();
        let mut original: Option<Extent> = None;
        let (mut copied, mut holds) = (Vec::new(), Vec::new());
        let (mut done, mut outcome) = (0, Ok(()));
        while done < all {
            let bytes = gathered.bytes.get(done as usize * size..all as usize * size);
            let (mut room, hold) = match self.write_to_room(temperature, bytes.unwrap_or_default())
            {
                Ok(written) => written,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            holds.push(hold);
            while room.len > 0 {
                let Some(old) = original.take().or_else(|| originals.next()) else {
                    break;
                };
                let len = old.len.min(room.len);
                let digests = gathered.digests.get(done as usize..(done + len) as usize);
                copied.push(Copied {
                    old: Extent { len, ..old },
                    room: Room { len, ..room },
                    digests: digests.unwrap_or_default(),
                });
                original = old.within(old.unit + len, old.end());
                room = Room { place: room.place + len, len: room.len - len, ..room };
                done += len;
            }
        }
        self.publish(&copied)?;
        drop(holds);
        outcome
    }

    /// Makes the map lead to copies, where it still leads to the originals.
    fn publish(&self, copied: &[Copied<'_>]) -> Result<()> {
        for some in copied.chunks(PUBLISHED) {
            self.change(|change| {
                for copy in some {
                    change.publish(copy)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// What the map leads to in `segment`, by place.
    pub(crate) fn live_extents(&mut self, segment: u64) -> Step<Vec<Extent>> {
        let mut live = Vec::new();
        for name in self.volume.names(&self.tx, segment)? {
            let (mut at, end) = (name.unit, name.end());
            while let Some(extent) = self.volume.find(&self.tx, at)? {
                let Some(extent) = extent.within(at, end) else {
                    break;
                };
                if extent.place == name.place + (extent.unit - name.unit) {
                    live.push(extent);
                }
                at = extent.end();
            }
        }
        // Entries may overlap, where the same was written to the same place.
        live.sort_unstable_by_key(|extent| (extent.unit, extent.place));
        let mut at = 0;
        let apart = live.iter().filter_map(|extent| {
            let extent = extent.within(at, u64::MAX)?;
            at = extent.end();
            Some(extent)
        });
        Ok(apart.collect())
    }

    /// Adds the records that lead to `copy`, for what the map still leads to the original of.
    fn publish(&mut self, copy: &Copied<'_>) -> Step<()> {
        let Copied { old, room, digests } = copy;
        let (mut at, end) = (old.unit, old.end());
        while let Some(extent) = self.volume.find(&self.tx, at)? {
            let Some(extent) = extent.within(at, end) else {
                break;
            };
            at = extent.end();
            let within = extent.unit - old.unit;
            if extent.place != old.place + within {
                continue;
            }
            let place = room.place + within;
            let digests = digests.get(within as usize..(within + extent.len) as usize);
            let words = self.volume.sums(place, room.generation, digests.unwrap_or_default());
            let sums = Sums::new(&words, extent.len);
            self.append(&Record::Write { unit: extent.unit, place, len: extent.len, sums }, true)?;
        }
        Ok(())
    }
}
