//! The keeper of a region with a log: who it is, what it is asked for, and what is not durable.
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use conquest_format::geometry::Shape;
use conquest_format::log::{CHUNK, chunk, head};
use conquest_format::{Geometry, Offset, PAGE, volatile};
use conquest_pm::log::{Asked, Copied, Lag, ask_keeper_to_leave};
use conquest_pm::memory::Memory;
use conquest_testkit::scenario::{SimCore, attach, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::shelf::{self, Op};
use conquest_testkit::{Actor, DyingMemory, RecordingMemory, World, become_actor};

const SHAPE: Shape = Shape { log: 24, slots: 5, lanes: 5, ..shape() };

/// Asks a keeper for something.
type Ask = fn(&SimCore);

fn attached(memory: &RecordingMemory, world: &World, actor: u32) -> SimCore {
    become_actor(actor);
    // By the number of its first thread, as a process is called.
    attach(DyingMemory::counting(memory.actor(actor)), world, actor + 1).unwrap()
}

fn put(memory: &impl Memory, at: Offset, value: u64) {
    memory.store(at, value, Ordering::Relaxed);
}

#[test]
fn a_keeper_that_can_be_none_is_none() {
    // What would say who it is, and a process that would be it.
    let stand = |shape: Shape, keeper: Offset, slot: u32| {
        let (memory, world) = fresh(shape, false).unwrap();
        let core = attached(&memory, &world, 0);
        let geometry = Geometry::new(shape).unwrap();
        let pid = |slot| geometry.slot(slot).plus(volatile::slot::PID);
        let mine = memory.actor(0).load(pid(core.slot()), Ordering::Relaxed);
        put(&memory.actor(0), keeper, u64::from(volatile::owner(slot, mine as u32)));
        if slot != core.slot() {
            put(&memory.actor(0), pid(slot), mine);
        }
        core.has_keeper()
    };
    let keeper = |shape| Geometry::new(shape).unwrap().log_head(head::KEEPER);
    assert!(stand(SHAPE, keeper(SHAPE), 0));
    assert!(stand(SHAPE, keeper(SHAPE), SHAPE.slots - 1));
    assert!(!stand(SHAPE, keeper(SHAPE), SHAPE.slots));
    // Where there is no log, something else stands there.
    let without = Shape { log: 0, ..SHAPE };
    assert!(!stand(without, keeper(without), 0));
}

#[test]
fn a_new_keeper_is_not_asked_for_what_the_last_one_was() {
    let (memory, world) = fresh(SHAPE, false).unwrap();
    let core = attached(&memory, &world, 0);
    ask_keeper_to_leave(core.memory(), core.geometry());
    assert_eq!(core.await_asked(Duration::ZERO), Asked::Leave);
    core.become_keeper();
    assert_eq!(core.await_asked(Duration::ZERO), Asked::Nothing);
}

#[test]
fn a_keeper_sleeps_as_long_as_it_said_unless_it_is_asked() {
    let (memory, world) = fresh(SHAPE, false).unwrap();
    let core = attached(&memory, &world, 0);
    let slept = |timeout| {
        let before = memory.clock().now();
        (core.await_asked(timeout), Duration::from_nanos(memory.clock().now() - before))
    };
    let second = Duration::from_secs(1);
    assert_eq!(slept(second), (Asked::Nothing, second));
    ask_keeper_to_leave(core.memory(), core.geometry());
    assert_eq!(slept(second), (Asked::Leave, Duration::ZERO));
}

#[test]
fn a_keeper_that_sleeps_is_woken_by_who_asks_it() {
    let asks: [(Ask, Asked); 2] = [
        (|core| ask_keeper_to_leave(core.memory(), core.geometry()), Asked::Leave),
        (|core| core.pages_are_to_pass(4096).unwrap(), Asked::Push),
    ];
    for (ask, expected) in asks {
        let setup = || {
            let (memory, world) = fresh(SHAPE, false).unwrap();
            let cores = [0, 1].map(|actor| attached(&memory, &world, actor));
            cores[0].become_keeper();
            (memory, cores)
        };
        let body = |cores: &[SimCore; 2], id: u32, _: &Actor| {
            if id == 1 {
                ask(&cores[1]);
                return Ok(());
            }
            // Only by being woken.
            let asked = cores[0].await_asked(Duration::MAX);
            if asked == expected { Ok(()) } else { Err(format!("asked for {asked:?}")) }
        };
        let options = ScheduleOptions {
            search: Search::Exhaustive { preemptions: 3, runs: 10_000 },
            ..ScheduleOptions::default()
        };
        let found = run(&options, setup, body, |_, memory| memory.violation().map_or(Ok(0), Err));
        assert_eq!((found.failed, found.complete), (0, true), "{found}");
    }
}

#[test]
fn what_is_not_durable_is_counted_and_nothing_else() {
    let (memory, world) = fresh(SHAPE, false).unwrap();
    let cores = [0, 1].map(|actor| attached(&memory, &world, actor));
    let [one, other] = &cores;
    let push = |actor: u32, id, pages| {
        become_actor(actor);
        let op = Op::Push { list: actor, id, pages };
        assert!(shelf::perform(&cores[actor as usize], actor, op).unwrap());
    };
    let expected = |pages: u64| {
        let sealed = one.seal(one.durable(), Copied::new()).unwrap().unwrap();
        let bytes = sealed.fragments.len() as u64 + pages * PAGE;
        (one.next_sequence() - one.durable(), bytes)
    };
    let lag = || (other.lag().records, other.lag().bytes);
    assert_eq!(one.lag(), Lag::default());
    push(0, 1, 0);
    assert_eq!(lag(), expected(0));
    // In two chunks, as two of them are at it.
    become_actor(0);
    let at_work = one.begin().unwrap();
    push(1, 2, 3);
    drop(at_work);
    push(0, 3, 0);
    assert_eq!(lag(), expected(3));
    assert_eq!(lag().0, 3);
    // Those that pass are to be written, too.
    one.pages_are_to_pass(2).unwrap();
    assert_eq!(lag(), expected(3));
    one.count_passing_anew(7).unwrap();
    assert_eq!(lag(), expected(8));
    one.count_passing_anew(0).unwrap();
    memory.clock().advance(Duration::from_secs(3));
    assert_eq!(one.lag().age, Some(Duration::from_secs(3)));
    one.set_durable(one.next_sequence()).unwrap();
    assert_eq!((one.lag(), other.lag()), (Lag::default(), Lag::default()));
    // What chunks have that is durable is none of it.
    memory.clock().advance(Duration::from_secs(2));
    push(1, 4, 0);
    assert_eq!(lag(), expected(0));
    assert_eq!(one.lag().age, Some(Duration::from_secs(2)));
    // Nor what was in a chunk that nobody has.
    let header = one.geometry().log_header(SHAPE.log - 1);
    put(one.memory(), header.plus(chunk::LAST), one.next_sequence());
    put(one.memory(), header.plus(chunk::END), CHUNK);
    assert_eq!(lag(), expected(0));
}
