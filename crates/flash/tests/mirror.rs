//! Members of a mirror that have failed: all know it, and for good.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod mirrors;
mod volumes;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use conquest_flash::device::{Device, MemoryDevice, Work};
use conquest_flash::{Error, Volume, assemble, assemble_degraded};
use conquest_format::volume::{ANCHORS, Bind, Root, Superblock};
use conquest_testkit::Rng;
use meanwhile::watched;
use mirrors::{LEN, Mirror, START, failed, join, recover, write};
use volumes::{Model, TestVolume, UNIT, opened, region_file};

#[test]
fn who_has_failed_is_known_after_a_restart() {
    for (member, work) in [(0, Work::Write), (1, Work::Write), (0, Work::Flush), (1, Work::Flush)] {
        let mut mirror = Mirror::new(2);
        let volume = mirror.recovered();
        let mut model = Model::default();
        write(&volume, &mut model, 0, 100, 1);
        volume.checkpoint().unwrap();
        assert_eq!((failed(&volume), volume.info().unwrap().failed_since), (0, 0));
        mirror.faults[member].fail(work, 0, libc::EIO);
        write(&volume, &mut model, 50, 3, 2);
        write(&volume, &mut model, 200, 40, 3);
        volume.flush().unwrap();
        assert_eq!(failed(&volume), 1 << member, "{work:?}");
        let since = volume.info().unwrap().failed_since;
        assert!(since > 1_700_000_000 * 1_000_000_000);
        drop(volume);
        // It works again, and has old roots, packets and payload.
        for _ in 0..3 {
            mirror.repair();
            let volume = mirror.recovered();
            assert_eq!(failed(&volume), 1 << member, "{work:?}");
            assert_eq!(volume.info().unwrap().failed_since, since);
            model.compare(&volume, 300 * 8, "by the other one");
            write(&volume, &mut model, 60, 3, 4);
            volume.checkpoint().unwrap();
            assert_eq!(mirror.faults[member].made(Work::Write), 0, "it is not written");
            // Nor is it read when the other one can't be.
            mirror.faults[1 - member].vanish();
            assert!(volume.read(0, &mut [0; 4096]).is_err());
        }
    }
}

/// Who comes to a mirror that is whole changes nothing of it, and who lacks a member tells when.
#[test]
fn since_when_one_has_failed_is_told() {
    let mirror = Mirror::new(2);
    let (body, other) = (mirror.body(), mirror.body());
    let less = assemble_degraded(mirror.some(&[0])).unwrap();
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = join(&other, &file);
    assert_eq!(first.info().unwrap().failed_since, 0);
    let third = join(&less, &file);
    let since = first.info().unwrap().failed_since;
    assert!(since > 1_700_000_000 * 1_000_000_000);
    let fourth = join(&less, &file);
    assert_eq!(first.info().unwrap().failed_since, since);
    // As long as they are there, the member can't have all that others have.
    let error = second.restore(&mut |_, _| true).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert_eq!(failed(&first), 2);
    drop((third, fourth));
}

/// What one process sees others know before anything is durable that is not on the member.
#[test]
fn other_processes_learn_who_has_failed() {
    for work in [Work::Write, Work::Flush] {
        let mut mirror = Mirror::new(2);
        let (body, other) = (mirror.body(), mirror.body());
        let file = region_file(&body);
        let first = Volume::recover(opened(&body, &file), &body).unwrap();
        let second = join(&other, &file);
        let mut model = Model::default();
        write(&second, &mut model, 0, 100, 1);
        second.flush().unwrap();
        // The failed write is the first one's, and the flush that counts is the second one's.
        mirror.faults[1].fail(work, 0, libc::EIO);
        write(&first, &mut model, 0, 40, 2);
        if work == Work::Flush {
            first.flush().unwrap();
        }
        let before = mirror.faults[1].made(Work::Write);
        write(&second, &mut model, 100, 40, 3);
        second.flush().unwrap();
        assert_eq!(mirror.faults[1].made(Work::Write), before, "{work:?}");
        assert_eq!((failed(&first), failed(&second)), (2, 2));
        drop((first, second, body, other));
        mirror.repair();
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 2, "{work:?}");
        model.compare(&volume, 200 * 8, "by the other one");
    }
}

#[test]
fn two_that_fail_after_each_other_are_both_known() {
    let mut mirror = Mirror::new(3);
    let volume = mirror.recovered();
    let mut model = Model::default();
    for (number, member) in [(1, 2), (2, 0)] {
        write(&volume, &mut model, number * 10, 5, number);
        volume.flush().unwrap();
        mirror.faults[member].vanish();
    }
    write(&volume, &mut model, 40, 40, 3);
    volume.flush().unwrap();
    assert_eq!(failed(&volume), 0b101);
    drop(volume);
    mirror.repair();
    let volume = mirror.recovered();
    assert_eq!(failed(&volume), 0b101);
    model.compare(&volume, 100 * 8, "by the last one");
}

#[test]
fn a_member_that_is_missing_is_done_without_if_that_is_said() {
    let mirror = Mirror::new(2);
    let volume = mirror.recovered();
    let mut model = Model::default();
    write(&volume, &mut model, 0, 100, 1);
    volume.flush().unwrap();
    drop(volume);
    for (there, missing) in [(0, 1), (1, 0)] {
        let error = assemble(mirror.some(&[there])).err().unwrap();
        assert!(matches!(error, Error::Missing { members: 2, .. }), "{error}");
        let said = error.to_string();
        for words in [format!("member {missing} of its mirror, of 2"), "--degraded".into()] {
            assert!(said.contains(&words), "{said}");
        }
    }
    let volume = mirror.degraded(&[1]);
    assert_eq!(failed(&volume), 1);
    model.compare(&volume, 200 * 8, "alone");
    write(&volume, &mut model, 20, 60, 2);
    volume.flush().unwrap();
    drop(volume);
    // It is back, and old.
    let volume = mirror.recovered();
    assert_eq!(failed(&volume), 1);
    model.compare(&volume, 200 * 8, "with the old one");
    // All of a striped volume are needed.
    let error = assemble_degraded(Vec::new()).err().unwrap();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
}

/// A process that does not have a member lets it fail for the others, too.
#[test]
fn who_lacks_a_member_is_known_to_others() {
    let mirror = Mirror::new(2);
    let (body, less) = (mirror.body(), assemble_degraded(mirror.some(&[0])).unwrap());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let mut model = Model::default();
    write(&first, &mut model, 0, 100, 1);
    first.flush().unwrap();
    let second = join(&less, &file);
    write(&second, &mut model, 50, 20, 2);
    second.flush().unwrap();
    write(&first, &mut model, 60, 20, 3);
    first.flush().unwrap();
    assert_eq!((failed(&first), failed(&second)), (2, 2));
    // Nobody who has nothing but the other one can come in.
    let other = assemble_degraded(mirror.some(&[1])).unwrap();
    let error = Volume::join(opened(&other, &file), &other).err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert_eq!(failed(&first), 2);
    drop((first, second, body, less, other));
    let volume = mirror.recovered();
    assert_eq!(failed(&volume), 2);
    model.compare(&volume, 200 * 8, "by both");
}

/// A device that was away without anybody noticing, such as a copy of an earlier state, is not
/// taken for one that has everything.
#[test]
fn a_member_that_lacks_roots_is_not_trusted() {
    for member in [0, 1] {
        let mirror = Mirror::new(2);
        let volume = mirror.recovered();
        let mut model = Model::default();
        write(&volume, &mut model, 0, 100, 1);
        volume.checkpoint().unwrap();
        let image = mirror.image(member);
        write(&volume, &mut model, 30, 60, 2);
        volume.checkpoint().unwrap();
        volume.checkpoint().unwrap();
        drop(volume);
        mirror.set_image(member, &image);
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 1 << member);
        model.compare(&volume, 200 * 8, "by the newer one");
        drop(volume);
        // One that has nothing at all is the same.
        mirror.set_image(member, &vec![0; (LEN - 2 * START) as usize]);
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 1 << member);
        model.compare(&volume, 200 * 8, "by the only one");
    }
}

#[test]
fn members_that_were_used_without_each_other_are_refused_together() {
    let mirror = Mirror::new(2);
    let volume = mirror.recovered();
    let mut model = Model::default();
    write(&volume, &mut model, 0, 100, 1);
    volume.flush().unwrap();
    drop(volume);
    for (member, number) in [(0, 2), (1, 3)] {
        let volume = mirror.degraded(&[member]);
        let mut model = model.clone();
        write(&volume, &mut model, 20, 20, number);
        volume.flush().unwrap();
    }
    let error = recover(&mirror.body()).err().unwrap();
    assert!(matches!(error, Error::Parted { .. }), "{error}");
    assert!(error.to_string().contains("--degraded"));
    let volume = mirror.degraded(&[0]);
    write(&volume, &mut model, 20, 20, 2);
    model.compare(&volume, 200 * 8, "as one has it");
}

/// A member that is not there has failed since then, and not since the volume was opened with it.
#[test]
fn since_when_one_is_missing_is_told() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mirror = Mirror::new(2);
    let mut model = Model::default();
    let volume = mirror.recovered();
    write(&volume, &mut model, 0, 10, 1);
    volume.flush().unwrap();
    drop(volume);
    let before = now();
    let mut told = Vec::new();
    for _ in 0..2 {
        let volume = mirror.degraded(&[0]);
        assert_eq!(failed(&volume), 2);
        told.push(volume.info().unwrap().failed_since);
    }
    assert!((before..now()).contains(&told[0]), "{told:?} since {before}");
    assert_eq!(told[0], told[1]);
}

/// When each member lacks what the other one has, nothing counts that is not on both.
#[test]
fn nothing_is_durable_that_no_member_has() {
    let mut mirror = Mirror::new(2);
    let (body, other) = (mirror.body(), mirror.body());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = join(&other, &file);
    let mut model = Model::default();
    write(&first, &mut model, 0, 100, 1);
    first.flush().unwrap();
    // The first one sees one fail, the last one can't fail for anybody then.
    mirror.faults[0].fail(Work::Write, 0, libc::EIO);
    first.write(0, &vec![9; 40 * 4096]).unwrap();
    mirror.faults[1].vanish();
    assert!(second.write(800, &vec![9; 40 * 4096]).is_err());
    assert!(second.flush().is_err());
    assert_eq!(failed(&second), 1);
    drop((first, second, body, other));
    mirror.repair();
    let volume = mirror.recovered();
    // Whichever of it is there, it is what was written.
    let mut bytes = vec![0; 40 * 4096];
    volume.read(0, &mut bytes).unwrap();
    assert!(bytes == model.read(0, 40 * 8) || bytes == vec![9; 40 * 4096]);
}

/// Two see different members fail, before either knows what the other one has seen.
#[test]
fn when_each_member_lacks_something_the_volume_has_failed() {
    let mut mirror = Mirror::new(2);
    let meanwhile = watched(&mirror.devices[1]);
    let first_of = mirror.some(&[0]).pop().unwrap();
    let (body, other) = (
        assemble(vec![first_of, Arc::clone(&meanwhile) as _]).unwrap(),
        assemble(vec![Arc::new(mirror.devices[0].as_other()), mirror.some(&[1]).pop().unwrap()])
            .unwrap(),
    );
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = Arc::new(join(&other, &file));
    let mut model = Model::default();
    write(&first, &mut model, 0, 100, 1);
    first.flush().unwrap();
    mirror.faults[0].fail(Work::Write, 0, libc::EIO);
    mirror.faults[1].fail(Work::Write, 0, libc::EIO);
    let its = Arc::clone(&second);
    meanwhile.in_next(Work::Write, 0, move || its.write(1600, &vec![8; 40 * 4096]).unwrap());
    let bytes = vec![9; 40 * 4096];
    let error = first.write(0, &bytes).unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error}");
    assert!(meanwhile.is_done());
    for volume in [&first, &second] {
        let error = volume.flush().unwrap_err();
        assert!(matches!(error, Error::Failed { .. }), "{error}");
    }
    drop((first, second, body, other, meanwhile));
    mirror.repair();
    let volume = mirror.recovered();
    model.compare(&volume, 100 * 8, "as it was flushed");
}

/// What the volume has, from end to end.
fn contents(volume: &TestVolume) -> Vec<u8> {
    let mut bytes = vec![0; 700 * 4096];
    volume.read(0, &mut bytes).unwrap();
    bytes
}

/// Writes without flushing, as much as goes to the devices by itself.
fn write_unflushed(volume: &TestVolume, model: &mut Model) {
    for number in 0..5 {
        write(volume, model, 300 + 50 * number, 40, 100 + number);
        for unit in 0..40 {
            write(volume, model, number * 50 + unit, 1, 200 + number);
        }
        // What is sealed is written.
        volume.trim(699 * 8, 8).unwrap();
    }
    for number in 0..150 {
        write(volume, model, number % 290, 8, 300 + number);
    }
}

/// Members differ in whatever was not flushed; what recovery keeps of it each of them has alone.
#[test]
fn what_recovery_keeps_is_on_all_members() {
    let mut kept = [0; 3];
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let mirror = Mirror::new(2);
        let volume = mirror.recovered();
        let mut model = Model::default();
        write(&volume, &mut model, 0, 300, 1);
        volume.flush().unwrap();
        let flushed = contents(&volume);
        let before = mirror.image(0);
        write_unflushed(&volume, &mut model);
        drop(volume);
        let after = mirror.image(0);
        // Each unit is new on both, or on one of them.
        let mut images = [after.clone(), after.clone()];
        for at in (0..after.len()).step_by(4096) {
            let old = match seed % 3 {
                0 => Some(0),
                1 => Some(1),
                _ => [None, Some(0), Some(1)][rng.below(3) as usize],
            };
            if let Some(member) = old {
                images[member][at..at + 4096].copy_from_slice(&before[at..at + 4096]);
            }
        }
        images.iter().enumerate().for_each(|(member, image)| mirror.set_image(member, image));
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 0, "{seed}");
        let found = contents(&volume);
        kept[seed as usize % 3] += u32::from(found != flushed);
        drop(volume);
        let images = [mirror.image(0), mirror.image(1)];
        for member in [0, 1] {
            let volume = mirror.degraded(&[member]);
            assert!(contents(&volume) == found, "{seed}: member {member} alone");
            assert_eq!(volume.check().unwrap(), []);
            drop(volume);
            mirror.set_image(member, &images[member]);
        }
    }
    assert!(kept.iter().all(|kept| *kept > 0), "{kept:?}");
}

/// One that can't be made like the others has failed.
#[test]
fn a_member_that_does_not_get_what_recovery_keeps_has_failed() {
    let mirror = Mirror::new(2);
    let volume = mirror.recovered();
    let mut model = Model::default();
    write(&volume, &mut model, 0, 300, 1);
    volume.flush().unwrap();
    let before = mirror.image(1);
    write_unflushed(&volume, &mut model);
    drop(volume);
    mirror.set_image(1, &before);
    let body = mirror.body();
    mirror.faults[1].fail(Work::Write, 5, libc::EIO);
    let volume = recover(&body).unwrap();
    assert_eq!(failed(&volume), 2);
    let found = contents(&volume);
    drop((volume, body));
    let volume = mirror.recovered();
    assert_eq!(failed(&volume), 2);
    assert!(contents(&volume) == found);
}

/// There is nothing to be said again before the first one of a life.
#[test]
fn nothing_is_where_roots_are_but_roots() {
    for member in [0, 1] {
        let mirror = Mirror::new(2);
        let volume = mirror.recovered();
        let mut model = Model::default();
        write(&volume, &mut model, 0, 20, 1);
        volume.flush().unwrap();
        drop(volume);
        // It is flushed before the new life begins.
        mirror.faults[member].fail(Work::Flush, 0, libc::EIO);
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 1 << member);
        model.compare(&volume, 20 * 8, "by the other one");
        let bind = Bind::new(*b"a mirror to test");
        let image = mirror.image(1 - member);
        let anchors = image.chunks(UNIT as usize).take(ANCHORS as usize * 16);
        let written = anchors.filter(|unit| unit.iter().any(|byte| *byte != 0));
        let roots: Vec<_> = written.map(|unit| Root::from_unit(bind, unit)).collect();
        assert!(roots.len() > 2 && roots.iter().all(Option::is_some), "{roots:?}");
    }
}

/// It was replaced since they have opened the volume.
#[test]
fn who_has_another_device_for_a_member_than_others_is_refused() {
    let mirror = Mirror::new(2);
    let body = mirror.body();
    let file = region_file(&body);
    let _volume = Volume::recover(opened(&body, &file), &body).unwrap();
    let limits = mirror.devices[1].limits();
    let third = MemoryDevice::new("third", LEN, limits).unwrap();
    let mut bytes = vec![0; LEN as usize];
    mirror.devices[1].read(0, &mut bytes).unwrap();
    let said = Superblock::from_bytes(bytes.first_chunk().unwrap()).unwrap();
    for at in [0, LEN as usize - 4096] {
        let changed = Superblock { stamp: 7, ..said }.to_bytes();
        bytes[at..at + changed.len()].copy_from_slice(&changed);
    }
    third.write(0, &bytes).unwrap();
    let mut members = mirror.some(&[0]);
    members.push(Arc::new(third));
    let other = assemble(members).unwrap();
    let refused = Volume::join(opened(&other, &file), &other).err().unwrap();
    assert!(refused.to_string().contains("which was replaced"), "{refused}");
}
