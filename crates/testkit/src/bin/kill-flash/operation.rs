//! Operations: which one is next follows from the seed, the slot, the operation's number and what
//! the slice holds, so that nobody has to write down what was done.

use conquest_flash::{Error, Volume};
use conquest_pm::media::{Mapped, OsHost};
use conquest_testkit::Rng;
use conquest_testkit::flash::slice::{Slice, Step, trim};
use conquest_testkit::flash::values::{BLOCK, PER_UNIT, fill, value};

use crate::share::Share;
use crate::space::{Space, far_of};

/// A volume as processes have it.
pub(crate) type TestVolume = Volume<Mapped, OsHost>;

/// Most blocks that are written at once: more is more than one change.
const MOST: usize = (1 << 20) / BLOCK;

/// An operation. Blocks are those of the slice, from 0; ranges lie within a stripe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Write(usize, usize),
    Atomic(Vec<(usize, usize)>),
    Trim(usize, usize),
    /// Trims all that the slot has far away: the stripe there, and much that never was.
    TrimFar(usize, usize),
    Move(usize, usize, usize),
    /// Writes a set, which others write too.
    Set(usize),
    Flush,
    Checkpoint,
    Read(usize, usize),
    /// Reads a set.
    Look(usize),
    /// Asks what is allocated from here on.
    Allocated(usize),
    /// Writes with space that is reserved, as much of it as these ranges take.
    WriteReserved(Vec<(usize, usize)>),
    Reserve(u64),
    Release(u64),
    /// Reserves more than there is, which has to be refused.
    ReserveAll,
    /// Writes by the slot's queue.
    QueueWrite(usize, usize),
    /// Reads by it.
    QueueRead(usize, usize),
}

/// Operations that are of one kind: many by a queue, or few.
const PHASE: u64 = 96;

/// Who does operations.
#[derive(Clone, Copy)]
pub(crate) struct Who<'s> {
    pub(crate) space: &'s Space,
    pub(crate) seed: u64,
    pub(crate) slot: usize,
    /// Units that the slice is to have at least.
    pub(crate) least: usize,
}

impl Who<'_> {
    /// The number by which blocks name the `index`-th operation of the slot, from 0.
    pub(crate) fn number(&self, index: u64) -> u64 {
        index * self.space.slots() as u64 + self.slot as u64 + 1
    }

    /// The `index`-th operation of the slot, when its slice is `slice`, and it has `share`
    /// reserved.
    pub(crate) fn plan(&self, index: u64, slice: &Slice, share: &Share) -> Op {
        let mut rng = Rng::stream(self.seed ^ (self.slot as u64) << 48, index ^ (1 << 47));
        let free = share.free(slice.live);
        match rng.below(64) {
            0 if free > 0 => return Op::Reserve(free),
            1 if free > 0 => return Op::Reserve(1 + rng.below(free.min(24))),
            2 if share.least() > 0 => return Op::Release(1 + rng.below(share.least())),
            3 if rng.chance(1, 4) => return Op::ReserveAll,
            _ => {}
        }
        let op = match self.is_deep(index) && rng.chance(7, 8) {
            true => self.queued(&mut rng),
            false => self.wanted(index, slice),
        };
        let ranges = match op {
            Op::Write(at, count) | Op::QueueWrite(at, count) => vec![(at, count)],
            Op::Atomic(ref ranges) => ranges.clone(),
            _ => return op,
        };
        let new = slice.new_units(&ranges) as u64;
        if new > free || rng.chance(1, 4) {
            return match share.least() {
                least if new <= least => Op::WriteReserved(ranges),
                _ if new <= free => op,
                0 => Op::Read(ranges[0].0, ranges[0].1.min(64)),
                least => Op::Release(least),
            };
        }
        op
    }

    /// Whether most operations about `index` go by the queue.
    fn is_deep(&self, index: u64) -> bool {
        Rng::stream(self.seed ^ (self.slot as u64) << 48, (index / PHASE) ^ (1 << 46)).chance(1, 3)
    }

    fn queued(&self, rng: &mut Rng) -> Op {
        let most = if rng.chance(1, 8) { 64 } else { 4 };
        let (at, count) = self.units(rng, most);
        if rng.chance(1, 2) { Op::QueueRead(at, count) } else { Op::QueueWrite(at, count) }
    }

    /// What it would do if nothing were reserved.
    fn wanted(&self, index: u64, slice: &Slice) -> Op {
        let mut rng = Rng::stream(self.seed ^ (self.slot as u64) << 48, index);
        let set = index as usize * self.space.slots() + self.slot;
        if set < self.space.sets.len() {
            return Op::Set(set);
        }
        if slice.live < self.least && rng.chance(9, 10) {
            return self.fill_hole(slice, &mut rng);
        }
        let any_set = rng.below(self.space.sets.len() as u64) as usize;
        match rng.below(1000) {
            0..380 => {
                let (at, _) = self.units(&mut rng, 1);
                Op::Write(at, PER_UNIT)
            }
            380..500 => self.write(&mut rng, 7),
            500..600 => self.write(&mut rng, 16 * PER_UNIT),
            600..606 => self.write(&mut rng, MOST),
            606..666 => self.atomic(&mut rng),
            666..726 => Op::Set(any_set),
            726..790 => self.trim(slice, &mut rng),
            790..820 => self.move_units(slice, &mut rng),
            820..835 => Op::Flush,
            835..836 => Op::Checkpoint,
            836..950 => {
                let (at, rest) = self.place(&mut rng);
                Op::Read(at, 1 + rng.below(rest.min(64) as u64) as usize)
            }
            950..985 => Op::Look(any_set),
            _ => Op::Allocated(self.place(&mut rng).0),
        }
    }

    /// A block of the slice, and how many there are from it to the end of its stripe. Each kind of
    /// stripes as often as others, the long one most often.
    fn place(&self, rng: &mut Rng) -> (usize, usize) {
        let stripes = self.space.slice(self.slot);
        let count = stripes.len();
        let stripe = match rng.below(8) {
            0..4 => stripes[rng.below(count as u64 - 2) as usize],
            4..7 => stripes[count - 2],
            _ => stripes[count - 1],
        };
        let within = rng.below(stripe.len as u64) as usize;
        (stripe.at - self.space.first(self.slot) + within, stripe.len - within)
    }

    /// Up to `most` whole units of one stripe, as blocks.
    fn units(&self, rng: &mut Rng, most: u64) -> (usize, usize) {
        let (at, rest) = self.place(rng);
        let (skip, at) = (at % PER_UNIT, at / PER_UNIT * PER_UNIT);
        let units = ((rest + skip) / PER_UNIT) as u64;
        (at, (1 + rng.below(most.min(units))) as usize * PER_UNIT)
    }

    fn range(&self, rng: &mut Rng, most: usize) -> (usize, usize) {
        if rng.chance(1, 2) && most >= PER_UNIT {
            return self.units(rng, (most / PER_UNIT) as u64);
        }
        let (at, rest) = self.place(rng);
        let most = most.min(rest).min(MOST - at % PER_UNIT);
        (at, 1 + rng.below(most as u64) as usize)
    }

    fn write(&self, rng: &mut Rng, most: usize) -> Op {
        let (at, count) = self.range(rng, most);
        Op::Write(at, count)
    }

    fn atomic(&self, rng: &mut Rng) -> Op {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for _ in 0..2 + rng.below(5) {
            let most = if rng.chance(1, 16) { 24 * PER_UNIT } else { 3 * PER_UNIT };
            let (at, count) = self.range(rng, most);
            let is_apart =
                |&(other, len): &(usize, usize)| at + count <= other || other + len <= at;
            if ranges.iter().all(is_apart) {
                ranges.push((at, count));
            }
        }
        Op::Atomic(ranges)
    }

    /// A trim, unless too little would remain.
    fn trim(&self, slice: &Slice, rng: &mut Rng) -> Op {
        let spare = slice.live.saturating_sub(self.least);
        let far =
            self.space.slice(self.slot).last().map_or((0, 0), |stripe| (stripe.at, stripe.len));
        let (at, count) = match rng.below(32) {
            0 if spare > far.1 / PER_UNIT => {
                return Op::TrimFar(far.0 - self.space.first(self.slot), far.1);
            }
            0..4 => self.units(rng, 256),
            4..12 => self.range(rng, 40),
            _ => self.units(rng, 16),
        };
        if spare < count / PER_UNIT { Op::Read(at, count.min(64)) } else { Op::Trim(at, count) }
    }

    /// A move, unless it might go over too much.
    fn move_units(&self, slice: &Slice, rng: &mut Rng) -> Op {
        let (from, count) = self.units(rng, 64);
        let (to, other) = self.units(rng, 64);
        let count = count.min(other);
        let spare = slice.live.saturating_sub(self.least);
        match from.abs_diff(to) < count || spare < count / PER_UNIT {
            true => Op::Read(from, count.min(64)),
            false => Op::Move(from, to, count),
        }
    }

    /// A write of units that are nowhere.
    fn fill_hole(&self, slice: &Slice, rng: &mut Rng) -> Op {
        let from = self.place(rng).0 / PER_UNIT * PER_UNIT;
        let mut units = (from..slice.values.len()).chain(0..from).step_by(PER_UNIT);
        let at = units.find(|&at| !slice.is_live(at)).unwrap_or(from);
        let stripe = self.space.stripe(self.slot, at);
        let end = stripe.at + stripe.len - self.space.first(self.slot);
        let most = end.min(at + (1 + rng.below(64) as usize) * PER_UNIT);
        let count = (at..most).step_by(PER_UNIT).take_while(|&at| !slice.is_live(at)).count();
        Op::Write(at, count.max(1) * PER_UNIT)
    }

    /// The blocks of the space from block `at` of the slice on.
    pub(crate) fn block(&self, at: usize) -> u64 {
        self.space.block(self.slot, at)
    }

    /// The bytes of these ranges as operation `number` writes them, and from which block of the
    /// space on.
    fn all(&self, number: u64, ranges: &[(usize, usize)]) -> Vec<(u64, Vec<u8>)> {
        let part = |&(at, count): &(usize, usize)| (self.block(at), self.bytes(number, at, count));
        ranges.iter().map(part).collect()
    }

    pub(crate) fn bytes(&self, number: u64, at: usize, count: usize) -> Vec<u8> {
        let first = self.space.first(self.slot) + at;
        bytes(number, first, count)
    }
}

/// The bytes of `count` blocks from block `first` of the model on as operation `number` writes
/// them.
fn bytes(number: u64, first: usize, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * BLOCK];
    for (at, block) in (first..).zip(bytes.chunks_mut(BLOCK)) {
        fill(value(number, at), block);
    }
    bytes
}

impl Op {
    /// What it changes, one thing after the other.
    pub(crate) fn steps(&self) -> Vec<Step> {
        match *self {
            Op::Write(at, count) | Op::QueueWrite(at, count) => {
                vec![Step::Write(vec![(at, count)])]
            }
            Op::Atomic(ref ranges) | Op::WriteReserved(ref ranges) => {
                vec![Step::Write(ranges.clone())]
            }
            Op::Reserve(_) | Op::Release(_) => vec![Step::Reserve],
            Op::TrimFar(at, count) => vec![Step::Hole(at, count)],
            Op::Move(from, to, count) => vec![Step::Move(from, to, count)],
            Op::Set(set) => vec![Step::Set(set)],
            Op::Trim(at, count) => trim(at, count),
            _ => Vec::new(),
        }
    }

    /// Does it, as operation `number`, if it changes anything.
    pub(crate) fn perform(
        &self,
        who: Who<'_>,
        volume: &TestVolume,
        number: u64,
    ) -> conquest_flash::Result<()> {
        match *self {
            Op::Write(at, count) => volume.write(who.block(at), &who.bytes(number, at, count)),
            Op::Atomic(ref ranges) => volume.write_atomic(&parts(&who.all(number, ranges))),
            Op::WriteReserved(ref ranges) => {
                volume.write_reserved(&parts(&who.all(number, ranges)))
            }
            Op::Reserve(units) => volume.reserve(units),
            Op::Release(units) => volume.release(units).map(drop),
            Op::ReserveAll => {
                let most = volume.usage().capacity;
                match volume.reserve(most) {
                    Err(Error::NoSpace { .. }) => Ok(()),
                    _ => Err(volume_is_endless(most)),
                }
            }
            Op::Trim(at, count) => volume.trim(who.block(at), count as u64),
            Op::TrimFar(..) => {
                let (block, count) = far_of(who.slot);
                volume.trim(block, count)
            }
            Op::Move(from, to, count) => {
                volume.move_blocks(who.block(from), who.block(to), count as u64)
            }
            Op::Set(set) => {
                let set = &who.space.sets[set];
                let all: Vec<_> = set
                    .iter()
                    .map(|stripe| (stripe.block, bytes(number, stripe.at, stripe.len)))
                    .collect();
                volume.write_atomic(&parts(&all))
            }
            Op::Flush => volume.flush(),
            Op::Checkpoint => volume.checkpoint(),
            Op::Read(..)
            | Op::Look(_)
            | Op::Allocated(_)
            | Op::QueueRead(..)
            | Op::QueueWrite(..) => Ok(()),
        }
    }

    /// Bytes that it writes.
    pub(crate) fn written(&self, space: &Space) -> u64 {
        let blocks: usize = match *self {
            Op::Write(_, count) | Op::QueueWrite(_, count) => count,
            Op::Atomic(ref ranges) | Op::WriteReserved(ref ranges) => {
                ranges.iter().map(|&(_, count)| count).sum()
            }
            Op::Set(set) => space.sets[set].iter().map(|stripe| stripe.len).sum(),
            _ => 0,
        };
        (blocks * BLOCK) as u64
    }
}

fn parts(all: &[(u64, Vec<u8>)]) -> Vec<(u64, &[u8])> {
    all.iter().map(|(block, bytes)| (*block, bytes.as_slice())).collect()
}

/// The error for a volume that reserves all that it can hold, though something is in use.
fn volume_is_endless(units: u64) -> Error {
    let what = "as many units were reserved as there are, and some are in use";
    Error::Range { block: 0, count: units, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conquest_testkit::flash::values::HOLE;

    #[test]
    fn slices_stay_as_full_as_they_are_to_be() {
        let space = Space::new(4, 4000);
        let least = space.slice / PER_UNIT * 9 / 10;
        let who = Who { space: &space, seed: 3, slot: 1, least };
        let mut slice = Slice::new(space.first(1), vec![HOLE; space.slice]);
        let mut share = Share::new(0, (space.slice / PER_UNIT + 20) as u64);
        let (mut reached, mut trims, mut reserved) = (false, 0, 0);
        for index in 0..5000 {
            let op = who.plan(index, &slice, &share);
            assert_eq!(op, who.plan(index, &slice, &share));
            let before = slice.live;
            reserved += u32::from(matches!(op, Op::WriteReserved(_)));
            trims += u32::from(matches!(op, Op::Trim(..) | Op::TrimFar(..)));
            for step in op.steps() {
                slice.apply(&step, who.number(index), &mut |_, _, _| {});
            }
            share.apply(&op, slice.live.saturating_sub(before));
            reached |= slice.live >= least;
            assert!(!reached || slice.live >= least, "{op:?}: {} of {least}", slice.live);
        }
        assert!(reached && trims > 20 && reserved > 100, "{trims}, {reserved}");
    }
}
