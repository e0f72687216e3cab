//! Making the region again while most of it is still on the volume: its pages are loaded when they
//! are used, and behind everybody's back.
//!
//! A page that is not resident is on the volume as it was when the region was made again: an epoch
//! and a checkpoint write pages that records name or change, which are resident, as they have been
//! stored to. Those that the log changes are made resident before anybody can attach. So what is
//! read of the image for a page that is not resident is right whenever it is read, unless the
//! region was made again since: the root says that, and is read behind the page.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use conquest_format::geometry::{Geometry, STATE};
use conquest_format::log::{Fragments, Item, Items};
use conquest_format::{Offset, PAGE};
use conquest_pm::host::Host;
use conquest_pm::log::{Origin, Replay};
use conquest_pm::media::{Fill, FillError, Mapped};
use conquest_pm::memory::Memory;

use crate::restore::{Logged, Restored};
use crate::{Error, Image, Result};

/// Bytes of a block.
const BLOCK: u64 = 512;
/// Threads that read pages which lie anywhere: devices are fast if they have much to do.
const THREADS: usize = 16;

impl<M: Memory, H: Host> Image<M, H> {
    /// Makes the region in `memory`, which is new and has a residency table, and can load what it
    /// lacks from this image: it can be attached, and goes on as if it had been restored as a
    /// whole. Any other region that goes on with this volume is refused from then on.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub fn restore_behind<I: Host>(
        &self,
        memory: &Mapped,
        host: &I,
        path: &Path,
    ) -> Result<Restored> {
        // Nobody else changes what is read from here on.
        let root = self.claim()?;
        let origin = Origin { first: root.cut, incarnation: root.incarnation };
        memory.begin_loading(root.incarnation);
        let mut replay = Replay::loading(memory, host, path, &self.region()?, origin)?;
        let logged = self.logged(&root)?;
        memory.load_pages(&needed(&logged, replay.geometry()), THREADS)?;
        let mut refused = 0;
        for (at, page) in logged.pages.iter() {
            refused += u64::from(!replay.put_page(at, page)?);
        }
        // It says how many groups there are, but for those that records of the log name: nothing
        // comes to the image that the log has not named since the state was written there.
        let mut state = Box::new([0; PAGE as usize]);
        memory.read(STATE, &mut *state);
        refused += u64::from(!replay.put_page(STATE, &state)?);
        let replayed = replay.replay(&logged.fragments)?;
        refused += replayed.refused;
        if refused > 0 {
            return Err(Error::Impossible { volume: self.name(), count: refused });
        }
        let (groups, chunks) = replay.finish()?;
        memory.made_anew(groups, chunks);
        Ok(Restored { pages: 0, records: replayed.records, cut: root.cut })
    }
}

/// The pages that the log has or changes, and those that are stored to when a region is finished
/// and attached.
fn needed(logged: &Logged, geometry: &Geometry) -> BTreeSet<Offset> {
    let mut pages: BTreeSet<Offset> = logged.pages.places().collect();
    pages.insert(STATE);
    pages.extend((0..geometry.shape().lanes).map(|lane| geometry.lane(lane)));
    for (_, _, fragment) in Fragments::of(&logged.fragments) {
        pages.extend(Items::of(fragment).flat_map(Item::changed_pages));
    }
    // What can't be there is refused when it is replayed.
    pages.retain(|at| geometry.is_logged(at.bytes()));
    pages
}

impl<M: Memory, H: Host> Fill for Image<M, H> {
    fn fill(
        &self,
        incarnation: u64,
        at: Offset,
        out: &mut [u8],
    ) -> core::result::Result<(), FillError> {
        self.volume.read_once(at.bytes() / BLOCK, out)?;
        // Behind what was read: so nobody had begun to change that.
        let found = self.root()?.incarnation;
        if found == incarnation {
            return Ok(());
        }
        let (volume, expected) = (self.name(), incarnation);
        Err(Error::Superseded { volume, expected, found }.into())
    }
}

impl<M: Memory, H: Host> fmt::Debug for Image<M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("volume", &self.name()).finish()
    }
}
