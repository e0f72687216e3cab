//! The page and slab managers against an obvious model, and against hostile pointers.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::kind::Kind;
use conquest_format::{GROUP, GROUP_PAGES, Offset, PAGE};
use conquest_pm::check::Reachable;
use conquest_pm::memory::Memory;
use conquest_pm::tx::STAGED_MAX;
use conquest_pm::{Error, Mode, Object, Ptr};
use conquest_testkit::scenario::{SimCore, attach, fresh, shape};
use conquest_testkit::shelf::{Node, Op, examine, perform};
use conquest_testkit::{DyingMemory, Fate, Rng};

const PAPER: u8 = 2;

fn region() -> SimCore {
    region_of(shape())
}

fn region_of(shape: Shape) -> SimCore {
    let (memory, world) = fresh(shape, false).unwrap();
    attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap()
}

/// Allocates a run in a transaction of its own; the group it is in, and where.
fn take_run(core: &SimCore, pages: u64) -> (u64, Offset) {
    let mut tx = core.begin().unwrap();
    let run = tx.alloc_run(paper(), pages, None).unwrap();
    let at = tx.finish_run(run);
    tx.commit().unwrap();
    (core.geometry().page_of(at).unwrap() / GROUP_PAGES, at)
}

fn free_run(core: &SimCore, at: Offset, pages: u64) {
    core.run(|tx| tx.free_run(at, pages, paper())).unwrap();
}

fn paper() -> Kind {
    Kind::new(PAPER).unwrap()
}

fn root() -> Offset {
    STATE_ROOTS.plus(63 * 8)
}

#[test]
fn runs_never_overlap_and_all_space_can_be_used() {
    let core = region();
    let mut rng = Rng::new(5);
    let mut runs: BTreeMap<Offset, u64> = BTreeMap::new();
    let total = shape().max_groups * GROUP_PAGES;
    let mut full = 0;
    for _ in 0..3000 {
        let most = if rng.chance(1, 8) { 300 } else { 20 };
        let pages = 1 + rng.below(most);
        let held: u64 = runs.values().sum();
        if rng.chance(3, 5) || runs.is_empty() {
            let made = core.run(|tx| {
                let run = tx.alloc_run(paper(), pages, None)?;
                let at = tx.finish_run(run);
                tx.set(root(), at.bytes())?;
                Ok(at)
            });
            match made {
                Ok(at) => {
                    let before = runs.range(..at).next_back();
                    assert!(before.is_none_or(|(start, len)| start.plus(len * PAGE) <= at));
                    let after = runs.range(at..).next();
                    assert!(after.is_none_or(|(start, _)| at.plus(pages * PAGE) <= *start));
                    let first = core.geometry().page_of(at).unwrap();
                    assert!(first % GROUP_PAGES + pages <= GROUP_PAGES);
                    runs.insert(at, pages);
                }
                Err(Error::NoSpace { wanted, free, .. }) => {
                    full += 1;
                    assert_eq!(wanted, pages);
                    assert!(free + held <= total);
                    assert!(pages > 1 || held == total, "{pages} refused with {held} held");
                }
                Err(error) => panic!("{error}"),
            }
        } else {
            let index = rng.below(runs.len() as u64) as usize;
            let (&at, &pages) = runs.iter().nth(index).unwrap();
            core.run(|tx| {
                tx.free_run(at, pages, paper())?;
                tx.set(root(), 0)
            })
            .unwrap();
            runs.remove(&at);
        }
        assert_eq!(core.pages_used(), runs.values().sum::<u64>());
    }
    assert!(full > 0, "the region never filled up");
    let mut reachable = Reachable::default();
    runs.iter().for_each(|(&at, &pages)| reachable.run(at, pages));
    assert_eq!(core.check(&reachable).unwrap(), []);
}

#[test]
fn freed_pages_are_reused_last() {
    let core = region();
    let mut seen = Vec::new();
    for _ in 0..100 {
        let (_, at) = take_run(&core, 1);
        assert!(!seen.contains(&at), "{at} again after {} others", seen.len());
        seen.push(at);
        free_run(&core, at, 1);
    }
}

#[test]
fn long_runs_go_round_the_groups() {
    let core = region();
    // Three groups, of which the lane has leased the last.
    let mut grows = core.begin().unwrap();
    let _runs = [0; 3].map(|_| grows.alloc_run(paper(), GROUP_PAGES, None).unwrap());
    drop(grows);
    let (first, at) = take_run(&core, GROUP_PAGES);
    let (second, _) = take_run(&core, GROUP_PAGES);
    free_run(&core, at, GROUP_PAGES);
    // Another lane, as this one is held.
    let held = core.begin().unwrap();
    let (third, _) = take_run(&core, GROUP_PAGES);
    drop(held);
    assert_eq!([first, second, third], [2, 0, 1]);
}

#[test]
fn what_is_freed_in_a_group_is_known_to_searches() {
    let core = region_of(Shape { max_groups: 5, ..shape() });
    let mut grows = core.begin().unwrap();
    let _runs = [0; 5].map(|_| grows.alloc_run(paper(), GROUP_PAGES, None).unwrap());
    drop(grows);
    // Two full groups, and a lane that is elsewhere.
    let fill = |pages| {
        let (group, _) = take_run(&core, GROUP_PAGES - pages);
        let (same, at) = take_run(&core, pages);
        assert_eq!(group, same);
        (group, at)
    };
    let (first, second) = (fill(100), fill(50));
    take_run(&core, GROUP_PAGES);
    core.run(|tx| {
        tx.free_run(first.1, 100, paper())?;
        tx.free_run(second.1, 50, paper())
    })
    .unwrap();
    assert_eq!(take_run(&core, 100).0, first.0);
    assert_eq!(take_run(&core, 50).0, second.0);
}

#[test]
fn a_lane_that_moves_on_leaves_its_group_to_others() {
    let core = region_of(Shape { max_groups: 2, ..shape() });
    assert_eq!(take_run(&core, 4).0, 0);
    let mut moves_on = core.begin().unwrap();
    let _run = moves_on.alloc_run(paper(), GROUP_PAGES, None).unwrap();
    assert_eq!(core.groups(), 2);
    assert_eq!(take_run(&core, 400).0, 0, "by another lane");
    moves_on.commit().unwrap();
}

#[test]
fn who_wants_what_his_own_interrupted_operation_holds_is_told_so() {
    let core = region_of(Shape { max_groups: 1, ..shape() });
    let mut interrupted = core.begin().unwrap();
    let _run = interrupted.alloc_run(paper(), 4, None).unwrap();
    let mut handler = core.begin().unwrap();
    let refused = handler.alloc_run(paper(), 4, None);
    assert!(matches!(refused, Err(Error::OwnLane)), "{refused:?}");
}

#[test]
fn a_death_in_a_search_hides_no_room() {
    // The room is in the first group, or in the second, whose first has room for one slab.
    for (filler, slab) in [(0, 0), (GROUP_PAGES - 3, 1)] {
        search_dies(filler, slab);
    }
}

/// A process dies at each of its stores while it searches for the room in slab `slab`, with a run
/// of `filler` pages allocated before any slab.
fn search_dies(filler: u64, slab: usize) {
    let mut deaths = 0;
    for store in 1.. {
        let (memory, world) = fresh(Shape { lanes: 2 + slab as u32, ..shape() }, false).unwrap();
        let core = attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap();
        let mut tx = core.begin().unwrap();
        let _filler = (filler > 0).then(|| tx.alloc_run(paper(), filler, None).unwrap());
        let nodes: Vec<Ptr<Node>> = (0..72)
            .map(|_| {
                let fresh = tx.alloc::<Node>().unwrap();
                tx.seal(fresh)
            })
            .collect();
        tx.commit().unwrap();
        // Room in a slab that nobody has leased any more.
        let freed = &nodes[32 * slab..][..3];
        core.run(|tx| freed.iter().try_for_each(|&node| tx.free(node))).unwrap();
        let pages = core.pages_used();
        // From now on operations have the other lane.
        let held = core.begin().unwrap();
        // There is room in the first slab too, but somebody has leased it.
        let leased = (slab > 0).then(|| {
            let mut tx = core.begin().unwrap();
            tx.free(nodes[0]).unwrap();
            tx.commit().unwrap();
            let mut tx = core.begin().unwrap();
            let fresh = tx.alloc::<Node>().unwrap();
            assert_eq!(tx.seal(fresh), nodes[0]);
            tx
        });
        let killed = world.clone();
        let dies = Fate::Unwind(Box::new(move || killed.kill(2)));
        let dying = DyingMemory::new(memory.actor(0), store, dies);
        let take = |core: &SimCore| {
            core.run(|tx| {
                let fresh = tx.alloc::<Node>()?;
                let node = tx.seal(fresh);
                tx.set(root(), node.word())
            })
        };
        let died = catch_unwind(AssertUnwindSafe(|| {
            let victim = attach(dying, &world, 2).unwrap();
            take(&victim).unwrap();
            victim.detach().unwrap();
        }));
        core.recover().unwrap();
        take(&core).unwrap();
        assert_eq!(core.pages_used(), pages, "after a death at store {store}");
        drop((held, leased));
        if died.is_ok() {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 20, "{deaths}");
}

#[test]
fn what_is_recovered_once_is_not_recovered_again() {
    let (memory, world) = fresh(shape(), false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap();
    let stores = || {
        let before = core.memory().stores();
        core.recover().unwrap();
        core.memory().stores() - before
    };
    assert_eq!(stores(), 0);
    let other = attach(DyingMemory::counting(memory.actor(0)), &world, 2).unwrap();
    other.detach().unwrap();
    assert_eq!(stores(), 0, "after one that left");
    let dies = attach(DyingMemory::counting(memory.actor(0)), &world, 3).unwrap();
    let mut tx = core::mem::ManuallyDrop::new(dies.begin().unwrap());
    tx.lock(0, Mode::Exclusive).unwrap();
    world.kill(3);
    assert!(stores() > 0);
    assert_eq!(stores(), 0, "again");
}

#[test]
fn a_part_of_a_run_can_be_freed_but_nothing_twice() {
    let core = region();
    let at = core
        .run(|tx| {
            let run = tx.alloc_run(paper(), 100, None)?;
            Ok(tx.finish_run(run))
        })
        .unwrap_or(Offset::NONE);
    core.run(|tx| tx.free_run(at.plus(10 * PAGE), 5, paper())).unwrap();
    for (start, pages) in [(10, 1), (8, 3), (14, 1), (0, 100)] {
        let twice = core.run(|tx| tx.free_run(at.plus(start * PAGE), pages, paper()));
        assert!(matches!(twice, Err(Error::Corrupt { .. })), "{start} {pages}");
    }
    let once = core.run(|tx| {
        tx.free_run(at, 2, paper())?;
        tx.free_run(at.plus(PAGE), 1, paper())
    });
    assert!(matches!(once, Err(Error::Corrupt { .. })));
    assert_eq!(core.pages_used(), 95);
}

#[test]
fn objects_come_zeroed_and_are_reused_last() {
    let core = region();
    let take = || {
        core.run(|tx| {
            let node = tx.alloc::<Node>()?;
            let node = tx.seal(node);
            tx.set(root(), node.word())?;
            Ok(node)
        })
        .unwrap()
    };
    let mut seen = Vec::new();
    for round in 0..32_u64 {
        let node = take();
        let place = core.resolve(node).unwrap();
        let words = (0..place.len() / 8).map(|index| place.word(index).unwrap());
        assert!(words.clone().all(|at| core.memory().load(at, Ordering::Relaxed) == 0));
        assert!(!seen.contains(&node.offset()), "reused after {round} others");
        seen.push(node.offset());
        // Dirty it, so that the next user would notice.
        core.run(|tx| words.clone().try_for_each(|at| tx.set(at, u64::MAX))).unwrap();
        core.run(|tx| tx.free(node)).unwrap();
        assert!(matches!(core.resolve(node), Err(Error::Corrupt { .. })));
        assert!(core.run(|tx| tx.free(node)).is_err(), "freed twice");
    }
    // The slab has 32 objects: now the first one comes again.
    assert_eq!(take().offset(), seen[0]);
}

#[test]
fn an_object_holds_what_it_was_filled_with() {
    let core = region();
    let mut tx = core.begin().unwrap();
    let fresh = tx.alloc::<Node>().unwrap();
    tx.fill(&fresh, 16, b"sixteen bytes on").unwrap();
    tx.fill_word(&fresh, 0, 7).unwrap();
    assert!(matches!(tx.fill(&fresh, 380, b"more!"), Err(Error::TooLarge { .. })));
    assert!(matches!(tx.fill_word(&fresh, 48, 7), Err(Error::TooLarge { .. })));
    let node = tx.seal(fresh);
    tx.commit().unwrap();
    let place = core.resolve(node).unwrap();
    let mut bytes = vec![0xFF; place.len() as usize];
    core.memory().read(place.offset(), &mut bytes);
    let mut expected = vec![0; place.len() as usize];
    expected[0] = 7;
    expected[16..32].copy_from_slice(b"sixteen bytes on");
    assert_eq!(bytes, expected);
}

#[test]
fn slabs_that_nobody_uses_are_given_back() {
    let core = region();
    let mut tx = core.begin().unwrap();
    let nodes: Vec<Ptr<Node>> = (0..100)
        .map(|_| {
            let fresh = tx.alloc::<Node>().unwrap();
            tx.seal(fresh)
        })
        .collect();
    tx.commit().unwrap();
    assert_eq!(core.pages_used(), 4 * 3);
    core.run(|tx| nodes.iter().try_for_each(|&node| tx.free(node))).unwrap();
    assert_eq!(core.pages_used(), 3, "the lane keeps one");
    assert_eq!(core.check(&Reachable::default()).unwrap(), []);
}

#[test]
fn a_transaction_that_is_too_large_is_told_so_and_can_be_committed() {
    let core = region();
    let mut tx = core.begin().unwrap();
    for value in 1..=STAGED_MAX {
        tx.set(root(), value).unwrap();
    }
    let (wanted, most) = match tx.set(root(), 0) {
        Err(Error::TooLarge { what: "journal entries", wanted, most }) => (wanted, most),
        other => panic!("{other:?}"),
    };
    assert_eq!((wanted, most), (STAGED_MAX + 1, STAGED_MAX));
    tx.commit().unwrap();
    assert_eq!(core.memory().load(root(), Ordering::Relaxed), STAGED_MAX);
}

#[test]
fn leases_that_one_transaction_ends_are_nothing_to_the_next() {
    let core = region();
    // More slabs than one transaction could end the leases of.
    for _ in 0..20 {
        let mut tx = core.begin().unwrap();
        for _ in 0..40 {
            let fresh = tx.alloc::<Node>().unwrap();
            tx.seal(fresh);
        }
        tx.commit().unwrap();
    }
}

#[test]
fn an_object_is_freed_once() {
    let core = region();
    let mut tx = core.begin().unwrap();
    let nodes = [0; 2].map(|_| {
        let fresh = tx.alloc::<Node>().unwrap();
        tx.seal(fresh)
    });
    tx.commit().unwrap();
    let mut tx = core.begin().unwrap();
    tx.free(nodes[0]).unwrap();
    tx.free(nodes[1]).unwrap();
    assert!(matches!(tx.free(nodes[0]), Err(Error::Corrupt { what: "freed object", .. })));
    tx.commit().unwrap();
    assert_eq!(core.check(&Reachable::default()).unwrap(), []);
}

/// The same object under another type.
#[derive(Debug)]
struct Other;
impl Object for Other {
    const KIND: Kind = match Kind::new(2) {
        Some(kind) => kind,
        None => panic!(),
    };
}

#[test]
fn no_pointer_but_the_right_one_is_followed() {
    let core = region();
    let node = core
        .run(|tx| {
            let node = tx.alloc::<Node>()?;
            Ok(tx.seal(node))
        })
        .unwrap_or(Ptr::NONE);
    // Nothing was staged for it to be reachable, but it is allocated.
    core.resolve(node).unwrap();
    let word = node.word();
    assert!(Ptr::<Other>::from_word(word, root()).is_err());
    for bit in 0..64 {
        let found = Ptr::<Node>::from_word(word ^ (1 << bit), root());
        assert!(found.is_err() || core.resolve(found.unwrap()).is_err(), "bit {bit}");
    }
    let kind = Node::KIND;
    let heap = core.geometry().page(0);
    for at in [0, 8, 4096, heap.bytes() - 8, heap.bytes() + GROUP, !7, u64::MAX / 2] {
        assert!(core.resolve_kind(Offset::new(at), kind).is_err(), "{at:#x}");
    }
    for within in [8, 64, 383] {
        assert!(core.resolve_kind(node.offset().plus(within), kind).is_err());
    }
    assert!(core.resolve_kind(node.offset(), paper()).is_err());
    assert!(core.resolve_run(node.offset(), 1, paper()).is_err());
    assert!(core.resolve_run(heap, u64::MAX, paper()).is_err());
}

#[test]
fn nobody_detaches_in_the_middle_of_an_operation() {
    let core = region();
    let mut tx = core.begin().unwrap();
    assert!(matches!(core.detach(), Err(Error::InUse { lanes: 1, .. })));
    tx.set(root(), 7).unwrap();
    tx.commit().unwrap();
    core.detach().unwrap();
    assert!(matches!(core.begin(), Err(Error::Failed { .. })));
    assert_eq!(core.memory().load(root(), Ordering::Relaxed), 7);
}

#[test]
fn an_intent_is_carried_out_to_its_end() {
    let core = region();
    for id in 1..=40 {
        assert!(perform(&core, 1, Op::Push { list: 0, id, pages: id % 3 }).unwrap());
    }
    perform(&core, 1, Op::Push { list: 1, id: 99, pages: 0 }).unwrap();
    perform(&core, 1, Op::Clear { list: 0 }).unwrap();
    let (contents, findings) = examine(&core).unwrap();
    assert_eq!(findings, []);
    assert_eq!((contents.lists[0].len(), contents.lists[1].len(), contents.cleared), (0, 1, 40));
}

#[test]
fn pages_of_a_slab_that_never_came_to_be_can_become_a_run() {
    let core = region();
    // Three pages are left in the first group: a slab, or a run.
    let filler = core.run(|tx| {
        let run = tx.alloc_run(paper(), GROUP_PAGES - 3, None)?;
        let at = tx.finish_run(run);
        tx.set(root(), at.bytes()).map(|()| at)
    });
    let mut dropped = core.begin().unwrap();
    let fresh = dropped.alloc::<Node>().unwrap();
    let node = dropped.seal(fresh);
    drop(dropped);
    let mut tx = core.begin().unwrap();
    let run = tx.alloc_run(paper(), 3, None).unwrap();
    let fresh = tx.alloc::<Node>().unwrap();
    let (run, other) = (tx.finish_run(run), tx.seal(fresh));
    tx.commit().unwrap();
    assert_eq!(run, node.offset(), "the pages of the slab");
    core.resolve(other).unwrap();
    let mut reachable = Reachable::default();
    reachable.run(filler.unwrap(), GROUP_PAGES - 3);
    reachable.run(run, 3);
    reachable.object(other.offset());
    assert_eq!(core.check(&reachable).unwrap(), []);
}
