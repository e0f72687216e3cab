//! What all requests share: the store, the nodes, the open files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conquest::{FileId, Files, Fs, OwnNamespace, Store};
use conquest_fs::open::OpenFile;
use conquest_fs::{Errno, Error, Result};
use conquest_fuse::wire::{Request, StatFs};

use crate::caller::Caller;
use crate::handles::Handles;
use crate::nodes::Nodes;
use crate::queue::Queue;
use crate::records::Records;

/// How a mount behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Times of access are not kept: for `noatime`, and for mounts that are only read.
    pub no_access_time: bool,
    /// Those of directories are not.
    pub no_directory_access_time: bool,
    /// Locks are the kernel's, for this mount alone: others who use the store know nothing of them.
    pub local_locks: bool,
    /// For how long the kernel may believe what it was told. Others may change it meanwhile.
    pub lifetime: Duration,
}

/// What a mount has to tell whoever runs it.
#[derive(Debug)]
pub enum Event<'e> {
    /// An operation has found damage, or the medium fails.
    Damage(&'e Error),
    /// The store can't be changed any more, for this reason. Told once.
    ReadOnly(&'e Error),
}

/// Who is told of [`Event`]s.
pub type Reporter = Box<dyn Fn(Event<'_>) + Send + Sync>;

/// A store as the kernel sees it. Every request may come on any thread.
pub struct Server {
    pub(crate) store: Arc<Store>,
    files: Files,
    pub(crate) own: OwnNamespace,
    pub(crate) options: Options,
    pub(crate) nodes: Nodes,
    pub(crate) handles: Handles,
    pub(crate) records: Records,
    pub(crate) queue: Queue,
    pub(crate) reporter: Reporter,
    /// Whether the kernel can map what is open for direct I/O.
    pub(crate) maps_direct: AtomicBool,
    /// Whether somebody was told that the store can't be changed any more.
    told_read_only: AtomicBool,
}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Server {
    /// A server of `store`.
    ///
    /// # Errors
    /// If `/proc` does not tell who this process is.
    pub fn new(
        store: Arc<Store>,
        options: Options,
        reporter: Reporter,
    ) -> conquest::Result<Server> {
        let files = store.files()?;
        Ok(Server {
            own: OwnNamespace::read()?,
            options,
            nodes: Nodes::new(store.fs().root()),
            handles: Handles::new(),
            records: Records::default(),
            queue: Queue::new(Arc::clone(&store)),
            reporter,
            maps_direct: AtomicBool::new(false),
            told_read_only: AtomicBool::new(false),
            files,
            store,
        })
    }

    /// The store's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.store.directory()
    }

    pub(crate) fn fs(&self) -> &Fs {
        self.store.fs()
    }

    /// Who has sent `request`.
    pub(crate) fn caller(&self, request: &Request<'_>) -> Caller<'_> {
        Caller::new(request.uid, request.gid, request.pid, &self.own)
    }

    /// The file that `node` is.
    pub(crate) fn file(&self, node: u64) -> Result<FileId> {
        self.nodes.file(node).ok_or(Error::Stale)
    }

    /// What has `handle`.
    pub(crate) fn open_file(&self, handle: u64) -> Result<OpenFile> {
        self.handles.get(handle).ok_or(Errno::EBADF.into())
    }

    /// Closes what nobody has open any more. What goes wrong is of no interest to whoever caused
    /// it, but damage is told.
    pub(crate) fn close(&self, open: &OpenFile) {
        if let Err(error) = self.fs().close(open) {
            self.errno(&error);
        }
    }

    /// The error number of `error`; whoever runs the mount is told if it is no ordinary one.
    pub(crate) fn errno(&self, error: &Error) -> rustix::io::Errno {
        match error {
            Error::Core(conquest_pm::Error::Failed { .. }) => {
                self.tell_read_only(error);
                number(Errno::EROFS)
            }
            Error::Core(_) | Error::Unfit { .. } if error.errno() == Errno::EIO => {
                (self.reporter)(Event::Damage(error));
                number(Errno::EIO)
            }
            Error::Stale => match self.fs().core().check_health() {
                Ok(()) => number(Errno::ESTALE),
                // An inode that can't be read any more seems to be nobody's.
                Err(failed) => {
                    self.tell_read_only(&failed.into());
                    number(Errno::EIO)
                }
            },
            error => number(error.errno()),
        }
    }

    /// What came of an operation that changes nothing: if the store has failed, that it is
    /// read-only is no answer.
    pub(crate) fn looked<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| match error {
            Error::Core(conquest_pm::Error::Failed { .. }) => {
                self.tell_read_only(&error);
                Errno::EIO.into()
            }
            error => error,
        })
    }

    /// Tells that the store can't be changed any more, unless that was told.
    fn tell_read_only(&self, error: &Error) {
        if !self.told_read_only.swap(true, Ordering::Relaxed) {
            (self.reporter)(Event::ReadOnly(error));
        }
    }

    /// How much there is.
    pub(crate) fn statfs(&self) -> StatFs {
        let stat = self.files.statfs();
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        StatFs {
            blocks: stat.blocks,
            blocks_free: stat.free,
            blocks_available: stat.available,
            files: stat.files,
            files_free: stat.files_free,
            block_size: short(stat.block),
            name_max: short(stat.name_max),
            fragment_size: short(stat.block),
        }
    }

    /// Gives up all that the kernel had: it does not know of anything any more.
    pub(crate) fn forget_all(&self) {
        self.queue.stop();
        let open = self.handles.clear();
        open.iter().chain(&self.nodes.clear()).for_each(|open| self.close(open));
    }
}

/// An error number as replies take it.
pub(crate) fn number(errno: Errno) -> rustix::io::Errno {
    rustix::io::Errno::from_raw_os_error(errno.number())
}
