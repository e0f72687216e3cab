//! A region with a log: what is sealed at any moment is a state that the region was in, with all
//! that was acknowledged before.
//!
//! The volume is a model here: pages and records, of which all that one seal gave is there at once.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_format::geometry::{STATE, Shape};
use conquest_format::log::{FIRST, Fragments, Item, Items};
use conquest_format::{Geometry, Offset, PAGE};
use conquest_pm::Error;
use conquest_pm::attach::NewRegion;
use conquest_pm::log::{Copied, Replay, Sealed};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Schedules, Search, run};
use conquest_testkit::shelf::{self, Contents, Op};
use conquest_testkit::{Actor, DyingMemory, Fate, Image, RecordingMemory, Rng, World};

/// The small region, with a log.
const SHAPE: Shape = Shape { log: 24, slots: 5, lanes: 5, ..shape() };
/// Who works on the shelf; those behind them make it durable.
const WORKERS: u32 = 2;
const SYNCERS: u32 = 2;
const OPERATIONS: u64 = 5;
/// Times that each of these does.
const SYNCS: u32 = 8;

/// What is on the volume.
#[derive(Clone, Default)]
struct Volume {
    pages: Copied,
    /// Records, and from which number on they are needed.
    fragments: BTreeMap<(u64, u32), Vec<u8>>,
    cut: u64,
}

/// What was on the volume at some moment, and what had been done before that was sealed, and when
/// it had been.
struct Moment {
    volume: Volume,
    before: Vec<u64>,
    after: Vec<u64>,
}

#[derive(Default)]
struct State {
    volume: Mutex<Volume>,
    moments: Mutex<Vec<Moment>>,
    /// Operations of each worker that were begun.
    begun: Mutex<Vec<u64>>,
}

fn text(error: Error) -> String {
    error.to_string()
}

impl Volume {
    /// Takes what was sealed, all at once.
    fn take(&mut self, sealed: Sealed) {
        self.pages.extend(sealed.pages);
        for (sequence, number, fragment) in Fragments::of(&sealed.fragments) {
            self.fragments.insert((sequence, number), fragment.to_vec());
        }
        self.cut = sealed.cut;
    }

    /// The pages that records below `sequence` have changed, and where the number of groups is.
    fn changed(&self, sequence: u64) -> BTreeSet<Offset> {
        let mut pages = BTreeSet::from([STATE]);
        let mut note = |at: Offset, len: u64| {
            for page in at.bytes() / PAGE..(at.bytes() + len).div_ceil(PAGE) {
                pages.insert(Offset::new(page * PAGE));
            }
        };
        for (_, fragment) in self.fragments.range(..(sequence, 0)) {
            for item in Items::of(fragment) {
                match item {
                    Item::Words(_) => item.entries().for_each(|entry| note(entry.target, 8)),
                    Item::Bytes(at, bytes) => note(at, bytes.len() as u64),
                    Item::Zeros(at, len) => note(at, len),
                    Item::Pages(..) => {}
                }
            }
        }
        pages
    }

    /// The region, as it is after a restart of the machine.
    fn region(&self) -> Result<(RecordingMemory, World), String> {
        let geometry = Geometry::new(SHAPE).unwrap();
        let image = Arc::new(Image::new(geometry.len()));
        let memory = RecordingMemory::new(image, geometry.volatile(), false);
        let world = World::new(memory.clock());
        let new =
            NewRegion { shape: SHAPE, kinds: shelf::kinds(), uuid: [1; 16], created: 1, groups: 1 };
        let (actor, host) = (memory.this_thread(), world.process(9));
        let path = Path::new("replayed");
        let mut replay = Replay::new(&actor, &host, path, &new, self.cut).map_err(text)?;
        for (&at, page) in &self.pages {
            if !replay.put_page(at, page).map_err(text)? {
                return Err(format!("a page that can't be at {at}"));
            }
        }
        let all: Vec<u8> = self.fragments.values().flatten().copied().collect();
        let found = replay.replay(&all).map_err(text)?;
        if found.refused > 0 {
            return Err(format!("{found:?}"));
        }
        replay.finish().map_err(text)?;
        memory.violation().map_or(Ok(()), Err)?;
        Ok((memory, world))
    }

    fn contents(&self) -> Result<Contents, String> {
        let (memory, world) = self.region()?;
        let alive = DyingMemory::counting(memory.this_thread());
        let core = attach(alive, &world, 5).map_err(text)?;
        // What was begun in several records is finished now.
        core.recover().map_err(text)?;
        drop(core.begin().map_err(text)?);
        let (contents, findings) = shelf::examine(&core).map_err(text)?;
        findings.first().map_or(Ok(contents), |finding| Err(finding.to_string()))
    }
}

/// Operations of each worker, as the region says: where memory is weak, who sees in some other way
/// that they were done has not seen the region yet.
fn done(core: &SimCore) -> Vec<u64> {
    (0..WORKERS).map(|actor| shelf::done(core, actor)).collect()
}

/// Makes everything durable that there is.
fn sync(core: &SimCore, state: &State) -> Result<(), String> {
    loop {
        let before = done(core);
        match core.seal(core.durable(), Copied::new()) {
            Ok(Some(sealed)) => {
                if put(core, state, sealed, before)? {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(Error::Again) => {}
            Err(error) => return Err(text(error)),
        }
    }
}

/// Puts what was `sealed` on the volume, unless somebody else has put some of it there; whether it
/// did.
fn put(core: &SimCore, state: &State, sealed: Sealed, before: Vec<u64>) -> Result<bool, String> {
    let cut = sealed.cut;
    let mut volume = state.volume.lock().unwrap();
    if sealed.from != volume.cut {
        return Ok(false);
    }
    volume.take(sealed);
    let moment =
        Moment { volume: volume.clone(), before, after: state.begun.lock().unwrap().clone() };
    state.moments.lock().unwrap().push(moment);
    drop(volume);
    core.set_durable(cut).map_err(text)?;
    Ok(true)
}

/// Writes a checkpoint, in parts of `together` pages.
fn checkpoint(core: &SimCore, state: &State, together: usize) -> Result<(), String> {
    let begun = core.begin_checkpoint().map_err(text)?;
    sync(core, state)?;
    let changed = state.volume.lock().unwrap().changed(begun.sequence);
    let pages: Vec<Offset> = changed.into_iter().collect();
    for part in pages.chunks(together) {
        loop {
            let before = done(core);
            let from = core.durable();
            let copied = part.iter().map(|&at| (at, core.copy_page(at))).collect();
            match core.seal(from, copied) {
                Ok(Some(sealed)) => {
                    if put(core, state, sealed, before)? {
                        break;
                    }
                }
                Ok(None) | Err(Error::Again) => {}
                Err(error) => return Err(text(error)),
            }
        }
    }
    let mut volume = state.volume.lock().unwrap();
    let is_needed = |sequence| sequence >= begun.sequence || begun.unapplied.contains(&sequence);
    volume.fragments.retain(|&(sequence, _), _| is_needed(sequence));
    let after = state.begun.lock().unwrap().clone();
    let mut moments = state.moments.lock().unwrap();
    // What was done is not all durable.
    let before = moments.last().map_or(vec![0; WORKERS as usize], |last| last.before.clone());
    moments.push(Moment { volume: volume.clone(), before, after });
    Ok(())
}

#[derive(Clone, Copy)]
struct Way {
    weak: bool,
    dies: bool,
    /// Pages of a checkpoint that are written together, if there are checkpoints.
    checkpoints: Option<usize>,
}

fn work(state: &State, core: &SimCore, actor: u32, rng: &mut Rng) -> Result<(), String> {
    for number in 1..=OPERATIONS {
        state.begun.lock().unwrap()[actor as usize] = number;
        shelf::perform(core, actor, Op::random(rng, actor, number, 3)).map_err(text)?;
    }
    Ok(())
}

fn make_durable(state: &State, core: &SimCore, way: Way, id: u32) -> Result<(), String> {
    for round in 0..SYNCS {
        match way.checkpoints {
            Some(together) if round % 2 == 1 && id == WORKERS => {
                checkpoint(core, state, together)?;
            }
            _ => sync(core, state)?,
        }
    }
    Ok(())
}

fn memory_of(world: &World, id: u32, actor: &Actor, dies_at: Option<u64>) -> SimMemory {
    match dies_at {
        Some(store) if id == 0 => {
            let world = world.clone();
            let dies = Fate::Unwind(Box::new(move || world.kill(0)));
            DyingMemory::new(actor.clone(), store, dies)
        }
        _ => DyingMemory::counting(actor.clone()),
    }
}

/// Runs `runs` schedules from number `first` on; each of all moments of each is restarted from.
fn schedules(way: Way, first: u64, runs: u64) -> Schedules {
    let mut all = Schedules::default();
    for seed in first..first + runs {
        let found = schedule(way, seed);
        all.runs += found.runs;
        all.failed += found.failed;
        all.steps += found.steps;
        all.outcomes.extend(found.outcomes);
        all.failures.extend(found.failures.into_iter().map(|why| format!("{seed}: {why}")));
    }
    all
}

fn schedule(way: Way, seed: u64) -> Schedules {
    let options = ScheduleOptions {
        actors: WORKERS + SYNCERS,
        search: Search::Random { seed, first: 0, runs: 1 },
        steps: 2_000_000,
        step_time: Duration::from_micros(20),
        weak_memory: way.weak,
        ..ScheduleOptions::default()
    };
    let dies_at = way.dies.then(|| 1 + Rng::stream(seed, 3).below(1200));
    let setup = || {
        let (memory, world) = fresh(SHAPE, false).unwrap();
        if way.weak {
            world.order(&memory);
        }
        let state = State {
            volume: Mutex::new(Volume { cut: FIRST, ..Volume::default() }),
            begun: Mutex::new(vec![0; WORKERS as usize]),
            ..State::default()
        };
        (memory, (world, state))
    };
    let body = |(world, state): &(World, State), id: u32, actor: &Actor| {
        let core = attach(memory_of(world, id, actor, dies_at), world, id).map_err(text)?;
        match id {
            WORKERS.. => make_durable(state, &core, way, id)?,
            _ => work(state, &core, id, &mut Rng::stream(seed, 10 + u64::from(id)))?,
        }
        core.detach().map_err(text)
    };
    let verdict = |(world, state): &(World, State), memory: &RecordingMemory| {
        memory.violation().map_or(Ok(()), Err)?;
        let _ = world;
        // What there is at the end, too.
        let end = World::new(memory.clock());
        let alive = DyingMemory::counting(memory.this_thread());
        let core = attach(alive, &end, 5).map_err(text)?;
        drop(core.begin().map_err(text)?);
        let (contents, _) = shelf::examine(&core).map_err(text)?;
        sync(&core, state)?;
        let mut digest = 0_u64;
        for (number, moment) in state.moments.lock().unwrap().iter().enumerate() {
            let found =
                moment.volume.contents().map_err(|why| format!("moment {number}: {why}"))?;
            for actor in 0..WORKERS as usize {
                let (least, most) = (moment.before[actor], moment.after[actor]);
                let done = found.done[actor];
                if !(least..=most).contains(&done) {
                    return Err(format!(
                        "moment {number}: actor {actor} did {done}, {least} to {most}"
                    ));
                }
            }
            digest = found
                .done
                .iter()
                .fold(digest, |sum, done| sum.wrapping_mul(31).wrapping_add(*done));
        }
        let moments = state.moments.lock().unwrap();
        let last = moments.last().unwrap().volume.contents()?;
        if last != contents {
            return Err(format!("{last:?} instead of {contents:?}"));
        }
        Ok(digest)
    };
    run(&options, setup, body, verdict)
}

#[track_caller]
fn all_well(found: &Schedules, distinct: usize) {
    assert_eq!(found.failed, 0, "{found}");
    assert!(found.outcomes.len() >= distinct, "{found}");
}

const PLAIN: Way = Way { weak: false, dies: false, checkpoints: None };

#[test]
fn what_is_sealed_is_a_state_that_was() {
    all_well(&schedules(PLAIN, 0, 300), 60);
}

#[test]
fn also_with_checkpoints() {
    for together in [1, 3, 1000] {
        let way = Way { checkpoints: Some(together), ..PLAIN };
        all_well(&schedules(way, 1000, 200), 40);
    }
}

#[test]
fn also_where_processes_die() {
    all_well(&schedules(Way { dies: true, ..PLAIN }, 2000, 300), 60);
    let way = Way { dies: true, checkpoints: Some(2), ..PLAIN };
    all_well(&schedules(way, 3000, 300), 60);
}

#[test]
fn also_on_weak_memory() {
    all_well(&schedules(Way { weak: true, ..PLAIN }, 4000, 200), 40);
    let way = Way { weak: true, dies: true, checkpoints: Some(2) };
    all_well(&schedules(way, 5000, 200), 40);
}
