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

use conquest_pm::core::DurableMaker;
use conquest_pm::media::{Mapped, OsHost};
use conquest_pm::{Core, Region};

use super::keeper::{self, Program};
use super::mark;
use super::settings::VolumeAt;
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
    /// Milliseconds from [`Self::since`] on at which it was seen to that there is a keeper.
    looked: AtomicU64,
    since: Instant,
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
        let (looked, since) = (AtomicU64::new(0), Instant::now());
        Arc::new(Backing { directory, at, is_logged, keeper, opened, looked, since })
    }

    /// Whether the core is made durable on the volume.
    pub(crate) const fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Whether the store has a keeper.
    pub(crate) fn has_keeper(&self) -> bool {
        keeper::keeper_of(&self.directory).is_some()
    }

    /// Sees to it that there is a keeper.
    pub(crate) fn ensure_keeper(&self) {
        if !matches!(self.keeper, Program::None | Program::This) {
            // Without one, `info` says what that means.
            let (true | false) = keeper::ensure(&self.directory, &self.keeper);
        }
    }

    /// The volume, as the process that `core` is attached by has it.
    pub(crate) fn volume(&self, core: &Region) -> Result<Arc<Volume>> {
        self.opened(core).map(|opened| Arc::clone(opened.volume()))
    }

    /// The image, in the same way; none if the core has none.
    pub(crate) fn image(&self, core: &Region) -> Result<Option<Arc<Image>>> {
        Ok(match self.opened(core)? {
            Opened::Image(image) => Some(image),
            Opened::Plain(_) => None,
        })
    }

    /// Opens the volume, which has to fit `core`, or has an image, which is looked at when it is
    /// used.
    fn open(&self, core: &Region) -> Result<Opened> {
        if self.is_logged {
            return Ok(Opened::Image(Arc::new(volume::open_image(&self.directory, &self.at)?)));
        }
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
        let life = core.life().unwrap_or(u32::MAX);
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
            let opened = self.open(core)?;
            // What a parent has opened is the parent's.
            let _parents = ManuallyDrop::new(place.replace((life, opened.clone())));
            return Ok(opened);
        }
        let holder = "another thread, which opens its volume".to_owned();
        Err(Error::Busy { directory: self.directory.clone(), holder, waited: since.elapsed() })
    }

    /// Whether `core` can be made durable, and its large files be used.
    pub(crate) fn check(&self, core: &Region) -> Result<()> {
        self.image(core)?.map_or(Ok(()), |image| Ok(image.check(core)?))
    }

    /// Whether this process, `life` of a line of descent, has opened the volume.
    pub(crate) fn is_open(&self, life: Option<u32>) -> bool {
        let opened = self.opened.try_read();
        opened.is_ok_and(|place| place.as_ref().is_some_and(|(opener, _)| Some(*opener) == life))
    }

    /// Sees to it that there is a keeper, if nobody has for a second.
    fn keep_keeper(&self) {
        let now = self.since.elapsed().as_millis() as u64;
        let looked = self.looked.load(Ordering::Relaxed);
        let is_mine = now.saturating_sub(looked) >= LOOK
            && self
                .looked
                .compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_mine {
            self.ensure_keeper();
        }
    }

    /// Makes all that was committed on `core` durable.
    pub(crate) fn sync(&self, core: &Region) -> Result<()> {
        core.check_health()?;
        self.keep_keeper();
        if self.is_logged && core.durable() >= core.next_sequence() {
            return Ok(());
        }
        match self.opened(core)? {
            Opened::Image(image) => Ok(image.sync(core)?),
            Opened::Plain(volume) => Ok(volume.flush()?),
        }
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
        let volume = match opened {
            Opened::Image(image) => Arc::into_inner(image).map(Image::into_volume),
            Opened::Plain(volume) => Some(volume),
        };
        volume.and_then(Arc::into_inner).map_or(Ok(()), |volume| Ok(volume.close()?))
    }
}

/// What a core with a log is given that has no volume: nothing of it is ever durable.
pub(crate) fn forgetful() -> DurableMaker<Mapped, OsHost> {
    Box::new(|core: &Core<Mapped, OsHost>| core.set_durable(core.next_sequence()))
}
