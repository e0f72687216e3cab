//! Attributes of files: times, extended attributes, flags.

use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use conquest_peers::sys::{self, HERE};

use crate::support::bench::Bench;
use crate::support::{ALICE, as_user, both, done, mounted, told};

const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const NO_DUMP: u32 = 0x40;
const NO_ATIME: u32 = 0x80;
/// Flags that are compared; ext4 shows some of its own.
const COMPARED: u32 = IMMUTABLE | APPEND | NO_DUMP | NO_ATIME;

fn open(name: &CStr, flags: i32) -> Result<File, i32> {
    sys::open(HERE, name, flags, 0o600)
}

/// Sets those that are compared, and leaves others as they are.
fn set_flags(file: &File, flags: u32) -> Result<(), i32> {
    sys::set_flags(file, sys::flags(file)? & !COMPARED | flags)
}

#[test]
fn birth_is_known_and_stays() {
    mounted(|mount| {
        let before = SystemTime::now() - Duration::from_secs(1);
        std::fs::write("file", "").unwrap();
        let born = || std::fs::metadata("file").unwrap().created().unwrap();
        let at = born();
        assert!(at >= before && at <= SystemTime::now());
        sys::set_times(c"file", Some([time(1, 0), time(2, 0)]), 0).unwrap();
        std::fs::write("file", "content").unwrap();
        std::fs::rename("file", "other").unwrap();
        std::fs::rename("other", "file").unwrap();
        assert_eq!(born(), at);
        mount.stop();
        mount.start();
        assert_eq!(born(), at);
        String::new()
    });
}

const fn time(seconds: i64, nanoseconds: i64) -> libc::timespec {
    libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

fn times(name: &str) -> [(i64, i64); 2] {
    let found = std::fs::symlink_metadata(name).unwrap();
    [(found.atime(), found.atime_nsec()), (found.mtime(), found.mtime_nsec())]
}

#[test]
fn times_are_kept_as_they_are_set() {
    both(|bench| {
        std::fs::write("file", "").unwrap();
        std::fs::create_dir("directory").unwrap();
        sys::make_link(c"file", HERE, c"link").unwrap();
        sys::make_node(HERE, c"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
        for (name, text) in
            [(c"file", "file"), (c"directory", "directory"), (c"link", "link"), (c"fifo", "fifo")]
        {
            for pair in [
                [time(0, 0), time(1, 999_999_999)],
                [time(-1, 1), time(-2_000_000_000, 500_000_000)],
                [time(1 << 31, 7), time(1 << 33, 123_456_789)],
                [time(5, libc::UTIME_OMIT), time(77, 78)],
                [time(5, 1_000_000_000), time(0, 0)],
            ] {
                let set = sys::set_times(name, Some(pair), libc::AT_SYMLINK_NOFOLLOW);
                bench.say(text, (done(set), times(text)));
            }
        }
        // The present: by anybody who may write, others by the owner only.
        sys::chmod(c"file", 0o666, 0).unwrap();
        let by_user = as_user(ALICE, &[ALICE], || {
            let now = done(sys::set_times(c"file", None, 0));
            let then = done(sys::set_times(c"file", Some([time(1, 0), time(2, 0)]), 0));
            let changed = times("file")[1].0 > 1_600_000_000;
            format!("{now} {then} {changed}")
        });
        bench.say("by a user", by_user);
    });
}

#[test]
fn writing_sets_times_and_reading_does_not() {
    mounted(|_| {
        std::fs::write("file", "content").unwrap();
        let old = Some([time(1_000, 0), time(1_000, 0)]);
        sys::set_times(c"file", old, 0).unwrap();
        let changed = std::fs::metadata("file").unwrap().ctime();
        assert!(changed > 1_600_000_000);
        std::fs::read("file").unwrap();
        assert_eq!(times("file")[1], (1_000, 0));
        std::fs::write("file", "other").unwrap();
        assert!(times("file")[1].0 > 1_600_000_000);
        sys::set_times(c".", old, 0).unwrap();
        std::fs::write("new", "").unwrap();
        assert!(times(".")[1].0 > 1_600_000_000);
        String::new()
    });
}

#[test]
fn extended_attributes_are_kept_by_the_rules_of_their_names() {
    both(|bench| {
        std::fs::write("file", "").unwrap();
        sys::chmod(c"file", 0o644, 0).unwrap();
        sys::make_link(c"file", HERE, c"link").unwrap();
        sys::make_directory(HERE, c"directory", 0o1777).unwrap();
        for attribute in ["user.a", "trusted.b", "security.c", "system.d", "other.e", "user."] {
            set_and_get(bench, attribute);
        }
        bench.say("of a link", done(sys::set_xattr(c"link", "user.a", b"v", 0)));
        bench.say("trusted of a link", done(sys::set_xattr(c"link", "trusted.a", b"v", 0)));
        sys::set_xattr(c"file", "user.seen", b"value", 0).unwrap();
        sys::set_xattr(c"file", "trusted.hidden", b"value", 0).unwrap();
        sys::set_xattr(c"file", "security.seen", b"value", 0).unwrap();
        let names = |bytes: Result<Vec<u8>, i32>| {
            told(bytes.map(|bytes| {
                let mut names: Vec<String> =
                    String::from_utf8(bytes).unwrap().split('\0').map(str::to_owned).collect();
                names.sort();
                names
            }))
        };
        bench.say("root is told", names(sys::list_xattrs(c"file")));
        let by_user = as_user(ALICE, &[ALICE], || {
            let said = [
                names(sys::list_xattrs(c"file")),
                told(sys::get_xattr(c"file", "user.seen")),
                told(sys::get_xattr(c"file", "trusted.hidden")),
                told(sys::get_xattr(c"file", "security.seen")),
                done(sys::set_xattr(c"file", "user.seen", b"x", 0)),
                done(sys::set_xattr(c"file", "security.seen", b"x", 0)),
                done(sys::set_xattr(c"directory", "user.x", b"x", 0)),
                done(sys::remove_xattr(c"file", "user.seen")),
            ];
            format!("{said:?}")
        });
        bench.say("a user", by_user);
        bench.say("no room", told(sys::get_xattr_to(c"file", "user.seen", &mut [0; 2])));
        bench.say("only the length", told(sys::get_xattr_to(c"file", "user.seen", &mut [])));
        bench.say("no room for names", told(sys::list_xattrs_to(c"file", &mut [0; 2])));
    });
}

fn set_and_get(bench: &Bench, attribute: &str) {
    let set = |value: &[u8], flags| done(sys::set_xattr(c"file", attribute, value, flags));
    bench.say(attribute, set(b"v", libc::XATTR_REPLACE));
    bench.say("created", set(b"value", libc::XATTR_CREATE));
    bench.say("created again", set(b"other", libc::XATTR_CREATE));
    bench.say("got", told(sys::get_xattr(c"file", attribute)));
    bench.say("replaced", set(b"a longer value", libc::XATTR_REPLACE));
    bench.say("got", told(sys::get_xattr(c"file", attribute)));
    bench.say("empty", set(b"", 0));
    bench.say("got", told(sys::get_xattr(c"file", attribute)));
    bench.say("flags", set(b"x", 7));
    bench.say("removed", done(sys::remove_xattr(c"file", attribute)));
    bench.say("again", done(sys::remove_xattr(c"file", attribute)));
    bench.say("got", told(sys::get_xattr(c"file", attribute)));
}

#[test]
fn extended_attributes_have_up_to_64_kib() {
    mounted(|mount| {
        std::fs::write("file", "").unwrap();
        let value = |len: usize| (0..len).map(|at| (at * 7) as u8).collect::<Vec<u8>>();
        for len in [1, 255, 256, 4096, 30_000, 65_536] {
            assert_eq!(sys::set_xattr(c"file", "user.long", &value(len), 0), Ok(()));
            let mut found = vec![0; 65_536];
            let got = sys::get_xattr_to(c"file", "user.long", &mut found).unwrap();
            assert!(found[..got] == value(len), "{len} bytes");
        }
        let refused = sys::set_xattr(c"file", "user.long", &value(65_537), 0);
        assert_eq!(refused, Err(libc::E2BIG));
        let name = format!("user.{}", "n".repeat(250));
        assert_eq!(sys::set_xattr(c"file", &name, b"v", 0), Ok(()));
        assert_eq!(sys::set_xattr(c"file", &format!("{name}n"), b"v", 0), Err(libc::ERANGE));
        mount.stop();
        mount.start();
        let mut found = vec![0; 65_536];
        assert_eq!(sys::get_xattr_to(c"file", "user.long", &mut found), Ok(65_536));
        assert!(found == value(65_536));
        String::new()
    });
}

/// What is tried on a file and a directory with flags.
fn try_changes(bench: &Bench, what: &str) {
    let outcomes = [
        done(open(c"kept/file", libc::O_RDONLY)),
        done(open(c"kept/file", libc::O_WRONLY)),
        done(open(c"kept/file", libc::O_WRONLY | libc::O_APPEND)),
        done(open(c"kept/file", libc::O_WRONLY | libc::O_TRUNC | libc::O_APPEND)),
        done(sys::truncate(c"kept/file", 2)),
        done(sys::chmod(c"kept/file", 0o640, 0)),
        done(sys::chown(c"kept/file", Some(1), None, 0)),
        done(sys::set_times(c"kept/file", Some([time(1, 0), time(2, 0)]), 0)),
        done(sys::set_times(c"kept/file", None, 0)),
        done(sys::set_xattr(c"kept/file", "user.a", b"b", 0)),
        done(sys::link(c"kept/file", HERE, c"kept/link", 0)),
        done(sys::link(c"kept/file", HERE, c"link", 0)),
        done(sys::rename(c"kept/file", HERE, c"kept/other", 0)),
        done(sys::remove(HERE, c"kept/file", false)),
        done(open(c"kept/new", libc::O_WRONLY | libc::O_CREAT)),
        done(sys::make_directory(HERE, c"kept/directory", 0o700)),
        done(sys::rename(c"kept", HERE, c"renamed", 0)),
    ];
    bench.say(what, outcomes);
}

#[test]
fn files_that_are_immutable_or_append_only_stay_so() {
    both(|bench| {
        for (number, [of_file, of_directory]) in
            [[IMMUTABLE, 0], [APPEND, 0], [0, IMMUTABLE], [0, APPEND], [0, 0]]
                .into_iter()
                .enumerate()
        {
            let at = format!("{number}");
            std::fs::create_dir(&at).unwrap();
            let here = std::env::current_dir().unwrap();
            std::env::set_current_dir(&at).unwrap();
            std::fs::create_dir("kept").unwrap();
            std::fs::write("kept/file", "content").unwrap();
            let file = open(c"kept/file", libc::O_RDONLY).unwrap();
            let writing = open(c"kept/file", libc::O_WRONLY).unwrap();
            let directory = open(c"kept", libc::O_RDONLY).unwrap();
            bench.say("file", done(set_flags(&file, of_file)));
            bench.say("directory", done(set_flags(&directory, of_directory)));
            let flags = [&file, &directory].map(|file| sys::flags(file).map(|f| f & COMPARED));
            bench.say("flags", flags);
            let extended = [&file, &directory]
                .map(|file| sys::extended_flags(file).map(|flags| (flags[0] & 0x1F8, flags[3])));
            bench.say("extended flags", extended);
            bench.say("written by who has it open", done(sys::write(&writing)));
            try_changes(bench, &format!("{of_file:#x} in {of_directory:#x}"));
            bench.say("taken away", done(set_flags(&file, 0)));
            bench.say("taken away", done(set_flags(&directory, 0)));
            std::env::set_current_dir(here).unwrap();
        }
    });
}

#[test]
fn flags_are_set_by_those_who_may() {
    both(|bench| {
        std::fs::write("file", "").unwrap();
        sys::chown(c"file", Some(ALICE), Some(ALICE), 0).unwrap();
        sys::chmod(c"file", 0o644, 0).unwrap();
        let set = |flags| {
            let file = open(c"file", libc::O_RDONLY).unwrap();
            let set = done(set_flags(&file, flags));
            (set, sys::flags(&file).map(|flags| flags & COMPARED))
        };
        for flags in [NO_DUMP, NO_DUMP | NO_ATIME, IMMUTABLE, APPEND, 0] {
            let by_user = as_user(ALICE, &[ALICE], || format!("{:?}", set(flags)));
            bench.say("by the owner", by_user);
        }
        bench.say("by another one", as_user(1001, &[1001], || format!("{:?}", set(NO_DUMP))));
        bench.say("by root", set(NO_ATIME | IMMUTABLE));
        bench.say(
            "seen",
            as_user(ALICE, &[ALICE], || {
                told(
                    sys::flags(&open(c"file", libc::O_RDONLY).unwrap())
                        .map(|flags| flags & COMPARED),
                )
            }),
        );
        bench.say("back", set(0));
        let file = open(c"file", libc::O_RDONLY).unwrap();
        let mut extended = sys::extended_flags(&file).unwrap();
        extended[0] |= 0x80;
        bench.say("extended", done(sys::set_extended_flags(&file, &extended)));
        bench.say("then", sys::flags(&file).map(|flags| flags & COMPARED));
        sys::make_node(HERE, c"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
        let fifo = open(c"fifo", libc::O_RDWR).unwrap();
        bench.say("of a fifo", done(sys::flags(&fifo)));
    });
}

#[test]
fn generations_differ() {
    mounted(|_| {
        let version = |name: &str| {
            std::fs::write(name, "").unwrap();
            sys::version(&File::open(name).unwrap()).unwrap()
        };
        let first = version("a");
        assert_eq!(version("a"), first);
        assert_ne!(version("b"), first);
        std::fs::remove_file("a").unwrap();
        assert_ne!(version("a"), first);
        String::new()
    });
}
