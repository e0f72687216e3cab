//! Work on a large tree that takes several records, whose process dies in the middle: somebody else
//! finishes it, and what is there in between is right.
//!
//! `CONQUEST_STEP` says at every how many stores deaths are tried.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use conquest_access::Removal;
use conquest_format::{Geometry, PAGE};
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::names::New;
use conquest_fs::{Error, FileId};
use conquest_testkit::files::{SimFiles, attach, base, fill, root_user, shape};
use conquest_testkit::judge::{judge, judge_attached};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{Actor, DyingMemory, Fate, Image, RecordingMemory, World};

/// Pages of the file, each of which stands alone, and of another one that separates them: more than
/// a record has entries.
const PAGES: u64 = 230;
/// Nodes of the file's tree, at most.
const NODES: u64 = 2;
/// Deaths are tried at every so many stores, unless `CONQUEST_STEP` says otherwise.
const STEP: u64 = 13;

fn step() -> u64 {
    std::env::var("CONQUEST_STEP").map_or(STEP, |step| step.parse().unwrap())
}

fn file(files: &SimFiles, name: &[u8]) -> Option<FileId> {
    files.lookup(&root_user(), files.root(), name).unwrap().map(|(file, _)| file)
}

fn write(files: &SimFiles, name: &[u8], page: u64) {
    let file = file(files, name).unwrap();
    let bytes = [name[0]; PAGE as usize];
    files.write(&root_user(), file, WriteAt::Offset(page * PAGE), &bytes).unwrap();
}

fn process(image: &Arc<Image>, pid: u32) -> (RecordingMemory, World, SimFiles) {
    let geometry = Geometry::new(shape()).unwrap();
    let memory = RecordingMemory::new(Arc::clone(image), geometry.volatile(), false);
    let world = World::new(memory.clock());
    let files = attach(DyingMemory::counting(memory.actor(pid)), &world, pid).unwrap();
    (memory, world, files)
}

/// A file system with two files whose pages take turns.
fn prepared() -> Arc<Image> {
    let (memory, _, files) = process(&base(true).unwrap(), 1);
    for name in [b"one", b"two"] {
        files.create(&root_user(), files.root(), name, New::Regular, 0o600).unwrap();
        // Not from the beginning on, so that it is a tree at once.
        write(&files, name, 1);
    }
    for page in 2..=PAGES {
        write(&files, b"one", page);
        write(&files, b"two", page);
    }
    assert_eq!(files.check().unwrap().findings, []);
    files.core().detach().unwrap();
    memory.snapshot()
}

/// What there is of file `one`: its size, and how many of its pages have bytes.
fn seen(files: &SimFiles) -> Option<(u64, u64)> {
    let file = file(files, b"one")?;
    let size = files.stat(file).unwrap().size;
    let mut bytes = vec![0; size as usize];
    assert_eq!(files.read_file(file, 0, &mut bytes).unwrap() as u64, size);
    let is_there = |page: &&[u8]| {
        assert!(page.iter().all(|byte| *byte == page[0]), "a part of a page");
        page[0] == b'o'
    };
    Some((size, bytes.chunks(PAGE as usize).filter(is_there).count() as u64))
}

/// Tries a death at every [`step`]-th store of `work`, and whether somebody else then finds what
/// `is_right` says. How many deaths there were.
fn die_everywhere(
    work: impl Fn(&SimFiles) -> Result<(), Error>,
    is_right: impl Fn(Option<(u64, u64)>) -> bool,
) -> u64 {
    die_at(&prepared(), step(), work, is_right)
}

/// [`die_everywhere`] on `image`, at every `step`-th store.
fn die_at(
    image: &Arc<Image>,
    step: u64,
    work: impl Fn(&SimFiles) -> Result<(), Error>,
    is_right: impl Fn(Option<(u64, u64)>) -> bool,
) -> u64 {
    let mut deaths = 0;
    for store in (1..).step_by(step as usize) {
        let (memory, world, witness) = process(image, 2);
        let known = file(&witness, b"one").unwrap();
        let dies = {
            let world = world.clone();
            Fate::Unwind(Box::new(move || world.kill(1)))
        };
        let done = catch_unwind(AssertUnwindSafe(|| {
            let dying = DyingMemory::new(memory.actor(1), store, dies);
            work(&attach(dying, &world, 1).unwrap()).unwrap();
        }));
        if done.is_ok() {
            break;
        }
        deaths += 1;
        // Before anybody finishes it, too.
        judge_attached(witness.core()).unwrap_or_else(|what| panic!("store {store}: {what}"));
        assert!(is_right(seen(&witness)), "death at store {store}: {:?}", seen(&witness));
        // A file that has lost its name has no bytes either, though some of its pages are there.
        if file(&witness, b"one").is_none()
            && let Ok(stat) = witness.stat(known)
        {
            assert_eq!(stat.size, 0, "death at store {store}");
        }
        witness.core().recover().unwrap();
        judge_attached(witness.core()).unwrap_or_else(|what| panic!("store {store}: {what}"));
        assert_eq!(witness.check().unwrap().findings, [], "death at store {store}");
        assert!(is_right(seen(&witness)), "death at store {store}: {:?}", seen(&witness));
        if let Some(one) = file(&witness, b"one") {
            let stat = witness.stat(one).unwrap();
            let most = stat.size.div_ceil(PAGE) + NODES;
            assert!(stat.blocks * 512 <= most * PAGE, "death at store {store}: {stat:?}");
        }
        let two = file(&witness, b"two").unwrap();
        let mut bytes = vec![0; (PAGES * PAGE) as usize];
        witness.read_file(two, PAGE, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == b't'), "death at store {store}");
    }
    deaths
}

const WHOLE: (u64, u64) = ((PAGES + 1) * PAGE, PAGES);

#[test]
fn a_truncation_is_finished_whoever_dies() {
    let work = |files: &SimFiles| {
        let one = file(files, b"one").unwrap();
        files.truncate(&root_user(), one, 3 * PAGE)
    };
    let deaths = die_everywhere(work, |seen| seen == Some(WHOLE) || seen == Some((3 * PAGE, 2)));
    assert!(deaths * step() > 40 * STEP, "{deaths}");
}

#[test]
fn others_write_to_a_file_that_is_being_cut() {
    let image = prepared();
    let geometry = Geometry::new(shape()).unwrap();
    let options = ScheduleOptions {
        actors: 2,
        search: Search::Random { seed: 3, first: 0, runs: 12 },
        step_time: core::time::Duration::from_micros(20),
        steps: 5_000_000,
        ..ScheduleOptions::default()
    };
    let setup = || {
        let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
        let world = World::new(memory.clock());
        let process = |id| attach(DyingMemory::counting(memory.actor(id)), &world, id).unwrap();
        let files = [0, 1].map(process);
        (memory, files)
    };
    let body = |files: &[SimFiles; 2], id: u32, _: &Actor| {
        let (who, files) = (&root_user(), &files[id as usize]);
        let one = file(files, b"one").unwrap();
        let done = match id {
            0 => files.truncate(who, one, 3 * PAGE),
            _ => (100..103).try_for_each(|page| {
                let bytes = [b'n'; PAGE as usize];
                files.write(who, one, WriteAt::Offset(page * PAGE), &bytes).map(drop)
            }),
        };
        done.map_err(|error| error.to_string())
    };
    let verdict = |files: &[SimFiles; 2], memory: &RecordingMemory| {
        judge(memory.image())?;
        let one = file(&files[0], b"one").unwrap();
        let mut bytes = vec![9; (PAGES * PAGE) as usize];
        let len = files[0].read_file(one, 0, &mut bytes).map_err(|error| error.to_string())?;
        let first = bytes.chunks(PAGE as usize).take(len / PAGE as usize).map(|page| page[0]);
        let pages: Vec<u8> = first.collect();
        // What was written before the cut is gone, and nothing of what was there before is back.
        let is_right = |(page, byte): (usize, &u8)| match page {
            1 | 2 => *byte == b'o',
            100..103 => matches!(byte, 0 | b'n'),
            _ => *byte == 0,
        };
        let is_long = pages.len() == 3 || pages.len() == 103 && pages[102] == b'n';
        match is_long && pages.iter().enumerate().all(is_right) {
            true => Ok(pages.len() as u64),
            false => Err(format!("{} pages: {pages:?}", pages.len())),
        }
    };
    let found = run(&options, setup, body, verdict);
    assert_eq!(found.failed, 0, "{found}");
}

#[test]
fn a_removal_is_finished_whoever_dies() {
    let work = |files: &SimFiles| files.remove(&root_user(), files.root(), b"one", Removal::File);
    let deaths = die_everywhere(work, |seen| seen == Some(WHOLE) || seen.is_none());
    assert!(deaths * step() > 40 * STEP, "{deaths}");
}

#[test]
fn a_file_that_is_replaced_goes_as_a_whole() {
    let work = |files: &SimFiles| {
        let (who, root) = (&root_user(), files.root());
        files.create(who, root, b"new", New::Regular, 0o600)?;
        files.rename(who, root, b"new", root, b"one", conquest_fs::names::Renaming::Replace)
    };
    let deaths = die_everywhere(work, |seen| seen == Some(WHOLE) || seen == Some((0, 0)));
    assert!(deaths * step() > 40 * STEP, "{deaths}");
}

#[test]
fn pages_of_a_hole_go_one_by_one() {
    let work = |files: &SimFiles| {
        let one = file(files, b"one").unwrap();
        files.allocate(&root_user(), one, Allocate::Hole, 2 * PAGE, PAGES * PAGE)
    };
    let is_right = |seen| matches!(seen, Some((size, pages)) if size == WHOLE.0 && pages >= 1);
    let deaths = die_everywhere(work, is_right);
    assert!(deaths * step() > 40 * STEP, "{deaths}");
}

/// Overwrites all pages of `one`.
fn write_all(files: &SimFiles) -> Result<(), Error> {
    let one = file(files, b"one").unwrap();
    let bytes = vec![b'n'; (PAGES * PAGE) as usize];
    let (_, done) = files.write(&root_user(), one, WriteAt::Offset(PAGE), &bytes)?;
    assert_eq!(done, bytes.len() as u64);
    Ok(())
}

#[test]
fn a_long_write_is_there_up_to_some_page() {
    let is_right = |seen| matches!(seen, Some((size, _)) if size == WHOLE.0);
    let deaths = die_everywhere(write_all, is_right);
    assert!(deaths * step() > 100 * STEP, "{deaths}");
}

#[test]
fn a_long_write_on_a_full_store_is_there_up_to_some_page() {
    let (memory, _, files) = process(&prepared(), 1);
    fill(&files).unwrap();
    files.core().detach().unwrap();
    let is_right = |seen| matches!(seen, Some((size, _)) if size == WHOLE.0);
    let deaths = die_at(&memory.snapshot(), 10 * step() + 1, write_all, is_right);
    assert!(deaths * step() > 100 * STEP, "{deaths}");
}
