//! Changing the index: one at a time, each finished before the next begins.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Mode, Tx};

use crate::index::LOCK;
use crate::turn::Waits;
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
        let (mut segments, mut waits) = (0, Waits::new());
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use conquest_format::volume::Record;

    use super::*;
    use crate::index::{Of, Word, Words};
    use crate::operations::tests::volume;

    /// As when somebody has died who had added records that count.
    #[test]
    fn what_others_have_added_is_in_the_map_when_it_is_finished() {
        let volume = volume();
        volume.write(0, &[1; 4096]).unwrap();
        let is_there = || volume.look(0, 1).unwrap().iter().any(|piece| piece.found.is_some());
        let mut dying = volume.begin().unwrap();
        dying.append(&Record::Hole { unit: 0, len: 1 }, true).unwrap();
        dying.part().unwrap();
        drop(dying);
        assert!(is_there());
        volume.finish().unwrap();
        assert!(!is_there());
    }

    /// However much was staged before, by who was there first.
    #[test]
    fn a_segment_is_noted_as_bad_in_any_transaction() {
        let volume = volume();
        for left in 0..20 {
            let note = |change: &mut Change<'_, _, _>| {
                while change.tx.room() > left {
                    change.tx.set(Word::Failed.at(), 0)?;
                }
                change.note_bad(100 + left)
            };
            volume.change(note).unwrap();
            assert_eq!(volume.core.segment(100 + left, Of::Bad), 1);
        }
    }
}
