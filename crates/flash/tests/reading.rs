//! Reading what is elsewhere by the time it is read, and what is damaged.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod volumes;

use std::sync::Arc;

use conquest_flash::device::{Device, Faults, Faulty, MemoryDevice, Work};
use conquest_flash::{Error, Job, Request};
use conquest_uring::Buffer;
use meanwhile::{open, two};
use volumes::{Model, TestVolume, UNIT, device};

fn write(volume: &TestVolume, model: &mut Model, block: u64, count: u64, number: u64) {
    let bytes = model.write(block, count, number);
    volume.write(block, &bytes).unwrap();
}

/// Damages whatever `device` has of the unit at `block` of `model`: how often that was there.
fn damage(device: &dyn Device, model: &Model, block: u64) -> usize {
    let (wanted, mut unit) = (model.read(block, 8), vec![0; UNIT as usize]);
    let places = (65_536..device.len()).step_by(UNIT as usize).filter(|at| {
        device.read(*at, &mut unit).unwrap();
        unit == wanted
    });
    let places: Vec<u64> = places.collect();
    places.iter().for_each(|at| device.write(*at, &[0xA5; UNIT as usize]).unwrap());
    places.len()
}

/// Reads as many blocks as `expected` has, in one of two ways.
fn read(volume: &TestVolume, block: u64, count: u64, is_queued: bool) -> Result<Vec<u8>, Error> {
    let mut found = vec![0xEE; (count * 512) as usize];
    if !is_queued {
        return volume.read(block, &mut found).map(|()| found);
    }
    let mut queue = volume.queue(4).unwrap();
    let job = Job::Read(Buffer::new(found.len()).unwrap());
    queue.submit(Request { tag: 3, block, job }).unwrap();
    let done = queue.wait(1).unwrap().pop().unwrap();
    let Job::Read(bytes) = done.job else { panic!("{:?}", done.job) };
    done.outcome.map(|()| bytes.to_vec())
}

/// By the time it is read a unit is somewhere else, twice, and where it was is something else.
#[test]
fn what_has_moved_meanwhile_is_read_where_it_is() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    for is_queued in [false, true] {
        let mut model = Model::default();
        write(&volume, &mut model, 0, 40 * 8, 1);
        volume.flush().unwrap();
        let mut models = vec![model];
        for nth in 0..2 {
            let before = models[nth as usize].clone();
            let mut model = before.clone();
            model.write(80, 8, 100 + nth);
            models.push(model);
            let (device, other) = (device.clone(), Arc::clone(&other));
            meanwhile.in_next(Work::Read, nth, move || {
                write(&other, &mut before.clone(), 80, 8, 100 + nth);
                other.flush().unwrap();
                assert!(damage(&device, &before, 80) > 0);
            });
        }
        let found = read(&volume, 80, 8, is_queued).unwrap();
        assert!(meanwhile.is_done());
        assert!(found == models[2].read(80, 8));
    }
}

/// Of a range that was in one piece some has gone elsewhere, and some is gone.
#[test]
fn what_is_in_more_pieces_by_now_is_read_from_all_of_them() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    for is_queued in [false, true] {
        let mut model = Model::default();
        // Past the stream.
        write(&volume, &mut model, 0, 20 * 8, 1);
        volume.flush().unwrap();
        let before = model.clone();
        let by_other = (device.clone(), Arc::clone(&other));
        meanwhile.in_next(Work::Read, 0, move || {
            let (device, other) = by_other;
            write(&other, &mut before.clone(), 40, 8, 2);
            other.trim(56, 8).unwrap();
            other.flush().unwrap();
            assert!([40, 56].iter().all(|block| damage(&device, &before, *block) > 0));
        });
        model.write(40, 8, 2);
        model.trim(56, 8);
        let found = read(&volume, 16, 80, is_queued).unwrap();
        assert!(meanwhile.is_done() && found == model.read(16, 80));
    }
}

#[test]
fn what_was_trimmed_meanwhile_reads_as_zeros() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    for is_queued in [false, true] {
        let mut model = Model::default();
        write(&volume, &mut model, 0, 20 * 8, 1);
        volume.flush().unwrap();
        let by_other = (device.clone(), Arc::clone(&other));
        meanwhile.in_next(Work::Read, 0, move || {
            let (device, other) = by_other;
            other.trim(0, 20 * 8).unwrap();
            assert!(damage(&device, &model, 40) > 0);
        });
        assert!(read(&volume, 40, 8, is_queued).unwrap().iter().all(|byte| *byte == 0));
        assert!(meanwhile.is_done());
    }
}

/// Units that follow each other in the space, each at another place, some of them nowhere.
fn scattered(volume: &TestVolume) -> Model {
    let mut model = Model::default();
    for unit in (0..30).rev().filter(|unit| unit % 7 != 3) {
        write(volume, &mut model, unit * 8, 8, unit);
    }
    model
}

#[test]
fn what_is_in_the_region_is_not_read_from_the_device() {
    let (inner, faults) = (device(64), Arc::new(Faults::default()));
    let outer = Faulty::new(inner, Arc::clone(&faults));
    let (volume, _) = open(Arc::new(outer), None);
    let model = scattered(&volume);
    let made = faults.made(Work::Read);
    for is_queued in [false, true] {
        assert!(read(&volume, 0, 240, is_queued).unwrap() == model.read(0, 240));
        assert!(read(&volume, 3, 100, is_queued).unwrap() == model.read(3, 100));
    }
    assert_eq!(faults.made(Work::Read), made);
    volume.flush().unwrap();
    assert!(read(&volume, 0, 240, false).unwrap() == model.read(0, 240));
    assert_eq!(faults.made(Work::Read), made + 26, "each of them by itself");
}

#[test]
fn what_can_not_be_read_at_first_is_read_again() {
    let (inner, faults) = (device(64), Arc::new(Faults::default()));
    let outer = Faulty::new(inner, Arc::clone(&faults));
    let (volume, _) = open(Arc::new(outer), None);
    let model = scattered(&volume);
    volume.flush().unwrap();
    for nth in 0..20 {
        faults.fail(Work::Read, nth, libc::EIO);
        assert!(read(&volume, 0, 240, false).unwrap() == model.read(0, 240), "{nth}");
    }
    // One by itself is an error of the device.
    faults.fail(Work::Read, 0, libc::EIO);
    let error = read(&volume, 0, 8, false).unwrap_err();
    assert!(matches!(error, Error::Device { action: "read", .. }), "{error}");
}

#[test]
fn what_is_damaged_is_not_given_out() {
    let device = device(64);
    let (_, volume, _) = two(&device);
    let model = scattered(&volume);
    volume.flush().unwrap();
    assert!(damage(&device, &model, 16) > 0);
    for is_queued in [false, true] {
        for (block, count) in [(0, 240), (16, 8), (20, 1), (8, 16)] {
            match read(&volume, block, count, is_queued).unwrap_err() {
                Error::Damaged { block, .. } => assert_eq!(block, 16),
                error => panic!("{error}"),
            }
        }
        assert!(read(&volume, 24, 100, is_queued).unwrap() == model.read(24, 100));
        assert!(read(&volume, 0, 16, is_queued).unwrap() == model.read(0, 16));
    }
}

#[test]
fn nothing_is_read_from_a_volume_that_has_failed() {
    let (inner, faults) = (device(64), Arc::new(Faults::default()));
    let outer = Faulty::new(inner.as_other(), Arc::clone(&faults));
    let (volume, region) = open(Arc::new(outer), None);
    let (other, _) = open(Arc::new(inner.as_other()), Some(&region));
    let mut model = Model::default();
    write(&volume, &mut model, 0, 400, 1);
    faults.fail(Work::Flush, 0, libc::EIO);
    assert!(matches!(volume.flush().unwrap_err(), Error::Device { action: "flush", .. }));
    for volume in [&volume, &other] {
        for is_queued in [false, true] {
            let error = read(volume, 0, 8, is_queued).unwrap_err();
            assert!(matches!(error, Error::Failed { .. }), "{error}");
        }
        for error in [
            volume.write(0, &[1; 512]).unwrap_err(),
            volume.trim(0, 8).unwrap_err(),
            volume.flush().unwrap_err(),
        ] {
            assert!(matches!(error, Error::Failed { .. }), "{error}");
        }
    }
    let device: MemoryDevice = inner;
    drop((volume, other));
    volumes::recovered(&device).flush().unwrap();
}
