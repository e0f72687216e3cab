//! Models of the lanes: who owns one, and what others see of its commit.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod loom_support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use conquest_format::Offset;
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::journal;
use conquest_format::volatile::{head, lane};
use conquest_pm::Mode;
use conquest_pm::memory::Memory;
use loom_support::*;

const FIRST: Offset = STATE_ROOTS;
const SECOND: Offset = STATE_ROOTS.plus(8);

/// Sets both words in one transaction.
fn set(core: &ModelCore, value: u64) {
    let mut tx = core.begin().unwrap();
    tx.lock(0, Mode::Exclusive).unwrap();
    tx.set(FIRST, value).unwrap();
    tx.set(SECOND, value).unwrap();
    tx.commit().unwrap();
}

/// What one optimistic read sees, word by word or as bytes.
fn seen(core: &ModelCore, by_words: bool) -> u64 {
    let pair = core.read(0, |view| {
        if by_words {
            return Ok((view.word(FIRST), view.word(SECOND)));
        }
        let mut bytes = [0; 16];
        view.bytes(FIRST, &mut bytes);
        let (first, second) = bytes.split_at(8);
        Ok((u64::from(first[0]), u64::from(second[0])))
    });
    let (first, second) = pair.unwrap();
    assert_eq!(first, second, "torn");
    first
}

fn reading(by_words: bool, preemptions: usize) {
    let fixture = Fixture::new(2, 2, Waits::TimeOut, |_| ());
    explore(&format!("read, words: {by_words}"), preemptions, move || {
        let mut words = fixture.lock_words(0).to_vec();
        words.extend([FIRST, SECOND]);
        words.extend(fixture.lane_words(lane::OWNER));
        words.extend(fixture.lane_words(lane::HELD));
        fixture.start(&words);
        let writer = fixture.actor(1);
        let writer = spawn(move || set(writer, 1));
        let reader = fixture.actor(0);
        let first = seen(reader, by_words);
        let mut tx = reader.begin().unwrap();
        tx.lock(0, Mode::Exclusive).unwrap();
        let memory = reader.memory();
        let pair = [FIRST, SECOND].map(|at| memory.load(at, Relaxed));
        assert!(pair == [0, 0] || pair == [1, 1], "{pair:?}");
        assert!(pair[0] >= first, "a committed value vanished");
        drop(tx);
        writer.join().unwrap();
        assert_eq!(seen(reader, by_words), 1);
    });
}

#[test]
fn a_read_of_words_is_never_torn() {
    reading(true, 2);
}

#[test]
fn a_read_of_bytes_is_never_torn() {
    reading(false, 1);
}

/// One lane, several who want it. Wake-ups of the queue may be lost: its sleeps are short.
fn one_lane(actors: u32, preemptions: usize) {
    let fixture = Fixture::new(actors, 1, Waits::TimeOut, |_| ());
    explore(&format!("one lane, {actors} actors"), preemptions, move || {
        let geometry = fixture.geometry();
        let mut words = fixture.lane_words(lane::OWNER);
        let counters = [head::QUEUE_NEXT, head::QUEUE_SERVING, head::BELL];
        words.extend(counters.map(|word| geometry.head(word)));
        words.extend((0..actors).map(|ticket| geometry.queue_cell(ticket)));
        words.push(geometry.lane(0).plus(journal::COMMIT));
        fixture.start(&words);
        let guard = Guard::new();
        let work = |core: &'static ModelCore, guard: Arc<Guard>| {
            move || {
                let mut tx = core.begin().unwrap();
                guard.change();
                tx.set(FIRST, 1).unwrap();
                tx.commit().unwrap();
            }
        };
        let others = 1..actors;
        let others: Vec<_> =
            others.map(|actor| spawn(work(fixture.actor(actor), Arc::clone(&guard)))).collect();
        work(fixture.actor(0), guard)();
        for other in others {
            other.join().unwrap();
        }
        // Whoever has gone has left nothing behind: the next one need not wait.
        let owners = fixture.lane_words(lane::OWNER);
        let memory = fixture.actor(0).memory();
        assert_eq!(memory.load(owners[0], Relaxed) as u32, 0);
        let counters = [head::QUEUE_NEXT, head::QUEUE_SERVING];
        let [next, serving] =
            counters.map(|word| memory.load(fixture.geometry().head(word), Relaxed) as u32);
        assert_eq!(next, serving, "a ticket was left");
    });
}

#[test]
fn a_lane_has_one_owner() {
    one_lane(2, 3);
}
