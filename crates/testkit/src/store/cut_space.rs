//! The space of a volume that loses its power while the core stays: the large files of a core whose
//! records are durable at once.

use std::sync::{Arc, Mutex};

use conquest_flash::device::Device;
use conquest_flash::{NewVolume, create};
use conquest_format::volume::Arrangement;
use conquest_fs::large::{Answer, Room, Seen, Space};

use super::machine::{answer, volumes};
use crate::flash::crash::{Choice, crash};
use crate::flash::scenario::{SEGMENT, SEGMENT_BYTES, TestVolume};
use crate::flash::{Medium, Recorder, Sweep};
use crate::{Rng, become_actor, lock};

struct State {
    /// What was on the device when the power came last.
    start: Medium,
    recorder: Recorder,
    volume: Arc<TestVolume>,
}

/// A volume on a simulated device. Copies are the same one.
#[derive(Clone)]
pub struct CutSpace(Arc<Mutex<State>>);

impl core::fmt::Debug for CutSpace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("CutSpace")
    }
}

impl CutSpace {
    /// One on a device of so many segments.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn new(segments: u64) -> Result<CutSpace, String> {
        become_actor(0);
        let text = |error: &dyn core::fmt::Display| error.to_string();
        let medium = Medium::new((segments + 2) * SEGMENT_BYTES);
        let recorder = Recorder::new(medium, false).map_err(|error| text(&error))?;
        let new = NewVolume {
            uuid: *b"a volume to test",
            created: 1,
            arrangement: Arrangement::Striped,
            segment: Some(SEGMENT),
        };
        create(&[Arc::new(recorder.as_other()) as Arc<dyn Device>], &new)
            .map_err(|error| text(&error))?;
        Ok(CutSpace(Arc::new(Mutex::new(State::start(recorder.medium())?))))
    }

    /// Cuts the power of the device, which leaves what chance says, and opens the volume again.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn cut(&self, rng: &mut Rng) -> Result<(), String> {
        let mut state = lock(&self.0);
        let mut sweep = Sweep::new(state.start.clone());
        for event in state.recorder.take_log() {
            sweep.pass(&event);
        }
        let choice = Choice::random(rng);
        let block = state.recorder.limits().block.into();
        *state = State::start(crash(&sweep, block, choice, rng))?;
        Ok(())
    }

    fn volume(&self) -> Arc<TestVolume> {
        Arc::clone(&lock(&self.0).volume)
    }
}

impl State {
    fn start(medium: Medium) -> Result<State, String> {
        let start = medium.clone();
        let recorder = Recorder::new(medium, true).map_err(|error| error.to_string())?;
        let volume = volumes(&recorder, 1)?.pop().ok_or("no volume")?;
        Ok(State { start, recorder, volume })
    }
}

impl Space for CutSpace {
    fn read(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        answer(self.volume().read(block, into))
    }

    fn write(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        answer(self.volume().write(block, bytes))
    }

    fn look(&self, block: u64, count: u64) -> Answer<Option<Seen>> {
        Ok(answer(self.volume().look_where(block, count))?.map(Seen::new))
    }

    fn write_over(&self, block: u64, bytes: &[u8], seen: &Seen, _is_kept: bool) -> Answer<bool> {
        match seen.get() {
            Some(seen) => answer(self.volume().write_over(block, bytes, seen)),
            None => Ok(false),
        }
    }

    fn trim(&self, block: u64, count: u64) -> Answer<()> {
        answer(self.volume().trim(block, count))
    }

    fn settle(&self) -> Answer<()> {
        answer(self.volume().flush())
    }

    fn is_labelled(&self) -> bool {
        true
    }

    fn allocated(&self, block: u64, count: u64) -> Answer<Option<(u64, u64)>> {
        answer(self.volume().allocated_within(block, count))
    }

    fn room(&self) -> Answer<Room> {
        let volume = self.volume();
        let usage = volume.usage();
        let free = usage.capacity.saturating_sub(usage.lost + usage.used + usage.reserved);
        Ok(Room { blocks: usage.capacity * 8, free: free * 8 })
    }
}
