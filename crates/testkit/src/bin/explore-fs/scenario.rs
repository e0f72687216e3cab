//! Recorded runs of operations on files, and the oracle for their crashes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_format::{Geometry, checksum};
use conquest_fs::Error;
use conquest_testkit::files::{self, Op, attach, describe};
use conquest_testkit::judge::judge;
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{
    Actor, CrashPoint, DyingMemory, Image, Mark, Recording, RecordingMemory, World,
};

/// What is done: a script for each actor.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) scripts: Vec<Vec<Op>>,
    /// Whether the store is full.
    pub(crate) is_full: bool,
}

/// What the tree is like once the operations named in it were done, in one of the possible orders.
struct Model {
    /// Operations done by each actor.
    done: Vec<u64>,
    tree: String,
}

/// A run, recorded, with what is needed to judge its crashes.
pub(crate) struct Scenario {
    pub(crate) recording: Recording,
    models: Vec<Model>,
}

impl Plan {
    /// Runs the plan, its actors interleaved as the seed says, and records it.
    pub(crate) fn record(&self, seed: u64) -> Result<Scenario, String> {
        let detached = (seed + self.scripts.len() as u64).is_multiple_of(2);
        let base = if self.is_full { files::full_base } else { files::base };
        let base = base(detached)?;
        let geometry = Geometry::new(files::shape()).ok_or("impossible shape")?;
        let mut recording = None;
        let refused = Mutex::default();
        let options = ScheduleOptions {
            actors: self.scripts.len() as u32,
            search: Search::Random { seed, first: 0, runs: 1 },
            steps: 1_000_000,
            // Or whoever naps while another one attaches sleeps until that one is done with all.
            step_time: Duration::from_micros(20),
            ..ScheduleOptions::default()
        };
        let found = run(
            &options,
            || {
                let memory = RecordingMemory::new(Arc::clone(&base), geometry.volatile(), true);
                let world = World::new(memory.clock());
                (memory, world)
            },
            |world, actor, memory| self.play(world, actor, memory, &refused),
            |_, memory| {
                recording = Some(memory.recording());
                memory.violation().map_or(Ok(0), Err)
            },
        );
        if let Some(failure) = found.failures.first() {
            return Err(failure.clone());
        }
        let recording = recording.ok_or("nothing was recorded")?;
        let refused = refused.into_inner().map_err(|error| error.to_string())?;
        Ok(Scenario { recording, models: self.models(&base, &refused)? })
    }

    /// What one actor does: attach as a process of its own, its script, detach.
    fn play(
        &self,
        world: &World,
        actor: u32,
        memory: &Actor,
        refused: &Mutex<Vec<(usize, u64)>>,
    ) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let memory_of = DyingMemory::counting(memory.clone());
        let files = attach(memory_of, world, actor).map_err(text)?;
        let script = self.scripts.get(actor as usize).map_or(&[][..], Vec::as_slice);
        for (number, op) in (1..).zip(script) {
            memory.mark(Mark::Begun(number));
            if !op.perform(&files).map_err(text)? {
                refused.lock().map_err(|error| error.to_string())?.push((actor as usize, number));
            }
            memory.mark(Mark::Acknowledged(number));
        }
        files.core().detach().map_err(|error| error.to_string())
    }

    /// All that the tree may be: after each part of each order of the operations. One that was
    /// `refused` has changed nothing: where a path leads, and what is done there, are two steps, so
    /// it may have lost its file to the other one in between.
    fn models(&self, base: &Arc<Image>, refused: &[(usize, u64)]) -> Result<Vec<Model>, String> {
        let mut models = Vec::new();
        for order in orders(&self.scripts) {
            let geometry = Geometry::new(files::shape()).ok_or("impossible shape")?;
            let memory = RecordingMemory::new(Arc::clone(base), geometry.volatile(), false);
            let world = World::new(memory.clock());
            let alive = DyingMemory::counting(memory.actor(0));
            let tree = attach(alive, &world, 3).map_err(|error| error.to_string())?;
            let mut done = vec![0; self.scripts.len()];
            models.push(Model { done: done.clone(), tree: describe(&tree)? });
            for (actor, op) in order {
                if !refused.contains(&(actor, done[actor] + 1)) {
                    op.perform(&tree).map_err(|error| error.to_string())?;
                }
                done[actor] += 1;
                models.push(Model { done: done.clone(), tree: describe(&tree)? });
            }
        }
        Ok(models)
    }
}

/// The orders in which whole operations of the scripts can happen: of one script there is one, of
/// two of one operation there are two.
fn orders(scripts: &[Vec<Op>]) -> Vec<Vec<(usize, Op)>> {
    let all = |actor: usize| scripts[actor].iter().map(move |&op| (actor, op));
    match scripts.len() {
        1 => vec![all(0).collect()],
        _ => vec![all(0).chain(all(1)).collect(), all(1).chain(all(0)).collect()],
    }
}

impl Scenario {
    /// Recovers the file system in `memory` and compares it with what had been acknowledged. The
    /// checker is asked before, about the image as the crash left it, and after.
    pub(crate) fn judge(
        &self,
        memory: &RecordingMemory,
        point: &CrashPoint<'_>,
    ) -> Result<u64, String> {
        judge(memory.image()).map_err(|what| format!("before recovery: {what}"))?;
        let world = World::new(memory.clock());
        let alive = DyingMemory::counting(memory.this_thread());
        let files = attach(alive, &world, 5).map_err(|error| error.to_string())?;
        memory.this_thread().mark(Mark::Recovered);
        let tree = describe(&files)?;
        judge(memory.image()).map_err(|what| format!("after recovery: {what}"))?;
        let fits = |(actor, &done): (u32, &u64)| {
            let least = point.last_acknowledged(actor).unwrap_or(0);
            (least..=point.last_begun(actor).unwrap_or(0)).contains(&done)
        };
        let mut possible = self.models.iter().filter(|model| (0..).zip(&model.done).all(fits));
        if possible.any(|model| model.tree == tree) {
            return Ok(checksum(0, tree.as_bytes()));
        }
        Err(format!("is neither before nor after:\n{tree}"))
    }
}
