//! Giving files more names.

use conquest_access::{Credentials, Errno, link};
use conquest_format::inode::flag;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::dir::Insert;
use crate::feed::{NoticeKind, tell_name};
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId};
use crate::names::create::new_name;
use crate::names::{LocalName, gone, hashed, open_directory};
use crate::{FileSystem, Result};

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Gives `file` the name `name` in the directory `parent`.
    ///
    /// # Errors
    /// - `ENOENT`: the directory is gone, the file has no name any more, or the name is empty;
    /// - `ENOTDIR`: `parent` is no directory;
    /// - `EEXIST`: the name is taken, or is `.` or `..`;
    /// - `EACCES`, `EPERM`: the caller may not, or the file is a directory;
    /// - `EMLINK`: the file has 4,294,967,295 names;
    /// - `ENAMETOOLONG`, `EINVAL`, `ENOSPC`.
    pub fn link(&self, who: &Credentials, file: FileId, parent: FileId, name: &[u8]) -> Result<()> {
        let local = LocalName::new(name);
        self.run(|tx| {
            self.keep_reserve(tx, who);
            self.lock(tx, false, [Some(parent), Some(file)])?;
            let mut directory = open_directory(tx, who, parent)?;
            let name = hashed(self.key(), new_name(name, local.as_ref())?)?;
            let entries = directory.directory(self.key());
            if entries.find(tx, &name)?.is_some() {
                return Err(Errno::EEXIST.into());
            }
            if directory.inode.links.count == 0 {
                return Err(Errno::ENOENT.into());
            }
            let rules = directory.rules();
            if file == parent {
                link(who, &rules, &rules)?;
                return Err(Errno::EPERM.into());
            }
            let mut named = Draft::open(tx, file).map_err(gone)?;
            link(who, &rules, &named.rules())?;
            if named.inode.links.count == 0 && named.inode.flags & flag::LINKABLE == 0 {
                return Err(Errno::ENOENT.into());
            }
            named.inode.flags &= !flag::LINKABLE;
            let links = &mut named.inode.links.count;
            *links = links.checked_add(1).ok_or(Errno::EMLINK)?;
            let at = conquest_format::inode::offset_of(file.number).ok_or(Errno::ENOENT)?;
            match entries.insert(tx, &name, at, named.inode.file_type)? {
                Insert::Done(_) => {}
                Insert::Exists(_) => return Err(Errno::EEXIST.into()),
                Insert::NoRoom => {
                    self.make_room(tx, &directory, &name)?;
                    return Ok(Attempt::Prepared);
                }
            }
            (directory.is_told, named.is_told) = (true, true);
            tell_name(tx, NoticeKind::Linked, named.told(), parent, name.bytes())?;
            let now = self.now();
            directory.touch(now);
            named.change(now);
            named.stage(tx)?;
            directory.stage(tx)?;
            Ok(Attempt::Done(()))
        })
    }
}
