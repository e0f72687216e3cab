//! Writes that are durable by themselves, on devices that have FUA: in place of a flush where there
//! is nothing else to flush.
#![allow(clippy::unwrap_used, clippy::panic)]

mod hooked;
mod volumes;

use std::io;
use std::sync::Arc;

use conquest_flash::device::{
    Device, Faults, Faulty, Inset, Limits, MemoryDevice, Mirrored, Striped, Work,
};
use conquest_flash::{Error, Job, Request, assemble};
use conquest_format::volume::Arrangement;
use conquest_uring::Buffer;
use hooked::{Hooked, new_volume, open};
use volumes::{TestVolume, UNIT};

fn write(volume: &TestVolume, unit: u64, units: u64) {
    volume.write(unit * 8, &vec![unit as u8 + 1; (units * UNIT) as usize]).unwrap();
}

/// The volume on devices that have FUA, if so said, by one process; and the devices.
fn volume(arrangement: Arrangement, fua: &[bool]) -> (Vec<Arc<Hooked>>, Arc<TestVolume>) {
    let devices = new_volume(fua.len(), arrangement, 128);
    let hooked: Vec<_> =
        devices.iter().zip(fua).map(|(device, &fua)| Hooked::new(device, fua)).collect();
    let body = assemble(hooked.iter().map(|device| Arc::clone(device) as _).collect()).unwrap();
    let volume = open(&[body]).pop().unwrap();
    counts(&hooked);
    (hooked, volume)
}

/// Writes, durable ones, and flushes of each, since they were asked for.
fn counts(devices: &[Arc<Hooked>]) -> Vec<(u64, u64, u64)> {
    devices.iter().map(|device| device.counts.take()).collect()
}

#[test]
fn a_small_write_that_is_flushed_is_one_request() {
    let (devices, volume) = volume(Arrangement::Striped, &[true]);
    for unit in 0..10 {
        write(&volume, unit, 1);
        volume.flush().unwrap();
        assert_eq!(counts(&devices), [(0, 1, 0)]);
        // There is nothing more to be done.
        volume.flush().unwrap();
        assert_eq!(counts(&devices), [(0, 0, 0)]);
    }
    // What is moved was flushed, and so are trims.
    volume.move_blocks(0, 800, 16).unwrap();
    volume.trim(16, 8).unwrap();
    volume.flush().unwrap();
    assert_eq!(counts(&devices), [(0, 1, 0)]);
}

#[test]
fn without_fua_it_is_flushed() {
    let (devices, volume) = volume(Arrangement::Striped, &[false]);
    write(&volume, 0, 1);
    volume.flush().unwrap();
    assert_eq!(counts(&devices), [(1, 0, 1)]);
}

#[test]
fn payload_with_room_of_its_own_is_flushed() {
    let (devices, volume) = volume(Arrangement::Striped, &[true]);
    write(&volume, 0, 64);
    write(&volume, 100, 1);
    volume.flush().unwrap();
    let [(_, durable, flushes)] = counts(&devices)[..] else { panic!() };
    assert_eq!((durable, flushes), (0, 1));
    // It is, by now.
    volume.move_blocks(0, 1600, 512).unwrap();
    write(&volume, 100, 1);
    volume.flush().unwrap();
    assert_eq!(counts(&devices), [(0, 1, 0)]);
}

#[test]
fn packets_that_others_have_written_are_flushed() {
    let devices = new_volume(1, Arrangement::Striped, 64);
    let hooked = [Hooked::new(&devices[0], true), Hooked::new(&devices[0], true)];
    let bodies = hooked.each_ref().map(|device| assemble(vec![Arc::clone(device) as _]).unwrap());
    let volumes = open(&bodies);
    counts(&hooked);
    let mut queue = volumes[0].queue(4).unwrap();
    let mut buffer = Buffer::new(UNIT as usize).unwrap();
    buffer.fill(1);
    queue.submit(Request { tag: 1, block: 0, job: Job::Write(buffer) }).unwrap();
    let done = queue.wait(1).unwrap();
    assert!(done[0].outcome.is_ok());
    // It is on the device, but nobody has flushed it.
    write(&volumes[1], 1, 1);
    volumes[1].flush().unwrap();
    assert_eq!(counts(&hooked), [(1, 0, 0), (1, 0, 1)]);
    write(&volumes[1], 2, 1);
    volumes[1].flush().unwrap();
    assert_eq!(counts(&hooked), [(0, 0, 0), (0, 1, 0)]);
}

#[test]
fn packets_apart_from_each_other_are_flushed() {
    let (devices, volume) = volume(Arrangement::Striped, &[true]);
    let mut kinds = [false; 2];
    for round in 0..40 {
        write(&volume, round, 6);
        volume.flush().unwrap();
        match counts(&devices)[..] {
            [(0, 1, 0)] => kinds[0] = true,
            // The packet did not fit into the rest of its segment.
            [(writes, 0, 1)] if writes > 1 => kinds[1] = true,
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(kinds, [true; 2]);
}

#[test]
fn all_members_of_a_mirror_have_to_have_it() {
    for (fua, expected) in [
        ([true, true], [(0, 1, 0); 2]),
        ([true, false], [(1, 0, 1); 2]),
        ([false, true], [(1, 0, 1); 2]),
    ] {
        let (devices, volume) = volume(Arrangement::Mirrored, &fua);
        write(&volume, 0, 1);
        volume.flush().unwrap();
        assert_eq!(counts(&devices), expected);
    }
    let (devices, volume) = volume(Arrangement::Striped, &[true, true]);
    write(&volume, 0, 1);
    volume.flush().unwrap();
    let mut each = counts(&devices);
    each.sort_unstable();
    assert_eq!(each, [(0, 0, 0), (0, 1, 0)]);
}

#[test]
fn a_root_says_first_which_members_lack_it() {
    let (devices, volume) = volume(Arrangement::Mirrored, &[true, true]);
    write(&volume, 0, 1);
    let (asked, root) = (Arc::clone(&volume), Arc::clone(&devices[0]));
    devices[1].in_next_write(move || {
        root.in_next_write(move || {
            let stream = asked.info().unwrap().stream;
            assert!(stream.durable < stream.open, "nothing says yet which member lacks it");
            Ok(())
        });
        Err(io::Error::from_raw_os_error(libc::EIO))
    });
    volume.flush().unwrap();
    let info = volume.info().unwrap();
    assert_eq!((info.failed, info.stream.durable), (2, info.stream.open));
    // The packet; twice a root, and that it is durable.
    assert_eq!(counts(&devices), [(2, 1, 1), (0, 1, 0)]);
    // The other one alone.
    write(&volume, 1, 1);
    volume.flush().unwrap();
    assert_eq!(counts(&devices), [(0, 1, 0), (0, 0, 0)]);
}

#[test]
fn one_that_fails_is_made_again() {
    let (devices, volume) = volume(Arrangement::Striped, &[true]);
    write(&volume, 0, 1);
    devices[0].in_next_write(|| Err(io::Error::from_raw_os_error(libc::EIO)));
    assert!(matches!(volume.flush(), Err(Error::Device { action: "write", .. })));
    assert_eq!(counts(&devices), [(0, 1, 1)]);
    volume.flush().unwrap();
    assert_eq!(counts(&devices), [(0, 1, 0)]);
}

#[test]
fn one_after_which_flushes_fail_fails_the_volume() {
    let (devices, volume) = volume(Arrangement::Striped, &[true]);
    write(&volume, 0, 1);
    let device = Arc::clone(&devices[0]);
    devices[0].in_next_write(move || {
        device.in_next_flush(|| Err(io::Error::from_raw_os_error(libc::EIO)));
        Err(io::Error::from_raw_os_error(libc::EIO))
    });
    assert!(matches!(volume.flush(), Err(Error::Device { action: "flush", .. })));
    assert!(matches!(volume.flush(), Err(Error::Failed { .. })));
    assert!(matches!(volume.write(0, &[0; UNIT as usize]), Err(Error::Failed { .. })));
}

const LIMITS: Limits = Limits { is_cached: true, ..Limits::of_blocks(512) };

/// What is made of `count` devices with FUA, of all that count.
fn members(fua: &[bool]) -> (Vec<Arc<Hooked>>, Vec<Arc<dyn Device>>) {
    let device =
        |&fua: &bool| Hooked::new(&MemoryDevice::new("member", 1 << 20, LIMITS).unwrap(), fua);
    let hooked: Vec<_> = fua.iter().map(device).collect();
    let members = hooked.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    (hooked, members)
}

fn expect(device: &dyn Device, at: u64, bytes: &[u8]) {
    let mut found = vec![0; bytes.len()];
    device.read(at, &mut found).unwrap();
    assert_eq!(found, bytes);
}

#[test]
fn devices_of_several_have_what_their_members_have() {
    let bytes = [7; 8192];
    let (hooked, all) = members(&[true, true]);
    let striped = Striped::new(all.clone(), 8192).unwrap();
    assert!(striped.limits().fua);
    striped.write_durable(8192, &bytes).unwrap();
    assert_eq!(counts(&hooked), [(0, 0, 0), (0, 1, 0)]);
    striped.write_durable(4096, &bytes).unwrap();
    assert_eq!(counts(&hooked), [(1, 0, 1), (1, 0, 1)]);
    expect(&striped, 4096, &bytes);
    let mirrored = Mirrored::new(all).unwrap();
    assert!(mirrored.limits().fua);
    mirrored.write_durable(512, &bytes).unwrap();
    assert_eq!(counts(&hooked), [(0, 1, 0); 2]);
    let inset = Inset::new(Arc::new(mirrored), 4096, 16_384);
    assert!(inset.limits().fua);
    inset.write_durable(512, &bytes).unwrap();
    assert_eq!(counts(&hooked), [(0, 1, 0); 2]);
    expect(&**hooked.first().unwrap(), 4608, &bytes);
    for device in [&striped as &dyn Device, &inset] {
        let end = device.len();
        assert!(device.write_durable(end - 4096, &bytes).is_err());
        assert!(device.write_durable(511, &bytes).is_err());
    }
    let (_, all) = members(&[true, false]);
    assert!(!Striped::new(all.clone(), 8192).unwrap().limits().fua);
    assert!(!Mirrored::new(all).unwrap().limits().fua);
}

#[test]
fn faults_are_those_of_the_requests_that_are_made() {
    for fua in [true, false] {
        let faults = Arc::new(Faults::default());
        let memory = MemoryDevice::new("memory", 1 << 20, Limits { fua, ..LIMITS }).unwrap();
        let device = Faulty::new(memory, Arc::clone(&faults));
        device.write_durable(0, &[1; 4096]).unwrap();
        let made = [Work::Write, Work::Flush].map(|work| faults.made(work));
        assert_eq!(made, [1, u64::from(!fua)]);
        faults.fail(Work::Write, 0, libc::EIO);
        device.write_durable(0, &[2; 4096]).unwrap_err();
        expect(&device, 0, &[[2; 2048], [1; 2048]].concat());
        faults.fail(Work::Flush, 0, libc::EIO);
        assert_eq!(device.write_durable(0, &[3; 4096]).is_ok(), fua);
        expect(&device, 0, &[3; 4096]);
    }
}

#[test]
fn a_member_that_is_brought_up_to_date_gets_it_from_all() {
    let members = new_volume(2, Arrangement::Mirrored, 128);
    let hooked = || members.iter().map(|member| Hooked::new(member, true)).collect::<Vec<_>>();
    let (devices, others) = (hooked(), hooked());
    let body = |devices: &[Arc<Hooked>]| {
        assemble(devices.iter().map(|device| Arc::clone(device) as _).collect()).unwrap()
    };
    let volumes = open(&[body(&devices), body(&others)]);
    write(&volumes[0], 0, 1);
    devices[1].in_next_write(|| Err(io::Error::from_raw_os_error(libc::EIO)));
    volumes[0].flush().unwrap();
    // The other one knows that it has failed.
    write(&volumes[1], 200, 64);
    volumes[1].flush().unwrap();
    let mut unit = 0;
    let restored = volumes[0].restore(&mut |_, _| {
        unit += 1;
        write(&volumes[1], unit, 1);
        counts(&others);
        volumes[1].flush().unwrap();
        assert_eq!(counts(&others), [(0, 1, 0); 2], "{unit}");
        true
    });
    assert_eq!(restored.unwrap(), 2);
    assert!(unit > 1, "{unit}");
}
