//! Cleaning: what is still in use in a segment goes elsewhere, so that the segment is free.
//!
//! Segments are chosen by what is gained, how old it is and what it costs. What was copied once
//! goes to segments for what is cold, because it has outlived what was written with it. A copy
//! counts only if the map still leads to the original when it does: who overwrites meanwhile wins.

use conquest_format::volume::{Record, Sums};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::change::{Change, Step};
use crate::index::{Of, Use, Word, Words, packet_of};
use crate::map::Extent;
use crate::segments::{Room, Temperature};
use crate::transfer::digests;
use crate::volume::Volume;
use crate::writer::Hold;
use crate::{Error, Result};

/// One of so many segments is cleaned ahead, and most that are.
const SHARE: u64 = 256;
const TOGETHER: u64 = 8;
/// Units that are copied at once.
const AT_ONCE: u64 = 1024;
/// Copies that are published under one hold of the lock.
const PUBLISHED: usize = 32;

/// Units that were copied.
struct Copied {
    /// Where the map led.
    old: Extent,
    /// Where they are now.
    room: Room,
    digests: Vec<u32>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Makes segments free, until what users write can have so many.
    ///
    /// What was cleaned is free when a flushed packet says that its copies are durable. Packets say
    /// so in passing, if there is time: so more is cleaned than is needed now, and one flush does
    /// for what was cleaned last time.
    pub(crate) fn make_space(&self, segments: u64) -> Result<()> {
        let _turn = self.take_turn()?;
        let ahead = (self.layout.segments / SHARE).clamp(1, TOGETHER);
        let (mut idle, mut waits) = (0, 0);
        while self.trim_some()? {}
        self.flush()?;
        loop {
            self.check_health()?;
            let before = self.count_free()?;
            let wanted = self.left_by(Temperature::Hot) + segments;
            let (unnamed, unrooted) = self.dead_segments();
            let is_free = before >= wanted;
            if is_free && before + unnamed >= wanted + 2 * ahead {
                return Ok(());
            }
            let can_clean = before > self.left_by(Temperature::Cold) + 1;
            let has_done = if !is_free && before + unnamed >= wanted {
                self.name_durable().map(|()| true)?
            } else if unrooted > 2 * ahead + self.checkpoint_needs() {
                self.checkpoint().map(|()| true)?
            } else if can_clean && self.clean_best(!is_free)? {
                true
            } else if unnamed > 0 && !is_free {
                self.name_durable().map(|()| true)?
            } else if unrooted > 0 && !is_free {
                self.checkpoint().map(|()| true)?
            } else {
                false
            };
            let after = self.count_free()?;
            // Copying may need a segment before it gains one.
            idle = if after > before { 0 } else { idle + 1 };
            if !has_done && self.await_holds(&mut waits)? {
                continue;
            }
            if idle > 2 * self.layout.segments || !has_done {
                return if is_free { Ok(()) } else { Err(self.no_space()) };
            }
        }
    }

    /// Segments that can be begun anew.
    pub(crate) fn count_free(&self) -> Result<u64> {
        self.change(|change| Ok(self.free_segments(&change.tx)?.0))
    }

    /// Cleans the segment that gains most, or, if space `is_short`, most at once; whether there is
    /// any, and space for it.
    fn clean_best(&self, is_short: bool) -> Result<bool> {
        let Some(segment) = self.victim(is_short) else {
            return Ok(false);
        };
        match self.clean(segment) {
            Ok(()) => Ok(true),
            Err(Error::NoSpace { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Segments in which nothing is in use, and which wait for a flush; or for a checkpoint.
    fn dead_segments(&self) -> (u64, u64) {
        let core = self.core.as_ref();
        let (mut unnamed, mut unrooted) = (0, 0);
        for segment in 0..self.layout.segments {
            if core.segment(segment, Of::Live) > 0 {
                continue;
            }
            let touched = core.segment(segment, Of::Touched);
            let last = core.segment(segment, Of::Last);
            let current = self.layout.segment_of(
                core.packet(packet_of(core.root(Word::End)).0, crate::index::Slot::Place),
            );
            match core.usage(segment).0 {
                Use::Stream if segment == current || segment == core.root(Word::NextStream) => {}
                Use::Stream if last >= core.root(Word::RootPacket) => unrooted += 1,
                Use::Payload | Use::Stream if touched >= core.root(Word::Named) && touched > 0 => {
                    unnamed += 1;
                }
                _ => {}
            }
        }
        (unnamed, unrooted)
    }

    /// The segment whose cleaning gains most for what it costs; if space `is_short`, whatever it is
    /// that others will die of.
    fn victim(&self, is_short: bool) -> Option<u64> {
        let core = self.core.as_ref();
        let (open, _) = packet_of(core.root(Word::End));
        let current = self.layout.segment_of(core.packet(open, crate::index::Slot::Place));
        let is_open = |segment: u64| {
            let words = [Word::OpenHot, Word::OpenCold, Word::OpenCold2];
            segment == current
                || segment == core.root(Word::NextStream)
                || words.iter().any(|&word| core.root(word) == segment + 1)
        };
        let score = |segment: u64| {
            let live = core.segment(segment, Of::Live);
            let age = open.saturating_sub(core.segment(segment, Of::Birth)) + 1;
            let age = if is_short { 1 } else { age };
            let dead = self.layout.segment.saturating_sub(live);
            u128::from(dead) * u128::from(age.isqrt()) * 1048576
                / u128::from(self.layout.segment + live)
        };
        (0..self.layout.segments)
            .filter(|&segment| matches!(core.usage(segment).0, Use::Payload | Use::Stream))
            .filter(|&segment| core.segment(segment, Of::Live) > 0 && !is_open(segment))
            .max_by_key(|&segment| score(segment))
            .filter(|&segment| score(segment) > 0)
    }

    /// Copies what is in use in `segment` elsewhere.
    pub(crate) fn clean(&self, segment: u64) -> Result<()> {
        let core = self.core.as_ref();
        let temperature = match (core.usage(segment).0, core.segment(segment, Of::Age)) {
            (Use::Payload, age) if age > 0 => Temperature::Cold2,
            _ => Temperature::Cold,
        };
        let live = self.change(|change| change.live_extents(segment))?;
        let mut batch: Vec<Extent> = Vec::new();
        let mut units = 0;
        for extent in live {
            if units + extent.len > AT_ONCE && !batch.is_empty() {
                self.copy(&batch, temperature)?;
                batch.clear();
                units = 0;
            }
            units += extent.len;
            batch.push(extent);
        }
        self.copy(&batch, temperature)
    }

    /// Copies `extents`, in their order, and publishes the copies.
    pub(crate) fn copy(&self, extents: &[Extent], temperature: Temperature) -> Result<()> {
        let size = self.layout.unit;
        let mut bytes = Vec::new();
        for extent in extents {
            let start = bytes.len();
            bytes.resize(start + (extent.len * size) as usize, 0);
            let part = bytes.get_mut(start..).unwrap_or_default();
            // What is overwritten meanwhile is copied in vain.
            self.read_units(extent.unit, part)?;
        }
        let mut copied = Vec::new();
        let mut holds = Vec::new();
        let mut rest: &[u8] = &bytes;
        let mut open: Option<Room> = None;
        let mut written = 0;
        let mut waiting: &[u8] = &[];
        for extent in extents {
            let mut old = *extent;
            while old.len > 0 {
                let room = match open.take().filter(|room| room.len > 0) {
                    Some(room) => room,
                    None => {
                        self.write_waiting(&mut waiting, &mut written)?;
                        let wanted = rest.len() as u64 / size;
                        let (room, hold) = self.room(temperature, wanted)?;
                        holds.push(hold);
                        let len = (room.len * size) as usize;
                        let (now, _) = rest.split_at(len.min(rest.len()));
                        waiting = now;
                        written = room.place;
                        room
                    }
                };
                let len = old.len.min(room.len);
                let (now, later) = rest.split_at((len * size) as usize);
                rest = later;
                copied.push(Copied {
                    old: Extent { len, ..old },
                    room: Room { len, ..room },
                    digests: digests(now, size),
                });
                old = Extent { unit: old.unit + len, place: old.place + len, len: old.len - len };
                open = Some(Room { place: room.place + len, len: room.len - len, ..room });
            }
        }
        self.write_waiting(&mut waiting, &mut written)?;
        self.publish(&copied)?;
        drop::<Vec<Hold<'_, M, H>>>(holds);
        Ok(())
    }

    /// Writes what waits for its room to be full.
    fn write_waiting(&self, waiting: &mut &[u8], place: &mut u64) -> Result<()> {
        if !waiting.is_empty() {
            self.write_units(*place, waiting)?;
        }
        *waiting = &[];
        Ok(())
    }

    /// Makes the map lead to copies, where it still leads to the originals.
    fn publish(&self, copied: &[Copied]) -> Result<()> {
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
    fn publish(&mut self, copy: &Copied) -> Step<()> {
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
