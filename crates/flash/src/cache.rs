//! A cache of payload, in the index: so all processes of the volume share it, and it goes with the
//! index.
//!
//! What is in it is never trusted. Whoever reads has looked at the map, which has the checksum of
//! each unit; a unit of the cache is what was looked for if its checksum says so, as one that a
//! device has read. So nobody locks anything: a unit that is replaced while it is copied is read
//! from the device, and what has died in the middle of replacing one has spoilt nothing else. And
//! nothing in it has to be taken away when a unit is written anew, which is elsewhere then, or in
//! another generation of its segment.
//!
//! It consists of runs of 512 pages, each made when it is needed first, of which a table says where
//! they are; the table's pages are there from the start. The first page of a run has
//! a tag for each of the others: a number made of place and generation. These are in sets of
//! [`WAYS`]; a unit can be in any page of one set.

use core::sync::atomic::{AtomicU64, Ordering};

use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD};
use conquest_pm::Mode;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::index::{LOCK, Noted, Words};
use crate::kinds::CACHED;
use crate::transfer::Piece;
use crate::volume::Volume;

/// Most bytes of a cache: more are not used.
pub const CACHE_MAX: u64 = 64 << 30;
/// Most runs.
const RUNS_MAX: u64 = CACHE_MAX / (GROUP_PAGES * PAGE);
/// Pages of a set.
const WAYS: u64 = 8;
/// Sets of a run.
const SETS: u64 = (GROUP_PAGES - 1) / WAYS;

const _: () = assert!(RUNS_MAX * WORD <= GROUP_PAGES * PAGE && GROUP_PAGES * WORD <= PAGE);

/// The cache, as a process knows it.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Chooses what is replaced.
    turn: AtomicU64,
}

/// Where a unit may be.
#[derive(Clone, Copy)]
struct Set {
    /// Where the place of its run stands.
    hook: Offset,
    /// The run; none if it is not made yet.
    run: Offset,
    /// First page of the set.
    first: u64,
    tag: u64,
}

impl Set {
    fn tag_of(self, way: u64) -> Offset {
        self.run.plus((self.first + way) * WORD)
    }

    fn page_of(self, way: u64) -> Offset {
        self.run.plus((1 + self.first + way) * PAGE)
    }
}

/// A number that is different for what is in different places and generations, most often; not 0.
fn tag(place: u64, generation: u64) -> u64 {
    let mixed = (place ^ generation.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Lets the index, which is new, have a cache of up to `bytes`.
    pub(crate) fn allow_cache(&self, bytes: u64) -> Result<()> {
        let runs = runs_of(bytes, self.layout.unit);
        if runs == 0 {
            return Ok(());
        }
        self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            let pages = (runs * WORD).div_ceil(PAGE);
            let mut table = tx.alloc_run(CACHED, pages, None)?;
            for _ in 0..pages {
                tx.append(&mut table, &[0; PAGE as usize])?;
            }
            let table = tx.finish_run(table);
            tx.set(self.core.noted_at(Noted::CacheTable), table.bytes())?;
            tx.set(self.core.noted_at(Noted::CacheRuns), runs)
        })?;
        Ok(())
    }

    /// Reads `pieces`, which follow each other, from the cache as far as they are there, and
    /// otherwise from the devices: then they are kept.
    pub(crate) fn read_by_cache(&self, pieces: &[Piece], into: &mut [u8]) -> Result<()> {
        if !self.has_cache() {
            return self.read_now(pieces, into);
        }
        let (mut left, mut done) = (pieces, 0);
        while let [piece, others @ ..] = left {
            let len = self.bytes_of(piece);
            let part = into.get_mut(done..done + len).unwrap_or_default();
            if self.find_piece(piece, part) {
                (left, done) = (others, done + len);
                continue;
            }
            // With those behind it that are not there either.
            let more = others.iter().take_while(|piece| !self.may_have(piece)).count();
            let (missing, later) = left.split_at(1 + more);
            let len = missing.iter().map(|piece| self.bytes_of(piece)).sum::<usize>();
            let part = into.get_mut(done..done + len).unwrap_or_default();
            self.read_now(missing, part)?;
            self.keep_pieces(missing, part);
            (left, done) = (later, done + len);
        }
        Ok(())
    }

    pub(crate) fn has_cache(&self) -> bool {
        self.core.noted(Noted::CacheRuns) > 0
    }

    fn bytes_of(&self, piece: &Piece) -> usize {
        (piece.len * self.layout.unit) as usize
    }

    /// The set for the unit at `place`.
    fn set_of(&self, place: u64, generation: u64) -> Option<Set> {
        let tag = tag(place, generation);
        let run = (tag >> 32).checked_rem(self.core.noted(Noted::CacheRuns).min(RUNS_MAX))?;
        let hook = Offset::new(self.core.noted(Noted::CacheTable)).plus(run * WORD);
        let run = Offset::new(self.core.memory().load(hook, Ordering::Acquire));
        Some(Set { hook, run, first: (tag >> 8) % SETS * WAYS, tag })
    }

    /// The page of the cache that seems to have the unit that was at `place`.
    fn cached(&self, place: u64, generation: u64) -> Option<Offset> {
        let set = self.set_of(place, generation).filter(|set| !set.run.is_none())?;
        let memory = self.core.memory();
        let is_it = |way: &u64| memory.load(set.tag_of(*way), Ordering::Acquire) == set.tag;
        (0..WAYS).find(is_it).map(|way| set.page_of(way))
    }

    /// Whether the first unit of `piece` seems to be in the cache.
    pub(crate) fn may_have(&self, piece: &Piece) -> bool {
        let found = piece.found.as_ref().filter(|found| found.inline.is_none());
        found.is_some_and(|found| self.cached(found.place, found.generation).is_some())
    }

    /// Copies `piece` from the cache, if all of it is there, and is right.
    fn find_piece(&self, piece: &Piece, into: &mut [u8]) -> bool {
        let Some(found) = piece.found.as_ref().filter(|found| found.inline.is_none()) else {
            return false;
        };
        let units = into.chunks_mut(self.layout.unit as usize);
        let are_there = (found.place..).zip(units).all(|(place, unit)| {
            let page = self.cached(place, found.generation);
            page.is_some_and(|page| {
                self.core.memory().read(page, unit);
                true
            })
        });
        are_there && self.is_what_was(found, into)
    }

    /// Keeps what was read of `pieces`, if it is what was there when they were looked for.
    pub(crate) fn keep_pieces(&self, pieces: &[Piece], bytes: &[u8]) {
        let mut rest = bytes;
        for piece in pieces {
            let (now, later) = rest.split_at(self.bytes_of(piece).min(rest.len()));
            rest = later;
            let found = piece.found.as_ref().filter(|found| found.inline.is_none());
            if let Some(found) = found.filter(|found| self.is_what_was(found, now)) {
                let units = now.chunks_exact(self.layout.unit as usize);
                for (place, unit) in (found.place..).zip(units) {
                    self.keep_unit(place, found.generation, unit);
                }
            }
        }
    }

    fn keep_unit(&self, place: u64, generation: u64, unit: &[u8]) {
        let Some(mut set) = self.set_of(place, generation) else {
            return;
        };
        if set.run.is_none() {
            // Without memory for it there is no cache.
            let made = self.make_run(set.hook).ok();
            let Some(now) = made.and_then(|()| self.set_of(place, generation)) else {
                return;
            };
            set = now;
        }
        let memory = self.core.memory();
        let tag_in = |way| memory.load(set.tag_of(way), Ordering::Relaxed);
        if (0..WAYS).any(|way| tag_in(way) == set.tag) {
            return;
        }
        let turn = || self.cache.turn.fetch_add(1, Ordering::Relaxed) % WAYS;
        let way = (0..WAYS).find(|&way| tag_in(way) == 0).unwrap_or_else(turn);
        // A region that has failed says so elsewhere.
        let _kept = self.core.store_hint(set.tag_of(way), set.tag, set.page_of(way), unit);
    }

    /// Makes the run whose place is to stand at `hook`, unless somebody has.
    fn make_run(&self, hook: Offset) -> Result<()> {
        self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            if tx.get(hook) != 0 {
                return Ok(());
            }
            let mut pages = tx.alloc_run(CACHED, GROUP_PAGES, None)?;
            tx.append(&mut pages, &[0; PAGE as usize])?;
            let made = tx.finish_run(pages);
            tx.set(hook, made.bytes())
        })?;
        Ok(())
    }
}

/// Runs of a cache of `bytes`, for units of `unit` bytes: none unless these are pages.
pub(crate) fn runs_of(bytes: u64, unit: u64) -> u64 {
    if unit == PAGE { (bytes / (GROUP_PAGES * PAGE)).min(RUNS_MAX) } else { 0 }
}
