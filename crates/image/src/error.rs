//! Errors, each naming the object and the remedy.

use std::path::PathBuf;

use conquest_format::image::ImageDefect;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no image on the volume.
    #[error("{volume}: there is no core on this volume; name the one that the store was made with")]
    Missing {
        /// The volume.
        volume: PathBuf,
    },
    /// There is one already.
    #[error("{volume}: there is a core on this volume already; name another volume, or trim it")]
    Exists {
        /// The volume.
        volume: PathBuf,
    },
    /// It was written by another release.
    #[error("{volume}: the core on it has version {found}; this program knows {known}")]
    Version {
        /// The volume.
        volume: PathBuf,
        /// The image's version.
        found: u32,
        /// The one that is known.
        known: u32,
    },
    /// It is another core's.
    #[error(
        "{volume}: the core on this volume is {found}, not {expected}; name that store's volume"
    )]
    Other {
        /// The volume.
        volume: PathBuf,
        /// The region's UUID, as text.
        expected: String,
        /// The one of the image.
        found: String,
    },
    /// The volume lacks records that the region has taken for durable.
    #[error(
        "{volume}: it has the core's records up to {found}, but {expected} were made durable: it \
         is an older copy of the volume; name the right one, or restart from this one"
    )]
    Older {
        /// The volume.
        volume: PathBuf,
        /// Records that the region knows to be durable.
        expected: u64,
        /// Records that are there.
        found: u64,
    },
    /// The volume has records that the region has not made.
    #[error(
        "{volume}: it has the core's records up to {found}, but the core in RAM has made \
         {expected}: another one goes on with this volume; detach one of them"
    )]
    Newer {
        /// The volume.
        volume: PathBuf,
        /// Records that the region has made.
        expected: u64,
        /// Records that are there.
        found: u64,
    },
    /// The region was made again of the volume since.
    #[error(
        "{volume}: the core was brought back from this volume again since (incarnation {found}, \
         the one in RAM is {expected}): what it has not made durable is in RAM only; copy what you \
         need, and remove that core"
    )]
    Superseded {
        /// The volume.
        volume: PathBuf,
        /// The region's incarnation.
        expected: u64,
        /// The one that goes on.
        found: u64,
    },
    /// The region has no log.
    #[error("{volume}: the core that is to be on it has no log; make one that has")]
    NoLog {
        /// The volume.
        volume: PathBuf,
    },
    /// What stands there is damaged.
    #[error(
        "{volume}: {what} at block {block} is damaged ({defect:?}); restore a copy of the store"
    )]
    Corrupt {
        /// The volume.
        volume: PathBuf,
        /// What.
        what: &'static str,
        /// Its first block.
        block: u64,
        /// What is wrong with it.
        defect: ImageDefect,
    },
    /// The log has what can't be.
    #[error("{volume}: {count} changes in the log can't be made; restore a copy of the store")]
    Impossible {
        /// The volume.
        volume: PathBuf,
        /// How many.
        count: u64,
    },
    /// The volume.
    #[error(transparent)]
    Volume(#[from] conquest_flash::Error),
    /// The region.
    #[error(transparent)]
    Region(#[from] conquest_pm::Error),
}

/// Shorthand.
pub type Result<T> = core::result::Result<T, Error>;
