//! Zeros that are written to space that a file has only reserved.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod volumes;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conquest_flash::device::{Access, Device, FileDevice};
use conquest_flash::{NewVolume, OpenOptions, Volume, assemble, create_at, open_device};
use conquest_format::volume::Arrangement;
use conquest_pm::media::{Mapped, OsHost};
use conquest_testkit::Rng;
use conquest_testkit::flash::{Request, Watched};
use volumes::{Model, TestVolume, opened, region_file};

/// Bytes of a segment.
const SEGMENT: u64 = 65536;
const SEGMENTS: u64 = 400;
const LEN: u64 = (SEGMENTS + 2) * SEGMENT;
/// Bytes that are written when the file is made.
const WRITTEN: u64 = 20 * SEGMENT;

/// A volume on a file that has most of its space reserved, on a disk.
struct Place {
    directory: PathBuf,
    path: PathBuf,
    number: u8,
}

impl Place {
    fn new(number: u8) -> Place {
        let name = format!("conquest-zeros-{}-{number}", std::process::id());
        let directory = PathBuf::from("/var/tmp").join(name);
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("volume");
        let mut told = 0;
        FileDevice::create_reserved(&path, LEN, WRITTEN, 0o600, &mut |done| told = done).unwrap();
        assert_eq!(told, WRITTEN);
        let place = Place { directory, path, number };
        let mut uuid = [number; 16];
        uuid[..4].copy_from_slice(&std::process::id().to_le_bytes());
        let arrangement = Arrangement::Striped;
        let new = NewVolume { uuid, created: 1, arrangement, segment: Some(16) };
        create_at(&[&place.path], &new, false).unwrap();
        place
    }

    fn open(&self) -> Volume<Mapped, OsHost> {
        let directory = PathBuf::from("/dev/shm");
        let options = OpenOptions { directory, processes: 4, ..OpenOptions::default() };
        Volume::open(&[&self.path], &options)
            .unwrap_or_else(|error| panic!("{} of {}: {error}", self.number, std::process::id()))
    }

    fn device(&self) -> FileDevice {
        FileDevice::open(&self.path, Access::Read).unwrap()
    }

    /// Segments of the file, counted from its start, whose space is only reserved.
    fn reserved(&self) -> u64 {
        let device = self.device();
        assert!(device.is_direct(), "{} is on no disk", self.path.display());
        let is_reserved = |at: &u64| !device.is_written(*at, SEGMENT).unwrap();
        (0..LEN).step_by(SEGMENT as usize).filter(is_reserved).count() as u64
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn what_was_written_is_told_from_what_is_reserved() {
    let place = Place::new(0);
    let device = place.device();
    for (at, len, is_written) in [
        (0, WRITTEN, true),
        (4096, WRITTEN - 4096, true),
        (0, WRITTEN + 4096, false),
        (WRITTEN, 4096, false),
        (WRITTEN, 0, true),
    ] {
        assert_eq!(device.is_written(at, len).unwrap(), is_written, "{len} bytes at {at}");
    }
    assert!(device.is_written(LEN, 4096).is_err());
}

#[test]
fn so_much_is_written_ahead_as_is_asked_for() {
    let place = Place::new(1);
    let volume = place.open();
    let before = place.reserved();
    assert_eq!(before, (LEN - WRITTEN) / SEGMENT);
    // What is written anyway counts.
    assert_eq!(volume.write_zeros_ahead(4 * SEGMENT).unwrap(), 0);
    let ahead = 100 * SEGMENT;
    let written = volume.write_zeros_ahead(ahead).unwrap();
    assert!(written > 75 * SEGMENT && written < ahead, "{written}");
    assert_eq!(place.reserved(), before - written / SEGMENT);
    assert_eq!(volume.write_zeros_ahead(ahead).unwrap(), 0);
    // As segments are begun, others are written.
    volume.write(0, &vec![1; 20 * SEGMENT as usize]).unwrap();
    let more = volume.write_zeros_ahead(ahead).unwrap();
    assert!((15 * SEGMENT..30 * SEGMENT).contains(&more), "{more}");
    // All of it.
    volume.write_zeros_ahead(LEN).unwrap();
    assert_eq!(volume.write_zeros_ahead(LEN).unwrap(), 0);
    assert!(place.reserved() <= 2, "{}", place.reserved());
    let mut found = vec![0; 20 * SEGMENT as usize];
    volume.read(0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 1));
    volume.close().unwrap();
}

#[test]
fn nothing_is_lost_by_who_writes_meanwhile() {
    const UNITS: u64 = 2000;
    let place = Place::new(2);
    let volume = place.open();
    let mut expected = vec![0; UNITS as usize];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(1);
            while !is_over.load(Ordering::Acquire) {
                volume.write_zeros_ahead(rng.below(30) * SEGMENT).unwrap();
            }
        });
        let mut rng = Rng::new(2);
        for round in 0..6000_u64 {
            let (unit, value) = (rng.below(UNITS), (round % 255 + 1) as u8);
            volume.write(unit * 8, &[value; 4096]).unwrap();
            expected[unit as usize] = value;
            if round % 64 == 0 {
                volume.flush().unwrap();
            }
        }
        is_over.store(true, Ordering::Release);
    });
    let check = |volume: &Volume<Mapped, OsHost>| {
        for (unit, value) in expected.iter().enumerate() {
            let mut found = [0; 4096];
            volume.read(unit as u64 * 8, &mut found).unwrap();
            assert!(found.iter().all(|byte| byte == value), "unit {unit}");
        }
    };
    check(&volume);
    volume.close().unwrap();
    let volume = place.open();
    check(&volume);
    volume.close().unwrap();
}

/// Others begin segments at any moment: what they write there, and what is there for all, stays.
#[test]
fn zeros_are_written_only_where_nobody_writes() {
    for (number, is_asked) in [(3, true), (4, false)] {
        let place = Place::new(number);
        let watched = || Watched::new(Arc::new(open_device(&place.path).unwrap()));
        let body = |device: &Arc<Watched>| assemble(vec![Arc::clone(device) as _]).unwrap();
        let device = watched();
        let (own, others) = (body(&device), body(&watched()));
        let file = region_file(&own);
        let volume = TestVolume::recover(opened(&own, &file), &own).unwrap();
        let other = TestVolume::join(opened(&others, &file), &others).unwrap();
        let mut model = Model::default();
        let bytes = model.write(0, 8 * 160, 1);
        let is_it = move |request: Request<'_>| match request {
            Request::IsWritten(..) => is_asked,
            Request::Write(..) => !is_asked,
            _ => false,
        };
        device.when(is_it, move || {
            other.write(0, &bytes).unwrap();
            Ok(())
        });
        let written = volume.write_zeros_ahead(64 * SEGMENT).unwrap();
        assert!(device.is_done() && written > 16 * SEGMENT, "{written}");
        model.compare(&volume, 8 * 160, "zeros");
        volume.flush().unwrap();
        drop((volume, own, others, device));
        let again = body(&watched());
        let volume = TestVolume::recover(opened(&again, &region_file(&again)), &again).unwrap();
        model.compare(&volume, 8 * 160, "a restart");
    }
}
