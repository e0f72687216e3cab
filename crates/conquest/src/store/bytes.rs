//! Writing a region byte by byte, while it is not one yet: what restoring does.
//!
//! A file, or a device, is a region once its superblocks are there. They are taken away first and
//! put there last, when everything else is durable.

use std::path::Path;

use conquest_format::{Geometry, Offset, PAGE};
use conquest_pm::media::{MapOptions, Mapped, Medium, Source};
use conquest_pm::memory::Memory;

use super::grow::no_room;
use super::place::CoreFile;
use crate::{Error, Result};

/// The superblocks' pages.
const FIRST: usize = 2 * PAGE as usize;

/// A region that is being written.
#[derive(Debug)]
pub(crate) struct Blank {
    memory: Mapped,
    /// The superblocks' pages.
    first: Vec<u8>,
}

impl Blank {
    /// Makes the file `temporary` of the core `file`, with space for `groups` groups; its
    /// permissions are `mode`.
    pub(crate) fn make(
        temporary: &Path,
        file: &CoreFile,
        mode: u32,
        geometry: &Geometry,
        (groups, chunks): (u64, u32),
    ) -> Result<Blank> {
        let medium = if file.is_device() {
            Medium::open(Source::from(temporary))?
        } else {
            Medium::create(Source::from(temporary), mode & 0o777)?
        };
        if file.is_device() && medium.len()? < geometry.len() {
            let (core, expected) = (temporary.to_owned(), geometry.len());
            return Err(Error::TooSmall { core, expected, found: medium.len()? });
        }
        let len = geometry.len_at(groups);
        let mut space = geometry.space(0, groups);
        space.extend(geometry.chunk_space(0, chunks));
        let wanted = space.iter().map(|range| range.end - range.start).sum();
        medium.back(&space, len).map_err(|error| no_room(error, temporary, wanted))?;
        let memory = Mapped::map(&medium, geometry.len(), &MapOptions::default())?;
        if file.is_device() {
            wipe(&memory, geometry);
        }
        Ok(Blank { memory, first: vec![0; FIRST] })
    }

    /// Stores `data` at `at`.
    pub(crate) fn put(&mut self, at: u64, data: &[u8]) {
        let held = FIRST.saturating_sub(at as usize).min(data.len());
        let (first, rest) = data.split_at(held);
        if let Some(place) = self.first.get_mut(at as usize..).and_then(|to| to.get_mut(..held)) {
            place.copy_from_slice(first);
        }
        if !rest.is_empty() {
            let at = Offset::new(at + held as u64);
            self.memory.put_bytes(at, rest);
            self.memory.write_back(at, rest.len() as u64);
        }
    }

    /// Reads the bytes from `at` on, which are behind the superblocks' pages.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        self.memory.read(Offset::new(at), out);
    }

    /// The superblocks' pages, which can be changed before they are put there.
    pub(crate) fn first(&mut self) -> &mut Vec<u8> {
        &mut self.first
    }

    /// Completes the region.
    pub(crate) fn finish(self) -> Result<()> {
        self.memory.fence();
        self.memory.put_bytes(Offset::NONE, &self.first);
        self.memory.write_back(Offset::NONE, self.first.len() as u64);
        self.memory.fence();
        match self.memory.failed() {
            None => Ok(()),
            Some(reason) => Err(Error::Core(conquest_pm::Error::Failed { reason })),
        }
    }
}

/// Takes away the region on the device `path`, before another one of `geometry` is made there.
pub(crate) fn wipe_device(path: &Path, geometry: &Geometry) -> Result<()> {
    let medium = Medium::open(Source::from(path))?;
    let memory = Mapped::map(&medium, geometry.len(), &MapOptions::default())?;
    wipe(&memory, geometry);
    match memory.failed() {
        None => Ok(()),
        Some(reason) => Err(Error::Core(conquest_pm::Error::Failed { reason })),
    }
}

/// Takes the superblocks away, and every volatile word: those of an earlier region could have tags
/// that the new one comes to.
fn wipe(memory: &Mapped, geometry: &Geometry) {
    let orphans = geometry.orphan(0).bytes()..geometry.volatile().start;
    for range in [0..FIRST as u64, orphans, geometry.volatile()] {
        memory.put_zeros(Offset::new(range.start), range.end - range.start);
        memory.write_back(Offset::new(range.start), range.end - range.start);
        memory.fence();
    }
}
