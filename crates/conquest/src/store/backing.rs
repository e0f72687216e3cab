//! What makes an attached store durable: its core's image, on its volume; or, if the core's records
//! are durable at once, just that volume, for what large files have there.
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
use super::mark;
use super::settings::VolumeAt;
use super::sync_mode::SyncMode;
use super::volume::{self, Image, Volume};
use crate::{Error, Result};

/// Pauses between looks whether another thread has opened the volume.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest wait for that.
const PATIENCE: Duration = Duration::from_secs(20);
/// Milliseconds between looks whether there is a keeper.
const LOOK: u64 = 1000;

/// A volume that was opened.
#[derive(Clone)]
enum Opened {
    /// With the image of a core.
    Image(Arc<Image>),
    /// Without one.
    Plain(Arc<Volume>),
}

impl Opened {
    fn volume(&self) -> &Arc<Volume> {
        match self {
            Opened::Image(image) => image.volume(),
            Opened::Plain(volume) => volume,
        }
    }

    fn image(self) -> Option<Arc<Image>> {
        match self {
            Opened::Image(image) => Some(image),
            Opened::Plain(_) => None,
        }
    }
}

/// What a store's core has on its volume.
pub(crate) struct Backing {
    directory: PathBuf,
    at: VolumeAt,
    /// Whether that is the core's image.
    is_logged: bool,
    /// Which program is to keep the store.
    keeper: Program,
    /// The volume, and which process of a line of descent has opened it.
    opened: RwLock<Option<(u32, Opened)>>,
    /// When it was seen to that there is a keeper, as [`coarse_now`].
    looked: AtomicU64,
}

impl std::fmt::Debug for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backing").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Backing {
    /// That of the store in `directory`, whose volume is `at`, with the core's image if that
    /// `is_logged`, and whose keeper is to be `keeper`.
    pub(crate) fn new(
        directory: &Path,
        at: VolumeAt,
        is_logged: bool,
        keeper: Program,
    ) -> Arc<Backing> {
        let (directory, opened) = (directory.to_owned(), RwLock::new(None));
        let looked = AtomicU64::new(coarse_now());
        Arc::new(Backing { directory, at, is_logged, keeper, opened, looked })
    }

    /// Whether the core is made durable on the volume.
    pub(crate) const fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Whether each operation waits until what it has done is durable.
    pub(crate) fn is_synchronous(&self) -> bool {
        self.at.sync == SyncMode::Always
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
            *place = Some((0, Opened::Image(image)));
        }
    }

    /// The volume, as the process that `core` is attached by has it.
    pub(crate) fn volume(&self, core: &Region) -> Result<Arc<Volume>> {
        self.opened(core).map(|opened| Arc::clone(opened.volume()))
    }

    /// The image, in the same way; none if the core has none.
    pub(crate) fn image(&self, core: &Region) -> Result<Option<Arc<Image>>> {
        self.opened(core).map(Opened::image)
    }

    /// The image that the process has open.
    pub(crate) fn present(&self) -> Result<Arc<Image>> {
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            match self.opened.try_read().as_deref() {
                Ok(Some((_, opened))) => return self.expect_image(opened.clone()),
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
        self.expect_image(self.opened_by(life, || self.open_image())?)
    }

    fn expect_image(&self, opened: Opened) -> Result<Arc<Image>> {
        let what = "its volume has no image of its core";
        opened.image().ok_or_else(|| Error::VolumeRule { directory: self.directory.clone(), what })
    }

    fn open_image(&self) -> Result<Opened> {
        Ok(Opened::Image(Arc::new(volume::open_image(&self.directory, &self.at)?)))
    }

    /// Opens the volume of a core without an image there: it has to fit `core`.
    fn open_plain(&self, core: &Region) -> Result<Opened> {
        let volume = volume::open(&self.directory, &self.at)?;
        match mark::agree(&self.directory, &volume, core) {
            Ok(()) => Ok(Opened::Plain(Arc::new(volume))),
            Err(error) => {
                // Or what it has in memory stayed. The error to report is the first one.
                let _closed = volume.close();
                Err(error)
            }
        }
    }

    fn opened(&self, core: &Region) -> Result<Opened> {
        let opened = self.opened_by(core.life().unwrap_or(u32::MAX), || match self.is_logged {
            true => self.open_image(),
            false => self.open_plain(core),
        });
        opened.inspect_err(|error| fits::tell(core, error))
    }

    /// What process number `life` of a line of descent has open: what `open` opens, if it has not.
    fn opened_by(&self, life: u32, open: impl Fn() -> Result<Opened>) -> Result<Opened> {
        let since = Instant::now();
        // Never waiting for a lock: in a forked child it may be held by nobody.
        while since.elapsed() < PATIENCE {
            match self.opened.try_read().as_deref() {
                Ok(Some((opener, opened))) if *opener == life => return Ok(opened.clone()),
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
            let opened = open()?;
            // What a parent has opened is the parent's.
            let _parents = ManuallyDrop::new(place.replace((life, opened.clone())));
            return Ok(opened);
        }
        let holder = "another thread, which opens its volume".to_owned();
        Err(Error::Busy { directory: self.directory.clone(), holder, waited: since.elapsed() })
    }

    /// Whether `core` can be made durable, and its large files be used.
    pub(crate) fn check(&self, core: &Region) -> Result<()> {
        let image = self.image(core);
        let checked = image.and_then(|image| image.map_or(Ok(()), |image| Ok(image.check(core)?)));
        match &checked {
            Ok(()) => core.refuse(None),
            Err(error) => fits::tell(core, error),
        }
        checked
    }

    /// Whether this process, `life` of a line of descent, has opened the volume.
    pub(crate) fn is_open(&self, life: Option<u32>) -> bool {
        let opened = self.opened.try_read();
        opened.is_ok_and(|place| place.as_ref().is_some_and(|(opener, _)| Some(*opener) == life))
    }

    /// What is done after each operation: it is seen to that somebody makes it durable before long.
    pub(crate) fn after_each(self: &Arc<Backing>) -> Option<AfterEach<Mapped, OsHost>> {
        let backing = Arc::clone(self);
        self.wants_keeper().then(|| -> AfterEach<Mapped, OsHost> {
            Box::new(move |_| {
                backing.keep_keeper();
                Ok(())
            })
        })
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
        if self.is_logged && core.durable() >= core.next_sequence() {
            return Ok(());
        }
        let synced = self.opened(core).and_then(|opened| match opened {
            Opened::Image(image) => Ok(image.sync(core)?),
            Opened::Plain(volume) => Ok(volume.flush()?),
        });
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
        let Some((opener, opened)) = opened else {
            return Ok(());
        };
        if Some(opener) != life {
            let _parents = ManuallyDrop::new(opened);
            return Ok(());
        }
        match opened {
            Opened::Image(image) => volume::close_image(image),
            Opened::Plain(volume) => {
                Arc::into_inner(volume).map_or(Ok(()), |volume| Ok(volume.close()?))
            }
        }
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
