//! Stores beside all records: to objects of which the layer above knows that nobody looks.

use core::sync::atomic::Ordering;

use conquest_format::Offset;

use crate::Result;
use crate::core::Core;
use crate::host::Host;
use crate::memory::{Memory, Window};
use crate::object::Place;

impl<M: Memory, H: Host> Core<M, H> {
    /// Stores `value` in word `index` of an object at once, without a record: a word into which
    /// nobody else stores, at any time. What the calling thread loads afterwards it loads after
    /// that, and whoever sees the word sees what was stored before. After a power failure it may be
    /// what it was.
    ///
    /// # Errors
    /// [`crate::Error::TooLarge`] past the end of `place`, [`crate::Error::Failed`].
    pub fn store_aside(&self, place: Place, index: u64, value: u64) -> Result<()> {
        let at = place.word(index).ok_or(crate::Error::TooLarge {
            what: "words in an object",
            wanted: index.saturating_add(1),
            most: place.len() / conquest_format::WORD,
        })?;
        let _window = Window::open(&self.memory)?;
        self.memory.put(at, value, Ordering::Release);
        self.memory.write_back(at, conquest_format::WORD);
        self.memory.full_fence();
        Ok(())
    }

    /// Stores `bytes` at `at`, and then `tag` in the word at `tag_at`, by which they are found: a
    /// hint, on which nobody relies, because whoever finds it can tell whether it is right. Both
    /// are in pages that a transaction has allocated for that. The tag is 0 meanwhile, so that who
    /// finds what was there before is seldom misled. Others may do the same at once: then there is
    /// a mixture. After a power failure there may be anything.
    ///
    /// # Errors
    /// [`crate::Error::Failed`].
    pub fn store_hint(&self, tag_at: Offset, tag: u64, at: Offset, bytes: &[u8]) -> Result<()> {
        let _window = Window::open(&self.memory)?;
        self.memory.put(tag_at, 0, Ordering::Release);
        self.memory.put_bytes(at, bytes);
        self.memory.put(tag_at, tag, Ordering::Release);
        Ok(())
    }

    /// Stores `bytes` into an object at once, without a record, from byte `start` on: where, by the
    /// caller's own rules, nobody looks or stores meanwhile. After a power failure it may be what
    /// it was.
    ///
    /// # Errors
    /// [`crate::Error::TooLarge`] past the end of `place`, [`crate::Error::Failed`].
    pub fn copy_aside(&self, place: Place, start: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let part = place.part(start, len).ok_or(crate::Error::TooLarge {
            what: "bytes in an object",
            wanted: start.saturating_add(len),
            most: place.len(),
        })?;
        let _window = Window::open(&self.memory)?;
        self.memory.put_bytes(part.offset(), bytes);
        self.memory.write_back(part.offset(), len);
        Ok(())
    }
}
