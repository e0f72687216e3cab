//! Listing directories: large ones, while they change, from positions, with types.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;

use conquest_peers::sys::{self, HERE};

use crate::support::listing::{Listed, list, list_all};
use crate::support::{both, mounted};

/// Names in a large directory.
const MANY: usize = 10_000;

fn open() -> File {
    sys::open(HERE, c"directory", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap()
}

fn name(number: usize) -> CString {
    CString::new(format!("directory/name {number}")).unwrap()
}

fn fill() {
    sys::make_directory(HERE, c"directory", 0o755).unwrap();
    for number in 0..MANY {
        sys::make_node(HERE, &name(number), libc::S_IFREG | 0o600, 0).unwrap();
    }
}

fn names(listed: &[Listed]) -> BTreeSet<&[u8]> {
    let names: BTreeSet<&[u8]> = listed.iter().map(|entry| &entry.name[..]).collect();
    assert_eq!(names.len(), listed.len(), "a name was listed twice");
    names
}

#[test]
fn each_name_of_a_large_directory_is_listed_once() {
    mounted(|_| {
        fill();
        for room in [4096, 1 << 20] {
            let all = list_all(&open(), room).unwrap();
            assert_eq!(names(&all).len(), MANY);
            for entry in all.iter().step_by(997) {
                let path = [b"directory/", &entry.name[..]].concat();
                let found = sys::stat(HERE, &CString::new(path).unwrap(), 0).unwrap();
                assert_eq!((found.st_ino, entry.kind), (entry.number, libc::DT_REG));
            }
        }
        // From any position on, those that come after it.
        let directory = open();
        let all = list_all(&directory, 4096).unwrap();
        for at in [0, 1, 50, 4999, 9998, 9999] {
            sys::seek(&directory, all[at].next, libc::SEEK_SET).unwrap();
            let rest = list_all(&directory, 4096).unwrap();
            assert_eq!(rest, all[at + 1..], "after entry {at}");
        }
        sys::seek(&directory, 0, libc::SEEK_SET).unwrap();
        let first = list(&directory, 4096).unwrap();
        assert!(first.iter().any(|entry| entry.name == b".."), "{first:?}");
        String::new()
    });
}

#[test]
fn removing_while_listing_loses_none_and_repeats_none() {
    mounted(|_| {
        fill();
        // Those that are neither removed nor made are listed once.
        let directory = open();
        let mut seen = list(&directory, 4096).unwrap();
        for number in (0..MANY).step_by(2) {
            sys::remove(HERE, &name(number), false).unwrap();
        }
        for number in MANY..MANY + 500 {
            sys::make_node(HERE, &name(number), libc::S_IFREG | 0o600, 0).unwrap();
        }
        seen.extend(list_all(&directory, 4096).unwrap());
        let seen = names(&seen);
        let lost = (1..MANY).step_by(2).find(|number| {
            let name = name(*number);
            !seen.contains(&name.to_bytes()[b"directory/".len()..])
        });
        assert_eq!(lost, None);
        // As `rm -r` does it: what was listed is removed, until there is nothing.
        let directory = open();
        let mut removed = 0;
        loop {
            let piece = list(&directory, 4096).unwrap();
            if piece.is_empty() {
                break;
            }
            for entry in piece.iter().filter(|entry| !entry.name.starts_with(b".")) {
                let path = [b"directory/", &entry.name[..]].concat();
                sys::remove(HERE, &CString::new(path).unwrap(), false).unwrap();
                removed += 1;
            }
        }
        assert_eq!(removed, MANY / 2 + 500);
        assert_eq!(sys::remove(HERE, c"directory", true), Ok(()));
        String::new()
    });
}

#[test]
fn types_are_listed() {
    both(|bench| {
        for (name, kind, device) in [
            (c"file", libc::S_IFREG, 0),
            (c"fifo", libc::S_IFIFO, 0),
            (c"socket", libc::S_IFSOCK, 0),
            (c"character", libc::S_IFCHR, libc::makedev(1, 3)),
            (c"block", libc::S_IFBLK, libc::makedev(7, 1 << 19)),
        ] {
            sys::make_node(HERE, name, kind | 0o600, device).unwrap();
            let found = sys::stat(HERE, name, 0).unwrap();
            bench.say("made", (name, found.st_mode, found.st_rdev));
        }
        sys::make_directory(HERE, c"directory", 0o700).unwrap();
        sys::make_link(c"to", HERE, c"link").unwrap();
        let here = sys::open(HERE, c".", libc::O_RDONLY, 0).unwrap();
        let all = list_all(&here, 4096).unwrap();
        let mut all: Vec<_> = all.into_iter().map(|entry| (entry.name, entry.kind)).collect();
        all.sort();
        bench.say("types", all);
        let null = sys::open(HERE, c"character", libc::O_RDWR, 0).unwrap();
        bench.say("a device works", sys::write_all(&null, b"x"));
    });
}
