//! Rescuing what a volume has, for when the core and the directory of its store are lost.
//!
//! What that is depends on what the core was kept on:
//!
//! | on the volume | the core was | what there is |
//! | --- | --- | --- |
//! | the image of a core | logged | all, as of the last epoch that is durable: a store (`store`) |
//! | a mark | on persistent memory or a battery | data of large files, by numbers (`files`) |
//!
//! Nothing is done to the volume but what opening it does; that of a store is from then on the
//! volume of the one that was made.

mod files;
mod store;
mod target;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conquest_flash::OpenOptions;
use conquest_format::image::{ROOT, ROOT_MAGIC};
use conquest_format::mark::{MARK, MARK_BYTES, MARK_MAGIC};

use crate::copy::Progress;
use crate::store::volume::{self, Volume};
use crate::{Error, Id, Result};

// Both are in the same place.
const _: () = assert!(MARK == ROOT);

/// How long to wait for others who have the volume open: a keeper that nobody needs leaves in that
/// time.
const PATIENCE: Duration = Duration::from_secs(3);
/// Sleep between two looks.
const NAP: Duration = Duration::from_millis(10);

/// How to rescue what a volume has.
pub struct RescueOptions<'p> {
    /// Where the volume's index is while it is open: a directory in memory.
    pub index: PathBuf,
    /// Goes without members of a mirror that are not named. They have failed from then on. A store
    /// needs all of them.
    pub degraded: bool,
    /// Told of how far the work has come, of large files: at most as many bytes as the volume has.
    pub progress: Option<Progress<'p>>,
}

impl Default for RescueOptions<'_> {
    /// With the index in `/dev/shm`, of all members.
    fn default() -> Self {
        RescueOptions { index: volume::INDEX.into(), degraded: false, progress: None }
    }
}

impl fmt::Debug for RescueOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RescueOptions")
            .field("index", &self.index)
            .field("degraded", &self.degraded)
            .finish_non_exhaustive()
    }
}

/// What was rescued.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rescued {
    /// A store, which has the volume from now on.
    Store {
        /// Its directory.
        directory: PathBuf,
        /// Its identity: a new one.
        store: Id,
        /// Its core.
        core: PathBuf,
    },
    /// The data of large files.
    Files {
        /// The directory that they are in.
        directory: PathBuf,
        /// They, in the order of their chunks.
        files: Vec<LargeFile>,
        /// Numbers of the chunks of the volume's space that have something, and no label that says
        /// whose it is: that is on the volume still, and nowhere else.
        unlabelled: Vec<u64>,
    },
}

impl Rescued {
    /// Whether nothing is known to be missing of what the volume had.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match self {
            Rescued::Store { .. } => true,
            Rescued::Files { files, unlabelled, .. } => {
                unlabelled.is_empty() && files.iter().all(|file| file.lost == 0)
            }
        }
    }
}

/// A large file that was rescued.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LargeFile {
    /// Where it is now. It is called by its inode number, with that of its chunk behind that if
    /// several chunks say that they have the data of this inode.
    pub path: PathBuf,
    /// Number of its inode.
    pub inode: u64,
    /// Generation of that.
    pub generation: u64,
    /// Number of the chunk that it was in.
    pub chunk: u64,
    /// Its bytes: as many as its label says, or up to the end of the last page before the chunk's
    /// end that has anything behind that. So nothing is missing if it grew since the label was
    /// written, and what was cut off it last may be there still.
    pub bytes: u64,
    /// Those of them that could not be read: zeros are in their place.
    pub lost: u64,
}

/// Rescues what the volume on `devices` has to the directory `to`, which is made, or is empty: the
/// store that it was the volume of, if its core was logged; otherwise the data of large files.
///
/// # Errors
/// [`Error::NotEmptyDirectory`]; those of opening the volume; [`Error::VolumeOpen`] while others
/// have it open; [`Error::NothingToRescue`] if it never had a core, or if what says which one can't
/// be understood; those of bringing a core back; [`Error::Cancelled`]; what the system refuses.
/// What was made is removed again, whatever it is.
pub fn rescue(devices: &[PathBuf], to: &Path, options: RescueOptions<'_>) -> Result<Rescued> {
    target::check(to)?;
    let opening = OpenOptions {
        directory: options.index.clone(),
        processes: volume::PROCESSES,
        degraded: options.degraded,
        ..OpenOptions::default()
    };
    let opened = Arc::new(Volume::open(devices, &opening)?);
    let rescued = rescue_from(&opened, devices, to, options);
    // What was rescued is there, and what was not is to be told: not that the volume's memory may
    // have stayed.
    let _closed = Arc::into_inner(opened).map(Volume::close);
    rescued
}

fn rescue_from(
    volume: &Arc<Volume>,
    devices: &[PathBuf],
    to: &Path,
    options: RescueOptions<'_>,
) -> Result<Rescued> {
    refuse_shared(volume)?;
    let mut bytes = [0; MARK_BYTES];
    volume.read(MARK, &mut bytes)?;
    match bytes.first_chunk() {
        Some(&ROOT_MAGIC) => store::rescue(volume, devices, &options.index, to),
        Some(&MARK_MAGIC) => files::rescue(volume, &bytes, to, options.progress),
        _ => nothing(
            volume,
            "it has neither the image of a core nor the mark of one, so no store has had it; name \
             the devices of a store's volume, as its `store.toml` had them",
        ),
    }
}

/// Refuses a volume that others have open, unless they leave soon.
fn refuse_shared(volume: &Volume) -> Result<()> {
    let since = Instant::now();
    while volume.is_anyone_else_here()? {
        if since.elapsed() > PATIENCE {
            return Err(Error::VolumeOpen { device: volume.name() });
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}

/// The error that nothing can be rescued, and why.
fn nothing<T>(volume: &Volume, why: &'static str) -> Result<T> {
    Err(Error::NothingToRescue { device: volume.name(), why })
}
