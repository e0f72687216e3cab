//! Cleaning on devices that take transfers side by side, and what they fail to write.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod volumes;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, Faults, Faulty, FileDevice, Limits, Work};
use conquest_flash::{Error, NewVolume, Volume, assemble, create};
use conquest_format::volume::Arrangement;
use conquest_testkit::Rng;
use volumes::{Model, TestVolume, region};

const SEGMENTS: u64 = 100;
const UNITS: u64 = 1000;
/// Bytes of a segment of most volumes.
const SEGMENT: u64 = 65536;

/// What queues are given to write to.
#[derive(Clone, Copy, PartialEq)]
enum Queues {
    /// The device's file.
    Write,
    /// One that can't be written.
    Fail,
    /// The device's file, for half of all segments.
    Half,
    /// Nothing: only reads are theirs.
    Read,
    /// There are none.
    None,
}

/// A file with faults, which are those of writes that are made one after the other.
struct Queued {
    device: Faulty<FileDevice>,
    path: PathBuf,
    queues: Queues,
    /// What queues were asked to do.
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Queues that were made, or were to be.
    made: Arc<AtomicU64>,
}

/// What a queue was asked to do, and from which byte on.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Asked {
    Read(u64),
    Write(u64),
}

impl Queued {
    /// For segments of so many bytes.
    fn new(queues: Queues, segments: u64, segment: u64) -> Queued {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conquest-cleaning-{}-{number}", std::process::id());
        let path = Path::new("/var/tmp").join(name);
        let len = 2 * segment.min(65536) + segments * segment;
        let device = FileDevice::create(&path, len, 0o600, &mut |_| {}).unwrap();
        let device = Faulty::new(device, Arc::default());
        Queued { device, path, queues, asked: Arc::default(), made: Arc::default() }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Device for Queued {
    fn name(&self) -> &Path {
        &self.path
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
        self.device.write(at, bytes)
    }
    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.discard(at, len)
    }
    fn files(&self) -> io::Result<Vec<File>> {
        self.made.fetch_add(1, Ordering::Relaxed);
        if self.queues == Queues::None {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let is_writable = matches!(self.queues, Queues::Write | Queues::Half);
        Ok(vec![File::options().read(true).write(is_writable).open(&self.path)?])
    }
    fn file_count(&self) -> usize {
        1
    }
    fn route(&self, at: u64, _: u64) -> Option<(usize, u64)> {
        self.asked.lock().unwrap().push(Asked::Read(at));
        Some((0, at))
    }
    fn route_write(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        if len > 0 {
            self.asked.lock().unwrap().push(Asked::Write(at));
        }
        let is_other = self.queues == Queues::Half && at / SEGMENT % 2 == 1 && len > 0;
        (self.queues != Queues::Read && !is_other).then_some((0, at))
    }
    fn enter(&self, writer: u64) -> io::Result<bool> {
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

/// A new volume with segments of so many units on a device.
fn volume_on(device: Queued, segment: u64) -> TestVolume {
    let new = NewVolume {
        uuid: *b"a volume to test",
        created: 1,
        arrangement: Arrangement::Striped,
        segment: Some(segment),
    };
    let device: Arc<dyn Device> = Arc::new(device);
    create(&[Arc::clone(&device)], &new).unwrap();
    let body = assemble(vec![device]).unwrap();
    Volume::recover(region(&body), &body).unwrap()
}

/// A volume that has to be cleaned whenever anything is written, and its device's faults.
fn full(queues: Queues) -> (TestVolume, Model, Arc<Faults>) {
    let device = Queued::new(queues, SEGMENTS, SEGMENT);
    let faults = Arc::clone(device.device.faults());
    let volume = volume_on(device, 16);
    let mut model = Model::default();
    for unit in 0..UNITS {
        let bytes = model.write(unit * 8, 8, unit);
        volume.write(unit * 8, &bytes).unwrap();
    }
    volume.flush().unwrap();
    (volume, model, faults)
}

/// Overwrites units at random; whether each could be, the first time.
fn overwrite(volume: &TestVolume, model: &mut Model, rng: &mut Rng, times: u64) -> bool {
    let mut is_done = true;
    for number in 0..times {
        let unit = rng.below(UNITS);
        let bytes = model.write(unit * 8, 8, number);
        let mut tries = 0;
        while let Err(error) = volume.write(unit * 8, &bytes) {
            assert!(matches!(error, Error::Device { .. }), "{error}");
            is_done = false;
            tries += 1;
            assert!(tries < 100, "{error}");
        }
    }
    is_done
}

/// Writes that are made one after the other while a full volume is overwritten.
fn writes_in_turn(queues: Queues) -> u64 {
    let (volume, mut model, faults) = full(queues);
    let before = faults.made(Work::Write);
    assert!(overwrite(&volume, &mut model, &mut Rng::new(1), 4000));
    model.compare(&volume, UNITS * 8, "overwritten");
    let written = volume.info().unwrap().written;
    assert!(written.copied > 3000, "{written:?}");
    faults.made(Work::Write) - before
}

#[test]
fn copies_are_written_side_by_side_where_they_can_be() {
    let (beside, in_turn) = (writes_in_turn(Queues::Write), writes_in_turn(Queues::Read));
    assert!(beside * 3 < in_turn * 2, "{beside} of {in_turn}");
}

#[test]
fn queues_are_used_again() {
    let device = Queued::new(Queues::Write, SEGMENTS, SEGMENT);
    let made = Arc::clone(&device.made);
    let volume = volume_on(device, 16);
    let mut model = Model::default();
    for number in 0..40 {
        volume.write(0, &model.write(0, 600 * 8, number)).unwrap();
    }
    model.compare(&volume, 600 * 8, "written");
    let made = made.load(Ordering::Relaxed);
    assert!((1..20).contains(&made), "{made} queues");
}

#[test]
fn where_there_are_no_queues_everything_is_written_in_turn() {
    let device = Queued::new(Queues::None, SEGMENTS, SEGMENT);
    let volume = volume_on(device, 16);
    let mut model = Model::default();
    for number in 0..40 {
        volume.write(0, &model.write(0, 600 * 8, number)).unwrap();
    }
    overwrite(&volume, &mut model, &mut Rng::new(1), 1000);
    model.compare(&volume, UNITS * 8, "overwritten");
    assert_eq!(volume.info().unwrap().segments.bad, 0);
}

#[test]
fn copies_that_no_queue_can_write_are_written_all_the_same() {
    let (failed, in_turn) = (writes_in_turn(Queues::Fail), writes_in_turn(Queues::Read));
    assert!(failed * 3 > in_turn * 2, "{failed} of {in_turn}");
}

#[test]
fn copies_that_cannot_be_written_to_one_place_go_to_another() {
    for queues in [Queues::Fail, Queues::Read] {
        let (volume, mut model, faults) = full(queues);
        let (mut rng, mut told) = (Rng::new(2), 0);
        // Each of what is written next, one after the other: packets, copies, roots.
        for nth in 0..12 {
            let number = faults.made(Work::Write) + nth;
            faults.fail(Work::Write, number, libc::EIO);
            while faults.made(Work::Write) <= number {
                told += u64::from(!overwrite(&volume, &mut model, &mut rng, 20));
            }
            model.compare(&volume, UNITS * 8, "one write has failed");
        }
        // Who writes is told only if it is the stream that can't be written.
        assert!(told < 12, "{told} failures");
        assert!(volume.info().unwrap().segments.bad > 0);
        overwrite(&volume, &mut model, &mut rng, 2000);
        model.compare(&volume, UNITS * 8, "some writes have failed");
    }
}

#[test]
fn failures_that_pass_use_no_space_up() {
    // Copies are not among what fails.
    let (volume, mut model, faults) = full(Queues::Write);
    let mut rng = Rng::new(3);
    for _ in 0..20 {
        let first = faults.made(Work::Write);
        (first..first + 30).for_each(|number| faults.fail(Work::Write, number, libc::EIO));
        while faults.made(Work::Write) < first + 30 {
            overwrite(&volume, &mut model, &mut rng, 20);
        }
    }
    overwrite(&volume, &mut model, &mut rng, 2000);
    model.compare(&volume, UNITS * 8, "many writes have failed");
}

#[test]
fn what_is_copied_next_is_read_while_copies_are_written() {
    // Too many units of a segment are in use for one transfer to take them all.
    let (segment, units) = (1024, 18 * 1024);
    let device = Queued::new(Queues::Write, 40, segment * 4096);
    let asked = Arc::clone(&device.asked);
    let volume = volume_on(device, segment);
    let (mut model, mut rng) = (Model::default(), Rng::new(4));
    for at in (0..units).step_by(256) {
        let bytes = model.write(at * 8, 256 * 8, at);
        volume.write(at * 8, &bytes).unwrap();
    }
    volume.flush().unwrap();
    asked.lock().unwrap().clear();
    for number in 0..units {
        let unit = rng.below(units);
        let bytes = model.write(unit * 8, 8, number);
        volume.write(unit * 8, &bytes).unwrap();
    }
    // As much as is copied at once of a segment is read by one request.
    let again = |pair: &&[Asked]| match pair {
        [Asked::Read(one), Asked::Read(next)] => one / (segment * 4096) == next / (segment * 4096),
        _ => false,
    };
    let found = asked.lock().unwrap().windows(2).filter(again).count();
    assert!(found > 3, "{found} times");
    model.compare(&volume, units * 8, "overwritten");
}

/// Writes that are made one after the other for a large one, which is read again.
fn large_in_turn(queues: Queues, failing: Option<u64>) -> u64 {
    let device = Queued::new(queues, SEGMENTS, SEGMENT);
    let (asked, faults) = (Arc::clone(&device.asked), Arc::clone(device.device.faults()));
    let volume = volume_on(device, 16);
    let mut model = Model::default();
    // Nothing of it begins with a unit.
    let blocks = 600 * 8;
    let bytes = model.write(3, blocks, 1);
    let before = faults.made(Work::Write);
    if let Some(nth) = failing {
        faults.fail(Work::Write, before + nth, libc::EIO);
    }
    volume.write(3, &bytes).unwrap();
    let made = faults.made(Work::Write) - before;
    let begun = asked.lock().unwrap().iter().filter(|one| matches!(one, Asked::Write(_))).count();
    assert_eq!(begun > 30, queues != Queues::Read, "{begun} were begun");
    model.compare(&volume, blocks + 8, "written at once");
    volume.flush().unwrap();
    model.compare(&volume, blocks + 8, "flushed");
    assert_eq!(volume.info().unwrap().segments.bad, u64::from(failing.is_some()));
    made
}

#[test]
fn large_writes_are_written_side_by_side_where_they_can_be() {
    let in_turn = large_in_turn(Queues::Read, None);
    assert!(in_turn > 30, "{in_turn}");
    assert!(large_in_turn(Queues::Write, None) < 3);
    assert!(large_in_turn(Queues::Fail, None) >= in_turn);
}

/// What is one request is written as it is. What does not fit a segment is several ones.
#[test]
fn a_write_of_many_segments_is_written_side_by_side() {
    let units = 128;
    for (segment, is_one) in [(2 * units, true), (16, false)] {
        let device = Queued::new(Queues::Write, SEGMENTS, segment * 4096);
        let (asked, faults) = (Arc::clone(&device.asked), Arc::clone(device.device.faults()));
        let volume = volume_on(device, segment);
        let mut model = Model::default();
        let bytes = model.write(0, units * 8, 1);
        let before = faults.made(Work::Write);
        volume.write(0, &bytes).unwrap();
        let made = faults.made(Work::Write) - before;
        let asked = asked.lock().unwrap();
        let begun = asked.iter().filter(|one| matches!(one, Asked::Write(_))).count();
        assert_eq!((begun == 0, made > 0), (is_one, is_one), "{begun} begun, {made} made");
        drop(asked);
        model.compare(&volume, units * 8, "written");
        volume.flush().unwrap();
        model.compare(&volume, units * 8, "flushed");
    }
}

#[test]
fn parts_of_large_writes_that_cannot_be_written_go_elsewhere() {
    for nth in [0, 1, 20] {
        large_in_turn(Queues::Fail, Some(nth));
        large_in_turn(Queues::Read, Some(nth));
    }
}

/// Units that are copied while pieces of eight are overwritten, which stand in segments in the
/// order of the space, or the other way round.
fn copied_of_pieces(is_in_order: bool) -> u64 {
    let volume = volumes::recovered(&volumes::device(SEGMENTS));
    let (mut model, mut rng) = (Model::default(), Rng::new(5));
    let pieces = UNITS / 8;
    for number in 0..6 * pieces {
        let piece = if number < pieces { number } else { rng.below(pieces) };
        for index in 0..8 {
            let unit = piece * 8 + if is_in_order { index } else { 7 - index };
            volume.write(unit * 8, &model.write(unit * 8, 8, number)).unwrap();
        }
    }
    model.compare(&volume, UNITS * 8, "overwritten");
    volume.info().unwrap().written.copied
}

#[test]
fn what_is_copied_moves_out_in_whatever_order_it_stands() {
    let [one, other] = [true, false].map(copied_of_pieces);
    assert!(one > 1000 && other * 10 < one * 13, "{other}, in order {one}");
}

#[test]
fn a_volume_that_fails_while_it_is_cleaned_side_by_side_fails_for_all() {
    for nth in 0..8 {
        let (volume, mut model, faults) = full(Queues::Write);
        let mut rng = Rng::new(nth);
        let error = volume.with_keeper(|| {
            faults.fail(Work::Flush, nth, libc::EIO);
            (0..20 * UNITS).find_map(|number| {
                let unit = rng.below(UNITS);
                volume.write(unit * 8, &model.write(unit * 8, 8, number)).err()
            })
        });
        let error = error.unwrap();
        assert!(matches!(error, Error::Failed { .. } | Error::Device { .. }), "{nth}: {error}");
        assert!(matches!(volume.flush(), Err(Error::Failed { .. })), "{nth}");
    }
}

#[test]
fn what_no_queue_takes_is_written_in_turn_to_where_it_was_to_go() {
    let (volume, mut model, _) = full(Queues::Half);
    assert!(overwrite(&volume, &mut model, &mut Rng::new(1), 4000));
    model.compare(&volume, UNITS * 8, "overwritten");
    assert_eq!(volume.info().unwrap().segments.bad, 0);
    large_in_turn(Queues::Half, None);
}
