//! What the tests of volumes share: small volumes, their regions, and models of them.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use conquest_flash::device::{Limits, MemoryDevice};
use conquest_flash::{Body, NewVolume, Volume, assemble, create};
use conquest_format::volume::Arrangement;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Access, Options, Region};
use conquest_testkit::Rng;

pub type TestVolume = Volume<Mapped, OsHost>;

pub const BLOCK: u64 = 512;
pub const UNIT: u64 = 4096;

/// A device of `segments` segments of 16 units, with a volume on it.
pub fn device(segments: u64) -> MemoryDevice {
    let len = 2 * 65536 + segments * 16 * UNIT;
    let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
    let device = MemoryDevice::new("memory", len, limits).unwrap();
    let new = NewVolume {
        uuid: *b"a volume to test",
        created: 1,
        arrangement: Arrangement::Striped,
        segment: Some(16),
    };
    create(&[Arc::new(device.clone())], &new).unwrap();
    device
}

pub fn body(device: &MemoryDevice) -> Body {
    assemble(vec![Arc::new(device.as_other())]).unwrap()
}

/// A new region for `body`.
pub fn region(body: &Body) -> Arc<Region> {
    opened(body, &region_file(body))
}

/// A file for the region of `body`, which is made in it.
pub fn region_file(body: &Body) -> std::os::fd::OwnedFd {
    let file = rustix::fs::memfd_create("index", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let again = file.try_clone().unwrap();
    let new = NewRegion {
        shape: body.shape(4),
        kinds: body.kinds(),
        uuid: body.uuid(),
        created: 1,
        groups: 1,
    };
    Region::create(Source::Descriptor(file), 0o600, &new).unwrap();
    again
}

pub fn opened(body: &Body, file: &std::os::fd::OwnedFd) -> Arc<Region> {
    let source = Source::Descriptor(file.try_clone().unwrap());
    Region::open(source, &body.kinds(), Access::default(), Options::default()).unwrap()
}

/// Opens the volume on `device` with its region in `file`, as one of several: the first one makes
/// the index.
pub fn join(device: &MemoryDevice, file: &std::os::fd::OwnedFd, is_first: bool) -> TestVolume {
    let body = body(device);
    let region = opened(&body, file);
    match is_first {
        true => Volume::recover(region, &body).unwrap(),
        false => Volume::join(region, &body).unwrap(),
    }
}

/// Opens the volume on `device` as after a restart of the machine.
pub fn recovered(device: &MemoryDevice) -> TestVolume {
    let body = body(device);
    Volume::recover(region(&body), &body).unwrap()
}

/// What a volume is to hold: which [`contents`] each block has that was written.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Model(pub BTreeMap<u64, u64>);

/// What block `block` gets that is written as number `number`.
pub const fn seed(block: u64, number: u64) -> u64 {
    block << 32 ^ number
}

/// The bytes of a block.
pub fn contents(seed: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    let mut rng = Rng::new(seed);
    for word in bytes.as_chunks_mut::<8>().0 {
        *word = rng.word().to_le_bytes();
    }
    bytes
}

impl Model {
    pub fn write(&mut self, block: u64, count: u64, number: u64) -> Vec<u8> {
        let blocks = block..block + count;
        self.0.extend(blocks.clone().map(|block| (block, seed(block, number))));
        blocks.flat_map(|block| contents(seed(block, number))).collect()
    }

    pub fn trim(&mut self, block: u64, count: u64) {
        let gone: Vec<u64> = self.0.range(block..block + count).map(|(&block, _)| block).collect();
        for block in gone {
            self.0.remove(&block);
        }
    }

    pub fn move_blocks(&mut self, from: u64, to: u64, count: u64) {
        let moved: Vec<_> = self.0.range(from..from + count).map(|(&at, &n)| (at, n)).collect();
        self.trim(to, count);
        self.trim(from, count);
        self.0.extend(moved.into_iter().map(|(block, number)| (block - from + to, number)));
    }

    pub fn read(&self, block: u64, count: u64) -> Vec<u8> {
        let one = |block| {
            let seed = self.0.get(&block);
            seed.map_or([0; BLOCK as usize], |&seed| contents(seed))
        };
        (block..block + count).flat_map(one).collect()
    }

    /// Compares `volume` with the model, from block 0 to `end`.
    pub fn compare(&self, volume: &TestVolume, end: u64, context: &str) {
        let mut at = 0;
        while at < end {
            let count = (end - at).min(256);
            let mut bytes = vec![0; (count * BLOCK) as usize];
            volume.read(at, &mut bytes).unwrap_or_else(|error| panic!("{context}: {error}"));
            let expected = self.read(at, count);
            for block in 0..count {
                let part = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
                assert!(bytes[part.clone()] == expected[part], "{context}: block {}", at + block);
            }
            at += count;
        }
    }
}
