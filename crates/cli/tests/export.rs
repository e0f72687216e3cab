//! `conquest volume export`: the space of a volume as a file; each time in a mount namespace of its
//! own. Needs root, mount namespaces, FUSE and loop devices; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Stdio};

use conquest_testkit::Rng;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use support::exported::{Loop, PUNCH, Place, bytes};
use support::mounted::{await_that, ended, mounts};
use support::scene::{own_part, play};
use support::{conquest, refused, text};

/// A part; nothing when tests are run.
#[test]
fn plays_a_part() {
    let Some((part, root)) = own_part() else { return };
    let place = Place::new(&root, "64M");
    match part.as_str() {
        "file" => file(&place),
        "parts" => parts(&place),
        "shape" => shape(&place),
        "refusals" => refusals(&place),
        "space" => space(&place),
        "damage" => damage(&place),
        "foreground" => foreground(&place),
        other => panic!("no part {other}"),
    }
}

#[test]
fn the_file_is_as_a_sparse_file_of_tmpfs() {
    play("file");
}

/// Does the same to the file and to one on tmpfs.
fn file(place: &Place) {
    const SIZE: u64 = 1 << 40;
    place.export(&["--size", "1T"]);
    let ours = place.open();
    let peer = place.root.join("peer");
    let theirs = File::create_new(&peer).unwrap();
    theirs.set_len(SIZE).unwrap();
    let theirs_read = File::open(&peer).unwrap();
    let mut rng = Rng::new(1);
    for step in 0..6000 {
        // At the beginning, in the middle and at the end; whole units, blocks, and bytes.
        let base = [0, 341 << 30, SIZE - (4 << 20)][rng.below(3) as usize];
        let grain = [1, 512, 4096][rng.below(3) as usize];
        let most = if rng.chance(1, 20) { 3 << 20 } else { 20_000 };
        let len = (rng.below(most) / grain * grain).max(grain);
        let at = base + rng.below((4 << 20) - len + 1) / grain * grain;
        let what = format!("step {step}, {len} bytes at {at}");
        match rng.below(10) {
            0..4 => {
                let bytes = bytes(step, len as usize);
                ours.write_all_at(&bytes, at).unwrap();
                theirs.write_all_at(&bytes, at).unwrap();
            }
            4 | 5 => {
                // tmpfs can't zero otherwise.
                let ways = [PUNCH, FallocateFlags::ZERO_RANGE, PUNCH];
                let way = ways[rng.below(3) as usize];
                fallocate(&ours, way, at, len).unwrap();
                fallocate(&theirs, PUNCH, at, len).unwrap();
            }
            6 | 7 => {
                let [mut one, mut other] = [vec![1; len as usize], vec![2; len as usize]];
                ours.read_exact_at(&mut one, at).unwrap();
                theirs_read.read_exact_at(&mut other, at).unwrap();
                assert!(one == other, "{what}: read otherwise");
            }
            8 => {
                for to in [SeekFrom::Data(at), SeekFrom::Hole(at)] {
                    assert_eq!(seek(&ours, to), seek(&theirs, to), "{what}: {to:?}");
                }
            }
            _ => ours.sync_data().unwrap(),
        }
        if step % 100 == 0 {
            let (one, other) = (ours.metadata().unwrap(), theirs.metadata().unwrap());
            assert_eq!((one.len(), one.file_type()), (other.len(), other.file_type()));
            await_that("the space", || ours.metadata().unwrap().blocks() == other.blocks());
        }
    }
    are_the_same(&ours, &theirs_read, SIZE);
    drop(ours);
    place.umount();
    // What was written is there the next time, also for who forgets how long the file was.
    let output = conquest(place.arguments(&[]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("--size") && said.contains("has something at byte"), "{said}");
    place.export(&["--size", "1T", "--read-only"]);
    let ours = File::open(place.file()).unwrap();
    assert_eq!(ours.metadata().unwrap().blocks(), theirs.metadata().unwrap().blocks());
    drop(ours);
    place.umount();
}

/// Whether both files have the same bytes in the same places, and the same ends.
fn are_the_same(ours: &File, theirs: &File, size: u64) {
    for to in [SeekFrom::Data(size), SeekFrom::Hole(size), SeekFrom::Data(u64::MAX >> 1)] {
        assert_eq!(seek(ours, to), Err(Errno::NXIO));
        assert_eq!(seek(theirs, to), Err(Errno::NXIO));
    }
    assert_eq!(ours.read_at(&mut [0; 10], size).unwrap(), 0);
    assert_eq!(ours.read_at(&mut [0; 10], size - 4).unwrap(), 4);
    // All of it, by its data.
    let mut at = 0;
    while let Ok(start) = seek(theirs, SeekFrom::Data(at)) {
        assert_eq!(seek(ours, SeekFrom::Data(at)), Ok(start));
        let end = seek(theirs, SeekFrom::Hole(start)).unwrap();
        let [mut one, mut other] = [(); 2].map(|()| vec![0; (end - start) as usize]);
        ours.read_exact_at(&mut one, start).unwrap();
        theirs.read_exact_at(&mut other, start).unwrap();
        assert!(one == other, "{start} to {end}: read otherwise");
        at = end;
    }
    assert_eq!(seek(ours, SeekFrom::Data(at)), Err(Errno::NXIO));
}

#[test]
fn writers_of_parts_of_a_block_lose_nothing() {
    play("parts");
}

fn parts(place: &Place) {
    const THREADS: u64 = 8;
    const LEN: u64 = 64 << 10;
    place.export(&[]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let file = place.open();
                // Each has one of eight pieces of 37 bytes, which begin and end within blocks; the
                // last one has whole blocks behind them.
                for at in (thread * 37..LEN).step_by(8 * 37) {
                    let len = 37.min(LEN - at) as usize;
                    file.write_all_at(&vec![thread as u8 + 1; len], at).unwrap();
                }
                for at in (LEN..2 * LEN).step_by(512).skip(thread as usize).step_by(8) {
                    file.write_all_at(&[thread as u8 + 1; 512], at).unwrap();
                }
            });
        }
    });
    let mut all = vec![0; 2 * LEN as usize];
    place.open().read_exact_at(&mut all, 0).unwrap();
    for (at, byte) in (0..).zip(all) {
        let by = if at < LEN { at / 37 % 8 } else { at / 512 % 8 };
        assert_eq!(u64::from(byte), by + 1, "byte {at}");
    }
    place.umount();
}

#[test]
fn nothing_but_bytes_can_be_changed() {
    play("shape");
}

fn shape(place: &Place) {
    place.export(&[]);
    let capacity = place.info()["capacity_bytes"].as_u64().unwrap();
    let (ours, path) = (place.open(), place.file());
    let first = ours.metadata().unwrap();
    assert_eq!((first.len(), first.blocks(), first.mode()), (capacity, 0, 0o100_600));
    let fails = |outcome: std::io::Result<()>, errno: Errno| {
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
    };
    for size in [0, capacity - 4096, capacity + 1] {
        fails(ours.set_len(size), Errno::PERM);
    }
    ours.set_len(capacity).unwrap();
    fails(OpenOptions::new().write(true).truncate(true).open(&path).map(drop), Errno::PERM);
    fails(File::create(Path::new(&place.point).join("other")).map(drop), Errno::PERM);
    fails(File::open(Path::new(&place.point).join("other")).map(drop), Errno::NOENT);
    fails(std::fs::create_dir(Path::new(&place.point).join("other")), Errno::PERM);
    fails(std::fs::remove_file(&path), Errno::PERM);
    fails(std::fs::rename(&path, format!("{path}2")), Errno::PERM);
    fails(std::os::unix::fs::chown(&path, Some(1), None), Errno::PERM);
    // It has its length for good, and space can't be asked for.
    fails(ours.write_at(&[1; 10], capacity).map(drop), Errno::FBIG);
    assert_eq!(ours.write_at(&[1; 10], capacity - 4).unwrap(), 4);
    let allocate = |how, at, len| fallocate(&ours, how, at, len);
    let zero = FallocateFlags::ZERO_RANGE;
    assert_eq!(allocate(FallocateFlags::empty(), 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(allocate(FallocateFlags::KEEP_SIZE, 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(allocate(zero, capacity - 4096, 8192), Err(Errno::FBIG));
    allocate(zero | FallocateFlags::KEEP_SIZE, capacity - 4096, 8192).unwrap();
    allocate(PUNCH, capacity, 8192).unwrap();
    let names = std::fs::read_dir(&place.point).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["space"]);
    let now = ours.metadata().unwrap();
    assert_eq!((now.len(), now.ino(), now.blocks()), (capacity, first.ino(), 0));
    assert!(now.mtime() >= first.mtime());
    let statfs = rustix::fs::statfs(&path).unwrap();
    assert_eq!(statfs.f_blocks * statfs.f_bsize as u64, capacity);
    ours.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    let left = rustix::fs::statfs(&path).unwrap();
    assert_eq!(left.f_bfree, statfs.f_bfree - 256);
    drop(ours);
    place.umount();
}

#[test]
fn what_can_not_be_exported_is_told() {
    play("refusals");
}

fn refusals(place: &Place) {
    let (point, disk, index) = (&place.point, &place.disk, &place.index);
    let export = |point: &str, size: &str, disk: &str| {
        let words = ["volume", "export", "--index", index, "--fuse", point, "--size", size, disk];
        let said = refused(1, words);
        assert!(mounts(&place.point).is_empty());
        assert_eq!(std::fs::read_dir(index).unwrap().count(), 0, "an index is left");
        said
    };
    for (size, words) in
        [("4097", "multiple of 4096"), ("0", "multiple of 4096"), ("15E", "at most")]
    {
        let said = export(point, size, disk);
        assert!(said.contains("--size") && said.contains(words), "{said}");
    }
    let said = export("/nowhere", "1M", disk);
    assert!(said.contains("/nowhere") && said.contains("mkdir"), "{said}");
    let said = export(point, "1M", "/nowhere");
    assert!(said.contains("/nowhere: No such file"), "{said}");
    let said = export(point, "1M", "/proc/version");
    assert!(said.contains("/proc/version"), "{said}");
    refused(2, ["volume", "export", disk]);
    // What is only read can't be written, nor can a loop device on it.
    place.export(&["--read-only"]);
    let file = File::open(place.file()).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o400);
    let error = OpenOptions::new().write(true).open(place.file()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    let device = Loop::new(&place.file(), "512");
    let written = OpenOptions::new().write(true).open(&device.path).and_then(|device| {
        device.write_all_at(&[1; 512], 0)?;
        device.sync_all()
    });
    assert!(written.is_err(), "a loop device that can be written");
    drop((file, device));
    place.umount();
}

#[test]
fn in_the_foreground_it_serves_until_it_is_asked_to_end() {
    play("foreground");
}

fn start(place: &Place) -> Child {
    let mut command = support::command(None);
    command.args(place.arguments(&["--foreground"]));
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    await_that("the mount", || !mounts(&place.point).is_empty());
    child
}

fn foreground(place: &Place) {
    let ask = |child: &Child| kill_process(Pid::from_child(child), Signal::TERM).unwrap();
    let child = start(place);
    place.open().write_all_at(&bytes(7, 100_000), 3).unwrap();
    ask(&child);
    let said = ended(child);
    assert!(said.contains("is mounted at") && said.contains("is unmounted"), "{said}");
    assert!(mounts(&place.point).is_empty());
    assert_eq!(std::fs::read_dir(&place.index).unwrap().count(), 0);
    // Who uses it is waited for, and keeps it then.
    let child = start(place);
    let device = Loop::new(&place.file(), "4096");
    let said = refused(1, ["umount", &place.point]);
    assert!(said.contains(&format!("a loop device on it: {}", device.path)), "{said}");
    ask(&child);
    await_that("the lazy unmounting", || mounts(&place.point).is_empty());
    let mut found = vec![0; 100_003];
    File::open(&device.path).unwrap().read_exact_at(&mut found, 0).unwrap();
    assert!(found[3..] == bytes(7, 100_000));
    drop(device);
    let said = ended(child);
    assert!(said.contains("in use by a loop device") && said.contains("is unmounted"), "{said}");
    assert_eq!(std::fs::read_dir(&place.index).unwrap().count(), 0);
}

#[test]
fn a_file_longer_than_the_volume_fills_it() {
    play("space");
}

fn space(place: &Place) {
    place.export(&["--size", "1T"]);
    let file = place.open();
    let capacity = place.info()["capacity_bytes"].as_u64().unwrap();
    let piece = bytes(1, 1 << 20);
    let mut written = 0;
    // Apart, so that nothing is overwritten.
    let full = loop {
        match file.write_at(&piece, written * 3) {
            Ok(len) => written += len as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert!(written > capacity - (1 << 20) && written <= capacity, "{written} of {capacity}");
    // What has space can be written, and what gives some back makes room.
    file.write_all_at(&bytes(2, 1 << 20), 3 << 20).unwrap();
    assert!(file.write_at(&[1; 1 << 20], 1 << 39).is_err());
    fallocate(&file, PUNCH, 0, 1 << 20).unwrap();
    file.write_all_at(&piece, 1 << 39).unwrap();
    file.sync_all().unwrap();
    let mut found = vec![0; 1 << 20];
    file.read_exact_at(&mut found, 3 << 20).unwrap();
    assert!(found == bytes(2, 1 << 20));
    drop(file);
    place.umount();
}

#[test]
fn what_is_damaged_is_an_error_and_told() {
    play("damage");
}

fn damage(place: &Place) {
    place.export(&[]);
    let unit = bytes(1, 4096);
    place.open().write_all_at(&bytes(2, 1 << 20), 0).unwrap();
    place.open().write_all_at(&unit, 8192).unwrap();
    place.umount();
    let disk = std::fs::read(&place.disk).unwrap();
    let at = disk.chunks(4096).position(|chunk| chunk == unit).unwrap() as u64 * 4096;
    OpenOptions::new().write(true).open(&place.disk).unwrap().write_all_at(&[0xEE], at).unwrap();
    let child = start(place);
    let file = place.open();
    let error = file.read_at(&mut [0; 4096], 8192).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    // What is beside it is there, and it can be written anew.
    let mut found = vec![0; 8192];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == bytes(2, 1 << 20)[..8192]);
    file.write_all_at(&unit, 8192).unwrap();
    file.read_exact_at(&mut found[..4096], 8192).unwrap();
    assert!(found[..4096] == unit);
    drop(file);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let said = ended(child);
    assert!(said.contains("block 16 of the volume can't be read"), "{said}");
}
