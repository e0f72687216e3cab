//! Moving back to the core: a large file that was cut off, and is a small one by that, gives its
//! chunk back (DFS 2010, 3.3.2 and 3.3.5, where that is done by remapping; here the core is another
//! medium, so what is left is copied).
//!
//! What was cut off is cut off by then, whatever comes of this: if somebody else is at the chunk,
//! or there is no room, or the volume can't be read, the file stays as it is until it is cut off
//! again.
//!
//! A chunk that was given back may be another file's when somebody reads who has looked at it
//! before. So its version says in which life it is.

use conquest_format::PAGE;
use conquest_format::fs::chunk::Chunk;
use conquest_format::inode::{Content, Inode, flag};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::file_system::Attempt;
use crate::inode::{Draft, FileId, load};
use crate::large::read::far_page;
use crate::large::{PAGE_BLOCKS, chunk};
use crate::locks::{Mode, Wait};
use crate::{Error, FileSystem, Result};

/// Most bytes that are copied, however high the threshold is: whoever cuts the file off waits for
/// that.
const MOST: u64 = 4 << 20;

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Moves what `file` has back to the core, if it is a large one that is small now, and nothing
    /// is in the way.
    ///
    /// # Errors
    /// Those of the region, but for lack of space.
    pub(crate) fn move_back(&self, file: FileId) -> Result<()> {
        if self.threshold().is_none() {
            return Ok(());
        }
        let is_small = self.read(file.number, |view| Ok(self.is_to_move(&load(view, file)?.0)))?;
        if !is_small {
            return Ok(());
        }
        let moved = self.in_turn(file, Mode::Exclusive, Wait::No, || self.move_in_turn(file));
        match moved {
            Err(Error::Core(error)) if !matches!(error, conquest_pm::Error::NoSpace { .. }) => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether the file of `inode` is a large one that is to be in the core.
    fn is_to_move(&self, inode: &Inode) -> bool {
        matches!(inode.content, Content::Large { .. })
            && inode.size <= self.limit_of(inode).min(MOST)
            && inode.flags & flag::KEEPS_TAIL == 0
            && (inode.size == 0 || self.is_roomy())
    }

    /// [`Self::move_back`] for who has the turn, alone: nobody else changes meanwhile what the
    /// volume has.
    fn move_in_turn(&self, file: FileId) -> Result<()> {
        let Some(chunk) = self.chunk_of(file)? else {
            return Ok(());
        };
        let pages = self.pages_in_use(&chunk, chunk.end.min(MOST / PAGE))?;
        loop {
            let size = self.size_of(file)?;
            let inside = pages.partition_point(|page| page * PAGE < size);
            self.bring_in(file, pages.get(..inside).unwrap_or_default())?;
            if self.give_back(file, &pages)? {
                return Ok(());
            }
        }
    }

    /// Pages of `chunk` before page `end` that the volume has.
    fn pages_in_use(&self, chunk: &Chunk, end: u64) -> Result<Vec<u64>> {
        let first = self.first_block(chunk);
        let (mut at, mut pages) = (0, Vec::new());
        while at < end
            && let Some((block, count)) =
                self.space()?.allocated(first + at * PAGE_BLOCKS, (end - at) * PAGE_BLOCKS)?
        {
            let from = ((block - first) / PAGE_BLOCKS).clamp(at, end);
            let to = (block.saturating_add(count) - first).div_ceil(PAGE_BLOCKS).min(end);
            pages.extend(from..to);
            at = to.max(at + 1);
        }
        Ok(pages)
    }

    /// Records that `file` has its chunk no more, unless it is not to move any more: whether that
    /// is settled. It is not if only the volume has one of `pages`, which are all that it has.
    fn give_back(&self, file: FileId, pages: &[u64]) -> Result<bool> {
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let mut draft = Draft::open(tx, file)?;
            if !self.is_to_move(&draft.inode) {
                return Ok(Attempt::Done(true));
            }
            for &page in pages {
                if page * PAGE < draft.inode.size && far_page(tx, &draft, page)?.is_some() {
                    return Ok(Attempt::Done(false));
                }
            }
            chunk::retire(tx, &draft)?;
            draft.inode.content = draft.inode.content.without_chunk();
            draft.is_told = true;
            draft.stage(tx)?;
            Ok(Attempt::Done(true))
        })
    }
}
