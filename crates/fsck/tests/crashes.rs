//! Every image that a crash may leave of an engine's operations is consistent, before recovery and
//! after it; also in the middle of work that takes several records.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use conquest_access::Removal;
use conquest_format::{Geometry, PAGE};
use conquest_fs::content::WriteAt;
use conquest_fs::names::New;
use conquest_fsck::Severity;
use conquest_testkit::files::{
    self, ON_FULL, OPERATIONS, Op, SimFiles, attach, base, full_base, root_user,
};
use conquest_testkit::judge::judge;
use conquest_testkit::{
    CrashPoint, DyingMemory, Fate, Image, Mark, Options, Recording, RecordingMemory, World, explore,
};

/// States of each script.
const STATES: usize = 1200;

fn geometry() -> Geometry {
    Geometry::new(files::shape()).unwrap()
}

fn process(image: &Arc<Image>, needs_write_back: bool) -> (RecordingMemory, World, SimFiles) {
    let memory = RecordingMemory::new(Arc::clone(image), geometry().volatile(), needs_write_back);
    let world = World::new(memory.clock());
    let files = attach(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
    (memory, world, files)
}

fn record(base: &Arc<Image>, script: &[Op]) -> Recording {
    let (memory, _, files) = process(base, true);
    for op in script {
        op.perform(&files).unwrap();
    }
    files.core().detach().unwrap();
    memory.recording()
}

/// Judges an image as it is, recovers it, and judges it again.
fn check(memory: &RecordingMemory, _: &CrashPoint<'_>) -> Result<u64, String> {
    let before = judge(memory.image()).map_err(|what| format!("before recovery: {what}"))?;
    let world = World::new(memory.clock());
    let alive = DyingMemory::counting(memory.this_thread());
    let files = attach(alive, &world, 5).map_err(|error| error.to_string())?;
    memory.this_thread().mark(Mark::Recovered);
    let after = judge(memory.image()).map_err(|what| format!("after recovery: {what}"))?;
    let entries = [before.counts.entries, after.counts.entries];
    let pages = [before.counts.pages_used, after.counts.pages_used];
    let is_same = entries[0] == entries[1] && after.counts.records_pending == 0;
    // An intent frees pages that the record has left.
    if !is_same || pages[0] < pages[1] || files.core().pages_used() != pages[1] {
        return Err(format!("{:?} before recovery, {:?} after it", before.counts, after.counts));
    }
    Ok(entries[0] << 32 | pages[1])
}

#[test]
fn crashes_of_all_operations() {
    crashes_of(&base(false).unwrap(), &OPERATIONS);
}

#[test]
fn crashes_on_a_full_store() {
    crashes_of(&full_base(false).unwrap(), &ON_FULL);
}

fn crashes_of(base: &Arc<Image>, operations: &[Op]) {
    for (index, script) in operations.chunks(4).enumerate() {
        let recording = record(base, script);
        let inner_states = STATES / 3;
        let options =
            Options { seed: index as u64, states: STATES, inner_states, ..Options::default() };
        let found = explore(&recording, &options, check);
        assert_eq!(found.failed, 0, "{script:?}: {:#?}", found.failures);
        assert!(found.states > STATES / 2, "{}", found.states);
    }
}

/// Pages of a file, each of which stands alone, and of another one that separates them: more than
/// a record has entries.
const PAGES: u64 = 230;
/// Deaths are tried at every so many stores.
const STEP: usize = 17;

fn in_pieces() -> Arc<Image> {
    let (memory, _, files) = process(&base(true).unwrap(), false);
    let (who, root) = (&root_user(), files.root());
    let made = [b"one", b"two"].map(|name| files.create(who, root, name, New::Regular, 0o600));
    for page in 1..=PAGES {
        for file in &made {
            let at = WriteAt::Offset(page * PAGE);
            files.write(who, *file.as_ref().unwrap(), at, &[7; PAGE as usize]).unwrap();
        }
    }
    files.core().detach().unwrap();
    memory.snapshot()
}

/// Lets a process die all over `work`; how often there was an unfinished intent then.
fn die_everywhere(work: impl Fn(&SimFiles)) -> u64 {
    let image = in_pieces();
    let mut unfinished = 0;
    for store in (1..).step_by(STEP) {
        let memory = RecordingMemory::new(Arc::clone(&image), geometry().volatile(), false);
        let world = World::new(memory.clock());
        let dies = {
            let world = world.clone();
            Fate::Unwind(Box::new(move || world.kill(1)))
        };
        let done = catch_unwind(AssertUnwindSafe(|| {
            work(&attach(DyingMemory::new(memory.actor(1), store, dies), &world, 1).unwrap());
        }));
        let report = judge(memory.image()).unwrap_or_else(|what| panic!("store {store}: {what}"));
        unfinished += u64::from(report.counts.intents_pending > 0);
        if done.is_ok() {
            break;
        }
    }
    unfinished
}

#[test]
fn a_truncation_that_is_not_finished_is_consistent() {
    let unfinished = die_everywhere(|files| {
        let (one, _) = files.lookup(&root_user(), files.root(), b"one").unwrap().unwrap();
        files.truncate(&root_user(), one, 3 * PAGE).unwrap();
    });
    assert!(unfinished > 5, "{unfinished}");
}

#[test]
fn a_removal_that_is_not_finished_is_consistent() {
    let unfinished = die_everywhere(|files| {
        files.remove(&root_user(), files.root(), b"one", Removal::File).unwrap();
    });
    assert!(unfinished > 5, "{unfinished}");
}

/// In a region with a log its word counts, not the checksum: a record whose owner died between the
/// two has not happened.
#[test]
fn deaths_with_a_log_are_judged_as_they_are_recovered() {
    let base = files::logged_base().unwrap();
    let volatile = Geometry::new(files::logged_shape()).unwrap().volatile();
    let (mut pending, mut dropped) = (0, 0);
    for (index, script) in OPERATIONS.chunks(6).enumerate() {
        for store in (1 + index as u64..).step_by(STEP) {
            let memory = RecordingMemory::new(Arc::clone(&base), volatile.clone(), false);
            let world = World::new(memory.clock());
            let dies = {
                let world = world.clone();
                Fate::Unwind(Box::new(move || world.kill(1)))
            };
            let done = catch_unwind(AssertUnwindSafe(|| {
                let memory = DyingMemory::new(memory.actor(1), store, dies);
                let files = attach(memory, &world, 1).unwrap();
                script.iter().for_each(|op| _ = op.perform(&files).unwrap());
            }));
            let before = judge(memory.image()).unwrap_or_else(|what| panic!("{store}: {what}"));
            pending += before.counts.records_pending;
            dropped += before.count_of(Severity::Note);
            let alive = DyingMemory::counting(memory.actor(2));
            drop(attach(alive, &world, 2).unwrap());
            let after = judge(memory.image()).unwrap_or_else(|what| panic!("{store}: {what}"));
            assert_eq!(before.counts.entries, after.counts.entries, "{store}");
            assert!(before.counts.pages_used >= after.counts.pages_used, "{store}");
            assert_eq!(after.counts.records_pending, 0, "{store}");
            if done.is_ok() {
                break;
            }
        }
    }
    assert!(pending > 20 && dropped > 20, "{pending} {dropped}");
}
