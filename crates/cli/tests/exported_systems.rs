//! File systems of the kernel on loop devices on the space of a volume, each time in a mount
//! namespace of its own; and what is left when the exporter is killed.
//!
//! Needs root, mount namespaces, FUSE, loop devices, and the tools of ext3, ext4 and XFS; fails
//! where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conquest_testkit::Rng;
use rustix::fs::fallocate;
use rustix::process::{Signal, kill_process};
use support::exported::{Loop, PUNCH, Place, bytes, run, unmount};
use support::mounted::{await_that, server};
use support::printed;
use support::scene::{own_part, play};

/// A part; nothing when tests are run.
#[test]
fn plays_a_part() {
    let Some((part, root)) = own_part() else { return };
    let words: Vec<&str> = part.split(' ').collect();
    match words[..] {
        ["full", kind] => full(&Place::new(&root, "96M"), kind),
        ["longer"] => longer(&Place::new(&root, "256M")),
        ["killed", how] => killed(&Place::new(&root, "128M"), how == "lost"),
        ["durable"] => durable(&Place::new(&root, "64M")),
        _ => panic!("no part {part}"),
    }
}

#[test]
fn ext4_is_filled_and_gives_back() {
    play("full ext4");
}

#[test]
fn ext3_is_filled_and_gives_back() {
    play("full ext3");
}

/// Files with bytes by their numbers, until there is no space left: how many.
fn fill(directory: &Path) -> u64 {
    for number in 0.. {
        let len = 1 + Rng::new(number).below(1 << 20) as usize;
        let made = std::fs::write(directory.join(number.to_string()), bytes(number, len));
        match made {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return number,
            Err(error) => panic!("file {number}: {error}"),
        }
    }
    0
}

fn verify(directory: &Path, count: u64) {
    for number in 0..count {
        let len = 1 + Rng::new(number).below(1 << 20) as usize;
        let found = std::fs::read(directory.join(number.to_string())).unwrap();
        assert!(found == bytes(number, len), "file {number}");
    }
}

/// Fills a file system on all of the volume: as long as that says that it has space, it has.
fn full(place: &Place, kind: &str) {
    place.export(&[]);
    let device = Loop::new(&place.file(), "4096");
    let (directory, make) = (place.on_it(), format!("mkfs.{kind}"));
    let at = directory.to_str().unwrap();
    run(&[&make, "-q", "-b", "4096", &device.path]);
    run(&["mount", "-t", kind, &device.path, at]);
    let count = fill(&directory);
    assert!(count > 50, "{count} files");
    run(&["sync", "-f", at]);
    // On a volume that is as full as it can be, what is there can be changed.
    for number in (0..count).step_by(2) {
        let path = directory.join(number.to_string());
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let len = file.metadata().unwrap().len() as usize;
        file.write_all_at(&bytes(number, len), 0).unwrap();
    }
    run(&["umount", at]);
    run(&["mount", "-t", kind, &device.path, at]);
    verify(&directory, count);
    let used = place.used();
    for number in 0..count {
        std::fs::remove_file(directory.join(number.to_string())).unwrap();
    }
    run(&["sync", "-f", at]);
    run(&["fstrim", at]);
    await_that("the space", || place.used() < used / 8);
    run(&["umount", at]);
    run(&["e2fsck", "-fn", &device.path]);
    drop(device);
    place.umount();
    let index = &place.index;
    let said = printed(["volume", "check", "--index", index, &place.disk]);
    assert!(said.contains("as it should be"), "{said}");
}

#[test]
fn xfs_is_on_more_than_there_is() {
    play("longer");
}

/// XFS is never smaller than this file, which is longer than the volume.
fn longer(place: &Place) {
    place.export(&["--size", "1G"]);
    let device = Loop::new(&place.file(), "512");
    let directory = place.on_it();
    let at = directory.to_str().unwrap();
    run(&["mkfs.xfs", "-q", &device.path]);
    run(&["mount", "-t", "xfs", "-o", "discard", &device.path, at]);
    for number in 0..60 {
        let len = 1 + Rng::new(number).below(1 << 20) as usize;
        std::fs::write(directory.join(number.to_string()), bytes(number, len)).unwrap();
    }
    run(&["sync", "-f", at]);
    let used = place.used();
    run(&["umount", at]);
    run(&["mount", "-t", "xfs", "-o", "discard", &device.path, at]);
    verify(&directory, 60);
    for number in 0..60 {
        std::fs::remove_file(directory.join(number.to_string())).unwrap();
    }
    // Discarded without being asked, when the log has it.
    run(&["sync", "-f", at]);
    run(&["umount", at]);
    await_that("the space", || place.used() < used - (20 << 20));
    run(&["xfs_repair", "-n", &device.path]);
    drop(device);
    place.umount();
}

#[test]
fn what_was_synced_survives_the_exporter() {
    play("killed kept");
}

#[test]
fn what_was_synced_survives_the_index_too() {
    play("killed lost");
}

/// Kills the exporter, and waits until the mount is dead.
fn kill(place: &Place) {
    kill_process(server(&place.point), Signal::KILL).unwrap();
    await_that("the end of the server", || {
        let refused = std::fs::metadata(place.file());
        refused.is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
    });
}

/// Writes and syncs files until that fails; `done` counts those that are durable.
fn write_on(directory: &Path, done: &AtomicU64) {
    for number in 0.. {
        let path = directory.join(number.to_string());
        let written = File::create(&path).and_then(|file| {
            file.write_all_at(&bytes(number, 30_000), 0)?;
            // The first one of a directory makes its name durable, too.
            file.sync_all()
        });
        if written.is_err() {
            return;
        }
        done.store(number + 1, Ordering::Release);
    }
}

/// Kills the exporter while an ext4 on it is written to, several times; each time, what was synced
/// is there. If `is_lost`, the index is, as after a power cut.
fn killed(place: &Place, is_lost: bool) {
    let directory = place.on_it();
    let at = directory.to_str().unwrap();
    let mut rng = Rng::new(3);
    for round in 0..4 {
        place.export(&[]);
        let device = Loop::new(&place.file(), "4096");
        if round == 0 {
            run(&["mkfs.ext4", "-q", &device.path]);
        }
        run(&["mount", "-t", "ext4", &device.path, at]);
        let inner = directory.join(format!("round {round}"));
        std::fs::create_dir(&inner).unwrap();
        let done = AtomicU64::new(0);
        let wanted = 20 + rng.below(60);
        std::thread::scope(|scope| {
            scope.spawn(|| write_on(&inner, &done));
            await_that("some files", || done.load(Ordering::Acquire) >= wanted);
            std::thread::sleep(Duration::from_micros(rng.below(3000)));
            kill(place);
        });
        let count = done.load(Ordering::Acquire);
        run(&["umount", at]);
        drop(device);
        unmount(place);
        let indices: Vec<_> = std::fs::read_dir(&place.index).unwrap().flatten().collect();
        assert_eq!(indices.len(), 1, "who is killed leaves its index");
        if is_lost {
            std::fs::remove_file(indices[0].path()).unwrap();
        }
        place.export(&[]);
        let device = Loop::new(&place.file(), "4096");
        run(&["mount", "-t", "ext4", &device.path, at]);
        for number in 0..count {
            let found = std::fs::read(inner.join(number.to_string())).unwrap();
            assert!(found == bytes(number, 30_000), "round {round}: file {number} of {count}");
        }
        run(&["umount", at]);
        run(&["e2fsck", "-fn", &device.path]);
        drop(device);
        place.umount();
    }
}

#[test]
fn synced_bytes_are_durable() {
    play("durable");
}

/// A way to write what is to be durable then.
type Way = fn(&Place, &Loop, &[u8]);

/// Where the ways write.
const AT: u64 = 1 << 20;

const WAYS: [(&str, Way); 5] = [
    ("fdatasync", |place, _, bytes| {
        place.open().write_all_at(bytes, AT).unwrap();
        place.open().sync_data().unwrap();
    }),
    ("fsync", |place, _, bytes| {
        place.open().write_all_at(bytes, AT).unwrap();
        place.open().sync_all().unwrap();
    }),
    ("O_DSYNC", |place, _, bytes| {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::DSYNC;
        let file = rustix::fs::open(place.file(), flags, rustix::fs::Mode::empty()).unwrap();
        File::from(file).write_all_at(bytes, AT).unwrap();
    }),
    ("a flush of the loop device", |_, device, bytes| {
        let file = OpenOptions::new().write(true).open(&device.path).unwrap();
        file.write_all_at(bytes, AT).unwrap();
        file.sync_all().unwrap();
    }),
    ("fdatasync after punching", |place, _, bytes| {
        let file = place.open();
        file.write_all_at(&[7; 20_000], AT + bytes.len() as u64).unwrap();
        file.write_all_at(bytes, AT).unwrap();
        file.sync_data().unwrap();
        fallocate(&file, PUNCH, AT + bytes.len() as u64, 20_000).unwrap();
        file.sync_data().unwrap();
    }),
];

/// What is synced, in whatever way, is there without the index, as after a power cut.
fn durable(place: &Place) {
    const LEN: usize = 10_000;
    for (number, (name, way)) in (1..).zip(WAYS) {
        place.export(&[]);
        let device = Loop::new(&place.file(), "4096");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Others write at the same time.
            let file = place.open();
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if file.write_at(&[9; 4096], 32 << 20).is_err() {
                        return;
                    }
                }
            });
            way(place, &device, &bytes(number, LEN));
            kill(place);
            stop.store(true, Ordering::Relaxed);
        });
        let begin = Instant::now();
        assert!(File::open(&device.path).unwrap().read_at(&mut [0; 4096], 0).is_err());
        assert!(begin.elapsed() < Duration::from_secs(10));
        drop(device);
        unmount(place);
        for entry in std::fs::read_dir(&place.index).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        place.export(&[]);
        let mut found = vec![0; LEN + 20_000];
        place.open().read_exact_at(&mut found, AT).unwrap();
        assert!(found[..LEN] == bytes(number, LEN), "{name}: what was written is not there");
        assert!(found[LEN..].iter().all(|byte| *byte == 0), "{name}: what was punched is there");
        place.umount();
    }
}
