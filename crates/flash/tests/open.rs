//! Volumes opened by the paths of their devices: by several processes, of which some are killed.
#![allow(clippy::unwrap_used, clippy::panic)]

mod opening;

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conquest_flash::device::{Device, FileDevice};
use conquest_flash::{
    Damage, Error, NewVolume, OpenOptions, Verifying, create_at, open_device, replace_at,
};
use conquest_format::geometry::{STATE_ROOTS, SUPERBLOCKS};
use conquest_format::superblock::{RawSuperblock, SIZE};
use conquest_format::volume::Arrangement;
use conquest_testkit::Rng;
use opening::{
    BLOCK, Place, Storm, TestVolume, block_of, claim, ends_well, kill, start, with_lock,
};
use rustix::fs::{CWD, FileType, Mode};

/// Words of the index: where the next record goes, and behind the last one that counts.
const END: u64 = 5;
const WHOLE: u64 = 6;

/// What children do.
#[test]
fn as_child() {
    match opening::role() {
        Some(words) => opening::run(&words),
        None => println!("only for children"),
    }
}

fn write(volume: &TestVolume, block: u64, number: u64) {
    volume.write(block, &block_of(block, number)).unwrap();
}

#[track_caller]
fn expect(volume: &TestVolume, block: u64, number: u64) {
    let mut bytes = [0; BLOCK as usize];
    volume.read(block, &mut bytes).unwrap();
    assert!(bytes == block_of(block, number), "block {block} is not that of write {number}");
}

#[test]
fn what_was_not_flushed_outlives_processes_but_not_the_index() {
    let place = Place::new(1, 64);
    let volume = place.open().unwrap();
    write(&volume, 8, 1);
    volume.flush().unwrap();
    write(&volume, 16, 2);
    let index = volume.index().unwrap().to_owned();
    // As if it had been killed.
    drop(volume);
    let volume = place.open().unwrap();
    assert_eq!(volume.index().unwrap(), index);
    expect(&volume, 8, 1);
    expect(&volume, 16, 2);
    let other = place.open().unwrap();
    write(&other, 24, 3);
    volume.close().unwrap();
    assert_eq!(place.indices(), std::slice::from_ref(&index));
    other.close().unwrap();
    assert_eq!(place.indices(), [] as [std::path::PathBuf; 0]);
    let volume = place.open().unwrap();
    assert_ne!(volume.index().unwrap(), index);
    for (block, number) in [(8, 1), (16, 2), (24, 3)] {
        expect(&volume, block, number);
    }
    write(&volume, 32, 4);
    std::fs::remove_file(volume.index().unwrap()).unwrap();
    drop(volume);
    let volume = place.open().unwrap();
    expect(&volume, 24, 3);
    assert_eq!(volume.allocated(32).unwrap(), None);
    volume.close().unwrap();
}

#[test]
fn the_last_one_who_closes_waits_for_requests_of_those_who_are_gone() {
    let place = Place::new(1, 64);
    let volume = place.open().unwrap();
    // What the kernel has of a process that was killed: a writer's lock, and no process.
    let late = open_device(&place.paths[0]).unwrap();
    assert!(late.enter(1000).unwrap());
    let other = place.open().unwrap();
    let since = Instant::now();
    other.close().unwrap();
    assert_eq!(place.indices().len(), 1);
    assert!(since.elapsed() < place.options.patience / 2, "it waited for one who is there");
    let done = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(late);
    });
    volume.close().unwrap();
    assert_eq!(place.indices(), [] as [std::path::PathBuf; 0]);
    done.join().unwrap();
}

#[test]
fn what_was_flushed_and_is_damaged_is_not_taken_for_what_never_was() {
    let place = Place::new(1, 64);
    let volume = place.open().unwrap();
    let mut bytes = [0x77; 4096];
    volume.write(800, &bytes).unwrap();
    volume.close().unwrap();
    let mut all = std::fs::read(&place.paths[0]).unwrap();
    let found = all.chunks_mut(4096).filter(|unit| **unit == bytes);
    assert_eq!(found.map(|unit| unit.fill(0xA5)).count(), 1);
    std::fs::write(&place.paths[0], all).unwrap();
    let volume = place.open().unwrap();
    let error = volume.read(800, &mut bytes).unwrap_err();
    assert!(matches!(error, Error::Damaged { block: 800, .. }), "{error}");
}

#[test]
fn who_has_another_index_is_not_joined_by() {
    let mut place = Place::new(1, 64);
    place.options.patience = Duration::from_millis(50);
    let volume = place.open().unwrap();
    write(&volume, 8, 1);
    std::fs::remove_file(volume.index().unwrap()).unwrap();
    let error = place.open().err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert!(error.to_string().contains("let them close it"), "{error}");
    write(&volume, 16, 2);
    volume.close().unwrap();
    let volume = place.open().unwrap();
    expect(&volume, 8, 1);
    expect(&volume, 16, 2);
    volume.close().unwrap();
}

#[test]
fn an_index_that_others_have_gone_past_is_not_used() {
    let here = Place::new(1, 64);
    let there = here.elsewhere();
    let volume = here.open().unwrap();
    write(&volume, 8, 1);
    volume.flush().unwrap();
    let refused = OpenOptions { patience: Duration::from_millis(50), ..there.options.clone() };
    let error = TestVolume::open(&there.paths, &refused).err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    write(&volume, 16, 2);
    let old = volume.index().unwrap().to_owned();
    drop(volume);
    let volume = there.open().unwrap();
    expect(&volume, 8, 1);
    write(&volume, 16, 3);
    volume.flush().unwrap();
    drop(volume);
    assert!(old.exists());
    let volume = here.open().unwrap();
    assert!(!old.exists());
    expect(&volume, 16, 3);
    volume.close().unwrap();
    // What is left there is older than the volume, too.
    assert_eq!(there.indices().len(), 1);
    there.open().unwrap().close().unwrap();
    assert_eq!(there.indices().len(), 0);
}

#[test]
fn an_index_of_no_use_is_made_again() {
    let place = Place::new(1, 64);
    let volume = place.open().unwrap();
    write(&volume, 8, 1);
    volume.flush().unwrap();
    drop(volume);
    let damages: [fn(&File); 6] = [
        // All of both superblocks is there.
        |file| file.set_len(65536).unwrap(),
        |file| file.set_len(4096).unwrap(),
        |file| file.set_len(0).unwrap(),
        |file| file.write_all_at(&[7; 65536], 0).unwrap(),
        // Its boot id: the first of both superblocks, which then are not what they were.
        |file| {
            for at in [0, 4096] {
                file.write_all_at(&[9; 64], at).unwrap();
            }
        },
        // Behind the last record there is another one that counts, and is none.
        |file| {
            for word in [END, WHOLE] {
                let (at, mut end) = (STATE_ROOTS.bytes() + word * 8, [0; 8]);
                file.read_exact_at(&mut end, at).unwrap();
                let more = u64::from_le_bytes(end) + 3;
                file.write_all_at(&more.to_le_bytes(), at).unwrap();
            }
        },
    ];
    for damage in damages {
        let [index] = <[_; 1]>::try_from(place.indices()).unwrap();
        let file = File::options().read(true).write(true).open(&index).unwrap();
        damage(&file);
        let volume = place.open().unwrap();
        expect(&volume, 8, 1);
        assert_ne!(volume.index().unwrap(), index);
        assert_eq!(place.indices().len(), 1);
    }
    place.open().unwrap().close().unwrap();
    // That of another volume, of the same life, under this one's name.
    let [place, other] = [Place::new(1, 64), Place::new(1, 64)];
    let foreign = other.open().unwrap();
    let volume = place.open().unwrap();
    let index = volume.index().unwrap().to_owned();
    drop(volume);
    std::fs::copy(foreign.index().unwrap(), &index).unwrap();
    let volume = place.open().unwrap();
    assert_ne!(volume.index().unwrap(), index);
    volume.close().unwrap();
    foreign.close().unwrap();
}

#[test]
fn who_opens_has_the_devices_for_himself_meanwhile() {
    let mut place = Place::new(2, 64);
    place.options.patience = Duration::from_millis(500);
    // Somebody writes whose index is another one: he is waited for.
    let late = open_device(&place.paths[0]).unwrap();
    assert!(late.enter(1000).unwrap());
    for path in &place.paths {
        let error = with_lock(path, || place.open().err().unwrap());
        assert!(matches!(error, Error::InUse { .. }), "{error}");
    }
    drop(late);
    // One after the other, in the order of their numbers: so nobody waits for who waits for him.
    let [one, two] = <[_; 2]>::try_from(place.paths.clone()).unwrap();
    place.options.patience = Duration::from_secs(20);
    let first = open_device(&one).unwrap();
    let alone = claim(&first);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| TestVolume::open(&[&two, &one], &place.options));
        std::thread::sleep(Duration::from_millis(100));
        drop(claim(&open_device(&two).unwrap()));
        assert!(!opening.is_finished());
        drop(alone);
        opening.join().unwrap().unwrap().close().unwrap();
    });
}

#[test]
fn who_makes_or_replaces_a_device_has_it_for_himself_meanwhile() {
    let mut place = Place::new(2, 64);
    let new = NewVolume { arrangement: Arrangement::Mirrored, ..opening::new_volume() };
    create_at(&place.paths, &new, true).unwrap();
    place.options.patience = Duration::from_millis(500);
    let [one, two] = <[_; 2]>::try_from(place.paths.clone()).unwrap();
    let other = open_device(&two).unwrap();
    let replace = || replace_at(&[&one], &two, &place.options, true).unwrap_err();
    // Somebody else has it: he is waited for, for a second.
    let alone = claim(&other);
    let error = create_at(std::slice::from_ref(&two), &new, true).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    let error = with_lock(&one, replace);
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(alone);
    assert!(other.enter(1000).unwrap());
    let error = with_lock(&two, replace);
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    let error = with_lock(&two, || create_at(&[&two], &new, true).unwrap_err());
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(other);
    place.open().unwrap().close().unwrap();
}

#[test]
fn who_closes_makes_durable_what_there_is() {
    // What he has written himself, while others go on.
    let place = Place::new(1, 64);
    let [volume, other] = [place.open().unwrap(), place.open().unwrap()];
    write(&volume, 8, 1);
    volume.close().unwrap();
    std::fs::remove_file(other.index().unwrap()).unwrap();
    drop(other);
    expect(&place.open().unwrap(), 8, 1);
    // And what others write, who are gone when he is the last one.
    let place = Place::new(1, 64);
    let [volume, other] = [place.open().unwrap(), place.open().unwrap()];
    let device = open_device(&place.paths[0]).unwrap();
    let alone = claim(&device);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| volume.close());
        // He has flushed, and waits.
        std::thread::sleep(Duration::from_millis(200));
        write(&other, 16, 2);
        drop(other);
        drop(alone);
        closing.join().unwrap().unwrap();
    });
    assert_eq!(place.indices().len(), 0);
    expect(&place.open().unwrap(), 16, 2);
}

/// Its memory is not to stay.
#[test]
fn the_index_goes_with_a_volume_whose_file_was_removed() {
    let place = Place::new(1, 64);
    let [volume, other] = [place.open().unwrap(), place.open().unwrap()];
    std::fs::remove_file(&place.paths[0]).unwrap();
    volume.close().unwrap();
    assert_eq!(place.indices().len(), 1);
    other.close().unwrap();
    assert_eq!(place.indices().len(), 0);
}

#[test]
fn requests_of_those_who_are_gone_are_not_waited_for_for_ever() {
    let mut place = Place::new(1, 64);
    place.options.patience = Duration::from_millis(50);
    let volume = place.open().unwrap();
    let late = open_device(&place.paths[0]).unwrap();
    assert!(late.enter(1000).unwrap());
    write(&volume, 8, 1);
    let since = Instant::now();
    volume.close().unwrap();
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert_eq!(place.indices().len(), 1, "somebody may need it");
    drop(late);
    expect(&place.open().unwrap(), 8, 1);
}

/// One that was flushed to the end, and is like that of the volume otherwise.
#[test]
fn an_index_from_before_the_machine_was_started_is_not_used() {
    let place = Place::new(1, 64);
    let volume = place.open().unwrap();
    write(&volume, 8, 1);
    volume.flush().unwrap();
    let index = volume.index().unwrap().to_owned();
    drop(volume);
    let file = File::options().read(true).write(true).open(&index).unwrap();
    for at in SUPERBLOCKS {
        let mut bytes = [0; SIZE];
        file.read_exact_at(&mut bytes, at.bytes()).unwrap();
        let mut superblock = RawSuperblock::from_bytes(&bytes).check().unwrap();
        superblock.boot_id[0] ^= 1;
        file.write_all_at(&superblock.to_raw().to_bytes(), at.bytes()).unwrap();
    }
    let volume = place.open().unwrap();
    assert_ne!(volume.index().unwrap(), index);
    expect(&volume, 8, 1);
    volume.close().unwrap();
}

/// Copies of it that somebody has put back under its name, or that of the next life.
#[test]
fn an_index_that_is_older_than_the_volume_is_not_used() {
    for is_of_this_life in [true, false] {
        let place = Place::new(1, 64);
        let volume = place.open().unwrap();
        write(&volume, 8, 1);
        volume.flush().unwrap();
        let mut index = volume.index().unwrap().to_owned();
        drop(volume);
        let old = std::fs::read(&index).unwrap();
        if !is_of_this_life {
            std::fs::remove_file(&index).unwrap();
        }
        let volume = place.open().unwrap();
        index = volume.index().unwrap().to_owned();
        write(&volume, 8, 2);
        volume.checkpoint().unwrap();
        volume.flush().unwrap();
        drop(volume);
        std::fs::write(&index, old).unwrap();
        // What is no index stays.
        let another = place.options.directory.join("conquest-volume");
        std::fs::write(&another, []).unwrap();
        let volume = place.open().unwrap();
        assert_ne!(volume.index().unwrap(), index);
        assert!(!index.exists() && another.exists());
        expect(&volume, 8, 2);
        volume.close().unwrap();
    }
}

#[test]
fn devices_that_do_not_fit_are_refused() {
    let place = Place::new(2, 64);
    let other = Place::new(1, 64);
    let refused = |paths: &[std::path::PathBuf]| {
        let error = TestVolume::open(paths, &place.options).err().unwrap();
        let text = error.to_string();
        assert!(paths.len() != 1 || text.contains(paths[0].to_str().unwrap()), "{text}");
        text
    };
    let [first, second] = <[_; 2]>::try_from(place.paths.clone()).unwrap();
    let missing = first.with_file_name("missing");
    assert!(refused(&[missing]).contains("No such file"));
    assert!(refused(&["/dev/null".into()]).contains("neither a file nor a block device"));
    assert!(refused(std::slice::from_ref(&first)).contains("missing"));
    assert!(refused(std::slice::from_ref(&second)).contains("missing"));
    assert!(refused(&[first.clone(), first.clone()]).contains("twice"));
    assert!(refused(&[first.clone(), other.paths[0].clone()]).contains("another volume"));
    assert!(refused(&[]).contains("at least one"));
    let plain = first.with_file_name("plain");
    std::fs::write(&plain, vec![1; 1 << 20]).unwrap();
    assert!(refused(&[plain]).contains("name all members"));
    // In whatever order.
    TestVolume::open(&[second.clone(), first.clone()], &place.options).unwrap().close().unwrap();
    let len = std::fs::metadata(&second).unwrap().len();
    let file = File::options().write(true).open(&second).unwrap();
    file.set_len(len - 65536).unwrap();
    assert!(refused(&[first, second]).contains("shorter"));
    let new = opening::new_volume();
    let error = create_at(&other.paths, &new, false).err().unwrap();
    assert!(error.to_string().contains("already"), "{error}");
    let open = other.open().unwrap();
    let error = create_at(&other.paths, &new, true).err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    open.close().unwrap();
    create_at(&other.paths, &new, true).unwrap();
    let twice = [other.paths[0].clone(), other.paths[0].clone()];
    let error = create_at(&twice, &new, true).err().unwrap();
    assert!(error.to_string().contains("twice"), "{error}");
}

#[test]
fn a_member_that_was_replaced_is_nobody_s() {
    let mut place = Place::new(2, 64);
    place.options.patience = Duration::from_millis(50);
    let new = NewVolume { arrangement: Arrangement::Mirrored, ..opening::new_volume() };
    create_at(&place.paths, &new, true).unwrap();
    let [one, two] = <[_; 2]>::try_from(place.paths.clone()).unwrap();
    let [third, small] = ["third", "small"].map(|name| one.with_file_name(name));
    for (path, segments) in [(&third, 66), (&small, 60)] {
        FileDevice::create(path, segments << 16, 0o600, &mut |_| {}).unwrap();
    }
    let replace = |paths: &[&std::path::PathBuf], by: &std::path::Path, overwrite| {
        replace_at(paths, by, &place.options, overwrite)
    };
    let volume = place.open().unwrap();
    write(&volume, 8, 1);
    let error = replace(&[&one], &third, false).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    volume.close().unwrap();
    let refused = |paths: &[&std::path::PathBuf], by: &std::path::Path, why: &str| {
        let error = replace(paths, by, false).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(&[&one, &two], &third, "just one member");
    refused(&[&one], &two, "part of a volume already");
    refused(&[&one], &small, "smaller than what the other members");
    // By somebody who has it open, as part of another volume, or alone.
    let other = open_device(&third).unwrap();
    assert!(other.enter(1000).unwrap());
    let error = replace(&[&one], &third, false).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    other.leave(1000).unwrap();
    drop(other);
    replace(&[&one], &third, false).unwrap();
    let volume = TestVolume::open(&[&one, &third], &place.options).unwrap();
    assert_eq!(volume.info().unwrap().failed, 2);
    let mut found = Vec::new();
    let how = Verifying {
        repair: false,
        found: &mut |damage| found.push(damage),
        progress: &mut |_, _| true,
    };
    volume.verify(how).unwrap();
    let device = Some(third.clone());
    assert_eq!(found, [Damage::Member { number: 1, device, is_repaired: false }]);
    assert_eq!(volume.restore(&mut |_, _| true).unwrap(), 2);
    let error = TestVolume::open(&[&one, &two], &place.options).err().unwrap();
    assert!(error.to_string().contains("which was replaced"), "{error}");
    volume.close().unwrap();
    let degraded = OpenOptions { degraded: true, ..place.options.clone() };
    let volume = TestVolume::open(&[&third], &degraded).unwrap();
    expect(&volume, 8, 1);
    volume.close().unwrap();
    // What had been a member is one again if that is said.
    replace(&[&third], &two, true).unwrap();
    let volume = TestVolume::open(&[&third, &two], &place.options).unwrap();
    assert_eq!(volume.restore(&mut |_, _| true).unwrap().count_ones(), 1);
    volume.close().unwrap();
}

/// Where each member is, its bytes, and whether it lacks what others have.
fn members_of(volume: &TestVolume) -> Vec<(Option<PathBuf>, u64, bool)> {
    let all = volume.identity().unwrap().members.into_iter();
    all.map(|member| (member.path, member.bytes, member.has_failed)).collect()
}

#[test]
fn it_tells_which_members_it_has() {
    let place = Place::new(2, 64);
    let new = NewVolume { arrangement: Arrangement::Mirrored, ..opening::new_volume() };
    create_at(&place.paths, &new, true).unwrap();
    let [one, two] = <[_; 2]>::try_from(place.paths.clone()).unwrap();
    let volume = TestVolume::open(&[&two, &one], &place.options).unwrap();
    let there = |path: &PathBuf, has_failed| (Some(path.clone()), 66 << 16, has_failed);
    assert_eq!(members_of(&volume), [there(&one, false), there(&two, false)]);
    volume.close().unwrap();
    let degraded = OpenOptions { degraded: true, ..place.options.clone() };
    let volume = TestVolume::open(&[&two], &degraded).unwrap();
    assert_eq!(members_of(&volume), [(None, 0, true), there(&two, false)]);
}

#[test]
fn each_life_has_a_number() {
    let place = Place::new(1, 64);
    let life = || {
        let volume = place.open().unwrap();
        let life = volume.info().unwrap().life;
        assert_eq!(place.open().unwrap().info().unwrap().life, life);
        volume.close().unwrap();
        life
    };
    let lives = [life(), life(), life(), life()];
    assert!(lives.is_sorted_by(|one, next| one < next), "{lives:?}");
}

#[test]
fn an_index_is_only_in_memory() {
    let mut place = Place::new(1, 64);
    place.options.directory = place.paths[0].parent().unwrap().to_owned();
    let error = place.open().err().unwrap();
    assert!(error.to_string().contains("tmpfs"), "{error}");
    place.options.directory = "/missing".into();
    let error = place.open().err().unwrap();
    assert!(matches!(error, Error::Index { .. }), "{error}");
}

const NOBODY: u32 = 65534;

fn need_root() {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root, "this test gives files to others: run it as root");
}

fn give(device: &Path, owner: u32, group: u32, mode: u32) {
    std::os::unix::fs::chown(device, Some(owner), Some(group)).unwrap();
    std::fs::set_permissions(device, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn whoever_may_write_the_devices_shares_the_index() {
    need_root();
    let place = Place::new(1, 64);
    let set = |owner, group, mode| give(&place.paths[0], owner, group, mode);
    let touch = |user: u32| {
        let mut command = opening::child(&place.role("touch"));
        ends_well(command.uid(user).gid(user).spawn().unwrap())
    };
    set(0, 0, 0o600);
    assert!(!touch(NOBODY));
    set(0, 0, 0o644);
    assert!(!touch(NOBODY));
    let cases = [(NOBODY, 0, 0o600), (NOBODY, NOBODY, 0o640), (0, NOBODY, 0o660), (0, 0, 0o666)];
    for (owner, group, mode) in cases {
        set(owner, group, mode);
        let volume = place.open().unwrap();
        let found = std::fs::metadata(volume.index().unwrap()).unwrap();
        assert!(touch(NOBODY), "{owner} {group} {mode:o}");
        if mode != 0o666 {
            assert!(!touch(1234), "{owner} {group} {mode:o}");
        }
        let rights = mode & 0o222 | (mode & 0o222) << 1;
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (owner, group, rights));
        volume.close().unwrap();
        // And if somebody else has made it.
        assert!(ends_well({
            let mut command = opening::child(&place.role("leave"));
            command.uid(NOBODY).gid(NOBODY).spawn().unwrap()
        }));
        let [index] = <[_; 1]>::try_from(place.indices()).unwrap();
        // He may give it to his group only.
        let is_shared = group == NOBODY && mode & 0o020 != 0;
        let found = std::fs::metadata(&index).unwrap().mode() & 0o060;
        assert_eq!(found, if is_shared { 0o060 } else { 0 }, "{owner} {group} {mode:o}");
        place.open().unwrap().close().unwrap();
    }
    // Of devices of several groups nobody knows who may write all.
    let place = Place::new(2, 64);
    for (path, group) in place.paths.iter().zip([NOBODY, 1234]) {
        give(path, 0, group, 0o660);
    }
    let volume = place.open().unwrap();
    let found = std::fs::metadata(volume.index().unwrap()).unwrap().mode() & 0o777;
    assert_eq!(found, 0o600, "{found:o}");
    volume.close().unwrap();
}

#[test]
fn an_index_of_somebody_who_may_not_write_the_devices_is_not_trusted() {
    need_root();
    let place = Place::new(1, 64);
    let set = |owner, group, mode| give(&place.paths[0], owner, group, mode);
    // What somebody has put there: root, who may write the devices, or who may not.
    let cases = [
        (NOBODY, NOBODY, 0o600, 0, 0, true),
        (0, NOBODY, 0o660, 1234, NOBODY, true),
        (0, NOBODY, 0o660, 1234, 1234, false),
        (0, NOBODY, 0o640, 1234, NOBODY, false),
        (0, 0, 0o600, NOBODY, NOBODY, false),
    ];
    for (owner, group, mode, user, its_group, is_trusted) in cases {
        set(owner, group, mode);
        let volume = place.open().unwrap();
        let index = volume.index().unwrap().to_owned();
        drop(volume);
        std::os::unix::fs::chown(&index, Some(user), Some(its_group)).unwrap();
        match place.open() {
            Ok(volume) => assert!(is_trusted && volume.index().unwrap() == index),
            Err(error) => assert!(!is_trusted && error.to_string().contains(&user.to_string())),
        }
        std::os::unix::fs::chown(&index, Some(0), Some(0)).unwrap();
        place.open().unwrap().close().unwrap();
    }
    // What is no file.
    let volume = place.open().unwrap();
    let index = volume.index().unwrap().to_owned();
    drop(volume);
    std::fs::remove_file(&index).unwrap();
    rustix::fs::mknodat(CWD, &index, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let error = place.open().err().unwrap();
    assert!(error.to_string().contains("it is no file"), "{error}");
}

#[test]
fn builders_are_killed_and_race() {
    let place = Place::new(1, 256);
    let volume = place.open().unwrap();
    for block in 0..512 {
        write(&volume, block * 8, block);
    }
    volume.close().unwrap();
    let mut rng = Rng::new(5);
    let begun = std::time::Instant::now();
    assert!(ends_well(start(&place.role("touch"))));
    let whole = begun.elapsed().as_micros() as u64;
    for _ in 0..60 {
        let child = start(&place.role("leave"));
        std::thread::sleep(Duration::from_micros(rng.below(whole * 5 / 4)));
        kill(child);
        // Complete, or not there.
        assert!(place.indices().len() <= 1);
        if rng.below(2) == 0 {
            place.indices().iter().for_each(|index| std::fs::remove_file(index).unwrap());
        }
    }
    place.indices().iter().for_each(|index| std::fs::remove_file(index).unwrap());
    for _ in 0..5 {
        let children: Vec<_> = (0..4).map(|_| start(&place.role("leave"))).collect();
        assert!(children.into_iter().all(ends_well));
        assert_eq!(place.indices().len(), 1);
        let children: Vec<_> = (0..4).map(|_| start(&place.role("touch"))).collect();
        assert!(children.into_iter().all(ends_well));
        // The last one out has removed it, whichever that was.
        assert_eq!(place.indices().len(), 0);
    }
    let volume = place.open().unwrap();
    (0..512).for_each(|block| expect(&volume, block * 8, block));
    volume.close().unwrap();
}

#[test]
fn the_last_of_those_who_close_at_once_frees_the_index() {
    let place = Place::new(1, 64);
    assert!(ends_well(start(&place.role("crowd"))));
    assert_eq!(place.indices().len(), 0);
}

#[test]
fn nothing_acknowledged_is_lost_when_one_of_two_is_killed() {
    for seed in 0..2 {
        Storm::new(1, 2, seed).run(Duration::from_secs(3));
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_some_of_four_are_killed() {
    Storm::new(1, 4, 10).run(Duration::from_secs(4));
    Storm::new(2, 4, 11).run(Duration::from_secs(4));
}
