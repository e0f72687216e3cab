//! Holdings: what processes have of files at the moment, such as that a file is open.
//!
//! A holding is 64 bytes of the volatile part with a *key*: who, at present, is a number of the
//! layer above, with a kind. It belongs to the process that made it and ends with it. The point of
//! it is to be seen: whoever holds the lock over something exclusively can ask who has what of it,
//! and whoever begins to have something writes nothing that others read, but for a flag.
//!
//! That both see each other is decided as in Dekker's algorithm:
//!
//! | who begins or ends | who asks |
//! | --- | --- |
//! | stores the key | takes the lock |
//! | full fence | full fence |
//! | sees that nobody holds the lock exclusively, or waits for that | looks at the keys |
//!
//! So either the asker sees the key as it is now, or the other one waits until the asker has let go
//! of the lock, and then sees what was done. The flag HOLDINGS of the lock says that there may be
//! keys at all. It is set after the key is stored, before the lock is looked at, and cleared only
//! by an asker, who then looks at the keys and sets it again if there are any.
//!
//! *Orphans.* What holdings keep in existence although it has no name must be found when nobody has
//! it any more, whoever died, and also after a power failure. Each holding has one word in the
//! persistent part for that, changed by records under the lock over what it names: who takes the
//! last name away names the orphan in one of the holdings that keep it. Whoever ends that holding
//! moves the word to another one, or buries the orphan.
//!
//! *The dead.* The holdings of a dead process are marked as such, and count no more. They are
//! buried one by one by whoever begins an operation, under the lock over what they name, with the
//! help of the layer above.
//!
//! *Lasting holdings* are those whose end concerns others. They count until they are buried, though
//! their process is dead, and the layer above may let them outlive it.
//!
//! *Parcels* carry holdings to a process that is yet to come, or that is not known yet
//! ([`parcel`]).

mod ask;
mod burial;
mod chunks;
pub mod parcel;

pub use burial::{BurialHandler, Remains};
pub use parcel::Parcel;

use core::sync::atomic::Ordering;

use conquest_format::volatile::holding::{FIRST, KEYS, PER_CHUNK, SIZE, WORDS};
use conquest_format::volatile::lock;
use conquest_format::{Offset, WORD};

use crate::Result;
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::wait::Patience;

/// Bits of a key's word: its kind, whether it does not count yet or any more, whether its process
/// is dead, whether it lasts. The key is above them.
const KIND: u64 = 0x1F;
const UNSEEN: u64 = 0x20;
const DEAD: u64 = 0x40;
const LASTS: u64 = 0x80;
const KEY_SHIFT: u32 = 8;
/// Added to the kind of a holding that begins as a lasting one.
pub const LASTING: u8 = LASTS as u8;
/// The largest kind of a holding; the least is 1.
pub const KIND_MAX: u8 = KIND as u8;
/// The largest key.
pub const KEY_MAX: u64 = u64::MAX >> KEY_SHIFT;

/// A place for 64 bytes that say what a process has of something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Holding(u32);

/// A holding as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Which one.
    pub holding: Holding,
    /// Its kind, 1 to [`KIND_MAX`]; 0 for one that only an orphan's word is left of.
    pub kind: u8,
    /// Its key; 0 with kind 0.
    pub key: u64,
    /// Whether its process is dead: it is to be buried.
    pub is_dead: bool,
    /// Whether it lasts until it is buried.
    pub lasts: bool,
}

impl Held {
    fn unpack(holding: Holding, word: u64) -> Held {
        Held {
            holding,
            kind: (word & KIND) as u8,
            key: word >> KEY_SHIFT,
            is_dead: word & DEAD != 0,
            lasts: word & LASTS != 0,
        }
    }
}

impl Holding {
    /// Its number: no two that exist at once have the same.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The holding of this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Holding {
        Holding(number)
    }

    pub(crate) const fn place(self) -> (u32, u64) {
        let per_chunk = PER_CHUNK as u32;
        (self.0 / per_chunk, (self.0 % per_chunk) as u64)
    }

    fn new(chunk: u32, index: u64) -> Holding {
        Holding(chunk * PER_CHUNK as u32 + index as u32)
    }
}

/// The word of `key` with `kind`, which may be a lasting one.
const fn key_word(kind: u8, key: u64) -> u64 {
    key << KEY_SHIFT | kind as u64 & (KIND | LASTS)
}

impl<M: Memory, H: Host> Core<M, H> {
    /// The holding of `number`, if there can be one.
    pub fn holding(&self, number: u64) -> Option<Holding> {
        let most = u64::from(self.chunks()) * PER_CHUNK;
        (number < most).then_some(Holding(number as u32))
    }

    /// `holding` as it stands, whether it counts or not; none if it is free or not seen yet.
    pub fn look_at(&self, holding: Holding) -> Option<Held> {
        let word = self.memory.load(self.key_word(holding), Ordering::Acquire);
        (word & KIND != 0).then(|| Held::unpack(holding, word))
    }

    fn key_word(&self, holding: Holding) -> Offset {
        let (chunk, index) = holding.place();
        self.geometry.chunk(chunk).plus(KEYS + index * WORD)
    }

    /// The word of holding `holding` in which an orphan can be named.
    pub(crate) fn orphan_word(&self, holding: Holding) -> Offset {
        self.geometry.orphan(holding.0)
    }

    /// Where word `index`, 0 to 7, of `holding` is.
    fn held_at(&self, holding: Holding, index: u64) -> Offset {
        let (chunk, place) = holding.place();
        self.geometry.chunk(chunk).plus(FIRST + place * SIZE + (index % WORDS) * WORD)
    }

    /// Word `index`, 0 to 7, of `holding`. It orders nothing.
    pub fn held(&self, holding: Holding, index: u64) -> u64 {
        self.memory.load(self.held_at(holding, index), Ordering::Acquire)
    }

    /// Sets word `index`, 0 to 7, of `holding`, which this process has or somebody waits for.
    pub fn set_held(&self, holding: Holding, index: u64, value: u64) {
        self.memory.store(self.held_at(holding, index), value, Ordering::Release);
    }

    /// Changes word `index`, 0 to 7, of `holding` from `old` to `new`; whether it was `old`.
    pub fn replace_held(&self, holding: Holding, index: u64, old: u64, new: u64) -> bool {
        let at = self.held_at(holding, index);
        self.memory.compare_exchange(at, old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Wakes who sleeps on word `index`, 0 to 7, of `holding`.
    pub fn wake_held(&self, holding: Holding, index: u64) {
        self.memory.wake(self.held_at(holding, index), u32::MAX);
    }

    /// Begins to hold `key` (at most [`KEY_MAX`]) with `kind` and `words`, and zeros, under lock
    /// `number`: when it returns, whoever has held that lock exclusively before has let go of it,
    /// and whoever holds it later sees the holding. What was looked up before has to be looked at
    /// again.
    ///
    /// # Errors
    /// [`crate::Error::Holdings`] if there are too many; [`crate::Error::OwnLock`] if the calling
    /// thread holds the lock; those of waiting, and of growing.
    pub fn hold(&self, number: u32, kind: u8, key: u64, words: &[u64]) -> Result<Holding> {
        self.enter()?;
        let number = self.wrap(number);
        let slot_number = self.slot.load(Ordering::Relaxed);
        let holding = self.claim_holding(slot_number, number, None)?;
        self.show(number, holding, key_word(kind, key), words);
        match self.wait_while_locked(number) {
            Ok(()) => Ok(holding),
            Err(error) => {
                self.abandon(holding);
                Err(error)
            }
        }
    }

    /// Makes `holding`, which is new, count.
    fn show(&self, number: u32, holding: Holding, word: u64, words: &[u64]) {
        let words = words.iter().copied().chain(core::iter::repeat(0));
        for (index, value) in (0..WORDS).zip(words) {
            self.set_held(holding, index, value);
        }
        self.memory.store(self.key_word(holding), word, Ordering::Release);
        self.memory.full_fence();
        let at = self.lock_word(number).plus(lock::WORD);
        if self.value(at, Ordering::Relaxed) & lock::HOLDINGS == 0 {
            self.note_holdings(number);
        }
    }

    /// Ends `holding` of this process, or of a parcel that it has, which is of something under lock
    /// `number`. What it alone kept in existence is buried, and so is the holding itself if it
    /// lasts.
    ///
    /// # Errors
    /// Those of the handler and of waiting: the holding counts no more all the same, and what is to
    /// be buried will be, by a later operation.
    pub fn let_go(&self, number: u32, holding: Holding) -> Result<()> {
        if self.host.is_forked() {
            // The holding is the parent's.
            return Ok(());
        }
        let at = self.key_word(holding);
        let word = self.memory.load(at, Ordering::Relaxed);
        self.memory.store(at, word | UNSEEN, Ordering::Release);
        self.memory.full_fence();
        if let Err(error) = self.wait_while_locked(self.wrap(number)) {
            self.abandon(holding);
            return Err(error);
        }
        let orphan = self.memory.load(self.orphan_word(holding), Ordering::Relaxed);
        if (orphan, word & LASTS) == (0, 0) {
            self.memory.store(at, 0, Ordering::Release);
            return Ok(());
        }
        let buried = self.bury(holding, word | UNSEEN);
        if buried.is_err() {
            self.abandon(holding);
        }
        buried
    }

    /// Leaves `holding` to whoever begins an operation next.
    fn abandon(&self, holding: Holding) {
        let at = self.key_word(holding);
        let word = self.memory.load(at, Ordering::Relaxed);
        if word != 0 {
            self.memory.store(at, word | DEAD, Ordering::Release);
            self.tell_of_burials();
        }
    }

    fn wrap(&self, number: u32) -> u32 {
        number & (self.geometry.shape().locks - 1)
    }

    /// Waits until nobody holds lock `number` exclusively: not for long, as somebody else may take
    /// it at once.
    fn wait_while_locked(&self, number: u32) -> Result<()> {
        let at = self.lock_word(number).plus(lock::WORD);
        let mut patience = Patience::new(false);
        let mut has_waited = false;
        while self.holder(number).is_some() {
            self.wait_for_owner(number, &mut patience)?;
            has_waited = true;
        }
        // What was done under the lock is seen.
        self.memory.load_fence();
        if has_waited {
            // Who was woken by the one who let go, and takes nothing, wakes the next.
            self.memory.wake(at, 1);
        }
        Ok(())
    }

    /// Sets the flag that says that there may be holdings of what lock `number` guards.
    pub(crate) fn note_holdings(&self, number: u32) {
        let at = self.lock_word(number).plus(lock::WORD);
        let flag = |value: u32| Some(value | lock::HOLDINGS);
        let (Ok(_) | Err(_)) = self.update(at, 0, Ordering::Release, flag);
    }
}
