//! Two processes that change one thing at once, in random schedules: whoever does not hold the lock
//! that he should tears what the other one has done.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conquest_format::geometry::Shape;
use conquest_format::{Geometry, PAGE, fs};
use conquest_fs::attributes::Stat;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::locks::{END, Mode, Owner, Record, Wait};
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::{End, How, OpenFile};
use conquest_fs::paths::Path as FilePath;
use conquest_fs::walk::Base;
use conquest_fs::{Errno, Error, FileId, FileSystem};
use conquest_pm::Core;
use conquest_pm::attach::{NewRegion, make};
use conquest_testkit::files::{
    SimFiles, attach, base, clock, describe, files_options, new_file_system, root_user, shape,
};
use conquest_testkit::judge::judge;
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{Actor, DyingMemory, Image, RecordingMemory, World};

const RUNS: u64 = 60;
/// Microseconds that a step takes.
const STEP: u64 = 20;

type Work<'w> = &'w (dyn Fn(&SimFiles) -> Result<(), Error> + Sync);

fn options(runs: u64) -> ScheduleOptions {
    ScheduleOptions {
        actors: 2,
        search: Search::Random { seed: 5, first: 0, runs },
        step_time: core::time::Duration::from_micros(STEP),
        steps: 2_000_000,
        ..ScheduleOptions::default()
    }
}

/// Lets two processes do `works` at once, in many schedules, after `prepare` was done to the small
/// tree. What then is there has to follow every rule, and to be as `is_right` says.
fn meet(
    prepare: impl Fn(&SimFiles) -> Result<(), Error>,
    works: [Work<'_>; 2],
    is_right: impl Fn(&SimFiles) -> bool,
) {
    meet_as(&options(RUNS), prepare, works, is_right);
}

/// [`meet`], in these schedules: how many waits ended by a time-out.
fn meet_as(
    options: &ScheduleOptions,
    prepare: impl Fn(&SimFiles) -> Result<(), Error>,
    works: [Work<'_>; 2],
    is_right: impl Fn(&SimFiles) -> bool,
) -> u64 {
    let geometry = Geometry::new(shape()).unwrap();
    let process = |memory: &RecordingMemory, world: &World, id| {
        attach(DyingMemory::counting(memory.actor(id)), world, id).unwrap()
    };
    let image: Arc<Image> = {
        let memory = RecordingMemory::new(base(true).unwrap(), geometry.volatile(), false);
        let files = process(&memory, &World::new(memory.clock()), 1);
        prepare(&files).unwrap();
        files.core().detach().unwrap();
        memory.snapshot()
    };
    let setup = || {
        let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
        let world = World::new(memory.clock());
        let files = [0, 1].map(|id| process(&memory, &world, id));
        (memory, files)
    };
    let body = |files: &[SimFiles; 2], id: u32, _: &Actor| {
        let (files, work) = (&files[id as usize], works[id as usize]);
        work(files).map_err(|error| error.to_string())
    };
    let verdict = |files: &[SimFiles; 2], memory: &RecordingMemory| {
        judge(memory.image())?;
        let tree = describe(&files[0])?;
        if is_right(&files[0]) { Ok(0) } else { Err(format!("this is left:\n{tree}")) }
    };
    let found = run(options, setup, body, verdict);
    assert_eq!(found.failed, 0, "{found}");
    found.timeouts
}

fn find(files: &SimFiles, path: &str) -> FileId {
    let base = &Base::new(files.root(), files.root());
    files.find(&root_user(), FilePath { base, bytes: path.as_bytes() }, false).unwrap()
}

fn open(files: &SimFiles, path: &str, flags: i32) -> Result<OpenFile, Error> {
    let base = &Base::new(files.root(), files.root());
    let how = How::from_open(flags as u32, 0o600)?;
    files.open_at(&root_user(), FilePath { base, bytes: path.as_bytes() }, &how)
}

fn append(files: &SimFiles, path: &str, byte: u8, len: u64) -> Result<(), Error> {
    let bytes = vec![byte; len as usize];
    files.write(&root_user(), find(files, path), WriteAt::End, &bytes).map(drop)
}

/// The bytes of a file, without those that do not change.
fn bytes(files: &SimFiles, path: &str) -> Vec<u8> {
    let file = find(files, path);
    let mut bytes = vec![0; files.stat(file).unwrap().size as usize];
    files.read_file(file, 0, &mut bytes).unwrap();
    bytes
}

fn nothing(_: &SimFiles) -> Result<(), Error> {
    Ok(())
}

#[test]
fn what_is_allocated_ahead_is_given_back_or_written_to() {
    let prepare = |files: &SimFiles| append(files, "k/y", b'p', 5000);
    let trim = |files: &SimFiles| files.trim(find(files, "k/y"));
    let write = |files: &SimFiles| append(files, "k/y", b'w', 3000);
    meet(prepare, [&trim, &write], |files| {
        let bytes = bytes(files, "k/y");
        bytes.len() == 14_000 && bytes[11_000..].iter().all(|byte| *byte == b'w')
    });
}

#[test]
fn space_is_allocated_where_somebody_writes() {
    let allocate = |files: &SimFiles| {
        let how = Allocate::Space { keeps_size: true };
        files.allocate(&root_user(), find(files, "k/y"), how, 0, 5 * PAGE)
    };
    let write = |files: &SimFiles| append(files, "k/y", b'w', 3000);
    meet(nothing, [&allocate, &write], |files| {
        let bytes = bytes(files, "k/y");
        bytes.len() == 9000 && bytes[6000..].iter().all(|byte| *byte == b'w')
    });
}

#[test]
fn looks_are_noted_where_somebody_writes() {
    let read = |files: &SimFiles| {
        let open = open(files, "a", libc::O_RDONLY)?;
        for _ in 0..3 {
            files.read_at(&open, 0, &mut [0; 10])?;
        }
        files.close(&open)
    };
    let write = |files: &SimFiles| {
        for _ in 0..4 {
            append(files, "a", b'w', 10)?;
        }
        Ok(())
    };
    let is_right = |files: &SimFiles| bytes(files, "a").len() == 140;
    meet_as(&options(10 * RUNS), nothing, [&read, &write], is_right);
}

#[test]
fn holes_are_copied_where_modes_are_set() {
    const HOLE: u64 = 40_000;
    let prepare = |files: &SimFiles| {
        let hole = files.create(&root_user(), files.root(), b"h", New::Regular, 0o600)?;
        files.truncate(&root_user(), hole, HOLE)
    };
    let copy = |files: &SimFiles| {
        let (source, target) = (open(files, "h", libc::O_RDONLY)?, open(files, "a", libc::O_RDWR)?);
        for at in [100, 100 + HOLE] {
            let source = End { open: &source, at: Some(0) };
            let target = End { open: &target, at: Some(at) };
            files.copy_range(&root_user(), source, target, HOLE, 0)?;
        }
        files.close(&source)?;
        files.close(&target)
    };
    let set = |files: &SimFiles| {
        for mode in [0o600, 0o640, 0o660, 0o666] {
            files.set_mode(&root_user(), find(files, "a"), mode)?;
        }
        Ok(())
    };
    let is_right = |files: &SimFiles| {
        let stat = files.stat(find(files, "a")).unwrap();
        (stat.size, stat.mode & 0o7777) == (100 + 2 * HOLE, 0o666)
    };
    meet_as(&options(5 * RUNS), prepare, [&copy, &set], is_right);
}

#[test]
fn who_does_not_wait_is_told_that_he_would_have_to() {
    let (seen, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let read = |files: &SimFiles| {
        let open = open(files, "a", libc::O_RDONLY)?;
        for flags in [libc::RWF_NOWAIT, 0].into_iter().cycle().take(10) {
            let mut bytes = [0xEE; 100];
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match files.read_vector(&open, Some(0), &mut parts, flags as u32) {
                Ok(len) => {
                    assert!(len == 100 && !bytes.contains(&0xEE));
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    assert_eq!((error.errno(), flags), (Errno::EAGAIN, libc::RWF_NOWAIT));
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        files.close(&open)
    };
    let write = |files: &SimFiles| (0..4).try_for_each(|_| append(files, "a", b'w', 10));
    meet(nothing, [&read, &write], |files| bytes(files, "a").len() == 140);
    assert!(seen.into_inner() > 0 && refused.into_inner() > 0);
}

#[test]
fn files_without_names_are_made_where_modes_are_set() {
    let make = |files: &SimFiles| {
        for _ in 0..3 {
            let open = open(files, "d", libc::O_TMPFILE | libc::O_RDWR)?;
            files.close(&open)?;
        }
        Ok(())
    };
    let set = |files: &SimFiles| {
        for mode in [0o700, 0o770, 0o777] {
            files.set_mode(&root_user(), find(files, "d"), mode)?;
        }
        Ok(())
    };
    meet(nothing, [&make, &set], |files| {
        files.stat(find(files, "d")).unwrap().mode & 0o7777 == 0o777
    });
}

#[test]
fn attributes_are_all_there() {
    let set = |files: &SimFiles, name: &str| {
        let (who, file) = (&root_user(), find(files, "a"));
        let how = conquest_fs::xattr::Setting::Any;
        files.set_attribute(who, file, name.as_bytes(), name.as_bytes(), how)
    };
    let first = |files: &SimFiles| set(files, "user.first");
    let second = |files: &SimFiles| set(files, "user.second");
    meet(nothing, [&first, &second], |files| {
        files.attributes(&root_user(), find(files, "a"), &mut []).unwrap()
            == b"user.first\0user.second\0".len()
    });
}

#[test]
fn names_change_places_in_both_directions() {
    let swap = |files: &SimFiles, [from, to]: [&str; 2]| {
        let [from, to] = [from, to].map(|name| find(files, name));
        let who = &root_user();
        for _ in 0..3 {
            files.rename(who, from, b"x", to, b"x", Renaming::Exchange)?;
        }
        Ok(())
    };
    let prepare = |files: &SimFiles| {
        for name in ["d", "e", "o"] {
            files.create(&root_user(), find(files, name), b"x", New::Regular, 0o600)?;
        }
        Ok(())
    };
    let there = |files: &SimFiles| swap(files, ["d", "e"]);
    let back = |files: &SimFiles| swap(files, ["e", "d"]);
    meet(prepare, [&there, &back], |_| true);
}

#[test]
fn two_moves_make_no_circle() {
    // Each alone is innocent, and the two have no directory in common. Nor any lock, in some of the
    // cases: that follows from the numbers that their inodes get.
    for others in 0..8 {
        two_moves(others);
    }
}

fn two_moves(others: u32) {
    let prepare = |files: &SimFiles| {
        for number in 0..others {
            let (who, name) = (&root_user(), number.to_string());
            files.create(who, find(files, "k"), name.as_bytes(), New::Regular, 0o600)?;
        }
        let make = |parent: &str, name: &[u8]| {
            files.create(&root_user(), find(files, parent), name, New::Directory, 0o755).map(drop)
        };
        for (parent, name) in [("d", b"a"), ("d/a", b"b"), ("o", b"x"), ("o/x", b"y")] {
            make(parent, name)?;
        }
        Ok(())
    };
    let shift = |files: &SimFiles, from: FileId, name: &[u8], to: FileId| match files.rename(
        &root_user(),
        from,
        name,
        to,
        b"z",
        Renaming::Replace,
    ) {
        Err(error) if error.errno() != Errno::EINVAL => Err(error),
        _ => Ok(()),
    };
    // Looked up before the other one may have moved.
    let first = |files: &SimFiles| {
        let base = &Base::new(files.root(), files.root());
        let find =
            |path: &str| files.find(&root_user(), FilePath { base, bytes: path.as_bytes() }, false);
        match (find("d"), find("o/x/y")) {
            (Ok(from), Ok(to)) => shift(files, from, b"a", to),
            _ => Ok(()),
        }
    };
    let second = |files: &SimFiles| {
        let base = &Base::new(files.root(), files.root());
        let find =
            |path: &str| files.find(&root_user(), FilePath { base, bytes: path.as_bytes() }, false);
        match (find("o"), find("d/a/b")) {
            (Ok(from), Ok(to)) => shift(files, from, b"x", to),
            _ => Ok(()),
        }
    };
    meet_as(&options(RUNS / 3), prepare, [&first, &second], |files| {
        let links = |path: &str| files.stat(find(files, path)).map(|Stat { links, .. }| links);
        // One of the two has moved; the other one would have made a circle.
        matches!((links("d"), links("o")), (Ok(2), Ok(3)) | (Ok(3), Ok(2)))
    });
}

#[test]
fn a_lock_is_one_process_at_a_time() {
    let inside = AtomicU64::new(0);
    let work = |files: &SimFiles, waits: bool| {
        let open = open(files, "a", libc::O_RDWR)?;
        let wait = if waits { Wait::Forever } else { Wait::No };
        let whole = Record { first: 0, last: END, mode: Some(Mode::Exclusive) };
        for _ in 0..3 {
            match files.set_record(&open, Owner::Process(0), whole, wait) {
                Err(error) if !waits && error.errno() == Errno::EAGAIN => continue,
                set => set?,
            }
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            let probe = files.test_record(&open, Owner::Process(0), whole)?;
            assert_eq!(probe, None);
            inside.fetch_sub(1, Ordering::SeqCst);
            files.release_records(&open, Owner::Process(0))?;
        }
        files.close(&open)
    };
    let tries = |files: &SimFiles| work(files, false);
    let waits = |files: &SimFiles| work(files, true);
    meet(nothing, [&tries, &tries], |_| true);
    meet(nothing, [&waits, &tries], |_| true);
    meet(nothing, [&waits, &waits], |_| true);
}

#[test]
fn who_waits_for_a_lock_does_not_nap_in_vain() {
    // Time passes only when nobody can run.
    let options = ScheduleOptions { step_time: core::time::Duration::ZERO, ..options(RUNS) };
    let records = |files: &SimFiles| {
        let open = open(files, "a", libc::O_RDWR)?;
        let part = Record { first: 0, last: 9, mode: Some(Mode::Exclusive) };
        for _ in 0..3 {
            files.set_record(&open, Owner::Process(0), part, Wait::Forever)?;
            // Shared is enough, then nothing.
            let shared = Record { mode: Some(Mode::Shared), ..part };
            files.set_record(&open, Owner::Process(0), shared, Wait::Forever)?;
            files.set_record(
                &open,
                Owner::Process(0),
                Record { mode: None, ..part },
                Wait::Forever,
            )?;
        }
        files.close(&open)
    };
    let flocks = |files: &SimFiles| {
        let open = open(files, "a", libc::O_RDWR)?;
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Exclusive] {
            files.flock(&open, Some(mode), Wait::Forever)?;
            files.flock(&open, None, Wait::Forever)?;
        }
        files.flock(&open, Some(Mode::Exclusive), Wait::Forever)?;
        files.close(&open)
    };
    assert_eq!(meet_as(&options, nothing, [&records, &records], |_| true), 0);
    assert_eq!(meet_as(&options, nothing, [&flocks, &flocks], |_| true), 0);
    // The last of those who share a description gives up its locks.
    let shared = |files: &SimFiles| {
        let open = open(files, "a", libc::O_RDWR)?;
        let parcel = files.core().parcel()?;
        files.pack(&parcel, &open)?;
        let passed = files.unpack(parcel)?;
        files.flock(&open, Some(Mode::Exclusive), Wait::Forever)?;
        files.close(&open)?;
        passed.iter().try_for_each(|(_, open)| files.close(open))
    };
    assert_eq!(meet_as(&options, nothing, [&shared, &shared], |_| true), 0);
}

#[test]
fn one_of_two_makes_the_file_system() {
    let shape = Shape { locks: 2, ..shape() };
    let geometry = Geometry::new(shape).unwrap();
    let image = Arc::new(Image::new(geometry.len()));
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    let path = Path::new("simulated core");
    make(&memory.actor(0), &world.process(9), path, &new).unwrap();
    let image = memory.snapshot();
    let setup = || {
        let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
        let world = World::new(memory.clock());
        let cores = [0, 1].map(|id| {
            let memory = DyingMemory::counting(memory.actor(id));
            Core::attach(memory, world.process(id), path, &fs::kinds(), files_options()).unwrap()
        });
        (memory, (cores, AtomicU64::new(0)))
    };
    type Cores = [Arc<Core<conquest_testkit::scenario::SimMemory, conquest_testkit::SimHost>>; 2];
    let body = |(cores, made): &(Cores, AtomicU64), id: u32, _: &Actor| {
        match FileSystem::make(&cores[id as usize], &new_file_system(), &clock()) {
            Ok(()) => _ = made.fetch_add(1, Ordering::SeqCst),
            Err(Error::Unfit { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    };
    let verdict = |(cores, made): &(Cores, AtomicU64), memory: &RecordingMemory| {
        judge(memory.image())?;
        let files = FileSystem::open(Arc::clone(&cores[0]), clock()).map_err(|e| e.to_string())?;
        describe(&files)?;
        match made.load(Ordering::SeqCst) {
            1 => Ok(0),
            made => Err(format!("{made} have made it")),
        }
    };
    let found = run(&options(RUNS), setup, body, verdict);
    assert_eq!(found.failed, 0, "{found}");
}
