//! Cleaning: what is still in use in a segment goes elsewhere, so that the segment is free.
//!
//! Segments are chosen by what is gained, how old it is and what it costs. What was copied once
//! goes to segments for what is cold, because it has outlived what was written with it. A copy
//! counts only if the map still leads to the original when it does: who overwrites meanwhile wins.

use std::collections::VecDeque;
use std::iter;

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::index::{Count, Of, Slot, Use, Word, Words, packet_of};
use crate::relocate::Relocated;
use crate::segments::Temperature;
use crate::survey::Survey;
use crate::turn::Waits;
use crate::volume::Volume;
use crate::{Error, Result};

/// One of so many segments is cleaned ahead, and most that are.
const SHARE: u64 = 256;
const AHEAD_MOST: u64 = 16;
/// Segments that are cleaned without a pause, at most.
const BEGUN_MOST: usize = 512;

/// Whether something could be done; it can't if there is no space for it.
pub(crate) fn could(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::NoSpace { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What there is, and what is missing.
#[derive(Clone, Copy)]
struct Needs {
    /// As [`Survey`] has them.
    free: u64,
    unnamed: u64,
    unrooted: u64,
    /// How many are to be free, and whether they are.
    wanted: u64,
    is_free: bool,
    /// Whether those who write have to wait.
    is_urgent: bool,
    /// How many more are to be cleaned, some ahead.
    missing: u64,
    /// Into how many copies may go.
    spare: u64,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Makes segments free, until what users write can have so many.
    ///
    /// What was cleaned is free when a flushed packet says that its copies are durable. Packets say
    /// so in passing, if there is time: so more is cleaned than is needed now, and one flush does
    /// for what was cleaned last time.
    pub(crate) fn make_space(&self, segments: u64) -> Result<()> {
        let enough = || self.left_by(Temperature::Hot) + segments;
        // What this process remembers may be gone while others are free.
        let has_space = |by_others| match by_others {
            true => Ok(self.survey()?.free >= enough()),
            false => {
                let held = self.segments_held_now()?;
                Ok(self.known_free_for(self.core.as_ref(), &held, enough()).0 >= enough())
            }
        };
        if !self.levels_wear() && has_space(true)? {
            return Ok(());
        }
        let Some(_turn) = self.take_turn_unless(has_space)? else {
            return Ok(());
        };
        let _asking = self.naming.asking();
        let (mut idle, mut waits) = (0, Waits::new());
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
            // What somebody trims meanwhile is not copied, and nothing is gained by it before it is
            // out of the map.
            while self.trim_some()? {}
            self.make_ready()?;
            let needs = self.needs(segments)?;
            let Needs { free, unnamed, unrooted, is_free, .. } = needs;
            // Copying may need a segment before it gains one.
            idle = if free > last { 0 } else { idle + 1 };
            last = free;
            if is_free && needs.missing == 0 {
                return Ok(());
            }
            let is_short = !is_free;
            let is_enough = free + unnamed >= needs.wanted;
            let is_asked = is_short && unnamed > 0 && self.naming.ask();
            let has_done = if is_short && is_enough && !(is_asked && needs.missing > 0) {
                self.get_named()?
            } else {
                (self.is_rooting_due(&needs) && could(self.checkpoint())?)
                    || self.clean_best(&needs, Some(segments), &mut unreadable)?
                    || (is_short && unnamed > 0 && self.get_named()?)
                    || (is_short && unrooted > 0 && could(self.checkpoint())?)
                    || (is_short && self.clean_at_last(&needs, &mut unreadable)?)
            };
            let is_trimmed = self.root(Word::TrimCount) > 0;
            if !has_done && (is_trimmed || self.await_holds(&mut waits)?) {
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

    /// Sees to it that a flushed packet says what is durable: waits for the thread that is at it,
    /// or does it; whether there was space for that.
    fn get_named(&self) -> Result<bool> {
        match self.naming.ask_and_wait() {
            true => Ok(true),
            false => could(self.name_durable()),
        }
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
            Some(segment) => self.clean(iter::once((segment, Temperature::Cold))).map(drop),
            None => Ok(()),
        }
    }

    /// What there is, and what is missing for users to have `segments` free ones.
    fn needs(&self, segments: u64) -> Result<Needs> {
        let Survey { free, unnamed, unrooted } = self.survey()?;
        // Those who write can go on as long as there are more than these.
        let left = self.left_by(Temperature::Hot);
        self.space.tell();
        let (wanted, ahead) = (left + segments, self.ahead());
        Ok(Needs {
            free,
            unnamed,
            unrooted,
            wanted,
            is_free: free >= wanted,
            is_urgent: free <= left,
            missing: (wanted + 2 * ahead).saturating_sub(free + unnamed),
            spare: free.saturating_sub(self.left_by(Temperature::Cold)),
        })
    }

    /// Segments that are cleaned ahead.
    fn ahead(&self) -> u64 {
        (self.layout.segments / SHARE).clamp(1, AHEAD_MOST)
    }

    /// Whether a checkpoint would free much, or is due.
    fn is_rooting_due(&self, needs: &Needs) -> bool {
        needs.unrooted > 2 * self.ahead() + self.checkpoint_needs() || self.is_checkpoint_due(1)
    }

    /// Cleans segments, those that gain most, or, if space is urgent, most at once, as many as it
    /// `needs`, and goes on as long as so many `segments` are missing for users; whether there was
    /// any, and space for it. Why something is `unreadable` there, if it is.
    fn clean_best(
        &self,
        needs: &Needs,
        segments: Option<u64>,
        unreadable: &mut Option<Error>,
    ) -> Result<bool> {
        let most = needs.missing.max(self.ahead()).min(needs.spare);
        let mut next = VecDeque::from(self.choose(most, needs.is_urgent, &[]));
        let mut begun: Vec<u64> = next.iter().map(|(segment, _)| *segment).collect();
        if next.is_empty() {
            return Ok(false);
        }
        let mut error = None;
        let all = iter::from_fn(|| {
            if let (true, None, Some(segments)) = (next.is_empty(), &error, segments) {
                match self.choose_more(segments, &begun) {
                    Ok(more) => next.extend(more),
                    Err(failed) => error = Some(failed),
                }
                begun.extend(next.iter().map(|(segment, _)| *segment));
            }
            next.pop_front()
        });
        let relocated = self.clean(all)?;
        if let Some(error) = error {
            return Err(error);
        }
        *unreadable = relocated.error.or(unreadable.take());
        Ok(relocated.units > 0 || !relocated.is_short)
    }

    /// What to clean beside what was `begun`, so that users have `segments` free ones.
    fn choose_more(&self, segments: u64, begun: &[u64]) -> Result<Vec<(u64, Temperature)>> {
        self.check_health()?;
        let core = self.core.as_ref();
        let is_under_way = |segment: &&u64| core.segment(**segment, Of::Live) > 0;
        let under_way = begun.iter().filter(is_under_way).count() as u64;
        let needs = self.needs(segments)?;
        if !needs.is_free && needs.unnamed > 0 {
            self.naming.ask();
        }
        let is_enough = needs.missing <= under_way || begun.len() > BEGUN_MOST;
        if is_enough || self.is_rooting_due(&needs) {
            return Ok(Vec::new());
        }
        // Looking for a few takes as long as looking for many.
        let most = (needs.missing - under_way).max(self.ahead());
        let spare = needs.spare.saturating_sub(under_way);
        Ok(self.choose(most.min(spare), needs.is_urgent, begun))
    }

    /// Up to `most` segments to be cleaned, with what has outlived the rest of each: those that are
    /// alike one after the other; none that was `begun`.
    fn choose(&self, most: u64, is_urgent: bool, begun: &[u64]) -> Vec<(u64, Temperature)> {
        let most = most.min(self.layout.cleaned_most()) as usize;
        if most == 0 {
            return Vec::new();
        }
        let victims = self.victims(most, is_urgent, begun).into_iter();
        let mut victims: Vec<_> = victims.map(|victim| (victim, self.outlived(victim))).collect();
        victims.sort_by_key(|(_, temperature)| *temperature as u64);
        victims
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
    pub(crate) fn clean(
        &self,
        segments: impl Iterator<Item = (u64, Temperature)>,
    ) -> Result<Relocated> {
        let mut relocated = self.relocate(segments)?;
        relocated.unreadable.sort_unstable();
        for of_one in relocated.unreadable.chunk_by(|one, next| one == next) {
            if let Some(&segment) = of_one.first() {
                self.change(|change| {
                    let at = change.tx.segment_at(segment, Of::Unreadable);
                    Ok(change.tx.set(at, of_one.len() as u64)?)
                })?;
            }
        }
        Ok(relocated)
    }

    /// Cleans one segment with space that is kept for a checkpoint: whoever was killed while he
    /// made space may have left no other. It comes back without one.
    fn clean_at_last(&self, needs: &Needs, unreadable: &mut Option<Error>) -> Result<bool> {
        self.space.let_go(true);
        let needs = Needs { is_urgent: true, missing: 1, spare: 1, ..*needs };
        let outcome = self.clean_best(&needs, None, unreadable);
        self.space.let_go(false);
        outcome
    }

    /// Up to `most` segments whose cleaning gains most for what it costs, the best one first; if
    /// space `is_short`, whatever it is that others will die of.
    fn victims(&self, most: usize, is_short: bool, begun: &[u64]) -> Vec<u64> {
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
            let is_better = best.last().is_none_or(|(least, _)| found.0 > *least);
            if (best.len() < most || is_better) && !begun.contains(&found.1) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::change::Change;
    use crate::operations::tests::volume;

    /// Whoever was killed while he made space may have left so little.
    #[test]
    fn space_is_made_with_what_is_kept_for_a_checkpoint_if_there_is_no_other() {
        let volume = volume();
        let bytes = |unit: u64| vec![unit as u8; 4096];
        let units = volume.layout.segment * 40;
        // So much at once goes to segments of its own.
        for unit in (0..units).step_by(64) {
            let parts: Vec<_> = (unit..unit + 64).flat_map(bytes).collect();
            volume.write(unit * 8, &parts).unwrap();
        }
        // One of four units of each segment is left.
        let left = || (0..units).step_by(4);
        left().try_for_each(|unit| volume.trim((unit + 1) * 8, 3 * 8)).unwrap();
        while volume.trim_some().unwrap() {}
        volume.flush().unwrap();
        volume.checkpoint().unwrap();
        volume.name_durable().unwrap();
        let (kept, hot) = (volume.checkpoint_needs(), volume.left_by(Temperature::Hot));
        // Nothing else is to be gained.
        let fill = |change: &mut Change<'_, _, _>| {
            let (segment, _) = change.begin_segment(Use::Payload, kept)?;
            let live = change.tx.segment_at(segment, Of::Live);
            Ok(change.tx.set(live, volume.layout.segment)?)
        };
        while volume.count_free().unwrap() > kept {
            volume.change(fill).unwrap();
        }
        volume.make_space(1).unwrap();
        assert!(volume.count_free().unwrap() > hot);
        assert_eq!(volume.left_by(Temperature::Cold), kept + 1);
        for unit in left() {
            let mut found = bytes(0);
            volume.read(unit * 8, &mut found).unwrap();
            assert!(found == bytes(unit), "unit {unit}");
        }
    }
}
