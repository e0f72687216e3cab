//! Reading what the volume has of a file.

use conquest_format::fs::chunk::Chunk;
use conquest_format::inode::Content;
use conquest_format::volume::BLOCK;
use conquest_format::{Offset, PAGE};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Stamp, Tx};

use crate::content::{Piece, piece, put_page};
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId, load};
use crate::large::{PAGE_BLOCKS, chunk};
use crate::open::OpenFile;
use crate::{FileSystem, Result};

/// Bytes of a large file that are read at once.
pub(crate) const FAR_STEP: usize = 4 << 20;

/// What the volume has of what is read of a file.
pub(crate) struct Far {
    /// The file's chunk, as it was.
    pub(crate) chunk: Chunk,
    /// Where a part begins in the file and in what is read to, and how many bytes it is.
    pub(crate) parts: Vec<(u64, usize, usize)>,
    /// As long as this is current, the file is as it was.
    pub(crate) stamp: Stamp,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// The first block of `chunk`.
    pub(super) fn first_block(&self, chunk: &Chunk) -> u64 {
        chunk.number.saturating_mul(self.chunk_blocks())
    }

    /// The chunk of `file`, if it is large.
    pub(crate) fn chunk_of(&self, file: FileId) -> Result<Option<Chunk>> {
        Ok(self.placed_chunk_of(file)?.map(|(_, chunk)| chunk))
    }

    /// The chunk of `file`, if it is large, and where that is.
    pub(super) fn placed_chunk_of(&self, file: FileId) -> Result<Option<(Offset, Chunk)>> {
        self.read(file.number, |view| match load(view, file)?.0.content {
            Content::Large { chunk: at, .. } => Ok(Some((at, chunk::load(view, at)?))),
            _ => Ok(None),
        })
    }

    /// Reads what is `far` of `file` to `out`, as `open` says, if that is given: whether the file
    /// had all that until it was read.
    pub(crate) fn read_far(
        &self,
        file: FileId,
        open: Option<&OpenFile>,
        far: Option<&Far>,
        out: &mut [u8],
    ) -> Result<bool> {
        let Some(Far { chunk, parts, stamp }) = far else {
            return Ok(true);
        };
        let is_direct = open.is_some_and(|open| self.status(open).direct);
        for &(at, start, len) in parts {
            let into = out.get_mut(start..start + len).unwrap_or_default();
            self.read_chunk(chunk, at, into, is_direct)?;
        }
        if self.core().is_current(*stamp) {
            return Ok(true);
        }
        let last = parts.iter().map(|&(at, _, len)| at + len as u64).max().unwrap_or(0);
        let now = self.chunk_of(file)?;
        Ok(now.is_some_and(|now| now.is_still(chunk) && now.end * PAGE >= last))
    }

    /// Reads the bytes of `chunk` from `at` on; whole pages past the cache, if `is_direct`.
    fn read_chunk(&self, chunk: &Chunk, at: u64, into: &mut [u8], is_direct: bool) -> Result<()> {
        let (block, skip) = (self.first_block(chunk) + at / BLOCK, at % BLOCK);
        let len = into.len() as u64;
        if skip == 0 && len.is_multiple_of(BLOCK) {
            let space = self.space()?;
            let done =
                if is_direct { space.read_once(block, into) } else { space.read(block, into) };
            return Ok(done?);
        }
        let mut whole = vec![0; (skip + len).next_multiple_of(BLOCK) as usize];
        self.space()?.read(block, &mut whole)?;
        let part = whole.get(skip as usize..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(part.unwrap_or_default());
        Ok(())
    }

    /// Whether the `limit` bytes of `file` from `at` on, or how many of them, are in use on the
    /// volume, which has them. Of those that are in use no more than `enough` need to be told.
    pub(crate) fn look_far(
        &self,
        file: FileId,
        at: u64,
        limit: u64,
        enough: u64,
    ) -> Result<(bool, u64)> {
        // What has moved back to the core meanwhile may be in use, so it counts as that.
        let moved = Ok((true, limit.min(PAGE)));
        let Some(chunk) = self.chunk_of(file)? else {
            return moved;
        };
        let first = self.first_block(&chunk);
        let start = first + at / PAGE * PAGE_BLOCKS;
        let found = self.space()?.allocated(start, enough.div_ceil(BLOCK) + PAGE_BLOCKS)?;
        if !self.chunk_of(file)?.is_some_and(|now| now.is_still(&chunk)) {
            return moved;
        }
        let end = at + limit;
        Ok(match found {
            Some((block, count)) if block <= start => {
                (true, ((block + count - first).saturating_mul(BLOCK)).min(end) - at)
            }
            Some((block, _)) => {
                (false, ((block - first).saturating_mul(BLOCK)).clamp(at, end) - at)
            }
            None => (false, limit),
        })
    }

    /// Brings those of the pages `pages` of `file` into the core that only the volume has: so that
    /// a part of them can be changed. Nothing else becomes of them.
    pub(crate) fn bring_in(&self, file: FileId, pages: &[u64]) -> Result<()> {
        for &page in pages {
            let mut is_there = false;
            while !is_there {
                let Some(chunk) = self.chunk_of(file)? else {
                    return Ok(());
                };
                let mut bytes = vec![0; PAGE as usize];
                if page < chunk.end {
                    self.read_chunk(&chunk, page * PAGE, &mut bytes, false)?;
                }
                is_there = self.run(|tx| {
                    self.lock(tx, false, [Some(file)])?;
                    let mut draft = Draft::open(tx, file)?;
                    if far_page(tx, &draft, page)?.is_none() {
                        return Ok(Attempt::Done(true));
                    }
                    let Content::Large { chunk: at, .. } = draft.inode.content else {
                        return Ok(Attempt::Done(true));
                    };
                    if chunk::load(tx, at)? != chunk {
                        // What was read may not be what is there.
                        return Ok(Attempt::Done(false));
                    }
                    put_page(tx, &mut draft, page, &bytes)?;
                    draft.is_told = true;
                    draft.stage(tx)?;
                    Ok(Attempt::Done(true))
                })?;
            }
        }
        Ok(())
    }
}

/// Page `page` of the file of `draft`, if only the volume has it.
pub(crate) fn far_page<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    draft: &Draft,
    page: u64,
) -> Result<Option<u64>> {
    let is_far = matches!(draft.inode.content, Content::Large { .. })
        && matches!(piece(tx, draft.inode.content, page * PAGE, PAGE)?, Piece::Far(_));
    Ok(is_far.then_some(page))
}

/// Of a range of bytes of the file of `draft`: the pages at its edges of which it has only a part,
/// and that only the volume has.
pub(crate) fn far_edges<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    draft: &Draft,
    range: core::ops::Range<u64>,
) -> Result<Vec<u64>> {
    let mut pages = Vec::new();
    if !matches!(draft.inode.content, Content::Large { .. }) {
        return Ok(pages);
    }
    for edge in [range.start, range.end] {
        let page = edge / PAGE;
        let is_cut = !edge.is_multiple_of(PAGE) && !pages.contains(&page);
        if is_cut && let Some(page) = far_page(tx, draft, page)? {
            pages.push(page);
        }
    }
    Ok(pages)
}
