//! Looking names up.

use conquest_access::{Credentials, Errno};
use conquest_format::fs::dentry::NAME_MAX;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::dir::FileType;
use crate::inode::{FileId, directory, identify};
use crate::names::{hashed, searchable};
use crate::{FileSystem, Result};

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// What `name` leads to in the directory `parent`: a file, with its type, or nothing. `.` and
    /// `..` are names; the root directory's parent is itself. Takes no lock, allocates nothing and
    /// makes no system call.
    ///
    /// # Errors
    /// `ENOTDIR`; `EACCES` if `who` may not search the directory; `ENAMETOOLONG`; `ENOENT` if the
    /// directory is gone; `EINVAL` if no file can have the name.
    pub fn lookup(
        &self,
        who: &Credentials,
        parent: FileId,
        name: &[u8],
    ) -> Result<Option<(FileId, FileType)>> {
        self.read(parent.number, |view| {
            let inode = searchable(view, who, parent)?;
            match name {
                b"." => return Ok(Some((parent, FileType::Directory))),
                // What is above a directory that was removed may be gone too.
                b".." if inode.links.count == 0 => return Err(Errno::ENOENT.into()),
                b".." => {
                    let at = conquest_format::inode::offset_of(inode.parent);
                    let above = identify(view, at.ok_or(Errno::ENOENT)?)?;
                    return Ok(Some((above, FileType::Directory)));
                }
                _ if name.len() as u64 > NAME_MAX => return Err(Errno::ENAMETOOLONG.into()),
                _ => {}
            }
            let name = hashed(self.key(), name)?;
            let found = directory(parent, self.key())?.find(view, &name)?;
            found.map(|entry| Ok((identify(view, entry.inode)?, entry.file_type))).transpose()
        })
    }
}
