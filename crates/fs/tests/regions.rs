//! Regions with a file system, without one, and with what is none.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use conquest_format::fs::root;
use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::inode::SIZE_MAX;
use conquest_format::{WORD, fs};
use conquest_fs::{Clock, Errno, Error, FileSystem, LOCKS_MIN, NewFileSystem};
use conquest_peers::sys;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Options, Region};
use conquest_testkit::files::new_file_system;

fn clock() -> Clock {
    Box::new(|| 1)
}

fn region(locks: u32) -> Arc<Region> {
    let memory = sys::memory_file(c"region").unwrap();
    let copy = memory.try_clone().unwrap();
    let shape = Shape { max_groups: 1, lanes: 2, slots: 2, locks, chunks: 2, log: 0 };
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    Region::create(Source::from(memory), 0o600, &new).unwrap();
    let access = Access::default();
    Region::open(Source::from(copy), &fs::kinds(), access, Options::default()).unwrap()
}

fn unfit<T>(result: Result<T, Error>) -> u64 {
    let Err(error) = result else { panic!("it is taken") };
    assert_eq!(error.errno(), Errno::EINVAL);
    match error {
        Error::Unfit { found, .. } => found,
        error => panic!("{error}"),
    }
}

#[test]
fn a_region_has_one_file_system_at_most() {
    let core = region(64);
    assert_eq!(unfit(FileSystem::open(Arc::clone(&core), clock())), 0);
    FileSystem::make(&core, &new_file_system(), &clock()).unwrap();
    assert_eq!(unfit(FileSystem::make(&core, &new_file_system(), &clock())), 1);
    let files = FileSystem::open(Arc::clone(&core), clock()).unwrap();
    assert_eq!(files.check().unwrap().directories, 1);
    // Another version is left alone.
    let version = STATE_ROOTS.plus(root::VERSION * WORD);
    core.memory().put(version, 2, Ordering::Relaxed);
    assert_eq!(unfit(FileSystem::open(Arc::clone(&core), clock())), 2);
    assert_eq!(unfit(FileSystem::make(&core, &new_file_system(), &clock())), 2);
}

#[test]
fn two_locks_are_enough() {
    assert_eq!(unfit(FileSystem::make(&region(1), &new_file_system(), &clock())), 1);
    let core = region(LOCKS_MIN);
    FileSystem::make(&core, &new_file_system(), &clock()).unwrap();
    FileSystem::open(core, clock()).unwrap().check().unwrap();
}

#[test]
fn files_are_never_longer_than_an_offset_can_say() {
    let core = region(64);
    let new = NewFileSystem { size_max: u64::MAX, ..new_file_system() };
    FileSystem::make(&core, &new, &clock()).unwrap();
    assert_eq!(FileSystem::open(core, clock()).unwrap().size_max(), SIZE_MAX);
}
