//! Writing over what was seen: it is done if all of it is where it was, and not otherwise.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod opening;
mod volumes;

use std::sync::Arc;
use std::thread;

use conquest_flash::device::{Limits, MemoryDevice, Work};
use conquest_flash::{Error, NewVolume, OpenOptions, Seen, create};
use conquest_format::volume::Arrangement;
use conquest_testkit::Rng;
use meanwhile::two;
use opening::Place;
use volumes::{Model, TestVolume, UNIT, device, recovered};

/// Blocks of a unit.
const PER: u64 = 8;

fn write(volume: &TestVolume, model: &mut Model, unit: u64, units: u64, number: u64) {
    volume.write(unit * PER, &model.write(unit * PER, units * PER, number)).unwrap();
}

fn look(volume: &TestVolume, unit: u64, units: u64) -> Option<Seen> {
    volume.look_where(unit * PER, units * PER).unwrap()
}

/// Writes over what was `seen`: whether it was done. Then `model` has it too.
fn write_over(
    volume: &TestVolume,
    model: &mut Model,
    (unit, units): (u64, u64),
    number: u64,
    seen: &Seen,
) -> bool {
    let mut next = model.clone();
    let bytes = next.write(unit * PER, units * PER, number);
    let is_done = volume.write_over(unit * PER, &bytes, seen).unwrap();
    if is_done {
        *model = next;
    }
    is_done
}

#[test]
fn what_is_where_it_was_seen_is_written_over_once() {
    // In packets, and in room of its own.
    for units in [1, 4, 16, 100] {
        let device = device(64);
        let volume = recovered(&device);
        let mut model = Model::default();
        write(&volume, &mut model, 0, 120, 1);
        let used = volume.usage().used;
        let seen = look(&volume, 10, units).unwrap();
        let again = look(&volume, 10, units).unwrap();
        assert!(write_over(&volume, &mut model, (10, units), 2, &seen));
        for late in [&seen, &again] {
            assert!(!write_over(&volume, &mut model, (10, units), 3, late));
        }
        model.compare(&volume, 200 * PER, "once");
        let seen = look(&volume, 10, units).unwrap();
        assert!(write_over(&volume, &mut model, (10, units), 4, &seen));
        assert_eq!((volume.usage().used, volume.check().unwrap()), (used, vec![]));
        volume.flush().unwrap();
        drop(volume);
        model.compare(&recovered(&device), 200 * PER, "recovered");
    }
}

/// A device with a volume of so many segments of so many units.
fn device_of(segments: u64, segment: u64) -> MemoryDevice {
    let len = 2 * 65_536 + segments * segment * UNIT;
    let device = MemoryDevice::new("memory", len, Limits::of_blocks(512)).unwrap();
    let (uuid, arrangement) = (*b"a volume to test", Arrangement::Striped);
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(segment) };
    create(&[Arc::new(device.as_other())], &new).unwrap();
    device
}

/// Something that is done with a volume.
type Change = fn(&TestVolume, &mut Model);

#[test]
fn what_has_changed_since_is_not_written_over() {
    let changes: [Change; 10] = [
        |volume, model| trim_units(volume, model, 0, 200),
        |volume, model| trim_units(volume, model, 30, 1),
        |volume, model| trim_units(volume, model, 20, 1),
        |volume, model| trim_units(volume, model, 39, 100),
        |volume, model| {
            trim_units(volume, model, 25, 3);
            write(volume, model, 25, 3, 7);
        },
        |volume, model| write(volume, model, 20, 1, 7),
        |volume, model| write(volume, model, 39, 1, 7),
        |volume, model| {
            let part = model.write(30 * PER + 3, 2, 7);
            volume.write(30 * PER + 3, &part).unwrap();
        },
        |volume, model| move_units(volume, model, 30, 1000, 2),
        |volume, model| move_units(volume, model, 100, 38, 4),
    ];
    for (index, change) in changes.iter().enumerate() {
        let volume = recovered(&device(64));
        let mut model = Model::default();
        write(&volume, &mut model, 0, 120, 1);
        let seen = look(&volume, 20, 20).unwrap();
        change(&volume, &mut model);
        assert!(!write_over(&volume, &mut model, (20, 20), 8, &seen), "change {index}");
        model.compare(&volume, 1100 * PER, "changed");
        assert_eq!(volume.check().unwrap(), []);
    }
    // What else is done is no matter.
    let others: [Change; 5] = [
        |volume, model| trim_units(volume, model, 0, 20),
        |volume, model| write(volume, model, 40, 70, 7),
        |volume, model| write(volume, model, 120, 1, 7),
        |volume, _| {
            volume.flush().unwrap();
            volume.checkpoint().unwrap();
        },
        // Each unit has what it had.
        |volume, model| {
            move_units(volume, model, 25, 1000, 3);
            move_units(volume, model, 1000, 25, 3);
        },
    ];
    let volume = recovered(&device(64));
    let mut model = Model::default();
    write(&volume, &mut model, 0, 120, 1);
    for (index, other) in others.iter().enumerate() {
        let seen = look(&volume, 20, 20).unwrap();
        other(&volume, &mut model);
        assert!(write_over(&volume, &mut model, (20, 20), 8, &seen), "other {index}");
        model.compare(&volume, 1100 * PER, "other");
    }
}

fn trim_units(volume: &TestVolume, model: &mut Model, unit: u64, units: u64) {
    volume.trim(unit * PER, units * PER).unwrap();
    model.trim(unit * PER, units * PER);
}

fn move_units(volume: &TestVolume, model: &mut Model, from: u64, to: u64, units: u64) {
    volume.move_blocks(from * PER, to * PER, units * PER).unwrap();
    model.move_blocks(from * PER, to * PER, units * PER);
}

/// Only whole units, all of them there, in few pieces, and as many as are written together.
#[test]
fn what_can_be_seen_to_be_written_over() {
    let volume = recovered(&device_of(40, 1024));
    let mut model = Model::default();
    // No two that follow each other do so on the device.
    let units = (0..80).step_by(2).chain((1..80).step_by(2));
    units.for_each(|unit| write(&volume, &mut model, unit, 1, 1));
    for (unit, units, is_seen) in [(0, 64, true), (16, 64, true), (0, 65, false), (0, 80, false)] {
        let seen = look(&volume, unit, units);
        assert_eq!(seen.is_some(), is_seen, "{units} from {unit}");
        if let Some(seen) = seen {
            let mut copy = model.clone();
            assert!(write_over(&volume, &mut copy, (unit, units), 2, &seen));
            // As it was, in as many pieces.
            let mut back =
                (unit..unit + units).step_by(2).chain((unit + 1..unit + units).step_by(2));
            back.by_ref().for_each(|unit| write(&volume, &mut model, unit, 1, 1));
        }
    }
    for (block, count) in [(79 * PER, 2 * PER), (80 * PER, PER), (5000, PER), (0, 0), (4, PER)] {
        assert!(volume.look_where(block, count).unwrap().is_none(), "{count} from {block}");
    }
    assert!(volume.look_where(8, 12).unwrap().is_none());
    assert!(matches!(volume.look_where(u64::MAX - 7, 8), Err(Error::Range { .. })));
    // A hole within.
    trim_units(&volume, &mut model, 7, 1);
    assert!(look(&volume, 5, 4).is_none() && look(&volume, 5, 2).is_some());
    // Long ones.
    const LONG: u64 = 2048;
    write(&volume, &mut model, 1000, LONG + 1, 1);
    assert!(look(&volume, 1000, LONG + 1).is_none());
    let seen = look(&volume, 1001, LONG).unwrap();
    assert!(write_over(&volume, &mut model, (1001, LONG), 2, &seen));
    // Nothing but what was seen.
    let seen = look(&volume, 1000, 4).unwrap();
    let bytes = vec![7; 5 * UNIT as usize];
    for (block, units) in [(8000, 5), (8000, 3), (8008, 4), (7992, 4), (8008, 3), (8004, 4)] {
        let written = volume.write_over(block, &bytes[..units * UNIT as usize], &seen);
        let what = "only what was seen can be written over";
        assert!(matches!(written, Err(Error::Range { what: found, .. }) if found == what));
    }
    model.compare(&volume, (1002 + LONG) * PER, "seen");
}

/// A range that is being trimmed is nowhere at once, and so for those who saw it.
#[test]
fn what_is_being_trimmed_is_not_written_over() {
    const UNITS: u64 = 2000;
    let volume = recovered(&device(300));
    let mut model = Model::default();
    for unit in (0..UNITS).step_by(2).chain((1..UNITS).step_by(2)) {
        write(&volume, &mut model, unit, 1, 1);
    }
    let seen = [10, 1000, 1990].map(|unit| (unit, look(&volume, unit, 8).unwrap()));
    trim_units(&volume, &mut model, 0, UNITS - 5);
    for (unit, seen) in &seen {
        assert!(!write_over(&volume, &mut model, (*unit, 8), 2, seen), "{unit}");
        assert!(look(&volume, *unit, 8).is_none());
    }
    assert!(volume.trim_some().unwrap(), "all of it was trimmed at once");
    model.compare(&volume, UNITS * PER, "being trimmed");
}

/// The segments of what others write over and over are cleaned, and what is seldom written moves.
#[test]
fn what_cleaning_has_moved_is_not_written_over_before_it_is_seen_again() {
    const COLD: u64 = 300;
    let volume = recovered(&device(64));
    let mut model = Model::default();
    let mut rng = Rng::new(7);
    // Both in each segment.
    for unit in 0..COLD {
        write(&volume, &mut model, unit, 1, 1);
        write(&volume, &mut model, 1000 + unit, 1, 1);
    }
    let (mut moved, mut stayed) = (0, 0);
    for round in 2..6 {
        let seen: Vec<Seen> = (0..COLD).map(|unit| look(&volume, unit, 1).unwrap()).collect();
        for _ in 0..300 {
            write(&volume, &mut model, 1000 + rng.below(COLD), 1, round);
        }
        for (unit, seen) in (0..).zip(&seen).step_by(3) {
            if write_over(&volume, &mut model, (unit, 1), round, seen) {
                stayed += 1;
                continue;
            }
            moved += 1;
            // It may be moved once more by who makes space for this.
            let mut tries = (0..5).map(|_| look(&volume, unit, 1).unwrap());
            assert!(tries.any(|seen| write_over(&volume, &mut model, (unit, 1), round, &seen)));
        }
        model.compare(&volume, (1000 + COLD) * PER, "cleaned");
    }
    assert!(volume.info().unwrap().written.copied > 0);
    assert!(moved > 10 && stayed > 10, "{moved} were moved, {stayed} stayed");
    assert_eq!(volume.check().unwrap(), []);
}

/// A segment is begun anew, and the unit is written to the very place where it was.
#[test]
fn what_comes_back_to_its_place_is_not_what_was_seen() {
    let volume = recovered(&device(64));
    let mut model = Model::default();
    write(&volume, &mut model, 0, 1, 0);
    let (mut all, mut came_back) = (Vec::new(), 0);
    for round in 1..60 {
        for number in 0..70 {
            all.push(look(&volume, 0, 1).unwrap());
            write(&volume, &mut model, 0, 1, 100 * round + number);
            volume.flush().unwrap();
        }
        let place = |seen: &Seen| {
            let told = format!("{seen:?}");
            told.split_once("Some((").unwrap().1.split_once(',').unwrap().0.to_owned()
        };
        let now = place(&look(&volume, 0, 1).unwrap());
        for seen in all.iter().filter(|seen| place(seen) == now) {
            came_back += 1;
            assert!(!write_over(&volume, &mut model, (0, 1), 9, seen), "round {round}");
        }
    }
    assert!(came_back > 0);
    model.compare(&volume, PER, "written");
}

/// Also one who has another volume with the same index.
#[test]
fn who_comes_in_between_wins() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    let mut model = Model::default();
    write(&volume, &mut model, 0, 100, 1);
    // While what is to be there is being written.
    let seen = look(&volume, 10, 40).unwrap();
    let mut late = model.clone();
    let bytes = model.write(30 * PER, PER, 3);
    let others = Arc::clone(&other);
    meanwhile.in_next(Work::Write, 0, move || {
        let seen = look(&others, 30, 1).unwrap();
        assert!(others.write_over(30 * PER, &bytes, &seen).unwrap());
    });
    assert!(!write_over(&volume, &mut late, (10, 40), 2, &seen));
    assert!(meanwhile.is_done());
    model.compare(&volume, 110 * PER, "written over meanwhile");
    let seen = look(&volume, 10, 40).unwrap();
    let others = Arc::clone(&other);
    meanwhile.in_next(Work::Write, 0, move || others.trim(40 * PER, PER).unwrap());
    assert!(!write_over(&volume, &mut late, (10, 40), 2, &seen));
    model.trim(40 * PER, PER);
    model.compare(&other, 110 * PER, "trimmed meanwhile");
    assert_eq!(volume.check().unwrap(), []);
}

/// Several count what they write: as many as were done.
#[test]
fn of_those_who_write_over_the_same_at_once_one_does() {
    let device = device(64);
    let (_, volume, other) = two(&device);
    let volume = Arc::new(volume);
    volume.write(0, &[0; 2 * UNIT as usize]).unwrap();
    let count = |volume: &TestVolume| -> u64 {
        let mut bytes = vec![0; 2 * UNIT as usize];
        volume.read(0, &mut bytes).unwrap();
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    };
    let count_up = |volume: &TestVolume| -> u64 {
        let tries = (0..1500).filter(|_| {
            let seen = volume.look_where(0, 2 * PER).unwrap().unwrap();
            let next = (count(volume) + 1).to_le_bytes();
            let bytes: Vec<u8> = next.iter().copied().cycle().take(2 * UNIT as usize).collect();
            volume.write_over(0, &bytes, &seen).unwrap()
        });
        tries.count() as u64
    };
    let all: u64 = thread::scope(|scope| {
        let those = [&volume, &volume, &other].map(|volume| scope.spawn(|| count_up(volume)));
        those.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(all >= 1500, "{all}");
    assert_eq!((count(&volume), count(&other)), (all, all));
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn what_is_written_over_is_kept_if_that_is_wanted() {
    let mut place = Place::new(1, 64);
    place.options = OpenOptions { cache: 8 << 20, ..place.options.clone() };
    let volume = place.open().unwrap();
    let bytes = |value: u8| vec![value; 40 * UNIT as usize];
    volume.write(0, &bytes(1)).unwrap();
    let seen = volume.look_where(0, 40 * PER).unwrap().unwrap();
    assert!(volume.write_over_to_keep(0, &bytes(2), &seen).unwrap());
    assert!(!volume.write_over_to_keep(0, &bytes(3), &seen).unwrap());
    volume.flush().unwrap();
    // What the device has is no matter then.
    let all = std::fs::read(&place.paths[0]).unwrap();
    let damaged: Vec<u8> = all.iter().map(|byte| if *byte == 2 { 9 } else { *byte }).collect();
    std::fs::write(&place.paths[0], damaged).unwrap();
    let mut found = bytes(0);
    volume.read(0, &mut found).unwrap();
    assert!(found == bytes(2));
    std::fs::write(&place.paths[0], all).unwrap();
    volume.close().unwrap();
}
