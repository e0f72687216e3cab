//! Reading what is elsewhere by the time it is read, and what is damaged.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod volumes;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use conquest_flash::device::{Access, Device, Faults, Faulty, FileDevice, MemoryDevice, Work};
use conquest_flash::{Error, Job, NewVolume, Request, create};
use conquest_format::volume::Arrangement;
use conquest_testkit::flash::Watched;
use conquest_uring::Buffer;
use meanwhile::{open, two};
use volumes::{Model, TestVolume, UNIT, device};

fn write(volume: &TestVolume, model: &mut Model, block: u64, count: u64, number: u64) {
    let bytes = model.write(block, count, number);
    volume.write(block, &bytes).unwrap();
}

/// Damages whatever `device` has of the unit at `block` of `model`: how often that was there.
fn damage(device: &dyn Device, model: &Model, block: u64) -> usize {
    let (wanted, mut unit) = (model.read(block, 8), vec![0; UNIT as usize]);
    let places = (65_536..device.len()).step_by(UNIT as usize).filter(|at| {
        device.read(*at, &mut unit).unwrap();
        unit == wanted
    });
    let places: Vec<u64> = places.collect();
    places.iter().for_each(|at| device.write(*at, &[0xA5; UNIT as usize]).unwrap());
    places.len()
}

/// Reads by a queue of so many requests.
fn read_queued(volume: &TestVolume, block: u64, count: u64, depth: u32) -> Result<Vec<u8>, Error> {
    let mut queue = volume.queue(depth).unwrap();
    let job = Job::Read(Buffer::new((count * 512) as usize).unwrap());
    queue.submit(Request { tag: 3, block, job }).unwrap();
    let done = queue.wait(1).unwrap().pop().unwrap();
    let Job::Read(bytes) = done.job else { panic!("{:?}", done.job) };
    assert_eq!((done.tag, queue.under_way()), (3, 0));
    done.outcome.map(|()| bytes.to_vec())
}

/// Reads in one of two ways.
fn read(volume: &TestVolume, block: u64, count: u64, is_queued: bool) -> Result<Vec<u8>, Error> {
    if is_queued {
        return read_queued(volume, block, count, 64);
    }
    let mut found = vec![0xEE; (count * 512) as usize];
    volume.read(block, &mut found).map(|()| found)
}

/// By the time it is read a unit is somewhere else, twice, and where it was is something else.
#[test]
fn what_has_moved_meanwhile_is_read_where_it_is() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    for is_queued in [false, true] {
        let mut model = Model::default();
        write(&volume, &mut model, 0, 40 * 8, 1);
        volume.flush().unwrap();
        let mut models = vec![model];
        for nth in 0..2 {
            let before = models[nth as usize].clone();
            let mut model = before.clone();
            model.write(80, 8, 100 + nth);
            models.push(model);
            let (device, other) = (device.clone(), Arc::clone(&other));
            meanwhile.in_next(Work::Read, nth, move || {
                write(&other, &mut before.clone(), 80, 8, 100 + nth);
                other.flush().unwrap();
                assert!(damage(&device, &before, 80) > 0);
            });
        }
        let found = read(&volume, 80, 8, is_queued).unwrap();
        assert!(meanwhile.is_done());
        assert!(found == models[2].read(80, 8));
    }
}

/// Of a range that was in one piece some has gone elsewhere, and some is gone.
#[test]
fn what_is_in_more_pieces_by_now_is_read_from_all_of_them() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    for is_queued in [false, true] {
        let mut model = Model::default();
        // Past the stream.
        write(&volume, &mut model, 0, 20 * 8, 1);
        volume.flush().unwrap();
        let before = model.clone();
        let by_other = (device.clone(), Arc::clone(&other));
        meanwhile.in_next(Work::Read, 0, move || {
            let (device, other) = by_other;
            write(&other, &mut before.clone(), 40, 8, 2);
            other.trim(56, 8).unwrap();
            other.flush().unwrap();
            assert!([40, 56].iter().all(|block| damage(&device, &before, *block) > 0));
        });
        model.write(40, 8, 2);
        model.trim(56, 8);
        let found = read(&volume, 16, 80, is_queued).unwrap();
        assert!(meanwhile.is_done() && found == model.read(16, 80));
    }
}

#[test]
fn what_was_trimmed_meanwhile_reads_as_zeros() {
    let device = device(64);
    let (meanwhile, volume, other) = two(&device);
    for is_queued in [false, true] {
        let mut model = Model::default();
        write(&volume, &mut model, 0, 20 * 8, 1);
        volume.flush().unwrap();
        let by_other = (device.clone(), Arc::clone(&other));
        meanwhile.in_next(Work::Read, 0, move || {
            let (device, other) = by_other;
            other.trim(0, 20 * 8).unwrap();
            assert!(damage(&device, &model, 40) > 0);
        });
        assert!(read(&volume, 40, 8, is_queued).unwrap().iter().all(|byte| *byte == 0));
        assert!(meanwhile.is_done());
    }
}

/// Units that follow each other in the space, each at another place, some of them nowhere.
fn scattered(volume: &TestVolume) -> Model {
    let mut model = Model::default();
    for unit in (0..30).rev().filter(|unit| unit % 7 != 3) {
        write(volume, &mut model, unit * 8, 8, unit);
    }
    model
}

#[test]
fn what_is_in_the_region_is_not_read_from_the_device() {
    let (inner, faults) = (device(64), Arc::new(Faults::default()));
    let outer = Faulty::new(inner, Arc::clone(&faults));
    let (volume, _) = open(Arc::new(outer), None);
    let model = scattered(&volume);
    let made = faults.made(Work::Read);
    for is_queued in [false, true] {
        assert!(read(&volume, 0, 240, is_queued).unwrap() == model.read(0, 240));
        assert!(read(&volume, 3, 100, is_queued).unwrap() == model.read(3, 100));
    }
    assert_eq!(faults.made(Work::Read), made);
    volume.flush().unwrap();
    assert!(read(&volume, 0, 240, false).unwrap() == model.read(0, 240));
    assert_eq!(faults.made(Work::Read), made + 26, "each of them by itself");
}

/// Also what is the last one that a packet takes.
#[test]
fn what_packets_are_full_of_is_read_before_they_are_written() {
    let device = Counted::new("full", 40, 512);
    let (volume, _) = open(device.device(), None);
    let mut model = Model::default();
    // None of them are in one piece.
    let blocks = || (0..100).map(|unit| unit * 16);
    blocks().for_each(|block| write(&volume, &mut model, block, 8, 1));
    for is_queued in [false, true] {
        for block in blocks() {
            let found = read(&volume, block, 8, is_queued).unwrap();
            assert!(found == model.read(block, 8), "block {block}");
        }
    }
}

#[test]
fn what_can_not_be_read_at_first_is_read_again() {
    let (inner, faults) = (device(64), Arc::new(Faults::default()));
    let outer = Faulty::new(inner, Arc::clone(&faults));
    let (volume, _) = open(Arc::new(outer), None);
    let model = scattered(&volume);
    volume.flush().unwrap();
    for nth in 0..20 {
        faults.fail(Work::Read, nth, libc::EIO);
        assert!(read(&volume, 0, 240, false).unwrap() == model.read(0, 240), "{nth}");
    }
    // One by itself is an error of the device.
    faults.fail(Work::Read, 0, libc::EIO);
    let error = read(&volume, 0, 8, false).unwrap_err();
    assert!(matches!(error, Error::Device { action: "read", .. }), "{error}");
}

#[test]
fn what_is_damaged_is_not_given_out() {
    let device = device(64);
    let (_, volume, _) = two(&device);
    let model = scattered(&volume);
    volume.flush().unwrap();
    assert!(damage(&device, &model, 16) > 0);
    for is_queued in [false, true] {
        for (block, count) in [(0, 240), (16, 8), (20, 1), (8, 16)] {
            match read(&volume, block, count, is_queued).unwrap_err() {
                Error::Damaged { block, .. } => assert_eq!(block, 16),
                error => panic!("{error}"),
            }
        }
        assert!(read(&volume, 24, 100, is_queued).unwrap() == model.read(24, 100));
        assert!(read(&volume, 0, 16, is_queued).unwrap() == model.read(0, 16));
    }
}

#[test]
fn nothing_is_read_from_a_volume_that_has_failed() {
    let (inner, faults) = (device(64), Arc::new(Faults::default()));
    let outer = Faulty::new(inner.as_other(), Arc::clone(&faults));
    let (volume, region) = open(Arc::new(outer), None);
    let (other, _) = open(Arc::new(inner.as_other()), Some(&region));
    let mut model = Model::default();
    write(&volume, &mut model, 0, 400, 1);
    write(&volume, &mut model, 800, 8, 1);
    faults.fail(Work::Flush, 0, libc::EIO);
    assert!(matches!(volume.flush().unwrap_err(), Error::Device { action: "flush", .. }));
    for volume in [&volume, &other] {
        for is_queued in [false, true] {
            let error = read(volume, 0, 8, is_queued).unwrap_err();
            assert!(matches!(error, Error::Failed { .. }), "{error}");
        }
        for error in [
            volume.write(0, &[1; 512]).unwrap_err(),
            volume.trim(0, 8).unwrap_err(),
            volume.flush().unwrap_err(),
            // Also of what is in the index.
            volume.look_at(800, &mut [0; UNIT as usize]).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Failed { .. }), "{error}");
        }
    }
    let device: MemoryDevice = inner;
    drop((volume, other));
    volumes::recovered(&device).flush().unwrap();
}

// --- files ---------------------------------------------------------------------------------------

/// A file of which it is seen how often it is read by a call, and that is gone at the end.
struct Counted {
    path: PathBuf,
    device: Arc<Watched>,
}

impl Counted {
    /// With a volume of `segments` segments of so many units.
    fn new(name: &str, segments: u64, units: u64) -> Counted {
        let name = format!("conquest-flash-{name}-{}", std::process::id());
        let path = Path::new("/var/tmp").join(name);
        File::create_new(&path).unwrap().set_len(2 * 65_536 + segments * units * UNIT).unwrap();
        let device = Watched::new(Arc::new(FileDevice::open(&path, Access::Write).unwrap()));
        let counted = Counted { path, device };
        let new = NewVolume {
            uuid: *b"a volume to test",
            created: 1,
            arrangement: Arrangement::Striped,
            segment: Some(units),
        };
        create(&[counted.device()], &new).unwrap();
        counted
    }

    fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.device) as _
    }

    fn reads(&self) -> u64 {
        self.device.made(Work::Read)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads by a queue, by a call to any memory, and by one to memory that begins with a page.
fn read_in_all_ways(volume: &TestVolume, block: u64, count: u64) -> [Result<Vec<u8>, Error>; 3] {
    let mut pages = Buffer::new((count * 512) as usize).unwrap();
    pages.fill(0xEE);
    let to_pages = volume.read(block, &mut pages).map(|()| pages.to_vec());
    [read(volume, block, count, true), read(volume, block, count, false), to_pages]
}

/// Pieces that are more than one request: what is right is read, what is damaged is not given out,
/// wherever it is.
#[test]
fn large_pieces_on_files_are_read_in_parts() {
    let device = Counted::new("large", 64, 1024);
    let (volume, _) = open(device.device(), None);
    let mut model = Model::default();
    for number in 0..3 {
        write(&volume, &mut model, number * 10_000, 1000 * 8, number);
    }
    volume.flush().unwrap();
    let made = device.reads();
    for (block, count) in [(0, 8000), (10_000, 520), (7000, 4000), (20_000, 2048), (9000, 9000)] {
        for found in read_in_all_ways(&volume, block, count) {
            assert!(found.unwrap() == model.read(block, count), "{count} at {block}");
        }
    }
    // A piece by itself was as long as one request.
    assert!(device.reads() - made < 4, "{}", device.reads() - made);
    for block in [0, 2048, 7992] {
        assert!(damage(device.device.as_ref(), &model, block) > 0);
        for (first, count) in [(0, 8000), (block - block.min(800), 1600.min(8000 - block + 800))] {
            for found in read_in_all_ways(&volume, first, count) {
                let error = found.unwrap_err();
                let Error::Damaged { block: found, .. } = error else { panic!("{error}") };
                assert!([0, 2048, 7992].contains(&found), "{found}");
            }
        }
        // Up to where the next one was not damaged yet, and is not.
        let count = if block == 7992 { 8 } else { 2040 };
        for found in
            read_in_all_ways(&volume, if block == 7992 { 10_000 } else { block + 8 }, count)
        {
            assert!(found.is_ok(), "{block}");
        }
    }
}

/// As many pieces as a look finds, and more; of one unit, and of three.
#[test]
fn pieces_on_files_are_read_side_by_side() {
    let device = Counted::new("beside", 100, 16);
    let (volume, _) = open(device.device(), None);
    let mut model = Model::default();
    for unit in (0..120).rev() {
        write(&volume, &mut model, unit * 32, 8 + unit % 2 * 16, unit);
    }
    // In the region first.
    assert!(read(&volume, 0, 3000, true).unwrap() == model.read(0, 3000));
    volume.flush().unwrap();
    for is_queued in [false, true] {
        let made = device.reads();
        for (block, count) in [(0, 800), (32, 16), (96, 24), (800, 704), (0, 8)] {
            let found = read(&volume, block, count, is_queued).unwrap();
            assert!(found == model.read(block, count), "{count} at {block}");
        }
        // One piece by itself is read by its reader.
        assert_eq!(device.reads() - made, if is_queued { 0 } else { 3 });
        for (block, count) in [(0, 3840), (3, 700), (3, 704), (33, 5), (32, 13)] {
            let found = read(&volume, block, count, is_queued).unwrap();
            assert!(found == model.read(block, count), "{count} at {block}");
            // What there is no room for is read by the caller.
            let found = read_queued(&volume, block, count, 3).unwrap();
            assert!(found == model.read(block, count), "{count} at {block}");
        }
    }
}

#[test]
fn what_is_damaged_on_a_file_is_not_given_out() {
    let device = Counted::new("damaged", 64, 16);
    let (volume, _) = open(device.device(), None);
    let model = scattered(&volume);
    volume.flush().unwrap();
    assert!(damage(device.device.as_ref(), &model, 16) > 0);
    assert!(damage(device.device.as_ref(), &model, 200) > 0);
    for is_queued in [false, true] {
        for (block, count) in [(0, 200), (16, 8), (8, 16), (16, 80), (0, 240)] {
            match read(&volume, block, count, is_queued).unwrap_err() {
                Error::Damaged { block: found, .. } => {
                    assert!(found == 16 || count == 240 && found == 200, "{found}");
                }
                error => panic!("{error}"),
            }
        }
        assert!(read(&volume, 24, 100, is_queued).unwrap() == model.read(24, 100));
        // Also where the caller has to read some of it.
        assert!(matches!(read_queued(&volume, 0, 240, 2), Err(Error::Damaged { .. })));
    }
}

/// Who asks for what is complete without waiting is told of it, sooner or later.
#[test]
fn a_queue_can_be_asked_without_waiting() {
    let device = Counted::new("asked", 64, 16);
    let (volume, _) = open(device.device(), None);
    let model = scattered(&volume);
    volume.flush().unwrap();
    let mut queue = volume.queue(2).unwrap();
    let job = Job::Read(Buffer::new(4096).unwrap());
    queue.submit(Request { tag: 1, block: 16, job }).unwrap();
    let begin = std::time::Instant::now();
    let done = loop {
        if let Some(done) = queue.wait(0).unwrap().pop() {
            break done;
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(10), "it never comes");
        std::thread::yield_now();
    };
    done.outcome.unwrap();
    let Job::Read(bytes) = done.job else { panic!("{:?}", done.job) };
    assert!(*bytes == *model.read(16, 8));
}

/// What was to be durable may not be, although it was written: no write counts as done.
#[test]
fn no_write_is_complete_once_the_volume_has_failed() {
    let (inner, faults) = (device(64), Arc::new(Faults::default()));
    let outer = Faulty::new(inner, Arc::clone(&faults));
    let (volume, _) = open(Arc::new(outer), None);
    let mut queue = volume.queue(2).unwrap();
    let job = Job::Write(Buffer::new(4096).unwrap());
    queue.submit(Request { tag: 1, block: 16, job }).unwrap();
    faults.fail(Work::Flush, 0, libc::EIO);
    assert!(volume.flush().is_err());
    assert!(matches!(queue.wait(1).unwrap_err(), Error::Failed { .. }));
    assert_eq!(queue.under_way(), 1);
}

/// One piece of as many units as a look finds, and something behind it.
#[test]
fn a_read_may_be_longer_than_what_is_found_at_once() {
    let device = Counted::new("long", 40, 8192);
    let (volume, _) = open(device.device(), None);
    let mut bytes: Vec<u8> = (0..5000 * UNIT).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    volume.write(0, &bytes).unwrap();
    volume.flush().unwrap();
    for is_queued in [false, true] {
        for (unit, units) in [(0, 5000), (100, 4096), (0, 4097), (904, 4096)] {
            let (at, len) = ((unit * UNIT) as usize, (units * UNIT) as usize);
            let found = read(&volume, unit * 8, units * 8, is_queued).unwrap();
            assert!(found == bytes[at..at + len], "{units} at {unit}");
        }
        // What is behind it on the device is not what is behind it in the space any more.
        let at = 4500 * UNIT as usize;
        bytes[at..at + 4096].fill(is_queued as u8 + 1);
        volume.write(4500 * 8, &bytes[at..at + 4096]).unwrap();
        volume.flush().unwrap();
        assert!(read(&volume, 0, 5000 * 8, !is_queued).unwrap() == bytes);
    }
}

/// Where the map changes while it is looked at, there may seem to be nothing: it is looked at again
/// from the start.
#[test]
fn what_is_looked_at_while_others_write_is_what_is_there() {
    const PART: u64 = 16;
    const UNITS: u64 = 3 * PART;
    let device = device(64);
    let (_, volume, other) = two(&device);
    let mut model = Model::default();
    write(&volume, &mut model, 0, UNITS * 8, 1);
    volume.flush().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The same as is there: in one piece, and in three.
            let parts = [0, 1, 2].map(|part| {
                let (all, one) = (part * PART * 8, (part * PART + 7) * 8);
                [(all, model.read(all, PART * 8)), (one, model.read(one, 8))]
            });
            while !is_over.load(Ordering::Relaxed) {
                for (block, bytes) in parts.iter().flatten() {
                    other.write(*block, bytes).unwrap();
                }
            }
        });
        let since = Instant::now();
        let mut bytes = vec![0; (UNITS * UNIT) as usize];
        let expected = model.read(0, UNITS * 8);
        let mut is_right = true;
        while is_right && since.elapsed() < Duration::from_millis(1500) {
            volume.read(0, &mut bytes).unwrap();
            is_right = bytes == expected;
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(is_right);
    });
}
