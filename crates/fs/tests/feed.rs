//! Who keeps in mind what a follower is told knows the tree.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod feed_support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_format::inode::flag;
use conquest_fs::Error;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::Allocate;
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::How;
use conquest_fs::paths::Path;
use conquest_fs::walk::Base;
use conquest_fs::xattr::Setting;
use conquest_pm::media::{Mapped, OsHost};
use conquest_testkit::files::{OPERATIONS, Op, SimFiles, attach, base, prepare, root_user, shape};
use conquest_testkit::scenario::SimMemory;
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{
    Actor, DyingMemory, Fate, RecordingMemory, Rng, SimHost, World, become_actor,
};
use feed_support::{Cache, Files, store};

const THREADS: u64 = 4;

/// What keeps a tree from falling to pieces.
const MORE: [Op; 10] = [
    Op::Make("a"),
    Op::Make("a"),
    Op::MakeDirectory("d"),
    Op::MakeDirectory("e"),
    Op::MakeDirectory("k"),
    Op::Make("e/f"),
    Op::Make("k/y"),
    Op::Make("k/y"),
    Op::Write("e/f", 20_000, 10),
    Op::Symlink(30, "e/s"),
];

/// Does something at random.
fn operate(files: &Files, rng: &mut Rng) {
    let of = |ops: &[Op], rng: &mut Rng| ops[rng.below(ops.len() as u64) as usize];
    let op = match rng.below(6) {
        0..3 => of(&OPERATIONS, rng),
        3 | 4 => of(&MORE, rng),
        _ => return others(files, rng),
    };
    op.perform(files).unwrap();
}

/// What [`OPERATIONS`] has not.
fn others(files: &Files, rng: &mut Rng) {
    let who = &root_user();
    let base = &Base::new(files.root(), files.root());
    let name = ["a", "e/f", "k/y", "d", "g"][rng.below(5) as usize];
    let path = Path { base, bytes: name.as_bytes() };
    let Ok(file) = files.find(who, path, false) else { return };
    let number = rng.word();
    let done = match number % 8 {
        0 => files.set_flags(who, file, flag::NODUMP & number as u32, Some(number as u32 >> 8)),
        1 => files.set_times(who, file, SetTime::At(number as i64 >> 8), SetTime::Now),
        2 => files.set_owner(who, file, None, Some(number as u32 >> 16)),
        3 => {
            let how = How::from_open((libc::O_TRUNC | libc::O_RDWR) as u32, 0).unwrap();
            files.open_at(who, path, &how).and_then(|open| {
                files.write_next(who, &open, &[7; 300])?;
                files.truncate_through(who, &open, number & 0xFFF)?;
                files.close(&open)
            })
        }
        4 => {
            let how = Allocate::Zeros { keeps_size: true };
            files.allocate(who, file, how, number & 0xFFF, 5000)
        }
        5 => {
            let what = New::Character(number as u32 & 1, 0);
            files.create(who, files.root(), b"g", what, 0o600).map(drop)
        }
        6 => files.rename_at(who, path, Path { base, bytes: b"d/n" }, Renaming::WhiteoutNoReplace),
        _ => {
            let name = b"system.posix_acl_access";
            files.set_attribute(who, file, name, &access_list(number as u16 & 7), Setting::Any)
        }
    };
    match done {
        Ok(()) | Err(Error::Refused(_) | Error::Stale) => {}
        Err(error) => panic!("{error}"),
    }
}

/// An access list in which some user may do this.
fn access_list(permissions: u16) -> Vec<u8> {
    let entries = [(1, 6, u32::MAX), (2, permissions, 9), (4, 4, u32::MAX), (16, 6, u32::MAX)];
    let last = (32, 4, u32::MAX);
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries.into_iter().chain([last]) {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(permissions));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

/// Threads do random operations, round after round, while one follows.
fn try_rounds(rounds: u64, each: u64, listens: bool) -> Cache<Mapped, OsHost> {
    let files = &store();
    prepare(files).unwrap();
    let mut cache = Cache::new(files);
    for round in 0..rounds {
        let left = &AtomicU64::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut rng = Rng::stream(round, thread);
                    for _ in 0..each {
                        operate(files, &mut rng);
                    }
                    left.fetch_sub(1, Ordering::Release);
                });
            }
            while listens && left.load(Ordering::Acquire) != 0 {
                cache.follower.wait(Duration::from_millis(1)).unwrap();
                cache.listen(files);
            }
        });
        cache.listen(files);
        cache.compare(files).unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
    }
    println!("{} notices, {} times some were lost", cache.told, cache.lost);
    cache
}

#[test]
fn a_cache_that_follows_equals_the_tree() {
    let rounds = std::env::var("CONQUEST_ROUNDS").map_or(200, |rounds| rounds.parse().unwrap());
    assert!(try_rounds(rounds, 40, true).told > 20 * rounds);
}

/// A follower that looks seldom loses notices, is told so, and begins anew.
#[test]
fn a_cache_that_has_lost_notices_is_made_anew() {
    assert!(try_rounds(5, 2000, false).lost > 0);
}

struct State {
    world: World,
    files: Vec<SimFiles>,
    cache: Mutex<Cache<SimMemory, SimHost>>,
    number: u64,
}

/// Two simulated processes, of which one may die; the third one follows.
fn try_schedules(runs: u64, dies: bool) {
    let image = base(true).unwrap();
    let geometry = conquest_format::Geometry::new(shape()).unwrap();
    let options = ScheduleOptions {
        actors: 2,
        search: Search::Random { seed: 23, first: 0, runs },
        step_time: Duration::from_micros(20),
        steps: 1_000_000,
        ..ScheduleOptions::default()
    };
    let mut number = 0;
    let setup = || {
        number += 1;
        let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
        let world = World::new(memory.clock());
        let process = |id| attach(DyingMemory::counting(memory.actor(id)), &world, id).unwrap();
        let files = vec![process(1), process(2)];
        let cache = Mutex::new(Cache::new(&files[1]));
        (memory, State { world, files, cache, number })
    };
    let body = |state: &State, id: u32, memory: &Actor| {
        let text = |error: conquest_fs::Error| error.to_string();
        let mut rng = Rng::stream(state.number, u64::from(id));
        let mine;
        let mut files = &state.files[0];
        if id == 0 {
            let world = state.world.clone();
            let fate = Fate::Unwind(Box::new(move || world.kill(0)));
            let last = if dies { 1 + rng.below(600) } else { 0 };
            let memory = DyingMemory::new(memory.clone(), last, fate);
            mine = attach(memory, &state.world, 0).map_err(text)?;
            files = &mine;
        }
        for _ in 0..3 {
            OPERATIONS[rng.below(OPERATIONS.len() as u64) as usize].perform(files).map_err(text)?;
        }
        Ok(())
    };
    let verdict = |state: &State, _: &RecordingMemory| {
        let files = &state.files[1];
        files.core().recover().map_err(|error| error.to_string())?;
        let mut cache = state.cache.lock().unwrap();
        cache.listen(files);
        cache.compare(files)?;
        Ok(cache.told)
    };
    let found = run(&options, setup, body, verdict);
    println!("{found}");
    assert_eq!(found.failed, 0, "{found}");
    assert!(found.outcomes.len() > 5, "{found}");
}

#[test]
fn a_cache_in_another_process_equals_the_tree() {
    try_schedules(500, false);
    try_schedules(500, true);
}

/// A process dies at its stores, one after the other: what it has changed was told, or is told by
/// whoever recovers it.
#[test]
fn whatever_the_dead_have_changed_is_told() {
    let image = base(true).unwrap();
    let geometry = conquest_format::Geometry::new(shape()).unwrap();
    let step = std::env::var("CONQUEST_STEP").map_or(29, |step| step.parse().unwrap());
    let mut deaths = 0;
    for (number, op) in (0..).zip(&OPERATIONS) {
        for store in (1 + number % step..).step_by(step as usize) {
            let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
            let world = World::new(memory.clock());
            let other = attach(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
            let mut cache = Cache::new(&other);
            become_actor(0);
            let victim = world.clone();
            let fate = Fate::Unwind(Box::new(move || victim.kill(0)));
            let fated = DyingMemory::new(memory.actor(0), store, fate);
            let lived = catch_unwind(AssertUnwindSafe(|| {
                op.perform(&attach(fated, &world, 0).unwrap()).unwrap();
            }));
            become_actor(1);
            other.core().recover().unwrap();
            cache.listen(&other);
            cache.compare(&other).unwrap_or_else(|wrong| panic!("{op:?} at {store}: {wrong}"));
            if lived.is_ok() {
                break;
            }
            deaths += 1;
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 100);
}
