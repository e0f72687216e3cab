//! Models of the busy bits: what a record has freed is not allocated before the record is retired.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod loom_support;

use std::sync::atomic::Ordering::Relaxed;

use conquest_format::Offset;
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::volatile::{group, slab};
use conquest_format::{GROUP_PAGES, WORD, journal};
use conquest_pm::memory::Memory;
use conquest_pm::{Error, Object, Ptr};
use loom_support::*;

/// Root that names what is freed.
const FREED: Offset = STATE_ROOTS;
/// Who allocates, and who frees: threads 1 and 2, that take different lanes.
const TAKER: u32 = 0;
const GIVER: u32 = 1;

/// Watches `bits`, their busy words and the giver's commit word; from now on, the taker must not
/// set any of `bits` unless the giver's record is retired by then.
fn watch(fixture: &Fixture, bits: Offset, busy: Offset) {
    let commits = [0, 1].map(|lane| fixture.geometry().lane(lane).plus(journal::COMMIT));
    fixture.start(&[bits, busy, commits[0], commits[1]]);
    let guard = Guard::new();
    fixture.region().set_hook(move |actor, at, _| {
        let of_giver = actor == GIVER && commits.contains(&at);
        if of_giver || actor == TAKER && at == bits {
            guard.change();
        }
    });
}

fn object(preemptions: usize) {
    let fixture = Fixture::new(2, 2, Waits::TimeOut, |fixture| {
        let taker = fixture.actor(TAKER);
        let mut tx = taker.begin().unwrap();
        let mut last = Offset::NONE;
        for _ in 0..4 {
            let fresh = tx.alloc::<Quarter>().unwrap();
            last = tx.seal(fresh).offset();
        }
        let word = conquest_format::pointer::pack(last, <Quarter as Object>::KIND);
        tx.set(FREED, word).unwrap();
        tx.commit().unwrap();
    });
    explore("busy objects", preemptions, move || {
        let word = fixture.actor(0).memory();
        let geometry = fixture.geometry();
        watch(&fixture, geometry.slab_map(0), geometry.slab_record(0).plus(slab::BUSY));
        let pointer = Ptr::<Quarter>::from_word(word.load(FREED, Relaxed), FREED).unwrap();
        let giver = fixture.actor(GIVER);
        let giver = spawn(move || {
            let mut tx = giver.begin().unwrap();
            tx.free(pointer).unwrap();
            tx.commit().unwrap();
        });
        let mut tx = fixture.actor(TAKER).begin().unwrap();
        let fresh = tx.alloc::<Quarter>().unwrap();
        tx.seal(fresh);
        tx.commit().unwrap();
        giver.join().unwrap();
    });
}

#[test]
fn a_freed_object_is_allocated_after_its_record_is_retired() {
    object(3);
}

/// The freed page's bit is bit `page` of its word of busy bits.
fn pages(page: u64, preemptions: usize) {
    let fixture = Fixture::new(2, 2, Waits::TimeOut, |fixture| {
        let mut tx = fixture.actor(TAKER).begin().unwrap();
        let run = tx.alloc_run(RUN, GROUP_PAGES, None).unwrap();
        tx.finish_run(run);
        tx.commit().unwrap();
    });
    explore(&format!("busy page {page}"), preemptions, move || {
        let geometry = fixture.geometry();
        let half = group::BUSY + page / 32 * WORD;
        watch(&fixture, geometry.bitmap(0), geometry.group_record(0).plus(half));
        let (giver, page) = (fixture.actor(GIVER), geometry.page(page));
        let giver = spawn(move || {
            let mut tx = giver.begin().unwrap();
            tx.free_run(page, 1, RUN).unwrap();
            tx.commit().unwrap();
        });
        let mut tx = fixture.actor(TAKER).begin().unwrap();
        match tx.alloc_run(RUN, 1, None) {
            Ok(run) => {
                assert_eq!(tx.finish_run(run), page);
                tx.commit().unwrap();
            }
            Err(Error::NoSpace { .. } | Error::Again) => drop(tx),
            Err(error) => panic!("{error}"),
        }
        giver.join().unwrap();
    });
}

#[test]
fn freed_pages_are_allocated_after_their_record_is_retired() {
    pages(3, 3);
    pages(40, 2);
}
