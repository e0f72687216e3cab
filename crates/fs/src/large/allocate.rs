//! Space for large files ahead of what is written, and giving it back in the middle: `fallocate`.
//!
//! Space on the volume is had by writing zeros. So it takes time; but what has space can always be
//! written over, whatever others do meanwhile.

use core::ops::Range;

use conquest_access::{Credentials, allocate};
use conquest_format::PAGE;
use conquest_format::fs::chunk::{Chunk, stepped};
use conquest_format::inode::{Content, flag};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::attributes::apply;
use crate::content::{Allocate, Fill, Patch, expose, punch};
use crate::inode::{Draft, FileId};
use crate::large::{PAGE_BLOCKS, chunk};
use crate::locks::{Mode, Wait};
use crate::{Error, FileSystem, Result};

/// Zeros that are written at once.
const AT_ONCE: u64 = 256;

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// [`FileSystem::allocate`] for a large file, or one that is about to be large: whether it was
    /// done. Otherwise the file has moved back to the core meanwhile.
    pub(crate) fn allocate_large(
        &self,
        who: &Credentials,
        file: FileId,
        how: Allocate,
        range: &Range<u64>,
    ) -> Result<bool> {
        let nothing = Patch { at: 0, fill: Fill::Zeros(0) };
        if self.enlarge_alone(file, &nothing)?.is_none() {
            return self.allocate_in_core(who, file, how, range).map(|()| true);
        }
        let (alone, forever) = (Mode::Exclusive, Wait::Forever);
        if !matches!(how, Allocate::Space { .. }) {
            self.zero_edges(who, file, range)?;
            let punched = self.in_turn(file, alone, forever, || self.punch_far(who, file, range));
            if punched?.is_none() {
                return Ok(false);
            }
        }
        let (Allocate::Space { keeps_size } | Allocate::Zeros { keeps_size }) = how else {
            return Ok(true);
        };
        if !keeps_size {
            self.clear_tail(file, range.end)?;
        }
        let fill = || self.fill_far(who, file, (how, keeps_size), range);
        Ok(self.in_turn(file, alone, forever, fill)?.is_some())
    }

    /// Allocates what is not allocated of `range`, `how` it is wanted, and whether the file's size
    /// stays. The caller has the turn, alone.
    fn fill_far(
        &self,
        who: &Credentials,
        file: FileId,
        (how, keeps_size): (Allocate, bool),
        range: &Range<u64>,
    ) -> Result<()> {
        let size = self.size_of(file)?;
        let size = if keeps_size { size } else { size.max(range.end) };
        let fresh = self.with_space_made(|| self.write_zeros(file, range, size))?;
        self.settle()?;
        self.change_chunk(who, file, how, |tx, draft, chunk| {
            let size = draft.inode.size;
            if !keeps_size {
                expose(tx, draft.inode.content, size, range.end)?;
                draft.inode.size = size.max(range.end);
            } else if range.end > size {
                draft.inode.flags |= flag::KEEPS_TAIL;
            }
            let end = chunk.end.max(range.end.div_ceil(PAGE));
            let allocated = (chunk.allocated + fresh).min(end);
            Ok(Chunk { end, allocated, ..*chunk })
        })
    }

    /// Makes zeros of the bytes of `range` that are in pages of which it has only a part.
    fn zero_edges(&self, who: &Credentials, file: FileId, range: &Range<u64>) -> Result<()> {
        let first = range.start.next_multiple_of(PAGE).min(range.end);
        let last = (range.end / PAGE * PAGE).max(first);
        for edge in [range.start..first, last..range.end] {
            if !edge.is_empty() {
                self.zero_in_core(who, file, edge)?;
            }
        }
        Ok(())
    }

    /// Makes a hole of the whole pages of `range`. The caller has the turn, alone.
    fn punch_far(&self, who: &Credentials, file: FileId, range: &Range<u64>) -> Result<()> {
        let pages = range.start.div_ceil(PAGE)..range.end / PAGE;
        let Some(chunk) = self.chunk_of(file)?.filter(|_| !pages.is_empty()) else {
            return Ok(());
        };
        let far = pages.start..pages.end.min(chunk.end);
        let mut used = 0;
        if !far.is_empty() {
            let len = far.end - far.start;
            used = len - self.unallocated(&chunk, far.start, len)?;
            let first = self.first_block(&chunk) + far.start * PAGE_BLOCKS;
            // First of all: what is in the core is in its place until the record.
            self.space()?.trim(first, len * PAGE_BLOCKS)?;
            self.settle()?;
        }
        self.change_chunk(who, file, Allocate::Hole, |_, _, chunk| {
            Ok(Chunk { allocated: chunk.allocated.saturating_sub(used), ..*chunk })
        })?;
        self.clear_in_core(file, &pages)
    }

    /// Takes the pages `pages` of `file` out of the core.
    fn clear_in_core(&self, file: FileId, pages: &Range<u64>) -> Result<()> {
        let mut tx = self.core().begin()?;
        self.lock(&mut tx, false, [Some(file)])?;
        let draft = Draft::open(&tx, file)?;
        self.in_parts(&mut tx, draft, |tx, draft| punch(tx, draft, pages.clone())).map(drop)
    }

    /// Writes zeros to the pages of `range` that have no space on the volume, of `file`, which is
    /// going to have `size` bytes: how many.
    fn write_zeros(&self, file: FileId, range: &Range<u64>, size: u64) -> Result<u64> {
        let chunk = self.chunk_of(file)?.ok_or(Error::Stale)?;
        let (mut page, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
        let chunk = self.make_way(file, &chunk, end)?;
        let first = self.first_block(&chunk);
        if page > chunk.end {
            let gap = (page - chunk.end) * PAGE_BLOCKS;
            self.space()?.trim(first + chunk.end * PAGE_BLOCKS, gap)?;
        }
        let zeros = vec![0; (AT_ONCE * PAGE) as usize];
        let mut fresh = 0;
        while page < end {
            let is_behind = page >= chunk.end;
            let (block, count) = (first + page * PAGE_BLOCKS, (end - page) * PAGE_BLOCKS);
            let used = match self.space()?.allocated(block, count)? {
                Some((block, count)) if !is_behind => {
                    let from = ((block - first) / PAGE_BLOCKS).max(page);
                    from..(block - first).saturating_add(count) / PAGE_BLOCKS
                }
                _ => u64::MAX..u64::MAX,
            };
            // Up to where there is space, or the end of the chunk, behind which there is none.
            let most = if is_behind { end } else { end.min(chunk.end) };
            let stop = most.min(used.start).min(page + AT_ONCE);
            let bytes = zeros.get(..((stop - page) * PAGE) as usize).unwrap_or_default();
            if !bytes.is_empty() {
                self.space()?.write(first + page * PAGE_BLOCKS, bytes)?;
            }
            fresh += stop - page;
            page = if stop == used.start { used.end } else { stop };
        }
        if end > chunk.end {
            self.label(file, &chunk, size, end)?;
        }
        Ok(fresh)
    }

    /// Changes `file` and its chunk by a record, as `change` says, which gives what the chunk is to
    /// be. The caller has the turn, alone.
    fn change_chunk(
        &self,
        who: &Credentials,
        file: FileId,
        how: Allocate,
        change: impl Fn(&mut conquest_pm::Tx<'_, M, H>, &mut Draft, &Chunk) -> Result<Chunk>,
    ) -> Result<()> {
        let mut tx = self.core().begin()?;
        self.lock(&mut tx, false, [Some(file)])?;
        let mut draft = Draft::open(&tx, file)?;
        let rule = allocate(who, &draft.rules(), !matches!(how, Allocate::Space { .. }))?;
        apply(&mut tx, &mut draft, rule)?;
        let Content::Large { chunk: at, .. } = draft.inode.content else {
            return Err(Error::Stale);
        };
        let found = chunk::load(&tx, at)?;
        let next = change(&mut tx, &mut draft, &found)?;
        chunk::store(&mut tx, at, &Chunk { version: stepped(found.version), ..next })?;
        draft.touch(self.now());
        draft.stage(&mut tx)?;
        self.commit(tx)
    }
}
