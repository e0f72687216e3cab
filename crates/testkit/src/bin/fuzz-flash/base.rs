//! Volumes to corrupt, in many states, and what each of their units has ever held.

use std::ops::Range;

use conquest_flash::{Error, NewVolume, create};
use conquest_format::volume::{Arrangement, Bind};
use conquest_testkit::Rng;
use conquest_testkit::flash::scenario::{TestVolume, recover};
use conquest_testkit::flash::slice::{Slice, Step, trim};
use conquest_testkit::flash::values::{BLOCK, HOLE, PER_UNIT, ZEROS, fill, value, value_of};
use conquest_testkit::flash::{Medium, Recorder};
use std::sync::Arc;

/// Its identity.
const UUID: [u8; 16] = *b"a volume to fuzz";
/// Units of a segment.
pub(crate) const SEGMENT: u64 = 16;
/// Bytes of each member before its first segment.
pub(crate) const START: u64 = 65536;
/// Bytes of a unit.
pub(crate) const UNIT: u64 = 4096;
/// Segments without payload: kept back, and anchors.
const KEPT: u64 = 20;

/// The values of the blocks of a unit.
pub(crate) type Unit = [u64; PER_UNIT];

/// A volume.
pub(crate) struct Base {
    pub(crate) members: Vec<Medium>,
    /// What they were at earlier moments.
    pub(crate) earlier: Vec<Vec<Medium>>,
    pub(crate) arrangement: Arrangement,
    pub(crate) bind: Bind,
    /// Units of the space that are used.
    pub(crate) units: usize,
    /// What each unit was, and after how many steps it became that.
    history: Vec<Vec<(usize, Unit)>>,
    /// Steps in all, and those of which a flush has told.
    pub(crate) steps: usize,
    pub(crate) flushed: usize,
    /// The first number that no operation has.
    pub(crate) next: u64,
}

/// Opens the volume on `members`.
pub(crate) fn open(members: &[Medium]) -> Result<(TestVolume, Vec<Recorder>), Error> {
    let recorders = recorders(members)?;
    recover(&recorders).map(|volume| (volume, recorders))
}

fn recorders(members: &[Medium]) -> Result<Vec<Recorder>, Error> {
    let failed =
        |source| Error::Device { device: "member".into(), action: "make", at: 0, bytes: 0, source };
    members.iter().map(|medium| Recorder::new(medium.clone(), false).map_err(failed)).collect()
}

/// A change of a volume.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write(Vec<(usize, usize)>),
    Trim(usize, usize),
    /// Trims everything from here on, and much that never was.
    TrimRest(usize),
    Move(usize, usize, usize),
    Flush,
    Checkpoint,
}

impl Op {
    pub(crate) fn random(rng: &mut Rng, units: usize) -> Op {
        let blocks = units * PER_UNIT;
        let range = |rng: &mut Rng, most: u64| {
            let at = rng.below(blocks as u64) as usize;
            let (at, most) = match rng.chance(1, 2) {
                true => (at / PER_UNIT * PER_UNIT, most.next_multiple_of(PER_UNIT as u64)),
                false => (at, most),
            };
            let count = (1 + rng.below(most) as usize).min(blocks - at);
            let is_whole = at.is_multiple_of(PER_UNIT) && rng.chance(3, 4);
            (at, if is_whole { count.next_multiple_of(PER_UNIT) } else { count })
        };
        let most = if rng.chance(1, 8) { 300 } else { 20 };
        match rng.below(16) {
            0..8 => Op::Write(vec![range(rng, most)]),
            8..10 => {
                let mut ranges: Vec<(usize, usize)> = Vec::new();
                for _ in 0..2 + rng.below(4) {
                    let (at, count) = range(rng, most);
                    if ranges.iter().all(|&(other, len)| at + count <= other || other + len <= at) {
                        ranges.push((at, count));
                    }
                }
                Op::Write(ranges)
            }
            10 => Op::TrimRest((blocks as u64 - rng.below(blocks as u64 / 4)) as usize),
            11..13 => {
                let (at, count) = range(rng, most * 2);
                Op::Trim(at, count)
            }
            13 => {
                let unit = |rng: &mut Rng| rng.below(units as u64) as usize;
                let (from, to) = (unit(rng), unit(rng));
                let most = (units - from.max(to)).min(from.abs_diff(to)).min(24);
                match most {
                    0 => Op::Flush,
                    _ => {
                        let count = 1 + rng.below(most as u64) as usize;
                        Op::Move(from * PER_UNIT, to * PER_UNIT, count * PER_UNIT)
                    }
                }
            }
            14 => Op::Flush,
            _ if rng.chance(1, 3) => Op::Checkpoint,
            _ => Op::Flush,
        }
    }

    pub(crate) fn steps(&self, units: usize) -> Vec<Step> {
        match *self {
            Op::Write(ref ranges) => vec![Step::Write(ranges.clone())],
            Op::Trim(at, count) => trim(at, count),
            Op::TrimRest(at) => trim(at, units * PER_UNIT - at),
            Op::Move(from, to, count) => vec![Step::Move(from, to, count)],
            Op::Flush | Op::Checkpoint => Vec::new(),
        }
    }

    pub(crate) fn perform<M, H>(
        &self,
        volume: &conquest_flash::Volume<M, H>,
        number: u64,
    ) -> conquest_flash::Result<()>
    where
        M: conquest_pm::memory::Memory,
        H: conquest_pm::host::Host,
    {
        match *self {
            Op::Write(ref ranges) => {
                let all: Vec<_> = ranges
                    .iter()
                    .map(|&(at, count)| {
                        let mut bytes = vec![0; count * BLOCK];
                        for (block, bytes) in (at..).zip(bytes.chunks_mut(BLOCK)) {
                            fill(value(number, block), bytes);
                        }
                        (at as u64, bytes)
                    })
                    .collect();
                let ranges: Vec<_> = all.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
                volume.write_atomic(&ranges)
            }
            Op::Trim(at, count) => volume.trim(at as u64, count as u64),
            Op::TrimRest(at) => volume.trim(at as u64, 1 << 60),
            Op::Move(from, to, count) => volume.move_blocks(from as u64, to as u64, count as u64),
            Op::Flush => volume.flush(),
            Op::Checkpoint => volume.checkpoint(),
        }
    }
}

impl Base {
    /// The one of `seed`.
    pub(crate) fn new(seed: u64) -> Result<Base, String> {
        let mut rng = Rng::stream(seed, 7);
        let (count, arrangement) = match rng.below(8) {
            0..4 => (1, Arrangement::Striped),
            4..6 => (2 + rng.below(2), Arrangement::Striped),
            _ => (2, Arrangement::Mirrored),
        };
        let segments = 36 + rng.below(40);
        let rows = if arrangement == Arrangement::Striped { segments / count } else { segments };
        let len = 2 * START + rows.max(33) * SEGMENT * UNIT;
        let media: Vec<_> = (0..count).map(|_| Medium::new(len)).collect();
        let text = |error: Error| error.to_string();
        let recorders = recorders(&media).map_err(text)?;
        let new = NewVolume { uuid: UUID, created: 1, arrangement, segment: Some(SEGMENT) };
        let devices: Vec<_> = recorders.iter().map(|one| Arc::new(one.as_other()) as _).collect();
        create(&devices, &new).map_err(text)?;
        let members: Vec<_> = recorders.iter().map(Recorder::medium).collect();
        let payload = (rows.max(33) * if arrangement == Arrangement::Striped { count } else { 1 }
            - KEPT)
            * SEGMENT;
        let units = (payload * 13 / 14 * (40 + rng.below(55)) / 100) as usize;
        let mut base = Base {
            members,
            earlier: Vec::new(),
            arrangement,
            bind: Bind::new(UUID),
            units,
            history: vec![vec![(0, [HOLE; PER_UNIT])]; units],
            steps: 0,
            flushed: 0,
            next: 1,
        };
        let runs = match rng.below(8) {
            // More lives than a root can name.
            0 => 70,
            1..4 => 1,
            _ => 2 + rng.below(5),
        };
        for run in 0..runs {
            let count = if runs > 60 { 1 + rng.below(12) } else { 1 << (3 + rng.below(7)) };
            base.run(&mut rng, count, run + 1 == runs)?;
        }
        Ok(base)
    }

    /// Opens it, does `count` operations, and leaves it as it is.
    fn run(&mut self, rng: &mut Rng, count: u64, is_last: bool) -> Result<(), String> {
        let (volume, recorders) = open(&self.members).map_err(|error| error.to_string())?;
        self.rewind(&volume)?;
        let mut slice = Slice::new(0, self.after(self.steps).into_iter().flatten().collect());
        let moments = if is_last { 1 + rng.below(4) } else { 0 };
        for index in 0..count {
            if rng.below(count) < moments {
                self.earlier.push(recorders.iter().map(Recorder::medium).collect());
            }
            let op = Op::random(rng, self.units);
            let done = op.perform(&volume, self.next);
            done.map_err(|error| format!("{index} of {count}: {op:?}: {error}"))?;
            if matches!(op, Op::Flush) {
                self.flushed = self.steps;
            }
            for step in op.steps(self.units) {
                self.apply(&mut slice, &step);
            }
            self.next += 1;
        }
        if rng.chance(1, 2) {
            volume.flush().map_err(|error| error.to_string())?;
            self.flushed = self.steps;
        }
        drop(volume);
        self.members = recorders.iter().map(Recorder::medium).collect();
        Ok(())
    }

    fn apply(&mut self, slice: &mut Slice, step: &Step) {
        self.steps += 1;
        let mut changed = Vec::new();
        slice.apply(step, self.next, &mut |block, _, _| changed.push(block / PER_UNIT));
        changed.sort_unstable();
        changed.dedup();
        for unit in changed {
            let values = &slice.values[unit * PER_UNIT..(unit + 1) * PER_UNIT];
            let values = seen(values.try_into().unwrap_or([HOLE; PER_UNIT]));
            self.history[unit].push((self.steps, values));
        }
    }

    /// Finds out after how many steps it is what `volume` holds, and forgets those behind.
    fn rewind(&mut self, volume: &TestVolume) -> Result<(), String> {
        let found = read(volume, self.units, |error| Err(error.to_string()))?;
        let possible = self.possible(&found)?;
        let steps = possible.last().copied();
        let steps =
            steps.ok_or_else(|| format!("it never was as it is: {}", self.nearest(&found)))?;
        for unit in &mut self.history {
            unit.retain(|(since, _)| *since <= steps);
        }
        self.steps = steps;
        self.flushed = self.flushed.min(steps);
        Ok(())
    }

    /// What all units are after `steps` steps.
    pub(crate) fn after(&self, steps: usize) -> Vec<Unit> {
        let one = |unit: &Vec<(usize, Unit)>| {
            let last = unit.iter().rev().find(|(since, _)| *since <= steps);
            last.map_or([HOLE; PER_UNIT], |&(_, values)| values)
        };
        self.history.iter().map(one).collect()
    }

    /// After how many steps all units are what was found, where anything was.
    ///
    /// # Errors
    /// A unit that never was what was found.
    pub(crate) fn possible(&self, found: &[Option<Unit>]) -> Result<Vec<usize>, String> {
        let mut changes = vec![0_i64; self.steps + 2];
        let mut readable = 0;
        for (number, (history, found)) in self.history.iter().zip(found).enumerate() {
            let Some(found) = found else { continue };
            readable += 1;
            let mut ever = false;
            for Range { start, end } in times(history, found, self.steps) {
                ever = true;
                changes[start] += 1;
                changes[end] -= 1;
            }
            if !ever {
                return Err(format!("unit {number} is {found:x?}, which it never was"));
            }
        }
        let mut sum = 0;
        let mut possible = Vec::new();
        for (steps, change) in changes.iter().enumerate().take(self.steps + 1) {
            sum += change;
            if sum == readable {
                possible.push(steps);
            }
        }
        Ok(possible)
    }

    /// The moment that comes nearest, and what is otherwise.
    pub(crate) fn nearest(&self, found: &[Option<Unit>]) -> String {
        let wrong = |steps: &usize| {
            let units = self.after(*steps);
            let both = found.iter().zip(units);
            both.filter(|(found, unit)| found.is_some_and(|found| found != *unit)).count()
        };
        let best = (0..=self.steps).min_by_key(wrong).unwrap_or(0);
        let unit = self.after(best);
        let at = found.iter().zip(&unit).position(|(one, two)| one.is_some_and(|one| one != *two));
        format!(
            "after {best} of {} steps ({} flushed) all but {}, first unit {at:?}: {:x?}, of {:x?}",
            self.steps,
            self.flushed,
            wrong(&best),
            at.and_then(|at| found[at]),
            at.map(|at| &self.history[at])
        )
    }
}

/// After how many steps a unit of this `history` is `found`.
fn times(history: &[(usize, Unit)], found: &Unit, steps: usize) -> Vec<Range<usize>> {
    let ends = history.iter().skip(1).map(|&(since, _)| since).chain([steps + 1]);
    let all = history.iter().zip(ends);
    let is_it = all.filter(|((_, values), _)| values == found);
    is_it.map(|(&(since, _), end)| since..end).collect()
}

/// What can be seen of `values`: zeros are zeros.
pub(crate) fn seen(values: Unit) -> Unit {
    values.map(|value| if value == ZEROS { HOLE } else { value })
}

/// What all units of `volume` are; `refused` says what a unit is that can't be read.
pub(crate) fn read<M, H>(
    volume: &conquest_flash::Volume<M, H>,
    units: usize,
    mut refused: impl FnMut(Error) -> Result<Option<Unit>, String>,
) -> Result<Vec<Option<Unit>>, String>
where
    M: conquest_pm::memory::Memory,
    H: conquest_pm::host::Host,
{
    let mut all = Vec::with_capacity(units);
    let mut bytes = vec![0; 16 * UNIT as usize];
    let parse = |number: usize, bytes: &[u8]| {
        let mut unit = [HOLE; PER_UNIT];
        for (value, block) in unit.iter_mut().zip(bytes.chunks(BLOCK)) {
            *value = value_of(block).ok_or_else(|| format!("unit {number}: nobody wrote that"))?;
        }
        Ok::<_, String>(Some(unit))
    };
    while all.len() < units {
        let first = all.len();
        let count = (units - first).min(16);
        let bytes = &mut bytes[..count * UNIT as usize];
        let block = (first * PER_UNIT) as u64;
        if volume.read(block, bytes).is_ok() {
            for (number, unit) in (first..).zip(bytes.chunks(UNIT as usize)) {
                all.push(parse(number, unit)?);
            }
            continue;
        }
        for (number, unit) in (first..).zip(bytes.chunks_mut(UNIT as usize)) {
            all.push(match volume.read((number * PER_UNIT) as u64, unit) {
                Ok(()) => parse(number, unit)?,
                Err(error) => refused(error)?,
            });
        }
    }
    Ok(all)
}
