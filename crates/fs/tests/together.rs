//! Several processes on one directory, interleaved at every store, on memory that orders no more
//! than it was asked to. Each reads between its changes, with and without the lock; in every third
//! run one dies on the way.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use conquest_format::Offset;
use conquest_fs::Reader;
use conquest_fs::dir::{FileType, Position};
use conquest_pm::Mode;
use conquest_pm::memory::Memory;
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{Actor, DyingMemory, Fate, Image, RecordingMemory, Rng, World};
use support::*;

type Model = BTreeMap<Vec<u8>, Offset>;

const MASK: u64 = 0xF << 60;
/// Names that stay, on the verge of a split.
const STAYING: u64 = 13;
const RUNS: u64 = 500;

/// Names of `actor`: only it changes them.
fn own_name(actor: u32, number: u64) -> Vec<u8> {
    long_name(1000 * u64::from(actor + 1) + number)
}

fn script(seed: u64, actor: u32) -> Vec<Op> {
    let mut rng = Rng::stream(seed, u64::from(actor));
    let name = |rng: &mut Rng| own_name(actor, rng.below(5));
    let op = |number| match rng.below(8) {
        0..=3 => Op::Insert(name(&mut rng), inode(number), FileType::Regular),
        4..=5 => Op::Remove(name(&mut rng)),
        6 => Op::Replace(name(&mut rng), inode(number), FileType::Directory),
        _ => Op::Rename(name(&mut rng), name(&mut rng)),
    };
    (100..106).map(op).collect()
}

/// A listing, four entries at a time, each time under another version of the directory: whether it
/// has what stays and what is the actor's, once each.
fn look(core: &SimCore, shared: bool, actor: u32, own: &Model) -> Result<(), String> {
    let text = |error: conquest_pm::Error| error.to_string();
    let dir = directory(MASK);
    let (mut after, mut listed) = (None, Model::new());
    loop {
        let part = if shared {
            let mut tx = core.begin().map_err(text)?;
            tx.lock(LOCK, Mode::Shared).map_err(text)?;
            list(&tx, &dir, after, 4)
        } else {
            core.read(LOCK, |view| list(view, &dir, after, 4))
        };
        let part = part.map_err(text)?;
        for (name, inode, position) in &part {
            if after >= Some(*position) {
                return Err(format!("position {position:?} after {after:?}"));
            }
            after = Some(*position);
            let is_own = (0..5).any(|number| *name == own_name(actor, number));
            let stays = (0..STAYING).any(|number| *name == long_name(number));
            if (is_own || stays) && listed.insert(name.clone(), *inode).is_some() {
                return Err(String::from("listed twice"));
            }
        }
        if part.len() < 4 {
            break;
        }
    }
    let mut expected = own.clone();
    expected.extend((0..STAYING).map(|number| (long_name(number), inode(number))));
    if listed == expected { Ok(()) } else { Err(format!("listed {listed:?}")) }
}

fn find(reader: &impl Reader, name: &[u8]) -> conquest_pm::Result<Option<(Offset, Position)>> {
    let dir = directory(MASK);
    let found = dir.find(reader, &dir.name(name).unwrap())?;
    Ok(found.map(|entry| (entry.inode, entry.position)))
}

fn play(world: &World, seed: u64, actor: u32, memory: &Actor) -> Result<(), String> {
    let text = |error: conquest_pm::Error| error.to_string();
    let memory = if seed.is_multiple_of(3) && actor == 0 {
        let (store, world) = (1 + Rng::new(seed).below(900), world.clone());
        let dies = Fate::Unwind(Box::new(move || world.kill(actor)));
        DyingMemory::new(memory.clone(), store, dies)
    } else {
        DyingMemory::counting(memory.clone())
    };
    let core = attach(memory, world, actor).map_err(text)?;
    let mut own = Model::new();
    for (op, number) in script(seed, actor).iter().zip(0..) {
        let done = perform(&core, &directory(MASK), op, Some(actor));
        done.map_err(|error| error.to_string())?;
        op.apply(&mut own);
        look(&core, number % 3 == 0, actor, &own)?;
        for number in 0..5 {
            let name = own_name(actor, number);
            let found = core.read(LOCK, |view| find(view, &name)).map_err(text)?;
            if found.map(|(inode, _)| inode) != own.get(&name).copied() {
                return Err(format!("own name {number}: {found:?}"));
            }
        }
        let staying = number % STAYING;
        let found = core.read(LOCK, |view| find(view, &long_name(staying))).map_err(text)?;
        if found.map(|(found, _)| found) != Some(inode(staying)) {
            return Err(format!("name {staying} that stays: {found:?}"));
        }
    }
    core.detach().map_err(text)
}

/// What is there at the end is what each actor has done.
fn judge(memory: &RecordingMemory, seed: u64, actors: u32) -> Result<u64, String> {
    memory.violation().map_or(Ok(()), Err)?;
    let world = World::new(memory.clock());
    let alive = DyingMemory::counting(memory.this_thread());
    let core = attach(alive, &world, 2).map_err(|error| error.to_string())?;
    let (found, census) = examine(&core, &directory(MASK))?;
    let mut expected: Model = (0..STAYING).map(|n| (long_name(n), inode(n))).collect();
    for actor in 0..actors {
        let script = script(seed, actor);
        let done = core.memory().load(done_at(actor), Ordering::Relaxed) as usize;
        if done > script.len() || done < script.len() && (actor != 0 || !seed.is_multiple_of(3)) {
            return Err(format!("actor {actor}: {done} operations happened"));
        }
        script.iter().take(done).for_each(|op| op.apply(&mut expected));
    }
    if found == expected { Ok(census.buckets) } else { Err(format!("{found:?}")) }
}

#[test]
fn two_processes_change_and_read_one_directory() {
    let base: Arc<Image> = image(true, |core| {
        for number in 0..STAYING {
            insert(core, &directory(MASK), &long_name(number), inode(number));
        }
    });
    let mut sizes = std::collections::BTreeSet::new();
    for seed in 0..RUNS {
        let options = ScheduleOptions {
            actors: 2,
            search: Search::Random { seed, first: 0, runs: 1 },
            steps: 2_000_000,
            weak_memory: true,
            ..ScheduleOptions::default()
        };
        let found = run(
            &options,
            || {
                let base = Arc::clone(&base);
                let memory = RecordingMemory::new(base, geometry().volatile(), seed % 2 == 0);
                let world = World::new(memory.clock());
                world.order(&memory);
                (memory, world)
            },
            |world, actor, memory| play(world, seed, actor, memory),
            |_, memory| judge(memory, seed, 2),
        );
        assert_eq!(found.failed, 0, "seed {seed}: {found}");
        sizes.extend(found.outcomes);
    }
    println!("{RUNS} runs, buckets at the end: {sizes:?}");
    assert!(sizes.len() > 1, "splits happen");
}
