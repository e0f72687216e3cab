//! Recorded runs of a store: several actors, each of which is a process, work and make durable, and
//! the device keeps a log.
//!
//! In most runs they take turns, on one thread, from operation to operation; and while one of them
//! is at the volume, or in the middle of a sync, others do something. So these are repeated by
//! their seeds. In the rest each is a thread of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use conquest_fs::{Errno, Error};

use super::history::{History, Step};
use super::machine::{Machine, Start, fresh};
use super::operation::{May, Op};
use super::tree::{Tree, compare, read};
use crate::flash::{Event, HeapCopy, Mark, Medium, Recorder};
use crate::{Fate, Rng, become_actor, lock};

/// Times in a run that one is stopped in a sync, at most.
const STOPS: u32 = 1;

/// What is the same in all runs of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// What all follows from.
    pub seed: u64,
    /// Segments of the volume.
    pub segments: u64,
    /// Chunks of the core's log; none, if the core stays.
    pub log: u32,
    /// Bytes that the device writes at once.
    pub block: u64,
    /// Whether the device has FUA.
    pub fua: bool,
    /// Processes.
    pub actors: usize,
    /// Whether each is a thread.
    pub threads: bool,
    /// Operations of the first run.
    pub operations: u64,
    /// Whether cuts follow each other, each after a few operations.
    pub is_row: bool,
    /// Whether the core has no log, and stays when the power goes, as on a battery.
    pub core_stays: bool,
}

impl Setup {
    /// The setup of scenario `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Setup {
        let mut rng = Rng::stream(seed, 1);
        let threads = seed % 4 == 3;
        let core_stays = seed % 6 == 4;
        let segments = 125 + rng.below(3) * rng.below(40);
        let log = if rng.chance(1, 2) { 64 } else { 20 };
        Setup {
            seed,
            segments,
            log: if core_stays { 0 } else { log },
            block: if rng.chance(1, 3) { 4096 } else { 512 },
            fua: seed % 5 == 1,
            actors: if threads { 2 + rng.below(2) as usize } else { 1 + rng.below(3) as usize },
            threads,
            operations: 60 + rng.below(60),
            is_row: seed % 8 == 6,
            core_stays,
        }
    }

    /// A new store.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn fresh(&self) -> Result<Start, String> {
        fresh(self.segments, self.log)
    }

    /// The device with `medium` on it.
    ///
    /// # Errors
    /// That it is none, as text.
    pub fn device(&self, medium: Medium, is_kept: bool) -> Result<Recorder, String> {
        let recorder = Recorder::new(medium, is_kept).map_err(|error| error.to_string())?;
        Ok(recorder.with_fua(self.fua))
    }
}

/// A recorded run.
pub struct Recording {
    /// What there was before.
    pub start: Start,
    /// What happened to it.
    pub log: Vec<Event>,
    /// What was done.
    pub history: History,
    /// The first number that no operation has.
    pub next: u32,
    /// Which operations are checkpoints and trims, by their numbers.
    pub kinds: Vec<(u32, Kind)>,
    /// What each operation was, as text, with its actor.
    pub operations: BTreeMap<u32, String>,
    /// Whether one was stopped in a sync, and another one came first.
    pub has_stopped: bool,
    /// What the core was just before each event, if it stays: from some event on, and behind the
    /// last one.
    cores: Vec<(usize, HeapCopy)>,
}

impl Recording {
    /// What the core is if the power goes just before the event at `at`, if it stays.
    #[must_use]
    pub fn core_before(&self, at: usize) -> Option<&HeapCopy> {
        let known = self.cores.binary_search_by_key(&at, |(event, _)| *event);
        let known = known.ok().and_then(|index| self.cores.get(index));
        known.map(|(_, core)| core).or(self.start.core.as_ref())
    }
}

/// What an operation is of, as far as that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It writes a checkpoint of the core.
    Checkpoint,
    /// It trims.
    Trim,
}

/// What an actor has done.
struct Actor {
    tree: Tree,
    steps: Vec<Step>,
    rng: Rng,
    /// Stores of its last sync.
    stores: u64,
}

struct Run {
    setup: Setup,
    machine: Machine,
    actors: Vec<Mutex<Actor>>,
    next: AtomicU32,
    kinds: Mutex<Vec<(u32, Kind)>>,
    operations: Mutex<BTreeMap<u32, String>>,
    /// What others do in the middle of something.
    noise: Mutex<Rng>,
    /// How often one may still be stopped in a sync, which takes the patience of the others.
    stops: AtomicU32,
    failure: Mutex<Option<String>>,
}

impl Run {
    fn fail(&self, what: String) {
        lock(&self.failure).get_or_insert(what);
    }

    fn has_failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Actor `who` does something that it `may`, unless it is at something.
    fn act(self: &Arc<Self>, who: usize, may: May) {
        let Some(mut actor) = self.actors.get(who).and_then(|actor| actor.try_lock().ok()) else {
            return;
        };
        become_actor(who as u32);
        let actors = self.actors.len();
        let Actor { tree, rng, .. } = &mut *actor;
        let op = Op::random(rng, tree, who, actors, may);
        if may == May::All && op == Op::Sync && !self.setup.threads && actors > 1 {
            self.stop_in_sync(who, &mut actor);
        }
        let done = self.operate(who, &mut actor, &op);
        if let Some(process) = self.machine.processes.get(who) {
            process.files.core().memory().meet(0, Fate::Live);
        }
        if let Err(what) = done {
            self.fail(format!("actor {who}: {op:?}: {what}"));
        }
    }

    fn operate(&self, who: usize, actor: &mut Actor, op: &Op) -> Result<(), String> {
        let process = self.machine.processes.get(who).ok_or("no such process")?;
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let kind = match op {
            Op::Checkpoint if process.image.is_some() => Some(Kind::Checkpoint),
            Op::Trim => Some(Kind::Trim),
            _ => None,
        };
        lock(&self.kinds).extend(kind.map(|kind| (number, kind)));
        lock(&self.operations).insert(number, format!("actor {who}: {op:?}"));
        self.machine.recorder.mark(Mark::Begun(number));
        let stores = process.files.core().memory().stores();
        let done = op.perform(process, number);
        if *op == Op::Sync {
            actor.stores = process.files.core().memory().stores() - stores;
        }
        let mut tree = actor.tree.clone();
        op.apply(&mut tree, number);
        match done {
            Ok(()) => {
                self.machine.recorder.mark(Mark::Done(number));
                if actor.rng.chance(1, 8) {
                    self.look(who, &tree, &tree)?;
                }
            }
            Err(error) if is_full(&error) && !op.is_sync() => {
                // Some of it may have been done.
                tree = self.look(who, &actor.tree, &tree)?;
                self.machine.recorder.mark(Mark::Done(number));
            }
            Err(error) => return Err(error.to_string()),
        }
        actor.tree = tree.clone();
        let (is_sync, is_quiet) = (op.is_sync(), op.is_quiet());
        actor.steps.push(Step { number, tree: Arc::new(tree), is_sync, is_quiet });
        Ok(())
    }

    /// What the files of actor `who` are, which must be `before`, `after` or between: by the
    /// numbers that their files have there.
    fn look(&self, who: usize, before: &Tree, after: &Tree) -> Result<Tree, String> {
        let process = self.machine.processes.get(who).ok_or("no such process")?;
        let mut all = read(&process.files, self.actors.len(), Some(who))?;
        let found = all.get_mut(who).map(core::mem::take).unwrap_or_default();
        compare(&found, before, after, &|_, _, _, _| false)
            .map_err(|what| format!("while it runs: {what}"))?;
        let known = if found.names.keys().eq(before.names.keys()) { before } else { after };
        Ok(renumbered(&found, known))
    }

    /// Lets actor `who`, which is about to sync, be stopped in the middle of it, now and then, so
    /// that another one comes first.
    fn stop_in_sync(self: &Arc<Self>, who: usize, actor: &mut Actor) {
        let Some(process) = self.machine.processes.get(who) else {
            return;
        };
        let may_stop = self.stops.load(Ordering::SeqCst) > 0 && process.image.is_some();
        if !may_stop || !actor.rng.chance(1, 2) {
            return;
        }
        let run = Arc::downgrade(self);
        let others = Fate::Call(Box::new(move || {
            if let Some(run) = Weak::upgrade(&run) {
                run.come_first(who);
            }
        }));
        process.files.core().memory().meet(1 + actor.rng.below(actor.stores), others);
    }

    /// Another one than `who` does something, and makes it durable.
    fn come_first(self: &Arc<Self>, who: usize) {
        self.stops.fetch_sub(1, Ordering::SeqCst);
        let other = (who + 1) % self.actors.len();
        for _ in 0..2 {
            self.act(other, May::WithoutTurns);
        }
        if let Some(mut actor) = self.actors.get(other).and_then(|actor| actor.try_lock().ok()) {
            become_actor(other as u32);
            if let Err(what) = self.operate(other, &mut actor, &Op::Sync) {
                self.fail(format!("actor {other}, while {who} is stopped: {what}"));
            }
        }
        become_actor(who as u32);
    }

    /// What others do while `who` is at the volume: of whose file that is nobody knows, because who
    /// makes room, or syncs, pushes those of others, too.
    fn meanwhile(self: &Arc<Self>, who: usize) {
        let (is_now, other) = {
            let mut noise = lock(&self.noise);
            (noise.chance(1, 12), noise.below(self.actors.len() as u64) as usize)
        };
        if !is_now || other == who || self.has_failed() {
            return;
        }
        self.act(other, May::WithoutTurns);
        become_actor(who as u32);
    }

    /// All do `count` operations, in all.
    fn act_all(self: &Arc<Self>, rng: &mut Rng, count: u64) {
        let actors = self.actors.len();
        if !self.setup.threads {
            for _ in 0..count {
                self.act(rng.below(actors as u64) as usize, May::All);
                if self.has_failed() {
                    return;
                }
            }
            return;
        }
        std::thread::scope(|scope| {
            for who in 0..actors {
                scope.spawn(move || {
                    for _ in 0..count / actors as u64 {
                        self.act(who, May::All);
                        if self.has_failed() {
                            return;
                        }
                    }
                });
            }
        });
    }
}

/// Whether there was no space.
fn is_full(error: &Error) -> bool {
    matches!(error, Error::Core(conquest_pm::Error::NoSpace { .. }))
        || error.errno() == Errno::ENOSPC
}

/// `found` with the numbers that files of the same names have in `known`.
fn renumbered(found: &Tree, known: &Tree) -> Tree {
    let mut tree = Tree::default();
    for (name, number) in &found.names {
        let wanted = known.names.get(name).copied().unwrap_or(*number);
        tree.names.insert(name.clone(), wanted);
        if let Some(file) = found.files.get(number) {
            tree.files.insert(wanted, Arc::clone(file));
        }
    }
    tree
}

/// Keeps what the core of `machine` is before each event of its device.
fn keep_cores(machine: &Machine, start: &Start) -> Arc<Mutex<Vec<(usize, HeapCopy)>>> {
    let cores = Arc::new(Mutex::new(Vec::new()));
    if let Some(first) = start.core.clone() {
        let (kept, core) = (Arc::clone(&cores), machine.core().clone());
        machine.recorder.watch(Some(Arc::new(move |event| {
            let mut kept = lock(&kept);
            let before = kept.last().map_or(&first, |(_, core)| core);
            let now = core.copy(before);
            kept.push((event, now));
        })));
    }
    cores
}

/// Starts the store of `start`, where the actors have the files `initial`, and lets them do what
/// follows from `seed`: records all of it. Operations have numbers from `next` on.
///
/// # Errors
/// What went wrong, as text.
pub fn record(
    setup: &Setup,
    seed: u64,
    start: &Start,
    initial: Vec<Tree>,
    next: u32,
) -> Result<Recording, String> {
    let recorder = setup.device(start.medium.clone(), true)?;
    let recorder = if setup.threads { recorder.shared() } else { recorder };
    recorder.mark(Mark::Recovery);
    let machine = Machine::start(&recorder, start.core.as_ref(), setup.actors)?;
    let cores = keep_cores(&machine, start);
    recorder.mark(Mark::Recovered);
    let actor = |(who, tree): (u64, &Tree)| {
        let (tree, rng) = (tree.clone(), Rng::stream(seed, 20 + who));
        Mutex::new(Actor { tree, steps: Vec::new(), rng, stores: 0 })
    };
    let run = Arc::new(Run {
        setup: *setup,
        actors: (0..).zip(&initial).map(actor).collect(),
        machine,
        next: AtomicU32::new(next),
        kinds: Mutex::new(Vec::new()),
        operations: Mutex::new(BTreeMap::new()),
        noise: Mutex::new(Rng::stream(seed, 5)),
        stops: AtomicU32::new(STOPS),
        failure: Mutex::new(None),
    });
    if !setup.threads {
        let weak = Arc::downgrade(&run);
        run.machine.hook.set(Some(Box::new(move |who| {
            if let Some(run) = Weak::upgrade(&weak) {
                run.meanwhile(who);
            }
        })));
    }
    let mut rng = Rng::stream(seed, 2);
    let count = match (next, setup.is_row) {
        (1, _) => setup.operations,
        (_, true) => 6 + rng.below(12),
        _ => setup.operations / 4 + rng.below(20),
    };
    run.act_all(&mut rng, count);
    run.machine.hook.set(None);
    let failure = lock(&run.failure).take();
    if let Some(what) = failure {
        return Err(what);
    }
    let steps = run.actors.iter().map(|actor| core::mem::take(&mut lock(actor).steps)).collect();
    // The core behind the last event is kept before this remark, which is none of them.
    recorder.mark(Mark::Recovered);
    recorder.watch(None);
    let mut log = recorder.take_log();
    log.pop();
    let history = History::new(initial, steps, &log, setup.core_stays);
    let cores = core::mem::take(&mut *lock(&cores));
    let (next, kinds) = (run.next.load(Ordering::SeqCst), core::mem::take(&mut *lock(&run.kinds)));
    become_actor(0);
    let operations = core::mem::take(&mut *lock(&run.operations));
    let has_stopped = run.stops.load(Ordering::SeqCst) < STOPS;
    let start = start.clone();
    Ok(Recording { start, log, history, next, kinds, operations, has_stopped, cores })
}
