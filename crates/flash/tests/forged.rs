//! What can't be, with right checksums: it is refused where it counts, and nothing comes of it.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media;
mod volumes;

use conquest_flash::Result;
use conquest_flash::device::MemoryDevice;
use conquest_format::checksum;
use conquest_format::volume::{
    Item, ItemWriter, Leaf, Packet, Record, StandIn, Sums, put_words, words,
};
use media::{
    END, SEGMENT, after, bind, change_root, flushed, packets, put_unit, refused, roots, unit_at,
};
use volumes::{TestVolume, UNIT};

/// The volume on `device`, whose `packet` has these words of records and no others.
fn with_records(device: &MemoryDevice, packet: &Packet, records: &[u64]) -> Result<TestVolume> {
    let packet = Packet { words: records.len() as u64, ..*packet };
    let head = conquest_format::volume::HEADER_WORDS;
    let old = media::unit_at(device, packet.place);
    let all = words(&old).take(head).chain(records.iter().copied());
    let mut unit = vec![0; UNIT as usize];
    put_words(&mut unit, all);
    packet.fill(bind(), &mut unit);
    after(device, |copy| put_unit(copy, packet.place, &unit))
}

#[test]
fn records_that_cannot_be() {
    let (device, _) = flushed();
    let all = packets(&device);
    let (last, others) = all.split_last().unwrap();
    let sums = Sums::new(&[7], 2);
    let (unit, len) = (5000, 1);
    let inside = END - SEGMENT;
    let cases = [
        (false, Record::Write { unit, place: END, len, sums: Sums::new(&[7], 1) }),
        (false, Record::Write { unit, place: inside - 1, len: 2, sums }),
        (false, Record::Place { unit, place: END, len }),
        (false, Record::Place { unit, place: inside - 1, len: 2 }),
        (true, Record::Place { unit, place: END - 1, len }),
        (true, Record::Place { unit, place: inside, len: SEGMENT }),
        (true, Record::Place { unit, place: inside - 1, len }),
        (false, Record::Bad { segment: END / SEGMENT }),
        (true, Record::Bad { segment: END / SEGMENT - 1 }),
    ];
    for (is_possible, record) in cases {
        let mut records = Vec::new();
        record.put(true, &mut records);
        // What was flushed is missed, and what was not did not happen.
        let outcome = with_records(&device, &others[3], &records);
        let volume = with_records(&device, last, &records).unwrap();
        assert!(volume.allocated(29 * 8).unwrap().is_none_or(|(first, _)| first == unit * 8));
        let bad = volume.info().unwrap().segments.bad;
        let is_there = volume.allocated(unit * 8).unwrap().is_some() || bad > 0;
        assert_eq!(is_there, is_possible, "{record:?}");
        match is_possible {
            true => drop(outcome.unwrap()),
            false => refused(outcome, "stream"),
        }
    }
    refused(with_records(&device, &others[3], &[0x66, 0, 0]), "stream");
}

/// More is reserved than there is.
#[test]
fn reservations_that_cannot_be() {
    let (device, _) = flushed();
    let all = packets(&device);
    for (is_possible, units) in [(true, 0), (true, 10), (false, END), (false, u64::MAX)] {
        let mut records = Vec::new();
        Record::Reserved { units }.put(true, &mut records);
        // What was not flushed did not happen.
        let volume = with_records(&device, all.last().unwrap(), &records).unwrap();
        assert_eq!(volume.info().unwrap().reserved, if is_possible { units } else { 0 });
        volume.write(0, &[1; 4096]).unwrap();
        let outcome = with_records(&device, &all[3], &records);
        match is_possible {
            true => drop(outcome.unwrap()),
            false => refused(outcome, "stream"),
        }
    }
}

/// Of all segments but a few it is said that they are bad: there is no space for a checkpoint.
#[test]
fn a_life_that_begins_without_space_counts() {
    let (device, mut model) = flushed();
    let last = packets(&device).pop().unwrap();
    let (used, all) = (last.place / SEGMENT + 1, END / SEGMENT);
    let mut records = Vec::new();
    (used + 3..all).for_each(|segment| Record::Bad { segment }.put(true, &mut records));
    let packet = Packet { words: records.len() as u64, ..last };
    let mut unit = vec![0; UNIT as usize];
    let skip = conquest_format::volume::HEADER_WORDS * 8;
    put_words(&mut unit[skip..], records);
    packet.fill(bind(), &mut unit);
    put_unit(&device, last.place, &unit);
    // What it was to write did not happen.
    model.trim(29 * 8, 8);
    for number in 0..2 {
        let volume = volumes::recovered(&device);
        assert_eq!(volume.info().unwrap().checkpoint, 0, "there was space");
        model.compare(&volume, 400, "before");
        volume.write(number * 8, &model.write(number * 8, 8, 100)).unwrap();
        volume.flush().unwrap();
    }
    model.compare(&volumes::recovered(&device), 400, "written without space");
}

/// The volume on `device`, whose newest checkpoint consists of these items.
fn with_items(device: &MemoryDevice, items: &[Item]) -> Result<TestVolume> {
    let newest = roots(device).into_iter().max_by_key(|(_, root)| root.sequence).unwrap().1;
    let checkpoint = newest.checkpoint.unwrap();
    let mut writer = ItemWriter::default();
    items.iter().for_each(|item| writer.put(item));
    let leaf = Leaf { id: checkpoint.id, index: 0, next: checkpoint.segment, words: 0 };
    let mut unit = vec![0; UNIT as usize];
    leaf.fill(bind(), &mut unit, writer.words());
    after(device, |copy| {
        put_unit(copy, checkpoint.segment * SEGMENT, &unit);
        change_root(copy, |root| root.checkpoint.as_mut().unwrap().units = 1);
    })
}

#[test]
fn checkpoints_that_cannot_be() {
    let (device, _) = flushed();
    let volume = volumes::recovered(&device);
    volume.checkpoint().unwrap();
    drop(volume);
    let segments = END / SEGMENT;
    let of = |segment| Item::Segment { segment, generation: 1, is_bad: false, birth: 1 };
    let sums = |segment, count| Item::Sums { segment, words: vec![7; count] };
    let extent = |place, len| Item::Extents(vec![[5000, place, len]]);
    let cases = [
        (true, of(segments - 1)),
        (false, of(segments)),
        (true, sums(segments - 1, 8)),
        (false, sums(segments, 8)),
        (false, sums(40, 7)),
        (false, sums(40, 9)),
        (true, extent(END - 1, 1)),
        (true, extent(END - SEGMENT, SEGMENT)),
        (false, extent(END, 1)),
        (false, extent(END - 1, 2)),
        (false, extent(END - SEGMENT - 1, 2)),
        (false, extent(END - SEGMENT, 0)),
        (true, Item::Reserved(10)),
        (false, Item::Reserved(END)),
        (false, Item::Reserved(u64::MAX)),
    ];
    for (is_possible, item) in cases {
        let items = [of(40), sums(40, 8), item.clone(), Item::Reserved(0), Item::End];
        match with_items(&device, &items) {
            Ok(volume) => {
                assert!(is_possible, "{item:?}");
                let is_mapped = volume.allocated(5000 * 8).unwrap().is_some();
                assert_eq!(is_mapped, matches!(item, Item::Extents(_)), "{item:?}");
            }
            outcome => {
                refused(outcome, "checkpoint");
                assert!(!is_possible, "{item:?}");
            }
        }
    }
    refused(with_items(&device, &[of(40), Item::Reserved(0)]), "checkpoint");
}

/// Records, each with whether it is the last of its group.
type Group<'r> = &'r [(Record<'r>, bool)];

#[test]
fn groups_of_records_that_have_no_end_did_not_happen() {
    let (device, _) = flushed();
    let last = packets(&device).pop().unwrap();
    let place = |unit| Record::Place { unit, place: END - SEGMENT, len: 1 };
    let cases: [(Group<'_>, Option<u64>); 4] = [
        (&[(place(5000), true)], Some(5000)),
        (&[(place(5000), false)], None),
        (&[(place(5000), false), (Record::Void, true)], None),
        (&[(place(5000), false), (Record::Void, true), (place(6000), true)], Some(6000)),
    ];
    for (all, wanted) in cases {
        let mut records = Vec::new();
        all.iter().for_each(|(record, last)| record.put(*last, &mut records));
        let volume = with_records(&device, &last, &records).unwrap();
        let found = volume.allocated(4000 * 8).unwrap();
        assert_eq!(found, wanted.map(|unit| (unit * 8, 8)), "{all:?}");
    }
}

/// What is at `place` after recovery, if by the root the `units` from `at` on stand in there: they
/// are what was written there.
fn with_stand_in(device: &MemoryDevice, place: u64, units: u64, at: u64) -> Vec<u8> {
    let bytes: Vec<u8> = (0..units).flat_map(|unit| [0x60 + unit as u8; UNIT as usize]).collect();
    let stand_in = StandIn { place, units, at, sum: checksum(0, &bytes) };
    with_one(device, &stand_in, &bytes)
}

/// The same, with whatever `bytes` from where it stands on.
fn with_one(device: &MemoryDevice, stand_in: &StandIn, bytes: &[u8]) -> Vec<u8> {
    let StandIn { place, units, at, .. } = *stand_in;
    let mut copy = None;
    let volume = after(device, |changed| {
        copy = Some(changed.as_other());
        change_root(changed, |root| root.stand_ins = vec![*stand_in]);
        for (number, unit) in (at..END).zip(bytes.chunks(UNIT as usize)) {
            put_unit(changed, number, unit);
        }
    });
    drop(volume.unwrap_or_else(|error| panic!("{stand_in:?}: {error}")));
    let there =
        (place..END).take(units as usize).map(|place| unit_at(copy.as_ref().unwrap(), place));
    there.flatten().collect()
}

/// Nothing of them is put anywhere, and the volume is opened all the same.
#[test]
fn stand_ins_that_cannot_be() {
    let (device, _) = flushed();
    let at = END / 2;
    for (place, units) in [(END - 1, 1), (END - 2, 2), (END - SEGMENT, SEGMENT), (END - 20, 3)] {
        let found = with_stand_in(&device, place, units, at);
        let expected = (0..units).flat_map(|unit| [0x60 + unit as u8; UNIT as usize]);
        assert!(found.into_iter().eq(expected), "{units} at {place}");
        let found = with_stand_in(&device, at, units, place);
        assert!(found.iter().all(|byte| *byte >= 0x60), "{units} from {place}");
    }
    // Where it stood there is something else.
    let stand_in = StandIn { place: END - 1, units: 1, at, sum: 7 };
    assert!(with_one(&device, &stand_in, &[0x60; UNIT as usize]).iter().all(|byte| *byte == 0));
    for (place, units) in
        [(END, 1), (1 << 60, 1), (END + 5, 1), (END - 1, 2), (END - 20, SEGMENT + 1)]
    {
        let found = with_stand_in(&device, place, units, at);
        assert!(found.iter().all(|byte| *byte == 0), "{units} at {place}");
        let found = with_stand_in(&device, at, units, place);
        assert!(found.iter().all(|byte| *byte == 0), "{units} from {place}");
    }
}
