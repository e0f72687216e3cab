//! A sparse copy-on-write region image.
//!
//! Invariants:
//! - an image that another one is based on never changes again: whoever makes one gives it away in
//!   an [`Arc`] and [`Image::set`] is only called on images that nothing is based on;
//! - a page is copied from the base on the first store into it and stays from then on; going back
//!   to an earlier state costs only the words that differ.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use conquest_format::{PAGE, WORD};

/// Words in a page of an image.
const PAGE_WORDS: u64 = PAGE / WORD;

type Page = Box<[AtomicU64]>;

/// The bytes of a region; those never stored are zero.
#[derive(Debug)]
pub struct Image {
    len: u64,
    base: Option<Arc<Image>>,
    pages: Vec<OnceLock<Page>>,
}

impl Image {
    /// An image of `len` zero bytes, rounded up to whole words.
    #[must_use]
    pub fn new(len: u64) -> Self {
        let len = len.next_multiple_of(WORD);
        let pages = usize::try_from(len.div_ceil(PAGE)).unwrap_or(usize::MAX);
        let mut table = Vec::with_capacity(pages);
        table.resize_with(pages, OnceLock::new);
        Image { len, base: None, pages: table }
    }

    /// An image that holds what `base` does, sharing its pages.
    #[must_use]
    pub fn over(base: Arc<Image>) -> Self {
        let mut image = Image::new(base.len);
        image.base = Some(base);
        image
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of words.
    #[must_use]
    pub const fn words(&self) -> u64 {
        self.len / WORD
    }

    /// Word number `word`, 0 past the end.
    #[must_use]
    pub fn get(&self, word: u64) -> u64 {
        let mut image = self;
        loop {
            let Some(page) = image.pages.get((word / PAGE_WORDS) as usize) else {
                return 0;
            };
            if let Some(page) = page.get() {
                return page[(word % PAGE_WORDS) as usize].load(Ordering::SeqCst);
            }
            match &image.base {
                Some(base) => image = base,
                None => return 0,
            }
        }
    }

    /// Sets word number `word` and returns what it held; nothing happens past the end.
    pub fn set(&self, word: u64, value: u64) -> u64 {
        if word >= self.words() {
            return 0;
        }
        let Some(slot) = self.pages.get((word / PAGE_WORDS) as usize) else {
            return 0;
        };
        let page = slot.get_or_init(|| {
            let first = word / PAGE_WORDS * PAGE_WORDS;
            let below = |at| self.base.as_ref().map_or(0, |base| base.get(at));
            (first..first + PAGE_WORDS).map(|at| AtomicU64::new(below(at))).collect()
        });
        page[(word % PAGE_WORDS) as usize].swap(value, Ordering::SeqCst)
    }

    /// A copy that later stores into this image don't change.
    #[must_use]
    pub fn snapshot(&self) -> Image {
        let mut copy = Image::new(self.len);
        copy.base.clone_from(&self.base);
        for (to, from) in copy.pages.iter_mut().zip(&self.pages) {
            if let Some(page) = from.get() {
                let words = page.iter().map(|word| AtomicU64::new(word.load(Ordering::SeqCst)));
                *to = OnceLock::from(words.collect::<Page>());
            }
        }
        copy
    }

    /// A hash of the whole contents; reads every page that was ever stored into.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let stored = |page: usize| {
            let mut image = Some(self);
            while let Some(at) = image {
                if at.pages[page].get().is_some() {
                    return true;
                }
                image = at.base.as_deref();
            }
            false
        };
        let mut digest = 0;
        for page in (0..self.pages.len()).filter(|&page| stored(page)) {
            let first = page as u64 * PAGE_WORDS;
            for word in first..first + PAGE_WORDS {
                digest ^= word_hash(word, self.get(word));
            }
        }
        digest
    }
}

/// The hash of one word of an image; an image's hash is the exclusive or of its words' hashes. A
/// zero word hashes to 0, as it does if its page was never stored into.
pub(crate) const fn word_hash(word: u64, value: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    crate::rng::mix(crate::rng::mix(word.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_changes_alone() {
        let base = Image::new(3 * PAGE + 8);
        base.set(1, 11);
        base.set(3 * PAGE_WORDS, 33);
        let base = Arc::new(base);
        let top = Image::over(Arc::clone(&base));
        assert_eq!(top.digest(), base.digest());
        assert_eq!(top.set(1, 12), 11);
        assert_eq!((top.get(1), base.get(1)), (12, 11));
        assert_eq!((top.get(2), top.get(3 * PAGE_WORDS)), (0, 33));
        let copy = top.snapshot();
        top.set(1, 13);
        assert_eq!((copy.get(1), copy.get(3 * PAGE_WORDS)), (12, 33));
        assert_ne!(copy.digest(), top.digest());
    }

    #[test]
    fn nothing_is_past_the_end() {
        let image = Image::new(PAGE + 8);
        assert_eq!(image.set(PAGE_WORDS + 1, 5), 0);
        assert_eq!(image.get(PAGE_WORDS + 1), 0);
        assert_eq!(image.set(1 << 40, 5), 0);
        assert_eq!(image.get(1 << 40), 0);
        image.set(PAGE_WORDS, 5);
        assert_eq!(image.get(PAGE_WORDS), 5);
    }
}
