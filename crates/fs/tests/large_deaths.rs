//! Operations on large files whose process dies before each of its stores, or whose volume fails at
//! each of its requests: every page is as it was or as it should be, and others go on. And several
//! processes that cut, push and write at once.
//!
//! `CONQUEST_STEP` says at every how many stores deaths are tried, `CONQUEST_TIMES` how many times
//! as many schedules.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use conquest_access::Removal;
use conquest_format::fs::{chunk, root};
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::{Geometry, PAGE, WORD};
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::large::Space;
use conquest_fs::locks::Wait;
use conquest_fs::names::New;
use conquest_fs::{Error, FileId};
use conquest_testkit::files::{RamSpace, SimFiles, attach, base, root_user, shape};
use conquest_testkit::judge::{judge, judge_attached};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{Actor, DyingMemory, Fate, Image, RecordingMemory, World};

/// Bytes above which files are large.
const THRESHOLD: u64 = 20 << 10;
/// Deaths are tried at every so many stores, unless `CONQUEST_STEP` says otherwise.
const STEP: usize = 5;
const P: usize = PAGE as usize;

/// What a file consists of; none if there is no file.
type Bytes = Option<Vec<u8>>;

fn file(files: &SimFiles) -> FileId {
    files.lookup(&root_user(), files.root(), b"one").unwrap().unwrap().0
}

fn read(files: &SimFiles) -> Bytes {
    let (file, _) = files.lookup(&root_user(), files.root(), b"one").unwrap()?;
    let size = match files.stat(file) {
        Ok(stat) => stat.size,
        // Removed by a record of one who has died, which this look has finished.
        Err(Error::Stale) => return None,
        Err(error) => panic!("{error}"),
    };
    let mut bytes = vec![9; size as usize];
    assert_eq!(files.read_file(file, 0, &mut bytes).unwrap(), bytes.len());
    Some(bytes)
}

fn write(files: &SimFiles, at: usize, byte: u8, len: usize) -> Result<(), Error> {
    let bytes = vec![byte; len];
    let (_, done) = files.write(&root_user(), file(files), WriteAt::Offset(at as u64), &bytes)?;
    if done == len as u64 { Ok(()) } else { Err(conquest_fs::Errno::ENOSPC.into()) }
}

fn truncate(files: &SimFiles, len: usize) -> Result<(), Error> {
    files.truncate(&root_user(), file(files), len as u64)
}

fn push(files: &SimFiles) -> Result<(), Error> {
    files.push(file(files), Wait::Forever)
}

fn allocate(files: &SimFiles, how: Allocate, from: usize, len: usize) -> Result<(), Error> {
    files.allocate(&root_user(), file(files), how, from as u64, len as u64)
}

fn attach_to(memory: DyingMemory<Actor>, world: &World, id: u32, space: &RamSpace) -> SimFiles {
    attach(memory, world, id).unwrap().with_space(Box::new(space.clone()))
}

/// A file system with a volume, and a file that `begin` makes of an empty one.
fn prepared(begin: impl Fn(&SimFiles) -> Result<(), Error>) -> (Arc<Image>, RamSpace) {
    let space = RamSpace::default();
    let geometry = Geometry::new(shape()).unwrap();
    let memory = RecordingMemory::new(base(true).unwrap(), geometry.volatile(), false);
    let world = World::new(memory.clock());
    let first = attach(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
    let roots = [(root::THRESHOLD, THRESHOLD), (root::CHUNK_BLOCKS, chunk::BLOCKS_MIN)];
    let set = |(index, value): (u64, u64)| {
        first.core().run(|tx| {
            tx.lock(0, conquest_pm::Mode::Exclusive)?;
            tx.set(STATE_ROOTS.plus(index * WORD), value)
        })
    };
    roots.into_iter().try_for_each(set).unwrap();
    first.core().detach().unwrap();
    let files = attach_to(DyingMemory::counting(memory.actor(2)), &world, 2, &space);
    files.create(&root_user(), files.root(), b"one", New::Regular, 0o600).unwrap();
    begin(&files).unwrap();
    assert_eq!(files.check().unwrap().findings, []);
    files.core().detach().unwrap();
    (memory.snapshot(), space)
}

/// Something that is done with the file.
type Work = fn(&SimFiles) -> Result<(), Error>;

/// What is done to a file, and what it is before.
struct Case {
    what: &'static str,
    begin: Work,
    work: Work,
}

/// 20 pages on the volume, of which two were changed since, in the core.
fn partly(files: &SimFiles) -> Result<(), Error> {
    write(files, 0, b'o', 20 * P - 100)?;
    push(files)?;
    write(files, 3 * P, b'c', 2 * P)
}

const CASES: [Case; 12] = [
    Case {
        what: "a file becomes a large one",
        begin: |files| write(files, 0, b'o', 3 * P + 7),
        work: |files| write(files, 2 * P, b'n', 9 * P),
    },
    Case { what: "pages are pushed", begin: partly, work: push },
    Case {
        what: "a part of a page is written that the volume has",
        begin: partly,
        work: |files| write(files, 7 * P + 100, b'n', 50),
    },
    Case {
        what: "a write goes to the volume at once, behind the end",
        begin: partly,
        work: |files| write(files, 30 * P, b'n', 70 * P + 3),
    },
    Case {
        what: "a write goes to the volume at once, over pages in the core",
        begin: |files| write(files, 0, b'o', 90 * P).and_then(|()| write(files, P, b'c', 100)),
        work: |files| write(files, 0, b'n', 70 * P),
    },
    Case {
        what: "a file is cut in a page that the volume has",
        begin: partly,
        work: |files| truncate(files, 9 * P + 11),
    },
    Case {
        what: "a file is cut, and what is gone is trimmed",
        begin: partly,
        work: |files| {
            truncate(files, 2 * P)?;
            files.trim_chunks().map(drop)
        },
    },
    Case {
        what: "a file is emptied, written anew and pushed",
        begin: partly,
        work: |files| {
            truncate(files, 0)?;
            write(files, 8 * P, b'n', 4 * P)?;
            push(files)
        },
    },
    Case {
        what: "a hole is made",
        begin: partly,
        work: |files| allocate(files, Allocate::Hole, 2 * P + 5, 9 * P),
    },
    Case {
        what: "space is allocated",
        begin: partly,
        work: |files| allocate(files, Allocate::Space { keeps_size: false }, 10 * P, 20 * P),
    },
    Case {
        what: "a range becomes zeros",
        begin: partly,
        work: |files| allocate(files, Allocate::Zeros { keeps_size: false }, P + 5, 25 * P),
    },
    Case {
        what: "a file is removed, and trimmed",
        begin: partly,
        work: |files| {
            files.remove(&root_user(), files.root(), b"one", Removal::File)?;
            files.trim_chunks().map(drop)
        },
    },
];

/// Pages that a file may consist of: those of any of `states`, up to a size of one of them, or
/// between.
fn is_between(found: &Bytes, states: &[Bytes]) -> bool {
    let Some(bytes) = found else {
        return states.contains(&None);
    };
    let there: Vec<&Vec<u8>> = states.iter().flatten().collect();
    let lens = || there.iter().map(|state| state.len());
    let (least, most) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
    let page_of = |bytes: &[u8], page: usize| -> Vec<u8> {
        let mut part: Vec<u8> = bytes.iter().skip(page * P).take(P).copied().collect();
        part.resize(P, 0);
        part
    };
    (least..=most).contains(&bytes.len())
        && (0..bytes.len().div_ceil(P)).all(|page| {
            let inside = (bytes.len() - page * P).min(P);
            let mine = page_of(bytes, page);
            there.iter().any(|state| page_of(state, page)[..inside] == mine[..inside])
        })
}

/// What the file is before and after the work of `case`, and in between, if it has several steps.
fn states(case: &Case, image: &Arc<Image>, space: &RamSpace) -> Vec<Bytes> {
    let geometry = Geometry::new(shape()).unwrap();
    let memory = RecordingMemory::new(Arc::clone(image), geometry.volatile(), false);
    let world = World::new(memory.clock());
    let files = attach_to(DyingMemory::counting(memory.actor(1)), &world, 1, &space.copy());
    let before = read(&files);
    (case.work)(&files).unwrap();
    vec![before, read(&files), Some(Vec::new())]
}

/// Others find the file as one of `states`, before and after what is left to do is done, and when
/// all was pushed and trimmed; and with more behind it, which goes to the volume `at_once` or is
/// pushed.
fn others_go_on(files: &SimFiles, states: &[Bytes], at_once: bool, what: &str) {
    assert!(is_between(&read(files), states), "{what}");
    files.core().recover().unwrap();
    judge_attached(files.core()).unwrap_or_else(|found| panic!("{what}: {found}"));
    assert_eq!(files.check().unwrap().findings, [], "{what}");
    let found = read(files);
    assert!(is_between(&found, states), "{what}");
    if found.is_some() {
        push(files).unwrap();
        assert!(read(files) == found, "{what}: pushed");
    }
    files.trim_chunks().unwrap();
    assert!(read(files) == found, "{what}: trimmed");
    if let Some(bytes) = found {
        // What is behind the end is zeros.
        truncate(files, bytes.len() + 30 * P).unwrap();
        let longer = read(files).unwrap();
        assert!(longer[..bytes.len()] == bytes, "{what}: longer");
        assert!(longer[bytes.len()..].iter().all(|byte| *byte == 0), "{what}: not zeros");
        // Nor is anything there when the end is moved behind it.
        let far = (bytes.len() / P + 35) * P;
        let len = if at_once { 65 * P } else { P };
        write(files, far, b'f', len).unwrap();
        push(files).unwrap();
        let longer = read(files).unwrap();
        assert!(longer[..bytes.len()] == bytes, "{what}: with more behind it");
        assert!(longer[bytes.len()..far].iter().all(|byte| *byte == 0), "{what}: a gap");
        assert!(longer[far..].iter().all(|byte| *byte == b'f'), "{what}: more");
        files.remove(&root_user(), files.root(), b"one", Removal::File).unwrap();
        files.trim_chunks().unwrap();
    }
    assert_eq!(files.check().unwrap().findings, [], "{what}");
}

#[test]
fn whoever_dies_every_page_is_old_or_new() {
    let step = std::env::var("CONQUEST_STEP").map_or(STEP, |step| step.parse().unwrap());
    let geometry = Geometry::new(shape()).unwrap();
    let mut deaths = 0;
    for (index, case) in CASES.iter().enumerate() {
        let (image, kept) = prepared(case.begin);
        let states = states(case, &image, &kept);
        for store in (1 + index as u64 % step as u64..).step_by(step) {
            let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
            let world = World::new(memory.clock());
            let space = kept.copy();
            let witness = attach_to(DyingMemory::counting(memory.actor(2)), &world, 2, &space);
            let dies = {
                let world = world.clone();
                Fate::Unwind(Box::new(move || world.kill(1)))
            };
            let done = catch_unwind(AssertUnwindSafe(|| {
                let dying = DyingMemory::new(memory.actor(1), store, dies);
                (case.work)(&attach_to(dying, &world, 1, &space)).unwrap();
            }));
            if done.is_ok() {
                break;
            }
            deaths += 1;
            let what = format!("{}: death at store {store}", case.what);
            others_go_on(&witness, &states, deaths % 2 == 0, &what);
            assert_eq!(space.pages(), 0, "{}: death at store {store}", case.what);
        }
    }
    println!("{deaths} deaths");
    assert!(deaths * step > 2000, "{deaths}");
}

#[test]
fn whatever_request_fails_every_page_is_old_or_new() {
    let geometry = Geometry::new(shape()).unwrap();
    let mut failures = 0;
    for case in &CASES {
        let (image, kept) = prepared(case.begin);
        let states = states(case, &image, &kept);
        for count in 0.. {
            let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
            let world = World::new(memory.clock());
            let space = kept.copy();
            let files = attach_to(DyingMemory::counting(memory.actor(1)), &world, 1, &space);
            space.fail_after(Some(count));
            let done = (case.work)(&files);
            let was_reached = space.is_failing();
            space.fail_after(None);
            failures += u64::from(done.is_err());
            let what = format!("{}: {count} requests, then {done:?}", case.what);
            others_go_on(&files, &states, count % 2 == 0, &what);
            if !was_reached {
                break;
            }
        }
    }
    println!("{failures} failures were told");
    assert!(failures > 20, "{failures}");
}

/// Runs schedules of three processes, each of which does its `work`, and judges what the file is
/// then; whatever is left to do changes nothing.
fn explore(
    begin: impl Fn(&SimFiles) -> Result<(), Error>,
    work: [Work; 3],
    is_right: fn(&[u8]) -> bool,
) {
    let times: u64 = std::env::var("CONQUEST_TIMES").map_or(1, |times| times.parse().unwrap());
    let (image, kept) = prepared(begin);
    let geometry = Geometry::new(shape()).unwrap();
    let options = ScheduleOptions {
        actors: 3,
        search: Search::Random { seed: 6, first: 0, runs: 200 * times },
        step_time: core::time::Duration::from_micros(20),
        steps: 5_000_000,
        ..ScheduleOptions::default()
    };
    let setup = || {
        let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
        let world = World::new(memory.clock());
        let space = kept.copy();
        let process = |id| attach_to(DyingMemory::counting(memory.actor(id)), &world, id, &space);
        let files = [0, 1, 2].map(process);
        (memory, files)
    };
    let body = |files: &[SimFiles; 3], id: u32, _: &Actor| {
        work[id as usize](&files[id as usize]).map_err(|error| error.to_string())
    };
    let verdict = |files: &[SimFiles; 3], memory: &RecordingMemory| {
        judge(memory.image())?;
        let bytes = read(&files[0]).unwrap();
        push(&files[0]).map_err(|error| error.to_string())?;
        files[1].trim_chunks().map_err(|error| error.to_string())?;
        if read(&files[2]).unwrap() != bytes {
            return Err("other bytes when all was pushed and trimmed".to_owned());
        }
        let first: Vec<u8> = bytes.chunks(P).map(|page| page[P / 2 % page.len()]).collect();
        match is_right(&bytes) {
            true => Ok(u64::from(bytes.len() as u32)),
            false => Err(format!("{} bytes: {first:?}", bytes.len())),
        }
    };
    let found = run(&options, setup, body, verdict);
    println!("{found}");
    assert_eq!(found.failed, 0, "{found}");
}

#[test]
fn cutting_pushing_and_writing_at_once() {
    cut_push_and_write(|files| {
        write(files, 0, b'o', 40 * P)?;
        push(files)?;
        write(files, 5 * P, b'o', 30 * P)
    });
    // Nothing is on the volume yet.
    cut_push_and_write(|files| write(files, 0, b'o', 40 * P));
}

fn cut_push_and_write(begin: Work) {
    explore(
        begin,
        [
            |files| truncate(files, 3 * P + 10).and_then(|()| files.trim_chunks().map(drop)),
            |files| push(files).and_then(|()| push(files)),
            |files| {
                (50..53).try_for_each(|page| {
                    write(files, page * P + 1, b'm', P - 2)?;
                    write(files, page * P + 1, b'n', P - 2)
                })
            },
        ],
        |bytes| {
            let is_right = |(at, byte): (usize, &u8)| match (at / P, at % P) {
                (0..3, _) | (3, 0..10) => *byte == b'o',
                // Written before the file was cut, or after.
                (50..53, 1..4095) => matches!(byte, 0 | b'n'),
                _ => *byte == 0,
            };
            let is_long = bytes.len() == 3 * P + 10 || bytes.len() == 53 * P - 1;
            is_long && bytes.iter().enumerate().all(is_right)
        },
    );
}

#[test]
fn writing_whole_pages_and_parts_of_them_at_once() {
    explore(
        |files| write(files, 0, b'o', 80 * P).and_then(|()| push(files)),
        [
            |files| write(files, 0, b'd', 70 * P),
            |files| push(files).and_then(|()| push(files)),
            |files| [5, 66, 75].into_iter().try_for_each(|page| write(files, page * P, b'n', 9)),
        ],
        |bytes| {
            let is_right = |(at, byte): (usize, &u8)| match (at / P, at % P) {
                // The one came after the other.
                (5 | 66, 0..9) => matches!(byte, b'd' | b'n'),
                (75, 0..9) => *byte == b'n',
                (0..70, _) => *byte == b'd',
                _ => *byte == b'o',
            };
            bytes.len() == 80 * P && bytes.iter().enumerate().all(is_right)
        },
    );
}

#[test]
fn two_write_to_the_page_in_which_one_write_ends() {
    explore(
        |files| write(files, 0, b'o', 10 * P).and_then(|()| push(files)),
        [
            |files| write(files, 10 * P, b'd', 70 * P + 100),
            |files| push(files).and_then(|()| push(files)),
            |files| write(files, 80 * P + 200, b'n', 9),
        ],
        |bytes| {
            let is_right = |(at, byte): (usize, &u8)| match (at / P, at % P) {
                (0..10, _) => *byte == b'o',
                (10..80, _) | (80, 0..100) => *byte == b'd',
                (80, 200..209) => *byte == b'n',
                _ => *byte == 0,
            };
            bytes.len() == 80 * P + 209 && bytes.iter().enumerate().all(is_right)
        },
    );
}

#[test]
fn what_lost_files_have_left_in_a_chunk_is_trimmed_when_it_is_used_again() {
    let (image, space) = prepared(|_| Ok(()));
    let block = chunk::first(chunk::BLOCKS_MIN) * chunk::BLOCKS_MIN;
    space.write(block, &[0xEE; 100 * P]).unwrap();
    let geometry = Geometry::new(shape()).unwrap();
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let files = attach_to(DyingMemory::counting(memory.actor(1)), &world, 1, &space);
    write(&files, 0, b'o', 10 * P).unwrap();
    push(&files).unwrap();
    assert_eq!(space.pages(), 10);
    assert_eq!(files.stat(file(&files)).unwrap().blocks, 10 * 8);
}

/// A file was made longer on the volume, and the records of that were lost with the power: what is
/// there is never seen, however the file grows later.
#[test]
fn what_lost_records_have_left_behind_the_size_is_not_seen() {
    let short: Work = |files| write(files, 0, b'o', 10 * P + 100).and_then(|()| push(files));
    let ahead: Work = |files| {
        write(files, 0, b'o', 10 * P + 100)?;
        push(files)?;
        allocate(files, Allocate::Space { keeps_size: true }, 0, 100 * P)
    };
    let longer: Work = |files| write(files, 10 * P + 100, b'l', 900).and_then(|()| push(files));
    let at_once: Work = |files| write(files, 11 * P, b'l', 80 * P);
    let ways: [Work; 4] = [
        |files| truncate(files, 60 * P + 7),
        |files| write(files, 60 * P + 7, b'n', 1),
        |files| write(files, 61 * P, b'n', 64 * P),
        |files| allocate(files, Allocate::Space { keeps_size: false }, 50 * P, 11 * P),
    ];
    for (begin, lost) in [(short, longer), (ahead, longer), (ahead, at_once)] {
        for (index, grow) in ways.iter().enumerate() {
            let (image, space) = prepared(begin);
            let geometry = Geometry::new(shape()).unwrap();
            let started = || {
                let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
                let world = World::new(memory.clock());
                attach_to(DyingMemory::counting(memory.actor(1)), &world, 1, &space)
            };
            lost(&started()).unwrap();
            let files = started();
            assert!(read(&files).unwrap() == vec![b'o'; 10 * P + 100]);
            grow(&files).unwrap();
            for _ in 0..2 {
                let bytes = read(&files).unwrap();
                let is_left = bytes.iter().position(|byte| *byte == b'l');
                assert_eq!(is_left, None, "way {index}");
                push(&files).unwrap();
            }
            assert_eq!(files.check().unwrap().findings, []);
        }
    }
}

/// What a file has past its end does not stay in the core.
#[test]
fn nothing_stays_in_the_core_of_what_was_pushed() {
    let (image, space) = prepared(|_| Ok(()));
    let geometry = Geometry::new(shape()).unwrap();
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let files = attach_to(DyingMemory::counting(memory.actor(1)), &world, 1, &space);
    let (who, one) = (&root_user(), file(&files));
    let before = files.core().pages_used();
    // Growing allocates ahead.
    (0..9).for_each(|page| write(&files, page * P, b'o', P).unwrap());
    push(&files).unwrap();
    assert_eq!(files.core().pages_used(), before + 1, "the slab of the chunk");
    assert_eq!(files.stat(one).unwrap().blocks, 9 * 8);
    truncate(&files, 0).unwrap();
    // A program that has space of its own behind its end, and is none any more.
    let two = files.create(who, files.root(), b"two", New::Regular, 0o755).unwrap();
    let ahead = Allocate::Space { keeps_size: true };
    files.allocate(who, two, ahead, 0, 300 * PAGE).unwrap();
    files.set_mode(who, two, 0o644).unwrap();
    for page in 0..9 {
        let at = WriteAt::Offset(page * PAGE);
        assert_eq!(files.write(who, two, at, &[b't'; P]).unwrap().1, PAGE);
    }
    files.push(two, Wait::Forever).unwrap();
    assert_eq!(files.stat(two).unwrap().blocks, 300 * 8);
    let mut bytes = vec![9; 9 * P];
    files.truncate(who, two, 20 * PAGE).unwrap();
    files.read_file(two, 0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == b't'));
    files.read_file(two, 9 * PAGE, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!(files.check().unwrap().findings, []);
}

/// Both make it a large one.
#[test]
fn two_who_write_at_once_to_a_file_that_is_small() {
    explore(
        |files| write(files, 0, b'o', 100),
        [
            |files| write(files, 0, b'd', 65 * P),
            |files| write(files, 70 * P, b'e', 65 * P),
            |files| write(files, 150 * P, b'n', P).and_then(|()| push(files)),
        ],
        |bytes| {
            let is_right = |(at, byte): (usize, &u8)| match at / P {
                0..65 => *byte == b'd',
                70..135 => *byte == b'e',
                150 => *byte == b'n',
                _ => *byte == 0,
            };
            bytes.len() == 151 * P && bytes.iter().enumerate().all(is_right)
        },
    );
}

/// Who appends has pages ahead, which whoever pushes gives back.
#[test]
fn appending_while_others_push() {
    explore(
        |files| write(files, 0, b'o', 10 * P).and_then(|()| push(files)),
        [
            |files| (10..25).try_for_each(|page| write(files, page * P, b'n', P)),
            |files| (0..4).try_for_each(|_| push(files)),
            |files| (0..4).try_for_each(|_| files.push_due(|| false).map(drop)),
        ],
        |bytes| {
            let is_right = |(at, byte): (usize, &u8)| {
                if at < 10 * P { *byte == b'o' } else { *byte == b'n' }
            };
            bytes.len() == 25 * P && bytes.iter().enumerate().all(is_right)
        },
    );
}

const NAMES: [&[u8]; 3] = [b"one", b"two", b"three"];

fn named(files: &SimFiles, id: u32) -> FileId {
    files.lookup(&root_user(), files.root(), NAMES[id as usize]).unwrap().unwrap().0
}

/// Lets a file become large, pushes and trims what is due of all, and leaves 10 pages of it.
fn push_and_trim_all(files: &SimFiles, id: u32) -> Result<(), Error> {
    let (file, who) = (named(files, id), &root_user());
    let put = |at: usize, len| {
        let (at, byte) = (WriteAt::Offset((at * P) as u64), b'a' + id as u8);
        files.write(who, file, at, &vec![byte; len]).map(drop)
    };
    put(0, 12 * P)?;
    files.push_due(|| false)?;
    // It moves back, and gets another chunk.
    files.truncate(who, file, 0)?;
    put(0, 12 * P)?;
    files.trim_chunks()?;
    files.push_due(|| false)?;
    put(3, P)?;
    // What comes last is left to others.
    for pages in [11, 10] {
        files.truncate(who, file, pages * PAGE)?;
        if id < 2 {
            files.trim_chunks()?;
        }
        put(8, P)?;
    }
    if id == 0 {
        files.push_due(|| false)?;
    }
    put(5, P)
}

/// Nothing is left to do of three files, which have their own bytes.
fn all_is_done(one: &SimFiles, space: &RamSpace) -> Result<u64, String> {
    one.push_due(|| false).and_then(|_| one.trim_chunks()).map_err(|error| error.to_string())?;
    for id in 0..3 {
        let (file, mut bytes) = (named(one, id), vec![0; 10 * P]);
        one.read_file(file, 0, &mut bytes).map_err(|error| error.to_string())?;
        if bytes.iter().any(|byte| *byte != b'a' + id as u8) {
            return Err(format!("other bytes in file {id}"));
        }
        // Nothing is in the core.
        let blocks = one.stat(file).map_err(|error| error.to_string())?.blocks;
        if blocks != 80 {
            return Err(format!("{blocks} blocks of file {id}"));
        }
    }
    let found = one.check().map_err(|error| error.to_string())?.findings;
    let is_due = one.has_due().map_err(|error| error.to_string())?;
    match (found.is_empty(), is_due, space.pages()) {
        (true, false, 30) => Ok(0),
        (_, _, pages) => Err(format!("{found:?}, due: {is_due}, {pages} pages")),
    }
}

/// Three files get chunks, have something to be pushed, and to be trimmed, at the same time as
/// others push and trim: nobody's bytes are another one's, and nothing is forgotten.
#[test]
fn files_that_get_chunks_and_are_pushed_and_trimmed_at_once() {
    let (image, kept) = prepared(|files| {
        for name in &NAMES[1..] {
            files.create(&root_user(), files.root(), name, New::Regular, 0o600)?;
        }
        Ok(())
    });
    let geometry = Geometry::new(shape()).unwrap();
    let options = ScheduleOptions {
        actors: 3,
        search: Search::Random { seed: 7, first: 0, runs: 100 },
        step_time: core::time::Duration::from_micros(20),
        steps: 5_000_000,
        ..ScheduleOptions::default()
    };
    let setup = || {
        let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
        let world = World::new(memory.clock());
        let space = kept.copy();
        let process = |id| attach_to(DyingMemory::counting(memory.actor(id)), &world, id, &space);
        let files = [0, 1, 2].map(process);
        (memory, (files, space))
    };
    let body = |(files, _): &([SimFiles; 3], RamSpace), id: u32, _: &Actor| {
        push_and_trim_all(&files[id as usize], id).map_err(|error| error.to_string())
    };
    let verdict = |(files, space): &([SimFiles; 3], RamSpace), memory: &RecordingMemory| {
        judge(memory.image())?;
        all_is_done(&files[0], space)
    };
    let found = run(&options, setup, body, verdict);
    println!("{found}");
    assert_eq!(found.failed, 0, "{found}");
}
