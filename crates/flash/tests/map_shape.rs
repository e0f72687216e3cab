//! The shape of the map: what is merged and what is not, how deep it gets, what it takes to make.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use conquest_flash::kinds::Node;
use conquest_flash::map::{Extent, LEN_MAX, LEVELS_MAX, Measure, Room, SLOTS};
use conquest_pm::tx::STAGED_MAX;
use conquest_pm::{Error, Ptr};
use support::*;

/// Extents of a leaf that was filled in order.
const LEAF: u64 = 46;
/// Entries that a new object takes at most, as it takes a new slab.
const MADE: u64 = 4;

/// Number `number` of extents of which no two become one.
fn numbered(number: u64) -> Extent {
    extent(number * 3, number * 5, 2)
}

/// A tree into which extents with these numbers were inserted in order.
fn filled(count: u64) -> std::sync::Arc<conquest_pm::Region> {
    let core = region(16);
    let mut tx = begin(&core);
    for number in 0..count {
        insert(&mut tx, numbered(number), 0);
    }
    tx.commit().unwrap();
    core
}

/// Takes extents with these numbers out, by one change.
fn clear_numbers(core: &conquest_pm::Region, numbers: std::ops::Range<u64>, room: Room) {
    let mut tx = begin(core);
    clear(&mut tx, numbers.start * 3..numbers.end * 3 - 1, room);
    tx.commit().unwrap();
}

fn nodes_and_levels(core: &conquest_pm::Region) -> (u64, u64) {
    let Measure { nodes, depth, .. } = examine(core);
    (nodes, depth)
}

#[test]
fn a_change_over_several_leaves_merges_at_both_ends() {
    for (first, last) in [(6, 26), (26, 6)] {
        let core = filled(2 * LEAF);
        assert_eq!(nodes_and_levels(&core), (3, 2));
        clear_numbers(&core, first..2 * LEAF - last, Room::default());
        assert_eq!(nodes_and_levels(&core), (1, 1), "{first} and {last}");
    }
}

/// Whoever removes looks beside a node of 23 slots or fewer, not beside a larger one.
#[test]
fn only_what_has_become_sparse_is_merged() {
    let core = filled(3 * LEAF);
    // One extent, beside a leaf that is too full.
    clear_numbers(&core, 1..LEAF, Room::default());
    assert_eq!(nodes_and_levels(&core), (4, 2));
    clear_numbers(&core, LEAF + 24..3 * LEAF - 26, Room::default());
    assert_eq!(nodes_and_levels(&core), (4, 2));
    clear_numbers(&core, LEAF + 23..LEAF + 24, Room::default());
    assert_eq!(nodes_and_levels(&core), (3, 2), "24 together, and 26");
}

#[test]
fn what_becomes_one_extent_by_what_is_put_between_may_leave_a_leaf_sparse() {
    let core = filled(2 * LEAF);
    // 24 and 23 are one too many for one leaf.
    clear_numbers(&core, 24..LEAF, Room::default());
    let mut tx = begin(&core);
    clear(&mut tx, 33..35, Room::default());
    insert(&mut tx, extent(33, 53, 1), 0);
    tx.commit().unwrap();
    clear_numbers(&core, LEAF + 23..2 * LEAF, Room::default());
    assert_eq!(nodes_and_levels(&core), (3, 2));
    // Between numbers 10 and 11, and what continues both.
    let mut tx = begin(&core);
    assert_eq!(assign(&mut tx, extent(32, 52, 1), Room::default()), []);
    tx.commit().unwrap();
    assert_eq!(nodes_and_levels(&core), (1, 1), "two of 23 are one of 46");
    assert!(all(&core).contains(&extent(30, 50, 4)));
}

/// Where a change takes several records, the last ones may have nothing to do but to merge.
#[test]
fn inner_nodes_are_merged_however_little_room_there_is() {
    for kept in [0, STAGED_MAX - 80] {
        let core = filled((LEAF + 22) * LEAF);
        assert_eq!(nodes_and_levels(&core), (1 + 2 + LEAF + 22, 3));
        let room = Room { kept, each: 0 };
        // 24 leaves under one node, 22 under the other: nobody looks beside 24.
        clear_numbers(&core, LEAF..23 * LEAF, room);
        assert_eq!(nodes_and_levels(&core), (1 + 2 + 24 + 22, 3), "{kept}");
        clear_numbers(&core, 30 * LEAF + 23..31 * LEAF, room);
        assert_eq!(nodes_and_levels(&core), (1 + 2 + 24 + 22, 3), "{kept}");
        // Two leaves become one, and then both nodes above.
        clear_numbers(&core, 31 * LEAF + 23..32 * LEAF, room);
        assert_eq!(nodes_and_levels(&core), (1 + 23 + 22, 2), "{kept}");
    }
}

/// Where all but one leaf went before a record was full, the root goes with what comes next.
#[test]
fn a_root_that_is_left_with_one_child_gives_way() {
    let kept = STAGED_MAX - 70;
    let left_with_one = || {
        let core = filled(2 * LEAF);
        let mut tx = begin(&core);
        let room = Room { kept, each: 0 };
        let range = 0..(LEAF + 20) * 3;
        let done = TREE.clear(&mut tx, range, room, |_, _| Ok(())).unwrap();
        tx.commit().unwrap();
        assert!(!done && nodes_and_levels(&core) == (2, 2), "there is room for one leaf");
        core
    };
    let core = left_with_one();
    clear_numbers(&core, LEAF..LEAF + 20, Room { kept, each: 0 });
    assert_eq!(nodes_and_levels(&core), (1, 1));
    // Whatever is to be cleared, if there is room for it.
    for left in 0..5 {
        let core = left_with_one();
        let mut tx = begin(&core);
        (0..STAGED_MAX - 10 - left).for_each(|_| tx.set(scratch(9), 0).unwrap());
        let room = Room { kept: 10, each: 0 };
        let done = TREE.clear(&mut tx, 0..5, room, |_, _| Ok(())).unwrap();
        assert!(tx.room() >= 10);
        assert_eq!(done, left >= 2, "{left}");
        tx.commit().unwrap();
        assert_eq!(nodes_and_levels(&core).1, if done { 1 } else { 2 });
    }
}

#[test]
fn an_empty_leaf_that_is_the_root_stays() {
    let core = region(1);
    let mut tx = begin(&core);
    insert(&mut tx, extent(5, 5, 5), 0);
    clear(&mut tx, 0..100, Room::default());
    tx.commit().unwrap();
    assert_eq!(examine(&core), Measure { extents: 0, units: 0, nodes: 1, depth: 1 });
    let mut tx = begin(&core);
    // So what comes next is one record, and takes no memory.
    assert!(TREE.insert(&mut tx, extent(7, 7, 7), 0).unwrap());
    tx.commit().unwrap();
    assert_eq!(all(&core), [extent(7, 7, 7)]);
}

#[test]
fn what_just_fits_into_a_record_is_done_by_it() {
    let core = region(1);
    let mut tx = begin(&core);
    insert(&mut tx, extent(5, 5, 5), 0);
    tx.commit().unwrap();
    // A slot of a root that is a leaf takes two entries.
    let mut tx = begin(&core);
    assert!(TREE.insert(&mut tx, extent(20, 5, 5), STAGED_MAX - 2).unwrap());
    drop(tx);
    let mut tx = begin(&core);
    let refused = TREE.insert(&mut tx, extent(20, 5, 5), STAGED_MAX - 1);
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    // What is staged already is in the way, but not for ever.
    tx.set(scratch(0), 1).unwrap();
    assert!(!TREE.insert(&mut tx, extent(20, 5, 5), STAGED_MAX - 2).unwrap());
    match TREE.insert(&mut tx, extent(1 << 40, 0, LEN_MAX), 0) {
        Err(Error::TooLarge { wanted, most, .. }) => {
            assert_eq!((wanted, most), (LEN_MAX, LEN_MAX - 1));
        }
        refused => panic!("{refused:?}"),
    }
}

#[test]
fn what_is_kept_is_left_by_who_makes_the_first_leaf() {
    let mut planted = 0;
    for left in 0..30 {
        // One that has no object yet takes a new slab for the first.
        let core = region(1);
        let kept = 10;
        let mut tx = begin(&core);
        (0..STAGED_MAX - left).for_each(|_| tx.set(scratch(9), 0).unwrap());
        let before = tx.room();
        assert!(!TREE.insert(&mut tx, extent(5, 5, 5), kept).unwrap());
        assert!(tx.room() >= kept.min(before), "{left} left: {}", tx.room());
        planted += u64::from(tx.get(TREE.root) != 0);
    }
    assert_eq!(planted, 30 - 10 - MADE - 1);
}

#[test]
fn a_map_is_made_at_once_of_however_many_extents() {
    for count in [0, 1, 2, 45, 46, 47, 92, 46 * 46, 46 * 46 + 1, 20_000] {
        let core = region(16);
        let extents: Vec<Extent> = (0..count).map(numbered).collect();
        TREE.load(&core, extents.iter().copied()).unwrap();
        assert_eq!(all(&core), extents, "{count}");
        assert_eq!(examine(&core).extents, count);
        let mut tx = begin(&core);
        assert_eq!(TREE.find(&tx, 0).unwrap(), extents.first().copied());
        assign(&mut tx, extent(1 << 30, 1, 1), Room::default());
        tx.commit().unwrap();
        assert_eq!(examine(&core).extents, count + 1);
    }
}

/// Makes a tree whose root has level `root`, and every node of which that leads to unit 1 << 40 is
/// full.
fn full_down_to_a_leaf(core: &conquest_pm::Region, root: u64) {
    const UNIT: u64 = 1 << 40;
    let mut below: Option<Ptr<Node>> = None;
    for level in 0..=root {
        let mut tx = begin(core);
        let node = tx.alloc::<Node>().unwrap();
        tx.fill_word(&node, 0, level).unwrap();
        for slot in 0..SLOTS as u64 {
            // What is behind that unit is never looked at, so it may lead anywhere.
            let unit = UNIT + slot * (1 << 20);
            let rest = below.map_or(extent(unit, slot, 1).pack()[1], |below| below.word());
            tx.fill_word(&node, 4 + slot * 2, unit).unwrap();
            tx.fill_word(&node, 5 + slot * 2, rest).unwrap();
        }
        let node = tx.seal(node);
        tx.set(TREE.root, node.word()).unwrap();
        tx.commit().unwrap();
        below = Some(node);
    }
}

#[test]
fn a_map_has_16_levels_at_most() {
    const UNIT: u64 = 1 << 40;
    for root in [2, LEVELS_MAX - 2, LEVELS_MAX - 1, LEVELS_MAX] {
        let core = region(1);
        full_down_to_a_leaf(&core, root);
        let tx = begin(&core);
        let found = TREE.find(&tx, UNIT);
        if root == LEVELS_MAX {
            // The level of the root is what tells how far a look goes.
            assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
            continue;
        }
        assert_eq!(found.unwrap(), Some(extent(UNIT, 0, 1)));
        drop(tx);
        // The root has to be split before anything below it can be.
        let mut tx = begin(&core);
        let split = TREE.insert(&mut tx, extent(UNIT + 1, 1 << 30, 1), 0);
        if root == LEVELS_MAX - 1 {
            let wanted = LEVELS_MAX + 1;
            let Err(Error::TooLarge { wanted: found, most, .. }) = split else {
                panic!("{split:?}");
            };
            assert_eq!((found, most), (wanted, LEVELS_MAX));
            continue;
        }
        assert!(!split.unwrap());
        tx.commit().unwrap();
        let tx = begin(&core);
        assert_eq!(TREE.find(&tx, UNIT).unwrap(), Some(extent(UNIT, 0, 1)));
    }
}
