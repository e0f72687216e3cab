//! Recorded runs of small volumes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conquest_flash::device::Device;
use conquest_flash::{Body, Error, NewVolume, Volume, assemble, create};
use conquest_format::Geometry;
use conquest_format::volume::Arrangement;
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::{Core, Options};

use super::history::{History, PER_UNIT, State, Step, contents};
use super::medium::Medium;
use super::memory::HeapMemory;
use super::recorder::{Event, Mark, Recorder};
use crate::{Clock, Rng, SimHost, World, become_actor, lock};

/// A volume in the heap.
pub type TestVolume = Volume<HeapMemory, SimHost>;

/// Units of a segment.
pub(crate) const SEGMENT: u64 = 16;
/// Bytes of a segment, and of what is before the first one.
pub(crate) const SEGMENT_BYTES: u64 = SEGMENT * 4096;
/// Segments that hold no payload: the layer's own number.
const KEPT: u64 = 20;

/// What is the same in all runs of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// What all follows from.
    pub seed: u64,
    /// Segments of the volume.
    pub segments: u64,
    /// Blocks of the space that are used.
    pub space: u64,
    /// Bytes that the device writes at once.
    pub block: u64,
    /// Whether the device has FUA.
    pub fua: bool,
    /// Threads that work on the volume.
    pub threads: u32,
    /// Operations of the first run.
    pub operations: u64,
    /// Whether crashes follow each other, each after a few operations: more of them than a root
    /// can name.
    pub is_row: bool,
    /// Whether these crashes are of a full volume, most of them while it is opened: there is
    /// little space, and more lives than a root can name before anybody has made any.
    pub is_tight: bool,
    /// Of so many operations one is a flush.
    flush_each: u64,
    /// Of so many operations one is a trim.
    trim_each: u64,
    /// Of so many operations one is a checkpoint.
    checkpoint_each: u64,
}

impl Setup {
    /// The setup of scenario `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Setup {
        let mut rng = Rng::stream(seed, 1);
        let segments = 40 + rng.below(3) * rng.below(31);
        let is_tight = seed % 16 == 14;
        let percent = 55 + rng.below(50);
        let percent = if is_tight { 105 } else { percent };
        let units = (segments - KEPT) * SEGMENT * percent / 100;
        let pick = |rng: &mut Rng, from: &[u64]| {
            from.get(rng.below(from.len() as u64) as usize).copied().unwrap_or(1)
        };
        Setup {
            seed,
            segments,
            space: units * PER_UNIT,
            block: if rng.chance(1, 3) { 4096 } else { 512 },
            fua: seed % 3 == 1,
            threads: if seed % 4 == 3 { 2 + rng.below(2) as u32 } else { 1 },
            operations: 150 + rng.below(250),
            is_row: seed % 16 == 10 || is_tight,
            is_tight,
            flush_each: pick(&mut rng, &[3, 8, 8, 20, 60]),
            trim_each: pick(&mut rng, &[6, 20, 60]),
            checkpoint_each: pick(&mut rng, &[15, 40, 200]),
        }
    }

    /// A device with the new volume.
    ///
    /// # Errors
    /// Why there is none, as text.
    pub fn fresh(&self) -> Result<Medium, String> {
        let medium = Medium::new((self.segments + 2) * SEGMENT_BYTES);
        let recorder = Recorder::new(medium, false).map_err(|error| error.to_string())?;
        let new = NewVolume {
            uuid: *b"a volume to test",
            created: 1,
            arrangement: Arrangement::Striped,
            segment: Some(SEGMENT),
        };
        create(&[Arc::new(recorder.as_other())], &new).map_err(|error| error.to_string())?;
        Ok(recorder.medium())
    }
}

/// Opens the volume on `recorder` as after a restart of the machine.
///
/// # Errors
/// Why it can't be opened, as text.
pub fn open(recorder: &Recorder) -> Result<TestVolume, String> {
    recover(std::slice::from_ref(recorder)).map_err(|error| format!("recovery: {error}"))
}

/// Opens the volume on `members` as after a restart of the machine.
///
/// # Errors
/// Those of the volume.
pub fn recover(members: &[Recorder]) -> conquest_flash::Result<TestVolume> {
    let device = |member: &Recorder| Arc::new(member.as_other()) as Arc<dyn Device>;
    let body = assemble(members.iter().map(device).collect())?;
    Volume::recover(region(&body)?, &body)
}

/// A new region for `body`.
fn region(body: &Body) -> conquest_pm::Result<Arc<Core<HeapMemory, SimHost>>> {
    let (shape, path) = (body.shape(4), Path::new("index"));
    let impossible = conquest_pm::Error::TooLarge { what: "shape", wanted: 0, most: 0 };
    let geometry = Geometry::new(shape).ok_or(impossible)?;
    let clock = Clock::default();
    let memory = HeapMemory::new(geometry.len(), clock.clone());
    let host = World::new(clock).process(1);
    let (kinds, uuid) = (body.kinds(), body.uuid());
    make(&memory, &host, path, &NewRegion { shape, kinds, uuid, created: 1, groups: 1 })?;
    Core::attach(memory, host, path, &kinds, Options::default())
}

/// What is done to a volume.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Writes ranges of blocks at once.
    Write(Vec<(u64, u64)>),
    /// Trims a range of blocks.
    Trim(u64, u64),
    /// Flushes.
    Flush,
    /// Writes a checkpoint.
    Checkpoint,
}

impl Operation {
    /// One by chance, as `setup` likes them.
    fn random(setup: &Setup, rng: &mut Rng) -> Operation {
        if rng.chance(1, setup.flush_each) {
            return Operation::Flush;
        }
        if rng.chance(1, setup.checkpoint_each) {
            return Operation::Checkpoint;
        }
        // Most goes to a part of the space.
        let space = if rng.chance(3, 4) { setup.space / 4 } else { setup.space };
        let block = rng.below(space);
        let (block, count) = match rng.below(16) {
            0 => (block, 130 + rng.below(270)),
            1..=3 => (block, 1 + rng.below(64)),
            4..=9 => (block / PER_UNIT * PER_UNIT, PER_UNIT * (1 + rng.below(2))),
            _ => (block, 1 + rng.below(9)),
        };
        let count = count.min(setup.space - block);
        if rng.chance(1, setup.trim_each) {
            return Operation::Trim(block, count * (1 + rng.below(3)));
        }
        let mut ranges = vec![(block, count)];
        if rng.chance(1, 6) {
            for _ in 0..=rng.below(3) {
                let other = rng.below(setup.space);
                let len = (1 + rng.below(40)).min(setup.space - other);
                let is_apart = |&(at, count): &(u64, u64)| at + count <= other || other + len <= at;
                if ranges.iter().all(is_apart) {
                    ranges.push((other, len));
                }
            }
        }
        Operation::Write(ranges)
    }

    /// What it changes, as number `op`, step by step.
    fn steps(&self, op: u32) -> Vec<Step> {
        let step = |ranges, value| Step { op, ranges, value };
        match *self {
            Operation::Write(ref ranges) => {
                let range = |&(block, count): &(u64, u64)| block..block + count;
                vec![step(ranges.iter().map(range).collect(), op)]
            }
            Operation::Trim(block, count) => {
                let end = block + count;
                let (first, last) = (block.div_ceil(PER_UNIT), end / PER_UNIT);
                let whole = first * PER_UNIT..last * PER_UNIT;
                let parts = match first >= last {
                    true => [block..end.min(first * PER_UNIT), first * PER_UNIT..end, 0..0],
                    false => [block..whole.start, whole.end..end, whole],
                };
                let parts = parts.into_iter().filter(|part| !part.is_empty());
                parts.map(|part| step(vec![part], 0)).collect()
            }
            Operation::Flush | Operation::Checkpoint => Vec::new(),
        }
    }

    fn run(&self, volume: &TestVolume, op: u32) -> conquest_flash::Result<()> {
        match self {
            Operation::Write(ranges) => {
                let bytes = |&(block, count): &(u64, u64)| {
                    (block..block + count).flat_map(|block| contents(block, op)).collect()
                };
                let all: Vec<Vec<u8>> = ranges.iter().map(bytes).collect();
                let both = ranges.iter().zip(&all);
                let parts: Vec<_> =
                    both.map(|(&(block, _), bytes)| (block, bytes.as_slice())).collect();
                match parts.as_slice() {
                    &[(block, bytes)] => volume.write(block, bytes),
                    several => volume.write_atomic(several),
                }
            }
            Operation::Trim(block, count) => volume.trim(*block, *count),
            Operation::Flush => volume.flush(),
            Operation::Checkpoint => volume.checkpoint(),
        }
    }
}

/// A recorded run.
pub struct Recording {
    /// What the device held before.
    pub start: Medium,
    /// What happened to it.
    pub log: Vec<Event>,
    /// What the volume was told.
    pub history: History,
    /// The first number that no operation has.
    pub next: u32,
}

/// A run under way.
struct Run<'s> {
    setup: &'s Setup,
    recorder: Recorder,
    volume: TestVolume,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    next: u32,
    steps: Vec<Step>,
    flushes: BTreeSet<u32>,
    failure: Option<String>,
}

impl Run<'_> {
    /// Does `operation`; whether the run goes on.
    fn operate(&self, operation: &Operation) -> bool {
        let op = {
            let mut made = lock(&self.made);
            made.next += 1;
            if matches!(operation, Operation::Flush) {
                let op = made.next;
                made.flushes.insert(op);
            }
            made.next
        };
        let is_alone = self.setup.threads == 1;
        self.recorder.mark(Mark::Begun(op));
        let result = operation.run(&self.volume, op);
        let mut made = lock(&self.made);
        match result {
            Ok(()) => {
                self.recorder.mark(Mark::Done(op));
                made.steps.extend(operation.steps(op));
            }
            Err(Error::NoSpace { most, .. }) if matches!(operation, Operation::Write(_)) => {
                let needed = if is_alone { needed(&self.volume, operation) } else { u64::MAX };
                if needed <= most {
                    let what = format!("{operation:?}: no space, though {needed} of {most} units");
                    made.failure.get_or_insert(what);
                }
            }
            Err(error) => {
                made.failure.get_or_insert(format!("{operation:?}: {error}"));
            }
        }
        made.failure.is_none()
    }

    /// Does `count` operations by chance.
    fn operate_many(&self, rng: &mut Rng, count: u64) {
        for _ in 0..count {
            if !self.operate(&Operation::random(self.setup, rng)) {
                return;
            }
        }
    }

    /// Writes all of the space once.
    fn fill(&self, rng: &mut Rng) {
        let mut at = 0;
        while at < self.setup.space {
            let count = (40 + rng.below(300)).min(self.setup.space - at);
            if !self.operate(&Operation::Write(vec![(at, count)])) {
                return;
            }
            at += count;
        }
    }
}

/// Units that are in use once `operation` has happened to `volume`.
fn needed(volume: &TestVolume, operation: &Operation) -> u64 {
    let mut units = BTreeSet::new();
    let mut at = 0;
    while let Ok(Some((first, count))) = volume.allocated(at) {
        units.extend(first / PER_UNIT..(first + count).div_ceil(PER_UNIT));
        at = first + count;
    }
    if let Operation::Write(ranges) = operation {
        for (block, count) in ranges {
            units.extend(block / PER_UNIT..(block + count).div_ceil(PER_UNIT));
        }
    }
    units.len() as u64
}

/// Opens the volume on `start`, which holds `initial`, and does what follows from `seed`: records
/// all of it. Operations have numbers from `next` on.
///
/// # Errors
/// What went wrong, as text.
pub fn record(
    setup: &Setup,
    seed: u64,
    start: &Medium,
    initial: State,
    next: u32,
) -> Result<Recording, String> {
    let recorder = Recorder::new(start.clone(), true).map_err(|error| error.to_string())?;
    let recorder = recorder.with_fua(setup.fua);
    let recorder = if setup.threads > 1 { recorder.shared() } else { recorder };
    recorder.mark(Mark::Recovery);
    let volume = open(&recorder)?;
    recorder.mark(Mark::Recovered);
    let made = Mutex::new(Made { next: next - 1, ..Made::default() });
    let run = Run { setup, recorder, volume, made };
    let mut rng = Rng::stream(seed, 2);
    let mut count = setup.operations;
    if next == 1 {
        run.fill(&mut rng);
    } else {
        count = if setup.is_row { 2 + rng.below(5) } else { count / 8 + rng.below(20) };
    }
    if setup.threads == 1 {
        run.operate_many(&mut rng, count);
    } else {
        std::thread::scope(|scope| {
            for thread in 0..setup.threads {
                let mut rng = Rng::stream(seed, 3 + u64::from(thread));
                let run = &run;
                scope.spawn(move || {
                    become_actor(thread);
                    run.operate_many(&mut rng, count / u64::from(setup.threads));
                });
            }
        });
    }
    let Run { recorder, made, .. } = run;
    let made = made.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(failure) = made.failure {
        return Err(failure);
    }
    let log = recorder.take_log();
    let is_ordered = setup.threads == 1;
    let history = History::new(initial, made.steps, made.flushes, is_ordered, &log);
    Ok(Recording { start: start.clone(), log, history, next: made.next + 1 })
}

/// Writes some, flushes, opens the volume once more, and compares: whether what was recovered can
/// be used. The volume on `recorder`, opened as `volume`, holds `state`.
///
/// # Errors
/// What went wrong, as text.
pub fn use_again(
    setup: &Setup,
    recorder: Recorder,
    volume: TestVolume,
    mut state: State,
    rng: &mut Rng,
) -> Result<(), String> {
    let mut op = u32::MAX / 2;
    for _ in 0..4 + rng.below(20) {
        op += 1;
        let operation = Operation::random(setup, rng);
        match operation.run(&volume, op) {
            Ok(()) => operation.steps(op).iter().for_each(|step| step.apply(&mut state)),
            Err(Error::NoSpace { most, .. }) if needed(&volume, &operation) > most => {}
            Err(error) => return Err(format!("used again: {operation:?}: {error}")),
        }
    }
    volume.flush().map_err(|error| format!("used again: flush: {error}"))?;
    let compare = |volume: &TestVolume, when: &str| {
        let now = super::history::read(volume, setup.space)
            .map_err(|what| format!("used again, {when}: {what}"))?;
        let differs = now.iter().zip(&state).position(|(one, other)| one != other);
        match differs {
            Some(block) => Err(format!(
                "used again, {when}: block {block} is {:?}, not {:?}",
                now.get(block),
                state.get(block)
            )),
            None => Ok(()),
        }
    };
    compare(&volume, "before")?;
    drop(volume);
    let medium = recorder.medium();
    drop(recorder);
    let again = Recorder::new(medium, false).map_err(|error| error.to_string())?;
    compare(&open(&again)?, "after")
}
