//! Directories damaged at random and on purpose: whatever is done then succeeds or fails with an
//! error; nothing panics, goes on for ever or looks past the region's end.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use conquest_format::fs::bucket::{HEADER, Header};
use conquest_format::fs::node::{SLOTS, Slot};
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::{Offset, PAGE, WORD};
use conquest_fs::dir::{FileType, Position};
use conquest_fs::{Error, Result};
use conquest_pm::check::Reachable;
use conquest_pm::memory::Memory;
use conquest_testkit::{DyingMemory, Image, RecordingMemory, Rng, World};
use support::*;

const CASES: u64 = 1500;

/// A directory, and where its words are.
struct Sound {
    mask: u64,
    image: Arc<Image>,
    names: Vec<Vec<u8>>,
    /// The words of its root, nodes and buckets.
    words: Vec<Offset>,
    /// The pages of its buckets.
    buckets: Vec<Offset>,
    /// The slots of its nodes.
    slots: Vec<Offset>,
}

fn words(at: Offset, bytes: u64) -> impl Iterator<Item = Offset> {
    (0..bytes / WORD).map(move |index| at.plus(index * WORD))
}

fn collect(core: &SimCore, cell: Offset, sound: &mut Sound) {
    let word = core.memory().load(cell, std::sync::atomic::Ordering::Relaxed);
    match Slot::unpack(word).unwrap() {
        Slot::Bucket(at) if !sound.buckets.contains(&at) => {
            sound.buckets.push(at);
            sound.words.extend(words(at, PAGE));
        }
        Slot::Node(at) => {
            for slot in words(at, SLOTS * WORD) {
                sound.slots.push(slot);
                sound.words.push(slot);
                collect(core, slot, sound);
            }
        }
        Slot::Empty | Slot::Bucket(_) => {}
    }
}

fn sound(mask: u64, count: u64) -> Sound {
    let mut rng = Rng::new(mask);
    let mut sound = Sound {
        mask,
        image: Arc::new(Image::new(0)),
        names: Vec::new(),
        words: words(STATE_ROOTS, 3 * WORD).collect(),
        buckets: Vec::new(),
        slots: Vec::new(),
    };
    sound.image = image(true, |core| {
        for number in 0..count {
            let name = if number % 3 == 0 { random_name(&mut rng) } else { long_name(number) };
            let op = Op::Insert(name.clone(), inode(number), FileType::Regular);
            match perform(core, &directory(mask), &op, None) {
                Ok(_) => sound.names.push(name),
                Err(Error::Collisions { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        examine(core, &directory(mask)).unwrap();
        let mut found = Vec::new();
        std::mem::swap(&mut found, &mut sound.words);
        sound.words = found;
        collect(core, STATE_ROOTS, &mut sound);
    });
    sound
}

/// Changes a few words.
fn damage(memory: &RecordingMemory, sound: &Sound, rng: &mut Rng) {
    let actor = memory.actor(0);
    let pick = |rng: &mut Rng, of: &[Offset]| of[rng.below(of.len() as u64) as usize];
    let load = |at| actor.load(at, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..1 + rng.below(4) {
        let at = match rng.below(4) {
            // Headers and tags.
            0 => pick(rng, &sound.buckets).plus(rng.below(32) * WORD),
            1 if !sound.slots.is_empty() => pick(rng, &sound.slots),
            2 => STATE_ROOTS,
            _ => pick(rng, &sound.words),
        };
        let value = match rng.below(6) {
            0 => rng.word(),
            1 => load(at) ^ 1 << rng.below(64),
            2 => 0,
            // A word of the directory at another place: check bits match.
            3 => load(pick(rng, &sound.words)),
            4 if !sound.slots.is_empty() => load(pick(rng, &sound.slots)),
            _ => {
                load(at) & !0xFF << (8 * rng.below(8)) | (1 + rng.below(255)) << (8 * rng.below(8))
            }
        };
        actor.put(at, value, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Looks at everything and changes something; how many of these have failed.
fn use_it(core: &SimCore, sound: &Sound, rng: &mut Rng) -> u64 {
    let dir = directory(sound.mask);
    let mut errors = 0;
    let mut note = |failed: bool| errors += u64::from(failed);
    for name in &sound.names {
        let name = dir.name(name).unwrap();
        note(core.read(LOCK, |view| dir.find(view, &name)).is_err());
    }
    let mut listed = 0_u64;
    note(
        core.read(LOCK, |view| {
            dir.list(view, None, |_, _| {
                listed += 1;
                ControlFlow::Continue(())
            })
        })
        .is_err(),
    );
    // Dentries may be one in another, but no bucket is gone through twice.
    assert!(listed <= 240 * sound.buckets.len() as u64, "{listed} entries");
    let check =
        core.read(LOCK, |view| dir.check(view, &mut Reachable::default(), |_, _| {}).map(|_| ()));
    note(check.is_err());
    let position = Position::new(rng.word(), rng.word());
    note(core.read(LOCK, |view| dir.entry_at(view, position)).is_err());
    for number in 0..6 {
        let one = sound.names[rng.below(sound.names.len() as u64) as usize].clone();
        let op = match number % 3 {
            0 => Op::Insert(random_name(rng), inode(900), FileType::Regular),
            1 => Op::Remove(one),
            _ => Op::Rename(one, long_name(9000 + number)),
        };
        note(allowed(perform(core, &dir, &op, None).map(|_| ())));
    }
    errors
}

/// Whether the operation has failed; only with an error of damage.
fn allowed(result: Result<()>) -> bool {
    use conquest_pm::Error as Core;
    match result {
        Ok(()) | Err(Error::Collisions { .. }) => false,
        Err(Error::Core(Core::Corrupt { offset, expected, .. })) => {
            assert!(!offset.is_none() && !expected.is_empty());
            true
        }
        Err(Error::Core(Core::Failed { .. })) => true,
        Err(error) => panic!("{error}"),
    }
}

fn damaged(mask: u64, count: u64) {
    let sound = sound(mask, count);
    let (mut noticed, mut errors) = (0, 0);
    for case in 0..CASES {
        let mut rng = Rng::stream(mask, case);
        let memory = RecordingMemory::new(Arc::clone(&sound.image), geometry().volatile(), false);
        damage(&memory, &sound, &mut rng);
        let world = World::new(memory.clock());
        let core = attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap();
        let failed = use_it(&core, &sound, &mut rng);
        assert_eq!(memory.violation(), None, "case {case}");
        noticed += u64::from(failed > 0);
        errors += failed;
    }
    println!(
        "{} buckets, {} slots: {noticed} of {CASES} damages noticed, {errors} errors",
        sound.buckets.len(),
        sound.slots.len()
    );
    assert!(noticed > CASES / 2);
}

#[test]
fn one_bucket() {
    damaged(u64::MAX, 12);
}

#[test]
fn buckets_under_a_node() {
    damaged(u64::MAX, 120);
}

#[test]
fn nodes_under_nodes() {
    damaged(0x1F << 41, 60);
}

/// Damages `sound` on purpose; what then comes of a listing, a check and a look-up of every name.
fn after(
    sound: &Sound,
    change: impl FnOnce(&dyn Fn(Offset) -> u64, &dyn Fn(Offset, u64)),
) -> [bool; 3] {
    let order = std::sync::atomic::Ordering::Relaxed;
    let memory = RecordingMemory::new(Arc::clone(&sound.image), geometry().volatile(), false);
    let actor = memory.actor(0);
    change(&|at| actor.load(at, order), &|at, value| actor.put(at, value, order));
    let world = World::new(memory.clock());
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap();
    let dir = directory(sound.mask);
    let listed = core.read(LOCK, |view| dir.list(view, None, |_, _| ControlFlow::Continue(())));
    let checked = core.read(LOCK, |view| dir.check(view, &mut Reachable::default(), |_, _| {}));
    let all_found = sound.names.iter().all(|name| {
        let name = dir.name(name).unwrap();
        core.read(LOCK, |view| dir.find(view, &name)).is_ok_and(|found| found.is_some())
    });
    assert_eq!(memory.violation(), None);
    [listed.is_ok(), checked.is_ok(), all_found]
}

#[test]
fn a_name_that_is_not_of_its_hash_is_refused() {
    let sound = sound(u64::MAX, 5);
    assert_eq!(after(&sound, |_, _| {}), [true; 3]);
    // The first name's first byte.
    let name = sound.buckets[0].plus(17 * 16);
    assert_eq!(after(&sound, |load, put| put(name, load(name) ^ 1)), [false; 3]);
}

#[test]
fn what_is_not_allocated_is_not_followed() {
    for (mask, count) in [(u64::MAX, 5), (u64::MAX, 60)] {
        let sound = sound(mask, count);
        let (from, len) = match sound.slots.first() {
            Some(&node) => (node, SLOTS * WORD),
            None => (sound.buckets[0], PAGE),
        };
        let free = geometry().page(300);
        let root = if len == PAGE { Slot::Bucket(free) } else { Slot::Node(free) };
        let ends = after(&sound, |load, put| {
            // A copy that is as good as the original, in a free page.
            words(from, len).zip(words(free, len)).for_each(|(from, to)| put(to, load(from)));
            put(STATE_ROOTS, root.pack());
        });
        assert_eq!(ends, [false; 3]);
    }
}

#[test]
fn a_node_without_entries_is_refused() {
    let sound = sound(u64::MAX, 60);
    let ends = after(&sound, |_, put| sound.slots.iter().for_each(|&slot| put(slot, 0)));
    assert_eq!(ends, [false; 3]);
}

#[test]
fn a_bucket_of_all_hashes_is_refused_below_a_node() {
    let sound = sound(u64::MAX, 60);
    let header = Header::new(0, 0).pack();
    let ends = after(&sound, |_, put| {
        sound.buckets.iter().for_each(|bucket| put(bucket.plus(HEADER), header));
    });
    assert_eq!(ends, [false; 3]);
}

#[test]
fn half_a_hash_is_refused_at_the_last_level() {
    // Hashes that differ in their last bit only need all levels.
    let sound = sound(1 << 16, 32);
    assert_eq!(sound.slots.len() as u64, 7 * SLOTS);
    // The first slots of the nodes on the way to the first bucket come first.
    let last = sound.slots[6];
    let ends = after(&sound, |_, put| {
        words(last, SLOTS * WORD).step_by(2).for_each(|slot| put(slot, 0));
    });
    assert_eq!(ends, [false; 3]);
}
