//! Operations on paths.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use conquest_access::{Access, Removal};
use conquest_fs::FileId;
use conquest_fs::attributes::SetTime;
use conquest_fs::names::{New, Renaming};
use conquest_fs::walk::{Last, Parent};

use super::actor::Called;
use super::{File, Files, Metadata, Node};
use crate::Result;

impl Files {
    /// The file at `path`, with which operations can be done that have no form for paths. A
    /// symbolic link there is followed if `follow`.
    ///
    /// # Errors
    /// As path_resolution(7) has them, here and wherever else there is a path.
    pub fn find<'f>(
        &'f self,
        path: &'f (impl AsRef<Path> + ?Sized),
        follow: bool,
    ) -> Result<Node<'f>> {
        let path = path.as_ref();
        let id = self.at(path, |fs, who, at| fs.find(who, at, follow))?;
        let called = Called::Path(path.as_os_str().as_bytes());
        Ok(Node { actor: &self.actor, id, called })
    }

    /// The directory in which the last name of `path` is, or would be, and that name.
    ///
    /// # Errors
    /// As path_resolution(7).
    pub fn find_parent<'p>(
        &self,
        path: &'p (impl AsRef<Path> + ?Sized),
    ) -> Result<(FileId, Last<'p>)> {
        let path = path.as_ref();
        let found = self.at(path, |fs, who, at| {
            let Parent { directory, last } = fs.walk_to_parent(who, at.base, at.bytes)?;
            // The name is that of the copy; the caller's is as far from the end.
            Ok(match last {
                Last::Name { name, slash } => (directory, Err((name.len(), slash))),
                Last::Dot => (directory, Ok(Last::Dot)),
                Last::DotDot => (directory, Ok(Last::DotDot)),
                Last::Root => (directory, Ok(Last::Root)),
            })
        })?;
        let name = |len: usize| {
            let bytes = path.as_os_str().as_bytes();
            let slashes = bytes.iter().rev().take_while(|byte| **byte == b'/').count();
            let end = bytes.len().saturating_sub(slashes);
            bytes.get(end.saturating_sub(len)..end).unwrap_or_default()
        };
        Ok(match found {
            (directory, Ok(last)) => (directory, last),
            (directory, Err((len, slash))) => (directory, Last::Name { name: name(len), slash }),
        })
    }

    /// What is known of the file at `path`.
    ///
    /// # Errors
    /// As stat(2).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.at(path.as_ref(), |fs, who, at| Ok(fs.stat_at(who, at, true)?.seen_by(who)))
            .map(Metadata::new)
    }

    /// The same of a symbolic link itself, if there is one.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.at(path.as_ref(), |fs, who, at| Ok(fs.stat_at(who, at, false)?.seen_by(who)))
            .map(Metadata::new)
    }

    /// Whether the file at `path` may be used in all the ways of `wanted`.
    ///
    /// # Errors
    /// As faccessat2(2) with `AT_EACCESS`.
    pub fn access(&self, path: impl AsRef<Path>, wanted: Access) -> Result<()> {
        self.at(path.as_ref(), |fs, who, at| fs.may(who, fs.find(who, at, true)?, wanted))
    }

    /// Makes a directory, of mode 0777 as far as the mask leaves it.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.make_node(path, New::Directory, 0o777)
    }

    /// Makes a file that is no regular one, or an empty regular one, with those of the permissions
    /// `mode` that the mask leaves.
    ///
    /// # Errors
    /// As mknod(2), mkdir(2) and symlink(2).
    pub fn make_node(&self, path: impl AsRef<Path>, what: New<'_>, mode: u32) -> Result<()> {
        let mode = (mode & 0o7777) as u16;
        // A link's target is copied below before anything is locked.
        self.at(path.as_ref(), |fs, who, at| fs.create_at(who, at, what, mode)).map(drop)
    }

    /// Makes a symbolic link at `link` that leads to `target`.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.make_node(link, New::Symlink(target.as_ref().as_os_str().as_bytes()), 0o777)
    }

    /// The target of the symbolic link at `path`.
    ///
    /// # Errors
    /// As readlink(2).
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.find(path.as_ref(), false)?.read_link()
    }

    /// Gives the file at `old` the name `new` besides. A symbolic link at `old` is not followed.
    ///
    /// # Errors
    /// As link(2).
    pub fn hard_link(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        let (old, new) = (old.as_ref(), new.as_ref());
        self.at_two(old, new, |fs, who, old, new| fs.link_at(who, old, false, new))
    }

    /// Gives the open file `file` the name `path`: one without a name, or one that has others.
    ///
    /// # Errors
    /// As linkat(2) with `AT_EMPTY_PATH`; `ENOENT` if it was removed.
    pub fn link_file(&self, file: &File, path: impl AsRef<Path>) -> Result<()> {
        let open = file.handle().own()?;
        self.at(path.as_ref(), |fs, who, at| fs.link_open(who, open, at))
    }

    /// Gives what is at `old` the name `new`; what has that loses it.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        self.rename_with(old, new, Renaming::Replace)
    }

    /// Renames as `how` says.
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename_with(
        &self,
        old: impl AsRef<Path>,
        new: impl AsRef<Path>,
        how: Renaming,
    ) -> Result<()> {
        let (old, new) = (old.as_ref(), new.as_ref());
        self.at_two(old, new, |fs, who, old, new| fs.rename_at(who, old, new, how))
    }

    /// Removes the name of a file that is no directory.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |fs, who, at| fs.remove_at(who, at, Removal::File))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |fs, who, at| fs.remove_at(who, at, Removal::Directory))
    }

    /// Makes the file at `path` as long as `size` bytes.
    ///
    /// # Errors
    /// As truncate(2).
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        self.at(path.as_ref(), |fs, who, at| fs.truncate(who, fs.find(who, at, true)?, size))
    }

    /// Sets the permissions of the file at `path` to the low twelve bits of `mode`.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.find(path.as_ref(), true)?.set_permissions(mode)
    }

    /// Gives the file at `path` another user, group or both.
    ///
    /// # Errors
    /// As chown(2).
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.find(path.as_ref(), true)?.set_owner(uid, gid)
    }

    /// Sets when the file at `path` was last looked at and changed.
    ///
    /// # Errors
    /// As utimensat(2).
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: SetTime,
        modified: SetTime,
    ) -> Result<()> {
        self.find(path.as_ref(), true)?.set_times(accessed, modified)
    }

    /// Space of the store, in bytes.
    #[must_use]
    pub fn usage(&self) -> crate::Usage {
        self.actor.store.usage()
    }

    /// How much there is: statfs(2). Some hundred loads and two system calls, whatever the store
    /// holds.
    #[must_use]
    pub fn statfs(&self) -> conquest_fs::Statfs {
        self.actor.store.statfs()
    }
}
