//! What stands on the medium of a small volume: looked for, and changed with right checksums.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use conquest_flash::device::{Device, MemoryDevice};
use conquest_flash::{Error, Result, Volume};
use conquest_format::volume::{ANCHORS, Bind, Packet, Root};

use crate::volumes::{self, Model, TestVolume, UNIT, body, region};

/// Where segments begin, and units of each.
const START: u64 = 65_536;
pub const SEGMENT: u64 = 16;
/// Units of all segments.
pub const END: u64 = 100 * SEGMENT;

/// What checksums of these volumes are bound to.
pub fn bind() -> Bind {
    Bind::new(*b"a volume to test")
}

pub fn unit_at(device: &MemoryDevice, place: u64) -> Vec<u8> {
    let mut unit = vec![0; UNIT as usize];
    device.read(START + place * UNIT, &mut unit).unwrap();
    unit
}

pub fn put_unit(device: &MemoryDevice, place: u64, unit: &[u8]) {
    device.write(START + place * UNIT, unit).unwrap();
}

/// All roots, and where they stand.
pub fn roots(device: &MemoryDevice) -> Vec<(u64, Root)> {
    let at = |place| Some((place, Root::from_unit(bind(), &unit_at(device, place))?));
    (0..ANCHORS * SEGMENT).filter_map(at).collect()
}

/// The newest root is otherwise, in both of its places.
pub fn change_root(device: &MemoryDevice, change: impl Fn(&mut Root)) {
    let newest = roots(device).iter().map(|(_, root)| root.sequence).max().unwrap();
    for (place, mut root) in roots(device).into_iter().filter(|(_, it)| it.sequence == newest) {
        change(&mut root);
        let mut unit = vec![0; UNIT as usize];
        root.fill(bind(), &mut unit);
        put_unit(device, place, &unit);
    }
}

/// The packets of the newest life on a device of 100 segments, in their order.
pub fn packets(device: &MemoryDevice) -> Vec<Packet> {
    let newest = roots(device).into_iter().max_by_key(|(_, root)| root.sequence).unwrap().1;
    let life = newest.lives.last().unwrap().life;
    let at = |place| Packet::from_unit(bind(), &unit_at(device, place));
    let found = (0..END).filter_map(at).filter(|packet| packet.life == life);
    let mut packets: Vec<_> = found.collect();
    packets.sort_by_key(|packet| packet.number);
    packets
}

/// What recovering the volume on a copy of `device` comes to, after `change`.
pub fn after(device: &MemoryDevice, change: impl FnOnce(&MemoryDevice)) -> Result<TestVolume> {
    let copy = volumes::device(100);
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    copy.write(0, &bytes).unwrap();
    change(&copy);
    let body = body(&copy);
    Volume::recover(region(&body), &body)
}

#[track_caller]
pub fn refused(outcome: Result<TestVolume>, wanted: &str) {
    match outcome {
        Err(Error::Unreadable { what, .. }) => assert_eq!(what, wanted),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was opened"),
    }
}

/// A volume whose stream is in some segments, and of which all is flushed.
pub fn flushed() -> (MemoryDevice, Model) {
    let device = volumes::device(100);
    let volume = volumes::recovered(&device);
    let mut model = Model::default();
    for number in 0..30 {
        volume.write(number * 8, &model.write(number * 8, 8, number)).unwrap();
        volume.flush().unwrap();
    }
    (device, model)
}
