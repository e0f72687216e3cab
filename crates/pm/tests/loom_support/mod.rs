//! A region on loom's words: the real code of `conquest-pm` under weak memory orders.
//!
//! A model watches a few words of the region. These are loom's: loom tries every order of accesses
//! and every value that the C11 memory model allows a load to see. All others are plain: they
//! always have the value stored last, and accesses to them are no points at which threads are
//! switched. So what a model says, it says of the words that it watches.
//!
//! Deaths: an actor may be given a number of stores. Before the next one it unwinds, and nothing
//! that it does on the way out has an effect. [`Fixture::die`] then frees its claim, as the kernel
//! does.
//!
//! Everything here runs on one thread of the system; loom's threads are coroutines. The standard
//! library's mutexes here are never held across an operation of loom.

#![allow(dead_code, unused_imports)] // Each model uses its part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers fail as tests do.

mod host;
mod memory;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use conquest_format::geometry::Shape;
use conquest_format::kind::{KINDS, Kind, KindSpec, KindTable};
use conquest_format::volatile::lock;
use conquest_format::{Geometry, Offset};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::{Core, Object, Options};
use loom::thread::JoinHandle;

pub(crate) use host::{ModelHost, World};
pub(crate) use memory::{Died, Guard, ModelMemory, Region};

type Words = HashMap<u64, u64>;
/// A process's view of the region.
pub(crate) type ModelCore = Core<ModelMemory, ModelHost>;

/// A kind with four objects a slab.
pub(crate) struct Quarter;
impl Object for Quarter {
    const KIND: Kind = Kind::new(1).expect("a kind");
}
/// A kind of page runs.
pub(crate) const RUN: Kind = Kind::new(2).expect("a kind");

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    kinds[usize::from(Quarter::KIND.number())] = KindSpec { object_size: 1024, slab_pages: 1 };
    kinds[usize::from(RUN.number())] = KindSpec::RUN;
    kinds
}

/// What a model starts from: a region and processes that have attached it.
pub(crate) struct Fixture {
    region: Arc<Region>,
    world: Arc<World>,
    geometry: Geometry,
    actors: Vec<&'static ModelCore>,
}

/// How waiting works in a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// A sleeper is only woken: loom finds a wake-up that is lost to be a deadlock.
    ForEver,
    /// Every sleep ends when the others have gone on a bit, with the time up.
    TimeOut,
}

impl Fixture {
    /// A region with `lanes` lanes and `actors` processes, on which `prepare` has been run. It has
    /// no slot for more processes.
    pub(crate) fn new(
        actors: u32,
        lanes: u32,
        waits: Waits,
        prepare: impl Fn(&Fixture) + Send + Sync + 'static,
    ) -> Arc<Fixture> {
        let made: Arc<Mutex<Option<Arc<Fixture>>>> = Arc::default();
        let out = Arc::clone(&made);
        // Attaching takes lanes, which takes a thread of loom.
        loom::model::Builder::new().check(move || {
            let fixture = Self::attached(actors, lanes, waits);
            prepare(&fixture);
            fixture.region.keep();
            fixture.world.keep();
            *locked(&out) = Some(Arc::new(fixture));
        });
        let fixture = locked(&made).take();
        fixture.expect("the preparation does not fail")
    }

    fn attached(actors: u32, lanes: u32, waits: Waits) -> Fixture {
        let shape = Shape { max_groups: 1, lanes, slots: actors, locks: 2, chunks: 4, log: 0 };
        let geometry = Geometry::new(shape).expect("a valid shape");
        let region = Region::new(geometry.len(), waits);
        let world = World::new(actors);
        let path = Path::new("model");
        let new = NewRegion { shape, kinds: kinds(), uuid: [7; 16], created: 1, groups: 1 };
        let memory = |actor| ModelMemory::new(&region, actor);
        make(&memory(0), &world.host(0), path, &new).expect("a region");
        let actors = (0..actors).map(|actor| {
            let host = world.host(actor);
            let core = Core::attach(memory(actor), host, path, &kinds(), Options::default());
            // Never dropped: that would detach it, which is no part of a model.
            &**Box::leak(Box::new(core.expect("attached")))
        });
        let actors = actors.collect();
        Fixture { region, world, geometry, actors }
    }

    /// A process more: it attaches while the others work.
    pub(crate) fn attach(&self, actor: u32) -> conquest_pm::Result<Arc<ModelCore>> {
        let memory = ModelMemory::new(&self.region, actor);
        let host = self.world.host(actor);
        Core::attach(memory, host, Path::new("model"), &kinds(), Options::default())
    }

    /// Process `actor`.
    pub(crate) fn actor(&self, actor: u32) -> &'static ModelCore {
        self.actors[actor as usize]
    }

    /// The layout.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The bytes.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Starts an execution: everything as the preparation left it, `words` watched.
    pub(crate) fn start(&self, words: &[Offset]) {
        self.world.start();
        self.region.start(words);
    }

    /// Lets `actor` live for `stores` more stores.
    pub(crate) fn doom(&self, actor: u32, stores: u64) {
        self.region.doom(actor, stores);
    }

    /// Runs `work` as `actor`; whether it came to the end. If it died on the way, its claim is
    /// free.
    pub(crate) fn live(&self, actor: u32, work: impl FnOnce(&'static ModelCore)) -> bool {
        match catch_unwind(AssertUnwindSafe(|| work(self.actor(actor)))) {
            Ok(()) => true,
            Err(reason) if reason.is::<Died>() => {
                self.die(actor);
                false
            }
            Err(reason) => resume_unwind(reason),
        }
    }

    /// Process `actor` is no more: the kernel frees its claims.
    pub(crate) fn die(&self, actor: u32) {
        self.region.die(actor);
        self.world.kill(actor);
    }

    /// Word and version of lock `number`.
    pub(crate) fn lock_words(&self, number: u32) -> [Offset; 2] {
        let at = self.geometry.lock(number);
        [at.plus(lock::WORD), at.plus(lock::VERSION)]
    }

    /// Word `word` of the volatile record of each lane.
    pub(crate) fn lane_words(&self, word: u64) -> Vec<Offset> {
        let lanes = 0..self.geometry.shape().lanes;
        lanes.map(|lane| self.geometry.lane_record(lane).plus(word)).collect()
    }
}

/// Runs `work` as a thread of loom.
pub(crate) fn spawn(work: impl FnOnce() + 'static) -> JoinHandle<()> {
    loom::thread::spawn(work)
}

/// Explores every execution of `run` with at most `preemptions` preemptions.
pub(crate) fn explore(
    name: &str,
    preemptions: usize,
    run: impl Fn() + Send + Sync + 'static,
) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let start = Instant::now();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        run();
    });
    let executions = count.load(Ordering::Relaxed);
    println!("{name}: {executions} executions, {:.1} s", start.elapsed().as_secs_f64());
    executions
}
