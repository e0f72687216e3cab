//! The root on the volume, and whether it is the region's.

use core::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use conquest_flash::{Seen, Volume};
use conquest_format::image::{IMAGE_VERSION, ImageDefect, ROOT, ROOT_BYTES, Root};
use conquest_format::log::{CHUNK, CHUNKS_MAX, FIRST, FRAGMENT};
use conquest_format::superblock::{LIVE_PROTOCOL, LOGGED, Superblock};
use conquest_pm::Core;
use conquest_pm::attach::NewRegion;
use conquest_pm::host::Host;
use conquest_pm::log::Stands;
use conquest_pm::memory::Memory;

use crate::{Error, Image, Result};

/// More numbers than records can have had that were not durable: the log holds that many bytes at
/// most, and a record takes some of them. Nothing that was called by such a number (a file, by the
/// record that made it) is ever called so again.
pub(crate) const LOST_MOST: u64 = CHUNKS_MAX as u64 * CHUNK / FRAGMENT;

/// A UUID as text.
fn text(uuid: [u8; 16]) -> String {
    uuid.iter().fold(String::new(), |mut text, byte| {
        // A string takes everything.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl<M: Memory, H: Host> Image<M, H> {
    /// Makes an image of a region that is to be `new` and has no record yet.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoLog`], those of the volume.
    pub fn make(volume: Arc<Volume<M, H>>, new: &NewRegion) -> Result<Image<M, H>> {
        Image::make_of(volume, new, FIRST)
    }

    /// Makes an image of a region that is to be `new`, and whose pages are on the volume already,
    /// each at its place: they are as the records below `cut` have left them, and are flushed
    /// before the image is there.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn make_of(volume: Arc<Volume<M, H>>, new: &NewRegion, cut: u64) -> Result<Image<M, H>> {
        let image = Image::on(volume);
        if new.shape.log == 0 {
            return Err(Error::NoLog { volume: image.name() });
        }
        let (found, seen) = match image.look() {
            Err(Error::Missing { .. }) => (None, image.see(&mut [0; ROOT_BYTES])?),
            found => found.map(|(root, seen)| (Some(root), seen))?,
        };
        if found.is_some() {
            return Err(Error::Exists { volume: image.name() });
        }
        let superblock = Superblock {
            uuid: new.uuid,
            boot_id: [0; 16],
            created: new.created,
            sequence: 1,
            attach_generation: 0,
            clean: true,
            shape: new.shape,
            kinds: new.kinds,
            live_protocol: LIVE_PROTOCOL,
            features_compatible: 0,
            features_read_only: 0,
            features_incompatible: LOGGED,
        };
        let first = Root {
            epoch: 0,
            cut,
            log_start: 0,
            log_end: 0,
            checkpoint: cut,
            incarnation: 0,
            superblock,
        };
        image.volume.flush()?;
        if !image.volume.write_atomic_if(&seen, &[(ROOT, &first.to_bytes())])? {
            return Err(Error::Exists { volume: image.name() });
        }
        image.volume.flush()?;
        Ok(image)
    }

    /// The image on `volume`.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Version`], [`Error::Corrupt`], those of the volume.
    pub fn find(volume: Arc<Volume<M, H>>) -> Result<Image<M, H>> {
        let image = Image::on(volume);
        image.look()?;
        Ok(image)
    }

    /// The root that counts.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn root(&self) -> Result<Root> {
        self.look().map(|(root, _)| root)
    }

    pub(crate) fn name(&self) -> PathBuf {
        self.volume.name()
    }

    /// Whether what is on the volume is the core's: only then it can be made durable there.
    ///
    /// # Errors
    /// [`Error::Other`], [`Error::Superseded`], [`Error::Older`], [`Error::Newer`], those of
    /// [`Self::find`].
    pub fn check<N: Memory, I: Host>(&self, core: &Core<N, I>) -> Result<()> {
        self.look_for(core).map(drop)
    }

    /// Makes whoever goes on from here the only one who does: the root with the next incarnation,
    /// and with numbers that no record has had which is lost.
    pub(crate) fn claim(&self) -> Result<Root> {
        loop {
            let (root, seen) = self.look()?;
            let (incarnation, cut) = (root.incarnation + 1, root.cut + LOST_MOST);
            let next = Root { incarnation, cut, ..root };
            if self.volume.write_atomic_if(&seen, &[(ROOT, &next.to_bytes())])? {
                self.volume.flush()?;
                return Ok(next);
            }
        }
    }

    fn see(&self, bytes: &mut [u8; ROOT_BYTES]) -> Result<Seen> {
        Ok(self.volume.look_at(ROOT, bytes)?)
    }

    /// The root, and where it is: what is written on that condition follows it.
    pub(crate) fn look(&self) -> Result<(Root, Seen)> {
        let mut bytes = [0; ROOT_BYTES];
        let seen = self.see(&mut bytes)?;
        let root = Root::from_bytes(&bytes).map_err(|defect| match defect {
            ImageDefect::Magic if bytes == [0; ROOT_BYTES] => {
                Error::Missing { volume: self.name() }
            }
            ImageDefect::Version(found) => {
                Error::Version { volume: self.name(), found, known: IMAGE_VERSION }
            }
            defect => {
                Error::Corrupt { volume: self.name(), what: "the core's root", block: ROOT, defect }
            }
        })?;
        Ok((root, seen))
    }

    /// The same, if it is one that `core` can go on from.
    pub(crate) fn look_for<N: Memory, I: Host>(&self, core: &Core<N, I>) -> Result<(Root, Seen)> {
        // In this order: what is on the volume is never behind what is said to be durable.
        let durable = core.durable();
        let (root, seen) = self.look()?;
        let (incarnation, next) = (core.incarnation(), core.next_sequence());
        self.fits(&root, core.uuid()?, Stands { incarnation, durable, next })?;
        Ok((root, seen))
    }

    /// Whether what is on the volume is of the region `uuid`, whose records are so far.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_region(&self, uuid: [u8; 16], stands: Stands) -> Result<()> {
        self.fits(&self.root()?, uuid, stands)
    }

    fn fits(&self, root: &Root, uuid: [u8; 16], stands: Stands) -> Result<()> {
        let Stands { incarnation, durable, next } = stands;
        let (expected, found) = (uuid, root.superblock.uuid);
        if expected != found {
            let (expected, found) = (text(expected), text(found));
            return Err(Error::Other { volume: self.name(), expected, found });
        }
        let (expected, found) = (incarnation, root.incarnation);
        if expected != found {
            return Err(Error::Superseded { volume: self.name(), expected, found });
        }
        let found = root.cut;
        if found < durable {
            return Err(Error::Older { volume: self.name(), expected: durable, found });
        }
        if found > next {
            return Err(Error::Newer { volume: self.name(), expected: next, found });
        }
        Ok(())
    }
}
