//! What verifying a volume says of copies that are damaged, and what it repairs.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod hooked;
mod meanwhile;
mod mirrors;
mod opening;
mod volumes;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use conquest_flash::device::{Device, Work};
use conquest_flash::{Damage, Verified, Verifying, Volume, assemble};
use conquest_format::geometry::STATE_ROOTS;
use conquest_testkit::flash::Watched;
use hooked::Hooked;
use meanwhile::watched;
use mirrors::{Mirror, write};
use opening::Place;
use volumes::{Model, TestVolume, UNIT, region};

/// Words of the index: the root of the map, and how many units are in use.
const MAP: u64 = 1;
const LIVE: u64 = 14;

/// Blocks, how many, whether another copy is right, and whether it was repaired.
type Found = Vec<(u64, u64, bool, bool)>;

fn verify(volume: &TestVolume, repair: bool) -> (Verified, Found) {
    let mut all = Vec::new();
    let mut found = |damage| match damage {
        Damage::Payload { block, count, is_elsewhere, is_repaired, .. } => {
            all.push((block, count, is_elsewhere, is_repaired));
        }
        other => panic!("{other:?}"),
    };
    let how = Verifying { repair, found: &mut found, progress: &mut |_, _| true };
    (volume.verify(how).unwrap(), all)
}

/// Member `member` has something else for `unit`.
fn damage(mirror: &Mirror, model: &Model, member: usize, unit: u64) {
    let image = mirror.image(member);
    let wanted = model.read(unit * 8, 8);
    let place = image.chunks(UNIT as usize).position(|found| found == wanted).unwrap() as u64;
    let at = mirrors::START + place * UNIT;
    mirror.devices[member].write(at, &[0xA5; 512]).unwrap();
}

#[test]
fn what_one_copy_has_right_is_repaired() {
    let mirror = Mirror::new(2);
    let volume = mirror.recovered();
    let mut model = Model::default();
    write(&volume, &mut model, 0, 40, 1);
    (100..110).for_each(|unit| write(&volume, &mut model, unit, 1, 2));
    volume.flush().unwrap();
    let (whole, found) = verify(&volume, false);
    assert_eq!((whole.units, whole.copies, found), (50, 100, vec![]));
    for (member, unit) in [(0, 3), (0, 4), (0, 6), (1, 9), (0, 21), (1, 105)] {
        damage(&mirror, &model, member, unit);
    }
    (0..2).for_each(|member| damage(&mirror, &model, member, 20));
    for (repair, times) in [(false, 2), (true, 1)] {
        for _ in 0..times {
            let (_, mut found) = verify(&volume, repair);
            found.sort_unstable();
            let lost = (160, 8, false, false);
            let expected = [
                (24, 16, true, repair),
                (48, 8, true, repair),
                (72, 8, true, repair),
                lost,
                lost,
                (168, 8, true, repair),
                (840, 8, true, repair),
            ];
            assert_eq!(found, expected, "{repair}");
        }
    }
    // Only what no copy has is left, on both.
    let (verified, found) = verify(&volume, true);
    assert_eq!((verified.units, verified.copies), (50, 100));
    assert_eq!(found, [(160, 8, false, false); 2]);
    write(&volume, &mut model, 20, 1, 3);
    assert_eq!(verify(&volume, false).1, []);
    model.compare(&volume, 1000, "repaired");
}

/// What is only in the index is written before anybody looks.
#[test]
fn what_is_not_on_the_devices_yet_is_looked_at_too() {
    let mirror = Mirror::new(2);
    let volume = mirror.recovered();
    let mut model = Model::default();
    (0..20).for_each(|unit| write(&volume, &mut model, unit * 3, 1, 1));
    let (verified, found) = verify(&volume, false);
    assert_eq!((verified.units, verified.copies, found), (20, 40, vec![]));
    assert_eq!(verified.extents, 20);
}

/// The volume on a mirror, of whose first member somebody does something when it is read.
fn meanwhile(mirror: &Mirror) -> (Arc<Watched>, TestVolume) {
    let meanwhile = watched(&mirror.devices[0]);
    let other = Arc::new(mirror.devices[1].as_other());
    let body = assemble(vec![Arc::clone(&meanwhile) as _, other]).unwrap();
    (meanwhile, Volume::recover(region(&body), &body).unwrap())
}

/// Nor is what somebody writes meanwhile taken for damage: neither where it was, nor where it is.
#[test]
fn what_is_written_meanwhile_is_not_damaged() {
    let mirror = Mirror::new(2);
    let (meanwhile, volume) = meanwhile(&mirror);
    let mut model = Model::default();
    (0..20).for_each(|unit| write(&volume, &mut model, unit * 3, 1, 1));
    volume.flush().unwrap();
    std::thread::scope(|scope| {
        let (begun, is_begun) = channel();
        let (go_on, goes_on) = channel::<()>();
        meanwhile.in_next(Work::Read, 0, move || {
            begun.send(()).unwrap();
            let _ = goes_on.recv();
        });
        let verifying = scope.spawn(|| verify(&volume, false));
        is_begun.recv().unwrap();
        // What was there of the unit that is being read is not needed any more.
        damage(&mirror, &model, 0, 0);
        damage(&mirror, &model, 1, 0);
        write(&volume, &mut model, 0, 1, 2);
        write(&volume, &mut model, 30, 1, 2);
        drop(go_on);
        let (verified, found) = verifying.join().unwrap();
        assert_eq!((verified.units, found), (20, vec![]));
    });
    model.compare(&volume, 1000, "verified");
}

/// What can't be read is damaged, whatever it is, and nothing beside it.
#[test]
fn what_cannot_be_read_is_damaged() {
    let mirror = Mirror::new(2);
    let hooked = Hooked::new(&mirror.devices[0], false);
    let other = Arc::new(mirror.devices[1].as_other());
    let body = assemble(vec![Arc::clone(&hooked) as _, other]).unwrap();
    let volume = Volume::recover(region(&body), &body).unwrap();
    let mut model = Model::default();
    write(&volume, &mut model, 0, 10, 1);
    // Zeros are what is in memory that nothing was read to.
    volume.write(5 * 8, &[0; UNIT as usize]).unwrap();
    write(&volume, &mut model, 6, 1, 2);
    volume.flush().unwrap();
    let place = |unit: u64| {
        let (image, wanted) = (mirror.image(0), model.read(unit * 8, 8));
        let found = image.chunks(UNIT as usize).position(|found| found == wanted).unwrap();
        mirrors::START + found as u64 * UNIT
    };
    for (unit, at) in [(3, place(3)), (5, place(6) - UNIT)] {
        *hooked.unreadable.lock().unwrap() = Some((at, UNIT as usize));
        assert_eq!(verify(&volume, false).1, [(unit * 8, 8, true, false)]);
    }
}

#[test]
fn verifying_ends_behind_the_last_block_that_can_be_named() {
    let mirror = Mirror::new(2);
    let volume = mirror.recovered();
    volume.write(u64::MAX - 1, &[7; 512]).unwrap();
    volume.write(0, &[7; 512]).unwrap();
    let (whole, found) = verify(&volume, true);
    assert_eq!((whole.units, whole.copies, found), (2, 4, vec![]));
}

#[test]
fn verifying_can_be_stopped() {
    let mirror = Mirror::new(2);
    let volume = mirror.recovered();
    (0..20).for_each(|unit| write(&volume, &mut Model::default(), unit * 3, 1, 1));
    let mut told = Vec::new();
    let how = Verifying {
        repair: false,
        found: &mut |damage| panic!("{damage:?}"),
        progress: &mut |units, total| {
            told.push((units, total));
            units < 7
        },
    };
    assert_eq!(volume.verify(how).unwrap().units, 7);
    assert_eq!(told, (1..=7).map(|units| (units, 20)).collect::<Vec<_>>());
}

/// Which device has the copies of payload that are damaged, and from which byte on.
fn places(volume: &TestVolume) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    let mut found = |damage| match damage {
        Damage::Payload { device, at, count: 8, .. } => all.push((device, at)),
        other => panic!("{other:?}"),
    };
    let how = Verifying { repair: false, found: &mut found, progress: &mut |_, _| true };
    volume.verify(how).unwrap();
    all
}

#[test]
fn the_device_is_named_that_has_what_is_damaged() {
    let place = Place::new(2, 64);
    let volume = place.open().unwrap();
    let mut model = Model::default();
    // Room of its own, in several segments.
    volume.write(0, &model.write(0, 64 * 8, 1)).unwrap();
    volume.flush().unwrap();
    for unit in [0, 20, 40] {
        let wanted = model.read(unit * 8, 8);
        let mut expected = Vec::new();
        for path in &place.paths {
            let bytes = std::fs::read(path).unwrap();
            let found = bytes.chunks(UNIT as usize).position(|found| found == wanted);
            expected.extend(found.map(|at| (path.clone(), at as u64 * UNIT)));
        }
        let [(path, at)] = expected.as_slice() else { panic!("{expected:?}") };
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[0xA5; UNIT as usize], *at).unwrap();
        assert_eq!(places(&volume), expected, "unit {unit}");
        file.write_all_at(&wanted, *at).unwrap();
    }
    volume.close().unwrap();
}

/// What is said of superblocks of the device at `path`: where each is, whether the other one can be
/// used, and whether it was repaired.
fn superblocks(volume: &TestVolume, path: &Path, repair: bool) -> Vec<(u64, bool, bool)> {
    let mut all = Vec::new();
    let mut found = |damage| match damage {
        Damage::Superblock { device, at, is_elsewhere, is_repaired } => {
            assert_eq!(device, path);
            all.push((at, is_elsewhere, is_repaired));
        }
        other => panic!("{other:?}"),
    };
    let how = Verifying { repair, found: &mut found, progress: &mut |_, _| true };
    volume.verify(how).unwrap();
    all
}

#[test]
fn a_superblock_is_repaired_by_the_other_one() {
    let place = Place::new(1, 64);
    let (volume, path) = (place.open().unwrap(), place.paths[0].clone());
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let last = file.metadata().unwrap().len() - 4096;
    let get = |at: u64| {
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
    let found = |repair| superblocks(&volume, &path, repair);
    let right = get(0);
    // That of another volume is right by its checksum.
    let other = Place::new(1, 64);
    let another = std::fs::read(&other.paths[0]).unwrap();
    assert_eq!(found(true), []);
    for at in [0, last] {
        for wrong in [&vec![0xA5; 4096], &another[..4096]] {
            put(at, wrong);
            assert_eq!(found(false), [(at, true, false)]);
            assert!(get(at) == *wrong, "it was not to be repaired");
            assert_eq!(found(true), [(at, true, true)]);
            assert!(get(at) == right);
            assert_eq!(found(true), []);
        }
    }
    // With neither of them nothing can be done.
    [0, last].iter().for_each(|&at| put(at, &[0; 4096]));
    assert_eq!(found(true), [(0, false, false), (last, false, false)]);
    volume.close().unwrap();
}

/// What it counts is wrong, or what leads to the map.
#[test]
fn what_is_wrong_with_the_index_is_told() {
    let device = volumes::device(64);
    let body = volumes::body(&device);
    let file = volumes::region_file(&body);
    let volume = Volume::recover(volumes::opened(&body, &file), &body).unwrap();
    volume.write(0, &Model::default().write(0, 80, 1)).unwrap();
    let index = std::fs::File::from(file);
    let told = |word: u64| {
        let at = STATE_ROOTS.bytes() + word * 8;
        let mut before = [0; 8];
        index.read_exact_at(&mut before, at).unwrap();
        let changed = u64::from_le_bytes(before) ^ 1 << 40;
        index.write_all_at(&changed.to_le_bytes(), at).unwrap();
        let mut all = Vec::new();
        let found = &mut |damage| all.push(damage);
        let how = Verifying { repair: false, found, progress: &mut |_, _| true };
        let _ = volume.verify(how);
        index.write_all_at(&before, at).unwrap();
        all
    };
    for (word, what) in [(LIVE, "units in use"), (MAP, "pointer")] {
        let all = told(word);
        let is_it = |damage: &Damage| match damage {
            Damage::Structure { what: found } => found.contains(what),
            _ => false,
        };
        assert!(all.iter().any(is_it), "{what}: {all:?}");
    }
}
