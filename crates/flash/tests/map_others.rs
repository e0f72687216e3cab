//! The map while others change it, and after they have died.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use conquest_flash::map::{Extent, Room};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Region};
use conquest_testkit::{DyingMemory, Fate, RecordingMemory, Rng, World, become_actor};
use support::*;

/// Where the range that moves is, and how long it is.
const MOVING: u64 = 50_000;
const MOVING_LEN: u64 = 300;
/// The places between which it moves.
const PLACES: [u64; 2] = [1 << 20, 1 << 30];
/// Extents that stay: every tenth unit.
const STAYING: u64 = 10_000;

/// Moves the range to and fro, and changes what is around it.
fn churn(core: &Region, rng: &mut Rng, turn: usize) {
    let room = Room { kept: rng.below(150), each: 0 };
    let mut tx = begin(core);
    assign(&mut tx, extent(MOVING, PLACES[turn % 2], MOVING_LEN), room);
    if turn.is_multiple_of(3) {
        // Cut up by pieces that are as they were, so that it is many extents for a while.
        for unit in (MOVING..MOVING + MOVING_LEN).step_by(2) {
            let place = PLACES[(turn + 1) % 2] + unit - MOVING;
            assign(&mut tx, extent(unit, place, 1), room);
        }
    }
    tx.commit().unwrap();
    for _ in 0..40 {
        let mut tx = begin(core);
        let start = 1 + rng.below(STAYING) * 10;
        // Not what stays, nor what moves.
        for unit in (0..20).map(|index| start + index * 10) {
            if (MOVING..MOVING + MOVING_LEN).contains(&(unit + 8)) || unit / 10 == 4999 {
                continue;
            }
            if turn % 40 < 20 {
                assign(&mut tx, extent(unit, rng.below(1 << 30), 1 + rng.below(8)), room);
            } else {
                clear(&mut tx, unit..unit + 9, room);
            }
        }
        tx.commit().unwrap();
    }
}

/// Looks up what moves and what stays, until `is_over`: how often.
fn look(core: &Region, seed: u64, is_over: &AtomicBool) -> u64 {
    let (mut rng, mut looks) = (Rng::new(seed), 0);
    while !is_over.load(Ordering::Relaxed) {
        looks += 1;
        let unit = MOVING + rng.below(MOVING_LEN);
        let found = core.read(LOCK, |view| TREE.find(view, unit)).unwrap().unwrap();
        assert!(found.unit <= unit && unit < found.end(), "{unit} {found:?}");
        let place = found.place + (unit - found.unit);
        assert!(PLACES.map(|place| place + unit - MOVING).contains(&place), "{unit} {found:?}");
        let number = rng.below(STAYING);
        if !(MOVING..MOVING + MOVING_LEN).contains(&(number * 10)) {
            let found = core.read(LOCK, |view| TREE.find(view, number * 10)).unwrap();
            assert_eq!(found, Some(extent(number * 10, 1 << 35 | number << 1, 1)));
        }
    }
    looks
}

/// Walks through the map until `is_over`: how often.
fn walk(core: &Region, is_over: &AtomicBool) -> u64 {
    let (mut walks, mut leaf) = (0, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let (mut from, mut found) = (Some(0), BTreeSet::new());
        while let Some(unit) = from {
            from = core.read(LOCK, |view| TREE.leaf(view, unit, &mut leaf)).unwrap();
            assert!(leaf.iter().all(|extent| extent.end() > unit) && leaf.is_sorted());
            assert!(leaf.last().zip(from).is_none_or(|(last, from)| last.end() <= from));
            found.extend(leaf.iter().flat_map(|extent| extent.unit..extent.end()));
        }
        let stays = (0..STAYING).map(|number| number * 10);
        let there = stays.chain(MOVING..MOVING + MOVING_LEN).all(|unit| found.contains(&unit));
        assert!(there, "walk {walks}");
        walks += 1;
    }
    walks
}

#[test]
fn readers_find_one_of_the_committed_states() {
    let core = region(16);
    let mut tx = begin(&core);
    for number in 0..STAYING {
        insert(&mut tx, extent(number * 10, 1 << 35 | number << 1, 1), 0);
    }
    assign(&mut tx, extent(MOVING, PLACES[1], MOVING_LEN), Room::default());
    tx.commit().unwrap();
    let is_over = AtomicBool::new(false);
    let (core, is_over) = (&*core, &is_over);
    std::thread::scope(|scope| {
        let lookers = [1, 2].map(|seed| scope.spawn(move || look(core, seed, is_over)));
        let walker = scope.spawn(move || walk(core, is_over));
        let mut rng = Rng::new(7);
        let churned = catch_unwind(AssertUnwindSafe(|| {
            (0..400).for_each(|turn| churn(core, &mut rng, turn));
        }));
        is_over.store(true, Ordering::Relaxed);
        churned.unwrap();
        let looks: u64 = lookers.map(|looker| looker.join().unwrap()).iter().sum();
        let walks = walker.join().unwrap();
        println!("{looks} looks, {walks} walks, {:?}", examine(core));
        assert!(looks > 1000 && walks > 3, "{looks} looks, {walks} walks");
    });
}

/// What is done to a map.
#[derive(Clone, Copy)]
enum Op {
    Assign(Extent),
    Insert(Extent),
    Clear(u64, u64),
}

fn perform<M: Memory, H: Host>(core: &Core<M, H>, op: Op) {
    // So little room that much takes several parts.
    let room = Room { kept: 150, each: 2 };
    let mut tx = begin(core);
    match op {
        Op::Assign(extent) => _ = assign(&mut tx, extent, room),
        Op::Insert(extent) => _ = insert(&mut tx, extent, room.kept),
        Op::Clear(start, end) => _ = clear(&mut tx, start..end, room),
    }
    tx.commit().unwrap();
}

fn apply(model: &mut Model, op: Op) {
    match op {
        Op::Assign(extent) | Op::Insert(extent) => {
            clear_model(model, extent.unit..extent.end());
            insert_model(model, extent);
        }
        Op::Clear(start, end) => _ = clear_model(model, start..end),
    }
}

/// Does `ops` to a map of `earlier`, dying before each `step`-th store, on memory that has to be
/// written back or has not: how often.
fn die(earlier: &[Op], ops: &[Op], step: usize, is_persistent: bool) -> u64 {
    let mut states = vec![Model::new()];
    earlier.iter().for_each(|op| apply(&mut states[0], *op));
    for op in ops {
        let mut next = states.last().unwrap().clone();
        apply(&mut next, *op);
        states.push(next);
    }
    let image = image(|core| earlier.iter().for_each(|op| perform(core, *op)));
    let mut deaths = 0;
    for store in (1..).step_by(step) {
        let memory = RecordingMemory::new(image.clone(), geometry().volatile(), is_persistent);
        let world = World::new(memory.clock());
        let victim = world.clone();
        let fate = Fate::Unwind(Box::new(move || victim.kill(1)));
        let done = Cell::new(0);
        become_actor(1);
        let lived = catch_unwind(AssertUnwindSafe(|| {
            let dying = DyingMemory::new(memory.actor(1), store as u64, fate);
            let core = attach(dying, &world, 1).unwrap();
            for op in ops {
                perform(&core, *op);
                done.set(done.get() + 1);
            }
        }));
        become_actor(2);
        let witness = attach(DyingMemory::counting(memory.actor(2)), &world, 2).unwrap();
        witness.recover().unwrap();
        examine(&witness);
        let (found, done) = (units(&all(&witness)), done.get());
        if lived.is_ok() {
            assert_eq!(Some(&found), states.last());
            break;
        }
        deaths += 1;
        let (old, new) = (&states[done], states.get(done + 1).unwrap_or(&states[done]));
        let all: BTreeSet<u64> =
            [&found, old, new].iter().flat_map(|model| model.keys()).copied().collect();
        for unit in all {
            let place = found.get(&unit);
            assert!(place == old.get(&unit) || place == new.get(&unit), "store {store}: {unit}");
        }
        // Others go on with it.
        for op in ops.iter().skip(done) {
            if let Op::Insert(extent) = op {
                perform(&witness, Op::Clear(extent.unit, extent.end()));
            }
            perform(&witness, *op);
        }
        examine(&witness);
        assert_eq!(Some(&units(&self::all(&witness))), states.last());
    }
    deaths
}

/// An extent of `len` units at every tenth unit below `end`.
fn scattered(end: u64, len: u64) -> Vec<Op> {
    (0..end).step_by(10).map(|unit| Op::Insert(extent(unit, unit * 3, len))).collect()
}

#[test]
fn who_dies_leaves_a_map_in_which_each_unit_is_where_it_was_or_is_to_be() {
    // Three levels, one after the other: splitting up to the root, merging down to nothing.
    let scripts: [(Vec<Op>, Vec<Op>); 5] = [
        (scattered(1300, 5), vec![Op::Assign(extent(107, 1 << 20, 600))]),
        (scattered(1300, 5), vec![Op::Clear(3, 1200), Op::Clear(0, 2000)]),
        (vec![], vec![Op::Insert(extent(5, 5, 5)), Op::Assign(extent(6, 70, 1))]),
        (scattered(620, 5), vec![Op::Assign(extent(302, 1 << 20, 1)), Op::Clear(2, 3)]),
        (
            scattered(610, 5),
            vec![Op::Insert(extent(306, 1, 1)), Op::Insert(extent(308, 7, 1)), Op::Clear(310, 480)],
        ),
    ];
    for (number, (earlier, ops)) in scripts.iter().enumerate() {
        let deaths = die(earlier, ops, 1, false);
        let fenced = die(earlier, ops, 7, true);
        println!("script {number}: {deaths} and {fenced} deaths");
        assert!(deaths > 50 && fenced > 10, "{deaths} and {fenced} deaths");
    }
}
