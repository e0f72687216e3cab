//! Ending what the dead hold, and what was kept in existence by that alone.

use core::sync::atomic::Ordering;

use conquest_format::volatile::holding::PER_CHUNK;
use conquest_format::volatile::{head, slot};

use super::{DEAD, Held, Holding, KIND, LASTS, UNSEEN};
use crate::core::{Core, NO_SLOT};
use crate::host::Host;
use crate::memory::Memory;
use crate::tx::Tx;
use crate::wait::Patience;
use crate::{Error, Result};

/// What is left of a holding that is buried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remains {
    /// It ends.
    Nothing,
    /// It goes on, as a lasting holding of this kind, without its process.
    Kind(u8),
}

/// Ends a holding that its process can't end, or one that lasts: called with a transaction, the
/// holding, and its orphan's word. It takes the lock over what the holding or the word names, sees
/// that the word is still the same, and stages that the orphan is moved or is no more, with
/// [`Tx::set_orphan`]. A holding that goes on keeps nothing in existence.
pub type BurialHandler<M, H> =
    Box<dyn Fn(&mut Tx<'_, M, H>, Held, u64) -> Result<Remains> + Send + Sync>;

impl<M: Memory, H: Host> Core<M, H> {
    /// Says that there may be something to bury. Exchanged, not stored: see
    /// [`Self::tell_of_orphans`].
    pub(crate) fn tell_of_burials(&self) {
        let flag = self.geometry.head(head::BURIALS);
        let (Ok(_) | Err(_)) = self.update(flag, 0, Ordering::Release, |_| Some(1));
    }

    /// Marks the holdings of slot `number`, whose process is dead and whose kernel lock the caller
    /// holds, or which is detaching.
    pub(crate) fn mark_dead(&self, number: u32) {
        for chunk in self.chunks_of(number) {
            for index in 0..PER_CHUNK {
                let at = self.key_word(Holding::new(chunk, index));
                let word = self.memory.load(at, Ordering::Relaxed);
                if word != 0 && word & DEAD == 0 {
                    // What is marked already may be buried at this moment.
                    let (Ok(_) | Err(_)) = self.memory.compare_exchange(
                        at,
                        word,
                        word | DEAD,
                        Ordering::Release,
                        Ordering::Relaxed,
                    );
                }
            }
        }
        self.tell_of_burials();
    }

    /// Buries what the dead have left, if there is anything, and takes back their chunks.
    pub(crate) fn bury_all(&self) -> Result<()> {
        let flag = self.geometry.head(head::BURIALS);
        if self.value(flag, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        // Before the flag is taken: should this process die, it is set again.
        let number = self.slot.load(Ordering::Relaxed);
        let count = self.geometry.slot(number).plus(slot::BURIES);
        let (Ok(_) | Err(_)) = self.update(count, 0, Ordering::Release, |count| Some(count + 1));
        let buried =
            if self.replace(flag, 1, 0, Ordering::Acquire) { self.bury_found() } else { Ok(()) };
        let less = |count: u32| Some(count.saturating_sub(1));
        let (Ok(_) | Err(_)) = self.update(count, 0, Ordering::Release, less);
        buried
    }

    /// Sees to the holdings of slot `number`, whose process is dead, and to the burials that it was
    /// at. The caller holds the slot's kernel lock.
    pub(crate) fn settle_holdings(&self, number: u32) {
        let count = self.geometry.slot(number).plus(slot::BURIES);
        let was_burying = self.value(count, Ordering::Relaxed) != 0;
        if self.has_holdings(number) {
            self.mark_dead(number);
        } else if was_burying {
            self.tell_of_burials();
        }
        self.set_value(count, 0, Ordering::Relaxed);
    }

    fn bury_found(&self) -> Result<()> {
        for chunk in 0..self.chunks() {
            // Whoever has told of the dead has seen that this is theirs.
            let owner = self.geometry.chunk_owner(chunk);
            let is_owned = self.value(owner, Ordering::Relaxed) != 0;
            for holding in (0..PER_CHUNK).map(|index| Holding::new(chunk, index)) {
                // The orphan first: who has named it there has seen the key, which is seen then.
                let orphan = self.memory.load(self.orphan_word(holding), Ordering::Acquire);
                if orphan == 0 && !is_owned {
                    continue;
                }
                let word = self.present_word(holding);
                if (word & DEAD != 0 || word == 0 && orphan != 0)
                    && let Err(error) = self.bury(holding, word)
                {
                    self.tell_of_burials();
                    return Err(error);
                }
            }
        }
        self.take_chunks_back()
    }

    /// The key's word of `holding`, 0 if its chunk is nobody's.
    fn present_word(&self, holding: Holding) -> u64 {
        let owner = self.geometry.chunk_owner(holding.place().0);
        match self.value(owner, Ordering::Acquire) {
            0 => 0,
            _ => self.memory.load(self.key_word(holding), Ordering::Acquire),
        }
    }

    /// Ends `holding`, whose key's word is `word`, unless somebody else does it.
    pub(super) fn bury(&self, holding: Holding, word: u64) -> Result<()> {
        let at = self.key_word(holding);
        let end = |remains: Remains| {
            let new = match remains {
                Remains::Nothing => 0,
                Remains::Kind(kind) => {
                    word & !(KIND | UNSEEN | DEAD) | LASTS | u64::from(kind) & KIND
                }
            };
            if word != 0 {
                let (Ok(_) | Err(_)) = self.memory.compare_exchange(
                    at,
                    word,
                    new,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
            }
        };
        if word != 0 && word & KIND == 0 {
            // Its process died before anybody could see it.
            end(Remains::Nothing);
            return Ok(());
        }
        let Some(handler) = &self.options.burials else {
            return Err(Error::NoBurials { path: self.path.clone() });
        };
        loop {
            let mut tx = self.begin()?;
            let orphan = self.memory.load(self.orphan_word(holding), Ordering::Relaxed);
            if (word, orphan) == (0, 0) {
                // Somebody else has buried it.
                return Ok(());
            }
            let remains = match handler(&mut tx, Held::unpack(holding, word), orphan) {
                Ok(remains) => remains,
                Err(Error::Again) => continue,
                Err(error) => return Err(error),
            };
            if self.present_word(holding) != word {
                return Ok(());
            }
            tx.commit_part()?;
            // While the lock is held: nobody can name an orphan in between.
            end(remains);
            return tx.commit_and_finish();
        }
    }

    /// Takes back the chunks of slots that nobody has, if nothing is in them.
    fn take_chunks_back(&self) -> Result<()> {
        for number in 0..self.geometry.shape().slots {
            let record = self.geometry.slot(number);
            let is_left = self.value(record.plus(slot::CHUNK), Ordering::Relaxed) != 0
                && self.value(record.plus(slot::STATE), Ordering::Relaxed) == 0;
            if is_left && let Some(taken) = self.claim_slot(number)? {
                if self.value(record.plus(slot::STATE), Ordering::Relaxed) == 0 {
                    self.free_chunks(number);
                }
                drop(taken);
            }
        }
        Ok(())
    }

    /// Frees the chunks of slot `number`, which has no process, if nothing is in them.
    pub(crate) fn free_chunks(&self, number: u32) {
        let is_free = |chunk| {
            (0..PER_CHUNK).all(|index| {
                let holding = Holding::new(chunk, index);
                self.memory.load(self.key_word(holding), Ordering::Relaxed) == 0
            })
        };
        if number == NO_SLOT || !self.chunks_of(number).all(is_free) {
            return;
        }
        let link = self.geometry.slot(number).plus(slot::CHUNK);
        self.set_value(link, 0, Ordering::Relaxed);
        for chunk in self.chunks_of(number) {
            self.set_value(self.geometry.chunk_owner(chunk), 0, Ordering::Release);
        }
    }

    /// Buries `holding` if its process is known to be dead; whether it was.
    ///
    /// # Errors
    /// Those of the handler; [`Error::NoBurials`].
    pub fn bury_dead(&self, holding: Holding) -> Result<bool> {
        let word = self.present_word(holding);
        if word & DEAD == 0 {
            return Ok(false);
        }
        self.bury(holding, word)?;
        Ok(true)
    }

    /// The slot of the process that has `holding`.
    pub fn slot_of(&self, holding: Holding) -> u32 {
        let owner = self.geometry.chunk_owner(holding.place().0);
        self.value(owner, Ordering::Relaxed).wrapping_sub(1)
    }

    /// If the process that has `holding` is dead, recovers it and ends what it held, or waits for
    /// whoever is at that; whether it was, or `holding` is not what it was for another reason.
    ///
    /// # Errors
    /// Those of the host; of recovery, and of burials.
    pub fn recover_holder(&self, holding: Holding) -> Result<bool> {
        let number = self.slot_of(holding);
        let is_own = number == self.slot.load(Ordering::Relaxed);
        let at = self.key_word(holding);
        let word = self.present_word(holding);
        let mut patience = Patience::new(false);
        while !is_own && number < self.geometry.shape().slots {
            if !self.host.is_claimed(number)? && self.recover_slot(number)? {
                self.bury_all()?;
                return Ok(true);
            }
            // Who has the slot's lock may be about to see to what the dead one left.
            if !self.host.is_turn_taken(number)? {
                break;
            }
            if !patience.spin() {
                self.sleep(&mut patience, at, word as u32, None)?;
            }
        }
        // Whoever had the turn until now has marked what was the dead one's.
        let now = self.present_word(holding);
        Ok(self.bury_dead(holding)? || now != word || now == 0)
    }
}
