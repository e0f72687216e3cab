//! Operations on open files side by side with ext4: two files and a directory, each open in every
//! way all the time.
//!
//! Needs root, mount namespaces, a loop device and `mkfs.ext4`; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store_support;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;

use conquest_fs::content::Seek;
use conquest_fs::open::{End, OpenFile, Whence};
use conquest_peers::machine::{self, Kind};
use conquest_peers::sys::{self, Outcome};
use conquest_testkit::Rng;
use store_support::{Files, open, root, store};

const OPERATIONS: u64 = 6000;
/// The largest file on ext4 with blocks of 4 KiB.
const SIZE_MAX: u64 = 0xFFFF_FFFF << 12;
/// No file gets larger, but by mistakes.
const PLACES: u64 = 150_000;

/// What is open: names and flags.
const OPEN: [(&str, i32); 11] = [
    ("a", libc::O_RDWR),
    ("a", libc::O_RDWR),
    ("a", libc::O_RDONLY),
    ("a", libc::O_WRONLY),
    ("a", libc::O_RDWR | libc::O_APPEND),
    ("a", libc::O_PATH),
    ("b", libc::O_RDWR),
    ("b", libc::O_RDONLY),
    ("b", libc::O_RDWR | libc::O_APPEND),
    ("b", libc::O_PATH),
    ("d", libc::O_RDONLY | libc::O_DIRECTORY),
];

/// What is done with what is open.
#[derive(Clone, Debug)]
enum Do {
    /// Copies to another one: from where, to where, how many bytes, with which flags.
    Copy(usize, [Option<u64>; 2], u64, u32),
    Seek(u64),
    Truncate(u64),
}

/// An offset: mostly one in a file.
fn place(rng: &mut Rng) -> u64 {
    match rng.below(40) {
        0 => SIZE_MAX - rng.below(3),
        1 => u64::MAX - rng.below(9000),
        2 => 1 << 63 | rng.below(9000),
        3..=20 => rng.below(9000),
        _ => rng.below(PLACES),
    }
}

fn len(rng: &mut Rng) -> u64 {
    match rng.below(20) {
        0 => 0,
        1 => u64::MAX >> 1,
        2 => u64::MAX,
        3..=9 => rng.below(9000),
        _ => rng.below(PLACES / 2),
    }
}

fn random(rng: &mut Rng) -> Do {
    let mut end = || if rng.chance(1, 4) { None } else { Some(place(rng)) };
    match (end(), end(), rng.below(12)) {
        (_, _, 0..=1) => Do::Seek(rng.below(PLACES)),
        (_, _, 2) => Do::Truncate(rng.below(PLACES)),
        (from, to, _) => {
            let flags = u32::from(rng.chance(1, 40));
            Do::Copy(rng.below(OPEN.len() as u64) as usize, [from, to], len(rng), flags)
        }
    }
}

fn name(what: &Do) -> &'static str {
    match what {
        Do::Copy(..) => "copy_file_range",
        Do::Seek(..) => "lseek",
        Do::Truncate(..) => "ftruncate",
    }
}

/// Bytes that tell where they were written.
fn content(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|index| (((seed + index) * 2_654_435_761) >> 7) as u8 | 1).collect()
}

fn ours(files: &Files, all: &[OpenFile], index: usize, what: &Do) -> Outcome<u64> {
    let open = &all[index];
    let done = match *what {
        Do::Copy(to, [source, target], len, flags) => {
            let target = End { open: &all[to], at: target };
            files.copy_range(&root(), End { open, at: source }, target, len, flags)
        }
        Do::Seek(to) => files.seek_to(open, to as i64, Whence::Start),
        Do::Truncate(size) => files.truncate_through(&root(), open, size).map(|()| 0),
    };
    done.map_err(|error| error.errno().number())
}

fn kernels(all: &[File], index: usize, what: &Do) -> Outcome<u64> {
    let open = &all[index];
    match *what {
        Do::Copy(to, places, len, flags) => sys::copy_range(open, &all[to], places, len, flags),
        Do::Seek(to) => sys::seek(open, to as i64, libc::SEEK_SET),
        Do::Truncate(size) => sys::truncate_open(open, size).map(|()| 0),
    }
}

#[test]
fn open_files_are_those_of_ext4() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let said = machine::run(Kind::Ext4, directory, machine::LIMIT, |place| {
        sys::enter(place);
        let files = store(8, SIZE_MAX);
        sys::make_directory(sys::HERE, c"d", 0o755).unwrap();
        let (root_of_store, who) = (files.root(), root());
        files.create(&who, root_of_store, b"d", conquest_fs::names::New::Directory, 0o755).unwrap();
        for name in ["a", "b"] {
            let flags = libc::O_RDWR | libc::O_CREAT;
            let mine = open(&files, name, flags);
            let c_name = CString::new(name).unwrap();
            let theirs = sys::open(sys::HERE, &c_name, flags, 0o666).unwrap();
            let bytes = content(name.len() as u64 + u64::from(name.as_bytes()[0]), PLACES);
            files.write_at(&who, &mine, 0, &bytes).unwrap();
            sys::write_at(&theirs, 0, &bytes).unwrap();
            files.close(&mine).unwrap();
        }
        let mine = OPEN.map(|(name, flags)| open(&files, name, flags));
        let theirs = OPEN.map(|(name, flags)| {
            sys::open(sys::HERE, &CString::new(name).unwrap(), flags, 0).unwrap()
        });
        let rng = &mut Rng::new(5);
        let mut counts: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for number in 0..OPERATIONS {
            let index = rng.below(OPEN.len() as u64) as usize;
            let what = random(rng);
            let results = [ours(&files, &mine, index, &what), kernels(&theirs, index, &what)];
            let tell = || format!("{number}: {what:?} of {:?}", OPEN[index]);
            assert_eq!(results[0], results[1], "{}", tell());
            counts.entry(name(&what)).or_default()[usize::from(results[0].is_ok())] += 1;
            for (index, (mine, theirs)) in mine.iter().zip(&theirs).enumerate() {
                let position = sys::seek(theirs, 0, libc::SEEK_CUR);
                let mine = files.seek_to(mine, 0, Whence::Current);
                assert_eq!(mine.ok(), position.ok(), "{}: position of {index}", tell());
            }
            for index in [2, 7] {
                let (mut left, mut right) = (vec![0; 2 << 20], vec![0; 2 << 20]);
                let size = files.stat(mine[index].file).unwrap().size;
                assert_eq!(size, theirs[index].metadata().unwrap().len(), "{}", tell());
                let len = files.read_at(&mine[index], 0, &mut left).unwrap();
                sys::read_at(&theirs[index], 0, &mut right).unwrap();
                let differs = (0..len).find(|&at| left[at] != right[at]);
                assert_eq!(differs, None, "{}: content of {index}", tell());
                if size > 4 * PLACES {
                    let writable = [0, 6][index / 7];
                    files.truncate_through(&who, &mine[writable], PLACES).unwrap();
                    sys::truncate_open(&theirs[writable], PLACES).unwrap();
                }
            }
        }
        for (name, [failed, succeeded]) in &counts {
            assert!(*failed > 0 && *succeeded > 0, "{name}: {failed} failed, {succeeded} did not");
        }
        format!("{OPERATIONS} operations compared: {counts:?}")
    });
    println!("{said}");
}

#[test]
fn holes_are_copied_as_holes() {
    let files = store(8, SIZE_MAX);
    let [source, target] = ["a", "b"].map(|name| open(&files, name, libc::O_RDWR | libc::O_CREAT));
    let (who, hole) = (root(), 1 << 20);
    files.write_at(&who, &source, 0, &[1; 100]).unwrap();
    files.write_at(&who, &source, hole, &[2; 100]).unwrap();
    files.truncate_through(&who, &source, 3 * hole).unwrap();
    let copy = |len| {
        let end = |open| End { open, at: Some(0) };
        files.copy_range(&who, end(&source), end(&target), len, 0).unwrap()
    };
    assert_eq!(copy(u64::MAX), 3 * hole);
    let blocks = |open: &OpenFile| files.stat(open.file).unwrap().blocks;
    assert_eq!(files.stat(target.file).unwrap().size, 3 * hole);
    assert!(blocks(&target) <= blocks(&source) + 128, "{}", blocks(&target));
    assert!(files.seek(target.file, Seek::Data, 64 << 10).unwrap() > hole - (64 << 10));
    assert!(files.seek(target.file, Seek::Data, hole + (64 << 10)).is_err());
    // But over bytes that are there, zeros are written.
    files.write_at(&who, &target, 0, &[3; 1 << 20]).unwrap();
    assert_eq!(copy(hole / 2), hole / 2);
    let mut bytes = vec![9; 1 << 20];
    files.read_at(&target, 0, &mut bytes).unwrap();
    let (copied, rest) = bytes.split_at(1 << 19);
    assert!(copied[..100].iter().all(|&byte| byte == 1));
    assert!(copied[100..].iter().all(|&byte| byte == 0) && rest.iter().all(|&byte| byte == 3));
}
