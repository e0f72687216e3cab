//! Volumes that have been used for a while: full to some degree, and written all over at random.
//!
//! Making one can take minutes, so it is kept: what stands on a device is used again if a mark in
//! the volume says that it was made in the same way.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use conquest_flash::device::Device;

use super::{Counted, PER_UNIT, UNIT, Volume, create, device, failed, recover};
use crate::calls::{CallError, Outcome};
use crate::random::Random;

/// Bytes of a large piece.
pub const LARGE: u64 = 1 << 20;
/// The unit of the space from which on the large pieces are.
const LARGE_FROM: u64 = 1 << 32;
/// The unit of the space that has the mark.
const MARK: u64 = 1 << 34;

/// What an aged volume is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ageing {
    /// Bytes of the device, from its first.
    pub bytes: u64,
    /// Units of a segment, 0 for what suits.
    pub segment: u64,
    /// Units that are written one by one.
    pub small: u64,
    /// From one of them to the next: if there are some in between, each is an extent of its own.
    pub apart: u64,
    /// Pieces of [`LARGE`] bytes that are written at once, before all else.
    pub large: u64,
    /// Units that are written once more, at random, when all have been written.
    pub again: u64,
}

/// A volume, and what it is on.
pub struct Aged {
    /// The volume.
    pub volume: Volume,
    /// Its device.
    pub device: Arc<Counted>,
    /// What the device consists of, to be used past the volume. Transfers go past the kernel's
    /// cache, where that can be.
    pub file: File,
}

impl Ageing {
    /// The first byte in the space of small unit `number`.
    #[must_use]
    pub fn small_at(&self, number: u64) -> u64 {
        number * self.apart * UNIT
    }

    /// The first byte in the space of large piece `number`.
    #[must_use]
    pub fn large_at(&self, number: u64) -> u64 {
        LARGE_FROM * UNIT + number * LARGE
    }

    /// The volume on the file or device at `path`: as it is there, or made anew.
    ///
    /// # Errors
    /// Those of the volume and of the system.
    pub fn open(&self, path: &Path, random: &mut Random) -> Outcome<Aged> {
        let device = Counted::new(device(path, self.bytes)?);
        let mut files = device.files().map_err(|source| CallError::of("dup", source))?;
        let file = files.pop().ok_or_else(|| {
            CallError::of("dup", std::io::Error::other("the device consists of no file"))
        })?;
        // What is no volume, or another one, is written over.
        if let Ok(volume) = recover(&device)
            && self.is_marked(&volume)
        {
            return Ok(Aged { volume, device, file });
        }
        create(&device, self.segment, random.number())?;
        let volume = recover(&device)?;
        self.age(&volume, random)?;
        Ok(Aged { volume, device, file })
    }

    /// What the mark of such a volume says.
    fn mark(&self) -> Vec<u8> {
        let mut mark = format!("{self:?}").into_bytes();
        mark.resize(UNIT as usize, 0);
        mark
    }

    fn is_marked(&self, volume: &Volume) -> bool {
        let mut found = vec![0; UNIT as usize];
        volume.read(MARK * PER_UNIT, &mut found).is_ok() && found == self.mark()
    }

    /// Writes all that there is to be.
    fn age(&self, volume: &Volume, random: &mut Random) -> Outcome<()> {
        let write = |at: u64, bytes: &[u8]| {
            let block = at / UNIT * PER_UNIT;
            volume.write(block, bytes).map_err(failed("write to a volume"))
        };
        let mut content = random.bytes(LARGE as usize);
        for number in 0..self.large {
            write(self.large_at(number), &content)?;
        }
        content.truncate(UNIT as usize);
        // In no order, so that what is next to each other in the space is not so on the device.
        let mut order: Vec<u32> = (0..self.small as u32).collect();
        random.shuffle(&mut order);
        for number in order {
            write(self.small_at(number.into()), &content)?;
        }
        for _ in 0..self.again {
            write(self.small_at(random.below(self.small)), &content)?;
        }
        self.check_extents(volume)?;
        write(MARK * UNIT, &self.mark())?;
        volume.flush().map_err(failed("flush a volume"))?;
        volume.checkpoint().map_err(failed("write a checkpoint"))
    }

    /// Whether the map is as large as it was to be.
    fn check_extents(&self, volume: &Volume) -> Outcome<()> {
        let info = volume.info().map_err(failed("look at a volume"))?;
        if self.apart > 1 && info.map.extents < self.small {
            let what = format!("{} extents, not {}", info.map.extents, self.small);
            return Err(CallError::of("make many extents", std::io::Error::other(what)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aged_volumes_are_used_again() {
        let file = std::env::temp_dir().join(format!("conquest-aged-{}", std::process::id()));
        let ageing =
            Ageing { bytes: 9 << 20, segment: 16, small: 600, apart: 2, large: 1, again: 900 };
        std::fs::write(&file, vec![0; 10 << 20]).unwrap();
        let mut random = Random::new(1);
        let made = ageing.open(&file, &mut random).unwrap();
        assert!(made.device.counts().written > 7 << 20);
        assert!(made.volume.info().unwrap().map.extents > 600);
        drop(made);
        let again = ageing.open(&file, &mut random).unwrap();
        assert!(again.device.counts().written < 1 << 20, "{:?}", again.device.counts());
        let mut found = vec![0; LARGE as usize];
        let block = ageing.large_at(0) / UNIT * PER_UNIT;
        again.volume.read(block, &mut found).unwrap();
        assert!(found.iter().any(|byte| *byte != 0));
        drop(again);
        let other = Ageing { again: 100, ..ageing };
        let other = other.open(&file, &mut random).unwrap();
        assert!(other.device.counts().written > 3 << 20);
        drop(other);
        std::fs::remove_file(&file).unwrap();
    }
}
