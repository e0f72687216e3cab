//! Who leads in making durable, and when somebody else does.
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use core::mem::ManuallyDrop;
use core::time::Duration;

use conquest_format::geometry::Shape;
use conquest_pm::log::PATIENCE;
use conquest_testkit::scenario::{SimCore, attach, fresh, shape};
use conquest_testkit::shelf::{self, Op};
use conquest_testkit::{DyingMemory, World, become_actor};

const SHAPE: Shape = Shape { log: 24, slots: 5, lanes: 5, ..shape() };
/// How long others take it that who leads is alive.
const TRUST: Duration = Duration::from_millis(2);
const MOMENT: Duration = Duration::from_millis(1);

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
