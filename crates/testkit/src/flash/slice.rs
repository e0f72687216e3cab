//! What a slice is to hold, and how operations change it.

use std::collections::BTreeSet;

use super::values::{HOLE, PER_UNIT, ZEROS, value};

/// A change of a slice that happens as a whole. Blocks are those of the slice, from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// These ranges of blocks were written.
    Write(Vec<(usize, usize)>),
    /// Blocks of one unit are zeros, if the unit is anywhere.
    Zero(usize, usize),
    /// Whole units are nowhere.
    Hole(usize, usize),
    /// Whole units went from the first to the second; so many blocks.
    Move(usize, usize, usize),
    /// Nothing of the slice: a set was written.
    Set(usize),
    /// Nothing of the slice: other space is reserved than before.
    Reserve,
}

/// What a slice holds: values of its blocks. A unit is nowhere as a whole or somewhere as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// First block of the model.
    first: usize,
    /// The values of its blocks.
    pub values: Vec<u64>,
    /// Units that are somewhere.
    pub live: usize,
}

impl Slice {
    /// That begins at block `first` of the model, with these values.
    #[must_use]
    pub fn new(first: usize, values: Vec<u64>) -> Slice {
        let live = values.iter().step_by(PER_UNIT).filter(|&&value| value != HOLE).count();
        Slice { first, values, live }
    }

    /// Changes it by `step` of operation `number`; `changed` is told of each block: which, from
    /// what to what.
    pub fn apply(&mut self, step: &Step, number: u64, changed: &mut impl FnMut(usize, u64, u64)) {
        match *step {
            Step::Write(ref ranges) => {
                for &(at, count) in ranges {
                    let end = (at + count).next_multiple_of(PER_UNIT);
                    for block in at / PER_UNIT * PER_UNIT..end {
                        if (at..at + count).contains(&block) {
                            self.set(block, value(number, self.first + block), changed);
                        } else if self.values[block] == HOLE {
                            self.set(block, ZEROS, changed);
                        }
                    }
                }
            }
            Step::Zero(at, count) => {
                // If zeros are not told from holes, what was not all zeros is somewhere.
                let unit = at / PER_UNIT * PER_UNIT;
                if self.values[unit..unit + PER_UNIT].iter().any(|&value| value != HOLE) {
                    (at..at + count).for_each(|block| self.set(block, ZEROS, changed));
                }
            }
            Step::Hole(at, count) => {
                (at..at + count).for_each(|block| self.set(block, HOLE, changed));
            }
            Step::Move(from, to, count) => {
                for block in 0..count {
                    let value = self.values[from + block];
                    self.set(to + block, value, changed);
                    self.set(from + block, HOLE, changed);
                }
            }
            Step::Set(_) | Step::Reserve => {}
        }
    }

    fn set(&mut self, block: usize, new: u64, changed: &mut impl FnMut(usize, u64, u64)) {
        let old = std::mem::replace(&mut self.values[block], new);
        changed(block, old, new);
        if block.is_multiple_of(PER_UNIT) {
            self.live += usize::from(new != HOLE);
            self.live -= usize::from(old != HOLE);
        }
    }

    /// Units that are nowhere, of those that `ranges` have parts of.
    #[must_use]
    pub fn new_units(&self, ranges: &[(usize, usize)]) -> usize {
        let units = |&(at, count): &(usize, usize)| {
            (at / PER_UNIT * PER_UNIT..at + count).step_by(PER_UNIT)
        };
        let new = ranges.iter().flat_map(units).filter(|&at| !self.is_live(at));
        new.collect::<BTreeSet<usize>>().len()
    }

    /// Whether the unit with block `at` is somewhere.
    #[must_use]
    pub fn is_live(&self, at: usize) -> bool {
        self.values[at] != HOLE
    }
}

/// The steps of a trim: zeros in units of which it has a part, then the whole units.
#[must_use]
pub fn trim(at: usize, count: usize) -> Vec<Step> {
    let end = at + count;
    let (first, last) = (at.next_multiple_of(PER_UNIT), end / PER_UNIT * PER_UNIT);
    let mut steps = Vec::new();
    let mut zero = |from: usize, to: usize| {
        let mut from = from;
        while from < to {
            let next = to.min((from / PER_UNIT + 1) * PER_UNIT);
            steps.push(Step::Zero(from, next - from));
            from = next;
        }
    };
    if first >= last {
        zero(at, end);
        return steps;
    }
    zero(at, first);
    zero(last, end);
    steps.push(Step::Hole(first, last - first));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_units_take_whole_units() {
        let mut slice = Slice::new(100, vec![HOLE; 32]);
        slice.apply(&Step::Zero(3, 2), 5, &mut |_, _, _| {});
        assert_eq!((slice.live, slice.values[3]), (0, HOLE));
        slice.apply(&Step::Write(vec![(6, 4)]), 7, &mut |_, _, _| {});
        assert_eq!(slice.live, 2);
        assert_eq!(
            slice.values[5..11],
            [ZEROS, value(7, 106), value(7, 107), value(7, 108), value(7, 109), ZEROS]
        );
        slice.apply(&Step::Move(0, 24, 8), 8, &mut |_, _, _| {});
        assert_eq!((slice.live, slice.values[0], slice.values[30]), (2, HOLE, value(7, 106)));
        slice.apply(&Step::Hole(0, 32), 9, &mut |_, _, _| {});
        assert_eq!(slice.live, 0);
    }

    #[test]
    fn a_trim_takes_parts_first() {
        assert_eq!(trim(8, 16), [Step::Hole(8, 16)]);
        assert_eq!(trim(9, 3), [Step::Zero(9, 3)]);
        assert_eq!(trim(6, 4), [Step::Zero(6, 2), Step::Zero(8, 2)]);
        assert_eq!(trim(6, 20), [Step::Zero(6, 2), Step::Zero(24, 2), Step::Hole(8, 16)]);
    }
}
