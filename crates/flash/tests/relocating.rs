//! By what names cleaning knows what is in a segment, and what becomes of copies.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod volumes;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use conquest_flash::device::{Limits, MemoryDevice, Work};
use conquest_flash::{NewVolume, create};
use conquest_format::volume::Arrangement;
use meanwhile::{open, watched};
use volumes::{Model, TestVolume, UNIT, device, recovered};

/// Free segments that users leave to others, in small volumes.
const LEFT: u64 = 8;

/// A device with a volume of so many segments of so many units.
fn device_of(segments: u64, segment: u64) -> MemoryDevice {
    let len = 2 * 65_536 + segments * segment * UNIT;
    let device = MemoryDevice::new("memory", len, Limits::of_blocks(512)).unwrap();
    let (uuid, arrangement) = (*b"a volume to test", Arrangement::Striped);
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(segment) };
    create(&[Arc::new(device.as_other())], &new).unwrap();
    device
}

fn write(volume: &TestVolume, model: &mut Model, unit: u64, units: u64, number: u64) {
    volume.write(unit * 8, &model.write(unit * 8, units * 8, number)).unwrap();
}

/// Moves a unit to and fro, so many times: each time its segment gets a name.
fn move_about(volume: &TestVolume, model: &mut Model, unit: u64, times: u64) {
    let mut places = [unit * 8, (unit + 100_000) * 8];
    for _ in 0..times {
        volume.move_blocks(places[0], places[1], 8).unwrap();
        model.move_blocks(places[0], places[1], 8);
        places.reverse();
    }
    assert!(times.is_multiple_of(2));
}

/// The first name is of four units, of which the last one is left. The second one is of one before
/// that.
#[test]
fn what_is_known_by_a_later_name_is_known_still_when_names_are_made_anew() {
    let volume = recovered(&device(64));
    let mut model = Model::default();
    write(&volume, &mut model, 0, 4, 1);
    volume.trim(0, 3 * 8).unwrap();
    model.trim(0, 3 * 8);
    write(&volume, &mut model, 1, 1, 2);
    write(&volume, &mut model, 100, 1, 3);
    for _ in 0..10 {
        move_about(&volume, &mut model, 100, 40);
        assert_eq!(volume.check().unwrap(), []);
    }
    model.compare(&volume, 101 * 8, "moved");
}

/// Of what is in several segments, as much is copied at once as there is memory for. What is next
/// has been looked at by then.
#[test]
fn what_is_copied_next_is_not_free_before_that_is_over() {
    const SEGMENT: u64 = 512;
    let device = device_of(64, SEGMENT);
    let volume = recovered(&device);
    let mut model = Model::default();
    (0..36).for_each(|number| write(&volume, &mut model, number * SEGMENT, SEGMENT, 1));
    volume.checkpoint().unwrap();
    drop(volume);
    // After a restart each of them is known by one name.
    let (meanwhile, stopped) = (watched(&device), watched(&device));
    let (volume, region) = open(Arc::clone(&meanwhile) as _, None);
    let (others, _) = open(Arc::clone(&stopped) as _, Some(&region));
    let (other, _) = open(Arc::new(device.as_other()), Some(&region));
    // What takes least is copied first. Beside that there is no room for one of the others.
    for (number, left) in (0..).zip([100, 450, 460]) {
        let (start, end) = (number * SEGMENT + left, (number + 1) * SEGMENT);
        volume.trim(start * 8, (end - start) * 8).unwrap();
        model.trim(start * 8, (end - start) * 8);
    }
    let free = |volume: &TestVolume| {
        // The second packet says that the first one is flushed.
        for _ in 0..2 {
            volume.write(1 << 20, &[3; UNIT as usize]).unwrap();
            volume.flush().unwrap();
        }
        volume.flush().unwrap();
        volume.info().unwrap().segments.free
    };
    let (again, (tell, told)) = (Arc::clone(&meanwhile), channel());
    thread::scope(|scope| {
        // Others have room in so many that cleaning has to begin, and are stopped.
        let (mut at, mut go_on) = (10 * SEGMENT, Vec::new());
        while let Some(more) = free(&other).checked_sub(LEFT).filter(|&more| more > 0) {
            let units = more.min(4) * SEGMENT;
            let (go, goes_on) = channel::<()>();
            let (stop, is_stopped) = channel();
            stopped.in_next(Work::Write, units / 256 - 1, move || {
                stop.send(()).unwrap();
                let _ = goes_on.recv();
            });
            let (volume, bytes) = (&others, model.write(at * 8, units * 8, 2));
            let start = at * 8;
            scope.spawn(move || volume.write(start, &bytes).unwrap());
            is_stopped.recv_timeout(Duration::from_secs(5)).unwrap();
            go_on.push(go);
            at += units;
        }
        // Who writes whole units reads nothing but to make space, and writes the copies then.
        meanwhile.in_next(Work::Read, 0, move || {
            again.in_next(Work::Write, 0, move || {
                let before = free(&other);
                other.trim(SEGMENT * 8, SEGMENT * 8).unwrap();
                while other.trim_some().unwrap() {}
                tell.send((before, free(&other))).unwrap();
                drop(go_on);
            });
        });
        write(&volume, &mut model, 36 * SEGMENT, 32, 1);
    });
    let (before, during) = told.recv().unwrap();
    assert!(during <= before, "{during} after {before}");
    model.trim(SEGMENT * 8, SEGMENT * 8);
    model.compare(&volume, 37 * SEGMENT * 8, "copied");
}

/// To begin a segment for the stream is one change with what leads there, whatever is left of it
/// when the names are gone.
#[test]
fn segments_are_begun_anew_however_many_names_they_had() {
    const SEGMENT: u64 = 4096;
    // Names in an object, and those of what fills a segment.
    const PER_OBJECT: u64 = 63;
    const OTHERS: u64 = SEGMENT / 33 * 2;
    // Until the stream goes on in another segment.
    let fill = |volume: &TestVolume, model: &mut Model| {
        (0..SEGMENT / 16).for_each(|number| write(volume, model, 1000, 16, number));
    };
    // Checkpoints take some, too: not always the same ones.
    for checkpoints in [2, 6] {
        let volume = recovered(&device_of(34, SEGMENT));
        let mut model = Model::default();
        for objects in [66, 67, 68, 69, 70, 71, 100] {
            write(&volume, &mut model, 0, 1, objects);
            move_about(&volume, &mut model, 0, (objects * PER_OBJECT - OTHERS) / 2 * 2);
            fill(&volume, &mut model);
        }
        volume.trim(0, 8).unwrap();
        model.trim(0, 8);
        (0..checkpoints).for_each(|_| volume.checkpoint().unwrap());
        for number in 0..24 {
            fill(&volume, &mut model);
            if number % 3 == 1 {
                volume.checkpoint().unwrap();
            }
        }
        model.compare(&volume, 1100 * 8, "all were begun anew");
        assert_eq!(volume.check().unwrap(), []);
    }
}

/// As many names of a segment are right are made in several steps.
#[test]
fn a_restart_makes_names_of_thousands_of_ranges_in_a_segment() {
    let device = device_of(34, 16_384);
    let volume = recovered(&device);
    let mut model = Model::default();
    (0..15_000).for_each(|unit| write(&volume, &mut model, unit * 2, 1, unit));
    volume.flush().unwrap();
    drop(volume);
    for context in ["by the stream", "by a checkpoint"] {
        let volume = recovered(&device);
        assert_eq!(volume.check().unwrap(), [], "{context}");
        model.compare(&volume, 30_000 * 8, context);
        volume.checkpoint().unwrap();
    }
}

/// There are more of those that go than are done with at once.
#[test]
fn tens_of_thousands_of_names_are_made_anew() {
    let volume = recovered(&device_of(34, 8192));
    let mut model = Model::default();
    write(&volume, &mut model, 0, 2, 1);
    move_about(&volume, &mut model, 0, 2 * 8192 + 200);
    assert_eq!(volume.check().unwrap(), []);
    model.compare(&volume, 16, "moved");
}
