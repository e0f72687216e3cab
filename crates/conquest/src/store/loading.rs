//! Loading a core that was brought back of its volume while it is used.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conquest_format::descriptor::Descriptor;
use conquest_format::fs::{DATA, PACKED_SIZES, packed};
use conquest_format::kind::Kind;
use conquest_format::superblock::{LOADING, Superblock};
use conquest_format::{GROUP, GROUP_PAGES, Offset};
use conquest_pm::Region;
use conquest_pm::media::{Fill, FillError};
use conquest_pm::memory::Memory;

use super::backing::Backing;
use crate::Result;

/// Threads that load what nobody waits for: while one of them has its pages put in place, the
/// device works for the others.
const THREADS: usize = 4;

/// Whether the region with this `superblock` may have pages that are not resident.
pub(crate) const fn may_lack(superblock: &Superblock) -> bool {
    superblock.features_incompatible & LOADING != 0
}

/// A store's volume, as what its core is loaded from: the process has it open.
#[derive(Debug)]
pub(crate) struct OfVolume(pub(crate) Arc<Backing>);

impl Fill for OfVolume {
    fn fill(
        &self,
        incarnation: u64,
        at: Offset,
        out: &mut [u8],
    ) -> core::result::Result<(), FillError> {
        self.0.present()?.fill(incarnation, at, out)
    }

    fn reopen(&self, life: u32) -> core::result::Result<(), FillError> {
        Ok(self.0.image_of(life).map(drop)?)
    }
}

/// Nothing, for who has no use for what is not resident.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Fill for Nothing {
    fn fill(&self, _: u64, _: Offset, _: &mut [u8]) -> core::result::Result<(), FillError> {
        Err("nothing is loaded while somebody holds the core".into())
    }
}

/// Loads all that is not resident of an attached core, first what others have the most use for;
/// whether that is done, and not stopped by `stop`.
pub(crate) fn load_behind(core: &Region, stop: &AtomicBool) -> Result<bool> {
    let memory = core.memory();
    if memory.progress().is_none() {
        return Ok(true);
    }
    let first = core.geometry().page(0).bytes() / GROUP;
    // The tables say what is where in the heap.
    let (heap, tables): (Vec<u64>, Vec<u64>) =
        memory.groups_to_load().into_iter().partition(|group| *group >= first);
    memory.load_groups(&tables, THREADS, stop)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(false);
    }
    let metadata = metadata(core);
    let (now, later): (Vec<u64>, Vec<u64>) =
        heap.into_iter().partition(|group| metadata.contains(group));
    memory.load_groups(&[now, later].concat(), THREADS, stop)?;
    Ok(memory.complete_loading())
}

/// Whether pages of this kind hold nothing but bytes of files, or extended attributes.
fn is_content(kind: Kind) -> bool {
    kind == DATA || (0..PACKED_SIZES.len()).any(|class| packed(class) == Some(kind))
}

/// The groups, counted from the region's start, that have anything but contents of files.
fn metadata(core: &Region) -> BTreeSet<u64> {
    let geometry = core.geometry();
    let has_metadata = |group: &u64| {
        (group * GROUP_PAGES..(group + 1) * GROUP_PAGES).any(|page| {
            let word = core.memory().load(geometry.descriptor(page), Ordering::Relaxed);
            // What is not allocated may say anything: then it is loaded early for nothing.
            let found = Descriptor::unpack(word, page);
            found.is_some_and(|found| !is_content(found.kind()))
        })
    };
    let first = geometry.page(0).bytes() / GROUP;
    (0..core.groups()).filter(has_metadata).map(|group| group + first).collect()
}
