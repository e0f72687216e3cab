//! Reading without opening: the same as opening, reading and closing, for whoever does it.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};

use conquest_access::{Credentials, flag};
use conquest_fs::content::WriteAt;
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::UNOPENED_MAX;
use conquest_fs::walk::Base;
use conquest_fs::{Errno, Error};
use conquest_testkit::files::root_user;
use store::{SECOND, Store, path, user};

const DAY: i64 = 24 * 60 * 60 * SECOND;

/// A store with a file of each type, and files that only some may read.
fn types() -> Store {
    let store = Store::new(4);
    store.file("f", b"0123456789");
    store.file("empty", b"");
    store.make("d", New::Directory, 0o755);
    store.file("d/inside", b"inside");
    store.make("closed", New::Directory, 0o700);
    store.file("closed/inside", b"nobody's");
    store.make("p", New::Fifo, 0o666);
    store.make("s", New::Socket, 0o666);
    store.make("c", New::Character(1, 3), 0o666);
    for (name, target) in [("l", &b"f"[..]), ("to", b"d"), ("none", b"x"), ("loop", b"loop")] {
        store.make(name, New::Symlink(target), 0o777);
    }
    for (name, mode) in [("own", 0o400), ("others", 0o004), ("write", 0o222), ("no", 0)] {
        let file = store.file(name, name.as_bytes());
        store.set_mode(&root_user(), file, mode).unwrap();
    }
    store
}

type Told = Result<(usize, Vec<u8>), Errno>;

/// `len` bytes from `from` on, in both ways.
fn both(store: &Store, who: &Credentials<'_>, name: &str, from: u64, len: usize) -> [Told; 2] {
    let base = Base::new(store.root(), store.root());
    let mut out = vec![b'.'; len];
    let told = |done: Result<usize, Errno>, out: &[u8]| done.map(|len| (len, out[..len].to_vec()));
    let errno = |error: Error| error.errno();
    let unopened = store.read_unopened(who, path(&base, name), from, &mut out).map_err(errno);
    let unopened = told(unopened, &out);
    let opened = store.open_path(who, name, libc::O_RDONLY).and_then(|open| {
        let read = store.read_vector(&open, Some(from), &mut [IoSliceMut::new(&mut out)], 0);
        store.close(&open).unwrap();
        read.map_err(errno)
    });
    [unopened, told(opened, &out)]
}

#[test]
fn it_is_as_if_the_file_were_opened() {
    let store = types();
    let (root, somebody) = (root_user(), user(7));
    let names = [
        "f",
        "f/",
        "f/x",
        "empty",
        "d",
        "d/",
        "d/inside",
        "closed",
        "closed/inside",
        "p",
        "s",
        "c",
        "l",
        "l/",
        "to",
        "to/inside",
        "none",
        "loop",
        "own",
        "others",
        "write",
        "no",
        "x",
        "x/y",
        "",
        ".",
        "/",
        "..",
        "../f",
    ];
    let offsets = [0, 3, 10, 1000, i64::MAX as u64 - 4, i64::MAX as u64, u64::MAX];
    let mut refused = 0;
    for name in names {
        for who in [&root, &somebody] {
            for from in offsets {
                for len in [0, 1, 4, 100] {
                    let [unopened, opened] = both(&store, who, name, from, len);
                    assert_eq!(unopened, opened, "{name} {from} {len} {}", who.fsuid);
                    refused += usize::from(unopened.is_err());
                }
            }
        }
    }
    assert!((100..names.len() * 56 - 100).contains(&refused), "{refused}");
    let long = "d/../".repeat(900);
    let [unopened, opened] = both(&store, &root, &long, 0, 1);
    assert_eq!((unopened, opened), (Err(Errno::ENAMETOOLONG), Err(Errno::ENAMETOOLONG)));
}

#[test]
fn at_most_a_committed_state_is_read() {
    let store = Store::new(4);
    let file = store.file("large", &vec![7; UNOPENED_MAX + 10]);
    let base = Base::new(store.root(), store.root());
    let mut out = vec![0; UNOPENED_MAX + 10];
    let name = || path(&base, "large");
    assert_eq!(store.read_unopened(&root_user(), name(), 0, &mut out).unwrap(), UNOPENED_MAX);
    assert!(out[..UNOPENED_MAX].iter().all(|byte| *byte == 7) && out[UNOPENED_MAX] == 0);
    let rest = store.read_unopened(&root_user(), name(), UNOPENED_MAX as u64, &mut out);
    assert_eq!(rest.unwrap(), 10);
    assert_eq!(store.stat(file).unwrap().size, UNOPENED_MAX as u64 + 10);
}

#[test]
fn a_look_is_noted_after_a_change_or_a_day() {
    let store = types();
    let who = &root_user();
    let file = store.find_name("f");
    let base = Base::new(store.root(), store.root());
    let atime = || store.stat(file).unwrap().atime;
    let look = |from, len| {
        store.read_unopened(who, path(&base, "f"), from, &mut vec![0; len]).unwrap();
    };
    store.pass(SECOND);
    let old = atime();
    look(0, 0);
    assert_eq!(atime(), old);
    store.set_flags(who, file, flag::NOATIME, None).unwrap();
    look(0, 4);
    assert_eq!(atime(), old);
    store.set_flags(who, file, 0, None).unwrap();
    // A look behind the end is one.
    look(1000, 4);
    assert!(atime() > old);
    let noted = atime();
    store.pass(DAY - SECOND);
    look(0, 4);
    assert_eq!(atime(), noted);
    store.pass(2 * SECOND);
    look(0, 4);
    assert_eq!(atime(), store.now());
    store.examine();
}

/// Whatever is made of the name meanwhile, what is read is all of what one file was at a moment.
#[test]
fn what_is_read_was_the_file_at_one_moment() {
    const LEN: usize = 6000;
    let store = Store::new(8);
    store.file("f", &[0; LEN]);
    let is_over = AtomicBool::new(false);
    let base = Base::new(store.root(), store.root());
    let who = root_user();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000_u32 {
                let bytes = [round as u8; LEN];
                match round % 2 {
                    0 => store.put(store.find_name("f"), 0, &bytes),
                    _ => {
                        let new = store.file("new", b"");
                        store.write(&who, new, WriteAt::Offset(0), &bytes).unwrap();
                        let (old, new) = (path(&base, "new"), path(&base, "f"));
                        store.rename_at(&who, old, new, Renaming::Replace).unwrap();
                    }
                }
            }
            is_over.store(true, Ordering::Release);
        });
        let mut seen = std::collections::BTreeSet::new();
        let mut out = [0; LEN];
        while !is_over.load(Ordering::Acquire) {
            let len = store.read_unopened(&who, path(&base, "f"), 0, &mut out).unwrap();
            assert_eq!(len, LEN);
            assert!(out.iter().all(|byte| *byte == out[0]), "bytes of two states");
            seen.insert(out[0]);
        }
        assert!(seen.len() > 1, "{seen:?}");
    });
    store.examine();
}
