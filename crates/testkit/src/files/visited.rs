//! A space of a volume in which others come by, at moments that a test chooses, and do something.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conquest_fs::large::{Answer, Room, Seen, Space};

use super::RamSpace;

/// When others come by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Before something is read.
    Read,
    /// Behind that, before who has read it goes on.
    HasRead,
    /// Before something is written, in a turn.
    Write,
    /// Before something is trimmed.
    Trim,
    /// Before it is looked where pages are that are to be written over.
    Look,
    /// Behind that.
    HasLooked,
    /// Before they are written over.
    Over,
    /// Behind that, if it was done.
    WasOver,
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Writes over what was seen that were tried, and that were done.
    pub tried: usize,
    /// See [`Self::tried`].
    pub done: usize,
    /// Other writes.
    pub written: usize,
    /// Bytes that were read past what is kept in memory.
    pub read_once: usize,
    /// Bytes that were written past what is kept in memory.
    pub written_once: usize,
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    works: Vec<(Moment, Work)>,
    moves: usize,
    counts: Counts,
    is_blind: bool,
}

/// A [`RamSpace`] in which others come by.
#[derive(Clone, Default)]
pub struct Visited {
    /// What is visited.
    pub space: RamSpace,
    state: Arc<Mutex<State>>,
}

impl core::fmt::Debug for Visited {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Visited").field("space", &self.space).finish_non_exhaustive()
    }
}

impl Visited {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `work` done once, at the next such moment that nobody waits for already.
    pub fn at(&self, moment: Moment, work: impl FnOnce() + Send + 'static) {
        self.state().works.push((moment, Box::new(work)));
    }

    fn come(&self, moment: Moment) {
        let mut state = self.state();
        let found = state.works.iter().position(|(wanted, _)| *wanted == moment);
        let work = found.map(|index| state.works.remove(index).1);
        // Who comes by uses the space.
        drop(state);
        if let Some(work) = work {
            work();
        }
    }

    /// Whether somebody has not come by since.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.state().works.is_empty()
    }

    /// Lets nothing be looked for, so nothing is written over.
    pub fn blind(&self) {
        self.state().is_blind = true;
    }

    /// Lets cleaning move all that is about to be written over, so many times.
    pub fn move_times(&self, times: usize) {
        self.state().moves = times;
    }

    /// What was counted since the last look.
    #[must_use]
    pub fn take_counts(&self) -> Counts {
        std::mem::take(&mut self.state().counts)
    }
}

impl Space for Visited {
    fn read(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        self.come(Moment::Read);
        self.space.read(block, into)?;
        self.come(Moment::HasRead);
        Ok(())
    }

    fn write(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        self.come(Moment::Write);
        self.state().counts.written += 1;
        self.space.write(block, bytes)
    }

    fn read_once(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        self.state().counts.read_once += into.len();
        self.read(block, into)
    }

    fn write_once(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        self.state().counts.written_once += bytes.len();
        self.write(block, bytes)
    }

    fn look(&self, block: u64, count: u64) -> Answer<Option<Seen>> {
        if self.state().is_blind {
            return Ok(None);
        }
        self.come(Moment::Look);
        let seen = self.space.look(block, count)?;
        self.come(Moment::HasLooked);
        Ok(seen)
    }

    fn write_over(&self, block: u64, bytes: &[u8], seen: &Seen, is_kept: bool) -> Answer<bool> {
        self.come(Moment::Over);
        let is_moved = {
            let mut state = self.state();
            let is_moved = state.moves > 0;
            state.moves = state.moves.saturating_sub(1);
            state.counts.tried += 1;
            is_moved
        };
        if is_moved {
            let mut same = vec![0; bytes.len()];
            self.space.read(block, &mut same)?;
            self.space.write(block, &same)?;
        }
        let is_done = self.space.write_over(block, bytes, seen, is_kept)?;
        if is_done {
            let mut state = self.state();
            state.counts.done += 1;
            state.counts.written_once += if is_kept { 0 } else { bytes.len() };
            drop(state);
            self.come(Moment::WasOver);
        }
        Ok(is_done)
    }

    fn trim(&self, block: u64, count: u64) -> Answer<()> {
        self.come(Moment::Trim);
        self.space.trim(block, count)
    }

    fn allocated(&self, block: u64, count: u64) -> Answer<Option<(u64, u64)>> {
        self.space.allocated(block, count)
    }

    fn room(&self) -> Answer<Room> {
        self.space.room()
    }
}
