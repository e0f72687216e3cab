//! Trims of much at once: nothing of it is seen from then on, however long it takes.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod volumes;

use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, Work};
use conquest_testkit::Rng;
use volumes::{Model, TestVolume, device, recovered};

/// Units that are written, each an extent of its own.
const UNITS: u64 = 5600;
/// Blocks of one, behind which the next one follows.
const STEP: u64 = 8;
const SPACE: u64 = UNITS * STEP;

fn written(volume: &TestVolume) -> Model {
    let mut model = Model::default();
    // So that no two that follow each other do so on the device.
    for unit in (0..UNITS).step_by(2).chain((1..UNITS).step_by(2)) {
        let bytes = model.write(unit * STEP, 8, 1);
        volume.write(unit * STEP, &bytes).unwrap();
    }
    volume.flush().unwrap();
    assert_eq!(volume.usage().used, UNITS);
    model
}

fn trim(volume: &TestVolume, model: &mut Model, units: std::ops::Range<u64>) {
    let (block, count) = (units.start * STEP, (units.end - units.start) * STEP);
    volume.trim(block, count).unwrap();
    model.trim(block, count);
}

/// Compares what is allocated, and what is read.
fn compare(volume: &TestVolume, model: &Model, context: &str) {
    model.compare(volume, SPACE, context);
    let (mut at, mut found) = (0, 0);
    while let Some((block, count)) = volume.allocated(at).unwrap() {
        let is_written = |block| model.0.contains_key(&block);
        assert!((block..block + count).all(is_written), "{context}: block {block}");
        (at, found) = (block + count, found + count);
    }
    assert_eq!(found, model.0.len() as u64, "{context}");
}

#[test]
fn ranges_of_all_kinds_are_gone_at_once() {
    let device = device(560);
    let mut volume = recovered(&device);
    let mut model = written(&volume);
    // Beside each other, across each other, within each other; what is written in between stays.
    for (start, end) in [(1000, 1500), (2000, 2500), (1500, 1700), (1900, 2000), (1800, 2600)] {
        trim(&volume, &mut model, start..end);
        compare(&volume, &model, &format!("{start} to {end}"));
        for (number, unit) in (2..).zip([start, start + 150, end - 1, 1600]) {
            let bytes = model.write(unit * STEP, 8, number);
            volume.write(unit * STEP, &bytes).unwrap();
        }
        compare(&volume, &model, &format!("{start} to {end}, written"));
    }
    trim(&volume, &mut model, 900..4900);
    (0..20).for_each(|_| trim(&volume, &mut model, 1000..4800));
    let bytes = model.write(2600 * STEP, 8, 9);
    volume.write(2600 * STEP, &bytes).unwrap();
    compare(&volume, &model, "all of it");
    // A checkpoint while it is not done yet, and a restart.
    assert!(volume.usage().used * 8 > model.0.len() as u64 + 8000, "it is done already");
    volume.checkpoint().unwrap();
    volume.flush().unwrap();
    drop(volume);
    volume = recovered(&device);
    compare(&volume, &model, "recovered");
    while volume.trim_some().unwrap() {}
    assert_eq!(volume.usage().used * 8, model.0.len() as u64);
}

/// More than the list takes.
#[test]
fn as_many_ranges_as_there_are_can_be_trimmed() {
    let device = device(560);
    let volume = recovered(&device);
    let mut model = written(&volume);
    for range in 0..80 {
        trim(&volume, &mut model, range * 70..range * 70 + 69);
    }
    compare(&volume, &model, "80 ranges");
    // What is written into ranges cuts them in two.
    let mut rng = Rng::new(1);
    for number in 2..60 {
        let unit = rng.below(UNITS);
        let bytes = model.write(unit * STEP, 8, number);
        volume.write(unit * STEP, &bytes).unwrap();
        if number % 8 == 0 {
            compare(&volume, &model, &format!("write {number}"));
        }
    }
    compare(&volume, &model, "cut");
    while volume.trim_some().unwrap() {}
    assert_eq!(volume.usage().used * 8, model.0.len() as u64);
    volume.flush().unwrap();
    drop(volume);
    compare(&recovered(&device), &model, "recovered");
}

#[test]
fn what_is_trimmed_while_it_is_copied_is_gone_and_no_space_is_missing() {
    const FILLED: u64 = 3000;
    let device = device(256);
    let (meanwhile, volume, other) = meanwhile::two(&device);
    let (mut model, mut rng) = (Model::default(), Rng::new(23));
    let write = |unit: u64, model: &mut Model| {
        volume.write(unit * STEP, &model.write(unit * STEP, 8, 1)).unwrap();
    };
    // So that each is an extent of its own.
    (0..FILLED).step_by(2).chain((1..FILLED).step_by(2)).for_each(|unit| write(unit, &mut model));
    // What is on the device when it is flushed after that.
    let (images, medium) = (Arc::new(Mutex::new(Vec::new())), device.as_other());
    let (again, seen) = (Arc::clone(&meanwhile), Arc::clone(&images));
    let image = Arc::new(move || {
        let mut bytes = vec![0; medium.len() as usize];
        medium.read(0, &mut bytes).unwrap();
        seen.lock().unwrap().push(bytes);
    });
    // Who writes whole units reads nothing but to make space.
    meanwhile.in_next(Work::Read, 0, move || {
        other.trim(0, FILLED * STEP).unwrap();
        other.flush().unwrap();
        for nth in 0..4 {
            let image = Arc::clone(&image);
            again.in_next(Work::Flush, nth, move || image());
        }
    });
    while images.lock().unwrap().is_empty() {
        model = Model::default();
        write(rng.below(FILLED), &mut model);
    }
    compare(&volume, &model, "trimmed");
    for bytes in images.lock().unwrap().iter() {
        let copy = volumes::device(256);
        copy.write(0, bytes).unwrap();
        let (mut at, copy) = (0, recovered(&copy));
        while let Some((block, count)) = copy.allocated(at).unwrap() {
            assert!((block..block + count).all(|block| model.0.contains_key(&block)), "{block}");
            at = block + count;
        }
    }
}
