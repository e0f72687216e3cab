//! Volumes on simulated NAND flash, which is erased in blocks and wears out by that.

use std::sync::Arc;

use conquest_flash::device::{Geometry, Nand};
use conquest_format::volume::Arrangement;

use super::{Counted, UNIT, Volume, create_on, new_volume, recover_on};
use crate::calls::{CallError, Outcome};

/// Erase blocks at the beginning that are hardly ever erased: that of a superblock, and four for
/// roots.
const FIRST: usize = 5;
/// The same at the end: that of the other superblock.
const LAST: usize = 1;

/// A volume, and the flash memory that it is on.
pub struct Erased {
    /// The volume. A segment is an erase block.
    pub volume: Volume,
    /// Its members, as they are without it.
    pub nands: Vec<Nand>,
    /// What the volume asks of them.
    pub members: Vec<Arc<Counted>>,
}

/// How often erase blocks were erased, but for those that the volume's payload never comes to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Erasures {
    /// The one that was least often.
    pub least: u32,
    /// The one that was most often.
    pub most: u32,
    /// On average.
    pub mean: f64,
}

impl Erasures {
    /// Of all blocks of a device, of which each was erased so often.
    #[must_use]
    pub fn of(blocks: &[u32]) -> Erasures {
        let end = blocks.len().saturating_sub(LAST);
        let used = blocks.get(FIRST..end).unwrap_or_default();
        let sum: f64 = used.iter().copied().map(f64::from).sum();
        Erasures {
            least: used.iter().copied().min().unwrap_or(0),
            most: used.iter().copied().max().unwrap_or(0),
            mean: sum / used.len().max(1) as f64,
        }
    }

    /// From the least to the most, as a share of the mean; 0 if nothing was erased.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let spread = f64::from(self.most - self.least);
        if self.mean > 0.0 { spread / self.mean } else { 0.0 }
    }
}

impl Erased {
    /// A new volume on `count` new devices of `blocks` erase blocks with `pages` pages of [`UNIT`]
    /// bytes each. `number` is that of [`super::create`].
    ///
    /// # Errors
    /// Those of the volume.
    pub fn new(
        arrangement: Arrangement,
        count: usize,
        [blocks, pages]: [u64; 2],
        number: u64,
    ) -> Outcome<Erased> {
        let geometry = Geometry { page: UNIT as u32, pages: pages as u32, blocks: blocks as u32 };
        let nands = (0..count).map(|member| Nand::new(format!("nand {member}"), geometry));
        let nands: Vec<Nand> = nands
            .collect::<std::io::Result<_>>()
            .map_err(|source| CallError::of("make a device", source))?;
        let member = |nand: &Nand| Counted::new(Arc::new(nand.clone()));
        let members: Vec<Arc<Counted>> = nands.iter().map(member).collect();
        create_on(&members, &new_volume(arrangement, 0, number))?;
        let volume = recover_on(&members)?;
        Ok(Erased { volume, nands, members })
    }

    /// How often the blocks of the first member were erased.
    #[must_use]
    pub fn erasures(&self) -> Erasures {
        self.nands.first().map_or_else(Erasures::default, |nand| Erasures::of(&nand.wear()))
    }

    /// Bytes that the first member was asked to write.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.members.first().map_or(0, |member| member.counts().written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_superblocks_and_roots_do_not_count() {
        let found = Erasures::of(&[1, 900, 900, 0, 0, 10, 12, 8, 1]);
        assert_eq!(found, Erasures { least: 8, most: 12, mean: 10.0 });
        assert!((found.spread() - 0.4).abs() < 1e-12);
        assert_eq!(Erasures::of(&[3; 6]), Erasures::default());
        assert!(Erasures::default().spread() == 0.0);
    }

    #[test]
    fn what_is_written_wears_blocks_out() {
        let made = Erased::new(Arrangement::Striped, 1, [64, 16], 1).unwrap();
        let before = made.erasures();
        let units = made.volume.info().unwrap().capacity / 2;
        for number in 0..20 * units {
            made.volume
                .write(number % units * super::super::PER_UNIT, &[7; UNIT as usize])
                .unwrap();
        }
        let after = made.erasures();
        assert!(after.mean > before.mean + 5.0, "{before:?}, {after:?}");
        assert!(made.written() > 20 * units * UNIT);
    }
}
