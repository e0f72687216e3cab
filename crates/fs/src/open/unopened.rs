//! Reading a file without opening it: what `open`, `pread` and `close` come to where nothing else
//! is wanted of the file.

use conquest_access::{self as access, Credentials, Errno, Open};
use conquest_format::inode::{FileType, Inode};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::{Copied, STEP, copy_out};
use crate::inode::{FileId, access_list, load, rules_of};
use crate::open::DAY;
use crate::open::io::is_look_due;
use crate::open::vector::{check_offset, check_range};
use crate::paths::Path;
use crate::{Error, FileSystem, Result};

/// Most bytes that are read so: those that are one committed state. For more of them the file
/// would have to be kept until the last one is read, as an open one is.
pub const UNOPENED_MAX: usize = STEP;
/// Times that it begins anew because what it found was gone when it wanted to read it.
const TRIES: u32 = 1000;
/// What it is opened for.
const TO_READ: Open =
    Open { read: true, write: false, append: false, truncate: false, no_access_time: false };

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Reads bytes of the file at `path` from `from` on to `out`: how many, at most
    /// [`UNOPENED_MAX`], fewer only at its end. They are of the state in which the caller was found
    /// to be allowed to read them.
    ///
    /// # Errors
    /// Those of [`FileSystem::open_at`] and [`FileSystem::read_vector`].
    pub fn read_unopened(
        &self,
        who: &Credentials,
        path: Path<'_>,
        from: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        let most = out.len().min(UNOPENED_MAX);
        let out = out.get_mut(..most).unwrap_or_default();
        for _ in 0..TRIES {
            let (file, _) = self.walk(who, path.base, path.bytes, true)?;
            match self.read_allowed(who, file, from, out) {
                // Removed since it was looked for.
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
                Ok((len, inode)) => {
                    let is_old = self.now().saturating_sub(inode.atime) >= DAY;
                    if most > 0 && is_look_due(&inode, is_old) {
                        self.note_access(file)?;
                    }
                    return Ok(len);
                }
            }
        }
        Err(Errno::EAGAIN.into())
    }

    /// Reads from `file` if `who` may: how many bytes, and the inode as it was.
    fn read_allowed(
        &self,
        who: &Credentials,
        file: FileId,
        from: u64,
        out: &mut [u8],
    ) -> Result<(usize, Inode)> {
        loop {
            let Copied { len, inode, far } = self.copy_allowed(who, file, from, out)?;
            if self.read_far(file, None, far.as_ref(), out)? {
                return Ok((len, inode));
            }
        }
    }

    /// Copies what the core has of `file`, if `who` may read it.
    fn copy_allowed(
        &self,
        who: &Credentials,
        file: FileId,
        from: u64,
        out: &mut [u8],
    ) -> Result<Copied> {
        self.read_to(file.number, out, |view, out| {
            let (inode, _) = load(view, file)?;
            let acl = access_list(view, &inode)?;
            access::open(who, &rules_of(&inode, acl.as_ref()), TO_READ)?;
            if !matches!(inode.file_type, FileType::Regular | FileType::Directory) {
                return Err(Errno::ENXIO.into());
            }
            check_offset(Some(from))?;
            match check_range(from, core::iter::once(out.len()))? {
                0 => Ok(Copied { len: 0, inode, far: None }),
                _ => copy_out(view, file, from, out),
            }
        })
    }
}
