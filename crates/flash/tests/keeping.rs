//! What is done in the background when a device fails: nobody waits for it for good, and nothing
//! that was written is lost.
#![allow(clippy::unwrap_used)]

mod meanwhile;
mod volumes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use conquest_flash::device::{Device, Faults, Faulty, MemoryDevice, Work};
use conquest_flash::{Error, Volume, assemble};
use conquest_testkit::Rng;
use conquest_testkit::flash::Watched;
use meanwhile::watched;
use rustix::io::Errno;
use volumes::{Model, TestVolume, device, recovered, region};

const SEGMENTS: u64 = 256;
/// Units that are written: most of what the volume takes.
const UNITS: u64 = 3000;

/// The volume on `device`, as after a restart of the machine, with requests that `faults` fails.
fn failing(device: &MemoryDevice, faults: &Arc<Faults>) -> TestVolume {
    let faulty: Arc<dyn Device> = Arc::new(Faulty::new(device.as_other(), Arc::clone(faults)));
    let body = assemble(vec![faulty]).unwrap();
    Volume::recover(region(&body), &body).unwrap()
}

fn write(volume: &TestVolume, model: &mut Model, unit: u64, number: u64) -> Result<(), Error> {
    volume.write(unit * 8, &model.write(unit * 8, 8, number))
}

/// A volume that is nearly full, flushed, and with a keeper soon has to be cleaned.
fn filled(faults: &Arc<Faults>) -> (MemoryDevice, TestVolume, Model) {
    let device = device(SEGMENTS);
    let volume = failing(&device, faults);
    let mut model = Model::default();
    (0..UNITS).for_each(|unit| write(&volume, &mut model, unit, unit).unwrap());
    volume.flush().unwrap();
    (device, volume, model)
}

#[test]
fn a_flush_in_the_background_that_fails_has_failed_for_all() {
    for nth in 0..6 {
        let faults = Arc::new(Faults::default());
        let (_device, volume, mut model) = filled(&faults);
        let mut rng = Rng::new(nth);
        let error = volume.with_keeper(|| {
            // Nobody flushes but who makes space.
            faults.fail(Work::Flush, nth, Errno::IO.raw_os_error());
            (0..20 * UNITS)
                .find_map(|number| write(&volume, &mut model, rng.below(UNITS), number).err())
        });
        let error = error.unwrap();
        assert!(matches!(error, Error::Failed { .. } | Error::Device { .. }), "{nth}: {error}");
        assert!(matches!(volume.flush(), Err(Error::Failed { .. })), "{nth}");
    }
}

#[test]
fn a_write_in_the_background_that_fails_is_made_again() {
    for seed in 0..6 {
        let faults = Arc::new(Faults::default());
        let (device, volume, mut model) = filled(&faults);
        let mut rng = Rng::new(seed);
        volume.with_keeper(|| {
            for number in 0..2 * UNITS {
                if number.is_multiple_of(UNITS / 4) {
                    faults.fail(Work::Write, rng.below(40), Errno::IO.raw_os_error());
                }
                // Who writes a packet that can't be written is told so, and nothing is lost.
                let unit = rng.below(UNITS);
                let mut outcome = write(&volume, &mut model, unit, number);
                for _ in 0..8 {
                    if outcome.is_ok() {
                        break;
                    }
                    outcome = write(&volume, &mut model, unit, number);
                }
                outcome.unwrap();
            }
        });
        while volume.flush().is_err() {
            assert!(!matches!(volume.flush(), Err(Error::Failed { .. })), "{seed}");
        }
        model.compare(&volume, UNITS * 8, "kept");
        drop(volume);
        model.compare(&recovered(&device), UNITS * 8, "a restart");
    }
}

/// Notes when somebody else than thread `me` reads.
fn note_read_of_others(device: &Arc<Watched>, me: ThreadId, is_seen: &Arc<AtomicBool>) {
    let (again, seen) = (Arc::clone(device), Arc::clone(is_seen));
    device.in_next(Work::Read, 0, move || match thread::current().id() == me {
        true => note_read_of_others(&again, me, &seen),
        false => seen.store(true, Ordering::SeqCst),
    });
}

#[test]
fn when_one_keeper_has_ended_there_can_be_another_one() {
    let meanwhile = watched(&device(SEGMENTS));
    let (volume, _) = meanwhile::open(Arc::clone(&meanwhile) as _, None);
    let (mut model, mut rng) = (Model::default(), Rng::new(9));
    (0..UNITS).for_each(|unit| write(&volume, &mut model, unit, unit).unwrap());
    for round in 0..3 {
        let is_seen = Arc::new(AtomicBool::new(false));
        note_read_of_others(&meanwhile, thread::current().id(), &is_seen);
        volume.with_keeper(|| {
            let mut number = 0;
            // Who writes whole units reads nothing but to make space.
            while !is_seen.load(Ordering::SeqCst) {
                assert!(number < 20 * UNITS, "{round}: nobody else has made space");
                write(&volume, &mut model, rng.below(UNITS), number).unwrap();
                number += 1;
            }
        });
    }
    model.compare(&volume, UNITS * 8, "kept");
}

#[test]
fn who_waits_for_the_keeper_finds_that_it_has_done_all_there_is() {
    let faults = Arc::new(Faults::default());
    let (_device, volume, mut model) = filled(&faults);
    let made = || [Work::Read, Work::Write, Work::Flush].map(|work| faults.made(work));
    let mut rng = Rng::new(11);
    volume.with_keeper(|| {
        for number in 0..2 * UNITS {
            write(&volume, &mut model, rng.below(UNITS), number).unwrap();
            volume.await_keeper();
            let before = made();
            thread::sleep(Duration::from_micros(200));
            assert_eq!(made(), before, "{number}");
        }
    });
    // Nobody is waited for where there is none, whatever it was last called for.
    for round in 0..20 {
        volume.with_keeper(|| {
            let times = 100 + round;
            (0..times).for_each(|n| write(&volume, &mut model, rng.below(UNITS), n).unwrap());
        });
        volume.await_keeper();
    }
}

#[test]
fn a_keeper_writes_checkpoints_before_others_have_to() {
    let faults = Arc::new(Faults::default());
    let device = device(SEGMENTS);
    let volume = failing(&device, &faults);
    let stream = || volume.info().unwrap().stream;
    volume.with_keeper(|| {
        let first = stream().first;
        // One is due when there are 256 packets; who comes by then goes on.
        for number in 0.. {
            write(&volume, &mut Model::default(), number % 8, number).unwrap();
            volume.flush().unwrap();
            let now = stream();
            if now.open > first + 260 {
                break;
            }
        }
        volume.await_keeper();
        assert!(stream().first > first, "{:?}", stream());
    });
}

#[test]
fn a_keeper_may_end_as_soon_as_it_has_begun() {
    let volume = volumes::recovered(&device(SEGMENTS));
    (0..5).for_each(|_| volume.with_keeper(|| ()));
}
