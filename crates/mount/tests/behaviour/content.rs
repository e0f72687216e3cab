//! Contents of files: however they are read and written, it is the same bytes.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;

use conquest_peers::mapping::Mapping;
use conquest_peers::sys::{self, HERE};

use crate::support::actor::Actor;
use crate::support::bench::Bench;
use crate::support::{both, done, io, mounted, told};

/// Bytes of a page.
const PAGE: usize = 4096;

fn new(name: &CStr, flags: i32) -> File {
    sys::open(HERE, name, libc::O_RDWR | libc::O_CREAT | flags, 0o600).unwrap()
}

/// Bytes that differ from page to page.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at / PAGE * 3) as u8).collect()
}

fn read_all(name: &str) -> Vec<u8> {
    std::fs::read(name).unwrap()
}

/// A checksum to compare long contents by.
fn sum(bytes: &[u8]) -> (usize, u64) {
    let sum = bytes.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    (bytes.len(), sum)
}

/// Memory that begins at a page, as unbuffered access wants it.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new(len: usize) -> Aligned {
        Aligned(vec![0; len + PAGE])
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(PAGE);
        &mut self.0[skip..skip + len]
    }
}

#[test]
fn unbuffered_access_sees_and_makes_the_same_bytes() {
    both(|bench| {
        let mut memory = Aligned::new(64 * PAGE);
        let direct = new(c"file", libc::O_DIRECT);
        let cached = new(c"file", 0);
        let written = pattern(10 * PAGE);
        memory.bytes(10 * PAGE).copy_from_slice(&written);
        bench.say("written", io(direct.write_at(memory.bytes(10 * PAGE), 0)));
        assert_eq!(read_all("file"), written);
        cached.write_all_at(b"changed", PAGE as u64 + 10).unwrap();
        bench.say("read", io(direct.read_at(memory.bytes(64 * PAGE), 0)));
        bench.say("bytes", sum(memory.bytes(10 * PAGE)));
        assert_eq!(&memory.bytes(10 * PAGE)[PAGE + 10..PAGE + 17], b"changed");
        memory.bytes(PAGE).fill(b'd');
        bench.say("overwritten", io(direct.write_at(memory.bytes(PAGE), 2 * PAGE as u64)));
        let mut bytes = [0; 3];
        cached.read_exact_at(&mut bytes, 3 * PAGE as u64 - 2).unwrap();
        bench.say("seen by others", bytes);
        bench.say("far beyond", io(direct.write_at(memory.bytes(PAGE), 30 * PAGE as u64)));
        bench.say("with a hole", sum(&read_all("file")));
        bench.say("at the end", io(direct.read_at(memory.bytes(PAGE), 31 * PAGE as u64)));
        drop(direct);
        bench.say("size", std::fs::metadata("file").unwrap().len());
    });
}

#[test]
fn appending_processes_lose_nothing() {
    mounted(|_| {
        const RECORDS: usize = 400;
        const RECORD: usize = 3001;
        let writers = [b'a', b'b'].map(|letter| {
            Actor::new(move |flags| {
                let flags: i32 = flags.parse().unwrap();
                let mut log = new(c"log", libc::O_APPEND | flags);
                for _ in 0..RECORDS {
                    assert_eq!(log.write(&[letter; RECORD]).unwrap(), RECORD);
                }
                String::new()
            })
        });
        for flags in [0, libc::O_SYNC] {
            for writer in &writers {
                writer.begin(&flags.to_string());
            }
            for writer in &writers {
                writer.answer();
            }
            let log = read_all("log");
            assert_eq!(log.len(), writers.len() * RECORDS * RECORD);
            for (at, record) in log.chunks(RECORD).enumerate() {
                assert!(record.iter().all(|byte| *byte == record[0]), "torn at {at}");
            }
            for letter in [b'a', b'b'] {
                let count = log.chunks(RECORD).filter(|record| record[0] == letter).count();
                assert_eq!(count, RECORDS);
            }
            std::fs::remove_file("log").unwrap();
        }
        String::new()
    });
}

#[test]
fn mappings_are_seen_by_readers_if_they_are_shared() {
    both(|bench| {
        let file = new(c"file", 0);
        file.write_all_at(&pattern(3 * PAGE), 0).unwrap();
        let shared = Mapping::new(&file, 3 * PAGE, true).unwrap();
        let private = Mapping::new(&file, 3 * PAGE, false).unwrap();
        shared.set(PAGE, b's');
        private.set(PAGE + 1, b'p');
        let byte = |at: usize| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at as u64).unwrap();
            byte[0]
        };
        assert_eq!(byte(PAGE), b's', "a shared change is read");
        assert_eq!(byte(PAGE + 1), pattern(3 * PAGE)[PAGE + 1], "a private one is not");
        file.write_all_at(b"w", 2 * PAGE as u64).unwrap();
        assert_eq!(shared.get(2 * PAGE), b'w', "what is written is seen in the mapping");
        bench.say("synced", shared.sync());
        let other = Actor::new(|_| format!("{}", read_all("file")[PAGE]));
        bench.say("read by another process", other.ask(""));
        shared.set(5, b'z');
        drop(shared);
        drop(private);
        drop(file);
        bench.say("after the last close", sum(&read_all("file")));
        assert_eq!(read_all("file")[5], b'z');
        // A file that is cut while it is mapped, and made longer again.
        let file = new(c"file", 0);
        let shared = Mapping::new(&file, 3 * PAGE, true).unwrap();
        shared.set(2 * PAGE + 100, 1);
        file.set_len(100).unwrap();
        file.set_len(3 * PAGE as u64).unwrap();
        bench.say("cut", [shared.get(99), shared.get(100), shared.get(2 * PAGE + 100)]);
        bench.say("read", sum(&read_all("file")));
    });
}

#[test]
fn what_was_past_the_end_is_never_seen() {
    both(|bench| {
        for size in [10, 100, 3000, PAGE - 1, PAGE + 5, 20 * PAGE + 7] {
            let file = new(c"file", 0);
            file.write_all_at(&vec![0xEE; size + 3000], 0).unwrap();
            file.set_len(size as u64).unwrap();
            let mapping = Mapping::new(&file, size.next_multiple_of(PAGE), true).unwrap();
            bench.say("the last byte", mapping.get(size - 1));
            let past = (size..size.next_multiple_of(PAGE)).find(|at| mapping.get(*at) != 0);
            assert_eq!(past, None, "of {size} bytes");
            // What somebody stores there is no part of the file.
            if size % PAGE != 0 {
                mapping.set(size, 0xDD);
            }
            drop(mapping);
            file.set_len(size as u64 + 9000).unwrap();
            let bytes = read_all("file");
            assert_eq!(bytes[size..].iter().position(|byte| *byte != 0), None, "of {size} bytes");
            bench.say("longer", sum(&bytes));
            file.write_all_at(b"end", size as u64 + 50_000).unwrap();
            bench.say("with a hole", sum(&read_all("file")));
            std::fs::remove_file("file").unwrap();
        }
    });
}

#[test]
fn programs_run() {
    mounted(|_| {
        std::fs::copy("/bin/sh", "shell").unwrap();
        std::fs::set_permissions("shell", PermissionsExt::from_mode(0o755)).unwrap();
        let said = Command::new("./shell").args(["-c", "echo $((6 * 7))"]).output().unwrap();
        assert_eq!(said.stdout, b"42\n");
        std::fs::write("script", "#!./shell\necho \"$1\"\n").unwrap();
        std::fs::set_permissions("script", PermissionsExt::from_mode(0o755)).unwrap();
        let said = Command::new("./script").arg("said").output().unwrap();
        assert_eq!(said.stdout, b"said\n");
        // Who runs can't be written.
        let sleeping = Sleeping::start(Command::new("./shell").args(["-c", "read x"]));
        let refused = std::fs::OpenOptions::new().write(true).open("shell").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ETXTBSY));
        drop(sleeping);
        std::fs::set_permissions("script", PermissionsExt::from_mode(0o644)).unwrap();
        let refused = Command::new("./script").output().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
        String::new()
    });
}

/// A child that ends when it is dropped.
struct Sleeping(std::process::Child);

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sleeping {
    fn start(command: &mut Command) -> Sleeping {
        Sleeping(command.stdin(std::process::Stdio::piped()).spawn().unwrap())
    }
}

/// Data and holes of a file, from its start.
fn map(file: &File) -> String {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        match sys::seek(file, at, libc::SEEK_DATA) {
            Ok(data) => {
                let hole = sys::seek(file, data.cast_signed(), libc::SEEK_HOLE).unwrap();
                found.push((data, hole));
                at = hole.cast_signed();
            }
            Err(error) => {
                assert_eq!(error, libc::ENXIO);
                return format!("{found:?}");
            }
        }
    }
}

#[test]
fn holes_are_found_made_and_filled() {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    both(|bench| {
        let file = new(c"file", 0);
        file.write_all_at(&pattern(4 * PAGE), 16 * PAGE as u64).unwrap();
        file.set_len(64 * PAGE as u64).unwrap();
        let page = |pages: usize| (pages * PAGE) as u64;
        bench.say("data", map(&file));
        for (what, mode, from, len) in [
            ("hole", libc::FALLOC_FL_PUNCH_HOLE | KEEP, page(17), page(1)),
            ("hole in a page", libc::FALLOC_FL_PUNCH_HOLE | KEEP, page(18) + 100, 200),
            ("hole past the end", libc::FALLOC_FL_PUNCH_HOLE | KEEP, page(70), page(1)),
            ("hole that changes the size", libc::FALLOC_FL_PUNCH_HOLE, page(17), page(1)),
            ("zeros", libc::FALLOC_FL_ZERO_RANGE, page(19) + 1, 50),
            ("zeros past the end", libc::FALLOC_FL_ZERO_RANGE | KEEP, page(64), page(2)),
            ("zeros that make it longer", libc::FALLOC_FL_ZERO_RANGE, page(65), page(1)),
            ("space past the end", KEEP, page(66), page(4)),
            ("space", 0, page(66), page(1) + 5),
            ("nothing", 0, 0, 0),
            ("too much", 0, 1 << 62, 1 << 62),
        ] {
            bench.say(what, done(sys::allocate(&file, mode, from, len)));
            bench.say("then", sum(&read_all("file")));
        }
        let reading = sys::open(HERE, c"file", libc::O_RDONLY, 0).unwrap();
        bench.say("open for reading", done(sys::allocate(&reading, 0, 0, 10)));
        for at in [0, page(17) - 1, page(17), page(20), page(67) + 5, page(100)] {
            for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
                let found = sys::seek(&reading, at.cast_signed(), whence);
                let error = found.err();
                assert!(found.is_err() || found.unwrap() >= at);
                bench.say("seek", (at, whence, error));
            }
        }
    });
}

#[test]
fn ranges_are_neither_collapsed_nor_inserted() {
    mounted(|_| {
        let file = new(c"file", 0);
        file.write_all_at(&pattern(4 * PAGE), 0).unwrap();
        for mode in [
            libc::FALLOC_FL_COLLAPSE_RANGE,
            libc::FALLOC_FL_INSERT_RANGE,
            libc::FALLOC_FL_UNSHARE_RANGE,
        ] {
            let refused = sys::allocate(&file, mode, PAGE as u64, PAGE as u64);
            assert_eq!(refused, Err(libc::EOPNOTSUPP), "{mode:#x}");
        }
        assert_eq!(read_all("file"), pattern(4 * PAGE));
        String::new()
    });
}

fn copy(bench: &Bench, from: &File, to: &File, places: [u64; 2], len: u64) {
    let copied = sys::copy_range(from, to, places.map(Some), len, 0);
    bench.say("copied", told(copied));
    bench.say("then", sum(&read_all("to")));
}

#[test]
fn copies_keep_bytes_and_holes_read_as_zeros() {
    both(|bench| {
        let (from, to) = (new(c"from", 0), new(c"to", 0));
        from.write_all_at(&pattern(2 * PAGE), 8 * PAGE as u64).unwrap();
        from.set_len(32 * PAGE as u64).unwrap();
        to.write_all_at(&vec![0xEE; 20 * PAGE], 0).unwrap();
        copy(bench, &from, &to, [0, 0], 32 * PAGE as u64);
        copy(bench, &from, &to, [8 * PAGE as u64 + 5, 3], 1000);
        copy(bench, &from, &to, [9 * PAGE as u64, 100 * PAGE as u64 + 1], 3 * PAGE as u64);
        copy(bench, &from, &to, [32 * PAGE as u64, 0], 10);
        copy(bench, &from, &to, [31 * PAGE as u64 + 4000, 0], 10_000);
        copy(bench, &to, &to, [0, 10], 100);
        copy(bench, &to, &to, [0, 50 * PAGE as u64], 3 * PAGE as u64);
        let appending = new(c"to", libc::O_APPEND);
        copy(bench, &from, &appending, [0, 0], 10);
        let directory = sys::open(HERE, c".", libc::O_RDONLY, 0).unwrap();
        copy(bench, &directory, &to, [0, 0], 10);
        // Where both are read and written by their positions.
        sys::seek(&from, 8 * PAGE as i64, libc::SEEK_SET).unwrap();
        sys::seek(&to, 7, libc::SEEK_SET).unwrap();
        bench.say("by position", told(sys::copy_range(&from, &to, [None; 2], 50, 0)));
        let at = [&from, &to].map(|file| sys::seek(file, 0, libc::SEEK_CUR).unwrap());
        bench.say("positions", at);
        bench.say("then", sum(&read_all("to")));
    });
}

#[test]
fn truncation_is_seen_by_those_who_have_it_open() {
    both(|bench| {
        let mut file = new(c"file", 0);
        file.write_all(&pattern(5 * PAGE)).unwrap();
        let mut reader = sys::open(HERE, c"file", libc::O_RDONLY, 0).unwrap();
        reader.read_exact(&mut [0; PAGE]).unwrap();
        let again = std::fs::OpenOptions::new().write(true).truncate(true).mode(0o600).open("file");
        drop(again.unwrap());
        bench.say("read", io(reader.read(&mut [0; 10])));
        bench.say("written at its position", io(file.write(b"x")));
        bench.say("then", sum(&read_all("file")));
        bench.say("negative", done(sys::truncate(c"file", u64::MAX)));
        bench.say("a directory", done(sys::truncate(c".", 0)));
        sys::make_directory(HERE, c"directory", 0o700).unwrap();
        bench.say("no file", done(sys::truncate(c"none", 0)));
    });
}
