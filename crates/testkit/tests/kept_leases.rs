//! Leases that a record keeps until it is settled: of all slabs and groups in which it allocates,
//! however many, and however it ends.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use core::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use conquest_format::geometry::Shape;
use conquest_format::kind::Kind;
use conquest_format::{GROUP_PAGES, Offset};
use conquest_pm::check::{Finding, Reachable};
use conquest_pm::{Ptr, Result, Tx};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, shape};
use conquest_testkit::shelf::Node;
use conquest_testkit::{DyingMemory, Fate, RecordingMemory, SimHost, World};

type SimTx<'c> = Tx<'c, SimMemory, SimHost>;

/// Objects in a slab, and pages of one.
const SLAB: usize = 32;
const SLAB_PAGES: u64 = 3;

fn paper() -> Kind {
    Kind::new(2).unwrap()
}

/// More than a lane has leased otherwise.
const MANY: usize = 40;

/// A region in which so many slabs have room for one object each, and as many groups for one page.
struct Crowded {
    memory: RecordingMemory,
    world: World,
    core: SimCore,
}

fn crowded(rooms: usize) -> Crowded {
    crowded_with(rooms, 1)
}

/// The same with room for so many each.
fn crowded_with(rooms: usize, each: usize) -> Crowded {
    let shape = Shape { max_groups: rooms as u64, lanes: 4, slots: 4, ..shape() };
    let (memory, world) = fresh(shape, false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap();
    let mut nodes = Vec::new();
    for _ in 0..rooms {
        nodes.extend(
            core.run(|tx| (0..SLAB).map(|_| node(tx)).collect::<Result<Vec<_>>>()).unwrap(),
        );
    }
    // Never finished, so no page of it is zeroed: that would take long.
    for group in 0..rooms as u64 {
        let slabs = if group == 0 { rooms as u64 * SLAB_PAGES } else { 0 };
        let mut tx = core.begin().unwrap();
        let _filler = tx.alloc_run(paper(), GROUP_PAGES - slabs - each as u64, None).unwrap();
        tx.commit().unwrap();
    }
    for freed in nodes.chunks(SLAB) {
        core.run(|tx| freed[7..7 + each].iter().try_for_each(|&node| tx.free(node))).unwrap();
    }
    assert_eq!(free(&core), (rooms * each) as u64);
    Crowded { memory, world, core }
}

/// Pages that are free.
fn free(core: &SimCore) -> u64 {
    core.geometry().shape().max_groups * GROUP_PAGES - core.pages_used()
}

fn node(tx: &mut SimTx<'_>) -> Result<Ptr<Node>> {
    let fresh = tx.alloc::<Node>()?;
    Ok(tx.seal(fresh))
}

fn page(tx: &mut SimTx<'_>) -> Result<Offset> {
    let run = tx.alloc_run(paper(), 1, None)?;
    Ok(tx.finish_run(run))
}

/// Allocates in so many slabs, and in as many groups.
fn take(tx: &mut SimTx<'_>, count: usize) -> Result<()> {
    for _ in 0..count {
        node(tx)?;
        page(tx)?;
    }
    Ok(())
}

/// What is wrong with leases and hints.
fn lost(core: &SimCore) -> Vec<Finding> {
    let mut findings = core.check(&Reachable::default()).unwrap();
    findings.retain(|finding| !finding.what.contains("reachable"));
    findings
}

impl Crowded {
    fn process(&self, id: u32) -> SimCore {
        attach(DyingMemory::counting(self.memory.actor(0)), &self.world, id).unwrap()
    }

    /// There is room for so many of either, and another process can have it all.
    fn leaves(&self, count: usize) {
        assert_eq!(lost(&self.core), []);
        let other = self.process(3);
        other.run(|tx| take(tx, count)).unwrap();
        assert_eq!(free(&self.core), 0);
        assert_eq!(lost(&self.core), []);
    }
}

#[test]
fn a_record_allocates_in_as_many_slabs_and_groups_as_it_needs() {
    let crowded = crowded(MANY);
    let mut tx = crowded.core.begin().unwrap();
    take(&mut tx, MANY).unwrap();
    tx.commit().unwrap();
    crowded.leaves(0);
}

#[test]
fn each_part_of_a_change_has_its_own() {
    let crowded = crowded(MANY);
    let mut tx = crowded.core.begin().unwrap();
    for _ in 0..2 {
        take(&mut tx, MANY / 4).unwrap();
        tx.commit_part().unwrap();
    }
    tx.commit().unwrap();
    crowded.leaves(MANY / 2);
}

#[test]
fn what_is_dropped_is_there_for_others() {
    let crowded = crowded(MANY);
    let mut tx = crowded.core.begin().unwrap();
    take(&mut tx, MANY).unwrap();
    drop(tx);
    crowded.leaves(MANY);
}

#[test]
fn what_is_unstaged_is_there_for_others_and_the_rest_is_not_before_the_end() {
    let crowded = crowded(MANY);
    let core = &crowded.core;
    let mut tx = core.begin().unwrap();
    take(&mut tx, 2).unwrap();
    let staged = tx.staged();
    take(&mut tx, MANY - 2).unwrap();
    tx.unstage(&staged);
    {
        let mut other = core.begin().unwrap();
        take(&mut other, MANY / 2).unwrap();
        other.commit().unwrap();
    }
    take(&mut tx, MANY / 4).unwrap();
    tx.commit().unwrap();
    crowded.leaves(MANY - MANY / 2 - MANY / 4 - 2);
}

#[test]
fn where_something_is_staged_still_nobody_else_allocates() {
    let crowded = crowded_with(8, 2);
    let mut tx = crowded.core.begin().unwrap();
    let (object, run) = (node(&mut tx).unwrap(), page(&mut tx).unwrap());
    let staged = tx.staged();
    // Of the same slab and group, then of others.
    take(&mut tx, 3).unwrap();
    tx.unstage(&staged);
    let other = crowded.process(2);
    for _ in 0..8 {
        assert_ne!(other.run(node).unwrap(), object);
        assert_ne!(other.run(page).unwrap(), run);
    }
    tx.commit().unwrap();
    crowded.leaves(16 - 1 - 8);
}

#[test]
fn what_a_dead_one_had_is_there_for_others() {
    let crowded = crowded(MANY);
    let dies = crowded.process(2);
    let mut tx = ManuallyDrop::new(dies.begin().unwrap());
    take(&mut tx, MANY).unwrap();
    crowded.world.kill(2);
    crowded.core.recover().unwrap();
    crowded.leaves(MANY);
}

/// At each store of an operation, with a part dropped and another one committed before the end.
#[test]
fn whoever_dies_leaves_no_lease_that_nobody_ends() {
    const FEW: usize = 6;
    let mut deaths = 0;
    for store in 1.. {
        let crowded = crowded(FEW);
        let killed = crowded.world.clone();
        let dies = Fate::Unwind(Box::new(move || killed.kill(2)));
        let dying = DyingMemory::new(crowded.memory.actor(0), store, dies);
        let died = catch_unwind(AssertUnwindSafe(|| {
            let victim = attach(dying, &crowded.world, 2).unwrap();
            let mut tx = victim.begin().unwrap();
            take(&mut tx, 1).unwrap();
            let staged = tx.staged();
            take(&mut tx, 2).unwrap();
            tx.unstage(&staged);
            take(&mut tx, 1).unwrap();
            tx.commit_part().unwrap();
            take(&mut tx, 2).unwrap();
            tx.commit().unwrap();
            victim.detach().unwrap();
        }));
        crowded.core.recover().unwrap();
        let left = free(&crowded.core);
        assert!([FEW, FEW - 2, FEW - 4].contains(&(left as usize)), "{left}, store {store}");
        crowded.leaves(left as usize);
        if died.is_ok() {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 100, "{deaths}");
}
