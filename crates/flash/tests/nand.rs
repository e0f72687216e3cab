//! Volumes on flash memory that has to be erased and written in order, that wears out and fails.
#![allow(clippy::unwrap_used, clippy::panic)]

mod hooked;
mod volumes;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use conquest_flash::device::{Device, Geometry, Nand};
use conquest_flash::{Error, NewVolume, Volume, assemble, create};
use conquest_format::volume::{ANCHORS, Arrangement, Bind, Packet, Root};
use conquest_testkit::Rng;
use conquest_testkit::flash::{Request, Watched};
use hooked::Hooked;
use volumes::{Model, TestVolume, UNIT, region};

/// Blocks of the space that the tests use.
const SPACE: u64 = 8 * 16 * 30;

fn nand(name: &str, blocks: u32) -> Nand {
    Nand::new(name, Geometry { page: UNIT as u32, pages: 16, blocks }).unwrap()
}

fn new_volume(arrangement: Arrangement) -> NewVolume {
    NewVolume { uuid: *b"a volume to test", created: 1, arrangement, segment: None }
}

fn others(members: &[Nand]) -> Vec<Arc<dyn Device>> {
    members.iter().map(|member| Arc::new(member.as_other()) as _).collect()
}

/// Opens the volume on `members` as after a restart of the machine.
fn recovered(members: &[Nand]) -> TestVolume {
    let body = assemble(others(members)).unwrap();
    Volume::recover(region(&body), &body).unwrap()
}

fn step(volume: &TestVolume, model: &mut Model, rng: &mut Rng, number: u64) {
    let block = rng.below(SPACE - 400);
    match rng.below(10) {
        0 => {
            let count = rng.below(400);
            volume.trim(block, count).unwrap();
            model.trim(block, count);
        }
        1 => volume.flush().unwrap(),
        2 => {
            let bytes = model.write(block / 8 * 8, 8 * 40, number);
            volume.write(block / 8 * 8, &bytes).unwrap();
        }
        _ => {
            let count = 1 + rng.below(20);
            let bytes = model.write(block, count, number);
            volume.write(block, &bytes).unwrap();
        }
    }
}

#[test]
fn it_is_erased_and_written_in_order() {
    for (arrangement, count) in
        [(Arrangement::Striped, 1), (Arrangement::Striped, 2), (Arrangement::Mirrored, 2)]
    {
        let members: Vec<Nand> =
            (0..count).map(|member| nand(&format!("nand {member}"), 100)).collect();
        create(&others(&members), &new_volume(arrangement)).unwrap();
        let mut rng = Rng::new(count);
        let mut model = Model::default();
        for round in 0..12 {
            let volume = recovered(&members);
            model.compare(&volume, SPACE, &format!("{arrangement:?} of {count}, round {round}"));
            for number in 0..400 {
                step(&volume, &mut model, &mut rng, round << 32 | number);
            }
            model.compare(&volume, SPACE, "at the end");
            assert_eq!(volume.check().unwrap(), []);
            volume.flush().unwrap();
        }
        for member in &members {
            assert!(member.wear().iter().filter(|wear| **wear > 1).count() > 60);
        }
    }
}

#[test]
fn threads_write_at_once() {
    let members = [nand("nand", 150)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let volume = recovered(&members);
    let each = SPACE / 4;
    let models: Vec<Model> = std::thread::scope(|scope| {
        let volume = &volume;
        let threads = (0..4).map(|thread| {
            scope.spawn(move || {
                let mut model = Model::default();
                let mut rng = Rng::new(thread);
                for number in 0..600 {
                    let count = if rng.chance(1, 4) { 300 } else { 8 };
                    let block = thread * each + rng.below((each - count) / 8) * 8;
                    let bytes = model.write(block, count, number);
                    volume.write(block, &bytes).unwrap();
                    if rng.chance(1, 20) {
                        volume.flush().unwrap();
                    }
                }
                model
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut all = Model::default();
    models.into_iter().for_each(|model| all.0.extend(model.0));
    all.compare(&volume, SPACE, "threads");
    volume.flush().unwrap();
    drop(volume);
    all.compare(&recovered(&members), SPACE, "recovered");
}

#[test]
fn it_is_one_process_s_at_a_time_and_goes_on_after_it() {
    let members = [nand("nand", 100)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let body = assemble(others(&members)).unwrap();
    let index = volumes::region_file(&body);
    let mut model = Model::default();
    let mut rng = Rng::new(1);
    let first = Volume::recover(volumes::opened(&body, &index), &body).unwrap();
    let another = assemble(others(&members)).unwrap();
    let refused = Volume::join(volumes::opened(&another, &index), &another).err().unwrap();
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    drop((first, body));
    for round in 0..20 {
        let body = assemble(others(&members)).unwrap();
        let volume = Volume::join(volumes::opened(&body, &index), &body).unwrap();
        model.compare(&volume, SPACE, &format!("round {round}"));
        for number in 0..100 {
            step(&volume, &mut model, &mut rng, round << 32 | number);
        }
        // It is not closed: packets are not written, and segments have room that nobody uses.
    }
}

/// A process writes to a volume on `members`, and dies in a flush, which has written so many
/// `pages` by then: where to, what the volume is to hold, and the next one who has it open.
fn died_in_a_flush(members: &[Nand], pages: usize) -> (u64, Model, TestVolume) {
    create(&others(members), &new_volume(Arrangement::Striped)).unwrap();
    let dying = Watched::new(Arc::new(members[0].as_other()));
    let at = Arc::new(AtomicU64::new(0));
    let mut model = Model::default();
    let index = {
        let body = assemble(vec![Arc::clone(&dying) as _]).unwrap();
        let index = volumes::region_file(&body);
        let volume = Volume::recover(volumes::opened(&body, &index), &body).unwrap();
        for unit in 0..12 {
            let bytes = model.write(unit * 8, 8, unit);
            volume.write(unit * 8, &bytes).unwrap();
            if unit == 5 {
                volume.flush().unwrap();
            }
        }
        let (device, begun) = (members[0].as_other(), Arc::clone(&at));
        let write_some = move |request: Request<'_>| {
            if let Some((at, bytes)) = request.written() {
                let len = bytes.len().min(pages * UNIT as usize);
                device.write(at, &bytes[..len]).unwrap();
                begun.store(at, Ordering::SeqCst);
            }
            request.written().is_some()
        };
        dying.when(write_some, || resume_unwind(Box::new("it dies")));
        assert!(catch_unwind(AssertUnwindSafe(|| volume.flush())).is_err());
        index
    };
    drop(dying);
    let body = assemble(others(members)).unwrap();
    let volume = Volume::join(volumes::opened(&body, &index), &body).unwrap();
    (at.load(Ordering::SeqCst), model, volume)
}

#[test]
fn what_one_that_has_died_began_to_write_is_written_by_the_next_one() {
    for pages in [0, 1, 3, 100] {
        let members = [nand("nand", 100)];
        let (_, mut model, volume) = died_in_a_flush(&members, pages);
        model.compare(&volume, 200, "before the flush");
        volume.flush().unwrap();
        let bytes = model.write(8, 8, 100);
        volume.write(8, &bytes).unwrap();
        volume.flush().unwrap();
        drop(volume);
        model.compare(&recovered(&members), 200, &format!("{pages} pages"));
    }
}

/// What is there of a packet is not what it should be: nobody is told that it was flushed.
#[test]
fn what_is_not_as_it_was_to_be_written_is_an_error() {
    let members = [nand("nand", 100)];
    let (at, _, volume) = died_in_a_flush(&members, 3);
    members[0].flip(at + UNIT, 5).unwrap();
    for _ in 0..2 {
        let refused = volume.flush().unwrap_err();
        assert!(matches!(refused, Error::Device { .. } | Error::Failed { .. }), "{refused}");
    }
}

#[test]
fn nobody_waits_for_a_packet_that_can_not_be_written_any_more() {
    let members = [nand("nand", 100)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let device = Arc::new(Hooked::over(Arc::new(members[0].as_other()), false));
    let body = assemble(vec![Arc::clone(&device) as _]).unwrap();
    let volume = Arc::new(Volume::recover(region(&body), &body).unwrap());
    let (begun, is_begun) = channel();
    let (fail, fails) = channel::<()>();
    device.in_next_write(move || {
        begun.send(()).unwrap();
        let _ = fails.recv();
        Err(io::Error::from_raw_os_error(libc::EIO))
    });
    let (done, outcomes) = channel();
    let flush = || {
        let (volume, done) = (Arc::clone(&volume), done.clone());
        thread::spawn(move || done.send(volume.flush()));
    };
    volume.write(0, &[1; UNIT as usize]).unwrap();
    flush();
    is_begun.recv().unwrap();
    // Its packet comes after the one that is being written, whether it waits by then or is late.
    volume.write(8, &[2; UNIT as usize]).unwrap();
    flush();
    thread::sleep(Duration::from_millis(50));
    drop(fail);
    for _ in 0..2 {
        let outcome = outcomes.recv_timeout(Duration::from_secs(10)).unwrap();
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Device { .. } | Error::Failed { .. }), "{error}");
    }
}

/// What is found to be ready to be begun may have been begun a moment later.
#[test]
fn what_is_begun_while_others_are_made_ready_is_not_erased() {
    let members = [nand("nand", 100)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let device = Arc::new(Hooked::over(Arc::new(members[0].as_other()), false));
    let body = assemble(vec![Arc::clone(&device) as _]).unwrap();
    let volume = Volume::recover(region(&body), &body).unwrap();
    let me = thread::current().id();
    let slow = move || match thread::current().id() == me {
        true => {}
        false => thread::sleep(Duration::from_millis(1)),
    };
    assert!(device.in_each_next.set(Box::new(slow)).is_ok());
    let (mut model, mut rng) = (Model::default(), Rng::new(5));
    volume.with_keeper(|| {
        for number in 0..400 {
            let block = rng.below(SPACE / 8 - 40) * 8;
            let bytes = model.write(block, 40 * 8, number);
            volume.write(block, &bytes).unwrap();
        }
    });
    model.compare(&volume, SPACE, "kept");
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn what_is_blank_is_not_erased() {
    let members = [nand("nand", 100)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let made = members[0].wear();
    let volume = recovered(&members);
    let mut model = Model::default();
    for unit in 0..600 {
        let bytes = model.write(unit * 8, 8, unit);
        volume.write(unit * 8, &bytes).unwrap();
    }
    volume.flush().unwrap();
    // Nothing was begun that had been something else before.
    assert_eq!(members[0].wear(), made);
    model.compare(&volume, 600 * 8, "what was never erased");
}

/// Where a root was begun in vain no other one can be written: the next place is taken.
#[test]
fn roots_go_on_behind_one_that_is_damaged() {
    let members = [nand("nand", 100)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let mut model = Model::default();
    drop(recovered(&members));
    // The root of a life that has written nothing.
    let bind = Bind::new(*b"a volume to test");
    let root_at = |at: &u64| {
        let mut unit = vec![0; UNIT as usize];
        members[0].read(*at, &mut unit).ok()?;
        Some((*at, Root::from_unit(bind, &unit)?.sequence))
    };
    let places: Vec<u64> = (0..ANCHORS * 16).map(|place| 65_536 + place * UNIT).collect();
    let roots: Vec<_> = places.iter().filter_map(root_at).collect();
    let newest = roots.iter().map(|(_, sequence)| *sequence).max().unwrap();
    assert!(newest > 1);
    for (at, _) in roots.iter().filter(|(_, sequence)| *sequence == newest) {
        members[0].flip(*at + 12, 1).unwrap();
    }
    for number in 0..3 {
        let volume = recovered(&members);
        model.compare(&volume, 400, "before");
        let bytes = model.write(number * 100, 80, number);
        volume.write(number * 100, &bytes).unwrap();
        volume.flush().unwrap();
    }
    model.compare(&recovered(&members), 400, "all of it");
}

/// Whether the last page of erase block number `block` is programmed.
fn is_full(member: &Nand, block: u64) -> bool {
    let last = (block * 16 + 15) * UNIT;
    let is_programmed = member.flip(last, 0).is_ok();
    assert_eq!(member.flip(last, 0).is_ok(), is_programmed);
    is_programmed
}

#[test]
fn blocks_that_cannot_be_erased_are_left_alone() {
    let members = [nand("nand", 120)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let mut rng = Rng::new(1);
    let mut model = Model::default();
    let volume = recovered(&members);
    for number in 0..6000 {
        if number % 1000 == 999 {
            // Not those of superblocks, or of roots; and one that is written in full, so that it is
            // erased before anything is written to it: if that finds out that it is bad, and the
            // stream was to go there, the volume has failed.
            let first = 20 + number / 1000 * 8;
            let block = (first..119).find(|&block| is_full(&members[0], block)).unwrap();
            members[0].spoil(block as u32).unwrap();
        }
        step(&volume, &mut model, &mut rng, number);
    }
    let info = volume.info().unwrap();
    assert!(info.segments.bad > 0, "{info:?}");
    model.compare(&volume, SPACE, "with bad blocks");
}

#[test]
fn damage_is_found_and_corrected_from_a_mirror() {
    for (arrangement, count) in [(Arrangement::Striped, 1), (Arrangement::Mirrored, 2)] {
        let members: Vec<Nand> =
            (0..count).map(|member| nand(&format!("nand {member}"), 100)).collect();
        create(&others(&members), &new_volume(arrangement)).unwrap();
        let volume = recovered(&members);
        let mut rng = Rng::new(1);
        let mut model = Model::default();
        for unit in 0..400 {
            let bytes = model.write(unit * 8, 8, unit);
            volume.write(unit * 8, &bytes).unwrap();
        }
        volume.flush().unwrap();
        let mut injected = 0;
        for _ in 0..60 {
            let at = 5 * 16 * UNIT + rng.below(80 * 16 * UNIT);
            if rng.chance(1, 2) {
                injected += u64::from(members[0].flip(at, rng.below(8) as u32).is_ok());
            } else {
                members[0].kill(at).unwrap();
                injected += 1;
            }
        }
        assert!(injected > 30, "{injected}");
        let (mut right, mut refused) = (0, 0);
        for unit in 0..400 {
            let mut bytes = vec![0; UNIT as usize];
            match volume.read(unit * 8, &mut bytes) {
                Ok(()) => {
                    assert!(bytes == model.read(unit * 8, 8), "unit {unit}");
                    right += 1;
                }
                Err(Error::Damaged { .. } | Error::Device { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        match arrangement {
            Arrangement::Mirrored => assert_eq!((right, refused), (400, 0)),
            Arrangement::Striped => assert!(refused > 5 && right > 200, "{right} {refused}"),
        }
    }
}

/// What is written in order can't be put where it was missed.
#[test]
fn a_member_that_has_failed_is_not_brought_up_to_date() {
    let members = [nand("one", 100), nand("other", 100)];
    create(&others(&members), &new_volume(Arrangement::Mirrored)).unwrap();
    let hooked =
        members.each_ref().map(|member| Arc::new(Hooked::over(Arc::new(member.as_other()), false)));
    let body = assemble(hooked.iter().map(|device| Arc::clone(device) as _).collect()).unwrap();
    let volume = Volume::recover(region(&body), &body).unwrap();
    hooked[1].in_next_write(|| Err(io::Error::from_raw_os_error(libc::EIO)));
    let mut model = Model::default();
    volume.write(0, &model.write(0, 80, 1)).unwrap();
    volume.flush().unwrap();
    hooked[1].counts.take();
    let error = volume.restore(&mut |_, _| true).unwrap_err();
    let Error::Restore { what, .. } = error else { panic!("{error}") };
    assert!(what.starts_with("it is written in order"), "{what}");
    assert_eq!((hooked[1].counts.take(), volume.info().unwrap().failed), ((0, 0, 0), 2));
    model.compare(&volume, 80, "by the other one");
}

/// Where the packet with the highest number is on `member`.
fn last_packet(member: &Nand) -> u64 {
    let bind = Bind::new(*b"a volume to test");
    let packet_at = |at: u64| {
        let mut unit = vec![0; UNIT as usize];
        member.read(at, &mut unit).ok()?;
        Some((Packet::from_unit(bind, &unit)?.number, at))
    };
    let all = (65_536..member.len()).step_by(UNIT as usize).filter_map(packet_at);
    all.max().unwrap().1
}

/// What was not flushed may be damaged on one member, and can't be written there once more.
#[test]
fn a_member_that_lacks_what_recovery_keeps_has_not_failed() {
    for damaged in [0, UNIT] {
        let members = [nand("one", 100), nand("other", 100)];
        create(&others(&members), &new_volume(Arrangement::Mirrored)).unwrap();
        let mut model = Model::default();
        let volume = recovered(&members);
        for unit in 0..5 {
            volume.write(unit * 8, &model.write(unit * 8, 8, unit)).unwrap();
            volume.flush().unwrap();
        }
        drop(volume);
        members[1].flip(last_packet(&members[1]) + damaged + 100, 3).unwrap();
        for number in 0..2 {
            let volume = recovered(&members);
            assert_eq!(volume.info().unwrap().failed, 0, "{damaged}");
            model.compare(&volume, 80, "by the other member");
            volume.write(64, &model.write(64, 8, number)).unwrap();
            volume.flush().unwrap();
        }
    }
}

/// Most and least times that blocks were erased, the average, and write amplification, after
/// `rounds` overwrites of the half of the data that changes.
fn wear(blocks: u32, rounds: u64, is_levelled: bool) -> (u32, u32, f64, f64) {
    let members = [nand("nand", blocks)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let volume = recovered(&members);
    volume.level_wear(is_levelled);
    let units = volume.info().unwrap().capacity * 85 / 100;
    let bytes = vec![7; UNIT as usize];
    for unit in 0..units {
        volume.write(unit * 8, &bytes).unwrap();
    }
    let mut rng = Rng::new(1);
    for _ in 0..rounds * (units / 2) {
        volume.write(rng.below(units / 2) * 8, &bytes).unwrap();
    }
    let written = volume.info().unwrap().written;
    // Without superblocks and roots.
    let worn = members[0].wear();
    let worn = &worn[5..worn.len() - 1];
    let (most, least) = (*worn.iter().max().unwrap(), *worn.iter().min().unwrap());
    let average = worn.iter().map(|wear| f64::from(*wear)).sum::<f64>() / worn.len() as f64;
    (most, least, average, written.all() as f64 / written.asked as f64)
}

#[test]
fn wear_is_levelled() {
    let (most, least, average, levelled) = wear(120, 150, true);
    let spread = f64::from(most - least) / average;
    let (unevenly, rarely, usually, uneven) = wear(120, 150, false);
    println!(
        "{least} to {most}, average {average:.1}, spread {spread:.3}, amplification {levelled:.2}"
    );
    println!(
        "not levelled: {rarely} to {unevenly}, average {usually:.1}, amplification {uneven:.2}"
    );
    assert!(spread < 0.25, "{spread}");
    // None is left behind by more than a 25th, and the few that it takes to see that.
    assert!(f64::from(least) > average * 24.0 / 25.0 - 3.0, "{least}, {average}");
    assert!(f64::from(most) < average * 1.1, "{most}, {average}");
    assert!(f64::from(unevenly - rarely) / usually > 1.0);
    assert!(levelled < 1.2 * uneven);
}

/// Nothing can be written there twice.
#[test]
fn no_zeros_are_written_ahead_of_what_is_written_in_order() {
    let members = [nand("nand", 100)];
    create(&others(&members), &new_volume(Arrangement::Striped)).unwrap();
    let (volume, mut model) = (recovered(&members), Model::default());
    assert_eq!(volume.write_zeros_ahead(1 << 20).unwrap(), 0);
    let bytes = model.write(0, 8 * 100, 1);
    volume.write(0, &bytes).unwrap();
    volume.flush().unwrap();
    model.compare(&volume, 8 * 100, "in order");
}
