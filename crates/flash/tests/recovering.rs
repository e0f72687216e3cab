//! What recovery does, and in which order; and what it needs, which nobody writes over meanwhile.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media;
mod volumes;

use std::io;
use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Error, NewVolume, Volume, assemble, create};
use conquest_format::volume::{ANCHORS, Arrangement, Leaf, Packet, Root};
use conquest_testkit::Rng;
use conquest_testkit::flash::{Request, Watched};
use media::{
    SEGMENT, after, bind, change_root, flushed, packets, put_unit, refused, roots, unit_at,
};
use volumes::{Model, TestVolume, UNIT, region};

/// Bytes before the first segment.
const START: u64 = 65_536;
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
    /// Units of the device that can't be read.
    unreadable: Vec<u64>,
    /// Flushes, and what was written since the last one.
    flushes: u64,
    unflushed: u64,
    /// Roots that were written before any flush, or before what was written was flushed.
    early_roots: u64,
    roots: u64,
    unflushed_roots: u64,
}

/// `device`, of which `seen` has what is done to it; it may say that it has not done it.
fn watched(device: &MemoryDevice, seen: &Arc<Mutex<Seen>>) -> Arc<Watched> {
    let (seen, below) = (Arc::clone(seen), device.as_other());
    Watched::each(Arc::new(device.as_other()), move |request| {
        let mut seen = seen.lock().unwrap();
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        match request {
            Request::Read(at, len) => {
                let units = at / UNIT..(at + len as u64).div_ceil(UNIT);
                if seen.unreadable.iter().any(|unit| units.contains(unit)) {
                    return failed();
                }
            }
            Request::Write(at, bytes) | Request::WriteDurable(at, bytes) => {
                seen.note(bytes);
                if seen.denies_roots && bytes.starts_with(ROOT) {
                    below.write(at, bytes)?;
                    return failed();
                }
            }
            Request::Flush => {
                seen.flushes += 1;
                (seen.unflushed, seen.unflushed_roots) = (0, 0);
            }
            Request::Enter(_) => seen.is_entered = true,
            Request::Discard(..) | Request::IsWritten(..) => {}
        }
        Ok(())
    })
}

/// The volume on `device` as after a restart, and what is seen of it.
fn watched_recovery(device: &MemoryDevice) -> (TestVolume, Arc<Mutex<Seen>>) {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let body = assemble(vec![watched(device, &seen)]).unwrap();
    (Volume::recover(region(&body), &body).unwrap(), seen)
}

impl Seen {
    /// Notes that `bytes` are written.
    fn note(&mut self, bytes: &[u8]) {
        if bytes.starts_with(ROOT) {
            self.roots += 1;
            self.unflushed_roots += 1;
            self.early_roots += u64::from(self.flushes == 0 || self.unflushed > 0);
        } else {
            self.unflushed += 1;
        }
        if !META.iter().any(|magic| bytes.starts_with(magic)) {
            let when = usize::from(self.is_entered);
            self.payload[when] += bytes.len() as u64 / UNIT;
        }
    }
}

#[test]
fn who_recovers_is_a_writer_before_it_cleans() {
    let device = volumes::device(100);
    let (mut volume, _) = watched_recovery(&device);
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
        (volume, seen) = watched_recovery(&device);
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

/// What it names must not be in a cache only: that may be lost while the root is not.
#[test]
fn a_root_comes_when_all_that_it_names_is_flushed() {
    let device = volumes::device(100);
    for number in 0..4 {
        let (volume, seen) = watched_recovery(&device);
        assert_eq!(seen.lock().unwrap().unflushed_roots, 0);
        for unit in 0..100 {
            volume.write(unit * 8, &volumes::contents(number).repeat(8)).unwrap();
        }
        volume.flush().unwrap();
        if number % 2 == 0 {
            volume.checkpoint().unwrap();
        }
        let seen = seen.lock().unwrap();
        assert!(seen.roots > 0);
        assert_eq!((seen.early_roots, seen.unflushed_roots), (0, 0), "life {number}");
    }
}

#[test]
fn the_checkpoint_of_a_root_that_may_be_there_is_kept() {
    let device = volumes::device(100);
    let (volume, seen) = watched_recovery(&device);
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
    let (volume, _) = watched_recovery(&device);
    model.compare(&volume, 1024, "recovered");
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn a_packet_that_was_flushed_is_missed() {
    let (device, model) = flushed();
    let all = packets(&device);
    assert!(all.len() >= 30);
    let (last, others) = all.split_last().unwrap();
    for packet in others {
        let outcome = after(&device, |copy| put_unit(copy, packet.place, &[0x5A; UNIT as usize]));
        refused(outcome, "stream");
    }
    // Nothing says that the last one was.
    let spoil = |copy: &MemoryDevice| put_unit(copy, last.place, &[0x5A; UNIT as usize]);
    let volume = after(&device, spoil).unwrap();
    model.compare(&volume, 29 * 8, "without the last one");
    assert_eq!(volume.allocated(29 * 8).unwrap(), None);
}

#[test]
fn roots_beside_what_cannot_be_read_are_found() {
    let (device, model) = flushed();
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let last = |anchor: u64| START / UNIT + (anchor + 1) * SEGMENT - 1;
    seen.lock().unwrap().unreadable = (0..ANCHORS).map(last).collect();
    let watched = watched(&device, &seen);
    let body = assemble(vec![watched]).unwrap();
    let volume = Volume::recover(region(&body), &body).unwrap();
    model.compare(&volume, 30 * 8, "roots in part");
}

/// Behind the end of the stream there may be what says that it goes on, and is not of it.
#[test]
fn only_packets_of_the_stream_say_that_it_goes_on() {
    let (device, model) = flushed();
    let last = packets(&device).pop().unwrap();
    let end = last.place + last.units;
    assert!(end % SEGMENT < SEGMENT - 3, "the stream ends with a segment");
    let with = |change: &dyn Fn(&mut Packet)| {
        let mut packet = last;
        (packet.number, packet.durable, packet.place) = (last.number + 2, last.number + 2, end + 1);
        (packet.words, packet.units) = (0, 1);
        change(&mut packet);
        let mut unit = vec![0; UNIT as usize];
        packet.fill(bind(), &mut unit);
        after(&device, |copy| put_unit(copy, end + 1, &unit))
    };
    refused(with(&|_| {}), "stream");
    let others: [&dyn Fn(&mut Packet); 3] = [
        &|packet| packet.life += 1,
        &|packet| packet.place += 1,
        // That before it was not flushed when it was made.
        &|packet| packet.durable -= 1,
    ];
    for other in others {
        model.compare(&with(other).unwrap(), 30 * 8, "all of the stream");
    }
}

#[test]
fn a_checkpoint_that_ends_too_soon_is_missed() {
    let device = volumes::device(100);
    let volume = volumes::recovered(&device);
    let mut model = Model::default();
    for number in 0..600 {
        volume.write(number * 16, &model.write(number * 16, 8, number)).unwrap();
    }
    volume.checkpoint().unwrap();
    let units = volume.info().unwrap().checkpoint;
    drop(volume);
    assert!(units > 1);
    model.compare(&after(&device, |_| {}).unwrap(), 600 * 16, "with all of it");
    let shorter = |root: &mut Root| root.checkpoint.as_mut().unwrap().units -= 1;
    refused(after(&device, |copy| change_root(copy, shorter)), "checkpoint");
}

#[test]
fn the_last_packet_of_an_earlier_life_is_missed() {
    let (device, mut model) = flushed();
    let last = packets(&device).pop().unwrap();
    let volume = volumes::recovered(&device);
    volume.write(800, &model.write(800, 8, 1)).unwrap();
    volume.flush().unwrap();
    drop(volume);
    model.compare(&after(&device, |_| {}).unwrap(), 1000, "two lives");
    let spoil = |copy: &MemoryDevice| put_unit(copy, last.place, &[0x5A; UNIT as usize]);
    refused(after(&device, spoil), "stream");
}

#[test]
fn what_is_not_just_the_next_packet_is_none() {
    let (device, model) = flushed();
    let last = packets(&device).pop().unwrap();
    let others: [&dyn Fn(&mut Packet); 5] = [
        &|packet| packet.life += 1,
        &|packet| packet.number += 1,
        &|packet| packet.place += 1,
        &|packet| packet.generation += 1,
        // It has more units than are left in its segment.
        &|packet| packet.units = SEGMENT - packet.place % SEGMENT + 1,
    ];
    for other in others {
        let mut packet = last;
        other(&mut packet);
        let mut unit = unit_at(&device, last.place);
        packet.fill(bind(), &mut unit);
        let volume = after(&device, |copy| put_unit(copy, last.place, &unit)).unwrap();
        model.compare(&volume, 29 * 8, "without it");
        assert_eq!(volume.allocated(29 * 8).unwrap(), None, "{packet:?}");
    }
}

/// A checkpoint of so many ranges, none of them beside the one before: all of it is read again.
fn checkpoint_of(device: &MemoryDevice, ranges: u64) -> u64 {
    let volume = volumes::recovered(device);
    let mut model = Model::default();
    let units = (0..ranges).map(|number| number * 7 % ranges * 2);
    for (number, unit) in (0..).zip(units) {
        volume.write(unit * 8, &model.write(unit * 8, 8, number)).unwrap();
    }
    volume.checkpoint().unwrap();
    let units = volume.info().unwrap().checkpoint;
    drop(volume);
    model.compare(&volumes::recovered(device), ranges * 16, "by the checkpoint");
    units
}

#[test]
fn a_checkpoint_may_take_several_segments() {
    assert!(checkpoint_of(&volumes::device(600), 6000) > 2 * SEGMENT);
}

#[test]
fn a_checkpoint_may_take_several_writes_to_a_segment() {
    let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
    let device = MemoryDevice::new("memory", 100 << 20, limits).unwrap();
    let new = NewVolume {
        uuid: *b"a volume to test",
        created: 1,
        arrangement: Arrangement::Striped,
        segment: Some(128),
    };
    create(&[Arc::new(device.clone())], &new).unwrap();
    // 64 units are written at once.
    let units = checkpoint_of(&device, 14_001);
    assert!(units > 64 && units < 128, "{units}");
}

/// Its number is right, and so is all else.
#[test]
fn a_leaf_of_another_checkpoint_is_missed() {
    let (device, model) = flushed();
    let volume = volumes::recovered(&device);
    volume.checkpoint().unwrap();
    drop(volume);
    model.compare(&after(&device, |_| {}).unwrap(), 30 * 8, "with all of it");
    let (_, newest) = roots(&device).into_iter().max_by_key(|(_, root)| root.sequence).unwrap();
    let place = newest.checkpoint.unwrap().segment * SEGMENT;
    let mut unit = unit_at(&device, place);
    let leaf = Leaf::from_unit(bind(), &unit).unwrap();
    let items: Vec<u64> = leaf.items(&unit).collect();
    Leaf { id: leaf.id - 1, ..leaf }.fill(bind(), &mut unit, &items);
    refused(after(&device, |copy| put_unit(copy, place, &unit)), "checkpoint");
}
