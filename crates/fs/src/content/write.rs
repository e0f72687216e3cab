//! Writing.

use conquest_access::{Credentials, Errno, write_open};
use conquest_format::inode::{Content, EXTENT_PAGES_MAX, FileType, Inode};
use conquest_format::{GROUP_PAGES, PAGE, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Place, Tx};

use crate::attributes::apply;
use crate::content::contiguous::{
    self, PACKED_MAX, capacity, lengthen, pages_for, reextend, repack,
};
use crate::content::patch::{Fill, Patch};
use crate::content::write_tree::write_tree;
use crate::content::{IN_PLACE_MAX, Piece, piece, tree};
use crate::error::corrupt;
use crate::inode::{Draft, FileId};
use crate::large::{DIRECT_MIN, chunk, far_edges};
use crate::locks::Wait;
use crate::open::OpenFile;
use crate::placement::{MAGIC, is_program};
use crate::{Error, FileSystem, Result};

/// Pages up to which an extent is rather made anew than made a tree.
const SMALL_EXTENT: u64 = 4;
/// Entries of a record that are kept for an inode, its nodes and the allocation of their pages.
pub(super) const RESERVED: u64 = 48;
/// Most entries that the allocation or freeing of one run takes.
pub(super) const RUN_ENTRIES: u64 = GROUP_PAGES / 64 + 1;

/// Where to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteAt {
    /// From this byte on.
    Offset(u64),
    /// From the end on, wherever that is then.
    End,
}

/// What came of an attempt to write.
enum Written {
    /// Where, how many bytes, and whether pages of the file should be pushed to the volume.
    All(u64, u64, bool),
    /// These pages have to be brought in before.
    Needs(Vec<u64>),
    /// Pages have to be pushed to the volume before.
    Full,
    /// The file has to be on the list of those that have pages to be pushed before.
    Unlisted,
    /// It begins here, behind the end, and what the volume has before that is to be cleared.
    Behind(u64),
}

/// Where to write, as an open file may have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin<'o> {
    /// None is the position.
    pub(crate) from: Option<WriteAt>,
    /// Whose position is moved behind what is written.
    pub(crate) moved: Option<&'o OpenFile>,
    /// Whether whole pages go to the volume at once, if the file is large.
    pub(crate) is_direct: bool,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Writes `bytes` to the regular file `file`, which was opened for writing: where, and how many
    /// of them. These are fewer only if the store is full or the file as large as it can be. The
    /// bytes are read while the file is locked: they must be where reading can't fail. There is
    /// always space where the file has bytes, or space was allocated for it.
    ///
    /// A page is changed as a whole or not at all, whoever dies. Other writes come before or after;
    /// readers may see the beginning of a long write.
    ///
    /// # Errors
    /// - `EISDIR`, `EINVAL`: it is a directory, or otherwise no regular file;
    /// - `EFBIG`: it can't be so large;
    /// - `EPERM`: it is immutable;
    /// - `ENOSPC`: the store is full; [`Error::Stale`]; those of the region.
    pub fn write(
        &self,
        who: &Credentials,
        file: FileId,
        at: WriteAt,
        bytes: &[u8],
    ) -> Result<(u64, u64)> {
        let begin = Begin { from: Some(at), moved: None, is_direct: false };
        self.write_fill(who, file, begin, Fill::Bytes(bytes))
    }

    /// [`Self::write`], as to a file that was opened with `O_DIRECT`.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_direct(
        &self,
        who: &Credentials,
        file: FileId,
        at: WriteAt,
        bytes: &[u8],
    ) -> Result<(u64, u64)> {
        let begin = Begin { from: Some(at), moved: None, is_direct: true };
        self.write_fill(who, file, begin, Fill::Bytes(bytes))
    }

    /// [`Self::write`] for what may be in several buffers, and at a position.
    pub(crate) fn write_fill(
        &self,
        who: &Credentials,
        file: FileId,
        begin: Begin<'_>,
        fill: Fill<'_>,
    ) -> Result<(u64, u64)> {
        let least = if begin.is_direct { PAGE } else { DIRECT_MIN };
        let direct = match self.threshold() {
            Some(_) if fill.len() >= least => self.write_to_volume(who, file, begin, fill)?,
            _ => None,
        };
        let Some((start, len)) = direct else {
            return self.done(self.write_to_core(who, file, begin, fill)?);
        };
        let rest = Patch { at: start, fill }.from(start + len);
        if rest.len() == 0 {
            return self.done((start, len));
        }
        let from = begin.from.map(|_| WriteAt::Offset(rest.at));
        let more = self.write_to_core(who, file, Begin { from, ..begin }, rest.fill);
        // What is done stays, and the rest is told to be missing.
        self.done((start, len + more.map_or(0, |(_, more)| more)))
    }

    /// [`Self::write_fill`] to the core; of a large file, to pages that the volume gets later.
    fn write_to_core(
        &self,
        who: &Credentials,
        file: FileId,
        begin: Begin<'_>,
        fill: Fill<'_>,
    ) -> Result<(u64, u64)> {
        let mut is_clear = false;
        loop {
            match self.try_write(who, file, begin, fill, is_clear) {
                Err(Error::Core(conquest_pm::Error::Again)) => {}
                Err(error) if is_no_space(&error) && self.push_for_room()? => {}
                Err(error) => return Err(error),
                Ok(Written::All(start, len, is_full)) => {
                    if is_full {
                        // What stays in the core is none the worse.
                        let _pushed = self.push(file, Wait::No);
                    }
                    return Ok((start, len));
                }
                Ok(Written::Needs(pages)) => self.bring_in(file, &pages)?,
                Ok(Written::Behind(start)) => {
                    self.clear_tail(file, start)?;
                    is_clear = true;
                }
                Ok(Written::Full) => self.push(file, Wait::Forever)?,
                Ok(Written::Unlisted) => self.list_as_due(file)?,
            }
        }
    }

    fn try_write(
        &self,
        who: &Credentials,
        file: FileId,
        begin: Begin<'_>,
        fill: Fill<'_>,
        is_clear: bool,
    ) -> Result<Written> {
        let mut tx = self.core().begin()?;
        self.keep_reserve(&mut tx, who);
        self.lock(&mut tx, false, [Some(file)])?;
        let mut draft = open_regular(&tx, file)?;
        // Given back before the lock.
        let mut position = begin.moved.map(|open| self.take_position(open));
        let start = match begin.from {
            Some(WriteAt::Offset(offset)) => offset,
            Some(WriteAt::End) => draft.inode.size,
            None => position.as_ref().map_or(0, |position| position.from),
        };
        let patch = Patch { at: start, fill };
        let most = self.size_max().saturating_sub(start).min(patch.len());
        if !draft.rules().is_immutable() {
            match (patch.len(), most) {
                (0, _) => return Ok(Written::All(start, 0, false)),
                (_, 0) => return Err(Errno::EFBIG.into()),
                _ => {}
            }
        }
        let limit = self.limit_of(&draft.inode);
        if self.is_too_full(&draft.inode) && draft.inode.size > limit {
            return Ok(Written::Full);
        }
        let is_large = matches!(draft.inode.content, Content::Large { .. });
        if is_large && start > draft.inode.size && !is_clear {
            return Ok(Written::Behind(start));
        }
        let needed = far_edges(&tx, &draft, start..start + most)?;
        if !needed.is_empty() {
            return Ok(Written::Needs(needed));
        }
        let change = write_open(who, &draft.rules())?;
        apply(&mut tx, &mut draft, change)?;
        if !self.note_passing(&mut tx, &draft, start + most)? {
            return Ok(Written::Unlisted);
        }
        let mut left = patch.until(start + most);
        let mut done = start;
        let mut full = false;
        let grows = left.end() > limit;
        let written = self.in_parts(&mut tx, draft, |tx, draft| {
            done = left.at;
            if grows && self.enlarge(tx, draft, &left)? {
                return Ok(false);
            }
            left = left.from(left.at + write_some(tx, draft, &left, &mut full)?);
            Ok(left.len() == 0)
        });
        let (len, is_full) = match written {
            Ok(inode) => (most, self.is_full(&inode, most)),
            // What is done stays, and the rest is told to be missing.
            Err(_) if done > start => (done - start, false),
            Err(error) => return Err(error),
        };
        if let Some(position) = &mut position {
            position.to = start + len;
        }
        Ok(Written::All(start, len, is_full))
    }

    /// Stages a step on the way to a large file for one that grows above the threshold by `patch`,
    /// unless it is one, or a program: whether there was anything to do.
    pub(crate) fn enlarge(
        &self,
        tx: &mut Tx<'_, M, H>,
        draft: &mut Draft,
        patch: &Patch<'_>,
    ) -> Result<bool> {
        let is_large = matches!(draft.inode.content, Content::Large { .. });
        if self.threshold().is_none() || is_large || will_be_program(tx, draft, patch)? {
            return Ok(false);
        }
        match draft.inode.content {
            Content::Packed { .. } => {
                reextend(tx, draft, &Patch { at: 0, fill: Fill::Zeros(0) }, 1)?;
            }
            Content::Extent { .. } => tree::plant(tx, draft)?,
            Content::None | Content::Tree { .. } => {
                chunk::give(tx, draft, self.chunk_blocks())?;
                // Not those that were allocated ahead.
                let used = draft.inode.size.div_ceil(PAGE).min(draft.inode.pages);
                self.core().pages_are_to_pass(used)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Changes the content of a file record after record, until `step` says that it was the last
    /// one; its inode then. It stays locked.
    pub(crate) fn in_parts(
        &self,
        tx: &mut Tx<'_, M, H>,
        mut draft: Draft,
        mut step: impl FnMut(&mut Tx<'_, M, H>, &mut Draft) -> Result<bool>,
    ) -> Result<Inode> {
        // Once only: what was begun is finished.
        self.check_changes()?;
        loop {
            let is_last = step(tx, &mut draft)?;
            draft.touch(self.now());
            draft.stage(tx)?;
            tx.commit_part()?;
            if is_last {
                return Ok(draft.inode);
            }
            draft = Draft::open(tx, draft.file)?;
        }
    }
}

/// Whether the file of `draft`, which is not large, is a program when `patch` is done.
fn will_be_program<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    draft: &Draft,
    patch: &Patch<'_>,
) -> Result<bool> {
    let mut beginning = [0; MAGIC];
    patch.compose(tx, draft.inode.content, draft.inode.size, 0, &mut beginning)?;
    Ok(is_program(draft.inode.permissions.into(), &beginning))
}

/// The inode of `file`, a regular one.
fn open_regular<M: Memory, H: Host>(tx: &Tx<'_, M, H>, file: FileId) -> Result<Draft> {
    let draft = Draft::open(tx, file)?;
    match draft.inode.file_type {
        FileType::Regular => Ok(draft),
        FileType::Directory => Err(Errno::EISDIR.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// Stages the first part of `patch`; how many bytes of it. None if something else had to be staged
/// first: the next try goes on. It lacks space only if that part is in a hole.
///
/// `full` says whether space was lacking before: then new pages are not looked for again where the
/// file has some.
pub(super) fn write_some<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    patch: &Patch<'_>,
    full: &mut bool,
) -> Result<u64> {
    let size = draft.inode.size;
    if patch.at > size {
        expose(tx, draft.inode.content, size, patch.at)?;
    }
    let covered = if *full { write_covered(tx, draft, patch)? } else { None };
    let done = match covered {
        Some(done) => done,
        None => write_wherever(tx, draft, patch, full)?,
    };
    if done > 0 {
        draft.inode.size = size.max(patch.at + done);
    }
    Ok(done)
}

/// [`write_some`] to new pages, or in place, as is best, or else as it can be done.
fn write_wherever<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    patch: &Patch<'_>,
    full: &mut bool,
) -> Result<u64> {
    let staged = tx.staged();
    let (content, pages) = (draft.inode.content, draft.inode.pages);
    let written = match content {
        Content::Tree { .. } | Content::Large { .. } => write_tree(tx, draft, patch),
        _ => write_contiguous(tx, draft, patch),
    };
    match written {
        Err(error) if lacks_space(&error) => {
            tx.unstage(&staged);
            (draft.inode.content, draft.inode.pages) = (content, pages);
            // Who waits for others gets all done, or nothing yet.
            if !is_no_space(&error) && !is_covered(tx, content, patch)? {
                return Err(error);
            }
            *full = true;
            write_covered(tx, draft, patch)?.ok_or(error)
        }
        written => written,
    }
}

/// Zeros what `content` covers of the bytes `from` to `to`, which are past the file's size, before
/// the size grows over them.
pub(crate) fn expose<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    content: Content,
    from: u64,
    to: u64,
) -> Result<()> {
    let mut at = from;
    while at < to {
        let piece = piece(tx, content, at, to - at)?;
        if let Piece::Bytes(place) = piece {
            tx.zero_unseen(place, 0, place.len())?;
        }
        at += piece.len();
    }
    Ok(())
}

/// Stages `patch` where its bytes are covered, without new pages: what is inside the size by the
/// record, what is past it at once. `part` says where bytes of the file are.
pub(super) fn write_in_place<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    size: u64,
    patch: &Patch<'_>,
    part: impl Fn(&Tx<'_, M, H>, u64, u64) -> Result<Place>,
) -> Result<()> {
    // The record changes whole words, so what is past the size begins at a word.
    let end = if patch.at < size { size.next_multiple_of(WORD) } else { patch.at };
    let mut left = *patch;
    while left.len() > 0 {
        let is_unseen = left.at >= end;
        let run = if is_unseen { left.run() } else { left.until(end).run() };
        let place = part(tx, left.at, run.len() as u64)?;
        if is_unseen {
            tx.put_unseen(place, 0, run)?;
        } else {
            tx.overwrite(place, run)?;
        }
        left = left.from(left.at + run.len() as u64);
    }
    Ok(())
}

/// Stages the first bytes of `patch` where the file has them, without new pages: as many as are in
/// one page. None if they are in a hole.
fn write_covered<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &Draft,
    patch: &Patch<'_>,
) -> Result<Option<u64>> {
    let patch = patch.of_page(patch.at / PAGE);
    let Piece::Bytes(place) = piece(tx, draft.inode.content, patch.at, patch.len())? else {
        return Ok(None);
    };
    let patch = patch.until(patch.at + place.len());
    write_in_place(tx, draft.inode.size, &patch, |_, start, len| {
        let part = place.part(start - patch.at, len);
        Ok(part.ok_or_else(|| corrupt("content", place.offset(), "room for its bytes", start))?)
    })?;
    Ok(Some(patch.len()))
}

/// Whether `content` covers all bytes of `patch`.
fn is_covered<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    content: Content,
    patch: &Patch<'_>,
) -> Result<bool> {
    let mut at = patch.at;
    while at < patch.end() {
        match piece(tx, content, at, patch.end() - at)? {
            Piece::Hole(_) | Piece::Far(_) => return Ok(false),
            covered => at += covered.len(),
        }
    }
    Ok(true)
}

/// Bytes of `patch` that are inside `size`.
pub(super) fn bytes_inside(size: u64, patch: &Patch<'_>) -> u64 {
    patch.end().min(size).saturating_sub(patch.at)
}

/// [`write_some`] for content in one piece.
fn write_contiguous<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    patch: &Patch<'_>,
) -> Result<u64> {
    let content = draft.inode.content;
    let size = draft.inode.size;
    let room = capacity(content);
    // Bytes that there are, and that there will be.
    let there = size.min(room);
    let total = patch.end().max(there);
    if total <= room && bytes_inside(size, patch) <= IN_PLACE_MAX {
        let part = |tx: &Tx<'_, M, H>, start, len| Ok(contiguous::part(tx, content, start, len)?);
        write_in_place(tx, size, patch, part)?;
        return Ok(patch.len());
    }
    if total <= PACKED_MAX && !matches!(content, Content::Extent { .. }) {
        repack(tx, draft, patch, total)?;
        return Ok(patch.len());
    }
    if total > room && lengthen(tx, draft, patch)? {
        return Ok(patch.len());
    }
    let pages = draft.inode.pages;
    let replaces_all = patch.at == 0 && patch.len() >= there;
    let grows = total > room && patch.at <= there.next_multiple_of(PAGE);
    let wanted = if total > room { pages_for(total, pages) } else { pages };
    let is_better_anew = total <= room && (replaces_all || pages <= SMALL_EXTENT);
    if wanted <= EXTENT_PAGES_MAX && (grows || is_better_anew) {
        let made = match reextend(tx, draft, patch, wanted) {
            Err(error) if is_no_space(&error) && wanted > total.div_ceil(PAGE) => {
                reextend(tx, draft, patch, total.div_ceil(PAGE))
            }
            made => made,
        };
        match made {
            Ok(()) => return Ok(patch.len()),
            Err(error) if is_no_space(&error) => {}
            Err(error) => return Err(error),
        }
    }
    match content {
        // On the way to a tree, the bytes that there are have to be in pages.
        Content::Packed { .. } => {
            reextend(tx, draft, &Patch { at: 0, fill: Fill::Zeros(0) }, 1)?;
            Ok(0)
        }
        Content::Extent { .. } => {
            tree::plant(tx, draft)?;
            Ok(0)
        }
        _ => write_tree(tx, draft, patch),
    }
}

/// Whether the pages that were wanted can't be had now: there are none, or others are at work where
/// they might be.
fn lacks_space(error: &Error) -> bool {
    is_no_space(error) || matches!(error, Error::Core(conquest_pm::Error::Again))
}

pub(super) fn is_no_space(error: &Error) -> bool {
    matches!(error, Error::Core(conquest_pm::Error::NoSpace { .. }))
}
