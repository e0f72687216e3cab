//! Reading what is wanted next with what is wanted now: a device gives much at once nearly as soon
//! as little. Whether somebody reads in order is not noted anywhere, and may be seen by everybody:
//! then what is before is in the cache, and what is behind is not.

use conquest_format::volume::BLOCK;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::volume::Volume;

/// Units that are in the cache before one who reads in order.
const BEFORE: usize = 4;
/// Before one who has done so for a while, of so many units all but few are there: others may have
/// taken the place of some since.
const LONG_BEFORE: usize = 32;
const FEW: usize = 4;
/// Who reads ahead ends where so many units in a row are in the cache.
const ENOUGH: usize = 16;
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
        let before = unit.min(LONG_BEFORE as u64);
        let mut there = self.at_hand(unit - before, behind - (unit - before))?;
        let is_last_there = there.get((behind - 1 - (unit - before)) as usize).copied();
        there.truncate(before as usize);
        let in_a_row = there.iter().rev().take_while(|is_there| **is_there).count();
        if is_last_there != Some(false) || in_a_row < BEFORE {
            return Ok(0);
        }
        let found = there.iter().filter(|is_there| **is_there).count();
        let most = if found >= LONG_BEFORE - FEW { FAR_AHEAD } else { AHEAD };
        let per = self.layout.unit / BLOCK;
        let found = self.allocated_within(behind.saturating_mul(per), most / BLOCK)?;
        let blocks = found.filter(|(first, _)| *first == behind * per).map_or(0, |found| found.1);
        Ok(missing(&self.at_hand(behind, blocks.min(most / BLOCK) / per)?))
    }

    /// For each of the `units` units from `unit` on whether no device need be asked for it, as far
    /// as one look tells.
    fn at_hand(&self, unit: u64, units: u64) -> Result<Vec<bool>> {
        let mut there = Vec::new();
        for piece in self.look(unit, units)? {
            let is_there = |index: u64| {
                let found = piece.found.as_ref();
                found.is_some_and(|found| found.inline.is_some() || self.has_kept(found, index))
            };
            there.extend((0..piece.len).map(is_there));
        }
        Ok(there)
    }

    /// Reads whole units from `unit` on, and `more` behind them, which are kept.
    fn read_more(&self, unit: u64, into: &mut [u8], more: u64) -> Result<()> {
        let mut all = self.lend(into.len() + (more * self.layout.unit) as usize)?;
        self.read_units(unit, &mut all)?;
        into.copy_from_slice(all.get(..into.len()).unwrap_or_default());
        Ok(())
    }
}

/// How many of the units of which `there` says whether they are in the cache are to be read: up to
/// the last one that is not, before enough that are.
fn missing(there: &[bool]) -> u64 {
    let (mut wanted, mut passed) = (0, 0);
    for (number, is_there) in (1..).zip(there) {
        if *is_there {
            passed += 1;
        } else {
            (wanted, passed) = (number, 0);
        }
        if passed == ENOUGH {
            break;
        }
    }
    wanted
}
