//! Reading, and finding out where there is something to read.

use conquest_access::Errno;
use conquest_format::inode::{FileType, Inode};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::{Piece, piece, read_bytes};
use crate::inode::{FileId, load};
use crate::{Error, FileSystem, Reader, Result};

/// Bytes that are read as one committed state: a longer read may see the beginning of one state and
/// the end of a later one, as with the kernel's file systems.
pub(crate) const STEP: usize = 1 << 18;

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

/// Copies bytes of `file` from `from` on to `out`: how many, fewer only at the end of the file; and
/// the inode.
pub(crate) fn copy_out(
    reader: &impl Reader,
    file: FileId,
    from: u64,
    out: &mut [u8],
) -> Result<(usize, Inode)> {
    let inode = load_regular(reader, file)?;
    let len = inode.size.saturating_sub(from).min(out.len() as u64) as usize;
    let out = out.get_mut(..len).unwrap_or_default();
    read_bytes(reader, inode.content, inode.size, from, out)?;
    Ok((len, inode))
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
        self.read_steps(file, from, out).map(|(len, _)| len)
    }

    /// [`Self::read_file`]: how many bytes, and the inode as it was, if any were asked for.
    pub(crate) fn read_steps(
        &self,
        file: FileId,
        from: u64,
        out: &mut [u8],
    ) -> Result<(usize, Option<Inode>)> {
        let mut done = 0;
        let mut seen = None;
        for part in out.chunks_mut(STEP) {
            let (len, inode) = self.read_step(file, from.saturating_add(done as u64), part)?;
            done += len;
            seen = Some(inode);
            if len < part.len() {
                break;
            }
        }
        Ok((done, seen))
    }

    fn read_step(&self, file: FileId, from: u64, out: &mut [u8]) -> Result<(usize, Inode)> {
        self.read_to(file.number, out, |view, out| copy_out(view, file, from, out))
    }

    /// The first place from `from` on in the regular file `file` of what `what` says.
    ///
    /// # Errors
    /// - `ENXIO`: `from` is not inside the file, or there is no more data;
    /// - `EISDIR`, `EINVAL`: it is a directory, or otherwise no regular file;
    /// - [`Error::Stale`]; those of the region.
    pub fn seek(&self, file: FileId, what: Seek, from: u64) -> Result<u64> {
        self.read(file.number, |view| {
            let inode = load_regular(view, file)?;
            let mut at = from;
            while at < inode.size {
                let piece = piece(view, inode.content, at, inode.size - at)?;
                if matches!(piece, Piece::Hole(_)) == (what == Seek::Hole) {
                    return Ok(at);
                }
                at += piece.len();
            }
            match what {
                Seek::Hole if from < inode.size => Ok(inode.size),
                _ => Err(Error::Refused(Errno::ENXIO)),
            }
        })
    }
}
