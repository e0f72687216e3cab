//! Operations on a file that needs not be open, whatever its type.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use conquest_access::{Access, Credentials, Removal};
use conquest_fs::FileId;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::{Seek, WriteAt};
use conquest_fs::dir::FileType;
use conquest_fs::names::{Listing, New, Renaming};
use conquest_fs::placement::Placed;
use conquest_fs::walk::PATH_MAX;

use super::actor::{Actor, Called};
use super::handle::Handle;
use super::local::with_copy;
use super::options::OpenOptions;
use super::{File, Metadata};
use crate::{Fs, Result};

/// A file that was found. Nothing keeps it: operations on one that was removed meanwhile are
/// `ESTALE`.
#[derive(Clone, Copy, Debug)]
pub struct Node<'f> {
    pub(super) actor: &'f std::sync::Arc<Actor>,
    pub(super) id: FileId,
    pub(super) called: Called<'f>,
}

impl Node<'_> {
    /// Which file it is: number and generation, by which [`super::Files::node`] finds it again.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Does `work` with the file.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Fs, &Credentials<'_>, FileId) -> conquest_fs::Result<T>,
    ) -> Result<T> {
        work(self.actor.fs(), &self.actor.who(), self.id).map_err(self.called.fail())
    }

    /// Does `work` with the file and a copy of `name`.
    pub(super) fn with_name<T>(
        &self,
        name: &[u8],
        work: impl FnOnce(&Fs, &Credentials<'_>, FileId, &[u8]) -> conquest_fs::Result<T>,
    ) -> Result<T> {
        self.with(|fs, who, id| with_copy(&[name], |name| work(fs, who, id, name)))
    }

    /// Where the content of a regular file is kept, in a store whose threshold is `threshold`
    /// bytes.
    ///
    /// # Errors
    /// `EISDIR` for a directory, `EINVAL` for what else is no regular file.
    pub fn placement(&self, threshold: u64) -> Result<Placed> {
        self.with(|fs, _, id| fs.placement(id, threshold))
    }

    /// Opens it. Flags that are about its name mean nothing.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, options: &OpenOptions) -> Result<File> {
        let how = options.how().map_err(self.called.fail())?;
        let open = |fs: &Fs, who: &Credentials<'_>| fs.open_file(who, self.id, &how);
        Ok(File::new(Handle::open(self.actor, self.called, open)?))
    }

    /// What is known of it.
    ///
    /// # Errors
    /// As stat(2).
    pub fn metadata(&self) -> Result<Metadata> {
        self.with(|fs, who, id| Ok(fs.stat(id)?.seen_by(who))).map(Metadata::new)
    }

    /// Whether it may be used in all the ways of `wanted`.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`.
    pub fn access(&self, wanted: Access) -> Result<()> {
        self.with(|fs, who, id| fs.may(who, id, wanted))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As readlink(2).
    pub fn read_link(&self) -> Result<PathBuf> {
        let mut target = vec![0; PATH_MAX];
        let len = self.with(|fs, _, id| fs.read_link(id, &mut target))?;
        target.truncate(len);
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Sets its permissions to the low twelve bits of `mode`.
    ///
    /// # Errors
    /// As chmod(2); `EOPNOTSUPP` for a symbolic link.
    pub fn set_permissions(&self, mode: u32) -> Result<()> {
        self.with(|fs, who, id| fs.set_mode(who, id, mode))
    }

    /// Gives it another user, group or both.
    ///
    /// # Errors
    /// As chown(2).
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.with(|fs, who, id| fs.set_owner(who, id, uid, gid))
    }

    /// Sets when it was last looked at and changed.
    ///
    /// # Errors
    /// As utimensat(2).
    pub fn set_times(&self, accessed: SetTime, modified: SetTime) -> Result<()> {
        self.with(|fs, who, id| fs.set_times(who, id, accessed, modified))
    }

    /// Sets its flags ([`crate::flag`]), and its project if that is given.
    ///
    /// # Errors
    /// As `FS_IOC_FSSETXATTR`.
    pub fn set_flags(&self, flags: u32, project: Option<u32>) -> Result<()> {
        self.with(|fs, who, id| fs.set_flags(who, id, flags, project))
    }
}

/// Directories: operations on names in them, which are no paths.
impl Node<'_> {
    /// The file called `name` in it, and its type, if there is one.
    ///
    /// # Errors
    /// `ENOTDIR`; `EACCES`; `ENAMETOOLONG`; `EINVAL` if no file can have the name; `ENOENT` if the
    /// directory is gone.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<(FileId, FileType)>> {
        self.with_name(name, |fs, who, id, name| fs.lookup(who, id, name))
    }

    /// The entries after the one with `cookie`, 0 for the beginning, as many as `room` is enough
    /// for, `.` and `..` first; none if there are no more. One that is there from the first call to
    /// the last is listed once. Takes no memory but `room`. Whether it may be read is not asked.
    ///
    /// # Errors
    /// `ENOTDIR`; `EINVAL` if there is no room for one, for which [`crate::LISTED_MAX`] bytes are
    /// always enough.
    pub fn list<'b>(&self, cookie: u64, room: &'b mut [u8]) -> Result<Listing<'b>> {
        self.with(|fs, _, id| fs.list(id, cookie, room))
    }

    /// Makes a file called `name`, with those of the permissions `mode` that the mask leaves.
    ///
    /// # Errors
    /// As mknod(2), mkdir(2) and symlink(2).
    pub fn make(&self, name: &[u8], what: New<'_>, mode: u32) -> Result<FileId> {
        let mode = (mode & 0o7777) as u16;
        self.with_name(name, |fs, who, id, name| fs.create(who, id, name, what, mode))
    }

    /// Gives `file` the name `name` besides.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, name: &[u8], file: FileId) -> Result<()> {
        self.with_name(name, |fs, who, id, name| fs.link(who, file, id, name))
    }

    /// Renames what is called `old` to `new` in the directory `to`.
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename(&self, old: &[u8], to: FileId, new: &[u8], how: Renaming) -> Result<()> {
        self.with_name(old, |fs, who, from, old| {
            with_copy(&[new], |new| fs.rename(who, from, old, to, new, how))
        })
    }

    /// Removes the name `name`.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2).
    pub fn remove(&self, name: &[u8], how: Removal) -> Result<()> {
        self.with_name(name, |fs, who, id, name| fs.remove(who, id, name, how))
    }
}

/// Bytes of a regular file, for those who have seen to it that they may: nothing is asked of its
/// mode, as with an open file.
impl Node<'_> {
    /// Reads from byte `offset` on: how many bytes, fewer only at the end.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`: it is no regular file.
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        self.with(|fs, _, id| fs.read_file(id, offset, out))
    }

    /// Writes from byte `offset` on: how many bytes, fewer if the store is full.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        let written = self.with_name(bytes, |fs, who, id, bytes| {
            fs.write(who, id, WriteAt::Offset(offset), bytes)
        });
        written.map(|(_, len)| len as usize)
    }

    /// Makes it as long as `size` bytes.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.with(|fs, who, id| fs.truncate_open(who, id, size))
    }

    /// The next byte from `from` on that is in no hole; none if there are only holes.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`: it is no regular file.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        self.next(Seek::Data, from)
    }

    /// The next byte from `from` on that is in a hole, or the end; none past the end.
    ///
    /// # Errors
    /// As [`Self::next_data`].
    pub fn next_hole(&self, from: u64) -> Result<Option<u64>> {
        self.next(Seek::Hole, from)
    }

    fn next(&self, what: Seek, from: u64) -> Result<Option<u64>> {
        self.with(|fs, _, id| match fs.seek(id, what, from) {
            Err(error) if error.errno() == conquest_access::Errno::ENXIO => Ok(None),
            found => found.map(Some),
        })
    }
}
