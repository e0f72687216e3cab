//! What is reserved. The volume knows only how much that is of all; each slot keeps to a budget, in
//! use and reserved together, and the budgets of all are what the volume can hold: so slots that
//! reserve all that they may leave nothing to others, and yet nothing may ever fail for lack of
//! space.

use std::collections::BTreeMap;

use crate::operation::Op;

/// Units that a slot has reserved: any of these numbers, as of an operation whose process was
/// killed in it nobody knows whether it has reserved them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    values: Vec<u64>,
    /// Units that the slot may have in use and reserved together.
    budget: u64,
}

impl Share {
    pub(crate) fn new(reserved: u64, budget: u64) -> Share {
        Share { values: vec![reserved], budget }
    }

    /// Units that are reserved for sure.
    pub(crate) fn least(&self) -> u64 {
        self.values.iter().copied().min().unwrap_or(0)
    }

    /// Units that the slot may use or reserve besides, if `live` are in use.
    pub(crate) fn free(&self, live: usize) -> u64 {
        let most = self.values.iter().copied().max().unwrap_or(0);
        self.budget.saturating_sub(live as u64 + most)
    }

    /// `op` has happened, and put `new` units to use.
    pub(crate) fn apply(&mut self, op: &Op, new: usize) {
        for value in &mut self.values {
            *value = after(op, new, *value);
        }
    }

    /// `op`, which changes nothing but this, may have happened.
    pub(crate) fn doubt(&mut self, op: &Op) {
        let others: Vec<u64> = self.values.iter().map(|&value| after(op, 0, value)).collect();
        self.values.extend(others);
        self.values.sort_unstable();
        self.values.dedup();
    }
}

/// What is reserved after `op`, which put `new` units to use, if it was `value` before.
fn after(op: &Op, new: usize, value: u64) -> u64 {
    match *op {
        Op::Reserve(units) => value + units,
        Op::Release(units) => value.saturating_sub(units),
        Op::WriteReserved(_) => value.saturating_sub(new as u64),
        _ => value,
    }
}

/// What each slot has of `found` units, if it has any of what one of its `shares` says; none if
/// that can't be.
pub(crate) fn divide(found: u64, shares: &[Vec<&Share>]) -> Option<Vec<u64>> {
    // By how much those before have together: how much the last of them has.
    let mut sums: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::from([(0, 0)])];
    for shares in shares {
        let mut next = BTreeMap::new();
        let mut values: Vec<u64> = shares.iter().flat_map(|share| &share.values).copied().collect();
        values.sort_unstable();
        values.dedup();
        for sum in sums.last()?.keys().filter(|&&sum| sum <= found) {
            next.extend(values.iter().map(|value| (sum + value, *value)));
        }
        sums.push(next);
    }
    let mut rest = found;
    let mut divided = Vec::new();
    while let Some(sums) = sums.pop().filter(|_| !sums.is_empty()) {
        let value = *sums.get(&rest)?;
        divided.push(value);
        rest -= value;
    }
    divided.reverse();
    Some(divided)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_divided() {
        let one = Share::new(5, 100);
        let mut other = Share::new(7, 100);
        other.doubt(&Op::Reserve(4));
        let mut third = Share::new(3, 100);
        third.doubt(&Op::Release(3));
        let shares = [vec![&one], vec![&other], vec![&third]];
        assert_eq!(divide(15, &shares), Some(vec![5, 7, 3]));
        assert_eq!(divide(16, &shares), Some(vec![5, 11, 0]));
        assert_eq!(divide(19, &shares), Some(vec![5, 11, 3]));
        assert_eq!(divide(14, &shares), None);
        assert_eq!((other.least(), other.free(80)), (7, 9));
    }
}
