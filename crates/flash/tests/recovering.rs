//! What recovery does, and in which order; and what it needs, which nobody writes over meanwhile.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod volumes;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Error, Volume, assemble};
use conquest_testkit::Rng;
use volumes::{Model, TestVolume, UNIT, region};

const ROOT: &[u8] = b"CONQROOT";
/// What stands first in all that is written but payload.
const META: [&[u8]; 3] = [b"CONQPACK", b"CONQCHKP", ROOT];

#[derive(Default)]
struct Seen {
    is_entered: bool,
    /// Units of payload that were written before anybody was a writer, and since.
    payload: [u64; 2],
    /// Whether a root that is written is said not to be.
    denies_roots: bool,
}

/// A device that sees who writes what, and may say that it has not.
struct Watched {
    device: MemoryDevice,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    /// The volume on `device` as after a restart, and what is seen of it.
    fn recovered(device: &MemoryDevice) -> (TestVolume, Arc<Mutex<Seen>>) {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let watched = Watched { device: device.as_other(), seen: Arc::clone(&seen) };
        let body = assemble(vec![Arc::new(watched)]).unwrap();
        (Volume::recover(region(&body), &body).unwrap(), seen)
    }
}

impl Device for Watched {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write(at, bytes)?;
        let mut seen = self.seen.lock().unwrap();
        if seen.denies_roots && bytes.starts_with(ROOT) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if !META.iter().any(|magic| bytes.starts_with(magic)) {
            let when = usize::from(seen.is_entered);
            seen.payload[when] += bytes.len() as u64 / UNIT;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.discard(at, len)
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.seen.lock().unwrap().is_entered = true;
        self.device.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.device.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.device.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.device.is_anyone_entered()
    }
}

#[test]
fn who_recovers_is_a_writer_before_it_cleans() {
    let device = volumes::device(100);
    let (mut volume, _) = Watched::recovered(&device);
    let units = volume.info().unwrap().capacity;
    let mut model = Model::default();
    for unit in 0..units {
        volume.write(unit * 8, &model.write(unit * 8, 8, 0)).unwrap();
    }
    let (mut rng, mut copied) = (Rng::new(1), 0);
    for number in 1..100 {
        volume.flush().unwrap();
        drop(volume);
        let seen;
        (volume, seen) = Watched::recovered(&device);
        let [before, since] = seen.lock().unwrap().payload;
        let copies = volume.info().unwrap().written.copied;
        assert_eq!((before, since), (0, copies), "restart {number}");
        copied += copies;
        // What was in one segment is in many, so each has to be cleaned in its turn.
        for _ in 0..8 {
            let unit = rng.below(units);
            volume.write(unit * 8, &model.write(unit * 8, 8, number)).unwrap();
        }
    }
    assert!(copied > 0);
    model.compare(&volume, units * 8, "after all");
}

#[test]
fn the_checkpoint_of_a_root_that_may_be_there_is_kept() {
    let device = volumes::device(100);
    let (volume, seen) = Watched::recovered(&device);
    let mut model = Model::default();
    for unit in 0..40 {
        volume.write(unit * 8, &model.write(unit * 8, 8, 0)).unwrap();
    }
    volume.checkpoint().unwrap();
    let before = volume.info().unwrap().written.checkpoints;
    seen.lock().unwrap().denies_roots = true;
    let error = volume.checkpoint().unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error}");
    // Each takes segments of its own, and all that there are have their turn.
    for number in 1..120 {
        volume.write(512, &model.write(512, 256, number)).unwrap();
        volume.flush().unwrap();
    }
    let info = volume.info().unwrap();
    assert_eq!(info.written.checkpoints, before, "another one was written");
    assert!(info.wear.most > 2, "{:?}", info.wear);
    drop(volume);
    let (volume, _) = Watched::recovered(&device);
    model.compare(&volume, 1024, "recovered");
    assert_eq!(volume.check().unwrap(), []);
}
