//! A volume against a model: what is written is read, before and after restarts.
#![allow(clippy::unwrap_used, clippy::panic)]

mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Error, Finding, NewVolume, assemble, create};
use conquest_format::volume::{Arrangement, Bind, Root};
use conquest_testkit::Rng;
use conquest_testkit::flash::{Event, Medium, Recorder};
use volumes::{Model, TestVolume, UNIT, device, recovered};

/// Blocks of the space that tests use.
const SPACE: u64 = 8 * 16 * 30;

fn step(volume: &TestVolume, model: &mut Model, rng: &mut Rng, number: u64) {
    let block = rng.below(SPACE);
    let most = match rng.below(10) {
        0 => 400,
        1..=3 => 64,
        _ => 9,
    };
    let count = (1 + rng.below(most)).min(SPACE - block);
    match rng.below(20) {
        0..=1 => {
            // Often more than is trimmed at once.
            let count = if rng.chance(1, 3) { rng.below(SPACE) } else { count };
            let count = count.min(SPACE - block);
            volume.trim(block, count).unwrap();
            model.trim(block, count);
        }
        2 => {
            let other = rng.below(SPACE);
            let len = (1 + rng.below(16)).min(SPACE - other);
            if block + count <= other || other + len <= block {
                let first = model.write(block, count, number);
                let second = model.write(other, len, number);
                volume.write_atomic(&[(block, &first), (other, &second)]).unwrap();
            }
        }
        3 => {
            let (from, to) = (block / 8 * 8, rng.below(SPACE) / 8 * 8);
            let count = (count.next_multiple_of(8)).min(SPACE - from.max(to)) / 8 * 8;
            if from + count <= to || to + count <= from {
                volume.move_blocks(from, to, count).unwrap();
                model.move_blocks(from, to, count);
            } else {
                let refused = volume.move_blocks(from, to, count).unwrap_err();
                assert!(matches!(refused, Error::Range { .. }), "{refused}");
            }
        }
        4 => volume.flush().unwrap(),
        5..=6 => {
            let mut bytes = vec![0; (count * 512) as usize];
            volume.read(block, &mut bytes).unwrap();
            assert!(bytes == model.read(block, count), "operation {number}, block {block}");
        }
        7..=13 => {
            let block = block / 8 * 8;
            let bytes = model.write(block, 8, number);
            volume.write(block, &bytes).unwrap();
        }
        _ => {
            let bytes = model.write(block, count, number);
            volume.write(block, &bytes).unwrap();
        }
    }
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let device = device(64);
        let mut volume = recovered(&device);
        let mut model = Model::default();
        for number in 0..4000 {
            step(&volume, &mut model, &mut rng, number);
            if rng.below(400) == 0 {
                volume.flush().unwrap();
                drop(volume);
                volume = recovered(&device);
                model.compare(&volume, SPACE, &format!("seed {seed}, operation {number}"));
            }
        }
        model.compare(&volume, SPACE, &format!("seed {seed}, the end"));
    }
}

/// All blocks that tests use.
fn whole(volume: &TestVolume) -> Vec<u8> {
    let mut bytes = vec![0; (SPACE * 512) as usize];
    volume.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_was_flushed_survives_one_restart_after_the_other() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let device = device(64);
        let mut volume = recovered(&device);
        let mut model = Model::default();
        for round in 0..60 {
            // What may be there after a restart: what was flushed, and one operation more each.
            let mut possible = vec![model.clone()];
            for number in 0..rng.below(30) {
                let block = rng.below(SPACE - 240) / 8 * 8;
                // Most have room of their own, and no packet that names it is written for long.
                let count = if rng.chance(1, 4) { 8 } else { 8 * (17 + rng.below(13)) };
                if rng.chance(1, 6) {
                    volume.trim(block, count).unwrap();
                    model.trim(block, count);
                } else {
                    let bytes = model.write(block, count, round << 16 | number);
                    volume.write(block, &bytes).unwrap();
                }
                possible.push(model.clone());
                if rng.chance(1, 12) {
                    volume.flush().unwrap();
                    possible = vec![model.clone()];
                }
            }
            drop(volume);
            volume = recovered(&device);
            let found = whole(&volume);
            let which = possible.iter().rposition(|model| model.read(0, SPACE) == found);
            let which = which.unwrap_or_else(|| panic!("seed {seed}, round {round}"));
            model = possible.swap_remove(which);
        }
    }
}

#[test]
fn a_life_whose_root_is_lost_does_not_come_back() {
    let device = device(64);
    let write = |volume: &TestVolume, model: &mut Model, unit: u64, number: u64| {
        let bytes = model.write(unit * 8, 8, number);
        volume.write(unit * 8, &bytes).unwrap();
        volume.flush().unwrap();
    };
    let mut model = Model::default();
    write(&recovered(&device), &mut model, 0, 1);
    let lost = recovered(&device);
    (1..8).for_each(|unit| write(&lost, &mut model.clone(), unit, 2));
    drop(lost);
    // Both copies of the third root: it began the life that is lost with it.
    for place in [3, 32 + 3] {
        device.write(65536 + place * UNIT, &[0; UNIT as usize]).unwrap();
    }
    let volume = recovered(&device);
    model.compare(&volume, 64, "its root is lost");
    write(&volume, &mut model, 1, 3);
    drop(volume);
    model.compare(&recovered(&device), 64, "the next one");
}

/// Where the copies of the newest root are.
fn newest_roots(device: &dyn Device) -> Vec<u64> {
    let bind = Bind::new(*b"a volume to test");
    let mut unit = [0; UNIT as usize];
    let roots = (0..64).map(|place| 65536 + place * UNIT).filter_map(|at| {
        device.read(at, &mut unit).unwrap();
        Some((Root::from_unit(bind, &unit)?.sequence, at))
    });
    let roots: Vec<(u64, u64)> = roots.collect();
    let newest = roots.iter().map(|(sequence, _)| *sequence).max();
    roots.iter().filter(|(sequence, _)| Some(*sequence) == newest).map(|(_, at)| *at).collect()
}

#[test]
fn one_copy_of_the_newest_root_is_enough() {
    let device = device(64);
    let mut model = Model::default();
    for round in 0..80 {
        let places = newest_roots(&device);
        assert_eq!(places.len(), 2, "round {round}: {places:?}");
        let lost = places[round as usize / 3 % 2];
        device.write(lost, &[round as u8; UNIT as usize]).unwrap();
        let volume = recovered(&device);
        model.compare(&volume, 20 * 8, "one is lost");
        let bytes = model.write(round % 20 * 8, 8, round);
        volume.write(round % 20 * 8, &bytes).unwrap();
        volume.flush().unwrap();
    }
}

#[test]
fn what_is_moved_to_and_fro_takes_no_more_memory() {
    let device = device(64);
    let volume = recovered(&device);
    let mut model = Model::default();
    let bytes = model.write(0, 64, 1);
    volume.write(0, &bytes).unwrap();
    let mut most = 0;
    for round in 0..20_000 {
        let (from, to) = if round % 2 == 0 { (0, 800) } else { (800, 0) };
        volume.move_blocks(from, to, 64).unwrap();
        model.move_blocks(from, to, 64);
        if round == 1000 {
            most = volume.memory_in_use();
        }
    }
    assert!(volume.memory_in_use() <= most + (64 << 10), "{most}");
    model.compare(&volume, 1000, "moved");
    // Cleaning still knows where all of it is.
    for number in 0..3000 {
        let bytes = model.write(1600 + number % 40 * 8, 8, number);
        volume.write(1600 + number % 40 * 8, &bytes).unwrap();
    }
    model.compare(&volume, 2000, "cleaned");
}

/// Units that `log` writes, but for roots.
fn units_written(log: &[Event]) -> u64 {
    let units = log.iter().map(|event| match event {
        Event::Write { at, bytes, .. } if *at >= 65536 + 64 * UNIT => bytes.len() as u64 / UNIT,
        _ => 0,
    });
    units.sum()
}

#[test]
fn what_is_written_is_counted() {
    let recorder = Recorder::new(Medium::new(66 << 16), true).unwrap();
    let device: Arc<dyn Device> = Arc::new(recorder.as_other());
    let new = NewVolume {
        uuid: *b"a volume to test",
        created: 1,
        arrangement: Arrangement::Striped,
        segment: Some(16),
    };
    create(std::slice::from_ref(&device), &new).unwrap();
    let body = assemble(vec![device]).unwrap();
    let volume = TestVolume::recover(volumes::region(&body), &body).unwrap();
    drop(recorder.take_log());
    let mut model = Model::default();
    let mut rng = Rng::new(3);
    let mut asked = 0;
    for number in 0..3000 {
        let count = if rng.chance(1, 8) { 20 } else { 1 };
        let block = rng.below(400) * 8;
        let bytes = model.write(block, count * 8, number);
        volume.write(block, &bytes).unwrap();
        asked += count;
        if rng.chance(1, 300) {
            volume.checkpoint().unwrap();
        }
    }
    volume.flush().unwrap();
    let written = volume.info().unwrap().written;
    assert_eq!(written.asked, asked);
    assert!(written.copied > 0 && written.checkpoints > 0 && written.placed > 0, "{written:?}");
    assert_eq!(written.all(), units_written(&recorder.take_log()), "{written:?}");
}

/// Devices that are not erased see to their wear themselves.
#[test]
fn what_stays_is_not_copied_so_that_all_places_wear_out_alike() {
    let volume = recovered(&device(100));
    let segments = vec![7; 20 * 16 * UNIT as usize];
    volume.write(0, &segments).unwrap();
    for _ in 0..40 {
        volume.write(10_000, &segments).unwrap();
    }
    assert_eq!(volume.info().unwrap().written.copied, 0);
}

/// Fills the volume from block 0 on until it refuses: the number of units.
fn fill(volume: &TestVolume, model: &mut Model) -> u64 {
    for unit in 0.. {
        let mut next = model.clone();
        let bytes = next.write(unit * 8, 8, unit);
        match volume.write(unit * 8, &bytes) {
            Ok(()) => *model = next,
            Err(error) => {
                let expected = format!("memory: no space left: {unit} of {unit} units are in use");
                assert!(error.to_string().starts_with(&expected), "{error}");
                return unit;
            }
        }
    }
    0
}

#[test]
fn a_full_volume_can_be_overwritten() {
    let device = device(100);
    let mut volume = recovered(&device);
    let mut model = Model::default();
    let units = fill(&volume, &mut model);
    assert!(units > 100 * 16 / 2, "{units} units");
    let mut rng = Rng::new(1);
    for number in units..units + 5000 {
        let unit = rng.below(units);
        let bytes = model.write(unit * 8, 8, number);
        volume.write(unit * 8, &bytes).unwrap();
        if number.is_multiple_of(1000) {
            volume.flush().unwrap();
            drop(volume);
            volume = recovered(&device);
        }
    }
    model.compare(&volume, units * 8, "full");
    let refused = volume.write(units * 8, &[1; 4096]).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    // A range of which half is there needs space for the other half only, and there is none.
    let refused = volume.write(units * 8 - 8, &[1; 8192]).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    model.compare(&volume, units * 8 + 16, "refused");
    volume.trim(0, 8 * 8).unwrap();
    model.trim(0, 8 * 8);
    let bytes = model.write(units * 8, 8 * 8, 1);
    volume.write(units * 8, &bytes).unwrap();
    assert!(volume.write(units * 16, &[1; 4096]).is_err());
    model.compare(&volume, units * 8 + 64, "trimmed");
}

#[test]
fn a_keeper_makes_space_before_others_have_to() {
    let device = device(256);
    let volume = recovered(&device);
    let mut model = Model::default();
    let units = fill(&volume, &mut model);
    volume.flush().unwrap();
    let overwrite = |model: &mut Model, rng: &mut Rng, number: u64, units: u64| {
        let unit = rng.below(units);
        let bytes = model.write(unit * 8, 8, number);
        volume.write(unit * 8, &bytes).unwrap();
    };
    let mut rng = Rng::new(1);
    volume.with_keeper(|| {
        // Another one ends at once, and what it was for is done.
        volume.with_keeper(|| overwrite(&mut model, &mut rng, 1, units));
        for number in 0..2 * units {
            overwrite(&mut model, &mut rng, number, units);
            if number.is_multiple_of(200) {
                volume.flush().unwrap();
            }
        }
    });
    model.compare(&volume, units * 8, "kept");
    // Without it, too.
    (0..units).for_each(|number| overwrite(&mut model, &mut rng, number, units));
    volume.flush().unwrap();
    drop(volume);
    model.compare(&recovered(&device), units * 8, "a restart");
}

#[test]
fn what_is_not_flushed_is_there_while_anybody_is() {
    let device = device(64);
    let body = volumes::body(&device);
    let region = volumes::region_file(&body);
    let first = volumes::join(&device, &region, true);
    let second = volumes::join(&device, &region, false);
    let mut model = Model::default();
    let bytes = model.write(16, 8, 1);
    first.write(16, &bytes).unwrap();
    drop(first);
    model.compare(&second, 64, "the other one");
    let bytes = model.write(32, 8, 2);
    second.write(32, &bytes).unwrap();
    drop(second);
    // Nobody is there for a while, but the machine goes on.
    let third = volumes::join(&device, &region, false);
    model.compare(&third, 64, "the third");
}

#[test]
fn nobody_makes_an_index_beside_another_one_or_joins_one_that_is_not_made() {
    let device = device(64);
    let volume = recovered(&device);
    let mut model = Model::default();
    volume.write(0, &model.write(0, 8, 1)).unwrap();
    let body = volumes::body(&device);
    let error = TestVolume::recover(volumes::region(&body), &body).err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    let error = TestVolume::join(volumes::region(&body), &body).err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    volume.flush().unwrap();
    drop(volume);
    model.compare(&recovered(&device), 64, "a restart");
}

#[test]
fn processes_that_are_gone_take_no_memory() {
    let device = device(64);
    let region = volumes::region_file(&volumes::body(&device));
    let first = volumes::join(&device, &region, true);
    let mut most = 0;
    for round in 0..60 {
        let other = volumes::join(&device, &region, false);
        other.write(0, &[round; 20 * UNIT as usize]).unwrap();
        other.flush().unwrap();
        drop(other);
        if round == 20 {
            most = first.memory_in_use();
        }
    }
    assert!(first.memory_in_use() <= most + (64 << 10), "{most}, {}", first.memory_in_use());
}

#[test]
fn threads_and_processes_write_at_once() {
    let device = device(200);
    let body = volumes::body(&device);
    let region = volumes::region_file(&body);
    let first = volumes::join(&device, &region, true);
    let second = volumes::join(&device, &region, false);
    let each = SPACE / 4;
    let models: Vec<Model> = std::thread::scope(|scope| {
        let threads = (0..4).map(|thread| {
            let volume = if thread % 2 == 0 { &first } else { &second };
            scope.spawn(move || {
                let mut model = Model::default();
                let mut rng = Rng::new(thread);
                for number in 0..3000 {
                    let block = thread * each + rng.below(each - 40);
                    let count = 1 + rng.below(40);
                    match rng.below(16) {
                        0 => volume.flush().unwrap(),
                        1..=2 => {
                            volume.trim(block, count).unwrap();
                            model.trim(block, count);
                        }
                        3..=5 => {
                            let mut bytes = vec![0; (count * 512) as usize];
                            volume.read(block, &mut bytes).unwrap();
                            assert!(bytes == model.read(block, count), "{thread}: {number}");
                        }
                        _ => {
                            let bytes = model.write(block, count, number);
                            volume.write(block, &bytes).unwrap();
                        }
                    }
                }
                model
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut all = Model::default();
    models.into_iter().for_each(|model| all.0.extend(model.0));
    all.compare(&first, SPACE, "the first");
    all.compare(&second, SPACE, "the second");
    first.flush().unwrap();
    drop((first, second));
    all.compare(&recovered(&device), SPACE, "recovered");
}

#[test]
fn cleaning_passes_over_what_cannot_be_read_and_says_so() {
    let device = device(100);
    let volume = recovered(&device);
    let mut model = Model::default();
    let units = fill(&volume, &mut model);
    volume.flush().unwrap();
    // What follows each other in the space does so on the device: several of a segment are damaged,
    // and one of another one.
    let damaged = [0, 1, 2, 3, 4, 40].map(|unit| units / 2 + unit);
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    for unit in damaged {
        let wanted = model.read(unit * 8, 8);
        let at = bytes.chunks(4096).position(|found| found == wanted).unwrap() * 4096;
        device.write(at as u64, &[0xA5; 512]).unwrap();
    }
    let mut rng = Rng::new(1);
    let is_damaged = |unit| damaged.contains(&unit);
    for number in units..units + 8000 {
        let unit = rng.below(units);
        if is_damaged(unit) {
            continue;
        }
        let bytes = model.write(unit * 8, 8, number);
        volume.write(unit * 8, &bytes).unwrap();
    }
    assert_eq!(volume.info().unwrap().unreadable, damaged.len() as u64);
    let mut bytes = vec![0; 4096];
    for unit in 0..units {
        match volume.read(unit * 8, &mut bytes) {
            Ok(()) => assert!(!is_damaged(unit) && bytes == model.read(unit * 8, 8), "{unit}"),
            Err(Error::Damaged { block, .. }) => assert!(is_damaged(block / 8), "{block}"),
            Err(error) => panic!("{error}"),
        }
    }
    // What is written anew is whole again, and its segments can be used.
    for unit in damaged {
        let bytes = model.write(unit * 8, 8, 1);
        volume.write(unit * 8, &bytes).unwrap();
    }
    assert_eq!(volume.info().unwrap().unreadable, 0);
    model.compare(&volume, units * 8, "written anew");
}

/// It is passed over, and what is cleaned next can be.
#[test]
fn where_nothing_can_be_read_of_what_is_cleaned_first_there_is_space_still() {
    let device = device(100);
    let volume = recovered(&device);
    let mut model = Model::default();
    let units = fill(&volume, &mut model);
    volume.flush().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    // Half of some segments is damaged, and the other half dies first.
    for unit in (1..150).step_by(2) {
        let wanted = model.read(unit * 8, 8);
        let at = bytes.chunks(4096).position(|found| found == wanted).unwrap() * 4096;
        device.write(at as u64, &[0xA5; 512]).unwrap();
    }
    let mut rng = Rng::new(5);
    let others = (0..2000).map(|_| 150 + rng.below(units - 150));
    for unit in (0..150).step_by(2).chain(others) {
        volume.write(unit * 8, &model.write(unit * 8, 8, units)).unwrap();
    }
    assert_eq!(volume.info().unwrap().unreadable, 75);
}

#[test]
fn who_finds_no_space_because_of_what_cannot_be_read_is_told_so() {
    let device = device(100);
    let volume = recovered(&device);
    let mut model = Model::default();
    let units = fill(&volume, &mut model);
    volume.flush().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    let places: BTreeMap<&[u8], u64> = bytes.chunks(UNIT as usize).zip(0..).collect();
    let is_damaged = |unit: u64| unit.is_multiple_of(8);
    for unit in (0..units).filter(|unit| is_damaged(*unit)) {
        device.write(places[model.read(unit * 8, 8).as_slice()] * UNIT, &[0xA5; 512]).unwrap();
    }
    let mut rng = Rng::new(1);
    let wanted = (0..8000).map(|_| rng.below(units)).filter(|unit| !is_damaged(*unit));
    let mut outcomes = wanted.map(|unit| volume.write(unit * 8, &[1; UNIT as usize]));
    let error = outcomes.find_map(Result::err).unwrap();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// A checkpoint makes one range of what was several, and so do names that are made of it.
#[test]
fn ranges_that_are_longer_than_what_is_copied_at_once_are_copied() {
    const SEGMENT: u64 = 1024;
    let (stays, changes) = (vec![1; 700 * UNIT as usize], vec![2; 324 * UNIT as usize]);
    let device =
        MemoryDevice::new("memory", 2 * 65_536 + 48 * SEGMENT * UNIT, Limits::of_blocks(512));
    let (device, uuid) = (device.unwrap(), *b"a volume to test");
    let arrangement = Arrangement::Striped;
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(SEGMENT) };
    create(&[Arc::new(device.as_other())], &new).unwrap();
    let volume = recovered(&device);
    for number in 0..24 {
        volume.write(number * SEGMENT * 8, &stays).unwrap();
        volume.write((number * SEGMENT + 700) * 8, &changes).unwrap();
    }
    volume.checkpoint().unwrap();
    drop(volume);
    let volume = recovered(&device);
    for number in 0..4 * 24 {
        volume.write((number % 24 * SEGMENT + 700) * 8, &changes).unwrap();
    }
    assert!(volume.info().unwrap().written.copied >= 700);
}

/// Segments keep what can't be copied, while much of them is copied at once.
#[test]
fn what_stays_in_segments_that_are_cleaned_is_counted() {
    const UNITS: u64 = 2200;
    let len = 2 * 65_536 + 64 * 64 * UNIT;
    let device = MemoryDevice::new("memory", len, Limits::of_blocks(512)).unwrap();
    let (uuid, arrangement) = (*b"a volume to test", Arrangement::Striped);
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(64) };
    create(&[Arc::new(device.as_other())], &new).unwrap();
    let volume = recovered(&device);
    let mut model = Model::default();
    // So that what is copied is in many pieces.
    for unit in (0..UNITS).step_by(2).chain((1..UNITS).step_by(2)) {
        volume.write(unit * 8, &model.write(unit * 8, 8, unit)).unwrap();
    }
    volume.flush().unwrap();
    let is_damaged = |unit: u64| unit.is_multiple_of(250);
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    let places: BTreeMap<&[u8], u64> = bytes.chunks(UNIT as usize).zip(0..).collect();
    for unit in (0..UNITS).filter(|unit| is_damaged(*unit)) {
        device.write(places[model.read(unit * 8, 8).as_slice()] * UNIT, &[0xA5; 512]).unwrap();
    }
    let mut rng = Rng::new(2);
    for number in 0..2 * UNITS {
        let unit = rng.below(UNITS);
        if !is_damaged(unit) {
            volume.write(unit * 8, &model.write(unit * 8, 8, number)).unwrap();
        }
    }
    let found = volume.check().unwrap();
    let is_known =
        |finding: &Finding| finding.what == "what the map leads to" && is_damaged(finding.of);
    assert!(found.iter().all(is_known), "{found:?}");
}

#[test]
fn all_that_there_is_can_be_reserved_also_over_restarts() {
    let device = device(100);
    let mut volume = recovered(&device);
    let capacity = volume.info().unwrap().capacity;
    volume.reserve(capacity).unwrap();
    // Without a checkpoint, and with one.
    for _ in 0..2 {
        volume.flush().unwrap();
        drop(volume);
        volume = recovered(&device);
        assert_eq!(volume.info().unwrap().reserved, capacity);
        volume.checkpoint().unwrap();
    }
}

#[test]
fn what_is_reserved_is_there_for_those_who_write_with_it() {
    let device = device(100);
    let mut volume = recovered(&device);
    let mut model = Model::default();
    let capacity = volume.info().unwrap().capacity;
    let reserved = |volume: &TestVolume| volume.info().unwrap().reserved;
    volume.reserve(100).unwrap();
    assert!(matches!(volume.reserve(capacity - 99).unwrap_err(), Error::NoSpace { .. }));
    // All the rest is used up by others.
    for unit in 0..capacity - 100 {
        let bytes = model.write(unit * 8, 8, unit);
        volume.write(unit * 8, &bytes).unwrap();
    }
    let behind = capacity * 8;
    let refused = volume.write(behind, &[1; 4096]).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    // After a restart, with a checkpoint and without.
    for round in 0..2 {
        volume.flush().unwrap();
        drop(volume);
        volume = recovered(&device);
        assert_eq!(reserved(&volume), 100, "round {round}");
        volume.checkpoint().unwrap();
    }
    // Half of this is there already, and takes nothing.
    let bytes = model.write(behind - 60 * 8 - 100 * 8, 120 * 8, 1);
    volume.write_reserved(&[(behind - 60 * 8 - 100 * 8, &bytes)]).unwrap();
    assert_eq!(reserved(&volume), 40);
    // More than is reserved is refused, and takes nothing.
    let many = vec![1; 41 * 4096];
    let refused = volume.write_reserved(&[(behind, &many)]).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert_eq!(reserved(&volume), 40);
    volume.flush().unwrap();
    drop(volume);
    volume = recovered(&device);
    assert_eq!(reserved(&volume), 40);
    assert_eq!(volume.release(1000).unwrap(), 40);
    let bytes = model.write(behind, 40 * 8, 2);
    volume.write(behind, &bytes).unwrap();
    let refused = volume.reserve(1).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    model.compare(&volume, behind + 400, "at the end");
}
