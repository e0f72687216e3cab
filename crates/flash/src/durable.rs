//! Making the stream durable: flushes of the devices, which all share who wait for one.
//!
//! Who is about to flush the devices says so by two words of the index, in the transaction that
//! notes his packets as written where that can be: who he is, and below which packets all was on
//! the devices before. Who wants no more than that durable waits until it is; who wants more waits
//! for the end of that flush, and then one of those who do flushes for all of them. Nobody waits
//! for one who is gone, or for long: he flushes himself then. That two flush at once is never
//! wrong.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Mode, Tx};

use crate::Result;
use crate::change::{Change, Step};
use crate::index::{Flushing, LOCK, Slot, Word, Words, packet_of};
use crate::volume::Volume;

/// A flush that was begun: whose it is, and below which packets all was on the devices before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    writer: u64,
    below: u64,
}

/// A flush that the caller has begun, and makes. If he does not, others needn't wait for it.
pub(crate) struct Flush<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    begun: Begun,
    is_over: bool,
}

/// Which flush somebody waits for, and since when.
#[derive(Clone, Copy)]
struct Waiting {
    flush: Begun,
    since: Instant,
}

/// Whoever flushes for so long may be stopped: the next one flushes beside him.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long one who flushes is not asked for.
const TRUST: Duration = Duration::from_millis(1);
/// Of the time that somebody has waited he waits one part of so many more, until he looks again:
/// so that flushes that take long are not looked at often, and short ones not late.
const SHARE: u32 = 8;
const LEAST: Duration = Duration::from_micros(20);
const MOST: Duration = Duration::from_micros(500);

impl<M: Memory, H: Host> Volume<M, H> {
    /// Makes everything durable that was complete when this was called, by whomever: writes, trims
    /// and all else that has returned.
    ///
    /// # Errors
    /// Of the devices: the volume has failed then, for all processes.
    pub fn flush(&self) -> Result<()> {
        self.flush_telling(|| {})
    }

    /// [`Self::flush`], which tells when it begins to flush the devices, unless somebody else does
    /// that: all is written then, and what others write meanwhile does not wait for it.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn flush_telling(&self, begins: impl FnMut()) -> Result<()> {
        let target = self.change(|change| change.seal_all())?;
        self.flush_to_telling(target, begins)
    }

    /// Makes packets below `target`, which are sealed, durable, and all that they name.
    pub(crate) fn flush_to(&self, target: u64) -> Result<()> {
        self.flush_to_telling(target, || {})
    }

    fn flush_to_telling(&self, target: u64, mut begins: impl FnMut()) -> Result<()> {
        let mut flush = None;
        while self.root(Word::Written) < target {
            self.check_health()?;
            flush = self.write_packets(target, true)?;
        }
        let mut waiting = None;
        loop {
            if let Some(flush) = flush {
                begins();
                return flush.make();
            }
            self.check_health()?;
            if self.root(Word::Durable) >= target {
                return Ok(());
            }
            let begun = match self.await_flush(target, &mut waiting)? {
                Some(over) => self.change(|change| change.begin_flush(target, over))?,
                None => None,
            };
            flush = begun.map(|begun| self.flush_of(begun));
        }
    }

    /// Waits a moment for who flushes; if there is none, or none to wait for any longer, the flush
    /// that is over.
    fn await_flush(&self, target: u64, waiting: &mut Option<Waiting>) -> Result<Option<Begun>> {
        let core = self.core.as_ref();
        let found = Begun::found(core);
        if found.writer == 0 {
            return Ok(Some(found));
        }
        let same = waiting.filter(|waiting| waiting.flush == found);
        let Waiting { since, .. } =
            *waiting.insert(same.unwrap_or(Waiting { flush: found, since: Instant::now() }));
        let waited = since.elapsed();
        let is_mine = found.writer == self.writing.number;
        if waited > PATIENCE || (waited > TRUST && !is_mine && !self.is_writing(found.writer)?) {
            return Ok(Some(found));
        }
        let (lock, over) = &self.flushes;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Who ends a flush of this process takes the lock before he tells.
        if self.root(Word::Durable) < target && Begun::found(core) == found {
            let pause = if is_mine { PATIENCE } else { (waited / SHARE).clamp(LEAST, MOST) };
            drop(over.wait_timeout(guard, pause));
        }
        Ok(None)
    }

    /// The flush that the caller has `begun`.
    pub(crate) const fn flush_of(&self, begun: Begun) -> Flush<'_, M, H> {
        Flush { volume: self, begun, is_over: false }
    }

    /// Flushes the devices: all that was written before, whether the stream names it or not.
    pub(crate) fn flush_now(&self) -> Result<()> {
        self.flush_members()?;
        self.note_failures()
    }

    /// Flushes the members that have not failed.
    pub(crate) fn flush_members(&self) -> Result<()> {
        self.learn_standing();
        match self.device.flush() {
            Ok(()) => self.tell_failures(),
            Err(source) => {
                self.fail()?;
                Err(self.device_error("flush", 0, 0, source))
            }
        }
    }

    /// Makes it known, also to recovery, what is durable: so that what has died can be used again.
    pub(crate) fn name_durable(&self) -> Result<()> {
        self.flush()?;
        let target = self.change(|change| {
            let (packet, _) = packet_of(change.tx.root(Word::End));
            change.seal()?;
            Ok(packet + 1)
        })?;
        self.flush_to(target)
    }

    /// The volume has failed, for all.
    pub(crate) fn fail(&self) -> Result<()> {
        self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            tx.set(Word::Failed.at(), 1)
        })?;
        Ok(())
    }
}

impl<M: Memory, H: Host> Flush<'_, M, H> {
    /// Makes it. What failed members lack is known, also to recovery, before it counts.
    fn make(mut self) -> Result<()> {
        let begun = self.begun;
        self.volume.flush_now()?;
        self.volume.change(|change| {
            change.note_durable(begun.below)?;
            Ok(begun.end(&mut change.tx)?)
        })?;
        self.is_over = true;
        self.tell();
        Ok(())
    }

    /// Tells the threads of this process that it is over.
    fn tell(&self) {
        let (lock, over) = &self.volume.flushes;
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        over.notify_all();
    }
}

impl<M: Memory, H: Host> Drop for Flush<'_, M, H> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let begun = self.begun;
        // If it can't be said, the region has failed for all.
        let _ = self.volume.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            begun.end(tx)
        });
        self.tell();
    }
}

impl Begun {
    /// That of nobody.
    pub(crate) const NONE: Begun = Begun { writer: 0, below: 0 };

    /// The one that `words` tell of.
    fn found(words: &impl Words) -> Begun {
        let (writer, below) = (words.flushing(Flushing::Writer), words.flushing(Flushing::Below));
        Begun { writer, below }
    }

    /// It is over, unless another one is known by now.
    fn end<M: Memory, H: Host>(self, tx: &mut Tx<'_, M, H>) -> conquest_pm::Result<()> {
        match Begun::found(tx) == self {
            true => tx.set(tx.flushing_at(Flushing::Writer), 0),
            false => Ok(()),
        }
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Begins a flush if packets below `target` are on the devices, and not durable; none if
    /// somebody has begun another one than the one that is `over`.
    pub(crate) fn begin_flush(&mut self, target: u64, over: Begun) -> Step<Option<Begun>> {
        let below = self.tx.root(Word::Written);
        let found = Begun::found(&self.tx);
        let is_needed = self.tx.root(Word::Durable) < target && below >= target;
        if !is_needed || (found.writer != 0 && found != over) {
            return Ok(None);
        }
        let begun = Begun { writer: self.volume.writing.number, below };
        self.tx.set(self.tx.flushing_at(Flushing::Writer), begun.writer)?;
        self.tx.set(self.tx.flushing_at(Flushing::Below), below)?;
        Ok(Some(begun))
    }

    /// Notes that packets below `below`, and all that they name, are durable.
    pub(crate) fn note_durable(&mut self, below: u64) -> Step<()> {
        if self.tx.root(Word::Durable) < below {
            self.tx.set(Word::Durable.at(), below)?;
            self.tx.set(Word::Unflushed.at(), 0)?;
        }
        let last = below - 1;
        if self.tx.packet(last, Slot::Number) == last {
            let named = self.tx.packet(last, Slot::Durable);
            if named > self.tx.root(Word::Named) {
                self.tx.set(Word::Named.at(), named)?;
            }
        }
        Ok(())
    }
}
