//! What a store was doing at each point of a log.

use std::collections::HashMap;

use conquest_format::image::PART_MAGIC;

use super::run::Kind;
use crate::flash::phases::{Phases as OfVolume, Watch};
use crate::flash::{Event, Mark, Medium, Sweep};

/// Bytes at which parts of epochs may begin in a write.
const UNIT: usize = 4096;

/// What a store may be doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Phases {
    /// An epoch was written, and is not durable.
    pub(crate) epoch: bool,
    /// A checkpoint of the core is written.
    pub(crate) checkpoint: bool,
    /// The volume is opened, and the core brought back.
    pub(crate) restart: bool,
    /// Something was trimmed, and that is not durable.
    pub(crate) trim: bool,
    /// What the volume is doing.
    pub(crate) volume: OfVolume,
}

/// Follows a log.
pub(crate) struct Phase {
    volume: Watch,
    kinds: HashMap<u32, Kind>,
    checkpoints: u32,
    is_starting: bool,
    /// Since when something that was trimmed need not be durable: the flushes that were begun later
    /// make it so.
    trimmed: bool,
    flush: Option<u64>,
}

impl Phase {
    /// The beginning of a log of a device that held `medium`.
    pub(crate) fn new(medium: &Medium, kinds: &[(u32, Kind)]) -> Phase {
        let (volume, kinds) = (Watch::new(medium), kinds.iter().copied().collect());
        let (checkpoints, is_starting, trimmed, flush) = (0, false, false, None);
        Phase { volume, kinds, checkpoints, is_starting, trimmed, flush }
    }

    /// Passes `event`, which `sweep` has passed: what the store was doing just behind it.
    pub(crate) fn pass(&mut self, event: &Event, sweep: &Sweep) -> Phases {
        let volume = self.volume.pass(event);
        let is_checkpoint = |number: &u32| self.kinds.get(number) == Some(&Kind::Checkpoint);
        match event {
            Event::Mark(Mark::Begun(number)) if is_checkpoint(number) => self.checkpoints += 1,
            Event::Mark(Mark::Done(number)) if is_checkpoint(number) => self.checkpoints -= 1,
            Event::Mark(Mark::Recovery) => self.is_starting = true,
            Event::Mark(Mark::Recovered) => self.is_starting = false,
            Event::Mark(Mark::Trimmed) => (self.trimmed, self.flush) = (true, None),
            Event::Flush { request } if self.trimmed => self.flush = Some(*request),
            Event::Flushed { request } if self.flush == Some(*request) => self.trimmed = false,
            Event::Durable { .. } => self.trimmed = false,
            _ => {}
        }
        let is_part = |unit: &[u8]| unit.starts_with(&PART_MAGIC);
        let is_epoch = |bytes: &[u8]| bytes.chunks(UNIT).any(is_part);
        Phases {
            epoch: sweep.pending.iter().any(|pending| is_epoch(&pending.bytes)),
            checkpoint: self.checkpoints > 0,
            restart: self.is_starting,
            trim: self.trimmed,
            volume,
        }
    }
}
