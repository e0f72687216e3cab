//! Ranges of the space and where they are, as recovery finds them.
//!
//! A checkpoint has them in the order of the space, and many; what the stream says after it comes
//! in no order, and is less. So what comes in order is appended to a list, and what does not is
//! kept aside, by its place in the space, and regarded when the list is gone through.

use std::collections::BTreeMap;

use crate::map::Extent;

/// Ranges: what was said of a unit last, counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    /// In order, none overlaps another; packed, as there can be many.
    listed: Vec<[u64; 2]>,
    /// The unit behind the last one that is listed.
    listed_end: u64,
    /// What holds instead, by first units: none overlaps another.
    aside: BTreeMap<u64, Aside>,
    /// The unit behind the last one that `aside` says something of.
    aside_end: u64,
}

/// A range that is somewhere, or nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Aside {
    end: u64,
    place: Option<u64>,
}

impl Ranges {
    /// The units of `extent` are there.
    pub(crate) fn lead(&mut self, extent: Extent) {
        // Nothing is known of what is behind both, so nothing has to be taken away.
        if extent.unit >= self.listed_end.max(self.aside_end) {
            self.listed.push(extent.pack());
            self.listed_end = extent.end();
        } else {
            self.set(extent.unit, Aside { end: extent.end(), place: Some(extent.place) });
        }
    }

    /// Units `start..end` are nowhere.
    pub(crate) fn clear(&mut self, start: u64, end: u64) {
        if start < end {
            self.set(start, Aside { end, place: None });
        }
    }

    fn set(&mut self, start: u64, new: Aside) {
        self.make_way(start, new.end);
        self.aside.insert(start, new);
        self.aside_end = self.aside_end.max(new.end);
    }

    /// Leaves nothing aside of `start..end`.
    fn make_way(&mut self, start: u64, end: u64) {
        let before = self.aside.range_mut(..start).next_back();
        if let Some((&from, before)) = before
            && before.end > start
        {
            let rest = before.behind(from, end);
            before.end = start;
            self.aside.extend(rest);
        }
        while let Some((&from, &found)) = self.aside.range(start..end).next() {
            self.aside.remove(&from);
            self.aside.extend(found.behind(from, end));
        }
    }

    /// All that are somewhere, in order; none overlaps another.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> {
        Merged {
            listed: self.listed.iter().copied().filter_map(Extent::unpack),
            next: None,
            aside: self.aside.iter().map(|(start, aside)| (*start, *aside)).peekable(),
        }
    }
}

impl Aside {
    /// The part behind `start` of one that begins at `from`, if there is any.
    fn behind(self, from: u64, start: u64) -> Option<(u64, Aside)> {
        (self.end > start).then(|| {
            let place = self.place.map(|place| place + (start - from));
            (start, Aside { place, ..self })
        })
    }
}

/// The ranges of a list, but where something is said aside.
struct Merged<L, A: Iterator> {
    listed: L,
    /// What is left of the last one of the list.
    next: Option<Extent>,
    aside: core::iter::Peekable<A>,
}

impl<L, A> Iterator for Merged<L, A>
where
    L: Iterator<Item = Extent>,
    A: Iterator<Item = (u64, Aside)>,
{
    type Item = Extent;

    #[inline]
    fn next(&mut self) -> Option<Extent> {
        loop {
            let listed = self.next.take().or_else(|| self.listed.next());
            let Some(&(start, aside)) = self.aside.peek() else {
                return listed;
            };
            match listed {
                Some(listed) if listed.end() <= start => return Some(listed),
                Some(listed) if listed.unit < start => {
                    self.next = listed.within(start, u64::MAX);
                    return listed.within(0, start);
                }
                Some(listed) if listed.unit < aside.end => {
                    self.next = listed.within(aside.end, u64::MAX);
                    // What it hides may be more than this one.
                    if self.next.is_none() {
                        continue;
                    }
                }
                listed => self.next = listed,
            }
            self.aside.next();
            if let Some(place) = aside.place {
                return Some(Extent { unit: start, place, len: aside.end - start });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const UNITS: u64 = 200;

    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) % below
        }
    }

    fn units_of(extents: impl IntoIterator<Item = Extent>) -> BTreeMap<u64, u64> {
        let units = |extent: Extent| (extent.unit..extent.end()).zip(extent.place..);
        extents.into_iter().flat_map(units).collect()
    }

    #[test]
    fn what_was_said_last_counts() {
        for seed in 0..2000 {
            let mut number = numbers(seed);
            let (mut ranges, mut expected) = (Ranges::default(), BTreeMap::new());
            // A checkpoint first, which is in order but for some of it; then whatever comes.
            let (mut unit, mut place) = (0, 1000);
            for step in 0..60 {
                let is_listed = step < 30;
                if is_listed {
                    let back = if number(8) == 0 { number(9) } else { 0 };
                    unit = (unit + number(4)).saturating_sub(back);
                } else {
                    unit = number(UNITS);
                }
                let most = if number(5) == 0 { 50 } else { 5 };
                let len = 1 + number(most);
                if number(4) == 0 && (!is_listed || number(8) == 0) {
                    let end = if number(20) == 0 { u64::MAX } else { unit + len };
                    ranges.clear(unit, end);
                    expected.retain(|found, _| !(unit..end).contains(found));
                } else {
                    ranges.lead(Extent { unit, place, len });
                    expected.extend((unit..unit + len).zip(place..));
                }
                if is_listed {
                    unit += len;
                }
                place += len + number(2);
            }
            let found: Vec<_> = ranges.iter().collect();
            assert!(found.is_sorted_by(|one, next| one.end() <= next.unit), "{seed}: {found:?}");
            assert!(found.iter().all(|extent| extent.len > 0), "{seed}: {found:?}");
            assert_eq!(units_of(found), expected, "{seed}");
        }
    }

    #[test]
    fn what_comes_in_order_is_listed() {
        let mut ranges = Ranges::default();
        for unit in (0..1000).step_by(5) {
            ranges.lead(Extent { unit, place: unit, len: 5 });
            // The end of one leaf, as it was when the next one was read.
            if unit == 500 {
                ranges.lead(Extent { unit: 503, place: 7, len: 3 });
            }
        }
        assert_eq!(ranges.listed.len(), 199);
        assert_eq!(ranges.aside.len(), 2);
        assert_eq!(units_of(ranges.iter()).get(&504), Some(&8));
        assert_eq!(units_of(ranges.iter()).get(&505), Some(&505));
    }
}
