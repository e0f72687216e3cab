//! Models of the locks: exclusive, shared, and nobody sleeps for ever.

#![cfg(loom)]
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

mod loom_support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use conquest_format::Offset;
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::volatile::lane;
use conquest_pm::Mode;
use conquest_pm::memory::Memory;
use loom_support::*;

const FIRST: Offset = STATE_ROOTS;
const SECOND: Offset = STATE_ROOTS.plus(8);

/// The words of lock 0, the lanes' owners, the names in their lists, and two roots.
fn words(fixture: &Fixture) -> Vec<Offset> {
    let mut words = fixture.lock_words(0).to_vec();
    words.truncate(1);
    words.extend(fixture.lane_words(lane::OWNER));
    words.extend(fixture.lane_words(lane::HELD));
    words.extend([FIRST, SECOND]);
    words
}

fn fixture(actors: u32, waits: Waits) -> Arc<Fixture> {
    Fixture::new(actors, actors, waits, |_| ())
}

/// Counts under the exclusive lock, with accesses that order nothing themselves.
fn count(core: &ModelCore, guard: &Guard) {
    let mut tx = core.begin().unwrap();
    tx.lock(0, Mode::Exclusive).unwrap();
    guard.change();
    let found = core.memory().load(FIRST, Relaxed);
    core.memory().put(FIRST, found + 1, Relaxed);
}

/// Changes both words under the exclusive lock.
fn write(core: &ModelCore, guard: &Guard, value: u64) {
    let mut tx = core.begin().unwrap();
    tx.lock(0, Mode::Exclusive).unwrap();
    guard.change();
    core.memory().put(FIRST, value, Relaxed);
    core.memory().put(SECOND, value, Relaxed);
}

/// Reads both words under the shared lock.
fn read(core: &ModelCore, guard: &Guard) -> u64 {
    let mut tx = core.begin().unwrap();
    tx.lock(0, Mode::Shared).unwrap();
    guard.look();
    let first = core.memory().load(FIRST, Relaxed);
    assert_eq!(first, core.memory().load(SECOND, Relaxed));
    first
}

fn exclusive(waits: Waits, actors: u32, preemptions: usize) {
    let fixture = fixture(actors, waits);
    explore(&format!("{actors} exclusive, {waits:?}"), preemptions, move || {
        fixture.start(&words(&fixture));
        let guard = Guard::new();
        let threads: Vec<_> = (1..actors)
            .map(|actor| {
                let (core, guard) = (fixture.actor(actor), Arc::clone(&guard));
                spawn(move || count(core, &guard))
            })
            .collect();
        count(fixture.actor(0), &guard);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(fixture.actor(0).memory().load(FIRST, Relaxed), u64::from(actors));
    });
}

#[test]
fn exclusive_holders_follow_each_other() {
    exclusive(Waits::TimeOut, 2, 3);
}

#[test]
fn exclusive_waiters_are_woken() {
    exclusive(Waits::ForEver, 2, 3);
}

#[test]
fn three_exclusive_waiters_are_woken() {
    exclusive(Waits::ForEver, 3, 1);
}

fn shared(waits: Waits, readers: u32, preemptions: usize) {
    let fixture = fixture(1 + readers, waits);
    explore(&format!("{readers} shared, {waits:?}"), preemptions, move || {
        fixture.start(&words(&fixture));
        let guard = Guard::new();
        let threads: Vec<_> = (1..=readers)
            .map(|actor| {
                let (core, guard) = (fixture.actor(actor), Arc::clone(&guard));
                spawn(move || {
                    read(core, &guard);
                })
            })
            .collect();
        write(fixture.actor(0), &guard, 1);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(read(fixture.actor(0), &guard), 1);
    });
}

#[test]
fn shared_holders_keep_the_exclusive_one_out() {
    shared(Waits::TimeOut, 1, 3);
}

#[test]
fn shared_and_exclusive_waiters_are_woken() {
    shared(Waits::ForEver, 1, 3);
}

#[test]
fn two_shared_holders_and_an_exclusive_one() {
    shared(Waits::TimeOut, 2, 1);
}
