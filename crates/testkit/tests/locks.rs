//! Locks among processes that are interleaved in every way: nobody meets whom he must not, nobody
//! sleeps through his turn, and the dead and the damaged hold nobody up.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::sync::atomic::{AtomicI32, Ordering};

use conquest_format::Offset;
use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::volatile;
use conquest_pm::check::Reachable;
use conquest_pm::memory::Memory;
use conquest_pm::{Error, Mode};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{Actor, DyingMemory, Fate, RecordingMemory, Rng, World};

const ACTORS: u32 = 3;
const FIRST: Offset = STATE_ROOTS;
const SECOND: Offset = STATE_ROOTS.plus(8);

fn random(runs: u64) -> ScheduleOptions {
    let search = Search::Random { seed: 11, first: 0, runs };
    ScheduleOptions { actors: ACTORS, search, ..ScheduleOptions::default() }
}

/// A region that each actor has attached, as a process of its own, with a lane of its own.
struct Attached {
    cores: Vec<SimCore>,
    /// How many are inside as readers; -1 for one who is alone.
    inside: AtomicI32,
}

fn attached() -> (RecordingMemory, Attached) {
    let shape = Shape { lanes: ACTORS, ..shape() };
    let (memory, world) = fresh(shape, false).unwrap();
    let core = |actor| attach(DyingMemory::counting(memory.actor(actor)), &world, actor).unwrap();
    let cores = (0..ACTORS).map(core).collect();
    (memory, Attached { cores, inside: AtomicI32::new(0) })
}

/// Is inside under the lock for a few steps.
fn visit(attached: &Attached, memory: &Actor, mode: Mode) -> Result<(), String> {
    let (from, to) = if mode == Mode::Exclusive { (0, -1) } else { (0, 1) };
    if mode == Mode::Exclusive {
        let found = attached.inside.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        found.map_err(|found| format!("alone with {found}"))?;
    } else if attached.inside.fetch_add(to, Ordering::SeqCst) < 0 {
        return Err(String::from("reading while somebody is alone"));
    }
    // Steps, at which others may go on.
    let unused = attached.cores[0].geometry().queue_cell(u32::MAX);
    (0..3).for_each(|_| _ = memory.load(unused, Ordering::SeqCst));
    attached.inside.fetch_sub(to, Ordering::SeqCst);
    Ok(())
}

#[test]
fn nobody_meets_whom_he_must_not_and_nobody_sleeps_through_his_turn() {
    let seeds = std::sync::atomic::AtomicU64::new(0);
    let setup = || {
        seeds.fetch_add(1, Ordering::SeqCst);
        attached()
    };
    let body = |attached: &Attached, id: u32, memory: &Actor| {
        let core = &attached.cores[id as usize];
        let mut rng = Rng::stream(seeds.load(Ordering::SeqCst), u64::from(id));
        for _ in 0..4 {
            let mode = if rng.chance(1, 2) { Mode::Shared } else { Mode::Exclusive };
            let mut tx = core.begin().map_err(|error| error.to_string())?;
            tx.lock(0, mode).map_err(|error| error.to_string())?;
            visit(attached, memory, mode)?;
        }
        Ok(())
    };
    let verdict = |attached: &Attached, _: &RecordingMemory| {
        let findings = attached.cores[0].check(&Reachable::default()).unwrap();
        if findings.is_empty() { Ok(0) } else { Err(format!("{findings:?}")) }
    };
    let found = run(&random(2000), setup, body, verdict);
    assert_eq!((found.failed, found.timeouts), (0, 0), "{found}");
}

/// All runs with two interruptions of one who wants to be alone and one who wants to read.
#[test]
fn who_gives_way_wakes_who_waits_for_it() {
    let setup = || {
        let (memory, attached) = attached();
        // Whoever is alone looks for readers only if there was one.
        attached.cores[1].begin().unwrap().lock(0, Mode::Shared).unwrap();
        (memory, attached)
    };
    let body = |attached: &Attached, id: u32, memory: &Actor| {
        let mode = if id == 0 { Mode::Exclusive } else { Mode::Shared };
        let mut tx = attached.cores[id as usize].begin().map_err(|error| error.to_string())?;
        tx.lock(0, mode).map_err(|error| error.to_string())?;
        visit(attached, memory, mode)
    };
    let search = Search::Exhaustive { preemptions: 2, runs: 100_000 };
    // Enough spins for whoever is alone to come to sleep while the other one is interrupted.
    let options = ScheduleOptions { search, spins: 10_000, ..ScheduleOptions::default() };
    let found = run(&options, setup, body, |_, _| Ok(0));
    assert!(found.failed == 0 && found.timeouts == 0 && found.complete, "{found}");
}

/// Steps both words under the lock.
fn step(core: &SimCore) -> Result<(), Error> {
    core.run(|tx| {
        tx.lock(0, Mode::Exclusive)?;
        let value = tx.get(FIRST) + 1;
        tx.set(FIRST, value)?;
        tx.set(SECOND, value)
    })
}

fn pair(core: &SimCore) -> Result<(u64, u64), Error> {
    core.read(0, |view| Ok((view.word(FIRST), view.word(SECOND))))
}

#[test]
fn what_is_read_while_a_stamp_stays_current_belongs_together() {
    let setup = || {
        let (memory, attached) = attached();
        attached.cores[0].run(|tx| tx.set(FIRST, 0)).unwrap();
        (memory, attached)
    };
    let body = |attached: &Attached, id: u32, memory: &Actor| {
        let core = &attached.cores[id as usize];
        for _ in 0..6 {
            if id == 0 {
                step(core).map_err(|error| error.to_string())?;
                continue;
            }
            let stamp = core.stamp(0);
            let [first, second] = [FIRST, SECOND].map(|at| memory.load(at, Ordering::Relaxed));
            if core.is_current(stamp) && first != second {
                return Err(format!("{first} and {second} seen together"));
            }
        }
        // Nothing has changed since, so it is current.
        if id == 0 && !core.is_current(core.stamp(0)) {
            return Err(String::from("a stamp that is not current at once"));
        }
        Ok(())
    };
    let options = ScheduleOptions { weak_memory: true, persistent_loads: true, ..random(3000) };
    let found = run(&options, setup, body, |_, _| Ok(0));
    assert_eq!(found.failed, 0, "{found}");
}

#[test]
fn what_a_dead_holder_leaves_is_settled_before_others_have_the_lock() {
    let mut deaths = 0;
    for store in (1..).take_while(|store| *store < 200) {
        let setup = || {
            let shape = Shape { lanes: ACTORS, slots: ACTORS + 1, ..shape() };
            let (memory, world) = fresh(shape, false).unwrap();
            let alive = DyingMemory::counting(memory.actor(7));
            let witness = attach(alive, &world, 7).unwrap();
            (memory, (world, witness))
        };
        let body = |(world, _): &(World, SimCore), id: u32, memory: &Actor| {
            let text = |error: Error| error.to_string();
            let mut fated = DyingMemory::counting(memory.clone());
            if id == 0 {
                let world = world.clone();
                let dies = Fate::Unwind(Box::new(move || world.kill(0)));
                fated = DyingMemory::new(memory.clone(), store, dies);
            }
            let core = attach(fated, world, id).map_err(text)?;
            for _ in 0..3 {
                step(&core).map_err(text)?;
                let (first, second) = pair(&core).map_err(text)?;
                if first != second {
                    return Err(format!("torn: {first} and {second}"));
                }
            }
            core.detach().map_err(text)
        };
        let verdict = |(_, witness): &(World, SimCore), _: &RecordingMemory| {
            witness.recover().unwrap();
            let findings = witness.check(&Reachable::default()).unwrap();
            let steps = pair(witness).unwrap().0;
            if findings.is_empty() && (6..=9).contains(&steps) {
                return Ok(steps);
            }
            Err(format!("{steps} steps, {findings:?}"))
        };
        let found = run(&random(6), setup, body, verdict);
        assert_eq!(found.failed, 0, "death at store {store}: {found}");
        deaths += u64::from(found.outcomes.iter().any(|steps| *steps < 9));
    }
    assert!(deaths > 30, "{deaths}");
}

/// A region whose lock 0 names lane `owner`, or one that nobody uses, and what becomes of who wants
/// the lock: the error, and the virtual time that passed.
fn damaged(owner: Option<u32>) -> (Error, u64) {
    let (memory, world) = fresh(shape(), false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    let tag = memory.actor(0).load(core.geometry().slot(0), Ordering::SeqCst) >> 32;
    let put = |memory: &SimMemory, at, value| {
        memory.store(at, volatile::tagged(tag as u32, value), Ordering::SeqCst);
    };
    let tx = core.begin().unwrap();
    let is_free = |&lane: &u32| {
        core.memory().load(core.geometry().lane_record(lane), Ordering::SeqCst) as u32 == 0
    };
    let unused = (0..shape().lanes).find(is_free).unwrap();
    drop(tx);
    put(core.memory(), core.geometry().lock(0), owner.unwrap_or(unused) + 1);
    // What stands behind the last lane's record looks like that of a lane in use.
    put(core.memory(), core.geometry().lane_record(shape().lanes), 77);
    let before = memory.clock().now();
    (step(&core).unwrap_err(), memory.clock().now() - before)
}

#[test]
fn a_lock_word_that_names_nobody_is_an_error() {
    for (owner, most) in [(Some(shape().lanes), 0), (Some(0xFFF0), 0), (None, 1_000_000_000)] {
        let (error, waited) = damaged(owner);
        assert!(matches!(error, Error::Corrupt { what: "lock word", .. }), "{owner:?}: {error}");
        assert!(waited <= most, "{owner:?}: {waited}");
    }
}
