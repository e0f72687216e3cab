//! What the volume has of a file before the end of its chunk and behind the file's size: nothing
//! that counts, but not always zeros. A page that got more bytes was pushed, or a write went to the
//! volume at once, and the record of it was lost with the power, or never made, as its process
//! died.

use conquest_format::PAGE;
use conquest_format::inode::Content;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::inode::{FileId, load};
use crate::large::{PAGE_BLOCKS, chunk};
use crate::locks::{Mode, Wait};
use crate::{FileSystem, Result};

/// Pages of zeros that are written at once.
const AT_ONCE: u64 = 256;

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Sees to it that `file` has nothing on the volume but zeros from its size to byte `to`, over
    /// which it is about to grow by a hole. In the page in which it ends this is left to who lets
    /// it grow: that page is in the core then. (Or it was pushed again, with zeros.)
    pub(crate) fn clear_tail(&self, file: FileId, to: u64) -> Result<()> {
        if self.threshold().is_none() {
            return Ok(());
        }
        let (page, pages) = self.tail(file, to)?;
        if let Some(page) = page {
            self.bring_in(file, &[page])?;
        }
        if pages.is_empty() {
            return Ok(());
        }
        // Not while somebody is about to record that he has written there.
        let cleared = self.in_turn(file, Mode::Exclusive, Wait::Forever, || {
            let (_, pages) = self.tail(file, to)?;
            let Some(chunk) = self.chunk_of(file)?.filter(|_| !pages.is_empty()) else {
                return Ok(());
            };
            let zeros = vec![0; (AT_ONCE.min(pages.end - pages.start) * PAGE) as usize];
            let first = self.first_block(&chunk);
            let mut at = pages.start;
            while at < pages.end
                && let Some((block, count)) = self
                    .space()?
                    .allocated(first + at * PAGE_BLOCKS, (pages.end - at) * PAGE_BLOCKS)?
            {
                let from = ((block - first) / PAGE_BLOCKS).min(pages.end);
                let used = (block.saturating_add(count) - first) / PAGE_BLOCKS;
                let stop = used.min(pages.end).min(from + AT_ONCE);
                if stop <= from {
                    break;
                }
                let part = zeros.get(..((stop - from) * PAGE) as usize).unwrap_or_default();
                self.space()?.write(first + from * PAGE_BLOCKS, part)?;
                at = stop;
            }
            self.settle()
        });
        cleared.map(drop)
    }

    /// What `file` has before the end of its chunk and between its size and byte `to`: the page in
    /// which it ends, if it has only a part of it, and whole pages.
    fn tail(&self, file: FileId, to: u64) -> Result<(Option<u64>, core::ops::Range<u64>)> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let Content::Large { chunk: at, .. } = inode.content else {
                return Ok((None, 0..0));
            };
            let end = chunk::load(view, at)?.end;
            let (size, page) = (inode.size, inode.size / PAGE);
            let is_cut = to > size && !size.is_multiple_of(PAGE) && page < end;
            Ok((is_cut.then_some(page), size.div_ceil(PAGE)..end.min(to.div_ceil(PAGE))))
        })
    }
}
