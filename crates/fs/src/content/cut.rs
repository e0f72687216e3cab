//! Making files shorter, or longer by a hole; and freeing what no file needs any more.

use core::ops::Range;

use conquest_access::{self as access, Change, Credentials, Errno, File};
use conquest_format::PAGE;
use conquest_format::fs::cut::{CUT, REAP};
use conquest_format::fs::tree::{SLOTS, Slot, pages_below};
use conquest_format::fs::{DATA, TREE};
use conquest_format::inode::{Content, flag};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::intent::Intent;
use conquest_pm::memory::Memory;

use crate::attributes::apply;
use crate::content::contiguous::free;
use crate::content::tree::Node;
use crate::content::write::{RESERVED, RUN_ENTRIES, expose};
use crate::content::{Freed, pages_in_core, target};
use crate::feed::NoticeKind;
use crate::file_system::{Attempt, lock_of};
use crate::inode::{Draft, FileId};
use crate::large::{chunk, far_edges};
use crate::reader::Committed;
use crate::{Error, FileSystem, Result};

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Makes the regular file `file` as long as `size` bytes, as `truncate` does by a name: what is
    /// new reads as zeros.
    ///
    /// # Errors
    /// - `EISDIR`, `EINVAL`: it is a directory, or otherwise no regular file;
    /// - `EACCES`, `EPERM`: the caller may not;
    /// - `EFBIG`: it can't be so large; [`Error::Stale`]; those of the region.
    pub fn truncate(&self, who: &Credentials, file: FileId, size: u64) -> Result<()> {
        self.resize(file, size, |rules| access::truncate(who, rules))
    }

    /// [`Self::truncate`] by a descriptor that is open for writing.
    ///
    /// # Errors
    /// - `EINVAL`: it is no regular file;
    /// - `EPERM`: it has become immutable or append-only since;
    /// - `EFBIG`: it can't be so large; [`Error::Stale`]; those of the region.
    pub fn truncate_open(&self, who: &Credentials, file: FileId, size: u64) -> Result<()> {
        self.resize(file, size, |rules| {
            if rules.is_regular() { access::truncate_open(who, rules) } else { Err(Errno::EINVAL) }
        })
    }

    pub(crate) fn resize(
        &self,
        file: FileId,
        size: u64,
        rule: impl Fn(&File<'_>) -> core::result::Result<Change, Errno>,
    ) -> Result<()> {
        self.clear_tail(file, size)?;
        loop {
            let needed = self.try_resize(file, size, &rule)?;
            if needed.is_empty() {
                return self.move_back(file);
            }
            self.bring_in(file, &needed)?;
        }
    }

    /// [`Self::resize`], unless pages have to be brought in before: these.
    fn try_resize(
        &self,
        file: FileId,
        size: u64,
        rule: &impl Fn(&File<'_>) -> core::result::Result<Change, Errno>,
    ) -> Result<Vec<u64>> {
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let mut draft = Draft::open(tx, file)?;
            let change = rule(&draft.rules())?;
            if size > self.size_max() {
                return Err(Errno::EFBIG.into());
            }
            if size < draft.inode.size {
                let needed = far_edges(tx, &draft, size..size)?;
                if !needed.is_empty() {
                    return Ok(Attempt::Done(needed));
                }
            }
            expose(tx, draft.inode.content, draft.inode.size, size)?;
            draft.inode.size = size;
            draft.inode.flags &= !flag::KEEPS_TAIL;
            apply(tx, &mut draft, change)?;
            draft.touch(self.now());
            draft.content_change = Some(NoticeKind::Size);
            chunk::shorten(tx, &draft)?;
            Ok(match cut_or_intend(tx, draft)? {
                Attempt::Begun(()) => Attempt::Begun(Vec::new()),
                _ => Attempt::Done(Vec::new()),
            })
        })
    }

    /// Makes the regular file `file`, which was opened for writing, longer by a hole so that it has
    /// `size` bytes, unless it has more than `most` already: whether it was so short.
    ///
    /// # Errors
    /// `EPERM`: it is immutable; [`Error::Stale`]; those of the region.
    pub(crate) fn stretch(
        &self,
        who: &Credentials,
        file: FileId,
        most: u64,
        size: u64,
    ) -> Result<bool> {
        self.clear_tail(file, size)?;
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let mut draft = Draft::open(tx, file)?;
            if draft.inode.size > most {
                return Ok(Attempt::Done(false));
            }
            let change = access::write_open(who, &draft.rules())?;
            expose(tx, draft.inode.content, draft.inode.size, size)?;
            draft.inode.size = size;
            apply(tx, &mut draft, change)?;
            draft.touch(self.now());
            draft.stage(tx)?;
            Ok(Attempt::Done(true))
        })
    }

    /// Frees what `file` has past its end, unless that was asked for: when it is closed.
    ///
    /// # Errors
    /// [`Error::Stale`]; those of the region.
    pub fn trim(&self, file: FileId) -> Result<()> {
        let has_tail = self.read(file.number, |view| {
            let (inode, _) = crate::inode::load(view, file)?;
            let covered = match inode.content {
                Content::Extent { pages, .. } => pages * PAGE,
                // Growing never allocates ahead there.
                _ => 0,
            };
            Ok(covered >= inode.size + PAGE)
        })?;
        if !has_tail {
            return Ok(());
        }
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let draft = Draft::open(tx, file)?;
            if draft.inode.flags & flag::KEEPS_TAIL != 0 {
                return Ok(Attempt::Done(()));
            }
            stage_trim(tx, draft)
        })
    }
}

/// Stages that what the file of `draft` has past its end is freed: as [`FileSystem::trim`].
pub(crate) fn stage_trim<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: Draft,
) -> Result<Attempt<()>> {
    match draft.inode.content {
        // Growing never allocates ahead elsewhere, but a large file may have been one.
        Content::Extent { .. } | Content::Large { .. } => cut_or_intend(tx, draft),
        _ => Ok(Attempt::Done(())),
    }
}

/// Stages `draft`, without what its content has past its end: now, or, if that is too much for one
/// record, soon.
fn cut_or_intend<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    mut draft: Draft,
) -> Result<Attempt<()>> {
    let past = draft.inode.size.div_ceil(PAGE);
    let from = if needs_no_tree(tx, &draft, past) { 0 } else { past };
    let is_done = clear(tx, &mut draft, from..u64::MAX)?;
    if !is_done {
        tx.set_intent(intent(CUT, draft.file))?;
    }
    draft.stage(tx)?;
    Ok(if is_done { Attempt::Done(()) } else { Attempt::Begun(()) })
}

/// Whether the file of `draft` is a large one of which the core has no page before page `past`: so
/// its tree is nothing but nodes, when what is behind that is cleared.
fn needs_no_tree<M: Memory, H: Host>(tx: &Tx<'_, M, H>, draft: &Draft, past: u64) -> bool {
    let content = draft.inode.content;
    let is_behind = |(page, _): &(u64, _)| *page >= past;
    // What is damaged is left as it is.
    matches!(content, Content::Large { .. })
        && pages_in_core(&Committed(tx.core()), content, 0, 1)
            .is_ok_and(|pages| pages.first().is_none_or(is_behind))
}

/// Stages that the file of `draft`, which has no names, is no more. If it is too much for one
/// record, an intent is staged and the rest is freed soon: whether so.
pub(crate) fn reap<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, mut draft: Draft) -> Result<bool> {
    if clear(tx, &mut draft, 0..u64::MAX)? {
        chunk::retire(tx, &draft)?;
        draft.free(tx)?;
        return Ok(false);
    }
    tx.set_intent(intent(REAP, draft.file))?;
    draft.inode.size = 0;
    draft.stage(tx)?;
    Ok(true)
}

fn intent(code: u64, file: FileId) -> Intent {
    Intent { code, arguments: [file.number, file.generation, 0, 0, 0, 0, 0] }
}

/// Takes a step of an intent of this module.
///
/// # Errors
/// Those of the region; [`conquest_pm::Error::UnknownIntent`].
pub(crate) fn finish_cut<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    found: Intent,
) -> conquest_pm::Result<()> {
    if !matches!(found.code, CUT | REAP) {
        return Err(conquest_pm::Error::UnknownIntent {
            lane: (tx.number() >> 48) as u32,
            code: found.code,
        });
    }
    let [number, generation, ..] = found.arguments;
    let file = FileId { number, generation };
    tx.lock(lock_of(tx.core(), number), conquest_pm::Mode::Exclusive)?;
    let stepped = Draft::open(tx, file).and_then(|draft| match found.code {
        CUT => cut_or_intend(tx, draft).map(|attempt| matches!(attempt, Attempt::Begun(()))),
        _ => reap(tx, draft),
    });
    match stepped {
        Ok(true) => Ok(()),
        // What is damaged is left to be repaired; it must not stop everybody.
        Ok(false) | Err(Error::Stale | Error::Core(conquest_pm::Error::Corrupt { .. })) => {
            tx.set_intent(Intent::default())
        }
        Err(Error::Core(error)) => Err(error),
        Err(_) => tx.set_intent(Intent::default()),
    }
}

/// Stages that the content of `draft` has nothing of the pages `pages` any more, as far as a record
/// has room: whether that was all. The inode is still to be staged.
///
/// What is damaged is left alone: it can't be freed, and must not keep the rest from being freed.
pub(crate) fn clear<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    pages: Range<u64>,
) -> Result<bool> {
    match draft.inode.content {
        Content::Packed { .. } if pages.start == 0 => {
            free(tx, draft.inode.content)?;
            draft.inode.content = Content::None;
        }
        Content::Extent { root, pages: all } if pages.start < all => {
            let at = target(root, DATA)?.plus(pages.start * PAGE);
            tx.free_run(at, all - pages.start, DATA)?;
            draft.inode.pages = pages.start;
            draft.inode.content = match pages.start {
                0 => Content::None,
                pages => Content::Extent { root, pages },
            };
        }
        Content::Tree { root, height } | Content::Large { root, height, .. } if root != 0 => {
            let committed = Committed(tx.core());
            let top = Node::top(&committed, root, height)?;
            let mut cut = Cut { freed: Freed::default(), nodes: 0, pages };
            let cleared = cut.clear(tx, top, 0);
            draft.inode.pages -= cut.freed.finish(tx)? + cut.nodes;
            match cleared? {
                Cleared::Full => return Ok(false),
                Cleared::Kept => {}
                Cleared::Empty => {
                    tx.free_run(top.at, 1, TREE)?;
                    draft.inode.pages = 0;
                    draft.inode.content = draft.inode.content.without_tree();
                }
            }
        }
        _ => {}
    }
    Ok(true)
}

/// What became of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cleared {
    /// Nothing is in it any more, and it is not needed.
    Empty,
    /// It has nothing of the pages that were to be cleared.
    Kept,
    /// The record is full.
    Full,
}

/// Clearing a part of a tree.
struct Cut {
    freed: Freed,
    /// Nodes freed.
    nodes: u64,
    /// Pages of the file to clear.
    pages: Range<u64>,
}

impl Cut {
    /// Clears `node`, whose first slot is on the way to page `first` of the file.
    fn clear<M: Memory, H: Host>(
        &mut self,
        tx: &mut Tx<'_, M, H>,
        node: Node,
        first: u64,
    ) -> Result<Cleared> {
        let committed = Committed(tx.core());
        let below = pages_below(node.level);
        let is_whole = self.pages.start <= first && self.pages.end >= first + SLOTS * below;
        if node.level == 1 {
            return self.clear_pages(tx, node, first, is_whole);
        }
        let mut is_empty = is_whole;
        let from = self.pages.start.saturating_sub(first) / below;
        let end = self.pages.end.saturating_sub(first).div_ceil(below).min(SLOTS);
        for index in from..end {
            let start = first + index * below;
            if !has_room(tx) {
                return Ok(Cleared::Full);
            }
            let is_gone = match node.slot(&committed, index) {
                Ok(Slot::Hole) => continue,
                Ok(Slot::Node(at)) => match Node::open(&committed, at, node.level - 1) {
                    Ok(child) => match self.clear(tx, child, start)? {
                        Cleared::Full => return Ok(Cleared::Full),
                        Cleared::Kept => false,
                        Cleared::Empty => {
                            tx.free_run(at, 1, TREE)?;
                            self.nodes += 1;
                            true
                        }
                    },
                    Err(_) => false,
                },
                Ok(Slot::Run(at, pages)) => {
                    let kept = self.pages.start.saturating_sub(start).min(pages);
                    if kept < pages && is_there(&committed, at, pages) {
                        self.freed.add(tx, at.plus(kept * PAGE), pages - kept)?;
                        if kept > 0 {
                            tx.set(node.word(index), Slot::Run(at, kept).pack())?;
                        }
                    }
                    kept == 0
                }
                Ok(Slot::Page(_)) | Err(_) => false,
            };
            is_empty &= is_gone;
            if is_gone {
                tx.set(node.word(index), 0)?;
            }
        }
        Ok(if is_empty { Cleared::Empty } else { Cleared::Kept })
    }

    /// [`Self::clear`] for a node of level 1. If all of it goes, its slots are left as they are.
    fn clear_pages<M: Memory, H: Host>(
        &mut self,
        tx: &mut Tx<'_, M, H>,
        node: Node,
        first: u64,
        is_whole: bool,
    ) -> Result<Cleared> {
        let committed = Committed(tx.core());
        let page = |index| match node.slot(&committed, index) {
            Ok(Slot::Page(at)) if is_there(&committed, at, 1) => Some((index, at)),
            _ => None,
        };
        let Range { start, end } = self.pages;
        let meant = start.saturating_sub(first)..end.saturating_sub(first).min(SLOTS);
        let pages: Vec<_> = meant.filter_map(page).collect();
        let goes = is_whole && tx.room() >= RESERVED + RUN_ENTRIES + entries(tx, &pages);
        for (index, at) in pages {
            if !goes && !has_room(tx) {
                return Ok(Cleared::Full);
            }
            self.freed.add(tx, at, 1)?;
            if !goes {
                tx.set(node.word(index), 0)?;
            }
        }
        Ok(if is_whole { Cleared::Empty } else { Cleared::Kept })
    }
}

/// Whether the record has room for a step.
fn has_room<M: Memory, H: Host>(tx: &Tx<'_, M, H>) -> bool {
    tx.room() >= RESERVED + 2 * RUN_ENTRIES
}

/// Whether there are pages of data where a slot says.
fn is_there<M: Memory, H: Host>(
    committed: &Committed<'_, M, H>,
    at: conquest_format::Offset,
    pages: u64,
) -> bool {
    committed.0.resolve_run(at, pages, DATA).is_ok()
}

/// Entries of a record that the freeing of `pages` takes: one for each word of a bitmap that they
/// touch in a row.
fn entries<M: Memory, H: Host>(tx: &Tx<'_, M, H>, pages: &[(u64, conquest_format::Offset)]) -> u64 {
    let mut last = None;
    let mut count = 0;
    for (_, at) in pages {
        let page = tx.core().geometry().page_of(*at).unwrap_or(0);
        let follows = last.is_some_and(|last| last + 1 == page);
        count += u64::from(!follows || page.is_multiple_of(64));
        last = Some(page);
    }
    count
}
