//! The change feed: whatever is seen to change was told, in order, whoever dies.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_format::feed::{BATCH_HEADER, BATCH_MAX, RING_WORDS};
use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::volatile::{lane, tagged};
use conquest_format::{Offset, WORD};
use conquest_pm::memory::Memory;
use conquest_pm::{BatchWords, Core, Follower, Heard, Mode, Options, Result, Tx};
use conquest_testkit::scenario::{SimCore, SimMemory, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{
    Actor, DyingMemory, Fate, RecordingMemory, Rng, SimHost, World, become_actor, shelf,
};

/// Things that change: words, each under the lock of its number, that count their changes.
const THINGS: u32 = 3;

fn word(thing: u32) -> Offset {
    STATE_ROOTS.plus(u64::from(thing) * WORD)
}

fn state(core: &SimCore, thing: u32) -> Result<u64> {
    core.read(thing, |view| Ok(view.word(word(thing))))
}

fn process(memory: SimMemory, world: &World, pid: u32) -> Result<SimCore> {
    let attach_patience = Duration::from_secs(1000);
    let options = Options { attach_patience, ..Options::default() };
    Core::attach(memory, world.process(pid), Path::new("simulated"), &shelf::kinds(), options)
}

fn machine() -> (RecordingMemory, World) {
    fresh(Shape { slots: 5, lanes: 4, ..shape() }, false).unwrap()
}

/// Changes `things` in one record, and tells of each with `words` words: which one, and its count
/// in all the others.
fn change(core: &SimCore, things: &[u32], words: usize) -> Result<()> {
    core.run(|tx: &mut Tx<'_, SimMemory, SimHost>| {
        things.iter().try_for_each(|&thing| tx.lock(thing, Mode::Exclusive))?;
        for &thing in things {
            let count = tx.get(word(thing)) + 1;
            tx.set(word(thing), count)?;
            let mut notice = vec![count; words];
            notice[0] = thing.into();
            tx.tell(&notice)?;
        }
        Ok(())
    })
}

/// What was told.
struct Ear {
    follower: Follower<SimMemory, SimHost>,
    /// The latest count that is known of each thing.
    counts: [u64; THINGS as usize],
    /// What was seen of each when notices had been lost.
    seen: [u64; THINGS as usize],
    words: usize,
    /// Whether a process may die and leave notices of what has not happened.
    may_lie: bool,
    lost: u64,
    heard: u64,
    /// Batches that name no process.
    nobodys: u64,
}

impl Ear {
    fn new(core: &SimCore, words: usize, may_lie: bool) -> Ear {
        let (follower, counts) = (core.follow(), [0; THINGS as usize]);
        let mut ear =
            Ear { follower, counts, seen: counts, words, may_lie, lost: 0, heard: 0, nobodys: 0 };
        ear.look_anew().unwrap();
        ear
    }

    /// Forgets what was told, and looks.
    fn look_anew(&mut self) -> Result<()> {
        for (thing, seen) in (0..).zip(&mut self.seen) {
            *seen = state(self.follower.core(), thing)?;
        }
        self.counts = self.seen;
        Ok(())
    }

    /// Hears all that there is to hear.
    fn listen(&mut self) -> std::result::Result<(), String> {
        let mut out: BatchWords = [0; (BATCH_MAX - BATCH_HEADER) as usize];
        loop {
            match self.follower.next(&mut out).map_err(|error| error.to_string())? {
                Heard::Nothing => return Ok(()),
                Heard::Lost(_) => {
                    self.lost += 1;
                    self.look_anew().map_err(|error| error.to_string())?;
                }
                Heard::Batch(batch) => {
                    self.heard += 1;
                    self.nobodys += u64::from(batch.slot.is_none());
                    for notice in out[..batch.words].chunks(self.words) {
                        self.note(notice)?;
                    }
                }
            }
        }
    }

    fn note(&mut self, notice: &[u64]) -> std::result::Result<(), String> {
        let [thing, count, ..] = *notice else { return Err(format!("cut off: {notice:?}")) };
        if notice.len() != self.words || notice[1..].iter().any(|&other| other != count) {
            return Err(format!("torn: {notice:?}"));
        }
        let last = &mut self.counts[thing as usize];
        if count <= self.seen[thing as usize] {
            // From before it looked.
            return Ok(());
        }
        if count != *last + 1 && !(self.may_lie && count == *last) {
            return Err(format!("{count} of {thing} comes after {last}"));
        }
        *last = count;
        Ok(())
    }

    /// Whoever sees a change has been told of it, or can be.
    fn look(&mut self, core: &SimCore, thing: u32) -> std::result::Result<(), String> {
        let seen = state(core, thing).map_err(|error| error.to_string())?;
        self.listen()?;
        let told = self.counts[thing as usize];
        if told >= seen { Ok(()) } else { Err(format!("{seen} of {thing}, but only {told} told")) }
    }

    /// Nobody is at work any more.
    fn end(&mut self, core: &SimCore) -> std::result::Result<u64, String> {
        core.recover().map_err(|error| error.to_string())?;
        self.listen()?;
        let mut digest = self.lost.min(1);
        for thing in 0..THINGS {
            let count = state(core, thing).map_err(|error| error.to_string())?;
            let told = self.counts[thing as usize];
            let most = count + u64::from(self.may_lie);
            if told < count || told > most {
                return Err(format!("{count} of {thing}, but {told} told"));
            }
            digest = digest * 101 + count;
        }
        Ok(digest)
    }
}

struct Run {
    world: World,
    cores: Vec<SimCore>,
    /// Follows from the beginning, and hears in the end.
    witness: Mutex<Ear>,
    seed: u64,
}

/// Two processes change things, a third one follows.
fn try_all(runs: u64, weak_memory: bool, dies: bool, words: usize) {
    let options = ScheduleOptions {
        actors: 3,
        search: Search::Random { seed: 5, first: 0, runs },
        weak_memory,
        persistent_loads: true,
        step_time: Duration::from_micros(20),
        steps: 1_000_000,
        ..ScheduleOptions::default()
    };
    let (lost, heard) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut seed = 0;
    let setup = || {
        seed += 1;
        let (memory, world) = machine();
        let mut cores = Vec::new();
        for id in 0..3 {
            cores.push(process(DyingMemory::counting(memory.actor(id)), &world, id).unwrap());
        }
        let witness = process(DyingMemory::counting(memory.actor(7)), &world, 7).unwrap();
        let witness = Mutex::new(Ear::new(&witness, words, dies));
        world.order(&memory);
        (memory, Run { world, cores, witness, seed })
    };
    let body = |run: &Run, id: u32, memory: &Actor| {
        let mut core = Arc::clone(&run.cores[id as usize]);
        let mut rng = Rng::stream(run.seed, u64::from(id));
        if dies && id == 0 {
            let world = run.world.clone();
            let store = 1 + rng.below(200);
            let fate = Fate::Unwind(Box::new(move || world.kill(8)));
            let memory = DyingMemory::new(memory.clone(), store, fate);
            core = process(memory, &run.world, 8).map_err(|error| error.to_string())?;
        }
        let core = &core;
        if id < 2 {
            // Some of many words each overflow a ring.
            for _ in 0..if words > 100 { 14 } else { 4 } {
                let one = rng.below(THINGS.into()) as u32;
                let other = rng.below(THINGS.into()) as u32;
                let things = [one.min(other), one.max(other)];
                let things = if one == other { &things[..1] } else { &things[..] };
                change(core, things, words).map_err(|error| error.to_string())?;
            }
            return Ok(());
        }
        let mut ear = Ear::new(core, words, dies);
        for _ in 0..if words > 100 { 400 } else { 6 } {
            ear.look(core, rng.below(THINGS.into()) as u32)?;
        }
        lost.fetch_add(ear.lost, Ordering::Relaxed);
        heard.fetch_add(ear.heard, Ordering::Relaxed);
        Ok(())
    };
    let verdict = |run: &Run, _: &RecordingMemory| {
        let mut ear = run.witness.lock().unwrap();
        let core = Arc::clone(ear.follower.core());
        let digest = ear.end(&core);
        lost.fetch_add(ear.lost, Ordering::Relaxed);
        digest
    };
    let found = run(&options, setup, body, verdict);
    let (lost, heard) = (lost.into_inner(), heard.into_inner());
    println!("{found}; {heard} batches were heard meanwhile, {lost} times some were lost");
    assert_eq!(found.failed, 0, "{found}");
    assert!(found.outcomes.len() > 1 && heard > runs, "{found}");
    assert_eq!(lost > 0, words > 100);
}

#[test]
fn what_is_seen_to_change_was_told_in_order() {
    try_all(1000, false, false, 2);
}

#[test]
fn what_is_seen_to_change_was_told_where_memory_is_weak() {
    try_all(1000, true, false, 2);
}

#[test]
fn what_the_dead_have_changed_is_told() {
    try_all(1000, false, true, 2);
    try_all(500, true, true, 2);
}

/// Five batches fill a ring: followers are overtaken while they read.
#[test]
fn what_is_overwritten_is_lost_and_never_torn() {
    try_all(60, false, false, 250);
    try_all(60, true, false, 250);
}

/// One process dies before each of its stores in turn. What is there in the end was told, and what
/// was told of that has not happened is nobody's own.
#[test]
fn a_change_is_told_before_whichever_store_its_process_dies() {
    let mut store = 0;
    let mut outcomes = [0; 3];
    loop {
        store += 1;
        let (memory, world) = machine();
        let witness = process(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
        let mut ear = Ear::new(&witness, 3, true);
        become_actor(0);
        let victim = world.clone();
        let fate = Fate::Unwind(Box::new(move || victim.kill(0)));
        let fated = DyingMemory::new(memory.actor(0), store, fate);
        let lived = catch_unwind(AssertUnwindSafe(|| {
            let core = process(fated, &world, 0).unwrap();
            change(&core, &[0, 2], 3).unwrap();
            change(&core, &[1], 3).unwrap();
        }));
        become_actor(1);
        ear.end(&witness).unwrap();
        let counts = [0, 1, 2].map(|thing| state(&witness, thing).unwrap());
        assert_eq!(counts[0], counts[2]);
        assert!(ear.heard - ear.nobodys <= counts[0] + counts[1]);
        outcomes[(counts[0] + counts[1]) as usize] += 1;
        if lived.is_ok() {
            assert_eq!((counts, ear.heard), ([1; 3], 2));
            break;
        }
    }
    // Something dies before, between and after the two.
    assert!(outcomes.iter().all(|&count| count > 0) && store > 50, "{outcomes:?}, {store}");
}

#[test]
fn a_sleeping_follower_is_woken() {
    let options = ScheduleOptions {
        search: Search::Random { seed: 3, first: 0, runs: 500 },
        persistent_loads: true,
        ..ScheduleOptions::default()
    };
    let setup = || {
        let (memory, world) = machine();
        let core = |id| process(DyingMemory::counting(memory.actor(id)), &world, id).unwrap();
        let cores = vec![core(0), core(1)];
        let witness = Mutex::new(Ear::new(&cores[1], 2, false));
        (memory, Run { world, cores, witness, seed: 0 })
    };
    let body = |run: &Run, id: u32, _: &Actor| {
        let core = &run.cores[id as usize];
        let text = |error: conquest_pm::Error| error.to_string();
        if id == 0 {
            return (0..3).try_for_each(|_| change(core, &[0], 2)).map_err(text);
        }
        let mut ear = run.witness.lock().unwrap();
        while ear.counts[0] != 3 {
            if !ear.follower.wait(Duration::from_secs(1 << 40)).map_err(text)? {
                return Err("it has not waited long enough".to_owned());
            }
            ear.listen()?;
        }
        Ok(())
    };
    let found = run(&options, setup, body, |_, _| Ok(0));
    println!("{found}");
    assert_eq!((found.failed, found.timeouts), (0, 0), "{found}");
}

#[test]
fn patience_ends() {
    let (memory, world) = machine();
    let core = process(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
    let ear = Ear::new(&core, 2, false);
    assert!(!ear.follower.wait(Duration::ZERO).unwrap());
    change(&core, &[0], 2).unwrap();
    assert!(ear.follower.wait(Duration::ZERO).unwrap());
}

/// A transaction that is dropped, or has changed nothing, tells nothing.
#[test]
fn what_does_not_happen_is_not_told() {
    let (memory, world) = machine();
    let core = process(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
    let mut ear = Ear::new(&core, 2, false);
    let mut tx = core.begin().unwrap();
    tx.lock(0, Mode::Exclusive).unwrap();
    tx.set(word(0), 9).unwrap();
    tx.tell(&[0, 9]).unwrap();
    drop(tx);
    let mut tx = core.begin().unwrap();
    tx.tell(&[0, 9]).unwrap();
    tx.commit().unwrap();
    change(&core, &[0], 2).unwrap();
    ear.end(&core).unwrap();
    assert_eq!(ear.heard, 1);
    let mut tx = core.begin().unwrap();
    let all = vec![0; (BATCH_MAX - BATCH_HEADER) as usize];
    tx.tell(&all).unwrap();
    assert!(matches!(tx.tell(&[0]), Err(conquest_pm::Error::TooLarge { wanted: 513, .. })));
}

/// Whatever stands in the words of a lane's feed, a follower goes on, and says what is wrong.
#[test]
fn a_damaged_feed_is_an_error_or_lost() {
    let record = [lane::FEED, lane::FEED_LIMIT, lane::FEED_PREPARED, lane::FEED_VERSION];
    let values = [0, 1, 40, 600, 1 << 31, 1 << 47, 1 << 48, u64::MAX];
    let (mut errors, mut lost) = (0, 0);
    for place in 0..8_u64 {
        for value in values {
            let (memory, world) = machine();
            let core = process(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
            let mut ear = Ear::new(&core, 2, true);
            change(&core, &[0], 2).unwrap();
            let geometry = core.geometry();
            let is_used = |&lane: &u32| {
                let at = geometry.lane_record(lane).plus(lane::FEED);
                core.memory().load(at, Ordering::Relaxed) != 0
            };
            let used = (0..4).find(is_used).unwrap();
            let at = match record.get(place as usize) {
                Some(&word) => geometry.lane_record(used).plus(word),
                None => geometry.ring_word(used, place - record.len() as u64),
            };
            core.memory().store(at, value, Ordering::Relaxed);
            let mut out: BatchWords = [0; (BATCH_MAX - BATCH_HEADER) as usize];
            for _ in 0..3 {
                loop {
                    match ear.follower.next(&mut out) {
                        Ok(Heard::Nothing) => break,
                        Ok(Heard::Lost(_)) => lost += 1,
                        Ok(Heard::Batch(_)) => {}
                        Err(error) => {
                            assert!(error.to_string().contains("change feed"), "{error}");
                            errors += 1;
                        }
                    }
                }
                change(&core, &[0, 1], 2).unwrap();
            }
            // Nothing is wrong any more.
            ear.listen().ok();
            ear.look_anew().unwrap();
            for _ in 0..3 {
                change(&core, &[1], 2).unwrap();
                ear.look(&core, 1).unwrap();
                assert_eq!(ear.counts[1], state(&core, 1).unwrap(), "{place} {value}");
            }
        }
    }
    assert!(errors > 5 && lost > 5, "{errors} {lost}");
}

/// Of what a dead process has prepared nothing is known: nobody misses that.
#[test]
fn an_impossible_batch_of_the_dead_is_lost() {
    let (memory, world) = machine();
    let witness = process(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
    let core = process(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    let mut ear = Ear::new(&witness, 2, false);
    change(&core, &[0], 2).unwrap();
    ear.look(&witness, 0).unwrap();
    let geometry = core.geometry();
    let owner = conquest_format::volatile::owner(1, 1);
    for number in 0..4 {
        let at = geometry.lane_record(number);
        let feed = core.memory().load(at.plus(lane::FEED), Ordering::Relaxed);
        if feed != 0 {
            let tag = (core.memory().load(geometry.slot(0), Ordering::Relaxed) >> 32) as u32;
            let far = feed as u32 + RING_WORDS as u32;
            core.memory().store(at.plus(lane::FEED_PREPARED), tagged(tag, far), Ordering::Relaxed);
            core.memory().store(at.plus(lane::OWNER), tagged(tag, owner), Ordering::Relaxed);
        }
    }
    world.kill(0);
    witness.recover().unwrap();
    ear.listen().unwrap();
    assert_eq!(ear.lost, 1);
    change(&witness, &[0], 2).unwrap();
    ear.look(&witness, 0).unwrap();
    assert_eq!(ear.counts[0], 2);
}

/// What the dead has changed comes before what others then change of it, also if the versions of
/// some of its locks had stayed behind.
#[test]
fn what_comes_after_the_dead_is_told_after_it() {
    let mut is_over = false;
    let mut store = 0;
    while !is_over {
        store += 1;
        let (memory, world) = machine();
        let core = |id| process(DyingMemory::counting(memory.actor(id)), &world, id).unwrap();
        let (busy, witness, next) = (core(1), core(2), core(3));
        (0..20).for_each(|_| change(&busy, &[0], 2).unwrap());
        let mut ear = Ear::new(&witness, 2, true);
        become_actor(0);
        let victim = world.clone();
        let fate = Fate::Unwind(Box::new(move || victim.kill(0)));
        let fated = DyingMemory::new(memory.actor(0), store, fate);
        let lived = catch_unwind(AssertUnwindSafe(|| {
            change(&process(fated, &world, 0).unwrap(), &[0, 2], 2).unwrap();
        }));
        is_over = lived.is_ok();
        become_actor(2);
        witness.recover().unwrap();
        // The lane of the dead is not to be used again.
        let _lane = witness.begin().unwrap();
        become_actor(3);
        change(&next, &[2], 2).unwrap();
        become_actor(2);
        ear.listen().unwrap();
        assert_eq!(ear.counts[2], state(&witness, 2).unwrap());
    }
}
