//! Making the map lead to copies, where it still leads to the originals.
//!
//! There are many of them. Most take one word of the map each: their records are added to the
//! stream and come true by the same transaction, and what they count is counted together.

use conquest_format::volume::{Record, Sums};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::change::{Change, Step};
use crate::index::{Of, Word, Words, packet_of, position};
use crate::map::{Cursor, Extent};
use crate::segments::Room;
use crate::volume::Volume;

/// Copies that are published under one hold of the lock.
const TOGETHER: usize = 64;
/// Entries of a transaction that one of them takes at most: a word of the map, a name, and maybe an
/// object for names.
const EACH: u64 = 12;
/// Entries for what is counted of one segment, and of all.
const OF_SEGMENT: u64 = 2;
const OF_ALL: u64 = 3;

/// Units that were copied.
pub(crate) struct Copied {
    /// Where the map led.
    pub(crate) old: Extent,
    /// Where they are now.
    pub(crate) room: Room,
    pub(crate) digests: Vec<u32>,
}

/// What was staged of copies, and not counted yet.
struct Uncounted {
    /// The open packet, and words of records in it.
    packet: u64,
    used: u64,
    has_any: bool,
    /// Segments that lost units, and how many.
    left: Vec<(u64, u64)>,
    /// Segments that got units: how many, and entries of their names.
    entered: Vec<(u64, u64, u64)>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Makes the map lead to copies, where it still leads to the originals: best in the order of
    /// the space.
    pub(crate) fn publish(&self, copied: &[Copied]) -> Result<()> {
        for some in copied.chunks(TOGETHER) {
            self.change(|change| change.publish(some))?;
        }
        Ok(())
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Publishes `copied`. What all of them were to do and what only some have done are no
    /// different to others, so it may be committed in parts.
    fn publish(&mut self, copied: &[Copied]) -> Step<()> {
        let segment_of = |copy: &Copied| self.volume.layout.segment_of(copy.room.place);
        for of_one in copied.chunk_by(|one, next| segment_of(one) == segment_of(next)) {
            if let Some(first) = of_one.first() {
                self.compact_names(self.volume.layout.segment_of(first.room.place))?;
            }
        }
        let mut cursor = Cursor::new();
        let mut uncounted = self.nothing_uncounted();
        for copy in copied {
            if self.tx.room() < EACH + uncounted.entries() {
                self.count_published(&mut uncounted)?;
                self.part()?;
            }
            if !self.publish_word(copy, &mut cursor, &mut uncounted)? {
                self.count_published(&mut uncounted)?;
                self.publish_parts(copy)?;
                self.settle()?;
                cursor.forget();
                uncounted = self.nothing_uncounted();
            }
        }
        self.count_published(&mut uncounted)
    }

    /// Publishes `copy` if that is one word of the map, or in vain; false if it takes more. All
    /// records are in the map before that.
    fn publish_word(
        &mut self,
        copy: &Copied,
        cursor: &mut Cursor,
        uncounted: &mut Uncounted,
    ) -> Step<bool> {
        let Copied { old, room, digests } = copy;
        if self.tx.root(Word::TrimCount) > 0 {
            return Ok(false);
        }
        let (volume, map) = (self.volume, self.volume.map);
        let found = map.find_next(cursor, &self.tx, old.unit)?;
        let Some(found) = found.filter(|found| found.unit < old.end()) else {
            return Ok(true);
        };
        let is_elsewhere = found.unit == old.unit && found.len == old.len;
        if found != *old {
            return Ok(is_elsewhere);
        }
        let words = volume.sums(room.place, room.generation, digests);
        let sums = Sums::new(&words, old.len);
        let record = Record::Write { unit: old.unit, place: room.place, len: old.len, sums };
        if uncounted.used + record.words() > volume.layout.record_room() {
            self.count_published(uncounted)?;
            self.ensure_words(record.words())?;
            *uncounted = self.nothing_uncounted();
            self.make_room(EACH + uncounted.entries())?;
        }
        if !map.replace(&mut self.tx, cursor, found, room.place)? {
            return Ok(false);
        }
        self.put_sums(room.place, sums)?;
        self.put_record(&record, true, uncounted.packet, uncounted.used)?;
        uncounted.used += record.words();
        uncounted.has_any = true;
        let names = self.note_entered(room, uncounted);
        self.put_name(Extent { place: room.place, ..*old }, names)?;
        note_left(volume.layout.segment_of(old.place), old.len, uncounted);
        Ok(true)
    }

    /// Notes that the units of `room` are in use; how many names its segment has had until now.
    fn note_entered(&self, room: &Room, uncounted: &mut Uncounted) -> u64 {
        let segment = self.volume.layout.segment_of(room.place);
        match uncounted.entered.iter_mut().find(|(known, ..)| *known == segment) {
            Some((_, units, names)) => {
                *units += room.len;
                *names += 1;
                *names - 1
            }
            None => {
                let names = self.tx.segment(segment, Of::NamesCount);
                uncounted.entered.push((segment, room.len, names + 1));
                names
            }
        }
    }

    fn nothing_uncounted(&self) -> Uncounted {
        let (packet, used) = packet_of(self.tx.root(Word::End));
        Uncounted { packet, used, has_any: false, left: Vec::new(), entered: Vec::new() }
    }

    /// Stages what was not counted yet, the end of the stream included.
    fn count_published(&mut self, uncounted: &mut Uncounted) -> Step<()> {
        if !uncounted.has_any {
            return Ok(());
        }
        for &(segment, units) in &uncounted.left {
            let live = self.tx.segment_at(segment, Of::Live);
            self.tx.set(live, self.tx.get(live).saturating_sub(units))?;
            self.tx.set(self.tx.segment_at(segment, Of::Touched), uncounted.packet)?;
        }
        for &(segment, units, names) in &uncounted.entered {
            let live = self.tx.segment_at(segment, Of::Live);
            self.tx.set(live, self.tx.get(live) + units)?;
            self.tx.set(self.tx.segment_at(segment, Of::NamesCount), names)?;
        }
        let end = position(uncounted.packet, uncounted.used);
        for word in [Word::End, Word::Whole, Word::Applied] {
            self.tx.set(word.at(), end)?;
        }
        uncounted.has_any = false;
        uncounted.left.clear();
        uncounted.entered.clear();
        Ok(())
    }

    /// Adds the records that lead to `copy`, for what the map still leads to the original of.
    fn publish_parts(&mut self, copy: &Copied) -> Step<()> {
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

impl Uncounted {
    /// Entries that counting takes, if one more segment of each kind comes to it.
    fn entries(&self) -> u64 {
        OF_SEGMENT * (self.left.len() + self.entered.len() + 2) as u64 + OF_ALL
    }
}

/// Notes that `units` of `segment` are not in use any more.
fn note_left(segment: u64, units: u64, uncounted: &mut Uncounted) {
    match uncounted.left.iter_mut().find(|(known, _)| *known == segment) {
        Some((_, all)) => *all += units,
        None => uncounted.left.push((segment, units)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

    use core::ops::Range;

    use conquest_format::volume::digest;
    use conquest_pm::media::{Mapped, OsHost};

    use super::*;
    use crate::change::Stop;
    use crate::index::Slot;
    use crate::operations::tests::{device, recovered, volume};
    use crate::segments::Temperature;

    type TestVolume = Volume<Mapped, OsHost>;

    fn bytes(number: u64) -> Vec<u8> {
        vec![number as u8; 4096]
    }

    fn place(volume: &TestVolume, unit: u64) -> u64 {
        volume.look(unit, 1).unwrap().remove(0).found.unwrap().place
    }

    /// Writes units with such numbers, of which none are beside each other, and copies each, to as
    /// many segments as that takes.
    fn copies(volume: &TestVolume, mut numbers: Range<u64>) -> Vec<Copied> {
        numbers.clone().for_each(|unit| volume.write(unit * 16, &bytes(unit)).unwrap());
        let mut copied = Vec::new();
        while !numbers.is_empty() {
            let hold = volume.spare_hold().unwrap();
            let left = numbers.end - numbers.start;
            let take =
                |change: &mut Change<'_, _, _>| change.take_room(Temperature::Cold, left, &hold);
            let room = volume.change(take).unwrap();
            for (place, number) in (room.place..room.place + room.len).zip(&mut numbers) {
                let room = Room { place, len: 1, ..room };
                volume.write_room(&room, &bytes(number)).unwrap();
                let old =
                    Extent { unit: 2 * number, place: self::place(volume, 2 * number), len: 1 };
                copied.push(Copied { old, room, digests: vec![digest(&bytes(number))] });
            }
        }
        copied
    }

    /// Stages so much that only so many entries are left.
    fn fill(change: &mut Change<'_, Mapped, OsHost>, left: u64) -> Step<()> {
        while change.tx.room() > left {
            change.tx.set(Word::Failed.at(), 0)?;
        }
        Ok(())
    }

    /// As when somebody dies between two parts, or has to wait for the ring of packets.
    #[test]
    fn what_is_moved_by_one_part_is_counted_by_it() {
        const COPIES: u64 = 12;
        let mut some = 0;
        for left in (20..100).step_by(5) {
            let volume = volume();
            let copied = copies(&volume, 0..COPIES);
            let publish = |change: &mut Change<'_, _, _>| -> Step<()> {
                fill(change, left)?;
                change.publish(&copied)?;
                Err(Stop::Failed(volume.no_space()))
            };
            assert!(volume.change(publish).is_err());
            assert_eq!(volume.check().unwrap(), [], "{left} entries left");
            let is_moved = |copy: &&Copied| place(&volume, copy.old.unit) == copy.room.place;
            let moved = copied.iter().filter(is_moved).count() as u64;
            some += u64::from(moved > 0 && moved < COPIES);
        }
        assert!(some > 5, "{some} times some");
    }

    /// What is in the open packet stays in it.
    #[test]
    fn copies_that_come_to_several_packets_are_in_the_stream() {
        const COPIES: u64 = 150;
        for left in (0..150).step_by(7) {
            let device = device();
            let volume = recovered(&device);
            let copied = copies(&volume, 0..COPIES);
            volume.flush().unwrap();
            // Not the same number of words each time.
            volume.write(1 << 20, &bytes(left)).unwrap();
            (0..left % 7).for_each(|unit| volume.trim((1 << 21) + unit * 16, 8).unwrap());
            for some in copied.chunks(TOGETHER) {
                let publish = |change: &mut Change<'_, _, _>| {
                    fill(change, left)?;
                    change.publish(some)
                };
                volume.change(publish).unwrap();
            }
            volume.write(1 << 22, &bytes(7)).unwrap();
            assert_eq!(volume.check().unwrap(), [], "{left} entries left");
            volume.flush().unwrap();
            drop(volume);
            let volume = recovered(&device);
            assert_eq!(volume.check().unwrap(), [], "{left} entries left, recovered");
            let is_moved = |copy: &Copied| place(&volume, copy.old.unit) == copy.room.place;
            assert!(copied.iter().all(is_moved), "{left} entries left");
            for (block, number) in [(1 << 20, left), (1 << 22, 7)] {
                let mut found = bytes(0);
                volume.read(block, &mut found).unwrap();
                assert!(found == bytes(number), "{left} entries left");
            }
        }
    }
    /// The stream goes on in another segment then, which may have had many names.
    #[test]
    fn a_copy_that_comes_to_another_packet_has_room_whatever_was_staged_before() {
        for names in 0..4 {
            let volume = volume();
            let layout = volume.layout;
            let name = |unit| Extent { unit, place: 0, len: 1 };
            let names: Vec<Extent> = (0..names * 40).map(name).collect();
            let give = |change: &mut Change<'_, _, _>| {
                for segment in layout.segments / 2..layout.segments {
                    change.fill_names(segment, &names)?;
                    change.part()?;
                }
                Ok(())
            };
            volume.change(give).unwrap();
            for left in 0..100 {
                let copied = copies(&volume, 2 * left..2 * left + 2);
                let approach = |change: &mut Change<'_, _, _>| {
                    let open = |change: &Change<'_, _, _>| packet_of(change.tx.root(Word::End));
                    while change.tx.packet(open(change).0, Slot::Place) % layout.segment
                        < layout.segment - 2
                    {
                        change.seal()?;
                    }
                    let record = Record::Reserved { units: 0 };
                    while open(change).1 + record.words() <= layout.record_room() {
                        change.append(&record, true)?;
                    }
                    Ok(())
                };
                volume.flush().unwrap();
                volume.change(approach).unwrap();
                let publish = |change: &mut Change<'_, _, _>| {
                    fill(change, left)?;
                    change.publish(&copied)
                };
                let told = |error| panic!("{left} entries left: {error}");
                volume.change(publish).unwrap_or_else(told);
                volume.flush().unwrap();
            }
            assert_eq!(volume.check().unwrap(), []);
        }
    }
}
