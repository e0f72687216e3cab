//! Writing whole pages of a large file to the volume at once (Conquest 2002, 3.3.3).

use conquest_access::{Credentials, write_open};
use conquest_format::PAGE;
use conquest_format::fs::chunk::{Chunk, is_same_step, stepped, written_over};
use conquest_format::inode::{Content, FileType, Inode};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::attributes::apply;
use crate::content::{Begin, Fill, Patch, Piece, WriteAt, expose, pages_in_core, piece, punch};
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId, access_list, load, rules_of};
use crate::large::over::{Placed, place_of};
use crate::large::{PAGE_BLOCKS, chunk};
use crate::locks::{Mode, Wait};
use crate::{FileSystem, Reader, Result};

/// Bytes from which on a write goes to the volume at once.
pub(crate) const DIRECT_MIN: u64 = 256 << 10;

/// A write that goes to the volume at once.
#[derive(Clone, Copy)]
pub(super) struct Direct<'b> {
    pub(super) begin: Begin<'b>,
    /// Where it begins: at a page.
    start: u64,
    pub(super) bytes: &'b [u8],
    /// The file's size when it began.
    size: u64,
}

/// How a chunk was written to. What of it has to be as it was for that to count follows from this.
pub(super) enum How {
    /// Over what it has, without a turn.
    Over(Placed),
    /// Inside its end, in a turn with others.
    Inside,
    /// In a turn alone, when it had this version.
    Alone(u64),
}

/// What has come of writing to a chunk.
pub(super) struct Done {
    pub(super) how: How,
    /// Pages that are new on the volume.
    pub(super) fresh: u64,
    /// Whether no record was needed for the bytes to count, so that they may not be durable.
    pub(super) is_quiet: bool,
}

/// Whether the bytes of `direct`, as far as the volume has them, are those of the file of `inode`:
/// they are inside its size, and the core has nothing that takes their place.
pub(super) fn is_quiet(reader: &impl Reader, inode: &Inode, direct: &Direct<'_>) -> Result<bool> {
    let first = pages_in_core(reader, inode.content, direct.first_page(), 1)?;
    let is_in_core = first.first().is_some_and(|(page, _)| *page < direct.end_page());
    Ok(!is_in_core && direct.start + direct.len() <= inode.size)
}

impl<'b> Direct<'b> {
    /// Bytes that are written: the beginning of a page too, if that is where the file ends.
    pub(super) fn len(&self) -> u64 {
        let len = self.bytes.len() as u64;
        if self.start + len >= self.size { len } else { len / PAGE * PAGE }
    }

    /// The same, but for the beginning of a page that the chunk, which ends before page `end`, has:
    /// the rest of that page may be what somebody else writes at the same time.
    fn but_for_part(self, end: u64) -> Direct<'b> {
        if self.end_page() > end {
            return self;
        }
        let whole = self.bytes.len() / PAGE as usize * PAGE as usize;
        Direct { bytes: self.bytes.get(..whole).unwrap_or_default(), ..self }
    }

    pub(super) fn first_page(&self) -> u64 {
        self.start / PAGE
    }

    pub(super) fn end_page(&self) -> u64 {
        (self.start + self.len()).div_ceil(PAGE)
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Writes `fill` to the volume, or the beginning of it: where, and how many bytes. None if it
    /// is better written to the core, or refused there.
    ///
    /// # Errors
    /// Those of the volume and of the region.
    pub(crate) fn write_to_volume(
        &self,
        who: &Credentials,
        file: FileId,
        begin: Begin<'_>,
        fill: Fill<'_>,
    ) -> Result<Option<(u64, u64)>> {
        let Fill::Bytes(bytes) = fill else {
            return Ok(None);
        };
        let stamp = self.core().stamp(self.lock_of(file.number));
        let Some((direct, placed)) = self.plan_direct(who, file, begin, bytes)? else {
            return Ok(None);
        };
        if let Some(placed) = placed
            && let Some(written) = self.write_over(who, file, &direct, (placed, stamp))?
        {
            return Ok(Some(written));
        }
        let Some(chunk) = self.enlarge_alone(file, &Patch { at: direct.start, fill })? else {
            return Ok(None);
        };
        self.clear_tail(file, direct.start)?;
        let is_inside = direct.end_page() <= chunk.end;
        let mode = if is_inside { Mode::Shared } else { Mode::Exclusive };
        let written = self.in_turn(file, mode, Wait::Forever, || {
            let Some(chunk) = self.chunk_of(file)? else {
                return Ok(None);
            };
            if is_inside && direct.end_page() > chunk.end {
                // It was cut off meanwhile.
                return Ok(None);
            }
            let direct = direct.but_for_part(chunk.end);
            if direct.bytes.is_empty() {
                return Ok(None);
            }
            let (version, fresh) = self.with_space_made(|| self.transfer(file, &chunk, &direct))?;
            let is_quiet = is_inside && fresh == 0 && self.is_told_by_nothing(file, &direct)?;
            if !is_quiet || self.is_synchronous() {
                self.settle()?;
            }
            let how = if is_inside { How::Inside } else { How::Alone(version) };
            self.record_direct(who, file, &direct, Done { how, fresh, is_quiet })
        });
        written.map(Option::flatten)
    }

    /// How `bytes` are written, if that is possible, and the caller may; and the file's chunk, if
    /// that can be over what is in it.
    fn plan_direct<'b>(
        &self,
        who: &Credentials,
        file: FileId,
        begin: Begin<'b>,
        bytes: &'b [u8],
    ) -> Result<Option<(Direct<'b>, Option<Placed>)>> {
        // None is the end.
        let wanted = match (begin.from, begin.moved) {
            (Some(WriteAt::Offset(offset)), _) => Some(offset),
            (Some(WriteAt::End), _) => None,
            (None, Some(open)) => Some(self.position(open)),
            (None, None) => Some(0),
        };
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let acl = access_list(view, &inode)?;
            let rules = rules_of(&inode, acl.as_ref());
            let may_write = !rules.is_immutable() && write_open(who, &rules).is_ok();
            let start = wanted.unwrap_or(inode.size);
            let end = start.checked_add(bytes.len() as u64).filter(|end| *end <= self.size_max());
            // What a large file has below its threshold is on the volume, too.
            let is_large = matches!(inode.content, Content::Large { .. });
            let reach = end.map(|end| if is_large { end.max(inode.size) } else { end });
            let is_for_volume = reach.is_some_and(|reach| reach > self.limit_of(&inode));
            let is_possible = inode.file_type == FileType::Regular
                && may_write
                && is_for_volume
                && start.is_multiple_of(PAGE);
            if !is_possible {
                return Ok(None);
            }
            let direct = Direct { begin, start, bytes, size: inode.size };
            let placed = place_of(view, &inode, &direct)?;
            Ok(Some((direct, placed)))
        })
    }

    /// Makes `file`, which is about to grow by `patch`, a large one, if it is none: its chunk. None
    /// if it is a program.
    pub(super) fn enlarge_alone(&self, file: FileId, patch: &Patch<'_>) -> Result<Option<Chunk>> {
        loop {
            if let Some(chunk) = self.chunk_of(file)? {
                return Ok(Some(chunk));
            }
            let is_other = self.run(|tx| {
                self.lock(tx, false, [Some(file)])?;
                let mut draft = Draft::open(tx, file)?;
                let is_other = self.enlarge(tx, &mut draft, patch)?;
                draft.is_told = true;
                draft.stage(tx)?;
                Ok(Attempt::Done(is_other))
            })?;
            if !is_other && self.chunk_of(file)?.is_none() {
                return Ok(None);
            }
        }
    }

    /// Writes the bytes of `direct` to the volume: the version of the chunk, and how many of their
    /// pages had no space there before.
    fn transfer(&self, file: FileId, chunk: &Chunk, direct: &Direct<'_>) -> Result<(u64, u64)> {
        let (page, end) = (direct.first_page(), direct.end_page());
        let chunk = self.make_way(file, chunk, end)?;
        let first = self.first_block(&chunk);
        let fresh = self.unallocated(&chunk, page, end - page)?;
        if page > chunk.end {
            let gap = (page - chunk.end) * PAGE_BLOCKS;
            self.space()?.trim(first + chunk.end * PAGE_BLOCKS, gap)?;
        }
        let bytes = direct.bytes.get(..direct.len() as usize).unwrap_or_default();
        let (whole, rest) = bytes.split_at(bytes.len() / PAGE as usize * PAGE as usize);
        match direct.begin.is_direct {
            true => self.space()?.write_once(first + page * PAGE_BLOCKS, whole)?,
            false => self.space()?.write(first + page * PAGE_BLOCKS, whole)?,
        }
        if !rest.is_empty() {
            let mut last = [0; PAGE as usize];
            for (to, from) in last.iter_mut().zip(rest) {
                *to = *from;
            }
            self.space()?.write(first + (end - 1) * PAGE_BLOCKS, &last)?;
        }
        if end > chunk.end {
            self.label(file, &chunk, direct.size.max(direct.start + direct.len()), end)?;
        }
        Ok((chunk.version, fresh))
    }

    /// Whether no record is needed for the bytes of `direct` to count, once the volume has them.
    fn is_told_by_nothing(&self, file: FileId, direct: &Direct<'_>) -> Result<bool> {
        self.read(file.number, |view| is_quiet(view, &load(view, file)?.0, direct))
    }

    /// Records that the volume has the bytes of `direct`, as is `done`. How many bytes count; none
    /// if it has to be done otherwise, because others have changed the file.
    pub(super) fn record_direct(
        &self,
        who: &Credentials,
        file: FileId,
        direct: &Direct<'_>,
        done: Done,
    ) -> Result<Option<(u64, u64)>> {
        let Done { how, fresh, is_quiet: was_quiet } = done;
        let mut tx = self.core().begin()?;
        self.lock(&mut tx, false, [Some(file)])?;
        let mut draft = Draft::open(&tx, file)?;
        let Content::Large { chunk: at, .. } = draft.inode.content else {
            return Ok(None);
        };
        let chunk = chunk::load(&tx, at)?;
        let (is_other, version) = match how {
            How::Over(placed) => (!placed.is_still(at, &chunk), written_over(chunk.version)),
            How::Inside => (chunk.end < direct.end_page(), stepped(chunk.version)),
            How::Alone(seen) => (!is_same_step(chunk.version, seen), stepped(chunk.version)),
        };
        let has_moved = direct.begin.from == Some(WriteAt::End) && draft.inode.size != direct.start;
        // Given back before the lock.
        let mut position = direct.begin.moved.map(|open| self.take_position(open));
        let is_elsewhere = direct.begin.from.is_none()
            && position.as_ref().is_some_and(|position| position.from != direct.start);
        // What the core has of it goes by the record, and the rest may not be durable.
        let is_loud = was_quiet && !is_quiet(&tx, &draft.inode, direct)?;
        if is_other || has_moved || is_elsewhere || is_loud {
            return Ok(None);
        }
        let len = self.counted(&tx, &draft, direct)?;
        if len == 0 {
            return Ok(None);
        }
        let change = write_open(who, &draft.rules())?;
        apply(&mut tx, &mut draft, change)?;
        let (end, end_page) = (direct.start + len, (direct.start + len).div_ceil(PAGE));
        expose(&mut tx, draft.inode.content, draft.inode.size, direct.start)?;
        draft.inode.size = draft.inode.size.max(end);
        let last = chunk.end.max(end_page);
        let allocated = (chunk.allocated + fresh).min(last);
        chunk::store(&mut tx, at, &Chunk { end: last, allocated, version, ..chunk })?;
        let pages = direct.first_page()..end_page;
        // Of what is quiet the core has nothing.
        self.in_parts(&mut tx, draft, |tx, draft| {
            if was_quiet { Ok(true) } else { punch(tx, draft, pages.clone()) }
        })?;
        if let Some(position) = &mut position {
            position.to = end;
        }
        Ok(Some((direct.start, len)))
    }

    /// How many bytes of `direct` count: not those in a page that somebody else has written to
    /// meanwhile, beyond them.
    fn counted(
        &self,
        tx: &conquest_pm::Tx<'_, M, H>,
        draft: &Draft,
        direct: &Direct<'_>,
    ) -> Result<u64> {
        let len = direct.len();
        let end = direct.start + len;
        let page = end / PAGE * PAGE;
        let is_alone = end.is_multiple_of(PAGE)
            || draft.inode.size <= end
                && !matches!(piece(tx, draft.inode.content, page, PAGE)?, Piece::Bytes(_));
        Ok(if is_alone { len } else { len / PAGE * PAGE })
    }
}
