//! Allocating space ahead, and giving it back in the middle: `fallocate`.

use core::ops::Range;

use conquest_access::{Credentials, Errno, allocate};
use conquest_format::PAGE;
use conquest_format::fs::tree::SLOTS;
use conquest_format::inode::{Content, EXTENT_PAGES_MAX, flag};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::attributes::apply;
use crate::content::contiguous::{capacity, reextend};
use crate::content::cut::clear;
use crate::content::patch::{Fill, Patch};
use crate::content::tree::{Way, plant};
use crate::content::write::{expose, is_no_space, write_some};
use crate::content::write_tree::fill_holes;
use crate::content::{Piece, piece};
use crate::inode::{Draft, FileId, access_list, load, rules_of};
use crate::large::far_edges;
use crate::{Error, FileSystem, Result};

/// What to do with a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Let it have space.
    Space {
        /// Whether the size stays as it is even if the range passes it.
        keeps_size: bool,
    },
    /// Let it be zeros, and have space.
    Zeros {
        /// As above.
        keeps_size: bool,
    },
    /// Let it be a hole, as far as whole pages go, and otherwise zeros. The size stays.
    Hole,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Does with the bytes `from` to `from + len` of the regular file `file`, which was opened for
    /// writing, what `how` says. If it fails for lack of space, or the process dies, some of the
    /// range may have been seen to.
    ///
    /// # Errors
    /// - `EINVAL`: `len` is 0;
    /// - `EISDIR`, `ENODEV`: it is a directory, or otherwise no regular file;
    /// - `EFBIG`: it can't be so large;
    /// - `EPERM`: it is immutable, or append-only and might lose bytes;
    /// - `ENOSPC`: the store is full; [`Error::Stale`]; those of the region.
    pub fn allocate(
        &self,
        who: &Credentials,
        file: FileId,
        how: Allocate,
        from: u64,
        len: u64,
    ) -> Result<()> {
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        let end = from.checked_add(len).filter(|end| *end <= self.size_max());
        let range = from..end.ok_or(Errno::EFBIG)?;
        let mut is_done = false;
        while !is_done {
            if self.threshold().is_some() && self.is_for_volume(who, file, how, &range)? {
                is_done = self.allocate_large(who, file, how, &range)?;
            } else {
                self.allocate_in_core(who, file, how, &range)?;
                is_done = true;
            }
        }
        self.done(())
    }

    /// [`Self::allocate`] in the core.
    pub(crate) fn allocate_in_core(
        &self,
        who: &Credentials,
        file: FileId,
        how: Allocate,
        range: &Range<u64>,
    ) -> Result<()> {
        loop {
            match self.try_allocate(who, file, how, range) {
                Err(Error::Core(conquest_pm::Error::Again)) => {}
                allocated => return allocated,
            }
        }
    }

    /// Whether the volume has to do with `range` of `file`, whose space the caller may change.
    fn is_for_volume(
        &self,
        who: &Credentials,
        file: FileId,
        how: Allocate,
        range: &Range<u64>,
    ) -> Result<bool> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let grows = how != Allocate::Hole && range.end > self.limit_of(&inode);
            let acl = access_list(view, &inode)?;
            let rules = rules_of(&inode, acl.as_ref());
            let is_large = matches!(inode.content, Content::Large { .. });
            // Who may not is told so elsewhere.
            let may = rules.is_regular()
                && allocate(who, &rules, !matches!(how, Allocate::Space { .. })).is_ok();
            Ok(may && (is_large || grows))
        })
    }

    /// Makes zeros of the bytes of `range` that are inside the size of the large file `file`, by
    /// pages in the core.
    pub(crate) fn zero_in_core(
        &self,
        who: &Credentials,
        file: FileId,
        range: Range<u64>,
    ) -> Result<()> {
        loop {
            let mut tx = self.core().begin()?;
            self.keep_reserve(&mut tx, who);
            self.lock(&mut tx, false, [Some(file)])?;
            let mut draft = Draft::open(&tx, file)?;
            let range = range.start..range.end.min(draft.inode.size);
            if range.is_empty() {
                return Ok(());
            }
            let needed = far_edges(&tx, &draft, range.clone())?;
            if !needed.is_empty() {
                drop(tx);
                self.bring_in(file, &needed)?;
                continue;
            }
            let change = allocate(who, &draft.rules(), true)?;
            apply(&mut tx, &mut draft, change)?;
            return self.zero(&mut tx, draft, range).map(drop);
        }
    }

    fn try_allocate(
        &self,
        who: &Credentials,
        file: FileId,
        how: Allocate,
        range: &Range<u64>,
    ) -> Result<()> {
        let mut tx = self.core().begin()?;
        self.keep_reserve(&mut tx, who);
        self.lock(&mut tx, false, [Some(file)])?;
        let mut draft = Draft::open(&tx, file)?;
        let rules = draft.rules();
        if !rules.is_regular() {
            return Err(if rules.is_directory() { Errno::EISDIR } else { Errno::ENODEV }.into());
        }
        let change = allocate(who, &rules, !matches!(how, Allocate::Space { .. }))?;
        apply(&mut tx, &mut draft, change)?;
        let size = draft.inode.size;
        match how {
            Allocate::Space { keeps_size } => self.fill(&mut tx, draft, range, keeps_size),
            Allocate::Zeros { keeps_size } => {
                let draft = self.zero(&mut tx, draft, range.start..range.end.min(size))?;
                self.fill(&mut tx, draft, range, keeps_size)
            }
            Allocate::Hole => {
                let first = range.start.next_multiple_of(PAGE).min(range.end);
                let last = (range.end / PAGE * PAGE).max(first);
                let mut draft = draft;
                for edge in [range.start..first, last..range.end] {
                    let edge = edge.start..edge.end.min(size);
                    let is_there = !edge.is_empty()
                        && matches!(
                            piece(&tx, draft.inode.content, edge.start, edge.end - edge.start)?,
                            Piece::Bytes(_)
                        );
                    if is_there {
                        draft = self.zero(&mut tx, draft, edge)?;
                    }
                }
                // What is past the end is not there in any case.
                let end = if range.end >= size { range.end.div_ceil(PAGE) } else { last / PAGE };
                let pages = range.start.div_ceil(PAGE)..end;
                let step =
                    |tx: &mut Tx<'_, M, H>, draft: &mut Draft| punch(tx, draft, pages.clone());
                self.in_parts(&mut tx, draft, step).map(drop)
            }
        }
    }

    /// Makes zeros of the bytes of `range`, all inside the size: the file then. It stays locked.
    fn zero(&self, tx: &mut Tx<'_, M, H>, draft: Draft, range: Range<u64>) -> Result<Draft> {
        let file = draft.file;
        let mut left = range;
        let mut full = false;
        self.in_parts(tx, draft, |tx, draft| {
            if !left.is_empty() {
                let fill = Fill::Zeros(left.end - left.start);
                let patch = Patch { at: left.start, fill };
                left.start += write_some(tx, draft, &patch, &mut full)?;
            }
            Ok(left.is_empty())
        })?;
        Draft::open(tx, file)
    }

    /// Lets the bytes of `range` have space.
    fn fill(
        &self,
        tx: &mut Tx<'_, M, H>,
        draft: Draft,
        range: &Range<u64>,
        keeps_size: bool,
    ) -> Result<()> {
        let size = draft.inode.size;
        if !keeps_size {
            expose(tx, draft.inode.content, size, range.end)?;
        }
        let mut at = range.start;
        let filled = self.in_parts(tx, draft, |tx, draft| {
            at = fill_some(tx, draft, &(at..range.end))?;
            if at < range.end {
                return Ok(false);
            }
            if !keeps_size {
                draft.inode.size = size.max(range.end);
            } else if range.end > size {
                draft.inode.flags |= flag::KEEPS_TAIL;
            }
            Ok(true)
        });
        filled.map(drop)
    }
}

/// Stages space for the first bytes of `range`: up to where. If that is where it began, something
/// else had to be staged first.
fn fill_some<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    range: &Range<u64>,
) -> Result<u64> {
    let content = draft.inode.content;
    if let Content::Tree { .. } = content {
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        return Ok(fill_holes(tx, draft, pages)? * PAGE);
    }
    let room = capacity(content);
    if range.end <= room {
        return Ok(range.end);
    }
    let there = draft.inode.size.min(room);
    let pages = range.end.div_ceil(PAGE);
    let nothing = Patch { at: 0, fill: Fill::Zeros(0) };
    if pages <= EXTENT_PAGES_MAX && range.start <= there.next_multiple_of(PAGE) {
        match reextend(tx, draft, &nothing, pages) {
            Ok(()) => return Ok(range.end),
            Err(error) if is_no_space(&error) => {}
            Err(error) => return Err(error),
        }
    }
    match content {
        Content::Packed { .. } => reextend(tx, draft, &nothing, 1)?,
        Content::Extent { .. } => plant(tx, draft)?,
        _ => return Ok(fill_holes(tx, draft, range.start / PAGE..pages)? * PAGE),
    }
    Ok(range.start)
}

/// Stages that the pages `pages` of the file are a hole, as far as a record has room: whether that
/// was all.
pub(crate) fn punch<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    pages: Range<u64>,
) -> Result<bool> {
    if pages.is_empty() {
        return Ok(true);
    }
    match draft.inode.content {
        Content::Extent { pages: all, .. } if pages.end < all => {
            plant(tx, draft)?;
            return Ok(false);
        }
        Content::Tree { .. } | Content::Large { .. } => {
            // A run of which only a part goes becomes pages.
            for edge in [pages.start, pages.end] {
                let way = Way::find(tx, draft, edge, edge)?;
                if !edge.is_multiple_of(SLOTS) && way.is_run() {
                    way.finish(tx, draft, edge)?;
                    return Ok(false);
                }
            }
        }
        _ => {}
    }
    clear(tx, draft, pages)
}
