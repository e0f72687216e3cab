//! The log of a region that outlives its RAM on a volume: what records change, until that is there.
//!
//! A lane writes its record to a chunk of the log as well, and commits it by one word there, with a
//! number drawn from a counter that all lanes share. Records that depend on each other have locks
//! in common, so the later one has the larger number; and what had returned before another one
//! began has a smaller number than that. So what those below some number have come to, the *cut*,
//! is a state that the region could have been in, with all that was acknowledged before the cut was
//! made.
//!
//! - [`Core::seal`] makes a cut, and gives what there is below it and not durable: who writes that
//!   to a volume, at once, calls [`Core::set_durable`] then. Anybody may seal at any time, also
//!   what somebody else has sealed and not made durable: nothing in the region says who does.
//! - What a record changes by words and small objects stands in the log itself. Pages that it fills
//!   as a whole are only named there; who seals copies them from the region, and has copied all of
//!   them *before* the number that becomes the cut is read. So whatever later records have made of
//!   such a page in the copy is below the cut too, and replaying these records over the copy gives
//!   what they have made of it. No record waits for a copy, and none has to copy anything before it
//!   changes a page.
//! - A checkpoint ([`Core::begin_checkpoint`]) works in the same way: pages that records have
//!   changed are copied, and written together with what is sealed after that. Replaying from where
//!   the checkpoint began, over the copies, gives what the records have come to.
//!
//! (This is how database systems take fuzzy checkpoints: Gray and Reuter, *Transaction Processing*,
//! 1993, 11.2. Conquest 2002, 3.2 has the core in RAM that does not lose it.)

mod checkpoint;
mod chunk;
mod copied;
mod keeper;
mod lead;
mod record;
mod refusal;
mod replay;
mod seal;

pub use checkpoint::Begun;
pub use copied::{Bytes, Copied};
pub use keeper::{Asked, Lag, ask_keeper_to_leave, keeper_slot};
pub use lead::{Lead, PATIENCE, Waiting};
pub use refusal::Refusal;
pub use replay::{Replay, Replayed};
pub use seal::Sealed;

pub(crate) use record::Building;

use core::sync::atomic::Ordering;

use conquest_format::log::{FIRST, GROUPS, State, chunk as header, head, lane};
use conquest_format::{Geometry, LINE, Offset};

use crate::Result;
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::thread::Open;

/// Pages that pass for which the keeper is asked to let them go on: 16 MiB.
const PUSHED_AT_ONCE: u64 = 4096;

/// What the log of a region begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The number of its first record.
    pub first: u64,
    /// Times that it was made again of its volume.
    pub incarnation: u64,
}

impl Origin {
    /// That of a region that was not there before.
    pub const NEW: Origin = Origin { first: FIRST, incarnation: 0 };
}

/// How far the records of a region are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stands {
    /// Times that it was made again of its volume.
    pub incarnation: u64,
    /// Below which number all records are durable.
    pub durable: u64,
    /// The number that the next record gets.
    pub next: u64,
}

impl Stands {
    /// Of the region in `memory`, which has the layout `geometry`; none if it has no log.
    pub fn of(memory: &impl Memory, geometry: &Geometry) -> Option<Stands> {
        let word = |word| memory.load(geometry.log_head(word), Ordering::Acquire);
        (geometry.shape().log != 0).then(|| Stands {
            incarnation: word(head::INCARNATION),
            durable: word(head::DURABLE),
            next: word(head::NEXT),
        })
    }
}

/// Makes the log of a new region that has the layout `geometry`, if that has one.
pub(crate) fn make<M: Memory>(memory: &M, geometry: &Geometry, origin: Origin) {
    let shape = geometry.shape();
    if shape.log == 0 {
        return;
    }
    let set = |at: Offset, value| memory.store(at, value, Ordering::Relaxed);
    for (word, value) in [
        (head::NEXT, origin.first),
        (head::DURABLE, origin.first),
        (head::USED, 0),
        (head::REFUSED, 0),
        (head::HELD_BACK, 0),
        (head::ROTOR, 0),
        (head::LEADER, 0),
        (head::PAGES, 0),
        (head::PASSING, 0),
        (head::INCARNATION, origin.incarnation),
        (head::KEEPER, 0),
        (head::KEEPER_ASKED, 0),
        (head::DURABLE_AT, 0),
        (head::GROUP, 0),
    ] {
        set(geometry.log_head(word), value);
    }
    for number in 0..GROUPS {
        set(geometry.log_head(head::BELLS + number * LINE), 0);
    }
    for number in 0..shape.lanes {
        set(geometry.log_lane(number).plus(lane::STATE), State::None.pack());
        set(geometry.log_lane(number).plus(lane::CHUNK), 0);
    }
    for number in 0..shape.log {
        for word in [header::OWNER, header::END, header::LAST] {
            set(geometry.log_header(number).plus(word), 0);
        }
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Whether the region has a log.
    pub fn is_logged(&self) -> bool {
        self.geometry.shape().log != 0
    }

    /// The number that the next record gets: all records that were committed when this is called
    /// have smaller ones.
    pub fn next_sequence(&self) -> u64 {
        self.log_word(head::NEXT, Ordering::Acquire)
    }

    /// Below which number all records are durable.
    pub fn durable(&self) -> u64 {
        self.log_word(head::DURABLE, Ordering::Acquire)
    }

    /// Times that the region was made again of its volume: of two, the later one goes on.
    pub fn incarnation(&self) -> u64 {
        self.log_word(head::INCARNATION, Ordering::Relaxed)
    }

    /// Pages that transactions have named which [pass](crate::Tx::pages_pass), and that have not
    /// [passed](Self::pages_have_passed), durable or not: about, as those that were freed count
    /// until they are [counted anew](Self::count_passing_anew).
    pub fn passing_pages(&self) -> u64 {
        if self.is_logged() { self.log_word(head::PASSING, Ordering::Relaxed) } else { 0 }
    }

    /// Counts `pages` pages that records have named among those that pass, as they are found to do.
    ///
    /// # Errors
    /// [`Error::Failed`](crate::Error::Failed).
    pub fn pages_are_to_pass(&self, pages: u64) -> Result<()> {
        if !self.is_logged() {
            return Ok(());
        }
        let _window = record::window(self)?;
        self.count_off(head::PAGES, pages);
        self.count_passing(pages);
        Ok(())
    }

    /// Counts off `pages` pages that pass, or all: they have gone somewhere else.
    ///
    /// # Errors
    /// [`Error::Failed`](crate::Error::Failed).
    pub fn pages_have_passed(&self, pages: u64) -> Result<()> {
        if !self.is_logged() {
            return Ok(());
        }
        let _window = record::window(self)?;
        self.count_off(head::PASSING, pages);
        Ok(())
    }

    /// Lets `pages` pages be all that pass, as they were counted a moment ago.
    ///
    /// # Errors
    /// [`Error::Failed`](crate::Error::Failed).
    pub fn count_passing_anew(&self, pages: u64) -> Result<()> {
        if !self.is_logged() {
            return Ok(());
        }
        let _window = record::window(self)?;
        self.memory.store(self.geometry.log_head(head::PASSING), pages, Ordering::Relaxed);
        Ok(())
    }

    /// Counts `pages` pages that pass; when there are many, the keeper is to let them go on.
    fn count_passing(&self, pages: u64) {
        let before = self.add_to_log_word(head::PASSING, pages, Ordering::Relaxed);
        if before / PUSHED_AT_ONCE != (before + pages) / PUSHED_AT_ONCE {
            self.have_keeper_push();
        }
    }

    fn count_off(&self, word: u64, pages: u64) {
        let (at, order) = (self.geometry.log_head(word), Ordering::Relaxed);
        let mut found = self.memory.load(at, order);
        while let Err(now) =
            self.memory.compare_exchange(at, found, found.saturating_sub(pages), order, order)
        {
            found = now;
        }
    }

    /// Makes all that was committed when this is called durable, if the region's medium needs
    /// anything for that: a region with a log does.
    ///
    /// # Errors
    /// [`Error::NotDurable`](crate::Error::NotDurable), [`Error::Failed`](crate::Error::Failed).
    pub fn make_durable(&self) -> Result<()> {
        // A forked child becomes a process of its own.
        self.note_thread();
        let _open = Open::new();
        self.enter()?;
        match &self.options.make_durable {
            // What was in the way of changes may be so no longer.
            Some(make_durable)
                if self.is_logged()
                    && (self.durable() < self.next_sequence() || self.refusal().is_some()) =>
            {
                make_durable(self)
            }
            _ => Ok(()),
        }
    }

    fn log_word(&self, word: u64, order: Ordering) -> u64 {
        self.memory.load(self.geometry.log_head(word), order)
    }

    /// Adds to a word of the head; what it was.
    fn add_to_log_word(&self, word: u64, amount: u64, order: Ordering) -> u64 {
        let at = self.geometry.log_head(word);
        let mut old = self.memory.load(at, Ordering::Relaxed);
        loop {
            let new = old.wrapping_add(amount);
            match self.memory.compare_exchange(at, old, new, order, Ordering::Relaxed) {
                Ok(_) => return old,
                Err(found) => old = found,
            }
        }
    }

    fn lane_state(&self, lane: u32, order: Ordering) -> State {
        let at = self.geometry.log_lane(lane).plus(lane::STATE);
        State::unpack(self.memory.load(at, order)).unwrap_or(State::None)
    }

    fn set_lane_state(&self, lane: u32, state: State) {
        let at = self.geometry.log_lane(lane).plus(lane::STATE);
        self.memory.store(at, state.pack(), Ordering::Release);
    }

    fn replace_lane_state(&self, lane: u32, old: State, new: State) -> bool {
        let at = self.geometry.log_lane(lane).plus(lane::STATE);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory.compare_exchange(at, old.pack(), new.pack(), success, failure).is_ok()
    }
}
