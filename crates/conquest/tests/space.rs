//! The space of a store: what statfs(2) tells of it, and whether that is so.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use conquest::{
    Capabilities, Capability, Credentials, Errno, Files, NewStore, OwnNamespace, SaveOptions,
    Setting, Statfs, Store, restore, save,
};
use conquest_access::{IdMap, UserNamespace};
use conquest_fs::content::WriteAt;
use conquest_fs::names::New;
use support::{Temporary, attach, check, forced, small, who};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A store for so many bytes, in `place`.
fn made(place: &Temporary, size_max: u64) -> Store {
    let directory = place.path().join("store");
    Store::make(&directory, &NewStore { size_max, reserve: 0, ..small() }).unwrap();
    attach(&directory)
}

/// The numbers, which must be possible ones.
fn statfs(files: &Files) -> Statfs {
    let stat = files.statfs();
    assert!(stat.available <= stat.free && stat.free <= stat.blocks, "{stat:?}");
    assert!(stat.files_free <= stat.files, "{stat:?}");
    let usage = files.usage();
    assert_eq!((stat.blocks - stat.free) * PAGE, usage.used);
    assert_eq!(stat.free * PAGE, usage.free);
    stat
}

#[test]
fn what_is_free_goes_down_by_what_is_written_and_up_again() {
    let place = Temporary::in_memory("statfs");
    let store = made(&place, 32 * MIB);
    let files = store.files().unwrap();
    let empty = statfs(&files);
    assert_eq!((empty.block, empty.name_max), (PAGE, 255));
    assert_eq!(empty.blocks, 32 * MIB / PAGE);
    let uuid = store.uuid().0;
    let half = |at: usize| u64::from_le_bytes(uuid[at..at + 8].try_into().unwrap());
    assert_eq!(empty.id, half(0) ^ half(8));
    files.write("kept", b"bytes").unwrap();
    let mut last = statfs(&files);
    for number in 1..=5 {
        files.write(format!("{number}"), vec![1; number * MIB as usize]).unwrap();
        let now = statfs(&files);
        let pages = number as u64 * MIB / PAGE;
        let less = last.free - now.free;
        assert!((pages..pages + 8).contains(&less), "{less} pages for {pages}");
        assert_eq!(last.available - now.available, less);
        assert!(now.files_free < last.files_free);
        assert_eq!((now.blocks, now.files), (empty.blocks, empty.files));
        last = now;
    }
    for number in 1..=5 {
        files.remove_file(format!("{number}")).unwrap();
    }
    let after = statfs(&files);
    assert!(empty.free - after.free < 8, "{empty:?} {after:?}");
}

#[test]
fn what_is_free_can_be_had_and_no_more() {
    let place = Temporary::in_memory("statfs-full");
    let store = made(&place, 8 * MIB);
    let files = store.files().unwrap();
    let free = statfs(&files).free;
    let file = files.create("file").unwrap();
    let page = vec![7; PAGE as usize];
    let mut pages = 0;
    while file.write_at(&page, pages * PAGE).is_ok_and(|done| done as u64 == PAGE) {
        pages += 1;
    }
    // The nodes of the file's tree, the directory's bucket, and slabs take some.
    assert!(pages <= free && pages >= free * 99 / 100 - 10, "{pages} of {free}");
    let full = statfs(&files);
    assert_eq!((full.free, full.available, full.files_free), (0, 0, 0));
    check(store.fs());
}

#[test]
fn as_many_files_can_be_made_as_are_free() {
    let place = Temporary::in_memory("statfs-files");
    let store = made(&place, 4 * MIB);
    let fs = store.fs();
    let free = statfs(&store.files().unwrap()).files_free;
    for number in 0..free {
        let name = format!("a name of 40 bytes: {number:20}");
        let made = fs.create(&who(), fs.root(), name.as_bytes(), New::Regular, 0o600);
        assert!(made.is_ok(), "{number} of {free}: {made:?}");
    }
    for number in 0.. {
        let name = format!("{number}");
        match fs.create(&who(), fs.root(), name.as_bytes(), New::Regular, 0o600) {
            Ok(_) => assert!(number < free, "far more than {free}"),
            Err(error) => {
                assert_eq!(error.errno(), Errno::ENOSPC);
                break;
            }
        }
    }
    // What is left is less than a slab of inodes, or of names, takes.
    let left = statfs(&store.files().unwrap()).free;
    assert!(left < 7, "{left} pages");
}

// --- the reserve ---------------------------------------------------------------------------------

/// A store of 16 MiB, a quarter of which is reserved, whose root directory anybody may write to.
fn with_reserve(place: &Temporary) -> Store {
    let directory = place.path().join("store");
    let new = NewStore { size_max: 16 * MIB, reserve: 25, root_mode: 0o777, ..small() };
    Store::make(&directory, &new).unwrap();
    attach(&directory)
}

/// Pages that are reserved there.
const RESERVED: u64 = 4 * MIB / PAGE;

/// The files of `store`, as user `fsuid` with these capabilities sees them.
fn seen_by(store: &Store, fsuid: u32, capabilities: Capabilities) -> Files {
    let namespace = OwnNamespace::default();
    let groups = Vec::new();
    store.files_as(Credentials { fsuid, fsgid: fsuid, groups, capabilities, umask: 0, namespace })
}

/// Writes to the end of a new file at `path` until there is no more space: pages.
fn fill(files: &Files, path: &str) -> u64 {
    let file = files.create(path).unwrap();
    let bytes = vec![7; 64 * PAGE as usize];
    let mut done = 0;
    loop {
        match file.write_at(&bytes, done) {
            Ok(written) => done += written as u64,
            Err(error) => {
                assert_eq!(error.raw_os_error(), libc::ENOSPC, "{error}");
                return done / PAGE;
            }
        }
    }
}

#[test]
fn only_the_privileged_use_the_reserve() {
    let place = Temporary::in_memory("reserve");
    let store = with_reserve(&place);
    let user = seen_by(&store, 1000, Capabilities::NONE);
    let root = seen_by(&store, 0, Capabilities::ALL);
    let before = statfs(&user);
    assert_eq!(before.free - before.available, RESERVED);
    user.write("kept", vec![1; 5 * PAGE as usize]).unwrap();
    let pages = fill(&user, "filler");
    assert!(pages < before.available && pages > before.available * 99 / 100 - 10);
    let full = statfs(&user);
    assert_eq!((full.available, full.free), (0, RESERVED));

    // What needs pages is refused, and the reserve is as it was.
    let refused = |done: conquest::Result<()>| {
        assert_eq!(done.unwrap_err().raw_os_error(), libc::ENOSPC);
    };
    refused(user.write("more", vec![1; 2 * PAGE as usize]));
    let fs = store.fs();
    fs.create(&who(), fs.root(), b"directory", New::Directory, 0o777).unwrap();
    let reserved = statfs(&root).free;
    refused(user.create_dir("directory/new"));
    refused(user.hard_link("kept", "directory/link"));
    refused(user.rename("kept", "directory/moved"));
    for number in 0.. {
        let made = user.create_dir(format!("{number}"));
        if made.is_err() {
            refused(made);
            break;
        }
        assert!(number < 1000, "directories without end");
    }
    let value = vec![1; 9000];
    let kept = user.node(user.metadata("kept").unwrap().id());
    refused(kept.set_attribute("user.a", &value, Setting::Any));
    assert_eq!(statfs(&user).free, reserved);

    let file = user.open_with("kept", conquest::OpenOptions::new().write(true)).unwrap();
    refused(file.allocate(20 * PAGE..30 * PAGE, false));
    drop(file);

    // What there is space for is not.
    user.open_with("kept", conquest::OpenOptions::new().write(true))
        .unwrap()
        .write_all_at(&vec![2; 5 * PAGE as usize], 0)
        .unwrap();
    assert_eq!(user.read("kept").unwrap(), vec![2; 5 * PAGE as usize]);
    assert_eq!(statfs(&user).free, reserved);

    // Others go on until there is nothing.
    fill(&root, "root's");
    let none = statfs(&root);
    assert_eq!((none.available, none.free), (0, 0));
    user.truncate("kept", 10).unwrap();
    user.remove_file("filler").unwrap();
    let after = statfs(&user);
    assert!(after.available >= pages - RESERVED && after.free >= pages, "{after:?}");
    user.write("again", vec![3; MIB as usize]).unwrap();
    check(store.fs());
}

#[test]
fn the_capability_counts_and_nothing_else() {
    let place = Temporary::in_memory("reserve-who");
    let store = with_reserve(&place);
    let alone = Capabilities::NONE.with(Capability::SysResource);
    let others = Capabilities(!alone.0);
    fill(&seen_by(&store, 0, others), "filler");
    assert_eq!(statfs(&seen_by(&store, 0, others)).free, RESERVED);
    let fs = store.fs();
    let file = fs.create(&who(), fs.root(), b"file", New::Regular, 0o666).unwrap();
    let write = |who: &conquest_fs::Credentials| {
        fs.write(who, file, WriteAt::End, &[1; 3 * PAGE as usize]).map_err(|error| error.errno())
    };
    let ids = IdMap(&[]);
    let inside = UserNamespace { users: ids, groups: ids };
    let somebody = conquest_fs::Credentials { fsuid: 1000, capabilities: alone, ..who() };
    let refused = write(&conquest_fs::Credentials { namespace: Some(inside), ..somebody });
    assert_eq!(refused, Err(Errno::ENOSPC));
    assert_eq!(write(&somebody), Ok((0, 3 * PAGE)));
    check(fs);
}

#[test]
fn saved_copies_keep_the_reserve() {
    let place = Temporary::in_memory("reserve-saved");
    let store = with_reserve(&place);
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let before = statfs(&store.files().unwrap());
    store.detach().unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    restore(&copy, &directory, forced()).unwrap();
    let after = statfs(&attach(&directory).files().unwrap());
    assert_eq!(after.free - after.available, RESERVED);
    assert_eq!(after.available, before.available);
}

#[test]
fn more_than_half_is_not_reserved() {
    let place = Temporary::in_memory("reserve-most");
    let directory = place.path().join("store");
    let refused = Store::make(&directory, &NewStore { reserve: 51, ..small() }).unwrap_err();
    assert!(matches!(refused, conquest::Error::Range { .. }), "{refused}");
}
