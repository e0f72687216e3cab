//! The entries of a list, without memory from the heap unless there are many.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

use super::{Entry, Qualifier};

/// Entries up to which none is on the heap.
pub(crate) const FEW: usize = 32;

/// Some entries.
#[derive(Clone)]
pub(crate) struct Entries {
    few: [Entry; FEW],
    /// How many of `few` count, if `many` is empty.
    len: usize,
    many: Vec<Entry>,
}

impl Entries {
    fn push(&mut self, entry: Entry) {
        match self.few.get_mut(self.len) {
            Some(place) if self.many.is_empty() => {
                *place = entry;
                self.len += 1;
            }
            _ => {
                if self.many.is_empty() {
                    self.many.extend(self.few);
                }
                self.many.push(entry);
            }
        }
    }
}

impl Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        if self.many.is_empty() { self.few.get(..self.len).unwrap_or_default() } else { &self.many }
    }
}

impl FromIterator<Entry> for Entries {
    fn from_iter<I: IntoIterator<Item = Entry>>(all: I) -> Entries {
        let none = Entry { qualifier: Qualifier::Other, permissions: 0 };
        let mut entries = Entries { few: [none; FEW], len: 0, many: Vec::new() };
        all.into_iter().for_each(|entry| entries.push(entry));
        entries
    }
}

impl PartialEq for Entries {
    fn eq(&self, other: &Entries) -> bool {
        **self == **other
    }
}

impl Eq for Entries {}

impl Hash for Entries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_alike() {
        let entry = |id| Entry { qualifier: Qualifier::User(id), permissions: id as u16 & 7 };
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            let wanted: Vec<Entry> = (0..count as u32).map(entry).collect();
            let entries: Entries = wanted.iter().copied().collect();
            assert_eq!(*entries, *wanted);
            assert_eq!(entries, entries.clone());
            assert_eq!(entries.many.is_empty(), count <= FEW);
        }
    }
}
