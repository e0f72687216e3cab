//! What is asked of a volume: what is refused, where it goes, what happens to it meanwhile.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod volumes;

use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, Faults, Faulty, Limits, MemoryDevice, Work};
use conquest_flash::{ATOMIC_MAX, Error, NewVolume, RANGES_MAX, create};
use conquest_format::volume::Arrangement;
use conquest_testkit::Rng;
use meanwhile::{open, two};
use volumes::{Model, TestVolume, UNIT, body, device, join, recovered, region_file};

const MIB: u64 = 1 << 20;

/// What `outcome` is refused for, as a range that can't be.
#[track_caller]
fn refused<T>(outcome: Result<T, Error>) -> &'static str {
    match outcome.err().unwrap() {
        Error::Range { what, .. } => what,
        error => panic!("{error}"),
    }
}

fn write(volume: &TestVolume, model: &mut Model, block: u64, count: u64, number: u64) {
    let bytes = model.write(block, count, number);
    volume.write(block, &bytes).unwrap();
}

/// A volume of `segments` segments on a device with faults.
fn faulty(segments: u64) -> (TestVolume, Arc<Faults>, MemoryDevice) {
    let (inner, faults) = (device(segments), Arc::new(Faults::default()));
    let outer = Faulty::new(inner.as_other(), Arc::clone(&faults));
    (open(Arc::new(outer), None).0, faults, inner)
}

#[test]
fn transfers_are_of_whole_blocks_within_the_space() {
    let device = device(64);
    let volume = recovered(&device);
    let what = "transfers are of whole blocks";
    let odd = vec![1; MIB as usize + 100];
    assert_eq!(refused(volume.write(0, &odd)), what);
    assert_eq!(refused(volume.write(0, &odd[..511])), what);
    assert_eq!(refused(volume.read(0, &mut [0; 513])), what);
    assert_eq!(refused(volume.write_atomic(&[(0, &[1; 512]), (8, &[1; 100])])), what);
    let what = "it goes beyond the end of the space";
    let (last, two) = (u64::MAX - 1, [1; 1024]);
    assert_eq!(refused(volume.write(last, &two)), what);
    assert_eq!(refused(volume.read(last, &mut [0; 1024])), what);
    assert_eq!(refused(volume.write_atomic(&[(0, &two), (last, &two)])), what);
    assert_eq!(refused(volume.trim(last, 2)), what);
    assert_eq!(refused(volume.move_blocks(u64::MAX - 7, 0, 8)), what);
    assert_eq!(refused(volume.move_blocks(0, u64::MAX - 7, 8)), what);
    // Nothing of all that was done.
    assert_eq!(volume.allocated(0).unwrap(), None);
    // The last block that can be named can be used.
    volume.write(last, &[7; 512]).unwrap();
    let mut found = [0; 512];
    volume.read(last, &mut found).unwrap();
    assert_eq!(found, [7; 512]);
    assert_eq!(volume.allocated(0).unwrap(), Some((u64::MAX - 7, 7)));
    assert_eq!(volume.allocated(last).unwrap(), Some((last, 1)));
    assert_eq!(volume.allocated(u64::MAX).unwrap(), None);
    volume.trim(last - 3, 4).unwrap();
    volume.read(last, &mut found).unwrap();
    assert_eq!(found, [0; 512]);
    volume.write(last, &[7; 512]).unwrap();
    volume.trim(last - 100, 101).unwrap();
    volume.read(last, &mut found).unwrap();
    assert_eq!(found, [0; 512]);
}

#[test]
fn of_a_large_write_that_is_refused_nothing_is_done() {
    let volume = recovered(&device(300));
    let large = vec![1; 9 * MIB as usize + 100];
    assert_eq!(refused(volume.write(0, &large)), "transfers are of whole blocks");
    let large = &large[..9 * MIB as usize];
    let block = u64::MAX - 8 * MIB / 512;
    assert_eq!(refused(volume.write(block, large)), "it goes beyond the end of the space");
    assert_eq!(volume.allocated(0).unwrap(), None);
}

#[test]
fn ranges_that_are_written_at_once_do_not_overlap() {
    let volume = recovered(&device(64));
    let bytes = [1; 16 * 512];
    let overlap = "it overlaps with another one that is written at the same time";
    for ranges in [[0, 15, 100], [15, 0, 100], [100, 0, 15], [0, 100, 0], [8, 16, 23]] {
        let ranges = ranges.map(|block| (block, &bytes[..]));
        assert_eq!(refused(volume.write_atomic(&ranges)), overlap);
        assert_eq!(refused(volume.write_reserved(&ranges)), overlap);
    }
    assert_eq!(volume.allocated(0).unwrap(), None);
    // Beside each other they may be, in whatever order.
    let mut model = Model::default();
    let parts: Vec<_> = [32, 0, 16].map(|block| (block, model.write(block, 16, 1))).into();
    let ranges: Vec<_> = parts.iter().map(|(block, bytes)| (*block, &bytes[..])).collect();
    volume.write_atomic(&ranges).unwrap();
    model.compare(&volume, 64, "beside each other");
    // As many as there can be, and one more.
    let block = [2; 512];
    let many: Vec<(u64, &[u8])> = (0..=RANGES_MAX as u64).map(|at| (at * 9, &block[..])).collect();
    volume.write_atomic(&many[..RANGES_MAX]).unwrap();
    let error = volume.write_atomic(&many).unwrap_err();
    let most = RANGES_MAX as u64;
    let Error::TooMany { wanted, most: found } = error else { panic!("{error}") };
    assert_eq!((wanted, found), (most + 1, most));
}

#[test]
fn what_was_looked_at_is_written_to_by_one_only() {
    let device = device(64);
    let volume = recovered(&device);
    let mut model = Model::default();
    let mut unit = [0; UNIT as usize];
    // Also where there was nothing.
    let first = [volume.look_at(8, &mut unit), volume.look_at(8, &mut unit)].map(Result::unwrap);
    let bytes = model.write(8, 8, 1);
    let far = model.write(800, 16, 1);
    assert!(volume.write_atomic_if(&first[0], &[(8, &bytes), (800, &far)]).unwrap());
    let late = [7; 2 * UNIT as usize];
    assert!(!volume.write_atomic_if(&first[1], &[(8, &late[..4096]), (800, &late)]).unwrap());
    // What is written besides, and to parts of units, is no matter.
    let seen = volume.look_at(8, &mut unit).unwrap();
    assert_eq!(unit[..], bytes);
    write(&volume, &mut model, 16, 8, 2);
    let part = model.write(801, 3, 3);
    assert!(volume.write_atomic_if(&seen, &[(801, &part)]).unwrap());
    // A part of it was written, by whomever; or it was trimmed, or moved.
    write(&volume, &mut model, 11, 1, 4);
    assert!(!volume.write_atomic_if(&seen, &[(800, &late)]).unwrap());
    let seen = volume.look_at(8, &mut unit).unwrap();
    volume.trim(8, 8).unwrap();
    model.trim(8, 8);
    assert!(!volume.write_atomic_if(&seen, &[(800, &late)]).unwrap());
    let what = "only whole units can be looked at";
    assert_eq!(refused(volume.look_at(8, &mut unit[..512])), what);
    assert_eq!(refused(volume.look_at(4, &mut unit)), what);
    model.compare(&volume, 900, "written by one");
}

#[test]
fn an_atomic_write_that_is_too_large_is_refused() {
    // Segments of 16 units are 1,600, so that what names the payload is as much as it can be.
    let device = device(1600);
    let volume = recovered(&device);
    let mut model = Model::default();
    let bytes = model.write(8, ATOMIC_MAX / 512, 1);
    volume.write_atomic(&[(8, &bytes)]).unwrap();
    for ranges in [
        &[(0, &bytes[..]), (1 << 30, &bytes[..512])][..],
        &[(0, &vec![7; ATOMIC_MAX as usize + 512][..])],
    ] {
        let error = volume.write_atomic(ranges).unwrap_err();
        assert!(
            matches!(error, Error::TooLarge { bytes, most: ATOMIC_MAX }
            if bytes == ATOMIC_MAX + 512),
            "{error}"
        );
    }
    // What is written after it counts.
    write(&volume, &mut model, 0, 16, 2);
    volume.flush().unwrap();
    drop(volume);
    model.compare(&recovered(&device), ATOMIC_MAX / 512 + 16, "as a whole");
}

#[test]
fn only_whole_units_that_do_not_overlap_are_moved_in_so_many_pieces() {
    let device = device(100);
    let mut volume = recovered(&device);
    let mut model = Model::default();
    write(&volume, &mut model, 0, 64, 1);
    for (from, to, count) in [(1, 80, 8), (0, 81, 8), (0, 80, 9), (0, 80, 4)] {
        assert_eq!(refused(volume.move_blocks(from, to, count)), "only whole units can be moved");
    }
    for (from, to) in [(0, 8), (8, 0), (0, 0)] {
        let what = "what is moved overlaps with where it goes";
        assert_eq!(refused(volume.move_blocks(from, to, 16)), what);
    }
    // Nothing, which is nowhere, and what ends where it goes to.
    volume.move_blocks(0, 800, 0).unwrap();
    volume.move_blocks(0, 0, 0).unwrap();
    for (from, to) in [(0, 16), (32, 16)] {
        volume.move_blocks(from, to, 16).unwrap();
        model.move_blocks(from, to, 16);
    }
    model.compare(&volume, 900, "moved");
    // Every other unit is a piece of its own.
    let most = RANGES_MAX as u64;
    for unit in 0..=most {
        write(&volume, &mut model, 1000 + unit * 16, 8, unit);
    }
    let error = volume.move_blocks(1000, 8000, (most + 1) * 16).unwrap_err();
    assert!(matches!(error, Error::TooMany { wanted, .. } if wanted == most + 1), "{error}");
    volume.move_blocks(1000, 8000, most * 16).unwrap();
    model.move_blocks(1000, 8000, most * 16);
    for round in 0..2 {
        model.compare(&volume, 8000 + (most + 2) * 16, &format!("moved, {round}"));
        volume.flush().unwrap();
        drop(volume);
        volume = recovered(&device);
    }
}

#[test]
fn parts_of_units_are_trimmed_as_well() {
    let device = device(64);
    let mut volume = recovered(&device);
    let mut model = Model::default();
    for (number, (block, count)) in (1..).zip([
        (4, 8),
        (1, 2),
        (3, 5),
        (8, 8),
        (12, 4),
        (0, 4),
        (5, 22),
        (0, 16),
        (7, 9),
        (0, 0),
    ]) {
        write(&volume, &mut model, 0, 40, number);
        volume.trim(block, count).unwrap();
        model.trim(block, count);
        model.compare(&volume, 64, &format!("{count} at {block}"));
        volume.flush().unwrap();
        drop(volume);
        volume = recovered(&device);
        model.compare(&volume, 64, &format!("{count} at {block}, recovered"));
    }
    // Where there is nothing, nothing is written.
    volume.trim(0, 40).unwrap();
    let asked = volume.info().unwrap().written.asked;
    volume.trim(1, 20).unwrap();
    volume.trim(100, 3).unwrap();
    assert_eq!(volume.info().unwrap().written.asked, asked);
    assert_eq!(volume.allocated(0).unwrap(), None);
}

#[test]
fn what_is_allocated_is_told_from_end_to_end() {
    let volume = recovered(&device(64));
    let mut model = Model::default();
    // In pieces that follow each other in the space only; then two more.
    for (number, block) in [800, 816, 808, 832, 2000].into_iter().enumerate() {
        write(&volume, &mut model, block, 8, number as u64);
    }
    for (block, found) in [
        (0, Some((800, 24))),
        (800, Some((800, 24))),
        (811, Some((811, 13))),
        (823, Some((823, 1))),
        (824, Some((832, 8))),
        (840, Some((2000, 8))),
        (2008, None),
        (u64::MAX, None),
    ] {
        assert_eq!(volume.allocated(block).unwrap(), found, "{block}");
    }
}

// --- where it goes -------------------------------------------------------------------------------

#[test]
fn what_is_large_goes_past_the_stream() {
    let volume = recovered(&device(100));
    let placed = || volume.info().unwrap().written.placed;
    let bytes = vec![1; 20 * UNIT as usize];
    let units = |count: u64| &bytes[..(count * UNIT) as usize];
    volume.write(0, units(16)).unwrap();
    assert_eq!(placed(), 0);
    volume.write(0, units(17)).unwrap();
    assert_eq!(placed(), 17);
    // Of what is written at once four times as much goes with the stream.
    let parts =
        |count: u64| -> Vec<(u64, &[u8])> { (0..count).map(|at| (at * 1000, units(16))).collect() };
    volume.write_atomic(&parts(4)).unwrap();
    assert_eq!(placed(), 17);
    volume.write_atomic(&parts(5)).unwrap();
    assert_eq!(placed(), 17 + 16);
    volume.write_atomic(&[(0, units(17)), (1000, units(16)), (2000, units(1))]).unwrap();
    assert_eq!(placed(), 17 + 16 + 17);
}

#[test]
fn whole_units_are_written_without_reading_any() {
    let (volume, faults, _) = faulty(64);
    let mut model = Model::default();
    write(&volume, &mut model, 0, 400, 1);
    volume.flush().unwrap();
    let made = faults.made(Work::Read);
    let asked = volume.info().unwrap().written.asked;
    for (number, (block, count)) in (2..).zip([(0, 8), (8, 32), (0, 256)]) {
        write(&volume, &mut model, block, count, number);
    }
    assert_eq!(faults.made(Work::Read), made);
    assert_eq!(volume.info().unwrap().written.asked, asked + 1 + 4 + 32);
    // Parts of two units, and one between them: both are read, and written as wholes.
    write(&volume, &mut model, 301, 17, 9);
    assert_eq!(volume.info().unwrap().written.asked, asked + 37 + 3);
    model.compare(&volume, 420, "all");
}

/// Where an open segment turns out to be bad, the write goes elsewhere, and nobody tries again.
#[test]
fn a_place_that_can_not_be_written_is_avoided() {
    let (volume, faults, _) = faulty(100);
    let mut model = Model::default();
    write(&volume, &mut model, 0, 256, 1);
    for failures in 1..4 {
        (0..failures).for_each(|nth| faults.fail(Work::Write, nth, libc::EIO));
        write(&volume, &mut model, failures * 300, 256, failures);
        let bad = volume.info().unwrap().segments.bad;
        assert_eq!(bad, failures * (failures + 1) / 2);
    }
    (0..4).for_each(|nth| faults.fail(Work::Write, nth, libc::EIO));
    let bytes = vec![9; 256 * 512];
    let error = volume.write(0, &bytes).unwrap_err();
    assert!(matches!(error, Error::Device { action: "write", .. }), "{error}");
    model.compare(&volume, 1500, "as it was");
    write(&volume, &mut model, 0, 256, 10);
    volume.flush().unwrap();
    model.compare(&volume, 1500, "afterwards");
}

#[test]
fn what_is_not_flushed_is_bounded() {
    let len = 2 * 65_536 + 200 * MIB;
    let device = MemoryDevice::new("memory", len, Limits::of_blocks(512)).unwrap();
    let new = NewVolume {
        uuid: *b"a volume to test",
        created: 1,
        arrangement: Arrangement::Striped,
        segment: Some(256),
    };
    let faults = Arc::new(Faults::default());
    let outer: Arc<dyn Device> = Arc::new(Faulty::new(device, Arc::clone(&faults)));
    create(std::slice::from_ref(&outer), &new).unwrap();
    let (volume, _) = open(outer, None);
    volume.flush().unwrap();
    let bytes = vec![1; MIB as usize];
    for round in 0..2 {
        let made = faults.made(Work::Flush);
        for at in 0..64 {
            volume.write(at * 2048, &bytes).unwrap();
        }
        assert_eq!(faults.made(Work::Flush), made, "round {round}: 64 MiB may be");
        volume.write(0, &bytes[..4096]).unwrap();
        assert!(faults.made(Work::Flush) > made, "round {round}: no more may be");
        assert_eq!(volume.info().unwrap().stream.durable, volume.info().unwrap().stream.open);
    }
}

/// What is trimmed in many pieces is worked off by those who write afterwards.
#[test]
fn who_writes_works_off_what_is_trimmed() {
    let volume = recovered(&device(200));
    let mut model = Model::default();
    for unit in 0..400 {
        write(&volume, &mut model, unit * 16, 8, unit);
    }
    assert_eq!(volume.usage().used, 400);
    volume.trim(0, 400 * 16).unwrap();
    assert!(volume.usage().used > 300, "not all at once");
    for _ in 0..16 {
        volume.write(10_000, &[1; 4096]).unwrap();
    }
    assert_eq!(volume.usage().used, 1);
    assert!(!volume.trim_some().unwrap());
}

#[test]
fn what_is_written_with_what_is_reserved_takes_it_however_much_space_there_is() {
    let volume = recovered(&device(100));
    let reserved = || volume.usage().reserved;
    volume.reserve(0).unwrap();
    assert_eq!(reserved(), 0);
    volume.reserve(50).unwrap();
    let bytes = vec![1; 60 * UNIT as usize];
    volume.write_reserved(&[(0, &bytes[..10 * UNIT as usize])]).unwrap();
    assert_eq!(reserved(), 40);
    volume.write_reserved(&[(0, &bytes[..10 * UNIT as usize])]).unwrap();
    assert_eq!(reserved(), 40, "it is there already");
    volume.write(800, &bytes[..10 * UNIT as usize]).unwrap();
    assert_eq!(reserved(), 40, "not by others");
    volume.write_reserved(&[(4000, &bytes)]).unwrap();
    assert_eq!((reserved(), volume.usage().used), (0, 80), "what is not reserved is taken, too");
    volume.reserve(10).unwrap();
    assert_eq!((volume.release(4).unwrap(), reserved()), (4, 6));
    assert_eq!((volume.release(10).unwrap(), reserved()), (6, 0));
    // All that there is, and not more.
    let left = volume.usage().capacity - 80;
    let error = volume.reserve(left + 1).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    volume.reserve(left).unwrap();
    let error = volume.write(100_000, &[1; 4096]).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
}

/// Two processes are given room in one segment by turns.
#[test]
fn several_write_past_the_stream_at_once() {
    let device = device(200);
    let (_, volume, other) = two(&device);
    let mut model = Model::default();
    for number in 0..40 {
        let by = if number % 2 == 0 { &volume } else { &*other };
        write(by, &mut model, number * 21 * 8, 21 * 8, number);
    }
    model.compare(&volume, 41 * 21 * 8, "one");
    model.compare(&other, 41 * 21 * 8, "the other");
}

/// Small units in large segments: each segment is known by thousands of names, before and after a
/// restart, when it is cleaned, and when what is in it goes to and fro.
#[test]
fn who_comes_later_goes_on_where_there_is_room() {
    let device = device(100);
    let file = region_file(&body(&device));
    let first = join(&device, &file, true);
    let free = || first.info().unwrap().segments.free;
    let before = free();
    for number in 0..4 {
        let other = join(&device, &file, false);
        // A segment and a half.
        write(&other, &mut Model::default(), number * 200, 24 * 8, number);
    }
    assert_eq!(before - free(), 6);
}

#[test]
fn a_segment_may_be_known_by_thousands_of_names() {
    let device = MemoryDevice::new("memory", 2 * 65_536 + 640 * MIB, Limits::of_blocks(512));
    let device = device.unwrap();
    let new = NewVolume {
        uuid: *b"a volume to test",
        created: 1,
        arrangement: Arrangement::Striped,
        segment: Some(4096),
    };
    create(&[Arc::new(device.as_other())], &new).unwrap();
    let mut volume = recovered(&device);
    let mut model = Model::default();
    for unit in 0..6000 {
        write(&volume, &mut model, unit * 16, 8, unit);
    }
    for round in 0..2 {
        assert_eq!(volume.check().unwrap(), [], "{round}");
        model.compare(&volume, 2000, "restarted");
        volume.flush().unwrap();
        if round == 0 {
            volume.checkpoint().unwrap();
        }
        drop(volume);
        volume = recovered(&device);
    }
    // More names than units, of which most are not so any more.
    for round in 0..60 {
        let (from, to) = if round % 2 == 0 { (0, 100_000) } else { (100_000, 0) };
        volume.move_blocks(from, to, 250 * 16).unwrap_or_else(|e| panic!("{round}: {e}"));
        model.move_blocks(from, to, 250 * 16);
    }
    assert_eq!(volume.check().unwrap(), []);
    model.compare(&volume, 5000, "moved");
}

// --- what happens meanwhile ----------------------------------------------------------------------

/// Who writes a part of a unit reads the rest. What others have done to it by then is not undone.
#[test]
fn who_writes_a_part_of_a_unit_undoes_nothing() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    let mut model = Model::default();
    let changes: [fn(&TestVolume, &mut Model); 4] = [
        |other, model| write(other, model, 3, 2, 100),
        |other, model| {
            other.trim(0, 16).unwrap();
            model.trim(0, 16);
        },
        |other, model| {
            other.move_blocks(80, 0, 8).unwrap();
            model.move_blocks(80, 0, 8);
        },
        |other, model| {
            other.move_blocks(0, 160, 8).unwrap();
            model.move_blocks(0, 160, 8);
        },
    ];
    for (number, change) in (1..).zip(changes) {
        write(&volume, &mut model, 0, 240, number);
        // So that it is read from the device.
        volume.flush().unwrap();
        let mut changed = model.clone();
        let (other, changed_by_other) = (Arc::clone(&other), {
            change(&recovered_copy(&device), &mut changed);
            changed.clone()
        });
        let mut unused = Model::default();
        meanwhile.in_next(Work::Read, 0, move || change(&other, &mut unused));
        let bytes = model.write(1, 1, 50 + number);
        volume.write(1, &bytes).unwrap();
        assert!(meanwhile.is_done(), "{number}");
        model = changed_by_other;
        model.write(1, 1, 50 + number);
        model.compare(&volume, 260, &format!("change {number}"));
    }
}

/// The volume on a copy of `device`.
/// Nor what they do when all has been read, and some is being written.
#[test]
fn what_others_do_before_a_part_of_a_unit_counts_is_not_undone() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    let mut model = Model::default();
    write(&volume, &mut model, 0, 8, 1);
    // Of the first unit and the last one only a part; the others have room of their own.
    let ranges = [(0, 1), (8 * 20 + 4, 2)];
    for (number, (block, count)) in (2..).zip(ranges) {
        let (theirs, other) = (model.write(block, count, number), Arc::clone(&other));
        meanwhile.in_next(Work::Write, 0, move || other.write(block, &theirs).unwrap());
        write(&volume, &mut model, 1, 8 * 20 + 2, 10 + number);
        assert!(meanwhile.is_done(), "{number}");
        model.compare(&volume, 8 * 22, &format!("{number}"));
    }
}

#[test]
fn what_is_as_long_as_units_may_begin_within_one() {
    let volume = recovered(&device(64));
    let mut model = Model::default();
    write(&volume, &mut model, 0, 32, 1);
    let mut bytes = vec![0; 2 * UNIT as usize];
    volume.read(3, &mut bytes).unwrap();
    assert!(bytes == model.read(3, 16));
}

#[test]
fn where_something_is_moved_nothing_is_left_of_what_was_there() {
    let volume = recovered(&device(64));
    let mut model = Model::default();
    write(&volume, &mut model, 800, 32, 1);
    // Of what is moved the second unit and the last one are not there.
    write(&volume, &mut model, 0, 8, 2);
    write(&volume, &mut model, 16, 8, 3);
    volume.move_blocks(0, 800, 32).unwrap();
    model.move_blocks(0, 800, 32);
    model.compare(&volume, 840, "moved");
    assert_eq!(volume.usage().used, 2);
}

fn recovered_copy(device: &MemoryDevice) -> TestVolume {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    let copy = MemoryDevice::new("copy", device.len(), device.limits()).unwrap();
    copy.write(0, &bytes).unwrap();
    recovered(&copy)
}

/// What has been written to room of its own, and stands in no record yet, is not overwritten,
/// however much others write.
#[test]
fn room_that_was_given_is_kept_until_it_is_used() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    let mut model = Model::default();
    for round in 0..3 {
        let mut others = Model::default();
        let by_other = Arc::clone(&other);
        // In the second of two segments that it takes, at least.
        meanwhile.in_next(Work::Write, 1, move || {
            for number in 0..1500 {
                write(&by_other, &mut others, 4000 + number % 50 * 40, 40, number);
                if number % 20 == 0 {
                    by_other.flush().unwrap();
                }
            }
        });
        write(&volume, &mut model, 0, 8 * 40, round);
        assert!(meanwhile.is_done());
        model.compare(&volume, 400, &format!("round {round}"));
    }
    drop(other);
}

#[test]
fn no_more_of_a_range_is_looked_at_than_is_asked_for() {
    let volume = recovered(&device(64));
    // In the opposite order, so that these are extents of their own.
    (0..20).rev().for_each(|unit| volume.write(80 + unit * 8, &[1; 4096]).unwrap());
    assert_eq!(volume.allocated(0).unwrap(), Some((80, 160)));
    let (block, count) = volume.allocated_within(88, 16).unwrap().unwrap();
    assert!(block == 88 && (16..152).contains(&count), "{count}");
    assert_eq!(volume.allocated_within(0, 1).unwrap().map(|(block, _)| block), Some(80));
}

/// What is in a segment that is being cleaned may die meanwhile. If the segment was begun anew by
/// then, the same unit could come to the same place again.
#[test]
fn what_is_being_cleaned_is_not_free_before_that_is_over() {
    const FILLED: u64 = 3000;
    let device = device(256);
    let (meanwhile, volume, other) = two(&device);
    // Past the stream, of which all is needed before the next checkpoint.
    for unit in (0..FILLED).step_by(20) {
        volume.write(unit * 8, &[1; 20 * UNIT as usize]).unwrap();
    }
    let free = |volume: &TestVolume| {
        // The second packet says that the first one is flushed.
        for _ in 0..2 {
            volume.write(10_000 * 8, &[3; UNIT as usize]).unwrap();
            volume.flush().unwrap();
        }
        volume.flush().unwrap();
        volume.info().unwrap().segments.free
    };
    let (during, again) = (Arc::new(Mutex::new(0)), Arc::clone(&meanwhile));
    let (seen, theirs) = (Arc::clone(&during), Arc::clone(&other));
    // Who writes whole units reads nothing but to make space, and writes the copies then.
    meanwhile.in_next(Work::Read, 0, move || {
        again.in_next(Work::Write, 0, move || {
            theirs.trim(0, FILLED * 8).unwrap();
            while theirs.trim_some().unwrap() {}
            *seen.lock().unwrap() = free(&theirs);
        });
    });
    let mut rng = Rng::new(29);
    while *during.lock().unwrap() == 0 {
        volume.write(rng.below(FILLED) * 8, &[2; UNIT as usize]).unwrap();
    }
    assert_eq!(free(&other) - *during.lock().unwrap(), 3, "so many are cleaned at once here");
}
