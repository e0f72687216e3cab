//! Pushing pages of a large file from the core to the volume.

use core::cell::Cell;

use conquest_format::fs::chunk::{Chunk, is_same_step, stepped};
use conquest_format::fs::tree::SLOTS;
use conquest_format::inode::{Content, Inode, flag};
use conquest_format::{GROUP_PAGES, PAGE};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::{clear, pages_in_core, punch, stage_trim};
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId, load};
use crate::large::chunk::Why;
use crate::large::{PAGE_BLOCKS, chunk};
use crate::locks::{Mode, Wait};
use crate::{FileSystem, Reader, Result};

/// Pages in the core from which on those of a large file are pushed by whoever writes: if there is
/// a keeper, who pushes what there is before long, and enough room in the core; and otherwise.
const FULL: u64 = 4096;
const FULL_HURRIED: u64 = 256;
/// How many times as many there can be before whoever writes waits for that.
const FULL_LONG: u64 = 4;
/// Who writes tries to push once for so many pages: another one may be pushing them, and finding
/// that out takes system calls, as he may have died at it.
const TRY_EACH: u64 = 64;
/// The part of the core that pages of large files can take before those who write push them:
/// an eighth of it, but not more than 32 MiB, which is what an epoch can write to their places.
const PASSING_PART: u64 = 8;
const PASSING_MOST: u64 = 8192;
/// The part of the core that is free as long as there is enough room: a quarter.
const ROOMY_PART: u64 = 4;
/// Pages that are pushed at once.
const BATCH: usize = 512;
/// Threads of a process that push at the same time, without making memory anew for that.
const PUSHERS: usize = 2;

thread_local! {
    /// Whether the thread pushes to make room: what it needs for that it does not wait for.
    static IS_PUSHING: Cell<bool> = const { Cell::new(false) };
}

/// Pages that were copied, to be pushed.
struct Batch {
    chunk: Chunk,
    /// The file's size, and its change cookie.
    size: u64,
    change: u64,
    /// Numbers of the pages, in order.
    pages: Vec<u64>,
    /// Their bytes; zeros behind the file's size.
    bytes: Vec<u8>,
}

impl Batch {
    /// Runs of pages that follow each other: the first one, and the bytes of all.
    fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.pages.chunk_by(|page, next| page + 1 == *next).filter_map(move |run| {
            let (now, later) = rest.split_at_checked(run.len() * PAGE as usize)?;
            rest = later;
            Some((*run.first()?, now))
        })
    }

    /// The page behind the last one.
    fn end(&self) -> u64 {
        self.pages.last().map_or(0, |page| page + 1)
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Whether so many pages of the file of `inode`, of which `len` bytes were just written, are in
    /// the core that some should be pushed, and it was not tried a moment ago.
    pub(crate) fn is_full(&self, inode: &Inode, len: u64) -> bool {
        inode.pages % TRY_EACH <= len.div_ceil(PAGE) && self.has_pages(inode, 1)
    }

    /// The same, but so many that this has to be done before there can be more.
    pub(crate) fn is_too_full(&self, inode: &Inode) -> bool {
        self.has_pages(inode, FULL_LONG)
    }

    /// Whether so many times as many pages of the file of `inode` are in the core as are pushed.
    fn has_pages(&self, inode: &Inode, times: u64) -> bool {
        let pages = inode.pages;
        matches!(inode.content, Content::Large { .. })
            && pages >= times * FULL_HURRIED
            && (pages >= times * FULL || self.is_hurried())
    }

    /// Whether whoever writes to large files is to push what he has written: nobody else does so
    /// before long, or it would be too much by then.
    fn is_hurried(&self) -> bool {
        let core = self.core();
        !core.has_keeper()
            || core.is_log_long()
            || core.passing_pages() >= (self.pages_most() / PASSING_PART).min(PASSING_MOST)
            || !self.is_roomy()
    }

    /// Whether the core has enough room for pages of large files.
    pub(super) fn is_roomy(&self) -> bool {
        !self.core().is_free_below(self.pages_most() / ROOMY_PART)
    }

    /// Pages that the core can have.
    fn pages_most(&self) -> u64 {
        self.core().geometry().shape().max_groups * GROUP_PAGES
    }

    /// Pushes pages of `file`, which is closed; or sees to it that the keeper does so before long.
    pub(crate) fn push_closed(&self, file: FileId) -> Result<()> {
        // Who closes a small file pays for no more than this look.
        if self.threshold().is_none() || self.chunk_of(file)?.is_none() {
            return Ok(());
        }
        if self.is_hurried() {
            return self.push(file, Wait::No);
        }
        if self.chunk_to_note(file)?.is_none() { Ok(()) } else { self.list_as_due(file) }
    }

    /// Lists `file` as one that has pages to be pushed, if it is large. It is done alone: nobody
    /// is to have the lists' lock for as long as a write takes.
    pub(crate) fn list_as_due(&self, file: FileId) -> Result<()> {
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let Content::Large { chunk: at, .. } = Draft::open(tx, file)?.inode.content else {
                return Ok(Attempt::Done(()));
            };
            Ok(Attempt::Done(chunk::note_due(tx, at, Why::Push)?))
        })
    }

    /// The chunk of `file`, if it is on no list, and pages of the file are to be pushed.
    fn chunk_to_note(&self, file: FileId) -> Result<Option<Chunk>> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let Content::Large { chunk: at, .. } = inode.content else {
                return Ok(None);
            };
            let is_due = self.has_pages_to_push(view, &inode)?;
            Ok(Some(chunk::load(view, at)?).filter(|chunk| is_due && chunk.list == 0))
        })
    }

    /// Notes that pages of the file of `draft`, of which bytes up to `end` are about to be written,
    /// are to be pushed, if it is large: whether it is listed as such.
    pub(crate) fn note_passing(
        &self,
        tx: &mut Tx<'_, M, H>,
        draft: &Draft,
        end: u64,
    ) -> Result<bool> {
        let Content::Large { chunk: at, .. } = draft.inode.content else {
            return Ok(true);
        };
        if draft.inode.size.max(end) <= self.limit_of(&draft.inode) {
            return Ok(true);
        }
        tx.pages_pass();
        Ok(chunk::load(tx, at)?.list != 0)
    }

    /// Whether the file of `inode`, which has a chunk, is large enough, and has pages in the core.
    pub(super) fn has_pages_to_push(&self, reader: &impl Reader, inode: &Inode) -> Result<bool> {
        Ok(inode.size > self.limit_of(inode)
            && inode.pages > 0
            && !pages_in_core(reader, inode.content, 0, 1)?.is_empty())
    }

    /// Before all is made durable: pushes pages of large files, if there are many. They would be
    /// written twice otherwise.
    pub(crate) fn push_many(&self) -> Result<()> {
        let are_many = self.threshold().is_some() && self.core().passing_pages() >= FULL_HURRIED;
        if are_many { self.push_due(|| false).map(drop) } else { Ok(()) }
    }

    /// When the core is full: makes room by pushing pages of large files; whether there is more
    /// then.
    pub(crate) fn push_for_room(&self) -> Result<bool> {
        if self.threshold().is_none() || IS_PUSHING.replace(true) {
            return Ok(false);
        }
        let pushed = self.push_due(|| false);
        IS_PUSHING.set(false);
        Ok(pushed? > 0)
    }

    /// Pushes all pages of `file` that are in the core to the volume, if it is large enough.
    ///
    /// # Errors
    /// `EAGAIN` if somebody else has the turn, and this is not to wait; those of the volume and of
    /// the region.
    pub fn push(&self, file: FileId, wait: Wait) -> Result<()> {
        if self.threshold().is_none() {
            return Ok(());
        }
        // What somebody appends meanwhile is left for the next time.
        let end = self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let is_large = matches!(inode.content, Content::Large { .. });
            let is_due = is_large && inode.pages > 0 && inode.size > self.limit_of(&inode);
            Ok(if is_due { inode.size.div_ceil(PAGE) } else { 0 })
        })?;
        if end == 0 {
            return Ok(());
        }
        let pushed = self.in_turn(file, Mode::Exclusive, wait, || {
            self.drop_tail(file)?;
            let mut from = 0;
            while from < end
                && let Some(batch) = self.copy_batch(file, from)?
            {
                from = batch.end();
                let pushed = self.push_batch(file, &batch);
                self.give_memory(batch.bytes);
                pushed?;
            }
            Ok(())
        });
        pushed.map(drop)
    }

    /// Frees what `file` has in the core past its end, unless that was asked for.
    fn drop_tail(&self, file: FileId) -> Result<()> {
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let mut draft = Draft::open(tx, file)?;
            if draft.inode.flags & flag::KEEPS_TAIL != 0 {
                return Ok(Attempt::Done(()));
            }
            draft.is_told = true;
            stage_trim(tx, draft)
        })
    }

    /// Copies pages of `file` that are in the core, from page `from` on.
    fn copy_batch(&self, file: FileId, from: u64) -> Result<Option<Batch>> {
        let mut memory = self.take_memory();
        let copied = self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let Content::Large { chunk: at, .. } = inode.content else {
                return Ok(None);
            };
            let chunk = chunk::load(view, at)?;
            let mut places = pages_in_core(view, inode.content, from, BATCH)?;
            // What somebody has got ahead meanwhile has no bytes; what was asked for has its space
            // on the volume, too.
            let keeps_tail = inode.flags & flag::KEEPS_TAIL != 0;
            places.retain(|(page, _)| keeps_tail || page * PAGE < inode.size);
            memory.resize(places.len() * PAGE as usize, 0);
            for ((page, place), out) in places.iter().zip(memory.chunks_exact_mut(PAGE as usize)) {
                view.bytes(*place, out);
                let inside = inode.size.saturating_sub(page * PAGE).min(PAGE);
                out.get_mut(inside as usize..).unwrap_or_default().fill(0);
            }
            let pages: Vec<u64> = places.iter().map(|(page, _)| *page).collect();
            let (size, change) = (inode.size, inode.change);
            Ok((!pages.is_empty()).then_some((chunk, size, change, pages)))
        });
        match copied {
            Ok(Some((chunk, size, change, pages))) => {
                Ok(Some(Batch { chunk, size, change, pages, bytes: memory }))
            }
            other => {
                self.give_memory(memory);
                other.map(|_| None)
            }
        }
    }

    /// Memory for a batch, which may have had another one: who makes it anew each time pays as much
    /// for that as for copying to it.
    fn take_memory(&self) -> Vec<u8> {
        // It is not waited for: in a forked child another thread may have it for ever.
        let kept = self.passing().try_lock().ok().and_then(|mut kept| kept.pop());
        kept.unwrap_or_default()
    }

    fn give_memory(&self, memory: Vec<u8>) {
        if let Ok(mut kept) = self.passing().try_lock()
            && kept.len() < PUSHERS
        {
            kept.push(memory);
        }
    }

    /// Writes what is in `batch` to the volume, and takes it out of the core. The caller has the
    /// turn, alone.
    fn push_batch(&self, file: FileId, batch: &Batch) -> Result<()> {
        let fresh = self.with_space_made(|| self.write_batch(file, batch))?;
        self.settle()?;
        self.forget_pushed(file, batch, fresh)
    }

    /// Writes what is in `batch` to the volume: how many of its pages had no space there before.
    fn write_batch(&self, file: FileId, batch: &Batch) -> Result<u64> {
        let chunk = self.make_way(file, &batch.chunk, batch.end())?;
        let first = self.first_block(&chunk);
        let (mut end, mut fresh) = (chunk.end, 0);
        for (page, bytes) in batch.runs() {
            let pages = bytes.len() as u64 / PAGE;
            fresh += self.unallocated(&chunk, page, pages)?;
            if page > end {
                self.space()?.trim(first + end * PAGE_BLOCKS, (page - end) * PAGE_BLOCKS)?;
            }
            self.space()?.write(first + page * PAGE_BLOCKS, bytes)?;
            end = end.max(page + pages);
        }
        self.label(file, &chunk, batch.size, end)?;
        Ok(fresh)
    }

    /// How many of the `pages` pages from `page` on have no space on the volume. What is behind the
    /// end has none.
    pub(super) fn unallocated(&self, chunk: &Chunk, page: u64, pages: u64) -> Result<u64> {
        let first = self.first_block(chunk);
        let end = (page + pages).min(chunk.end);
        let (mut at, mut used) = (page, 0);
        while at < end
            && let Some((block, count)) =
                self.space()?.allocated(first + at * PAGE_BLOCKS, (end - at) * PAGE_BLOCKS)?
        {
            let from = ((block - first) / PAGE_BLOCKS).min(end);
            let to = (block.saturating_add(count) - first).div_ceil(PAGE_BLOCKS).min(end);
            used += to.saturating_sub(from.max(at));
            at = to.max(at + 1);
        }
        Ok(pages.saturating_sub(used))
    }

    /// Takes pages that were pushed out of the core, unless they were changed meanwhile;
    /// `fresh` of them are new on the volume.
    fn forget_pushed(&self, file: FileId, batch: &Batch, fresh: u64) -> Result<()> {
        let mut tx = self.core().begin()?;
        self.lock(&mut tx, false, [Some(file)])?;
        let mut draft = Draft::open(&tx, file)?;
        let Content::Large { chunk: at, .. } = draft.inode.content else {
            return Ok(());
        };
        let chunk = chunk::load(&tx, at)?;
        if !is_same_step(chunk.version, batch.chunk.version) {
            // Something was cut off since the pages were copied: there may be other bytes now.
            return Ok(());
        }
        let end = chunk.end.max(batch.end());
        let allocated = (chunk.allocated + fresh).min(end);
        let version = stepped(chunk.version);
        chunk::store(&mut tx, at, &Chunk { end, allocated, version, ..chunk })?;
        let mut gone = self.unchanged(&tx, &draft, batch)?;
        self.core().pages_have_passed(gone.len() as u64)?;
        // The last pages first: what is left to do is the beginning of the list.
        while let Some(run) = last_run(&gone) {
            if punch(&mut tx, &mut draft, run.clone())? {
                gone.retain(|page| *page < run.start);
                if tx.room() > ROOM && !gone.is_empty() {
                    continue;
                }
            }
            draft.is_told = true;
            draft.stage(&mut tx)?;
            self.check_changes()?;
            tx.commit_part()?;
            draft = Draft::open(&tx, file)?;
        }
        clear_nodes(&mut tx, &mut draft)?;
        draft.is_told = true;
        draft.stage(&mut tx)?;
        self.commit(tx)
    }

    /// The pages of `batch` that are in the core as they were copied.
    fn unchanged(&self, tx: &Tx<'_, M, H>, draft: &Draft, batch: &Batch) -> Result<Vec<u64>> {
        let size = draft.inode.size;
        if draft.inode.change == batch.change && size == batch.size {
            return Ok(batch.pages.clone());
        }
        let (from, most) = (batch.pages.first().copied().unwrap_or(0), 2 * BATCH);
        let there = pages_in_core(tx, draft.inode.content, from, most)?;
        let mut found = vec![0; PAGE as usize];
        let mut unchanged = Vec::new();
        for (page, bytes) in batch.pages.iter().zip(batch.bytes.chunks_exact(PAGE as usize)) {
            let place = there.binary_search_by_key(page, |(there, _)| *there);
            if let Some((_, place)) = place.ok().and_then(|index| there.get(index)) {
                tx.bytes(*place, &mut found);
                let inside = size.saturating_sub(page * PAGE).min(PAGE) as usize;
                if found.get(..inside) == bytes.get(..inside) {
                    unchanged.push(*page);
                }
            }
        }
        Ok(unchanged)
    }
}

/// Entries of a record that a step needs at least.
const ROOM: u64 = 400;

/// The last pages of `pages` that follow each other and have one node in common.
fn last_run(pages: &[u64]) -> Option<core::ops::Range<u64>> {
    let last = *pages.last()?;
    let follows =
        |(page, before): (u64, &u64)| page == before + 1 && before / SLOTS == last / SLOTS;
    let more = (0..=last).rev().zip(pages.iter().rev().skip(1)).take_while(|&pair| follows(pair));
    Some(last - more.count() as u64..last + 1)
}

/// Stages that the tree of the file of `draft` is no more, if it has no pages.
fn clear_nodes<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, draft: &mut Draft) -> Result<()> {
    if draft.inode.content.tree().is_some()
        && pages_in_core(tx, draft.inode.content, 0, 1)?.is_empty()
    {
        // If that is too much for a record, the next one who pushes goes on.
        let (true | false) = clear(tx, draft, 0..u64::MAX)?;
    }
    Ok(())
}
