//! Space that is provided for what is about to be allocated, and made ready for it.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media_support;

use std::sync::Arc;

use conquest_format::geometry::Shape;
use conquest_format::kind::{KINDS, Kind, KindSpec, KindTable};
use conquest_format::{GROUP, GROUP_PAGES, PAGE};
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Options, Region};
use media_support::Temporary;

fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    kinds[1] = KindSpec::RUN;
    kinds
}

/// A region of one group that may have so many.
fn region(max_groups: u64) -> (Temporary, Arc<Region>) {
    let file = Temporary::shm();
    let shape = Shape { max_groups, lanes: 4, slots: 4, locks: 4, chunks: 4, log: 0 };
    let new = NewRegion { shape, kinds: kinds(), uuid: [5; 16], created: 5, groups: 1 };
    Region::create(Source::from(file.0.as_path()), 0o600, &new).unwrap();
    let path = Source::from(file.0.as_path());
    let core = Region::open(path, &kinds(), Access::default(), Options::default()).unwrap();
    (file, core)
}

#[test]
fn a_region_grows_by_what_is_missing_and_no_further_than_it_can() {
    let (_file, core) = region(40);
    let provide = |pages| core.run(|tx| tx.provide(pages)).unwrap();
    assert_eq!(provide(GROUP_PAGES / 2), 1..1);
    // By the usual step of 16 groups.
    assert_eq!(provide(10 * GROUP_PAGES), 1..17);
    assert_eq!(provide(10 * GROUP_PAGES), 17..17);
    assert_eq!(provide(u64::MAX), 17..40);
    assert_eq!(provide(u64::MAX), 40..40);
    assert_eq!(core.groups(), 40);
}

#[test]
fn what_is_made_ready_is_there_and_has_changed_nowhere() {
    let (_file, core) = region(40);
    let kind = Kind::new(1).unwrap();
    let run = core
        .run(|tx| {
            let mut run = tx.alloc_run(kind, 2, None)?;
            tx.append(&mut run, &[7; PAGE as usize])?;
            Ok(tx.finish_run(run))
        })
        .unwrap();
    let groups = core.run(|tx| tx.provide(GROUP_PAGES * 4)).unwrap();
    let mapped = || core.memory().huge_pages().mapped_bytes;
    let before = mapped();
    core.make_ready(0..groups.end);
    // A part of the first group was there.
    assert!(mapped() >= before + 16 * GROUP, "{before} bytes before, {} after", mapped());
    let mut found = [0; PAGE as usize];
    core.memory().read(run, &mut found);
    assert!(found == [7; PAGE as usize]);
}
