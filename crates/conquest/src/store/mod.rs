//! A store that this process has attached.

pub(crate) mod attach;
pub mod attached;
pub(crate) mod backing;
pub(crate) mod bring_back;
pub(crate) mod bytes;
pub(crate) mod default_place;
mod default_volume;
mod destroy;
pub(crate) mod directory;
mod fits;
mod grow;
pub mod identity;
pub mod info;
pub mod keeper;
mod large;
pub(crate) mod live;
pub(crate) mod loading;
pub(crate) mod lock;
pub(crate) mod make;
pub(crate) mod mark;
pub mod new;
pub(crate) mod place;
pub(crate) mod quiet;
pub(crate) mod region;
pub(crate) mod settings;
pub(crate) mod shape;
pub(crate) mod switch;
pub mod sync_mode;
pub(crate) mod volume;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conquest_pm::Holder;
use conquest_pm::media::Swap;
use conquest_pm::persist::Request;

use crate::files::actor::Attachment;
use crate::{Error, Fs, Id, Result};
use new::Placement;
use settings::Settings;

/// Told of a holder that has made a wait last a second, and then every second.
pub type OnSlow = Arc<dyn Fn(Holder) + Send + Sync>;

/// How a process attaches a store.
#[derive(Clone)]
pub struct Attach {
    /// Longest wait for others that make, attach, save or restore it.
    pub patience: Duration,
    /// Whether to keep the core from swap as far as the system lets this process.
    pub keep_from_swap: bool,
    /// How stores are made durable.
    pub write_back: Request,
    /// Whether stores outside of operations fault: protection against stray pointers of the
    /// program, at about two microseconds an operation.
    pub shield: bool,
    /// Takes the core that is there for the live one, if its region is the store's: when the live
    /// one is gone for good.
    pub adopt: bool,
    /// Which program keeps the store, if it has a volume and no keeper.
    pub keeper: keeper::Program,
    /// Told of processes that make this one wait for long.
    pub on_slow: Option<OnSlow>,
}

impl Default for Attach {
    fn default() -> Attach {
        Attach {
            patience: Duration::from_secs(10),
            keep_from_swap: true,
            write_back: Request::default(),
            shield: false,
            adopt: false,
            keeper: keeper::Program::Search,
            on_slow: None,
        }
    }
}

impl std::fmt::Debug for Attach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attach")
            .field("patience", &self.patience)
            .field("shield", &self.shield)
            .field("adopt", &self.adopt)
            .finish_non_exhaustive()
    }
}

/// A store that this process has attached. A forked child may use it too: it becomes a process of
/// its own with its first operation.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    settings: Settings,
    swap: Option<Swap>,
    /// Whether the region was not detached from in order, so that it had to be recovered.
    was_dirty: bool,
    /// Whether its core was brought back of the volume for this process to attach it.
    was_brought_back: bool,
    attachment: Arc<Attachment>,
}

impl Store {
    /// The store's directory, from the root.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The core's file, or its device.
    #[must_use]
    pub fn core(&self) -> &Path {
        &self.attachment.core
    }

    /// The store's identity.
    #[must_use]
    pub fn uuid(&self) -> Id {
        self.settings.uuid
    }

    /// Where contents of files go.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.settings.placement
    }

    /// The engine below, which knows inodes: for tests and servers. Programs use [`Store::files`].
    #[must_use]
    pub fn fs(&self) -> &Fs {
        &self.attachment.fs
    }

    /// What outlives this value as long as files of the store are open.
    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.attachment
    }

    /// Detaches. Dropping the value does it too, once no [`crate::Files`] and no open file of it
    /// is left either, but tells no error, and does not wait until a core on a disk file is on
    /// the disk.
    ///
    /// # Errors
    /// [`Error::FilesOpen`] while files of it are open, and [`conquest_pm::Error::InUse`] while
    /// operations of this process are under way: the store is detached all the same when they end,
    /// because the value is gone.
    pub fn detach(self) -> Result<()> {
        self.attachment.close_door().map_err(|count| {
            let directory = self.directory.clone();
            Error::FilesOpen { directory, count }
        })?;
        // First what the region consists of, then that it is in order.
        self.attachment.sync()?;
        let life = self.fs().core().life();
        let durable = self.attachment.sync_if_last();
        self.fs().core().detach()?;
        self.attachment.sync()?;
        let closed = self.attachment.close_backing(life);
        durable.and(closed)
    }

    /// Makes all that was done in the store durable on its volume, if it has one; on other media it
    /// is as durable as it gets already.
    ///
    /// # Errors
    /// Those of the volume: nothing since its failure may count.
    pub fn sync(&self) -> Result<()> {
        Ok(self.fs().sync_all()?)
    }

    /// Who waits until what he has done is durable; none for a store without a volume.
    #[must_use]
    pub fn sync_mode(&self) -> Option<sync_mode::SyncMode> {
        self.settings.volume.as_ref().map(|at| at.sync)
    }
}
