//! Open files for other processes: a description, with its position, flags and locks, is had by
//! several (open(2), "Open file descriptions").
//!
//! A forked child has none of its parent's open files, and no process has another's. What is to be
//! shared goes into a parcel, which a file descriptor of the kernel carries: to a child, which
//! inherits it, through `exec`, if it is not closed there, or through a socket.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use conquest_fs::open::OpenFile;
use conquest_pm::media::{Carried, OsHost};

use super::actor::{Actor, Called};
use super::handle::Handle;
use super::{File, Files};
use crate::Result;

/// Open files on their way to whoever receives them. They stay open as long as somebody has the
/// parcel, or the descriptor that carries it.
pub struct Parcel {
    inner: conquest_pm::Parcel<OsHost>,
    actor: Arc<Actor>,
}

impl Files {
    /// An empty parcel.
    ///
    /// # Errors
    /// `EUSERS` if the store has no slot left: there is one for each process and each parcel.
    pub fn parcel(&self) -> Result<Parcel> {
        Parcel::new(&self.actor)
    }

    /// Receives the parcel number `number`, carried by `descriptor`: its files, with the numbers by
    /// which they were added, in any order. One process can receive it, once.
    ///
    /// # Errors
    /// `EBADF` if there is none, or it was received; `ENFILE` if too many files are open: then none
    /// of it is.
    pub fn receive(&self, number: u32, descriptor: OwnedFd) -> Result<Vec<(u32, File)>> {
        let inner = self.fs().core().receive(number, Carried::from(descriptor))?;
        Parcel { inner, actor: Arc::clone(&self.actor) }.open()
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("number", &self.number()).finish_non_exhaustive()
    }
}

impl Parcel {
    fn new(actor: &Arc<Actor>) -> Result<Parcel> {
        Ok(Parcel { inner: actor.fs().core().parcel()?, actor: Arc::clone(actor) })
    }

    /// Adds the description of `file`, which stays open: the number by which the receiver knows it.
    ///
    /// # Errors
    /// `EBADF` if this process does not have it; `ENFILE`.
    pub fn add(&self, file: &File) -> Result<u32> {
        file.with(|fs, _, open| fs.pack(&self.inner, open))
    }

    /// The number by which it is received.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.slot()
    }

    /// The descriptor that carries it; closed by `exec` unless it is told otherwise.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.inner.into_carried().into()
    }

    /// Opens what is in it.
    fn open(self) -> Result<Vec<(u32, File)>> {
        let Parcel { inner, actor } = self;
        let opened = actor.fs().unpack(inner).map_err(Called::Path(b"a parcel").fail())?;
        let file = |(number, open): (u32, OpenFile)| {
            match Handle::open(&actor, Called::Id(open.file), |_, _| Ok(open)) {
                Ok(handle) => Ok((number, File::new(handle))),
                Err(error) => {
                    // The store is being detached. None of it is to stay open.
                    let (Ok(()) | Err(_)) = actor.fs().close(&open);
                    Err(error)
                }
            }
        };
        // All of them, before the first error ends it.
        let files: Vec<Result<_>> = opened.into_iter().map(file).collect();
        files.into_iter().collect()
    }
}

impl File {
    /// The same description once more: position, flags and locks are common to both, as with
    /// dup(2). As there, closing either ends all locks that the process has on the file.
    ///
    /// # Errors
    /// `EBADF` if this process does not have it; `ENFILE`; those of [`Files::parcel`].
    pub fn try_clone(&self) -> Result<File> {
        let parcel = Parcel::new(self.handle().actor())?;
        let number = parcel.add(self)?;
        let mut opened = parcel.open()?.into_iter();
        let found = opened.find_map(|(found, file)| (found == number).then_some(file));
        found.ok_or_else(|| self.handle().called().fail()(conquest_access::Errno::EBADF))
    }
}
