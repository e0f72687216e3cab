//! What may be found: of each slot what its first operations leave, in their order; if an operation
//! is there, so is everything that had ended before it began; a set is as one operation wrote it
//! that nobody has surely gone over since.

use std::sync::atomic::Ordering;

use crate::board::{Entry, MAYBE};
use crate::operation::Op;
use crate::share::{Share, divide};
use crate::worker::Stage;
use conquest_testkit::flash::slice::{Slice, Step};
use conquest_testkit::flash::values::{PER_UNIT, number_of};

/// What has to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// Everything that had ended.
    Ended,
    /// Everything that had ended before a flush began that has succeeded, and what queues have told
    /// of.
    Flushed,
    /// Everything that had ended before a flush began that has succeeded before this moment, when
    /// the power was cut.
    Cut(u64),
}

impl Kept {
    fn cut(self) -> u64 {
        if let Kept::Cut(cut) = self { cut } else { u64::MAX }
    }
}

/// A step of a slot.
#[derive(Clone, Debug)]
struct Made {
    number: u64,
    step: Step,
    begin: u64,
    /// `u64::MAX` if it has not ended.
    end: u64,
    /// Whether it has surely happened, if anything behind it has.
    is_sure: bool,
}

/// What a slot has done, and after how many steps its slice is as it was found.
struct Row {
    made: Vec<Made>,
    possible: Vec<bool>,
    /// What is reserved after so many steps.
    shares: Vec<Share>,
    /// Steps of which a queue has told that they are on the devices.
    landed: usize,
    /// How near it came, if there is no such number: how many steps, and a block that differs.
    nearest: (usize, Option<usize>),
}

/// What a round came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    /// Steps that had ended and are not there.
    pub(crate) lost: u64,
    /// Atomic writes that are there or not as a whole.
    pub(crate) atomic: u64,
    /// Units that are somewhere.
    pub(crate) live: u64,
}

impl Stage<'_> {
    /// Judges what was found.
    pub(crate) fn judge(&self, kept: Kept) -> Result<Verdict, String> {
        let mut flushed = 0;
        let mut rows = Vec::new();
        for slot in 0..self.space.slots() {
            let (row, since) = self.row(slot, kept.cut());
            flushed = flushed.max(since);
            rows.push(row);
        }
        let mut seen = self.seen(&rows)?;
        if kept == Kept::Flushed {
            for (row, seen) in rows.iter().zip(&mut seen) {
                *seen = row.landed.max(*seen);
            }
        }
        let counts = settle(&rows, kept, flushed, seen)?;
        self.judge_sets(&rows, &counts)?;
        self.judge_reserved(&rows, &counts)?;
        let mut verdict = Verdict::default();
        for (row, &count) in rows.iter().zip(&counts) {
            let later = row.made.get(count..).unwrap_or_default();
            verdict.lost += later.iter().filter(|made| made.end != u64::MAX).count() as u64;
            let is_atomic = |made: &&Made| match &made.step {
                Step::Write(ranges) => ranges.len() > 1,
                Step::Move(..) | Step::Set(_) => true,
                _ => false,
            };
            verdict.atomic += row.made.iter().filter(is_atomic).count() as u64;
        }
        let found = self.board.found().iter().step_by(PER_UNIT);
        verdict.live = found.filter(|value| value.load(Ordering::Relaxed) != 0).count() as u64;
        Ok(verdict)
    }

    /// What slot `slot` has done before moment `cut`, compared with its slice; and when its last
    /// flush began.
    fn row(&self, slot: usize, cut: u64) -> (Row, u64) {
        let (who, mut slice, mut share) = self.slot(slot);
        let first = self.space.first(slot);
        let found = self.board.found()[first..first + self.space.slice].iter();
        let found: Vec<u64> = found.map(|value| value.load(Ordering::Relaxed)).collect();
        let mut comparison = Comparison::new(&slice, &found);
        let mut made = Vec::new();
        let mut shares = vec![share.clone()];
        let (mut flushed, mut landed) = (0, 0);
        for (index, entry) in (self.board.before(slot)..).zip(self.board.entries(slot, cut)) {
            let op = who.plan(index, &slice, &share);
            let (steps, live) = (op.steps(), slice.live);
            if entry.steps == MAYBE && entry.end.is_some() {
                share.doubt(&op);
            }
            if op == Op::Flush && entry.end.is_some() && entry.steps != MAYBE {
                flushed = flushed.max(entry.begin);
            }
            for step in steps.into_iter().take(counted(entry)) {
                let number = who.number(index);
                slice.apply(&step, number, &mut |block, old, new| {
                    comparison.change(block, old, new);
                });
                comparison.note();
                let end = entry.end.unwrap_or(u64::MAX);
                let is_sure = entry.steps != MAYBE || entry.end.is_none();
                if is_sure {
                    share.apply(&op, slice.live.saturating_sub(live));
                }
                made.push(Made { number, step, begin: entry.begin, end, is_sure });
                shares.push(share.clone());
            }
            if entry.has_landed {
                landed = made.len();
            }
        }
        let Comparison { possible, nearest, .. } = comparison;
        let nearest = (nearest.1, nearest.2);
        (Row { made, possible, shares, landed, nearest }, flushed)
    }

    /// How many steps of each of `rows` there are at least, as sets show.
    fn seen(&self, rows: &[Row]) -> Result<Vec<usize>, String> {
        let mut seen = vec![0; rows.len()];
        for set in 0..self.space.sets.len() {
            let number = self.number_of_set(set)?;
            for (row, seen) in rows.iter().zip(&mut seen) {
                let made = row.made.iter().position(|made| made.number == number);
                *seen = made.map_or(*seen, |at| (at + 1).max(*seen));
            }
        }
        Ok(seen)
    }

    /// Judges what is reserved, when so many steps of each of `rows` there are at least, and
    /// divides it among the slots.
    fn judge_reserved(&self, rows: &[Row], counts: &[usize]) -> Result<(), String> {
        let found = self.board.reserved().load(Ordering::SeqCst);
        let shares: Vec<Vec<&Share>> = rows
            .iter()
            .zip(counts)
            .map(|(row, &count)| {
                let all = row.shares.iter().zip(&row.possible).skip(count);
                all.filter(|(_, is_possible)| **is_possible).map(|(share, _)| share).collect()
            })
            .collect();
        let Some(divided) = divide(found, &shares) else {
            return Err(format!("{found} units are reserved, of {shares:?} by slots"));
        };
        for (slot, units) in divided.into_iter().enumerate() {
            self.board.set_next_share(slot, units);
        }
        Ok(())
    }

    /// Judges all sets, when so many steps of each of `rows` are there at least.
    fn judge_sets(&self, rows: &[Row], counts: &[usize]) -> Result<(), String> {
        let mut last: Vec<Vec<&Made>> = vec![Vec::new(); self.space.sets.len()];
        for (row, &count) in rows.iter().zip(counts) {
            let there = row.made.iter().take(count).filter(|made| made.is_sure);
            for made in there {
                if let Step::Set(set) = made.step {
                    last[set].push(made);
                }
            }
        }
        for (set, writes) in last.iter().enumerate() {
            let number = self.number_of_set(set)?;
            let all = rows.iter().flat_map(|row| &row.made);
            let written = all.into_iter().find(|made| made.number == number);
            let base =
                number_of(self.board.base()[self.space.sets[set][0].at].load(Ordering::Relaxed));
            let end = match written {
                Some(made) => made.end,
                None if number == base => 0,
                None => {
                    return Err(format!("set {set} is of operation {number}, which was not now"));
                }
            };
            if let Some(later) = writes.iter().find(|made| made.begin > end) {
                return Err(format!(
                    "set {set} is of operation {number}, which ended at {end}; {later:?} is gone"
                ));
            }
        }
        Ok(())
    }

    /// The operation that wrote set `set`, as it was found.
    fn number_of_set(&self, set: usize) -> Result<u64, String> {
        let mut number = None;
        for stripe in &self.space.sets[set] {
            for at in stripe.at..stripe.at + stripe.len {
                let found = self.board.found()[at].load(Ordering::Relaxed);
                let this = number_of(found);
                if found != 0 && found != conquest_testkit::flash::values::value(this, at) {
                    return Err(format!("set {set}: block {at} of the model is {found:x}"));
                }
                if number.is_some_and(|number| number != this) {
                    return Err(format!("set {set} is of operations {number:?} and {this}"));
                }
                number = Some(this);
            }
        }
        Ok(number.unwrap_or(0))
    }
}

/// Steps of an operation that may be there.
fn counted(entry: Entry) -> usize {
    if entry.end.is_none() || entry.steps == MAYBE { usize::MAX } else { entry.steps as usize }
}

/// The least numbers of steps of all rows that there can be, if there are `counts` at least.
fn settle(
    rows: &[Row],
    kept: Kept,
    flushed: u64,
    mut counts: Vec<usize>,
) -> Result<Vec<usize>, String> {
    let ended = |row: &Row, before| row.made.iter().take_while(|made| made.end < before).count();
    let mut needed = if kept == Kept::Ended { u64::MAX } else { flushed };
    loop {
        let begin = |(row, &count): (&Row, &usize)| {
            row.made.iter().take(count).map(|made| made.begin).max().unwrap_or(0)
        };
        needed = rows.iter().zip(&counts).map(begin).max().unwrap_or(0).max(needed);
        let before = counts.clone();
        for (slot, (row, count)) in rows.iter().zip(&mut counts).enumerate() {
            let least = ended(row, needed).max(*count);
            let there = (least..row.possible.len()).find(|&count| row.possible[count]);
            *count = there.ok_or_else(|| {
                let (steps, block) = row.nearest;
                let wrong = row.made.get(steps.saturating_sub(1)..row.made.len().min(steps + 2));
                format!(
                    "slot {slot}: not what any of {least} to {} steps leave; nearest after \
                     {steps}, but for block {block:?} of the slice; {wrong:?}",
                    row.made.len()
                )
            })?;
        }
        if counts == before {
            return Ok(counts);
        }
    }
}

/// A slice that changes, compared with what was found.
struct Comparison<'f> {
    found: &'f [u64],
    differing: usize,
    possible: Vec<bool>,
    /// Blocks that differ, at least; after how many steps; and one of them.
    nearest: (usize, usize, Option<usize>),
    values: Vec<u64>,
}

impl<'f> Comparison<'f> {
    fn new(slice: &Slice, found: &'f [u64]) -> Comparison<'f> {
        let values = slice.values.clone();
        let differing = values.iter().zip(found).filter(|(one, other)| one != other).count();
        let nearest = (usize::MAX, 0, None);
        let mut new = Comparison { found, differing, possible: Vec::new(), nearest, values };
        new.note();
        new
    }

    fn change(&mut self, block: usize, old: u64, new: u64) {
        let found = self.found[block];
        self.differing -= usize::from(old != found);
        self.differing += usize::from(new != found);
        self.values[block] = new;
    }

    fn note(&mut self) {
        let steps = self.possible.len();
        self.possible.push(self.differing == 0);
        if self.differing < self.nearest.0 {
            let mut both = self.values.iter().zip(self.found);
            self.nearest = (self.differing, steps, both.position(|(one, other)| one != other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of steps with these times, whose slice is possible after `possible` of them.
    fn row(times: &[(u64, u64)], possible: &[usize]) -> Row {
        let made = |&(begin, end): &(u64, u64)| Made {
            number: 1,
            step: Step::Set(0),
            begin,
            end,
            is_sure: true,
        };
        let made: Vec<_> = times.iter().map(made).collect();
        let possible = (0..=made.len()).map(|count| possible.contains(&count)).collect();
        let shares = vec![Share::new(0, 0); made.len() + 1];
        Row { made, possible, shares, landed: 0, nearest: (0, None) }
    }

    #[test]
    fn what_had_ended_before_something_that_is_there_is_there() {
        let rows = [row(&[(1, 2), (3, 4)], &[0, 1, 2]), row(&[(5, 6)], &[1])];
        assert_eq!(settle(&rows, Kept::Flushed, 0, vec![0; 2]).unwrap(), [2, 1]);
        let rows = [row(&[(1, 2), (3, 4)], &[0, 1]), row(&[(5, 6)], &[1])];
        assert!(settle(&rows, Kept::Flushed, 0, vec![0; 2]).is_err());
        let rows = [row(&[(1, 2), (3, 8)], &[0, 1]), row(&[(5, 6)], &[1])];
        assert_eq!(settle(&rows, Kept::Flushed, 0, vec![0; 2]).unwrap(), [1, 1]);
        // A set shows the second step.
        let rows = [row(&[(1, 2), (3, 8)], &[0, 2]), row(&[(2, 3)], &[0, 1])];
        assert_eq!(settle(&rows, Kept::Flushed, 0, vec![1, 0]).unwrap(), [2, 0]);
    }

    #[test]
    fn what_was_flushed_or_had_ended_is_there() {
        let rows = [row(&[(1, 2), (3, 4), (5, u64::MAX)], &[0, 1])];
        assert_eq!(settle(&rows, Kept::Flushed, 0, vec![0]).unwrap(), [0]);
        assert_eq!(settle(&rows, Kept::Flushed, 3, vec![0]).unwrap(), [1]);
        assert!(settle(&rows, Kept::Flushed, 5, vec![0]).is_err());
        assert!(settle(&rows, Kept::Ended, 0, vec![0]).is_err());
        let rows = [row(&[(1, 2), (3, 4), (5, u64::MAX)], &[3])];
        assert_eq!(settle(&rows, Kept::Ended, 0, vec![0]).unwrap(), [3]);
    }
}
