//! A region with a log: what is sealed at any moment is a state that the region was in, with all
//! that was acknowledged before.
//!
//! The volume is a model here: pages and records, of which all that one seal gave is there at once.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_format::geometry::{STATE, Shape};
use conquest_format::log::{FIRST, Fragments, Item, Items, Owner, chunk, unpack_end};
use conquest_format::{Geometry, Offset, WORD};
use conquest_pm::attach::NewRegion;
use conquest_pm::log::{Asked, Copied, Origin, Replay, Sealed, ask_keeper_to_leave};
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Error, Options};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, options, shape};
use conquest_testkit::schedule::{ScheduleOptions, Schedules, Search, run};
use conquest_testkit::shelf::{self, Contents, Op};
use conquest_testkit::{
    Actor, DyingMemory, Fate, Image, RecordingMemory, Rng, SimHost, World, become_actor,
};

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
        for (at, page) in sealed.pages.iter() {
            self.pages.add(at, |bytes| *bytes = *page);
        }
        for (sequence, number, fragment) in Fragments::of(&sealed.fragments) {
            assert!((sealed.from..sealed.cut).contains(&sequence), "record {sequence}");
            self.fragments.insert((sequence, number), fragment.to_vec());
        }
        self.cut = sealed.cut;
    }

    /// The pages that records below `sequence` have changed, and where the number of groups is.
    fn changed(&self, sequence: u64) -> BTreeSet<Offset> {
        let mut pages = BTreeSet::from([STATE]);
        for (_, fragment) in self.fragments.range(..(sequence, 0)) {
            pages.extend(Items::of(fragment).flat_map(Item::changed_pages));
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
        let mut replay =
            Replay::new(&actor, &host, path, &new, Origin { first: self.cut, incarnation: 0 })
                .map_err(text)?;
        for (at, page) in self.pages.iter() {
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
            let mut copied = Copied::new();
            part.iter().for_each(|&at| core.copy_page(at, &mut copied));
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
    /// Whether each worker changes new pages as soon as they are named.
    touches: bool,
    /// Pages of a checkpoint that are written together, if there are checkpoints.
    checkpoints: Option<usize>,
}

fn work(state: &State, core: &SimCore, way: Way, actor: u32, rng: &mut Rng) -> Result<(), String> {
    let operations = if way.touches { 4 * OPERATIONS } else { OPERATIONS };
    for number in 1..=operations {
        state.begun.lock().unwrap()[actor as usize] = number;
        let op = match way.touches {
            true if number % 4 == 1 => {
                Op::Push { list: actor, id: number << 8 | u64::from(actor), pages: 2 }
            }
            true => Op::Touch { list: actor },
            false => Op::random(rng, actor, number, 3),
        };
        shelf::perform(core, actor, op).map_err(text)?;
    }
    Ok(())
}

fn make_durable(state: &State, core: &SimCore, way: Way, id: u32) -> Result<(), String> {
    let rounds = if way.touches { 6 * SYNCS } else { SYNCS };
    for round in 0..rounds {
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

/// Compares what is on the volume at all moments with what had been done; a digest of it.
fn compare(state: &State) -> Result<u64, String> {
    let mut digest = 0_u64;
    for (number, moment) in state.moments.lock().unwrap().iter().enumerate() {
        let found = moment.volume.contents().map_err(|why| format!("moment {number}: {why}"))?;
        for actor in 0..WORKERS as usize {
            let (least, most) = (moment.before[actor], moment.after[actor]);
            let done = found.done[actor];
            if !(least..=most).contains(&done) {
                return Err(format!(
                    "moment {number}: actor {actor} did {done}, {least} to {most}"
                ));
            }
            digest = digest.wrapping_mul(31).wrapping_add(done);
        }
    }
    Ok(digest)
}

/// Runs `runs` schedules from number `first` on; each of all moments of each is restarted from.
fn schedules(way: Way, first: u64, runs: u64) -> Schedules {
    let times = std::env::var("CONQUEST_TIMES").map_or(1, |times| times.parse().unwrap());
    let mut all = Schedules::default();
    for seed in (0..times).flat_map(|time| {
        let first = first + time * 1_000_000;
        first..first + runs
    }) {
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
        persistent_loads: way.touches,
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
            _ => work(state, &core, way, id, &mut Rng::stream(seed, 10 + u64::from(id)))?,
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
        let digest = compare(state)?;
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

const PLAIN: Way = Way { weak: false, dies: false, touches: false, checkpoints: None };

#[test]
fn what_is_sealed_is_a_state_that_was() {
    all_well(&schedules(PLAIN, 0, 300), 60);
}

#[test]
fn also_where_new_pages_are_changed_while_they_are_copied() {
    let way = Way { touches: true, ..PLAIN };
    all_well(&schedules(way, 6000, 30), 10);
    all_well(&schedules(Way { weak: true, ..way }, 7000, 40), 10);
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
    let way = Way { weak: true, dies: true, checkpoints: Some(2), ..PLAIN };
    all_well(&schedules(way, 5000, 200), 40);
}

/// A region with something on its shelf, and a volume that has that.
struct Prepared {
    memory: RecordingMemory,
    world: World,
    state: Arc<State>,
}

fn prepared() -> Prepared {
    let (memory, world) = fresh(SHAPE, false).unwrap();
    let state = Arc::new(State {
        volume: Mutex::new(Volume { cut: FIRST, ..Volume::default() }),
        begun: Mutex::new(vec![0; WORKERS as usize]),
        ..State::default()
    });
    Prepared { memory, world, state }
}

/// Does what `act` does as a thread of process `id`.
fn as_another<T: Send>(id: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let body = || {
            become_actor(id);
            act()
        };
        scope.spawn(body).join().unwrap()
    })
}

/// Stops `op` before its store number `store`, while others make durable what there is, twice, by
/// checkpoints if asked for; and compares what is on the volume each time. Whether it was stopped.
fn stopped_at(op: Op, store: u64, checkpoints: bool) -> bool {
    become_actor(0);
    let Prepared { memory, world, state } = prepared();
    let earlier = [
        Op::Push { list: 0, id: 1, pages: 2 },
        Op::Push { list: 0, id: 2, pages: 1 },
        Op::Push { list: 1, id: 3, pages: 0 },
    ];
    state.begun.lock().unwrap()[0] = 3;
    let other = as_another(1, || {
        let core = attach(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
        for op in earlier {
            assert!(shelf::perform(&core, 0, op).unwrap());
        }
        sync(&core, &state).unwrap();
        core
    });
    state.begun.lock().unwrap()[0] = 4;
    let stopped = Arc::new(Mutex::new(false));
    let hook = {
        let (other, state, stopped) =
            (Arc::clone(&other), Arc::clone(&state), Arc::clone(&stopped));
        move || {
            *stopped.lock().unwrap() = true;
            as_another(1, || {
                let core = &other;
                for number in 1..3 {
                    state.begun.lock().unwrap()[1] = number;
                    let op = Op::Push { list: 2, id: 10 + number, pages: 1 };
                    shelf::perform(core, 1, op).unwrap();
                    match checkpoints {
                        true => checkpoint(core, &state, 3).unwrap(),
                        false => sync(core, &state).unwrap(),
                    }
                }
            });
        }
    };
    // What attaching stores does not count.
    let counting = DyingMemory::counting(memory.actor(0));
    let alone = attach(counting, &world, 0).unwrap();
    let attaching = alone.memory().stores();
    drop(alone);
    let mut hook = Some(hook);
    let dying = DyingMemory::new(
        memory.actor(0),
        attaching + store,
        Fate::Call(Box::new(move || {
            if let Some(hook) = hook.take() {
                hook();
            }
        })),
    );
    let core = attach(dying, &world, 0).unwrap();
    assert!(shelf::perform(&core, 0, op).unwrap());
    as_another(1, || sync(&other, &state).unwrap());
    compare(&state).unwrap_or_else(|why| panic!("{op:?} stopped before store {store}: {why}"));
    let last = state.moments.lock().unwrap().last().unwrap().volume.contents().unwrap();
    let (contents, _) = shelf::examine(&core).unwrap();
    assert_eq!(last, contents, "{op:?} stopped before store {store}");
    drop(core);
    let stopped = stopped.lock().unwrap();
    *stopped
}

#[test]
fn one_who_is_stopped_anywhere_neither_waits_nor_loses_anything() {
    for (op, checkpoints) in [
        (Op::Push { list: 0, id: 4, pages: 3 }, false),
        (Op::Touch { list: 0 }, true),
        (Op::Move { from: 0, to: 1 }, false),
        (Op::Pop { list: 0 }, true),
        (Op::Clear { list: 0 }, true),
        (Op::PushMany { list: 1, id: 20, count: 3, pages: 2 }, true),
    ] {
        // The locks are taken by few stores; the rest is looked at one by one.
        let mut store = 1;
        while stopped_at(op, store, checkpoints) {
            store += 1;
        }
        assert!(store > 30, "{op:?}: {store}");
    }
}

/// What is named and freed between two cuts is nobody's, and is not written.
#[test]
fn pages_that_are_freed_before_they_are_durable_are_not_written() {
    become_actor(0);
    let Prepared { memory, world, state } = prepared();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    let push = |id, pages| Op::Push { list: 0, id, pages };
    let pages_of = |ops: &[Op]| {
        for &op in ops {
            assert!(shelf::perform(&core, 0, op).unwrap());
        }
        let before = done(&core);
        state.begun.lock().unwrap()[0] = before[0];
        let sealed = core.seal(core.durable(), Copied::new()).unwrap().unwrap();
        let heap = core.geometry().page(0);
        let count = sealed.pages.places().filter(|at| *at >= heap).count();
        assert!(put(&core, &state, sealed, before).unwrap());
        count
    };
    assert_eq!(pages_of(&[push(1, 3), push(2, 2)]), 5);
    assert_eq!(pages_of(&[push(3, 4), Op::Pop { list: 0 }]), 0);
    // Those that were durable before are free now, and some of them are used again.
    assert_eq!(pages_of(&[Op::Pop { list: 0 }, push(4, 1), Op::Pop { list: 0 }, push(5, 2)]), 2);
    assert_eq!(pages_of(&[push(6, 1), push(7, 3), Op::Pop { list: 0 }, push(8, 3)]), 4);
    compare(&state).unwrap();
}

/// Puts behind the end of each chunk what looks like a fragment of record `sequence`: an earlier
/// life may have left any words there.
fn leave_behind(memory: &impl Memory, sequence: u64) {
    let geometry = Geometry::new(SHAPE).unwrap();
    for number in 0..SHAPE.log {
        let header = |word| memory.load(geometry.log_header(number).plus(word), Ordering::Relaxed);
        let owner = Owner::unpack(header(chunk::OWNER));
        let end = unpack_end(header(chunk::END), owner.life);
        if end > 0 {
            let at = geometry.log_chunk(number).plus(end);
            memory.put(at, 256, Ordering::Relaxed);
            memory.put(at.plus(WORD), sequence, Ordering::Relaxed);
        }
    }
}

/// A region with a push by process 0 that nobody has made durable, and a trap behind that.
fn trapped() -> Prepared {
    become_actor(0);
    let prepared = prepared();
    let memory = DyingMemory::counting(prepared.memory.actor(0));
    let core = attach(memory, &prepared.world, 0).unwrap();
    assert!(shelf::perform(&core, 0, Op::Push { list: 0, id: 1, pages: 1 }).unwrap());
    leave_behind(core.memory(), core.next_sequence() - 1);
    prepared
}

/// What is sealed of the region by process 1.
fn sealed(prepared: &Prepared) -> Contents {
    as_another(1, || {
        let memory = DyingMemory::counting(prepared.memory.actor(1));
        let core = attach(memory, &prepared.world, 1).unwrap();
        core.recover().unwrap();
        let mut volume = Volume { cut: FIRST, ..Volume::default() };
        volume.take(core.seal(FIRST, Copied::new()).unwrap().unwrap());
        volume.contents().unwrap()
    })
}

#[test]
fn what_an_earlier_life_of_a_chunk_has_left_is_not_the_last_record() {
    let mut expected = Contents::new();
    expected.apply(0, Op::Push { list: 0, id: 1, pages: 1 });
    assert_eq!(sealed(&trapped()), expected);
    // Nor when somebody has died while he wrote the next one.
    let touch = Op::Touch { list: 0 };
    let mut touched = expected.clone();
    touched.apply(0, touch);
    for store in 1.. {
        let prepared = trapped();
        let world = prepared.world.clone();
        let core = attach(DyingMemory::counting(prepared.memory.actor(0)), &world, 0).unwrap();
        core.memory().meet(store, Fate::Unwind(Box::new(move || world.kill(0))));
        let perform = || shelf::perform(&core, 0, touch).unwrap();
        let is_done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(perform)).is_ok();
        let found = sealed(&prepared);
        if is_done {
            core.memory().meet(1, Fate::Live);
            assert_eq!(found, touched);
            assert!(store > 30, "{store}");
            return;
        }
        assert!(found == expected || found == touched, "store {store}: {found:?}");
    }
}

#[test]
fn the_keeper_is_asked_for_pages_that_pass_and_for_more_only() {
    become_actor(0);
    let (memory, world) = fresh(Shape { log: 60, ..SHAPE }, false).unwrap();
    let made = |core: &Core<SimMemory, SimHost>| core.set_durable(core.next_sequence());
    let options = Options { make_durable: Some(Box::new(made)), ..options() };
    let alive = DyingMemory::counting(memory.actor(0));
    let core = Core::attach(alive, world.process(0), Path::new("core"), &shelf::kinds(), options);
    let core = core.unwrap();
    let asked = || core.await_asked(Duration::ZERO);
    core.pages_are_to_pass(4095).unwrap();
    assert_eq!((asked(), core.passing_pages()), (Asked::Nothing, 4095));
    core.pages_are_to_pass(1).unwrap();
    assert_eq!((asked(), asked()), (Asked::Push, Asked::Nothing));
    // Those that have gone on count no more, and no less than none.
    core.pages_have_passed(96).unwrap();
    assert_eq!(core.passing_pages(), 4000);
    core.pages_have_passed(5000).unwrap();
    core.pages_are_to_pass(4000).unwrap();
    assert_eq!((asked(), core.passing_pages()), (Asked::Nothing, 4000));
    // Who is asked for that is asked for more.
    core.pages_are_to_pass(4096).unwrap();
    for _ in 0..8000 {
        assert!(shelf::perform(&core, 0, Op::Push { list: 0, id: 1, pages: 0 }).unwrap());
        assert!(shelf::perform(&core, 0, Op::Pop { list: 0 }).unwrap());
    }
    assert_eq!(asked(), Asked::Hurry);
    core.pages_are_to_pass(4096).unwrap();
    ask_keeper_to_leave(core.memory(), core.geometry());
    core.pages_are_to_pass(4096).unwrap();
    assert_eq!((asked(), asked()), (Asked::Leave, Asked::Leave));
}

#[test]
fn the_keeper_is_asked_to_hurry_before_anybody_else_has_to_make_room() {
    become_actor(0);
    let (memory, world) = fresh(Shape { log: 60, ..SHAPE }, false).unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let made = move |core: &Core<SimMemory, SimHost>| {
        counted.fetch_add(1, Ordering::Relaxed);
        core.set_durable(core.next_sequence())
    };
    let options = Options { make_durable: Some(Box::new(made)), ..options() };
    let alive = DyingMemory::counting(memory.actor(0));
    let core = Core::attach(alive, world.process(0), Path::new("core"), &shelf::kinds(), options);
    let core = core.unwrap();
    let count = || count.load(Ordering::Relaxed);
    let push = |id| shelf::perform(&core, 0, Op::Push { list: 0, id, pages: 0 }).unwrap();
    let asked = || core.await_asked(Duration::ZERO);
    assert!(push(1));
    for round in 1..4 {
        assert_eq!(asked(), Asked::Nothing, "round {round}");
        let touch = || assert!(shelf::perform(&core, 0, Op::Touch { list: 0 }).unwrap());
        let mut quiet = 0_u32;
        while asked() == Asked::Nothing {
            touch();
            quiet += 1;
        }
        assert_eq!(count(), round - 1, "somebody had to make room first");
        // And again, as long as it is so: until there is hardly any left.
        let mut asks = 0;
        while count() < round {
            touch();
            asks += u32::from(asked() == Asked::Hurry);
        }
        assert!(asks > quiet, "{asks} times, after {quiet} operations");
    }
}

#[test]
fn the_keeper_is_known_and_counts_as_nobody() {
    become_actor(0);
    let (memory, world) = fresh(Shape { log: 60, ..SHAPE }, false).unwrap();
    let attached = |actor: u32| {
        become_actor(actor);
        // By the number of its first thread, as a process is called.
        attach(DyingMemory::counting(memory.actor(actor)), &world, actor + 1).unwrap()
    };
    let keeper = attached(0);
    assert!(!keeper.has_keeper() && !keeper.is_anyone_else_at_work().unwrap());
    keeper.become_keeper();
    assert!(keeper.has_keeper() && !keeper.is_anyone_else_at_work().unwrap());
    let other = attached(1);
    assert!(other.has_keeper() && !other.is_anyone_else_at_work().unwrap());
    assert!(keeper.is_anyone_else_at_work().unwrap());
    let third = attached(2);
    assert!(other.is_anyone_else_at_work().unwrap());
    drop((other, third));
    become_actor(0);
    assert!(!keeper.is_anyone_else_at_work().unwrap());
    // Whoever has its slot next is no keeper.
    drop(keeper);
    let next = attached(3);
    assert!(!next.has_keeper());
}
