//! The managers' check finds what is wrong: one thing at a time is broken, and named.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;

use conquest_format::descriptor::Descriptor;
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::journal::{Action, Commit, ENTRIES, Entry, INTENT, ImagePart, PAGES_USED};
use conquest_format::kind::Kind;
use conquest_format::volatile::{self, group, lane, lock, slab};
use conquest_format::{GROUP_PAGES, Geometry, Offset, PAGE, WORD};
use conquest_pm::Error;
use conquest_pm::check::Reachable;
use conquest_pm::memory::Memory;
use conquest_testkit::DyingMemory;
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, shape};
use conquest_testkit::shelf::Node;

/// The tag of the first attach generation.
const TAG: u32 = 1;

/// A region with one node and a run of three pages, and where they are.
fn region() -> (SimCore, Offset, Offset) {
    let (memory, world) = fresh(shape(), false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap();
    let (node, run) = core
        .run(|tx| {
            let node = tx.alloc::<Node>()?;
            let node = tx.seal(node);
            let run = tx.alloc_run(Kind::new(2).unwrap(), 3, None)?;
            Ok((node.offset(), tx.finish_run(run)))
        })
        .unwrap();
    (core, node, run)
}

fn reachable(node: Offset, run: Offset) -> Reachable {
    let mut reachable = Reachable::default();
    reachable.object(node);
    reachable.run(run, 3);
    reachable
}

/// What the check says after `damage`.
fn findings(damage: impl FnOnce(&SimMemory, &Geometry, Offset, Offset)) -> Vec<&'static str> {
    let (core, node, run) = region();
    assert_eq!(core.check(&reachable(node, run)).unwrap(), []);
    damage(core.memory(), core.geometry(), node, run);
    let found = core.check(&reachable(node, run)).unwrap();
    found.into_iter().map(|finding| finding.what).collect()
}

fn page(geometry: &Geometry, at: Offset) -> u64 {
    geometry.page_of(at).unwrap()
}

fn tagged(value: u32) -> u64 {
    volatile::tagged(TAG, value)
}

#[test]
fn what_is_allocated_and_what_is_reachable_must_agree() {
    let (core, node, run) = region();
    let what = |reachable: &Reachable| {
        let found = core.check(reachable).unwrap();
        found.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
    };
    let mut less = Reachable::default();
    less.run(run, 2);
    let leaks = ["object allocated but not reachable", "page allocated but not reachable"];
    let mut found = what(&less);
    found.sort_unstable();
    assert_eq!(found, leaks);
    let mut more = reachable(node, run);
    more.object(node.plus(384));
    more.run(run.plus(3 * 4096), 1);
    let lost = ["reachable object is not allocated", "reachable page is not allocated"];
    assert_eq!(what(&more), lost);
    let mut twice = reachable(node, run);
    twice.object(node);
    twice.run(run, 1);
    assert_eq!(what(&twice), ["object reached twice", "page reached twice"]);
}

#[test]
fn the_tables_must_agree_with_each_other() {
    let node = Kind::new(1).unwrap();
    let lost = findings(|m, g, _, run| m.put(g.descriptor(page(g, run)), 0, Relaxed));
    assert_eq!(lost, ["allocated page without descriptor", "reachable page is not allocated"]);
    let tail = findings(|m, g, at, _| {
        let second = page(g, at) + 1;
        m.put(g.descriptor(second), Descriptor::SlabTail(node, 2).pack(second), Relaxed);
    });
    assert!(tail.contains(&"slab lacks a page"), "{tail:?}");
    let head = findings(|m, g, at, _| {
        let first = page(g, at);
        m.put(g.descriptor(first), Descriptor::Run(node).pack(first), Relaxed);
    });
    assert!(head.contains(&"slab page without a slab"), "{head:?}");
    let count = findings(|m, g, _, _| m.put(g.lane(1).plus(PAGES_USED), 5, Relaxed));
    assert_eq!(count, ["lanes' page counts don't add up"]);
}

#[test]
fn nothing_may_be_left_of_operations() {
    let intent = findings(|m, g, _, _| m.put(g.lane(1).plus(INTENT), 1, Relaxed));
    assert_eq!(intent, ["unfinished intent in a lane at rest"]);
    let armed = Commit { sequence: 1, entries: 1, ranges: 0 }.pack();
    let record = findings(|m, g, _, _| m.put(g.lane(1), armed, Relaxed));
    assert_eq!(record, ["record not retired in a lane at rest"]);
    let owner = findings(|m, g, _, _| {
        m.store(g.lane_record(1).plus(lane::OWNER), tagged(volatile::owner(0, 1)), Relaxed);
    });
    assert_eq!(owner, ["owner of a lane at rest"]);
    let name = findings(|m, g, _, _| {
        let last = g.lane_record(1).plus(lane::HELD + 8 * (lane::HELD_MAX - 1));
        m.store(last, tagged(volatile::held(1, false)), Relaxed);
    });
    assert_eq!(name, ["lock name in a lane at rest"]);
    let holder = findings(|m, g, _, _| m.store(g.lock(1).plus(lock::WORD), tagged(2), Relaxed));
    assert_eq!(holder, ["holder of a lock at rest"]);
    let version = findings(|m, g, _, _| {
        m.store(g.lock(1).plus(lock::VERSION), volatile::versioned(TAG, 3), Relaxed);
    });
    assert_eq!(version, ["odd version of a lock at rest"]);
    let busy = findings(|m, g, _, _| {
        m.store(g.group_record(0).plus(group::BUSY + 8), tagged(1), Relaxed);
    });
    assert_eq!(busy, ["busy pages in a group at rest"]);
    let busy = findings(|m, g, at, _| {
        m.store(g.slab_record(page(g, at)).plus(slab::BUSY), tagged(1 << 9), Relaxed);
    });
    assert_eq!(busy, ["busy objects in a slab at rest"]);
}

#[test]
fn a_word_of_an_earlier_generation_is_nothing() {
    let old = |value| volatile::tagged(TAG - 1, value);
    let found = findings(|m, g, _, _| {
        m.store(g.lane_record(1).plus(lane::OWNER), old(volatile::owner(0, 1)), Relaxed);
        m.store(g.lock(1).plus(lock::WORD), old(2), Relaxed);
        m.store(g.lock(1).plus(lock::VERSION), volatile::versioned(TAG - 1, 3), Relaxed);
        m.store(g.group_record(0).plus(group::BUSY), old(1), Relaxed);
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn one_process_that_finds_damage_stops_the_others() {
    let (memory, world) = fresh(shape(), false).unwrap();
    let open = |pid| attach(DyingMemory::counting(memory.actor(0)), &world, pid).unwrap();
    let (first, second) = (open(1), open(2));
    drop(second.begin().unwrap());
    // A lock held by a lane that does not exist.
    first.memory().store(first.geometry().lock(1), tagged(0xFFFF), Relaxed);
    let mut tx = first.begin().unwrap();
    assert!(matches!(tx.lock(1, conquest_pm::Mode::Exclusive), Err(Error::Corrupt { .. })));
    drop(tx);
    assert!(matches!(first.begin(), Err(Error::Failed { .. })));
    assert!(matches!(second.begin(), Err(Error::Failed { .. })));
}

#[test]
fn a_record_of_the_dead_that_is_damaged_stops_everybody() {
    let (memory, world) = fresh(shape(), false).unwrap();
    let open = |pid| attach(DyingMemory::counting(memory.actor(0)), &world, pid).unwrap();
    let [dead, first, second] = [1, 2, 3].map(open);
    let _unfinished = ManuallyDrop::new(dead.begin().unwrap());
    for number in 0..shape().lanes {
        dead.memory().put(dead.geometry().lane(number), u64::MAX, Relaxed);
    }
    world.kill(1);
    let refused = first.recover();
    assert!(matches!(refused, Err(Error::Corrupt { what: "commit word", .. })), "{refused:?}");
    assert!(matches!(first.begin(), Err(Error::Failed { .. })));
    assert!(matches!(second.begin(), Err(Error::Failed { .. })));
}

#[test]
fn a_free_lane_with_a_record_is_an_error() {
    let (core, ..) = region();
    let armed = Commit { sequence: 1, entries: 1, ranges: 0 }.pack();
    for number in 0..shape().lanes {
        core.memory().put(core.geometry().lane(number), armed, Relaxed);
    }
    let refused = core.begin().map(drop);
    assert!(matches!(refused, Err(Error::Corrupt { what: "free lane", .. })), "{refused:?}");
    let owner = |number| core.memory().load(core.geometry().lane_record(number), Relaxed) as u32;
    assert!((0..shape().lanes).all(|number| owner(number) == 0), "a lane was kept");
}

#[test]
fn a_record_that_cannot_be_applied_stops_everybody_and_stays() {
    let (core, ..) = region();
    let mut tx = core.begin().unwrap();
    tx.lock(1, conquest_pm::Mode::Exclusive).unwrap();
    tx.set(conquest_format::geometry::STATE_ROOTS, 1).unwrap();
    // Somebody scribbles over what is staged: a target outside everything.
    let g = core.geometry();
    for number in 0..shape().lanes {
        core.memory().put(g.lane(number).plus(ENTRIES), u64::MAX, Relaxed);
    }
    let refused = tx.commit();
    assert!(matches!(refused, Err(Error::Corrupt { what: "journal entry", .. })), "{refused:?}");
    assert!(matches!(core.begin(), Err(Error::Failed { .. })));
    let lock = core.memory().load(g.lock(1), Relaxed);
    assert_ne!(lock & 0xFFFF, 0, "the lock over what the record was to change");
}

/// What comes of a committed record with one entry, which `entry` gives for the region and its run.
fn applied(entry: impl Fn(&Geometry, Offset) -> [u64; 2]) -> conquest_pm::Result<()> {
    let (core, _, run) = region();
    let mut tx = core.begin().unwrap();
    tx.set(STATE_ROOTS, 1).unwrap();
    let words = entry(core.geometry(), run);
    for number in 0..shape().lanes {
        let at = core.geometry().lane(number).plus(ENTRIES);
        core.memory().put(at, words[0], Relaxed);
        core.memory().put(at.plus(WORD), words[1], Relaxed);
    }
    tx.commit()
}

#[test]
fn copies_to_where_they_do_not_belong_are_refused() {
    let copy = |target: Offset, from, len, number| {
        let part = ImagePart { from, len, kind: Kind::new(number).unwrap() };
        Entry { target, action: Action::Copy, operand: part.pack() }.pack()
    };
    applied(|_, run| copy(run.plus(8), 8, PAGE - 8, 2)).unwrap();
    applied(|_, run| copy(run.plus(PAGE / 2), 0, PAGE, 2)).unwrap();
    type Place = fn(&Geometry, Offset) -> Offset;
    let places: [(&str, Place); 8] = [
        ("past the run", |_, run| run.plus(3 * PAGE - 8)),
        ("a free page", |_, run| run.plus(3 * PAGE)),
        ("before the heap", |g, _| Offset::new(g.page(0).bytes() - 8)),
        ("past the groups", |g, _| g.page(GROUP_PAGES)),
        ("past the region", |g, _| Offset::new(g.len() - 8)),
        ("an image page", |g, _| g.image_page(0)),
        ("a bitmap", |g, _| g.bitmap(0)),
        ("a root", |_, _| STATE_ROOTS),
    ];
    for (what, place) in places {
        let refused = applied(|g, run| copy(place(g, run), 0, 64, 2));
        let is_corrupt = matches!(refused, Err(Error::Corrupt { what: "journal entry", .. }));
        assert!(is_corrupt, "{what}: {refused:?}");
    }
    let operands = [
        ("another kind", copy(Offset::NONE, 0, 64, 3)[1]),
        ("nothing", copy(Offset::NONE, 0, 0, 2)[1]),
        ("past the image page", copy(Offset::NONE, 64, PAGE, 2)[1]),
        ("a part of a word", copy(Offset::NONE, 0, 60, 2)[1]),
        ("junk", u64::MAX),
    ];
    for (what, operand) in operands {
        let entry = |run| Entry { target: run, action: Action::Copy, operand }.pack();
        let refused = applied(|_, run| entry(run));
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{what}: {refused:?}");
    }
    let into_image =
        |g: &Geometry, _| Entry { target: g.image_page(1), action: Action::Set, operand: 1 }.pack();
    assert!(matches!(applied(into_image), Err(Error::Corrupt { .. })), "a word of an image page");
}
