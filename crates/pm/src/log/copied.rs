//! Pages of a region that were copied, in one piece of memory, which may be used again: having it
//! anew for each epoch takes as long as copying to it.

use core::fmt;
use std::borrow::Cow;
use std::collections::BTreeMap;

use conquest_format::{Offset, PAGE};

/// The bytes of a page.
pub type Bytes = [u8; PAGE as usize];

/// Pages of a region, by the offsets of their first bytes.
#[derive(Clone, Default)]
pub struct Copied {
    /// Which page of the memory is that of a page of the region.
    places: BTreeMap<Offset, usize>,
    /// Behind the first `used` pages are whatever they were used for before.
    memory: Vec<Bytes>,
    used: usize,
}

impl Copied {
    /// None.
    #[must_use]
    pub fn new() -> Copied {
        Copied::default()
    }

    /// None, and memory for some that is had already: what is in it does not count.
    #[must_use]
    pub fn within(memory: Vec<Bytes>) -> Copied {
        Copied { memory, ..Copied::default() }
    }

    /// The memory, to be used again.
    #[must_use]
    pub fn into_memory(self) -> Vec<Bytes> {
        self.memory
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds the page at `at`, or takes the place of the one that there is: its bytes are those that
    /// `fill` puts there, over all that may be there. Those that are added one after the other are
    /// beside each other in memory.
    pub fn add(&mut self, at: Offset, fill: impl FnOnce(&mut Bytes)) {
        let place = *self.places.entry(at).or_insert(self.used);
        if place == self.memory.len() {
            self.memory.push([0; PAGE as usize]);
        }
        self.used = self.used.max(place + 1);
        if let Some(bytes) = self.memory.get_mut(place) {
            fill(bytes);
        }
    }

    /// Takes the page at `at` out: whether it was there.
    pub fn remove(&mut self, at: Offset) -> bool {
        self.places.remove(&at).is_some()
    }

    /// The bytes of the page at `at`.
    #[must_use]
    pub fn get(&self, at: Offset) -> Option<&Bytes> {
        self.memory.get(*self.places.get(&at)?)
    }

    /// Where the pages are in the region, in order.
    pub fn places(&self) -> impl Iterator<Item = Offset> {
        self.places.keys().copied()
    }

    /// All pages, in the order of their places in the region.
    pub fn iter(&self) -> impl Iterator<Item = (Offset, &Bytes)> {
        self.places.iter().filter_map(|(at, place)| Some((*at, self.memory.get(*place)?)))
    }

    /// The bytes of the `count` pages from the one at `first` on, all of which are there: copied
    /// once more only if they were not added one after the other.
    #[must_use]
    pub fn run(&self, first: Offset, count: usize) -> Cow<'_, [u8]> {
        let places: Vec<usize> = self.places.range(first..).take(count).map(|it| *it.1).collect();
        let begin = places.first().copied().unwrap_or_default();
        let are_beside = places.iter().copied().eq(begin..begin + places.len());
        if are_beside && let Some(pages) = self.memory.get(begin..begin + places.len()) {
            return Cow::Borrowed(pages.as_flattened());
        }
        let mut bytes = Vec::with_capacity(places.len() * PAGE as usize);
        let pages = places.iter().filter_map(|place| self.memory.get(*place));
        pages.for_each(|page| bytes.extend_from_slice(page));
        Cow::Owned(bytes)
    }
}

impl PartialEq for Copied {
    fn eq(&self, other: &Copied) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Copied {}

impl fmt::Debug for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.places()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn page(number: u64) -> Offset {
        Offset::new(number * PAGE)
    }

    fn add(copied: &mut Copied, number: u64, value: u8) {
        copied.add(page(number), |bytes| *bytes = [value; PAGE as usize]);
    }

    #[test]
    fn runs_are_copied_only_if_they_have_to_be() {
        let mut copied = Copied::new();
        for number in [5, 6, 7, 9, 8] {
            add(&mut copied, number, number as u8);
        }
        assert!(matches!(copied.run(page(5), 3), Cow::Borrowed(_)));
        let all = copied.run(page(5), 5);
        assert!(matches!(all, Cow::Owned(_)));
        let expected: Vec<u8> = (5..10).flat_map(|value| [value; PAGE as usize]).collect();
        assert!(*all == expected);
        assert!(*copied.run(page(6), 2) == expected[PAGE as usize..3 * PAGE as usize]);
        assert_eq!(copied.run(page(9), 0).len(), 0);
    }

    #[test]
    fn what_is_added_again_takes_the_place() {
        let mut copied = Copied::new();
        (0..3).for_each(|number| add(&mut copied, number, 1));
        add(&mut copied, 1, 2);
        let values: Vec<u8> = copied.iter().map(|(_, bytes)| bytes[9]).collect();
        assert_eq!((values, copied.len()), (vec![1, 2, 1], 3));
        assert!(matches!(copied.run(page(0), 3), Cow::Borrowed(_)));
        assert!(copied.remove(page(1)) && !copied.remove(page(1)));
        assert!(copied.get(page(1)).is_none());
        assert_eq!(copied.places().collect::<Vec<_>>(), [page(0), page(2)]);
        // One that comes back is behind the others.
        add(&mut copied, 1, 3);
        assert_eq!(copied.get(page(1)).unwrap()[0], 3);
        assert_eq!(copied.get(page(2)).unwrap()[0], 1);
    }

    #[test]
    fn memory_is_used_again() {
        let mut copied = Copied::new();
        (0..4).for_each(|number| add(&mut copied, number, 7));
        let memory = copied.into_memory();
        let at = memory.as_ptr().addr();
        let mut copied = Copied::within(memory);
        assert!(copied.is_empty() && copied.iter().next().is_none());
        (8..12).for_each(|number| add(&mut copied, number, number as u8));
        let values: Vec<u8> = copied.iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(values, [8, 9, 10, 11]);
        let memory = copied.into_memory();
        assert_eq!(memory.as_ptr().addr(), at);
    }
}
