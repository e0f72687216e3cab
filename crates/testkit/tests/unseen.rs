//! What is stored where nobody looks is durable before it is seen; and records of one transaction
//! that follow each other.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::kind::Kind;
use conquest_format::{Geometry, Offset, PAGE};
use conquest_pm::memory::Memory;
use conquest_pm::{Mode, Place, Result};
use conquest_testkit::explore;
use conquest_testkit::scenario::{SimCore, attach, fresh, shape};
use conquest_testkit::{DyingMemory, Image, Options, RecordingMemory, World};

/// How many bytes of the run count.
const LEN: Offset = STATE_ROOTS;
const OTHER: Offset = STATE_ROOTS.plus(8);
/// What the run holds where nobody looks.
const JUNK: u8 = 0xEE;

fn kind() -> Kind {
    Kind::new(2).unwrap()
}

fn geometry() -> Geometry {
    Geometry::new(shape()).unwrap()
}

fn process(memory: &RecordingMemory, world: &World, pid: u32) -> SimCore {
    attach(DyingMemory::counting(memory.actor(pid)), world, pid).unwrap()
}

/// A region with one run, of a page of junk.
fn prepared() -> (Arc<Image>, Offset) {
    let (memory, world) = fresh(shape(), false).unwrap();
    let core = process(&memory, &world, 1);
    let made = core.run(|tx| {
        let mut run = tx.alloc_run(kind(), 1, None)?;
        tx.append(&mut run, &[JUNK; PAGE as usize])?;
        Ok(tx.finish_run(run))
    });
    core.detach().unwrap();
    (memory.snapshot(), made.unwrap())
}

/// Grows what counts of the run by `len` bytes: letters in a row, or zeros.
fn grow(core: &SimCore, at: Offset, len: u64, letter: Option<u8>) -> Result<()> {
    core.run(|tx| {
        tx.lock(0, Mode::Exclusive)?;
        let place: Place = tx.core().resolve_run(at, 1, kind())?;
        let old = tx.get(LEN);
        match letter {
            Some(letter) => tx.put_unseen(place, old, &vec![letter; len as usize])?,
            None => tx.zero_unseen(place, old, len)?,
        }
        tx.set(LEN, old + len)
    })
}

/// Few bytes, which the checksum covers, some that end inside a word, and many.
const GROWTH: [(u64, Option<u8>); 5] =
    [(24, Some(b'a')), (13, Some(b'b')), (40, None), (1500, Some(b'c')), (1100, None)];

#[test]
fn what_is_stored_unseen_is_durable_before_it_is_seen() {
    let (image, at) = prepared();
    let memory = RecordingMemory::new(image, geometry().volatile(), true);
    let core = process(&memory, &World::new(memory.clock()), 1);
    for (len, letter) in GROWTH {
        grow(&core, at, len, letter).unwrap();
    }
    core.detach().unwrap();
    assert_eq!(memory.violation(), None);
    let letters = GROWTH
        .iter()
        .flat_map(|(len, letter)| std::iter::repeat_n(letter.unwrap_or(0), *len as usize));
    let whole: Vec<u8> = letters.collect();
    let options = Options { states: 30_000, depth: 0, ..Options::default() };
    let found = explore(&memory.recording(), &options, |memory, _| {
        let core = process(memory, &World::new(memory.clock()), 2);
        let len = core.memory().load(LEN, Ordering::Relaxed) as usize;
        let mut bytes = vec![0; len];
        core.memory().read(at, &mut bytes);
        if whole.get(..len) == Some(bytes.as_slice()) {
            return Ok(len as u64);
        }
        let wrong = bytes.iter().zip(&whole).position(|(found, expected)| found != expected);
        Err(format!("of {len} bytes, number {wrong:?} is wrong"))
    });
    println!("{found}");
    assert_eq!((found.failed, found.outcomes.len()), (0, GROWTH.len() + 1), "{found}");
}

#[test]
fn nothing_is_stored_past_an_object() {
    let (image, at) = prepared();
    let memory = RecordingMemory::new(image, geometry().volatile(), false);
    let core = process(&memory, &World::new(memory.clock()), 1);
    let mut tx = core.begin().unwrap();
    let place = core.resolve_run(at, 1, kind()).unwrap();
    assert!(tx.put_unseen(place, PAGE - 3, b"four").is_err());
    assert!(tx.zero_unseen(place, 1, PAGE).is_err());
    assert!(tx.zero_unseen(place, u64::MAX, 2).is_err());
    tx.put_unseen(place, PAGE - 4, b"four").unwrap();
}

#[test]
fn a_part_has_happened_and_the_locks_stay() {
    let (memory, world) = fresh(Shape { locks: 4, ..shape() }, false).unwrap();
    let [first, second] = [1, 2].map(|pid| process(&memory, &world, pid));
    let seen = || {
        let words = second.try_read(1, |view| Ok((view.word(LEN), view.word(OTHER))));
        words.unwrap().unwrap()
    };
    let mut tx = first.begin().unwrap();
    tx.lock(1, Mode::Exclusive).unwrap();
    let room = tx.room();
    tx.set(LEN, 1).unwrap();
    assert_eq!((tx.room(), seen()), (room - 1, (0, 0)));
    tx.commit_part().unwrap();
    assert_eq!((tx.room(), seen()), (room, (1, 0)));
    let at = first.geometry().lock(1);
    assert_ne!(first.memory().load(at, Ordering::SeqCst) & 0xFFFF, 0, "the lock");
    tx.set(OTHER, 1).unwrap();
    tx.commit_part().unwrap();
    tx.set(LEN, 7).unwrap();
    drop(tx);
    assert_eq!(seen(), (1, 1));
    second.run(|tx| tx.lock(1, Mode::Exclusive)).unwrap();
}
