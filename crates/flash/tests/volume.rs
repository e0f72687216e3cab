//! A volume against a model: what is written is read, before and after restarts.
#![allow(clippy::unwrap_used, clippy::panic)]

mod volumes;

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
        3 => volume.flush().unwrap(),
        4..=6 => {
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
