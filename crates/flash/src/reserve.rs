//! Space that is reserved: a count of units, durable as all else, that nobody but those who write
//! with it can use up. Whose it is, and for what, whoever reserves it knows.

use conquest_format::volume::Record;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::change::{Change, Step};
use crate::index::{Word, Words};
use crate::volume::Volume;

impl<M: Memory, H: Host> Volume<M, H> {
    /// Reserves `units` of [`Self::unit`] bytes, for [`Self::write_reserved`]. It is durable when a
    /// later [`Self::flush`] has returned.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], those of the devices.
    pub fn reserve(&self, units: u64) -> Result<()> {
        self.change(|change| {
            change.refuse_full(units)?;
            let reserved = change.tx.root(Word::Reserved) + units;
            change.set_reserved(reserved, true)
        })?;
        self.flush_if_due()
    }

    /// Gives `units` back, or all that are reserved if these are fewer: how many.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn release(&self, units: u64) -> Result<u64> {
        let released = self.change(|change| {
            let reserved = change.tx.root(Word::Reserved);
            let released = units.min(reserved);
            change.set_reserved(reserved - released, true)?;
            Ok(released)
        })?;
        self.flush_if_due()?;
        Ok(released)
    }

    /// As [`Self::write_atomic`], but what of `ranges` is not allocated yet takes space that is
    /// reserved, as long as there is some; that it does so is part of the write.
    ///
    /// # Errors
    /// As [`Self::write_atomic`]: [`crate::Error::NoSpace`] only if more is not allocated than is
    /// reserved.
    pub fn write_reserved(&self, ranges: &[(u64, &[u8])]) -> Result<()> {
        self.write_ranges(ranges, true).map(drop)
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Refuses if there is no space for `units` more.
    pub(crate) fn refuse_full(&mut self, units: u64) -> Step<()> {
        let is_full = |change: &Self| {
            let used = change.tx.root(Word::Live) + change.tx.root(Word::Reserved);
            used.saturating_add(units) > change.volume.capacity(&change.tx)
        };
        if units > 0 && is_full(self) {
            // What is being trimmed still counts.
            while self.trim_some()? {}
            if is_full(self) {
                return Err(self.volume.no_space().into());
            }
        }
        Ok(())
    }

    /// Adds the record that so many units are reserved, the `last` of those that happen together or
    /// not.
    pub(crate) fn set_reserved(&mut self, units: u64, last: bool) -> Step<()> {
        self.append(&Record::Reserved { units }, last)
    }
}
