//! Devices in memory, devices of several, and devices with faults.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conquest_flash::device::{
    Device, Faults, Faulty, Geometry, Limits, MemoryDevice, Mirrored, Missing, Nand, Standing,
    Striped, WRITERS, Work,
};
use conquest_format::volume::MIRRORS_MAX;
use conquest_testkit::Rng;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const LIMITS: Limits = Limits::of_blocks(BLOCK as u32);

fn errno<T: std::fmt::Debug>(outcome: io::Result<T>) -> Option<i32> {
    outcome.unwrap_err().raw_os_error()
}

fn memory(len: u64) -> MemoryDevice {
    MemoryDevice::new("memory", len, LIMITS).unwrap()
}

/// A device in memory with faults, and the device itself.
fn faulty(len: u64) -> (Arc<Faulty<MemoryDevice>>, Arc<Faults>, MemoryDevice) {
    let (device, faults) = (memory(len), Arc::new(Faults::default()));
    (Arc::new(Faulty::new(device.clone(), Arc::clone(&faults))), faults, device)
}

fn block(device: &dyn Device, at: u64) -> [u8; BLOCK] {
    let mut found = [0xA5; BLOCK];
    device.read(at, &mut found).unwrap();
    found
}

/// Random operations, compared with a model. Discarding makes zeros, as it does in memory.
fn is_like_a_model(device: &dyn Device, seed: u64, steps: u32) {
    let mut rng = Rng::new(seed);
    let mut model = vec![0; device.len() as usize];
    let step = u64::from(device.limits().block);
    let blocks = device.len() / step;
    for _ in 0..steps {
        let at = rng.below(blocks + 1) * step;
        let most = if rng.chance(1, 20) { blocks } else { 8 };
        let len = (rng.below(most + 1) * step).min(device.len() - at);
        let expected = &mut model[at as usize..(at + len) as usize];
        match rng.below(5) {
            0 | 1 => {
                let bytes: Vec<u8> = (0..len).map(|_| rng.word() as u8).collect();
                device.write(at, &bytes).unwrap();
                expected.copy_from_slice(&bytes);
            }
            2 => {
                device.discard(at, len).unwrap();
                expected.fill(0);
            }
            3 => {
                let mut found = vec![1; len as usize];
                device.read_copy(rng.below(device.copies().into()) as u32, at, &mut found).unwrap();
                assert!(found == expected, "{len} at {at}");
            }
            _ => {
                let mut found = vec![1; len as usize];
                device.read(at, &mut found).unwrap();
                assert!(found == expected, "{len} at {at}");
            }
        }
    }
    device.flush().unwrap();
}

/// What no device takes.
fn keeps_to_limits(device: &dyn Device) {
    let step = device.limits().block as usize;
    let (len, mut memory) = (device.len(), vec![0; 3 * step]);
    let last = len - step as u64;
    for (at, count) in
        [(1, step), (0, step - 1), (len, step), (last, 2 * step), (0_u64.wrapping_sub(1), step)]
    {
        assert_eq!(errno(device.read(at, &mut memory[..count])), Some(libc::EINVAL));
        assert_eq!(errno(device.write(at, &memory[..count])), Some(libc::EINVAL));
        assert_eq!(errno(device.write_durable(at, &memory[..count])), Some(libc::EINVAL));
        assert_eq!(errno(device.discard(at, count as u64)), Some(libc::EINVAL));
        for copy in 0..device.copies() {
            let outcome = device.read_copy(copy, at, &mut memory[..count]);
            assert_eq!(errno(outcome), Some(libc::EINVAL));
            let outcome = device.write_copy(copy, at, &memory[..count]);
            assert_eq!(errno(outcome), Some(libc::EINVAL));
        }
    }
    let outcome = device.read_copy(device.copies(), 0, &mut memory[..step]);
    assert_eq!(errno(outcome), Some(libc::EINVAL));
    let outcome = device.write_copy(device.copies(), 0, &memory[..step]);
    assert_eq!(errno(outcome), Some(libc::EINVAL));
    for outcome in [device.enter(WRITERS), device.is_entered(WRITERS)] {
        assert_eq!(errno(outcome), Some(libc::EINVAL));
    }
}

/// Two openers of one device, and a third one.
fn writers_know_of_each_other(one: Box<dyn Device>, other: &dyn Device, third: &dyn Device) {
    assert!(one.enter(7).unwrap() && one.enter(7).unwrap());
    assert!(!one.is_entered(7).unwrap() && !one.is_anyone_entered().unwrap());
    assert!(other.is_entered(7).unwrap() && !other.is_entered(8).unwrap());
    assert!(!other.enter(7).unwrap() && other.enter(8).unwrap());
    // Who leaves has left even if its files are still in use; nobody leaves for another one.
    other.leave(7).unwrap();
    assert!(other.is_entered(7).unwrap());
    let files = one.files();
    one.leave(7).unwrap();
    one.leave(9).unwrap();
    assert!(!other.is_entered(7).unwrap() && one.enter(7).unwrap());
    drop(files);
    assert!(one.is_anyone_entered().unwrap() && third.is_anyone_entered().unwrap());
    drop(one);
    assert!(!third.is_entered(7).unwrap() && third.is_entered(8).unwrap());
    assert!(other.enter(7).unwrap() && !other.is_anyone_entered().unwrap());
}

// --- memory --------------------------------------------------------------------------------------

#[test]
fn memory_is_a_device() {
    for (seed, limits) in [(1, Limits::of_blocks(512)), (2, LIMITS)] {
        let device = MemoryDevice::new("memory", 3 * MIB + 8192, limits).unwrap();
        assert_eq!(device.limits(), limits);
        assert_eq!((device.len(), device.is_empty(), device.copies()), (3 * MIB + 8192, false, 1));
        keeps_to_limits(&device);
        is_like_a_model(&device, seed, 1000);
        // Clones, and other openers, are the same device.
        device.write(MIB, &[3; BLOCK]).unwrap();
        assert_eq!(block(&device.clone(), MIB), [3; BLOCK]);
        assert_eq!(block(&device.as_other(), MIB), [3; BLOCK]);
    }
    let keeps = MemoryDevice::new("memory", MIB, Limits { discards: false, ..LIMITS }).unwrap();
    keeps.write(0, &[3; BLOCK]).unwrap();
    keeps.discard(0, MIB).unwrap();
    assert_eq!(block(&keeps, 0), [3; BLOCK]);
}

#[test]
fn limits_have_to_make_sense() {
    for limits in [
        Limits::of_blocks(0),
        Limits::of_blocks(768),
        Limits { physical: 512, ..LIMITS },
        Limits { physical: 6144, ..LIMITS },
        Limits { erase: Some(MIB), ..LIMITS },
    ] {
        let refused = MemoryDevice::new("memory", 12 * MIB, limits);
        assert_eq!(errno(refused), Some(libc::EINVAL), "{limits:?}");
    }
    assert_eq!(errno(MemoryDevice::new("memory", MIB + 512, LIMITS)), Some(libc::EINVAL));
    assert!(MemoryDevice::new("memory", 0, LIMITS).unwrap().is_empty());
}

#[test]
fn writers_of_all_kinds_of_devices() {
    let device = memory(MIB);
    // A clone is the same opener, and keeps it.
    let one = device.as_other();
    writers_know_of_each_other(Box::new(one), &device.as_other(), &device);
    let (one, third) = (device.as_other(), device.as_other());
    assert!(one.clone().enter(1).unwrap() && third.is_entered(1).unwrap());
    drop(one);
    assert!(!third.is_anyone_entered().unwrap());

    let nand = Nand::new("nand", Geometry { page: 4096, pages: 4, blocks: 4 }).unwrap();
    writers_know_of_each_other(Box::new(nand.as_other()), &nand.as_other(), &nand);

    let members = [memory(MIB), memory(MIB)];
    let opened = || -> Vec<Arc<dyn Device>> {
        let others = members.iter().map(MemoryDevice::as_other);
        others.map(|member| Arc::new(member) as Arc<dyn Device>).collect()
    };
    let striped = || Striped::new(opened(), 4096).unwrap();
    writers_know_of_each_other(Box::new(striped()), &striped(), &striped());
    let mirrored = || Mirrored::new(opened()).unwrap();
    writers_know_of_each_other(Box::new(mirrored()), &mirrored(), &mirrored());
    // Who has only one of them still has it, and nothing is taken from others before that is over.
    for (device, other) in [
        (Box::new(striped()) as Box<dyn Device>, Box::new(striped()) as Box<dyn Device>),
        (Box::new(mirrored()), Box::new(mirrored())),
    ] {
        let slow = members[1].as_other();
        assert!(slow.enter(9).unwrap());
        assert!(device.is_entered(9).unwrap() && device.is_anyone_entered().unwrap());
        assert!(!device.enter(9).unwrap() && !other.is_entered(8).unwrap());
        assert!(!members[0].is_entered(9).unwrap());
        drop(slow);
        assert!(device.enter(9).unwrap() && !other.enter(9).unwrap());
    }
}

// --- several -------------------------------------------------------------------------------------

fn several(lens: &[u64]) -> (Vec<MemoryDevice>, Vec<Arc<dyn Device>>) {
    let devices: Vec<_> = lens.iter().map(|len| memory(*len)).collect();
    let members = devices.iter().map(|one| Arc::new(one.clone()) as Arc<dyn Device>).collect();
    (devices, members)
}

#[test]
fn striped_devices_are_like_one() {
    for (count, chunk) in [(1, 4096), (2, 4096), (3, 8192), (5, 65_536)] {
        let lens: Vec<u64> = (0..count).map(|at| 5 * 65_536 + at * 4096).collect();
        let (_, members) = several(&lens);
        let striped = Striped::new(members, chunk).unwrap();
        assert_eq!(striped.len(), 5 * 65_536 * count);
        keeps_to_limits(&striped);
        is_like_a_model(&striped, count, 1000);
    }
}

#[test]
fn chunks_are_on_the_members_in_turn() {
    let (devices, members) = several(&[4 * 8192, 3 * 8192 + 4096]);
    let striped = Striped::new(members, 8192).unwrap();
    assert_eq!((striped.len(), striped.name().to_str()), (6 * 8192, Some("memory+memory")));
    for chunk in 0..6_u8 {
        striped.write(u64::from(chunk) * 8192, &[chunk + 1; 8192]).unwrap();
    }
    for chunk in 0..6_u8 {
        let member = &devices[usize::from(chunk) % 2];
        for half in [0, 4096] {
            let found = block(member, u64::from(chunk / 2) * 8192 + half);
            assert_eq!(found, [chunk + 1; BLOCK]);
        }
    }
    // Behind whole rounds, nothing is used, although one of them has more.
    let mut found = [0; BLOCK];
    for at in [6 * 8192, 6 * 8192 - 4096] {
        let len = if at < 6 * 8192 { 8192 } else { 4096 };
        let bytes = vec![7; len];
        assert_eq!(errno(striped.write(at, &bytes)), Some(libc::EINVAL));
        assert_eq!(errno(striped.discard(at, len as u64)), Some(libc::EINVAL));
        assert_eq!(errno(striped.read(at, &mut vec![0; len])), Some(libc::EINVAL));
    }
    assert_eq!(errno(striped.read_copy(0, 6 * 8192, &mut found)), Some(libc::EINVAL));
    assert_eq!(block(&devices[0], 3 * 8192), [0; BLOCK]);
    assert_eq!(block(&striped, 6 * 8192 - 4096), [6; BLOCK]);
    // One chunk of each is enough.
    assert_eq!(Striped::new(several(&[8192, 12_288]).1, 8192).unwrap().len(), 2 * 8192);
    for (chunk, lens) in [
        (2048, &[MIB, MIB][..]),
        (12_288, &[MIB, MIB]),
        (0, &[MIB]),
        (2 * MIB, &[2 * MIB, MIB]),
        (4096, &[]),
    ] {
        let refused = Striped::new(several(lens).1, chunk);
        assert_eq!(refused.err().unwrap().raw_os_error(), Some(libc::EINVAL), "{chunk}");
    }
}

#[test]
fn limits_of_several_are_the_strictest() {
    let (cached, plain) = (
        Limits { is_cached: true, physical: 16_384, discards: false, ..LIMITS },
        Limits { discards: false, ..Limits::of_blocks(512) },
    );
    let member =
        |limits| -> Arc<dyn Device> { Arc::new(MemoryDevice::new("memory", MIB, limits).unwrap()) };
    let (one, other) = (member(cached), member(plain));
    for members in [vec![one.clone(), other.clone()], vec![other, one]] {
        let striped = Striped::new(members.clone(), 16_384).unwrap();
        assert_eq!(striped.limits(), cached);
        assert_eq!(Mirrored::new(members.clone()).unwrap().limits(), cached);
        // A chunk of less than the medium writes at once would damage another one.
        assert!(Striped::new(members, 8192).is_err());
    }
    // One that keeps what it has in a cache, or discards, is enough for all to be so.
    for is_cached in [[true, false], [false, true], [false, false]] {
        for discards in [[true, false], [false, true], [false, false]] {
            let members = [0, 1].map(|at| {
                member(Limits { is_cached: is_cached[at], discards: discards[at], ..LIMITS })
            });
            let limits = Mirrored::new(members.to_vec()).unwrap().limits();
            assert_eq!(limits.is_cached, is_cached.contains(&true));
            assert_eq!(limits.discards, discards.contains(&true));
        }
    }
    let nand = |pages| -> Arc<dyn Device> {
        Arc::new(Nand::new("nand", Geometry { page: 4096, pages, blocks: 8 }).unwrap())
    };
    let striped = Striped::new(vec![nand(4), nand(4)], 32_768).unwrap();
    assert_eq!(striped.limits().erase, Some(16_384));
    assert!(Striped::new(vec![nand(4), nand(4)], 8192).is_err());
    assert!(Striped::new(vec![nand(4), nand(2)], 32_768).is_err());
    assert!(Mirrored::new(vec![nand(4), nand(2)]).is_err());
    // Nor can there be blocks of which only parts are erased.
    assert!(Mirrored::new(vec![nand(4), member(cached)]).is_ok());
    assert!(Mirrored::new(vec![nand(2), member(cached)]).is_err());
}

#[test]
fn an_error_of_a_striped_one_is_told() {
    let (one, faults, _) = faulty(MIB);
    let (other, more, _) = faulty(MIB);
    let striped = Striped::new(vec![one, other], 4096).unwrap();
    faults.fail(Work::Flush, 0, libc::EIO);
    assert_eq!(errno(striped.flush()), Some(libc::EIO));
    assert_eq!(more.made(Work::Flush), 1, "those behind a failed one are flushed, too");
    more.fail(Work::Flush, 0, libc::ENOSPC);
    assert_eq!(errno(striped.flush()), Some(libc::ENOSPC));
    more.vanish();
    assert_eq!(errno(striped.write(0, &[1; 2 * BLOCK])), Some(libc::EIO));
    assert_eq!(errno(striped.read(0, &mut [1; 2 * BLOCK])), Some(libc::EIO));
    assert_eq!(errno(striped.discard(0, 8192)), Some(libc::EIO));
    striped.write(0, &[1; BLOCK]).unwrap();
}

#[test]
fn mirrored_devices_are_like_one() {
    for count in [1, 2, 3] {
        let (devices, members) = several(&[MIB, 2 * MIB, 3 * MIB][..count]);
        let mirrored = Mirrored::new(members).unwrap();
        assert_eq!((mirrored.len(), mirrored.copies()), (MIB, count as u32));
        keeps_to_limits(&mirrored);
        is_like_a_model(&mirrored, count as u64, 500);
        mirrored.write(8192, &[9; BLOCK]).unwrap();
        assert!(devices.iter().all(|device| block(device, 8192) == [9; BLOCK]));
        assert!(mirrored.failed_members().is_empty());
    }
    assert!(Mirrored::new(Vec::new()).is_err());
    // Stripes of mirrors have the copies that all of them have.
    let pair = |count| Arc::new(Mirrored::new(several(&vec![MIB; count]).1).unwrap());
    let striped = Striped::new(vec![pair(2), pair(3)], 4096).unwrap();
    assert_eq!((striped.copies(), striped.len()), (2, 2 * MIB));
    assert_eq!(errno(striped.read_copy(2, 4096, &mut [0; BLOCK])), Some(libc::EINVAL));
    is_like_a_model(&striped, 1, 500);
}

#[test]
fn copies_of_a_striped_one_are_those_of_its_members() {
    let (devices, members) = several(&[MIB; 4]);
    let mut pairs = members
        .chunks(2)
        .map(|pair| -> Arc<dyn Device> { Arc::new(Mirrored::new(pair.to_vec()).unwrap()) });
    let striped = Striped::new(pairs.by_ref().collect(), 4096).unwrap();
    for (device, number) in devices.iter().zip(1..) {
        device.write(0, &[number; BLOCK]).unwrap();
    }
    for (copy, bytes) in [(0, [1, 3]), (1, [2, 4])] {
        let mut found = [0; 2 * BLOCK];
        striped.read_copy(copy, 0, &mut found).unwrap();
        assert_eq!([found[0], found[BLOCK]], bytes);
    }
}

#[test]
fn reads_are_spread_and_go_on_with_the_next() {
    let (one, faults, first) = faulty(4 * MIB);
    let (other, more, second) = faulty(4 * MIB);
    let mirrored = Mirrored::new(vec![one, other]).unwrap();
    // What differs shows who was read.
    for (at, member) in [(0, 1), (MIB, 2), (2 * MIB, 1), (3 * MIB, 2)] {
        first.write(at, &[1; BLOCK]).unwrap();
        second.write(at, &[2; BLOCK]).unwrap();
        assert_eq!(block(&mirrored, at), [member; BLOCK]);
        for (copy, member) in [(0, 1), (1, 2)] {
            let mut found = [0; BLOCK];
            mirrored.read_copy(copy, at, &mut found).unwrap();
            assert_eq!(found, [member; BLOCK]);
        }
    }
    faults.fail(Work::Read, 0, libc::EIO);
    more.fail(Work::Read, 1, libc::EIO);
    assert_eq!(block(&mirrored, 0), [2; BLOCK]);
    assert_eq!(block(&mirrored, MIB), [1; BLOCK]);
    assert!(mirrored.failed_members().is_empty(), "a sector that is bad is not a device");
    faults.fail(Work::Read, 0, libc::EIO);
    more.fail(Work::Read, 0, libc::EIO);
    assert_eq!(errno(mirrored.read(0, &mut [0; BLOCK])), Some(libc::EIO));
    faults.fail(Work::Read, 0, libc::ENODATA);
    assert_eq!(errno(mirrored.read_copy(0, 0, &mut [0; BLOCK])), Some(libc::ENODATA));
}

#[test]
fn who_misses_something_has_failed() {
    for work in [Work::Write, Work::Flush, Work::Discard] {
        let (one, faults, first) = faulty(2 * MIB);
        let (other, more, _) = faulty(2 * MIB);
        let mirrored = Mirrored::new(vec![one, other]).unwrap();
        mirrored.write(0, &[1; BLOCK]).unwrap();
        let change = || match work {
            Work::Flush => mirrored.flush(),
            Work::Discard => mirrored.discard(0, 4096),
            _ => mirrored.write(0, &[1; BLOCK]),
        };
        // What nobody has done is an error, and no member is worse than the others.
        faults.fail(work, 0, libc::ENOSPC);
        more.fail(work, 0, libc::EIO);
        assert_eq!(errno(change()), Some(libc::ENOSPC));
        assert!(mirrored.failed_members().is_empty());
        faults.fail(work, 0, libc::EIO);
        change().unwrap();
        assert_eq!(mirrored.failed_members(), [0]);
        // It works again, and is not used: what it has is old.
        mirrored.write(0, &[2; BLOCK]).unwrap();
        assert_ne!(block(&first, 0), [2; BLOCK]);
        assert_eq!(block(&mirrored, 0), [2; BLOCK]);
        assert_eq!(errno(mirrored.read_copy(0, 0, &mut [0; BLOCK])), Some(libc::EIO));
        mirrored.read_copy(1, 0, &mut [0; BLOCK]).unwrap();
        // The last one does not fail, but its errors are told.
        more.fail(work, 0, libc::EIO);
        assert_eq!(errno(change()), Some(libc::EIO));
        assert_eq!(mirrored.failed_members(), [0]);
        change().unwrap();
        more.fail(Work::Read, 0, libc::EIO);
        assert_eq!(errno(mirrored.read(0, &mut [0; BLOCK])), Some(libc::EIO));
    }
}

#[test]
fn a_member_is_told_to_have_failed() {
    let (devices, members) = several(&[MIB, MIB, MIB]);
    let mirrored = Mirrored::new(members).unwrap();
    mirrored.fail(0).unwrap();
    mirrored.fail(0).unwrap();
    mirrored.write(0, &[1; BLOCK]).unwrap();
    assert_eq!(block(&devices[0], 0), [0; BLOCK]);
    assert_eq!(block(&mirrored, 0), [1; BLOCK]);
    assert_eq!(errno(mirrored.fail(3)), Some(libc::EINVAL));
    mirrored.fail(2).unwrap();
    assert_eq!(errno(mirrored.fail(1)), Some(libc::EINVAL), "it is the last one");
    assert_eq!(mirrored.failed_members(), [0, 2]);
    // Writers are known on failed ones, too: something may be under way there.
    assert!(mirrored.enter(1).unwrap() && devices[0].as_other().is_entered(1).unwrap());
}

#[test]
fn a_mirror_has_so_many_members_and_some_may_be_missing() {
    let most = MIRRORS_MAX as usize;
    assert!(Mirrored::new(several(&vec![MIB; most]).1).is_ok());
    assert_eq!(errno(Mirrored::new(several(&vec![MIB; most + 1]).1).map(drop)), Some(libc::EINVAL));
    let (_, mut members) = several(&[MIB, MIB]);
    members[1] = Arc::new(Missing::like(&*members[0]));
    let mirrored = Mirrored::new(members).unwrap();
    assert_eq!((mirrored.failed_members(), mirrored.missing()), (vec![1], 2));
}

/// One that is being brought up to date is written, and does not count.
#[test]
fn a_member_that_is_brought_up_to_date_does_not_make_up_for_others() {
    let (one, faults, _) = faulty(MIB);
    let (other, more, _) = faulty(MIB);
    let mirrored = Mirrored::new(vec![one, other]).unwrap();
    let standing = Standing { failed: 2, restored: 2 };
    mirrored.adopt(standing);
    faults.fail(Work::Write, 0, libc::ENOSPC);
    assert_eq!(errno(mirrored.write(0, &[1; BLOCK])), Some(libc::ENOSPC));
    assert_eq!((more.made(Work::Write), mirrored.standing()), (1, standing));
    // What nobody has done, it has not done either.
    faults.fail(Work::Write, 0, libc::ENOSPC);
    more.fail(Work::Write, 0, libc::EIO);
    assert_eq!(errno(mirrored.write(0, &[1; BLOCK])), Some(libc::ENOSPC));
    assert_eq!(mirrored.standing(), Standing { failed: 2, restored: 0 });
    assert_eq!(mirrored.failures(), 2);
}

#[test]
fn a_copy_that_is_not_written_has_failed_and_is_left_alone() {
    let (one, _, first) = faulty(MIB);
    let (other, more, _) = faulty(MIB);
    let mirrored = Mirrored::new(vec![one, other]).unwrap();
    mirrored.write_copy(0, 4096, &[1; BLOCK]).unwrap();
    assert_eq!((block(&first, 4096), block(&mirrored, 4096)), ([1; BLOCK], [1; BLOCK]));
    more.fail(Work::Write, 0, libc::ENOSPC);
    assert_eq!(errno(mirrored.write_copy(1, 0, &[1; BLOCK])), Some(libc::ENOSPC));
    assert_eq!((mirrored.standing().failed, mirrored.failures()), (2, 2));
    let made = more.made(Work::Write);
    assert_eq!(errno(mirrored.write_copy(1, 0, &[1; BLOCK])), Some(libc::EIO));
    assert_eq!(more.made(Work::Write), made);
    // The last one does not fail; one that is being brought up to date does.
    for (failed, restored, seen) in [(1, 0, 0), (3, 2, 2)] {
        let (one, _, _) = faulty(MIB);
        let (other, more, _) = faulty(MIB);
        let mirrored = Mirrored::new(vec![one, other]).unwrap();
        mirrored.adopt(Standing { failed, restored });
        more.fail(Work::Write, 0, libc::ENOSPC);
        assert_eq!(errno(mirrored.write_copy(1, 0, &[1; BLOCK])), Some(libc::ENOSPC));
        assert_eq!(mirrored.standing(), Standing { failed, restored: 0 });
        assert_eq!(mirrored.failures(), seen);
    }
}

/// Two writes at once, each of which only the other member takes: one of them is an error, because
/// there is no member that has both.
#[test]
fn two_members_do_not_both_miss_something() {
    for _ in 0..20 {
        let (one, faults, _) = faulty(MIB);
        let (other, more, _) = faulty(MIB);
        let mirrored = Mirrored::new(vec![one, other]).unwrap();
        faults.set_delay(Duration::from_millis(1));
        more.set_delay(Duration::from_millis(1));
        // One of two fails on each member, mostly different ones.
        faults.fail(Work::Write, 0, libc::EIO);
        more.fail(Work::Write, 1, libc::EIO);
        let outcomes = std::thread::scope(|scope| {
            let write = |at: u64| mirrored.write(at, &[at as u8 / 16 + 1; BLOCK]).map(|()| at);
            let writes = [0, 4096].map(|at| scope.spawn(move || write(at)));
            writes.map(|write| write.join().unwrap())
        });
        for at in outcomes.into_iter().flatten() {
            assert_eq!(block(&mirrored, at), [at as u8 / 16 + 1; BLOCK]);
        }
        assert!(mirrored.failed_members().len() < 2);
    }
}

// --- NAND ----------------------------------------------------------------------------------------

const PAGE: usize = 2048;
/// Bytes of an erase block.
const ERASE: u64 = 4 * PAGE as u64;

fn nand() -> Nand {
    Nand::new("nand", Geometry { page: PAGE as u32, pages: 4, blocks: 8 }).unwrap()
}

fn page(nand: &Nand, at: u64) -> [u8; PAGE] {
    let mut found = [0; PAGE];
    nand.read(at, &mut found).unwrap();
    found
}

#[test]
fn pages_are_programmed_in_order() {
    let nand = nand();
    assert_eq!(nand.len(), 8 * ERASE);
    let limits = nand.limits();
    assert_eq!((limits.block, limits.erase, limits.discards), (PAGE as u32, Some(ERASE), true));
    keeps_to_limits(&nand);
    assert_eq!(page(&nand, 0), [0xFF; PAGE]);
    assert_eq!(errno(nand.write(PAGE as u64, &[1; PAGE])), Some(libc::EINVAL), "out of order");
    nand.write(0, &[1; PAGE]).unwrap();
    assert_eq!(errno(nand.write(0, &[1; PAGE])), Some(libc::EINVAL), "once");
    nand.write(PAGE as u64, &[2; 2 * PAGE]).unwrap();
    // The rest of a block, and the next one's beginning.
    let rest = ERASE - PAGE as u64;
    nand.write(rest, &[3; 3 * PAGE]).unwrap();
    assert_eq!(errno(nand.write(0, &[1; PAGE])), Some(libc::EINVAL), "full");
    for (at, byte) in [(0, 1), (1, 2), (2, 2), (3, 3), (4, 3), (5, 3), (6, 0xFF)] {
        assert_eq!(page(&nand, at * PAGE as u64), [byte; PAGE], "{at}");
    }
    // A write that comes to a block which is not empty has programmed what is before it.
    nand.write(3 * ERASE, &[1; PAGE]).unwrap();
    assert_eq!(errno(nand.write(2 * ERASE, &[4; 5 * PAGE])), Some(libc::EINVAL));
    assert_eq!(page(&nand, 3 * ERASE - PAGE as u64), [4; PAGE]);
    assert_eq!(page(&nand, 3 * ERASE), [1; PAGE]);
}

#[test]
fn whole_blocks_are_erased_and_wear() {
    let nand = nand();
    nand.write(0, &[1; 2 * ERASE as usize]).unwrap();
    let part = PAGE as u64;
    for (at, len) in [(0, part), (part, ERASE), (0, ERASE + part), (part, part)] {
        assert_eq!(errno(nand.discard(at, len)), Some(libc::EINVAL));
    }
    nand.discard(ERASE, 2 * ERASE).unwrap();
    nand.discard(ERASE, ERASE).unwrap();
    nand.discard(ERASE, 0).unwrap();
    assert_eq!(nand.wear(), [0, 2, 1, 0, 0, 0, 0, 0]);
    assert_eq!((page(&nand, 0), page(&nand, ERASE)), ([1; PAGE], [0xFF; PAGE]));
    nand.write(ERASE, &[5; PAGE]).unwrap();
    assert_eq!(page(&nand.as_other(), ERASE), [5; PAGE]);
}

#[test]
fn blocks_turn_bad() {
    let nand = nand();
    nand.set_endurance(2);
    for _ in 0..2 {
        nand.discard(0, ERASE).unwrap();
    }
    nand.write(0, &[1; PAGE]).unwrap();
    assert_eq!(errno(nand.discard(0, ERASE)), Some(libc::EIO));
    assert_eq!(errno(nand.write(PAGE as u64, &[1; PAGE])), Some(libc::EIO));
    assert_eq!((nand.wear()[0], page(&nand, 0)), (2, [1; PAGE]));
    nand.spoil(3).unwrap();
    assert_eq!(errno(nand.spoil(8)), Some(libc::EINVAL));
    assert_eq!(errno(nand.write(3 * ERASE, &[1; PAGE])), Some(libc::EIO));
    // What comes before a bad block is done.
    assert_eq!(errno(nand.write(2 * ERASE, &[7; 5 * PAGE])), Some(libc::EIO));
    assert_eq!(page(&nand, 3 * ERASE - PAGE as u64), [7; PAGE]);
    assert_eq!(errno(nand.discard(2 * ERASE, 3 * ERASE)), Some(libc::EIO));
    assert_eq!(nand.wear(), [2, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn bits_turn_over_and_pages_die() {
    let nand = nand();
    nand.write(ERASE, &[0; 2 * PAGE]).unwrap();
    nand.flip(ERASE + 5, 3).unwrap();
    let mut expected = [0; PAGE];
    expected[5] = 8;
    assert_eq!(page(&nand, ERASE), expected);
    for (at, bit) in [(ERASE, 8), (ERASE + 2 * PAGE as u64, 0), (8 * ERASE, 0)] {
        assert_eq!(errno(nand.flip(at, bit)), Some(libc::EINVAL));
    }
    nand.kill(ERASE + PAGE as u64 + 17).unwrap();
    assert_eq!(errno(nand.kill(8 * ERASE)), Some(libc::EINVAL));
    let mut found = [0; 2 * PAGE];
    assert_eq!(errno(nand.read(ERASE, &mut found)), Some(libc::EIO));
    assert_eq!(page(&nand, ERASE), expected);
    nand.discard(ERASE, ERASE).unwrap();
    nand.read(ERASE, &mut found).unwrap();
    assert_eq!(found, [0xFF; 2 * PAGE]);
    let odd = [(3000, 4), (2048, 0), (0, 4)];
    for (page, pages) in odd {
        let refused = Nand::new("nand", Geometry { page, pages, blocks: 8 });
        assert_eq!(errno(refused), Some(libc::EINVAL));
    }
}

// --- faults --------------------------------------------------------------------------------------

#[test]
fn the_nth_request_of_a_kind_fails() {
    let (device, faults, inner) = faulty(MIB);
    device.write(0, &[1; BLOCK]).unwrap();
    faults.fail(Work::Write, 2, libc::ENOSPC);
    faults.fail(Work::Write, 0, libc::EIO);
    faults.fail(Work::Discard, 0, libc::EOPNOTSUPP);
    assert_eq!(block(&*device, 0), [1; BLOCK]);
    // The first half of what fails is there.
    assert_eq!(errno(device.write(0, &[2; 3 * BLOCK])), Some(libc::EIO));
    assert_eq!([0, 4096, 8192].map(|at| block(&inner, at)[7]), [2, 0, 0]);
    device.write(0, &[3; BLOCK]).unwrap();
    assert_eq!(errno(device.write(0, &[4; BLOCK])), Some(libc::ENOSPC));
    assert_eq!(block(&inner, 0), [3; BLOCK]);
    device.write(0, &[5; BLOCK]).unwrap();
    assert_eq!(errno(device.discard(0, 4096)), Some(libc::EOPNOTSUPP));
    assert_eq!(block(&inner, 0), [5; BLOCK]);
    device.flush().unwrap();
    let made = [Work::Read, Work::Write, Work::Flush, Work::Discard].map(|work| faults.made(work));
    assert_eq!(made, [1, 5, 1, 1]);
    keeps_to_limits(&*device);
}

#[test]
fn a_device_vanishes_is_read_only_or_slow() {
    let (device, faults, inner) = faulty(MIB);
    faults.set_read_only(true);
    assert_eq!(errno(device.write(0, &[1; BLOCK])), Some(libc::EROFS));
    assert_eq!(errno(device.discard(0, 4096)), Some(libc::EROFS));
    assert_eq!(block(&inner, 0), [0; BLOCK]);
    assert_eq!(block(&*device, 0), [0; BLOCK]);
    device.flush().unwrap();
    faults.set_read_only(false);
    device.write(0, &[1; BLOCK]).unwrap();
    faults.set_delay(Duration::from_millis(20));
    let begin = Instant::now();
    device.read(0, &mut [0; BLOCK]).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(20));
    faults.set_delay(Duration::ZERO);
    faults.vanish();
    for outcome in [
        device.read(0, &mut [0; BLOCK]),
        device.read_copy(0, 0, &mut [0; BLOCK]),
        device.write(0, &[2; 2 * BLOCK]),
        device.flush(),
        device.discard(0, 4096),
    ] {
        assert_eq!(errno(outcome), Some(libc::EIO));
    }
    assert_eq!(block(&inner, 0), [1; BLOCK]);
    assert!(device.enter(1).unwrap(), "locks are not on the device");
}

#[test]
fn a_device_claims_more_than_it_has() {
    let device = Faulty::new(memory(MIB), Arc::default()).claiming(2 * MIB);
    assert_eq!(device.len(), 2 * MIB);
    device.write(MIB - 4096, &[1; BLOCK]).unwrap();
    for at in [MIB - 4096, MIB, 2 * MIB - 8192] {
        assert_eq!(errno(device.read(at, &mut [0; 2 * BLOCK])), Some(libc::EIO));
        assert_eq!(errno(device.write(at, &[2; 2 * BLOCK])), Some(libc::EIO));
        assert_eq!(errno(device.discard(at, 8192)), Some(libc::EIO));
    }
    assert_eq!(block(&device, MIB - 4096), [1; BLOCK]);
    assert_eq!(errno(device.read(2 * MIB, &mut [0; BLOCK])), Some(libc::EINVAL));
    assert_eq!(device.faults().made(Work::Write), 1);
}
