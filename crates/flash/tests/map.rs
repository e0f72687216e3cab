//! The map against a model: which unit is mapped where.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use conquest_flash::map::{Extent, Room};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Tx};
use conquest_testkit::Rng;
use support::*;

/// Units of the space in which the model's changes are.
const SPACE: u64 = 40_000;

/// What most changes are while it lasts.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Growing,
    Mixed,
    Shrinking,
}

/// An extent in one of the clusters, mostly a short one.
fn random_extent(rng: &mut Rng, phase: Phase) -> Extent {
    let len = match rng.below(400) {
        0 => 1 + rng.below(SPACE / 8),
        1..=20 => 1 + rng.below(200),
        _ if phase == Phase::Shrinking => 1 + rng.below(30),
        _ => 1 + rng.below(2),
    };
    let cluster = rng.below(4) * (SPACE / 4);
    let within = if rng.chance(1, 4) { SPACE / 40 } else { SPACE / 4 };
    let unit = cluster + rng.below(within);
    // Now and then what continues what is beside it on the medium, too.
    let place = if rng.chance(1, 3) { 1_000_000 + unit } else { rng.below(1 << 30) };
    Extent { unit, place, len }
}

/// Does something at random, in the tree and the model.
fn change<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    model: &mut Model,
    rng: &mut Rng,
    phase: Phase,
) {
    let (kept, each) = (rng.below(30), rng.below(3));
    // Now and then there is room for hardly anything.
    let room = Room { kept: if rng.chance(1, 8) { 170 } else { kept }, each };
    let wanted = random_extent(rng, phase);
    let range = wanted.unit..wanted.end();
    let old = clear_model(model, range.clone());
    let clears = match phase {
        Phase::Growing => 0,
        Phase::Mixed => 3,
        Phase::Shrinking => 7,
    };
    match rng.below(10) {
        what if what < clears => assert_eq!(units(&clear(tx, range, room)), old),
        7 | 8 => {
            assert_eq!(units(&clear(tx, range, room)), old);
            insert(tx, wanted, room.kept);
            insert_model(model, wanted);
        }
        _ => {
            let mut changed = old;
            let is_same =
                |unit: &u64, place: &mut u64| *unit - wanted.unit + wanted.place == *place;
            changed.retain(|unit, place| !is_same(unit, place));
            assert_eq!(units(&assign(tx, wanted, room)), changed);
            insert_model(model, wanted);
        }
    }
}

/// Looks up `unit` in the tree, and compares.
fn compare<M: Memory, H: Host>(core: &Core<M, H>, model: &Model, unit: u64) {
    let found = core.read(LOCK, |view| TREE.find(view, unit)).unwrap();
    compare_found(model, unit, found);
}

fn compare_found(model: &Model, unit: u64, found: Option<Extent>) {
    let next = model.range(unit..).next().map(|(unit, place)| (*unit, *place));
    assert_eq!(found.is_some(), next.is_some(), "{unit}: {found:?} {next:?}");
    if let Some((found, (first, place))) = found.zip(next) {
        assert_eq!(found.unit.max(unit), first);
        assert_eq!(found.place + (first - found.unit), place);
        let mapped = |index| model.get(&(found.unit + index)) == Some(&(found.place + index));
        assert!((0..found.len).all(mapped), "{found:?}");
    }
}

/// Transactions for each seed, of three changes each.
const STEPS: u64 = 4500;

#[test]
fn random_changes_do_what_they_do_to_a_model() {
    let (mut deepest, mut largest) = (0, 0);
    for seed in 0..6 {
        let (core, mut rng, mut model) = (region(16), Rng::new(seed), Model::new());
        for step in 0..STEPS {
            let phase = match step % (STEPS / 3) * 5 / STEPS {
                0 => Phase::Growing,
                1 if step % 3 == 0 => Phase::Shrinking,
                _ => Phase::Mixed,
            };
            let mut tx = begin(&core);
            for _ in 0..=rng.below(4) {
                change(&mut tx, &mut model, &mut rng, phase);
                let unit = rng.below(SPACE);
                compare_found(&model, unit, TREE.find(&tx, unit).unwrap());
            }
            tx.commit().unwrap();
            for _ in 0..4 {
                compare(&core, &model, rng.below(SPACE));
            }
            if step % 100 == 99 {
                let measure = examine(&core);
                assert_eq!(measure.units, model.len() as u64);
                assert_eq!(units(&all(&core)), model);
                deepest = deepest.max(measure.depth);
                largest = largest.max(measure.extents);
            }
        }
        let mut tx = begin(&core);
        assert_eq!(units(&clear(&mut tx, 0..SPACE * 2, Room::default())), model);
        tx.commit().unwrap();
        assert_eq!(examine(&core).extents, 0);
    }
    println!("up to {largest} extents, {deepest} levels");
    assert!(deepest >= 3, "{deepest} levels");
}
