//! Protection against wild stores: outside of operations the persistent part can't be written.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media_support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use conquest_format::Offset;
use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::kind::{KINDS, KindSpec};
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Mode, Options, Region};
use media_support::*;

fn region() -> Temporary {
    let file = Temporary::shm();
    let shape = Shape { max_groups: 4, lanes: 4, slots: 4, locks: 8, chunks: 4, log: 0 };
    let kinds = [KindSpec::UNUSED; KINDS];
    let new = NewRegion { shape, kinds, uuid: [1; 16], created: 2, groups: 1 };
    Region::create(Source::from(file.0.as_path()), 0o600, &new).unwrap();
    file
}

fn open(path: &Path, shield: bool) -> Arc<Region> {
    let access = Access { shield, ..Access::default() };
    let kinds = [KindSpec::UNUSED; KINDS];
    Region::open(Source::from(path), &kinds, access, Options::default()).unwrap()
}

fn add_one(core: &Region, root: Offset) {
    core.run(|tx| {
        tx.lock(1, Mode::Exclusive)?;
        let value = tx.get(root);
        tx.set(root, value + 1)
    })
    .unwrap();
}

/// The signal that ends a child which stores to `at` of the region outside of an operation.
fn stray_store(path: &Path, shield: bool, at: Offset) -> i32 {
    let mut child = fork(|_| {
        let core = open(path, shield);
        add_one(&core, STATE_ROOTS);
        let address = core.memory().address() + at.bytes() as usize;
        let word = std::ptr::with_exposed_provenance_mut::<u64>(address);
        // SAFETY: not sound in general, which is the point; the process ends right after it.
        unsafe { word.write_volatile(word.read_volatile()) };
    });
    let status = child.wait();
    if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 }
}

#[test]
fn a_stray_store_faults_and_damages_nothing() {
    let file = region();
    let core = open(&file.0, false);
    let geometry = core.geometry().clone();
    let persistent = [Offset::NONE, STATE_ROOTS, geometry.lane(0), geometry.page(3)];
    for at in persistent {
        assert_eq!(stray_store(&file.0, true, at), libc::SIGSEGV, "{at}");
        assert_eq!(stray_store(&file.0, false, at), 0, "{at}");
    }
    assert_eq!(stray_store(&file.0, true, geometry.lock(7)), 0, "the volatile part");
    // What the dead had done is there, and their slots can be had again.
    assert_eq!(core.memory().load(STATE_ROOTS, Ordering::Acquire), 9);
    add_one(&core, STATE_ROOTS);
}

#[test]
fn windows_of_threads_overlap() {
    let file = region();
    let core = open(&file.0, true);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| add_one(&core, STATE_ROOTS)));
        }
    });
    assert_eq!(core.memory().load(STATE_ROOTS, Ordering::Acquire), 2000);
}

#[test]
fn a_shielded_process_recovers_a_dead_one() {
    let file = region();
    let core = open(&file.0, true);
    let mut child = fork(|parent| {
        let core = open(&file.0, true);
        let mut tx = core.begin().unwrap();
        tx.lock(1, Mode::Exclusive).unwrap();
        parent.say("x");
        sleep_for_ever();
    });
    child.hear(1);
    child.signal(libc::SIGKILL);
    child.wait();
    add_one(&core, STATE_ROOTS);
    assert_eq!(core.memory().load(STATE_ROOTS, Ordering::Acquire), 1);
}
