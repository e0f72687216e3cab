//! Changing the index: one at a time, each finished before the next begins.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Mode, Tx};

use crate::index::LOCK;
use crate::volume::Volume;
use crate::{Error, Result};

/// Why a change has to be begun once more.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another operation of the region is in the way for a moment.
    Again,
    /// Packets have to be written first.
    Ring,
    /// There is no free segment for this use: space has to be made first.
    Segments,
    /// It can't be done.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Stop {
        match error.into() {
            Error::Region(conquest_pm::Error::Again) => Stop::Again,
            error => Stop::Failed(error),
        }
    }
}

/// A change that may stop.
pub(crate) type Step<T> = core::result::Result<T, Stop>;

/// A change under way, with the lock held.
pub(crate) struct Change<'v, M: Memory, H: Host> {
    pub(crate) volume: &'v Volume<M, H>,
    pub(crate) tx: Tx<'v, M, H>,
    /// Parts that were committed.
    parts: u32,
}

impl<'v, M: Memory, H: Host> Change<'v, M, H> {
    /// One that `tx` makes.
    pub(crate) const fn on(volume: &'v Volume<M, H>, tx: Tx<'v, M, H>) -> Self {
        Change { volume, tx, parts: 0 }
    }

    /// Commits what is staged; the lock stays held.
    pub(crate) fn part(&mut self) -> Result<()> {
        self.tx.commit_part()?;
        self.parts += 1;
        Ok(())
    }

    /// Commits what is staged unless `entries` more can be staged.
    pub(crate) fn make_room(&mut self, entries: u64) -> Result<()> {
        if self.tx.room() < entries { self.part() } else { Ok(()) }
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// A change in which what others have begun is finished, and nothing staged.
    fn begin(&self) -> Step<Change<'_, M, H>> {
        let mut tx = self.core.begin()?;
        tx.lock(LOCK, Mode::Exclusive)?;
        let mut change = Change::on(self, tx);
        if change.settle()? {
            change.part()?;
        }
        change.parts = 0;
        Ok(change)
    }

    /// Makes a change: `make` stages it and may be called several times. Records that it has added
    /// are in the map when this returns.
    pub(crate) fn change<T>(
        &self,
        mut make: impl FnMut(&mut Change<'_, M, H>) -> Step<T>,
    ) -> Result<T> {
        let (mut segments, mut waits) = (0, 0);
        loop {
            self.check_health()?;
            let made = self.begin().and_then(|mut change| {
                let value = make(&mut change)?;
                let before = change.parts;
                match change.settle() {
                    Ok(_) => change.tx.commit()?,
                    // The records count already.
                    Err(Stop::Again) if change.parts > before => {
                        drop(change);
                        self.finish()?;
                    }
                    Err(stop) => return Err(stop),
                }
                Ok(value)
            });
            match made {
                Ok(value) => return Ok(value),
                Err(Stop::Again) => {}
                Err(Stop::Ring) => self.write_sealed()?,
                // Making space needs space itself: whoever does it gets along with what there is.
                Err(Stop::Segments) if self.space.is_mine() => {
                    if !self.await_holds(&mut waits)? {
                        return Err(self.no_space());
                    }
                }
                Err(Stop::Segments) => {
                    // It may take several.
                    segments += 1;
                    self.make_space(segments)?;
                }
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
    }

    /// Finishes what was begun.
    fn finish(&self) -> Step<()> {
        loop {
            match self.begin() {
                Err(Stop::Again) => {}
                other => return other.map(drop),
            }
        }
    }
}
