//! Scenarios: recorded runs on a small region, and the oracle that judges what a crash left.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_format::geometry::Shape;
use conquest_format::{Geometry, LINE};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Error, Options};

use crate::schedule::{ScheduleOptions, Search, run};
use crate::shelf::{self, Contents, Op};
use crate::{Actor, CrashPoint, DyingMemory, Fate, Image, Mark, Recording, RecordingMemory, Rng};
use crate::{SimHost, World, lock};

/// A simulated process's memory, which may end its life.
pub type SimMemory = DyingMemory<Actor>;
/// A region in simulation.
pub type SimCore = Arc<Core<SimMemory, SimHost>>;

/// Who did what before the recording began, as the shelf counts it.
const EARLIER: u32 = 7;

/// What a scenario does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// Operations of each actor.
    pub scripts: Vec<Vec<Op>>,
    /// Operations done before the recording begins.
    pub earlier: Vec<Op>,
    /// Before which of its stores, attaching included, the process of actor 0 dies, if it does.
    pub dies_at: Option<u64>,
    /// Whether the medium needs write-back.
    pub needs_write_back: bool,
    /// Whether loads may return older values, where orderings allow it; actors then also read
    /// lists between their operations, and the end of the run is examined.
    pub weak_memory: bool,
}

/// A run, recorded, with what is needed to judge its crashes.
pub struct Scenario {
    /// Every store and fence of the run.
    pub recording: Recording,
    /// The plan it followed.
    pub plan: Plan,
    /// What the shelf held when the recording began.
    before: Contents,
    /// Operations of actor 0 for which there was no space, from 1.
    skipped: HashSet<u64>,
}

/// The layout of the small region: few of everything, so that operations meet.
#[must_use]
pub const fn shape() -> Shape {
    Shape { max_groups: 3, lanes: 3, slots: 3, locks: 4, chunks: 4, log: 0 }
}

/// The options of a process on the small region.
#[must_use]
pub fn options() -> Options<SimMemory, SimHost> {
    Options { intents: Some(Box::new(shelf::step)), growth_groups: 1, ..Options::default() }
}

fn path() -> &'static Path {
    Path::new("simulated core")
}

/// A simulated machine with a fresh region of one group, which nobody has attached yet.
///
/// # Errors
/// Those of making it; [`Error::TooLarge`] if the shape is impossible.
pub fn fresh(shape: Shape, needs_write_back: bool) -> Result<(RecordingMemory, World), Error> {
    let impossible = Error::TooLarge { what: "shape", wanted: 0, most: 0 };
    let geometry = Geometry::new(shape).ok_or(impossible)?;
    let image = Arc::new(Image::new(geometry.len()));
    let memory = RecordingMemory::new(image, geometry.volatile(), needs_write_back);
    let world = World::new(memory.clock());
    let new = NewRegion { shape, kinds: shelf::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    make(&memory.actor(0), &world.process(9), path(), &new)?;
    Ok((memory, world))
}

/// Attaches the region in `memory` as simulated process `pid`.
///
/// # Errors
/// Those of attaching.
pub fn attach(memory: SimMemory, world: &World, pid: u32) -> Result<SimCore, Error> {
    Core::attach(memory, world.process(pid), path(), &shelf::kinds(), options())
}

impl Plan {
    /// The random plan of `seed` for `actors` actors of `operations` operations; with `dies`, actor
    /// 0's process dies on the way.
    #[must_use]
    pub fn random(seed: u64, actors: u32, operations: u64, dies: bool) -> Plan {
        let mut rng = Rng::stream(seed, 1);
        let script = |rng: &mut Rng, actor: u32, count: u64| {
            (1..=count).map(|number| Op::random(rng, actor, number, 3)).collect()
        };
        let before = rng.below(30);
        let mut earlier: Vec<Op> = script(&mut rng, EARLIER, before);
        if rng.chance(1, 3) {
            // The first group is all but full, so that the region grows.
            earlier.insert(0, Op::Push { list: 0, id: 1, pages: shelf::FILLER });
        }
        Plan {
            seed,
            scripts: (0..actors).map(|actor| script(&mut rng, actor, operations)).collect(),
            earlier,
            dies_at: dies.then(|| 1 + rng.below(60 + 50 * operations)),
            needs_write_back: true,
            weak_memory: false,
        }
    }

    /// The image of a region that the earlier operations were done on.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn base(&self) -> Result<(Arc<Image>, Contents), String> {
        let text = |error: Error| format!("before the recording: {error}");
        let geometry = Geometry::new(shape()).ok_or("impossible shape")?;
        let (memory, world) = fresh(shape(), false).map_err(text)?;
        // What stands in the tables of groups that have no space yet is nobody's business.
        for group in 1..shape().max_groups {
            memory.actor(0).put_bytes(geometry.bitmap(group), &[0xA5; LINE as usize]);
        }
        let alive = DyingMemory::counting(memory.actor(0));
        let core = attach(alive, &world, 9).map_err(text)?;
        for &op in &self.earlier {
            shelf::perform(&core, EARLIER, op).map_err(text)?;
        }
        let (contents, findings) = shelf::examine(&core).map_err(text)?;
        if let Some(finding) = findings.first() {
            return Err(format!("before the recording: {finding}"));
        }
        // A clean region, or one whose last process died.
        if self.seed.is_multiple_of(2) {
            core.detach().map_err(text)?;
        }
        Ok((memory.snapshot(), contents))
    }

    /// Runs the plan, its actors interleaved as the seed says, and records it.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn record(self) -> Result<Scenario, String> {
        let (base, before) = self.base()?;
        let geometry = Geometry::new(shape()).ok_or("impossible shape")?;
        let mut recording = None;
        let skipped = Mutex::default();
        let options = ScheduleOptions {
            actors: self.scripts.len() as u32,
            search: Search::Random { seed: self.seed, first: 0, runs: 1 },
            steps: 1_000_000,
            // Or whoever naps while another one attaches sleeps until that one is done with all.
            step_time: Duration::from_micros(20),
            weak_memory: self.weak_memory,
            ..ScheduleOptions::default()
        };
        let found = run(
            &options,
            || {
                let memory = RecordingMemory::new(
                    Arc::clone(&base),
                    geometry.volatile(),
                    self.needs_write_back,
                );
                let world = World::new(memory.clock());
                if self.weak_memory {
                    world.order(&memory);
                }
                (memory, world)
            },
            |world, actor, memory| self.play(world, actor, memory, &skipped),
            |_, memory| {
                recording = Some(memory.recording());
                memory.violation().map_or(Ok(()), Err)?;
                if self.weak_memory { self.examine_end(memory).map(|()| 0) } else { Ok(0) }
            },
        );
        if let Some(failure) = found.failures.first() {
            return Err(failure.clone());
        }
        let recording = recording.ok_or("nothing was recorded")?;
        let skipped = lock(&skipped).clone();
        Ok(Scenario { recording, plan: self, before, skipped })
    }

    /// The memory of `actor`'s process, with its death in it.
    fn fate(&self, world: &World, actor: u32, memory: &Actor) -> SimMemory {
        match self.dies_at {
            Some(store) if actor == 0 => {
                let world = world.clone();
                let dies = Fate::Unwind(Box::new(move || world.kill(actor)));
                DyingMemory::new(memory.clone(), store, dies)
            }
            _ => DyingMemory::counting(memory.clone()),
        }
    }

    /// What one actor does: attach as a process of its own, its script, detach.
    fn play(
        &self,
        world: &World,
        actor: u32,
        memory: &Actor,
        skipped: &Mutex<HashSet<u64>>,
    ) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let core = attach(self.fate(world, actor, memory), world, actor).map_err(text)?;
        let script = self.scripts.get(actor as usize).map_or(&[][..], Vec::as_slice);
        for (number, &op) in (1..).zip(script) {
            memory.mark(Mark::Begun(number));
            if !shelf::perform(&core, actor, op).map_err(text)? && actor == 0 {
                lock(skipped).insert(number);
            }
            memory.mark(Mark::Acknowledged(number));
            if self.weak_memory {
                let list = (number % u64::from(shelf::LISTS)) as u32;
                shelf::look(&core, list, number % 2 == 0).map_err(text)?;
            }
        }
        core.detach().map_err(text)
    }
}

impl Plan {
    /// Whether each operation happened once, and nothing is damaged, at the end of the run.
    fn examine_end(&self, memory: &RecordingMemory) -> Result<(), String> {
        let world = World::new(memory.clock());
        let text = |error: Error| error.to_string();
        let alive = DyingMemory::counting(memory.this_thread());
        let core = attach(alive, &world, 5).map_err(text)?;
        let (contents, findings) = shelf::examine(&core).map_err(text)?;
        if let Some(finding) = findings.first() {
            return Err(finding.to_string());
        }
        for (actor, script) in self.scripts.iter().enumerate() {
            let (done, all) = (contents.done[actor], script.len() as u64);
            if done > all || done < all && !(actor == 0 && self.dies_at.is_some()) {
                return Err(format!("actor {actor}: {done} of {all} operations happened"));
            }
        }
        Ok(())
    }
}

impl Scenario {
    /// Recovers the region in `memory` and compares it with what had been acknowledged: the check
    /// of an exploration.
    ///
    /// # Errors
    /// What is lost, leaked or half done.
    pub fn judge(&self, memory: &RecordingMemory, point: &CrashPoint<'_>) -> Result<u64, String> {
        let world = World::new(memory.clock());
        let alive = DyingMemory::counting(memory.this_thread());
        let core = attach(alive, &world, 5).map_err(|error| error.to_string())?;
        memory.this_thread().mark(Mark::Recovered);
        let (contents, findings) = shelf::examine(&core).map_err(|error| error.to_string())?;
        if let Some(finding) = findings.first() {
            return Err(finding.to_string());
        }
        self.compare(&contents, point)?;
        Ok(digest(&contents))
    }

    fn compare(&self, contents: &Contents, point: &CrashPoint<'_>) -> Result<(), String> {
        for actor in 0..self.plan.scripts.len() as u32 {
            let acknowledged = point.last_acknowledged(actor).unwrap_or(0);
            let begun = point.last_begun(actor).unwrap_or(0);
            let done = contents.done.get(actor as usize).copied().unwrap_or(0);
            if done < acknowledged || done > begun {
                return Err(format!(
                    "actor {actor}: {acknowledged} operations acknowledged, {begun} begun, \
                     {done} happened"
                ));
            }
        }
        if let [script] = self.plan.scripts.as_slice() {
            let done = contents.done.first().copied().unwrap_or(0) as usize;
            let mut model = self.before.clone();
            for (number, &op) in (1..).zip(script.iter().take(done)) {
                if self.skipped.contains(&number) {
                    model.skip(0);
                } else {
                    model.apply(0, op);
                }
            }
            if model != *contents {
                return Err(format!("after {done} operations: {contents:?}, not {model:?}"));
            }
        }
        Ok(())
    }
}

fn digest(contents: &Contents) -> u64 {
    conquest_format::checksum(0, format!("{contents:?}").as_bytes())
}
