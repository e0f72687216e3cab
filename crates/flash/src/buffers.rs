//! Memory for transfers, used again and again: making a new one costs as much as filling it.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use conquest_uring::Buffer;

/// Sizes of buffers: powers of two from this on.
const LEAST: usize = 4096;
const SIZES: usize = 12;
/// Bytes of buffers that wait to be used, at most, of each size.
const KEPT: usize = 8 << 20;

/// Buffers that nobody uses, by size.
#[derive(Default)]
pub(crate) struct Buffers([Mutex<Vec<Buffer>>; SIZES]);

/// A buffer in use. Its bytes are whatever they were last.
pub(crate) struct Lent<'b> {
    buffer: Option<Buffer>,
    of: &'b Buffers,
}

/// The number of the smallest size that takes `len` bytes, and that size.
fn size_for(len: usize) -> (usize, usize) {
    let size = len.max(LEAST).next_power_of_two();
    ((size / LEAST).trailing_zeros() as usize, size)
}

impl Buffers {
    /// A buffer of `len` bytes, more than none.
    pub(crate) fn lend(&self, len: usize) -> std::io::Result<Lent<'_>> {
        Ok(self.lent(self.take(len)?))
    }

    /// `buffer`, until it is not needed any more.
    pub(crate) fn lent(&self, buffer: Buffer) -> Lent<'_> {
        Lent { buffer: Some(buffer), of: self }
    }

    /// A buffer of `len` bytes, more than none, which [`Self::give`] takes back. They are whatever
    /// they were last.
    pub(crate) fn take(&self, len: usize) -> std::io::Result<Buffer> {
        let (number, size) = size_for(len);
        let kept = self.0.get(number);
        let found = kept.and_then(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner).pop());
        // Larger ones than are kept are made as they are needed.
        let mut buffer = found.map_or_else(|| Buffer::new(size), Ok)?;
        buffer.set_len(len);
        Ok(buffer)
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Buffer) {
        let (number, size) = size_for(buffer.capacity());
        let Some(kept) = self.0.get(number).filter(|_| size == buffer.capacity()) else {
            return;
        };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if (kept.len() + 1) * size <= KEPT {
            kept.push(buffer);
        }
    }
}

impl Deref for Lent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.of.give(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_buffer_that_was_given_back_is_used_again() {
        let buffers = Buffers::default();
        for len in [1, LEAST, LEAST + 1, 1 << 20] {
            let kept = || buffers.0[size_for(len).0].lock().unwrap().len();
            let before = kept();
            let buffer = buffers.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            buffers.give(buffer);
            assert_eq!(kept(), before.max(1), "{len} bytes");
        }
    }
}
