//! Writing what may be read again before long: it is kept in the cache, if there is one, and what
//! was there before is not, as it would be in the way of others.

use conquest_format::volume::BLOCK;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::seen::Seen;
use crate::transfer::Piece;
use crate::volume::Volume;

impl<M: Memory, H: Host> Volume<M, H> {
    /// [`Self::write`], for who may read it again: it is kept in the cache, if there is one.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_to_keep(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.with_units(block, bytes, |piece, _| self.forget_piece(piece))?;
        self.write(block, bytes)?;
        self.keep_written(block, bytes)
    }

    /// [`Self::write_over`], for who may read it again, as [`Self::write_to_keep`].
    ///
    /// # Errors
    /// As [`Self::write_over`].
    pub fn write_over_to_keep(&self, block: u64, bytes: &[u8], seen: &Seen) -> Result<bool> {
        if self.has_cache() {
            // What has come there since stays.
            for one in seen.expected() {
                if let Some((place, generation)) = one.at {
                    self.forget_places(place, one.len, generation);
                }
            }
        }
        let is_done = self.write_over(block, bytes, seen)?;
        if is_done {
            self.keep_written(block, bytes)?;
        }
        Ok(is_done)
    }

    /// Keeps `bytes`, which were just written from block `block` on, in the cache, if there is one.
    fn keep_written(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.with_units(block, bytes, |piece, bytes| self.keep_piece(piece, bytes))
    }

    /// Calls `each` with where the units are that `bytes` are, from block `block` on, and with
    /// their bytes, if there is a cache. What begins within a unit is left out.
    fn with_units(
        &self,
        block: u64,
        bytes: &[u8],
        mut each: impl FnMut(&Piece, &[u8]),
    ) -> Result<()> {
        let per = self.layout.unit / BLOCK;
        if !self.has_cache() || !block.is_multiple_of(per) {
            return Ok(());
        }
        let (mut unit, mut rest) = (block / per, bytes);
        while let units @ 1.. = rest.len() as u64 / self.layout.unit {
            for piece in self.look(unit, units)? {
                let len = ((piece.len * self.layout.unit) as usize).min(rest.len());
                let (now, later) = rest.split_at(len);
                each(&piece, now);
                (unit, rest) = (unit + piece.len, later);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use conquest_format::{GROUP_PAGES, PAGE};

    use super::*;
    use crate::operations::tests::volume;

    const PER: u64 = PAGE / BLOCK;

    /// More than the cache has room for are written, but not of different units.
    #[test]
    fn what_is_written_over_is_in_nobodys_way() {
        const UNITS: u64 = 200;
        for is_direct in [false, true] {
            let volume = volume();
            volume.allow_cache(GROUP_PAGES * PAGE).unwrap();
            for value in 0..5_u8 {
                for unit in 0..UNITS {
                    let bytes = [value; PAGE as usize];
                    let seen = volume.look_where(unit * PER, PER).unwrap();
                    match seen.filter(|_| is_direct) {
                        Some(seen) => {
                            assert!(volume.write_over_to_keep(unit * PER, &bytes, &seen).unwrap());
                        }
                        None => volume.write_to_keep(unit * PER, &bytes).unwrap(),
                    }
                }
            }
            let mut found = [0; PAGE as usize];
            for unit in 0..UNITS {
                assert!(volume.read_kept(unit, &mut found).unwrap(), "unit {unit}");
                assert!(found == [4; PAGE as usize], "unit {unit}");
            }
        }
    }
}
