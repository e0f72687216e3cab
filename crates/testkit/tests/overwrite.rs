//! Bytes that are changed in place, from image pages: they change as a whole, whoever dies, whether
//! the power fails, and whoever looks meanwhile.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panics")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::kind::Kind;
use conquest_format::{Geometry, Offset, PAGE};
use conquest_pm::{Error, Mode, Result};
use conquest_testkit::scenario::{SimCore, attach, fresh};
use conquest_testkit::{DyingMemory, Fate, Image, Options, RecordingMemory, World, explore};

/// How often the run was overwritten.
const ROUND: Offset = STATE_ROOTS;
/// The lock over it.
const LOCK: u32 = 1;
const SHAPE: Shape = Shape { max_groups: 1, lanes: 4, slots: 4, locks: 4, chunks: 2, log: 0 };
/// Of the stores of a recovery, one in so many is looked at after each death.
const STEP: u64 = 11;
/// Bytes that are overwritten in each round, of a run of two pages: parts of words, more than a
/// checksum covers, a whole page, parts of both pages.
const ROUNDS: [&[(u64, u64)]; 6] = [
    &[(3, 20)],
    &[(64, 100)],
    &[(5, 1501)],
    &[(0, PAGE)],
    &[(PAGE - 700, 1900)],
    &[(8, 1000), (PAGE + 1, 3000)],
];

fn kind() -> Kind {
    Kind::new(2).unwrap()
}

fn geometry() -> Geometry {
    Geometry::new(SHAPE).unwrap()
}

fn process(memory: &RecordingMemory, world: &World, pid: u32) -> SimCore {
    attach(DyingMemory::counting(memory.actor(pid)), world, pid).unwrap()
}

/// The run after so many rounds.
fn expected(rounds: u64) -> Vec<u8> {
    let mut bytes = vec![b'.'; 2 * PAGE as usize];
    for (round, ranges) in (1..=rounds).zip(ROUNDS.into_iter().cycle()) {
        for &(at, len) in ranges {
            bytes[at as usize..(at + len) as usize].fill(b'a' + round as u8);
        }
    }
    bytes
}

/// A region with one run after `rounds` rounds.
fn prepared(rounds: u64) -> (Arc<Image>, Offset) {
    let (memory, world) = fresh(SHAPE, false).unwrap();
    let core = process(&memory, &world, 1);
    let made = core.run(|tx| {
        let mut run = tx.alloc_run(kind(), 2, None)?;
        tx.append(&mut run, &expected(0))?;
        Ok(tx.finish_run(run))
    });
    let at = made.unwrap();
    (0..rounds).for_each(|_| overwrite(&core, at).unwrap());
    core.detach().unwrap();
    (memory.snapshot(), at)
}

/// Does the next round.
fn overwrite(core: &SimCore, at: Offset) -> Result<()> {
    core.run(|tx| {
        tx.lock(LOCK, Mode::Exclusive)?;
        let run = tx.core().resolve_run(at, 2, kind())?;
        let done = tx.get(ROUND);
        for &(start, len) in ROUNDS[done as usize % ROUNDS.len()] {
            let place = run.part(start, len).unwrap();
            tx.overwrite(place, &vec![b'b' + done as u8; len as usize])?;
        }
        tx.set(ROUND, done + 1)
    })
}

/// What was read: rounds, nothing if that was not possible, or what was wrong.
type Seen = std::result::Result<Option<u64>, String>;

/// Reads the run, without locks.
fn look(core: &SimCore, at: Offset) -> Seen {
    let mut bytes = vec![0; 2 * PAGE as usize];
    let seen = core.try_read(LOCK, |view| {
        view.bytes(at, &mut bytes);
        Ok(view.word(ROUND))
    });
    let Some(rounds) = seen else { return Ok(None) };
    let rounds = rounds.unwrap();
    let wrong = bytes.iter().zip(expected(rounds)).position(|(found, wanted)| *found != wanted);
    match wrong {
        None => Ok(Some(rounds)),
        Some(place) => Err(format!("after {rounds} rounds byte {place} is {}", bytes[place])),
    }
}

#[test]
fn bytes_are_old_or_new_after_each_crash() {
    for rounds in [0, 3] {
        let (image, at) = prepared(rounds);
        let memory = RecordingMemory::new(image, geometry().volatile(), true);
        let core = process(&memory, &World::new(memory.clock()), 1);
        (0..3).for_each(|_| overwrite(&core, at).unwrap());
        core.detach().unwrap();
        assert_eq!(memory.violation(), None);
        let options =
            Options { states: 20_000, inner_states: 4000, depth: 1, ..Options::default() };
        let found = explore(&memory.recording(), &options, |memory, _| {
            let core = process(memory, &World::new(memory.clock()), 2);
            look(&core, at).map(|rounds| rounds.unwrap_or(u64::MAX))
        });
        println!("{found}");
        assert_eq!((found.failed, found.outcomes.len()), (0, 4), "{found}");
    }
}

/// A process that looks, at store number `store` of another one, what it can read there.
struct Watch {
    memory: RecordingMemory,
    world: World,
    reader: Arc<SimCore>,
    at: Offset,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Watch {
    fn new(image: &Arc<Image>, at: Offset) -> Watch {
        let memory = RecordingMemory::new(Arc::clone(image), geometry().volatile(), false);
        let world = World::new(memory.clock());
        let reader = Arc::new(process(&memory, &world, 3));
        Watch { memory, world, reader, at, seen: Arc::default() }
    }

    fn look_at(&self, store: u64, pid: u32) -> SimCore {
        let (reader, at, seen) = (Arc::clone(&self.reader), self.at, Arc::clone(&self.seen));
        let look = Box::new(move || seen.lock().unwrap().push(look(&reader, at)));
        let memory = DyingMemory::new(self.memory.actor(pid), store, Fate::Call(look));
        attach(memory, &self.world, pid).unwrap()
    }

    /// Whether a process could do the next round, which else dies before store number `store`.
    fn lives(&self, store: u64) -> bool {
        let world = self.world.clone();
        let fate = Fate::Unwind(Box::new(move || world.kill(1)));
        catch_unwind(AssertUnwindSafe(|| {
            let memory = DyingMemory::new(self.memory.actor(1), store, fate);
            overwrite(&attach(memory, &self.world, 1).unwrap(), self.at).unwrap();
        }))
        .is_ok()
    }

    /// What was seen: nothing, or one state or the other of round `round`.
    fn judge(&self, round: u64, what: &str) -> [u64; 3] {
        let mut counts = [0; 3];
        let last = look(&self.reader, self.at);
        for seen in self.seen.lock().unwrap().iter().chain([&last]) {
            let seen = seen.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
            let place = seen.map_or(2, |rounds| rounds - round);
            counts[place as usize] += 1;
        }
        counts
    }
}

fn add(sum: &mut [u64; 3], more: [u64; 3]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

#[test]
fn readers_see_old_or_new_bytes_whoever_stores_meanwhile() {
    let mut counts = [0; 3];
    for round in 0..ROUNDS.len() as u64 {
        let (image, at) = prepared(round);
        for store in 1.. {
            let watch = Watch::new(&image, at);
            let writer = watch.look_at(store, 1);
            overwrite(&writer, at).unwrap();
            add(&mut counts, watch.judge(round, &format!("round {round}, store {store}")));
            if writer.memory().stores() < store {
                break;
            }
        }
    }
    println!("{counts:?} old, new and unreadable");
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

#[test]
fn readers_see_old_or_new_bytes_while_a_death_is_recovered() {
    let mut counts = [0; 3];
    for round in 0..ROUNDS.len() as u64 {
        let (image, at) = prepared(round);
        for death in 1.. {
            // Another store of the recovery after each death.
            for store in (1 + death % STEP..).step_by(STEP as usize) {
                let watch = Watch::new(&image, at);
                if watch.lives(death) {
                    break;
                }
                let survivor = watch.look_at(store, 2);
                survivor.recover().unwrap();
                let what = format!("round {round}, death {death}, store {store}");
                add(&mut counts, watch.judge(round, &what));
                overwrite(&survivor, at).unwrap();
                look(&watch.reader, at).unwrap();
                if survivor.memory().stores() < store {
                    break;
                }
            }
            if Watch::new(&image, at).lives(death) {
                break;
            }
        }
    }
    println!("{counts:?} old, new and unreadable");
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

#[test]
fn what_is_too_much_is_refused_and_nothing_is_done() {
    let (image, at) = prepared(0);
    let memory = RecordingMemory::new(image, geometry().volatile(), false);
    let core = process(&memory, &World::new(memory.clock()), 1);
    let mut tx = core.begin().unwrap();
    tx.lock(LOCK, Mode::Exclusive).unwrap();
    let run = core.resolve_run(at, 2, kind()).unwrap();
    let past = run.part(2 * PAGE - 3, 3).unwrap();
    assert!(matches!(tx.overwrite(past, b"four"), Err(Error::TooLarge { .. })));
    tx.overwrite(run.part(0, PAGE).unwrap(), &[1; PAGE as usize]).unwrap();
    let more = run.part(PAGE, 200).unwrap();
    assert!(matches!(tx.overwrite(more, &[1; 200]), Err(Error::TooLarge { .. })));
    drop(tx);
    assert_eq!(look(&core, at), Ok(Some(0)));
}

#[test]
fn what_is_unstaged_does_not_happen_and_what_was_staged_before_does() {
    let (image, at) = prepared(0);
    let memory = RecordingMemory::new(image, geometry().volatile(), true);
    let core = process(&memory, &World::new(memory.clock()), 1);
    let used = core.pages_used();
    let mut tx = core.begin().unwrap();
    tx.lock(LOCK, Mode::Exclusive).unwrap();
    let run = core.resolve_run(at, 2, kind()).unwrap();
    tx.overwrite(run.part(3, 20).unwrap(), &[b'b'; 20]).unwrap();
    tx.set(ROUND, 1).unwrap();
    let staged = tx.staged();
    tx.overwrite(run.part(0, PAGE).unwrap(), &[b'x'; PAGE as usize]).unwrap();
    tx.set(ROUND, 9).unwrap();
    let fresh = tx.alloc_run(kind(), 3, None).unwrap();
    tx.finish_run(fresh);
    tx.unstage(&staged);
    assert_eq!(tx.get(ROUND), 1);
    tx.commit().unwrap();
    assert_eq!((look(&core, at), core.pages_used()), (Ok(Some(1)), used));
    // What had been allocated is free.
    let mut tx = core.begin().unwrap();
    let _ = tx.alloc_run(kind(), 500, None).unwrap();
}
