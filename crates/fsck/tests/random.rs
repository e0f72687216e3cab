//! Random operations of all kinds by the engine: after every few of them the store is consistent,
//! and what the checker counts is what the engine does.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use conquest_access::Removal;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::names::{New, Renaming};
use conquest_fs::xattr::Setting;
use conquest_fs::{Error, FileId};
use conquest_testkit::files::{SimFiles, root_user};
use conquest_testkit::judge::judge;
use conquest_testkit::{RecordingMemory, Rng};
use support::*;

const OPERATIONS: u64 = 2500;
/// Operations between two checks.
const STEP: u64 = 20;

struct Test {
    memory: RecordingMemory,
    files: SimFiles,
    rng: Rng,
    done: u64,
}

impl Test {
    fn name(&mut self) -> Vec<u8> {
        let number = self.rng.below(40);
        // Long ones fill buckets, so that these are split and merged.
        if number.is_multiple_of(3) { format!("{number:0>255}") } else { format!("n{number}") }
            .into_bytes()
    }

    /// The root directory, or one in it.
    fn directory(&mut self) -> FileId {
        let name = format!("d{}", self.rng.below(4));
        let (who, root) = (&root_user(), self.files.root());
        match self.rng.below(3) {
            0 => root,
            _ => match self.files.lookup(who, root, name.as_bytes()).unwrap() {
                Some((file, _)) => file,
                None => {
                    let made = self.files.create(who, root, name.as_bytes(), New::Directory, 0o755);
                    made.unwrap_or(root)
                }
            },
        }
    }

    /// Some file, in some directory.
    fn file(&mut self) -> Option<FileId> {
        let (directory, name) = (self.directory(), self.name());
        let found = self.files.lookup(&root_user(), directory, &name).ok()?;
        found.map(|(file, _)| file)
    }

    fn change_names(&mut self) -> Result<(), Error> {
        let who = &root_user();
        let (directory, name) = (self.directory(), self.name());
        let (other, new) = (self.directory(), self.name());
        let target = filler(1 + self.rng.below(4000) as usize);
        let files = &self.files;
        match self.rng.below(14) {
            0..=3 => files.create(who, directory, &name, New::Regular, 0o640).map(drop),
            4 => files.create(who, directory, &name, New::Symlink(&target), 0).map(drop),
            5 => files.create(who, directory, &name, New::Character(1, 2), 0o600).map(drop),
            6 => files.create(who, directory, &name, New::Directory, 0o750).map(drop),
            7 => match files.lookup(who, directory, &name)? {
                Some((file, _)) => files.link(who, file, other, &new),
                None => Ok(()),
            },
            8 | 9 => files.remove(who, directory, &name, Removal::File),
            10 => files.remove(who, directory, &name, Removal::Directory),
            11 => files.rename(who, directory, &name, other, &new, Renaming::Replace),
            12 => files.rename(who, directory, &name, other, &new, Renaming::Exchange),
            _ => files.rename(who, directory, &name, other, &new, Renaming::Whiteout),
        }
    }

    fn change_file(&mut self) -> Result<(), Error> {
        let who = &root_user();
        let Some(file) = self.file() else { return Ok(()) };
        let sizes = [100, 3000, 20_000, 1 << 22];
        let most = sizes[self.rng.below(4) as usize];
        let at = self.rng.below(most);
        let len = 1 + self.rng.below(most.min(30_000));
        let keeps_size = self.rng.chance(1, 2);
        let bytes = filler(len as usize);
        let name = format!("user.{}", self.rng.below(5));
        let attribute = &filler(self.rng.below(3000) as usize);
        let files = &self.files;
        match self.rng.below(13) {
            0..=2 => files.write(who, file, WriteAt::Offset(at), &bytes).map(drop),
            3 => files.write(who, file, WriteAt::End, &bytes).map(drop),
            4 => files.truncate(who, file, at),
            5 => files.allocate(who, file, Allocate::Space { keeps_size }, at, len),
            6 => files.allocate(who, file, Allocate::Zeros { keeps_size }, at, len),
            7 => files.allocate(who, file, Allocate::Hole, at, len),
            8 => files.trim(file),
            9 => files.set_mode(who, file, (at & 0o7777) as u32),
            10 => {
                let name = [&b"system.posix_acl_access"[..], b"system.posix_acl_default"];
                let name = name[usize::from(keeps_size)];
                let list = if at.is_multiple_of(3) { Vec::new() } else { access_list() };
                files.set_attribute(who, file, name, &list, Setting::Any)
            }
            11 => files.remove_attribute(who, file, name.as_bytes()),
            _ => files.set_attribute(who, file, name.as_bytes(), attribute, Setting::Any),
        }
    }

    fn step(&mut self) {
        let done = if self.rng.chance(1, 2) { self.change_names() } else { self.change_file() };
        match done {
            Ok(()) => self.done += 1,
            Err(Error::Refused(_) | Error::Stale) => {}
            Err(Error::Core(conquest_pm::Error::NoSpace { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&self) {
        let report = judge(self.memory.image()).unwrap();
        let census = self.files.check().unwrap();
        assert_eq!(census.findings, []);
        let counts = report.counts;
        let files = counts.files + counts.symlinks + counts.others;
        assert_eq!((files, counts.directories), (census.files, census.directories));
        assert_eq!(counts.pages_used, self.files.core().pages_used());
    }
}

#[test]
fn whatever_the_engine_does_the_store_is_consistent() {
    for seed in 0..4 {
        let (memory, files) = new_store(false);
        let mut test = Test { memory, files, rng: Rng::stream(9, seed), done: 0 };
        for number in 1..=OPERATIONS {
            test.step();
            if number % STEP == 0 {
                test.check();
            }
        }
        test.files.core().detach().unwrap();
        let report = judge(test.memory.image()).unwrap();
        println!("seed {seed}: {} operations, {:?}", test.done, report.counts);
        assert!(report.clean && test.done > OPERATIONS / 4);
    }
}
