//! Copying from one open file to another: `copy_file_range`.
//!
//! Bytes go through a buffer on the stack: no lock of one file is held while the other is looked
//! at. So a copy is a sequence of reads and writes, and others may come in between.

use conquest_access::{Credentials, Errno};
use conquest_format::inode::{FileType, Inode, flag};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::{Piece, Seek, WriteAt, piece};
use crate::inode::{FileId, load};
use crate::open::{CALL_MAX, OpenFile};
use crate::{Error, FileSystem, Result};

/// Bytes that are copied at a time. Holes of so many bytes stay holes.
const STEP: u64 = 32 << 10;
/// Bytes that are copied at a time from or to the volume.
const FAR_STEP: u64 = 1 << 20;

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub struct End<'o> {
    /// The open file.
    pub open: &'o OpenFile,
    /// Where in it; none is its position, which the copy moves on. What is above `i64::MAX` is a
    /// negative offset.
    pub at: Option<u64>,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Copies up to `len` bytes from `source` to `target`, as `copy_file_range`: how many. These
    /// are fewer at the source's end, for more than [`CALL_MAX`], if the store is full, and if
    /// something goes wrong later on. There are no `flags` so far.
    ///
    /// # Errors
    /// - `EBADF`: it is not open for that, or the target is open to append;
    /// - `EINVAL`: flags; it is no regular file; a negative offset; ranges of one file overlap;
    /// - `EISDIR`: it is a directory;
    /// - `EPERM`: the target is immutable;
    /// - `EOVERFLOW`: a range that passes 2^64; `EFBIG`: the target can't be so large;
    /// - `ENOSPC`: the store is full; [`Error::Stale`]; those of the region.
    pub fn copy_range(
        &self,
        who: &Credentials,
        source: End<'_>,
        target: End<'_>,
        len: u64,
        flags: u32,
    ) -> Result<u64> {
        if source.open.how.path_only || target.open.how.path_only {
            return Err(Errno::EBADF.into());
        }
        if flags != 0 {
            return Err(Errno::EINVAL.into());
        }
        let from = source.at.unwrap_or_else(|| self.position(source.open));
        let to = target.at.unwrap_or_else(|| self.position(target.open));
        let len = self.check_copy((source.open, from), (target.open, to), len)?;
        if len > 0 && self.notes_access(source.open, &self.inode(source.open.file)?) {
            self.note_access(source.open.file)?;
        }
        let copied = self.copy_steps(who, (source.open, from), (target.open, to), len)?;
        if copied > 0 {
            for (end, moved) in [(source, from + copied), (target, to + copied)] {
                if end.at.is_none() {
                    self.move_position(end.open, |_| Ok(moved))?;
                }
            }
            self.sync_written(target.open, target.open.how.sync)?;
        }
        Ok(copied)
    }

    /// How many bytes may be copied, of `len` that are asked for: the kernel's checks in its order.
    fn check_copy(
        &self,
        (source, from): (&OpenFile, u64),
        (target, to): (&OpenFile, u64),
        len: u64,
    ) -> Result<u64> {
        let types = [source.file_type, target.file_type];
        if types.contains(&FileType::Directory) {
            return Err(Errno::EISDIR.into());
        }
        if types != [FileType::Regular; 2] {
            return Err(Errno::EINVAL.into());
        }
        if !source.how.open.read || !target.how.open.write || self.status(target).append {
            return Err(Errno::EBADF.into());
        }
        if self.inode(target.file)?.flags & flag::IMMUTABLE != 0 {
            return Err(Errno::EPERM.into());
        }
        if from.checked_add(len).is_none() || to.checked_add(len).is_none() {
            return Err(Errno::EOVERFLOW.into());
        }
        let mut len = len.min(self.inode(source.file)?.size.saturating_sub(from));
        if to < 1 << 63 {
            if to >= self.size_max() {
                return Err(Errno::EFBIG.into());
            }
            len = len.min(self.size_max() - to);
        }
        let overlaps = source.file == target.file && to + len > from && to < from + len;
        if overlaps || from.max(to) >= 1 << 63 {
            return Err(Errno::EINVAL.into());
        }
        Ok(len.min(CALL_MAX))
    }

    /// Copies `len` bytes, or fewer: how many.
    fn copy_steps(
        &self,
        who: &Credentials,
        (source, from): (&OpenFile, u64),
        (target, to): (&OpenFile, u64),
        len: u64,
    ) -> Result<u64> {
        let (mut few, mut many) = ([0; STEP as usize], Vec::new());
        let mut buffer = few.as_mut_slice();
        if self.is_for_far(source.file, target.file, len)? {
            many.resize(FAR_STEP as usize, 0);
            buffer = &mut many;
        }
        let mut done = 0;
        while done < len {
            let copied =
                self.copy_step(who, (source, from + done), (target, to + done), len - done, buffer);
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied,
                // What is done stays, and the rest is told to be missing.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Copies the first of `len` bytes: up to where the next hole begins, as many as `buffer` has.
    /// Or if the next [`STEP`] of them, or all, are a hole, and the target has nothing there: lets
    /// it have a hole, too. How many.
    fn copy_step(
        &self,
        who: &Credentials,
        (source, from): (&OpenFile, u64),
        (target, to): (&OpenFile, u64),
        len: u64,
        buffer: &mut [u8],
    ) -> Result<u64> {
        let data = match self.seek(source.file, Seek::Data, from) {
            // All the rest, unless the file has become shorter.
            Err(Error::Refused(Errno::ENXIO)) => self.inode(source.file)?.size.max(from),
            found => found?,
        };
        let hole = (data - from).min(len);
        if hole >= STEP.min(len) && self.stretch(who, target.file, to, to + hole)? {
            return Ok(hole);
        }
        let most = (buffer.len() as u64).min(len);
        let step =
            hole.min(most) + self.before_hole(source.file, data, most.saturating_sub(hole))?;
        let step = step as usize;
        let len = self.read_file(source.file, from, buffer.get_mut(..step).unwrap_or_default())?;
        let bytes = buffer.get(..len).unwrap_or_default();
        self.write(who, target.file, WriteAt::Offset(to), bytes).map(|(_, len)| len)
    }

    /// Whether `len` bytes are copied in steps that are worth asking the volume for.
    fn is_for_far(&self, source: FileId, target: FileId, len: u64) -> Result<bool> {
        Ok(len >= FAR_STEP
            && self.threshold().is_some()
            && (self.chunk_of(source)?.is_some()
                || len > self.limit_of(&self.inode(target)?)
                || self.chunk_of(target)?.is_some()))
    }

    /// Bytes of `file` from `from` on before the next hole, but no more than `most`.
    fn before_hole(&self, file: FileId, from: u64, most: u64) -> Result<u64> {
        let mut len = 0;
        while len < most {
            let found = self.read(file.number, |view| {
                let (inode, _) = load(view, file)?;
                Ok(piece(view, inode.content, from + len, most - len)?)
            })?;
            match found {
                Piece::Hole(_) => break,
                Piece::Bytes(bytes) => len += bytes.len(),
                Piece::Far(limit) => match self.look_far(file, from + len, limit, limit)? {
                    (true, used) => len += used,
                    (false, _) => break,
                },
            }
        }
        Ok(len)
    }

    /// The inode of `file` as it is now.
    pub(super) fn inode(&self, file: FileId) -> Result<Inode> {
        self.read(file.number, |view| load(view, file).map(|(inode, _)| inode))
    }
}
