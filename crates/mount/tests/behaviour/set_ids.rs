//! Set-id bits and file capabilities: when changes of a file take them away.

use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, fchown};

use conquest_peers::sys::{self, HERE, Outcome};

use crate::support::bench::Bench;
use crate::support::{ALICE, BOB, as_user, both, done, told};

/// `struct vfs_cap_data` of revision 2, with one permitted capability.
const CAPABILITIES: [u8; 20] = [0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const ATTRIBUTE: &str = "security.capability";
const NAME: &CStr = c"program";

fn open(flags: i32) -> Outcome<File> {
    sys::open(HERE, NAME, flags, 0)
}

/// Something that can be done to a file, and its name.
type NamedChange = (&'static str, fn() -> Outcome);

/// What can be done to a file.
const CHANGES: [NamedChange; 15] = [
    ("write", || sys::write(&open(libc::O_WRONLY)?)),
    ("write nothing", || sys::write_at(&open(libc::O_WRONLY)?, 0, b"").map(drop)),
    ("append", || sys::write(&open(libc::O_WRONLY | libc::O_APPEND)?)),
    ("truncate", || sys::truncate(NAME, 100)),
    ("truncate to the same size", || sys::truncate(NAME, 8192)),
    ("truncate the open one", || sys::truncate_open(&open(libc::O_WRONLY)?, 100)),
    ("open with truncation", || open(libc::O_WRONLY | libc::O_TRUNC).map(drop)),
    ("create over it", || open(libc::O_WRONLY | libc::O_TRUNC | libc::O_CREAT).map(drop)),
    ("allocate", || sys::allocate(&open(libc::O_WRONLY)?, 0, 0, 10_000)),
    ("punch a hole", || {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        sys::allocate(&open(libc::O_WRONLY)?, mode, 0, 4096)
    }),
    ("zero", || sys::allocate(&open(libc::O_WRONLY)?, libc::FALLOC_FL_ZERO_RANGE, 0, 4096)),
    ("copy to", || {
        let from = sys::open(HERE, c"source", libc::O_RDONLY, 0)?;
        sys::copy_range(&from, &open(libc::O_WRONLY)?, [Some(0), Some(0)], 5000, 0).map(drop)
    }),
    ("give to the same", || sys::chown(NAME, Some(ALICE), None, 0)),
    ("change the group", || sys::chown(NAME, None, Some(BOB), 0)),
    ("read and look", || {
        let file = open(libc::O_RDONLY)?;
        sys::read(&file, &mut [0; 10])?;
        sys::access(NAME, 4)
    }),
];

/// A new file of Alice's, with this mode.
fn make(mode: u32) {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    let file = sys::open(HERE, NAME, flags, 0o600).unwrap();
    sys::write_at(&file, 0, &[7; 8192]).unwrap();
    fchown(&file, Some(ALICE), Some(ALICE)).unwrap();
    sys::set_xattr(NAME, ATTRIBUTE, &CAPABILITIES, 0).unwrap();
    sys::chmod(NAME, mode, 0).unwrap();
}

fn look() -> (u32, String) {
    let mode = std::fs::metadata(NAME.to_str().unwrap()).unwrap().mode();
    (mode & 0o7777, told(sys::get_xattr(NAME, ATTRIBUTE).map(|value| value.len())))
}

/// Lets somebody change files of several modes in all ways: what is left of the modes.
fn change_all(bench: &Bench, who: &str, work: impl Fn(fn() -> Outcome) -> String) {
    std::fs::write("source", [8; 8192]).unwrap();
    for mode in [0o4777, 0o2777, 0o2767, 0o6777, 0o6766, 0o0777] {
        for (what, change) in CHANGES {
            make(mode);
            let outcome = work(change);
            bench.say(&format!("{who}: {what} with mode {mode:o}"), (outcome, look()));
            sys::remove(HERE, NAME, false).unwrap();
        }
    }
}

#[test]
fn changes_by_users_take_set_ids_away() {
    both(|bench| {
        change_all(bench, "the owner", |change| as_user(ALICE, &[ALICE, BOB], || done(change())));
    });
}

#[test]
fn changes_by_others_take_set_ids_away() {
    both(|bench| {
        change_all(bench, "another user", |change| as_user(BOB, &[BOB], || done(change())));
    });
}

#[test]
fn giving_away_takes_set_ids_away() {
    both(|bench| {
        for group in [ALICE, BOB] {
            for mode in [0o6777, 0o6767, 0o2767] {
                for user in [0, ALICE] {
                    make(0o700);
                    sys::chown(NAME, None, Some(group), 0).unwrap();
                    sys::chmod(NAME, mode, 0).unwrap();
                    let given =
                        as_user(user, &[user], || done(sys::chown(NAME, None, Some(user), 0)));
                    bench.say(&format!("{user}, of group {group}, mode {mode:o}"), (given, look()));
                    sys::remove(HERE, NAME, false).unwrap();
                }
            }
        }
    });
}

#[test]
fn changes_by_root_leave_set_ids_but_no_capabilities() {
    both(|bench| {
        change_all(bench, "root", |change| done(change()));
        make(0o4777);
        sys::write(&open(libc::O_WRONLY).unwrap()).unwrap();
        assert_eq!(look().0, 0o4777);
        assert!(look().1.starts_with("No data"), "{:?}", look());
    });
}

#[test]
fn a_group_that_one_is_not_in_takes_set_gid_away() {
    both(|bench| {
        for groups in [&[ALICE][..], &[ALICE, BOB]] {
            make(0o700);
            sys::chown(NAME, None, Some(BOB), 0).unwrap();
            let set = as_user(ALICE, groups, || done(sys::chmod(NAME, 0o2755, 0)));
            bench.say("chmod", (set, look()));
            sys::remove(HERE, NAME, false).unwrap();
            // In a directory whose group is inherited.
            std::fs::create_dir("directory").unwrap();
            sys::chown(c"directory", None, Some(BOB), 0).unwrap();
            sys::chmod(c"directory", 0o2777, 0).unwrap();
            as_user(ALICE, groups, || {
                let flags = libc::O_WRONLY | libc::O_CREAT;
                sys::open(HERE, c"directory/file", flags, 0o2755).unwrap();
                sys::make_directory(HERE, c"directory/inner", 0o755).unwrap();
                String::new()
            });
            for name in ["directory/file", "directory/inner"] {
                let found = std::fs::metadata(name).unwrap();
                bench.say("made", (name, found.mode(), found.uid(), found.gid()));
            }
            std::fs::remove_dir_all("directory").unwrap();
        }
    });
}
