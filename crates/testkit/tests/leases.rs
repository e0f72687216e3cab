//! Rights to allocate go from lane to lane, in a region that is nearly full, where memory is weak:
//! nobody gets what another has.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conquest_format::geometry::Shape;
use conquest_format::kind::Kind;
use conquest_format::{GROUP_PAGES, Offset, PAGE};
use conquest_pm::check::Reachable;
use conquest_pm::{Error, Ptr, Result};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::shelf::Node;
use conquest_testkit::{Actor, DyingMemory, Fate, RecordingMemory, Rng, World};

const ACTORS: u32 = 3;
/// Operations of each.
const OPERATIONS: u32 = 14;
/// Runs of each test.
const RUNS: u64 = 60;
/// Less than the pages of a long run.
const HOP: u64 = 3;
/// Bytes of a node.
const NODE: u64 = 384;

fn paper() -> Kind {
    Kind::new(2).unwrap()
}

/// What somebody has, from where to where, and who, allocated or about to be.
#[derive(Debug, Default)]
struct Taken(Mutex<BTreeMap<u64, (u64, u32)>>);

/// Who has what no actor has.
const NOBODY: u32 = 99;

impl Taken {
    fn take(&self, owner: u32, at: Offset, len: u64) -> core::result::Result<(), String> {
        let mut taken = self.0.lock().unwrap();
        let end = at.bytes() + len;
        if let Some((start, (last, _))) = taken.range(..end).next_back()
            && *last > at.bytes()
        {
            return Err(format!("{start:#x} to {last:#x} allocated twice, at {at}, {len}"));
        }
        taken.insert(at.bytes(), (end, owner));
        Ok(())
    }

    fn give(&self, at: Offset) {
        self.0.lock().unwrap().remove(&at.bytes());
    }

    /// Nobody knows what a dead one had: what was not committed is free at once.
    fn forget(&self, dead: u32) {
        self.0.lock().unwrap().retain(|_, (_, owner)| *owner != dead);
    }
}

/// What an actor has.
#[derive(Default)]
struct Own {
    id: u32,
    nodes: Vec<Ptr<Node>>,
    runs: Vec<(Offset, u64)>,
}

impl Own {
    /// Allocates some of either; all of it goes again if the transaction does not commit.
    fn allocate(
        &mut self,
        core: &SimCore,
        taken: &Taken,
        (nodes, runs, pages): (u64, u64, u64),
    ) -> core::result::Result<(), String> {
        let mut tx = core.begin().map_err(|error| error.to_string())?;
        let mut new = Own::default();
        let allocated: Result<()> = (|| {
            for _ in 0..nodes {
                let fresh = tx.alloc::<Node>()?;
                new.nodes.push(tx.seal(fresh));
            }
            for _ in 0..runs {
                let run = tx.alloc_run(paper(), pages, None)?;
                new.runs.push((tx.finish_run(run), pages));
            }
            Ok(())
        })();
        let id = self.id;
        new.nodes.iter().try_for_each(|node| taken.take(id, node.offset(), NODE))?;
        new.runs.iter().try_for_each(|(at, pages)| taken.take(id, *at, pages * PAGE))?;
        match allocated {
            Ok(()) => {
                tx.commit().map_err(|error| error.to_string())?;
                self.nodes.append(&mut new.nodes);
                self.runs.append(&mut new.runs);
            }
            Err(Error::NoSpace { .. } | Error::Again) => {
                new.forget(taken);
                drop(tx);
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    fn forget(&self, taken: &Taken) {
        self.nodes.iter().for_each(|node| taken.give(node.offset()));
        self.runs.iter().for_each(|(at, _)| taken.give(*at));
    }

    /// Frees all nodes, or all runs.
    fn free(&mut self, core: &SimCore, taken: &Taken, nodes: bool) -> Result<()> {
        let mut freed = Own::default();
        if nodes {
            freed.nodes = core::mem::take(&mut self.nodes);
        } else {
            freed.runs = core::mem::take(&mut self.runs);
        }
        freed.forget(taken);
        core.run(|tx| {
            freed.nodes.iter().try_for_each(|&node| tx.free(node))?;
            freed.runs.iter().try_for_each(|&(at, pages)| tx.free_run(at, pages, paper()))
        })
    }
}

/// A machine on which a run is made.
struct Machine {
    world: World,
    taken: Arc<Taken>,
    /// A process that is attached from before the run until after it.
    witness: SimCore,
    seed: u64,
    /// Whether a group holds only one run, so that lanes go from group to group.
    hops: bool,
}

/// So many groups, full but for `left` pages each.
fn machine(groups: u64, left: u64, seed: u64) -> (RecordingMemory, Machine) {
    let shape = Shape { max_groups: groups, lanes: ACTORS + 1, slots: ACTORS + 1, ..shape() };
    let (memory, world) = fresh(shape, false).unwrap();
    let witness = attach(DyingMemory::counting(memory.actor(7)), &world, 7).unwrap();
    let taken = Arc::new(Taken::default());
    for group in 0..groups {
        let mut tx = witness.begin().unwrap();
        // Never finished, so no page of it is zeroed: that would take long.
        let _filler = tx.alloc_run(paper(), GROUP_PAGES - left, None).unwrap();
        tx.commit().unwrap();
        let at = witness.geometry().page(group * GROUP_PAGES);
        witness.resolve_run(at, GROUP_PAGES - left, paper()).unwrap();
        taken.take(NOBODY, at, (GROUP_PAGES - left) * PAGE).unwrap();
    }
    world.order(&memory);
    (memory, Machine { world, taken, witness, seed, hops: left < 2 * HOP })
}

/// What one actor does, in a process of its own that may die.
fn work(machine: &Machine, id: u32, memory: SimMemory) -> core::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let core = attach(memory, &machine.world, id).map_err(text)?;
    let taken = &machine.taken;
    let mut rng = Rng::stream(machine.seed, u64::from(id));
    let mut own = Own { id, ..Own::default() };
    for _ in 0..OPERATIONS {
        let some = 1 + rng.below(3);
        match rng.below(8) {
            0..=4 if machine.hops => own.allocate(&core, taken, (0, 1, HOP + some))?,
            _ if machine.hops => own.free(&core, taken, false).map_err(text)?,
            0..=2 => own.allocate(&core, taken, (8 * some, 0, 1))?,
            3 => own.allocate(&core, taken, (0, 1, 2 + some))?,
            4 | 5 => own.allocate(&core, taken, (some, 2, some))?,
            choice => own.free(&core, taken, choice == 6).map_err(text)?,
        }
    }
    own.free(&core, taken, true).map_err(text)?;
    own.free(&core, taken, false).map_err(text)?;
    core.detach().map_err(text)
}

/// Runs the actors on groups with `left` free pages each; the first dies if `dies`. Whatever the
/// witness finds wrong afterwards is a failure.
fn try_all(groups: u64, left: u64, dies: bool) {
    let options = ScheduleOptions {
        actors: ACTORS,
        search: Search::Random { seed: 23, first: 0, runs: RUNS },
        step_time: core::time::Duration::from_micros(20),
        weak_memory: true,
        steps: 1_000_000,
        ..ScheduleOptions::default()
    };
    let mut runs = 0;
    let setup = || {
        runs += 1;
        machine(groups, left, runs)
    };
    let body = |machine: &Machine, id: u32, memory: &Actor| {
        let mut fated = DyingMemory::counting(memory.clone());
        if dies && id == 0 {
            let world = machine.world.clone();
            let store = 20 + Rng::stream(machine.seed, 99).below(4000);
            let taken = Arc::clone(&machine.taken);
            let end = Fate::Unwind(Box::new(move || {
                taken.forget(0);
                world.kill(0);
            }));
            fated = DyingMemory::new(memory.clone(), store, end);
        }
        work(machine, id, fated)
    };
    let verdict = |machine: &Machine, _: &RecordingMemory| {
        let text = |error: Error| error.to_string();
        machine.witness.recover().map_err(text)?;
        let mut reachable = Reachable::default();
        for (start, (end, _)) in machine.taken.0.lock().unwrap().iter() {
            reachable.run(Offset::new(*start), (end - start) / PAGE);
        }
        let mut findings = machine.witness.check(&reachable).map_err(text)?;
        if dies {
            findings.retain(|finding| !finding.what.contains("reachable"));
        }
        if findings.is_empty() { Ok(0) } else { Err(format!("{findings:?}")) }
    };
    let found = run(&options, setup, body, verdict);
    assert_eq!(found.failed, 0, "{groups} groups, {left} left, death: {dies}: {found}");
}

#[test]
fn nobody_gets_what_another_has() {
    [1, 2].into_iter().for_each(|groups| try_all(groups, 20, false));
}

#[test]
fn nobody_gets_what_another_has_where_lanes_go_from_group_to_group() {
    try_all(5, HOP + 3, false);
}

#[test]
fn what_the_dead_had_leased_is_known() {
    [1, 2].into_iter().for_each(|groups| try_all(groups, 20, true));
}

#[test]
fn room_that_is_made_is_found_by_searches() {
    const EACH: usize = 8;
    let options = ScheduleOptions {
        actors: ACTORS,
        search: Search::Random { seed: 29, first: 0, runs: 10 * RUNS },
        weak_memory: true,
        ..ScheduleOptions::default()
    };
    let setup = || {
        let shape = Shape { lanes: ACTORS + 1, slots: ACTORS + 1, ..shape() };
        let (memory, world) = fresh(shape, false).unwrap();
        let process = |id: u32| attach(DyingMemory::counting(memory.actor(id)), &world, id);
        let witness = process(7).unwrap();
        let mut tx = witness.begin().unwrap();
        // Full slabs, of which the lane keeps the last.
        let nodes: Vec<Ptr<Node>> = (0..6 * 32)
            .map(|_| {
                let fresh = tx.alloc::<Node>().unwrap();
                tx.seal(fresh)
            })
            .collect();
        tx.commit().unwrap();
        let cores: Vec<SimCore> = (0..ACTORS).map(|id| process(id).unwrap()).collect();
        (memory, (witness, cores, nodes))
    };
    type Shared = (SimCore, Vec<SimCore>, Vec<Ptr<Node>>);
    let body = |(_, cores, nodes): &Shared, id: u32, _: &Actor| {
        let core = &cores[id as usize];
        let mut own = nodes.iter().skip(id as usize).step_by(17);
        for _ in 0..EACH {
            let done = if id < 2 {
                let &node = own.next().unwrap();
                core.run(|tx| tx.free(node))
            } else {
                core.run(|tx| tx.alloc::<Node>().map(|fresh| _ = tx.seal(fresh)))
            };
            done.map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    let verdict = |(witness, ..): &Shared, _: &RecordingMemory| {
        let findings = witness.check(&Reachable::default()).unwrap();
        let lost = findings.iter().find(|finding| finding.what.contains("search"));
        lost.map_or(Ok(0), |finding| Err(finding.to_string()))
    };
    let found = run(&options, setup, body, verdict);
    assert_eq!(found.failed, 0, "{found}");
}
