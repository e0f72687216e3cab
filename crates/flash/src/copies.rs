//! Copies of units on their way to the medium, and into the map.
//!
//! They are begun to be written side by side, where that can be, and whoever copies goes on.

use std::ops::Range;

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::buffers::Lent;
use crate::map::Extent;
use crate::publish::Copied;
use crate::relocate::Relocated;
use crate::segments::{Room, Temperature};
use crate::volume::Volume;
use crate::writer::Hold;
use crate::writes::{Begun, Writes};
use crate::{Error, Result};

/// A unit that was read.
pub(crate) struct Unit {
    pub(crate) unit: u64,
    pub(crate) place: u64,
    pub(crate) digest: u32,
    pub(crate) bytes: Bytes,
}

/// The bytes of a unit.
pub(crate) enum Bytes {
    /// Part of one of the ranges that were read.
    Read { which: usize, range: Range<usize> },
    /// Read by themselves.
    Again(Vec<u8>),
}

/// Units that were read, in the order of the space.
pub(crate) struct Batch<'v, M: Memory, H: Host> {
    pub(crate) read: Vec<Lent<'v>>,
    pub(crate) units: Vec<Unit>,
    /// Where copies of them go.
    pub(crate) temperature: Temperature,
    /// Of segments out of which they were the last ones, until they are published.
    pub(crate) _holds: Vec<Hold<'v, M, H>>,
}

/// Units that have a copy in room of its own, of which nobody uses the segment anew meanwhile.
struct Placed<'v, M: Memory, H: Host> {
    room: Room,
    _hold: Hold<'v, M, H>,
    /// Which of the units that were read.
    units: Range<usize>,
}

/// Copies that are being written.
pub(crate) struct Copies<'v, M: Memory, H: Host> {
    writes: Writes<'v, M, H>,
    /// What is written, besides.
    placed: Vec<Placed<'v, M, H>>,
    /// What no write was begun for.
    left: Range<usize>,
    is_short: bool,
    batch: Batch<'v, M, H>,
}

impl<M: Memory, H: Host> Batch<'_, M, H> {
    fn bytes<'b>(&'b self, unit: &'b Unit) -> &'b [u8] {
        match &unit.bytes {
            Bytes::Again(bytes) => bytes,
            Bytes::Read { which, range } => {
                let read = self.read.get(*which).and_then(|read| read.get(range.clone()));
                read.unwrap_or_default()
            }
        }
    }

    /// Puts the bytes of those `units` into `into`, one behind the other.
    fn put_together(&self, units: Range<usize>, into: &mut [u8]) {
        let mut rest = into;
        for unit in self.units.get(units).unwrap_or_default() {
            let bytes = self.bytes(unit);
            let (part, behind) = rest.split_at_mut(bytes.len().min(rest.len()));
            if part.len() == bytes.len() {
                part.copy_from_slice(bytes);
            }
            rest = behind;
        }
    }

    /// The copies that are in `room` of those `units`, as few as can be.
    fn copied(&self, room: &Room, units: Range<usize>) -> Vec<Copied> {
        let (mut place, mut copied) = (room.place, Vec::new());
        let is_run =
            |unit: &Unit, next: &Unit| unit.unit + 1 == next.unit && unit.place + 1 == next.place;
        for run in self.units.get(units).unwrap_or_default().chunk_by(is_run) {
            let Some(first) = run.first() else {
                continue;
            };
            let len = run.len() as u64;
            copied.push(Copied {
                old: Extent { unit: first.unit, place: first.place, len },
                room: Room { place, len, ..*room },
                digests: run.iter().map(|unit| unit.digest).collect(),
            });
            place += len;
        }
        copied
    }
}

impl<M: Memory, H: Host> Copies<'_, M, H> {
    /// Whether there was no space for all of them.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Notes if there is no space, which is no error here.
    fn note_space(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(Error::NoSpace { .. }) => self.is_short = true,
            outcome => return outcome,
        }
        Ok(())
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Begins to write copies of the units of `batch`, as many as there is space for. Where they
    /// can't be written side by side they are complete when this returns.
    pub(crate) fn begin_copies<'v>(&'v self, batch: Batch<'v, M, H>) -> Result<Copies<'v, M, H>> {
        let (writes, left) = (self.writes(), 0..batch.units.len());
        let mut copies = Copies { writes, placed: Vec::new(), left, is_short: false, batch };
        let outcome = match copies.writes.can_be() {
            true => self.begin_side_by_side(&mut copies),
            false => self.write_left(&mut copies),
        };
        copies.note_space(outcome)?;
        Ok(copies)
    }

    /// Begins to write what is left, side by side, as much as can be.
    fn begin_side_by_side<'v>(&'v self, copies: &mut Copies<'v, M, H>) -> Result<()> {
        let mut outcome = Ok(());
        while !copies.left.is_empty() && copies.writes.has_room() && outcome.is_ok() {
            match self.room(copies.batch.temperature, copies.left.len() as u64) {
                Ok((room, hold)) => self.begin_one(copies, room, hold),
                Err(error) => outcome = Err(error),
            }
        }
        // What was begun counts all the same.
        copies.writes.go_on();
        outcome
    }

    /// Begins to write the first ones that are left, to `room`.
    fn begin_one<'v>(&'v self, copies: &mut Copies<'v, M, H>, room: Room, hold: Hold<'v, M, H>) {
        let units = copies.left.start..copies.left.start + room.len as usize;
        copies.left.start = units.end;
        copies.writes.begin(room, hold, |buffer| copies.batch.put_together(units, buffer));
    }

    /// Writes what is left, one room after the other.
    fn write_left<'v>(&'v self, copies: &mut Copies<'v, M, H>) -> Result<()> {
        let size = self.layout.unit as usize;
        if copies.left.is_empty() {
            return Ok(());
        }
        let mut bytes = self.lend(copies.left.len() * size)?;
        copies.batch.put_together(copies.left.clone(), &mut bytes);
        let mut rest = &*bytes;
        while !rest.is_empty() {
            let (room, hold) = self.write_to_room(copies.batch.temperature, rest)?;
            rest = rest.get(room.len as usize * size..).unwrap_or_default();
            let next = copies.left.start + room.len as usize;
            let units = copies.left.start..next;
            copies.placed.push(Placed { room, _hold: hold, units });
            copies.left.start = next;
        }
        Ok(())
    }

    /// Waits until `copies` are written, and publishes them.
    pub(crate) fn finish_copies<'v>(
        &'v self,
        mut copies: Copies<'v, M, H>,
        relocated: &mut Relocated,
    ) -> Result<()> {
        self.await_copies(&mut copies)?;
        relocated.is_short |= copies.is_short;
        copies.placed.sort_unstable_by_key(|one| one.units.start);
        relocated.units += copies.placed.iter().map(|one| one.room.len).sum::<u64>();
        let mut copied = Vec::new();
        for one in &copies.placed {
            copied.extend(copies.batch.copied(&one.room, one.units.clone()));
        }
        self.publish(&copied)
    }

    /// Waits until `copies` are written: elsewhere, if they can't be where they were to be.
    fn await_copies<'v>(&'v self, copies: &mut Copies<'v, M, H>) -> Result<()> {
        let (mut left, mut start) = (vec![copies.left.clone()], 0);
        // Held, so that nobody begins them anew meanwhile.
        let mut failed = Vec::new();
        for Begun { room, hold, is_written } in copies.writes.finish() {
            let units = start..start + room.len as usize;
            start = units.end;
            if is_written {
                copies.placed.push(Placed { room, _hold: hold, units });
                continue;
            }
            let segment = self.layout.segment_of(room.place);
            self.change(|change| change.close(segment))?;
            failed.push((segment, hold));
            left.push(units);
        }
        if !copies.placed.is_empty() {
            self.retire(&failed)?;
        }
        for units in left {
            if copies.is_short {
                break;
            }
            copies.left = units;
            let outcome = self.write_left(copies);
            copies.note_space(outcome)?;
        }
        Ok(())
    }
}
