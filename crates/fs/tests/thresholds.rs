//! Thresholds of files' own: which files they let become large, who gets them, and how they are
//! set, read and taken away.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::ops::Deref;

use conquest_access::Credentials;
use conquest_format::PAGE;
use conquest_format::fs::chunk;
use conquest_format::inode::SIZE_MAX;
use conquest_fs::content::Allocate;
use conquest_fs::feed::{NoticeKind, Told};
use conquest_fs::large::NewLarge;
use conquest_fs::locks::Wait;
use conquest_fs::names::{New, Renaming};
use conquest_fs::placement::{Form, Stays, THRESHOLD};
use conquest_fs::xattr::Setting;
use conquest_fs::{Errno, FileId, NewFileSystem, Result};
use conquest_testkit::files::root_user;
use store::{NEW, SECOND, Store, refused, user};

/// Bytes above which store are large, of the store.
const STORES: u64 = 64 << 10;
/// The same, of a directory.
const OWN: u64 = 2 * PAGE;
/// Space, and a size that has it.
const SPACE: Allocate = Allocate::Space { keeps_size: false };

/// A store with a volume.
fn hybrid() -> Store {
    let large = NewLarge { threshold: STORES, chunk_blocks: chunk::BLOCKS_MIN };
    Store::with(16, &NewFileSystem { large: Some(large), ..NEW })
}

fn set_as(
    who: &Credentials<'_>,
    store: &Store,
    file: FileId,
    value: &str,
    how: Setting,
) -> Result<()> {
    store.set_attribute(who, file, THRESHOLD, value.as_bytes(), how)
}

fn set(store: &Store, file: FileId, value: &str) {
    set_as(&root_user(), store, file, value, Setting::Any).unwrap();
}

fn get(store: &Store, file: FileId) -> Result<String> {
    let value = store.attribute(&root_user(), file, THRESHOLD)?;
    Ok(String::from_utf8(value).unwrap())
}

/// A directory with a threshold of its own.
fn directory(store: &Store, path: &str, value: &str) -> FileId {
    let made = store.make(path, New::Directory, 0o755);
    set(store, made, value);
    made
}

fn put(store: &Store, file: FileId, at: u64, len: u64) {
    store.put(file, at, &vec![7; len as usize]);
}

fn form(store: &Store, file: FileId) -> Form {
    store.placement(file, STORES).unwrap().form
}

#[test]
fn a_file_is_large_above_the_threshold_of_its_directory() {
    let store = hybrid();
    directory(&store, "low", &OWN.to_string());
    let (small, large) = (store.file("low/small", b""), store.file("low/large", b""));
    put(&store, small, 0, OWN);
    put(&store, large, 0, OWN + 1);
    assert_eq!((form(&store, small), form(&store, large)), (Form::Extent, Form::Large));
    // By a byte more, at once to the volume, and by allocating: it is the same threshold.
    put(&store, small, OWN, 1);
    assert_eq!(form(&store, small), Form::Large);
    let allocated = store.file("low/allocated", b"");
    store.allocate(&root_user(), allocated, SPACE, 0, OWN).unwrap();
    assert_ne!(form(&store, allocated), Form::Large);
    store.allocate(&root_user(), allocated, SPACE, 0, OWN + 1).unwrap();
    assert_eq!(form(&store, allocated), Form::Large);
    // Nobody else has that threshold.
    let stranger = store.file("stranger", b"");
    put(&store, stranger, 0, STORES);
    assert_eq!(form(&store, stranger), Form::Extent);
    put(&store, stranger, STORES, 1);
    assert_eq!(form(&store, stranger), Form::Large);
    store.examine();
}

#[test]
fn everything_goes_to_the_volume_or_nothing_does() {
    let store = hybrid();
    directory(&store, "all", "0");
    let file = store.file("all/file", b"");
    assert_eq!(form(&store, file), Form::None);
    put(&store, file, 0, 1);
    assert_eq!(form(&store, file), Form::Large);
    store.push(file, Wait::Forever).unwrap();
    assert_eq!((store.get(file), store.pages(file)), (vec![7], 1));
    directory(&store, "none", "core");
    let file = store.file("none/file", b"");
    put(&store, file, 0, 1 << 20);
    put(&store, file, 1 << 20, 100);
    store.allocate(&root_user(), file, SPACE, 0, 2 << 20).unwrap();
    let placed = store.placement(file, STORES).unwrap();
    assert_eq!((placed.form, placed.stays), (Form::Extent, Stays::Small));
    assert_eq!(placed.threshold, Some(SIZE_MAX));
    put(&store, file, 4 << 20, 100);
    assert_eq!(form(&store, file), Form::Tree);
    store.examine();
}

#[test]
fn what_is_made_in_a_directory_gets_its_threshold() {
    let store = hybrid();
    let (who, root) = (&root_user(), store.root());
    let above = directory(&store, "above", "12K");
    let below = store.make("above/below", New::Directory, 0o755);
    let deep = store.make("above/below/deep", New::Regular, 0o644);
    for file in [above, below, deep] {
        assert_eq!(get(&store, file).unwrap(), "12288");
    }
    for (path, what) in [
        ("above/fifo", New::Fifo),
        ("above/link", New::Symlink(b"target")),
        ("above/device", New::Character(1, 3)),
    ] {
        let file = store.make(path, what, 0o644);
        assert_eq!(refused(get(&store, file)), Errno::ENODATA, "{path}");
    }
    let nameless = store.open_path(who, "above", libc::O_TMPFILE | libc::O_RDWR).unwrap();
    assert_eq!(get(&store, nameless.file).unwrap(), "12288");
    store.close(&nameless).unwrap();
    // What is moved keeps what it has, be it nothing.
    let old = store.make("old", New::Regular, 0o644);
    let rename = |from, name: &[u8], to| {
        store.rename(who, from, name, to, name, Renaming::Replace).unwrap();
    };
    rename(root, b"old", above);
    rename(below, b"deep", root);
    rename(above, b"below", root);
    assert_eq!(refused(get(&store, old)), Errno::ENODATA);
    assert_eq!(get(&store, deep).unwrap(), "12288");
    assert_eq!(get(&store, below).unwrap(), "12288");
    store.examine();
    // A directory has both that and its parent.
    rename(root, b"above", below);
    let into = store.rename(who, root, b"below", above, b"below", Renaming::Replace);
    assert_eq!(refused(into), Errno::EINVAL);
    store.examine();
}

#[test]
fn a_file_stays_where_it_is_until_it_grows() {
    let store = hybrid();
    let file = store.file("file", b"");
    put(&store, file, 0, 10 * PAGE);
    set(&store, file, "4K");
    assert_eq!(form(&store, file), Form::Extent);
    // That is a write that ends above the threshold, be it inside the file.
    put(&store, file, 0, PAGE);
    assert_eq!(form(&store, file), Form::Extent);
    put(&store, file, PAGE, 1);
    assert_eq!(form(&store, file), Form::Large);
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(store.pages(file), 10);
    // It stays a large one; but what is written from now on is not pushed.
    set(&store, file, "core");
    assert_eq!(form(&store, file), Form::Large);
    put(&store, file, 0, PAGE);
    store.push(file, Wait::Forever).unwrap();
    assert!(store.pages(file) > 10);
    store.remove_attribute(&root_user(), file, THRESHOLD).unwrap();
    store.truncate(&root_user(), file, STORES + 1).unwrap();
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(store.pages(file), 10);
    store.examine();
}

#[test]
fn values_that_are_none_are_refused() {
    let store = hybrid();
    let file = store.file("file", b"");
    let who = &root_user();
    let put = |value, how| set_as(who, &store, file, value, how);
    for value in ["", "-1", "8E", "volume", "64KB", "1\n", "18446744073709551616"] {
        assert_eq!(refused(put(value, Setting::Any)), Errno::EINVAL, "{value}");
    }
    assert_eq!(refused(get(&store, file)), Errno::ENODATA);
    assert_eq!(refused(put("1", Setting::Replace)), Errno::ENODATA);
    put("1", Setting::Create).unwrap();
    assert_eq!(refused(put("2", Setting::Create)), Errno::EEXIST);
    put("23", Setting::Replace).unwrap();
    assert_eq!(get(&store, file).unwrap(), "23");
    let little = store.deref().attribute(who, file, THRESHOLD, &mut [0; 1]);
    assert_eq!(refused(little), Errno::ERANGE);
    store.remove_attribute(who, file, THRESHOLD).unwrap();
    assert_eq!(refused(store.remove_attribute(who, file, THRESHOLD)), Errno::ENODATA);
    // Who may do what is as with other attributes of users.
    let fifo = store.make("fifo", New::Fifo, 0o666);
    assert_eq!(refused(set_as(who, &store, fifo, "1", Setting::Any)), Errno::EPERM);
    assert_eq!(refused(set_as(&user(7), &store, file, "1", Setting::Any)), Errno::EACCES);
    store.examine();
    // In a store without a volume there is nothing to be set.
    let store = Store::new(2);
    let file = store.file("file", b"");
    assert_eq!(refused(set_as(who, &store, file, "1", Setting::Any)), Errno::EOPNOTSUPP);
    assert_eq!(refused(get(&store, file)), Errno::ENODATA);
}

#[test]
fn it_is_listed_among_the_others_and_changes_of_it_are_told() {
    let store = hybrid();
    let (who, root) = (&root_user(), store.root());
    let file = store.file("file", b"");
    for name in [&b"user.a"[..], b"user.z", b"trusted.t"] {
        store.set_attribute(who, file, name, b"value", Setting::Any).unwrap();
    }
    let names = || {
        let names = store.attributes(who, file).unwrap();
        names.join(&b' ').escape_ascii().to_string()
    };
    assert_eq!(names(), "trusted.t user.a user.z");
    let mut follower = store.follow();
    let mut told = || {
        let mut kinds = Vec::new();
        while let Some(Told::Notice(notice)) = follower.next(&mut [0; 255]).unwrap() {
            kinds.push(notice.kind);
        }
        kinds
    };
    for file in [file, root] {
        store.pass(SECOND);
        let before = store.stat(file).unwrap();
        set(&store, file, "1M");
        let after = store.stat(file).unwrap();
        assert_eq!(told(), [NoticeKind::ExtendedAttributes]);
        assert_eq!((after.ctime, after.mtime), (store.now(), before.mtime));
        assert!(after.change > before.change);
        // The change of nothing is none.
        store.pass(SECOND);
        set(&store, file, "1024K");
        assert_eq!(told(), []);
        assert_eq!(store.stat(file).unwrap().ctime, after.ctime);
    }
    assert_eq!(names(), "trusted.t user.a user.conquest.threshold user.z");
    store.remove_attribute(who, file, b"user.z").unwrap();
    assert_eq!(names(), "trusted.t user.a user.conquest.threshold");
    assert_eq!(told().len(), 1);
    store.remove_attribute(who, file, THRESHOLD).unwrap();
    assert_eq!(told(), [NoticeKind::ExtendedAttributes]);
    assert_eq!(names(), "trusted.t user.a");
    store.examine();
}
