//! Operations on open files side by side with ext4: two files and a directory, each open in every
//! way all the time.
//!
//! Needs root, mount namespaces, a loop device and `mkfs.ext4`; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store_support;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};

use conquest_fs::Errno;
use conquest_fs::content::Seek;
use conquest_fs::names::New;
use conquest_fs::open::{End, OpenFile, Whence};
use conquest_fs::placement::{Form, Stays};
use conquest_peers::machine::{self, Kind};
use conquest_peers::sys::{self, Outcome};
use conquest_pm::media::Source;
use conquest_testkit::Rng;
use store_support::{Files, open, root, store, store_at};

const OPERATIONS: u64 = 6000;
/// The largest file on ext4 with blocks of 4 KiB.
const SIZE_MAX: u64 = 0xFFFF_FFFF << 12;
/// Flags of files.
const APPEND_ONLY: u32 = 0x20;
/// A flag that files of ext4 have.
const EXTENTS: u32 = 0x8_0000;
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
    /// Reads to buffers of these lengths, from a place or the position on, with these flags.
    Read(Option<u64>, Vec<usize>, u32),
    /// Writes so.
    Write(Option<u64>, Vec<usize>, u32),
    /// `fsync`, `fdatasync` or `syncfs`.
    Sync(u32),
    /// Of a range, with flags.
    SyncRange(i64, i64, u32),
    /// Makes its file append-only, or not.
    AppendOnly(bool),
    Seek(u64),
    Truncate(u64),
}

/// An offset: mostly one in a file.
fn place(rng: &mut Rng) -> u64 {
    match rng.below(40) {
        0 => SIZE_MAX - rng.below(3),
        // The offset -1 means the position to some calls.
        1 => u64::MAX - 1 - rng.below(9000),
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

fn buffers(rng: &mut Rng) -> Vec<usize> {
    let count = match rng.below(60) {
        0 => 0,
        1 => 1024 + rng.below(2),
        2..=9 => rng.below(200),
        _ => 1 + rng.below(5),
    };
    let most = if count > 5 { 500 } else { [1, 100, 5000, 60_000][rng.below(4) as usize] };
    (0..count).map(|_| rng.below(most) as usize).collect()
}

/// Flags that the kernel has had for long. `RWF_NOWAIT` depends on what is cached.
fn flags(rng: &mut Rng) -> u32 {
    match rng.below(12) {
        0 => 1 << 30,
        1..=4 => rng.below(64) as u32 & !(libc::RWF_NOWAIT as u32),
        _ => 0,
    }
}

fn random(rng: &mut Rng) -> Do {
    let mut end = || if rng.chance(1, 4) { None } else { Some(place(rng)) };
    match (end(), end(), rng.below(24)) {
        (_, _, 0..=1) => Do::Seek(rng.below(PLACES)),
        (_, _, 2) => Do::Truncate(rng.below(PLACES)),
        (_, _, 3) if rng.chance(1, 2) => Do::Sync(rng.below(3) as u32),
        (_, _, 3) => {
            let number = |rng: &mut Rng| [0, 5, i64::MAX, -1, -5000][rng.below(5) as usize];
            Do::SyncRange(number(rng), number(rng), rng.below(9) as u32)
        }
        (_, _, 4) => Do::AppendOnly(rng.chance(1, 4)),
        (at, _, 5..=10) => Do::Read(at, buffers(rng), flags(rng)),
        (at, _, 11..=17) => Do::Write(at, buffers(rng), flags(rng)),
        (from, to, _) => {
            let flags = u32::from(rng.chance(1, 40));
            Do::Copy(rng.below(OPEN.len() as u64) as usize, [from, to], len(rng), flags)
        }
    }
}

fn name(what: &Do) -> &'static str {
    match what {
        Do::Copy(..) => "copy_file_range",
        Do::Read(..) => "preadv2",
        Do::Write(..) => "pwritev2",
        Do::Sync(_) => "fsync",
        Do::SyncRange(..) => "sync_file_range",
        Do::AppendOnly(_) => "flags",
        Do::Seek(..) => "lseek",
        Do::Truncate(..) => "ftruncate",
    }
}

/// Bytes that tell where they were written.
fn content(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|index| (((seed + index) * 2_654_435_761) >> 7) as u8 | 1).collect()
}

/// Memory of these lengths.
fn room(lens: &[usize]) -> Vec<Vec<u8>> {
    lens.iter().map(|&len| vec![0; len]).collect()
}

/// What is written from buffers of these lengths.
fn written(lens: &[usize]) -> Vec<Vec<u8>> {
    lens.iter().enumerate().map(|(index, &len)| content(index as u64 * 77, len as u64)).collect()
}

/// Tells what the first `len` bytes of `buffers` are, by 31 bits.
fn sum(buffers: &[Vec<u8>], len: usize) -> u64 {
    let bytes: Vec<u8> = buffers.iter().flatten().take(len).copied().collect();
    conquest_format::checksum(0, &bytes) >> 33
}

fn ours(files: &Files, all: &[OpenFile], index: usize, what: &Do) -> Outcome<u64> {
    let open = &all[index];
    let done = match *what {
        Do::Copy(to, [source, target], len, flags) => {
            let target = End { open: &all[to], at: target };
            files.copy_range(&root(), End { open, at: source }, target, len, flags)
        }
        Do::Read(at, ref lens, flags) => {
            let mut buffers = room(lens);
            let mut out: Vec<IoSliceMut<'_>> =
                buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let read = files.read_vector(open, at, &mut out, flags);
            read.map(|len| len as u64 | sum(&buffers, len) << 32)
        }
        Do::Write(at, ref lens, flags) => {
            let buffers = written(lens);
            let parts: Vec<IoSlice<'_>> =
                buffers.iter().map(|buffer| IoSlice::new(buffer)).collect();
            files.write_vector(&root(), open, at, &parts, flags).map(|len| len as u64)
        }
        Do::Sync(_) => files.sync(open).map(|()| 0),
        Do::SyncRange(offset, len, flags) => files.sync_range(open, offset, len, flags).map(|()| 0),
        // By another descriptor.
        Do::AppendOnly(on) => {
            let flags = if on { APPEND_ONLY } else { 0 };
            files.set_flags(&root(), open.file, flags, None).map(|()| 0)
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
        Do::Read(at, ref lens, flags) => {
            let mut buffers = room(lens);
            let mut out: Vec<IoSliceMut<'_>> =
                buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let len = sys::read_vector(open, at, &mut out, flags)?;
            Ok(len | sum(&buffers, len as usize) << 32)
        }
        Do::Write(at, ref lens, flags) => {
            let buffers = written(lens);
            let parts: Vec<IoSlice<'_>> =
                buffers.iter().map(|buffer| IoSlice::new(buffer)).collect();
            sys::write_vector(open, at, &parts, flags)
        }
        Do::Sync(which) => sys::sync(open, which).map(|()| 0),
        Do::SyncRange(offset, len, flags) => sys::sync_range(open, offset, len, flags).map(|()| 0),
        Do::AppendOnly(on) => {
            let reader = &all[[2, 7, 10]
                [["a", "b", "d"].iter().position(|name| *name == OPEN[index].0).unwrap()]];
            sys::set_flags(reader, if on { APPEND_ONLY | EXTENTS } else { EXTENTS }).map(|()| 0)
        }
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
        files.create(&who, root_of_store, b"d", New::Directory, 0o755).unwrap();
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
                    files.set_flags(&who, mine[writable].file, 0, None).unwrap();
                    sys::set_flags(&theirs[index], EXTENTS).unwrap();
                    files.truncate_through(&who, &mine[writable], PLACES).unwrap();
                    sys::truncate_open(&theirs[writable], PLACES).unwrap();
                }
            }
        }
        for (name, [failed, succeeded]) in &counts {
            let may_always_succeed = *name == "flags";
            assert!(*failed > 0 || may_always_succeed, "{name} never failed");
            assert!(*succeeded > 0, "{name} never succeeded");
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

#[test]
fn a_buffer_more_or_less_makes_no_difference() {
    let files = store(8, SIZE_MAX);
    let open = open(&files, "a", libc::O_RDWR | libc::O_CREAT | libc::O_APPEND);
    let whole = content(3, 300_000);
    let parts: Vec<IoSlice<'_>> = whole.chunks(777).map(IoSlice::new).collect();
    assert_eq!(files.write_vector(&root(), &open, None, &parts, 0).unwrap(), whole.len());
    assert_eq!(files.position(&open), whole.len() as u64);
    let mut out = vec![0; whole.len() + 10];
    let mut buffers: Vec<IoSliceMut<'_>> = out.chunks_mut(300).map(IoSliceMut::new).collect();
    let nowait = libc::RWF_NOWAIT as u32;
    assert_eq!(files.read_vector(&open, Some(0), &mut buffers, nowait).unwrap(), 256 << 10);
    assert_eq!(files.read_vector(&open, Some(0), &mut buffers, 0).unwrap(), whole.len());
    assert_eq!(out[..whole.len()], whole);
    let refused = files.write_vector(&root(), &open, None, &parts, nowait);
    assert_eq!(refused.unwrap_err().errno(), Errno::EOPNOTSUPP);
}

#[test]
fn a_failed_medium_is_told() {
    let path = format!("/dev/shm/conquest-open-{}", std::process::id());
    let path = std::path::Path::new(&path);
    let files = store_at([path, path].map(Source::from), 2, SIZE_MAX);
    let memory = File::options().write(true).open(path).unwrap();
    std::fs::remove_file(path).unwrap();
    let open = open(&files, "a", libc::O_RDWR | libc::O_CREAT);
    files.write_at(&root(), &open, 0, &[1; 9000]).unwrap();
    assert!(files.sync(&open).is_ok() && files.sync_range(&open, 0, 0, 7).is_ok());
    memory.set_len(0).unwrap();
    let _ = files.read_at(&open, 0, &mut [0; 9000]);
    assert_eq!(files.sync(&open).unwrap_err().errno(), Errno::EIO);
    assert_eq!(files.sync_range(&open, 0, 0, 0).unwrap_err().errno(), Errno::EIO);
}

#[test]
fn where_content_is_kept_is_told() {
    let files = store(8, SIZE_MAX);
    let open = open(&files, "a", libc::O_RDWR | libc::O_CREAT);
    let (who, file) = (root(), open.file);
    let told = |threshold| {
        let placed = files.placement(file, threshold).unwrap();
        (placed.form, placed.is_program, placed.stays)
    };
    files.set_mode(&who, file, 0o644).unwrap();
    assert_eq!(told(0), (Form::None, false, Stays::Small));
    files.write_at(&who, &open, 0, b"#!").unwrap();
    assert_eq!(told(2), (Form::Packed, true, Stays::Small));
    assert_eq!(told(1), (Form::Packed, true, Stays::Program));
    files.write_at(&who, &open, 0, &[1; 9000]).unwrap();
    assert_eq!(told(8999), (Form::Extent, false, Stays::NoVolume));
    files.write_at(&who, &open, 0, b"\x7FELF").unwrap();
    assert_eq!(told(8999), (Form::Extent, true, Stays::Program));
    files.write_at(&who, &open, 1 << 30, &[1; 9000]).unwrap();
    files.write_at(&who, &open, 0, b"text").unwrap();
    assert_eq!(told(8999), (Form::Tree, false, Stays::NoVolume));
    files.set_mode(&who, file, 0o654).unwrap();
    assert_eq!(told(8999), (Form::Tree, true, Stays::Program));
    let refused = |file| files.placement(file, 0).unwrap_err().errno();
    assert_eq!(refused(files.root()), Errno::EISDIR);
    let fifo = files.create(&who, files.root(), b"f", New::Fifo, 0o777).unwrap();
    assert_eq!(refused(fifo), Errno::EINVAL);
}
