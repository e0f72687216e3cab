//! Names: working directories and files that have lost theirs, links, renaming.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use conquest_peers::sys::{self, HERE, NO_FOLLOW};

use crate::support::bench::Bench;
use crate::support::listing::{list, list_all};
use crate::support::{both, done, io, told};

const NEW: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;

fn make(name: &CStr) -> File {
    sys::open(HERE, name, NEW, 0o600).unwrap()
}

/// Makes a file that has its name as content.
fn make_named(name: &CStr) {
    make(name).write_all_at(name.to_bytes(), 0).unwrap();
}

fn read(name: &CStr) -> String {
    io(std::fs::read_to_string(name.to_str().unwrap()))
}

/// Links and size of an open file.
fn open_stat(file: &File) -> (u64, i64) {
    let stat = sys::stat(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH).unwrap();
    (stat.st_nlink, stat.st_size)
}

#[test]
fn a_removed_working_directory_is_there_and_empty() {
    both(|bench| {
        sys::make_directory(HERE, c"directory", 0o755).unwrap();
        std::env::set_current_dir("directory").unwrap();
        let number = std::fs::metadata(".").unwrap().ino();
        let open = sys::open(HERE, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
        sys::remove(HERE, c"../directory", true).unwrap();
        let here = std::fs::metadata(".").unwrap();
        assert_eq!(here.ino(), number);
        bench.say("links", here.nlink());
        bench.say("links of the open one", open_stat(&open).0);
        bench.say("getcwd", io(std::env::current_dir().map(drop)));
        bench.say("listing the open one", list(&open, 4096));
        // From now on it is kept by who works in it.
        drop(open);
        let again = sys::open(HERE, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0);
        bench.say("listing", again.and_then(|again| list(&again, 4096)));
        bench.say("making a file", done(sys::open(HERE, c"file", NEW, 0o600)));
        bench.say("making a directory", done(sys::make_directory(HERE, c"inner", 0o700)));
        bench.say("making a link", done(sys::make_link(c"to", HERE, c"link")));
        bench.say("looking up", done(sys::stat(HERE, c"file", 0)));
        bench.say("removing", done(sys::remove(HERE, c"file", false)));
        bench.say("moving in", done(sys::rename(c"../other", HERE, c"other", 0)));
        bench.say("its mode", done(sys::chmod(c".", 0o700, 0)));
        bench.say("the mode it has", std::fs::metadata(".").unwrap().mode());
        bench.say("out of it", io(std::env::set_current_dir("..")));
        bench.say("the parent", io(std::fs::metadata("directory").map(drop)));
        std::env::set_current_dir("/").unwrap();
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    both(|bench| {
        make_named(c"file");
        let path = sys::open(HERE, c"file", libc::O_PATH, 0).unwrap();
        let open = sys::open(HERE, c"file", libc::O_RDWR, 0).unwrap();
        sys::remove(HERE, c"file", false).unwrap();
        bench.say("path only", open_stat(&path));
        bench.say("open", open_stat(&open));
        bench.say("written", io(open.write_at(b"more", 4)));
        bench.say("read", (io(open.read_at(&mut [0; 8], 0)), open_stat(&path)));
        bench.say("a new name for none", done(sys::link_open(&open, HERE, c"again")));
        let through = CString::new(format!("/proc/self/fd/{}", path.as_raw_fd())).unwrap();
        drop(open);
        let reopened = sys::open(HERE, &through, libc::O_RDONLY, 0);
        bench.say("opened by its path", done(reopened));
        make_named(c"file");
        bench.say("another one has the name", (open_stat(&path), read(c"file")));
        // A name that is taken by renaming.
        make_named(c"new");
        let old = sys::open(HERE, c"file", libc::O_RDONLY, 0).unwrap();
        sys::rename(c"new", HERE, c"file", 0).unwrap();
        bench.say("replaced", (open_stat(&old), read(c"file")));
        let mut bytes = [0; 4];
        old.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"file");
    });
}

const TEMPORARY: i32 = libc::O_TMPFILE | libc::O_RDWR;

#[test]
fn a_temporary_file_gets_a_name_unless_that_is_ruled_out() {
    both(|bench| {
        sys::make_directory(HERE, c"directory", 0o755).unwrap();
        for flags in [0, libc::O_EXCL] {
            let file = sys::open(HERE, c"directory", TEMPORARY | flags, 0o640).unwrap();
            file.write_all_at(b"bytes", 3).unwrap();
            let listed = list_all(&directory(), 4096).unwrap();
            bench.say("without a name", (open_stat(&file), listed.len()));
            let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            let name = CString::new(format!("directory/{flags}")).unwrap();
            bench.say("link", done(sys::link(&path, HERE, &name, libc::AT_SYMLINK_FOLLOW)));
            bench.say("link again", done(sys::link(&path, HERE, &name, libc::AT_SYMLINK_FOLLOW)));
            bench.say("links", open_stat(&file));
            bench.say("mode", io(file.metadata().map(|found| found.mode())));
            let name = name.to_str().unwrap();
            bench.say("by its name", io(std::fs::read(name)));
            drop(file);
            bench.say("then", io(std::fs::read(name)));
        }
        bench.say("for reading", done(sys::open(HERE, c".", libc::O_TMPFILE, 0o600)));
        bench.say("in a file", done(sys::open(HERE, c"directory/0", TEMPORARY, 0o600)));
    });
}

fn directory() -> File {
    sys::open(HERE, c"directory", libc::O_RDONLY, 0).unwrap()
}

#[test]
fn flags_of_renaming_are_obeyed() {
    let flags = [
        0,
        libc::RENAME_NOREPLACE,
        libc::RENAME_EXCHANGE,
        libc::RENAME_WHITEOUT,
        libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE,
        libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE,
        libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT,
        1 << 20,
    ];
    both(|bench| {
        for (number, flags) in flags.into_iter().enumerate() {
            for [from, to] in [
                ["file", "other"],
                ["file", "none"],
                ["none", "file"],
                ["file", "directory"],
                ["directory", "file"],
                ["directory", "empty"],
                ["empty", "directory"],
                ["file", "file"],
                ["directory", "directory/inner"],
                ["directory/inner", "directory"],
                ["file", "hard"],
                ["link", "file"],
            ] {
                let at = format!("{number}-{from}-{to}").replace('/', "-");
                rename_in(bench, &at, [from, to], flags);
            }
        }
    });
}

/// Renames in a new directory `at` with files of several types.
fn rename_in(bench: &Bench, at: &str, [from, to]: [&str; 2], flags: u32) {
    std::fs::create_dir(at).unwrap();
    let path = |name: &str| CString::new(format!("{at}/{name}")).unwrap();
    for name in ["file", "other"] {
        std::fs::write(format!("{at}/{name}"), name).unwrap();
    }
    for name in ["directory", "directory/inner", "empty"] {
        sys::make_directory(HERE, &path(name), 0o755).unwrap();
    }
    std::fs::hard_link(format!("{at}/file"), format!("{at}/hard")).unwrap();
    sys::make_link(c"file", HERE, &path("link")).unwrap();
    let renamed = done(sys::rename(&path(from), HERE, &path(to), flags));
    bench.say(&format!("{from} to {to} with {flags:#x}"), renamed);
    let mut names =
        ["file", "other", "none", "directory", "directory/inner", "empty", "link", "hard"]
            .map(|name| {
                let found = sys::stat(HERE, &path(name), NO_FOLLOW);
                told(found.map(|found| (name, found.st_mode, found.st_nlink, found.st_rdev)))
            })
            .to_vec();
    names.sort();
    bench.say("then", names);
    bench.say("contents", ["file", "other", "none"].map(|name| read(&path(name))));
}

#[test]
fn names_have_up_to_255_bytes_of_any_value() {
    both(|bench| {
        let long = vec![b'n'; 255];
        let longer = vec![b'n'; 256];
        let odd: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        let names: [&[u8]; 9] = [
            &long,
            &longer,
            &odd,
            b"\xff\xfe",
            b" ",
            b"\n",
            b"...",
            b"-rf *",
            "Gr\u{f6}\u{df}e".as_bytes(),
        ];
        for name in names {
            let name = CString::new(name).unwrap();
            bench.say("made", done(sys::open(HERE, &name, NEW, 0o600)));
            bench.say("found", told(sys::stat(HERE, &name, 0).map(|found| found.st_nlink)));
            bench.say("link", done(sys::make_link(&name, HERE, c"link")));
            bench.say("target", told(sys::read_link(HERE, c"link")));
            bench.say("renamed", done(sys::rename(&name, HERE, c"short", 0)));
            bench.say("and back", done(sys::rename(c"short", HERE, &name, 0)));
            bench.say("unlink", done(sys::remove(HERE, c"link", false)));
        }
        let here = sys::open(HERE, c".", libc::O_RDONLY, 0).unwrap();
        let mut listed: Vec<_> =
            list_all(&here, 4096).unwrap().into_iter().map(|entry| entry.name).collect();
        listed.sort();
        bench.say("listed", listed);
        bench.say("no name", done(sys::open(HERE, c"", NEW, 0o600)));
        let target = CString::new(vec![b't'; 4095]).unwrap();
        bench.say("a long target", done(sys::make_link(&target, HERE, c"link")));
        bench.say("read", told(sys::read_link(HERE, c"link").map(|target| target.len())));
    });
}

#[test]
fn hard_links_are_one_file() {
    both(|bench| {
        make_named(c"one");
        sys::make_directory(HERE, c"directory", 0o755).unwrap();
        for name in [c"two", c"directory/three"] {
            bench.say("link", done(sys::link(c"one", HERE, name, 0)));
        }
        let look = |name: &str| {
            let found = std::fs::metadata(name);
            io(found.map(|found| (found.ino(), found.nlink(), found.size())))
        };
        assert_eq!(look("one"), look("two"));
        assert_eq!(look("one"), look("directory/three"));
        std::fs::write("directory/three", "changed").unwrap();
        bench.say("content", (read(c"one"), read(c"two")));
        sys::chmod(c"two", 0o604, 0).unwrap();
        bench.say("mode", std::fs::metadata("one").unwrap().mode());
        bench.say("links", std::fs::metadata("one").unwrap().nlink());
        sys::remove(HERE, c"one", false).unwrap();
        bench.say("without one", (look("one"), std::fs::metadata("two").unwrap().nlink()));
        bench.say("again", done(sys::link(c"two", HERE, c"directory/three", 0)));
        bench.say("a directory", done(sys::link(c"directory", HERE, c"other", 0)));
        sys::make_link(c"two", HERE, c"link").unwrap();
        bench.say("a link", done(sys::link(c"link", HERE, c"link to link", 0)));
        bench.say("of type", std::fs::symlink_metadata("link to link").unwrap().mode());
        bench
            .say("what it leads to", done(sys::link(c"link", HERE, c"x", libc::AT_SYMLINK_FOLLOW)));
        bench.say("links", std::fs::metadata("two").unwrap().nlink());
    });
}
