//! Roots, packets and leaves: what they have in common, and what each has of its own.

use super::*;

const UNITS: [u64; 2] = [UNIT, UNIT_MAX];

fn life(random: &mut Random) -> Life {
    let [life, packet, place, generation] = core::array::from_fn(|_| random.word());
    Life { life, packet: packet % PACKETS, place, generation }
}

fn root(random: &mut Random, lives: usize) -> Root {
    let checkpoint = (random.below(2) > 0).then(|| Checkpoint {
        id: random.word(),
        segment: random.word(),
        units: 1 + random.number() / 2,
    });
    let stand_ins = lives % (STAND_INS_MAX + 1);
    let lives = (0..lives).map(|_| life(random)).collect();
    let [sequence, durable, failed, since, known] = core::array::from_fn(|_| random.word());
    let stand_in = |_| {
        let [place, units, at, sum] = core::array::from_fn(|_| random.word());
        StandIn { place, units, at, sum }
    };
    let stand_ins = (0..stand_ins).map(stand_in).collect();
    let sequence = sequence % SEQUENCES;
    Root { sequence, checkpoint, durable, failed, since, known, lives, stand_ins }
}

fn packet(random: &mut Random, unit: u64) -> Packet {
    Packet {
        life: random.word(),
        number: random.word() % PACKETS,
        place: random.word(),
        generation: random.word(),
        units: 1 + random.number() / 2,
        words: random.below(Packet::room(unit) + 1),
        durable: random.word(),
        next: random.word(),
        next_generation: random.word(),
    }
}

/// A root, a packet and a leaf, each full.
fn full(size: u64) -> [Vec<u8>; 3] {
    let mut random = Random(20);
    let mut units = [(); 3].map(|()| vec![0; size as usize]);
    let [first, second, third] = &mut units;
    root(&mut random, LIVES_MAX).fill(bind(), first);
    put_words(second, random.words(size / 8));
    Packet { words: Packet::room(size), ..packet(&mut random, size) }.fill(bind(), second);
    let words = random.words(Leaf::room(size));
    Leaf { id: 1, index: 2, next: 3, words: 0 }.fill(bind(), third, &words);
    units
}

/// Which of the three `unit` is.
fn found(bind: Bind, unit: &[u8]) -> [bool; 3] {
    [
        Root::from_unit(bind, unit).is_some(),
        Packet::from_unit(bind, unit).is_some(),
        Leaf::from_unit(bind, unit).is_some(),
    ]
}

#[test]
fn a_unit_is_one_thing_of_one_volume() {
    for size in UNITS {
        let [root, packet, leaf] = full(size);
        assert_eq!(found(bind(), &root), [true, false, false]);
        assert_eq!(found(bind(), &packet), [false, true, false]);
        assert_eq!(found(bind(), &leaf), [false, false, true]);
        for unit in [root, packet, leaf] {
            assert_eq!(found(Bind::new([0; 16]), &unit), [false; 3]);
            assert_eq!(found(bind().with(0), &unit), [false; 3]);
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for mut unit in full(UNIT) {
        for at in 0..unit.len() {
            for bit in 0..8 {
                unit[at] ^= 1 << bit;
                assert_eq!(found(bind(), &unit), [false; 3], "{at} {bit}");
                unit[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn flipped_bits_of_large_units_are_found() {
    let mut random = Random(21);
    for mut unit in full(UNIT_MAX) {
        let ends = (0..32).chain(unit.len() - 16..unit.len());
        let others = (0..1000).map(|_| random.below(UNIT_MAX) as usize);
        for at in ends.chain(others) {
            unit[at] ^= 1 << (at % 8);
            assert_eq!(found(bind(), &unit), [false; 3], "{at}");
            unit[at] ^= 1 << (at % 8);
        }
    }
}

#[test]
fn parts_of_units_are_none() {
    for unit in full(UNIT) {
        for len in 0..unit.len() {
            assert_eq!(found(bind(), &unit[..len]), [false; 3], "{len}");
            assert_eq!(found(bind(), &unit[len + 1..]), [false; 3], "{len}");
            // Not even with the right checksum.
            let mut short = unit[..len].to_vec();
            resealed(&mut short);
            assert_eq!(found(bind(), &short), [false; 3], "{len}");
        }
        let longer = [unit.as_slice(), &[0; 8]].concat();
        assert_eq!(found(bind(), &longer), [false; 3]);
    }
}

#[test]
fn garbage_is_nothing() {
    let mut random = Random(22);
    let magics = full(UNIT).map(|unit| first_words::<1>(&unit)[0]);
    let mut unit = vec![0; UNIT as usize];
    assert_eq!(found(bind(), &unit), [false; 3]);
    for _ in 0..1000 {
        put_words(&mut unit, random.words(UNIT / 8));
        assert_eq!(found(bind(), &unit), [false; 3]);
        // With the right checksum it may be anything.
        for magic in magics {
            sealed(&mut unit, bind(), &[magic]);
            if let Some(leaf) = Leaf::from_unit(bind(), &unit) {
                assert!(leaf.items(&unit).count() as u64 == leaf.words);
            }
            let is_one = Root::from_unit(bind(), &unit).is_some();
            assert!(!is_one && Packet::from_unit(bind(), &unit).is_none());
        }
    }
}

/// `unit` with word `at` changed, and the right checksum.
fn with(unit: &[u8], at: usize, word: u64) -> Vec<u8> {
    let mut bytes = unit.to_vec();
    put_words(&mut bytes[at * 8..], [word]);
    resealed(&mut bytes);
    bytes
}

#[test]
fn roots_stand_as_documented() {
    let checkpoint = Some(Checkpoint { id: 2, segment: 3, units: 4 });
    let lives = vec![
        Life { life: 5, packet: 6, place: 7, generation: 8 },
        Life { life: 9, packet: 10, place: 11, generation: 12 },
    ];
    let mut unit = vec![0xFF; UNIT as usize];
    let stand_ins = vec![
        StandIn { place: 17, units: 18, at: 19, sum: 20 },
        StandIn { place: 21, units: 22, at: 23, sum: 24 },
    ];
    let (durable, failed, since, known) = (13, 14, 15, 16);
    let root = Root { sequence: 1, checkpoint, durable, failed, since, known, lives, stand_ins };
    root.fill(bind(), &mut unit);
    let mut expected = vec![u64::from_le_bytes(*b"CONQROOT"), 1, 2, 3, 4, 2, 13, 14, 15, 16];
    expected.extend(5..=12);
    expected.resize(266, 0);
    expected.push(2);
    expected.extend(17..=24);
    expected.resize(511, 0);
    expected.push(checksum(bind().0, &unit[..4088]));
    assert_eq!(words(&unit).collect::<Vec<_>>(), expected);
}

#[test]
fn roots_round_trip() {
    let mut random = Random(23);
    for size in UNITS {
        let mut unit = vec![0xFF; size as usize];
        for lives in 1..=LIVES_MAX {
            let root = root(&mut random, lives);
            root.fill(bind(), &mut unit);
            assert_eq!(Root::from_unit(bind(), &unit), Some(root));
        }
    }
}

#[test]
fn roots_have_a_number_of_lives() {
    let mut random = Random(24);
    let mut unit = vec![0; UNIT as usize];
    root(&mut random, LIVES_MAX).fill(bind(), &mut unit);
    let most = LIVES_MAX as u64;
    for lives in [1, most - 1, most] {
        let root = Root::from_unit(bind(), &with(&unit, 5, lives)).unwrap();
        assert_eq!(root.lives.len() as u64, lives);
    }
    for lives in [0, most + 1, 1 << 32 | 1, u64::MAX] {
        assert_eq!(Root::from_unit(bind(), &with(&unit, 5, lives)), None);
    }
    for lives in [0, LIVES_MAX + 1, 1000] {
        root(&mut random, lives).fill(bind(), &mut unit);
        assert_eq!(Root::from_unit(bind(), &unit), None);
    }
    // Without units there is no checkpoint.
    let some = with(&full(UNIT)[0], 4, 1);
    assert!(Root::from_unit(bind(), &some).unwrap().checkpoint.is_some());
    let none = with(&some, 4, 0);
    assert_eq!(Root::from_unit(bind(), &none).unwrap().checkpoint, None);
}

/// What is behind can be counted on from any number.
#[test]
fn numbers_have_bounds() {
    let [root, packet, _] = full(UNIT);
    let sequence = |number| Root::from_unit(bind(), &with(&root, 1, number));
    let packet = |number| Packet::from_unit(bind(), &with(&packet, 2, number));
    // Of the first life and of the last one.
    let last = 10 + 4 * (LIVES_MAX - 1) + 1;
    let first_of = |at, number| Root::from_unit(bind(), &with(&root, at, number));
    assert_eq!(sequence(SEQUENCES - 1).unwrap().sequence, SEQUENCES - 1);
    assert_eq!(packet(PACKETS - 1).unwrap().number, PACKETS - 1);
    assert!(sequence(SEQUENCES).is_none() && sequence(u64::MAX).is_none());
    assert!(packet(PACKETS).is_none() && packet(u64::MAX).is_none());
    for at in [11, last] {
        assert!(first_of(at, PACKETS - 1).is_some());
        assert!(first_of(at, PACKETS).is_none() && first_of(at, u64::MAX).is_none());
    }
}

#[test]
fn packets_stand_as_documented() {
    let packet = Packet {
        life: 1,
        number: 2,
        place: 3,
        generation: 4,
        units: 5,
        words: 6,
        durable: 7,
        next: 8,
        next_generation: 9,
    };
    let mut unit = vec![0x11; UNIT as usize];
    packet.fill(bind(), &mut unit);
    let mut expected = vec![u64::from_le_bytes(*b"CONQPACK"), 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0];
    assert_eq!(expected.len(), HEADER_WORDS);
    // What stands behind the header stays, up to the checksum.
    expected.resize(511, 0x1111_1111_1111_1111);
    expected.push(checksum(bind().0, &unit[..4088]));
    assert_eq!(words(&unit).collect::<Vec<_>>(), expected);
}

#[test]
fn packets_round_trip() {
    let mut random = Random(25);
    for size in UNITS {
        let mut unit = vec![0; size as usize];
        put_words(&mut unit, random.words(size / 8));
        for _ in 0..100 {
            let packet = packet(&mut random, size);
            packet.fill(bind(), &mut unit);
            assert_eq!(Packet::from_unit(bind(), &unit), Some(packet));
        }
    }
}

#[test]
fn packets_have_a_unit_and_what_fits_in() {
    for size in UNITS {
        let [_, unit, _] = full(size);
        let room = Packet::room(size);
        assert_eq!(room, size / 8 - 13);
        let is_one = |at, word| Packet::from_unit(bind(), &with(&unit, at, word)).is_some();
        assert!(is_one(6, 0) && is_one(6, room) && !is_one(6, room + 1) && !is_one(6, u64::MAX));
        assert!(is_one(5, 1) && is_one(5, u64::MAX) && !is_one(5, 0));
    }
    for small in 0..13 * 8 {
        assert_eq!(Packet::room(small), 0);
    }
}

#[test]
fn leaves_stand_as_documented() {
    let mut unit = vec![0xFF; UNIT as usize];
    Leaf { id: 1, index: 2, next: 3, words: 99 }.fill(bind(), &mut unit, &[4, 5]);
    let mut expected = vec![u64::from_le_bytes(*b"CONQCHKP"), 1, 2, 3, 2, 0, 0, 0, 4, 5];
    expected.resize(511, 0);
    expected.push(checksum(bind().0, &unit[..4088]));
    assert_eq!(words(&unit).collect::<Vec<_>>(), expected);
}

#[test]
fn leaves_round_trip() {
    let mut random = Random(26);
    for size in UNITS {
        let room = Leaf::room(size);
        assert_eq!(room, size / 8 - 9);
        let mut unit = vec![0xFF; size as usize];
        for count in [0, 1, random.below(room), room - 1, room] {
            let [id, index, next] = core::array::from_fn(|_| random.word());
            let items = random.words(count);
            Leaf { id, index, next, words: 0 }.fill(bind(), &mut unit, &items);
            let leaf = Leaf { id, index, next, words: count };
            assert_eq!(Leaf::from_unit(bind(), &unit), Some(leaf));
            assert_eq!(leaf.items(&unit).collect::<Vec<_>>(), items);
        }
        for count in [room + 1, room + 2, u64::MAX] {
            assert_eq!(Leaf::from_unit(bind(), &with(&unit, 4, count)), None);
        }
        // Too many items make no leaf.
        let items = random.words(room + 1);
        Leaf { id: 1, index: 0, next: 0, words: 0 }.fill(bind(), &mut unit, &items);
        assert_eq!(Leaf::from_unit(bind(), &unit), None);
    }
    for small in 0..9 * 8 {
        assert_eq!(Leaf::room(small), 0);
    }
}
