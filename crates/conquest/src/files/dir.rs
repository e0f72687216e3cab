//! Open directories.

use std::path::Path;

use conquest_fs::FileId;
use conquest_fs::names::Listing;

use super::handle::Handle;
use super::{Entries, File, Files, Metadata, Node, OpenOptions};
use crate::{Error, Result};

/// An open directory: it can be listed, and paths can begin there, wherever it is moved. Dropping
/// it closes it.
#[derive(Debug)]
pub struct Dir {
    handle: Handle,
    files: Files,
}

impl Dir {
    /// Of `handle`, opened by `files`.
    pub(super) fn new(files: &Files, handle: Handle) -> Dir {
        let mut files = files.clone();
        files.base.start = handle.description().file;
        Dir { handle, files }
    }

    /// The files as seen from here: relative paths begin at the directory.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Opens the file at `path`, which begins here: openat(2).
    ///
    /// # Errors
    /// As there.
    pub fn open_at(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        self.handle.own()?;
        self.files.open_with(path, options)
    }

    /// Which file it is.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.handle.description().file
    }

    /// The directory, for what is no matter of how it was opened.
    ///
    /// # Errors
    /// `EBADF` if only its name was asked for.
    pub fn node(&self) -> Result<Node<'_>> {
        let open = self.handle.opened()?;
        Ok(Node { actor: self.handle.actor(), id: open.file, called: self.handle.called() })
    }

    /// What is known of it.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn metadata(&self) -> Result<Metadata> {
        let open = self.handle.own()?;
        let actor = self.handle.actor();
        let stat = actor.fs().stat(open.file);
        stat.map(|stat| Metadata::new(stat.seen_by(&actor.who())))
            .map_err(self.handle.called().fail())
    }

    /// Its entries, without `.` and `..`.
    #[must_use]
    pub fn entries(&self) -> Entries<&Dir> {
        Entries::new(self)
    }

    /// The entries after the one with `cookie`, as [`Node::list`].
    ///
    /// # Errors
    /// As there; `EBADF` if only its name was asked for.
    pub fn list<'b>(&self, cookie: u64, room: &'b mut [u8]) -> Result<Listing<'b>> {
        self.node()?.list(cookie, room)
    }

    /// Makes what was done to it durable: see [`File::sync_all`].
    ///
    /// # Errors
    /// As fsync(2).
    pub fn sync_all(&self) -> Result<()> {
        self.handle.sync()
    }

    /// Closes it.
    ///
    /// # Errors
    /// Those of the store: it is closed all the same.
    pub fn close(self) -> Result<()> {
        self.handle.close()
    }

    /// The directory that `file`, opened by `files`, is.
    ///
    /// # Errors
    /// `ENOTDIR` if it is none.
    pub fn from_file(files: &Files, file: File) -> Result<Dir> {
        let handle = file.into_handle();
        match handle.description().file_type {
            conquest_fs::dir::FileType::Directory => Ok(Dir::new(files, handle)),
            _ => Err::<_, Error>(handle.called().fail()(conquest_access::Errno::ENOTDIR)),
        }
    }
}
