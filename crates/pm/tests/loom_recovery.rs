//! Models of death: who dies at any store, who takes over, and who comes into the slot.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod loom_support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use conquest_format::Offset;
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::journal;
use conquest_format::volatile::{lane, slot};
use conquest_pm::memory::Memory;
use conquest_pm::{Error, Mode};
use loom_support::*;

const FIRST: Offset = STATE_ROOTS;
const SECOND: Offset = STATE_ROOTS.plus(8);
/// The process that dies.
const VICTIM: u32 = 0;

/// Adds `more` to both words in one transaction.
fn add(core: &ModelCore, more: u64) {
    change(core, more);
}

/// [`add`], and tells what was there.
fn change(core: &ModelCore, more: u64) -> u64 {
    let mut tx = core.begin().unwrap();
    tx.lock(0, Mode::Exclusive).unwrap();
    let [first, second] = [FIRST, SECOND].map(|at| core.memory().load(at, Relaxed));
    assert_eq!(first, second, "half a transaction");
    tx.set(FIRST, first + more).unwrap();
    tx.set(SECOND, second + more).unwrap();
    tx.commit().unwrap();
    first
}

/// Starts an execution; two changes of a root that nothing orders make it fail.
fn start(fixture: &Fixture) {
    let geometry = fixture.geometry();
    let mut words = vec![FIRST, SECOND, fixture.lock_words(0)[0]];
    words.extend(fixture.lane_words(lane::OWNER));
    words.extend(fixture.lane_words(lane::HELD));
    words.push(geometry.slot(VICTIM).plus(slot::STATE));
    let lanes = 0..geometry.shape().lanes;
    words.extend(lanes.map(|number| geometry.lane(number).plus(journal::COMMIT)));
    fixture.start(&words);
    let guards = [FIRST, SECOND].map(|at| (at, Guard::new()));
    fixture.region().set_hook(move |_, at, _| {
        let guarded = guards.iter().find(|(guarded, _)| *guarded == at);
        guarded.into_iter().for_each(|(_, guard)| guard.change());
    });
}

/// How many stores the victim's transaction takes.
fn stores(fixture: &Arc<Fixture>) -> u64 {
    let (fixture, counted) = (Arc::clone(fixture), Arc::new(std::sync::Mutex::new(0)));
    let out = Arc::clone(&counted);
    explore("undisturbed", 0, move || {
        start(&fixture);
        add(fixture.actor(VICTIM), 1);
        *out.lock().unwrap() = fixture.region().stores(VICTIM);
    });
    *counted.lock().unwrap()
}

/// What all must find at the end: the victim's change happened or not, the others' all did.
fn check(core: &ModelCore, others: u64) {
    core.recover().unwrap();
    let found = change(core, 0);
    assert!(found == others || found == others + 1, "{found}");
}

#[test]
fn two_take_over_from_who_died_at_any_store() {
    let fixture = Fixture::new(3, 3, Waits::TimeOut, |_| ());
    for at in 0..stores(&fixture) {
        let fixture = Arc::clone(&fixture);
        explore(&format!("dead at store {at}"), 2, move || {
            start(&fixture);
            fixture.doom(VICTIM, at);
            assert!(!fixture.live(VICTIM, |core| add(core, 1)));
            let other = fixture.actor(1);
            let other = spawn(move || add(other, 10));
            fixture.actor(2).recover().unwrap();
            other.join().unwrap();
            check(fixture.actor(2), 10);
        });
    }
}

#[test]
fn who_waits_takes_over_from_who_dies_meanwhile() {
    let fixture = Fixture::new(2, 2, Waits::TimeOut, |_| ());
    for at in 0..stores(&fixture) {
        let fixture = Arc::clone(&fixture);
        explore(&format!("dying at store {at}"), 3, move || {
            start(&fixture);
            fixture.doom(VICTIM, at);
            let (other, victim) = (fixture.actor(1), Arc::clone(&fixture));
            let victim = spawn(move || {
                victim.live(VICTIM, |core| add(core, 1));
            });
            add(other, 10);
            victim.join().unwrap();
            check(other, 10);
        });
    }
}

#[test]
fn a_slot_is_recovered_before_it_has_a_new_process() {
    let fixture = Fixture::new(3, 3, Waits::TimeOut, |_| ());
    let last = stores(&fixture);
    // Dead with the lock, the record armed; and with the record retired, the lock still held.
    for at in [last - 9, last - 3] {
        let fixture = Arc::clone(&fixture);
        explore(&format!("new process, old one dead at store {at}"), 1, move || {
            start(&fixture);
            fixture.doom(VICTIM, at);
            assert!(!fixture.live(VICTIM, |core| add(core, 1)));
            let other = fixture.actor(1);
            let other = spawn(move || other.recover().unwrap());
            match fixture.attach(3) {
                Ok(new) => add(&new, 10),
                Err(Error::Slots { .. }) => add(fixture.actor(2), 10),
                Err(error) => panic!("{error}"),
            }
            other.join().unwrap();
            check(fixture.actor(2), 10);
        });
    }
}
