//! Full volumes that are cut off again and again: each time there is space to go on.
#![allow(clippy::unwrap_used, clippy::panic)]

mod volumes;

use std::sync::Arc;

use conquest_flash::device::{Device, Faults, Faulty, Limits, MemoryDevice, Work};
use conquest_flash::{Error, NewVolume, Volume, assemble, create};
use conquest_format::volume::{Arrangement, LIVES_MAX};
use conquest_testkit::Rng;
use volumes::{Model, TestVolume, device, recovered, region};

/// A full volume of so many segments, and what is in it: the number of units, too.
fn full(segments: u64) -> (MemoryDevice, Model, u64) {
    let device = device(segments);
    let volume = recovered(&device);
    let mut model = Model::default();
    for unit in 0.. {
        let mut next = model.clone();
        match volume.write(unit * 8, &next.write(unit * 8, 8, unit)) {
            Ok(()) => model = next,
            Err(Error::NoSpace { .. }) => {
                volume.flush().unwrap();
                return (device, model, unit);
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

fn overwrite(volume: &TestVolume, model: &mut Model, unit: u64, number: u64) -> Result<(), Error> {
    let mut next = model.clone();
    volume.write(unit * 8, &next.write(unit * 8, 8, number))?;
    *model = next;
    Ok(())
}

#[test]
fn restarts_use_no_space_up() {
    let (device, mut model, units) = full(100);
    let mut rng = Rng::new(1);
    for number in units..units + 200 {
        let volume = recovered(&device);
        let unit = rng.below(units);
        overwrite(&volume, &mut model, unit, number).unwrap_or_else(|e| panic!("{number}: {e}"));
        volume.flush().unwrap();
    }
    let volume = recovered(&device);
    model.compare(&volume, units * 8, "after all");
    (0..units).for_each(|unit| overwrite(&volume, &mut model, unit, 1).unwrap());
    model.compare(&volume, units * 8, "overwritten");
}

/// Each life writes little, and no checkpoint is due for long.
#[test]
fn lives_may_be_more_than_a_root_takes() {
    let device = device(220);
    let mut model = Model::default();
    let mut checkpoints = 0;
    for number in 0..LIVES_MAX as u64 + 2 {
        let volume = recovered(&device);
        overwrite(&volume, &mut model, number, number).unwrap();
        volume.flush().unwrap();
        checkpoints += u64::from(volume.info().unwrap().written.checkpoints > 0);
    }
    model.compare(&recovered(&device), 1000, "after all");
    assert_eq!(checkpoints, 1);
}

/// Opens the volume on `device` and overwrites until the device fails, at write number `writes`.
fn go_on_until(device: &MemoryDevice, writes: u64, units: u64, rng: &mut Rng) -> Error {
    let faults = Arc::new(Faults::default());
    // From then on: what has failed once is tried elsewhere.
    (writes..writes + 64).for_each(|number| faults.fail(Work::Write, number, libc::EIO));
    let faulty: Arc<dyn Device> = Arc::new(Faulty::new(device.as_other(), faults));
    let opened = assemble(vec![faulty]).and_then(|body| Volume::recover(region(&body), &body));
    let volume = match opened {
        Ok(volume) => volume,
        Err(error) => return error,
    };
    loop {
        let bytes = [rng.word() as u8; 4096].repeat(1 + rng.below(30) as usize);
        let count = bytes.len() as u64 / 4096;
        let written = volume.write(rng.below(units - count) * 8, &bytes);
        let flushed = if rng.chance(1, 4) { volume.flush() } else { Ok(()) };
        if let Err(error) = written.and(flushed) {
            return error;
        }
    }
}

#[test]
fn who_is_cut_off_again_and_again_has_space_to_go_on() {
    for seed in 0..4 {
        let (device, _, units) = full(100);
        let mut rng = Rng::new(seed);
        for round in 0..400 {
            let most = if rng.chance(3, 4) { 12 } else { 200 };
            let error = go_on_until(&device, rng.below(most), units, &mut rng);
            let is_the_device = matches!(error, Error::Device { .. } | Error::Failed { .. });
            assert!(is_the_device, "seed {seed}, round {round}: {error}");
        }
        let volume = recovered(&device);
        (0..units).for_each(|unit| volume.write(unit * 8, &[7; 4096]).unwrap());
    }
}

/// A volume whose packets are few, but long.
fn of_large_segments() -> MemoryDevice {
    let device = MemoryDevice::new("memory", (2 << 16) + (200 << 18), Limits::of_blocks(512));
    let device = device.unwrap();
    let (uuid, arrangement) = (*b"a volume to test", Arrangement::Striped);
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(64) };
    create(&[Arc::new(device.as_other())], &new).unwrap();
    device
}

#[test]
fn a_checkpoint_comes_when_the_stream_has_taken_much() {
    let volume = recovered(&of_large_segments());
    for number in 0..300 {
        volume.write(0, &[number as u8; 65_536]).unwrap();
    }
    let info = volume.info().unwrap();
    assert!(info.stream.open < 250 && info.written.checkpoints > 0, "{info:?}");
}

/// Else opening it would take longer after each.
#[test]
fn what_earlier_lives_have_written_makes_a_checkpoint_due_as_well() {
    let device = of_large_segments();
    let wrote_one = |_| {
        let volume = recovered(&device);
        for number in 0..66 {
            volume.write(0, &[number as u8; 65_536]).unwrap();
        }
        volume.flush().unwrap();
        let info = volume.info().unwrap();
        // So many packets make none due.
        assert!(info.stream.open < 256, "{info:?}");
        info.written.checkpoints > 0
    };
    let wrote: Vec<bool> = (0..6).map(wrote_one).collect();
    assert_eq!(wrote, [false, false, false, true, false, false]);
}

#[test]
fn what_a_restart_reads_takes_few_requests() {
    let device = device(600);
    let volume = recovered(&device);
    let mut model = Model::default();
    for number in 0..1500 {
        let bytes = model.write(number % 40 * 8, 8, number);
        volume.write(number % 40 * 8, &bytes).unwrap();
        volume.flush().unwrap();
    }
    let packets = volume.info().unwrap().stream;
    drop(volume);
    let faults = Arc::<Faults>::default();
    let watched = Faulty::new(device.as_other(), Arc::clone(&faults));
    let body = assemble(vec![Arc::new(watched)]).unwrap();
    let volume = Volume::recover(region(&body), &body).unwrap();
    let (packets, reads) = (packets.open - packets.first, faults.made(Work::Read));
    assert!(packets > 200 && reads * 2 < packets, "{reads} reads, {packets} packets");
    model.compare(&volume, 320, "read again");
}
