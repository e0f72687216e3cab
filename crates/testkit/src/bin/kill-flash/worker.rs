//! A process that works on the volume, by several threads, until it is told to close it, or killed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use conquest_flash::OpenOptions;

use crate::Plan;
use crate::board::{Board, MAYBE};
use crate::operation::{Op, TestVolume, Who};
use crate::place::Place;
use crate::requests::Requests;
use crate::share::Share;
use crate::space::{Space, Stripe};
use conquest_testkit::flash::Log;
use conquest_testkit::flash::slice::{Slice, Step};
use conquest_testkit::flash::values::{
    BLOCK, HOLE, PER_UNIT, differing, number_of, value, value_of,
};

/// Longest time for which what others write at once may be seen in part: one of them may be stopped
/// for a while.
const TORN: Duration = Duration::from_secs(20);

/// Opens the volume at `place`.
pub(crate) fn open(place: &Place) -> Result<TestVolume, String> {
    let directory = place.indices().to_owned();
    let options = OpenOptions { directory, through: Log::beside, ..OpenOptions::default() };
    TestVolume::open(place.devices(), &options).map_err(|error| format!("open: {error}"))
}

/// What processes share that was there before they were.
pub(crate) struct Stage<'s> {
    pub(crate) plan: &'s Plan,
    pub(crate) place: &'s Place,
    pub(crate) space: &'s Space,
    pub(crate) board: &'s Board,
}

impl Stage<'_> {
    pub(crate) fn open(&self) -> Result<TestVolume, String> {
        open(self.place)
    }

    /// Slot `slot`, its slice as it was when the round began, and what it had reserved then.
    pub(crate) fn slot(&self, slot: usize) -> (Who<'_>, Slice, Share) {
        let Stage { plan, space, board, .. } = *self;
        let sets: usize = space.sets.iter().flatten().map(|stripe| stripe.len / PER_UNIT).sum();
        let capacity = board.capacity().load(Ordering::Relaxed);
        let least = (capacity * plan.full).div_ceil(100) as usize;
        let least = least.saturating_sub(sets).div_ceil(space.slots());
        let first = space.first(slot);
        let base = board.base()[first..first + space.slice].iter();
        let values = base.map(|value| value.load(Ordering::Relaxed)).collect();
        let budget = capacity.saturating_sub(sets as u64) / space.slots() as u64;
        let share = Share::new(board.share(slot), budget);
        (Who { space, seed: plan.seed, slot, least }, Slice::new(first, values), share)
    }

    /// Works as process `process`.
    pub(crate) fn work(&self, process: usize) -> Result<(), String> {
        let log = self.place.log()?;
        let volume = self.open()?;
        let threads = self.plan.threads;
        let slots = process * threads..(process + 1) * threads;
        let work = || {
            std::thread::scope(|scope| {
                let spawn = |slot| {
                    let (volume, log) = (&volume, log.as_ref());
                    scope.spawn(move || Work::begin(self, slot, volume, log)?.go_on())
                };
                let all: Vec<_> = slots.map(spawn).collect();
                for thread in all {
                    thread.join().map_err(|_| "a thread has panicked".to_owned())??;
                }
                Ok::<(), String>(())
            })
        };
        // Some have a keeper.
        if process.is_multiple_of(2) { volume.with_keeper(work) } else { work() }?;
        volume.close().map_err(|error| format!("close: {error}"))
    }
}

/// A thread at work.
struct Work<'s> {
    stage: &'s Stage<'s>,
    who: Who<'s>,
    slice: Slice,
    share: Share,
    volume: &'s TestVolume,
    /// Of what is done to the devices, if there is one: it says what comes before what.
    log: Option<&'s Log>,
    requests: Requests<'s>,
    /// Operations of this slot, of which there is a note on the board.
    next: u64,
}

impl<'s> Work<'s> {
    /// Finds out what the slice holds: what was done in this round, and whether what was under way
    /// when the last process of this slot was killed has happened.
    fn begin(
        stage: &'s Stage<'s>,
        slot: usize,
        volume: &'s TestVolume,
        log: Option<&'s Log>,
    ) -> Result<Self, String> {
        let (who, slice, share) = stage.slot(slot);
        let next = stage.board.before(slot);
        let requests = Requests::new(volume, stage.board, slot)?;
        let mut work = Work { stage, who, slice, share, volume, log, requests, next };
        for entry in stage.board.entries(slot, u64::MAX) {
            let op = who.plan(work.next, &work.slice, &work.share);
            let live = work.slice.live;
            let steps = if entry.end.is_none() {
                let steps = work.settle(&op)?;
                stage.board.end(slot, steps, work.now()?);
                steps
            } else {
                if entry.steps != MAYBE {
                    work.apply(&op.steps()[..entry.steps as usize]);
                }
                entry.steps
            };
            work.share(&op, steps, live);
            work.next += 1;
        }
        Ok(work)
    }

    /// The next moment.
    fn now(&self) -> Result<u64, String> {
        match self.log {
            Some(log) => log.mark().map_err(|error| format!("mark: {error}")),
            None => Ok(self.stage.board.now()),
        }
    }

    fn apply(&mut self, steps: &[Step]) {
        let number = self.who.number(self.next);
        let requests = &mut self.requests;
        for step in steps {
            self.slice.apply(step, number, &mut |block, _, new| requests.changed(block, new));
        }
    }

    /// What is reserved after so many steps of `op`, before which `live` units were in use.
    fn share(&mut self, op: &Op, steps: u64, live: usize) {
        match steps {
            MAYBE => self.share.doubt(op),
            0 => {}
            _ => self.share.apply(op, self.slice.live.saturating_sub(live)),
        }
    }

    /// How many steps have happened of `op`, which somebody was in who was killed.
    fn settle(&mut self, op: &Op) -> Result<u64, String> {
        let number = self.who.number(self.next);
        if let Op::Set(set) = *op {
            let is_there = self.look(set)? == number;
            return Ok(if is_there { 1 } else { MAYBE });
        }
        if matches!(op, Op::Reserve(_) | Op::Release(_) | Op::Flush) {
            return Ok(MAYBE);
        }
        let steps = op.steps();
        let mut first = Ok(());
        for made in 0..=steps.len() {
            if made > 0 {
                self.apply(&steps[made - 1..made]);
            }
            let compared = self.compare_all(&steps);
            if compared.is_ok() {
                return Ok(made as u64);
            }
            if made == 0 {
                first = compared;
            }
        }
        let slot = self.who.slot;
        Err(format!("slot {slot}: {op:?}, killed, is neither there nor not: {first:?}"))
    }

    /// Compares what `steps` concern.
    fn compare_all(&self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            match *step {
                Step::Write(ref ranges) => {
                    ranges.iter().try_for_each(|&(at, count)| self.compare(at, count))?;
                }
                Step::Zero(at, count) | Step::Hole(at, count) => self.compare(at, count)?,
                Step::Move(from, to, count) => {
                    self.compare(from, count)?;
                    self.compare(to, count)?;
                }
                Step::Set(_) | Step::Reserve => {}
            }
        }
        Ok(())
    }

    /// Compares blocks of the slice, which are in one stripe.
    fn compare(&self, at: usize, count: usize) -> Result<(), String> {
        let mut bytes = vec![0; count * BLOCK];
        let block = self.who.block(at);
        self.volume.read(block, &mut bytes).map_err(|error| format!("read: {error}"))?;
        let Some(wrong) = differing(&self.slice.values[at..at + count], &bytes) else {
            return Ok(());
        };
        let expected = self.slice.values[at + wrong];
        let found = bytes.chunks(BLOCK).nth(wrong).and_then(value_of);
        let (slot, block) = (self.who.slot, block + wrong as u64);
        Err(format!("slot {slot}: block {block} is {found:x?} and not {expected:x}"))
    }

    /// Reads set `set` until it is whole: the number of the operation that wrote it, 0 for none.
    fn look(&self, set: usize) -> Result<u64, String> {
        let since = Instant::now();
        loop {
            match look(self.volume, &self.stage.space.sets[set])? {
                Ok(number) => return Ok(number),
                Err(what) if since.elapsed() > TORN => return Err(format!("set {set}: {what}")),
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// Compares what is allocated from block `at` of the slice to the end of its stripe.
    fn compare_allocated(&self, at: usize) -> Result<(), String> {
        let (who, slice) = (self.who, &self.slice);
        let stripe = who.space.stripe(who.slot, at);
        let end = stripe.at + stripe.len - who.space.first(who.slot);
        let first = (at..end).find(|&at| slice.is_live(at));
        let gap = first.and_then(|first| (first..end).find(|&at| !slice.is_live(at)));
        let block = who.block(at);
        let found = self.volume.allocated(block).map_err(|error| format!("allocated: {error}"))?;
        let behind = stripe.block + stripe.len as u64;
        let is_right = match (first, gap, found) {
            (None, _, None) => true,
            (None, _, Some((found, _))) => found >= behind,
            (Some(_), _, None) => false,
            (Some(first), Some(gap), Some((found, count))) => {
                found == who.block(first) && found + count == who.block(gap)
            }
            (Some(first), None, Some((found, count))) => {
                found == who.block(first) && found + count >= behind
            }
        };
        if is_right {
            return Ok(());
        }
        Err(format!("allocated from block {block} is {found:?}, not from {first:?} to {gap:?}"))
    }

    fn go_on(mut self) -> Result<(), String> {
        let board = self.stage.board;
        let slot = self.who.slot;
        while !board.is_stopping() {
            if board.is_full(slot) {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let op = self.who.plan(self.next, &self.slice, &self.share);
            let fail = |what, next| format!("slot {slot}, operation {next}: {op:?}: {what}");
            let is_queued = matches!(op, Op::QueueRead(..) | Op::QueueWrite(..));
            if is_queued {
                let least = 1 + self.next as usize % 24;
                self.requests.make_room(least).map_err(|what| fail(what, self.next))?;
            }
            let index = board.begin(slot, self.now()?);
            self.perform(&op, index).map_err(|what| fail(what, self.next))?;
            let (steps, live) = (op.steps(), self.slice.live);
            self.apply(&steps);
            self.share(&op, steps.len() as u64, live);
            board.end(slot, steps.len() as u64, self.now()?);
            board.count(slot, op.written(self.who.space), matches!(op, Op::Look(_)));
            board.count_special(slot, is_queued, matches!(op, Op::WriteReserved(_)));
            self.next += 1;
        }
        self.requests.finish()
    }

    /// Does `op`, number `index` of the round.
    fn perform(&mut self, op: &Op, index: u64) -> Result<(), String> {
        let number = self.who.number(self.next);
        match *op {
            Op::Read(at, count) => self.compare(at, count),
            Op::Look(set) => self.look(set).map(drop),
            Op::Allocated(at) => self.compare_allocated(at),
            Op::QueueRead(at, count) => {
                let values = &self.slice.values[at..at + count];
                self.requests.read(index, (at, self.who.block(at)), values)
            }
            Op::QueueWrite(at, count) => {
                let bytes = self.who.bytes(number, at, count);
                self.requests.write(index, self.who.block(at), &bytes)
            }
            _ => op.perform(self.who, self.volume, number).map_err(|error| error.to_string()),
        }
    }
}

/// The number of the operation that wrote `set`, 0 for none; or how it is not whole.
pub(crate) fn look(volume: &TestVolume, set: &[Stripe]) -> Result<Result<u64, String>, String> {
    let mut number = None;
    for stripe in set {
        let mut bytes = vec![0; stripe.len * BLOCK];
        volume.read(stripe.block, &mut bytes).map_err(|error| format!("read: {error}"))?;
        for (at, block) in bytes.chunks(BLOCK).enumerate() {
            let found = value_of(block).ok_or("a block of a set has what nobody wrote")?;
            let this = number_of(found);
            if found != HOLE && found != value(this, stripe.at + at) {
                return Err(format!("a block of a set is {found:x}, of another place"));
            }
            match number {
                Some(number) if number != this => {
                    return Ok(Err(format!("it is of operation {number} and of {this}")));
                }
                _ => number = Some(this),
            }
        }
    }
    Ok(Ok(number.unwrap_or(0)))
}
