//! Records into the map.

use conquest_format::volume::{Record, Records, Sums};
use conquest_format::{Offset, WORD};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::change::{Change, Step};
use crate::index::{Of, Slot, Use, Word, Words, packet_of, position};
use crate::map::{Extent, Room};
use crate::trims;

/// Entries of a transaction that the end of a record needs: names, counts, and how far the map is.
const ENTRIES: u64 = 40 + trims::ENTRIES;
/// Entries that a record needs at the end which changes nothing in the map, or one word.
const LEAST: u64 = 4;
/// Room in a transaction that clearing leaves: for each extent that goes, and for the rest.
const ROOM: Room = Room { each: 3, kept: ENTRIES };

impl<'v, M: Memory, H: Host> Change<'v, M, H> {
    /// Brings the map to where the stream is, and voids what somebody has left half added; whether
    /// there was anything to do.
    pub(crate) fn settle(&mut self) -> Step<bool> {
        let mut has_done = false;
        let end = self.tx.root(Word::End);
        if self.tx.root(Word::Whole) != end {
            self.void()?;
            has_done = true;
        }
        while self.tx.root(Word::Applied) != self.tx.root(Word::Whole) {
            self.apply_next()?;
            has_done = true;
        }
        Ok(has_done)
    }

    /// Voids the records behind those that count.
    fn void(&mut self) -> Step<()> {
        while self.tx.root(Word::Applied) != self.tx.root(Word::Whole) {
            self.apply_next()?;
        }
        self.append(&Record::Void, true)?;
        // The map passes over what is void.
        let end = self.tx.root(Word::End);
        self.tx.set(Word::Applied.at(), end)?;
        Ok(())
    }

    /// Applies the record at which the map stands.
    fn apply_next(&mut self) -> Step<()> {
        // Not between what the record does and where the map stands then: it counts only once.
        self.make_room(LEAST)?;
        let applied = self.tx.root(Word::Applied);
        let (packet, at) = packet_of(applied);
        let (open, _) = packet_of(self.tx.root(Word::End));
        if packet < open && at >= self.tx.packet(packet, Slot::Words) {
            self.tx.set(Word::Applied.at(), position(packet + 1, 0))?;
            return Ok(());
        }
        let words = self.record_words(packet, at);
        let mut records = Records::new(&words);
        let Some(Ok((record, _))) = records.next() else {
            return Err(self.damaged_stream(packet, at).into());
        };
        self.apply(&record, packet)?;
        self.tx.set(Word::Applied.at(), position(packet, at + record.words()))?;
        Ok(())
    }

    fn damaged_stream(&self, packet: u64, at: u64) -> conquest_pm::Error {
        conquest_pm::Error::Corrupt {
            what: "record of the stream",
            offset: Offset::new(self.tx.packet(packet, Slot::Data)),
            expected: "a record",
            found: at,
        }
    }

    /// Makes the map say what `record`, of packet `packet`, says.
    pub(crate) fn apply(&mut self, record: &Record<'_>, packet: u64) -> Step<()> {
        match *record {
            Record::Write { unit, place, len, sums } => {
                self.put_sums(place, sums)?;
                self.lead(Extent { unit, place, len }, packet)
            }
            Record::Place { unit, place, len } => self.lead(Extent { unit, place, len }, packet),
            Record::Hole { unit, len } => self.trim(unit, unit.saturating_add(len), packet),
            Record::Begin { segment, generation } => {
                if self.tx.usage(segment).1 != generation {
                    self.note_begun(segment, Use::Payload, generation, packet)?;
                }
                Ok(())
            }
            Record::Bad { segment } => self.note_bad(segment),
            Record::Reserved { units } => {
                self.tx.set(Word::Reserved.at(), units)?;
                Ok(())
            }
            Record::Void => Ok(()),
        }
    }

    /// Makes the map lead to the medium as `extent` says.
    fn lead(&mut self, extent: Extent, packet: u64) -> Step<()> {
        let segment = self.volume.layout.segment_of(extent.place);
        self.compact_names(segment)?;
        if self.tx.root(Word::TrimCount) > 0 {
            self.make_trim_room(1)?;
        }
        // What is there already is assigned without asking for room.
        self.make_room(ENTRIES)?;
        let map = self.volume.map;
        let mut removed = self.removed(packet);
        while !map.assign(&mut self.tx, extent, ROOM, &mut removed)? {
            self.part()?;
        }
        // With the part that completes it: until then it is as it was for those who look, and
        // nobody has counted any of it.
        self.untrim(extent.unit, extent.end())?;
        self.count(segment, extent.len.cast_signed())?;
        self.add_name(extent)?;
        Ok(())
    }

    /// Makes the map lead nowhere from `start..end`.
    pub(crate) fn clear(&mut self, start: u64, end: u64, packet: u64) -> Step<()> {
        let map = self.volume.map;
        let mut removed = self.removed(packet);
        while !map.clear(&mut self.tx, start..end, ROOM, &mut removed)? {
            self.part()?;
        }
        Ok(())
    }

    /// What is done with extents that leave the map by a record of packet `packet`.
    fn removed(
        &self,
        packet: u64,
    ) -> impl FnMut(&mut Tx<'v, M, H>, Extent) -> conquest_pm::Result<()> + use<'v, M, H> {
        let layout = self.volume.layout;
        move |tx, extent| {
            let segment = layout.segment_of(extent.place);
            let live = tx.segment_at(segment, Of::Live);
            tx.set(live, tx.get(live).saturating_sub(extent.len))?;
            tx.set(tx.segment_at(segment, Of::Touched), packet)?;
            let all = tx.root(Word::Live).saturating_sub(extent.len);
            tx.set(Word::Live.at(), all)
        }
    }

    /// Counts `units` more in `segment`, and in all.
    fn count(&mut self, segment: u64, units: i64) -> Result<()> {
        let at = self.tx.segment_at(segment, Of::Live);
        self.tx.set(at, self.tx.get(at).saturating_add_signed(units))?;
        let all = self.tx.root(Word::Live).saturating_add_signed(units);
        self.tx.set(Word::Live.at(), all)?;
        Ok(())
    }

    /// Stores the checksums of the units from `place` on. The map does not lead there, so nobody
    /// looks.
    pub(crate) fn put_sums(&mut self, place: u64, sums: Sums<'_>) -> Result<()> {
        let layout = self.volume.layout;
        let at = self.tx.segment_at(layout.segment_of(place), Of::Sums);
        let base = self.tx.word(at);
        if base == 0 {
            let what = "checksums of a segment";
            let expected = "that there are some";
            let error = conquest_pm::Error::Corrupt { what, offset: at, expected, found: 0 };
            return Err(error.into());
        }
        let bytes: Vec<u8> = sums.iter().flat_map(u32::to_le_bytes).collect();
        let object = self.volume.sums_object(Offset::new(base))?;
        Ok(self.volume.core.copy_aside(object, place % layout.segment * 4, &bytes)?)
    }

    /// The words of the record at word `at` of packet `packet`, and maybe more.
    fn record_words(&self, packet: u64, at: u64) -> Vec<u64> {
        let layout = self.volume.layout;
        let data = Offset::new(self.tx.packet(packet, Slot::Data));
        let first = data.plus((conquest_format::volume::HEADER_WORDS as u64 + at) * WORD);
        let word = |index: u64| self.volume.core.word(first.plus(index * WORD));
        let room = layout.record_room().saturating_sub(at);
        let wanted = match Records::len_at(word(0)) {
            Some(words) => words.min(room),
            None => 0,
        };
        (0..wanted).map(word).collect()
    }
}
