//! Requests under way side by side: they do what one by one they would.
#![allow(clippy::unwrap_used, clippy::panic)]

mod opening;
mod volumes;

use std::collections::BTreeMap;

use conquest_flash::{Completion, Error, Job, Request, Volume};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_testkit::Rng;
use conquest_uring::Buffer;
use opening::Place;
use volumes::{BLOCK, Model, device, recovered};

/// Blocks that the tests use.
const SPACE: u64 = 8 * 16 * 20;

fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::new(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

/// What reads under way may find: the range, and the blocks as they were when each was submitted
/// and after each write since.
#[derive(Default)]
struct Expected(BTreeMap<u64, (u64, u64, Vec<Vec<u8>>)>);

impl Expected {
    /// A write was submitted.
    fn note(&mut self, model: &Model) {
        for (block, count, possible) in self.0.values_mut() {
            possible.push(model.read(*block, *count));
        }
    }

    fn check(&mut self, Completion { tag, outcome, job }: Completion) {
        outcome.unwrap();
        let Job::Read(found) = job else {
            return;
        };
        let (block, count, possible) = self.0.remove(&tag).unwrap();
        for at in 0..count {
            let part = (at * BLOCK) as usize..((at + 1) * BLOCK) as usize;
            let is_one = possible.iter().any(|bytes| bytes[part.clone()] == found[part.clone()]);
            assert!(is_one, "request {tag}, block {}", block + at);
        }
    }
}

/// Random requests to `volume`, up to `depth` at once, and others in between.
fn storm<M: Memory, H: Host>(
    volume: &Volume<M, H>,
    model: &mut Model,
    (depth, count, seed): (u32, u64, u64),
) {
    let mut rng = Rng::new(seed);
    let mut queue = volume.queue(depth).unwrap();
    let mut expected = Expected::default();
    for tag in 0..count {
        while !queue.has_room() {
            let least = rng.below(u64::from(depth) + 2) as usize;
            queue.wait(least).unwrap().into_iter().for_each(|done| expected.check(done));
        }
        let (mut block, mut len) = (rng.below(SPACE - 300), 1 + rng.below(20));
        match rng.below(10) {
            0 => len = 1 + rng.below(300),
            1 => {}
            _ => (block, len) = (block / 8 * 8, 8 * (1 + rng.below(3))),
        }
        match rng.below(20) {
            0 => {
                volume.trim(block, len).unwrap();
                model.trim(block, len);
                expected.note(model);
            }
            1 => volume.flush().unwrap(),
            2..=10 => {
                let job = Job::Write(buffer(&model.write(block, len, tag)));
                queue.submit(Request { tag, block, job }).unwrap();
                expected.note(model);
            }
            _ => {
                expected.0.insert(tag, (block, len, vec![model.read(block, len)]));
                let job = Job::Read(Buffer::new((len * BLOCK) as usize).unwrap());
                queue.submit(Request { tag, block, job }).unwrap();
            }
        }
    }
    queue.wait(usize::MAX).unwrap().into_iter().for_each(|done| expected.check(done));
    assert_eq!(queue.under_way(), 0);
    assert!(expected.0.is_empty());
}

#[test]
fn they_do_what_one_by_one_they_would() {
    for (members, seed) in [(1, 1), (3, 2)] {
        let place = Place::new(members, 60);
        let volume = place.open().unwrap();
        let mut model = Model::default();
        for (depth, count) in [(1, 500), (7, 2000), (64, 6000)] {
            storm(&volume, &mut model, (depth, count, seed));
            let mut bytes = vec![0; (SPACE * BLOCK) as usize];
            volume.read(0, &mut bytes).unwrap();
            assert!(bytes == model.read(0, SPACE), "{members} members, depth {depth}");
        }
    }
}

#[test]
fn what_is_read_may_be_cleaned_away_meanwhile() {
    let place = Place::new(1, 64);
    let volume = place.open().unwrap();
    let mut model = Model::default();
    let units = volume.info().unwrap().capacity * 9 / 10;
    for unit in 0..units {
        let bytes = model.write(unit * 8, 8, 1);
        volume.write(unit * 8, &bytes).unwrap();
    }
    volume.flush().unwrap();
    let mut queue = volume.queue(32).unwrap();
    let mut rng = Rng::new(1);
    for round in 0..200 {
        let mut expected = Expected::default();
        for tag in 0..32 {
            let block = rng.below(units) * 8;
            expected.0.insert(tag, (block, 8, vec![model.read(block, 8)]));
            let job = Job::Read(Buffer::new(4096).unwrap());
            queue.submit(Request { tag, block, job }).unwrap();
        }
        // They have been begun, or will be when all of this has moved.
        for number in 0..100 {
            let block = rng.below(units) * 8;
            let bytes = model.write(block, 8, round << 32 | number);
            volume.write(block, &bytes).unwrap();
            expected.note(&model);
        }
        queue.wait(32).unwrap().into_iter().for_each(|done| expected.check(done));
    }
    assert!(volume.info().unwrap().written.copied > 2 * units);
}

#[test]
fn a_write_is_complete_when_it_is_on_the_devices() {
    let device = device(64);
    let mut model = Model::default();
    for round in 0..40 {
        let volume = recovered(&device);
        let mut queue = volume.queue(16).unwrap();
        for tag in 0..16 {
            let block = (round * 16 + tag) % 300 * 8;
            let job = Job::Write(buffer(&model.write(block, 8, round)));
            queue.submit(Request { tag, block, job }).unwrap();
        }
        let some = queue.wait(1).unwrap();
        assert!(!some.is_empty());
        for done in some.into_iter().chain(queue.wait(usize::MAX).unwrap()) {
            done.outcome.unwrap();
        }
        drop(queue);
        drop(volume);
        // Nobody has flushed, but no power was cut either.
        model.compare(&recovered(&device), SPACE, &format!("round {round}"));
    }
}

#[test]
fn refusals_come_as_completions() {
    let device = device(64);
    let volume = recovered(&device);
    let mut queue = volume.queue(2).unwrap();
    let end = u64::MAX - 7;
    let read = || Job::Read(Buffer::new(4096).unwrap());
    queue.submit(Request { tag: 1, block: end, job: read() }).unwrap();
    queue.submit(Request { tag: 2, block: end, job: Job::Write(buffer(&[1; 4096])) }).unwrap();
    let back = queue.submit(Request { tag: 3, block: 0, job: read() }).unwrap_err();
    assert_eq!(back.tag, 3);
    for done in queue.wait(2).unwrap() {
        let refused = done.outcome.unwrap_err();
        assert!(matches!(refused, Error::Range { .. }), "{refused}");
    }
    assert!(volume.queue(0).is_err());
}

#[test]
fn one_read_finds_what_is_in_many_places() {
    for members in [1, 3] {
        let place = Place::new(members, 60);
        let volume = place.open().unwrap();
        let mut model = Model::default();
        let mut rng = Rng::new(u64::from(members));
        for number in 0..600 {
            let block = rng.below(SPACE / 8) * 8;
            if rng.chance(1, 8) {
                volume.trim(block, 8).unwrap();
                model.trim(block, 8);
            } else {
                let bytes = model.write(block, 8, number);
                volume.write(block, &bytes).unwrap();
            }
            if number % 100 == 99 {
                let block = rng.below(SPACE - 1000);
                let mut bytes = vec![0; 1000 * BLOCK as usize];
                volume.read(block, &mut bytes).unwrap();
                assert!(bytes == model.read(block, 1000), "{members} members, {number}");
                volume.flush().unwrap();
            }
        }
    }
}
