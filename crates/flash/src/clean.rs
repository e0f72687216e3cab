//! Cleaning: what is still in use in a segment goes elsewhere, so that the segment is free.
//!
//! Segments are chosen by what is gained, how old it is and what it costs. What was copied once
//! goes to segments for what is cold, because it has outlived what was written with it. A copy
//! counts only if the map still leads to the original when it does: who overwrites meanwhile wins.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::index::{Count, Of, Slot, Use, Word, Words, packet_of};
use crate::relocate::Relocated;
use crate::segments::Temperature;
use crate::volume::Volume;
use crate::{Error, Result};

/// One of so many segments is cleaned ahead, and most that are.
const SHARE: u64 = 256;
const TOGETHER: u64 = 16;
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
        // What could not be written before comes first: otherwise each failure would seal another
        // packet, and use up what is kept free.
        self.write_all_sealed()?;
        self.flush()?;
        self.level()?;
        self.empty_bad()?;
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
        self.clean(&[(segment, Temperature::Cold2)]).map(drop)
    }

    /// Gets what can be read out of a segment that is bad, if there is space for that.
    fn empty_bad(&self) -> Result<()> {
        let core = self.core.as_ref();
        if core.count(Count::Bad) == 0 || self.count_free()? <= self.left_by(Temperature::Cold) {
            return Ok(());
        }
        let in_use = self.segments_in_use();
        let is_one = |&segment: &u64| {
            core.segment(segment, Of::Bad) > 0 && self.can_be_cleaned(segment, &in_use)
        };
        match (0..self.layout.segments).find(is_one) {
            Some(segment) => self.clean(&[(segment, Temperature::Cold)]).map(drop),
            None => Ok(()),
        }
    }

    /// Cleans up to `most` segments, those that gain most, or, if space `is_short`, most at once;
    /// whether there was any, and space for it. Why something is `unreadable` there, if it is.
    fn clean_best(
        &self,
        most: u64,
        is_short: bool,
        unreadable: &mut Option<Error>,
    ) -> Result<bool> {
        let victims = self.victims(most as usize, is_short).into_iter();
        let mut victims: Vec<_> = victims.map(|victim| (victim, self.outlived(victim))).collect();
        if victims.is_empty() {
            return Ok(false);
        }
        // Those that are alike one after the other.
        victims.sort_by_key(|(_, temperature)| *temperature as u64);
        let relocated = self.clean(&victims)?;
        *unreadable = relocated.error.or(unreadable.take());
        Ok(relocated.units > 0 || !relocated.is_short)
    }

    /// What has outlived the other units of `segment`.
    fn outlived(&self, segment: u64) -> Temperature {
        let core = self.core.as_ref();
        match (core.usage(segment).0, core.segment(segment, Of::Age)) {
            (Use::Payload, age) if age > 0 => Temperature::Cold2,
            _ => Temperature::Cold,
        }
    }

    /// Copies what is in use in `segments` to segments for the temperature of each.
    fn clean(&self, segments: &[(u64, Temperature)]) -> Result<Relocated> {
        let relocated = self.relocate(segments)?;
        for &(segment, _) in segments {
            let of_it = relocated.unreadable.iter().filter(|found| **found == segment);
            let units = of_it.count() as u64;
            if units > 0 {
                self.change(|change| {
                    let at = change.tx.segment_at(segment, Of::Unreadable);
                    Ok(change.tx.set(at, units)?)
                })?;
            }
        }
        Ok(relocated)
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
            if core.segment(segment, Of::Live) > 0 || core.segment(segment, Of::Bad) > 0 {
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
            let is_bad = core.segment(segment, Of::Bad) > 0;
            if live == 0 || dead == 0 || is_bad || !self.can_be_cleaned(segment, &in_use) {
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
}
