//! When segments are free to be begun anew: not as long as anybody may need what is in them.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod hooked;
mod media;
mod volumes;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use conquest_flash::device::{Device, MemoryDevice};
use conquest_flash::{Error, Result, assemble};
use conquest_format::volume::{ANCHORS, Arrangement, HEADER_WORDS};
use conquest_testkit::Rng;
use hooked::{Hooked, new_volume, open};
use media::{SEGMENT, packets, unit_at};
use volumes::{Model, TestVolume, UNIT, device, recovered};

/// How many of the shortest records a packet takes.
const RECORDS: u64 = 166;
/// One whose turn it is for long is waited for ten seconds.
const SOON: Duration = Duration::from_secs(5);

fn free(volume: &TestVolume) -> u64 {
    volume.info().unwrap().segments.free
}

/// A flush, and one of a packet that says what was durable before.
fn flush_twice(volume: &TestVolume) {
    for _ in 0..2 {
        volume.write(100_000, &[1; UNIT as usize]).unwrap();
        volume.flush().unwrap();
    }
}

#[test]
fn it_is_free_when_a_flushed_packet_says_that_all_in_it_is_dead() {
    let volume = recovered(&device(64));
    flush_twice(&volume);
    let before = free(&volume);
    // Two whole segments, and a part of one that has more room.
    volume.write(0, &vec![1; 40 * UNIT as usize]).unwrap();
    volume.flush().unwrap();
    assert_eq!(free(&volume), before - 3);
    volume.trim(0, 39 * 8).unwrap();
    assert_eq!(free(&volume), before - 3, "it is trimmed");
    volume.flush().unwrap();
    assert_eq!(free(&volume), before - 3, "that is durable");
    flush_twice(&volume);
    assert_eq!(free(&volume), before - 1, "and a packet says so");
    volume.trim(39 * 8, 8).unwrap();
    flush_twice(&volume);
    assert_eq!(free(&volume), before - 1, "there is room in it");
    let segments = volume.info().unwrap().segments;
    assert_eq!((segments.payload, segments.anchor), (1, ANCHORS));
}

/// The segments of all packets from the first one on that recovery reads.
fn needed(device: &MemoryDevice, volume: &TestVolume) -> BTreeSet<u64> {
    let first = volume.info().unwrap().stream.first;
    let all = packets(device).into_iter().filter(|packet| packet.number >= first);
    all.map(|packet| packet.place / SEGMENT).collect()
}

#[test]
fn segments_of_the_stream_are_kept_from_the_first_packet_that_recovery_needs() {
    let device = device(100);
    let volume = recovered(&device);
    let (mut rng, mut several) = (Rng::new(1), 0);
    for round in 0..40 {
        volume.checkpoint().unwrap();
        for number in 0..4 + rng.below(8) {
            let bytes = vec![number as u8; ((1 + rng.below(5)) * UNIT) as usize];
            volume.write(0, &bytes).unwrap();
            volume.flush().unwrap();
            let needed = needed(&device, &volume);
            // And the one to which the stream goes on.
            let kept = volume.info().unwrap().segments.stream;
            assert!(kept > needed.len() as u64, "{round}, {number}: {kept} of {needed:?}");
            several += u64::from(needed.len() > 2);
        }
    }
    assert!(several > 40, "{several}");
}

#[test]
fn what_a_checkpoint_has_taken_is_free_after_the_next_one() {
    let volume = recovered(&device(100));
    (0..2).for_each(|_| volume.checkpoint().unwrap());
    flush_twice(&volume);
    let before = volume.info().unwrap().segments;
    assert!(before.checkpoint > 0);
    for _ in 0..80 {
        volume.checkpoint().unwrap();
        let now = volume.info().unwrap().segments;
        assert_eq!((now.checkpoint, now.anchor), (before.checkpoint, ANCHORS));
        assert!(now.free + 2 >= before.free, "{now:?}");
    }
}

/// Where the record that says so does not fit into the open packet, the stream may take a segment,
/// too, before it is said.
#[test]
fn what_is_begun_for_payload_is_not_begun_for_the_stream() {
    let device = device(100);
    let volume = recovered(&device);
    let mut model = Model::default();
    let open = || volume.info().unwrap().stream.open;
    // Records that are as short as can be.
    let add = |number: u64| match number % 2 {
        0 => volume.reserve(1).unwrap(),
        _ => assert_eq!(volume.release(1).unwrap(), 1),
    };
    let mut number = 0;
    for round in 0..60 {
        let before = open();
        while open() == before {
            add(number);
            number += 1;
        }
        // One is in the packet; with these it is full.
        let (begun, mut left) = (open(), RECORDS - 1);
        while left > 0 {
            add(number);
            (number, left) = (number + 1, left - 1);
        }
        assert_eq!(open(), begun);
        let block = round % 10 * 256;
        volume.write(block, &model.write(block, 256, round)).unwrap();
        assert!(open() > begun, "there was room for more");
    }
    model.compare(&volume, 2560, "written");
    assert_eq!(volume.check().unwrap(), []);
}

/// Whoever writes it writes the same: nothing of what its memory was used for before.
#[test]
fn a_packet_is_zeros_behind_its_records() {
    let device = device(100);
    let volume = recovered(&device);
    for round in 0..20 {
        let many = if round % 2 == 0 { 100 } else { 1 };
        (0..many).for_each(|_| volume.reserve(1).unwrap());
        volume.flush().unwrap();
    }
    let (mut most, mut least) = (0, u64::MAX);
    for packet in packets(&device) {
        let unit = unit_at(&device, packet.place);
        let end = (HEADER_WORDS + packet.words as usize) * 8;
        assert!(unit[end..UNIT as usize - 8].iter().all(|byte| *byte == 0), "{packet:?}");
        (most, least) = (most.max(packet.words), least.min(packet.words));
    }
    assert!(most > 200 && least < 10, "{least} to {most} words");
}

#[test]
fn what_is_begun_anew_takes_no_more_memory() {
    let volume = recovered(&device(64));
    let mut most = 0;
    for number in 0..3000 {
        volume.write(number % 7 * 192, &vec![number as u8; 24 * UNIT as usize]).unwrap();
        if number == 500 {
            most = volume.memory_in_use();
        }
    }
    assert!(volume.memory_in_use() <= most + (16 << 10), "{most}, {}", volume.memory_in_use());
}

/// Whether the last write was of a root, or is to be one.
fn is_root(device: &Hooked) -> bool {
    device.last.lock().unwrap().0 < 65_536 + ANCHORS * SEGMENT * UNIT
}

/// Lets so many writes of roots fail.
fn deny_roots(device: &Arc<Hooked>, count: u64) {
    let again = Arc::clone(device);
    if count == 0 {
        return;
    }
    device.in_next_write(move || match is_root(&again) {
        true => {
            deny_roots(&again, count - 1);
            Err(io::ErrorKind::StorageFull.into())
        }
        false => {
            deny_roots(&again, count);
            Ok(())
        }
    });
}

/// Calls `see` before each write, with whether it is one of a root.
fn watch(device: &Arc<Hooked>, see: impl Fn(bool) + Send + Clone + 'static) {
    let again = Arc::clone(device);
    device.in_next_write(move || {
        see(is_root(&again));
        watch(&again, see);
        Ok(())
    });
}

/// The volume on a device, as two processes have it.
fn two() -> ([Arc<Hooked>; 2], [Arc<TestVolume>; 2]) {
    let device = &new_volume(1, Arrangement::Striped, 100)[0];
    let devices = [Hooked::new(device, false), Hooked::new(device, false)];
    let body = |device: &Arc<Hooked>| assemble(vec![Arc::clone(device) as _]).unwrap();
    let volumes = open(&devices.each_ref().map(body));
    (devices, volumes.try_into().ok().unwrap())
}

/// Lets `what` happen in the write that comes after so many.
fn in_write(device: &Arc<Hooked>, nth: u64, what: impl FnOnce() + Send + 'static) {
    let again = Arc::clone(device);
    device.in_next_write(move || {
        match nth.checked_sub(1) {
            Some(left) => in_write(&again, left, what),
            None => what(),
        }
        Ok(())
    });
}

/// What is written, and in the map only later, is nobody else's, whoever asks or comes.
#[test]
fn it_is_not_free_while_somebody_has_room_in_it() {
    let (devices, [one, other]) = two();
    flush_twice(&one);
    let before = free(&one);
    let (mine, theirs, device) = (Arc::clone(&one), other, Arc::clone(&devices[0]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&seen);
    // Two segments are full by then, and there is room in the third one.
    in_write(&devices[0], 2, move || {
        found.lock().unwrap().push(free(&theirs));
        // The first hold of the other one.
        theirs.write(200_000, &[2; UNIT as usize]).unwrap();
        theirs.flush().unwrap();
        found.lock().unwrap().extend([free(&theirs), free(&mine)]);
        // As far as others know it is gone; whoever is given room goes on in the third one.
        (0..1000).for_each(|writer| device.leave(writer).unwrap());
        found.lock().unwrap().push(free(&theirs));
    });
    one.write(0, &vec![1; 40 * UNIT as usize]).unwrap();
    assert_eq!(*seen.lock().unwrap(), [before - 3, before - 3, before - 3, before - 1]);
}

/// Who needs space while somebody else has room.
#[derive(Clone, Copy, PartialEq)]
enum Needing {
    Process,
    /// A thread of the same process.
    Thread,
    /// One that has had as much room before.
    ThreadAgain,
}

const ALL_WHO_NEED: [Needing; 3] = [Needing::Process, Needing::Thread, Needing::ThreadAgain];

/// Somebody is stopped while he overwrites with all that users may take, and somebody else needs
/// more, as a thread of the same process or of another one: what comes of that is for `see`, which
/// has the device by which he needs it, while he is stopped still, and when he has gone on.
fn while_one_has_room(
    who: Needing,
    see: impl FnOnce(&JoinHandle<Result<()>>, &Hooked) + Send + 'static,
) -> Result<()> {
    let (devices, [one, other]) = two();
    let mut model = Model::default();
    other.write(0, &model.write(0, 960 * 8, 1)).unwrap();
    flush_twice(&other);
    // So that 8 are left to others.
    let units = || (free(&one) - 9) * SEGMENT;
    let by_other = Arc::clone(if who == Needing::Process { &other } else { &one });
    let before = match who {
        Needing::ThreadAgain => model.write(0, units() * 8, 4),
        _ => vec![],
    };
    let ((ready, is_ready), (go, goes)) = (channel(), channel());
    let work = thread::spawn(move || {
        by_other.write(0, &before)?;
        flush_twice(&by_other);
        ready.send(()).unwrap();
        goes.recv().unwrap();
        let info = by_other.info().unwrap();
        by_other.write(1 << 20, &vec![3; ((info.capacity - info.used) * UNIT) as usize])
    });
    is_ready.recv().unwrap();
    let units = units();
    let waiting = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&waiting);
    let device = Arc::clone(&devices[usize::from(who == Needing::Process)]);
    in_write(&devices[0], units / SEGMENT - 1, move || {
        go.send(()).unwrap();
        see(&work, &device);
        *begun.lock().unwrap() = Some(work);
    });
    one.write(0, &model.write(0, units * 8, 2)).unwrap();
    let outcome = waiting.lock().unwrap().take().unwrap().join().unwrap();
    model.compare(&other, 960 * 8, "written");
    outcome
}

/// Nobody is told that there is no space while somebody else has room, of which some comes back.
#[test]
fn who_needs_a_segment_waits_for_those_who_have_room() {
    for who in ALL_WHO_NEED {
        let outcome = while_one_has_room(who, |work, _| {
            thread::sleep(Duration::from_millis(100));
            assert!(!work.is_finished());
        });
        outcome.unwrap();
    }
}

/// Who looks whether there is any, and then whether somebody has room, is not told so either if all
/// that was had is given up in between.
#[test]
fn what_was_just_given_up_is_found() {
    for nth in 0..8 {
        let outcome = while_one_has_room(Needing::Process, move |_, device| {
            let asked = AtomicU64::new(0);
            let (give_up, given_up) = channel();
            let look = move || {
                if asked.fetch_add(1, Ordering::SeqCst) == nth {
                    give_up.send(()).unwrap();
                    // In which the other one does so.
                    thread::sleep(Duration::from_millis(50));
                }
            };
            assert!(device.in_each_question.set(Box::new(look)).is_ok());
            given_up.recv_timeout(Duration::from_secs(10)).unwrap();
        });
        outcome.unwrap();
    }
}

#[test]
fn those_who_have_room_are_not_waited_for_for_good() {
    for who in ALL_WHO_NEED {
        let outcome = while_one_has_room(who, |work, _| {
            let since = Instant::now();
            while !work.is_finished() {
                assert!(since.elapsed() < Duration::from_secs(30));
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(matches!(outcome, Err(Error::NoSpace { .. })), "{outcome:?}");
    }
}

/// Where the newest root may be there, or not, it is written again first: then what is not in it is
/// not needed.
#[test]
fn there_are_two_checkpoints_at_a_time() {
    let (devices, [volume, other]) = two();
    volume.checkpoint().unwrap();
    let taken = |volume: &TestVolume| volume.info().unwrap().segments.checkpoint;
    let one = taken(&other);
    deny_roots(&devices[0], 2);
    assert!(volume.checkpoint().is_err());
    assert_eq!(taken(&other), 2 * one, "either may be the one that counts");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    watch(&devices[0], move |is_root| all.lock().unwrap().push((is_root, taken(&other))));
    let mut roots = Vec::new();
    for _ in 0..2 {
        volume.checkpoint().unwrap();
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        assert!(seen.iter().all(|(_, taken)| *taken <= 2 * one), "{seen:?}");
        roots.push(seen.iter().filter(|(is_root, _)| *is_root).count());
    }
    assert_eq!(roots, [4, 2], "in two places each");
}

/// Others go on beside one who is in the middle of a checkpoint, and gone as far as they know: they
/// don't wait for it, and what it still does changes nothing of theirs.
#[test]
fn one_who_comes_late_with_a_checkpoint_changes_nothing() {
    let (devices, [one, other]) = two();
    one.checkpoint().unwrap();
    one.write(0, &[1; UNIT as usize]).unwrap();
    one.flush().unwrap();
    let (stopped, is_stopped) = channel();
    let (go_on, goes_on) = channel::<()>();
    let (ended, is_ended) = channel();
    let device = Arc::clone(&devices[0]);
    devices[0].in_next_write(move || {
        (0..1000).for_each(|writer| device.leave(writer).unwrap());
        stopped.send(()).unwrap();
        let _ = goes_on.recv();
        Ok(())
    });
    std::thread::spawn(move || ended.send(one.checkpoint()));
    is_stopped.recv().unwrap();
    other.write(0, &[2; UNIT as usize]).unwrap();
    let (first, since) = (other.info().unwrap().stream.first, Instant::now());
    // It goes on when the root of the other one is about to be written.
    let (rooted, asked) = (Arc::new(Mutex::new(None)), Arc::clone(&other));
    let (found, end) = (Arc::clone(&rooted), Mutex::new(Some((go_on, is_ended))));
    let end = Arc::new(end);
    watch(&devices[1], move |is_root| {
        if is_root && let Some((go_on, is_ended)) = end.lock().unwrap().take() {
            drop(go_on);
            is_ended.recv_timeout(SOON).unwrap().unwrap();
            *found.lock().unwrap() = Some(asked.info().unwrap().stream.first);
        }
    });
    other.checkpoint().unwrap();
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert_eq!(*rooted.lock().unwrap(), Some(first), "it is not known to be durable");
    assert!(other.info().unwrap().stream.first > first);
}
