//! What one process leaves to another, on a medium that loses power.
//!
//! A process dies between the store that commits and the fence that makes it durable, another one
//! settles what it left, and then the power fails: what the survivor made visible must have been
//! durable before. And a process retires a record and lets others change the same words: the power
//! fails, and the record must not come back.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::sync::atomic::Ordering;

use conquest_format::geometry::{STATE_GROUPS, STATE_ROOTS, SUPERBLOCKS};
use conquest_format::journal::{CHECKSUM, LANE};
use conquest_format::kind::Kind as KindNumber;
use conquest_format::superblock::{RawSuperblock, SIZE};
use conquest_format::{GROUP_PAGES, Geometry, Offset, PAGE, WORD};
use conquest_pm::memory::Memory;
use conquest_testkit::explore;
use conquest_testkit::scenario::{Plan, Scenario, attach, fresh, shape};
use conquest_testkit::shelf::{FILLER, Op};
use conquest_testkit::{
    DyingMemory, Event, Kind, Mark, Options, Recording, RecordingMemory, World,
};

/// Steps of attaching and of the operation that dies, at most.
const STEPS: u64 = 200;
/// Interleavings tried for each.
const SEEDS: u64 = 4;
/// States after each death at most.
const STATES: usize = 3000;

/// Whether the last store into the persistent part that actor 0 made was the one that commits: of
/// commit word and checksum, the latter.
fn has_just_committed(geometry: &Geometry, events: &[Event]) -> bool {
    let last = events.iter().rev().filter(|event| event.actor == 0).find_map(|event| {
        if let Kind::Put { word, .. } = event.kind { Some(word * WORD) } else { None }
    });
    let lanes = geometry.lane(0).bytes()..geometry.lane(shape().lanes).bytes();
    last.is_some_and(|at| lanes.contains(&at) && (at - lanes.start) % LANE == CHECKSUM)
}

#[test]
fn what_a_survivor_settles_is_durable_before_it_is_visible() {
    let geometry = Geometry::new(shape()).unwrap();
    let (mut states, mut deaths) = (0, 0);
    for (step, seed) in (1..=STEPS).flat_map(|step| (0..SEEDS).map(move |seed| (step, seed))) {
        // Without pages, the new node is covered by the record's checksum, not by a fence.
        let push = |id| Op::Push { list: 0, id, pages: seed % 2 };
        let plan = Plan {
            scripts: vec![vec![push(2)], vec![Op::Touch { list: 0 }; 2]],
            earlier: vec![push(1)],
            dies_at: Some(step),
            ..Plan::random(step * SEEDS + seed, 2, 0, true)
        };
        let scenario = plan.record().unwrap();
        let events = &scenario.recording.events;
        let death = events.iter().rposition(|event| event.actor == 0).unwrap_or(0);
        if !has_just_committed(&geometry, &events[..=death]) {
            continue;
        }
        deaths += 1;
        let options =
            Options { first: death, states: STATES, depth: 0, death: false, ..Options::default() };
        let found =
            explore(&scenario.recording, &options, |memory, point| scenario.judge(memory, point));
        assert_eq!(found.failed, 0, "death at step {step}, seed {seed}: {found}");
        states += found.states;
    }
    println!("{states} states after {deaths} deaths");
    assert!(deaths > 10 && states > 10_000, "{states} states after {deaths} deaths");
}

#[test]
fn a_record_is_retired_for_good_before_others_change_its_words() {
    let mut states = 0;
    for seed in 0..4 * SEEDS {
        let push = |id| Op::Push { list: 0, id, pages: 0 };
        let plan = Plan {
            // The first actor waits for the second, with its retired record in the lane.
            scripts: vec![vec![push(2), push(3)], vec![push(4), push(5)]],
            earlier: vec![push(1)],
            ..Plan::random(seed, 2, 0, false)
        };
        let scenario = plan.record().unwrap();
        let done = Event { actor: 0, kind: Kind::Mark(Mark::Acknowledged(1)) };
        let first = scenario.recording.events.iter().position(|event| *event == done).unwrap();
        let options =
            Options { first, states: STATES, depth: 0, death: false, ..Options::default() };
        let found =
            explore(&scenario.recording, &options, |memory, point| scenario.judge(memory, point));
        assert_eq!(found.failed, 0, "seed {seed}: {found}");
        states += found.states;
    }
    assert!(states > 1000, "{states}");
}

/// Pushes that fill the first group, and then grow the region.
fn growing(seed: u64, actors: u32, dies_at: Option<u64>) -> Scenario {
    let push = |id| Op::Push { list: 1, id, pages: 3 };
    let grow = |actor: u64| (3..6).map(|number| push(actor << 32 | number)).collect();
    let plan = Plan {
        scripts: (0..u64::from(actors)).map(grow).collect(),
        earlier: vec![Op::Push { list: 0, id: 1, pages: FILLER }, push(2)],
        dies_at,
        ..Plan::random(seed, actors, 0, false)
    };
    plan.record().unwrap()
}

/// The event by which actor 0 published a larger number of groups.
fn growth(scenario: &Scenario) -> Option<usize> {
    scenario.recording.events.iter().position(|event| {
        let is_word = |word| word * WORD == STATE_GROUPS.bytes();
        event.actor == 0 && matches!(event.kind, Kind::Put { word, .. } if is_word(word))
    })
}

/// States of crashes after event `first`.
fn crash(scenario: &Scenario, first: usize, what: &str) -> usize {
    let options = Options { first, states: STATES, depth: 0, death: false, ..Options::default() };
    let found =
        explore(&scenario.recording, &options, |memory, point| scenario.judge(memory, point));
    assert_eq!(found.failed, 0, "{what}: {found}");
    found.states
}

#[test]
fn a_region_grows_in_an_order_that_survives_a_power_failure() {
    for seed in 0..SEEDS {
        let scenario = growing(seed, 1, None);
        // Before that, the bitmaps of the new group.
        let first = growth(&scenario).expect("it grows") - 20;
        assert!(crash(&scenario, first, &format!("seed {seed}")) > 100);
    }
}

#[test]
fn a_new_group_is_durable_before_what_others_put_there() {
    let mut deaths = 0;
    for seed in 0..SEEDS {
        // The first process dies just after it has made the new group known.
        let (mut before, mut after) = (1, 2000);
        while before + 1 < after {
            let step = u64::midpoint(before, after);
            if growth(&growing(seed, 2, Some(step))).is_some() {
                after = step;
            } else {
                before = step;
            }
        }
        let scenario = growing(seed, 2, Some(after));
        if let Some(grown) = growth(&scenario) {
            deaths += 1;
            crash(&scenario, grown, &format!("seed {seed}, death at step {after}"));
        }
    }
    assert!(deaths > 0);
}

/// A run of two pages that once held something else, of which `filled` bytes are filled.
fn recycled(filled: usize) -> (Recording, Offset) {
    let (memory, world) = fresh(shape(), false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    let paper = KindNumber::new(2).unwrap();
    let old = vec![0xA5; GROUP_PAGES as usize * PAGE as usize];
    let mut tx = core.begin().unwrap();
    let mut run = tx.alloc_run(paper, GROUP_PAGES, None).unwrap();
    tx.append(&mut run, &old).unwrap();
    let all = tx.finish_run(run);
    tx.commit().unwrap();
    core.run(|tx| tx.free_run(all, GROUP_PAGES, paper)).unwrap();
    core.detach().unwrap();
    let volatile = core.geometry().volatile();
    let memory = RecordingMemory::new(memory.snapshot(), volatile, true);
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    let mut tx = core.begin().unwrap();
    let mut run = tx.alloc_run(paper, 2, None).unwrap();
    tx.append(&mut run, &[0x5A; 2 * PAGE as usize][..filled]).unwrap();
    let at = tx.finish_run(run);
    tx.set(STATE_ROOTS, at.bytes()).unwrap();
    tx.commit().unwrap();
    (memory.recording(), at)
}

#[test]
fn nothing_of_a_pages_former_life_comes_back() {
    for filled in [0, 8, 3000, 2 * PAGE as usize] {
        let (recording, at) = recycled(filled);
        let first = recording.events.len().saturating_sub(60);
        let options = Options { first, states: STATES, depth: 0, ..Options::default() };
        let found = explore(&recording, &options, |memory, _| {
            let world = World::new(memory.clock());
            let alive = DyingMemory::counting(memory.this_thread());
            let core = attach(alive, &world, 5).map_err(|error| error.to_string())?;
            if core.memory().load(STATE_ROOTS, Ordering::SeqCst) == 0 {
                return Ok(0);
            }
            let mut bytes = vec![0; 2 * PAGE as usize];
            core.memory().read(at, &mut bytes);
            let (new, rest) = bytes.split_at(filled);
            let is_well = new.iter().all(|&b| b == 0x5A) && rest.iter().all(|&b| b == 0);
            if is_well { Ok(1) } else { Err(String::from("old bytes")) }
        });
        assert_eq!(found.failed, 0, "{filled} filled: {found}");
        assert_eq!(found.outcomes.len(), 2, "{filled} filled: {found}");
    }
}

/// Whether the superblock that counts in `memory` says that the region was left cleanly.
fn is_clean(memory: &RecordingMemory) -> Result<u64, String> {
    let copies = SUPERBLOCKS.map(|at| {
        let mut bytes = [0; SIZE];
        memory.this_thread().read(at, &mut bytes);
        RawSuperblock::from_bytes(&bytes).check().ok()
    });
    let newest = copies.into_iter().flatten().max_by_key(|copy| copy.sequence);
    newest.map(|copy| u64::from(copy.clean)).ok_or(String::from("no superblock"))
}

#[test]
fn the_superblock_says_after_a_power_failure_how_the_region_was_left() {
    let (memory, world) = fresh(shape(), false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    core.detach().unwrap();
    let volatile = core.geometry().volatile();
    let memory = RecordingMemory::new(memory.snapshot(), volatile, true);
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    memory.actor(0).mark(Mark::Acknowledged(1));
    core.run(|tx| tx.set(STATE_ROOTS, 1)).unwrap();
    memory.actor(0).mark(Mark::Begun(2));
    core.detach().unwrap();
    memory.actor(0).mark(Mark::Acknowledged(2));
    let recording = memory.recording();
    for (mark, expected) in [(1, false), (2, true)] {
        let is_mark = |event: &Event| event.kind == Kind::Mark(Mark::Acknowledged(mark));
        let first = recording.events.iter().position(is_mark).unwrap();
        let options = Options { first, depth: 0, death: false, ..Options::default() };
        let found = explore(&recording, &options, |memory, point| {
            let clean = is_clean(memory)?;
            let said = point.last_acknowledged(0) == Some(mark) && clean != u64::from(expected);
            // While it detaches, either.
            let is_early = mark == 1 && point.last_begun(0).is_some();
            if said && !is_early { Err(format!("clean: {clean}")) } else { Ok(clean) }
        });
        assert!(found.failed == 0 && found.states > 0, "{mark}: {found}");
    }
}
