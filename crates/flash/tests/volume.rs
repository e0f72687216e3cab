//! A volume against a model: what is written is read, before and after restarts.
#![allow(clippy::unwrap_used, clippy::panic)]

mod volumes;

use conquest_flash::Error;
use conquest_testkit::Rng;
use volumes::{Model, TestVolume, device, recovered};

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
