//! Chunks of the log: whose they are, and when they are free again.
//!
//! A chunk is *held* while its lane goes on in it. One that is not is free again once all of its
//! records are durable; one that is held is begun anew by its lane then. The word that says whose
//! it is also counts how often it was begun, and changes before anything else does: so whoever
//! reads a chunk looks at it before and after, and whoever frees one frees that life of it only.

use core::ops::RangeInclusive;
use core::sync::atomic::Ordering;

use conquest_format::log::{CHUNK, Owner, chunk as header, end, head, lane, unpack_end};
use conquest_format::{GROUP_PAGES, Offset, WORD};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::{Error, Result};

/// Bytes of a chunk that are not worth beginning a record in.
const SCRAP: u64 = 256;
/// Pages that records name before somebody makes them durable: a sixteenth of what the region can
/// have, but not more than 128 MiB. Whoever does so has a copy of them.
const PAGES_PART: u64 = 16;
const PAGES_MOST: u64 = 32768;
/// Not less than a fourth, from 32 MiB to 64 MiB: writers would do so themselves all the time, as
/// they are faster than whoever writes that for them.
const LEAST_PART: u64 = 4;
const PAGES_LEAST: RangeInclusive<u64> = 8192..=16384;
/// Pages that they name before the keeper is to do so, if there is one, and a half of the above is
/// not less: 16 MiB, of which an epoch can write twice as many to their places.
const PAGES_SOON: u64 = 4096;
/// Times that somebody makes records durable to get a chunk.
const TRIES: u32 = 16;

impl<M: Memory, H: Host> Core<M, H> {
    pub(super) fn header(&self, chunk: u32, word: u64, order: Ordering) -> u64 {
        self.memory.load(self.geometry.log_header(chunk).plus(word), order)
    }

    pub(super) fn set_header(&self, chunk: u32, word: u64, value: u64, order: Ordering) {
        self.memory.store(self.geometry.log_header(chunk).plus(word), value, order);
    }

    fn lane_chunk_word(&self, lane: u32) -> Offset {
        self.geometry.log_lane(lane).plus(lane::CHUNK)
    }

    /// The chunk in which lane `lane`'s next record begins, if it has one.
    pub(super) fn chunk_of(&self, lane: u32) -> Option<u32> {
        let word = self.memory.load(self.lane_chunk_word(lane), Ordering::Relaxed);
        let chunk = u32::try_from(word.checked_sub(1)?).ok()?;
        (chunk < self.geometry.shape().log && self.is_held_by(chunk, lane)).then_some(chunk)
    }

    /// Whose `chunk` is.
    pub(super) fn owner(&self, chunk: u32, order: Ordering) -> Owner {
        Owner::unpack(self.header(chunk, header::OWNER, order))
    }

    fn is_held_by(&self, chunk: u32, lane: u32) -> bool {
        let owner = self.owner(chunk, Ordering::Relaxed);
        owner.is_held && owner.lane == Some(lane)
    }

    /// Makes `chunk` another one's, if it is still `from`'s.
    fn replace_owner(&self, chunk: u32, from: Owner, to: Owner) -> bool {
        let at = self.geometry.log_header(chunk).plus(header::OWNER);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory.compare_exchange(at, from.pack(), to.pack(), success, failure).is_ok()
    }

    /// The chunks that lane `lane` holds.
    pub(super) fn held_by(&self, lane: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.geometry.shape().log).filter(move |&chunk| self.is_held_by(chunk, lane))
    }

    /// A chunk for the next record of lane `lane`, and where it begins there.
    pub(super) fn open_chunk(&self, lane: u32) -> Result<(u32, u64)> {
        if let Some(chunk) = self.chunk_of(lane) {
            let end = self.chunk_end(chunk);
            let last = self.header(chunk, header::LAST, Ordering::Relaxed);
            if last < self.durable() {
                self.begin_chunk(chunk, lane);
                return Ok((chunk, 0));
            }
            if end.is_multiple_of(WORD) && end + SCRAP <= CHUNK {
                return Ok((chunk, end));
            }
        }
        let left = self.chunk_of(lane);
        let chunk = self.take_chunk(lane)?;
        self.go_on_in(lane, chunk);
        if let Some(left) = left {
            self.let_chunk_go(left);
        }
        Ok((chunk, 0))
    }

    /// Lane `lane`'s next record is to begin in `chunk`, which it holds.
    pub(super) fn go_on_in(&self, lane: u32, chunk: u32) {
        let word = u64::from(chunk) + 1;
        self.memory.store(self.lane_chunk_word(lane), word, Ordering::Relaxed);
    }

    /// Lane `lane`, which holds `chunk`, does not go on in it.
    pub(super) fn let_chunk_go(&self, chunk: u32) {
        let owner = Owner { is_held: false, ..self.owner(chunk, Ordering::Relaxed) };
        self.set_header(chunk, header::OWNER, owner.pack(), Ordering::Release);
    }

    /// Begins `chunk`, which lane `lane` holds, anew.
    fn begin_chunk(&self, chunk: u32, lane: u32) {
        let owner = self.owner(chunk, Ordering::Relaxed).begun(lane);
        self.set_header(chunk, header::OWNER, owner.pack(), Ordering::Relaxed);
        // Who sees anything of what is stored from now on sees that.
        self.memory.full_fence();
        self.set_chunk_end(chunk, 0);
    }

    /// Bytes of the fragments in `chunk`, which the caller's lane holds.
    pub(super) fn chunk_end(&self, chunk: u32) -> u64 {
        let life = self.owner(chunk, Ordering::Relaxed).life;
        unpack_end(self.header(chunk, header::END, Ordering::Relaxed), life)
    }

    /// Counts so many bytes of fragments in `chunk`, which the caller's lane holds.
    pub(super) fn set_chunk_end(&self, chunk: u32, bytes: u64) {
        let life = self.owner(chunk, Ordering::Relaxed).life;
        self.set_header(chunk, header::END, end(bytes, life), Ordering::Release);
    }

    /// A chunk that was free and that lane `lane` holds now. If there is none, some are made free
    /// by making what is in them durable.
    pub(super) fn take_chunk(&self, lane: u32) -> Result<u32> {
        for _ in 0..TRIES {
            if let Some(chunk) = self.find_chunk(lane) {
                return Ok(chunk);
            }
            let Some(make_durable) = &self.options.make_durable else {
                break;
            };
            make_durable(self)?;
        }
        Err(Error::LogFull { path: self.path.clone(), chunks: self.geometry.shape().log })
    }

    fn find_chunk(&self, lane: u32) -> Option<u32> {
        let count = self.geometry.shape().log;
        let first = self.add_to_log_word(head::ROTOR, 1, Ordering::Relaxed);
        let is_taken = |chunk: &u32| {
            let owner = self.owner(*chunk, Ordering::Relaxed);
            owner.lane.is_none() && self.replace_owner(*chunk, owner, owner.begun(lane))
        };
        let step = |step| (first.wrapping_add(step) % u64::from(count)) as u32;
        let chunk = (0..u64::from(count)).map(step).find(is_taken)?;
        self.memory.full_fence();
        self.set_chunk_end(chunk, 0);
        self.add_to_log_word(head::USED, 1, Ordering::Relaxed);
        Some(chunk)
    }

    /// Before an operation begins: makes records durable if few chunks are free, so that it does
    /// not have to while it holds locks; or if they name many pages, which take memory then.
    pub(crate) fn keep_log_short(&self) -> Result<()> {
        let Some(make_durable) = &self.options.make_durable else {
            return Ok(());
        };
        let shape = self.geometry.shape();
        let free = self.free_in_log();
        // Those that lanes do not have anyway.
        let (all, lanes) = (u64::from(shape.log - shape.lanes), u64::from(shape.lanes));
        let pages = self.log_word(head::PAGES, Ordering::Relaxed);
        let most = most_named(shape.max_groups * GROUP_PAGES);
        if free < (all / 4).max(lanes.min(all / 2)) || pages > most {
            // If nothing is going to be added, it is long enough.
            return if self.refusal().is_some() { Ok(()) } else { make_durable(self) };
        }
        if free < all / 4 * 3 || pages > PAGES_SOON.min(most / 2) {
            self.hurry_keeper();
        }
        Ok(())
    }

    fn free_in_log(&self) -> u64 {
        let used = self.log_word(head::USED, Ordering::Relaxed);
        u64::from(self.geometry.shape().log).saturating_sub(used)
    }

    /// Whether so much of the log is in use that somebody makes records durable before long.
    pub fn is_log_long(&self) -> bool {
        let shape = self.geometry.shape();
        self.is_logged() && self.free_in_log() < u64::from(shape.log - shape.lanes) / 2
    }

    /// Makes chunks free of which all records are below `cut`.
    pub(super) fn free_chunks_below(&self, cut: u64) {
        let mut used = 0;
        for chunk in 0..self.geometry.shape().log {
            let owner = self.owner(chunk, Ordering::Acquire);
            if owner.lane.is_none() {
                continue;
            }
            let is_over = !owner.is_held
                && self.header(chunk, header::LAST, Ordering::Relaxed) < cut
                && self.replace_owner(chunk, owner, Owner { lane: None, ..owner });
            used += u64::from(!is_over);
        }
        self.memory.store(self.geometry.log_head(head::USED), used, Ordering::Relaxed);
    }
}

/// Pages that records of a region that can have `pages` name before somebody makes them durable.
fn most_named(pages: u64) -> u64 {
    let least = (pages / LEAST_PART).clamp(*PAGES_LEAST.start(), *PAGES_LEAST.end());
    (pages / PAGES_PART).clamp(least, PAGES_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_regions_let_a_fourth_wait_and_large_ones_a_sixteenth() {
        let mib = |mib: u64| mib * 256;
        for (all, most) in
            [(4, 32), (128, 32), (200, 50), (256, 64), (1024, 64), (1600, 100), (1 << 20, 128)]
        {
            assert_eq!(most_named(mib(all)), mib(most), "{all} MiB");
        }
    }
}
