//! A transaction: one atomic change of the region, through a journal lane.
//!
//! Locks are taken, new objects built out of sight, changes staged; [`Tx::commit`] makes all of it
//! happen or, if the power fails or the process dies before its commit point, none. Dropping a
//! transaction drops all of it.
//!
//! Fences on media that need them: one that commits (record and prepared objects together), one
//! that makes the applied words durable, one that retires; one more, first, if the prepared objects
//! are too large for the checksum (more than 1 KiB, or page runs).

use core::sync::atomic::Ordering;

use conquest_format::geometry::{ROOTS, STATE_GROUPS, STATE_ROOTS};
use conquest_format::journal::{
    self, Action, Commit, ENTRIES_MAX, Entry, RANGE_BYTES_MAX, RANGES_MAX,
};
use conquest_format::volatile::{self, lane};
use conquest_format::{GROUP_PAGES, LINE, Offset, WORD};

use crate::busy::BitWord;
use crate::core::Core;
use crate::host::Host;
use crate::journal::entry_at;
use crate::lock::Mode;
use crate::log::Building;
use crate::memory::{Memory, Window};
use crate::object::Place;
use crate::staged::Filter;
use crate::thread::Open;
use crate::{Error, Result};

/// Locks that a transaction can hold; the held list's last place is for the region's growth.
pub const LOCKS_MAX: usize = lane::HELD_MAX as usize - 1;
/// The held list's place for the lock under which the region grows.
pub(crate) const GROW_PLACE: u32 = lane::HELD_MAX as u32 - 1;
/// Entries that a transaction can stage: room is kept for the page count and prepared ranges.
pub const STAGED_MAX: u64 = ENTRIES_MAX - RANGES_MAX - 1;
/// Slabs that one transaction can empty and give back at once; more are given back later.
const EMPTIED_MAX: usize = 4;

/// A transaction. It holds a journal lane until it is committed or dropped.
pub struct Tx<'c, M: Memory, H: Host> {
    pub(crate) core: &'c Core<M, H>,
    pub(crate) lane: u32,
    /// The lane's commit word, retired.
    commit: Commit,
    pub(crate) entries: u64,
    /// For what there may be entries.
    pub(crate) filter: Filter,
    ranges: [(Offset, u64); RANGES_MAX as usize],
    ranges_used: usize,
    range_bytes: u64,
    /// Bytes of the lane's image page that belong to the record.
    pub(crate) image_used: u64,
    /// Whether something was written back that the record's checksum does not cover.
    needs_prepare_fence: bool,
    held: [(u32, Mode); LOCKS_MAX],
    held_used: usize,
    /// Pages allocated less pages freed.
    pages: i64,
    /// Pages that are to stay free.
    kept_free: u64,
    /// Whether the pages that it fills are soon somewhere else.
    pub(crate) pages_pass: bool,
    interruptible: bool,
    emptied: [Option<u64>; EMPTIED_MAX],
    /// The number of groups that becomes durable with this record, 0 if none does.
    groups: u64,
    /// Below which entry the record names leases that end with it.
    keeps: u64,
    /// What of the record is in the log, of a region that has one.
    pub(crate) log: Building,
    /// Words of the batch of notices that is being told, 0 if there is none.
    pub(crate) told: u64,
    /// Whether batches were published since followers were woken last.
    pub(crate) has_told: bool,
    /// Whether what it tells is nobody's own.
    pub(crate) is_nobodys: bool,
    /// Whether the lane is left at the end; otherwise it stays the caller's.
    leaves_lane: bool,
    _window: Window<'c, M>,
    _open: Open,
}

/// A state of a record that a transaction can return to: [`Tx::staged`].
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    entries: u64,
    ranges_used: usize,
    range_bytes: u64,
    image_used: u64,
    pages: i64,
    emptied: [Option<u64>; EMPTIED_MAX],
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Begins a transaction, waiting for a lane if need be.
    ///
    /// # Errors
    /// [`Error::Failed`] once the region has failed.
    pub fn begin(&self) -> Result<Tx<'_, M, H>> {
        self.begin_with(false)
    }

    /// Begins a transaction whose waits end with [`Error::Interrupted`] when a signal arrives.
    ///
    /// # Errors
    /// [`Error::Failed`] once the region has failed, [`Error::Interrupted`].
    pub fn begin_interruptible(&self) -> Result<Tx<'_, M, H>> {
        self.begin_with(true)
    }

    fn begin_with(&self, interruptible: bool) -> Result<Tx<'_, M, H>> {
        self.note_thread();
        let _open = Open::new();
        self.enter()?;
        if self.is_logged() {
            self.keep_log_short()?;
        }
        let lane = self.take_lane(interruptible)?;
        // Again, now that everybody sees that the lane is used: the region may have been detached
        // since, by another thread that saw no lane in use.
        match self.check_health().and_then(|()| self.begin_on(lane, interruptible, true)) {
            Ok(tx) => Ok(tx),
            // Forked since the lane was taken: it is the parent's, who goes on with it.
            Err(_) if self.host.is_forked() => Err(Error::ForkedInside),
            Err(error) => {
                self.leave_lane(lane);
                Err(error)
            }
        }
    }

    /// Begins a transaction on a lane that the caller owns; the lane is left at its end if
    /// `leaves_lane`.
    pub(crate) fn begin_on(
        &self,
        lane: u32,
        interruptible: bool,
        leaves_lane: bool,
    ) -> Result<Tx<'_, M, H>> {
        let window = Window::open(&self.memory)?;
        let commit = self.commit_word(lane)?;
        if commit.is_armed() {
            return Err(Error::Corrupt {
                what: "free lane",
                offset: self.geometry.lane(lane),
                expected: "a retired record",
                found: commit.pack(),
            });
        }
        Ok(Tx {
            core: self,
            lane,
            commit,
            entries: 0,
            filter: Filter::default(),
            ranges: [(Offset::NONE, 0); RANGES_MAX as usize],
            ranges_used: 0,
            range_bytes: 0,
            image_used: 0,
            needs_prepare_fence: false,
            held: [(0, Mode::Shared); LOCKS_MAX],
            held_used: 0,
            pages: 0,
            kept_free: 0,
            pages_pass: false,
            interruptible,
            emptied: [None; EMPTIED_MAX],
            groups: 0,
            keeps: 0,
            log: Building::default(),
            told: 0,
            has_told: false,
            is_nobodys: false,
            leaves_lane,
            _window: window,
            _open: Open::new(),
        })
    }

    /// Runs `operation` in a transaction, again while it returns [`Error::Again`].
    ///
    /// # Errors
    /// Whatever `operation` or the commit returns.
    pub fn run<T>(&self, mut operation: impl FnMut(&mut Tx<'_, M, H>) -> Result<T>) -> Result<T> {
        loop {
            let mut tx = self.begin()?;
            match operation(&mut tx) {
                Ok(value) => {
                    tx.commit()?;
                    return Ok(value);
                }
                Err(Error::Again) => drop(tx),
                Err(error) => return Err(error),
            }
        }
    }
}

impl<'c, M: Memory, H: Host> Tx<'c, M, H> {
    /// The region.
    pub fn core(&self) -> &'c Core<M, H> {
        self.core
    }
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// A number, not 0, that no other transaction of this region that was committed has had, or
    /// will have: the lane in bits 48 and up, the record's sequence number below.
    pub fn number(&self) -> u64 {
        u64::from(self.lane) << 48 | self.commit.next(1, 0).sequence
    }

    /// Takes lock `number` (numbers past the table wrap) and keeps it until the end. A lock that is
    /// held already is not taken again.
    ///
    /// # Errors
    /// [`Error::OwnLock`] if the calling thread holds it in another transaction, or this one holds
    /// it shared and wants it exclusively; [`Error::TooLarge`]; [`Error::Interrupted`].
    pub fn lock(&mut self, number: u32, mode: Mode) -> Result<()> {
        let number = number & (self.core.geometry.shape().locks - 1);
        let held = self.held.iter().take(self.held_used);
        if let Some(&(_, has)) = held.clone().find(|(held, _)| *held == number) {
            if has == Mode::Shared && mode == Mode::Exclusive {
                return Err(Error::OwnLock { lock: number });
            }
            return Ok(());
        }
        let Some(place) = self.held.get_mut(self.held_used) else {
            return Err(Error::TooLarge {
                what: "locks",
                wanted: LOCKS_MAX as u64 + 1,
                most: LOCKS_MAX as u64,
            });
        };
        let at = self.held_used as u32;
        self.core.acquire(self.lane, at, number, mode, self.interruptible)?;
        *place = (number, mode);
        self.held_used += 1;
        Ok(())
    }

    /// Stages a store of `value` to the word at `at`: a word of an object, or a root. The caller
    /// holds the lock that guards it exclusively.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the lane is full, [`Error::Corrupt`] if no object can be at `at`.
    pub fn set(&mut self, at: Offset, value: u64) -> Result<()> {
        let roots = STATE_ROOTS.bytes()..STATE_ROOTS.plus(ROOTS * WORD).bytes();
        let in_heap = self.core.geometry.page_of(at).is_some();
        if !at.is_aligned(WORD) || !(in_heap || roots.contains(&at.bytes())) {
            return Err(Error::Corrupt {
                what: "target of a change",
                offset: at,
                expected: "a word of the heap or a root",
                found: at.bytes(),
            });
        }
        if self.is_prepared(at) {
            // Part of a new object still: the record's checksum covers it, so the record itself
            // must not change it.
            self.core.memory.put(at, value, Ordering::Relaxed);
            self.core.memory.write_back(at, WORD);
            return Ok(());
        }
        self.stage(Entry { target: at, action: Action::Set, operand: value })
    }

    pub(crate) fn is_prepared(&self, at: Offset) -> bool {
        let at = at.bytes();
        let mut ranges = self.ranges.iter().take(self.ranges_used);
        ranges.any(|&(start, len)| (start.bytes()..start.plus(len).bytes()).contains(&at))
    }

    pub(crate) fn stage(&mut self, entry: Entry) -> Result<()> {
        if self.entries >= STAGED_MAX {
            return Err(Error::TooLarge {
                what: "journal entries",
                wanted: self.entries + 1,
                most: STAGED_MAX,
            });
        }
        self.refuse_child()?;
        let at = self.entry(self.entries);
        self.core.stage_pair(at, entry.pack());
        self.entries += 1;
        self.filter.note(entry.target);
        Ok(())
    }

    /// How far the record has come: what is staged from now on can be dropped by
    /// [`Self::unstage`].
    pub fn staged(&self) -> Staged {
        Staged {
            entries: self.entries,
            ranges_used: self.ranges_used,
            range_bytes: self.range_bytes,
            image_used: self.image_used,
            pages: self.pages,
            emptied: self.emptied,
        }
    }

    /// Drops what this record has staged since `staged` was asked for. Locks stay held. Objects
    /// that were new before must not have been changed since.
    pub fn unstage(&mut self, staged: &Staged) {
        self.entries = staged.entries.min(self.entries);
        let dropped = self.entries..self.keeps;
        self.keeps = self.keeps.min(self.entries);
        self.core.end_kept_leases(self.lane, dropped, |word| !self.allocates_in(word));
        self.ranges_used = staged.ranges_used.min(self.ranges_used);
        self.range_bytes = staged.range_bytes;
        self.image_used = staged.image_used;
        self.pages = staged.pages;
        self.emptied = staged.emptied;
    }

    /// Entries that can still be staged: a word that is set takes one, a run of pages that is
    /// allocated or freed one for each 64 pages of its group that it touches.
    pub fn room(&self) -> u64 {
        STAGED_MAX - self.entries
    }

    pub(crate) fn entry(&self, index: u64) -> Offset {
        entry_at(self.core.geometry.lane(self.lane), index)
    }

    /// In a child forked while this transaction was open, the transaction is the parent's.
    pub(crate) fn refuse_child(&self) -> Result<()> {
        if self.core.host.is_forked() { Err(Error::ForkedInside) } else { Ok(()) }
    }

    /// From now on nothing is allocated that would leave fewer than `pages` free of all the pages
    /// that the region can have: [`Error::NoSpace`]. Objects in slabs that are there take no page.
    /// The limit is soft: what other transactions have staged is not known.
    pub fn keep_free(&mut self, pages: u64) {
        self.kept_free = pages;
    }

    /// The pages that this transaction fills are soon somewhere else, so they do not count among
    /// those that somebody has to make durable when they are many
    /// ([`Core::passing_pages`](crate::Core::passing_pages)).
    pub fn pages_pass(&mut self) {
        self.pages_pass = true;
    }

    /// Whether `pages` more pages leave free what is to stay so.
    pub(crate) fn leaves_enough(&self, pages: u64) -> bool {
        let shape = self.core.geometry.shape();
        let wanted = self.kept_free.saturating_add(pages);
        // All pages of groups that are not there yet are free: mostly there is nothing to count.
        let groups = shape.max_groups.saturating_sub(self.core.groups());
        if self.kept_free == 0 || groups * GROUP_PAGES >= wanted {
            return true;
        }
        // The lanes are not read at once, so a page may seem to be freed before it was used.
        let used = self.core.pages_used().cast_signed().saturating_add(self.pages);
        let free = (shape.max_groups * GROUP_PAGES).saturating_sub(used.max(0).cast_unsigned());
        free >= wanted
    }

    /// Counts `pages` allocated (or, if negative, freed) pages.
    pub(crate) fn count_pages(&mut self, pages: i64) {
        self.pages += pages;
    }

    /// Sees to it that `len` bytes at `at`, of an object that nothing points to yet, are durable no
    /// later than the record: they are covered by its checksum, or by a fence before it if they are
    /// too many.
    pub(crate) fn prepared(&mut self, at: Offset, len: u64) {
        if self.core.memory.needs_write_back() {
            self.core.memory.write_back(at, len);
            match self.ranges.get_mut(self.ranges_used) {
                Some(range) if self.range_bytes + len <= RANGE_BYTES_MAX => {
                    *range = (at, len);
                    self.ranges_used += 1;
                    self.range_bytes += len;
                }
                _ => self.needs_prepare_fence = true,
            }
        } else if self.core.is_logged() {
            self.log_new(at, len);
        }
    }

    /// Stores `bytes` into an object at once, from byte `start` on, where nobody looks: past what
    /// the caller's own rules say that the object holds. They are durable no later than the record
    /// that changes what they say. The caller holds the lock over the object exclusively, and has
    /// staged nothing for the words that it stores into.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if they pass the end of `place`; [`Error::ForkedInside`].
    pub fn put_unseen(&mut self, place: Place, start: u64, bytes: &[u8]) -> Result<()> {
        let part = self.unseen(place, start, bytes.len() as u64)?;
        self.core.memory.put_bytes(part.offset(), bytes);
        self.prepared(part.offset(), part.len());
        Ok(())
    }

    /// [`Self::put_unseen`] of `len` zeros.
    ///
    /// # Errors
    /// As there.
    pub fn zero_unseen(&mut self, place: Place, start: u64, len: u64) -> Result<()> {
        let part = self.unseen(place, start, len)?;
        self.core.memory.put_zeros(part.offset(), part.len());
        match self.core.is_logged() {
            true => self.log_zeros(part.offset(), part.len()),
            false => self.prepared(part.offset(), part.len()),
        }
        Ok(())
    }

    fn unseen(&self, place: Place, start: u64, len: u64) -> Result<Place> {
        self.refuse_child()?;
        place.part(start, len).ok_or(Error::TooLarge {
            what: "bytes in an object",
            wanted: start.saturating_add(len),
            most: place.len(),
        })
    }

    /// [`Self::prepared`] for words that others may change too: a checksum can't cover them.
    pub(crate) fn prepared_shared(&mut self, at: Offset, len: u64) {
        self.core.memory.write_back(at, len);
        self.needs_prepare_fence = true;
    }

    /// Sees to it that the number of groups that is durable no later than the record includes group
    /// `number`: whoever made it may not have come so far.
    pub(crate) fn cover_group(&mut self, number: u64) {
        if number >= self.core.groups_durable.load(Ordering::Relaxed).max(self.groups) {
            self.groups = self.core.groups();
            self.prepared_shared(STATE_GROUPS, WORD);
        }
    }

    /// Whether something is staged that allocates in the group, or slab, that `word` is of.
    pub(crate) fn allocates_in(&self, word: BitWord) -> bool {
        let allocates = |at| self.staged_bits(at, Action::Allocate) != 0;
        match word {
            BitWord::Pages(group, _) => {
                let bitmap = self.core.geometry.bitmap(group);
                (0..LINE / WORD).any(|word| allocates(bitmap.plus(word * WORD)))
            }
            BitWord::Objects(page) => allocates(self.core.geometry.slab_map(page)),
        }
    }

    /// The leases of where the record allocates so far stay until it is settled, whatever the lane
    /// goes on with: before that, nobody else can see what is taken there. The record itself names
    /// them, also to whoever finds its owner dead.
    pub(crate) fn keep_leases(&mut self) {
        self.keeps = self.entries;
    }

    /// Remembers that an object of the slab at `head` is being freed.
    pub(crate) fn may_empty(&mut self, head: u64) {
        if self.emptied.contains(&Some(head)) {
            return;
        }
        if let Some(place) = self.emptied.iter_mut().find(|place| place.is_none()) {
            *place = Some(head);
        }
    }

    /// Commits: returns when every change has happened and, on media that need it, is durable.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the region is damaged; the region has failed then.
    pub fn commit(mut self) -> Result<()> {
        self.commit_step()
    }

    /// Commits like [`Self::commit`], but finishes, step by step, the intent that the transaction
    /// has set before it returns.
    ///
    /// # Errors
    /// Those of [`Self::commit`] and of the intent's handler.
    pub fn commit_and_finish(mut self) -> Result<()> {
        self.commit_step()?;
        self.leaves_lane = false;
        let finished = self.core.finish_intent(self.lane);
        match finished {
            Ok(()) => self.core.leave_lane(self.lane),
            Err(_) => self.core.orphan_lane(self.lane),
        }
        finished
    }

    /// Commits what is staged and goes on: the locks stay held, so nobody who takes them sees
    /// anything between this record and the next one, unless the caller dies.
    ///
    /// # Errors
    /// Those of [`Self::commit`].
    pub fn commit_part(&mut self) -> Result<()> {
        self.commit_record()?;
        self.end_leases();
        if self.has_told {
            self.core.wake_followers();
        }
        self.give_slabs_back()
    }

    /// Commits one step of an intent; the lane stays the caller's.
    pub(crate) fn commit_step(&mut self) -> Result<()> {
        self.commit_record()?;
        self.let_go();
        self.give_slabs_back()
    }

    pub(crate) fn commit_record(&mut self) -> Result<()> {
        self.refuse_child()?;
        if self.pages != 0 {
            let at = self.core.geometry.lane(self.lane).plus(journal::PAGES_USED);
            let used = self.core.memory.load(at, Ordering::Relaxed);
            let operand = used.wrapping_add_signed(self.pages);
            let entry = Entry { target: at, action: Action::Set, operand };
            self.core.stage_pair(self.entry(self.entries), entry.pack());
            self.entries += 1;
        }
        if self.entries == 0 {
            self.told = 0;
            self.drop_logged();
            return Ok(());
        }
        let is_logged = self.core.is_logged();
        if is_logged {
            self.log_entries()?;
        }
        if self.needs_prepare_fence {
            self.core.memory.fence();
        }
        let ranges = self.ranges.iter().take(self.ranges_used);
        for (index, &(at, len)) in ranges.enumerate() {
            let place = self.entry(self.entries + index as u64);
            self.core.stage_pair(place, [at.bytes(), len]);
        }
        // The last chance to notice that what was prepared is not in the region at all.
        self.core.check_health()?;
        let commit = self.commit.next(self.entries, self.ranges_used as u64);
        let version = self.next_version();
        self.prepare_batch(version);
        if is_logged {
            self.core.draw(self.lane);
        }
        self.core.arm(self.lane, commit);
        if is_logged {
            self.commit_logged();
        }
        self.set_versions(volatile::odd_before(version));
        if let Err(error) = self.core.apply(self.lane, commit) {
            self.core.fail("a journal record could not be applied");
            return Err(error);
        }
        self.core.retire(self.lane, commit);
        self.core.clear_freed(self.lane);
        // Before anybody can see what has changed.
        self.publish_batch();
        self.set_versions(version);
        let retired = commit.retired();
        self.begin_record(retired);
        Ok(())
    }

    /// Begins a record after that of `commit`.
    fn begin_record(&mut self, commit: Commit) {
        let groups = core::mem::take(&mut self.groups);
        self.core.groups_durable.fetch_max(groups, Ordering::Relaxed);
        self.commit = commit;
        self.entries = 0;
        self.filter = Filter::default();
        self.ranges_used = 0;
        self.range_bytes = 0;
        self.image_used = 0;
        self.needs_prepare_fence = false;
        self.pages = 0;
    }

    /// The locks that are held exclusively.
    fn exclusive(&self) -> impl Iterator<Item = u32> {
        let held = self.held.iter().take(self.held_used);
        held.filter(|(_, mode)| *mode == Mode::Exclusive).map(|(number, _)| *number)
    }

    /// The version that the change gives its locks: later than any of them has, and, if it tells,
    /// than that of any batch before it in the lane's ring.
    fn next_version(&self) -> u64 {
        let latest = |one, other| if volatile::is_later(other, one) { other } else { one };
        let least = if self.told == 0 { None } else { Some(self.core.least_version(self.lane)) };
        let held = self.exclusive().map(|number| self.core.version(number, Ordering::Relaxed));
        volatile::next_version(held.chain(least).reduce(latest).unwrap_or(0))
    }

    fn set_versions(&self, version: u64) {
        self.exclusive().for_each(|number| self.core.set_version(number, version));
    }

    /// Ends the leases that end with the record.
    fn end_leases(&mut self) {
        let entries = 0..core::mem::take(&mut self.keeps);
        self.core.end_kept_leases(self.lane, entries, |_| true);
    }

    /// Ends the leases that end with the record, and lets go of all locks.
    fn let_go(&mut self) {
        self.end_leases();
        let held = self.held.iter().take(self.held_used);
        for (place, &(number, mode)) in held.enumerate().rev() {
            self.core.release(self.lane, place as u32, number, mode);
        }
        self.held_used = 0;
        if core::mem::take(&mut self.has_told) {
            self.core.wake_followers();
        }
    }

    fn give_slabs_back(&mut self) -> Result<()> {
        let emptied = core::mem::take(&mut self.emptied);
        for head in emptied.into_iter().flatten() {
            self.reclaim_slab(head)?;
        }
        Ok(())
    }

    /// The object at `place`, filled with zeros: nothing points to it yet.
    pub(crate) fn zero(&mut self, place: Place) {
        self.core.memory.put_zeros(place.offset(), place.len());
    }
}

impl<M: Memory, H: Host> Drop for Tx<'_, M, H> {
    fn drop(&mut self) {
        if self.core.host.is_forked() {
            return;
        }
        // A record that could not be applied keeps its locks and lane: the region has failed.
        let retired = self.core.commit_word(self.lane).is_ok_and(|commit| !commit.is_armed());
        if retired {
            self.drop_logged();
            self.let_go();
            if self.leaves_lane {
                self.core.leave_lane(self.lane);
            }
        }
    }
}
