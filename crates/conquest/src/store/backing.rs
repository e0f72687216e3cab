//! What makes an attached store durable: its core's image, on its volume.
//!
//! The volume is opened when it is needed first: many processes never wait for anything to be
//! durable. A forked child opens it for itself.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use conquest_fs::AfterEach;
use conquest_pm::core::DurableMaker;
use conquest_pm::media::{Mapped, OsHost};
use conquest_pm::{Core, Region};

use rustix::time::ClockId;

use super::fits;
use super::keeper::{self, Program};
use super::settings::VolumeAt;
use super::sync_mode::SyncMode;
use super::volume::{self, Image};
use crate::{Error, Result};

/// Pauses between looks whether another thread has opened the volume.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest wait for that.
const PATIENCE: Duration = Duration::from_secs(20);
/// Milliseconds between looks whether there is a keeper.
const LOOK: u64 = 1000;

/// An image, and which process of a line of descent has opened it.
type Opened = (u32, Arc<Image>);

/// The image of a core on a store's volume.
pub(crate) struct Backing {
    directory: PathBuf,
    at: VolumeAt,
    /// Which program is to keep the store.
    keeper: Program,
    opened: RwLock<Option<Opened>>,
    /// When it was seen to that there is a keeper, as [`coarse_now`].
    looked: AtomicU64,
}

impl std::fmt::Debug for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backing").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Backing {
    /// That of the store in `directory`, whose volume is `at`, and whose keeper is to be `keeper`.
    pub(crate) fn new(directory: &Path, at: VolumeAt, keeper: Program) -> Arc<Backing> {
        let (directory, opened) = (directory.to_owned(), RwLock::new(None));
        let looked = AtomicU64::new(coarse_now());
        Arc::new(Backing { directory, at, keeper, opened, looked })
    }

    /// Whether the store has a keeper.
    pub(crate) fn has_keeper(&self) -> bool {
        keeper::keeper_of(&self.directory).is_some()
    }

    /// Sees to it that there is a keeper.
    pub(crate) fn ensure_keeper(&self) {
        if self.wants_keeper() {
            // Without one, `info` says what that means.
            let (true | false) = keeper::ensure(&self.directory, &self.keeper);
        }
    }

    /// Has `image`, which the process has opened, for what follows.
    pub(crate) fn keep(&self, image: Arc<Image>) {
        if let Ok(mut place) = self.opened.try_write() {
            *place = Some((0, image));
        }
    }

    /// The image, as the process that `core` is attached by has it.
    pub(crate) fn image(&self, core: &Region) -> Result<Arc<Image>> {
        let image = self.image_of(core.life().unwrap_or(u32::MAX));
        image.inspect_err(|error| fits::tell(core, error))
    }

    /// The image that the process has open.
    pub(crate) fn present(&self) -> Result<Arc<Image>> {
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            match self.opened.try_read().as_deref() {
                Ok(Some((_, image))) => return Ok(Arc::clone(image)),
                // It was closed.
                Ok(None) => break,
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        let holder = "another thread, which opens or closes its volume".to_owned();
        Err(Error::Busy { directory: self.directory.clone(), holder, waited: since.elapsed() })
    }

    /// The image, as process number `life` of a line of descent has it.
    pub(crate) fn image_of(&self, life: u32) -> Result<Arc<Image>> {
        let since = Instant::now();
        // Never waiting for a lock: in a forked child it may be held by nobody.
        while since.elapsed() < PATIENCE {
            match self.opened.try_read().as_deref() {
                Ok(Some((opener, image))) if *opener == life => return Ok(Arc::clone(image)),
                Ok(_) => {}
                Err(_) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
            }
            let Ok(mut place) = self.opened.try_write() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            if place.as_ref().is_some_and(|(opener, _)| *opener == life) {
                continue;
            }
            let image = Arc::new(volume::open_image(&self.directory, &self.at)?);
            // What a parent has opened is the parent's.
            let _parents = ManuallyDrop::new(place.replace((life, Arc::clone(&image))));
            return Ok(image);
        }
        let holder = "another thread, which opens its volume".to_owned();
        Err(Error::Busy { directory: self.directory.clone(), holder, waited: since.elapsed() })
    }

    /// Whether `core` can be made durable.
    pub(crate) fn check(&self, core: &Region) -> Result<()> {
        let checked = self.image(core).and_then(|image| Ok(image.check(core)?));
        match &checked {
            Ok(()) => core.refuse(None),
            Err(error) => fits::tell(core, error),
        }
        checked
    }

    /// What is done after each operation: it waits until all is durable, or sees to it that
    /// somebody makes it so before long.
    pub(crate) fn after_each(self: &Arc<Backing>) -> Option<AfterEach<Mapped, OsHost>> {
        let backing = Arc::clone(self);
        match self.at.sync {
            SyncMode::Always => Some(Box::new(|core| core.make_durable())),
            _ if !self.wants_keeper() => None,
            _ => Some(Box::new(move |_| {
                backing.keep_keeper();
                Ok(())
            })),
        }
    }

    /// Whether this process is to see to it that there is a keeper.
    fn wants_keeper(&self) -> bool {
        !matches!(self.keeper, Program::None | Program::This)
    }

    /// Sees to it that there is a keeper, if nobody of this process has for a second.
    fn keep_keeper(&self) {
        let now = coarse_now();
        let looked = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) < LOOK {
            return;
        }
        let swapped =
            self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed);
        if swapped.is_ok() {
            self.ensure_keeper();
        }
    }

    /// Makes all that was committed on `core` durable.
    pub(crate) fn sync(&self, core: &Region) -> Result<()> {
        core.check_health()?;
        self.keep_keeper();
        if core.refusal().is_some() {
            // What was in the way of changes may be so no longer.
            self.check(core)?;
        }
        if core.durable() >= core.next_sequence() {
            return Ok(());
        }
        let synced = self.image(core).and_then(|image| Ok(image.sync(core)?));
        if let Err(error) = &synced {
            fits::tell(core, error);
        }
        synced
    }

    /// What an attached core is given, so that it can make itself durable.
    pub(crate) fn maker(self: &Arc<Backing>) -> DurableMaker<Mapped, OsHost> {
        let backing = Arc::clone(self);
        Box::new(move |core: &Core<Mapped, OsHost>| {
            backing.sync(core).map_err(|error| conquest_pm::Error::NotDurable {
                path: core.path().to_owned(),
                reason: error.to_string(),
            })
        })
    }

    /// Closes the volume, if this process has it open and nobody uses it.
    pub(crate) fn close(&self, life: Option<u32>) -> Result<()> {
        let opened = match self.opened.try_write() {
            Ok(mut place) => place.take(),
            Err(_) => None,
        };
        let Some((opener, image)) = opened else {
            return Ok(());
        };
        if Some(opener) != life {
            let _parents = ManuallyDrop::new(image);
            return Ok(());
        }
        volume::close_image(image)
    }
}

/// Milliseconds of a clock that takes no time to look at, and is some of them behind.
fn coarse_now() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000)
}

/// What a core with a log is given that has no volume: nothing of it is ever durable.
pub(crate) fn forgetful() -> DurableMaker<Mapped, OsHost> {
    Box::new(|core: &Core<Mapped, OsHost>| core.set_durable(core.next_sequence()))
}
