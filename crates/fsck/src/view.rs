//! The read-only view of a region that is checked.

use conquest_format::{Offset, WORD};

/// A region's bytes, for reading. Nobody may change them while they are checked.
///
/// The checker asks only for what lies inside [`View::len`]; a view must be memory-safe for other
/// offsets too.
pub trait View {
    /// Bytes of the region: its file's length.
    fn len(&self) -> u64;

    /// Whether the region has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at `at`, a multiple of 8; 0 past the end.
    fn load(&self, at: Offset) -> u64;

    /// Copies the bytes from `at` on, which may be any offset, to `out`; zeros past the end.
    fn copy(&self, at: Offset, out: &mut [u8]);
}

impl View for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn load(&self, at: Offset) -> u64 {
        let rest = usize::try_from(at.bytes()).ok().and_then(|at| self.get(at..));
        if let Some(word) = rest.and_then(<[u8]>::first_chunk) {
            return u64::from_le_bytes(*word);
        }
        let mut word = [0; WORD as usize];
        self.copy(at, &mut word);
        u64::from_le_bytes(word)
    }

    fn copy(&self, at: Offset, out: &mut [u8]) {
        let rest = usize::try_from(at.bytes()).ok().and_then(|at| self.get(at..));
        let rest = rest.unwrap_or_default();
        let there = rest.len().min(out.len());
        let (inside, past) = out.split_at_mut(there);
        inside.copy_from_slice(rest.get(..there).unwrap_or_default());
        past.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_up_to_their_end() {
        let bytes: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 2, 3];
        assert_eq!(bytes.load(Offset::new(0)), 1 | 2 << 56);
        assert_eq!(bytes.load(Offset::new(8)), 3);
        assert_eq!((bytes.load(Offset::new(16)), bytes.load(Offset::new(u64::MAX))), (0, 0));
        let mut out = [9; 3];
        bytes.copy(Offset::new(7), &mut out);
        assert_eq!(out, [2, 3, 0]);
    }
}
