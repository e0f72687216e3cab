//! Places that can't be written: they are noted for good, what is there moves out, and what they
//! cost is told.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod volumes;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, MemoryDevice};
use conquest_flash::{Error, Volume, assemble};
use conquest_testkit::flash::Watched;
use volumes::{BLOCK, Model, TestVolume, UNIT, region};

/// Bytes of a segment, and of what is before the first one.
const SEGMENT: u64 = 16 * UNIT;
const START: u64 = 65_536;
/// Blocks of a write that goes past the stream: two segments, at most three.
const LARGE: u64 = 256;

/// What stands first in writes of a kind.
const LEAF: &[u8] = b"CONQCHKP";
const META: [&[u8]; 3] = [b"CONQPACK", LEAF, b"CONQROOT"];

#[derive(Default)]
struct Spots {
    /// Segments that can't be written.
    bad: BTreeSet<u64>,
    /// Writes of payload that go well before the next bad place.
    good: u64,
    /// Writes of payload, and of leaves, at whose places there will be bad ones.
    payload: u64,
    leaves: u64,
    is_gone: bool,
}

impl Spots {
    /// Whether `bytes` can be written from byte `at` on.
    fn meet(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let segment = (at - START) / SEGMENT;
        if self.payload > 0 && !META.iter().any(|magic| bytes.starts_with(magic)) {
            match self.good {
                0 => {
                    self.payload -= 1;
                    self.bad.insert(segment);
                }
                _ => self.good -= 1,
            }
        }
        if self.leaves > 0 && bytes.starts_with(LEAF) {
            self.leaves -= 1;
            self.bad.insert(segment);
        }
        if self.is_gone || self.bad.contains(&segment) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }
}

/// The volume on a device with bad places, as after a restart.
fn recovered(device: &MemoryDevice, spots: &Arc<Mutex<Spots>>) -> TestVolume {
    let spots = Arc::clone(spots);
    let spotted = Watched::each(Arc::new(device.as_other()), move |request| {
        request.written().map_or(Ok(()), |(at, bytes)| spots.lock().unwrap().meet(at, bytes))
    });
    let body = assemble(vec![spotted]).unwrap();
    Volume::recover(region(&body), &body).unwrap()
}

fn write(volume: &TestVolume, model: &mut Model, block: u64, count: u64, number: u64) {
    let bytes = model.write(block, count, number);
    volume.write(block, &bytes).unwrap();
}

fn bad(volume: &TestVolume) -> u64 {
    volume.info().unwrap().segments.bad
}

#[test]
fn they_are_known_after_restarts() {
    let (device, spots) = (volumes::device(100), Arc::default());
    let mut volume = recovered(&device, &spots);
    let mut model = Model::default();
    for number in 1..8 {
        spots.lock().unwrap().payload = number % 3;
        let before = bad(&volume);
        write(&volume, &mut model, number * LARGE, LARGE, number);
        assert_eq!(bad(&volume), before + number % 3);
        // By the stream, and then by a checkpoint.
        if number % 2 == 0 {
            volume.checkpoint().unwrap();
        }
        volume.flush().unwrap();
        let known = bad(&volume);
        drop(volume);
        volume = recovered(&device, &spots);
        assert_eq!(bad(&volume), known);
        let all = spots.lock().unwrap().bad.len() as u64;
        assert_eq!(known, all);
    }
    // They are not tried again, or there would be more of them.
    for number in 10..80 {
        write(&volume, &mut model, number % 8 * LARGE, LARGE, number);
    }
    assert_eq!(bad(&volume), 7);
    model.compare(&volume, 8 * LARGE, "with bad places");
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn what_could_be_written_there_moves_out() {
    let (device, spots) = (volumes::device(100), Arc::default());
    let volume = recovered(&device, &spots);
    let mut model = Model::default();
    // Half of a segment, and nothing of it changes.
    write(&volume, &mut model, 0, LARGE + 64, 1);
    spots.lock().unwrap().payload = 1;
    write(&volume, &mut model, 400, LARGE, 2);
    assert_eq!(bad(&volume), 1);
    let segment = *spots.lock().unwrap().bad.first().unwrap();
    for number in 10..200 {
        write(&volume, &mut model, 1000, LARGE, number);
    }
    volume.flush().unwrap();
    device.write(START + segment * SEGMENT, &vec![0x5A; SEGMENT as usize]).unwrap();
    model.compare(&volume, 1500, "without the bad segment");
    assert_eq!(volume.check().unwrap(), []);
    // Of what else stays nothing moves.
    let copied = volume.info().unwrap().written.copied;
    assert!(copied <= SEGMENT / UNIT, "{copied}");
}

/// One in which nothing is left is passed over.
#[test]
fn what_could_be_written_to_another_one_moves_out_as_well() {
    let (device, spots) = (volumes::device(100), Arc::default());
    let volume = recovered(&device, &spots);
    let mut model = Model::default();
    // Each time half of a segment is left, and what is in the first one does not stay.
    for (number, block, count) in [(1, 0, LARGE + 64), (2, 2000, LARGE)] {
        write(&volume, &mut model, block, count, number);
        spots.lock().unwrap().payload = 1;
        write(&volume, &mut model, 400, LARGE, number);
        assert_eq!(bad(&volume), number);
        if number == 1 {
            write(&volume, &mut model, block, count, 3);
        }
    }
    let segments: Vec<u64> = spots.lock().unwrap().bad.iter().copied().collect();
    for number in 10..200 {
        write(&volume, &mut model, 1000, LARGE, number);
    }
    volume.flush().unwrap();
    for segment in segments {
        device.write(START + segment * SEGMENT, &vec![0x5A; SEGMENT as usize]).unwrap();
    }
    model.compare(&volume, 2500, "without the bad segments");
}

#[test]
fn a_bad_segment_with_room_left_gives_no_more() {
    let (device, spots) = (volumes::device(100), Arc::default());
    let volume = recovered(&device, &spots);
    let mut model = Model::default();
    for number in 1..4 {
        // A segment, and one unit of another one.
        *spots.lock().unwrap() = Spots { good: 1, payload: 1, ..Spots::default() };
        write(&volume, &mut model, number * LARGE, 17 * 8, number);
        assert_eq!(bad(&volume), number);
        // So that the next one begins with a segment, too.
        write(&volume, &mut model, 5 * LARGE, 31 * 8, number);
    }
    model.compare(&volume, 6 * LARGE, "without the bad segments");
}

#[test]
fn a_device_that_is_gone_for_a_while_has_no_bad_places() {
    let (device, spots) = (volumes::device(100), Arc::default());
    let volume = recovered(&device, &spots);
    let mut model = Model::default();
    write(&volume, &mut model, 0, LARGE, 1);
    volume.flush().unwrap();
    spots.lock().unwrap().is_gone = true;
    for _ in 0..50 {
        assert!(volume.write(0, &vec![9; (LARGE * BLOCK) as usize]).is_err());
        let error = volume.checkpoint().unwrap_err();
        assert!(matches!(error, Error::Device { .. }), "{error}");
    }
    spots.lock().unwrap().is_gone = false;
    assert_eq!(bad(&volume), 0);
    write(&volume, &mut model, 300, LARGE, 2);
    volume.checkpoint().unwrap();
    assert_eq!(bad(&volume), 0);
    model.compare(&volume, 600, "back again");
}

#[test]
fn a_checkpoint_goes_elsewhere() {
    let (device, spots) = (volumes::device(100), Arc::default());
    let volume = recovered(&device, &spots);
    let mut model = Model::default();
    for number in 0..3 {
        write(&volume, &mut model, number * LARGE, LARGE, number);
        spots.lock().unwrap().leaves = number;
        volume.checkpoint().unwrap();
    }
    assert_eq!(bad(&volume), 3);
    drop(volume);
    let volume = recovered(&device, &spots);
    assert!(volume.info().unwrap().checkpoint > 0);
    assert!(bad(&volume) <= 3);
    model.compare(&volume, 3 * LARGE, "by the checkpoint");
}

#[test]
fn capacity_is_less_when_too_many_are_bad() {
    let (device, spots) = (volumes::device(280), Arc::default());
    let mut volume = recovered(&device, &spots);
    let mut model = Model::default();
    let info = volume.info().unwrap();
    let (spare, capacity) = (info.segments.spare, info.capacity);
    assert_eq!((spare, info.lost), (280 / 14 - 280 / 28, 0));
    let mut number = 0;
    while bad(&volume) < spare + 3 {
        spots.lock().unwrap().payload = 1;
        number += 1;
        write(&volume, &mut model, 0, LARGE, number);
        let info = volume.info().unwrap();
        assert_eq!(info.segments.spare, spare.saturating_sub(info.segments.bad));
        assert_eq!(info.lost, 16 * info.segments.bad.saturating_sub(spare));
        assert_eq!(info.capacity, capacity);
    }
    volume.flush().unwrap();
    drop(volume);
    volume = recovered(&device, &spots);
    let usage = volume.usage();
    assert_eq!(usage.lost, 3 * 16);
    // To the last unit of what is left, and that can be overwritten for ever.
    let left = usage.capacity - usage.lost;
    let error = volume.reserve(left - usage.used + 1).unwrap_err();
    assert!(matches!(error, Error::NoSpace { most, .. } if most == left), "{error}");
    let said =
        format!("{} of 280 segments can't be written any more ({} are left)", spare + 3, 267);
    assert!(error.to_string().contains(&said), "{error}");
    for unit in 0..left {
        write(&volume, &mut model, unit * 8, 8, 1000);
    }
    assert!(volume.write(left * 8, &[1; UNIT as usize]).is_err());
    for number in 0..3 * left {
        write(&volume, &mut model, number * 7 % left * 8, 8, 2000 + number);
    }
    model.compare(&volume, left * 8, "full");
    assert_eq!(volume.check().unwrap(), []);
}
