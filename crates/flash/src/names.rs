//! The units of the space by which a segment's units are known, or were: what cleaning looks at.
//!
//! Each record that leads to units of a segment leaves an entry in its names: from which unit of
//! the space, to which unit of the segment, how many. Nothing is taken out when that ends; who
//! reads them asks the map whether it is still so.

use conquest_format::{Offset, WORD};
use conquest_pm::Ptr;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::change::{Change, Step};
use crate::index::{Of, Words};
use crate::kinds::{self, Names};
use crate::map::{Cursor, Extent};
use crate::volume::Volume;

/// Entries of one object: behind the word that leads to the next one.
const PER_OBJECT: u64 = (kinds::NAMES / WORD - 1) / 2;
/// Objects that are made by one record: it may take a new slab for each.
const AT_ONCE: usize = 16;
const LEN_SHIFT: u32 = 32;

const fn entry_at(object: Offset, index: u64) -> Offset {
    object.plus(WORD + index * 2 * WORD)
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Adds the entry for `extent`.
    pub(crate) fn add_name(&mut self, extent: Extent) -> Result<()> {
        let segment = self.volume.layout.segment_of(extent.place);
        let count = self.tx.segment(segment, Of::NamesCount);
        self.put_name(extent, count)?;
        let count_at = self.tx.segment_at(segment, Of::NamesCount);
        self.tx.set(count_at, count + 1)?;
        Ok(())
    }

    /// Puts the entry for `extent` behind the first `count` ones, where nobody looks until it is
    /// counted.
    pub(crate) fn put_name(&mut self, extent: Extent, count: u64) -> Result<()> {
        let layout = self.volume.layout;
        let at = self.tx.segment_at(layout.segment_of(extent.place), Of::Names);
        let head = self.tx.word(at);
        let within = (extent.place % layout.segment) | extent.len << LEN_SHIFT;
        if count.is_multiple_of(PER_OBJECT) {
            let fresh = self.tx.alloc::<Names>()?;
            for (index, word) in (0..).zip([head, extent.unit, within]) {
                self.tx.fill_word(&fresh, index, word)?;
            }
            let object = self.tx.seal(fresh);
            self.tx.set(at, object.word())?;
        } else {
            // It may be of this very transaction, so that it can't be resolved.
            let object = Ptr::<Names>::from_word(head, at)?;
            let entry = entry_at(object.offset(), count % PER_OBJECT);
            self.tx.set(entry, extent.unit)?;
            self.tx.set(entry.plus(WORD), within)?;
        }
        Ok(())
    }

    /// Gives `segment`, which has none, the entries for `extents`.
    pub(crate) fn fill_names(&mut self, segment: u64, extents: &[Extent]) -> Result<()> {
        let mut head = 0;
        // All objects but the newest one are full, so that one is the last.
        for (index, some) in extents.chunks(PER_OBJECT as usize).enumerate() {
            if index % AT_ONCE == AT_ONCE - 1 {
                self.part()?;
            }
            let fresh = self.tx.alloc::<Names>()?;
            self.tx.fill_word(&fresh, 0, head)?;
            for (index, extent) in (0..).zip(some) {
                let within = (extent.place % self.volume.layout.segment) | extent.len << LEN_SHIFT;
                self.tx.fill_word(&fresh, 1 + index * 2, extent.unit)?;
                self.tx.fill_word(&fresh, 2 + index * 2, within)?;
            }
            head = self.tx.seal(fresh).word();
        }
        let words = [(Of::Names, head), (Of::NamesCount, extents.len() as u64)];
        for (of, value) in words {
            self.tx.set(self.tx.segment_at(segment, of), value)?;
        }
        Ok(())
    }

    /// Sees to it that `segment` has no more entries than a few for each of its units, whatever is
    /// moved to and fro: those that say what is not so any more go.
    pub(crate) fn compact_names(&mut self, segment: u64) -> Step<()> {
        let most = 2 * (self.volume.layout.segment + PER_OBJECT);
        if self.tx.segment(segment, Of::NamesCount) < most {
            return Ok(());
        }
        // The newest entries may be in an object of this very transaction, which nobody can read.
        self.part()?;
        let at = self.tx.segment_at(segment, Of::Names);
        let mut old = self.tx.word(at);
        let live = self.live_extents(segment)?;
        self.fill_names(segment, &live)?;
        self.part()?;
        // Who dies here leaves the old ones to nobody: until the index is made again.
        while old != 0 {
            let object = Ptr::<Names>::from_word(old, at)?;
            old = self.tx.word(self.volume.core.resolve(object)?.offset());
            self.tx.free(object)?;
            self.part()?;
        }
        Ok(())
    }

    /// What the map leads to in `segment`, in the order of the space.
    pub(crate) fn live_extents(&mut self, segment: u64) -> Step<Vec<Extent>> {
        let map = self.volume.map;
        let mut names = self.volume.names(&self.tx, segment)?;
        names.sort_unstable_by_key(|name| name.unit);
        let (mut live, mut cursor) = (Vec::with_capacity(names.len()), Cursor::new());
        for name in names {
            let (mut at, end) = (name.unit, name.end());
            while let Some(extent) = map.find_next(&mut cursor, &self.tx, at)? {
                let Some(extent) = extent.within(at, end) else {
                    break;
                };
                if extent.place == name.place + (extent.unit - name.unit) {
                    live.push(extent);
                }
                at = extent.end();
            }
        }
        self.volume.left_of(&self.tx, &mut live);
        // Entries may overlap, where the same was written to the same place.
        live.sort_unstable_by_key(|extent| (extent.unit, extent.place));
        let mut at = 0;
        let apart = live.iter().filter_map(|extent| {
            let extent = extent.within(at, u64::MAX)?;
            at = extent.end();
            Some(extent)
        });
        Ok(apart.collect())
    }

    /// Frees all entries of `segment`, in as many parts as that takes.
    pub(crate) fn drop_names(&mut self, segment: u64) -> Result<()> {
        let at = self.tx.segment_at(segment, Of::Names);
        loop {
            let head = self.tx.word(at);
            if head == 0 {
                let count_at = self.tx.segment_at(segment, Of::NamesCount);
                self.tx.set(count_at, 0)?;
                return Ok(());
            }
            let object = Ptr::<Names>::from_word(head, at)?;
            let next = self.tx.word(self.volume.core.resolve(object)?.offset());
            self.tx.free(object)?;
            self.tx.set(at, next)?;
            // Until the last one is gone the count fits what is left, or is more.
            let left = self.tx.segment(segment, Of::NamesCount).saturating_sub(1);
            let count_at = self.tx.segment_at(segment, Of::NamesCount);
            self.tx.set(count_at, left / PER_OBJECT * PER_OBJECT)?;
            self.make_room(16)?;
        }
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// The entries of `segment`, as extents.
    pub(crate) fn names(&self, words: &impl Words, segment: u64) -> Result<Vec<Extent>> {
        let mut count = words.segment(segment, Of::NamesCount);
        let at = words.segment_at(segment, Of::Names);
        let mut next = words.word(at);
        let mut found = Vec::new();
        while count > 0 && next != 0 {
            let object = self.core.resolve(Ptr::<Names>::from_word(next, at)?)?.offset();
            let here = (count - 1) % PER_OBJECT + 1;
            for index in 0..here {
                let entry = entry_at(object, index);
                let within = words.word(entry.plus(WORD));
                let first = within & ((1 << LEN_SHIFT) - 1);
                found.push(Extent {
                    unit: words.word(entry),
                    place: self.layout.first_place(segment) + first % self.layout.segment,
                    len: (within >> LEN_SHIFT).min(self.layout.segment),
                });
            }
            count -= here;
            next = words.word(object);
        }
        Ok(found)
    }
}
