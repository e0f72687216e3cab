//! Copies within a store: what they are refused for, how far they go, what they change.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_access::flag;
use conquest_format::PAGE;
use conquest_fs::names::New;
use conquest_fs::open::{End, OpenFile, Whence};
use conquest_fs::{Errno, Error};
use conquest_testkit::files::root_user;
use libc::{O_APPEND, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};
use store::{SECOND, Store, user};

/// Holes that are so long stay holes.
const HOLE: u64 = 32 << 10;

fn open(store: &Store, name: &str, flags: i32) -> OpenFile {
    store.open_path(&root_user(), name, flags).unwrap()
}

fn at(open: &OpenFile, at: u64) -> End<'_> {
    End { open, at: Some(at) }
}

fn copy(store: &Store, source: End<'_>, target: End<'_>, len: u64) -> Result<u64, Errno> {
    store.copy_range(&root_user(), source, target, len, 0).map_err(|error: Error| error.errno())
}

#[test]
fn what_can_not_be_copied_is_refused() {
    let most = 64 * PAGE;
    let store = Store::with_size_max(4, most);
    store.file("a", b"0123456789");
    let target = store.file("b", b"abc");
    store.make("d", New::Directory, 0o755);
    let [both, other] = ["a", "b"].map(|name| open(&store, name, O_RDWR));
    let [reader, writer] = [open(&store, "a", O_RDONLY), open(&store, "b", O_WRONLY)];
    let [name, directory] = [open(&store, "a", O_PATH), open(&store, "d", O_RDONLY)];
    let appender = open(&store, "b", O_RDWR | O_APPEND);
    let negative = 1 << 63;
    let cases = [
        (at(&name, 0), at(&writer, 0), 1, Errno::EBADF),
        (at(&reader, 0), at(&name, 0), 1, Errno::EBADF),
        (at(&directory, 0), at(&writer, 0), 1, Errno::EISDIR),
        (at(&reader, 0), at(&directory, 0), 1, Errno::EISDIR),
        (at(&writer, 0), at(&both, 0), 1, Errno::EBADF),
        (at(&other, 0), at(&reader, 0), 1, Errno::EBADF),
        (at(&reader, 0), at(&appender, 0), 1, Errno::EBADF),
        (at(&reader, u64::MAX), at(&writer, 0), 1, Errno::EOVERFLOW),
        (at(&reader, 0), at(&writer, u64::MAX), 1, Errno::EOVERFLOW),
        (at(&reader, 0), at(&writer, most), 1, Errno::EFBIG),
        (at(&reader, negative), at(&writer, 0), 1, Errno::EINVAL),
        (at(&reader, 0), at(&writer, negative), 1, Errno::EINVAL),
        (at(&reader, 0), at(&both, 9), 10, Errno::EINVAL),
        (at(&reader, 9), at(&both, 0), 10, Errno::EINVAL),
        (at(&reader, 4), at(&both, 3), 2, Errno::EINVAL),
        (at(&reader, 4), at(&both, 5), 2, Errno::EINVAL),
    ];
    for (source, target, len, errno) in cases {
        // Of the ranges of one file that overlap, what is past the end does not count.
        let expected = match (source.at, target.at, errno) {
            (Some(9), _, Errno::EINVAL) => Ok(1),
            _ => Err(errno),
        };
        assert_eq!(copy(&store, source, target, len), expected, "{source:?} {target:?} {len}");
    }
    let flags = store.copy_range(&root_user(), at(&reader, 0), at(&writer, 0), 1, 1);
    assert_eq!(flags.unwrap_err().errno(), Errno::EINVAL);
    // Beside each other they do not overlap.
    assert_eq!(copy(&store, at(&reader, 2), at(&both, 4), 2), Ok(2));
    assert_eq!(copy(&store, at(&reader, 6), at(&both, 4), 2), Ok(2));
    assert_eq!(store.get(reader.file), b"9123676789");
    store.set_flags(&root_user(), target, flag::IMMUTABLE, None).unwrap();
    assert_eq!(copy(&store, at(&reader, 0), at(&writer, 0), 1), Err(Errno::EPERM));
    // As far as the target may go.
    store.set_flags(&root_user(), target, 0, None).unwrap();
    assert_eq!(copy(&store, at(&reader, 0), at(&writer, most - 4), 10), Ok(4));
    assert_eq!(store.stat(target).unwrap().size, most);
}

#[test]
fn positions_move_where_no_place_is_given() {
    let store = Store::new(4);
    store.file("a", b"0123456789");
    store.file("b", b"");
    let [source, target] = [open(&store, "a", O_RDONLY), open(&store, "b", O_WRONLY)];
    let here = |open| End { open, at: None };
    let positions = || [store.position(&source), store.position(&target)];
    assert_eq!(copy(&store, here(&source), here(&target), 4), Ok(4));
    assert_eq!(positions(), [4, 4]);
    assert_eq!(copy(&store, at(&source, 0), here(&target), 2), Ok(2));
    assert_eq!(positions(), [4, 6]);
    assert_eq!(copy(&store, here(&source), at(&target, 0), 2), Ok(2));
    assert_eq!(positions(), [6, 6]);
    assert_eq!(copy(&store, here(&source), here(&target), 100), Ok(4));
    assert_eq!(positions(), [10, 10]);
    assert_eq!(copy(&store, here(&source), here(&target), 100), Ok(0));
    assert_eq!(positions(), [10, 10]);
    assert_eq!(store.get(target.file), b"4523016789");
    store.seek_to(&source, 20, Whence::Start).unwrap();
    assert_eq!(copy(&store, here(&source), here(&target), 1), Ok(0));
}

#[test]
fn long_holes_stay_holes() {
    let store = Store::new(4);
    let who = &root_user();
    let source = store.file("a", b"");
    let bytes: Vec<u8> = (0..PAGE).map(|index| index as u8 | 1).collect();
    // Data, a long hole, data, a short hole, data, a hole at the end.
    for from in [0, HOLE + PAGE, HOLE + 3 * PAGE] {
        store.put(source, from, &bytes);
    }
    store.truncate(who, source, 2 * HOLE + 4 * PAGE).unwrap();
    let target = store.file("b", b"");
    let [from, to] = [open(&store, "a", O_RDONLY), open(&store, "b", O_RDWR)];
    let size = store.stat(source).unwrap().size;
    assert_eq!(copy(&store, at(&from, 0), at(&to, 0), u64::MAX >> 2), Ok(size));
    assert_eq!(store.get(target), store.get(source));
    let mut places = Vec::new();
    let mut place = 0;
    for whence in [Whence::Hole, Whence::Data, Whence::Hole, Whence::Data] {
        match store.seek_to(&to, place, whence) {
            Ok(found) => place = found as i64,
            Err(error) => assert_eq!(error.errno(), Errno::ENXIO),
        }
        places.push(place as u64);
    }
    assert_eq!(places, [PAGE, HOLE + PAGE, HOLE + 4 * PAGE, HOLE + 4 * PAGE]);
    // Over data, a hole is written as zeros.
    store.put(target, 0, &vec![7; size as usize]);
    assert_eq!(copy(&store, at(&from, 0), at(&to, 0), size), Ok(size));
    assert_eq!(store.get(target), store.get(source));
    store.examine();
}

/// A hole alone makes the target longer: a change as by a write.
#[test]
fn copying_a_hole_is_a_change() {
    let store = Store::new(4);
    let who = &root_user();
    let source = store.file("a", b"");
    store.truncate(who, source, HOLE).unwrap();
    let target = store.file("b", b"1");
    store.set_mode(who, target, 0o6666).unwrap();
    let [from, to] = [("a", O_RDONLY), ("b", O_RDWR)]
        .map(|(name, flags)| store.open_path(&user(7), name, flags).unwrap());
    store.pass(SECOND);
    let before = store.stamps(target);
    let copied = store.copy_range(&user(7), at(&from, 0), at(&to, 1), HOLE, 0);
    assert_eq!(copied.unwrap(), HOLE);
    let stat = store.stat(target).unwrap();
    assert_eq!((stat.size, stat.mode & 0o7777), (HOLE + 1, 0o666));
    assert_eq!((stat.mtime, stat.ctime), (store.now(), store.now()));
    assert_eq!(store.stamps(target)[2], before[2] + 1);
    assert_eq!(store.pages(target), 0);
    // The source was looked at.
    assert_eq!(store.stat(source).unwrap().atime, store.now());
    assert_eq!(store.get(target)[..2], [b'1', 0]);
    // A copy of nothing is none, and no look.
    store.pass(SECOND);
    let other = store.file("c", b"");
    let old = store.stat(other).unwrap().atime;
    store.pass(SECOND);
    let unread = open(&store, "c", O_RDONLY);
    assert_eq!(copy(&store, at(&unread, 0), at(&to, 0), 5), Ok(0));
    assert_eq!(store.stat(other).unwrap().atime, old);
    let before = store.stamps(target);
    assert_eq!(copy(&store, at(&from, HOLE), at(&to, 0), 5), Ok(0));
    assert_eq!(store.stamps(target), before);
    store.examine();
}

/// What was copied before something goes wrong stays, and is told.
#[test]
fn a_full_store_ends_a_copy() {
    let store = Store::new(1);
    let source = store.file("a", &vec![5; 40 * PAGE as usize]);
    let target = store.file("b", b"");
    let filler = store.file("c", b"");
    loop {
        let at = conquest_fs::content::WriteAt::End;
        if store.write(&root_user(), filler, at, &[1; PAGE as usize]).is_err() {
            break;
        }
    }
    store.truncate(&root_user(), filler, 0).unwrap();
    let room = 512 - store.core().pages_used();
    store.put(filler, 0, &vec![1; (room - 20) as usize * PAGE as usize]);
    let [from, to] = [open(&store, "a", O_RDONLY), open(&store, "b", O_RDWR)];
    let copied = copy(&store, at(&from, 0), at(&to, 0), 40 * PAGE).unwrap();
    assert!(copied > 0 && copied < 40 * PAGE, "{copied}");
    assert_eq!(store.stat(target).unwrap().size, copied);
    assert_eq!(store.get(target), store.get(source)[..copied as usize]);
    assert_eq!(copy(&store, at(&from, copied), at(&to, copied), 40 * PAGE), Err(Errno::ENOSPC));
    store.examine();
}
