//! Devices that are erased, and written in order: segments are made ready before they are begun,
//! and what is written to one goes there in the order in which its room was given out.
//!
//! One process at a time has a volume on such devices open.

use std::collections::BTreeMap;
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::index::{Of, Use, Word, Words};
use crate::segments::{Room, Temperature};
use crate::volume::Volume;
use crate::{Error, Result};

/// Times that a segment may have been begun less often than the others on average before what is in
/// it goes elsewhere: so many, and one for so many that these were begun.
const LAG_LEAST: u64 = 4;
const LAG_SHARE: u64 = 25;
/// Segments that are levelled before users get space.
const LEVELLED_AT_ONCE: u64 = 4;

/// How far the segments with room for payload are written, by this process.
#[derive(Default)]
pub(crate) struct Order {
    /// The next place of each, if that is not its first one.
    next: Mutex<BTreeMap<u64, u64>>,
    changed: Condvar,
    /// Whether wear is not levelled.
    is_uneven: AtomicBool,
    /// Whether what does not change is being moved, by whoever has the turn.
    is_levelling: AtomicBool,
}

/// Between looks at whether the volume has failed.
const PAUSE: Duration = Duration::from_millis(100);

impl<M: Memory, H: Host> Volume<M, H> {
    /// Whether its devices are erased, and written in order.
    pub(crate) fn is_ordered(&self) -> bool {
        self.device.limits().erase.is_some()
    }

    /// Writes to `room`, which the caller was given, and which nobody else has: every room is
    /// written, as those behind it wait for it.
    pub(crate) fn write_room(&self, room: &Room, bytes: &[u8]) -> Result<()> {
        if !self.is_ordered() {
            return self.write_units(room.place, bytes);
        }
        let segment = self.layout.segment_of(room.place);
        let mut next = self.order.next.lock().unwrap_or_else(PoisonError::into_inner);
        while next.get(&segment).map_or(self.layout.first_place(segment), |&next| next)
            != room.place
        {
            self.check_health()?;
            let waited = self.order.changed.wait_timeout(next, PAUSE);
            next = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(next);
        let outcome = self.write_units(room.place, bytes);
        let mut next = self.order.next.lock().unwrap_or_else(PoisonError::into_inner);
        let end = room.place + room.len;
        if end.is_multiple_of(self.layout.segment) {
            next.remove(&segment);
        } else {
            next.insert(segment, end);
        }
        self.order.changed.notify_all();
        outcome
    }

    /// Waits until all packets before `number` are written, where that matters.
    pub(crate) fn await_packets(&self, number: u64) -> Result<()> {
        while self.is_ordered() && self.root(Word::Written) < number {
            self.check_health()?;
            std::thread::sleep(PAUSE / 1000);
        }
        Ok(())
    }

    /// Refuses to be a writer beside others.
    pub(crate) fn refuse_others(&self) -> Result<()> {
        if !self.is_ordered() {
            return Ok(());
        }
        let anyone = self.device.is_anyone_entered();
        match anyone.map_err(|source| self.device_error("ask who writes to", 0, 0, source))? {
            true => {
                let what = "devices that are written in order are one process's at a time";
                Err(Error::InUse { device: self.name(), what })
            }
            false => Ok(()),
        }
    }

    /// Gives no more room in segments that another process has begun: how far they are written
    /// nobody knows.
    pub(crate) fn close_open_segments(&self) -> Result<()> {
        if !self.is_ordered() {
            return Ok(());
        }
        self.change(|change| {
            for word in [Word::OpenHot, Word::OpenCold, Word::OpenCold2] {
                change.tx.set(word.at(), 0)?;
            }
            Ok(())
        })
    }

    /// Whether segments are used so that all of them wear out alike, if their devices don't see to
    /// that: they do unless this was called with false.
    pub fn level_wear(&self, is_levelled: bool) {
        self.order.is_uneven.store(!is_levelled, Ordering::Relaxed);
    }

    /// Whether wear is levelled.
    pub(crate) fn levels_wear(&self) -> bool {
        self.is_ordered() && !self.order.is_uneven.load(Ordering::Relaxed)
    }

    /// Gets what has been left in segments for too long out of them, a few at a time, if there is
    /// space for that: each into one of its own, which is the one that is worn most.
    pub(crate) fn level(&self) -> Result<()> {
        for _ in 0..LEVELLED_AT_ONCE {
            let Some(segment) = self.laggard() else {
                return Ok(());
            };
            if self.count_free()? <= self.left_by(Temperature::Cold) {
                return Ok(());
            }
            self.level_one(segment)?;
        }
        Ok(())
    }

    /// Gets what is in use in `segment` out of it.
    fn level_one(&self, segment: u64) -> Result<()> {
        // What cleaning copies goes on where it was afterwards: it would not stay.
        let open = Word::OpenCold2;
        let before = self.root(open);
        let _hold = before.checked_sub(1).map(|before| self.hold(before)).transpose()?;
        self.change(|change| Ok(change.tx.set(open.at(), 0)?))?;
        self.order.is_levelling.store(true, Ordering::Relaxed);
        let moved = self.clean(iter::once((segment, Temperature::Cold2)));
        self.order.is_levelling.store(false, Ordering::Relaxed);
        self.change(|change| Ok(change.tx.set(open.at(), before)?))?;
        moved.map(drop)
    }

    /// Whether what is copied now is expected to stay.
    pub(crate) fn is_levelling(&self) -> bool {
        self.order.is_levelling.load(Ordering::Relaxed)
    }

    /// The segment that was begun least often, if it has been left behind: what is in it does not
    /// change, and should go to one that is worn.
    fn laggard(&self) -> Option<u64> {
        if !self.levels_wear() {
            return None;
        }
        let core = self.core.as_ref();
        let in_use = self.segments_in_use();
        let (mut sum, mut count) = (0, 0);
        let mut least: Option<(u64, u64)> = None;
        for segment in 0..self.layout.segments {
            let (used, begun) = core.usage(segment);
            if used == Use::Anchor || core.segment(segment, Of::Bad) > 0 {
                continue;
            }
            (sum, count) = (sum + begun, count + 1);
            let is_least = least.is_none_or(|(other, _)| begun < other);
            if is_least && self.can_be_cleaned(segment, &in_use) {
                least = Some((begun, segment));
            }
        }
        let average = sum / u64::max(count, 1);
        let most = LAG_LEAST.max(average / LAG_SHARE);
        least.filter(|(begun, _)| begun + most < average).map(|(_, segment)| segment)
    }

    /// Erases the segments that can be begun anew but for that, and puts those out of use that
    /// can't be erased.
    pub(crate) fn make_ready(&self) -> Result<()> {
        if !self.is_ordered() {
            return Ok(());
        }
        let bytes = self.layout.segment * self.layout.unit;
        // With the lock held: somebody may be given room that is then neither open nor in use. Who
        // is found to have none does not get any before the segment is begun anew.
        let dead = self.change(|change| {
            let held = self.held_segments(&change.tx)?;
            let is_unready = |segment: &u64| {
                change.tx.segment(*segment, Of::Ready) == 0
                    && self.is_dead(&change.tx, *segment, &held)
            };
            Ok((0..self.layout.segments).filter(is_unready).collect::<Vec<_>>())
        })?;
        for segment in dead {
            let at = self.layout.first_place(segment) * self.layout.unit;
            let is_blank = self.device.is_blank(at, bytes).unwrap_or(false);
            let is_ready = is_blank || self.device.discard(at, bytes).is_ok();
            self.order.next.lock().unwrap_or_else(PoisonError::into_inner).remove(&segment);
            // That it is bad need not be in the stream: whoever tries again finds out.
            self.change(|change| match is_ready {
                true => Ok(change.tx.set(change.tx.segment_at(segment, Of::Ready), 1)?),
                false => change.note_bad(segment),
            })?;
        }
        Ok(())
    }
}
