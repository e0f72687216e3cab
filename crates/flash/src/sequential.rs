//! Reading what is wanted next with what is wanted now: a device gives much at once nearly as soon
//! as little. Whether somebody reads in order is not noted anywhere, and may be seen by everybody:
//! then what is before is in the cache.

use conquest_format::volume::BLOCK;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::seen::Seen;
use crate::volume::Volume;

/// Units that are in the cache before one who reads in order.
const BEFORE: u64 = 4;
/// Units that are in the cache before one who has done so for a while.
const LONG_BEFORE: u64 = 32;
/// Bytes that are read ahead for the first one, and for the second one.
const AHEAD: u64 = 128 << 10;
const FAR_AHEAD: u64 = 1 << 20;

impl<M: Memory, H: Host> Volume<M, H> {
    /// [`Self::read`], for who may go on with what is behind that: if he has read what is before,
    /// some of it is brought into the cache, if there is one.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_in_order(&self, block: u64, into: &mut [u8]) -> Result<()> {
        let per = self.layout.unit / BLOCK;
        let (unit, units) = (block / per, into.len() as u64 / self.layout.unit);
        let is_whole = block.is_multiple_of(per) && units * self.layout.unit == into.len() as u64;
        if is_whole && units > 0 && self.has_cache() {
            if self.read_kept(unit, into)? {
                return Ok(());
            }
            let behind = unit.saturating_add(units);
            let more = self.units_ahead(unit, behind)?;
            // What can't be read there is not wanted yet.
            if more > 0 && self.read_more(unit, into, more).is_ok() {
                return Ok(());
            }
        }
        self.read(block, into)
    }

    /// [`Self::read`], for who reads it once: whole units are left out of the cache, which others
    /// have a better use for.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_once(&self, block: u64, into: &mut [u8]) -> Result<()> {
        let (per, len) = (self.layout.unit / BLOCK, into.len() as u64);
        if !len.is_multiple_of(self.layout.unit) || !block.is_multiple_of(per) {
            return self.read(block, into);
        }
        self.check_blocks(block, len / BLOCK)?;
        self.read_units_anew(block / per, into)
    }

    /// How many units from `behind` on are to be read with those from `unit` on.
    fn units_ahead(&self, unit: u64, behind: u64) -> Result<u64> {
        if unit < BEFORE || self.is_at_hand(behind - 1)? {
            return Ok(0);
        }
        if !self.is_at_hand(unit - 1)? || !self.is_at_hand(unit - BEFORE)? {
            return Ok(0);
        }
        let is_far = unit >= LONG_BEFORE && self.is_at_hand(unit - LONG_BEFORE)?;
        let most = if is_far { FAR_AHEAD } else { AHEAD };
        let per = self.layout.unit / BLOCK;
        let found = self.allocated_within(behind.saturating_mul(per), most / BLOCK)?;
        let blocks = found.filter(|(first, _)| *first == behind * per).map_or(0, |found| found.1);
        Ok((blocks.min(most / BLOCK)) / per)
    }

    /// Whether no device need be asked for `unit`.
    fn is_at_hand(&self, unit: u64) -> Result<bool> {
        let pieces = self.look(unit, 1)?;
        Ok(pieces.first().is_some_and(|piece| match &piece.found {
            Some(found) => found.inline.is_some() || self.may_have(piece),
            None => false,
        }))
    }

    /// Reads whole units from `unit` on, and `more` behind them, which are kept.
    fn read_more(&self, unit: u64, into: &mut [u8], more: u64) -> Result<()> {
        let mut all = self.lend(into.len() + (more * self.layout.unit) as usize)?;
        self.read_units(unit, &mut all)?;
        into.copy_from_slice(all.get(..into.len()).unwrap_or_default());
        Ok(())
    }

    /// [`Self::write`], for who may read it again: it is kept in the cache, if there is one.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_to_keep(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.write(block, bytes)?;
        self.keep_written(block, bytes)
    }

    /// [`Self::write_over`], for who may read it again, as [`Self::write_to_keep`].
    ///
    /// # Errors
    /// As [`Self::write_over`].
    pub fn write_over_to_keep(&self, block: u64, bytes: &[u8], seen: &Seen) -> Result<bool> {
        let is_done = self.write_over(block, bytes, seen)?;
        if is_done {
            self.keep_written(block, bytes)?;
        }
        Ok(is_done)
    }

    /// Keeps `bytes`, which were just written from block `block` on, in the cache, if there is one.
    fn keep_written(&self, block: u64, bytes: &[u8]) -> Result<()> {
        let per = self.layout.unit / BLOCK;
        if !self.has_cache() || !block.is_multiple_of(per) {
            return Ok(());
        }
        let (mut unit, mut rest) = (block / per, bytes);
        while let units @ 1.. = rest.len() as u64 / self.layout.unit {
            let pieces = self.look(unit, units)?;
            let found: u64 = pieces.iter().map(|piece| piece.len).sum();
            let (now, later) = rest.split_at(((found * self.layout.unit) as usize).min(rest.len()));
            self.keep_pieces(&pieces, now);
            (unit, rest) = (unit + found, later);
        }
        Ok(())
    }
}
