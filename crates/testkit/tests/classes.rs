//! Classes of groups lead a search for pages to the group that the run fits best, in regions of
//! more groups than a search would look into.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use conquest_format::geometry::Shape;
use conquest_format::kind::Kind;
use conquest_format::{GROUP_PAGES, Offset};
use conquest_testkit::DyingMemory;
use conquest_testkit::scenario::{SimCore, attach, fresh, shape};

/// More than the groups of unknown class that a search looks into.
const GROUPS: u64 = 24;
/// Pages of the run at the end of each group.
const PART: u64 = 100;

fn paper() -> Kind {
    Kind::new(2).unwrap()
}

/// Allocates a run in a transaction of its own. It is not finished, so that no page is zeroed.
fn take(core: &SimCore, pages: u64) {
    let mut tx = core.begin().unwrap();
    let _run = tx.alloc_run(paper(), pages, None).unwrap();
    tx.commit().unwrap();
}

/// The last pages of group `group`.
fn part(core: &SimCore, group: u64) -> Offset {
    core.geometry().page((group + 1) * GROUP_PAGES - PART)
}

fn is_taken(core: &SimCore, group: u64) -> bool {
    core.resolve_run(part(core, group), PART, paper()).is_ok()
}

fn free(core: &SimCore, group: u64) {
    core.run(|tx| tx.free_run(part(core, group), PART, paper())).unwrap();
}

/// A region with groups that are full, all but the first two. A lane has leased the last one.
fn region() -> SimCore {
    let (memory, world) = fresh(Shape { max_groups: GROUPS, ..shape() }, false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap();
    for _ in 0..GROUPS {
        take(&core, GROUP_PAGES - PART);
        take(&core, PART);
    }
    assert!((0..GROUPS).all(|group| is_taken(&core, group)));
    for group in 0..2 {
        let first = core.geometry().page(group * GROUP_PAGES);
        core.run(|tx| tx.free_run(first, GROUP_PAGES, paper())).unwrap();
    }
    core
}

#[test]
fn a_search_passes_free_groups_by_for_the_one_that_fits() {
    let core = region();
    free(&core, GROUPS - 3);
    take(&core, PART);
    assert!(is_taken(&core, GROUPS - 3));
}

#[test]
fn a_group_that_was_filled_up_and_left_no_longer_attracts() {
    let core = region();
    // It fits best, is taken, and left.
    free(&core, GROUPS - 3);
    take(&core, PART);
    take(&core, GROUP_PAGES);
    // Now another one fits best, further on than a free one.
    free(&core, GROUPS - 2);
    take(&core, PART);
    assert!(is_taken(&core, GROUPS - 2));
}

#[test]
fn a_group_that_another_lane_has_leased_is_passed_by() {
    let core = region();
    // It fits best, but for the lease.
    let tight = part(&core, GROUPS - 3);
    core.run(|tx| tx.free_run(tight, PART - 20, paper())).unwrap();
    let mut other = core.begin().unwrap();
    let _run = other.alloc_run(paper(), 10, None).unwrap();
    free(&core, GROUPS - 2);
    take(&core, PART / 2);
    core.resolve_run(part(&core, GROUPS - 2), PART / 2, paper()).unwrap();
    other.commit().unwrap();
    assert!(core.resolve_run(tight, 10, paper()).is_ok());
}
