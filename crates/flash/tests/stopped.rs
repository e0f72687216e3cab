//! A process that is stopped while it writes a packet keeps nobody from flushing, and what it
//! writes when it goes on damages nothing for good, whenever the power is cut.
#![allow(clippy::unwrap_used)]

mod hooked;
mod volumes;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use conquest_flash::device::{Device, MemoryDevice};
use conquest_flash::{Volume, assemble};
use conquest_format::volume::{ANCHORS, Arrangement};
use conquest_testkit::Rng;
use hooked::{Hooked, new_volume, open};
use volumes::{Model, TestVolume, UNIT, region};

const SECTOR: usize = 512;
/// Units that are written.
const UNITS: u64 = 200;
/// One who is stopped is waited for a quarter of a second, once.
const SOON: Duration = Duration::from_secs(5);
/// In which whoever does not wait is done.
const LONG: Duration = Duration::from_millis(900);

/// The volume on `count` devices, as so many processes have it.
struct Several {
    /// The devices themselves.
    devices: Vec<MemoryDevice>,
    /// Them, as each process has them.
    hooked: Vec<Vec<Arc<Hooked>>>,
    volumes: Vec<Arc<TestVolume>>,
}

impl Several {
    fn new(processes: usize, count: usize, arrangement: Arrangement) -> Several {
        let devices = new_volume(count, arrangement, 64);
        let of = || devices.iter().map(|device| Hooked::new(device, false)).collect::<Vec<_>>();
        let hooked: Vec<_> = (0..processes).map(|_| of()).collect();
        let body = |devices: &Vec<Arc<Hooked>>| {
            assemble(devices.iter().map(|device| Arc::clone(device) as _).collect()).unwrap()
        };
        let bodies: Vec<_> = hooked.iter().map(body).collect();
        Several { devices, hooked, volumes: open(&bodies) }
    }

    /// Lets the first process be stopped in its next write, by which it writes a packet for a
    /// flush; `meanwhile` gets the others, and where on the devices the packet is to go.
    fn stopped(&self, meanwhile: impl FnOnce(&[Arc<TestVolume>], (u64, usize)) + Send) {
        self.stopped_after(0, meanwhile);
    }

    /// The same in the write that comes after so many.
    fn stopped_after(
        &self,
        writes: u32,
        meanwhile: impl FnOnce(&[Arc<TestVolume>], (u64, usize)) + Send,
    ) {
        let (stopped, is_stopped) = channel();
        let (go_on, goes_on) = channel::<()>();
        let device = Arc::clone(&self.hooked[0][0]);
        stop_after(&device, writes, move || {
            stopped.send(()).unwrap();
            // Whoever fails lets it go on, too.
            let _ = goes_on.recv();
        });
        std::thread::scope(|scope| {
            let flushing = scope.spawn(|| self.volumes[0].flush());
            is_stopped.recv().unwrap();
            let place = *device.last.lock().unwrap();
            meanwhile(&self.volumes[1..], place);
            drop(go_on);
            flushing.join().unwrap().unwrap();
        });
    }

    /// What is on the devices, with sectors from byte `at` on of the first one that were being
    /// written, `len` bytes in all: some of them are garbage.
    fn cut(&self, (at, len): (u64, usize), rng: &mut Rng) -> TestVolume {
        let copies = self.copies();
        for sector in (at..at + len as u64).step_by(SECTOR) {
            if rng.below(3) > 0 {
                copies[0].write(sector, &[0xA5; SECTOR]).unwrap();
            }
        }
        recovered(copies.iter().map(|copy| Arc::new(copy.as_other()) as _))
    }

    /// Devices with what is on these.
    fn copies(&self) -> Vec<MemoryDevice> {
        let copy = |device: &MemoryDevice| {
            let mut bytes = vec![0; device.len() as usize];
            device.read(0, &mut bytes).unwrap();
            let copy = MemoryDevice::new(device.name(), device.len(), device.limits()).unwrap();
            copy.write(0, &bytes).unwrap();
            copy
        };
        self.devices.iter().map(copy).collect()
    }
}

fn recovered(devices: impl Iterator<Item = Arc<dyn Device>>) -> TestVolume {
    let body = assemble(devices.collect()).unwrap();
    Volume::recover(region(&body), &body).unwrap()
}

/// Lets `stop` happen in the write that comes after so many.
fn stop_after(device: &Arc<Hooked>, writes: u32, stop: impl FnOnce() + Send + 'static) {
    let again = Arc::clone(device);
    device.in_next_write(move || {
        match writes.checked_sub(1) {
            Some(left) => stop_after(&again, left, stop),
            None => stop(),
        }
        Ok(())
    });
}

/// Lets `stop` happen in the first write that `is_it`, by where it is to go and its bytes.
fn stop_when(
    device: &Arc<Hooked>,
    is_it: impl Fn((u64, usize)) -> bool + Send + 'static,
    stop: impl FnOnce() + Send + 'static,
) {
    let again = Arc::clone(device);
    device.in_next_write(move || {
        let place = *again.last.lock().unwrap();
        match is_it(place) {
            true => stop(),
            false => stop_when(&again, is_it, stop),
        }
        Ok(())
    });
}

/// Lets `stop` happen in a write to that `place`.
fn stop_at(device: &Arc<Hooked>, place: (u64, usize), stop: impl FnOnce() + Send + 'static) {
    stop_when(device, move |at| at == place, stop);
}

/// Whether roots stand there.
fn is_of_root((at, _): (u64, usize)) -> bool {
    at < 65_536 + ANCHORS * 16 * UNIT
}

/// A flush by `volume`, made by a thread of its own: whether it has ended is told.
fn flushing(volume: &Arc<TestVolume>) -> Receiver<()> {
    let (ended, has_ended) = channel();
    let volume = Arc::clone(volume);
    std::thread::spawn(move || {
        volume.flush().unwrap();
        let _ = ended.send(());
    });
    has_ended
}

/// Lets somebody be stopped, or be dead, in a write of a flush by `volume`: the first one that
/// `is_it`. It goes on when what is returned is dropped.
fn stopped_flush(
    volume: &Arc<TestVolume>,
    device: &Arc<Hooked>,
    is_it: impl Fn((u64, usize)) -> bool + Send + 'static,
) -> (Sender<()>, Receiver<()>) {
    let (stopped, is_stopped) = channel();
    let (go_on, goes_on) = channel::<()>();
    stop_when(device, is_it, move || {
        stopped.send(()).unwrap();
        let _ = goes_on.recv();
    });
    let ended = flushing(volume);
    is_stopped.recv_timeout(SOON).unwrap();
    (go_on, ended)
}

/// Lets `what` happen in the flush that comes after so many.
fn in_flush(device: &Arc<Hooked>, flushes: u32, what: impl FnOnce() + Send + 'static) {
    let again = Arc::clone(device);
    device.in_next_flush(move || {
        match flushes.checked_sub(1) {
            Some(left) => in_flush(&again, left, what),
            None => what(),
        }
        Ok(())
    });
}

fn write(volume: &TestVolume, model: &mut Model, unit: u64, number: u64) {
    volume.write(unit * 8, &model.write(unit * 8, 8, number)).unwrap();
}

#[test]
fn one_who_is_stopped_while_it_writes_keeps_nobody_from_flushing() {
    let several = Several::new(3, 1, Arrangement::Striped);
    let mut model = Model::default();
    write(&several.volumes[0], &mut model, 0, 1);
    several.stopped(|others, _| {
        let since = Instant::now();
        write(&others[0], &mut model, 1, 2);
        others[0].flush().unwrap();
        others[1].flush().unwrap();
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        // It is waited for once.
        let since = Instant::now();
        for number in 0..100 {
            write(&others[number as usize % 2], &mut model, 2 + number, number);
            others[number as usize % 2].flush().unwrap();
        }
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        model.compare(&others[1], UNITS * 8, "it is stopped");
    });
    for volume in &several.volumes {
        model.compare(volume, UNITS * 8, "it goes on");
        volume.flush().unwrap();
    }
}

#[test]
fn what_it_writes_when_it_goes_on_damages_nothing_that_was_flushed() {
    // What it has undertaken to write are two packets, in segments of their own.
    let cases =
        [(1, Arrangement::Striped, 0), (1, Arrangement::Striped, 1), (2, Arrangement::Mirrored, 0)];
    for (count, arrangement, writes) in cases {
        let several = Several::new(2, count, arrangement);
        let mut model = Model::default();
        let mut rng = Rng::new(7);
        (0..20).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
        several.stopped_after(writes, |others, place| {
            others[0].flush().unwrap();
            for step in 0..12 {
                for _ in 0..4 {
                    model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut");
                }
                // Roots go on saying it, and what stands in is not written over.
                (0..150).for_each(|number| write(&others[0], &mut model, 20 + number, step));
                others[0].flush().unwrap();
                others[0].checkpoint().unwrap();
            }
        });
        several.volumes[0].flush().unwrap();
        model.compare(&several.cut((0, 0), &mut rng), UNITS * 8, "it has gone on");
    }
}

/// Where a member can't be read it has to be written, as far as anybody knows.
#[test]
fn what_stands_in_is_put_where_a_member_cannot_be_read() {
    let several = Several::new(2, 2, Arrangement::Mirrored);
    let mut model = Model::default();
    (0..20).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
    several.stopped(|others, place| {
        others[0].flush().unwrap();
        for member in [0, 1] {
            let copies = several.copies();
            let devices: Vec<_> = copies.iter().map(|copy| Hooked::new(copy, false)).collect();
            *devices[member].unreadable.lock().unwrap() = Some(place);
            let volume = recovered(devices.iter().map(|device| Arc::clone(device) as _));
            model.compare(&volume, UNITS * 8, "it stands in");
            assert_eq!(*devices[member].unreadable.lock().unwrap(), None, "member {member}");
        }
    });
}

#[test]
fn what_stands_in_has_been_written() {
    let several = Several::new(2, 1, Arrangement::Striped);
    let mut model = Model::default();
    (0..10).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
    several.stopped(|others, place| {
        several.hooked[1][0].in_next_write(|| Err(std::io::ErrorKind::StorageFull.into()));
        others[0].flush().unwrap();
        let mut rng = Rng::new(11);
        (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
    });
}

/// A power cut may damage what it writes last, until that is flushed.
#[test]
fn what_it_writes_is_durable_before_nothing_stands_in_for_it() {
    let several = Several::new(2, 1, Arrangement::Striped);
    write(&several.volumes[0], &mut Model::default(), 0, 1);
    several.stopped(|others, _| {
        others[0].flush().unwrap();
        let device = Arc::clone(&several.hooked[0][0]);
        let before = device.counts.flushes();
        // Behind the packet, it is that of a root.
        several.hooked[0][0].in_next_write(move || {
            let (at, _) = *device.last.lock().unwrap();
            assert!(is_of_root((at, 0)), "{at}");
            assert!(device.counts.flushes() > before);
            Ok(())
        });
    });
}

/// One who stands in may be stopped, too, and the first one go on: nothing is where it writes.
#[test]
fn nothing_is_put_where_somebody_may_still_write_what_stands_in() {
    let several = Several::new(3, 1, Arrangement::Striped);
    let mut model = Model::default();
    let (stopped, is_stopped) = channel();
    let mut flushing = Vec::new();
    let mut go_on = Vec::new();
    write(&several.volumes[0], &mut model, 0, 1);
    for number in [0, 1] {
        let (go, goes_on) = channel::<()>();
        let stopped = stopped.clone();
        several.hooked[number][0].in_next_write(move || {
            stopped.send(()).unwrap();
            let _ = goes_on.recv();
            Ok(())
        });
        let volume = Arc::clone(&several.volumes[number]);
        flushing.push(std::thread::spawn(move || volume.flush()));
        is_stopped.recv_timeout(SOON).unwrap();
        go_on.push(go);
    }
    go_on.remove(0);
    flushing.remove(0).join().unwrap().unwrap();
    // Each segment is begun anew, if it can be; that one only by mistake.
    let (at, _) = *several.hooked[1][0].last.lock().unwrap();
    for number in 0..200 {
        let block = number % 20 * 24 * 8;
        let bytes = model.write(block, 24 * 8, number);
        several.volumes[2].write(block, &bytes).unwrap();
        several.volumes[2].flush().unwrap();
        let mut there = [0; UNIT as usize];
        several.devices[0].read(at, &mut there).unwrap();
        if bytes.chunks(UNIT as usize).any(|unit| unit == there) {
            break;
        }
    }
    go_on.clear();
    flushing.remove(0).join().unwrap().unwrap();
    several.volumes.iter().for_each(|volume| model.compare(volume, 480 * 8, "both have gone on"));
    model.compare(&several.cut((0, 0), &mut Rng::new(1)), 480 * 8, "a restart");
}

/// It has undertaken to write so many `packets`, and is stopped in the first one. When it goes on
/// there is another one in the index where the last of them was, which another thread of its
/// process is still writing.
fn goes_on_long_after(units: u64, packets: u64) {
    let several = Several::new(2, 1, Arrangement::Striped);
    let mut model = Model::default();
    let (go, goes_on) = channel::<()>();
    let (volumes, hooked) = (several.volumes.clone(), several.hooked.clone());
    let open = || several.volumes[1].info().unwrap().stream.open;
    let last = open() + packets - 1;
    (0..units).for_each(|unit| write(&volumes[0], &mut model, unit, 1));
    several.stopped(|others, _| {
        others[0].flush().unwrap();
        assert_eq!(open(), last + 1);
        // Each flush is one packet.
        while open() < last + 32 {
            write(&others[0], &mut model, 100, open());
            others[0].flush().unwrap();
        }
        assert_eq!(open(), last + 32);
        write(&volumes[0], &mut model, 101, 1);
        let (stopped, is_stopped) = channel();
        hooked[0][0].in_next_write(move || {
            stopped.send(()).unwrap();
            let _ = goes_on.recv();
            Ok(())
        });
        let second = Arc::clone(&volumes[0]);
        std::thread::spawn(move || second.flush());
        is_stopped.recv_timeout(SOON).unwrap();
    });
    volumes[1].flush().unwrap();
    model.compare(&several.cut((0, 0), &mut Rng::new(1)), UNITS * 8, "a restart");
    drop(go);
    volumes[0].flush().unwrap();
}

#[test]
fn what_it_has_written_is_not_what_is_in_its_place_by_then() {
    goes_on_long_after(1, 1);
}

#[test]
fn what_it_has_not_written_is_not_what_is_in_its_place_by_then() {
    goes_on_long_after(20, 2);
}

/// Nor is it done with what somebody else is writing by then, in its place.
#[test]
fn what_others_are_writing_is_not_written_yet() {
    let several = Several::new(2, 1, Arrangement::Striped);
    let mut model = Model::default();
    let (hooked, mut place) = (several.hooked.clone(), (0, 0));
    let (go, goes_on) = channel::<()>();
    let first = Arc::clone(&several.volumes[1]);
    (0..10).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
    several.stopped(|_, at| {
        place = at;
        let (stopped, is_stopped) = channel();
        stop_at(&hooked[1][0], place, move || {
            stopped.send(()).unwrap();
            let _ = goes_on.recv();
        });
        std::thread::spawn(move || first.flush());
        is_stopped.recv_timeout(SOON).unwrap();
    });
    // The one that has gone on has flushed.
    let mut rng = Rng::new(17);
    (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
    drop(go);
    several.volumes[1].flush().unwrap();
}

#[test]
fn another_thread_of_its_process_leaves_to_it_what_it_is_writing() {
    let several = Several::new(3, 1, Arrangement::Striped);
    let mut model = Model::default();
    (0..10).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
    let (volumes, hooked) = (several.volumes.clone(), several.hooked.clone());
    several.stopped(|others, place| {
        // Who stands in for it dies when it is about to write the packet itself.
        let (died, is_dead) = channel();
        stop_at(&hooked[1][0], place, move || {
            died.send(()).unwrap();
            std::thread::park();
        });
        let first = Arc::clone(&others[0]);
        std::thread::spawn(move || first.flush());
        is_dead.recv_timeout(SOON).unwrap();
        (0..1000).for_each(|writer| hooked[1][0].leave(writer).unwrap());
        // A second thread of the one that is stopped, which is a writer again.
        let again = Arc::clone(&volumes[0]);
        let second = std::thread::spawn(move || again.flush());
        std::thread::sleep(Duration::from_millis(500));
        assert!(!second.is_finished(), "it does not wait for the first thread");
        others[1].flush().unwrap();
        second.join().unwrap().unwrap();
        let mut rng = Rng::new(13);
        (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
    });
}

#[test]
fn what_was_stood_in_for_is_not_any_more_when_it_has_gone_on_or_died() {
    let several = Several::new(2, 1, Arrangement::Striped);
    let mut model = Model::default();
    let before = several.volumes[1].info().unwrap().segments.checkpoint;
    // More often than there can be stand-ins at a time.
    for round in 0..10 {
        write(&several.volumes[0], &mut model, 0, round);
        several.stopped(|others, _| {
            write(&others[0], &mut model, 1, round);
            others[0].flush().unwrap();
            let used = others[0].info().unwrap().segments;
            assert_eq!(used.checkpoint, before + 1, "{round}: something stands in");
        });
        let used = several.volumes[1].info().unwrap();
        assert!(used.segments.free > 16, "{round}: {:?}", used.segments);
        assert_eq!(used.segments.checkpoint, before, "{round}: where it stood is free");
    }
    // One who dies lets go of the locks by which it is a writer. Where it was about to write
    // nothing is needed any more, and it is used again.
    let mut rng = Rng::new(3);
    write(&several.volumes[0], &mut model, 2, 1);
    several.stopped(|others, place| {
        others[0].flush().unwrap();
        (0..3).for_each(|unit| write(&others[0], &mut model, unit, 2));
        // A packet says that what was there is dead, and the stream goes on elsewhere.
        for number in 0..21 {
            write(&others[0], &mut model, number % 3, number);
            others[0].flush().unwrap();
        }
        others[0].checkpoint().unwrap();
        others[0].checkpoint().unwrap();
        let free = || others[0].info().unwrap().segments.free;
        let before = free();
        (0..1000).for_each(|writer| several.hooked[0][0].leave(writer).unwrap());
        assert_eq!(free(), before, "a root says still what stands in there");
        others[0].checkpoint().unwrap();
        assert_eq!(free(), before + 2, "both places are free");
        for round in 0..80 {
            (0..15).for_each(|unit| write(&others[0], &mut model, 3 + unit, round));
            others[0].flush().unwrap();
            let cut = several.cut((place.0, 0), &mut rng);
            model.compare(&cut, UNITS * 8, "it has died");
        }
    });
}

// --- several who stand in ------------------------------------------------------------------------

/// It may be damaged still if the one that writes it is cut off.
#[test]
fn what_is_being_written_does_not_stand_in_yet() {
    let several = Several::new(3, 1, Arrangement::Striped);
    let mut model = Model::default();
    (0..10).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
    let helper = Arc::clone(&several.hooked[1][0]);
    several.stopped(|others, place| {
        let (go_on, first) = stopped_flush(&others[0], &helper, |_| true);
        let second = flushing(&others[1]);
        assert_eq!(second.recv_timeout(LONG), Err(RecvTimeoutError::Timeout));
        drop(go_on);
        first.recv_timeout(SOON).unwrap();
        second.recv_timeout(SOON).unwrap();
        let mut rng = Rng::new(19);
        (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
    });
}

#[test]
fn where_one_dies_who_writes_what_stands_in_the_next_one_does() {
    let several = Several::new(3, 1, Arrangement::Striped);
    let mut model = Model::default();
    let used = |volume: &TestVolume| volume.info().unwrap().segments.checkpoint;
    let before = used(&several.volumes[0]);
    (0..10).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
    let helper = Arc::clone(&several.hooked[1][0]);
    several.stopped(|others, place| {
        let (_dead, _) = stopped_flush(&others[0], &helper, |_| true);
        (0..1000).for_each(|writer| helper.leave(writer).unwrap());
        flushing(&others[1]).recv_timeout(SOON).unwrap();
        assert_eq!(used(&others[1]), before + 1, "nothing is left of what it was writing");
        let mut rng = Rng::new(23);
        (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
    });
}

/// Whoever comes next says it.
#[test]
fn what_is_written_stands_in_also_if_its_writer_is_stopped_before_a_root_says_so() {
    let several = Several::new(3, 1, Arrangement::Striped);
    let mut model = Model::default();
    (0..10).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
    let helper = Arc::clone(&several.hooked[1][0]);
    several.stopped(|others, place| {
        let (go_on, first) = stopped_flush(&others[0], &helper, is_of_root);
        flushing(&others[1]).recv_timeout(SOON).unwrap();
        let mut rng = Rng::new(29);
        (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
        drop(go_on);
        first.recv_timeout(SOON).unwrap();
    });
}

/// By then another one may be writing what stands in, under the same number.
#[test]
fn who_comes_late_with_what_stands_in_changes_nothing_of_what_others_are_writing() {
    let several = Several::new(4, 1, Arrangement::Striped);
    let mut model = Model::default();
    let (volumes, hooked) = (several.volumes.clone(), several.hooked.clone());
    (0..10).for_each(|unit| write(&volumes[0], &mut model, unit, unit));
    let mut late = None;
    several.stopped(|others, _| late = Some(stopped_flush(&others[0], &hooked[1][0], |_| true)));
    let (late_goes_on, late_ends) = late.unwrap();
    (5..15).for_each(|unit| write(&volumes[0], &mut model, unit, 100 + unit));
    several.stopped(|others, place| {
        let (go_on, ended) = stopped_flush(&others[1], &hooked[2][0], |_| true);
        let (go, late) = (late_goes_on, late_ends);
        drop(go);
        late.recv_timeout(SOON).unwrap();
        let waiting = flushing(&others[2]);
        assert_eq!(waiting.recv_timeout(LONG), Err(RecvTimeoutError::Timeout));
        drop(go_on);
        ended.recv_timeout(SOON).unwrap();
        waiting.recv_timeout(SOON).unwrap();
        let mut rng = Rng::new(31);
        (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
    });
    model.compare(&several.cut((0, 0), &mut Rng::new(1)), UNITS * 8, "all have gone on");
}

/// As by one who has found that somebody was dead who has ended it himself, or somebody else has:
/// it may be for something else by then.
#[test]
fn who_comes_late_to_end_what_stands_in_ends_nothing_else() {
    let several = Several::new(4, 1, Arrangement::Striped);
    let mut model = Model::default();
    let (volumes, hooked) = (several.volumes.clone(), several.hooked.clone());
    write(&volumes[0], &mut model, 0, 1);
    let (first_goes_on, first) = stopped_flush(&volumes[0], &hooked[0][0], |_| true);
    volumes[2].flush().unwrap();
    // As far as others know it is dead.
    (0..1000).for_each(|writer| hooked[0][0].leave(writer).unwrap());
    let bytes = model.write(8, 8, 2);
    let (devices, others) = (hooked.clone(), volumes.clone());
    let (found, is_found) = channel();
    in_flush(&hooked[3][0], 1, move || {
        drop(first_goes_on);
        first.recv_timeout(SOON).unwrap();
        others[1].write(8, &bytes).unwrap();
        let second = stopped_flush(&others[1], &devices[1][0], |_| true);
        let place = *devices[1][0].last.lock().unwrap();
        others[2].flush().unwrap();
        found.send((second, place)).unwrap();
    });
    volumes[3].checkpoint().unwrap();
    let ((go_on, second), place) = is_found.recv_timeout(SOON).unwrap();
    let mut rng = Rng::new(37);
    (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
    drop(go_on);
    second.recv_timeout(SOON).unwrap();
}

// --- what the one that is stopped does besides ---------------------------------------------------

/// It does not take itself for dead, whatever it sees of its own locks.
#[test]
fn another_thread_of_its_process_does_not_end_what_stands_in_for_it() {
    let several = Several::new(2, 1, Arrangement::Striped);
    let mut model = Model::default();
    (0..10).for_each(|unit| write(&several.volumes[0], &mut model, unit, unit));
    let again = Arc::clone(&several.volumes[0]);
    several.stopped(|others, place| {
        others[0].flush().unwrap();
        again.checkpoint().unwrap();
        let mut rng = Rng::new(41);
        // One that was written before that says so.
        (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
    });
}

/// What another thread has written of its process, behind it, needs nothing that stands in.
#[test]
fn what_another_thread_of_its_process_has_written_is_not_waited_for() {
    let several = Several::new(2, 1, Arrangement::Striped);
    let mut model = Model::default();
    write(&several.volumes[0], &mut model, 0, 1);
    let again = Arc::clone(&several.volumes[0]);
    let counts = Arc::clone(&several.hooked[0][0].counts);
    several.stopped(|others, place| {
        write(&again, &mut model, 1, 2);
        counts.take();
        let second = flushing(&again);
        let since = Instant::now();
        while counts.writes.load(Ordering::SeqCst) == 0 {
            assert!(since.elapsed() < SOON);
            std::thread::sleep(Duration::from_millis(1));
        }
        flushing(&others[0]).recv_timeout(SOON).unwrap();
        let mut rng = Rng::new(43);
        (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
        drop(second);
    });
}

/// They are beside each other only if they are in one segment, also where a unit is left between
/// them.
#[test]
fn packets_on_both_sides_of_a_unit_that_is_left_are_stood_in_for_one_by_one() {
    for writes in [0, 1] {
        let several = Several::new(2, 1, Arrangement::Striped);
        let mut model = Model::default();
        let (volume, device) = (&several.volumes[0], &several.hooked[0][0]);
        // The next packet begins a segment.
        loop {
            write(volume, &mut model, 0, 1);
            volume.flush().unwrap();
            let (at, len) = *device.last.lock().unwrap();
            if ((at - 65_536) / UNIT + len as u64 / UNIT).is_multiple_of(16) {
                break;
            }
        }
        // It takes 15 units, and the next one goes elsewhere.
        (0..14).for_each(|unit| write(volume, &mut model, unit, 2));
        volume.write(14 * 8, &model.write(14 * 8, 3 * 8, 3)).unwrap();
        several.stopped_after(writes, |others, place| {
            let wanted = if writes == 0 { 15 } else { 4 };
            assert_eq!(place.1 as u64 / UNIT, wanted);
            others[0].flush().unwrap();
            let mut rng = Rng::new(47);
            (0..8).for_each(|_| model.compare(&several.cut(place, &mut rng), UNITS * 8, "a cut"));
        });
    }
}
