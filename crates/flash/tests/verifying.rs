//! What verifying a volume says of copies that are damaged, and what it repairs.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod mirrors;
mod opening;
mod volumes;

use std::os::unix::fs::FileExt;
use std::path::Path;

use conquest_flash::device::Device;
use conquest_flash::{Damage, Verified, Verifying};
use mirrors::{Mirror, write};
use opening::Place;
use volumes::{Model, TestVolume, UNIT};

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
    for (member, unit) in [(0, 3), (0, 4), (1, 9), (0, 21), (1, 105)] {
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
