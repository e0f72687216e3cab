//! What a check costs. Prints it; fails only if it is out of all proportion.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conquest_format::geometry::Shape;
use conquest_format::{Offset, fs};
use conquest_fs::FileSystem;
use conquest_fs::content::WriteAt;
use conquest_fs::names::New;
use conquest_fsck::{Options, View, check};
use conquest_peers::sys;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;
use conquest_pm::{Access, Region};
use conquest_testkit::files::{clock, files_options, new_file_system, root_user};
use support::*;

/// A region in a file, and how many bytes of it were read.
struct Counted(File, AtomicU64);

impl View for Counted {
    fn len(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }

    fn load(&self, at: Offset) -> u64 {
        let mut word = [0; 8];
        self.copy(at, &mut word);
        u64::from_le_bytes(word)
    }

    fn copy(&self, at: Offset, out: &mut [u8]) {
        self.1.fetch_add(out.len() as u64, Ordering::Relaxed);
        self.0.read_exact_at(out, at.bytes()).unwrap();
    }
}

#[test]
fn tables_for_groups_that_are_not_there_are_not_read() {
    let file = sys::memory_file(c"conquest-test-fsck").unwrap();
    // 512 GiB at most; the tables alone take more than 5 GiB, but for their holes.
    let shape = Shape { max_groups: 1 << 18, ..SHAPE };
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    let copy = || Source::from(file.try_clone().unwrap());
    Region::create(copy(), 0o600, &new).unwrap();
    let core = Region::open(copy(), &fs::kinds(), Access::default(), files_options()).unwrap();
    FileSystem::make(&core, &new_file_system(), &clock()).unwrap();
    let files = FileSystem::open(core, clock()).unwrap();
    files.create(&root_user(), files.root(), b"file", New::Fifo, 0o600).unwrap();
    files.core().detach().unwrap();
    let view = Counted(File::from(file), AtomicU64::new(0));
    let report = check(&view, &Options::default()).unwrap();
    assert_eq!(complaints(&report), Vec::<String>::new());
    assert_eq!((report.counts.entries, report.counts.pages_free > 500), (1, true));
    let (len, read) = (view.len(), view.1.into_inner());
    println!("{len} bytes, {read} of them read");
    assert!(len > 5 << 30 && read < 64 << 10, "{read} of {len}");
}

const DIRECTORIES: u64 = 16;
const FILES: u64 = 300;
/// How long a check of the store may take, on a busy machine and without optimisation.
const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn a_check_costs_little_for_each_inode() {
    let (memory, files) = new_store(false);
    let who = &root_user();
    for number in 0..DIRECTORIES {
        let name = format!("d{number}");
        let directory = files.create(who, files.root(), name.as_bytes(), New::Directory, 0o700);
        let directory = directory.unwrap();
        for number in 0..FILES {
            let name = format!("file-{number}");
            let file = files.create(who, directory, name.as_bytes(), New::Regular, 0o600).unwrap();
            files.write(who, file, WriteAt::Offset(0), &filler(100)).unwrap();
        }
    }
    let bytes = bytes_of(memory.image());
    let begin = Instant::now();
    let report = examine(&bytes);
    let took = begin.elapsed();
    assert!(report.is_consistent() && report.counts.files == DIRECTORIES * FILES);
    let inodes = DIRECTORIES * (FILES + 1) + 1;
    println!(
        "{inodes} inodes, {} MiB: {took:?}, {:?} each",
        bytes.len() >> 20,
        took / inodes as u32
    );
    assert!(took < LIMIT, "{took:?}");
}
