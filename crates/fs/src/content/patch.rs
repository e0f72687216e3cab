//! New bytes for a range of a file.

use std::io::IoSlice;

use conquest_format::PAGE;
use conquest_format::inode::Content;

use crate::content::{nothing_far, read_bytes};
use crate::{Reader, Result};

/// Bytes that take the place of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch<'b> {
    /// The first one's place in the file.
    pub(crate) at: u64,
    pub(crate) fill: Fill<'b>,
}

/// Which bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill<'b> {
    Bytes(&'b [u8]),
    Parts(Parts<'b>),
    /// So many zeros.
    Zeros(u64),
}

/// Bytes in several buffers, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'b> {
    buffers: &'b [IoSlice<'b>],
    /// Bytes of the first buffer that don't count.
    skipped: usize,
    /// Bytes that count; the buffers may have more.
    len: u64,
}

impl<'b> Parts<'b> {
    /// The first `len` bytes of `buffers`, or all.
    pub(crate) fn new(buffers: &'b [IoSlice<'b>], len: u64) -> Parts<'b> {
        let all = buffers.iter().fold(0_u64, |sum, part| sum.saturating_add(part.len() as u64));
        Parts { buffers, skipped: 0, len: len.min(all) }
    }

    /// Without the first `skip` bytes.
    fn after(mut self, skip: u64) -> Parts<'b> {
        self.len = self.len.saturating_sub(skip);
        let mut skip = skip + self.skipped as u64;
        while let [first, rest @ ..] = self.buffers
            && skip >= first.len() as u64
        {
            skip -= first.len() as u64;
            self.buffers = rest;
        }
        Parts { skipped: skip as usize, ..self }
    }

    /// Its bytes from the first one on that are at hand in one piece.
    fn run(&self) -> &'b [u8] {
        let mut buffers = self.buffers.iter().filter(|buffer| !buffer.is_empty());
        let rest = buffers.next().and_then(|first| first.get(self.skipped..)).unwrap_or_default();
        rest.get(..self.len as usize).unwrap_or(rest)
    }
}

/// What zeros are copied from.
static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

impl Fill<'_> {
    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        match *self {
            Fill::Bytes(bytes) => bytes.len() as u64,
            Fill::Parts(parts) => parts.len,
            Fill::Zeros(len) => len,
        }
    }
}

impl<'b> Patch<'b> {
    pub(crate) fn len(&self) -> u64 {
        self.fill.len()
    }

    /// The place after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.len()
    }

    /// What of it is from place `from` on.
    pub(crate) fn from(&self, from: u64) -> Patch<'b> {
        let skipped = from.saturating_sub(self.at).min(self.len());
        let fill = match self.fill {
            Fill::Bytes(bytes) => Fill::Bytes(bytes.get(skipped as usize..).unwrap_or_default()),
            Fill::Parts(parts) => Fill::Parts(parts.after(skipped)),
            Fill::Zeros(len) => Fill::Zeros(len - skipped),
        };
        Patch { at: self.at + skipped, fill }
    }

    /// What of it is before place `end`.
    pub(crate) fn until(&self, end: u64) -> Patch<'b> {
        let len = end.saturating_sub(self.at).min(self.len());
        let fill = match self.fill {
            Fill::Bytes(bytes) => Fill::Bytes(bytes.get(..len as usize).unwrap_or_default()),
            Fill::Parts(parts) => Fill::Parts(Parts { len, ..parts }),
            Fill::Zeros(_) => Fill::Zeros(len),
        };
        Patch { at: self.at, fill }
    }

    /// What of it is in page `page` of the file.
    pub(crate) fn of_page(&self, page: u64) -> Patch<'b> {
        self.from(page * PAGE).until((page + 1) * PAGE)
    }

    /// Its bytes from the first one on, as many as are at hand in one piece.
    pub(crate) fn run(&self) -> &'b [u8] {
        match self.fill {
            Fill::Bytes(bytes) => bytes,
            Fill::Parts(parts) => parts.run(),
            Fill::Zeros(len) => ZEROS.get(..len.min(PAGE) as usize).unwrap_or_default(),
        }
    }

    /// Puts its bytes over those of `out`, which are those from place `from` on.
    pub(crate) fn lay_over(&self, from: u64, out: &mut [u8]) {
        let mut part = self.from(from).until(from.saturating_add(out.len() as u64));
        while part.len() > 0 {
            let run = part.run();
            let start = (part.at - from) as usize;
            if let Some(out) = out.get_mut(start..start + run.len()) {
                out.copy_from_slice(run);
            }
            part = part.from(part.at + run.len() as u64);
        }
    }

    /// The bytes of a file of `size` bytes from place `from` on as they are with the patch: `out`.
    ///
    /// # Errors
    /// As [`read_bytes`].
    pub(crate) fn compose(
        &self,
        reader: &impl Reader,
        content: Content,
        size: u64,
        from: u64,
        out: &mut [u8],
    ) -> Result<()> {
        // Whoever begins a change brings in what it keeps of the volume's pages.
        read_bytes(reader, content, size, from, out, &mut nothing_far)?;
        self.lay_over(from, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_buffers_are_like_one() {
        let whole: Vec<u8> = (0..100).collect();
        let ends = [0, 0, 7, 7, 30, 31, 90, 90, 100, 100];
        let buffers: Vec<IoSlice<'_>> =
            ends.windows(2).map(|ends| IoSlice::new(&whole[ends[0]..ends[1]])).collect();
        for len in [100, 99, 90, 31, 1, 0, 200] {
            let parts = Patch { at: 5, fill: Fill::Parts(Parts::new(&buffers, len)) };
            let one = &whole[..whole.len().min(len as usize)];
            let one = Patch { at: 5, fill: Fill::Bytes(one) };
            for from in 0..110 {
                for end in from..110 {
                    let [mut left, mut right] = [[200; 120]; 2];
                    let [parts, one] = [parts, one].map(|patch| patch.from(from).until(end));
                    assert_eq!((parts.at, parts.len()), (one.at, one.len()));
                    assert!(parts.len() == 0 || !parts.run().is_empty());
                    parts.lay_over(0, &mut left);
                    one.lay_over(0, &mut right);
                    assert_eq!(left, right, "{len} bytes from {from} to {end}");
                }
            }
        }
    }

    #[test]
    fn parts_of_a_patch_are_laid_over_where_they_belong() {
        let patch = Patch { at: 10, fill: Fill::Bytes(&[1, 2, 3, 4]) };
        let laid = |patch: Patch<'_>, from| {
            let mut out = [9; 6];
            patch.lay_over(from, &mut out);
            out
        };
        assert_eq!(laid(patch, 9), [9, 1, 2, 3, 4, 9]);
        assert_eq!(laid(patch, 12), [3, 4, 9, 9, 9, 9]);
        assert_eq!(laid(patch, 5), [9, 9, 9, 9, 9, 1]);
        assert_eq!(laid(patch, 0), [9; 6]);
        assert_eq!(laid(patch, 20), [9; 6]);
        assert_eq!(laid(patch.from(11).until(13), 9), [9, 9, 2, 3, 9, 9]);
        assert_eq!(laid(Patch { at: 0, fill: Fill::Zeros(3 * PAGE) }, 2 * PAGE - 2), [0; 6]);
        assert_eq!((patch.until(5).len(), patch.from(30).len()), (0, 0));
    }
}
