//! Removing names.

use conquest_access::{Credentials, Errno, Removal, remove};
use conquest_format::inode::FileType;
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::reap;
use crate::feed::{NoticeKind, tell_name};
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId};
use crate::names::{LocalName, again, hashed, open_directory, still_names};
use crate::open::{keeper, orphan_of};
use crate::{FileSystem, Result};

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Removes `name` from the directory `parent`: `unlink` or, to remove a directory, `rmdir`.
    /// What has no name any more is gone, unless somebody has it open.
    ///
    /// # Errors
    /// - `ENOENT`: there is no such name, or the directory is gone;
    /// - `ENOTDIR`: `parent` is no directory, or a file was to be removed as one;
    /// - `EISDIR`: a directory was to be removed as a file, `.` and `..` among them;
    /// - `EINVAL`, `ENOTEMPTY`: a directory was to be removed by `.` or `..`;
    /// - `ENOTEMPTY`: it has entries;
    /// - `EACCES`, `EPERM`: the caller may not;
    /// - `ENAMETOOLONG`.
    pub fn remove(
        &self,
        who: &Credentials,
        parent: FileId,
        name: &[u8],
        how: Removal,
    ) -> Result<()> {
        let dots = match how {
            Removal::File => [Errno::EISDIR; 2],
            Removal::Directory => [Errno::EINVAL, Errno::ENOTEMPTY],
        };
        match name {
            [] => return Err(Errno::ENOENT.into()),
            b"." => return Err(dots[0].into()),
            b".." => return Err(dots[1].into()),
            _ => {}
        }
        let local = LocalName::new(name);
        let plan = || Ok(self.lookup(who, parent, name)?.ok_or(Errno::ENOENT)?.0);
        self.run_planned(plan, |tx, &victim| {
            self.lock(tx, false, [Some(parent), Some(victim)])?;
            let mut directory = open_directory(tx, who, parent)?;
            let name = hashed(self.key(), local.as_ref().map_or(&[], LocalName::bytes))?;
            let entry = directory.directory(self.key()).find(tx, &name)?;
            if !still_names(tx, entry, Some(victim))? {
                return again();
            }
            let mut file = Draft::open(tx, victim)?;
            remove(who, &directory.rules(), &file.rules(), how)?;
            if how == Removal::Directory && file.inode.size != 0 {
                return Err(Errno::ENOTEMPTY.into());
            }
            if let Some(entry) = entry {
                directory.directory(self.key()).remove(tx, entry.position)?;
            }
            (directory.is_told, file.is_told) = (true, true);
            tell_name(tx, NoticeKind::Removed, file.told(), parent, name.bytes())?;
            let now = self.now();
            directory.touch(now);
            let is_begun = self.unname(tx, &mut directory, file, now)?;
            directory.stage(tx)?;
            Ok(if is_begun { Attempt::Begun(()) } else { Attempt::Done(()) })
        })
    }

    /// Stages that `file` has lost a name in `directory`, at `now`, and what follows of that.
    /// Whether there is an intent for a part of it.
    pub(super) fn unname(
        &self,
        tx: &mut Tx<'_, M, H>,
        directory: &mut Draft,
        mut file: Draft,
        now: i64,
    ) -> Result<bool> {
        let links = &mut file.inode.links.count;
        if file.inode.file_type == FileType::Directory {
            *links = 0;
            let above = &mut directory.inode.links.count;
            *above = above.saturating_sub(1);
        } else {
            *links = links.saturating_sub(1);
        }
        if *links != 0 {
            file.change(now);
            file.stage(tx)?;
            return Ok(false);
        }
        if let Some(holding) = keeper(tx, file.file.number)? {
            tx.set_orphan(holding, orphan_of(file.file.number)?)?;
            file.change(now);
            file.stage(tx)?;
            return Ok(false);
        }
        reap(tx, file)
    }
}
