//! Who may still write where.
//!
//! A process that is about to write to a segment says so first, by a *hold*: a word of its
//! [`Writer`] objects, which only it stores into. Segments with holds are not begun
//! anew. Each process that writes has a number, and by that number a lock on the devices, which the
//! kernel lets go of when the process is gone and its last request is complete: its holds count
//! until then, and no longer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Mode, Place, Ptr, Tx};

use crate::change::{Change, Step};
use crate::index::{LOCK, Word, Words};
use crate::kinds::{self, Writer};
use crate::volume::Volume;
use crate::{Error, Result};

const NUMBER: u64 = 0;
const NEXT: u64 = 1;
const HOLDS: u64 = 2;
const WORDS: u64 = kinds::WRITER / WORD;
/// Bits of a hold's word: the segment, plus 1. Above, a number that tells it from others.
const SEGMENT_BITS: u32 = 32;
/// Between looks at the holds of others.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest wait for those that somebody has.
const PATIENCE: Duration = Duration::from_secs(10);

/// This process as a writer.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    /// Its number.
    pub(crate) number: u64,
    /// Words for holds.
    words: Mutex<HoldWords>,
    /// Holds that it has had.
    holds: AtomicU64,
}

/// Words for holds: of which object each is, and which.
#[derive(Debug, Default)]
struct HoldWords {
    free: Vec<(Place, u64)>,
    /// Those that are in use, and by which thread.
    taken: Vec<((Place, u64), ThreadId)>,
}

impl HoldWords {
    /// One for the calling thread, if there is any.
    fn take(&mut self) -> Option<(Place, u64)> {
        let at = self.free.pop()?;
        self.taken.push((at, thread::current().id()));
        Some(at)
    }

    fn give(&mut self, at: (Place, u64)) {
        if let Some(found) = self.taken.iter().rposition(|(taken, _)| *taken == at) {
            self.taken.swap_remove(found);
        }
        self.free.push(at);
    }
}

/// What a writer's object says that it holds.
struct Held {
    /// The writer's number.
    writer: u64,
    /// Where each hold is, and its word.
    holds: Vec<(Offset, u64)>,
}

/// A segment that is kept from being begun anew, until this is dropped.
pub(crate) struct Hold<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    at: (Place, u64),
}

impl<M: Memory, H: Host> Hold<'_, M, H> {
    /// Holds `segment` from now on: what the caller then loads it loads after that.
    pub(crate) fn set(&self, segment: u64) -> Result<()> {
        let (object, index) = self.at;
        let number = self.volume.writing.holds.fetch_add(1, Ordering::Relaxed);
        let word = (segment + 1) | (number << SEGMENT_BITS);
        Ok(self.volume.core.store_aside(object, index, word)?)
    }
}

impl<M: Memory, H: Host> Drop for Hold<'_, M, H> {
    fn drop(&mut self) {
        let (object, index) = self.at;
        if self.volume.core.store_aside(object, index, 0).is_err() {
            // The region has failed: nothing is begun anew any more.
            return;
        }
        self.volume.writing.words().give(self.at);
    }
}

impl Writing {
    pub(crate) fn new(number: u64) -> Writing {
        Writing { number, words: Mutex::default(), holds: AtomicU64::new(0) }
    }

    fn words(&self) -> MutexGuard<'_, HoldWords> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// A hold of nothing yet. Not to be called with the lock held.
    pub(crate) fn spare_hold(&self) -> Result<Hold<'_, M, H>> {
        loop {
            let taken = self.writing.words().take();
            match taken {
                Some(at) => return Ok(Hold { volume: self, at }),
                None => self.add_holds()?,
            }
        }
    }

    /// Holds `segment`. Who then finds out that the segment is still what it was thought to be can
    /// write to it. Not to be called with the lock held.
    pub(crate) fn hold(&self, segment: u64) -> Result<Hold<'_, M, H>> {
        let hold = self.spare_hold()?;
        hold.set(segment)?;
        Ok(hold)
    }

    /// Makes more words for holds.
    fn add_holds(&self) -> Result<()> {
        self.forget_writers()?;
        let writer = self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            let next = tx.root(Word::Writers);
            let fresh = tx.alloc::<Writer>()?;
            tx.fill_word(&fresh, NUMBER, self.writing.number)?;
            tx.fill_word(&fresh, NEXT, next)?;
            let writer = tx.seal(fresh);
            tx.set(Word::Writers.at(), writer.word())?;
            Ok(writer)
        })?;
        let object = self.core.resolve(writer)?;
        let holds = (HOLDS..WORDS).map(|index| (object, index));
        self.writing.words().free.extend(holds);
        Ok(())
    }

    /// Frees the objects of writers that are gone.
    fn forget_writers(&self) -> Result<()> {
        while self.change(|change| change.forget_writer())? {}
        Ok(())
    }

    /// The segments to which somebody may still write, in order. Who begins to from now on finds
    /// out whether the segment is still what it was.
    pub(crate) fn held_segments(&self, tx: &Tx<'_, M, H>) -> Result<Vec<u64>> {
        Ok(segments_of(self.of_the_living(self.named_holds(tx)?)?))
    }

    /// The same for who does not hold the lock: it is over by then, or not yet.
    pub(crate) fn segments_held_now(&self) -> Result<Vec<u64>> {
        Ok(segments_of(self.present_holds()?))
    }

    /// Those that somebody else holds than the calling thread, as [`Self::segments_held_now`].
    pub(crate) fn segments_held_by_others(&self) -> Result<Vec<u64>> {
        let me = thread::current().id();
        let is_mine = |(_, thread): &&((Place, u64), ThreadId)| *thread == me;
        let mine: Vec<Offset> = {
            let words = self.writing.words();
            let at = |((object, index), _): &((Place, u64), ThreadId)| {
                object.offset().plus(index * WORD)
            };
            words.taken.iter().filter(is_mine).map(at).collect()
        };
        let mut holds = self.present_holds()?;
        holds.retain(|(at, _)| !mine.contains(at));
        Ok(segments_of(holds))
    }

    /// Waits until all holds have been given up that somebody has now: what is written by them, or
    /// named by those who have written it, is complete then. Not for who holds anything.
    pub(crate) fn await_present_holds(&self) -> Result<()> {
        let since = Instant::now();
        let mut left = self.present_holds()?;
        while !left.is_empty() {
            let now = self.present_holds()?;
            left.retain(|hold| now.contains(hold));
            if since.elapsed() > PATIENCE {
                let what =
                    "they write for a long time, or are stopped; let them go on, or end them";
                return Err(Error::InUse { device: self.name(), what });
            }
            self.check_health()?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The holds of writers that live, or have requests under way. Writers are freed when they are
    /// gone, so without the lock what was seen of their list counts only if that has not changed.
    fn present_holds(&self) -> Result<Vec<(Offset, u64)>> {
        self.of_the_living(self.core.read(LOCK, |view| self.named_holds(view))?)
    }

    /// Those of `named` whose writers live, or have requests under way.
    fn of_the_living(&self, named: Vec<Held>) -> Result<Vec<(Offset, u64)>> {
        let mut held = Vec::new();
        for Held { writer, holds } in named {
            if writer == self.writing.number || self.is_writing(writer)? {
                held.extend(holds);
            }
        }
        Ok(held)
    }

    /// The holds of all writers in the list, those that are gone included.
    fn named_holds(&self, words: &impl Words) -> conquest_pm::Result<Vec<Held>> {
        let mut held = Vec::new();
        let mut next = words.root(Word::Writers);
        // Each has a page of its own, so there can't be more of them than pages.
        let mut most = self.core.groups() * conquest_format::GROUP_PAGES;
        while next != 0 && most > 0 {
            let writer = Ptr::<Writer>::from_word(next, Word::Writers.at())?;
            let place = self.core.resolve(writer)?.offset();
            let word = |index: u64| self.core.word(place.plus(index * WORD));
            let holds = (HOLDS..WORDS).map(|index| (place.plus(index * WORD), word(index)));
            let holds: Vec<_> = holds.filter(|(_, word)| *word != 0).collect();
            if !holds.is_empty() {
                held.push(Held { writer: word(NUMBER), holds });
            }
            next = word(NEXT);
            most -= 1;
        }
        Ok(held)
    }

    /// Whether writer `number`, somebody else, lives or has requests under way.
    pub(crate) fn is_writing(&self, number: u64) -> Result<bool> {
        let entered = self.device.is_entered(number);
        entered.map_err(|source| self.device_error("ask who writes to", 0, 0, source))
    }

    pub(crate) fn device_error(
        &self,
        action: &'static str,
        at: u64,
        bytes: u64,
        source: std::io::Error,
    ) -> Error {
        Error::Device { device: self.name(), action, at, bytes, source }
    }
}

/// The segments that `holds` hold, in order.
fn segments_of(holds: Vec<(Offset, u64)>) -> Vec<u64> {
    let segment = |(_, word): (Offset, u64)| (word & ((1 << SEGMENT_BITS) - 1)) - 1;
    let mut held: Vec<u64> = holds.into_iter().map(segment).collect();
    held.sort_unstable();
    held
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Frees an object of a writer that is gone; whether there was one.
    fn forget_writer(&mut self) -> Step<bool> {
        let mut at = Word::Writers.at();
        loop {
            let word = self.tx.get(at);
            if word == 0 {
                return Ok(false);
            }
            let writer = Ptr::<Writer>::from_word(word, at)?;
            let place = self.volume.core.resolve(writer)?.offset();
            let number = self.tx.get(place);
            let next = place.plus(NEXT * WORD);
            if number != self.volume.writing.number && !self.volume.is_writing(number)? {
                let behind = self.tx.get(next);
                self.tx.set(at, behind)?;
                self.tx.free(writer)?;
                return Ok(true);
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::AtomicBool;

    use conquest_pm::media::{Mapped, OsHost};

    use super::*;
    use crate::operations::tests::volume;

    /// Adds an object of a writer that is gone, and had a hold.
    fn add_gone(volume: &Volume<Mapped, OsHost>, segment: u64) {
        let add = |change: &mut Change<'_, _, _>| {
            let next = change.tx.root(Word::Writers);
            let fresh = change.tx.alloc::<Writer>()?;
            for (index, word) in [(NUMBER, 1 << 20), (NEXT, next), (HOLDS, segment + 1)] {
                change.tx.fill_word(&fresh, index, word)?;
            }
            let writer = change.tx.seal(fresh);
            Ok(change.tx.set(Word::Writers.at(), writer.word())?)
        };
        volume.change(add).unwrap();
    }

    #[test]
    fn who_is_gone_holds_nothing() {
        let volume = volume();
        let mine = volume.hold(7).unwrap();
        add_gone(&volume, 8);
        assert_eq!(volume.segments_held_now().unwrap(), [7]);
        assert_eq!(volume.change(|change| Ok(volume.held_segments(&change.tx)?)).unwrap(), [7]);
        assert_eq!(volume.segments_held_by_others().unwrap(), []);
        drop(mine);
        assert_eq!(volume.segments_held_now().unwrap(), []);
    }

    /// Their objects are freed while others, who have no lock, go through the list.
    #[test]
    fn writers_may_be_forgotten_while_others_ask_who_holds_what() {
        let volume = volume();
        let _mine = volume.hold(7).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ask = || {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(volume.segments_held_now().unwrap(), [7]);
                }
            };
            let asking = scope.spawn(ask);
            for number in 0..3000 {
                (0..3).for_each(|more| add_gone(&volume, number % 100 + 8 + more));
                volume.forget_writers().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            asking.join().unwrap();
        });
    }
}
