//! Bytes for a short time.

use core::ops::{Deref, DerefMut};

/// Some bytes, zeros at first; on the heap only if they are more than `FEW`.
pub(crate) struct Buffer<const FEW: usize> {
    few: [u8; FEW],
    len: usize,
    many: Vec<u8>,
}

impl<const FEW: usize> Buffer<FEW> {
    /// So many.
    pub(crate) fn new(len: usize) -> Self {
        let many = if len > FEW { vec![0; len] } else { Vec::new() };
        Buffer { few: [0; FEW], len, many }
    }
}

impl<const FEW: usize> Deref for Buffer<FEW> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.few.get(..self.len).unwrap_or(&self.many)
    }
}

impl<const FEW: usize> DerefMut for Buffer<FEW> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.few.get_mut(..self.len) {
            Some(few) => few,
            None => &mut self.many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_bytes_as_were_asked_for() {
        for len in [0, 7, 8, 9, 100] {
            let mut buffer = Buffer::<8>::new(len);
            buffer.fill(3);
            assert_eq!(*buffer, *vec![3; len]);
            assert_eq!(buffer.many.is_empty(), len <= 8);
        }
    }
}
