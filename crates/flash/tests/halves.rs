//! What is added to the stream in part only: it has not happened, and does not happen later.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod volumes;

use std::sync::Arc;

use conquest_flash::device::{Limits, MemoryDevice, Work};
use conquest_flash::{ATOMIC_MAX, Error, NewVolume, create};
use conquest_format::volume::Arrangement;
use meanwhile::two;
use volumes::{Model, TestVolume, UNIT, recovered};

/// A device with segments that are as small as can be: each piece of a large write is in one, so
/// that what names them is much.
fn small_segments(count: u64) -> MemoryDevice {
    let len = 2 * 65_536 + count * 8 * UNIT;
    let device = MemoryDevice::new("memory", len, Limits::of_blocks(512)).unwrap();
    let new = NewVolume {
        uuid: *b"a volume to test",
        created: 1,
        arrangement: Arrangement::Striped,
        segment: Some(8),
    };
    create(&[Arc::new(device.as_other())], &new).unwrap();
    device
}

fn write(volume: &TestVolume, model: &mut Model, unit: u64, number: u64) {
    volume.write(unit * 8, &model.write(unit * 8, 8, number)).unwrap();
}

/// Writes more at once than can be named: some of its records are in the stream then.
fn write_too_much(volume: &TestVolume) {
    let bytes = vec![9; 127 * UNIT as usize];
    let ranges: Vec<_> = (0..129).map(|at| (at * 127 * 8, &bytes[..])).collect();
    let before = volume.info().unwrap().stream.open;
    let error = volume.write_atomic(&ranges).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert!(volume.info().unwrap().stream.open > before + 28, "nothing was added");
}

/// Nor what is one range.
#[test]
fn of_a_range_that_was_refused_in_the_middle_nothing_has_happened() {
    let volume = recovered(&small_segments(3000));
    let mut model = Model::default();
    (0..20).for_each(|unit| write(&volume, &mut model, unit, 1));
    let bytes = vec![9; 129 * 127 * UNIT as usize];
    let error = volume.write_atomic(&[(0, &bytes[..])]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    model.compare(&volume, 400, "refused");
    assert_eq!(volume.usage().used, 20);
}

#[test]
fn what_was_refused_in_the_middle_has_not_happened() {
    let device = small_segments(3000);
    let (meanwhile, volume, other) = two(&device);
    let mut model = Model::default();
    (0..20).for_each(|unit| write(&volume, &mut model, unit, 1));
    volume.flush().unwrap();
    // So that all before is on the device.
    meanwhile.in_next(Work::Write, 2040, move || other.flush().unwrap());
    write_too_much(&volume);
    for number in 0..3 {
        model.compare(&volume, 400, &format!("{number} written since"));
        assert_eq!(volume.usage().used, 20 + number);
        write(&volume, &mut model, 30 + number, 2);
    }
    volume.flush().unwrap();
    drop((volume, meanwhile));
    let volume = recovered(&device);
    model.compare(&volume, 400, "recovered");
    assert_eq!(volume.usage().used, 23);
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn what_was_left_in_the_middle_is_voided_however_full_its_packet_is() {
    let all = ATOMIC_MAX as usize / UNIT as usize;
    for (count, units) in [(256, 43), (256, 44), (256, 50), (1, all)] {
        let device = small_segments(3000);
        let volume = recovered(&device);
        let bytes = vec![9; units * UNIT as usize];
        for round in 0..2 {
            let at = |index| (round * count + index) * units as u64 * 8;
            let ranges: Vec<_> = (0..count).map(|index| (at(index), &bytes[..])).collect();
            // Some are too large for segments that are so small, which is told, or for the volume.
            let written = volume.write_atomic(&ranges);
            assert!(
                matches!(written, Ok(()) | Err(Error::TooLarge { .. } | Error::NoSpace { .. })),
                "{count} of {units}: {written:?}"
            );
            let mut model = Model::default();
            write(&volume, &mut model, 1 << 30, round);
            volume.flush().unwrap();
        }
    }
}

/// What is written at once is held until all of it is: in more segments than one object of a writer
/// has words for.
#[test]
fn nobody_gets_what_one_who_writes_much_at_once_has_room_in() {
    let device = small_segments(1500);
    let (meanwhile, volume, other) = two(&device);
    let (mut model, mut theirs) = (Model::default(), Model::default());
    let bytes = model.write(0, 8192 * 8, 1);
    let all = theirs.write(1 << 20, 17 * 8, 2);
    model.0.extend(theirs.0);
    // All that is free is begun anew meanwhile.
    meanwhile.in_next(Work::Write, 900, move || {
        (0..500).for_each(|_| other.write(1 << 20, &all).unwrap());
    });
    volume.write_atomic(&[(0, &bytes)]).unwrap();
    assert!(meanwhile.is_done());
    model.compare(&volume, 8192 * 8, "written");
    let mut found = vec![0; 17 * UNIT as usize];
    volume.read(1 << 20, &mut found).unwrap();
    assert!(found == model.read(1 << 20, 17 * 8));
}
