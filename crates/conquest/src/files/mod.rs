//! The files of an attached store, for programs.
//!
//! [`Files`] is somebody at some place: who acts, and where relative paths begin. From it come
//! open files ([`File`]), open directories ([`Dir`]), and operations on paths, which do what the
//! calls of the kernel do on ext4, with the same error numbers.
//!
//! Invariants:
//! - the caller's memory is not touched while anything is locked ([`local`]);
//! - an open file is one process's: a forked child gets `EBADF` for its copy, and whatever becomes
//!   of that, the parent's stays open ([`handle`]);
//! - every error names what the caller named.

pub(crate) mod actor;
mod attributes;
mod bundle;
mod credentials;
mod dir;
mod entries;
mod error;
mod file;
mod handle;
mod io;
mod local;
mod locks;
mod metadata;
mod node;
mod options;
mod parcel;
mod paths;
mod whole;

pub use bundle::{Done, Operation};
pub use credentials::Credentials;
pub use dir::Dir;
pub use entries::{DirEntry, Entries, ReadDir};
pub use error::FileError;
pub use file::File;
pub use metadata::Metadata;
pub use node::Node;
pub use options::{OpenOptions, Resolve};
pub use parcel::Parcel;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use conquest_access as access;
use conquest_access::Errno;
use conquest_fs::FileId;
use conquest_fs::open::How;
use conquest_fs::paths::Path as At;
use conquest_fs::walk::{Base, PATH_MAX};

use crate::name::Name;
use crate::{Fs, Result, Store};
use actor::{Actor, Called};
use error::FileError as Failure;
use handle::Handle;
use local::with_copy;

/// The files of a store as somebody sees them from some directory. Cheap to clone; for any thread.
#[derive(Clone, Debug)]
pub struct Files {
    actor: Arc<Actor>,
    base: Base,
    /// `RESOLVE_CACHED`.
    is_cached: bool,
}

impl Store {
    /// The files of the store as the calling thread sees them now, from the root directory.
    ///
    /// # Errors
    /// As [`Credentials::of_thread`].
    pub fn files(&self) -> Result<Files> {
        Ok(self.files_as(Credentials::of_thread()?))
    }

    /// The files of the store as `who` sees them, from the root directory.
    #[must_use]
    pub fn files_as(&self, who: Credentials) -> Files {
        let root = self.fs().root();
        let actor = Arc::new(Actor { store: Arc::clone(self.attachment()), who });
        Files { actor, base: Base::new(root, root), is_cached: false }
    }
}

impl Files {
    /// The same as `who` sees them.
    #[must_use]
    pub fn acting_as(&self, who: Credentials) -> Files {
        let store = Arc::clone(&self.actor.store);
        Files { actor: Arc::new(Actor { store, who }), ..self.clone() }
    }

    /// Who acts.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.actor.who
    }

    /// The same, with relative paths that begin at `dir`. Nothing keeps the directory: once it is
    /// removed, and closed, there is nothing at such paths.
    #[must_use]
    pub fn from_dir(&self, dir: &Dir) -> Files {
        Files { base: Base { start: dir.id(), ..self.base }, ..self.clone() }
    }

    /// The same, with `dir` as the root directory, where paths begin and out of which `..` does not
    /// lead: `chroot`, without the privilege that it needs.
    #[must_use]
    pub fn with_root(&self, dir: &Dir) -> Files {
        Files { base: Base { start: dir.id(), root: dir.id(), ..self.base }, ..self.clone() }
    }

    /// The same, with paths that lead only where `resolve` lets them.
    ///
    /// # Errors
    /// `EINVAL` if it contradicts itself.
    pub fn resolving(&self, resolve: Resolve) -> Result<Files> {
        resolve.check().map_err(Called::Path(b".").fail())?;
        let Base { root, start, .. } = self.base;
        let base = Base {
            root: if resolve.in_root { start } else { root },
            start,
            beneath: resolve.beneath,
            no_links: resolve.no_symlinks,
        };
        Ok(Files { base, is_cached: resolve.cached, ..self.clone() })
    }

    /// The engine below.
    pub(crate) fn fs(&self) -> &Fs {
        self.actor.fs()
    }

    /// Does `work` with `path`.
    fn at<T>(
        &self,
        path: &Path,
        work: impl FnOnce(&Fs, &access::Credentials<'_>, At<'_>) -> conquest_fs::Result<T>,
    ) -> Result<T> {
        let path = path.as_os_str().as_bytes();
        self.copied(path, |at| work(self.fs(), &self.actor.who(), at))
            .map_err(Called::Path(path).fail())
    }

    /// Does `work` with two paths.
    fn at_two<T>(
        &self,
        old: &Path,
        new: &Path,
        work: impl FnOnce(&Fs, &access::Credentials<'_>, At<'_>, At<'_>) -> conquest_fs::Result<T>,
    ) -> Result<T> {
        let [old, new] = [old, new].map(|path| path.as_os_str().as_bytes());
        let done = self.copied(old, |old| {
            self.copied(new, |new| work(self.fs(), &self.actor.who(), old, new))
        });
        done.map_err(|error| Failure::of_two(Name::new(old), Name::new(new), error).into())
    }

    fn copied<T>(
        &self,
        path: &[u8],
        work: impl FnOnce(At<'_>) -> conquest_fs::Result<T>,
    ) -> conquest_fs::Result<T> {
        if path.len() > PATH_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        with_copy(&[path], |bytes| work(At { base: &self.base, bytes }))
    }

    /// Opens `path`.
    fn open_handle(&self, path: &Path, how: &How) -> Result<Handle> {
        let path = path.as_os_str().as_bytes();
        let makes = how.create.is_some() || how.temporary || how.open.truncate;
        Handle::open(&self.actor, Called::Path(path), |fs, who| match self.is_cached && makes {
            true => Err(Errno::EAGAIN.into()),
            false => self.copied(path, |at| fs.open_at(who, at, how)),
        })
    }

    /// The file `id`, whatever its name. For programs that look names up themselves, as a server of
    /// files does.
    #[must_use]
    pub fn node(&self, id: FileId) -> Node<'_> {
        Node { actor: &self.actor, id, called: Called::Id(id) }
    }

    /// The root directory: where absolute paths begin.
    #[must_use]
    pub fn root(&self) -> FileId {
        self.base.root
    }

    /// Opens the file at `path` as `options` say.
    ///
    /// # Errors
    /// As open(2); `ENXIO` for devices, pipes and sockets.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = path.as_ref();
        let how = options.how().map_err(Called::Path(path.as_os_str().as_bytes()).fail())?;
        Ok(File::new(self.open_handle(path, &how)?))
    }

    /// Opens the file at `path` with the flags and the mode of open(2).
    ///
    /// # Errors
    /// As there.
    pub fn open_flags(&self, path: impl AsRef<Path>, flags: i32, mode: u32) -> Result<File> {
        let path = path.as_ref();
        let how = How::from_open(flags.cast_unsigned(), mode);
        let how = how.map_err(Called::Path(path.as_os_str().as_bytes()).fail())?;
        Ok(File::new(self.open_handle(path, &how)?))
    }

    /// Opens the file at `path` as `struct open_how` of openat2(2) says.
    ///
    /// # Errors
    /// As there.
    pub fn open_how(
        &self,
        path: impl AsRef<Path>,
        flags: u64,
        mode: u64,
        resolve: u64,
    ) -> Result<File> {
        let path = path.as_ref();
        let short = |wide: u64| u32::try_from(wide).map_err(|_| Errno::EINVAL);
        let checked = || {
            let how = How::from_openat2(short(flags)?, short(mode)?)?;
            Ok((how, Resolve::from_bits(resolve)?))
        };
        let checked: core::result::Result<_, Errno> = checked();
        let (how, resolve) = checked.map_err(Called::Path(path.as_os_str().as_bytes()).fail())?;
        Ok(File::new(self.resolving(resolve)?.open_handle(path, &how)?))
    }

    /// Opens the file at `path` to read.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Makes the file at `path`, or cuts off the one that is there, and opens it to write.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Makes a file without a name in the directory at `path` and opens it to read and write, as
    /// `O_TMPFILE`. It goes when it is closed, unless [`Self::link_file`] gives it a name.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn create_temporary(&self, path: impl AsRef<Path>) -> Result<File> {
        let flags = libc::O_TMPFILE;
        self.open_with(path, OpenOptions::new().read(true).write(true).custom_flags(flags))
    }

    /// Opens the directory at `path`, to list it and to begin paths there.
    ///
    /// # Errors
    /// As open(2) with `O_DIRECTORY`.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.open_dir_flags(path.as_ref(), libc::O_RDONLY)
    }

    /// Names the directory at `path`, to begin paths there, with no permission to list it: as
    /// open(2) with `O_PATH`.
    ///
    /// # Errors
    /// As there.
    pub fn name_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.open_dir_flags(path.as_ref(), libc::O_PATH)
    }

    fn open_dir_flags(&self, path: &Path, flags: i32) -> Result<Dir> {
        let how = How::from_open((flags | libc::O_DIRECTORY).cast_unsigned(), 0);
        let how = how.map_err(Called::Path(path.as_os_str().as_bytes()).fail())?;
        Ok(Dir::new(self, self.open_handle(path, &how)?))
    }

    /// Lists the directory at `path`, without `.` and `..`.
    ///
    /// # Errors
    /// As [`Self::open_dir`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        Ok(Entries::new(self.open_dir(path)?))
    }
}
