//! Packets that a process has undertaken to write, and does not: it may be stopped.
//!
//! Whoever waits for them could write them to their place himself, as it is known, and the bytes
//! are in the index. But the one that is stopped may go on at any time, long after others were told
//! that the packets are durable, and write the same bytes once more; a power cut just then may
//! damage them. So they are written to another place first, and a root says so: recovery puts them
//! where they belong. After that they are anybody's to write. This goes on until the one that was
//! stopped has written what it was about to, or is gone; roots say it as long.
//!
//! A stand-in is for packets beside each other that one process has undertaken to write. There are
//! [`STAND_INS_MAX`] at a time. Neither its segment nor the one that it is for is begun anew before
//! a root is durable that does not say so any more: recovery would put there what was there once.

use std::sync::TryLockError;
use std::time::{Duration, Instant};

use conquest_format::checksum;
use conquest_format::volume::{STAND_INS_MAX, StandIn};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::change::{Change, Step, Stop};
use crate::index::{Of, Slot, Stage, Stand, Use, Word, Words};
use crate::recover::Reading;
use crate::segments::CHECKPOINT_LEAVES;
use crate::volume::Volume;
use crate::writer::Hold;
use crate::{Error, Result};

/// How long no packet gets written before somebody may be stopped.
const PATIENCE: Duration = Duration::from_millis(250);
/// What the segment of a stand-in has where others have the checkpoint that they are of.
pub(crate) const STANDS_IN: u64 = u64::MAX;
/// Entries of a transaction that beginning one takes.
const ENTRIES: u64 = 16;

/// How far a stand-in has come.
mod state {
    /// There is none.
    pub(super) const NONE: u64 = 0;
    /// It is being written, and means nothing if who does so is gone.
    pub(super) const MADE: u64 = 1;
    /// It is written, and no root that is durable says so yet.
    pub(super) const READY: u64 = 2;
    /// A root that is durable says so: its packets are anybody's to write.
    pub(super) const STANDS: u64 = 3;
    /// It is not needed any more, but a root that recovery might use names it.
    pub(super) const OVER: u64 = 4;
}

/// Below which number packets are on the devices, and since when that has not changed, as a process
/// that waits has seen it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Standstill {
    written: u64,
    since: Option<Instant>,
}

/// The numbers that stand-ins have.
fn numbers() -> core::ops::Range<u64> {
    0..STAND_INS_MAX as u64
}

/// The stand-ins that a root is to name now.
pub(crate) fn stand_ins(words: &impl Words) -> Vec<StandIn> {
    let is_named = |number: &u64| {
        matches!(words.stand_in(*number, Stand::State), state::READY | state::STANDS)
    };
    numbers().filter(is_named).map(|number| stand_in(words, number)).collect()
}

fn stand_in(words: &impl Words, number: u64) -> StandIn {
    let word = |of| words.stand_in(number, of);
    StandIn {
        place: word(Stand::Place),
        units: word(Stand::Units),
        at: word(Stand::At),
        sum: word(Stand::Sum),
    }
}

/// Whether stand-in `number` is there, and for packet `packet`, which `stopped` has undertaken to
/// write.
fn is_for(words: &impl Words, number: u64, packet: u64, stopped: u64) -> bool {
    let word = |of| words.stand_in(number, of);
    word(Stand::State) != state::NONE
        && word(Stand::Stopped) == stopped
        && (word(Stand::First)..word(Stand::Below)).contains(&packet)
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Whether something stands in in `segment`, or for what is there: as `of` says.
    pub(crate) fn is_for_stand_in(&self, words: &impl Words, segment: u64, of: Stand) -> bool {
        numbers().any(|number| {
            words.stand_in(number, Stand::State) != state::NONE
                && self.layout.segment_of(words.stand_in(number, of)) == segment
        })
    }

    /// For who waits for packets that others write: if none has been written for a while, they are
    /// not waited for any longer, once something stands in for them.
    pub(crate) fn stand_in_if_still(&self) -> Result<()> {
        let mut standstill = match self.standstill.try_lock() {
            Ok(standstill) => standstill,
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            // Another thread sees to it, or this one does, and has come by here again.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let written = self.root(Word::Written);
        let since = standstill.since.filter(|_| standstill.written == written);
        if since.is_some_and(|since| since.elapsed() < PATIENCE) {
            return Ok(());
        }
        *standstill = Standstill { written, since: Some(Instant::now()) };
        if since.is_none() {
            return Ok(());
        }
        // Those that are free are to be known.
        self.count_free()?;
        let hold = self.spare_hold()?;
        let Some(number) = self.change(|change| change.begin_stand_in(&hold))? else {
            return Ok(());
        };
        if self.core.stand_in(number, Stand::State) == state::MADE && !self.make_stand_in(number)? {
            return self.change(|change| change.drop_stand_in(number));
        }
        self.renew_root().map(drop)
    }

    /// Writes stand-in `number`; whether it is still needed then. The root that names it is flushed
    /// together with it, and names its checksum: so one that is not durable is none.
    fn make_stand_in(&self, number: u64) -> Result<bool> {
        let core = self.core.as_ref();
        let word = |of| core.stand_in(number, of);
        let unit = self.layout.unit as usize;
        let mut bytes = self.lend(word(Stand::Units) as usize * unit)?;
        let mut rest: &mut [u8] = &mut bytes;
        for packet in word(Stand::First)..word(Stand::Below) {
            let Some(header) = self.sealed_packet(packet) else {
                return Ok(false);
            };
            let Some((part, behind)) = rest.split_at_mut_checked(header.units as usize * unit)
            else {
                return Ok(false);
            };
            self.copy_packet(&header, part);
            rest = behind;
        }
        if self.write_units(word(Stand::At), &bytes).is_err() {
            return Ok(false);
        }
        let sum = checksum(0, &bytes);
        self.change(|change| change.note_ready(number, sum))
    }

    /// Ends the stand-ins for packets that this process had `claimed`: it has written them now.
    pub(crate) fn end_stand_ins(&self, claimed: &[u64]) -> Result<()> {
        let (core, me) = (self.core.as_ref(), self.writing.number);
        let is_over =
            |number: &u64| claimed.iter().any(|&packet| is_for(core, *number, packet, me));
        self.end_those(numbers().filter(is_over).collect())
    }

    /// Ends the stand-ins for those who are gone: nothing of theirs lands any more.
    pub(crate) fn end_stand_ins_of_the_dead(&self) -> Result<()> {
        let core = self.core.as_ref();
        let mut over = Vec::new();
        for number in numbers() {
            let is_there = core.stand_in(number, Stand::State) != state::NONE;
            if is_there && !self.may_write(core.stand_in(number, Stand::Stopped))? {
                over.push(number);
            }
        }
        self.end_those(over)
    }

    fn end_those(&self, over: Vec<u64>) -> Result<()> {
        if over.is_empty() {
            return Ok(());
        }
        let core = self.core.as_ref();
        let places: Vec<u64> = over.iter().map(|&number| stand_in(core, number).place).collect();
        // What was written to the places last is to be there whatever happens.
        self.flush_now()?;
        self.change(|change| {
            for (&number, &known) in over.iter().zip(&places) {
                let is_it = stand_in(&change.tx, number).place == known
                    && change.tx.stand_in(number, Stand::State) != state::NONE;
                if is_it {
                    change.set_state(number, state::OVER)?;
                }
            }
            Ok(())
        })?;
        self.renew_root().map(drop)
    }

    /// Whether writer `number` may still write.
    fn may_write(&self, number: u64) -> Result<bool> {
        Ok(number == self.writing.number || self.is_writing(number)?)
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Whether something stands in for packet `packet`, which `stopped` has undertaken to write, so
    /// that it is anybody's.
    pub(crate) fn is_stood_in(&self, packet: u64, stopped: u64) -> bool {
        numbers().any(|number| {
            self.tx.stand_in(number, Stand::State) == state::STANDS
                && is_for(&self.tx, number, packet, stopped)
        })
    }

    /// The number of a stand-in for the packets that are waited for: it is to be made, if that was
    /// not done yet, and then named by a root. None if they are nobody's who may be stopped, or
    /// that is somebody else's work, or there is no space, or are too many.
    fn begin_stand_in(&mut self, hold: &Hold<'_, M, H>) -> Step<Option<u64>> {
        let first = self.tx.root(Word::Written);
        let stopped = self.tx.packet(first, Slot::Claim);
        let me = self.volume.writing.number;
        if stopped == 0 || stopped == me || !self.is_claimed_by(first, stopped) {
            return Ok(None);
        }
        if !self.volume.is_writing(stopped)? {
            return Ok(None);
        }
        if let Some(number) = numbers().find(|it| is_for(&self.tx, *it, first, stopped)) {
            let helper = self.tx.stand_in(number, Stand::Helper);
            match self.tx.stand_in(number, Stand::State) {
                state::READY => return Ok(Some(number)),
                state::MADE if helper == me || !self.volume.is_writing(helper)? => {
                    self.set_state(number, state::NONE)?;
                }
                _ => return Ok(None),
            }
        }
        let mut free = numbers().filter(|it| self.tx.stand_in(*it, Stand::State) == state::NONE);
        let Some(number) = free.next() else {
            return Ok(None);
        };
        let segment = match self.begin_segment(Use::Checkpoint, CHECKPOINT_LEAVES) {
            Ok((segment, _)) => segment,
            // Making space would wait for the same packets.
            Err(Stop::Segments) => return Ok(None),
            Err(stop) => return Err(stop),
        };
        hold.set(segment)?;
        self.make_room(ENTRIES)?;
        let last = self.tx.segment_at(segment, Of::Last);
        self.tx.set(last, STANDS_IN)?;
        let (below, units) = self.beside(first, stopped);
        let words = [
            (Stand::State, state::MADE),
            (Stand::Helper, me),
            (Stand::Stopped, stopped),
            (Stand::First, first),
            (Stand::Below, below),
            (Stand::Place, self.tx.packet(first, Slot::Place)),
            (Stand::Units, units),
            (Stand::At, self.volume.layout.first_place(segment)),
            (Stand::Sum, 0),
        ];
        for (of, value) in words {
            self.tx.set(self.tx.stand_in_at(number, of), value)?;
        }
        Ok(Some(number))
    }

    /// The packets from `first` on that stand beside each other in one segment and that `stopped`
    /// has undertaken to write: below which one, and their units.
    fn beside(&self, first: u64, stopped: u64) -> (u64, u64) {
        let segment_of = |place| self.volume.layout.segment_of(place);
        let place = self.tx.packet(first, Slot::Place);
        let (mut below, mut units) = (first, 0);
        while self.is_claimed_by(below, stopped)
            && self.tx.packet(below, Slot::Place) == place + units
            && segment_of(place + units) == segment_of(place)
        {
            units += self.tx.packet(below, Slot::Units);
            below += 1;
        }
        (below, units)
    }

    /// Whether packet `packet` is sealed, not written, and `writer` has undertaken to write it.
    fn is_claimed_by(&self, packet: u64, writer: u64) -> bool {
        self.tx.packet(packet, Slot::Number) == packet
            && self.tx.packet(packet, Slot::Stage) == Stage::Sealed as u64
            && self.tx.packet(packet, Slot::Claim) == writer
    }

    /// Notes that stand-in `number`, which this process has made, is written; whether all of its
    /// packets are still waited for.
    fn note_ready(&mut self, number: u64, sum: u64) -> Step<bool> {
        let word = |of| self.tx.stand_in(number, of);
        let stopped = word(Stand::Stopped);
        let is_mine =
            word(Stand::State) == state::MADE && word(Stand::Helper) == self.volume.writing.number;
        let mut packets = word(Stand::First)..word(Stand::Below);
        if !is_mine || !packets.all(|packet| self.is_claimed_by(packet, stopped)) {
            return Ok(false);
        }
        self.tx.set(self.tx.stand_in_at(number, Stand::Sum), sum)?;
        self.set_state(number, state::READY)?;
        Ok(true)
    }

    /// Drops stand-in `number`, which this process was making.
    fn drop_stand_in(&mut self, number: u64) -> Step<()> {
        let is_named = matches!(
            self.tx.stand_in(number, Stand::State),
            state::READY | state::STANDS | state::OVER
        );
        let is_mine = self.tx.stand_in(number, Stand::Helper) == self.volume.writing.number;
        if is_mine && !is_named { self.set_state(number, state::NONE) } else { Ok(()) }
    }

    /// Notes that a root is durable that names `named`, and none newer was begun.
    pub(crate) fn note_stand_ins(&mut self, named: &[StandIn]) -> Step<()> {
        for number in numbers() {
            let is_named = named.contains(&stand_in(&self.tx, number));
            match self.tx.stand_in(number, Stand::State) {
                state::READY if is_named => self.set_state(number, state::STANDS)?,
                state::OVER if !is_named => self.set_state(number, state::NONE)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn set_state(&mut self, number: u64, state: u64) -> Step<()> {
        Ok(self.tx.set(self.tx.stand_in_at(number, Stand::State), state)?)
    }
}

impl Reading<'_> {
    /// Puts what stands in where it belongs, where that is not so: somebody may have been writing
    /// there when the power was cut.
    pub(crate) fn put_in_place(&self, stand_in: &StandIn) -> Result<()> {
        let StandIn { place, units, at, sum } = *stand_in;
        let (unit, end) = (self.layout.unit, self.layout.segments * self.layout.segment);
        let is_possible = |first: u64| first < end && units <= end - first;
        if units > self.layout.segment || !is_possible(place) || !is_possible(at) {
            return Ok(());
        }
        let mut bytes = vec![0; (units * unit) as usize];
        let mut there = bytes.clone();
        let copies = 0..self.device.copies();
        let is_right = copies.clone().any(|copy| {
            let read = self.device.read_copy(copy, at * unit, &mut bytes);
            read.is_ok() && checksum(0, &bytes) == sum
        });
        if !is_right {
            // It has been used for something else, by recovery: so this was done then.
            return Ok(());
        }
        let is_missing = copies.into_iter().any(|copy| {
            let read = self.device.read_copy(copy, place * unit, &mut there);
            read.is_err() || there != bytes
        });
        if !is_missing {
            return Ok(());
        }
        let written = self.device.write(place * unit, &bytes);
        written.map_err(|source| {
            let (device, bytes) = (self.device.name().to_owned(), units * unit);
            Error::Device { device, action: "write", at: place * unit, bytes, source }
        })
    }
}
