//! Making a region again of its image and its log.
//!
//! The region is new: nobody has attached it, and all of its pages are zero. First pages of the
//! image are put there, in any order, then the log is replayed, then the region is finished, which
//! is when it can be attached. What stands in them is not trusted: what is put anywhere lies where
//! records can change something.
//!
//! Or the pages of the image are loaded when they are used, also by replaying. Then only those of
//! which the log has the bytes are put there, and only what is never loaded is given space: the
//! rest has it as it is loaded.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use conquest_format::geometry::{STATE, STATE_CHUNKS, STATE_GROUPS};
use conquest_format::journal::{Action, CHECKSUM, COMMIT, Commit, Entry};
use conquest_format::log::{Fragments, Item, Items};
use conquest_format::superblock::LOADING;
use conquest_format::volatile::holding::PER_CHUNK;
use conquest_format::{GROUP_PAGES, Geometry, LINE, Offset, PAGE, WORD};

use crate::attach::{NewRegion, checked_geometry, make_numbered};
use crate::host::Host;
use crate::log::{self, Origin};
use crate::memory::Memory;
use crate::{Error, Result};

/// A region that is made again.
pub struct Replay<'m, M, H> {
    memory: &'m M,
    host: &'m H,
    path: &'m Path,
    new: NewRegion,
    geometry: Geometry,
    /// The number of the first record to come.
    first: u64,
    /// Groups and chunks of holdings that have space.
    groups: u64,
    chunks: u64,
    /// Whether pages of the image are loaded when they are used.
    is_loading: bool,
}

/// What replaying has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Records.
    pub records: u64,
    /// Items that can't be: of a log that is damaged although its checksums are right.
    pub refused: u64,
}

impl<'m, M: Memory, H: Host> Replay<'m, M, H> {
    /// Begins with a region that is to be `new`, and whose log is to begin as `origin` says.
    ///
    /// # Errors
    /// [`Error::Shape`], and those of the host.
    pub fn new(
        memory: &'m M,
        host: &'m H,
        path: &'m Path,
        new: &NewRegion,
        origin: Origin,
    ) -> Result<Self> {
        let geometry = make_numbered(memory, host, path, new, origin)?;
        let groups = new.groups.clamp(1, new.shape.max_groups);
        let chunks = memory.load(STATE_CHUNKS, Ordering::Relaxed);
        let (new, first) = (new.clone(), origin.first);
        let is_loading = false;
        Ok(Replay { memory, host, path, new, geometry, first, groups, chunks, is_loading })
    }

    /// The same in a memory that loads what is used of the image.
    ///
    /// # Errors
    /// [`Error::Shape`], and those of the host.
    pub fn loading(
        memory: &'m M,
        host: &'m H,
        path: &'m Path,
        new: &NewRegion,
        origin: Origin,
    ) -> Result<Self> {
        let geometry = checked_geometry(path, new)?;
        let (new, first) = (new.clone(), origin.first);
        let (groups, chunks, is_loading) = (0, 0, true);
        let mut replay =
            Replay { memory, host, path, new, geometry, first, groups, chunks, is_loading };
        let shape = replay.geometry.shape();
        replay.grow(1)?;
        replay.add_chunks(shape.chunks.min(shape.slots).into())?;
        log::make(memory, &replay.geometry, origin);
        Ok(replay)
    }

    /// What of the ranges `space` is to have space now.
    fn now(&self, space: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let is_now = |range: &Range<u64>| !self.is_loading || !self.geometry.is_logged(range.start);
        space.into_iter().filter(is_now).collect()
    }

    /// Groups that the region has, as far as is known.
    #[must_use]
    pub const fn groups(&self) -> u64 {
        self.groups
    }

    /// The region's layout.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Gives the region so many groups, if it has fewer.
    fn grow(&mut self, groups: u64) -> Result<()> {
        if groups <= self.groups {
            return Ok(());
        }
        let space = self.now(self.geometry.space(self.groups, groups));
        self.host.back(&space, self.geometry.len_at(groups))?;
        self.groups = groups;
        Ok(())
    }

    /// Gives it so many chunks of holdings, if it has fewer.
    fn add_chunks(&mut self, chunks: u64) -> Result<()> {
        if chunks <= self.chunks {
            return Ok(());
        }
        let space = self.now(self.geometry.chunk_space(self.chunks as u32, chunks as u32));
        self.host.back(&space, self.geometry.len_at(self.groups))?;
        self.chunks = chunks;
        Ok(())
    }

    /// Sees to it that `len` bytes at `at` have space; whether they can be.
    fn make_room(&mut self, at: Offset, len: u64) -> Result<bool> {
        let Some(last) = at.bytes().checked_add(len.saturating_sub(1)) else {
            return Ok(false);
        };
        if !self.geometry.is_logged(at.bytes()) || !self.geometry.is_logged(last) {
            return Ok(false);
        }
        let shape = self.geometry.shape();
        let group_of = |table: u64, each: u64| last.checked_sub(table).map(|at| at / each);
        let heap = self.geometry.page(0).bytes();
        let bitmaps = self.geometry.bitmap(0).bytes();
        let descriptors = self.geometry.descriptor(0).bytes();
        let maps = self.geometry.slab_map(0).bytes();
        let orphans = self.geometry.orphan(0).bytes();
        let of_group = GROUP_PAGES * WORD;
        if last >= heap {
            let is_whole = at.bytes() >= heap;
            self.grow(group_of(heap, GROUP_PAGES * PAGE).map_or(0, |group| group + 1))?;
            return Ok(is_whole);
        }
        if last >= orphans {
            let chunk = group_of(orphans, PER_CHUNK * WORD).unwrap_or(0);
            if chunk >= u64::from(shape.chunks) {
                return Ok(false);
            }
            self.add_chunks(chunk + 1)?;
        } else if last >= bitmaps {
            let group = if last >= maps {
                group_of(maps, of_group)
            } else if last >= descriptors {
                group_of(descriptors, of_group)
            } else {
                group_of(bitmaps, LINE)
            };
            // What is behind a table up to the next page is nobody's.
            self.grow(group.map_or(0, |group| (group + 1).min(shape.max_groups)))?;
        }
        Ok(true)
    }

    /// Puts a page of the image to the region; whether there can be one at `at`.
    ///
    /// # Errors
    /// Those of the host.
    pub fn put_page(&mut self, at: Offset, page: &[u8; PAGE as usize]) -> Result<bool> {
        if !at.is_aligned(PAGE) || !self.geometry.is_logged(at.bytes()) {
            return Ok(false);
        }
        if at == STATE {
            let word = |of: Offset| {
                let start = (of.bytes() - STATE.bytes()) as usize;
                let word = page.get(start..).and_then(|rest| rest.first_chunk());
                word.map_or(0, |word| u64::from_le_bytes(*word))
            };
            let shape = self.geometry.shape();
            self.grow(word(STATE_GROUPS).min(shape.max_groups))?;
            self.add_chunks(word(STATE_CHUNKS).min(shape.chunks.into()))?;
        }
        // Of the tables a page may have parts of groups that there are not yet.
        let is_possible = at.bytes() < self.geometry.page(0).bytes() || self.make_room(at, PAGE)?;
        if is_possible {
            self.memory.put_bytes(at, page);
        }
        Ok(is_possible)
    }

    /// Replays the fragments of all records of the log, in whatever order they are.
    ///
    /// # Errors
    /// Those of the host.
    pub fn replay(&mut self, fragments: &[u8]) -> Result<Replayed> {
        let mut all = BTreeMap::new();
        // The record that names a page as a whole last.
        let mut named = BTreeMap::new();
        for (sequence, number, fragment) in Fragments::of(fragments) {
            all.insert((sequence, number), fragment);
            for item in Items::of(fragment) {
                if let Item::Pages(first, count) = item {
                    for page in (first.bytes() / PAGE..).take(count as usize) {
                        let last = named.entry(page).or_insert(sequence);
                        *last = sequence.max(*last);
                    }
                }
            }
        }
        let mut found = Replayed::default();
        let mut latest = None;
        for ((sequence, _), fragment) in all {
            found.records += u64::from(latest.replace(sequence) != Some(sequence));
            for item in Items::of(fragment) {
                // What an older record says of a page that was named since does not count.
                let counts =
                    |at: u64| named.get(&(at / PAGE)).is_none_or(|&named| sequence >= named);
                found.refused += u64::from(!self.apply(item, &counts)?);
            }
        }
        Ok(found)
    }

    /// Does what `item` says to pages of which it `counts`; whether that is possible.
    fn apply(&mut self, item: Item<'_>, counts: &dyn Fn(u64) -> bool) -> Result<bool> {
        match item {
            Item::Words(_) => {
                let mut is_possible = true;
                for entry in item.entries() {
                    is_possible &= self.apply_entry(entry, counts)?;
                }
                Ok(is_possible)
            }
            Item::Bytes(at, bytes) => {
                self.in_pages(at, bytes.len() as u64, counts, |memory, at, done, len| {
                    let part = bytes.get(done as usize..(done + len) as usize);
                    memory.put_bytes(at, part.unwrap_or_default());
                })
            }
            Item::Zeros(at, len) => {
                self.in_pages(at, len, counts, |memory, at, _, len| memory.put_zeros(at, len))
            }
            // They were in the image.
            Item::Pages(at, count) => self.make_room(at, count * PAGE),
        }
    }

    /// Calls `put` for each part of `len` bytes at `at` that is in one page, if that `counts`.
    fn in_pages(
        &mut self,
        at: Offset,
        len: u64,
        counts: &dyn Fn(u64) -> bool,
        put: impl Fn(&M, Offset, u64, u64),
    ) -> Result<bool> {
        if !self.make_room(at, len)? {
            return Ok(false);
        }
        let mut done = 0;
        while done < len {
            let place = at.plus(done);
            let now = (PAGE - place.bytes() % PAGE).min(len - done);
            if counts(place.bytes()) {
                put(self.memory, place, done, now);
            }
            done += now;
        }
        Ok(true)
    }

    fn apply_entry(&mut self, entry: Entry, counts: &dyn Fn(u64) -> bool) -> Result<bool> {
        let Entry { target, action, operand } = entry;
        if !self.make_room(target, WORD)? {
            return Ok(false);
        }
        if !counts(target.bytes()) {
            return Ok(true);
        }
        match action {
            Action::Set => self.memory.put(target, operand, Ordering::Relaxed),
            Action::Allocate => self.memory.put_or(target, operand),
            Action::Free => self.memory.put_and_not(target, operand),
            Action::Copy => return Ok(false),
        }
        Ok(true)
    }

    /// Finishes the region: it can be attached. How many groups it has, and chunks of holdings.
    ///
    /// # Errors
    /// Those of the host.
    pub fn finish(self) -> Result<(u64, u64)> {
        for lane in 0..self.geometry.shape().lanes {
            // No record is under way. (What is there is what was, when the page was copied.) None
            // of a lane ever had a larger number than the log had given: so what comes is new.
            let retired = Commit { sequence: self.first, ..Commit::default() };
            self.memory.put(
                self.geometry.lane(lane).plus(COMMIT),
                retired.pack(),
                Ordering::Relaxed,
            );
            self.memory.put(self.geometry.lane(lane).plus(CHECKSUM), 0, Ordering::Relaxed);
        }
        self.memory.put(STATE_GROUPS, self.groups, Ordering::Relaxed);
        self.memory.put(STATE_CHUNKS, self.chunks, Ordering::Relaxed);
        let features = if self.is_loading { LOADING } else { 0 };
        crate::attach::write_superblocks(self.memory, self.host, &self.new, features);
        match self.memory.failure() {
            Some(reason) => Err(Error::Failed { reason }),
            None => Ok((self.groups, self.chunks)),
        }
    }

    /// The file that the region is in, or what stands for it.
    #[must_use]
    pub const fn path(&self) -> &Path {
        self.path
    }
}
