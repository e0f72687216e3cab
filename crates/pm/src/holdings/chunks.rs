//! The chunks in which holdings stand: taken by processes, linked as trees, given space.

use core::sync::atomic::Ordering;

use conquest_format::geometry::STATE_CHUNKS;
use conquest_format::volatile::holding::{CHILD, CHILDREN, CHUNK, FIRST, KEYS, PER_CHUNK, SIZE};
use conquest_format::volatile::slot;
use conquest_format::{Offset, PAGE, WORD};

use super::{Holding, UNSEEN};
use crate::core::Core;
use crate::host::Host;
use crate::lock::{GROW_LOCK, Mode};
use crate::memory::Memory;
use crate::tx::GROW_PLACE;
use crate::{Error, Result};

const _: () = assert!(KEYS + PER_CHUNK * WORD <= FIRST && FIRST + PER_CHUNK * SIZE <= CHUNK);
const _: () = assert!(CHUNK == PAGE);

/// The way to the chunks in which holdings under a lock stand.
pub(super) struct Way(u32);

impl Way {
    pub(super) fn of(number: u32) -> Way {
        Way(number.wrapping_mul(0x9E37_79B1))
    }

    /// Which child of the next chunk to go to.
    pub(super) fn turn(&mut self) -> u64 {
        self.0 = self.0.rotate_right(2);
        u64::from(self.0) % CHILDREN
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Chunks that have space.
    pub(super) fn chunks(&self) -> u32 {
        let chunks = self.memory.load(STATE_CHUNKS, Ordering::Acquire);
        chunks.min(self.geometry.shape().chunks.into()) as u32
    }

    /// Takes a free holding of slot `slot_number` on the way of lock `number`; its key is unseen.
    /// `lane` is the caller's, if it has one.
    pub(super) fn claim_holding(
        &self,
        slot_number: u32,
        number: u32,
        lane: Option<u32>,
    ) -> Result<Holding> {
        let mut link = self.geometry.slot(slot_number).plus(slot::CHUNK);
        let mut way = Way::of(number);
        // Damage may have made a circle.
        for _ in 0..=self.geometry.shape().chunks {
            let chunk = match self.linked_chunk(link)? {
                Some(chunk) => chunk,
                None => self.add_chunk(link, slot_number, lane)?,
            };
            if let Some(holding) = self.claim_in(chunk) {
                return Ok(holding);
            }
            link = self.geometry.chunk(chunk).plus(CHILD + way.turn() * WORD);
        }
        Err(self.damaged_link(link))
    }

    fn claim_in(&self, chunk: u32) -> Option<Holding> {
        (0..PER_CHUNK).map(|index| Holding::new(chunk, index)).find(|&holding| {
            let at = self.key_word(holding);
            self.memory.load(at, Ordering::Relaxed) == 0
                && self.memory.load(self.orphan_word(holding), Ordering::Relaxed) == 0
                && self
                    .memory
                    .compare_exchange(at, 0, UNSEEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// The chunk that the word at `link` names.
    pub(super) fn linked_chunk(&self, link: Offset) -> Result<Option<u32>> {
        let Some(chunk) = self.value(link, Ordering::Acquire).checked_sub(1) else {
            return Ok(None);
        };
        if chunk < self.chunks() { Ok(Some(chunk)) } else { Err(self.damaged_link(link)) }
    }

    #[cold]
    pub(super) fn damaged_link(&self, link: Offset) -> Error {
        let found = self.memory.load(link, Ordering::Relaxed);
        self.damaged("chunk of holdings", link, "a chunk that has space", found)
    }

    /// Takes a free chunk for slot `slot_number` and links it at `link`, unless somebody else links
    /// another one there; the chunk that is linked then.
    fn add_chunk(&self, link: Offset, slot_number: u32, lane: Option<u32>) -> Result<u32> {
        let chunk = loop {
            let seen = self.chunks();
            let free = (0..seen).find(|&chunk| {
                let owner = self.geometry.chunk_owner(chunk);
                self.value(owner, Ordering::Relaxed) == 0
                    && self.replace(owner, 0, slot_number + 1, Ordering::AcqRel)
            });
            match free {
                Some(chunk) => break chunk,
                None => self.grow_chunks(seen, lane)?,
            }
        };
        let at = self.geometry.chunk(chunk);
        for place in (0..CHILDREN * WORD).step_by(WORD as usize) {
            self.memory.store(at.plus(CHILD + place), 0, Ordering::Relaxed);
        }
        for index in 0..PER_CHUNK {
            self.memory.store(at.plus(KEYS + index * WORD), 0, Ordering::Relaxed);
        }
        if self.replace(link, 0, chunk + 1, Ordering::Release) {
            return Ok(chunk);
        }
        self.set_value(self.geometry.chunk_owner(chunk), 0, Ordering::Release);
        self.linked_chunk(link)?.ok_or_else(|| self.damaged_link(link))
    }

    /// Gives more chunks than `seen` space, for lane `lane`, or one that it takes for that.
    fn grow_chunks(&self, seen: u32, lane: Option<u32>) -> Result<()> {
        let most = self.geometry.shape().chunks;
        if seen >= most {
            let most = u64::from(most) * PER_CHUNK;
            return Err(Error::Holdings { path: self.path.clone(), most });
        }
        let Some(lane) = lane else {
            let tx = self.begin()?;
            return self.grow_chunks(seen, Some(tx.lane));
        };
        self.acquire(lane, GROW_PLACE, GROW_LOCK, Mode::Exclusive, false)?;
        let from = self.chunks();
        let grown = if from > seen {
            Ok(())
        } else {
            let twice = self.grow_chunks_to(from, from.saturating_mul(2).clamp(1, most));
            twice.or_else(|_| self.grow_chunks_to(from, from + 1))
        };
        self.release(lane, GROW_PLACE, GROW_LOCK, Mode::Exclusive);
        grown
    }

    /// Gives chunks `from..to` space and publishes them. No orphan may be named there before both
    /// is durable.
    pub(crate) fn grow_chunks_to(&self, from: u32, to: u32) -> Result<()> {
        self.host
            .back(&self.geometry.chunk_space(from, to), self.geometry.len_at(self.groups()))?;
        let per_chunk = PER_CHUNK as u32;
        let orphans = self.geometry.orphan(from * per_chunk);
        let len = self.geometry.orphan(to * per_chunk).bytes() - orphans.bytes();
        self.memory.put_zeros(orphans, len);
        self.memory.write_back(orphans, len);
        self.memory.fence();
        self.memory.put(STATE_CHUNKS, to.into(), Ordering::Release);
        self.memory.write_back(STATE_CHUNKS, WORD);
        self.memory.fence();
        Ok(())
    }

    /// Whether slot `number` has chunks.
    pub(crate) fn has_holdings(&self, number: u32) -> bool {
        self.value(self.geometry.slot(number).plus(slot::CHUNK), Ordering::Relaxed) != 0
    }

    pub(super) fn chunks_of(&self, number: u32) -> impl Iterator<Item = u32> + use<'_, M, H> {
        (0..self.chunks()).filter(move |&chunk| {
            let owner = self.geometry.chunk_owner(chunk);
            self.value(owner, Ordering::Relaxed) == number + 1
        })
    }
}
