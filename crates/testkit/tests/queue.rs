//! More actors than lanes, and lanes that their owners leave as orphans: everybody gets a lane, in
//! turn, and what was begun is finished by others, also where memory is weak.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::volatile::head;
use conquest_format::{Geometry, Offset};
use conquest_pm::intent::Intent;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Error, Mode, Options, Result, Tx};
use conquest_testkit::scenario::{SimCore, SimMemory, fresh};
use conquest_testkit::schedule::{ScheduleOptions, Schedules, Search, run};
use conquest_testkit::shelf::kinds;
use conquest_testkit::{Actor, Clock, DyingMemory, Fate, RecordingMemory, SimHost, World};

type SimTx<'c> = Tx<'c, SimMemory, SimHost>;

/// Steps of each piece of work.
const STEPS: u64 = 3;

/// How often the steps of all work were taken.
const STEPPED: Offset = STATE_ROOTS;
/// What the operations of all actors count.
const COUNTED: Offset = STATE_ROOTS.plus(8);

fn shape(lanes: u32) -> Shape {
    Shape { max_groups: 1, lanes, slots: 8, locks: 4, chunks: 4, log: 0 }
}

fn path() -> &'static Path {
    Path::new("simulated core")
}

/// Takes one step of the work: the argument says how many are left.
fn step(tx: &mut SimTx<'_>, intent: Intent) -> Result<()> {
    tx.lock(1, Mode::Exclusive)?;
    tx.set(STEPPED, tx.get(STEPPED) + 1)?;
    tx.set_intent(match intent.arguments[0] {
        1 => Intent::default(),
        left => work(left - 1),
    })
}

fn refuse(_: &mut SimTx<'_>, _: Intent) -> Result<()> {
    Err(Error::Interrupted)
}

fn work(steps: u64) -> Intent {
    Intent { code: 1, arguments: [steps, 0, 0, 0, 0, 0, 0] }
}

type Handler = fn(&mut SimTx<'_>, Intent) -> Result<()>;

fn attach(memory: SimMemory, world: &World, pid: u32, handler: Handler) -> SimCore {
    let options = Options { intents: Some(Box::new(handler)), ..Options::default() };
    Core::attach(memory, world.process(pid), path(), &kinds(), options).unwrap()
}

fn alive(memory: &Actor) -> SimMemory {
    DyingMemory::counting(memory.clone())
}

/// Begins the work and takes its steps.
fn begin_work(core: &SimCore) -> Result<()> {
    let mut tx = core.begin()?;
    // The steps take the same lock.
    tx.lock(1, Mode::Exclusive)?;
    tx.set_intent(work(STEPS))?;
    tx.commit_and_finish()
}

fn count(core: &SimCore) -> Result<()> {
    core.run(|tx| {
        tx.lock(0, Mode::Exclusive)?;
        tx.set(COUNTED, tx.get(COUNTED) + 1)
    })
}

fn random(actors: u32, runs: u64, weak_memory: bool) -> ScheduleOptions {
    ScheduleOptions {
        actors,
        search: Search::Random { seed: 5, first: 0, runs },
        step_time: Duration::from_micros(20),
        weak_memory,
        ..ScheduleOptions::default()
    }
}

/// Tickets drawn and tickets served, as `memory` sees them.
fn tickets(memory: &Actor, lanes: u32) -> [u32; 2] {
    let geometry = Geometry::new(shape(lanes)).unwrap();
    [head::QUEUE_NEXT, head::QUEUE_SERVING]
        .map(|word| memory.load(geometry.head(word), Ordering::SeqCst) as u32)
}

fn assert_all_passed(found: &Schedules) {
    assert_eq!(found.failed, 0, "{found}");
}

#[test]
fn everybody_gets_a_lane_and_no_ticket_is_left() {
    const ACTORS: u32 = 4;
    const EACH: u32 = 4;
    for lanes in [1, 2] {
        let setup = || {
            let (memory, world) = fresh(shape(lanes), false).unwrap();
            world.order(&memory);
            (memory, world)
        };
        let body = |world: &World, id: u32, memory: &Actor| {
            let core = attach(alive(memory), world, id, step);
            (0..EACH).try_for_each(|_| count(&core)).map_err(|error| error.to_string())?;
            core.detach().map_err(|error| error.to_string())
        };
        let verdict = |_: &World, memory: &RecordingMemory| {
            let memory = memory.this_thread();
            let counted = memory.load(COUNTED, Ordering::SeqCst);
            let [next, serving] = tickets(&memory, lanes);
            if counted != u64::from(ACTORS * EACH) || next != serving {
                return Err(format!("counted {counted}, tickets {next}, served {serving}"));
            }
            Ok(u64::from(next))
        };
        let found = run(&random(ACTORS, 300, true), setup, body, verdict);
        assert_all_passed(&found);
        // Unless they waited, nothing was tried.
        assert!(found.outcomes.iter().max() > Some(&2), "{:?}", found.outcomes);
    }
}

/// Runs in which time passes only when nobody can go on, so a wake-up that is missed shows as a
/// time-out.
fn naps(lanes: u32) -> Schedules {
    const ACTORS: u32 = 4;
    let options = ScheduleOptions { step_time: Duration::ZERO, ..random(ACTORS, 500, false) };
    let setup = || {
        let (memory, world) = fresh(shape(lanes), false).unwrap();
        let core = |id| attach(alive(&memory.actor(id)), &world, id, step);
        let cores: Vec<SimCore> = (0..ACTORS).map(core).collect();
        (memory, cores)
    };
    let body = |cores: &Vec<SimCore>, id: u32, _: &Actor| {
        let core = &cores[id as usize];
        (0..4).try_for_each(|_| count(core)).map_err(|error| error.to_string())
    };
    run(&options, setup, body, |_, _| Ok(0))
}

#[test]
fn who_leaves_a_lane_wakes_who_waits_for_one() {
    for lanes in [1, 2] {
        let found = naps(lanes);
        assert_eq!((found.failed, found.timeouts), (0, 0), "{lanes} lanes: {found}");
    }
}

#[test]
fn two_who_wait_get_two_lanes_at_once() {
    const LANES: u32 = 2;
    /// Steps in which the others have come to sleep.
    const PATIENT: u32 = 5000;
    let options = ScheduleOptions { step_time: Duration::ZERO, ..random(4, 300, false) };
    let setup = || {
        let (memory, world) = fresh(shape(LANES), false).unwrap();
        let core = |id| attach(alive(&memory.actor(id)), &world, id, step);
        let cores: Vec<SimCore> = (0..4).map(core).collect();
        (memory, cores)
    };
    let body = |cores: &Vec<SimCore>, id: u32, memory: &Actor| {
        let geometry = Geometry::new(shape(LANES)).unwrap();
        let cell = |id: u32| geometry.queue_cell(1000 + id);
        let has_lane = |id: u32| memory.load(cell(id), Ordering::SeqCst) != 0;
        let core = &cores[id as usize];
        let begin = || {
            let tx = core.begin().map_err(|error| error.to_string());
            memory.store(cell(id), 1, Ordering::SeqCst);
            memory.wake(cell(id), 1);
            tx
        };
        if id < 2 {
            // Two have the lanes until the other two sleep.
            let _tx = begin()?;
            (0..PATIENT).for_each(|_| _ = has_lane(id));
        } else {
            while !(has_lane(0) && has_lane(1)) {}
            // And these have theirs until each has one.
            let _tx = begin()?;
            while !has_lane(id ^ 1) {
                memory.wait(cell(id ^ 1), 0, Duration::from_secs(9));
            }
        }
        Ok(())
    };
    let found = run(&options, setup, body, |_, _| Ok(0));
    assert_eq!((found.failed, found.timeouts), (0, 0), "{found}");
}

/// What the actors of a run share beside the region.
struct Shared {
    world: World,
    clock: Clock,
    count: AtomicU32,
    unused: Offset,
}

fn shared(lanes: u32, weak: bool) -> (RecordingMemory, Shared) {
    let (memory, world) = fresh(shape(lanes), false).unwrap();
    if weak {
        world.order(&memory);
    }
    let clock = memory.clock();
    let unused = Geometry::new(shape(lanes)).unwrap().queue_cell(u32::MAX);
    (memory, Shared { world, clock, count: AtomicU32::new(0), unused })
}

/// Lets others go on, by a wait on a word that nobody uses.
fn nap(shared: &Shared, memory: &Actor, time: Duration) {
    memory.wait(shared.unused, 0, time);
}

/// Lets others go on until so many have counted themselves.
fn wait_for(shared: &Shared, memory: &Actor, count: u32) {
    while shared.count.load(Ordering::SeqCst) < count {
        nap(shared, memory, Duration::from_millis(1));
    }
}

#[test]
fn everybody_who_waits_has_a_ticket_of_his_own() {
    let body = |shared: &Shared, id: u32, memory: &Actor| {
        let core = attach(alive(memory), &shared.world, id, step);
        if id == 0 {
            let tx = core.begin().unwrap();
            shared.count.store(1, Ordering::SeqCst);
            let end = shared.clock.now() + 200_000_000;
            while shared.clock.now() < end {
                nap(shared, memory, Duration::from_millis(50));
            }
            let [next, serving] = tickets(memory, 1);
            drop(tx);
            if next.wrapping_sub(serving) != 3 {
                return Err(format!("tickets {next}, served {serving}, of three who wait"));
            }
        } else {
            wait_for(shared, memory, 1);
            count(&core).unwrap();
        }
        core.detach().map_err(|error| error.to_string())
    };
    assert_all_passed(&run(&random(4, 300, false), || shared(1, false), body, |_, _| Ok(0)));
}

#[test]
fn orphans_are_adopted_with_all_that_their_owners_left() {
    const LOOKS: u32 = 200;
    let body = |shared: &Shared, id: u32, memory: &Actor| {
        let core = attach(alive(memory), &shared.world, id, if id < 2 { refuse } else { step });
        shared.count.fetch_add(1, Ordering::SeqCst);
        wait_for(shared, memory, 3);
        if id < 2 {
            // It refuses the other one's work too, and goes on once that is done.
            let mut tx = loop {
                match core.begin() {
                    Ok(tx) => break tx,
                    Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
                }
                nap(shared, memory, Duration::from_millis(1));
            };
            tx.set_intent(work(STEPS)).unwrap();
            assert!(matches!(tx.commit_and_finish(), Err(Error::Interrupted)));
            shared.count.fetch_add(1, Ordering::SeqCst);
            return core.detach().map_err(|error| error.to_string());
        }
        while shared.count.load(Ordering::SeqCst) < 5 {
            count(&core).unwrap();
            nap(shared, memory, Duration::from_millis(1));
        }
        for _ in 0..LOOKS {
            count(&core).unwrap();
        }
        let stepped = memory.load(STEPPED, Ordering::SeqCst);
        if stepped == 2 * STEPS { Ok(()) } else { Err(format!("{stepped} steps")) }
    };
    assert_all_passed(&run(&random(3, 300, true), || shared(4, true), body, |_, _| Ok(0)));
}

/// The process of actor 0, whose work's steps are taken by `handler`, dies before store `store`;
/// the other one wants the only lane. What became of it: steps, and a hundred for each ticket.
fn orphaned(handler: Handler, store: u64) -> Schedules {
    let body = |shared: &Shared, id: u32, memory: &Actor| {
        if id == 0 {
            let world = shared.world.clone();
            let dies = Fate::Unwind(Box::new(move || world.kill(0)));
            let dying = DyingMemory::new(memory.clone(), store, dies);
            let core = attach(dying, &shared.world, 0, handler);
            let (Ok(()) | Err(_)) = begin_work(&core);
            return core.detach().map_err(|error| error.to_string());
        }
        let core = attach(alive(memory), &shared.world, id, step);
        (0..3).try_for_each(|_| count(&core)).map_err(|error| error.to_string())
    };
    let verdict = |shared: &Shared, memory: &RecordingMemory| {
        let memory = memory.this_thread();
        // If the other one was done before the death, whoever comes next finishes the work.
        attach(alive(&memory), &shared.world, 2, step)
            .detach()
            .map_err(|error| error.to_string())?;
        let stepped = memory.load(STEPPED, Ordering::SeqCst);
        if stepped != 0 && stepped != STEPS {
            return Err(format!("{stepped} steps"));
        }
        Ok(stepped + u64::from(tickets(&memory, 1)[0]) * 100)
    };
    run(&random(2, 8, false), || shared(1, false), body, verdict)
}

#[test]
fn a_lane_that_becomes_an_orphan_is_adopted_by_who_waits_for_one() {
    for handler in [step as Handler, refuse] {
        let mut waited = 0;
        for store in 1..400 {
            let found = orphaned(handler, store);
            assert_eq!(found.failed, 0, "death at store {store}: {found}");
            waited += found.outcomes.iter().filter(|&&outcome| outcome >= 100).count();
        }
        assert!(waited > 50, "{waited}");
    }
}
