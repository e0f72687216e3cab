//! Records.

use super::*;

/// A record and its checksums, of which there are up to `most`.
fn random<'r>(random: &mut Random, most: u64, sums: &'r mut Vec<u64>) -> Record<'r> {
    let [unit, place, len] = random.range(most);
    match random.below(7) {
        0 => {
            *sums = random.words(Sums::words(len));
            Record::Write { unit, place, len, sums: Sums::new(sums, len) }
        }
        1 => Record::Place { unit, place, len },
        2 => Record::Hole { unit, len: 1 + random.number() % (SPACE - unit) },
        3 => Record::Begin { segment: random.number(), generation: random.number() },
        4 => Record::Reserved { units: random.number() },
        5 => Record::Bad { segment: random.number() },
        _ => Record::Void,
    }
}

/// All records in `words`, and where the first thing that is none begins.
fn all(words: &[u64]) -> (Vec<(Record<'_>, bool)>, Option<usize>) {
    let mut found = Vec::new();
    let mut bad = None;
    for record in Records::new(words) {
        assert_eq!(bad, None, "it goes on behind what is no record");
        match record {
            Ok(record) => found.push(record),
            Err(RecordError { at }) => bad = Some(at),
        }
    }
    (found, bad)
}

fn put(record: &Record<'_>, last: bool) -> Vec<u64> {
    let mut words = Vec::new();
    record.put(last, &mut words);
    assert_eq!(words.len() as u64, record.words());
    assert_eq!(Records::len_at(words[0]), Some(record.words()));
    words
}

#[test]
fn they_stand_as_documented() {
    let sums = [0x2222_2222_1111_1111, 0x3333_3333];
    let write = Record::Write { unit: 5, place: 6, len: 3, sums: Sums::new(&sums, 3) };
    assert_eq!(put(&write, false), [3 << 32 | 1, 5, 6, sums[0], sums[1]]);
    assert_eq!(put(&write, true), [3 << 32 | 0x101, 5, 6, sums[0], sums[1]]);
    let place = Record::Place { unit: 5, place: 6, len: 7 };
    assert_eq!(put(&place, true), [7 << 32 | 0x102, 5, 6]);
    assert_eq!(put(&Record::Hole { unit: 5, len: 6 }, true), [0x103, 5, 6]);
    assert_eq!(put(&Record::Begin { segment: 5, generation: 6 }, true), [0x104, 5, 6]);
    assert_eq!(put(&Record::Reserved { units: 5 }, true), [0x105, 5, 0]);
    assert_eq!(put(&Record::Bad { segment: 5 }, true), [0x107, 5, 0]);
    assert_eq!(put(&Record::Void, true), [0x106, 0, 0]);
    assert_eq!(put(&Record::Void, false), [6, 0, 0]);
}

#[test]
fn they_round_trip() {
    let mut numbers = Random(30);
    for _ in 0..200 {
        let mut sums = vec![Vec::new(); 20];
        let mut put = Vec::new();
        let mut words = Vec::new();
        let mut starts = Vec::new();
        for sums in &mut sums {
            let most = 1 << numbers.below(10);
            let record = random(&mut numbers, most, sums);
            let last = numbers.below(2) > 0;
            starts.push(words.len());
            record.put(last, &mut words);
            put.push((record, last));
        }
        assert_eq!(all(&words), (put, None));
        let mut records = Records::new(&words);
        for start in starts {
            assert_eq!(records.at(), start);
            assert!(records.next().unwrap().is_ok());
        }
        assert_eq!((records.at(), records.next()), (words.len(), None));
    }
}

#[test]
fn sums_are_two_in_a_word() {
    let words = [0x2222_2222_1111_1111, 0x4444_4444_3333_3333];
    let all = [0x1111_1111, 0x2222_2222, 0x3333_3333, 0x4444_4444];
    for len in 0..=4 {
        let sums: Vec<u32> = Sums::new(&words, len).iter().collect();
        assert_eq!(sums, all[..len as usize]);
        assert_eq!(Sums::words(len), [0, 1, 1, 2, 2][len as usize]);
    }
    assert_eq!(Sums::new(&words, u64::MAX).iter().count(), 4);
    assert_eq!(Sums::new(&[], 3).iter().count(), 0);
}

#[test]
fn a_record_fills_the_room_that_it_is_said_to() {
    for size in [UNIT, UNIT_MAX] {
        let room = Packet::room(size);
        let len = Record::sums_in(room);
        let sums = Random(31).words(Sums::words(len));
        let write = Record::Write { unit: 0, place: 0, len, sums: Sums::new(&sums, len) };
        let words = put(&write, true);
        assert_eq!(words.len() as u64, room);
        assert_eq!(all(&words), (vec![(write, true)], None));
        let sums = Sums::new(&[], 0);
        assert!(Record::Write { unit: 0, place: 0, len: len + 1, sums }.words() > room);
    }
    for small in 0..=3 {
        assert_eq!(Record::sums_in(small), 0);
    }
    assert_eq!(Record::sums_in(4), 2);
}

#[test]
fn the_longest_record_can_be_read() {
    let len = LEN_MAX - 1;
    let sums = vec![7; Sums::words(len) as usize];
    let unit = SPACE - len;
    let write = Record::Write { unit, place: PLACE_MAX - len, len, sums: Sums::new(&sums, len) };
    let words = put(&write, true);
    assert_eq!(all(&words), (vec![(write, true)], None));
    assert_eq!(all(&words[..words.len() - 1]), (vec![], Some(0)));
    let mut longer = words;
    longer[0] += 1 << 32;
    longer.push(7);
    assert_eq!(all(&longer), (vec![], Some(0)));
}

#[test]
fn no_number_is_too_large() {
    let huge = u64::MAX;
    let sums = Sums::new(&[], huge);
    assert_eq!(Record::Write { unit: huge, place: huge, len: huge, sums }.words(), 3 + (1 << 63));
    assert_eq!(Record::sums_in(huge), huge);
    assert_eq!(Sums::words(huge), 1 << 63);
    assert_eq!(Records::len_at(huge), None);
    assert_eq!(Records::len_at(0xFFFF_FFFF_0000_0001), Some(3 + (1 << 31)));
}

#[test]
fn what_can_not_be_is_no_record() {
    let (head, len) = (1 << 32, LEN_MAX << 32);
    let bad = [
        [0, 0, 0],
        [8, 0, 0],
        [0xFF, 0, 0],
        [0x100, 0, 0],
        // No units, or too many.
        [1, 5, 6],
        [2, 5, 6],
        [2 | len, 5, 6],
        [2 | 0xFFFF_FFFF << 32, 5, 6],
        [3, 5, 0],
        // Outside of the space, or of the medium.
        [2 | head, SPACE, 6],
        [2 | head, u64::MAX, 6],
        [2 | head, 5, PLACE_MAX],
        [2 | head, 5, u64::MAX],
        [3, SPACE, 1],
        [3, 0, SPACE + 1],
        [3, SPACE - 1, 2],
        [3, u64::MAX, u64::MAX],
        // Without its checksums.
        [1 | head, 5, 6],
        // Of another space.
        [2 | head | 1 << 16, 5, 6],
        [2 | head | 1 << 31, 5, 6],
        [3 | 1 << 16, 5, 6],
        [3 | 0xFFFF << 16, 5, 6],
    ];
    for words in bad {
        assert_eq!(all(&words), (vec![], Some(0)), "{words:?}");
    }
    for words in [
        [1 | head, SPACE, 6, 7],
        [1 | len, 5, 6, 7],
        [1 | head, 5, PLACE_MAX, 7],
        [1 | head | 1 << 16, 5, 6, 7],
    ] {
        assert_eq!(all(&words), (vec![], Some(0)), "{words:?}");
    }
    // Just so.
    for words in [[2 | head, SPACE - 1, PLACE_MAX - 1], [3, 0, SPACE], [3, SPACE - 1, 1]] {
        assert_eq!((all(&words).0.len(), all(&words).1), (1, None), "{words:?}");
    }
    // Bits of the first word that mean nothing.
    assert_eq!(
        all(&[0xFFFF_FFFF_0000_FE03, 5, 6]),
        (vec![(Record::Hole { unit: 5, len: 6 }, false)], None)
    );
}

#[test]
fn a_record_that_ends_early_is_none() {
    let sums = [7; 5];
    let write = Record::Write { unit: 5, place: 6, len: 9, sums: Sums::new(&sums, 9) };
    let mut words = put(&Record::Reserved { units: 1 }, true);
    write.put(true, &mut words);
    assert_eq!(all(&words).0, [(Record::Reserved { units: 1 }, true), (write, true)]);
    for len in 4..words.len() {
        let (found, bad) = all(&words[..len]);
        assert_eq!((found.len(), bad), (1, Some(3)));
    }
    for len in 1..3 {
        assert_eq!(all(&words[..len]), (vec![], Some(0)));
    }
    assert_eq!(all(&[]), (vec![], None));
}

#[test]
fn garbage_ends() {
    let mut random = Random(32);
    for _ in 0..20_000 {
        let count = random.below(64);
        let mut words = random.words(count);
        // Most of them begin like records, so that some are.
        for word in &mut words {
            if random.below(2) > 0 {
                *word = random.below(8) | random.below(2) << 8 | random.below(12) << 32;
            }
        }
        let (found, bad) = all(&words);
        let used: u64 = found.iter().map(|(record, _)| record.words()).sum();
        assert_eq!(bad.unwrap_or(words.len()) as u64, used);
        let mut records = Records::new(&words);
        records.by_ref().for_each(drop);
        assert_eq!((records.at(), records.next()), (words.len(), None));
    }
}
