//! Who writes where. Each thread of each worker, a *slot*, has a slice of the space to itself; sets
//! of units belong to all.
//!
//! Slices are interleaved, by units, by eight units and by hundreds, so that slots share segments,
//! packets and nodes of the map; and each has some units far away in a space of its own, which is
//! trimmed as a whole. The *model* has the blocks of all slices, one slice after the other, and
//! then those of the sets.

use conquest_testkit::flash::values::PER_UNIT;

/// Units of the space that each slot has to itself, far away.
pub(crate) const FAR: u64 = 1 << 44;
/// Most units that a slot has there.
const FAR_UNITS: usize = 64;
/// One unit in so many belongs to a set.
const SETS: usize = 16;
/// Every set with a number that this divides is of large ranges, which are not put into packets.
const LARGE: usize = 16;
/// Units of their ranges: more than 64 KiB.
const LARGE_UNITS: usize = 18;

/// Units that follow each other in the space and in the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stripe {
    /// First block of the space.
    pub(crate) block: u64,
    /// First block of the model.
    pub(crate) at: usize,
    /// Blocks.
    pub(crate) len: usize,
}

/// What belongs to whom.
pub(crate) struct Space {
    /// The stripes of each slot, by their blocks of the model.
    slices: Vec<Vec<Stripe>>,
    /// The ranges of each set.
    pub(crate) sets: Vec<Vec<Stripe>>,
    /// Blocks of one slice.
    pub(crate) slice: usize,
    /// Blocks of the model.
    pub(crate) blocks: usize,
}

impl Space {
    /// For `slots` slots that share about `units` units.
    pub(crate) fn new(slots: usize, units: usize) -> Space {
        let mut at = 0;
        let mut block = 0;
        let far = (units / 16 / slots).clamp(8, FAR_UNITS);
        let each = (units - units / SETS) / slots - far;
        let (single, eights) = (each / 4, each / 4 / 8);
        let long = each - single - eights * 8;
        let mut slices: Vec<Vec<Stripe>> = vec![Vec::new(); slots];
        for (count, units) in [(single, 1), (eights, 8), (1, long)] {
            let len = units * PER_UNIT;
            for _ in 0..count {
                for slice in &mut slices {
                    slice.push(Stripe { block, at: 0, len });
                    block += len as u64;
                }
            }
        }
        for (slot, slice) in slices.iter_mut().enumerate() {
            let block = far_of(slot).0 + FAR / 2 * PER_UNIT as u64;
            slice.push(Stripe { block, at: 0, len: far * PER_UNIT });
            for stripe in slice {
                stripe.at = at;
                at += stripe.len;
            }
        }
        let mut space = Space { slices, sets: Vec::new(), slice: at / slots, blocks: at };
        space.add_sets(block, units / SETS);
        space
    }

    /// Adds sets of about `units` units from `block` on: the first range of each, the second of
    /// each, and so on.
    fn add_sets(&mut self, mut block: u64, units: usize) {
        let members = |set: usize| 2 + set % 5;
        let size = |set: usize| if set.is_multiple_of(LARGE) { LARGE_UNITS } else { 1 + set % 3 };
        let mut left = units;
        for set in 0.. {
            let wanted = members(set) * size(set);
            if wanted > left {
                break;
            }
            left -= wanted;
            self.sets.push(Vec::new());
        }
        for member in 0..7 {
            for set in 0..self.sets.len() {
                if member < members(set) {
                    let len = size(set) * PER_UNIT;
                    self.sets[set].push(Stripe { block, at: self.blocks, len });
                    block += len as u64;
                    self.blocks += len;
                }
            }
        }
    }

    /// Slots.
    pub(crate) fn slots(&self) -> usize {
        self.slices.len()
    }

    /// The stripes of slot `slot`.
    pub(crate) fn slice(&self, slot: usize) -> &[Stripe] {
        &self.slices[slot]
    }

    /// First block of the model of what slot `slot` has.
    pub(crate) fn first(&self, slot: usize) -> usize {
        slot * self.slice
    }

    /// The stripe of slot `slot` with block `at` of its slice.
    pub(crate) fn stripe(&self, slot: usize, at: usize) -> Stripe {
        let at = self.first(slot) + at;
        let slice = self.slice(slot);
        let behind = slice.partition_point(|stripe| stripe.at <= at);
        slice[behind.saturating_sub(1)]
    }

    /// The block of the space that is block `at` of the slice of slot `slot`.
    pub(crate) fn block(&self, slot: usize, at: usize) -> u64 {
        let stripe = self.stripe(slot, at);
        stripe.block + (self.first(slot) + at - stripe.at) as u64
    }

    /// All stripes: of slices and of sets.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Stripe> {
        self.slices.iter().flatten().chain(self.sets.iter().flatten())
    }
}

/// The blocks that slot `slot` has to itself far away: the first one, and how many.
pub(crate) fn far_of(slot: usize) -> (u64, u64) {
    ((slot as u64 + 1) * FAR * PER_UNIT as u64, FAR * PER_UNIT as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_belongs_to_one() {
        let space = Space::new(16, 12_000);
        let (mut blocks, mut model) = (Vec::new(), Vec::new());
        for stripe in space.all() {
            blocks.push((stripe.block, stripe.len as u64));
            model.push((stripe.at, stripe.len));
        }
        blocks.sort_unstable();
        assert!(blocks.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        model.sort_unstable();
        assert!(model.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
        assert_eq!(model.iter().map(|(_, len)| len).sum::<usize>(), space.blocks);
        assert!((11_500..=12_000).contains(&(space.blocks / PER_UNIT)));
        for slot in [0, 15] {
            for at in [0, 7, space.slice / 2, space.slice - 1] {
                let stripe = space.stripe(slot, at);
                assert!((stripe.at..stripe.at + stripe.len).contains(&(slot * space.slice + at)));
            }
        }
        assert!(space.sets.iter().any(|set| set[0].len == LARGE_UNITS * PER_UNIT));
    }
}
