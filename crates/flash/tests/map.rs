//! The map against a model, its merging, its memory, and what it does where there is little room.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use conquest_flash::kinds::NODE;
use conquest_flash::map::{Cursor, Extent, LEN_MAX, Measure, PLACE_MAX, Room, STEP, UNIT_MAX};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::tx::STAGED_MAX;
use conquest_pm::{Core, Error, Region, Tx};
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
const STEPS: u64 = 3000;

#[test]
fn random_changes_do_what_they_do_to_a_model() {
    let (mut deepest, mut largest) = (0, 0);
    for seed in 0..3 {
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

/// What leads to other places in the map, seen through a cursor, as it is to be seen by others.
#[test]
fn one_way_down_finds_units_in_rising_order() {
    let (mut replaced, mut refused) = (0, 0);
    for seed in 0..40 {
        let (core, mut rng, mut model) = (region(16), Rng::new(seed), Model::new());
        for _ in 0..150 {
            let mut tx = begin(&core);
            change(&mut tx, &mut model, &mut rng, Phase::Growing);
            tx.commit().unwrap();
        }
        for _ in 0..20 {
            let mut tx = begin(&core);
            // Some of it in this very transaction.
            change(&mut tx, &mut model, &mut rng, Phase::Mixed);
            let mut cursor = Cursor::new();
            let mut unit = rng.below(SPACE / 4);
            while unit < 2 * SPACE && tx.room() > 2 {
                let found = TREE.find_next(&mut cursor, &tx, unit).unwrap();
                compare_found(&model, unit, found);
                if let Some(found) = found.filter(|_| rng.chance(1, 8)) {
                    let beside = rng.chance(1, 2) && found.unit > 0;
                    let before = if beside { model.get(&(found.unit - 1)) } else { None };
                    let place = before.map_or_else(|| rng.below(1 << 30), |place| place + 1);
                    if TREE.replace(&mut tx, &mut cursor, found, place).unwrap() {
                        replaced += 1;
                        insert_model(&mut model, Extent { place, ..found });
                        let again = TREE.find_next(&mut cursor, &tx, found.unit).unwrap();
                        assert_eq!(again, Some(Extent { place, ..found }));
                    } else {
                        refused += 1;
                    }
                }
                // Now and then back, and far ahead.
                unit = match rng.below(40) {
                    0 => rng.below(SPACE),
                    1 => unit + rng.below(SPACE),
                    _ => unit + rng.below(60),
                };
            }
            tx.commit().unwrap();
            assert_eq!(units(&all(&core)), model);
            examine(&core);
        }
    }
    assert!(replaced > 1000 && refused > 0, "{replaced} replaced, {refused} refused");
}

/// Whether what `insert` does with `extents` is `merged`.
fn merges(extents: &[Extent], merged: &[Extent]) {
    let core = region(1);
    for extent in extents {
        let mut tx = begin(&core);
        insert(&mut tx, *extent, 0);
        tx.commit().unwrap();
    }
    assert_eq!(all(&core), merged, "{extents:?}");
    assert_eq!(examine(&core).extents, merged.len() as u64);
}

#[test]
fn what_continues_on_the_medium_becomes_one_extent() {
    let (one, two, three) = (extent(10, 110, 5), extent(15, 115, 5), extent(20, 120, 5));
    let whole = [extent(10, 110, 15)];
    for order in [[one, two, three], [three, two, one], [one, three, two], [two, one, three]] {
        merges(&order, &whole);
    }
    // One unit between them, in the space or on the medium, or in the wrong order there.
    for other in [extent(16, 115, 5), extent(15, 116, 5), extent(15, 114, 5), extent(15, 105, 5)] {
        merges(&[one, other], &[one, other]);
        merges(&[other, one], &[one, other]);
    }
    // Segments.
    let (last, first) = (extent(10, 2 * SEGMENT - 5, 5), extent(15, 2 * SEGMENT, 5));
    merges(&[last, first], &[last, first]);
    merges(&[first, last], &[last, first]);
    let late = extent(15, 2 * SEGMENT + 1, 5);
    merges(&[extent(10, 2 * SEGMENT - 4, 5), late], &[extent(10, 2 * SEGMENT - 4, 10)]);
}

#[test]
fn what_takes_the_place_of_an_extent_becomes_one_with_what_it_continues() {
    let old = [extent(10, 110, 5), extent(15, 300, 5), extent(20, 120, 5)];
    for (place, whole) in [
        (115, vec![extent(10, 110, 15)]),
        (400, vec![old[0], extent(15, 400, 5), old[2]]),
        // It continues what is beside it on the other side only.
        (125, vec![old[0], extent(15, 125, 5), old[2]]),
        (105, vec![old[0], extent(15, 105, 5), old[2]]),
    ] {
        let core = region(1);
        let mut tx = begin(&core);
        for extent in old {
            finish(&mut tx, |tx| TREE.insert(tx, extent, 0));
        }
        assert_eq!(assign(&mut tx, extent(15, place, 5), Room::default()), [old[1]]);
        tx.commit().unwrap();
        assert_eq!(all(&core), whole);
        examine(&core);
    }
}

#[test]
fn an_extent_is_not_longer_than_it_can_be() {
    let core = region(1);
    let tree = conquest_flash::map::Tree { segment: 0, ..TREE };
    let (half, most) = (LEN_MAX / 2, LEN_MAX - 1);
    for extent in
        [extent(0, 1, half), extent(half, 1 + half, half), extent(2 * half, 1 + 2 * half, 7)]
    {
        let mut tx = begin(&core);
        finish(&mut tx, |tx| tree.insert(tx, extent, 0));
        tx.commit().unwrap();
    }
    let found = all(&core);
    assert_eq!(found, [extent(0, 1, half), extent(half, 1 + half, half + 7)]);
    let mut tx = begin(&core);
    let too_much = [
        extent(LEN_MAX, 0, 0),
        extent(1 << 40, 0, LEN_MAX),
        extent(UNIT_MAX - 1, 0, 2),
        extent(u64::MAX, 0, 2),
        extent(1 << 40, PLACE_MAX - 1, 2),
    ];
    for extent in too_much {
        assert!(matches!(TREE.insert(&mut tx, extent, 0), Err(Error::TooLarge { .. })));
        let assigned = TREE.assign(&mut tx, extent, Room::default(), |_, _| Ok(()));
        assert!(matches!(assigned, Err(Error::TooLarge { .. })));
    }
    // The last units that there are.
    insert(&mut tx, extent(UNIT_MAX - most - 1, PLACE_MAX - most, most), 0);
    assert_eq!(TREE.find(&tx, UNIT_MAX - 2).unwrap().unwrap().len, most);
    assert_eq!(TREE.find(&tx, UNIT_MAX - 1).unwrap(), None);
    assert_eq!(TREE.find(&tx, u64::MAX).unwrap(), None);
}

#[test]
fn what_is_mapped_is_not_mapped_again() {
    let core = region(1);
    let mut tx = begin(&core);
    (0..200).for_each(|index| _ = insert(&mut tx, extent(index * 10, index * 7, 5), 0));
    for extent in [extent(1000, 1, 1), extent(1004, 1, 1), extent(995, 1, 6), extent(5, 1, 1990)] {
        let inserted = TREE.insert(&mut tx, extent, 0);
        assert!(matches!(inserted, Err(Error::Corrupt { .. })), "{extent:?}");
    }
    // Also where the extent that is there begins a leaf.
    for index in 0..199 {
        let inserted = TREE.insert(&mut tx, extent(index * 10 + 5, 1, 6), 0);
        assert!(matches!(inserted, Err(Error::Corrupt { .. })), "{index}");
    }
}

#[test]
fn an_extent_may_cross_what_was_the_boundary_of_leaves_and_of_nodes_above() {
    // Leaves of 46, nodes of 46 leaves.
    const NUMBERS: u64 = 3 * 46 * 46;
    let (core, measure) = filled(0..NUMBERS);
    assert_eq!(measure.depth, 3);
    for boundary in (1..NUMBERS / 46).map(|leaf| leaf * 46 * 3) {
        let wide = extent(boundary - 9, 1 << 30 | boundary, 16);
        let mut tx = begin(&core);
        clear(&mut tx, wide.unit..wide.end(), Room::default());
        insert(&mut tx, wide, 0);
        tx.commit().unwrap();
        assert_eq!(core.read(LOCK, |view| TREE.find(view, boundary - 1)).unwrap(), Some(wide));
        assert_eq!(core.read(LOCK, |view| TREE.find(view, boundary)).unwrap(), Some(wide));
    }
    examine(&core);
}

#[test]
fn what_is_mapped_across_leaves_becomes_one_extent_when_these_are_merged() {
    let core = region(1);
    let mut tx = begin(&core);
    (0..200).for_each(|index| _ = insert(&mut tx, extent(index * 10, index * 7, 5), 0));
    let wide = extent(100, 1 << 20, 1700);
    assert_eq!(assign(&mut tx, wide, Room::default()).len(), 170);
    tx.commit().unwrap();
    assert_eq!(core.read(LOCK, |view| TREE.find(view, 100)).unwrap(), Some(wide));
    assert_eq!(examine(&core), Measure { extents: 31, units: 1850, nodes: 1, depth: 1 });
}

#[test]
fn nothing_is_staged_for_which_there_is_no_room() {
    let core = region(4);
    let (mut refused, mut rng, mut model) = (0, Rng::new(1), Model::new());
    for number in 0..6000 {
        let mut tx = begin(&core);
        // What the caller has staged leaves this much.
        let room = Room { kept: rng.below(20), each: 2 };
        let left = room.kept + rng.below(STEP + 10);
        (0..STAGED_MAX - left).for_each(|_| tx.set(scratch(9), number).unwrap());
        let extent = extent(rng.below(9000), rng.below(1 << 30), 1 + rng.below(20));
        let range = extent.unit..extent.end();
        let is_last = number > 4000;
        let done = if is_last || rng.chance(1, 3) {
            clear_model(&mut model, range.clone());
            TREE.clear(&mut tx, range.clone(), room, |tx, part| {
                (0..2).try_for_each(|index| tx.set(scratch(index), part.unit))
            })
        } else {
            clear_model(&mut model, range);
            insert_model(&mut model, extent);
            TREE.assign(&mut tx, extent, room, |tx, part| {
                (0..2).try_for_each(|index| tx.set(scratch(index), part.unit))
            })
        };
        assert!(tx.room() >= room.kept, "{} of {}", tx.room(), room.kept);
        if !done.unwrap() {
            refused += 1;
            tx.commit_part().unwrap();
            if is_last || !model.contains_key(&extent.unit) {
                clear(&mut tx, extent.unit..extent.end(), room);
            } else {
                assign(&mut tx, extent, room);
            }
        }
        tx.commit().unwrap();
        if number % 200 == 0 {
            examine(&core);
            assert_eq!(units(&all(&core)), model);
        }
    }
    assert!(refused > 500, "{refused}");
    let mut tx = begin(&core);
    // What can never be is an error, not to be tried for ever.
    let none = Room { kept: STAGED_MAX, each: 0 };
    let cleared = TREE.clear(&mut tx, 0..9000, none, |_, _| Ok(()));
    assert!(matches!(cleared, Err(Error::TooLarge { .. })));
    let inserted = TREE.insert(&mut tx, extent(1 << 30, 1, 1), STAGED_MAX);
    assert!(matches!(inserted, Err(Error::TooLarge { .. })));
    finish(&mut tx, |tx| TREE.insert(tx, extent(1 << 40, 1, 1), 0));
    let assigned = TREE.assign(&mut tx, extent(1 << 30, 1, 1), none, |_, _| Ok(()));
    assert!(matches!(assigned, Err(Error::TooLarge { .. })));
}

#[test]
fn what_is_kept_is_left_whatever_is_to_be_done() {
    // Three leaves: the middle one of one extent only.
    let core = region(1);
    let mut tx = begin(&core);
    (0..138).for_each(|index| _ = insert(&mut tx, extent(index * 10, index * 7, 5), 0));
    clear(&mut tx, 470..920, Room::default());
    tx.commit().unwrap();
    assert_eq!(examine(&core), Measure { extents: 93, units: 465, nodes: 4, depth: 2 });
    let room = Room { kept: 10, each: 1 };
    let note = |tx: &mut Tx<'_, _, _>, part: Extent| tx.set(scratch(0), part.unit);
    let (mut done, mut refused) = (0, 0);
    for (left, what) in
        (0..room.kept + STEP + 30).flat_map(|left| [0, 1, 2, 3].map(|what| (left, what)))
    {
        // Dropped, so that all find the same.
        let mut tx = begin(&core);
        (0..STAGED_MAX - left).for_each(|_| tx.set(scratch(9), 0).unwrap());
        let before = tx.room();
        let result = match what {
            // The last extent of a leaf; part of what nodes have; over a boundary.
            0 => TREE.clear(&mut tx, 460..470, room, note),
            1 => TREE.clear(&mut tx, 462..463, room, note),
            2 => TREE.insert(&mut tx, extent(470, 1, 460), room.kept),
            _ => TREE.assign(&mut tx, extent(3, 1 << 20, 10), room, note),
        };
        assert!(tx.room() >= room.kept.min(before), "{what}, {left} left: {}", tx.room());
        let result = result.is_ok_and(|result| result);
        (done, refused) = (done + u64::from(result), refused + u64::from(!result));
    }
    assert!(done > 100 && refused > 40, "{done} and {refused}");
    // The last extent of a leaf that is the last one of a node, beside full ones.
    let (core, _) = filled(0..3 * 46 * 46);
    let (first, behind) = (46 * 46 * 3, 2 * 46 * 46 * 3);
    let mut tx = begin(&core);
    clear(&mut tx, first + 3..behind, Room::default());
    tx.commit().unwrap();
    let nodes = examine(&core).nodes;
    assert_eq!(nodes, 1 + 3 + 2 * 46 + 1);
    for left in 0..room.kept + STEP {
        let mut tx = begin(&core);
        (0..STAGED_MAX - left).for_each(|_| tx.set(scratch(9), 0).unwrap());
        let before = tx.room();
        let result = TREE.clear(&mut tx, first..first + 3, room, note);
        assert!(tx.room() >= room.kept.min(before), "{left} left: {}", tx.room());
        if result.unwrap() {
            assert_eq!(TREE.measure(&tx).unwrap().nodes, nodes - 2);
        }
    }
}

#[test]
fn a_walk_that_goes_on_within_an_extent_is_told_of_it() {
    let core = region(1);
    let mut tx = begin(&core);
    (0..3).for_each(|index| _ = insert(&mut tx, extent(index * 10, index * 70, 5), 0));
    let mut leaf = vec![extent(7, 7, 7)];
    for (unit, len) in [(0, 3), (4, 3), (5, 2), (12, 2), (24, 1), (25, 0)] {
        assert_eq!(TREE.leaf(&tx, unit, &mut leaf).unwrap(), None);
        assert_eq!(leaf.len(), len, "{unit}");
    }
}

/// Extents that are inserted where memory is measured.
const MANY: u64 = 300_000;

/// The tree, after an extent was inserted for each of `numbers`; no two become one.
fn filled(numbers: impl Iterator<Item = u64>) -> (std::sync::Arc<Region>, Measure) {
    let core = region(32);
    let mut tx = begin(&core);
    for number in numbers {
        insert(&mut tx, extent(number * 3, number * 5, 2), 0);
    }
    tx.commit().unwrap();
    let measure = examine(&core);
    (core, measure)
}

/// Numbers below [`MANY`] in an order without order.
fn shuffled() -> impl Iterator<Item = u64> {
    // Prime to it.
    (0..MANY).map(|index| index * 123_457 % MANY)
}

fn bytes_of_one(measure: &Measure) -> f64 {
    (measure.nodes * NODE) as f64 / measure.extents as f64
}

#[test]
fn an_extent_takes_few_bytes_whatever_the_order() {
    let orders: [(Box<dyn Iterator<Item = u64>>, f64); 3] = [
        (Box::new(0..MANY), 23.5),
        (Box::new((0..MANY).rev()), 23.5),
        (Box::new(shuffled()), 27.0),
    ];
    for (numbers, most) in orders {
        let (core, measure) = filled(numbers);
        println!("{measure:?}, {:.1} bytes an extent", bytes_of_one(&measure));
        assert_eq!(measure.extents, MANY);
        assert!(bytes_of_one(&measure) < most && measure.depth == 4, "{measure:?}");
        // 9 of 10 are gone, at random; then all.
        let mut tx = begin(&core);
        for number in shuffled().filter(|number| number % 10 != 7) {
            clear(&mut tx, number * 3..number * 3 + 2, Room::default());
        }
        tx.commit_part().unwrap();
        let left = core.read(LOCK, |view| TREE.measure(view)).unwrap();
        println!("{left:?}, {:.1} bytes an extent", bytes_of_one(&left));
        assert_eq!(left.extents, MANY / 10);
        assert!(bytes_of_one(&left) < 45.0 && left.depth <= 4, "{left:?}");
        clear(&mut tx, 0..u64::MAX, Room::default());
        tx.commit().unwrap();
        assert!(examine(&core).nodes <= 1);
    }
}

#[test]
fn at_worst_an_extent_takes_90_bytes() {
    // Leaves of 46 extents: every other one loses all but the last, which can't go to where 46
    // are; then those lose theirs, but for so many that nobody looks beside them.
    let (core, _) = filled(0..46_000);
    let mut tx = begin(&core);
    for (leaf, left) in [(1, 1), (0, 24)] {
        let is_gone = |number: &u64| number / 46 % 2 == leaf && number % 46 >= left;
        for number in (0..46_000).filter(is_gone) {
            clear(&mut tx, number * 3..number * 3 + 2, Room::default());
        }
    }
    tx.commit_part().unwrap();
    let measure = core.read(LOCK, |view| TREE.measure(view)).unwrap();
    println!("{measure:?}, {:.1} bytes an extent", bytes_of_one(&measure));
    assert!((80.0..90.0).contains(&bytes_of_one(&measure)), "{measure:?}");
    // One less, and each is merged with what is beside it.
    for number in (0..46_000).filter(|number| number % 92 == 23) {
        clear(&mut tx, number * 3..number * 3 + 2, Room::default());
    }
    tx.commit().unwrap();
    let measure = examine(&core);
    assert!(bytes_of_one(&measure) < 45.0, "{measure:?}");
}

#[test]
fn headers_are_checked() {
    let (core, measure) = filled(0..4000);
    assert_eq!(measure.depth, 3);
    for node in 0..measure.nodes {
        let at = core.geometry().page(0).plus(node * NODE);
        for word in 0..4 {
            let mut tx = begin(&core);
            let old = tx.get(at.plus(word * 8));
            assert!(old < 3 && (word == 0 || old == 0));
            for junk in [old + 1, 1 << 40] {
                tx.set(at.plus(word * 8), junk).unwrap();
                let found = TREE.measure(&tx);
                assert!(matches!(found, Err(Error::Corrupt { .. })), "{node} {word} {found:?}");
                // Level by level on the way down, too.
                let looks = (0..4000).step_by(30).map(|number| TREE.find(&tx, number * 3));
                assert_eq!(looks.filter(Result::is_err).count() > 0, word == 0, "{node} {word}");
            }
        }
    }
}

#[test]
fn a_damaged_map_is_an_error_or_a_wrong_answer_but_nothing_worse() {
    let core = region(2);
    let mut tx = begin(&core);
    for number in 0..4000 {
        insert(&mut tx, extent(number * 3, number * 5, 2), 0);
    }
    tx.commit().unwrap();
    let nodes = examine(&core).nodes;
    let (mut rng, mut found) = (Rng::new(3), 0);
    let word = |rng: &mut Rng| {
        let within = if rng.chance(1, 2) { rng.below(12) * 8 } else { rng.below(128) * 8 };
        core.geometry().page(0).plus(rng.below(nodes) * NODE + within)
    };
    for _ in 0..10_000 {
        let (at, other) = (word(&mut rng), word(&mut rng));
        let mut tx = begin(&core);
        let old = tx.get(at);
        // Of another node, such as a pointer to the same one; a bit; anything.
        let junk = match rng.below(4) {
            0 | 1 => tx.get(other),
            2 => old ^ 1 << rng.below(64),
            _ => [0, 1, u64::MAX, u64::MAX / 2][rng.below(4) as usize],
        };
        tx.set(at, junk).unwrap();
        let unit = rng.below(13_000);
        let checked = TREE.measure(&tx);
        found += u64::from(checked.is_err());
        let looked = TREE.find(&tx, unit);
        assert!(looked.is_ok() || checked.is_err(), "{looked:?}");
        let (mut leaf, mut from) = (Vec::new(), Some(0));
        while let Some(unit) = from {
            from = TREE.leaf(&tx, unit, &mut leaf).unwrap_or(None);
            assert!(from.is_none_or(|from| from > unit));
        }
        let changed = match rng.below(3) {
            0 => TREE.clear(&mut tx, unit..unit + 400, Room::default(), |_, _| Ok(())),
            1 => TREE.assign(&mut tx, extent(unit, 1, 400), Room::default(), |_, _| Ok(())),
            _ => TREE.insert(&mut tx, extent(unit, 1, 1), 0),
        };
        assert!(changed.is_ok() || checked.is_err() || unit % 3 < 2, "{changed:?}");
    }
    assert!(found > 3000, "{found}");
    examine(&core);
}

/// Whether an extent takes the place of another one or of a part of it, the caller has the room
/// that he has asked for.
#[test]
fn assigning_leaves_room_for_what_the_caller_stages() {
    const COUNT: u64 = 400;
    let room = Room { each: 3, kept: 40 };
    for len in [1, 2] {
        let region = region(2);
        let mut tx = begin(&region);
        (0..COUNT).for_each(|number| {
            insert(&mut tx, extent(number * 10, number * 10, len), 20);
        });
        tx.commit().unwrap();
        let mut tx = begin(&region);
        for number in 0..COUNT {
            assign(&mut tx, extent(number * 10, 3 * SEGMENT + number * 2, 1), room);
            assert!(tx.room() >= room.kept, "{len}, {number}");
        }
        tx.commit().unwrap();
        assert_eq!(all(&region).len() as u64, COUNT * len);
    }
}

/// What was a node of the map is none any more when it is freed.
#[test]
fn what_leads_to_no_node_is_no_map() {
    let core = region(16);
    let mut tx = begin(&core);
    // More than one leaf.
    for unit in 0..200 {
        insert(&mut tx, extent(unit * 2, unit * 3, 1), 0);
    }
    tx.commit().unwrap();
    let root = || core.read(LOCK, |view| Ok(view.word(TREE.root))).unwrap();
    let before = root();
    let mut tx = begin(&core);
    clear(&mut tx, 0..1000, Room { each: 0, kept: 0 });
    tx.commit().unwrap();
    assert_ne!(root(), before);
    let mut tx = begin(&core);
    tx.set(TREE.root, before).unwrap();
    tx.commit().unwrap();
    let found = core.read(LOCK, |view| TREE.find(view, 4));
    assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
}
