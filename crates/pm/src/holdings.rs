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

use core::sync::atomic::Ordering;

use conquest_format::geometry::{STATE_CHUNKS, STATE_GROUPS};
use conquest_format::journal::{Action, Entry};
use conquest_format::volatile::holding::{
    CHILD, CHILDREN, CHUNK, FIRST, KEYS, PER_CHUNK, SIZE, WORDS,
};
use conquest_format::volatile::{head, lock, slot};
use conquest_format::{Offset, PAGE, WORD};

use crate::core::{Core, NO_SLOT};
use crate::host::Host;
use crate::lock::{GROW_LOCK, Mode};
use crate::memory::Memory;
use crate::tx::{GROW_PLACE, Tx};
use crate::wait::Patience;
use crate::{Error, Result};

/// Bits of a key's word: its kind, whether it does not count yet or any more, whether its process
/// is dead. The key is above them.
const KIND: u64 = 0x1F;
const UNSEEN: u64 = 0x20;
const DEAD: u64 = 0x40;
const KEY_SHIFT: u32 = 8;
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
}

/// Ends a holding that its process can't end: called with a transaction, the holding, and its
/// orphan's word. It takes the lock over what the holding or the word names, sees that the word is
/// still the same, and stages that the orphan is moved or is no more, with [`Tx::set_orphan`].
pub type BurialHandler<M, H> =
    Box<dyn Fn(&mut Tx<'_, M, H>, Held, u64) -> Result<()> + Send + Sync>;

impl Held {
    fn unpack(holding: Holding, word: u64) -> Held {
        Held { holding, kind: (word & KIND) as u8, key: word >> KEY_SHIFT }
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

    const fn place(self) -> (u32, u64) {
        let per_chunk = PER_CHUNK as u32;
        (self.0 / per_chunk, (self.0 % per_chunk) as u64)
    }

    fn new(chunk: u32, index: u64) -> Holding {
        Holding(chunk * PER_CHUNK as u32 + index as u32)
    }
}

/// The way to the chunks in which holdings under a lock stand.
struct Way(u32);

impl Way {
    fn of(number: u32) -> Way {
        Way(number.wrapping_mul(0x9E37_79B1))
    }

    /// Which child of the next chunk to go to.
    fn turn(&mut self) -> u64 {
        self.0 = self.0.rotate_right(2);
        u64::from(self.0) % CHILDREN
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    fn key_word(&self, holding: Holding) -> Offset {
        let (chunk, index) = holding.place();
        self.geometry.chunk(chunk).plus(KEYS + index * WORD)
    }

    /// The word of holding `holding` in which an orphan can be named.
    pub(crate) fn orphan_word(&self, holding: Holding) -> Offset {
        self.geometry.orphan(holding.0)
    }

    /// Word `index`, 0 to 7, of `holding`: volatile, without a tag.
    pub fn holding_word(&self, holding: Holding, index: u64) -> Offset {
        let (chunk, place) = holding.place();
        self.geometry.chunk(chunk).plus(FIRST + place * SIZE + (index % WORDS) * WORD)
    }

    /// Chunks that have space.
    fn chunks(&self) -> u32 {
        let chunks = self.memory.load(STATE_CHUNKS, Ordering::Acquire);
        chunks.min(self.geometry.shape().chunks.into()) as u32
    }

    // --- beginning and ending ----------------------------------------------------------------

    /// Begins to hold `key` (at most [`KEY_MAX`]) with `kind` and `words`, and zeros, under lock `number`:
    /// when it returns, whoever has held that lock exclusively before has let go of it, and whoever
    /// holds it later sees the holding. What was looked up before has to be looked at again.
    ///
    /// # Errors
    /// [`Error::Holdings`] if there are too many; [`Error::OwnLock`] if the calling thread holds the
    /// lock; those of waiting, and of growing.
    pub fn hold(&self, number: u32, kind: u8, key: u64, words: &[u64]) -> Result<Holding> {
        self.enter()?;
        let number = self.wrap(number);
        let holding = self.claim_holding(number, None)?;
        self.show(number, holding, kind, key, words);
        match self.wait_while_locked(number) {
            Ok(()) => Ok(holding),
            Err(error) => {
                self.abandon(holding);
                Err(error)
            }
        }
    }

    /// Makes `holding`, which is new, count.
    fn show(&self, number: u32, holding: Holding, kind: u8, key: u64, words: &[u64]) {
        let words = words.iter().copied().chain(core::iter::repeat(0));
        for (index, word) in (0..WORDS).zip(words) {
            self.memory.store(self.holding_word(holding, index), word, Ordering::Relaxed);
        }
        let word = key << KEY_SHIFT | u64::from(kind) & KIND;
        self.memory.store(self.key_word(holding), word, Ordering::Release);
        self.memory.full_fence();
        let at = self.lock_word(number).plus(lock::WORD);
        if self.value(at, Ordering::Relaxed) & lock::HOLDINGS == 0 {
            self.note_holdings(number);
        }
    }

    /// Ends `holding` of this process, which is of something under lock `number`. What it alone
    /// kept in existence is buried.
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
        if self.memory.load(self.orphan_word(holding), Ordering::Relaxed) == 0 {
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

    // --- places ------------------------------------------------------------------------------

    /// Takes a free holding on the way of lock `number`; its key is unseen. `lane` is the caller's,
    /// if it has one.
    fn claim_holding(&self, number: u32, lane: Option<u32>) -> Result<Holding> {
        let slot_number = self.slot.load(Ordering::Relaxed);
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
    fn linked_chunk(&self, link: Offset) -> Result<Option<u32>> {
        let Some(chunk) = self.value(link, Ordering::Acquire).checked_sub(1) else {
            return Ok(None);
        };
        if chunk < self.chunks() { Ok(Some(chunk)) } else { Err(self.damaged_link(link)) }
    }

    #[cold]
    fn damaged_link(&self, link: Offset) -> Error {
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

    // --- the dead ----------------------------------------------------------------------------

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

    /// Whether slot `number` has chunks.
    pub(crate) fn has_holdings(&self, number: u32) -> bool {
        self.value(self.geometry.slot(number).plus(slot::CHUNK), Ordering::Relaxed) != 0
    }

    fn chunks_of(&self, number: u32) -> impl Iterator<Item = u32> + use<'_, M, H> {
        (0..self.chunks()).filter(move |&chunk| {
            let owner = self.geometry.chunk_owner(chunk);
            self.value(owner, Ordering::Relaxed) == number + 1
        })
    }

    /// Buries what the dead have left, if there is anything, and takes back their chunks.
    pub(crate) fn bury_all(&self) -> Result<()> {
        let flag = self.geometry.head(head::BURIALS);
        if self.value(flag, Ordering::Relaxed) == 0 || !self.replace(flag, 1, 0, Ordering::Acquire)
        {
            return Ok(());
        }
        for chunk in 0..self.chunks() {
            let owner = self.value(self.geometry.chunk_owner(chunk), Ordering::Acquire);
            for holding in (0..PER_CHUNK).map(|index| Holding::new(chunk, index)) {
                let word = match owner {
                    0 => 0,
                    _ => self.memory.load(self.key_word(holding), Ordering::Acquire),
                };
                let has_orphan =
                    self.memory.load(self.orphan_word(holding), Ordering::Relaxed) != 0;
                if (word & DEAD != 0 || word == 0 && has_orphan)
                    && let Err(error) = self.bury(holding, word)
                {
                    self.tell_of_burials();
                    return Err(error);
                }
            }
        }
        self.take_chunks_back()
    }

    /// Ends `holding`, whose key's word is `word`, unless somebody else does it.
    fn bury(&self, holding: Holding, word: u64) -> Result<()> {
        let at = self.key_word(holding);
        let end = || {
            if word != 0 {
                let (Ok(_) | Err(_)) =
                    self.memory.compare_exchange(at, word, 0, Ordering::Release, Ordering::Relaxed);
            }
        };
        if word != 0 && word & KIND == 0 {
            // Its process died before anybody could see it.
            end();
            return Ok(());
        }
        let Some(handler) = &self.options.burials else {
            return Err(Error::NoBurials { path: self.path.clone() });
        };
        loop {
            let mut tx = self.begin()?;
            let orphan = self.memory.load(self.orphan_word(holding), Ordering::Relaxed);
            match handler(&mut tx, Held::unpack(holding, word), orphan) {
                Ok(()) => {}
                Err(Error::Again) => continue,
                Err(error) => return Err(error),
            }
            let is_still = word == 0 || self.memory.load(at, Ordering::Relaxed) == word;
            if !is_still {
                return Ok(());
            }
            tx.commit_part()?;
            // While the lock is held: nobody can name an orphan in between.
            end();
            return tx.commit_and_finish();
        }
    }

    /// Takes back the chunks of slots that nobody has, if nothing is in them.
    fn take_chunks_back(&self) -> Result<()> {
        for number in 0..self.geometry.shape().slots {
            let record = self.geometry.slot(number);
            let is_left = self.value(record.plus(slot::CHUNK), Ordering::Relaxed) != 0
                && self.value(record.plus(slot::STATE), Ordering::Relaxed) == 0;
            if is_left && let Some(claim) = self.host.claim(number)? {
                if self.value(record.plus(slot::STATE), Ordering::Relaxed) == 0 {
                    self.free_chunks(number);
                }
                drop(claim);
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

    /// The slot of the process that has `holding`.
    pub fn slot_of(&self, holding: Holding) -> u32 {
        let owner = self.geometry.chunk_owner(holding.place().0);
        self.value(owner, Ordering::Relaxed).wrapping_sub(1)
    }

    /// If the process that has `holding` is dead, recovers it and ends what it held; whether it was.
    ///
    /// # Errors
    /// Those of the host; of recovery, and of burials.
    pub fn recover_holder(&self, holding: Holding) -> Result<bool> {
        let number = self.slot_of(holding);
        let is_own = number == self.slot.load(Ordering::Relaxed);
        if is_own || number >= self.geometry.shape().slots || self.host.is_claimed(number)? {
            return Ok(false);
        }
        let recovered = self.recover_slot(number)?;
        self.bury_all()?;
        Ok(recovered)
    }

    /// Sleeps while word `index` of `holding` has the low half `seen`: a nap at most, after which the
    /// caller looks again at what he waits for.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::Failed`].
    pub fn sleep_on(&self, holding: Holding, index: u64, seen: u32) -> Result<()> {
        self.sleep(&mut Patience::new(true), self.holding_word(holding, index), seen, None)
    }

    /// Calls `visit` for the holdings of slot `number` that count, as they are at some time.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are damaged.
    pub fn holdings_of(&self, number: u32, mut visit: impl FnMut(Held)) -> Result<()> {
        for chunk in self.chunks_of(number) {
            self.visit_chunk(chunk, &mut visit);
        }
        Ok(())
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

    // --- asking ------------------------------------------------------------------------------

    /// Calls `visit` for each holding in `chunk` that counts; whether there is anything at all.
    fn visit_chunk(&self, chunk: u32, visit: &mut impl FnMut(Held)) -> bool {
        let mut is_any = false;
        for holding in (0..PER_CHUNK).map(|index| Holding::new(chunk, index)) {
            let word = self.memory.load(self.key_word(holding), Ordering::Acquire);
            is_any |= word != 0;
            if word & KIND != 0 && word & (UNSEEN | DEAD) == 0 {
                visit(Held::unpack(holding, word));
            }
        }
        is_any
    }

    /// Calls `visit` for each holding on the way of lock `number` of slot `slot_number` that counts;
    /// whether there is anything at all.
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
    /// Begins to hold `key` (at most [`KEY_MAX`]), which nobody else can know of yet, with `kind` and
    /// `words`, under lock `number`. Waits for nobody. The holding does not end with the
    /// transaction.
    ///
    /// # Errors
    /// [`Error::Holdings`] if there are too many; those of growing.
    pub fn hold(&mut self, number: u32, kind: u8, key: u64, words: &[u64]) -> Result<Holding> {
        let number = self.core.wrap(number);
        let holding = self.core.claim_holding(number, Some(self.lane))?;
        self.core.show(number, holding, kind, key, words);
        Ok(holding)
    }

    /// Calls `visit` for holdings of all processes, among them each under lock `number`, which the
    /// caller holds exclusively. Those of the dead may be among them as long as nobody has noticed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the holdings are damaged.
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

    /// What `holding` keeps in existence although it has no name, as this transaction sees it; 0 for
    /// nothing.
    pub fn orphan(&self, holding: Holding) -> u64 {
        self.get(self.core.orphan_word(holding))
    }

    /// Ends `holding` of this process, which keeps nothing in existence. The caller holds the lock
    /// over what is held exclusively.
    pub fn end_holding(&self, holding: Holding) {
        self.core.memory.store(self.core.key_word(holding), 0, Ordering::Release);
    }

    /// Stages that `holding` keeps what `word` names, 0 for nothing. The caller holds the lock over
    /// what is named exclusively.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the lane is full.
    pub fn set_orphan(&mut self, holding: Holding, word: u64) -> Result<()> {
        let target = self.core.orphan_word(holding);
        self.stage(Entry { target, action: Action::Set, operand: word })
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Sets the flag that says that there may be holdings of what lock `number` guards.
    pub(crate) fn note_holdings(&self, number: u32) {
        let at = self.lock_word(number).plus(lock::WORD);
        let flag = |value: u32| Some(value | lock::HOLDINGS);
        let (Ok(_) | Err(_)) = self.update(at, 0, Ordering::Release, flag);
    }
}

const _: () = assert!(KEYS + PER_CHUNK * WORD <= FIRST && FIRST + PER_CHUNK * SIZE <= CHUNK);
const _: () = assert!(CHUNK == PAGE && STATE_CHUNKS.bytes() != STATE_GROUPS.bytes());
