//! Who leads in making durable, and when somebody else does.
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use core::mem::ManuallyDrop;
use core::time::Duration;

use core::sync::atomic::Ordering;
use std::sync::Mutex;

use conquest_format::geometry::Shape;
use conquest_format::log::head;
use conquest_format::volatile;
use conquest_pm::Error;
use conquest_pm::host::Host;
use conquest_pm::log::{Copied, Lead, PATIENCE};
use conquest_pm::memory::Memory;
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Schedules, Search, run};
use conquest_testkit::shelf::{self, Op};
use conquest_testkit::{Actor, DyingMemory, RecordingMemory, SimHost, World, become_actor};

const SHAPE: Shape = Shape { log: 24, slots: 5, lanes: 5, ..shape() };
/// How long others take it that who leads is alive.
const TRUST: Duration = Duration::from_millis(2);
const MOMENT: Duration = Duration::from_millis(1);
/// How long somebody who waits sleeps before he looks whether anybody leads.
const LOOK: Duration = Duration::from_millis(31);
/// Those who do something and make it durable at the same time.
const SYNCERS: u32 = 4;

/// Two processes, each of which has done something.
fn two() -> (World, [ManuallyDrop<SimCore>; 2]) {
    become_actor(0);
    let (memory, world) = fresh(SHAPE, false).unwrap();
    let cores = [0, 1].map(|pid| {
        become_actor(pid);
        let core = attach(DyingMemory::counting(memory.actor(pid)), &world, pid).unwrap();
        assert!(shelf::perform(&core, pid, Op::Push { list: 0, id: 1, pages: 0 }).unwrap());
        // It may be killed.
        ManuallyDrop::new(core)
    });
    (world, cores)
}

#[test]
fn one_leads_until_he_hands_it_on() {
    let (_, [one, other]) = two();
    let mut lead = one.lead(Duration::ZERO).unwrap();
    // Nobody is in a hurry as long as he is alive.
    assert!(other.lead(Duration::ZERO).is_none());
    assert!(other.lead(PATIENCE).is_none());
    lead.hand_on();
    let next = other.lead(Duration::ZERO).unwrap();
    drop(lead);
    assert!(one.lead(Duration::ZERO).is_none(), "the lead is another one's");
    drop(next);
    drop(one.lead(Duration::ZERO).unwrap());
}

#[test]
fn who_is_dead_is_followed_after_a_moment() {
    let (world, [one, other]) = two();
    let _lead = ManuallyDrop::new(one.lead(Duration::ZERO).unwrap());
    world.kill(0);
    assert!(other.lead(TRUST).is_none(), "nobody has looked yet");
    drop(other.lead(TRUST + MOMENT).unwrap());
    drop(other.lead(Duration::ZERO).unwrap());
}

#[test]
fn a_thread_that_has_ended_is_followed_by_another_one_of_its_process() {
    let (world, [one, other]) = two();
    become_actor(3);
    let _lead = ManuallyDrop::new(one.lead(Duration::ZERO).unwrap());
    become_actor(0);
    assert!(one.lead(TRUST + MOMENT).is_none());
    world.end_thread(0, 4);
    // Others know of processes only.
    assert!(other.lead(TRUST + MOMENT).is_none());
    drop(one.lead(TRUST + MOMENT).unwrap());
}

#[test]
fn who_has_nothing_to_show_is_not_waited_for_longer_than_patience() {
    let (_, [one, other]) = two();
    let lead = one.lead(Duration::ZERO).unwrap();
    assert!(other.lead(PATIENCE).is_none());
    let next = other.lead(PATIENCE + MOMENT).unwrap();
    // The first one, who goes on, does not take it from the other one.
    drop(lead);
    assert!(one.lead(Duration::ZERO).is_none());
    drop(next);
}

#[test]
fn a_lead_that_was_handed_on_is_not_handed_on_again() {
    let (_, [one, other]) = two();
    become_actor(0);
    let mut first = one.lead(Duration::ZERO).unwrap();
    first.hand_on();
    let _second = one.lead(Duration::ZERO).unwrap();
    first.hand_on();
    drop(first);
    assert!(other.lead(Duration::ZERO).is_none());
}

#[test]
fn who_has_a_slot_that_there_is_not_does_not_lead() {
    let (world, [one, _]) = two();
    // Whatever lock stands there.
    let _claim = world.process(7).claim(SHAPE.slots).unwrap().unwrap();
    let leads = |slot| {
        let leader = u64::from(volatile::owner(slot, 8));
        one.memory().store(one.geometry().log_head(head::LEADER), leader, Ordering::Relaxed);
        one.lead(TRUST + MOMENT).is_none()
    };
    assert!(leads(1));
    assert!(!leads(SHAPE.slots));
}

#[test]
fn who_waits_looks_after_a_moment_and_then_now_and_then() {
    let (world, [one, other]) = two();
    let now = || world.process(0).now();
    let _lead = one.lead(Duration::ZERO).unwrap();
    let mut waiting = other.begin_waiting();
    for (waited, expected) in [
        (Duration::ZERO, TRUST),
        (TRUST, 2 * TRUST),
        (20 * MOMENT, 22 * MOMENT),
        (30 * MOMENT, LOOK),
        (PATIENCE, LOOK),
    ] {
        let before = now();
        waiting = other.wait_on(waiting, waited);
        assert_eq!(Duration::from_nanos(now() - before), expected, "after {waited:?}");
    }
}

#[test]
fn who_was_woken_to_lead_and_needs_no_more_wakes_another_one_of_his_group() {
    let (world, [one, other]) = two();
    let slept = || {
        let waiting = other.begin_waiting();
        one.end_waiting(one.begin_waiting());
        let before = world.process(0).now();
        other.wait_on(waiting, Duration::ZERO);
        Duration::from_nanos(world.process(0).now() - before)
    };
    assert_eq!(slept(), Duration::ZERO);
    // Who leads wakes all whom he serves.
    let (waiting, mine) = (other.begin_waiting(), one.begin_waiting());
    let _lead = one.lead(Duration::ZERO).unwrap();
    one.end_waiting(mine);
    let before = world.process(0).now();
    other.wait_on(waiting, Duration::ZERO);
    assert_eq!(Duration::from_nanos(world.process(0).now() - before), TRUST);
}

/// The lead, or none when all below `wanted` is durable.
fn await_lead(
    core: &SimCore,
    now: impl Fn() -> u64,
    wanted: u64,
) -> Option<Lead<'_, SimMemory, SimHost>> {
    let mut waiting = core.begin_waiting();
    let (mut since, mut seen) = (now(), core.durable());
    loop {
        if core.durable() >= wanted {
            core.end_waiting(waiting);
            return None;
        }
        if core.durable() != seen {
            (since, seen) = (now(), core.durable());
        }
        let waited = Duration::from_nanos(now() - since);
        if let Some(lead) = core.lead(waited) {
            return Some(lead);
        }
        waiting = core.wait_on(waiting, waited);
    }
}

/// As many processes.
fn several() -> (World, Vec<SimCore>, RecordingMemory) {
    become_actor(0);
    let (memory, world) = fresh(SHAPE, false).unwrap();
    let core = |id| {
        become_actor(id);
        attach(DyingMemory::counting(memory.actor(id)), &world, id).unwrap()
    };
    let cores = (0..SYNCERS).map(core).collect();
    (world, cores, memory)
}

/// Several processes that do something and make it durable, which takes each of them no time.
fn syncs(weak_memory: bool, runs: u64) -> Schedules {
    let setup = || {
        let (world, cores, memory) = several();
        if weak_memory {
            world.order(&memory);
        }
        (memory, (world, cores))
    };
    let body = |(world, cores): &(World, Vec<SimCore>), id: u32, _: &Actor| {
        let text = |why: Error| why.to_string();
        let core = &cores[id as usize];
        let now = || world.process(id).now();
        let op = Op::Push { list: id % 3, id: u64::from(id) + 1, pages: 0 };
        shelf::perform(core, id, op).map_err(text)?;
        let wanted = core.next_sequence();
        while let Some(mut lead) = await_lead(core, now, wanted) {
            match core.seal(core.durable(), Copied::new()) {
                Ok(sealed) => {
                    lead.hand_on();
                    sealed.map_or(Ok(()), |it| core.set_durable(it.cut)).map_err(text)?;
                }
                Err(Error::Again) => {}
                Err(why) => return Err(text(why)),
            }
        }
        Ok(())
    };
    let options = ScheduleOptions {
        actors: SYNCERS,
        search: Search::Random { seed: 1, first: 0, runs },
        weak_memory,
        ..ScheduleOptions::default()
    };
    run(&options, setup, body, |_, memory| memory.violation().map_or(Ok(0), Err))
}

/// As long as nobody dies or is stopped.
#[test]
fn who_waits_is_always_woken_by_somebody() {
    for (weak_memory, runs) in [(false, 500), (true, 30)] {
        let found = syncs(weak_memory, runs);
        assert_eq!((found.failed, found.timeouts), (0, 0), "{found}");
    }
}

#[test]
fn who_leads_sees_what_those_have_committed_whom_he_serves() {
    let setup = || {
        let (world, cores, memory) = several();
        world.order(&memory);
        (memory, (cores, Mutex::new((0, None))))
    };
    let body = |(cores, seen): &(Vec<SimCore>, Mutex<(u64, Option<u64>)>), id: u32, _: &Actor| {
        let core = &cores[id as usize];
        let op = Op::Push { list: id, id: 1, pages: 0 };
        shelf::perform(core, id, op).map_err(|why| why.to_string())?;
        if id == 0 {
            let lead = core.lead(Duration::ZERO).ok_or("somebody else leads")?;
            let next = core.next_sequence();
            drop(lead);
            seen.lock().unwrap().0 = next;
            return Ok(());
        }
        let least = core.next_sequence();
        let waiting = core.begin_waiting();
        // Of the first group, which the other one serves.
        if format!("{waiting:?}").contains("group: 0,") {
            seen.lock().unwrap().1 = Some(least);
        }
        Ok(())
    };
    let options = ScheduleOptions {
        search: Search::Random { seed: 1, first: 0, runs: 1000 },
        weak_memory: true,
        ..ScheduleOptions::default()
    };
    let found = run(&options, setup, body, |(_, seen), _| match *seen.lock().unwrap() {
        (next, Some(least)) if next < least => Err(format!("{next} instead of {least}")),
        (_, least) => Ok(u64::from(least.is_some())),
    });
    assert_eq!((found.failed, found.outcomes.len()), (0, 2), "{found}");
}
