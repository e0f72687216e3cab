//! What files, directories and paths share: an attached store, and who acts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use conquest_access as access;
use conquest_fs::FileId;

use super::credentials::Credentials;
use super::error::{FileError, Reason};
use crate::name::Name;
use crate::store::backing::Backing;
use crate::store::place;
use crate::{Fs, Id, Result};

/// A store that this process has attached. It stays mapped as long as anything refers to it.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) fs: Fs,
    /// The core's file.
    pub(crate) core: PathBuf,
    /// The store's identity.
    pub(crate) uuid: Id,
    /// What makes it durable, if that is a volume.
    pub(crate) backing: Option<Arc<Backing>>,
    /// The number of the record that was committed next when the store was attached.
    first: u64,
    /// Whether this process may have record locks of its own.
    has_records: AtomicBool,
    /// Files that are open, or being opened; [`DETACHED`] once no more can be.
    open: AtomicUsize,
}

/// The number of open files of a store that was detached.
const DETACHED: usize = 1 << (usize::BITS - 1);

impl Attachment {
    pub(crate) fn new(
        fs: Fs,
        core: PathBuf,
        uuid: Id,
        backing: Option<Arc<Backing>>,
    ) -> Attachment {
        let (has_records, open) = (AtomicBool::new(false), AtomicUsize::new(0));
        let first = if backing.is_some() { fs.core().next_sequence() } else { 0 };
        Attachment { fs, core, uuid, backing, first, has_records, open }
    }

    /// Notes that this process may have record locks.
    pub(super) fn note_records(&self) {
        self.has_records.store(true, Ordering::Relaxed);
    }

    /// Whether this process may have record locks, which go when it closes a file.
    pub(super) fn may_have_records(&self) -> bool {
        self.has_records.load(Ordering::Relaxed)
    }

    /// Sees to it that no more files are opened; how many are open, if there are any.
    pub(crate) fn close_door(&self) -> core::result::Result<(), usize> {
        // A file that is being opened is counted before it has a description.
        let closed = self.open.compare_exchange(0, DETACHED, Ordering::SeqCst, Ordering::SeqCst);
        match closed {
            Ok(_) | Err(DETACHED..) => Ok(()),
            Err(count) => Err(count),
        }
    }

    /// Makes what operations have done durable on the volume, if nobody else will.
    pub(crate) fn sync_if_last(&self) -> Result<()> {
        let core = self.fs.core();
        match &self.backing {
            // Who has not written to large files has nothing to make durable where the core is.
            Some(backing) if !backing.is_logged() && !backing.is_open(core.life()) => Ok(()),
            // A child that has done nothing has nothing to make durable.
            Some(backing) if core.life().is_some() => match core.is_anyone_else_at_work()? {
                true if backing.has_keeper() => Ok(()),
                _ => {
                    let was_refused = core.refusal().is_some();
                    let synced = backing.sync(core);
                    // Who has changed something before was told what that means.
                    let is_told = was_refused && core.next_sequence() == self.first;
                    if is_told { Ok(()) } else { synced }
                }
            },
            _ => Ok(()),
        }
    }

    /// Closes the volume, as the process `life` of a line of descent.
    pub(crate) fn close_backing(&self, life: Option<u32>) -> Result<()> {
        self.backing.as_ref().map_or(Ok(()), |backing| backing.close(life))
    }

    /// Makes what operations have done durable, where they have not done so themselves.
    pub(crate) fn sync(&self) -> Result<()> {
        place::sync_core(&self.core, self.fs.core().memory().kind())
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let life = self.fs.core().life();
        // Of a store that was detached all of it is done; otherwise nobody is there to be told.
        let _synced = self.sync_if_last();
        if self.fs.core().memory().progress().is_some() {
            // What that needs is loaded as long as the volume is open.
            let _detached = self.fs.core().detach();
        }
        let _closed = self.close_backing(life);
    }
}

/// Somebody who works on a store.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(super) store: Arc<Attachment>,
    pub(super) who: Credentials,
}

impl Actor {
    pub(super) fn fs(&self) -> &Fs {
        &self.store.fs
    }

    /// Who acts.
    pub(super) fn who(&self) -> access::Credentials<'_> {
        self.who.rules()
    }
}

/// A actor with a file that is open, or being opened: the store is not detached meanwhile.
#[derive(Debug)]
pub(super) struct Counted(Arc<Actor>);

impl Counted {
    /// One more.
    pub(super) fn new(actor: &Arc<Actor>) -> conquest_fs::Result<Counted> {
        let counted = Counted(Arc::clone(actor));
        match actor.store.open.fetch_add(1, Ordering::SeqCst) {
            DETACHED.. => Err(conquest_pm::Error::Failed { reason: "it was detached" }.into()),
            _ => Ok(counted),
        }
    }

    pub(super) fn actor(&self) -> &Arc<Actor> {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.store.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the caller calls a file, as long as a call lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Called<'n> {
    /// A path.
    Path(&'n [u8]),
    /// The name that an open file keeps.
    Kept(&'n Name),
    /// Only which file it is.
    Id(FileId),
}

impl Called<'_> {
    pub(super) fn name(self) -> Name {
        match self {
            Called::Path(path) => Name::new(path),
            Called::Kept(name) => name.clone(),
            Called::Id(file) => Name::of_number(file.number),
        }
    }

    /// Makes the error of an operation on the file.
    pub(super) fn fail<E: Into<Reason>>(self) -> impl FnOnce(E) -> crate::Error {
        move |reason| FileError::new(self.name(), reason).into()
    }
}
