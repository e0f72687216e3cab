//! Slabs where memory is weak: somebody frees an object just when somebody else looks for room
//! there, or parts with the slab. Whatever is free afterwards is found by some search.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use conquest_format::WORD;
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::kind::Kind;
use conquest_format::volatile::{self, head};
use conquest_pm::check::Reachable;
use conquest_pm::memory::Memory;
use conquest_pm::{Mode, Object, Ptr};
use conquest_testkit::scenario::{SimCore, attach, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::shelf::Node;
use conquest_testkit::{Actor, DyingMemory, RecordingMemory};

/// Objects in a slab.
const SLAB: usize = 32;
/// Pages of a group but for those of three slabs.
const FILLER: u64 = 503;
const RUNS: u64 = 300;

/// A region at work: a process that is attached throughout, one for each actor, and objects.
struct Shelf {
    witness: SimCore,
    cores: Vec<SimCore>,
    /// Full slabs, three of them in the first group.
    nodes: Vec<Ptr<Node>>,
}

fn fill(core: &SimCore, count: usize) -> Vec<Ptr<Node>> {
    core.run(|tx| (0..count).map(|_| tx.alloc::<Node>().map(|fresh| tx.seal(fresh))).collect())
        .unwrap()
}

/// Three full slabs in the first group and two in the second one. The groups of the slabs in
/// `hints` hint at room that there is not, the last one's slab is leased.
fn shelf(actors: u32, hints: &[usize]) -> (RecordingMemory, Shelf) {
    let (memory, world) =
        fresh(conquest_format::geometry::Shape { lanes: 5, slots: 5, ..shape() }, false).unwrap();
    let process = |id: u32| attach(DyingMemory::counting(memory.actor(id)), &world, id).unwrap();
    let witness = process(7);
    let mut tx = witness.begin().unwrap();
    // Never finished, so no page of it is zeroed: that would take long.
    let _filler = tx.alloc_run(Kind::new(2).unwrap(), FILLER, None).unwrap();
    tx.commit().unwrap();
    let mut nodes = fill(&witness, 5 * SLAB);
    for slab in hints {
        let node = nodes[slab * SLAB];
        witness.run(|tx| tx.free(node)).unwrap();
        nodes[slab * SLAB] = fill(&witness, 1)[0];
        assert_eq!(nodes[slab * SLAB], node);
    }
    let cores = (0..actors).map(process).collect();
    (memory, Shelf { witness, cores, nodes })
}

fn try_all(hints: &[usize], body: impl Fn(&Shelf, u32, &Actor) -> Result<(), String> + Sync) {
    try_all_from(hints, None, body);
}

/// [`try_all`], but a search begins at group `from`, whatever the hints say.
fn try_all_from(
    hints: &[usize],
    from: Option<u32>,
    body: impl Fn(&Shelf, u32, &Actor) -> Result<(), String> + Sync,
) {
    let setup = || {
        let (memory, shelf) = shelf(2, hints);
        if let Some(from) = from {
            let (geometry, memory) = (shelf.witness.geometry(), memory.actor(7));
            let tag = memory.load(geometry.slot(0), Ordering::SeqCst) >> 32;
            let at = geometry.head(head::PARTIAL_FROM + u64::from(Node::KIND.number()) * WORD);
            memory.store(at, volatile::tagged(tag as u32, from), Ordering::SeqCst);
        }
        (memory, shelf)
    };
    let options = ScheduleOptions {
        search: Search::Random { seed: 31, first: 0, runs: RUNS },
        weak_memory: true,
        ..ScheduleOptions::default()
    };
    let found = run(&options, setup, body, nothing_is_lost);
    assert_eq!(found.failed, 0, "{hints:?}: {found}");
}

fn nothing_is_lost(shelf: &Shelf, _: &RecordingMemory) -> Result<u64, String> {
    let findings = shelf.witness.check(&Reachable::default()).unwrap();
    let lost = findings.iter().find(|finding| finding.what.contains("search"));
    lost.map_or(Ok(0), |finding| Err(finding.to_string()))
}

fn free(core: &SimCore, node: Ptr<Node>) -> Result<(), String> {
    core.run(|tx| tx.free(node)).map_err(|error| error.to_string())
}

/// Room is made in slab `slab` by one while the other one wants some.
fn make_room_and_search(shelf: &Shelf, id: u32, slab: usize) -> Result<(), String> {
    let core = &shelf.cores[id as usize];
    match id {
        0 => free(core, shelf.nodes[slab * SLAB + 5]),
        _ => core
            .run(|tx| tx.alloc::<Node>().map(|fresh| _ = tx.seal(fresh)))
            .map_err(|error| error.to_string()),
    }
}

/// Room is made in one of the groups while somebody searches both.
fn one_makes_room_and_one_searches(hints: &[usize]) {
    for slab in [1, 4] {
        try_all(hints, |shelf, id, _| make_room_and_search(shelf, id, slab));
    }
}

/// As it is if a hint was taken before it was told where it is.
#[test]
fn room_is_found_where_a_search_begins_without_hints() {
    for slab in [1, 4] {
        try_all_from(&[], Some(0), |shelf, id, _| make_room_and_search(shelf, id, slab));
    }
}

#[test]
fn room_is_found_where_it_was_hinted_at_already() {
    [&[3, 0][..], &[0, 3]].into_iter().for_each(one_makes_room_and_one_searches);
}

#[test]
fn room_is_found_where_only_the_other_group_was_hinted_at() {
    [&[0][..], &[3]].into_iter().for_each(one_makes_room_and_one_searches);
}

#[test]
fn room_is_found_where_none_was_hinted_at() {
    one_makes_room_and_one_searches(&[]);
}

/// Tells the other one something that orders what was done before, or asks whether he has told.
fn tell(core: &SimCore, what: u64) -> Result<bool, String> {
    let told = core.run(|tx| {
        tx.lock(1, Mode::Exclusive)?;
        let at = STATE_ROOTS.plus(40 * WORD);
        let before = tx.get(at);
        tx.set(at, before | what).map(|()| before != 0)
    });
    told.map_err(|error| error.to_string())
}

/// Every run in which one of the two is interrupted once, until the other one is done.
#[test]
fn room_in_a_slab_that_is_parted_with_is_found() {
    let options = ScheduleOptions {
        search: Search::Exhaustive { preemptions: 1, runs: 5000 },
        weak_memory: true,
        // One with which older values are seen in time: without the fence the test fails.
        stale_seed: 1,
        ..ScheduleOptions::default()
    };
    let made = Mutex::new(None);
    let setup = || {
        *made.lock().unwrap() = None;
        shelf(2, &[3, 0])
    };
    let body = |shelf: &Shelf, id: u32, _: &Actor| {
        let core = &shelf.cores[id as usize];
        if id == 0 {
            // Fills a slab, and parts with it to get another one.
            *made.lock().unwrap() = Some(fill(core, SLAB)[3]);
            tell(core, 1)?;
            fill(core, 1);
        } else if tell(core, 0)? {
            let node = made.lock().unwrap().take();
            free(core, node.unwrap())?;
            fill(core, 1);
        }
        Ok(())
    };
    let found = run(&options, setup, body, nothing_is_lost);
    assert!(found.failed == 0 && found.complete, "{found}");
}

#[test]
fn who_sees_that_a_page_is_allocated_sees_what_it_is() {
    let setup = || {
        let (memory, world) = fresh(shape(), false).unwrap();
        let process = |id| attach(DyingMemory::counting(memory.actor(id)), &world, id).unwrap();
        let cores: Vec<SimCore> = (0..2).map(process).collect();
        (memory, cores)
    };
    let first = fill(&setup().1[0], 1)[0];
    let body = |cores: &Vec<SimCore>, id: u32, _: &Actor| {
        let core = &cores[id as usize];
        if id == 0 {
            fill(core, 1);
            return Ok(());
        }
        // Looks where an object is being made, as if it knew of it already.
        loop {
            match core.resolve(first) {
                Ok(_) => return Ok(()),
                Err(error) if error.to_string().contains("descriptor") => {
                    return Err(error.to_string());
                }
                Err(_) => {}
            }
        }
    };
    let options = ScheduleOptions {
        search: Search::Random { seed: 32, first: 0, runs: RUNS / 10 },
        weak_memory: true,
        persistent_loads: true,
        ..ScheduleOptions::default()
    };
    let found = run(&options, setup, body, |_, _| Ok(0));
    assert_eq!(found.failed, 0, "{found}");
}

/// Who began at the first slab each time would look at all that are full, for each object that was
/// freed there.
#[test]
fn a_search_goes_on_behind_the_slab_that_is_full() {
    let (memory, world) = fresh(shape(), false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    let nodes = fill(&core, 3 * SLAB);
    let [first, second, third] = [0, 1, 2].map(|slab| nodes[slab * SLAB + 7]);
    core.run(|tx| tx.free(second)).unwrap();
    assert_eq!(fill(&core, 1), [second]);
    core.run(|tx| tx.free(first)).unwrap();
    core.run(|tx| tx.free(third)).unwrap();
    assert_eq!(fill(&core, 2), [third, first]);
}
