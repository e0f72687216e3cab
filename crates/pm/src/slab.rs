//! The slab manager: typed objects of 64 to 4096 bytes (Conquest 2002, 3.4).
//!
//! A slab is 1 to 7 pages of objects of one kind; one persistent word, its map, says which are
//! allocated. A lane leases one slab a kind and allocates there alone; anybody may free anywhere.
//! Slabs with room are found by hints: per group one bit a kind, which is set when an object is
//! freed and taken away by whoever looks and finds nothing. A group that nobody has looked at since
//! the attach generation began may have room for every kind, so nothing has to be rebuilt at
//! attach.
//!
//! A slab whose last object was freed is given back to the page manager, unless a lane has leased
//! it.

use core::sync::atomic::Ordering;

use conquest_format::descriptor::Descriptor;
use conquest_format::journal::{Action, Entry};
use conquest_format::kind::Kind;
use conquest_format::volatile::{self, group, head, lane, slab};
use conquest_format::{GROUP_PAGES, Offset, WORD, geometry};

use crate::busy::BitWord;
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::object::{Object, Place, Ptr};
use crate::pages::Side;
use crate::tx::Tx;
use crate::{Error, Result};

/// An object that nothing points to yet, all zeros until filled. [`Tx::seal`] ends its filling and
/// only then tells where it is.
#[derive(Debug)]
#[must_use]
pub struct Fresh<T> {
    place: Place,
    object: core::marker::PhantomData<fn() -> T>,
}

/// An object of a kind known at run time.
#[derive(Debug)]
pub struct Untyped;

const LEASE_LANE: u32 = 0xFFFF;

impl<M: Memory, H: Host> Core<M, H> {
    fn slab_word(&self, lane: u32, kind: Kind) -> Offset {
        self.geometry.lane_record(lane).plus(lane::SLABS + u64::from(kind.number()) * WORD)
    }

    fn slab_lease_word(&self, page: u64) -> Offset {
        self.geometry.slab_record(page).plus(slab::LEASE)
    }

    fn slab_lease(&self, page: u64) -> u32 {
        self.value(self.slab_lease_word(page), Ordering::Relaxed) & LEASE_LANE
    }

    /// The objects of the slab at `page` that nobody can allocate now.
    fn slab_occupied(&self, page: u64, kind: Kind) -> u64 {
        let map = self.geometry.slab_map(page);
        self.allocated_or_busy(map) | !all_objects(self.spec(kind).objects())
    }

    fn partial_word(&self, number: u64, kind: Kind) -> (Offset, u32) {
        let kind = u64::from(kind.number());
        let at = self.geometry.group_record(number).plus(group::PARTIAL + kind / 32 * WORD);
        (at, 1 << (kind % 32))
    }

    fn partial_from(&self, kind: Kind) -> Offset {
        self.geometry.head(head::PARTIAL_FROM + u64::from(kind.number()) * WORD)
    }

    /// Hints that group `number` has a slab of `kind` with room.
    ///
    /// Whoever searches moves the kind's first group on, takes the group's hint and looks at its
    /// slabs, with a fence after each. So whoever finds a hint set, after a fence, need not set it:
    /// whoever takes it will see the room. And whoever finds the first group low enough, after
    /// another fence, need not lower it: whoever moves it on will see the hint. A hint that is set
    /// says nothing of the first group, as who set it may have died in between.
    fn set_partial(&self, number: u64, kind: Kind) {
        let (at, bit) = self.partial_word(number, kind);
        let set = |old: u32| (old & bit == 0).then_some(old | bit);
        self.memory.full_fence();
        let (Ok(_) | Err(_)) = self.update(at, u32::MAX, Ordering::Relaxed, set);
        self.memory.full_fence();
        let lower = |old: u32| (u64::from(old) > number).then_some(number as u32);
        let from = self.partial_from(kind);
        let (Ok(_) | Err(_)) = self.update(from, 0, Ordering::Relaxed, lower);
    }

    /// Takes the hint away; whether it was there. A fence follows.
    fn take_partial(&self, number: u64, kind: Kind) -> bool {
        let (at, bit) = self.partial_word(number, kind);
        let take = |old: u32| (old & bit != 0).then_some(old & !bit);
        self.update(at, u32::MAX, Ordering::Relaxed, take).is_ok()
    }

    /// Notes that an object of the slab at `page` was freed.
    pub(crate) fn note_object_freed(&self, page: u64) {
        if let Ok(Descriptor::Slab(kind)) = self.descriptor(page) {
            self.set_partial(page / GROUP_PAGES, kind);
        }
    }

    /// Whether a search would find room in group `number` that a slab of `kind` has there.
    pub(crate) fn is_hinted(&self, number: u64, kind: Kind) -> bool {
        let (at, bit) = self.partial_word(number, kind);
        let hints = self.update(at, u32::MAX, Ordering::Relaxed, |_| None);
        let from = self.value(self.partial_from(kind), Ordering::Relaxed);
        hints.is_err_and(|hints| hints & bit != 0) && u64::from(from) <= number
    }

    /// Whether the lease of the slab of `kind` at `page` is nobody's, or one of whom it names.
    pub(crate) fn is_lease_known(&self, page: u64, kind: Kind) -> bool {
        match self.slab_lease(page).checked_sub(1) {
            Some(lane) if lane < self.geometry.shape().lanes => {
                self.leased_slab(lane, kind) == Some(page)
            }
            leased => leased.is_none(),
        }
    }

    /// Whether somebody has leased the slab at `page`.
    pub(crate) fn is_slab_leased(&self, page: u64) -> bool {
        self.slab_lease(page) != 0
    }

    /// The slab of `kind` that lane `lane` has leased, if it still is one.
    fn leased_slab(&self, lane: u32, kind: Kind) -> Option<u64> {
        let at = self.slab_word(lane, kind);
        let page = u64::from(self.value(at, Ordering::Relaxed).checked_sub(1)?);
        self.has_leased(lane, kind, page).then_some(page)
    }

    /// Whether there is a slab of `kind` at `page` that lane `lane` has leased. Looks at the page
    /// before the lease: who makes a slab of a page writes the lease before the page is one, so a
    /// lease that was left on the page in an earlier life is not taken for one of this slab.
    fn has_leased(&self, lane: u32, kind: Kind, page: u64) -> bool {
        page < self.groups() * GROUP_PAGES
            && self.descriptor(page).ok() == Some(Descriptor::Slab(kind))
            && self.slab_lease(page) == lane + 1
    }

    /// Whether the slab at `page` is the one of its kind that lane `lane` goes on in.
    pub(crate) fn goes_on_with(&self, lane: u32, page: u64) -> bool {
        let Ok(Descriptor::Slab(kind)) = self.described(page) else {
            return false;
        };
        u64::from(self.value(self.slab_word(lane, kind), Ordering::Relaxed)) == page + 1
    }

    /// Gives lane `lane` the lease of the slab at `page` if `from` (a lane plus one, 0 for nobody)
    /// has it.
    fn take_slab(&self, lane: u32, kind: Kind, page: u64, from: u32) -> bool {
        self.set_value(self.slab_word(lane, kind), page as u32 + 1, Ordering::Relaxed);
        let take = |old: u32| (old & LEASE_LANE == from).then_some(lane + 1);
        self.update(self.slab_lease_word(page), 0, Ordering::AcqRel, take).is_ok()
    }

    /// Takes lane `lane`'s lease off `page`; whether it was there. In one step: if the page is no
    /// slab any more, another lane may be making one of it, with a lease of its own.
    fn drop_slab_lease(&self, lane: u32, page: u64) -> bool {
        let drop = |old: u32| (old & LEASE_LANE == lane + 1).then_some(0);
        self.update(self.slab_lease_word(page), 0, Ordering::Release, drop).is_ok()
    }

    /// Ends lane `lane`'s lease of the slab at `page`, if it has it.
    pub(crate) fn end_slab_lease(&self, lane: u32, page: u64) {
        if page >= self.groups() * GROUP_PAGES || !self.drop_slab_lease(lane, page) {
            return;
        }
        // Freed while leased: whoever looked for room then passed the slab over.
        self.memory.full_fence();
        if let Ok(Descriptor::Slab(kind)) = self.descriptor(page)
            && self.slab_occupied(page, kind) != u64::MAX
        {
            self.set_partial(page / GROUP_PAGES, kind);
        }
    }

    /// Notes how far lane `lane`'s search for a slab of `kind` with room has come.
    fn note_search(&self, lane: u32, group: u64, kind: Kind) {
        let at = self.geometry.lane_record(lane).plus(lane::SEARCH);
        self.set_value(at, volatile::search(group, kind.number()), Ordering::Relaxed);
    }

    /// Finishes what a dead owner of lane `lane` was doing with slabs.
    pub(crate) fn settle_slabs(&self, lane: u32) {
        let record = self.geometry.lane_record(lane);
        // It was giving this one back, or had done so before: then a lease that it has taken there
        // since is as good as ended.
        let given = self.value(record.plus(lane::RECLAIM), Ordering::Relaxed).checked_sub(1);
        let slab = given.map(u64::from).filter(|&page| page < self.groups() * GROUP_PAGES);
        if let Some(page) = slab
            && self.drop_slab_lease(lane, page)
        {
            self.note_object_freed(page);
        }
        // Others search on from where it was. It may have moved the first group on and left the
        // hint.
        let search = self.value(record.plus(lane::SEARCH), Ordering::Relaxed);
        if let Some((group, kind)) = volatile::unpack_search(search)
            && let Some(kind) = Kind::new(kind)
            && group < self.groups()
        {
            self.set_partial(group, kind);
        }
    }
}

/// One bit for each of `objects` objects.
fn all_objects(objects: u64) -> u64 {
    if objects == 0 { 0 } else { u64::MAX >> (64 - objects) }
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// Allocates an object, all zeros.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Again`], [`Error::TooLarge`].
    pub fn alloc<T: Object>(&mut self) -> Result<Fresh<T>> {
        self.alloc_kind(T::KIND)
    }

    /// [`Self::alloc`] for a kind known at run time.
    ///
    /// # Errors
    /// As there.
    pub fn alloc_untyped(&mut self, kind: Kind) -> Result<Fresh<Untyped>> {
        self.alloc_kind(kind)
    }

    fn alloc_kind<T>(&mut self, kind: Kind) -> Result<Fresh<T>> {
        let place = self.alloc_object(kind)?;
        self.zero(place);
        Ok(Fresh { place, object: core::marker::PhantomData })
    }

    /// Stores `value` in word `index` of a new object.
    ///
    /// # Errors
    /// [`Error::TooLarge`] past its end.
    pub fn fill_word<T>(&mut self, fresh: &Fresh<T>, index: u64, value: u64) -> Result<()> {
        let Some(at) = fresh.place.word(index) else {
            return Err(past_the_end(index * WORD, fresh.place));
        };
        self.core.memory.put(at, value, Ordering::Relaxed);
        Ok(())
    }

    /// Copies `bytes` to byte `start` of a new object.
    ///
    /// # Errors
    /// [`Error::TooLarge`] past its end.
    pub fn fill<T>(&mut self, fresh: &Fresh<T>, start: u64, bytes: &[u8]) -> Result<()> {
        let Some(part) = fresh.place.part(start, bytes.len() as u64) else {
            return Err(past_the_end(start.saturating_add(bytes.len() as u64), fresh.place));
        };
        self.core.memory.put_bytes(part.offset(), bytes);
        Ok(())
    }

    /// Ends the filling of a new object: from now on the transaction may point to it.
    pub fn seal<T: Object>(&mut self, fresh: Fresh<T>) -> Ptr<T> {
        self.prepared(fresh.place.offset(), fresh.place.len());
        Ptr::new(fresh.place.offset())
    }

    /// [`Self::seal`], after the word that `last` gives for the object's offset was stored in word
    /// `index`: what an object says of its own place.
    ///
    /// # Errors
    /// [`Error::TooLarge`] past its end.
    pub fn seal_with<T: Object>(
        &mut self,
        fresh: Fresh<T>,
        index: u64,
        last: impl FnOnce(Offset) -> u64,
    ) -> Result<Ptr<T>> {
        self.fill_word(&fresh, index, last(fresh.place.offset()))?;
        Ok(self.seal(fresh))
    }

    /// [`Self::seal`] for an object of a kind known at run time: its offset.
    pub fn seal_untyped(&mut self, fresh: Fresh<Untyped>) -> Offset {
        self.prepared(fresh.place.offset(), fresh.place.len());
        fresh.place.offset()
    }

    /// Stages the freeing of an object. The caller holds the lock over whatever points to it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is not allocated, or freed twice.
    pub fn free<T: Object>(&mut self, ptr: Ptr<T>) -> Result<()> {
        self.free_untyped(ptr.offset(), T::KIND)
    }

    /// [`Self::free`] for a kind known at run time.
    ///
    /// # Errors
    /// As there.
    pub fn free_untyped(&mut self, at: Offset, kind: Kind) -> Result<()> {
        self.core.resolve_kind(at, kind)?;
        let place = self.core.slab_place(at, kind)?;
        let target = self.core.geometry.slab_map(place.head);
        let operand = 1 << place.index;
        if self.staged_bits(target, Action::Free) & operand != 0 {
            return Err(Error::Corrupt {
                what: "freed object",
                offset: at,
                expected: "an object that is freed once",
                found: operand,
            });
        }
        self.may_empty(place.head);
        self.stage(Entry { target, action: Action::Free, operand })
    }

    fn alloc_object(&mut self, kind: Kind) -> Result<Place> {
        let spec = self.core.spec(kind);
        if !spec.is_object() {
            return Err(Error::TooLarge {
                what: "objects of a kind of page runs",
                wanted: 1,
                most: 0,
            });
        }
        let page = self.slab_with_room(kind)?;
        let Some((index, next)) = self.pick(page, kind) else {
            return Err(Error::Corrupt {
                what: "leased slab",
                offset: self.core.geometry.slab_map(page),
                expected: "a free object, as a moment ago",
                found: 0,
            });
        };
        let target = self.core.geometry.slab_map(page);
        self.stage(Entry { target, action: Action::Allocate, operand: 1 << index })?;
        // Of a new slab, this is where the lane takes the lease.
        let lease = next << 16 | (self.lane + 1);
        self.core.set_value(self.core.slab_lease_word(page), lease, Ordering::Relaxed);
        let size = u64::from(spec.object_size);
        Ok(Place::new(self.core.geometry.page(page).plus(index * size), size))
    }

    /// The free object of the lane's slab at `page` to take, and where to look next: round and
    /// round, so that what was freed last is used last (SIMFS 4.1).
    fn pick(&self, page: u64, kind: Kind) -> Option<(u64, u32)> {
        let free = !self.unavailable_objects(page, kind);
        let cursor = self.core.value(self.core.slab_lease_word(page), Ordering::Relaxed) >> 16;
        let from = free & (u64::MAX << (cursor % 64));
        let index = if from != 0 { from } else { free }.trailing_zeros();
        (index < 64).then(|| (u64::from(index), (index + 1) % 64))
    }

    fn unavailable_objects(&self, page: u64, kind: Kind) -> u64 {
        let staged = self.staged_bits(self.core.geometry.slab_map(page), Action::Allocate);
        self.core.slab_occupied(page, kind) | staged
    }

    fn has_room(&self, page: u64, kind: Kind) -> bool {
        self.unavailable_objects(page, kind) != u64::MAX
    }

    /// A slab of `kind` with room that the lane has leased: the one it has, another one, or a new
    /// one.
    fn slab_with_room(&mut self, kind: Kind) -> Result<u64> {
        if let Some(page) = self.fresh_slab(kind).or_else(|| self.core.leased_slab(self.lane, kind))
            && self.has_room(page, kind)
        {
            return Ok(page);
        }
        let last = self.core.leased_slab(self.lane, kind);
        self.part_with_slab(kind);
        if let Some(page) = self.find_hinted(kind, last) {
            return Ok(page);
        }
        match self.new_slab(kind) {
            Err(Error::NoSpace { wanted, free, total }) => {
                self.find_anywhere(kind)?.ok_or(Error::NoSpace { wanted, free, total })
            }
            made => made,
        }
    }

    /// Gives up the lane's slab of `kind`: at once, or, if this transaction has allocated there,
    /// when its record is settled.
    fn part_with_slab(&mut self, kind: Kind) {
        let leased = || self.core.leased_slab(self.lane, kind);
        if let Some(page) = self.fresh_slab(kind).or_else(leased) {
            if self.allocates_in(BitWord::Objects(page)) {
                self.keep_leases();
            } else {
                self.core.end_slab_lease(self.lane, page);
            }
        }
    }

    /// The slab of `kind` that this transaction is making, if the lane's word names one: its pages
    /// are staged, not yet allocated.
    fn fresh_slab(&self, kind: Kind) -> Option<u64> {
        let at = self.core.slab_word(self.lane, kind);
        let page = u64::from(self.core.value(at, Ordering::Relaxed).checked_sub(1)?);
        if page >= self.core.groups() * GROUP_PAGES {
            return None;
        }
        let bit = page % GROUP_PAGES;
        let word = self.core.geometry.bitmap(page / GROUP_PAGES).plus(bit / 64 * WORD);
        let staged = self.staged_bits(word, Action::Allocate) >> (bit % 64) & 1 == 1;
        // The lane's word and the lease may be left from a transaction that was dropped, and this
        // one may have made something else of the page. What, its descriptor says: who stages the
        // allocation of a page describes it.
        let is_slab = staged && self.core.described(page).ok() == Some(Descriptor::Slab(kind));
        (is_slab && self.core.slab_lease(page) == self.lane + 1).then_some(page)
    }

    /// Leases a slab of `kind` that has room, as hints say: the next one behind page `last`, if
    /// that is in the first group with any. Those before it were found to be full one after the
    /// other, and who begins at the first page each time looks at all of them.
    fn find_hinted(&mut self, kind: Kind, last: Option<u64>) -> Option<u64> {
        let from = self.core.partial_from(kind);
        let groups = self.core.slab_groups();
        let first = u64::from(self.core.value(from, Ordering::Relaxed));
        let first = Some(first).filter(|first| *first < groups)?;
        // Claims the search before looking: whoever frees meanwhile lowers the word again.
        self.core.note_search(self.lane, first, kind);
        let all = groups as u32;
        if !self.core.replace(from, first as u32, all, Ordering::Relaxed) {
            return None;
        }
        self.core.memory.full_fence();
        for number in first..groups {
            self.core.note_search(self.lane, number, kind);
            if !self.core.take_partial(number, kind) {
                continue;
            }
            self.core.memory.full_fence();
            if let Some(page) = self.find_in(number, kind, false, last) {
                // There may be more, here and further on.
                self.core.set_partial(number, kind);
                return Some(page);
            }
        }
        None
    }

    /// Leases a slab of `kind` with room in group `number`, looking behind page `last` first, if
    /// that is there; also from an idle lane, if `from_idle`.
    fn find_in(
        &mut self,
        number: u64,
        kind: Kind,
        from_idle: bool,
        last: Option<u64>,
    ) -> Option<u64> {
        let pages = number * GROUP_PAGES..(number + 1) * GROUP_PAGES;
        let from = last.filter(|last| pages.contains(last)).map_or(pages.start, |last| last + 1);
        (from..pages.end).chain(pages.start..from).find(|&page| {
            if self.core.descriptor(page).ok() != Some(Descriptor::Slab(kind))
                || !self.has_room(page, kind)
            {
                return false;
            }
            match self.core.slab_lease(page).checked_sub(1) {
                None => self.core.take_slab(self.lane, kind, page, 0) && self.holds(page, kind),
                Some(holder) if from_idle && holder != self.lane => {
                    let idle =
                        holder < self.core.geometry.shape().lanes && self.core.try_take(holder, 0);
                    let taken = idle && self.core.take_slab(self.lane, kind, page, holder + 1);
                    if idle {
                        self.core.leave_lane(holder);
                    }
                    taken && self.holds(page, kind)
                }
                Some(_) => false,
            }
        })
    }

    /// Whether the slab just leased is still what it was when it was looked at: with the lease in
    /// hand nobody else can fill it up or give it back.
    fn holds(&self, page: u64, kind: Kind) -> bool {
        let good = self.core.has_leased(self.lane, kind, page) && self.has_room(page, kind);
        if !good {
            self.core.drop_slab_lease(self.lane, page);
        }
        good
    }

    /// Looks through all slabs, leased ones included, when there is no space for a new one.
    fn find_anywhere(&mut self, kind: Kind) -> Result<Option<u64>> {
        for number in 0..self.core.slab_groups() {
            if let Some(page) = self.find_in(number, kind, true, None) {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// Makes a slab in the lowest group with room. It exists from the transaction's commit on.
    fn new_slab(&mut self, kind: Kind) -> Result<u64> {
        let pages = u64::from(self.core.spec(kind).slab_pages);
        self.refuse_kept(pages)?;
        let head = self.take_pages(Side::Low, pages)?;
        self.cover_slab_groups(head / GROUP_PAGES);
        self.describe(head, pages, |page| match page - head {
            0 => Descriptor::Slab(kind),
            back => Descriptor::SlabTail(kind, back),
        })?;
        // The map is journalled, not prepared: a record's checksum must not cover what the record
        // changes.
        let target = self.core.geometry.slab_map(head);
        self.stage(Entry { target, action: Action::Set, operand: 0 })?;
        let at = self.core.slab_word(self.lane, kind);
        self.core.set_value(at, head as u32 + 1, Ordering::Relaxed);
        Ok(head)
    }

    /// Sets the bits of group number `number` in the mask below which all slabs are. The mask only
    /// grows and being too large does no harm, so it needs no journal. Also bits that somebody else
    /// has set are made durable: that one may not have come so far.
    fn cover_slab_groups(&mut self, number: u64) {
        let at = geometry::STATE_SLAB_GROUPS;
        let mask = u64::MAX.checked_shr(number.leading_zeros()).unwrap_or(0);
        if self.core.memory.load(at, Ordering::Relaxed) & mask != mask {
            self.core.memory.put_or(at, mask);
        }
        self.prepared_shared(at, WORD);
        if self.core.is_logged() {
            self.log_bits(at, self.core.memory.load(at, Ordering::Relaxed));
        }
    }

    /// Gives the slab at `head` back to the page manager, if it is empty and nobody has leased it:
    /// a record of its own, after the transaction's. The lane is still held, no lock is.
    pub(crate) fn reclaim_slab(&mut self, head: u64) -> Result<()> {
        let Ok(Descriptor::Slab(kind)) = self.core.descriptor(head) else {
            return Ok(());
        };
        let spec = self.core.spec(kind);
        if !spec.is_object() {
            return Ok(());
        }
        let map = self.core.geometry.slab_map(head);
        let is_empty = |core: &Core<M, H>| core.allocated_or_busy(map) == 0;
        if self.core.slab_lease(head) != 0 || !is_empty(self.core) {
            return Ok(());
        }
        let at = self.core.geometry.lane_record(self.lane).plus(lane::RECLAIM);
        self.core.set_value(at, head as u32 + 1, Ordering::Relaxed);
        let lease = self.core.slab_lease_word(head);
        if self.core.replace(lease, 0, self.lane + 1, Ordering::AcqRel) {
            // Leased now: an empty slab stays empty, and stays a slab.
            let still = self.core.descriptor(head).ok() == Some(Descriptor::Slab(kind));
            if still && is_empty(self.core) {
                self.free_pages(head, u64::from(spec.slab_pages))?;
                self.commit_record()?;
            }
            self.core.drop_slab_lease(self.lane, head);
        }
        Ok(())
    }
}

fn past_the_end(end: u64, place: Place) -> Error {
    Error::TooLarge { what: "bytes in an object", wanted: end, most: place.len() }
}
