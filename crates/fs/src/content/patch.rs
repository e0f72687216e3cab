//! New bytes for a range of a file.

use conquest_format::PAGE;
use conquest_format::inode::Content;

use crate::content::read_bytes;
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
    /// So many zeros.
    Zeros(u64),
}

/// What zeros are copied from.
static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

impl<'b> Patch<'b> {
    pub(crate) fn len(&self) -> u64 {
        match self.fill {
            Fill::Bytes(bytes) => bytes.len() as u64,
            Fill::Zeros(len) => len,
        }
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
            Fill::Zeros(len) => Fill::Zeros(len - skipped),
        };
        Patch { at: self.at + skipped, fill }
    }

    /// What of it is before place `end`.
    pub(crate) fn until(&self, end: u64) -> Patch<'b> {
        let len = end.saturating_sub(self.at).min(self.len());
        let fill = match self.fill {
            Fill::Bytes(bytes) => Fill::Bytes(bytes.get(..len as usize).unwrap_or_default()),
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
        read_bytes(reader, content, size, from, out)?;
        self.lay_over(from, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
