//! The space of a store's volume, in which the data of its large files is.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conquest_access::Errno;
use conquest_flash::{Error as FlashError, Usage};
use conquest_format::fs::chunk::IMAGE_BLOCKS;
use conquest_format::volume::BLOCK;
use conquest_fs::VolumeError;
use conquest_fs::large::{Answer, Room, Seen, Space};
use conquest_pm::Region;

use super::backing::Backing;
use super::volume::{self, Volume};

/// For how long what was counted counts.
const COUNTED_FOR: Duration = Duration::from_millis(100);

/// The space of the volume of an attached store. It is opened when it is needed first.
pub(crate) struct LargeSpace {
    backing: Arc<Backing>,
    core: Arc<Region>,
    /// When units of the core's image were counted, and how many of them are in use.
    counted: Mutex<Option<(Instant, u64)>>,
}

impl LargeSpace {
    pub(crate) fn new(backing: Arc<Backing>, core: Arc<Region>) -> LargeSpace {
        LargeSpace { backing, core, counted: Mutex::new(None) }
    }

    /// Refuses to write `len` bytes if the core's image and its log might lack that space.
    fn leave_enough(&self, len: usize) -> Answer<()> {
        let is_enough = self.ask(|volume| {
            let wanted = (len as u64).div_ceil(volume.unit());
            // Counting takes time, and is needed only when there is not much left.
            let is_plenty = units_free(volume) >= self.units_needed(volume) + wanted;
            if is_plenty || self.units_to_be_had(volume)? >= wanted {
                return Ok(true);
            }
            // What is being trimmed is not free before that is done.
            while volume.trim_some()? {}
            Ok(self.units_to_be_had(volume)? >= wanted)
        })?;
        if is_enough {
            return Ok(());
        }
        let reason = format!(
            "{}: the volume has no space for large files but what the core needs to be made \
             durable; remove large files",
            self.core.path().display()
        );
        Err(VolumeError { errno: Errno::ENOSPC, reason })
    }

    /// Units that the core's image and its log need at most.
    fn units_needed(&self, volume: &Volume) -> u64 {
        if !self.backing.is_logged() {
            return 0;
        }
        volume::needed(self.core.geometry()).div_ceil(volume.unit())
    }

    /// Units that large files can have.
    fn units_to_be_had(&self, volume: &Volume) -> conquest_flash::Result<u64> {
        let needed = self.units_needed(volume);
        if needed == 0 {
            return Ok(units_free(volume));
        }
        let needed = needed.saturating_sub(self.count_image(volume)?);
        Ok(units_free(volume).saturating_sub(needed))
    }

    /// Units that the core's image and its log have, as they were counted a moment ago.
    fn count_image(&self, volume: &Volume) -> conquest_flash::Result<u64> {
        // Never waiting for it: in a forked child nobody may have it. Then it is counted anew.
        let counted = self.counted.try_lock().ok();
        if let Some((when, units)) = counted.as_deref().copied().flatten()
            && when.elapsed() < COUNTED_FOR
        {
            return Ok(units);
        }
        let (mut at, mut blocks) = (0, 0);
        while let Some((first, count)) = volume.allocated(at)?.filter(|(at, _)| *at < IMAGE_BLOCKS)
        {
            blocks += count.min(IMAGE_BLOCKS - first);
            at = first + count;
        }
        let units = blocks * BLOCK / volume.unit();
        if let Some(mut counted) = counted {
            *counted = Some((Instant::now(), units));
        }
        Ok(units)
    }

    fn ask<T>(&self, ask: impl FnOnce(&Volume) -> conquest_flash::Result<T>) -> Answer<T> {
        let volume = self
            .backing
            .volume(&self.core)
            .map_err(|error| VolumeError { errno: Errno::EIO, reason: error.to_string() })?;
        ask(&volume).map_err(|error| VolumeError {
            errno: if matches!(error, FlashError::NoSpace { .. }) {
                Errno::ENOSPC
            } else {
                Errno::EIO
            },
            reason: error.to_string(),
        })
    }
}

/// Units that nobody has.
fn units_free(volume: &Volume) -> u64 {
    let Usage { capacity, lost, used, reserved, .. } = volume.usage();
    capacity.saturating_sub(lost + used + reserved)
}

impl Space for LargeSpace {
    fn room(&self) -> Answer<Room> {
        self.ask(|volume| {
            let usage = volume.usage();
            let per = volume.unit() / BLOCK;
            let free = self.units_to_be_had(volume)?;
            let used = (usage.used + usage.reserved).saturating_sub(self.count_image(volume)?);
            Ok(Room { blocks: (free + used) * per, free: free * per })
        })
    }

    fn read(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        self.ask(|volume| volume.read_in_order(block, into))
    }

    fn write(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        self.leave_enough(bytes.len())?;
        // Recovery keeps the first operations in their order, so whatever is made durable later,
        // the epoch with a record of this too, is never there without it.
        self.ask(|volume| volume.write_to_keep(block, bytes))
    }

    fn read_once(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        self.ask(|volume| volume.read_once(block, into))
    }

    fn write_once(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        self.leave_enough(bytes.len())?;
        self.ask(|volume| volume.write(block, bytes))
    }

    fn look(&self, block: u64, count: u64) -> Answer<Option<Seen>> {
        self.ask(|volume| Ok(volume.look_where(block, count)?.map(Seen::new)))
    }

    // No more is in use by it than before, so enough is left.
    fn write_over(&self, block: u64, bytes: &[u8], seen: &Seen, is_kept: bool) -> Answer<bool> {
        self.ask(|volume| match seen.get() {
            Some(seen) if is_kept => volume.write_over_to_keep(block, bytes, seen),
            Some(seen) => volume.write_over(block, bytes, seen),
            None => Ok(false),
        })
    }

    fn trim(&self, block: u64, count: u64) -> Answer<()> {
        self.ask(|volume| volume.trim(block, count))
    }

    fn settle(&self) -> Answer<()> {
        match self.backing.is_logged() {
            true => Ok(()),
            false => self.ask(|volume| volume.flush()),
        }
    }

    fn is_labelled(&self) -> bool {
        !self.backing.is_logged()
    }

    fn allocated(&self, block: u64, count: u64) -> Answer<Option<(u64, u64)>> {
        self.ask(|volume| volume.allocated_within(block, count))
    }
}
