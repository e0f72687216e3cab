//! The cache of what was read: that it is used, and never wrong.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod opening;

use std::os::unix::fs::FileExt;

use conquest_flash::OpenOptions;
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
    for (bytes, is_kept) in [(8 << 20, true), (0, false)] {
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
