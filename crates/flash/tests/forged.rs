//! What can't be, with right checksums: it is refused where it counts, and nothing comes of it.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media;
mod volumes;

use conquest_flash::Result;
use conquest_flash::device::MemoryDevice;
use conquest_format::volume::{Item, ItemWriter, Leaf, Packet, Record, Sums, put_words, words};
use media::{END, SEGMENT, after, bind, change_root, flushed, packets, put_unit, refused, roots};
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
