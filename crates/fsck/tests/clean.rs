//! Stores that the engine has made are consistent: at rest, attached and detached, and in every
//! image that a crash may leave.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use std::sync::Mutex;

use conquest_fsck::{Code, Options, check};
use support::*;

#[test]
fn a_store_with_everything_is_consistent() {
    let (memory, files, store) = everything();
    let report = examine(&store.bytes);
    assert_eq!(complaints(&report), Vec::<String>::new());
    assert_eq!(codes(&report), []);
    let census = files.check().unwrap();
    assert_eq!(census.findings, []);
    let counts = report.counts;
    assert_eq!(counts.directories, census.directories);
    assert_eq!(counts.files + counts.symlinks + counts.others, census.files);
    assert_eq!(counts.pages_used, files.core().pages_used());
    assert_eq!(counts.pages_used + counts.pages_free, files.core().groups() * 512);
    assert_eq!((counts.symlinks, counts.damaged, counts.records_pending), (2, 0, 0));
    assert!(!report.clean);
    files.core().detach().unwrap();
    let report = examine(&bytes_of(memory.image()));
    assert!(report.clean && report.is_consistent());
}

#[test]
fn progress_never_goes_back_and_ends_at_1() {
    let (_, _, store) = everything();
    let told = Mutex::new(Vec::new());
    let progress = |part: f64| told.lock().unwrap().push(part);
    let options = Options { progress: Some(&progress), ..Options::default() };
    check(&store.bytes[..], &options).unwrap();
    let told = told.into_inner().unwrap();
    assert!(told.len() > 20 && told.is_sorted() && told.first() == Some(&0.0));
    assert_eq!(told.last(), Some(&1.0));
}

#[test]
fn a_region_without_a_file_system_is_told() {
    let image = std::sync::Arc::new(conquest_testkit::Image::new(geometry().len()));
    let memory = conquest_testkit::RecordingMemory::new(image, geometry().volatile(), false);
    let world = conquest_testkit::World::new(memory.clock());
    let new = conquest_pm::attach::NewRegion {
        shape: SHAPE,
        kinds: conquest_format::fs::kinds(),
        uuid: [1; 16],
        created: 1,
        groups: 1,
    };
    let path = std::path::Path::new("simulated core");
    conquest_pm::attach::make(&memory.actor(0), &world.process(9), path, &new).unwrap();
    let report = examine(&bytes_of(memory.image()));
    assert_eq!(codes(&report), [Code::NoFileSystem]);
    assert!(report.is_consistent());
}
