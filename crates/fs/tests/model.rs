//! Random operations, compared with a map of names; listings in between; restarts.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conquest_format::Offset;
use conquest_fs::dir::{Census, FileType, Position};
use conquest_fs::{Errno, Error};
use conquest_pm::Region;
use conquest_pm::check::Reachable;
use conquest_testkit::Rng;
use support::*;

/// What a name leads to.
type Model = BTreeMap<Vec<u8>, (Offset, FileType, Position)>;

const TYPES: [FileType; 3] = [FileType::Regular, FileType::Directory, FileType::Symlink];

/// A listing under way, a few entries at a time.
#[derive(Default)]
struct Listing {
    after: Option<Position>,
    seen: BTreeSet<Vec<u8>>,
    /// Names that have been there since it began.
    throughout: BTreeSet<Vec<u8>>,
}

struct Test {
    file: Temporary,
    core: Arc<Region>,
    dir: Dir,
    model: Model,
    names: Vec<Vec<u8>>,
    listing: Listing,
    listings: u64,
    refused: u64,
    inodes: u64,
    most: Census,
}

impl Test {
    fn new(mask: u64) -> Test {
        let file = Temporary::region(16);
        let core = file.open();
        Test {
            file,
            core,
            dir: directory(mask),
            model: Model::new(),
            names: Vec::new(),
            listing: Listing::default(),
            listings: 0,
            refused: 0,
            inodes: 0,
            most: Census::default(),
        }
    }

    /// A name that is there, or, if there is none, any.
    fn some_name(&self, rng: &mut Rng) -> Vec<u8> {
        match self.names.len() as u64 {
            0 => random_name(rng),
            count => self.names[rng.below(count) as usize].clone(),
        }
    }

    fn insert(&mut self, rng: &mut Rng, name: Vec<u8>) {
        self.inodes += 1;
        let (inode, file_type) = (inode(self.inodes), TYPES[rng.below(3) as usize]);
        let op = Op::Insert(name.clone(), inode, file_type);
        match perform(&self.core, &self.dir, &op, None) {
            Ok(Some(position)) => {
                let old = self.model.insert(name.clone(), (inode, file_type, position));
                assert_eq!(old, None);
                self.names.push(name);
            }
            Ok(None) => assert!(self.model.contains_key(&name)),
            Err(Error::Collisions { found, hash, .. }) => {
                let same = self.model.values().filter(|(_, _, at)| at.hash() == hash).count();
                assert!(found as usize == same && found >= 10, "{found} of {same}");
                self.refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn forget(&mut self, name: &[u8]) -> Option<(Offset, FileType, Position)> {
        self.names.retain(|other| other != name);
        self.listing.throughout.remove(name);
        self.model.remove(name)
    }

    fn remove(&mut self, name: &[u8]) {
        let there = perform(&self.core, &self.dir, &Op::Remove(name.to_vec()), None).unwrap();
        assert_eq!(there, self.forget(name).map(|(_, _, position)| position));
    }

    fn rename(&mut self, from: &[u8], to: Vec<u8>) {
        let op = Op::Rename(from.to_vec(), to.clone());
        match perform(&self.core, &self.dir, &op, None) {
            Ok(Some(position)) => {
                let (inode, file_type, _) = self.forget(from).unwrap();
                let old = self.model.insert(to.clone(), (inode, file_type, position));
                assert_eq!(old, None);
                self.names.push(to);
            }
            Ok(None) => assert!(!self.model.contains_key(from) || self.model.contains_key(&to)),
            Err(Error::Collisions { .. }) => self.refused += 1,
            Err(error) => panic!("{error}"),
        }
    }

    fn step(&mut self, rng: &mut Rng, grow: u64) {
        match rng.below(20) {
            number if number < grow => self.insert_random(rng),
            0..=15 => {
                let name = self.some_name(rng);
                self.remove(&name);
            }
            16 => {
                let (from, to) = (self.some_name(rng), random_name(rng));
                self.rename(&from, to);
            }
            17 => {
                let name = self.some_name(rng);
                self.inodes += 1;
                let new = (inode(self.inodes), TYPES[rng.below(3) as usize]);
                let op = Op::Replace(name.clone(), new.0, new.1);
                let there = perform(&self.core, &self.dir, &op, None).unwrap();
                let old = self.model.get_mut(&name);
                assert_eq!(there, old.as_ref().map(|old| old.2));
                if let Some(old) = old {
                    *old = (new.0, new.1, old.2);
                }
            }
            18 => self.list(rng),
            _ => {
                let name = if rng.chance(1, 2) { self.some_name(rng) } else { random_name(rng) };
                self.find(&name);
            }
        }
    }

    fn insert_random(&mut self, rng: &mut Rng) {
        let name = if rng.chance(1, 50) { self.some_name(rng) } else { random_name(rng) };
        self.insert(rng, name);
    }

    fn find(&self, name: &[u8]) {
        let hashed = self.dir.name(name).unwrap();
        let found = self.core.read(LOCK, |view| self.dir.find(view, &hashed)).unwrap();
        let found = found.map(|entry| (entry.inode, entry.file_type, entry.position));
        assert_eq!(found, self.model.get(name).copied());
        if let Some((inode, _, position)) = found {
            let at = self.core.read(LOCK, |view| self.dir.entry_at(view, position)).unwrap();
            assert_eq!(at.unwrap().inode, inode);
        }
    }

    /// Goes on with the listing.
    fn list(&mut self, rng: &mut Rng) {
        let most = 1 + rng.below(100) as usize;
        let after = self.listing.after;
        let listed = self.core.read(LOCK, |view| list(view, &self.dir, after, most)).unwrap();
        let mut last = after;
        for (name, inode, position) in &listed {
            assert!(last < Some(*position), "positions grow");
            last = Some(*position);
            let known = self.model.get(name).unwrap();
            assert_eq!((*inode, *position), (known.0, known.2));
            // A name that was removed and inserted again meanwhile is another entry.
            let is_new = self.listing.seen.insert(name.clone());
            assert!(is_new || !self.listing.throughout.contains(name), "listed twice");
        }
        self.listing.after = last;
        if listed.len() < most {
            let missed = self.listing.throughout.difference(&self.listing.seen).count();
            assert_eq!(missed, 0);
            self.listings += 1;
            let throughout = self.model.keys().cloned().collect();
            self.listing = Listing { throughout, ..Listing::default() };
        }
    }

    fn check(&mut self) {
        let mut reachable = Reachable::default();
        let mut found = Vec::new();
        let mut census = Census::default();
        self.core
            .read(LOCK, |view| {
                reachable = Reachable::default();
                found.clear();
                census = self.dir.check(view, &mut reachable, |entry, name| {
                    found.push((name.to_vec(), (entry.inode, entry.file_type, entry.position)));
                })?;
                Ok(())
            })
            .unwrap();
        assert!(found.is_sorted_by_key(|(_, (_, _, position))| *position));
        assert_eq!(found.into_iter().collect::<Model>(), self.model);
        assert_eq!(self.core.check(&reachable).unwrap(), []);
        self.most.entries = self.most.entries.max(census.entries);
        self.most.buckets = self.most.buckets.max(census.buckets);
        self.most.nodes = self.most.nodes.max(census.nodes);
    }

    fn restart(&mut self) {
        self.core.detach().unwrap();
        self.core = self.file.open();
    }
}

fn play(seed: u64, mask: u64, steps: u64) -> Census {
    let mut test = Test::new(mask);
    let mut rng = Rng::new(seed);
    let empty = test.core.pages_used();
    for round in 0..3 {
        for (grow, steps) in [(14, steps), (8, steps), (2, steps)] {
            for number in 0..steps {
                test.step(&mut rng, grow);
                if number % (steps / 4) == 0 {
                    test.check();
                }
            }
            if round == 1 {
                test.restart();
            }
        }
        while let Some(name) = test.names.first().cloned() {
            test.remove(&name);
            if test.names.len().is_multiple_of(64) {
                test.list(&mut rng);
                test.check();
            }
        }
        test.check();
        test.restart();
        // A lane keeps an empty slab of nodes at most.
        assert!(test.core.pages_used() <= empty + 7, "pages are left");
    }
    println!(
        "mask {mask:#x}: up to {:?}, {} listings, {} insertions refused",
        test.most, test.listings, test.refused
    );
    test.most
}

#[test]
fn a_directory_is_a_map_of_names() {
    let most = play(1, MASKS[0], 4000);
    assert!(most.entries > 1000 && most.buckets > 50 && most.nodes >= 1, "{most:?}");
}

#[test]
fn hashes_that_are_alike_make_a_deep_radix() {
    let most = play(2, MASKS[1], 2000);
    assert!(most.nodes >= 6, "{most:?}");
}

#[test]
fn few_hashes_hold_sixteen_names_each_at_most() {
    let most = play(3, MASKS[2], 2000);
    assert!(most.entries > 100, "{most:?}");
    play(4, MASKS[3], 500);
}

#[test]
fn names_that_fill_a_bucket_with_one_hash_are_refused_at_once() {
    let (file, dir) = (Temporary::region(1), directory(0));
    let core = file.open();
    let op = |number| Op::Insert(long_name(number), inode(number), FileType::Regular);
    for number in 0..14 {
        assert!(perform(&core, &dir, &op(number), None).unwrap().is_some());
    }
    let refused = perform(&core, &dir, &op(14), None);
    assert!(matches!(refused, Err(Error::Collisions { found: 14, hash: 0, .. })), "{refused:?}");
    assert_eq!(refused.unwrap_err().errno(), Errno::ENOSPC);
    let (found, census) = examine(&core, &dir).unwrap();
    assert_eq!((found.len(), census.buckets, census.nodes), (14, 1, 0));
}

#[test]
fn names_of_one_hash_are_told_apart() {
    let (file, dir) = (Temporary::region(1), directory(0));
    let core = file.open();
    // Each begins like the next one, at the end of a word or within one.
    let names = [&b"12345678abc"[..], b"12345678", b"1234567", b"1", b"12345678abcdefgh"];
    for (name, number) in names.into_iter().zip(0..) {
        let hashed = dir.name(name).unwrap();
        let found = core.read(LOCK, |view| dir.find(view, &hashed)).unwrap();
        assert_eq!(found, None);
        insert(&core, &dir, name, inode(number));
    }
    for (name, number) in names.into_iter().zip(0..) {
        let hashed = dir.name(name).unwrap();
        let found = core.read(LOCK, |view| dir.find(view, &hashed)).unwrap();
        assert_eq!(found.unwrap().inode, inode(number));
    }
}

#[test]
fn a_new_bucket_takes_all_the_room_there_is() {
    use conquest_fs::dir::NameHash;
    let mask = 0xF << 60;
    let (file, dir) = (Temporary::region(1), directory(mask));
    let core = file.open();
    // The lower half is split until it holds one hash; the upper half stays empty meanwhile.
    let with = |hash: u64| (0..).map(long_name).filter(move |n| masked(mask).hash(n) >> 60 == hash);
    for (name, number) in with(0).take(14).chain(with(1).take(1)).zip(0..) {
        insert(&core, &dir, &name, inode(number));
    }
    assert_eq!(examine(&core, &dir).unwrap().1.buckets, 2);
    for (hash, number) in (8..16).zip(100..) {
        insert(&core, &dir, &with(hash).next().unwrap(), inode(number));
    }
    assert_eq!(examine(&core, &dir).unwrap().1.buckets, 3);
}

#[test]
fn names_out_of_range_are_none() {
    let dir = directory(u64::MAX);
    for bad in [&b""[..], b"a/b", b"a\0b", &[b'x'; 256]] {
        assert!(dir.name(bad).is_none());
    }
    assert!(dir.name(&[b'x'; 255]).is_some() && dir.name(b".").is_some());
}
