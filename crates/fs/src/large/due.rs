//! What is due: trimming what nobody needs any more, when that is durable, and making space by it;
//! and pushing what has stayed in the core.

use conquest_format::Offset;
use conquest_format::fs::chunk::{Chunk, WHOLE, is_same_step};
use conquest_format::fs::root;
use conquest_pm::Mode as LockMode;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::file_system::{Attempt, lists_lock, root_word};
use crate::inode::{Draft, FileId, load};
use crate::large::PAGE_BLOCKS;
use crate::large::chunk::{self, List};
use crate::locks::{Mode, Wait};
use crate::{Errno, Error, FileSystem, Result};

/// Chunks that are looked at together.
const AT_ONCE: usize = 256;
/// If so many pages seem to pass when all was pushed that could be, they are counted anew.
const MANY: u64 = 128;

/// Chunks of which some is not needed any more, as they were found.
#[derive(Debug)]
pub struct Unneeded(Vec<(Offset, Chunk)>);

impl Unneeded {
    /// Whether there may be others: these are as many as are looked at together.
    #[must_use]
    pub fn may_be_more(&self) -> bool {
        self.0.len() >= AT_ONCE
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Gives the volume back what nobody needs any more, of files that were removed or cut off: how
    /// many chunks it was about. All that was committed before is durable then.
    ///
    /// # Errors
    /// Those of the volume and of the region.
    pub fn trim_chunks(&self) -> Result<u64> {
        let mut trimmed = 0;
        loop {
            let unneeded = self.unneeded()?;
            if unneeded.0.is_empty() {
                return Ok(trimmed);
            }
            self.core().make_durable()?;
            match self.trim_unneeded(unneeded)? {
                0 => return Ok(trimmed),
                more => trimmed += more,
            }
        }
    }

    /// Chunks of which the volume can have back all, or the end, when what is committed now is
    /// durable: [`Self::trim_unneeded`]. So who makes all durable anyway need not do so once more
    /// for them.
    ///
    /// # Errors
    /// Those of the region.
    pub fn unneeded(&self) -> Result<Unneeded> {
        let is_any = self.has_due()?;
        let found = if is_any { self.due(AT_ONCE, |word| word & WHOLE == 0)? } else { Vec::new() };
        Ok(Unneeded(found))
    }

    /// Gives the volume back what is `unneeded`, for which the caller has made durable all that was
    /// committed when it was found: how many chunks it was about. Who is at one of them, or has cut
    /// it off again, leaves it to the next one.
    ///
    /// # Errors
    /// Those of the volume and of the region.
    pub fn trim_unneeded(&self, unneeded: Unneeded) -> Result<u64> {
        let mut trimmed = 0;
        for (at, chunk) in unneeded.0 {
            let is_trimmed = match chunk.inode {
                0 => self.trim_unused(at, &chunk)?,
                _ => self.trim_end(at, &chunk)?,
            };
            trimmed += u64::from(is_trimmed);
        }
        Ok(trimmed)
    }

    /// Whether there is something to be trimmed, or to be pushed.
    ///
    /// # Errors
    /// Those of the region.
    pub fn has_due(&self) -> Result<bool> {
        if self.threshold().is_none() {
            return Ok(false);
        }
        let head = root_word(root::DUE);
        Ok(self.core().read(lists_lock(self.core()), |view| Ok(view.word(head) != 0))?)
    }

    /// Pushes what large files have in the core, until `is_over`: how many files have none then.
    /// What can't be pushed now stays where it is, and so does what somebody else is at.
    ///
    /// # Errors
    /// Those of the region.
    pub fn push_due(&self, is_over: impl Fn() -> bool) -> Result<u64> {
        if !self.has_due()? {
            return Ok(0);
        }
        let mut pushed = 0;
        for (at, chunk) in self.due(usize::MAX, |_| true)? {
            let file = FileId { number: chunk.inode, generation: chunk.generation };
            if chunk.inode == 0 || is_over() {
                continue;
            }
            match self.push(file, Wait::No) {
                Ok(()) => pushed += u64::from(self.forget_due(file, at)?),
                Err(Error::Core(error)) if !is_full(&error) => return Err(error.into()),
                Err(_) => {}
            }
        }
        if self.core().passing_pages() >= MANY {
            self.count_passing()?;
        }
        Ok(pushed)
    }

    /// Counts the pages that large files have in the core, which pass: those that were freed before
    /// they were pushed do not count any more.
    fn count_passing(&self) -> Result<()> {
        let mut pages = 0;
        for (_, chunk) in self.due(usize::MAX, |_| true)? {
            if chunk.inode == 0 {
                continue;
            }
            let file = FileId { number: chunk.inode, generation: chunk.generation };
            let found = self.read(file.number, |view| Ok(load(view, file)?.0));
            // One that is gone has none.
            if let Ok(inode) = found
                && inode.size > self.limit_of(&inode)
            {
                pages += inode.pages;
            }
        }
        Ok(self.core().count_passing_anew(pages)?)
    }

    /// Takes the chunk at `at`, of `file`, off the list, unless there is something to be done:
    /// whether it is on none then.
    fn forget_due(&self, file: FileId, at: Offset) -> Result<bool> {
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            tx.lock(lists_lock(tx.core()), LockMode::Exclusive)?;
            let Ok(draft) = Draft::open(tx, file) else {
                return Ok(Attempt::Done(false));
            };
            let chunk = chunk::load(tx, at)?;
            let is_kept = self.has_pages_to_push(tx, &draft.inode)?;
            let is_its = (chunk.inode, chunk.generation) == (file.number, file.generation);
            if !is_its || chunk.list == 0 || chunk.is_to_be_trimmed() || is_kept {
                return Ok(Attempt::Done(chunk.list == 0));
            }
            Ok(Attempt::Done(chunk::remove(tx, List::Due, at)?))
        })
    }

    /// Up to `most` of the chunks that have something to be done, and a list word that is `wanted`.
    fn due(&self, most: usize, wanted: impl Fn(u64) -> bool) -> Result<Vec<(Offset, Chunk)>> {
        self.run(|tx| {
            tx.lock(lists_lock(tx.core()), LockMode::Exclusive)?;
            let places = chunk::members(tx, List::Due, most, &wanted)?;
            let mut found = Vec::new();
            for at in places {
                // One that its file changes right now is left for later.
                if let Ok(chunk) = chunk::load(tx, at) {
                    found.push((at, chunk));
                }
            }
            Ok(Attempt::Done(found))
        })
    }

    /// Trims all of a chunk that no file has, as durable records say: whether it was done.
    fn trim_unused(&self, at: Offset, seen: &Chunk) -> Result<bool> {
        let trimmed = self.in_turn_at(at, Mode::Exclusive, Wait::No, || {
            let is_same = |found: &Chunk| found.is_to_be_trimmed() && same_but_list(found, seen);
            let found = self.run(|tx| {
                tx.lock(lists_lock(tx.core()), LockMode::Exclusive)?;
                Ok(Attempt::Done(chunk::load(tx, at).ok().filter(is_same)))
            })?;
            if found.is_none() {
                return Ok(false);
            }
            self.space()?.trim(self.first_block(seen), self.chunk_blocks())?;
            self.settle()?;
            self.run(|tx| {
                tx.lock(lists_lock(tx.core()), LockMode::Exclusive)?;
                let was_there = chunk::remove(tx, List::Due, at)?;
                if was_there {
                    chunk::store(tx, at, &Chunk { end: 0, allocated: 0, ..*seen })?;
                    chunk::note_unused(tx, at)?;
                }
                Ok(Attempt::Done(was_there))
            })
        });
        or_later(trimmed)
    }

    /// Trims what is behind the end of a chunk that has a file: whether it was done.
    fn trim_end(&self, at: Offset, seen: &Chunk) -> Result<bool> {
        let file = FileId { number: seen.inode, generation: seen.generation };
        let trimmed =
            self.in_turn(file, Mode::Exclusive, Wait::No, || self.trim_end_in_turn(file, at, seen));
        or_later(trimmed.map(|done| done.unwrap_or(false)))
    }

    /// [`Self::trim_end`] for who has the turn alone, if the end is where it was `seen`, which is
    /// durable.
    fn trim_end_in_turn(&self, file: FileId, at: Offset, seen: &Chunk) -> Result<bool> {
        let first = self.first_block(seen);
        let is_same = |found: &Chunk| found.is_to_be_trimmed() && same_but_list(found, seen);
        if !self.chunk_of(file)?.is_some_and(|found| is_same(&found)) {
            return Ok(false);
        }
        let skip = seen.end * PAGE_BLOCKS;
        // The label stays until there is another one, as long as there is anything to tell of.
        let is_labelled = seen.end > 0 && self.space()?.is_labelled();
        let last = self.chunk_blocks() - if is_labelled { PAGE_BLOCKS } else { 0 };
        self.space()?.trim(first + skip, last - skip)?;
        if is_labelled {
            self.label(file, seen, self.size_of(file)?, seen.end)?;
        }
        self.settle()?;
        let allocated = seen.end - self.unallocated(seen, 0, seen.end)?;
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            tx.lock(lists_lock(tx.core()), LockMode::Exclusive)?;
            let found = chunk::load(tx, at)?;
            if !is_same(&found) {
                return Ok(Attempt::Done(false));
            }
            match self.has_pages_to_push(tx, &Draft::open(tx, file)?.inode)? {
                false => drop(chunk::remove(tx, List::Due, at)?),
                true => chunk::note_trimmed(tx, at)?,
            }
            chunk::store(tx, at, &Chunk { allocated, ..found })?;
            Ok(Attempt::Done(true))
        })
    }

    /// Sees to it that the end of `chunk` of `file` can be moved to page `end`: there is nothing
    /// behind it on the volume that a durable record might need, nor anything of another file. The
    /// chunk as it is then. The caller has the turn, alone, or moves no end.
    pub(super) fn make_way(&self, file: FileId, chunk: &Chunk, end: u64) -> Result<Chunk> {
        let mut chunk = *chunk;
        if end <= chunk.end {
            return Ok(chunk);
        }
        while chunk.is_to_be_trimmed() {
            self.core().make_durable()?;
            let (at, _) = self.placed_chunk_of(file)?.ok_or(Error::Stale)?;
            self.trim_end_in_turn(file, at, &chunk)?;
            chunk = self.chunk_of(file)?.ok_or(Error::Stale)?;
        }
        if chunk.end == 0 {
            // A file that was lost with the power may have written to it.
            self.space()?.trim(self.first_block(&chunk), self.chunk_blocks())?;
        }
        Ok(chunk)
    }

    /// Does `work`, which may need space on the volume; once more, if there is none, when all was
    /// trimmed that could be.
    pub(super) fn with_space_made<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::Volume(error)) if error.errno == Errno::ENOSPC => {
                if self.trim_chunks()? == 0 {
                    return Err(error.into());
                }
                work()
            }
            done => done,
        }
    }
}

fn is_full(error: &conquest_pm::Error) -> bool {
    matches!(error, conquest_pm::Error::NoSpace { .. })
}

/// Whether two looks at a chunk saw the same, whatever list it was on, and whoever has written over
/// what is there.
fn same_but_list(found: &Chunk, seen: &Chunk) -> bool {
    let is_same = Chunk { list: 0, version: 0, ..*found } == Chunk { list: 0, version: 0, ..*seen };
    is_same && is_same_step(found.version, seen.version)
}

/// What came of trimming a chunk; nothing if somebody else is at it, or it is gone.
fn or_later(trimmed: Result<bool>) -> Result<bool> {
    match trimmed {
        Err(Error::Refused(Errno::EAGAIN) | Error::Stale) => Ok(false),
        trimmed => trimmed,
    }
}
