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
//! It consists of runs of 512 pages, of which a table says where they are; the table's pages are
//! there from the start. The first page of a run has a tag for each of the others: a number made of
//! place and generation. These are in sets of [`WAYS`]; a unit can be in any page of two sets, and
//! goes to the one with more room, so that nearly all pages are used before any unit finds none
//! (Azar, Broder, Karlin and Upfal, *Balanced allocations*, 1994).
//!
//! Runs are made one by one, when a unit finds no room. So nobody counts, and memory is taken as
//! the cache gets full. Which runs a unit's sets are in follows from its tag and the number of
//! runs, so that a new one takes over some of the units of a single other one, and all others stay
//! where they are (linear hashing: Litwin, VLDB 1980). Twice as many sets are then in a run that
//! was not split yet as in one that was; but of the two of a unit most often one is not.
//!
//! What is trimmed, or written anew, is taken out, so that it is in nobody's way; it would do no
//! harm.

use core::sync::atomic::{AtomicU64, Ordering};
use std::borrow::Cow;

use conquest_format::volume::BLOCK;
use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD};
use conquest_pm::Mode;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::index::{LOCK, Noted, Words};
use crate::kinds::CACHED;
use crate::transfer::{Found, Piece};
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

/// So many units that are in the cache are not read with those before and behind them: fewer take
/// less time than another request.
const BETWEEN: u64 = 16;

/// The cache, as a process knows it.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Chooses what is replaced.
    turn: AtomicU64,
}

/// Pages in which a unit may be.
#[derive(Clone, Copy)]
struct Set {
    run: Offset,
    /// The first one.
    first: u64,
}

impl Set {
    fn pages(self) -> impl Iterator<Item = Slot> {
        (self.first..self.first + WAYS).map(move |index| Slot { run: self.run, index })
    }
}

/// A page of a run.
#[derive(Clone, Copy)]
struct Slot {
    run: Offset,
    index: u64,
}

impl Slot {
    fn tag(self) -> Offset {
        self.run.plus(self.index * WORD)
    }

    fn page(self) -> Offset {
        self.run.plus((1 + self.index) * PAGE)
    }
}

/// A number that is different for what is in different places and generations, most often; not 0.
fn tag(place: u64, generation: u64) -> u64 {
    let mixed = (place ^ generation.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1
}

/// The two sets in which the unit with the tag `tag` may be, which are the same for some: which of
/// `runs` runs each is in, and its first page there; none if there are no runs.
fn sets_of(tag: u64, runs: u64) -> Option<[(u64, u64); 2]> {
    let half = 1 << runs.checked_ilog2()?;
    let run = |part: u64| {
        let run = part % (2 * half);
        if run < runs { run } else { run - half }
    };
    Some(
        [(tag >> 32, tag >> 8), (tag >> 48, tag >> 20)]
            .map(|(of_run, of_set)| (run(of_run), of_set % SETS * WAYS)),
    )
}
const _: () = assert!(2 * RUNS_MAX <= 1 << 16);

/// The run that has had what belongs to the last one of `runs`, before that was made.
fn split_for(runs: u64) -> Option<u64> {
    let last = runs.checked_sub(1)?;
    Some(last - (1 << last.checked_ilog2()?))
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
        let parts = self.by_presence(pieces);
        let (mut left, mut done) = (&*parts, 0);
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

    /// `pieces` in such parts that of each all units seem to be in the cache, or it is to be read
    /// from the devices.
    fn by_presence<'p>(&self, pieces: &'p [Piece]) -> Cow<'p, [Piece]> {
        if pieces.iter().all(|piece| piece.len == 1) {
            return Cow::Borrowed(pieces);
        }
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (mut part, mut rest) = piece.split_at(self.alike(piece));
            while let Some(more) = rest {
                parts.push(part);
                (part, rest) = more.split_at(self.alike(&more));
            }
            parts.push(part);
        }
        Cow::Owned(parts)
    }

    /// How many units of `piece`, from the first one on, seem to be in the cache, if that is;
    /// otherwise how many are to be read from the devices, with few that are there between them.
    fn alike(&self, piece: &Piece) -> u64 {
        let Some(found) = piece.found.as_ref().filter(|found| found.inline.is_none()) else {
            return piece.len;
        };
        let has = |index: u64| self.has_kept(found, index);
        if has(0) {
            return (1..piece.len).find(|&index| !has(index)).unwrap_or(piece.len);
        }
        let mut there = 0;
        for index in 1..piece.len {
            there = if has(index) { there + 1 } else { 0 };
            if there == BETWEEN {
                return index + 1 - there;
            }
        }
        piece.len - there
    }

    pub(crate) fn has_cache(&self) -> bool {
        self.core.noted(Noted::CacheRuns) > 0
    }

    fn bytes_of(&self, piece: &Piece) -> usize {
        (piece.len * self.layout.unit) as usize
    }

    /// Runs that there are.
    fn made(&self) -> u64 {
        self.core.noted(Noted::CacheMade).min(RUNS_MAX)
    }

    /// Where the place of run `run` stands.
    fn hook(&self, run: u64) -> Offset {
        Offset::new(self.core.noted(Noted::CacheTable)).plus(run * WORD)
    }

    /// The sets for the unit with the tag `tag` that there are by now.
    fn sets_for(&self, tag: u64) -> impl Iterator<Item = Set> {
        let sets = sets_of(tag, self.made()).into_iter().flatten();
        sets.filter_map(|(run, first)| {
            let run = Offset::new(self.core.memory().load(self.hook(run), Ordering::Acquire));
            (!run.is_none()).then_some(Set { run, first })
        })
    }

    /// The page that seems to have the unit with the tag `tag`.
    fn slot_of(&self, tag: u64) -> Option<Slot> {
        self.sets_for(tag).flat_map(Set::pages).find(|slot| self.tag_in(*slot) == tag)
    }

    /// The tag of what is in `slot`; 0 if that is nothing.
    fn tag_in(&self, slot: Slot) -> u64 {
        self.core.memory().load(slot.tag(), Ordering::Acquire)
    }

    /// The page of the cache that seems to have the unit that was at `place`.
    fn cached(&self, place: u64, generation: u64) -> Option<Offset> {
        self.slot_of(tag(place, generation)).map(Slot::page)
    }

    /// Whether the first unit of `piece` seems to be in the cache.
    pub(crate) fn may_have(&self, piece: &Piece) -> bool {
        piece.found.as_ref().is_some_and(|found| self.has_kept(found, 0))
    }

    /// Whether unit number `index` of those at `found` seems to be in the cache.
    pub(crate) fn has_kept(&self, found: &Found, index: u64) -> bool {
        self.cached(found.place + index, found.generation).is_some()
    }

    /// Reads whole units from `unit` on, if all of them are in the cache, and one look finds them:
    /// whether they are.
    pub(crate) fn read_kept(&self, unit: u64, into: &mut [u8]) -> Result<bool> {
        self.check_health()?;
        let size = self.layout.unit;
        let units = into.len() as u64 / size;
        let mut rest = into;
        self.with_pieces(unit, units, |piece, wanted| {
            let len = ((wanted.end - wanted.start) * size) as usize;
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
            rest = later;
            self.find_part(piece, wanted.start, now)
        })
    }

    /// Copies `piece` from the cache, if all of it is there, and is right.
    fn find_piece(&self, piece: &Piece, into: &mut [u8]) -> bool {
        self.find_part(piece, 0, into)
    }

    /// The same for units of `piece` from number `skip` on.
    fn find_part(&self, piece: &Piece, skip: u64, into: &mut [u8]) -> bool {
        let Some(found) = &piece.found else {
            return false;
        };
        let units = into.chunks_mut(self.layout.unit as usize);
        let are_there = (found.place + skip..).zip(units).all(|(place, unit)| {
            let page = self.cached(place, found.generation);
            page.is_some_and(|page| {
                self.core.memory().read(page, unit);
                true
            })
        });
        are_there && self.is_part_of(found, skip as usize, into)
    }

    /// Keeps `bytes`, which are those of `pieces`.
    fn keep_pieces(&self, pieces: &[Piece], bytes: &[u8]) {
        let mut rest = bytes;
        for piece in pieces {
            let (now, later) = rest.split_at(self.bytes_of(piece).min(rest.len()));
            rest = later;
            self.keep_piece(piece, now);
        }
    }

    /// Keeps `bytes`, which are those of `piece`: also what is in the region still, as it soon is
    /// on the devices only. If they are not, as others have changed something meanwhile, whoever
    /// looks for what was there finds that out.
    pub(crate) fn keep_piece(&self, piece: &Piece, bytes: &[u8]) {
        if let Some(found) = &piece.found {
            let units = bytes.chunks_exact(self.layout.unit as usize);
            for (place, unit) in (found.place..).zip(units) {
                self.keep_unit(place, found.generation, unit);
            }
        }
    }

    fn keep_unit(&self, place: u64, generation: u64, unit: &[u8]) {
        let tag = tag(place, generation);
        let made = self.made();
        let mut free = match self.slot_of(tag) {
            Some(slot) if self.is_in(slot, unit) => return,
            // What is there is wrong.
            Some(slot) => Some(slot),
            None => self.free_slot(tag),
        };
        if free.is_none() && made < self.core.noted(Noted::CacheRuns).min(RUNS_MAX) {
            // Without memory for it the others have to do.
            let (Ok(()) | Err(_)) = self.make_run(made);
            free = self.free_slot(tag);
        }
        let any = || {
            let turn = self.cache.turn.fetch_add(1, Ordering::Relaxed) % (2 * WAYS);
            self.sets_for(tag).flat_map(Set::pages).nth(turn as usize)
        };
        if let Some(slot) = free.or_else(any) {
            // A region that has failed says so elsewhere.
            let _kept = self.core.store_hint(slot.tag(), tag, slot.page(), unit);
        }
    }

    /// Whether the page `slot` has the bytes of `unit`.
    fn is_in(&self, slot: Slot, unit: &[u8]) -> bool {
        let mut found = [0; PAGE as usize];
        self.core.memory().read(slot.page(), &mut found);
        found == unit
    }

    /// A page that has nothing for the unit with the tag `tag`, in the set that has more of those.
    fn free_slot(&self, tag: u64) -> Option<Slot> {
        let (mut found, mut most) = (None, 0);
        for set in self.sets_for(tag) {
            let mut free = set.pages().filter(|slot| self.tag_in(*slot) == 0);
            let first = free.next();
            let count = first.iter().count() + free.count();
            if count > most {
                (found, most) = (first, count);
            }
        }
        found
    }

    /// Takes units out of the cache that are from `unit` to `end`, before they are trimmed: as many
    /// as the cache has room for at most.
    pub(crate) fn forget_kept(&self, unit: u64, end: u64) -> Result<()> {
        let per = self.layout.unit / BLOCK;
        let (mut at, mut left) = (unit, self.made() * SETS * WAYS);
        while left > 0
            && at < end
            && let Some((first, count)) = self.allocated_within(at * per, (end - at) * per)?
        {
            // What is allocated next may begin, and go on, behind the end.
            at = first / per;
            let units = (count / per).min(end.saturating_sub(at)).min(left);
            let pieces = self.look(at, units)?;
            for piece in &pieces {
                at += piece.len;
                left = left.saturating_sub(piece.len);
                self.forget_piece(piece);
            }
        }
        Ok(())
    }

    /// Takes the units of `piece` out of the cache.
    pub(crate) fn forget_piece(&self, piece: &Piece) {
        if let Some(found) = &piece.found {
            self.forget_places(found.place, piece.len, found.generation);
        }
    }

    /// Takes what is in the `len` units of the medium from `place` on out of the cache, if their
    /// segment has the generation `generation`.
    pub(crate) fn forget_places(&self, place: u64, len: u64, generation: u64) {
        (place..place + len).for_each(|place| self.forget_unit(tag(place, generation)));
    }

    fn forget_unit(&self, tag: u64) {
        if let Some(slot) = self.slot_of(tag) {
            // A region that has failed says so elsewhere. If another unit has come there since,
            // that is read from the device next time.
            let _forgotten = self.core.store_hint(slot.tag(), 0, slot.page(), &[]);
        }
    }

    /// Makes run number `made`, unless somebody has, and gives it what belongs there.
    fn make_run(&self, made: u64) -> Result<()> {
        let mut tx = self.core.begin()?;
        // Before the lock: the host may have to zero memory for it, and all others who write or
        // trim would wait for that.
        let mut pages = tx.alloc_run(CACHED, GROUP_PAGES, None)?;
        tx.append(&mut pages, &[0; PAGE as usize])?;
        let to = tx.finish_run(pages);
        tx.lock(LOCK, Mode::Exclusive)?;
        if tx.noted(Noted::CacheMade) != made {
            return Ok(());
        }
        tx.set(self.hook(made), to.bytes())?;
        tx.set(self.core.noted_at(Noted::CacheMade), made + 1)?;
        tx.commit()?;
        if let Some(from) = split_for(made + 1) {
            self.split_run(from, to, made + 1);
        }
        Ok(())
    }

    /// Moves the units of run number `split` that are to be found in the one at `to`, the last of
    /// `runs`, and no longer where they are. Others may replace them meanwhile: then what is moved
    /// is not what its tag says, as ever.
    fn split_run(&self, split: u64, to: Offset, runs: u64) {
        let memory = self.core.memory();
        let from = Offset::new(memory.load(self.hook(split), Ordering::Acquire));
        let mut unit = [0; PAGE as usize];
        for index in 0..SETS * WAYS {
            let [old, new] = [from, to].map(|run| Slot { run, index });
            let tag = self.tag_in(old);
            let place = (split, index / WAYS * WAYS);
            if tag != 0 && sets_of(tag, runs).is_some_and(|sets| !sets.contains(&place)) {
                memory.read(old.page(), &mut unit);
                // A region that has failed says so elsewhere.
                let _moved = self
                    .core
                    .store_hint(new.tag(), tag, new.page(), &unit)
                    .and_then(|()| self.core.store_hint(old.tag(), 0, old.page(), &[]));
            }
        }
    }
}

/// Runs of a cache of `bytes`, for units of `unit` bytes: none unless these are pages.
pub(crate) fn runs_of(bytes: u64, unit: u64) -> u64 {
    if unit == PAGE { (bytes / (GROUP_PAGES * PAGE)).min(RUNS_MAX) } else { 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::operations::tests::volume;
    use crate::transfer::Found;

    /// Several may find at the same time that another run is to be made.
    #[test]
    fn a_run_is_made_once_and_takes_over_what_belongs_there() {
        const UNITS: u64 = 100;
        let volume = volume();
        // So few units make no other one.
        volume.allow_cache(GROUP_PAGES * PAGE).unwrap();
        volume.make_run(0).unwrap();
        let unit_of = |place: u64| vec![place as u8; PAGE as usize];
        (0..UNITS).for_each(|place| volume.keep_unit(place, 1, &unit_of(place)));
        let run = |number| volume.core.memory().load(volume.hook(number), Ordering::Acquire);
        let check = |runs: u64| {
            assert_eq!(volume.made(), runs);
            let mut unit = vec![0; PAGE as usize];
            for place in 0..UNITS {
                volume.core.memory().read(volume.cached(place, 1).unwrap(), &mut unit);
                assert!(unit == unit_of(place), "unit {place} of {runs} runs");
            }
            let tags = (0..runs).flat_map(|number| {
                let first = Offset::new(run(number));
                (0..SETS * WAYS).map(move |index| first.plus(index * WORD))
            });
            let has = |at: &Offset| volume.core.memory().load(*at, Ordering::Acquire) != 0;
            assert_eq!(tags.filter(has).count() as u64, UNITS);
        };
        check(1);
        for made in 0..2 {
            volume.make_run(made).unwrap();
            check(made + 1);
            let before = run(made);
            volume.make_run(made).unwrap();
            assert_eq!(run(made), before);
            check(made + 1);
        }
    }

    /// A run is nearly full before another one is made, or anything has to go.
    #[test]
    fn a_unit_finds_room_until_nearly_all_pages_are_used() {
        const UNITS: u64 = SETS * WAYS * 8 / 10;
        let volume = volume();
        volume.allow_cache(2 * GROUP_PAGES * PAGE).unwrap();
        (0..UNITS).for_each(|place| volume.keep_unit(place, 1, &[1; PAGE as usize]));
        assert_eq!(volume.made(), 1);
        assert!((0..UNITS).all(|place| volume.cached(place, 1).is_some()));
        // Then there is another one, and all have room there.
        (UNITS..SETS * WAYS + 8).for_each(|place| volume.keep_unit(place, 1, &[1; PAGE as usize]));
        assert_eq!(volume.made(), 2);
        assert!((0..SETS * WAYS + 8).all(|place| volume.cached(place, 1).is_some()));
        // And no more: others have to go.
        (0..4 * SETS * WAYS).for_each(|place| volume.keep_unit(place, 1, &[1; PAGE as usize]));
        assert_eq!(volume.made(), 2);
        let kept = (0..4 * SETS * WAYS).filter(|place| volume.cached(*place, 1).is_some()).count();
        assert!(kept as u64 > 2 * SETS * WAYS * 95 / 100, "{kept}");
    }

    #[test]
    fn what_is_trimmed_is_kept_no_longer() {
        const PER: u64 = PAGE / BLOCK;
        let volume = volume();
        volume.allow_cache(GROUP_PAGES * PAGE).unwrap();
        let mut bytes = vec![7; 6 * PAGE as usize];
        // With a hole between them.
        for unit in [0, 20] {
            volume.write(unit * PER, &bytes).unwrap();
            volume.flush().unwrap();
            volume.read(unit * PER, &mut bytes).unwrap();
        }
        let is_kept = |unit: u64| volume.may_have(&volume.look(unit, 1).unwrap()[0]);
        let places: Vec<Piece> =
            [0, 20].iter().flat_map(|&at| volume.look(at, 6).unwrap()).collect();
        let kept = || {
            let units = places.iter().flat_map(|piece| {
                let found = piece.found.as_ref().unwrap();
                (found.place..found.place + piece.len).map(|place| (place, found.generation))
            });
            units.filter(|&(place, generation)| volume.cached(place, generation).is_some()).count()
        };
        assert_eq!(kept(), 12);
        // Parts of two units are written anew, with zeros in them, in other places: what they were
        // stays until it is replaced.
        volume.trim(2 * PER + 1, 20 * PER).unwrap();
        assert!(is_kept(1) && is_kept(25) && !is_kept(3) && !is_kept(21));
        assert_eq!(kept(), 3 + 4);
        volume.trim(0, volume.info().unwrap().capacity * PER).unwrap();
        assert_eq!(kept(), 2);
        assert!((0..30).all(|unit| !is_kept(unit)));
    }

    /// What is allocated next may begin behind what is trimmed, or go on there.
    #[test]
    fn what_is_behind_what_is_trimmed_stays() {
        const PER: u64 = PAGE / BLOCK;
        let volume = volume();
        volume.allow_cache(GROUP_PAGES * PAGE).unwrap();
        let mut bytes = vec![7; 6 * PAGE as usize];
        volume.write(20 * PER, &bytes).unwrap();
        volume.flush().unwrap();
        volume.read(20 * PER, &mut bytes).unwrap();
        let kept = || {
            let is_kept = |&unit: &u64| volume.may_have(&volume.look(unit, 1).unwrap()[0]);
            (20..26).filter(is_kept).count()
        };
        assert_eq!(kept(), 6);
        volume.trim(10 * PER, 10 * PER).unwrap();
        assert_eq!(kept(), 6);
        volume.trim(15 * PER, 7 * PER).unwrap();
        assert_eq!(kept(), 4);
    }

    #[test]
    fn what_is_there_is_not_read_with_what_is_not_unless_it_is_little() {
        let volume = volume();
        volume.allow_cache(GROUP_PAGES * PAGE).unwrap();
        let found = Found { place: 1000, generation: 3, sums: (0..60).collect(), inline: None };
        let hole = Piece { unit: 160, len: 5, found: None };
        let pieces = [Piece { unit: 100, len: 60, found: Some(found) }, hole.clone()];
        let parts = || {
            let parts = volume.by_presence(&pieces).into_owned();
            // All of them are told of, and nothing else.
            let mut at = 100;
            for part in &parts {
                assert_eq!(part.unit, at);
                at += part.len;
                match &part.found {
                    None => assert_eq!(*part, hole),
                    Some(found) => {
                        let first = part.unit - 100;
                        let sums: Vec<u32> =
                            (first..first + part.len).map(|it| it as u32).collect();
                        assert_eq!((found.place, &found.sums), (1000 + first, &sums));
                    }
                }
            }
            assert_eq!(at, 165);
            parts.iter().map(|part| part.len).collect::<Vec<_>>()
        };
        assert_eq!(parts(), [60, 5]);
        (0..60).for_each(|index| volume.keep_unit(1000 + index, 3, &[1; PAGE as usize]));
        assert_eq!(parts(), [60, 5]);
        let forget = |index: u64| volume.forget_unit(tag(1000 + index, 3));
        // Fifteen are between the second and the third one, and sixteen behind that.
        [3, 4, 20, 37].into_iter().for_each(forget);
        assert_eq!(parts(), [3, 18, 16, 1, 22, 5]);
        [0, 59].into_iter().for_each(forget);
        assert_eq!(parts(), [21, 16, 1, 21, 1, 5]);
    }

    #[test]
    fn what_is_there_in_part_is_read_as_it_is() {
        const UNITS: u64 = 60;
        let volume = volume();
        volume.allow_cache(GROUP_PAGES * PAGE).unwrap();
        let bytes: Vec<u8> = (0..UNITS * PAGE).map(|at| (at / PAGE + at % 251) as u8).collect();
        volume.write(0, &bytes).unwrap();
        volume.flush().unwrap();
        let mut random = 1_u64;
        for _ in 0..100 {
            for unit in 0..UNITS {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let found = volume.look(unit, 1).unwrap().remove(0).found.unwrap();
                if random >> 60 < 7 {
                    volume.forget_unit(tag(found.place, found.generation));
                }
                if random >> 60 == 6 {
                    // What is there may be anything.
                    volume.keep_unit(found.place, found.generation, &[9; PAGE as usize]);
                }
            }
            let mut read = vec![9; bytes.len()];
            volume.read_units(0, &mut read).unwrap();
            assert!(read == bytes);
            // What was wrong has gone.
            for (unit, bytes) in (0..).zip(bytes.chunks_exact(PAGE as usize)) {
                let found = volume.look(unit, 1).unwrap().remove(0).found.unwrap();
                let page = volume.cached(found.place, found.generation).unwrap();
                let mut kept = [0; PAGE as usize];
                volume.core.memory().read(page, &mut kept);
                assert!(kept == bytes, "unit {unit}, {:?}", found.inline);
            }
        }
    }

    /// Also if no device need be asked.
    #[test]
    fn nothing_is_read_in_order_from_a_volume_that_has_failed() {
        let volume = volume();
        volume.allow_cache(GROUP_PAGES * PAGE).unwrap();
        volume.write(0, &[7; PAGE as usize]).unwrap();
        volume.flush().unwrap();
        let mut unit = [0; PAGE as usize];
        volume.read_in_order(0, &mut unit).unwrap();
        assert!(volume.read_kept(0, &mut unit).unwrap());
        volume.fail().unwrap();
        let outcome = volume.read_in_order(0, &mut unit);
        assert!(matches!(outcome, Err(crate::Error::Failed { .. })));
    }

    /// A cache is of use as a whole, also if some of its runs are not split yet.
    #[test]
    fn all_runs_are_used_however_many_there_are() {
        const RUNS: u64 = 6;
        const UNITS: u64 = RUNS * SETS * WAYS * 80 / 100;
        let volume = volume();
        volume.allow_cache(RUNS * GROUP_PAGES * PAGE).unwrap();
        (0..UNITS).for_each(|place| volume.keep_unit(place, 1, &[1; PAGE as usize]));
        let kept = (0..UNITS).filter(|place| volume.cached(*place, 1).is_some()).count() as u64;
        assert!(volume.made() == RUNS && kept > UNITS * 97 / 100, "{kept} of {UNITS}");
    }

    /// Each new run takes units of the one that is split for it only.
    #[test]
    fn what_a_new_run_does_not_get_stays_where_it_is() {
        let tags: Vec<u64> = (0..4000).map(|place| tag(place, place % 7)).collect();
        let places = |tag: u64, runs: u64| sets_of(tag, runs).unwrap();
        for &tag in &tags {
            assert_eq!(sets_of(tag, 0), None);
            assert_eq!(places(tag, 1).map(|(run, _)| run), [0, 0]);
        }
        assert_eq!((split_for(0), split_for(1)), (None, None));
        for runs in 2..100 {
            let split = split_for(runs).unwrap();
            let (mut moved, mut rest) = (0_u64, 0);
            for &tag in &tags {
                for (before, now) in places(tag, runs - 1).into_iter().zip(places(tag, runs)) {
                    assert!(now == before || before.0 == split && now == (runs - 1, before.1));
                    moved += u64::from(now != before);
                    rest += u64::from(now.0 == split);
                }
            }
            // About half of them.
            assert!(moved.abs_diff(rest) < 600 && moved > 0, "{runs}: {moved} and {rest}");
        }
    }
}
