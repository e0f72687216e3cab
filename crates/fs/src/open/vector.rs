//! Reading and writing with several buffers, and with flags of the call: `preadv2` and `pwritev2`.

use std::io::{IoSlice, IoSliceMut};

use conquest_access::{Credentials, Errno};
use conquest_format::PAGE;
use conquest_format::inode::{FileType, Inode, flag};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::buffer::Buffer;
use crate::content::{Fill, Parts, STEP, copy_out};
use crate::open::io::WriteManner;
use crate::open::share::Status;
use crate::open::{CALL_MAX, OpenFile};
use crate::{FileSystem, Result};

/// Most buffers of a call, as in Linux.
pub const BUFFERS_MAX: usize = 1024;

/// `RWF_` flags.
const SYNC: u32 = (libc::RWF_DSYNC | libc::RWF_SYNC) as u32;
/// This one changes nothing.
const HIPRI: u32 = libc::RWF_HIPRI as u32;
const NOWAIT: u32 = libc::RWF_NOWAIT as u32;
const APPEND: u32 = libc::RWF_APPEND as u32;
const NOAPPEND: u32 = 0x20;

/// How a call is made.
struct Manner {
    /// Whether it writes at the end.
    appends: bool,
    /// Whether it fails rather than wait.
    no_wait: bool,
    /// Whether what it writes is durable when it returns.
    sync: bool,
    /// Whether whole pages that it writes go to the volume at once.
    direct: bool,
}

/// Where a call begins, and how many bytes it moves at most: the kernel's checks of its arguments.
pub(super) fn check_range(from: u64, lens: impl Iterator<Item = usize>) -> Result<u64> {
    let len = lens.fold(0_u64, |sum, len| sum.saturating_add(len as u64)).min(CALL_MAX);
    let is_possible = len == 0 || from.saturating_add(len) < 1 << 63;
    if is_possible { Ok(len) } else { Err(Errno::EINVAL.into()) }
}

/// Refuses what would be a negative offset.
pub(super) fn check_offset(at: Option<u64>) -> Result<()> {
    if at.is_some_and(|at| at >= 1 << 63) { Err(Errno::EINVAL.into()) } else { Ok(()) }
}

fn check_buffers(count: usize) -> Result<()> {
    if count > BUFFERS_MAX { Err(Errno::EINVAL.into()) } else { Ok(()) }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Reads to the buffers of `out`, one after the other, from `at` on, or from the position,
    /// which is moved then: how many bytes, fewer only at the file's end. Up to 256 KiB are read
    /// as one committed state, whatever the buffers are. `flags` are `RWF_` flags: with
    /// `RWF_NOWAIT`, no more than that are read.
    ///
    /// # Errors
    /// - `EBADF`: it is not open for reading; `EISDIR`;
    /// - `EINVAL`: more than [`BUFFERS_MAX`] buffers, an offset above `i64::MAX`, or flags that
    ///   contradict each other; `EOPNOTSUPP`: flags that are not known;
    /// - `EPERM`: `RWF_NOAPPEND`, open to append, of an append-only file;
    /// - `EAGAIN`: `RWF_NOWAIT`, and the file is being changed;
    /// - those of [`FileSystem::read_file`].
    pub fn read_vector(
        &self,
        open: &OpenFile,
        at: Option<u64>,
        out: &mut [IoSliceMut<'_>],
        flags: u32,
    ) -> Result<usize> {
        check_offset(at)?;
        if open.how.path_only || !open.how.open.read {
            return Err(Errno::EBADF.into());
        }
        check_buffers(out.len())?;
        loop {
            let from = at.map_or_else(|| self.free_position(open), Ok)?;
            let len = check_range(from, out.iter().map(|part| part.len()))?;
            if len == 0 {
                return Ok(0);
            }
            if open.file_type == FileType::Directory {
                let is_plain = flags & !HIPRI == 0;
                return Err(if is_plain { Errno::EISDIR } else { Errno::EOPNOTSUPP }.into());
            }
            let manner = self.manner(open, flags)?;
            let len = if manner.no_wait { len.min(STEP as u64) } else { len };
            let (done, inode) = self.read_parts(open, from, out, len as usize, &manner)?;
            if let Some(inode) = inode
                && self.notes_access(open, &inode)
                && !manner.no_wait
            {
                self.note_access(open.file)?;
            }
            let is_ours = at.is_some() || done == 0;
            if is_ours || self.advance(open, from, from + done as u64) {
                return Ok(done);
            }
        }
    }

    /// Reads `len` bytes of `open` from `from` on to `out`: how many, and the inode as it was.
    fn read_parts(
        &self,
        open: &OpenFile,
        from: u64,
        out: &mut [IoSliceMut<'_>],
        len: usize,
        manner: &Manner,
    ) -> Result<(usize, Option<Inode>)> {
        if len <= STEP {
            let (done, inode) = self.read_as_one(open, from, out, len, manner)?;
            return Ok((done, Some(inode)));
        }
        let (mut done, mut seen) = (0, None);
        for part in out {
            let most = part.len().min(len - done);
            let part = part.get_mut(..most).unwrap_or_default();
            let (read, inode) = self.read_steps(open.file, Some(open), from + done as u64, part)?;
            done += read;
            seen = inode.or(seen);
            if read < most {
                break;
            }
        }
        Ok((done, seen))
    }

    /// [`Self::read_parts`], all as one committed state.
    fn read_as_one(
        &self,
        open: &OpenFile,
        from: u64,
        out: &mut [IoSliceMut<'_>],
        len: usize,
        manner: &Manner,
    ) -> Result<(usize, Inode)> {
        let file = open.file;
        if let [part] = out
            && !manner.no_wait
        {
            return self.read_step(file, Some(open), from, part.get_mut(..len).unwrap_or_default());
        }
        let seen = self.core().try_read(self.lock_of(file.number), |view| {
            let (mut done, mut seen) = (0, None);
            for part in &mut *out {
                let most = part.len().min(len - done);
                let part = part.get_mut(..most).unwrap_or_default();
                match copy_out(view, file, from + done as u64, part) {
                    // It is read aside.
                    Ok(copied) if copied.far.is_some() => return Ok(Ok(None)),
                    Ok(copied) => (done, seen) = (done + copied.len, Some(copied.inode)),
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(Some((done, seen))))
        });
        match seen.transpose()?.transpose()?.flatten() {
            Some((done, inode)) => return Ok((done, inode.ok_or(Errno::EINVAL)?)),
            None if manner.no_wait => return Err(Errno::EAGAIN.into()),
            None => {}
        }
        let mut aside = Buffer::<{ PAGE as usize }>::new(len);
        let (done, inode) = self.read_step(file, Some(open), from, &mut aside)?;
        let mut left = aside.get(..done).unwrap_or_default();
        for part in out {
            let (now, later) = left.split_at(part.len().min(left.len()));
            part.get_mut(..now.len()).unwrap_or_default().copy_from_slice(now);
            left = later;
        }
        Ok((done, inode))
    }

    /// Writes the buffers of `parts`, one after the other, from `at` on, or from the position,
    /// which is moved then; or at the end. It is one write, as [`FileSystem::write`] describes it,
    /// whatever the buffers are: how many bytes. `flags` are `RWF_` flags.
    ///
    /// # Errors
    /// - `EBADF`: it is not open for writing;
    /// - `EINVAL`: more than [`BUFFERS_MAX`] buffers, an offset above `i64::MAX`, or flags that
    ///   contradict each other;
    /// - `EOPNOTSUPP`: flags that are not known, or `RWF_NOWAIT`: a write may always have to wait;
    /// - `EPERM`: `RWF_NOAPPEND`, open to append, of an append-only file;
    /// - those of [`FileSystem::write`].
    pub fn write_vector(
        &self,
        who: &Credentials,
        open: &OpenFile,
        at: Option<u64>,
        parts: &[IoSlice<'_>],
        flags: u32,
    ) -> Result<usize> {
        check_offset(at)?;
        open.check_writable()?;
        check_buffers(parts.len())?;
        let from = at.unwrap_or_else(|| self.position(open));
        let len = check_range(from, parts.iter().map(|part| part.len()))?;
        if len == 0 {
            return Ok(0);
        }
        let manner = self.manner(open, flags)?;
        if manner.no_wait {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let fill = match parts {
            [one] => Fill::Bytes(one.get(..len as usize).unwrap_or(one)),
            _ => Fill::Parts(Parts::new(parts, len)),
        };
        let manner =
            WriteManner { appends: manner.appends, sync: manner.sync, direct: manner.direct };
        self.write_through(who, open, at, manner, fill)
    }

    /// What `flags` mean for a call on `open`.
    fn manner(&self, open: &OpenFile, flags: u32) -> Result<Manner> {
        if flags & !(HIPRI | SYNC | NOWAIT | APPEND | NOAPPEND) != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if flags & (APPEND | NOAPPEND) == APPEND | NOAPPEND {
            return Err(Errno::EINVAL.into());
        }
        let Status { append: has_append, direct, .. } = self.status(open);
        let mut appends = has_append || flags & APPEND != 0;
        if flags & NOAPPEND != 0 && has_append {
            if self.inode(open.file)?.flags & flag::APPEND != 0 {
                return Err(Errno::EPERM.into());
            }
            appends = false;
        }
        let sync = open.how.sync || flags & SYNC != 0;
        Ok(Manner { appends, no_wait: flags & NOWAIT != 0, sync, direct })
    }
}
