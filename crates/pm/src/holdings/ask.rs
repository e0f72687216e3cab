//! Asking who holds what; and holdings of transactions.

use core::sync::atomic::Ordering;

use conquest_format::WORD;
use conquest_format::journal::{Action, Entry};
use conquest_format::volatile::holding::{CHILD, PER_CHUNK};
use conquest_format::volatile::{lock, slot};

use super::chunks::Way;
use super::{DEAD, Held, Holding, KIND, LASTS, Parcel, UNSEEN, key_word};
use crate::Result;
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::tx::Tx;
use crate::wait::Patience;

impl<M: Memory, H: Host> Core<M, H> {
    /// Sleeps while word `index` of `holding` has the low half `seen`: a nap at most, after which
    /// the caller looks again at what he waits for.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`]; [`crate::Error::Failed`].
    pub fn sleep_on(&self, holding: Holding, index: u64, seen: u32) -> Result<()> {
        self.sleep(&mut Patience::new(true), self.held_at(holding, index), seen, None)
    }

    /// Calls `visit` for the holdings of slot `number` that count, as they are at some time.
    pub fn holdings_of(&self, number: u32, mut visit: impl FnMut(Held)) {
        for chunk in self.chunks_of(number) {
            self.visit_chunk(chunk, &mut visit);
        }
    }

    /// [`Tx::holdings`] without the lock: holdings as they are at some time.
    ///
    /// # Errors
    /// As there.
    pub fn look_at_holdings(&self, number: u32, mut visit: impl FnMut(Held)) -> Result<()> {
        for slot_number in 0..self.geometry.shape().slots {
            self.visit_slot(slot_number, self.wrap(number), &mut visit)?;
        }
        Ok(())
    }

    /// The words by which holdings name orphans.
    pub fn orphans(&self) -> impl Iterator<Item = u64> {
        let holdings = 0..self.chunks() * PER_CHUNK as u32;
        let word = |number| self.memory.load(self.orphan_word(Holding(number)), Ordering::Relaxed);
        holdings.map(word).filter(|word| *word != 0)
    }

    /// Calls `visit` for each holding in `chunk` that counts; whether there is anything at all.
    fn visit_chunk(&self, chunk: u32, visit: &mut impl FnMut(Held)) -> bool {
        let mut is_any = false;
        for holding in (0..PER_CHUNK).map(|index| Holding::new(chunk, index)) {
            let word = self.memory.load(self.key_word(holding), Ordering::Acquire);
            is_any |= word != 0;
            let is_gone = word & UNSEEN != 0 || word & (DEAD | LASTS) == DEAD;
            if word & KIND != 0 && !is_gone {
                visit(Held::unpack(holding, word));
            }
        }
        is_any
    }

    /// Calls `visit` for each holding on the way of lock `number` of slot `slot_number` that
    /// counts; whether there is anything at all.
    fn visit_slot(
        &self,
        slot_number: u32,
        number: u32,
        visit: &mut impl FnMut(Held),
    ) -> Result<bool> {
        let mut link = self.geometry.slot(slot_number).plus(slot::CHUNK);
        let mut way = Way::of(number);
        let mut is_any = false;
        for _ in 0..=self.geometry.shape().chunks {
            let Some(chunk) = self.linked_chunk(link)? else {
                return Ok(is_any);
            };
            is_any |= self.visit_chunk(chunk, visit);
            link = self.geometry.chunk(chunk).plus(CHILD + way.turn() * WORD);
        }
        Err(self.damaged_link(link))
    }
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// Begins to hold `key` (at most [`super::KEY_MAX`]), which nobody else can know of yet, or
    /// whose lock `number` the caller holds exclusively, with `kind` and `words`. Waits for nobody.
    /// The holding does not end with the transaction.
    ///
    /// # Errors
    /// [`crate::Error::Holdings`] if there are too many; those of growing.
    pub fn hold(&mut self, number: u32, kind: u8, key: u64, words: &[u64]) -> Result<Holding> {
        let slot_number = self.core.slot.load(Ordering::Relaxed);
        self.hold_in(slot_number, number, key_word(kind, key), words)
    }

    /// As [`Self::hold`], in a parcel.
    ///
    /// # Errors
    /// As there.
    pub fn hold_for(
        &mut self,
        parcel: &Parcel<H>,
        number: u32,
        kind: u8,
        key: u64,
        words: &[u64],
    ) -> Result<Holding> {
        self.hold_in(parcel.slot(), number, key_word(kind, key), words)
    }

    fn hold_in(
        &mut self,
        slot_number: u32,
        number: u32,
        word: u64,
        words: &[u64],
    ) -> Result<Holding> {
        let number = self.core.wrap(number);
        let holding = self.core.claim_holding(slot_number, number, Some(self.lane))?;
        self.core.show(number, holding, word, words);
        Ok(holding)
    }

    /// Makes `holding`, which counts, one that lasts; false if it does not count any more. The
    /// caller holds the lock over what is held exclusively.
    pub fn make_lasting(&self, holding: Holding) -> bool {
        let at = self.core.key_word(holding);
        let memory = &self.core.memory;
        let mut word = memory.load(at, Ordering::Relaxed);
        while word & KIND != 0 && word & (UNSEEN | DEAD) == 0 {
            let new = word | LASTS;
            match memory.compare_exchange(at, word, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }

    /// Calls `visit` for holdings of all processes, among them each under lock `number`, which the
    /// caller holds exclusively. Those of the dead may be among them as long as nobody has noticed,
    /// and those that last until they are buried.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if the holdings are damaged.
    pub fn holdings(&self, number: u32, mut visit: impl FnMut(Held)) -> Result<()> {
        let core = self.core;
        let number = core.wrap(number);
        let at = core.lock_word(number).plus(lock::WORD);
        // The flag that a holder has set whom this does not see yet stays.
        let clear = |value: u32| (value & lock::HOLDINGS != 0).then_some(value & !lock::HOLDINGS);
        if core.update(at, 0, Ordering::AcqRel, clear).is_err() {
            return Ok(());
        }
        core.memory.full_fence();
        let mut is_any = false;
        let mut visited = Ok(());
        for slot_number in 0..core.geometry.shape().slots {
            match core.visit_slot(slot_number, number, &mut visit) {
                Ok(found) => is_any |= found,
                Err(error) => visited = Err(error),
            }
        }
        if is_any || visited.is_err() {
            core.note_holdings(number);
        }
        visited
    }

    /// What `holding` keeps in existence although it has no name, as this transaction sees it; 0
    /// for nothing.
    pub fn orphan(&self, holding: Holding) -> u64 {
        self.get(self.core.orphan_word(holding))
    }

    /// Ends `holding`, which keeps nothing in existence. The caller holds the lock over what is
    /// held exclusively.
    pub fn end_holding(&self, holding: Holding) {
        self.core.memory.store(self.core.key_word(holding), 0, Ordering::Release);
        if self.core.slot_of(holding) != self.core.slot.load(Ordering::Relaxed) {
            // Its chunk may have nobody to take it back.
            self.core.tell_of_burials();
        }
    }

    /// Stages that `holding` keeps what `word` names, 0 for nothing. The caller holds the lock over
    /// what is named exclusively.
    ///
    /// # Errors
    /// [`crate::Error::TooLarge`] if the lane is full.
    pub fn set_orphan(&mut self, holding: Holding, word: u64) -> Result<()> {
        let target = self.core.orphan_word(holding);
        self.stage(Entry { target, action: Action::Set, operand: word })
    }
}
