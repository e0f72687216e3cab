//! A region as recovery would leave it: the view, and over it the words that committed records have
//! still to change. Nothing is written.

use std::collections::BTreeMap;

use conquest_format::{Offset, WORD};

use crate::View;

/// A view with words in the place of others.
pub(crate) struct Overlay<'v, V: ?Sized> {
    view: &'v V,
    /// Words by their offsets in bytes, multiples of 8.
    words: BTreeMap<u64, u64>,
}

impl<'v, V: View + ?Sized> Overlay<'v, V> {
    pub(crate) const fn new(view: &'v V) -> Self {
        Overlay { view, words: BTreeMap::new() }
    }

    /// Bytes of the region.
    pub(crate) fn len(&self) -> u64 {
        self.view.len()
    }

    /// The word at `at`; 0 if it does not lie inside the region.
    pub(crate) fn load(&self, at: Offset) -> u64 {
        if !self.words.is_empty()
            && let Some(word) = self.words.get(&at.bytes())
        {
            return *word;
        }
        if at.plus(WORD).bytes() > self.view.len() { 0 } else { self.view.load(at) }
    }

    /// Copies the bytes from `at` on.
    pub(crate) fn copy(&self, at: Offset, out: &mut [u8]) {
        self.view.copy(at, out);
        if self.words.is_empty() {
            return;
        }
        let start = at.bytes();
        let end = at.plus(out.len() as u64).bytes();
        for (&place, word) in self.words.range(start & !(WORD - 1)..end) {
            for (byte, value) in (place..).zip(word.to_le_bytes()) {
                let to = byte.checked_sub(start).and_then(|index| usize::try_from(index).ok());
                if let Some(to) = to.and_then(|index| out.get_mut(index)) {
                    *to = value;
                }
            }
        }
    }

    /// The words of an object, `N` of them.
    pub(crate) fn words<const N: usize>(&self, at: Offset) -> [u64; N] {
        core::array::from_fn(|index| self.load(at.plus(index as u64 * WORD)))
    }

    /// Puts `value` in the place of the word at `at`.
    pub(crate) fn put(&mut self, at: Offset, value: u64) {
        self.words.insert(at.bytes(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_put_are_read_whole_and_in_part() {
        let bytes = [7; 24];
        let mut overlay = Overlay::new(&bytes[..]);
        overlay.put(Offset::new(8), 0x0807_0605_0403_0201);
        assert_eq!(overlay.load(Offset::new(8)), 0x0807_0605_0403_0201);
        let mut out = [0; 4];
        overlay.copy(Offset::new(6), &mut out);
        assert_eq!(out, [7, 7, 1, 2]);
        overlay.copy(Offset::new(14), &mut out);
        assert_eq!(out, [7, 8, 7, 7]);
        assert_eq!(overlay.words::<2>(Offset::new(0))[1], 0x0807_0605_0403_0201);
        assert_eq!(overlay.load(Offset::new(24)), 0);
    }
}
