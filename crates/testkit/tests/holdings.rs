//! Holdings: what somebody has open is there until nobody has, and no longer, whoever dies.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::{Geometry, Offset, WORD};
use conquest_pm::memory::Memory;
use conquest_pm::{
    Core, Error, Held, Holding, LASTING, Mode, Options, Parcel, Remains, Result, Tx,
};
use conquest_testkit::scenario::{SimCore, SimMemory, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{
    Actor, DyingMemory, Fate, RecordingMemory, Rng, SimClaim, SimHost, World, explore, shelf,
};

/// Files: words that say what became of each.
const FILES: u32 = 2;
const NAMED: u64 = 1;
/// It has no name, but somebody has it open.
const NAMELESS: u64 = 2;
const GONE: u64 = 3;
/// The kind of the holdings.
const OPEN: u8 = 1;

fn word(file: u32) -> Offset {
    STATE_ROOTS.plus(u64::from(file) * WORD)
}

/// File numbers are locks too; keys, and orphans' words, are one more.
fn key(file: u32) -> u64 {
    u64::from(file) + 1
}

type SimTx<'c> = Tx<'c, SimMemory, SimHost>;

/// A holding of `file` that counts.
fn keeper(tx: &SimTx<'_>, file: u32) -> Result<Option<Holding>> {
    let mut found = None;
    tx.holdings(file, |held| {
        if (held.kind, held.key, held.is_dead) == (OPEN, key(file), false) {
            found = Some(held.holding);
        }
    })?;
    Ok(found)
}

/// Ends a holding: its orphan goes to another one, or is gone.
fn bury(tx: &mut SimTx<'_>, held: Held, orphan: u64) -> Result<Remains> {
    let file = (if orphan == 0 { held.key } else { orphan } - 1) as u32;
    tx.lock(file, Mode::Exclusive)?;
    if tx.orphan(held.holding) != orphan {
        return Err(Error::Again);
    }
    if orphan == 0 {
        return Ok(Remains::Nothing);
    }
    match keeper(tx, file)? {
        Some(other) => tx.set_orphan(other, orphan)?,
        None => tx.set(word(file), GONE)?,
    }
    tx.set_orphan(held.holding, 0)?;
    Ok(Remains::Nothing)
}

fn unlink(core: &SimCore, file: u32) -> Result<()> {
    core.run(|tx| {
        tx.lock(file, Mode::Exclusive)?;
        if tx.get(word(file)) != NAMED {
            return Ok(());
        }
        match keeper(tx, file)? {
            None => tx.set(word(file), GONE),
            Some(holding) => {
                tx.set_orphan(holding, key(file))?;
                tx.set(word(file), NAMELESS)
            }
        }
    })
}

fn state(core: &SimCore, file: u32) -> Result<u64> {
    core.read(file, |view| Ok(view.word(word(file))))
}

/// Opens `file`, if it has a name.
fn open(core: &SimCore, file: u32) -> Result<Option<Holding>> {
    let holding = core.hold(file, OPEN, key(file), &[7, 8])?;
    if state(core, file)? == NAMED {
        return Ok(Some(holding));
    }
    core.let_go(file, holding)?;
    Ok(None)
}

fn process(memory: SimMemory, world: &World, pid: u32) -> Result<SimCore> {
    let options = Options {
        burials: Some(Box::new(bury)),
        attach_patience: core::time::Duration::from_secs(1000),
        ..Options::default()
    };
    Core::attach(memory, world.process(pid), Path::new("simulated"), &shelf::kinds(), options)
}

fn machine(shape: Shape, needs_write_back: bool) -> (RecordingMemory, World) {
    let (memory, world) = fresh(shape, needs_write_back).unwrap();
    let core = process(DyingMemory::counting(memory.actor(7)), &world, 7).unwrap();
    core.run(|tx| (0..FILES).try_for_each(|file| tx.set(word(file), NAMED))).unwrap();
    core.detach().unwrap();
    (memory, world)
}

/// Everybody has closed everything: what is wrong?
fn leftovers(core: &SimCore) -> std::result::Result<u64, String> {
    core.recover().map_err(|error| error.to_string())?;
    let states = (0..FILES).map(|file| state(core, file).unwrap()).collect::<Vec<_>>();
    if states.contains(&NAMELESS) {
        return Err(format!("files without a name that nobody has open: {states:?}"));
    }
    let geometry = core.geometry();
    let words = (0..4 * 56).map(|number| geometry.orphan(number));
    if let Some(at) = words.into_iter().find(|&at| core.memory().load(at, Ordering::Relaxed) != 0) {
        return Err(format!("an orphan is named at {at}"));
    }
    let mut left = Vec::new();
    for file in 0..FILES {
        let mut tx = core.begin().map_err(|error| error.to_string())?;
        tx.lock(file, Mode::Exclusive).map_err(|error| error.to_string())?;
        tx.holdings(file, |held| left.push(held)).map_err(|error| error.to_string())?;
    }
    if left.is_empty() { Ok(states[0] << 8 | states[1]) } else { Err(format!("left: {left:?}")) }
}

/// Parcels on their way: the slot, and what keeps it.
type Board = Mutex<Vec<(u32, SimClaim)>>;

/// Sends `holding`, of `file`, to whoever looks; false if there is no slot for it.
fn send(core: &SimCore, file: u32, holding: Holding, board: &Board) -> Result<bool> {
    let parcel = match core.parcel() {
        Err(Error::Slots { .. }) => return Ok(false),
        parcel => parcel?,
    };
    let mut tx = core.begin()?;
    tx.lock(file, Mode::Exclusive)?;
    assert!(tx.make_lasting(holding), "what is held does not count");
    tx.hold_for(&parcel, file, OPEN | LASTING, key(file), &[7, 8])?;
    drop(tx);
    board.lock().unwrap().push((parcel.slot(), parcel.into_carried()));
    Ok(true)
}

/// Takes what is in `parcel`.
fn take(core: &SimCore, parcel: Parcel<SimHost>) -> Result<Vec<(u32, Holding)>> {
    let mut inside = Vec::new();
    core.look_into(&parcel, |held| inside.push(held));
    let mut taken = Vec::new();
    for held in inside {
        let file = (held.key - 1) as u32;
        taken.push((file, core.hold(file, OPEN | LASTING, held.key, &[7, 8])?));
        core.let_go(file, held.holding)?;
    }
    core.discard(parcel)?;
    Ok(taken)
}

/// What a process does: opens, looks, unlinks, closes, sends and receives.
fn work(core: &SimCore, rng: &mut Rng, board: &Board) -> std::result::Result<(), String> {
    let text = |error: Error| error.to_string();
    let mut opened = Vec::new();
    for _ in 0..6 {
        let file = rng.below(FILES.into()) as u32;
        match rng.below(7) {
            5 => {
                if let Some((file, holding)) = opened.last() {
                    send(core, *file, *holding, board).map_err(text)?;
                }
            }
            6 => {
                let sent = board.lock().unwrap().pop();
                if let Some((slot, carried)) = sent {
                    let parcel = core.receive(slot, carried).map_err(text)?;
                    opened.extend(take(core, parcel).map_err(text)?);
                }
            }
            0 => unlink(core, file).map_err(text)?,
            1 | 2 => {
                if let Some(holding) = open(core, file).map_err(text)? {
                    opened.push((file, holding));
                }
            }
            _ => {
                if let Some((file, holding)) = opened.pop() {
                    core.let_go(file, holding).map_err(text)?;
                }
            }
        }
        for (file, holding) in &opened {
            if state(core, *file).map_err(text)? == GONE {
                return Err(format!("file {file} is gone although it is open"));
            }
            let found = core.held(*holding, 1);
            if found != 8 {
                return Err(format!("somebody stored {found} into a holding"));
            }
        }
    }
    opened.into_iter().try_for_each(|(file, holding)| core.let_go(file, holding)).map_err(text)
}

struct Run {
    world: World,
    witness: SimCore,
    board: Board,
    seed: u64,
}

fn try_all(runs: u64, weak: bool, dies: bool) {
    let options = ScheduleOptions {
        actors: 3,
        search: Search::Random { seed: 5, first: 0, runs },
        weak_memory: weak,
        persistent_loads: true,
        step_time: core::time::Duration::from_micros(20),
        steps: 1_000_000,
        ..ScheduleOptions::default()
    };
    let mut seed = 0;
    let setup = || {
        seed += 1;
        let (memory, world) = machine(Shape { slots: 30, lanes: 4, chunks: 64, ..shape() }, false);
        let witness = process(DyingMemory::counting(memory.actor(7)), &world, 7).unwrap();
        world.order(&memory);
        (memory, Run { world, witness, board: Board::default(), seed })
    };
    let body = |run: &Run, id: u32, memory: &Actor| {
        let mut fated = DyingMemory::counting(memory.clone());
        let mut rng = Rng::stream(run.seed, u64::from(id));
        if dies && id == 0 {
            let world = run.world.clone();
            let store = 1 + rng.below(300);
            fated = DyingMemory::new(
                memory.clone(),
                store,
                Fate::Unwind(Box::new(move || world.kill(0))),
            );
        }
        let core = process(fated, &run.world, id).map_err(|error| error.to_string())?;
        work(&core, &mut rng, &run.board)?;
        core.detach().map_err(|error| error.to_string())
    };
    let verdict = |run: &Run, _: &RecordingMemory| {
        // What is on its way is lost with whoever could receive it.
        run.board.lock().unwrap().clear();
        leftovers(&run.witness)
    };
    let found = run(&options, setup, body, verdict);
    println!("{found}");
    assert_eq!(found.failed, 0, "{found}");
    assert!(found.outcomes.len() > 1, "{found}");
}

#[test]
fn what_is_open_stays_until_nobody_has_it_open() {
    try_all(300, false, false);
}

#[test]
fn what_is_open_stays_where_memory_is_weak() {
    try_all(300, true, false);
}

#[test]
fn what_the_dead_had_open_goes() {
    try_all(600, false, true);
    try_all(300, true, true);
}

/// Who asks for a holding of the dead is never told that its process lives, though somebody else is
/// at seeing to the slot.
#[test]
fn the_dead_are_not_taken_for_the_living_while_somebody_sees_to_them() {
    let options = ScheduleOptions {
        actors: 2,
        search: Search::Random { seed: 3, first: 0, runs: 500 },
        persistent_loads: true,
        step_time: core::time::Duration::from_micros(20),
        steps: 100_000,
        ..ScheduleOptions::default()
    };
    let setup = || {
        let (memory, world) = machine(shape(), false);
        let victim = process(DyingMemory::counting(memory.actor(7)), &world, 7).unwrap();
        let holding = open(&victim, 0).unwrap().unwrap();
        world.order(&memory);
        (memory, (world, victim, holding, AtomicU32::new(0)))
    };
    type Scene = (World, SimCore, Holding, AtomicU32);
    let body = |(world, _, holding, stage): &Scene, id, memory: &Actor| {
        let text = |error: Error| error.to_string();
        let core = process(DyingMemory::counting(memory.clone()), world, id).map_err(text)?;
        stage.fetch_add(1, Ordering::SeqCst);
        let counts = || core.look_at(*holding).is_some_and(|held| !held.is_dead);
        if id == 0 {
            while stage.load(Ordering::SeqCst) < 2 && counts() {}
            world.kill(7);
            stage.fetch_add(1, Ordering::SeqCst);
            return core.recover().map_err(text);
        }
        while stage.load(Ordering::SeqCst) < 3 && counts() {}
        let counts = counts();
        if counts && !core.recover_holder(*holding).map_err(text)? {
            return Err("the dead counts as alive".to_owned());
        }
        Ok(())
    };
    let found = run(&options, setup, body, |_, _| Ok(0));
    println!("{found}");
    assert_eq!(found.failed, 0, "{found}");
}

#[test]
fn an_orphan_survives_a_power_failure_no_longer_than_anybody_has_it_open() {
    let (made, _) = machine(shape(), true);
    let volatile = Geometry::new(shape()).unwrap().volatile();
    let memory = RecordingMemory::new(made.snapshot(), volatile, true);
    let world = World::new(memory.clock());
    let core = process(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
    let other = process(DyingMemory::counting(memory.actor(2)), &world, 2).unwrap();
    let [first, second] = [&core, &other].map(|core| open(core, 0).unwrap().unwrap());
    unlink(&core, 0).unwrap();
    core.let_go(0, first).unwrap();
    assert_eq!(state(&core, 0).unwrap(), NAMELESS);
    other.let_go(0, second).unwrap();
    assert_eq!(state(&core, 0).unwrap(), GONE);
    let options = conquest_testkit::Options { states: 20_000, ..Default::default() };
    let found = explore(&memory.recording(), &options, |memory, _| {
        let world = World::new(memory.clock());
        let core = process(DyingMemory::counting(memory.actor(3)), &world, 3)
            .map_err(|e| e.to_string())?;
        leftovers(&core)
    });
    println!("{found}");
    assert_eq!((found.failed, found.outcomes.len()), (0, 2), "{found}");
}

/// More open files than a chunk has room for, of one lock and of many.
#[test]
fn a_process_can_hold_as_much_as_there_is_room_for() {
    let (memory, world) = machine(Shape { chunks: 9, slots: 2, ..shape() }, false);
    let core = process(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
    let holding = |number: u32| core.hold(number % 3, OPEN, u64::from(number) + 100, &[]);
    let held: Vec<Holding> = (0..9 * 56).map_while(|number| holding(number).ok()).collect();
    // Three ways: no more than two of a way's chunks are of no use to the others.
    assert!(held.len() >= 5 * 56, "{}", held.len());
    assert!(matches!(holding(0), Err(Error::Holdings { most: 504, .. })));
    for number in 0..3 {
        let mut tx = core.begin().unwrap();
        tx.lock(number, Mode::Exclusive).unwrap();
        let mut keys = Vec::new();
        tx.holdings(number, |held| keys.push(held.key)).unwrap();
        let mine = (0..held.len() as u64).filter(|at| at % 3 == u64::from(number));
        for at in mine {
            assert!(keys.contains(&(at + 100)), "{at} under {number}");
        }
    }
    for (number, &holding) in (0..).zip(&held) {
        core.let_go(number % 3, holding).unwrap();
    }
    core.detach().unwrap();
    // All chunks are free again.
    let next = process(DyingMemory::counting(memory.actor(2)), &world, 2).unwrap();
    let held: Vec<_> = (0..300).map(|number| next.hold(number % 4, OPEN, 1, &[])).collect();
    assert!(held.iter().filter(|held| held.is_ok()).count() >= 4 * 56);
}
