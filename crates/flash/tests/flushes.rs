//! Flushes of the devices that several processes share, and who is not waited for.
#![allow(clippy::unwrap_used, clippy::panic)]

mod hooked;
mod opening;
mod volumes;

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use conquest_flash::device::{Device, FileDevice, MemoryDevice};
use conquest_flash::{Error, OpenOptions, assemble};
use conquest_format::volume::Arrangement;
use conquest_testkit::flash::{Event, Log};
use hooked::{Counts, Hooked, new_volume, open};
use opening::Place;
use volumes::{TestVolume, UNIT};

/// What others do within a request is under way by then, or they are late: both have to be right.
const A_WHILE: Duration = Duration::from_millis(50);

/// What a flush of a device takes.
const A_MOMENT: Duration = Duration::from_millis(3);

fn write(volume: &TestVolume, unit: u64) {
    volume.write(unit * 8, &[unit as u8 + 1; UNIT as usize]).unwrap();
}

/// The volume on one device, as two processes have it.
fn two() -> ([Arc<Hooked>; 2], [Arc<TestVolume>; 2]) {
    let device = &new_volume(1, Arrangement::Striped, 64)[0];
    let devices = [Hooked::new(device, false), Hooked::new(device, false)];
    let body = |device: &Arc<Hooked>| assemble(vec![Arc::clone(device) as _]).unwrap();
    let volumes = open(&devices.each_ref().map(body));
    let volumes: [Arc<TestVolume>; 2] = volumes.try_into().ok().unwrap();
    for device in &devices {
        device.counts.take();
    }
    (devices, volumes)
}

type Outcome = conquest_flash::Result<()>;

/// Somebody else who does something in the middle.
#[derive(Clone, Default)]
struct Other(Arc<Mutex<Option<JoinHandle<Outcome>>>>);

impl Other {
    /// Begins it, and gives it a while.
    fn begin(&self, what: impl FnOnce() -> Outcome + Send + 'static) {
        *self.0.lock().unwrap() = Some(spawn(what));
        std::thread::sleep(A_WHILE);
    }

    fn is_finished(&self) -> bool {
        self.0.lock().unwrap().as_ref().unwrap().is_finished()
    }

    fn end(&self) -> Outcome {
        self.0.lock().unwrap().take().unwrap().join().unwrap()
    }
}

#[test]
fn one_flush_does_for_all_that_was_written_before_it() {
    let (devices, [one, other]) = two();
    write(&one, 0);
    write(&other, 1);
    let second = Other::default();
    let (begun, flushing) = (second.clone(), Arc::clone(&other));
    devices[0].in_next_flush(move || {
        begun.begin(move || flushing.flush());
        assert!(!begun.is_finished(), "it is not flushed yet");
        Ok(())
    });
    one.flush().unwrap();
    second.end().unwrap();
    assert_eq!(devices.each_ref().map(|device| device.counts.flushes()), [1, 0]);
}

/// Threads of one process are told that it is over.
#[test]
fn threads_share_a_flush_and_need_not_look() {
    let (devices, [one, _]) = two();
    write(&one, 0);
    let second = Other::default();
    let (begun, flushing) = (second.clone(), Arc::clone(&one));
    devices[0].in_next_flush(move || {
        begun.begin(move || flushing.flush());
        assert!(!begun.is_finished(), "it is not flushed yet");
        Ok(())
    });
    one.flush().unwrap();
    let since = Instant::now();
    second.end().unwrap();
    // Who is not told looks again after a second.
    assert!(since.elapsed() < Duration::from_millis(700), "{:?}", since.elapsed());
    assert_eq!(devices[0].counts.flushes(), 1);
}

#[test]
fn what_is_written_while_somebody_flushes_is_flushed_again() {
    let (devices, [one, other]) = two();
    write(&one, 0);
    let second = Other::default();
    let (begun, flushing) = (second.clone(), Arc::clone(&other));
    devices[0].in_next_flush(move || {
        begun.begin(move || {
            write(&flushing, 1);
            flushing.flush()
        });
        Ok(())
    });
    one.flush().unwrap();
    second.end().unwrap();
    assert_eq!(devices.each_ref().map(|device| device.counts.flushes()), [1, 1]);
}

#[test]
fn nobody_waits_for_one_who_is_gone() {
    let (devices, [one, other]) = two();
    write(&one, 0);
    write(&other, 1);
    let flushing = Arc::clone(&other);
    let (device, questions) = (Arc::clone(&devices[0].device), Arc::clone(&devices[1].counts));
    devices[0].in_next_flush(move || {
        // As if it had been killed here; what it does then it had better not do.
        (0..10).for_each(|writer| device.leave(writer).unwrap());
        let before = questions.questions.load(Ordering::SeqCst);
        flushing.flush().unwrap();
        assert!(questions.questions.load(Ordering::SeqCst) > before);
        Ok(())
    });
    one.flush().unwrap();
    assert_eq!(devices.each_ref().map(|device| device.counts.flushes()), [1, 1]);
}

#[test]
fn one_who_is_stopped_is_not_waited_for_long() {
    let (devices, [one, other]) = two();
    write(&one, 0);
    write(&other, 1);
    let flushing = Arc::clone(&other);
    devices[0].in_next_flush(move || {
        // It goes on when the other one has flushed.
        flushing.flush().unwrap();
        write(&flushing, 2);
        flushing.flush().unwrap();
        Ok(())
    });
    one.flush().unwrap();
    assert_eq!(devices.each_ref().map(|device| device.counts.flushes()), [1, 2]);
    // Nothing is left of it.
    write(&other, 3);
    other.flush().unwrap();
    write(&one, 4);
    one.flush().unwrap();
    assert_eq!(devices.each_ref().map(|device| device.counts.flushes()), [2, 3]);
}

#[test]
fn a_flush_that_fails_fails_for_all_who_wait_for_it() {
    let (devices, [one, other]) = two();
    write(&one, 0);
    write(&other, 1);
    let second = Other::default();
    let (begun, flushing) = (second.clone(), Arc::clone(&other));
    devices[0].in_next_flush(move || {
        begun.begin(move || flushing.flush());
        Err(io::Error::from_raw_os_error(libc::EIO))
    });
    assert!(matches!(one.flush(), Err(Error::Device { .. })));
    assert!(matches!(second.end(), Err(Error::Failed { .. })));
    for volume in [&one, &other] {
        assert!(matches!(volume.flush(), Err(Error::Failed { .. })));
    }
    assert_eq!(devices.each_ref().map(|device| device.counts.flushes()), [1, 0]);
}

#[test]
fn a_root_that_can_t_be_written_leaves_the_flush_to_others() {
    let (devices, [one, other]) = two_mirrored();
    write(&one, 0);
    devices[1].in_next_flush(|| Err(io::Error::from_raw_os_error(libc::EIO)));
    // Both places of the root, on the only member that is left.
    let again = Arc::clone(&devices[0]);
    devices[0].in_next_flush(move || {
        let next = Arc::clone(&again);
        again.in_next_write(move || {
            next.in_next_write(|| Err(io::Error::from_raw_os_error(libc::EIO)));
            Err(io::Error::from_raw_os_error(libc::EIO))
        });
        Ok(())
    });
    assert!(matches!(one.flush(), Err(Error::Device { .. })));
    other.flush().unwrap();
    one.flush().unwrap();
    assert_eq!(other.info().unwrap().failed, 2);
}

/// Threads that wait for it, and other processes, go on at once.
#[test]
fn nobody_waits_for_a_flush_that_has_failed() {
    let soon = Duration::from_millis(700);
    for is_thread in [true, false] {
        let (devices, [one, other]) = two_mirrored();
        write(&one, 0);
        devices[1].in_next_flush(|| Err(io::Error::from_raw_os_error(libc::EIO)));
        let second = Other::default();
        let (begun, again) = (second.clone(), Arc::clone(&devices[0]));
        let flushing = Arc::clone(if is_thread { &one } else { &other });
        devices[0].in_next_flush(move || {
            let next = Arc::clone(&again);
            again.in_next_write(move || {
                next.in_next_write(|| Err(io::Error::from_raw_os_error(libc::EIO)));
                Err(io::Error::from_raw_os_error(libc::EIO))
            });
            begun.begin(move || flushing.flush());
            Ok(())
        });
        assert!(matches!(one.flush(), Err(Error::Device { .. })));
        let since = Instant::now();
        second.end().unwrap();
        assert!(since.elapsed() < soon, "{is_thread}: {:?}", since.elapsed());
    }
}

/// The volume on a mirror, as two processes have it: the first one's devices.
fn two_mirrored() -> (Vec<Arc<Hooked>>, [Arc<TestVolume>; 2]) {
    let members = new_volume(2, Arrangement::Mirrored, 64);
    let hooked = || members.iter().map(|member| Hooked::new(member, false)).collect::<Vec<_>>();
    let (devices, others) = (hooked(), hooked());
    let body = |devices: &[Arc<Hooked>]| {
        assemble(devices.iter().map(|device| Arc::clone(device) as _).collect()).unwrap()
    };
    let volumes = open(&[body(&devices), body(&others)]);
    (devices, volumes.try_into().ok().unwrap())
}

#[test]
fn a_shared_flush_counts_when_a_root_says_which_members_failed() {
    let (devices, [one, other]) = two_mirrored();
    write(&one, 0);
    write(&other, 1);
    let second = Other::default();
    let (begun, flushing, first) = (second.clone(), Arc::clone(&other), Arc::clone(&devices[0]));
    devices[0].in_next_flush(move || {
        let waiting = begun.clone();
        first.in_next_write(move || {
            // The root.
            std::thread::sleep(A_WHILE);
            assert!(!waiting.is_finished(), "nobody knows after a restart which member failed");
            Ok(())
        });
        begun.begin(move || flushing.flush());
        Ok(())
    });
    devices[1].in_next_flush(|| Err(io::Error::from_raw_os_error(libc::EIO)));
    one.flush().unwrap();
    second.end().unwrap();
    assert_eq!(other.info().unwrap().failed, 2);
}

/// Writes and flushes by `processes`, `rounds` of each: how often all of them flushed the devices.
fn flushes_of(processes: u32, rounds: u64, device: &MemoryDevice) -> u64 {
    let counts = Arc::new(Counts::default());
    let slow = |_| {
        let mut device = Hooked::counting(device, false, &counts);
        device.flush_takes = A_MOMENT;
        assemble(vec![Arc::new(device) as _]).unwrap()
    };
    let bodies: Vec<_> = (0..processes).map(slow).collect();
    let volumes = open(&bodies);
    counts.take();
    std::thread::scope(|scope| {
        for (number, volume) in (0..).zip(&volumes) {
            scope.spawn(move || {
                for round in 0..rounds {
                    write(volume, number * 8 + round % 8);
                    volume.flush().unwrap();
                }
            });
        }
    });
    counts.flushes()
}

#[test]
fn many_who_flush_share_flushes() {
    let device = &new_volume(1, Arrangement::Striped, 128)[0];
    let (processes, rounds) = (16, 20);
    let flushes = flushes_of(processes, rounds, device);
    let calls = u64::from(processes) * rounds;
    println!("{calls} calls, {flushes} flushes");
    // Each is shared by those who wait for the one before it: about half of all at least.
    assert!(flushes > 0 && flushes * 3 < calls, "{calls} calls, {flushes} flushes");
}

/// The device as processes have it: what they do is logged, and flushes take a moment.
fn through(device: Arc<FileDevice>) -> io::Result<Arc<dyn Device>> {
    let mut device = Hooked::over(Log::beside(device)?, false);
    device.flush_takes = A_MOMENT;
    Ok(Arc::new(device))
}

const PROCESSES: u64 = 16;
const ROUNDS: u64 = 20;

/// What children do: they write and flush when all are there.
#[test]
fn as_child() {
    let Some(words) = opening::role() else {
        return println!("only for children");
    };
    let [_, directory, _, path, number] = &words[..] else { panic!("{words:?}") };
    let options = OpenOptions { directory: directory.into(), through, ..OpenOptions::default() };
    let volume = TestVolume::open(&[path], &options).unwrap();
    let here = |name: &str| Path::new(directory).join(name);
    std::fs::write(here(&format!("ready-{number}")), []).unwrap();
    await_file(&here("go"));
    for round in 0..ROUNDS {
        write(&volume, number.parse::<u64>().unwrap() * 8 + round % 8);
        volume.flush().unwrap();
    }
    volume.close().unwrap();
}

fn await_file(path: &Path) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < limit, "{}", path.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn processes_share_flushes() {
    let place = Place::new(1, 128);
    Log::begin(&place.paths).unwrap();
    let start = |number: u64| {
        let mut role = place.role("flush");
        role.push(number.to_string());
        opening::start(&role)
    };
    let children: Vec<_> = (0..PROCESSES).map(start).collect();
    let here = |name: &str| place.options.directory.join(name);
    (0..PROCESSES).for_each(|number| await_file(&here(&format!("ready-{number}"))));
    std::fs::write(here("go"), []).unwrap();
    for child in children {
        assert!(opening::ends_well(child));
    }
    let log = Log::load(&Log::directory(place.paths[0].parent().unwrap())).unwrap();
    let flushes = log.iter().filter(|(.., event)| matches!(event, Event::Flush { .. })).count();
    let calls = PROCESSES * ROUNDS;
    println!("{calls} calls of {PROCESSES} processes, {flushes} flushes");
    assert!(flushes as u64 * 2 < calls, "{calls} calls, {flushes} flushes");
}

#[test]
fn one_alone_flushes_as_often_as_it_is_asked() {
    let device = &new_volume(1, Arrangement::Striped, 128)[0];
    assert_eq!(flushes_of(1, 20, device), 20);
}

/// The device of the volume that was opened last.
static LAST: Mutex<Option<Arc<Hooked>>> = Mutex::new(None);

fn noted(device: Arc<FileDevice>) -> io::Result<Arc<dyn Device>> {
    let device = Arc::new(Hooked::over(device, false));
    *LAST.lock().unwrap() = Some(Arc::clone(&device));
    Ok(device)
}

#[test]
fn a_volume_that_has_failed_is_not_joined_but_recovered_when_all_have_gone() {
    let mut place = Place::new(1, 64);
    place.options.patience = Duration::from_millis(50);
    let options = OpenOptions { through: noted, ..place.options.clone() };
    let volume = TestVolume::open(&place.paths, &options).unwrap();
    write(&volume, 0);
    volume.flush().unwrap();
    write(&volume, 1);
    let device = LAST.lock().unwrap().take().unwrap();
    device.in_next_flush(|| Err(io::Error::from_raw_os_error(libc::EIO)));
    assert!(volume.flush().is_err());
    assert!(matches!(place.open(), Err(Error::Failed { .. })));
    drop((volume, device));
    let volume = place.open().unwrap();
    volume.flush().unwrap();
    assert_eq!(volume.allocated(0).unwrap().map(|(block, _)| block), Some(0));
    volume.close().unwrap();
}

#[test]
fn who_flushes_is_told_once_when_the_devices_are() {
    let ([device, _], [one, _]) = two();
    let mut told = 0;
    write(&one, 0);
    one.flush_telling(|| {
        told += 1;
        assert_eq!(device.counts.flushes(), 0);
    })
    .unwrap();
    assert_eq!((told, device.counts.flushes()), (1, 1));
    one.flush_telling(|| told += 1).unwrap();
    assert_eq!(told, 1, "there was nothing to flush");
}
