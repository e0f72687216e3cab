//! The page manager: runs of 1 to 512 pages inside a group.
//!
//! The truth is one bit a page in the persistent bitmaps, changed by journal records only. Around
//! it, in the volatile part, stand only hints and rights:
//!
//! - a *lease* gives one lane the right to allocate in a group, so lanes don't meet. A lane keeps
//!   its leases between operations; a lane in need takes the lease of an idle lane;
//! - a group's *class* is the length of its longest free run;
//! - a transaction keeps the lease of every group in which it has allocated until its record is
//!   settled, because until it is applied nobody else can see what it has allocated;
//! - *busy* bits keep what a record has freed from being allocated before the record is retired.
//!
//! Which free run is taken decides how long long runs last (Conquest 2002, 3.4):
//!
//! - *long* requests take the group whose longest run is the shortest that holds them. A lane
//!   leaves its leased group for a tighter one; were it to go on where it is, whatever comes next
//!   would eat up the longest runs. Of a group, the shortest run that holds the request is taken.
//!   The length has to be known exactly: if some lengths share a class, a run that is just as long
//!   as the request is passed over for a longer one, and in time no long run is left;
//! - *short* requests, of less than [`LONG`] pages, go to the lowest group that has room, like
//!   slabs, and stay in it while they fit: there they fill holes that are of no use to others, and
//!   don't stand between long runs.
//!
//! Searches end: one that has found a group looks at no more than [`WINDOW`] others, and at few of
//! those whose class nobody knows yet, so the cost does not grow with the region.
//!
//! Among equals the search goes round, over groups by a rotor and inside a group by the lane's
//! cursor, so that what was freed last is used last (SIMFS 4.1).

use core::sync::atomic::Ordering;

use conquest_format::descriptor::Descriptor;
use conquest_format::journal::{Action, Entry};
use conquest_format::kind::Kind;
use conquest_format::volatile::{self, group, head, lane};
use conquest_format::{GROUP_PAGES, LINE, Offset, PAGE, WORD, geometry};

use crate::bits::{GroupBits, Run};
use crate::busy::BitWord;
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::object::Place;
use crate::tx::Tx;
use crate::{Error, Result};

/// Pages from which on a request is long.
const LONG: u64 = 4;
/// Groups that a search looks at once it has found one: 1 GiB.
const WINDOW: u64 = 512;
/// Groups of unknown class that a search looks at once it has found a group.
const UNKNOWN_LOOKS: u64 = 16;

/// Which group an allocation prefers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Slabs and short runs: the lowest that has room.
    Low,
    /// Long runs: the one that they fit best.
    High,
}

/// A run of pages that nothing points to yet. It is filled from its start on; [`Tx::finish_run`]
/// zeros what was not filled and only then tells where the run is, so that no byte of its former
/// life is ever seen. [`Tx::finish_run_ahead`] leaves that to those who look there.
#[derive(Debug)]
#[must_use]
pub struct FreshRun {
    place: Place,
    filled: u64,
}

impl<M: Memory, H: Host> Core<M, H> {
    fn lease_word(&self, lane: u32, side: Side) -> Offset {
        let record = self.geometry.lane_record(lane);
        record.plus(if side == Side::Low { lane::LEASE_LOW } else { lane::LEASE_HIGH })
    }

    fn cursor_word(&self, lane: u32, side: Side) -> Offset {
        let record = self.geometry.lane_record(lane);
        record.plus(if side == Side::Low { lane::CURSOR_LOW } else { lane::CURSOR_HIGH })
    }

    /// The group leased by lane `lane` for `side`, if the group agrees.
    fn leased(&self, lane: u32, side: Side) -> Option<u64> {
        let number = self.value(self.lease_word(lane, side), Ordering::Relaxed).checked_sub(1)?;
        let number = u64::from(number);
        (number < self.groups() && self.group_lease(number) == lane + 1).then_some(number)
    }

    /// Whether the lease of group `number` is nobody's, or one of whom it names.
    pub(crate) fn is_group_lease_known(&self, number: u64) -> bool {
        match self.group_lease(number).checked_sub(1) {
            Some(lane) if lane < self.geometry.shape().lanes => {
                [Side::Low, Side::High].iter().any(|&side| self.leased(lane, side) == Some(number))
            }
            leased => leased.is_none(),
        }
    }

    /// Whether group `number` is one of those that lane `lane` has leased to go on in; also true of
    /// a group that is not there, of which no lease is to end.
    pub(crate) fn goes_on_in(&self, lane: u32, number: u64) -> bool {
        number >= self.groups()
            || [Side::Low, Side::High].iter().any(|&side| self.leased(lane, side) == Some(number))
    }

    fn group_lease(&self, number: u64) -> u32 {
        self.value(self.geometry.group_record(number).plus(group::LEASE), Ordering::Relaxed)
    }

    /// Gives lane `lane` the lease of group `number` if the lane `from` (plus one; 0 for nobody)
    /// has it.
    fn take_lease(&self, lane: u32, side: Side, number: u64, from: u32) -> bool {
        // The lane names the group first: a death in between leaves no lease without a name.
        self.set_value(self.lease_word(lane, side), number as u32 + 1, Ordering::Relaxed);
        let at = self.geometry.group_record(number).plus(group::LEASE);
        self.group_lease(number) == lane + 1 || self.replace(at, from, lane + 1, Ordering::AcqRel)
    }

    /// Ends lane `lane`'s lease of group `number`, if it has it.
    pub(crate) fn end_lease(&self, lane: u32, number: u64) {
        if self.group_lease(number) == lane + 1 {
            let at = self.geometry.group_record(number).plus(group::LEASE);
            self.set_value(at, 0, Ordering::Release);
            self.classify(number);
        }
    }

    /// The bits of group `number` that nobody can allocate now: allocated, or busy.
    pub(crate) fn occupied(&self, number: u64) -> GroupBits {
        let bitmap = self.geometry.bitmap(number);
        GroupBits(core::array::from_fn(|word| {
            let at = bitmap.plus(word as u64 * WORD);
            self.allocated_or_busy(at)
        }))
    }

    /// The class of group `number`, as far as known.
    fn class(&self, number: u64) -> u16 {
        let (at, shift) = self.geometry.class(number);
        (self.value(at, Ordering::Relaxed) >> shift) as u16
    }

    fn set_class(&self, number: u64, class: u16) {
        let (at, shift) = self.geometry.class(number);
        let (Ok(_) | Err(_)) = self.update(at, 0, Ordering::Relaxed, |old| {
            let new = old & !(0xFFFF << shift) | u32::from(class) << shift;
            (new != old).then_some(new)
        });
    }

    /// Looks at group `number` and notes its class.
    pub(crate) fn classify(&self, number: u64) -> u16 {
        let class = volatile::class_of(self.occupied(number).longest());
        self.set_class(number, class);
        class
    }

    /// Notes the class of group `number` after pages were freed there, if nobody has leased it.
    pub(crate) fn note_pages_freed(&self, number: u64) {
        if self.group_lease(number) == 0 {
            self.classify(number);
        }
    }

    /// The group to lease for a run of `pages` pages, of a class below `limit`: one whose class
    /// says that it holds the run.
    fn find_group(&self, side: Side, pages: u64, limit: u16) -> Option<u64> {
        let wanted = volatile::class_of(pages);
        if wanted >= limit {
            return None;
        }
        let groups = self.groups();
        let first = match side {
            Side::Low => 0,
            Side::High => {
                let rotor = self.value(self.geometry.head(head::ROTOR), Ordering::Relaxed);
                u64::from(rotor).max(self.slab_groups())
            }
        };
        let first = if first < groups { first } else { 0 };
        let mut best: Option<(u16, u64)> = None;
        let mut looks = 0;
        for (looked, number) in (first..groups).chain(0..first).enumerate() {
            if best.is_some() && looked as u64 >= WINDOW {
                break;
            }
            let mut class = self.class(number);
            let try_it = best.is_none() || looks < UNKNOWN_LOOKS;
            if class == volatile::CLASS_UNKNOWN && try_it && self.group_lease(number) == 0 {
                looks += 1;
                class = self.classify(number);
            }
            if class < wanted || class >= best.map_or(limit, |(best, _)| best) {
                continue;
            }
            best = Some((class, number));
            if class == wanted || side == Side::Low {
                break;
            }
        }
        best.map(|(_, number)| number)
    }

    /// Groups, from the first, among which all slabs are.
    pub(crate) fn slab_groups(&self) -> u64 {
        let mask = self.memory.load(geometry::STATE_SLAB_GROUPS, Ordering::Relaxed);
        mask.saturating_add(1).min(self.groups())
    }

    /// Pages allocated, as the lanes count them.
    pub fn pages_used(&self) -> u64 {
        let at = |number| self.geometry.lane(number).plus(conquest_format::journal::PAGES_USED);
        (0..self.geometry.shape().lanes).fold(0, |sum: u64, number| {
            sum.wrapping_add(self.memory.load(at(number), Ordering::Relaxed))
        })
    }

    /// Whether fewer than `pages` pages are free, of all that the region can have.
    pub fn is_free_below(&self, pages: u64) -> bool {
        let most = self.geometry.shape().max_groups;
        // All pages of groups that are not there yet are free: mostly there is nothing to count.
        most.saturating_sub(self.groups()) * GROUP_PAGES < pages
            && (most * GROUP_PAGES).saturating_sub(self.pages_used()) < pages
    }

    fn no_space(&self, pages: u64) -> Error {
        let total = self.geometry.shape().max_groups * GROUP_PAGES;
        let free = (self.groups() * GROUP_PAGES).saturating_sub(self.pages_used());
        Error::NoSpace { wanted: pages, free, total }
    }
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// Allocates a run of `pages` pages, 1 to 512, of `kind`; if `near` is given, right there if
    /// that is free.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Again`] if space is only where another operation is at work;
    /// [`Error::TooLarge`].
    pub fn alloc_run(&mut self, kind: Kind, pages: u64, near: Option<Offset>) -> Result<FreshRun> {
        if pages == 0 || pages > GROUP_PAGES {
            return Err(Error::TooLarge {
                what: "pages in a run",
                wanted: pages,
                most: GROUP_PAGES,
            });
        }
        self.refuse_kept(pages)?;
        let first = match near.and_then(|near| self.take_near(near, pages)) {
            Some(first) => first,
            None => {
                let side = if pages < LONG { Side::Low } else { Side::High };
                self.take_pages(side, pages)?
            }
        };
        self.begin_run(kind, first, pages)
    }

    /// Allocates a run of `pages` pages, at least 1, of `kind` at `at`, if these are free, in one
    /// group, and more than are to stay free.
    ///
    /// # Errors
    /// Those of the region.
    pub fn alloc_run_at(&mut self, kind: Kind, pages: u64, at: Offset) -> Result<Option<FreshRun>> {
        let page = self.core.geometry.page_of(at).unwrap_or(u64::MAX);
        if page % GROUP_PAGES + pages > GROUP_PAGES || !self.leaves_enough(pages) {
            return Ok(None);
        }
        let first = self.take_near(at, pages);
        first.map(|first| self.begin_run(kind, first, pages)).transpose()
    }

    fn begin_run(&mut self, kind: Kind, first: u64, pages: u64) -> Result<FreshRun> {
        self.describe(first, pages, |_| Descriptor::Run(kind))?;
        let place = Place::new(self.core.geometry.page(first), pages * PAGE);
        Ok(FreshRun { place, filled: 0 })
    }

    /// Copies `bytes` to the first bytes of `run` that are not filled yet.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if they don't fit.
    pub fn append(&mut self, run: &mut FreshRun, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let Some(part) = run.place.part(run.filled, len) else {
            return Err(Error::TooLarge {
                what: "bytes in a run",
                wanted: run.filled.saturating_add(len),
                most: run.place.len(),
            });
        };
        self.core.memory.put_bytes(part.offset(), bytes);
        run.filled += len;
        Ok(())
    }

    /// Zeros what is not filled of `run`, and says where it is: from now on the transaction may
    /// point to it.
    pub fn finish_run(&mut self, run: FreshRun) -> Offset {
        let FreshRun { place, filled } = run;
        self.core.memory.put_zeros(place.offset().plus(filled), place.len() - filled);
        self.prepared(place.offset(), place.len());
        place.offset()
    }

    /// [`Self::finish_run`], but the pages behind the last one in which something was filled are
    /// left as they are. The caller's own rules must say that nobody looks there before
    /// [`Self::put_unseen`] or [`Self::zero_unseen`] was there.
    pub fn finish_run_ahead(&mut self, run: FreshRun) -> Offset {
        let FreshRun { place, filled } = run;
        let used = filled.next_multiple_of(PAGE);
        self.core.memory.put_zeros(place.offset().plus(filled), used - filled);
        self.prepared(place.offset(), used);
        place.offset()
    }

    /// Stages the freeing of `pages` pages of `kind` at `at`, a whole run or a part of one within
    /// one group. The caller holds the lock over whatever points to them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are not allocated to `kind`.
    pub fn free_run(&mut self, at: Offset, pages: u64, kind: Kind) -> Result<()> {
        self.core.resolve_run(at, pages, kind)?;
        let first = self.core.geometry.page_of(at).unwrap_or(0);
        self.free_pages(first, pages)
    }

    pub(crate) fn free_pages(&mut self, first: u64, pages: u64) -> Result<()> {
        let bitmap = self.core.geometry.bitmap(first / GROUP_PAGES);
        let run = Run { start: first % GROUP_PAGES, len: pages };
        if run.start + pages > GROUP_PAGES {
            return Err(Error::TooLarge {
                what: "pages in a run",
                wanted: pages,
                most: GROUP_PAGES - run.start,
            });
        }
        for (word, operand) in run.words() {
            let target = bitmap.plus(word * WORD);
            if self.staged_bits(target, Action::Free) & operand != 0 {
                return Err(Error::Corrupt {
                    what: "freed page",
                    offset: self.core.geometry.page(first),
                    expected: "pages that are freed once",
                    found: operand,
                });
            }
            self.stage(Entry { target, action: Action::Free, operand })?;
        }
        self.count_pages(-(pages as i64));
        Ok(())
    }

    /// Gives up the lane's lease for `side`: at once, or, if this transaction has allocated in the
    /// group, when its record is settled. Until then only this transaction knows what it has
    /// allocated, so nobody else may allocate there.
    fn part_with_group(&mut self, side: Side) {
        if let Some(number) = self.core.leased(self.lane, side) {
            if self.allocates_in(BitWord::Pages(number, 0)) {
                self.keep_leases();
            } else {
                self.core.end_lease(self.lane, number);
            }
        }
    }

    /// What of group `number` this transaction can't allocate.
    fn unavailable(&self, number: u64) -> GroupBits {
        let mut bits = self.core.occupied(number);
        let bitmap = self.core.geometry.bitmap(number);
        for word in 0..LINE / WORD {
            bits.occupy(word, self.staged_bits(bitmap.plus(word * WORD), Action::Allocate));
        }
        bits
    }

    /// Stages the allocation of `run` of group `number`; its first page.
    fn take_run(&mut self, number: u64, run: Run) -> Result<u64> {
        let bitmap = self.core.geometry.bitmap(number);
        for (word, operand) in run.words() {
            let target = bitmap.plus(word * WORD);
            self.stage(Entry { target, action: Action::Allocate, operand })?;
        }
        self.cover_group(number);
        self.count_pages(run.len as i64);
        Ok(number * GROUP_PAGES + run.start)
    }

    /// Refuses to allocate `pages` pages if that left fewer free than are to stay so.
    pub(crate) fn refuse_kept(&self, pages: u64) -> Result<()> {
        if self.leaves_enough(pages) { Ok(()) } else { Err(self.core.no_space(pages)) }
    }

    /// Allocates `pages` pages from `near` on, if they are free and in a group that this lane can
    /// lease without waiting.
    fn take_near(&mut self, near: Offset, pages: u64) -> Option<u64> {
        let first = self.core.geometry.page_of(near)?;
        let number = first / GROUP_PAGES;
        let run = Run { start: first % GROUP_PAGES, len: pages };
        if number >= self.core.groups() {
            return None;
        }
        if self.core.group_lease(number) != self.lane + 1 {
            self.part_with_group(Side::High);
            if !self.core.take_lease(self.lane, Side::High, number, 0) {
                return None;
            }
        }
        if !self.unavailable(number).is_free(run) {
            return None;
        }
        self.take_run(number, run).ok()
    }

    /// Allocates `pages` pages in the lane's leased group, or in a better one.
    pub(crate) fn take_pages(&mut self, side: Side, pages: u64) -> Result<u64> {
        let mut limit = u16::MAX;
        if let Some(number) = self.core.leased(self.lane, side) {
            limit = self.limit(side, number, pages);
        }
        // A group of another class than was thought is left with its true one, so the search ends;
        // others' frees may raise classes meanwhile, hence the bound.
        for _ in 0..=self.core.groups() {
            let Some(number) = self.core.find_group(side, pages, limit) else {
                break;
            };
            if let Some(first) = self.lease_and_take(side, number, pages, 0)? {
                return Ok(first);
            }
            // The lease of the group that was leased is gone.
            limit = u16::MAX;
        }
        if let Some(number) = self.core.leased(self.lane, side)
            && let Some(first) = self.take_in(side, number, pages)?
        {
            return Ok(first);
        }
        loop {
            if let Some(first) = self.take_anywhere(side, pages)? {
                return Ok(first);
            }
            if !self.core.grow(self.lane)? {
                return self.take_from_idle(side, pages);
            }
        }
    }

    /// The class below which another group is better for `pages` pages than group `number`, which
    /// the lane has leased; 0 if none is.
    fn limit(&self, side: Side, number: u64, pages: u64) -> u16 {
        let longest = self.unavailable(number).longest();
        if longest < pages {
            u16::MAX
        } else if side == Side::Low || longest <= pages + pages / 4 {
            0
        } else {
            volatile::class_of(longest)
        }
    }

    /// Allocates `pages` pages in group `number`, which the lane has leased, if they fit.
    fn take_in(&mut self, side: Side, number: u64, pages: u64) -> Result<Option<u64>> {
        let at = self.core.cursor_word(self.lane, side);
        let cursor = u64::from(self.core.value(at, Ordering::Relaxed)) % GROUP_PAGES;
        let bits = self.unavailable(number);
        let found = match side {
            Side::Low => bits.next_fit(pages, cursor),
            Side::High => bits.best_fit(pages, cursor),
        };
        let Some(run) = found else {
            return Ok(None);
        };
        let next = (run.start + run.len) % GROUP_PAGES;
        self.core.set_value(at, next as u32, Ordering::Relaxed);
        self.take_run(number, run).map(Some)
    }

    fn lease_and_take(
        &mut self,
        side: Side,
        number: u64,
        pages: u64,
        from: u32,
    ) -> Result<Option<u64>> {
        self.part_with_group(side);
        if !self.core.take_lease(self.lane, side, number, from) {
            // Leased by another lane: out of the search until its lease ends.
            self.core.set_class(number, volatile::CLASS_FULL);
            return Ok(None);
        }
        let taken = self.take_in(side, number, pages)?;
        if taken.is_none() {
            self.part_with_group(side);
        } else if side == Side::High {
            let rotor = self.core.geometry.head(head::ROTOR);
            self.core.set_value(rotor, number as u32 + 1, Ordering::Relaxed);
        }
        Ok(taken)
    }

    /// Allocates in any group that nobody has leased, whatever its class says.
    fn take_anywhere(&mut self, side: Side, pages: u64) -> Result<Option<u64>> {
        for number in 0..self.core.groups() {
            let lease = self.core.group_lease(number);
            if (lease == 0 || lease == self.lane + 1)
                && self.unavailable(number).longest() >= pages
                && let Some(first) = self.lease_and_take(side, number, pages, 0)?
            {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Allocates in a group that an idle lane has leased, and takes its lease.
    fn take_from_idle(&mut self, side: Side, pages: u64) -> Result<u64> {
        let mut met_another = false;
        for number in 0..self.core.groups() {
            if self.unavailable(number).longest() < pages {
                continue;
            }
            let Some(holder) = self.core.group_lease(number).checked_sub(1) else {
                met_another = true;
                continue;
            };
            if holder == self.lane {
                continue;
            }
            if holder >= self.core.geometry.shape().lanes {
                let at = self.core.geometry.group_record(number).plus(group::LEASE);
                let found = u64::from(holder) + 1;
                return Err(self.core.damaged("lease of a group", at, "a lane's number", found));
            }
            if !self.core.try_take(holder, 0) {
                // At work, or dead: the space may be there for the next try.
                self.core.see_to(holder)?;
                self.core.refuse_own_lane(holder)?;
                met_another = true;
                continue;
            }
            let taken = self.lease_and_take(side, number, pages, holder + 1);
            self.core.leave_lane(holder);
            if let Some(first) = taken? {
                return Ok(first);
            }
        }
        Err(if met_another { Error::Again } else { self.core.no_space(pages) })
    }

    /// Writes the descriptors of pages that nothing points to yet.
    pub(crate) fn describe(
        &mut self,
        first: u64,
        pages: u64,
        what: impl Fn(u64) -> Descriptor,
    ) -> Result<()> {
        for page in first..first + pages {
            let word = what(page).pack(page);
            // Seen by whoever sees the page's bit, which is set later.
            self.core.memory.put(self.core.geometry.descriptor(page), word, Ordering::Relaxed);
        }
        self.prepared(self.core.geometry.descriptor(first), pages * WORD);
        Ok(())
    }
}
