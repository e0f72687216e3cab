//! The commit stream: records, in the order in which the map changes.
//!
//! It is made in the region, in packets. A packet that was sealed does not change any more, and
//! where it goes is known: anybody may write it, one at a time, and once more if who was about to
//! has died.

use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use conquest_format::volume::{HEADER_WORDS, Packet, Record};
use conquest_format::{Offset, WORD};
use conquest_pm::Place;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::change::{Change, Step, Stop};
use crate::durable::{Begun, Flush};
use crate::index::{Count, Of, RING, Slot, Stage, Use, Word, Words, packet_of, position};
use crate::kinds;
use crate::operations::ATOMIC_MAX;
use crate::segments::Temperature;
use crate::under_way::Mine;
use crate::{Error, Result};

/// Bytes of payload after which somebody flushes: what recovery has to read again at most.
pub(crate) const UNFLUSHED_MAX: u64 = 64 << 20;

/// Packets that a group of records leaves to others.
const SPARE: u64 = 4;
/// Units that a packet still takes, of which fewer are left where more are wanted.
const SCRAP: u64 = 5;

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Adds `record`. If it is the `last` of those that happen together, they count from now on.
    pub(crate) fn append(&mut self, record: &Record<'_>, last: bool) -> Step<()> {
        // What voids a group that is left without its end is in the packet with its last record: to
        // seal that, others might have to be written first, which takes a stream without such a
        // group.
        let void = if last { 0 } else { Record::Void.words() };
        self.ensure_words(record.words() + void)?;
        // Those before it may be many.
        self.make_room(RECORD_ENTRIES)?;
        let (packet, used) = packet_of(self.tx.root(Word::End));
        self.put_record(record, last, packet, used)?;
        let end = position(packet, used + record.words());
        self.tx.set(Word::End.at(), end)?;
        if last {
            self.tx.set(Word::Whole.at(), end)?;
        }
        Ok(())
    }

    /// Puts `record` behind the first `used` words of the open packet, which takes it: nobody looks
    /// there until the end of the stream is behind it.
    pub(crate) fn put_record(
        &mut self,
        record: &Record<'_>,
        last: bool,
        packet: u64,
        used: u64,
    ) -> Result<()> {
        let mut words = Vec::with_capacity(record.words() as usize);
        record.put(last, &mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let start = (HEADER_WORDS as u64 + used) * WORD;
        Ok(self.volume.core.copy_aside(self.packet_run(packet)?, start, &bytes)?)
    }

    /// Seals the open packet unless it takes `words` more words of records.
    pub(crate) fn ensure_words(&mut self, words: u64) -> Step<()> {
        let (_, used) = packet_of(self.tx.root(Word::End));
        let is_full = used + words > self.volume.layout.record_room();
        if is_full { self.seal() } else { Ok(()) }
    }

    /// Gives room for up to `wanted` units of payload in the open packet, and puts `bytes` there:
    /// the place, its generation and how many units.
    pub(crate) fn put_inline(&mut self, bytes: &[u8]) -> Step<(u64, u64, u64)> {
        let layout = self.volume.layout;
        let wanted = bytes.len() as u64 / layout.unit;
        let (mut packet, mut payload, mut rest);
        loop {
            let words;
            (packet, words) = packet_of(self.tx.root(Word::End));
            payload = self.tx.root(Word::Payload);
            let place = self.tx.packet(packet, Slot::Place);
            rest = layout.payload_units().min(layout.rest_of(place) - 1).saturating_sub(payload);
            // The record is to be in the same packet, if it is not a long one; and what is written
            // together in one piece, unless that would leave much of the packet.
            let record = 3 + wanted.div_ceil(2) + Record::Void.words();
            let is_full = words + record > layout.record_room();
            let least = wanted.min(layout.payload_units()).clamp(1, SCRAP);
            if !is_full && rest >= least {
                break;
            }
            self.seal()?;
        }
        self.make_room(1)?;
        let count = wanted.min(rest);
        let part = bytes.get(..(count * layout.unit) as usize).unwrap_or_default();
        let start = (1 + payload) * layout.unit;
        self.volume.core.copy_aside(self.packet_run(packet)?, start, part)?;
        self.tx.set(Word::Payload.at(), payload + count)?;
        let place = self.tx.packet(packet, Slot::Place) + 1 + payload;
        Ok((place, self.tx.packet(packet, Slot::Generation), count))
    }

    /// The bytes of packet `packet` in the region. They are looked for once: they stay where they
    /// are as long as there is the index.
    fn packet_run(&self, packet: u64) -> Result<Place> {
        let known = self.volume.packets.get((packet % RING) as usize);
        if let Some(&place) = known.and_then(OnceLock::get) {
            return Ok(place);
        }
        let data = Offset::new(self.tx.packet(packet, Slot::Data));
        let pages = self.volume.layout.packet_pages();
        let place = self.volume.core.resolve_run(data, pages, kinds::PACKET)?;
        Ok(known.map_or(place, |known| *known.get_or_init(|| place)))
    }

    /// Ends the open packet and opens the next one.
    pub(crate) fn seal(&mut self) -> Step<()> {
        self.make_room(RING_ENTRIES)?;
        let (packet, words) = packet_of(self.tx.root(Word::End));
        let units = 1 + self.tx.root(Word::Payload);
        let place = self.tx.packet(packet, Slot::Place) + units;
        let segment = self.volume.layout.segment_of(place - 1);
        let rest = self.volume.layout.segment - 1 - (place - 1) % self.volume.layout.segment;
        self.check_ring(packet + 1)?;
        let next = if rest < 2 { self.enter_segment()? } else { (place, segment) };
        let sealed = [
            (Slot::Units, units),
            (Slot::Words, words),
            (Slot::Durable, self.tx.root(Word::Durable)),
            (Slot::Stage, Stage::Sealed as u64),
        ];
        let all = self.tx.root(Word::StreamUnits) + units;
        self.tx.set(Word::StreamUnits.at(), all)?;
        self.count_units(Count::Packets, units)?;
        for (of, value) in sealed {
            self.tx.set(self.tx.packet_at(packet, of), value)?;
        }
        self.open_packet(packet + 1, next.0, next.1)
    }

    /// The stream leaves its segment for the next one: where it goes on.
    fn enter_segment(&mut self) -> Step<(u64, u64)> {
        let segment = self.tx.root(Word::NextStream);
        // What users write is in the stream, too; whoever makes space for it may take what is left.
        let left = match self.volume.space.is_mine() {
            true => 0,
            false => self.volume.left_by(Temperature::Hot),
        };
        let (next, _) = self.begin_segment(Use::Stream, left)?;
        self.tx.set(Word::NextStream.at(), next)?;
        Ok((self.volume.layout.first_place(segment), segment))
    }

    /// Refuses if the place in the region for packet `number` is needed for an older one.
    fn check_ring(&self, number: u64) -> Step<()> {
        // Packets have numbers from 1 on.
        let Some(old) = number.checked_sub(RING).filter(|&old| old > 0) else {
            return Ok(());
        };
        let (applied, _) = packet_of(self.tx.root(Word::Applied));
        let stage = self.tx.packet(number, Slot::Stage);
        let is_there = self.tx.packet(number, Slot::Number) == old;
        if is_there && (stage != Stage::Written as u64 || applied <= old) {
            return Err(Stop::Ring);
        }
        // What happens together is applied together: it must leave room for its end, or for what
        // voids it.
        let (whole, _) = packet_of(self.tx.root(Word::Whole));
        match number.saturating_sub(whole) > RING - SPARE {
            true => Err(Error::TooLarge { bytes: 0, most: ATOMIC_MAX }.into()),
            false => Ok(()),
        }
    }

    /// Opens packet `number` at `place` in `segment`.
    pub(crate) fn open_packet(&mut self, number: u64, place: u64, segment: u64) -> Step<()> {
        let next = self.tx.root(Word::NextStream);
        let words = [
            (Slot::Number, number),
            (Slot::Place, place),
            (Slot::Generation, self.tx.usage(segment).1),
            (Slot::Units, 0),
            (Slot::Words, 0),
            (Slot::Next, next),
            (Slot::NextGeneration, self.tx.usage(next).1),
            (Slot::Stage, Stage::Open as u64),
            (Slot::Claim, 0),
        ];
        for (of, value) in words {
            self.tx.set(self.tx.packet_at(number, of), value)?;
        }
        let last = self.tx.segment_at(segment, Of::Last);
        self.tx.set(last, number)?;
        let end = position(number, 0);
        let whole = self.tx.root(Word::Whole) == self.tx.root(Word::End);
        let applied = self.tx.root(Word::Applied) == self.tx.root(Word::End);
        self.tx.set(Word::End.at(), end)?;
        if whole {
            self.tx.set(Word::Whole.at(), end)?;
        }
        if applied {
            self.tx.set(Word::Applied.at(), end)?;
        }
        self.tx.set(Word::Payload.at(), 0)?;
        Ok(())
    }

    /// The packet with the last record.
    pub(crate) fn last_packet(&self) -> u64 {
        let (packet, words) = packet_of(self.tx.root(Word::End));
        if words == 0 { packet.saturating_sub(1) } else { packet }
    }

    /// Seals the open packet if there is anything in it: the number below which all is sealed.
    pub(crate) fn seal_all(&mut self) -> Step<u64> {
        let (packet, words) = packet_of(self.tx.root(Word::End));
        if words == 0 && self.tx.root(Word::Payload) == 0 {
            return Ok(packet);
        }
        self.seal()?;
        Ok(packet + 1)
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Claims packets below `to` that are sealed and that nobody writes: their numbers.
    ///
    /// One process at a time writes a packet: a power cut may damage what is being written, and
    /// somebody else may have written it, flushed and said so long ago. Who has died does not write
    /// any more once its lock is free.
    fn claim_packets(&mut self, to: u64, mine: &mut Mine<'_>) -> Step<Vec<u64>> {
        let me = self.volume.writing.number;
        // A change may be begun once more.
        mine.replace(&[]);
        let mut claimed = Vec::new();
        for number in self.tx.root(Word::Written)..to {
            let is_sealed = self.tx.packet(number, Slot::Number) == number
                && self.tx.packet(number, Slot::Stage) == Stage::Sealed as u64;
            let writer = self.tx.packet(number, Slot::Claim);
            let is_claimed = writer == me
                || self.volume.under_way.contains(number)
                || writer != 0
                    && self.volume.is_writing(writer)?
                    && !self.is_stood_in(number, writer);
            if is_sealed && !is_claimed {
                let at = self.tx.packet_at(number, Slot::Claim);
                self.tx.set(at, me)?;
                claimed.push(number);
            }
        }
        // With the lock held, so that no thread comes between.
        mine.replace(&claimed);
        Ok(claimed)
    }

    /// Notes which of the packets that were `claimed` are `written`; the others are nobody's again.
    /// Those that somebody else has claimed since are his.
    fn note_written(&mut self, claimed: &[u64], written: &[u64]) -> Step<()> {
        for &number in claimed {
            let is_mine = self.tx.packet(number, Slot::Number) == number
                && self.tx.packet(number, Slot::Claim) == self.volume.writing.number;
            if !is_mine {
                continue;
            }
            let (of, value) = match written.contains(&number) {
                true => (Slot::Stage, Stage::Written as u64),
                false => (Slot::Claim, 0),
            };
            let at = self.tx.packet_at(number, of);
            self.tx.set(at, value)?;
        }
        let mut below = self.tx.root(Word::Written);
        while self.tx.packet(below, Slot::Number) == below
            && self.tx.packet(below, Slot::Stage) == Stage::Written as u64
        {
            below += 1;
        }
        self.tx.set(Word::Written.at(), below)?;
        Ok(())
    }
}

/// What has become of packets that were to be written.
#[derive(Default)]
struct Done {
    /// Those that are on the devices.
    written: Vec<u64>,
    /// Whether all of them are durable, and so are all before them.
    are_durable: bool,
}

/// Bytes of packets that are written by one request, at most.
const AT_ONCE: u64 = 1 << 20;
/// How long one who waits for packets that others write lets them get on.
const PATIENCE: Duration = Duration::from_micros(100);
/// Entries that adding a record takes, two, and that are left to who adds the last one, for what is
/// counted together with it.
const RECORD_ENTRIES: u64 = 8;
/// Entries that sealing a packet and opening another one takes, with a segment begun.
const RING_ENTRIES: u64 = 80;

impl<M: Memory, H: Host> crate::volume::Volume<M, H> {
    /// The header of packet `number`, if it is sealed and not on the device yet.
    pub(crate) fn sealed_packet(&self, number: u64) -> Option<Packet> {
        let slot = |of| self.core.packet(number, of);
        let layout = self.layout;
        let header = Packet {
            life: self.root(Word::Life),
            number,
            place: slot(Slot::Place),
            generation: slot(Slot::Generation),
            units: slot(Slot::Units).clamp(1, 1 + layout.payload_units()),
            words: slot(Slot::Words).min(layout.record_room()),
            durable: slot(Slot::Durable),
            next: slot(Slot::Next),
            next_generation: slot(Slot::NextGeneration),
        };
        let is_sealed = slot(Slot::Stage) == Stage::Sealed as u64;
        (slot(Slot::Number) == number && is_sealed).then_some(header)
    }

    /// Whether this process has undertaken to write packet `number`, and nobody else has since.
    fn is_claimed(&self, number: u64) -> bool {
        let slot = |of| self.core.packet(number, of);
        slot(Slot::Number) == number && slot(Slot::Claim) == self.writing.number
    }

    /// The bytes of the packet of `header` from the region, as they go to the device, to `bytes`.
    pub(crate) fn copy_packet(&self, header: &Packet, bytes: &mut [u8]) {
        let layout = self.layout;
        let data = Offset::new(self.core.packet(header.number, Slot::Data));
        let Some((first, payload)) = bytes.split_at_mut_checked(layout.unit as usize) else {
            return;
        };
        let records = (HEADER_WORDS as u64 * WORD) as usize;
        let end = records + (header.words * WORD) as usize;
        // It was something else before.
        first.fill(0);
        if let Some(records) = first.get_mut(records..end) {
            self.core.memory().read(data.plus(HEADER_WORDS as u64 * WORD), records);
        }
        self.core.memory().read(data.plus(layout.unit), payload);
        header.fill(layout.bind, first);
    }

    /// Writes packets below `to` that are sealed, not on the device, and that nobody else is
    /// writing; if there are none, lets those who do get on a little. If that is `for_flush`, and
    /// nothing but that was missing, they are durable then, or the flush is begun that they wait
    /// for, which is the caller's to make.
    pub(crate) fn write_packets(
        &self,
        to: u64,
        for_flush: bool,
    ) -> Result<Option<Flush<'_, M, H>>> {
        let mut mine = self.under_way.none();
        let (claimed, durable) = self.change(|change| {
            let claimed = change.claim_packets(to, &mut mine)?;
            Ok((claimed, change.tx.root(Word::Durable)))
        })?;
        if claimed.is_empty() {
            let (lock, written) = &self.packets_written;
            let waiting = lock.lock().unwrap_or_else(PoisonError::into_inner);
            drop(written.wait_timeout(waiting, PATIENCE));
            return self.stand_in_if_still().map(|()| None);
        }
        let mut done = Done::default();
        let are_all = for_flush && claimed.iter().copied().eq(durable..to);
        let result = self.write_claimed(&claimed, are_all, &mut done);
        let noted = self.change(|change| {
            change.note_written(&claimed, &done.written)?;
            match for_flush && result.is_ok() {
                true if done.are_durable => change.note_durable(to).map(|()| None),
                true => change.begin_flush(to, Begun::NONE),
                false => Ok(None),
            }
        });
        self.packets_written.1.notify_all();
        // What it did not write it may have damaged: that is still stood in for.
        let ended = if result.is_ok() { self.end_stand_ins(&claimed) } else { Ok(()) };
        // Why it failed says more than that the volume has.
        let noted = noted.and_then(|begun| ended.map(|()| begun));
        result.and(noted).map(|begun| begun.map(|begun| self.flush_of(begun)))
    }

    /// Writes the packets that this process has `claimed`, those beside each other as one, and by
    /// that makes them durable if it can, and they `are_all` that is not.
    fn write_claimed(&self, claimed: &[u64], are_all: bool, done: &mut Done) -> Result<()> {
        // Whoever claims packets keeps them until they are noted as written, or he is taken for one
        // that is stopped.
        let packets: Vec<Packet> =
            claimed.iter().filter_map(|&number| self.sealed_packet(number)).collect();
        let most = AT_ONCE / self.layout.unit;
        if let Some(first) = packets.first() {
            self.await_packets(first.number)?;
        }
        let mut rest = packets.as_slice();
        while let Some(first) = rest.first() {
            let mut end = first.place;
            let few = rest.iter().take_while(|packet| {
                let is_beside = packet.place == end
                    && self.layout.segment_of(end) == self.layout.segment_of(first.place);
                end += packet.units;
                is_beside && end - first.place <= most
            });
            let (now, later) = rest.split_at(few.count().max(1));
            let is_durable = self.write_beside(now, are_all && now.len() == claimed.len())?;
            done.written.extend(now.iter().map(|packet| packet.number));
            if is_durable {
                self.note_failures()?;
                done.are_durable = true;
            }
            rest = later;
        }
        Ok(())
    }

    /// Writes packets that are beside each other in a segment, durably if they `may_be` all that is
    /// not; whether they are then.
    fn write_beside(&self, packets: &[Packet], may_be: bool) -> Result<bool> {
        let Some(first) = packets.first() else {
            return Ok(false);
        };
        // So that nobody uses the segment before the last of this has landed, if we die.
        let _hold = self.hold(self.layout.segment_of(first.place))?;
        let units: u64 = packets.iter().map(|packet| packet.units).sum();
        let mut bytes = self.lend((units * self.layout.unit) as usize)?;
        let mut rest: &mut [u8] = &mut bytes;
        for packet in packets {
            let (part, behind) = rest.split_at_mut((packet.units * self.layout.unit) as usize);
            self.copy_packet(packet, part);
            rest = behind;
        }
        // If they are somebody else's by now, the region may have had something else for them.
        self.core.memory().load_fence();
        if !packets.iter().all(|packet| self.is_claimed(packet.number)) {
            return Ok(false);
        }
        if may_be && self.can_write_durably(packets, &bytes) {
            return self.write_durably(first.place, &bytes).map(|()| true);
        }
        let outcome = self.write_units(first.place, &bytes);
        if outcome.is_err() && self.is_ordered() {
            // Nobody can write to that place any more.
            self.fail()?;
        }
        outcome.map(|()| false)
    }

    /// Sees to it that all that is sealed is on the devices.
    pub(crate) fn write_all_sealed(&self) -> Result<()> {
        let (open, _) = packet_of(self.root(Word::End));
        while self.root(Word::Written) < open {
            self.check_health()?;
            self.write_packets(open, false)?;
        }
        Ok(())
    }

    /// Writes what is sealed.
    pub(crate) fn write_sealed(&self) -> Result<()> {
        let (open, _) = packet_of(self.root(Word::End));
        self.write_packets(open, false).map(drop)
    }
}
