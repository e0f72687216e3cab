//! A bucket in the making: the bytes of a page that nothing points to yet.

use conquest_format::fs::BUCKET;
use conquest_format::fs::bucket::{FIRST, GRANULE, GRANULES, HEADER, Header, TAG_MORE};
use conquest_format::{Offset, PAGE, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Result, Tx};

/// The bytes of a new bucket, filled from its first granule on.
pub(super) struct NewBucket {
    bytes: [u8; PAGE as usize],
    next: u64,
}

impl NewBucket {
    pub(super) const fn new() -> Self {
        NewBucket { bytes: [0; PAGE as usize], next: FIRST }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.next == FIRST
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let place = self.bytes.iter_mut().skip(at as usize);
        place.zip(bytes).for_each(|(to, from)| *to = *from);
    }

    /// Adds a dentry with tag `tag` of `granules` granules, whose words `words` gives; missing
    /// words are 0. Whether it fits the page.
    pub(super) fn add(&mut self, tag: u8, granules: u64, words: impl Iterator<Item = u64>) -> bool {
        if self.next + granules > GRANULES {
            return false;
        }
        let first = self.next * GRANULE;
        for (word, index) in words.zip(0..granules * GRANULE / WORD) {
            self.put(first + index * WORD, &word.to_le_bytes());
        }
        self.put(self.next, &[tag]);
        for granule in 1..granules {
            self.put(self.next + granule, &[TAG_MORE]);
        }
        self.next += granules;
        true
    }

    /// Allocates the bucket, with header `header`.
    pub(super) fn finish<M: Memory, H: Host>(
        mut self,
        tx: &mut Tx<'_, M, H>,
        header: Header,
    ) -> Result<Offset> {
        self.put(HEADER, &header.pack().to_le_bytes());
        let mut run = tx.alloc_run(BUCKET, 1, None)?;
        let used = (self.next * GRANULE) as usize;
        tx.append(&mut run, self.bytes.get(..used).unwrap_or_default())?;
        Ok(tx.finish_run(run))
    }
}
