//! Mirrors in memory, on which things go wrong.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use conquest_flash::device::{Device, Faults, Faulty, Limits, MemoryDevice};
use conquest_flash::{Body, NewVolume, Result, Volume, assemble, assemble_degraded, create};
use conquest_format::volume::Arrangement;

use crate::volumes::{Model, TestVolume, UNIT, opened, region};

/// Where segments begin, and what is left behind them.
pub const START: u64 = 65_536;
const SEGMENT: u64 = 16 * UNIT;
pub const LEN: u64 = 2 * START + 200 * SEGMENT;

/// A mirror of devices in memory, with what is to go wrong on each.
pub struct Mirror {
    pub devices: Vec<MemoryDevice>,
    pub faults: Vec<Arc<Faults>>,
}

impl Mirror {
    pub fn new(count: usize) -> Mirror {
        let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
        let name = |number| format!("member {number}");
        let devices =
            (0..count).map(|number| MemoryDevice::new(name(number), LEN, limits).unwrap());
        let devices: Vec<_> = devices.collect();
        let new = NewVolume {
            uuid: *b"a mirror to test",
            created: 1,
            arrangement: Arrangement::Mirrored,
            segment: Some(16),
        };
        let all: Vec<Arc<dyn Device>> =
            devices.iter().map(|device| Arc::new(device.as_other()) as _).collect();
        create(&all, &new).unwrap();
        Mirror { faults: devices.iter().map(|_| Arc::default()).collect(), devices }
    }

    /// Those members of it, as one process has them.
    pub fn some(&self, members: &[usize]) -> Vec<Arc<dyn Device>> {
        let one = |&member: &usize| {
            let faults = Arc::clone(&self.faults[member]);
            Arc::new(Faulty::new(self.devices[member].as_other(), faults)) as _
        };
        members.iter().map(one).collect()
    }

    pub fn all(&self) -> Vec<Arc<dyn Device>> {
        self.some(&(0..self.devices.len()).collect::<Vec<_>>())
    }

    pub fn body(&self) -> Body {
        assemble(self.all()).unwrap()
    }

    /// As after a restart.
    pub fn recovered(&self) -> TestVolume {
        recover(&self.body()).unwrap()
    }

    /// With those members alone.
    pub fn degraded(&self, members: &[usize]) -> TestVolume {
        recover(&assemble_degraded(self.some(members)).unwrap()).unwrap()
    }

    /// Everything works again.
    pub fn repair(&mut self) {
        self.faults = self.devices.iter().map(|_| Arc::default()).collect();
    }

    /// What member `member` has now, but for its superblocks.
    pub fn image(&self, member: usize) -> Vec<u8> {
        let mut bytes = vec![0; (LEN - 2 * START) as usize];
        self.devices[member].read(START, &mut bytes).unwrap();
        bytes
    }

    pub fn set_image(&self, member: usize, image: &[u8]) {
        self.devices[member].write(START, image).unwrap();
    }
}

pub fn recover(body: &Body) -> Result<TestVolume> {
    Volume::recover(region(body), body)
}

/// One of several processes.
pub fn join(body: &Body, file: &OwnedFd) -> TestVolume {
    Volume::join(opened(body, file), body).unwrap()
}

pub fn write(volume: &TestVolume, model: &mut Model, unit: u64, count: u64, number: u64) {
    let bytes = model.write(unit * 8, count * 8, number);
    volume.write(unit * 8, &bytes).unwrap();
}

pub fn failed(volume: &TestVolume) -> u64 {
    volume.info().unwrap().failed
}
