//! Reading, and finding out where there is something to read.

use conquest_access::Errno;
use conquest_format::inode::{Content, FileType, Inode};
use conquest_pm::View;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::{Piece, piece, read_bytes};
use crate::file_system::lock_of;
use crate::inode::{FileId, load};
use crate::large::{FAR_STEP, Far, chunk};
use crate::open::OpenFile;
use crate::{Error, FileSystem, Reader, Result};

/// Bytes that are read as one committed state: a longer read may see the beginning of one state and
/// the end of a later one, as with the kernel's file systems.
pub(crate) const STEP: usize = 1 << 18;

/// What was found in a file.
enum Found {
    /// What was looked for.
    At(u64),
    /// So many bytes that the volume has.
    Far(u64, u64),
}

/// What to look for in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte that is in a hole; the end counts as one.
    Hole,
}

/// The inode of `file`, a regular one.
fn load_regular(reader: &impl Reader, file: FileId) -> Result<Inode> {
    let (inode, _) = load(reader, file)?;
    match inode.file_type {
        FileType::Regular => Ok(inode),
        FileType::Directory => Err(Errno::EISDIR.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// What was copied of a file.
pub(crate) struct Copied {
    /// Bytes, those included that are still to be read.
    pub(crate) len: usize,
    /// The inode, as it was.
    pub(crate) inode: Inode,
    /// What the volume has, if anything.
    pub(crate) far: Option<Far>,
}

/// Copies bytes of `file` from `from` on to `out`: how many, fewer only at the end of the file; and
/// the inode.
pub(crate) fn copy_out(
    reader: &impl Reader,
    file: FileId,
    from: u64,
    out: &mut [u8],
) -> Result<Copied> {
    let inode = load_regular(reader, file)?;
    let len = inode.size.saturating_sub(from).min(out.len() as u64) as usize;
    let out = out.get_mut(..len).unwrap_or_default();
    let mut parts = Vec::new();
    let mut note = |at: u64, len| {
        parts.push((at, (at - from) as usize, len));
        Ok(())
    };
    read_bytes(reader, inode.content, inode.size, from, out, &mut note)?;
    let far = match inode.content {
        Content::Large { chunk: at, .. } if !parts.is_empty() => {
            let core = reader.core();
            let stamp = core.stamp(lock_of(core, file.number));
            Some(Far { chunk: chunk::load(reader, at)?, parts, stamp })
        }
        _ => None,
    };
    Ok(Copied { len, inode, far })
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Reads bytes of the regular file `file`, which was opened for reading, from `from` on to
    /// `out`: how many, fewer only at the end of the file. What of `out` is behind these may have
    /// changed too. `out` is written to while nothing is locked.
    ///
    /// # Errors
    /// - `EISDIR`, `EINVAL`: it is a directory, or otherwise no regular file;
    /// - [`Error::Stale`]; those of the region.
    pub fn read_file(&self, file: FileId, from: u64, out: &mut [u8]) -> Result<usize> {
        self.read_steps(file, None, from, out).map(|(len, _)| len)
    }

    /// [`Self::read_file`], as `open` says, if that is given: how many bytes, and the inode as it
    /// was, if any were asked for.
    pub(crate) fn read_steps(
        &self,
        file: FileId,
        open: Option<&OpenFile>,
        from: u64,
        out: &mut [u8],
    ) -> Result<(usize, Option<Inode>)> {
        let mut done = 0;
        let mut seen = None;
        let is_far = || Ok::<_, Error>(self.chunk_of(file)?.is_some());
        let step = if out.len() > STEP && is_far()? { FAR_STEP } else { STEP };
        for part in out.chunks_mut(step) {
            let from = from.saturating_add(done as u64);
            let (len, inode) = self.read_step(file, open, from, part)?;
            done += len;
            seen = Some(inode);
            if len < part.len() {
                break;
            }
        }
        Ok((done, seen))
    }

    pub(crate) fn read_step(
        &self,
        file: FileId,
        open: Option<&OpenFile>,
        from: u64,
        out: &mut [u8],
    ) -> Result<(usize, Inode)> {
        loop {
            let look = |view: &View<'_, M, H>, out: &mut [u8]| copy_out(view, file, from, out);
            let Copied { len, inode, far } = self.read_to(file.number, out, look)?;
            if self.read_far(file, open, far.as_ref(), out)? {
                return Ok((len, inode));
            }
        }
    }

    /// The first place from `from` on in the regular file `file` of what `what` says.
    ///
    /// # Errors
    /// - `ENXIO`: `from` is not inside the file, or there is no more data;
    /// - `EISDIR`, `EINVAL`: it is a directory, or otherwise no regular file;
    /// - [`Error::Stale`]; those of the region.
    pub fn seek(&self, file: FileId, what: Seek, from: u64) -> Result<u64> {
        let mut at = from;
        loop {
            let found = self.read(file.number, |view| {
                let inode = load_regular(view, file)?;
                let mut at = at;
                while at < inode.size {
                    let piece = piece(view, inode.content, at, inode.size - at)?;
                    match piece {
                        Piece::Far(len) => return Ok(Found::Far(at, len)),
                        Piece::Hole(_) if what == Seek::Hole => return Ok(Found::At(at)),
                        Piece::Bytes(_) if what == Seek::Data => return Ok(Found::At(at)),
                        other => at += other.len(),
                    }
                }
                match what {
                    Seek::Hole if from < inode.size => Ok(Found::At(inode.size)),
                    _ => Err(Error::Refused(Errno::ENXIO)),
                }
            })?;
            match found {
                Found::At(at) => return Ok(at),
                Found::Far(from, len) => {
                    let enough = if what == Seek::Data { 1 } else { len };
                    let (is_used, len) = self.look_far(file, from, len, enough)?;
                    if is_used == (what == Seek::Data) {
                        return Ok(from);
                    }
                    at = from + len;
                }
            }
        }
    }
}
