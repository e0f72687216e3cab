//! Operations on paths: a walk, then the operation on where it ends, with what the kernel makes of
//! last components that are no names and of slashes after names.

use conquest_access::{Credentials, Errno, Removal};
use conquest_format::inode::FileType;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::attributes::Stat;
use crate::inode::FileId;
use crate::names::{New, Renaming};
use crate::open::OpenFile;
use crate::walk::{Base, Last, Parent, check_path};
use crate::{FileSystem, Result};

/// A path, and where it begins.
#[derive(Clone, Copy, Debug)]
pub struct Path<'p> {
    /// Where it begins.
    pub base: &'p Base,
    /// The path.
    pub bytes: &'p [u8],
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// The file at `path`; a symbolic link there is followed if `follow`.
    ///
    /// # Errors
    /// Those of [`FileSystem::walk`].
    pub fn find(&self, who: &Credentials, path: Path<'_>, follow: bool) -> Result<FileId> {
        self.walk(who, path.base, path.bytes, follow).map(|(file, _)| file)
    }

    /// What is known of the file at `path`.
    ///
    /// # Errors
    /// Those of [`FileSystem::walk`] and [`FileSystem::stat`].
    pub fn stat_at(&self, who: &Credentials, path: Path<'_>, follow: bool) -> Result<Stat> {
        self.stat(self.find(who, path, follow)?)
    }

    /// The directory and the name at the end of `path`, for a new file: one that needs a name that
    /// is free. Slashes may follow only that of a directory.
    fn new_place<'p>(
        &self,
        who: &Credentials,
        path: Path<'p>,
        is_directory: bool,
    ) -> Result<(FileId, &'p [u8])> {
        let Parent { directory, last } = self.walk_to_parent(who, path.base, path.bytes)?;
        let Last::Name { name, slash } = last else {
            return Err(Errno::EEXIST.into());
        };
        if slash && !is_directory {
            let is_taken = self.lookup(who, directory, name)?.is_some();
            return Err(if is_taken { Errno::EEXIST } else { Errno::ENOENT }.into());
        }
        Ok((directory, name))
    }

    /// Makes a file at `path`, as [`FileSystem::create`].
    ///
    /// # Errors
    /// Those of walks, and those there.
    pub fn create_at(
        &self,
        who: &Credentials,
        path: Path<'_>,
        what: New<'_>,
        permissions: u16,
    ) -> Result<FileId> {
        if let New::Symlink(target) = what {
            check_path(target)?;
        }
        let (directory, name) = self.new_place(who, path, what == New::Directory)?;
        self.create(who, directory, name, what, permissions)
    }

    /// Gives the file at `old` the name at the end of `new` besides; a symbolic link at `old` is
    /// followed if `follow`.
    ///
    /// # Errors
    /// Those of walks, and those of [`FileSystem::link`].
    pub fn link_at(
        &self,
        who: &Credentials,
        old: Path<'_>,
        follow: bool,
        new: Path<'_>,
    ) -> Result<()> {
        let file = self.find(who, old, follow)?;
        let (directory, name) = self.new_place(who, new, false)?;
        self.link(who, file, directory, name)
    }

    /// Gives the open file `open` the name at the end of `new`, as `linkat` with `AT_EMPTY_PATH`.
    ///
    /// # Errors
    /// Those of walks, and those of [`FileSystem::link`].
    pub fn link_open(&self, who: &Credentials, open: &OpenFile, new: Path<'_>) -> Result<()> {
        let (directory, name) = self.new_place(who, new, false)?;
        self.link(who, open.file, directory, name)
    }

    /// Removes the name at the end of `path`.
    ///
    /// # Errors
    /// Those of walks, and those of [`FileSystem::remove`]; `EBUSY` for the root directory.
    pub fn remove_at(&self, who: &Credentials, path: Path<'_>, how: Removal) -> Result<()> {
        let Parent { directory, last } = self.walk_to_parent(who, path.base, path.bytes)?;
        let refused = match (how, last) {
            (_, Last::Name { name, slash }) => {
                if slash && how == Removal::File {
                    let (_, file_type) = self.lookup(who, directory, name)?.ok_or(Errno::ENOENT)?;
                    let is_directory = file_type == FileType::Directory;
                    return Err(if is_directory { Errno::EISDIR } else { Errno::ENOTDIR }.into());
                }
                return self.remove(who, directory, name, how);
            }
            (Removal::File, _) => Errno::EISDIR,
            (Removal::Directory, Last::Dot) => Errno::EINVAL,
            (Removal::Directory, Last::DotDot) => Errno::ENOTEMPTY,
            (Removal::Directory, Last::Root) => Errno::EBUSY,
        };
        Err(refused.into())
    }

    /// Gives the file at `old` the name at the end of `new` instead, as [`FileSystem::rename`].
    ///
    /// # Errors
    /// Those of walks, and those there.
    pub fn rename_at(
        &self,
        who: &Credentials,
        old: Path<'_>,
        new: Path<'_>,
        how: Renaming,
    ) -> Result<()> {
        let from = self.walk_to_parent(who, old.base, old.bytes)?;
        let to = self.walk_to_parent(who, new.base, new.bytes)?;
        let Last::Name { name: old, slash: old_slash } = from.last else {
            return Err(Errno::EBUSY.into());
        };
        let Last::Name { name: new, slash: new_slash } = to.last else {
            return Err(if how.replaces() { Errno::EBUSY } else { Errno::EEXIST }.into());
        };
        let (from, to) = ((from.directory, old, old_slash), (to.directory, new, new_slash));
        self.rename_with_slashes(who, from, to, how)
    }
}
