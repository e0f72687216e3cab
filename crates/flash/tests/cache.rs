//! The cache of what was read: that it is used, and never wrong.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod opening;

use std::os::unix::fs::{FileExt, MetadataExt};

use conquest_flash::{Error, OpenOptions};
use conquest_testkit::Rng;
use opening::Place;

const UNIT: usize = 4096;
const PER_UNIT: u64 = 8;

/// A volume with a cache of `bytes`.
fn place(segments: u64, bytes: u64) -> Place {
    let mut place = Place::new(1, segments);
    place.options = OpenOptions { cache: bytes, ..place.options.clone() };
    place
}

/// Bytes of unit `unit`, as it was written the `number`th time.
fn unit_of(unit: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng::stream(unit, number);
    (0..UNIT / 8).flat_map(|_| rng.word().to_le_bytes()).collect()
}

/// Damages the place on the device where there is `bytes`.
fn damage(place: &Place, bytes: &[u8]) {
    let all = std::fs::read(&place.paths[0]).unwrap();
    let at = all.chunks(UNIT).position(|unit| unit == bytes).unwrap() * UNIT;
    let file = std::fs::File::options().write(true).open(&place.paths[0]).unwrap();
    file.write_all_at(&[9; 100], at as u64 + 50).unwrap();
}

#[test]
fn what_was_read_is_not_read_from_the_devices_again() {
    // The table of the largest one has more than one page.
    for (bytes, is_kept) in [(8 << 20, true), (4 << 30, true), (0, false)] {
        let place = place(64, bytes);
        let volume = place.open().unwrap();
        // Many units, so that it is not inline.
        let all: Vec<u8> = (0..32).flat_map(|unit| unit_of(unit, 1)).collect();
        volume.write(0, &all).unwrap();
        volume.flush().unwrap();
        let mut found = vec![0; all.len()];
        // The first time makes room for what the second one keeps.
        for _ in 0..3 {
            volume.read(0, &mut found).unwrap();
            assert!(found == all);
        }
        damage(&place, &unit_of(5, 1));
        let mut one = vec![0; UNIT];
        let again = volume.read(5 * PER_UNIT, &mut one);
        assert_eq!(again.is_ok(), is_kept, "{again:?}");
        assert!(!is_kept || one == unit_of(5, 1));
        // Who looks for damage looks at the devices.
        assert_eq!(volume.check().unwrap().len(), 1);
        // What is written anew is read anew.
        volume.write(5 * PER_UNIT, &unit_of(5, 2)).unwrap();
        volume.read(5 * PER_UNIT, &mut one).unwrap();
        assert!(one == unit_of(5, 2));
        volume.trim(5 * PER_UNIT, PER_UNIT).unwrap();
        volume.read(5 * PER_UNIT, &mut one).unwrap();
        assert!(one.iter().all(|byte| *byte == 0));
        volume.close().unwrap();
    }
}

#[test]
fn several_who_read_and_write_never_read_anything_else() {
    const UNITS: u64 = 1600;
    // A cache of one run: units take each other's place, and segments are begun anew all the time.
    let place = place(128, 2 << 20);
    let volumes = [place.open().unwrap(), place.open().unwrap()];
    let mut numbers = vec![0; UNITS as usize];
    let mut rng = Rng::new(3);
    for step in 1..2500 {
        let volume = &volumes[rng.below(2) as usize];
        let len = 1 + rng.below(40);
        let first = rng.below(UNITS - len);
        let range = first..first + len;
        match rng.below(8) {
            0..=2 => {
                let all: Vec<u8> = range.clone().flat_map(|unit| unit_of(unit, step)).collect();
                volume.write(first * PER_UNIT, &all).unwrap();
                range.for_each(|unit| numbers[unit as usize] = step);
            }
            3 => {
                volume.trim(first * PER_UNIT, len * PER_UNIT).unwrap();
                range.for_each(|unit| numbers[unit as usize] = 0);
            }
            _ => {
                let mut found = vec![1; len as usize * UNIT];
                volume.read(first * PER_UNIT, &mut found).unwrap();
                for (unit, bytes) in range.zip(found.chunks(UNIT)) {
                    let is_right = match numbers[unit as usize] {
                        0 => bytes.iter().all(|byte| *byte == 0),
                        number => bytes == unit_of(unit, number),
                    };
                    assert!(is_right, "unit {unit}, step {step}");
                }
            }
        }
    }
    assert_eq!(volumes[0].check().unwrap(), []);
    let [one, other] = volumes;
    one.close().unwrap();
    other.close().unwrap();
    assert!(place.indices().is_empty());
}

/// A volume of `units` units, written without being kept, and opened anew.
fn filled(units: u64) -> Place {
    let place = place(128, 8 << 20);
    let volume = place.open().unwrap();
    for first in (0..units).step_by(64) {
        let all: Vec<u8> = (first..first + 64).flat_map(|unit| unit_of(unit, 1)).collect();
        volume.write(first * PER_UNIT, &all).unwrap();
    }
    volume.close().unwrap();
    place
}

#[test]
fn who_reads_in_order_finds_what_comes_next() {
    let place = filled(512);
    let volume = place.open().unwrap();
    let mut two = vec![0; 2 * UNIT];
    let mut read = |unit: u64| {
        volume.read_in_order(unit * PER_UNIT, &mut two)?;
        assert!(two == [unit_of(unit, 1), unit_of(unit + 1, 1)].concat(), "unit {unit}");
        Ok::<_, conquest_flash::Error>(())
    };
    // Who reads here and there gets what he asks for.
    for unit in [300, 290, 302] {
        read(unit).unwrap();
    }
    damage(&place, &unit_of(304, 1));
    assert!(read(304).is_err());
    // Who reads in order has more than that.
    (0..16).step_by(2).for_each(|unit| read(unit).unwrap());
    damage(&place, &unit_of(24, 1));
    read(24).unwrap();
    // And after a while much more, but not what he comes to much later.
    (26..60).step_by(2).for_each(|unit| read(unit).unwrap());
    damage(&place, &unit_of(130, 1));
    read(130).unwrap();
    damage(&place, &unit_of(500, 1));
    assert!(read(500).is_err());
    drop(read(498));
    volume.close().unwrap();
}

#[test]
fn how_much_is_read_ahead_follows_from_what_is_there() {
    // What is there when unit 100 is read in order, and whether units 131 and 355 are then.
    for (there, expected) in [
        (&[(96, 100)][..], [true, false]),
        (&[(97, 100)][..], [false, false]),
        (&[(67, 68), (73, 100)][..], [true, false]),
        (&[(68, 70), (74, 100)][..], [true, true]),
        (&[(68, 99)][..], [false, false]),
        (&[(68, 101)][..], [false, false]),
        // Somebody has read it here and there, or all of it.
        (&[(68, 100), (101, 116)][..], [true, true]),
        (&[(68, 100), (101, 117)][..], [false, false]),
        (&[(68, 100), (120, 136)][..], [false, false]),
    ] {
        let place = filled(512);
        let volume = place.open().unwrap();
        let mut one = vec![0; UNIT];
        let mut is_read = |unit: u64| volume.read(unit * PER_UNIT, &mut one).is_ok();
        assert!(there.iter().flat_map(|&(from, to)| from..to).all(&mut is_read));
        volume.read_in_order(100 * PER_UNIT, &mut [0; UNIT]).unwrap();
        let found = [131, 355].map(|unit| {
            damage(&place, &unit_of(unit, 1));
            is_read(unit)
        });
        let is_there = there.iter().any(|&(from, to)| (from..to).contains(&131));
        assert_eq!(found, [expected[0] || is_there, expected[1]], "{there:?}");
        volume.close().unwrap();
    }
}

#[test]
fn what_is_damaged_ahead_is_told_to_who_asks_for_it() {
    let place = filled(256);
    damage(&place, &unit_of(40, 1));
    let volume = place.open().unwrap();
    let mut one = vec![0; UNIT];
    for unit in (0..40).chain(41..256) {
        volume.read_in_order(unit * PER_UNIT, &mut one).unwrap();
        assert!(one == unit_of(unit, 1), "unit {unit}");
    }
    assert!(volume.read_in_order(40 * PER_UNIT, &mut one).is_err());
    // Behind what was written there is nothing to be read ahead, and odd ranges are read as well.
    volume.read_in_order(256 * PER_UNIT, &mut one).unwrap();
    assert!(one.iter().all(|byte| *byte == 0));
    volume.read_in_order(7 * PER_UNIT + 3, &mut one[..1024]).unwrap();
    assert_eq!(one[..1024], unit_of(7, 1)[3 * 512..3 * 512 + 1024]);
    assert!(volume.read_in_order(0, &mut one[..100]).is_err());
    volume.close().unwrap();
}

#[test]
fn what_is_written_to_keep_is_not_read_from_the_devices() {
    for is_kept in [true, false] {
        let place = place(64, 8 << 20);
        let volume = place.open().unwrap();
        let all: Vec<u8> = (0..100).flat_map(|unit| unit_of(unit, 1)).collect();
        match is_kept {
            true => volume.write_to_keep(0, &all).unwrap(),
            false => volume.write(0, &all).unwrap(),
        }
        // What is too small for room of its own, and what begins within a unit.
        volume.write_to_keep(200 * PER_UNIT, &all[..UNIT]).unwrap();
        volume.write_to_keep(300 * PER_UNIT + 1, &all[..32 * UNIT]).unwrap();
        damage(&place, &unit_of(77, 1));
        let mut one = vec![0; UNIT];
        assert_eq!(volume.read(77 * PER_UNIT, &mut one).is_ok(), is_kept);
        for at in [200 * PER_UNIT, 300 * PER_UNIT + 1] {
            volume.read(at, &mut one).unwrap();
            assert!(one == unit_of(0, 1));
        }
        volume.close().unwrap();
    }
}

/// Single units are in packets, which are in memory until some others have followed.
#[test]
fn what_is_written_to_keep_in_small_pieces_is_kept() {
    for is_kept in [true, false] {
        let place = place(64, 8 << 20);
        let volume = place.open().unwrap();
        for unit in 0..200 {
            match is_kept {
                true => volume.write_to_keep(unit * PER_UNIT, &unit_of(unit, 1)).unwrap(),
                false => volume.write(unit * PER_UNIT, &unit_of(unit, 1)).unwrap(),
            }
        }
        volume.flush().unwrap();
        damage(&place, &unit_of(3, 1));
        let mut one = vec![0; UNIT];
        assert_eq!(volume.read(3 * PER_UNIT, &mut one).is_ok(), is_kept);
        assert!(!is_kept || one == unit_of(3, 1));
        volume.close().unwrap();
    }
}

/// What is in the cache is what was looked for only by its checksum.
#[test]
fn what_is_damaged_in_the_cache_is_read_from_the_devices() {
    let place = place(64, 8 << 20);
    let volume = place.open().unwrap();
    let all: Vec<u8> = (0..32).flat_map(|unit| unit_of(unit, 1)).collect();
    volume.write(0, &all).unwrap();
    volume.flush().unwrap();
    let mut found = vec![0; all.len()];
    (0..3).for_each(|_| volume.read(0, &mut found).unwrap());
    let index = std::fs::read(volume.index().unwrap()).unwrap();
    let wanted = unit_of(5, 1);
    let at = index.chunks(UNIT).position(|page| page == wanted).unwrap() * UNIT;
    let file = std::fs::File::options().write(true).open(volume.index().unwrap()).unwrap();
    file.write_all_at(&[9; 100], at as u64 + 50).unwrap();
    volume.read(0, &mut found).unwrap();
    assert!(found == all);
    volume.close().unwrap();
}

#[test]
fn who_reads_in_order_may_go_on_within_a_unit() {
    let place = filled(64);
    let volume = place.open().unwrap();
    let all: Vec<u8> = (0..64).flat_map(|unit| unit_of(unit, 1)).collect();
    let mut some = vec![0; 8 * UNIT];
    (0..3).for_each(|_| volume.read(0, &mut some).unwrap());
    for (block, bytes) in [(8 * PER_UNIT + 3, UNIT), (10 * PER_UNIT, UNIT * 3 / 2)] {
        let mut found = vec![0; bytes];
        volume.read_in_order(block, &mut found).unwrap();
        assert!(found == all[block as usize * 512..][..bytes], "{bytes} at {block}");
    }
    volume.close().unwrap();
}

/// The cache is for others.
#[test]
fn what_is_read_once_is_not_kept() {
    let place = filled(64);
    let volume = place.open().unwrap();
    let all: Vec<u8> = (0..64).flat_map(|unit| unit_of(unit, 1)).collect();
    let ranges = [(8, 16 * UNIT), (8, 16 * UNIT), (8, 16 * UNIT), (3, UNIT), (0, UNIT * 3 / 2)];
    for (block, bytes) in ranges.into_iter().chain([(5, 1024), (0, 512)]) {
        let mut found = vec![0; bytes];
        volume.read_once(block, &mut found).unwrap();
        assert!(found == all[block as usize * 512..][..bytes], "{bytes} at {block}");
    }
    damage(&place, &unit_of(12, 1));
    assert!(volume.read(12 * PER_UNIT, &mut [0; UNIT]).is_err());
    let refused = volume.read_once(u64::MAX - 7, &mut [0; 2 * UNIT]);
    assert!(matches!(refused, Err(Error::Range { .. })), "{refused:?}");
    volume.close().unwrap();
}

/// Bytes that the index of `volume` takes.
fn taken(volume: &opening::TestVolume) -> u64 {
    std::fs::metadata(volume.index().unwrap()).unwrap().blocks() * 512
}

#[test]
fn the_cache_takes_memory_as_it_gets_full() {
    const UNITS: u64 = 1536;
    let mut place = filled(UNITS);
    place.options.cache = 64 << 20;
    let volume = place.open().unwrap();
    let mut one = vec![0; UNIT];
    let before = taken(&volume);
    // Far apart, so that they would be anywhere.
    for unit in (0..UNITS).step_by(200) {
        volume.read(unit * PER_UNIT, &mut one).unwrap();
    }
    let few = taken(&volume) - before;
    assert!(few <= 5 << 20, "{few} bytes for 8 units");
    // What is kept while runs are made stays.
    for _ in 0..2 {
        for unit in 0..UNITS {
            volume.read(unit * PER_UNIT, &mut one).unwrap();
            assert!(one == unit_of(unit, 1), "unit {unit}");
        }
    }
    let all = taken(&volume) - before;
    assert!((UNITS * 4096..4 * UNITS * 4096).contains(&all), "{all} bytes for {UNITS} units");
    let kept = kept(&place, &volume, UNITS);
    assert!(kept * 10 > UNITS * 9, "{kept} of {UNITS}");
}

/// Of so many units, how many can be read without the devices, which lose all that they have.
fn kept(place: &Place, volume: &opening::TestVolume, units: u64) -> u64 {
    let file = std::fs::File::options().write(true).open(&place.paths[0]).unwrap();
    let len = file.metadata().unwrap().len() as usize;
    file.write_all_at(&vec![9; len], 0).unwrap();
    let is_there = |unit: &u64| volume.read(unit * PER_UNIT, &mut [0; UNIT]).is_ok();
    (0..units).filter(is_there).count() as u64
}

#[test]
fn no_more_is_kept_than_the_cache_may_have() {
    const UNITS: u64 = 1536;
    for runs in 1..=2 {
        let mut place = filled(UNITS);
        place.options.cache = runs << 21;
        let volume = place.open().unwrap();
        for unit in (0..UNITS).chain(0..UNITS) {
            volume.read(unit * PER_UNIT, &mut [0; UNIT]).unwrap();
        }
        let (kept, room) = (kept(&place, &volume, UNITS), runs * 504);
        assert!((room * 9 / 10..=room).contains(&kept), "{kept} in {runs} runs");
    }
}

/// Else it would take the place of others.
#[test]
fn what_is_read_again_as_part_of_more_is_not_kept_twice() {
    const UNITS: u64 = 256;
    let mut place = filled(UNITS);
    place.options.cache = 2 << 20;
    let volume = place.open().unwrap();
    for unit in 64..UNITS {
        volume.read(unit * PER_UNIT, &mut [0; UNIT]).unwrap();
    }
    // Each time one is missing, so that all are read.
    for units in 20..=64 {
        volume.read(0, &mut vec![0; units * UNIT]).unwrap();
    }
    let kept = kept(&place, &volume, UNITS);
    assert!(kept * 10 > UNITS * 9, "{kept} of {UNITS}");
}

#[test]
fn what_was_written_last_is_looked_at_without_the_devices() {
    let place = place(64, 0);
    let volume = place.open().unwrap();
    // With its record, so that one write makes it durable.
    volume.write(0, &unit_of(0, 1)).unwrap();
    volume.flush().unwrap();
    damage(&place, &unit_of(0, 1));
    let mut one = vec![0; UNIT];
    volume.look_at(0, &mut one).unwrap();
    assert!(one == unit_of(0, 1));
    // Who looks for damage looks at the devices.
    assert_eq!(volume.check().unwrap().len(), 1);
    // So many that what is kept of the stream is the last of them.
    for number in 1..400 {
        volume.write(number * PER_UNIT, &unit_of(number, 1)).unwrap();
        volume.flush().unwrap();
        volume.look_at(number * PER_UNIT, &mut one).unwrap();
        assert!(one == unit_of(number, 1));
    }
    assert!(volume.look_at(0, &mut one).is_err());
}

/// However they and what is behind them lie in segments.
#[test]
fn as_many_writes_are_looked_at_without_the_devices_wherever_they_are() {
    let counts: Vec<u64> = (40..60)
        .map(|writes| {
            let place = place(64, 0);
            let volume = place.open().unwrap();
            for unit in 0..writes {
                volume.write(unit * PER_UNIT, &unit_of(unit, 1)).unwrap();
                volume.flush().unwrap();
            }
            let file = std::fs::File::options().write(true).open(&place.paths[0]).unwrap();
            let len = file.metadata().unwrap().len() as usize;
            file.write_all_at(&vec![9; len], 0).unwrap();
            let is_there = |unit: &u64| volume.look_at(unit * PER_UNIT, &mut [0; UNIT]).is_ok();
            (0..writes).rev().take_while(is_there).count() as u64
        })
        .collect();
    assert!(counts.iter().all(|count| *count == counts[0] && *count > 20), "{counts:?}");
}
