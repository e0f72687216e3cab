//! Making the region again, after a restart of the machine.

use std::path::Path;

use conquest_format::geometry::Geometry;
use conquest_format::image::{ROOT, Root};
use conquest_format::log::{Fragments, Item, Items};
use conquest_format::{Offset, PAGE};
use conquest_pm::attach::NewRegion;
use conquest_pm::host::Host;
use conquest_pm::log::{Copied, Origin, Replay};
use conquest_pm::memory::Memory;

use crate::{Error, Image, Result};

/// Bytes that are read from the image at once.
const AT_ONCE: u64 = 1 << 20;

/// What was restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Pages of the image that were put there.
    pub pages: u64,
    /// Records of the log.
    pub records: u64,
    /// Below which number all records are there.
    pub cut: u64,
}

/// What the log says besides the image.
#[derive(Default)]
pub(crate) struct Logged {
    /// Pages of which the log has the bytes, and no later epoch has written to the image.
    pub(crate) pages: Copied,
    pub(crate) fragments: Vec<u8>,
}

impl<M: Memory, H: Host> Image<M, H> {
    /// What the region is that the image is of.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn region(&self) -> Result<NewRegion> {
        let superblock = self.root()?.superblock;
        let (shape, kinds) = (superblock.shape, superblock.kinds);
        let (uuid, created) = (superblock.uuid, superblock.created);
        Ok(NewRegion { shape, kinds, uuid, created, groups: 1 })
    }

    /// Makes the region in `memory`, which is new: it is as it was when what is on the volume was
    /// sealed, and can be attached. Any other region that goes on with this volume is refused there
    /// from then on ([`Error::Superseded`]).
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Impossible`], those of the volume and of the host.
    pub fn restore<N: Memory, I: Host>(
        &self,
        memory: &N,
        host: &I,
        path: &Path,
    ) -> Result<Restored> {
        // Nobody else changes what is read from here on.
        let root = self.claim()?;
        let origin = Origin { first: root.cut, incarnation: root.incarnation };
        let mut replay = Replay::new(memory, host, path, &self.region()?, origin)?;
        let logged = self.logged(&root)?;
        let mut restored = Restored { cut: root.cut, ..Restored::default() };
        let mut refused = self.put_image(&mut replay, &root, &mut restored)?;
        for (at, page) in logged.pages.iter() {
            refused += u64::from(!replay.put_page(at, page)?);
        }
        let replayed = replay.replay(&logged.fragments)?;
        restored.records = replayed.records;
        refused += replayed.refused;
        if refused > 0 {
            return Err(Error::Impossible { volume: self.name(), count: refused });
        }
        replay.finish()?;
        Ok(restored)
    }

    /// Puts all pages of the image; how many can't be there.
    fn put_image<N: Memory, I: Host>(
        &self,
        replay: &mut Replay<'_, N, I>,
        root: &Root,
        restored: &mut Restored,
    ) -> Result<u64> {
        let len = Geometry::new(root.superblock.shape).map_or(0, |geometry| geometry.len());
        let end = (len / 512).min(ROOT);
        let mut refused = 0;
        let mut block = 0;
        while let Some((first, count)) = self.volume.allocated(block)?.filter(|it| it.0 < end) {
            let mut at = first / 8 * 8;
            block = first.saturating_add(count).min(end).next_multiple_of(8);
            while at < block {
                let mut bytes = vec![0; (AT_ONCE.min((block - at) * 512)) as usize];
                self.volume.read_once(at, &mut bytes)?;
                for (index, page) in (0..).zip(bytes.as_chunks::<{ PAGE as usize }>().0) {
                    let place = Offset::new(at * 512 + index * PAGE);
                    refused += u64::from(!replay.put_page(place, page)?);
                    restored.pages += 1;
                }
                at += bytes.len() as u64 / 512;
            }
        }
        Ok(refused)
    }

    /// What the log of `root` says.
    pub(crate) fn logged(&self, root: &Root) -> Result<Logged> {
        let mut logged = Logged::default();
        self.epochs(root, |_, epoch| {
            // A record that a checkpoint has repeated named its pages in an earlier epoch.
            let own = |number: &u64| *number >= epoch.header.from;
            for (_, _, fragment) in Fragments::of(epoch.fragments).filter(|it| own(&it.0)) {
                for item in Items::of(fragment) {
                    if let Item::Pages(first, count) = item {
                        // What this epoch has not in the log is in the image.
                        (0..count)
                            .for_each(|index| _ = logged.pages.remove(first.plus(index * PAGE)));
                    }
                }
            }
            for (at, page) in epoch.pages() {
                logged.pages.add(at, |bytes| *bytes = *page);
            }
            logged.fragments.extend(epoch.fragments);
            Ok(())
        })?;
        Ok(logged)
    }
}
