//! A core in ordinary RAM that outlives the power: its image and its log on a volume.
//!
//! The region is one with a log (`conquest_pm::log`), which says what its records have come to
//! below a cut; the volume (`conquest_flash`) writes many ranges at once. An *epoch* is one such
//! write: records, pages, and the root that counts them. So what is on the volume is always a
//! state that the region was in, and a restart takes the image, and the log on top of it
//! (`docs/HYBRID.md`).
//!
//! Any process may write an epoch, at any time ([`Image::sync`]): the root is written only if it is
//! still the one that was read, so of several one counts, and one who was stopped changes nothing
//! when he goes on. Nobody waits for one who is stopped for longer than
//! [`conquest_pm::log::PATIENCE`].

#![forbid(unsafe_code)]

mod behind;
mod checkpoint;
mod epoch;
mod error;
mod pages;
mod restore;
mod root;
mod sync;

pub use error::{Error, Result};
pub use restore::Restored;

use std::sync::Arc;

use conquest_flash::Volume;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use pages::Kept;

/// The image of a core on a volume.
pub struct Image<M: Memory, H: Host> {
    volume: Arc<Volume<M, H>>,
    /// Memory for pages of epochs.
    kept: Kept,
}

impl<M: Memory, H: Host> Image<M, H> {
    /// What is on `volume`, whatever that is.
    fn on(volume: Arc<Volume<M, H>>) -> Image<M, H> {
        Image { volume, kept: Kept::default() }
    }

    /// The volume.
    #[must_use]
    pub const fn volume(&self) -> &Arc<Volume<M, H>> {
        &self.volume
    }

    /// The volume, for who needs the image no more.
    #[must_use]
    pub fn into_volume(self) -> Arc<Volume<M, H>> {
        self.volume
    }
}
