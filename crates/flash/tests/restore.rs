//! Members of a mirror that have failed are brought up to date while the volume is in use.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod meanwhile;
mod mirrors;
mod volumes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use conquest_flash::device::{Device, MemoryDevice, Work};
use conquest_flash::{Damage, Error, Job, Request, Verifying, Volume, assemble, assemble_degraded};
use conquest_format::volume::{ANCHORS, Bind, Root};
use conquest_uring::Buffer;
use meanwhile::watched;
use mirrors::{Mirror, START, failed, join, write};
use volumes::{Model, TestVolume, UNIT, opened, region_file};

/// A mirror whose member `member` has failed, and works again, and what it is to have.
fn degraded(member: usize) -> (Mirror, Model) {
    let mut mirror = Mirror::new(2);
    let volume = mirror.recovered();
    let mut model = Model::default();
    write(&volume, &mut model, 0, 200, 1);
    volume.checkpoint().unwrap();
    mirror.faults[member].vanish();
    write(&volume, &mut model, 100, 300, 2);
    for unit in 0..40 {
        write(&volume, &mut model, unit * 3, 1, 3);
    }
    volume.checkpoint().unwrap();
    write(&volume, &mut model, 50, 20, 4);
    volume.flush().unwrap();
    drop(volume);
    mirror.repair();
    (mirror, model)
}

fn restore(volume: &TestVolume) -> u64 {
    volume.restore(&mut |_, _| true).unwrap()
}

/// Whether each member alone has all of `model`.
#[track_caller]
fn each_has_all(mirror: &Mirror, model: &Model, context: &str) {
    for member in [0, 1] {
        let images = [mirror.image(0), mirror.image(1)];
        let volume = mirror.degraded(&[member]);
        model.compare(&volume, 700 * 8, &format!("{context}: member {member} alone"));
        assert_eq!(volume.check().unwrap(), []);
        drop(volume);
        mirror.set_image(member, &images[member]);
    }
}

#[test]
fn a_member_is_as_good_as_the_others_again() {
    for member in [0, 1] {
        let (mirror, mut model) = degraded(member);
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 1 << member);
        assert_eq!(restore(&volume), 1 << member);
        assert_eq!((failed(&volume), volume.info().unwrap().failed_since), (0, 0));
        assert_eq!(restore(&volume), 0, "there is none any more");
        write(&volume, &mut model, 400, 30, 5);
        volume.flush().unwrap();
        drop(volume);
        each_has_all(&mirror, &model, "restored");
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 0);
        model.compare(&volume, 700 * 8, "by both");
    }
}

#[test]
fn it_gets_the_last_block_that_can_be_named() {
    let (mirror, model) = degraded(0);
    let volume = mirror.recovered();
    let (last, bytes) = (u64::MAX - 1, [7; 512]);
    volume.write(last, &bytes).unwrap();
    assert_eq!(restore(&volume), 1);
    drop(volume);
    each_has_all(&mirror, &model, "restored");
    let mut found = [0; 512];
    mirror.degraded(&[0]).read(last, &mut found).unwrap();
    assert_eq!(found, bytes);
}

/// Nobody has to flush after it, or to open the volume again.
#[test]
fn it_is_for_good_when_it_is_done() {
    for member in [0, 1] {
        let (mirror, model) = degraded(member);
        let volume = mirror.recovered();
        assert_eq!(restore(&volume), 1 << member);
        drop(volume);
        each_has_all(&mirror, &model, "restored");
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 0);
    }
}

#[test]
fn scrubbing_brings_members_up_to_date() {
    let (mirror, model) = degraded(1);
    let volume = mirror.recovered();
    for (repair, is_repaired) in [(false, false), (true, true)] {
        let mut damages = Vec::new();
        let how = Verifying {
            repair,
            found: &mut |damage| damages.push(damage),
            progress: &mut |_, _| true,
        };
        volume.verify(how).unwrap();
        assert_eq!(damages, [Damage::Member { number: 1, device: None, is_repaired }]);
    }
    let how = Verifying {
        repair: false,
        found: &mut |damage| panic!("{damage:?}"),
        progress: &mut |_, _| true,
    };
    let verified = volume.verify(how).unwrap();
    assert_eq!(verified.copies, 2 * verified.units);
    drop(volume);
    each_has_all(&mirror, &model, "scrubbed");
}

/// Wherever it is cut off, the member has failed still, and nothing is lost.
#[test]
fn until_it_has_everything_it_has_failed() {
    let (mirror, model) = degraded(1);
    let volume = mirror.recovered();
    let mut images = Vec::new();
    let stopped = volume.restore(&mut |done, _| {
        images.push([mirror.image(0), mirror.image(1)]);
        done < 200
    });
    assert_eq!(stopped.unwrap(), 0);
    assert_eq!(failed(&volume), 2);
    let before = mirror.faults[1].made(Work::Write);
    let mut model_now = model.clone();
    write(&volume, &mut model_now, 600, 20, 6);
    volume.flush().unwrap();
    assert_eq!(mirror.faults[1].made(Work::Write), before, "nobody writes to it any more");
    volume
        .restore(&mut |_, _| {
            images.push([mirror.image(0), mirror.image(1)]);
            true
        })
        .unwrap();
    drop(volume);
    assert!(images.len() > 4);
    for images in images {
        images.iter().enumerate().for_each(|(member, image)| mirror.set_image(member, image));
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 2);
        model.compare(&volume, 600 * 8, "cut off");
    }
}

/// One that fails again while it gets what it lacks is as before.
#[test]
fn it_may_fail_again() {
    for (work, nth) in
        [(Work::Write, 0), (Work::Write, 3), (Work::Write, 30), (Work::Flush, 0), (Work::Flush, 1)]
    {
        let (mut mirror, mut model) = degraded(1);
        let volume = mirror.recovered();
        mirror.faults[1].fail(work, nth, libc::EIO);
        let error = volume.restore(&mut |_, _| true).unwrap_err();
        let is_it = matches!(error, Error::Restore { .. } | Error::Device { .. });
        assert!(is_it, "{work:?} {nth}: {error}");
        assert_eq!(failed(&volume), 2);
        write(&volume, &mut model, 10, 30, 9);
        volume.flush().unwrap();
        drop(volume);
        mirror.repair();
        let volume = mirror.recovered();
        assert_eq!(failed(&volume), 2);
        model.compare(&volume, 700 * 8, "by the other one");
        assert_eq!(restore(&volume), 2);
        drop(volume);
        each_has_all(&mirror, &model, "at the second try");
    }
}

/// Lets those who write end, also if something is wrong.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Others write all the time, threads and processes; what they write is on both.
#[test]
fn others_use_the_volume_meanwhile() {
    let (mirror, mut model) = degraded(0);
    let (body, other) = (mirror.body(), mirror.body());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = join(&other, &file);
    let is_over = AtomicBool::new(false);
    let models = thread::scope(|scope| {
        let write_on = |volume: &TestVolume, from: u64| {
            let mut model = Model::default();
            let mut number = 100;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                write(volume, &mut model, from + number % 30, 1 + number % 20, number);
                if number % 16 == 0 {
                    volume.flush().unwrap();
                }
                if number % 200 == 0 {
                    volume.checkpoint().unwrap();
                }
            }
            volume.flush().unwrap();
            model
        };
        let writers = [(&first, 400), (&first, 460), (&second, 520), (&second, 580)]
            .map(|(volume, from)| scope.spawn(move || write_on(volume, from)));
        let over = Over(&is_over);
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(restore(&first), 1);
            assert_eq!(failed(&second), 0);
            mirror.faults[0].fail(Work::Write, 0, libc::EIO);
            while failed(&first) == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(restore(&first), 1);
        drop(over);
        writers.map(|writer| writer.join().unwrap())
    });
    models.into_iter().for_each(|one| model.0.extend(one.0));
    first.flush().unwrap();
    drop((first, second, body, other));
    each_has_all(&mirror, &model, "in use");
}

/// Also by those who have not written since: what they flush is durable on it, too.
#[test]
fn everybody_flushes_it_when_it_is_good_again() {
    let (mirror, mut model) = degraded(1);
    let (body, other) = (mirror.body(), mirror.body());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = join(&other, &file);
    assert_eq!(restore(&first), 2);
    // On the devices, and not flushed.
    let mut queue = first.queue(4).unwrap();
    let mut buffer = Buffer::new(UNIT as usize).unwrap();
    buffer.copy_from_slice(&model.write(0, 8, 9));
    queue.submit(Request { tag: 1, block: 0, job: Job::Write(buffer) }).unwrap();
    assert!(queue.wait(1).unwrap().iter().all(|done| done.outcome.is_ok()));
    let before = mirror.faults[1].made(Work::Flush);
    second.flush().unwrap();
    assert_eq!(mirror.faults[1].made(Work::Flush), before + 1);
    model.compare(&second, 700 * 8, "flushed");
}

/// What somebody is writing when it begins, on the good members only, is copied as well.
#[test]
fn what_is_under_way_is_waited_for() {
    let (mirror, mut model) = degraded(1);
    let volume = mirror.recovered();
    mirror.faults[0].set_delay(Duration::from_millis(200));
    let bytes = model.write(600 * 8, 17 * 8, 7);
    thread::scope(|scope| {
        let writer = scope.spawn(|| volume.write(600 * 8, &bytes).unwrap());
        thread::sleep(Duration::from_millis(50));
        mirror.faults[0].set_delay(Duration::ZERO);
        assert_eq!(restore(&volume), 2);
        writer.join().unwrap();
    });
    volume.flush().unwrap();
    drop(volume);
    each_has_all(&mirror, &model, "under way");
}

/// A mirror whose member 1 has failed, as two processes have it, of which the first one is stopped
/// in a write to the good member while `what` is done.
fn while_one_is_writing(what: impl FnOnce(&Mirror, &Arc<TestVolume>)) {
    let (mirror, mut model) = degraded(1);
    let meanwhile = watched(&mirror.devices[0]);
    let failed = Arc::new(mirror.devices[1].as_other());
    let (body, other) =
        (assemble(vec![Arc::clone(&meanwhile) as _, failed]).unwrap(), mirror.body());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = Arc::new(join(&other, &file));
    let (stopped, is_stopped) = channel();
    let (go_on, goes_on) = channel::<()>();
    meanwhile.in_next(Work::Write, 0, move || {
        stopped.send(()).unwrap();
        // Whoever fails lets it go on, too.
        let _ = goes_on.recv();
    });
    let bytes = model.write(600 * 8, 17 * 8, 7);
    thread::scope(|scope| {
        scope.spawn(|| first.write(600 * 8, &bytes));
        is_stopped.recv().unwrap();
        what(&mirror, &second);
        drop(go_on);
    });
}

#[test]
fn one_who_writes_for_long_is_waited_for_for_ten_seconds() {
    while_one_is_writing(|_, volume| {
        let since = Instant::now();
        let error = volume.restore(&mut |_, _| true).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error}");
        assert!((9..20).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
        assert_eq!(failed(volume), 2);
    });
}

/// Also one who is writing a packet, for which something may stand in on the good members only.
#[test]
fn who_is_writing_a_packet_is_waited_for() {
    let (mirror, mut model) = degraded(1);
    let meanwhile = watched(&mirror.devices[0]);
    let members = vec![Arc::clone(&meanwhile) as _, Arc::new(mirror.devices[1].as_other()) as _];
    let (body, other) = (assemble(members).unwrap(), mirror.body());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = join(&other, &file);
    write(&first, &mut model, 600, 1, 7);
    let (stopped, is_stopped) = channel();
    let (go_on, goes_on) = channel::<()>();
    meanwhile.in_next(Work::Write, 0, move || {
        stopped.send(()).unwrap();
        let _ = goes_on.recv();
    });
    thread::scope(|scope| {
        let writing = scope.spawn(|| first.flush());
        is_stopped.recv().unwrap();
        let restoring = scope.spawn(|| second.restore(&mut |_, _| true));
        thread::sleep(Duration::from_millis(1500));
        let is_over = restoring.is_finished();
        drop(go_on);
        writing.join().unwrap().unwrap();
        assert_eq!(restoring.join().unwrap().unwrap(), 2);
        assert!(!is_over, "it is not waited for");
    });
    drop((first, second, body, other, meanwhile));
    each_has_all(&mirror, &model, "a packet");
}

#[test]
fn who_waits_for_others_is_told_that_the_volume_has_failed() {
    while_one_is_writing(|mirror, volume| {
        let restoring = Arc::clone(volume);
        let restoring = thread::spawn(move || restoring.restore(&mut |_, _| true));
        thread::sleep(Duration::from_millis(50));
        volume.write(0, &[1; UNIT as usize]).unwrap();
        mirror.faults[0].fail(Work::Flush, 0, libc::EIO);
        assert!(volume.flush().is_err());
        let since = Instant::now();
        let error = restoring.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Failed { .. }), "{error}");
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    });
}

#[test]
fn it_is_not_done_while_somebody_lacks_the_member() {
    let (mirror, model) = degraded(1);
    let (body, less) = (mirror.body(), assemble_degraded(mirror.some(&[0])).unwrap());
    let file = region_file(&less);
    let first = Volume::recover(opened(&less, &file), &less).unwrap();
    let second = join(&body, &file);
    let error = second.restore(&mut |_, _| true).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert_eq!(first.restore(&mut |_, _| true).unwrap(), 0, "it does not have it");
    drop((first, less));
    assert_eq!(restore(&second), 2);
    drop((second, body));
    each_has_all(&mirror, &model, "alone");
    // Somebody comes meanwhile.
    let (mirror, model) = degraded(1);
    let (body, less) = (mirror.body(), assemble_degraded(mirror.some(&[0])).unwrap());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let mut second = None;
    let outcome = first.restore(&mut |_, _| {
        second.get_or_insert_with(|| join(&less, &file));
        true
    });
    assert!(matches!(outcome, Err(Error::Restore { .. })), "{outcome:?}");
    assert_eq!(failed(&first), 2);
    model.compare(&first, 700 * 8, "as before");
}

/// Two at once: one of them does it.
#[test]
fn one_at_a_time_brings_members_up_to_date() {
    let (mirror, model) = degraded(1);
    let (body, other) = (mirror.body(), mirror.body());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = join(&other, &file);
    let mut refused = 0;
    let restored = first.restore(&mut |_, _| {
        let outcome = second.restore(&mut |_, _| true);
        assert!(matches!(outcome, Err(Error::InUse { .. })), "{outcome:?}");
        refused += 1;
        true
    });
    assert_eq!(restored.unwrap(), 2);
    assert!(refused > 0);
    drop((Arc::new(first), second, body, other));
    each_has_all(&mirror, &model, "by one");
}

/// Who was stopped at it leaves it to others.
#[test]
fn what_one_has_not_done_another_one_does() {
    let (mirror, model) = degraded(1);
    let (body, other) = (mirror.body(), mirror.body());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = join(&other, &file);
    assert_eq!(first.restore(&mut |_, _| false).unwrap(), 0);
    assert_eq!(failed(&second), 2);
    assert_eq!(restore(&second), 2);
    drop((Arc::new(first), second, body, other));
    each_has_all(&mirror, &model, "by the other one");
}

/// Who is gone in the middle of it leaves it to others, too.
#[test]
fn what_one_who_is_gone_has_not_done_another_one_does() {
    let (mirror, model) = degraded(1);
    let (members, other) = (mirror.all(), mirror.body());
    let body = assemble(members.clone()).unwrap();
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = join(&other, &file);
    let stopped = first.restore(&mut |_, _| {
        // As if it had been killed here.
        for member in &members {
            (0..1000).for_each(|writer| member.leave(writer).unwrap());
        }
        assert_eq!(restore(&second), 2);
        false
    });
    assert_eq!(stopped.unwrap(), 0);
    assert_eq!(failed(&second), 0);
    drop((Arc::new(first), second, body, other, members));
    each_has_all(&mirror, &model, "by the other one");
}

/// Brings member 1 up to date; in its request number `nth` of this kind, another process does
/// `what`. Whether there was such a request, and each member has all then.
fn restored_while(
    work: Work,
    nth: u64,
    before: impl Fn(&TestVolume, &mut Model),
    what: impl Fn(&TestVolume, &mut Model) + Send + 'static,
) -> bool {
    let (mirror, mut model) = degraded(1);
    let meanwhile = watched(&mirror.devices[1]);
    let good = Arc::new(mirror.devices[0].as_other());
    let (body, other) = (assemble(vec![good, Arc::clone(&meanwhile) as _]).unwrap(), mirror.body());
    let file = region_file(&body);
    let first = Volume::recover(opened(&body, &file), &body).unwrap();
    let second = Arc::new(join(&other, &file));
    before(&first, &mut model);
    let shared = Arc::new(std::sync::Mutex::new(model));
    let (its, theirs) = (Arc::clone(&second), Arc::clone(&shared));
    meanwhile.in_next(work, nth, move || what(&its, &mut theirs.lock().unwrap()));
    assert_eq!(restore(&first), 2);
    let is_done = meanwhile.is_done();
    first.flush().unwrap();
    drop((first, second, body, other, meanwhile));
    each_has_all(&mirror, &shared.lock().unwrap(), &format!("{work:?} {nth}"));
    is_done
}

/// What is copied is not put where something else is by then.
#[test]
fn what_is_copied_is_not_begun_anew_meanwhile() {
    let churn = |volume: &TestVolume, model: &mut Model| {
        volume.checkpoint().unwrap();
        for number in 0..8 {
            write(volume, model, 0, 400, 1000 + number);
            volume.flush().unwrap();
        }
    };
    // What is wrong on units that it has not come to is set right.
    for nth in [120, 159, 200] {
        assert!(restored_while(Work::Write, nth, |_, _| {}, churn), "{nth}");
    }
}

/// The segment of the checkpoint that counts, by the newest root on a member.
fn checkpoint_segment(mirror: &MemoryDevice) -> u64 {
    let mut bytes = vec![0; (ANCHORS * 16 * UNIT) as usize];
    mirror.read(START, &mut bytes).unwrap();
    let bind = Bind::new(*b"a mirror to test");
    let roots = bytes.chunks(UNIT as usize).filter_map(|unit| Root::from_unit(bind, unit));
    let newest = roots.max_by_key(|root| root.sequence).unwrap();
    newest.checkpoint.unwrap().segment
}

/// Nor is what recovery needs: where a checkpoint was there may be the one that counts.
#[test]
fn what_recovery_needs_is_not_begun_anew_while_it_is_copied() {
    for nth in 0..6 {
        let (mirror, model) = degraded(1);
        let (meanwhile, good) = (watched(&mirror.devices[1]), &mirror.devices[0]);
        let members = vec![Arc::new(good.as_other()) as _, Arc::clone(&meanwhile) as _];
        let (body, other) = (assemble(members).unwrap(), mirror.body());
        let file = region_file(&body);
        let first = Volume::recover(opened(&body, &file), &body).unwrap();
        let (second, seen) = (join(&other, &file), good.as_other());
        meanwhile.in_next(Work::Read, nth, move || {
            let before = checkpoint_segment(&seen);
            for number in 0..150 {
                second.checkpoint().unwrap();
                if checkpoint_segment(&seen) == before {
                    break;
                }
                // Checkpoints take segments by twos: so that each of them is the first one.
                let bytes = vec![number as u8; (17 << (number % 2)) * UNIT as usize];
                second.write(100_000, &bytes).unwrap();
            }
        });
        assert_eq!(restore(&first), 2);
        assert!(meanwhile.is_done());
        drop((first, body, other, meanwhile));
        each_has_all(&mirror, &model, &format!("request {nth}"));
    }
}

/// Nor is a packet that is written by then what it was before.
#[test]
fn packets_are_written_before_the_stream_is_copied() {
    let write_some = |volume: &TestVolume, model: &mut Model| {
        (0..20).for_each(|unit| write(volume, model, 500 + unit, 1, 9));
    };
    let flush = |volume: &TestVolume, _: &mut Model| volume.flush().unwrap();
    // The first ones are those of the stream.
    for nth in 0..4 {
        assert!(restored_while(Work::Read, nth, write_some, flush), "{nth}");
    }
}
