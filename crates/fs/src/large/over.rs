//! Writing whole pages over what the volume has of a file, without a turn: one record instead of
//! three. They are inside the file's size and its chunk's end, and none of them is in the core.
//!
//! It is looked where the volume has them, then whether the file still has the chunk, and then they
//! are written, if they are where they were. At last a record counts that in the chunk's version,
//! if the chunk is the same one, nothing has been done to it in a turn, and no page is in the core.
//! Otherwise all is done again in a turn. So, of what others do meanwhile:
//!
//! - What is cut off, punched, or given back with the chunk is trimmed. Before that, what is
//!   written here is trimmed too, and the record finds another chunk, or another version; or it
//!   came first. Behind it the pages are nowhere, or another file's: they are not written.
//! - Who writes to them in the core, and pushes, changes where they are; or he pushes over what is
//!   written here, and the record finds the page in the core, or another version.
//! - Who has read a page before, to bring it into the core, finds another version, if the record
//!   was there before his; if not, it finds the page, or that it was pushed.
//! - Of two who write over the same, one does, and the other one looks again.
//! - Cleaning the volume moves pages, too; then it is looked again, but not for ever.
//!
//! Those who push need not know, so they compare the version without what is counted here.

use conquest_access::Credentials;
use conquest_format::Offset;
use conquest_format::PAGE;
use conquest_format::fs::chunk::{Chunk, is_same_step};
use conquest_format::inode::{Content, Inode};
use conquest_pm::Stamp;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::inode::{FileId, load};
use crate::large::direct::{Direct, Done, How, is_quiet};
use crate::large::{PAGE_BLOCKS, chunk};
use crate::{FileSystem, Reader, Result};

/// How often it is tried.
const TRIES: u32 = 3;

/// A chunk, and where it is in the region.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    at: Offset,
    chunk: Chunk,
}

impl Placed {
    /// Whether the chunk `found` at `at` is the same one, of the same file, and nothing was done to
    /// it but writing over what is there.
    pub(super) fn is_still(&self, at: Offset, found: &Chunk) -> bool {
        let of = |chunk: &Chunk| (chunk.number, chunk.inode, chunk.generation);
        self.at == at
            && of(found) == of(&self.chunk)
            && is_same_step(found.version, self.chunk.version)
    }
}

/// The chunk of the file of `inode`, if `direct` may be written over what is in it.
pub(super) fn place_of(
    reader: &impl Reader,
    inode: &Inode,
    direct: &Direct<'_>,
) -> Result<Option<Placed>> {
    let Content::Large { chunk: at, .. } = inode.content else {
        return Ok(None);
    };
    if !direct.len().is_multiple_of(PAGE) || !is_quiet(reader, inode, direct)? {
        return Ok(None);
    }
    let chunk = chunk::load(reader, at)?;
    Ok((direct.end_page() <= chunk.end).then_some(Placed { at, chunk }))
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Writes `direct` over what the volume has in the chunk of `file` that is `placed`, as long as
    /// the file is as it was at `stamp`, or alike: where, and how many bytes. None if it has to be
    /// done otherwise.
    pub(super) fn write_over(
        &self,
        who: &Credentials,
        file: FileId,
        direct: &Direct<'_>,
        (placed, stamp): (Placed, Stamp),
    ) -> Result<Option<(u64, u64)>> {
        let space = self.space()?;
        let block = self.first_block(&placed.chunk) + direct.first_page() * PAGE_BLOCKS;
        let bytes = direct.bytes.get(..direct.len() as usize).unwrap_or_default();
        let is_kept = !direct.begin.is_direct;
        for _ in 0..TRIES {
            let Some(seen) = space.look(block, bytes.len() as u64 / PAGE * PAGE_BLOCKS)? else {
                return Ok(None);
            };
            // What was seen is this file's only if it has the chunk still.
            if !self.core().is_current(stamp) && !self.has_still(file, direct, &placed)? {
                return Ok(None);
            }
            if self.with_space_made(|| Ok(space.write_over(block, bytes, &seen, is_kept)?))? {
                if self.is_synchronous() {
                    self.settle()?;
                }
                let done = Done { how: How::Over(placed), fresh: 0, is_quiet: true };
                return self.record_direct(who, file, direct, done);
            }
        }
        Ok(None)
    }

    /// Whether `direct` may still be written to the chunk of `file` that is `placed`.
    fn has_still(&self, file: FileId, direct: &Direct<'_>, placed: &Placed) -> Result<bool> {
        let now = self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            place_of(view, &inode, direct)
        })?;
        Ok(now.is_some_and(|now| placed.is_still(now.at, &now.chunk)))
    }
}

#[cfg(test)]
mod tests {
    use conquest_format::fs::chunk::{stepped, written_over};

    use super::*;

    #[test]
    fn a_chunk_is_the_same_one_until_something_is_done_to_it_in_a_turn() {
        let (number, inode, generation, version) = (70, 5, 9, 1 << 40 | 3 << 20);
        let (list, end, allocated) = (0, 100, 100);
        let chunk = Chunk { number, list, inode, generation, end, allocated, version };
        let at = Offset::new(0x4440);
        let placed = Placed { at, chunk };
        let others = [
            Chunk { number: 71, ..chunk },
            Chunk { inode: 6, ..chunk },
            Chunk { generation: 10, ..chunk },
            Chunk { version: stepped(version), ..chunk },
            Chunk { version: version + (1 << 40), ..chunk },
        ];
        assert!(others.iter().all(|other| !placed.is_still(at, other)));
        assert!(placed.is_still(at, &chunk) && !placed.is_still(at.plus(64), &chunk));
        assert!(placed.is_still(at, &Chunk { list: 1, version: written_over(version), ..chunk }));
    }
}
