//! Open files: what may be opened how, positions, looks that are noted, what closing gives back.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_access::flag;
use conquest_format::PAGE;
use conquest_fs::Errno;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::names::{New, Removal};
use conquest_fs::open::{How, Whence};
use conquest_fs::walk::Base;
use conquest_testkit::files::root_user;
use libc::{
    O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR,
    O_TMPFILE, O_TRUNC, O_WRONLY,
};
use store::{SECOND, Store, path, refused, user};

const DAY: i64 = 24 * 60 * 60 * SECOND;
/// More than the store has holdings.
const MANY: usize = 5000;

/// A store with a file of each type.
fn types() -> Store {
    let store = Store::new(4);
    store.file("f", b"0123456789");
    store.make("d", New::Directory, 0o755);
    store.make("p", New::Fifo, 0o666);
    store.make("s", New::Socket, 0o666);
    store.make("c", New::Character(1, 3), 0o666);
    store.make("l", New::Symlink(b"f"), 0o777);
    store.make("none", New::Symlink(b"x"), 0o777);
    store
}

#[test]
fn what_can_be_opened_depends_on_its_type() {
    let store = types();
    let who = &root_user();
    let cases = [
        ("f", O_RDONLY, None),
        ("f", O_DIRECTORY, Some(Errno::ENOTDIR)),
        ("f", O_CREAT | O_EXCL, Some(Errno::EEXIST)),
        ("f/", O_RDONLY, Some(Errno::ENOTDIR)),
        ("f/", O_CREAT, Some(Errno::EISDIR)),
        ("x/", O_CREAT, Some(Errno::EISDIR)),
        ("x", O_RDONLY, Some(Errno::ENOENT)),
        ("d", O_RDONLY, None),
        ("d/", O_RDONLY, None),
        ("d", O_DIRECTORY, None),
        ("d", O_WRONLY, Some(Errno::EISDIR)),
        ("d", O_CREAT, Some(Errno::EISDIR)),
        ("d", O_CREAT | O_EXCL, Some(Errno::EEXIST)),
        ("d/.", O_CREAT, Some(Errno::EISDIR)),
        (".", O_RDONLY, None),
        ("/", O_RDONLY, None),
        ("p", O_RDONLY, Some(Errno::ENXIO)),
        ("s", O_RDONLY, Some(Errno::ENXIO)),
        ("c", O_RDWR, Some(Errno::ENXIO)),
        ("p", O_PATH, None),
        ("l", O_PATH | O_NOFOLLOW, None),
        ("l", O_NOFOLLOW, Some(Errno::ELOOP)),
        ("l", O_CREAT | O_EXCL, Some(Errno::EEXIST)),
        ("l", O_CREAT, None),
        ("l/", O_RDONLY, Some(Errno::ENOTDIR)),
        ("none", O_RDONLY, Some(Errno::ENOENT)),
        ("none", O_CREAT | O_EXCL, Some(Errno::EEXIST)),
        ("none", O_CREAT | O_NOFOLLOW, Some(Errno::ELOOP)),
        ("f", O_TMPFILE | O_RDWR, Some(Errno::ENOTDIR)),
        ("x", O_TMPFILE | O_RDWR, Some(Errno::ENOENT)),
        ("d", O_TMPFILE | O_RDWR, None),
    ];
    for (name, flags, expected) in cases {
        let opened = store.open_path(who, name, flags);
        assert_eq!(opened.as_ref().err(), expected.as_ref(), "{name} {flags:o}");
        if let Ok(open) = opened {
            store.close(&open).unwrap();
        }
    }
    // By its number, too; and who may not look for a name is told nothing of it.
    let how = How::from_open(O_DIRECTORY as u32, 0).unwrap();
    assert_eq!(refused(store.open_file(who, store.find_name("f"), &how)), Errno::ENOTDIR);
    store.make("closed", New::Directory, 0o700);
    assert_eq!(store.open_path(&user(7), "closed/x/", O_CREAT).unwrap_err(), Errno::EACCES);
    // What does not exist is made, also where a link leads.
    let open = store.open_path(who, "none", O_CREAT | O_RDWR).unwrap();
    assert_eq!(store.find_name("x"), open.file);
    store.close(&open).unwrap();
    store.examine();
}

#[test]
fn what_fails_to_open_leaves_nothing() {
    let store = types();
    let stranger = &user(7);
    store.set_mode(&root_user(), store.find_name("d"), 0o500).unwrap();
    for (name, flags, errno) in [
        ("f", O_RDWR, Errno::EACCES),
        ("p", O_RDONLY, Errno::ENXIO),
        ("d", O_TMPFILE | O_RDWR, Errno::EACCES),
        ("d/x", O_CREAT | O_RDWR, Errno::EACCES),
    ] {
        for _ in 0..MANY {
            assert_eq!(store.open_path(stranger, name, flags).unwrap_err(), errno);
        }
    }
    // As many as can be: then it says so, and what is made then is not there.
    let mut opened = Vec::new();
    let errno = loop {
        match store.open_path(&root_user(), "f", O_RDONLY) {
            Ok(open) => opened.push(open),
            Err(errno) => break errno,
        }
    };
    assert_eq!(errno, Errno::ENFILE);
    assert!(opened.len() < MANY);
    assert_eq!(store.open_path(&root_user(), "x", O_CREAT | O_RDWR).unwrap_err(), Errno::ENFILE);
    let made = store.open_path(&root_user(), ".", O_TMPFILE | O_RDWR);
    assert_eq!(made.unwrap_err(), Errno::ENFILE);
    assert_eq!(store.lookup(&root_user(), store.root(), b"x").unwrap(), None);
    store.examine();
    for open in &opened {
        store.close(open).unwrap();
    }
    // A store without space, too: the new file has no room.
    let open = store.open_path(&root_user(), "x", O_CREAT | O_RDWR).unwrap();
    store.close(&open).unwrap();
    store.examine();
}

#[test]
fn truncating_by_opening_is_checked_like_writing() {
    let store = types();
    let who = &root_user();
    let file = store.find_name("f");
    assert_eq!(store.open_path(&user(7), "f", O_RDONLY | O_TRUNC).unwrap_err(), Errno::EACCES);
    let open = store.open_path(who, "f", O_PATH | O_TRUNC).unwrap();
    assert_eq!(store.stat(file).unwrap().size, 10);
    store.close(&open).unwrap();
    store.set_mode(who, file, 0o6666).unwrap();
    store.pass(SECOND);
    let open = store.open_path(&user(7), "f", O_RDWR | O_TRUNC).unwrap();
    let stat = store.stat(file).unwrap();
    assert_eq!((stat.size, stat.mode & 0o7777, stat.mtime), (0, 0o666, store.now()));
    store.close(&open).unwrap();
}

#[test]
fn descriptors_do_what_they_were_opened_for() {
    let store = types();
    let who = &root_user();
    let mut buffer = [0; 4];
    for (flags, reads, writes, truncates) in [
        (O_RDONLY, None, Some(Errno::EBADF), Some(Errno::EINVAL)),
        (O_WRONLY, Some(Errno::EBADF), None, None),
        (O_RDWR, None, None, None),
        (O_PATH, Some(Errno::EBADF), Some(Errno::EBADF), Some(Errno::EBADF)),
    ] {
        let open = store.open_path(who, "f", flags).unwrap();
        let errno = |error: conquest_fs::Error| error.errno();
        assert_eq!(store.read_at(&open, 0, &mut buffer).map_err(errno).err(), reads);
        assert_eq!(store.read_next(&open, &mut buffer).map_err(errno).err(), reads);
        assert_eq!(store.write_at(who, &open, 0, b"0").map_err(errno).err(), writes);
        assert_eq!(store.write_next(who, &open, b"0").map_err(errno).err(), writes);
        assert_eq!(store.truncate_through(who, &open, 10).map_err(errno).err(), truncates);
        let seeks = (flags == O_PATH).then_some(Errno::EBADF);
        assert_eq!(store.seek_to(&open, 0, Whence::Start).map_err(errno).err(), seeks);
        store.close(&open).unwrap();
    }
    let open = store.open_path(who, "d", O_RDONLY).unwrap();
    assert_eq!(refused(store.read_at(&open, 0, &mut buffer)), Errno::EISDIR);
    for whence in [Whence::End, Whence::Data, Whence::Hole] {
        assert_eq!(refused(store.seek_to(&open, 0, whence)), Errno::EINVAL);
    }
    assert_eq!(store.seek_to(&open, i64::MAX, Whence::Start).unwrap(), i64::MAX as u64);
    assert_eq!(refused(store.seek_to(&open, 1, Whence::Current)), Errno::EINVAL);
    assert_eq!(refused(store.seek_to(&open, -1, Whence::Start)), Errno::EINVAL);
    store.close(&open).unwrap();
}

#[test]
fn positions_move_by_what_is_done() {
    let most = 3 * PAGE;
    let store = Store::with_size_max(4, most);
    let who = &root_user();
    store.file("f", b"0123456789");
    let open = store.open_path(who, "f", O_RDWR).unwrap();
    let mut buffer = [0; 4];
    assert_eq!(store.read_next(&open, &mut buffer).unwrap(), 4);
    assert_eq!((&buffer, store.position(&open)), (b"0123", 4));
    assert_eq!(store.read_at(&open, 1, &mut buffer).unwrap(), 4);
    assert_eq!(store.write_at(who, &open, 0, b"ab").unwrap(), 2);
    assert_eq!(store.position(&open), 4);
    assert_eq!(store.write_next(who, &open, b"xyz").unwrap(), 3);
    assert_eq!(store.position(&open), 7);
    assert_eq!(store.read_next(&open, &mut buffer).unwrap(), 3);
    assert_eq!((store.read_next(&open, &mut buffer).unwrap(), store.position(&open)), (0, 10));
    assert_eq!(store.get(open.file), b"ab23xyz789");
    // From the beginning, from here, from the end; not before the beginning, nor past the end of
    // what files can have.
    assert_eq!(store.seek_to(&open, 3, Whence::Start).unwrap(), 3);
    assert_eq!(store.seek_to(&open, -2, Whence::Current).unwrap(), 1);
    assert_eq!(store.seek_to(&open, -4, Whence::End).unwrap(), 6);
    assert_eq!(store.seek_to(&open, most as i64, Whence::Start).unwrap(), most);
    for (offset, whence) in [
        (-1, Whence::Start),
        (most as i64 + 1, Whence::Start),
        (1, Whence::Current),
        (-11, Whence::End),
        (i64::MAX, Whence::End),
    ] {
        assert_eq!(refused(store.seek_to(&open, offset, whence)), Errno::EINVAL);
    }
    assert_eq!(store.position(&open), most);
    // A write that is cut short, or fails, moves it no farther.
    assert_eq!(refused(store.write_next(who, &open, b"1")), Errno::EFBIG);
    assert_eq!(store.position(&open), most);
    store.seek_to(&open, -3, Whence::Current).unwrap();
    assert_eq!(store.write_next(who, &open, b"12345").unwrap(), 3);
    assert_eq!(store.position(&open), most);
    store.set_flags(who, open.file, flag::IMMUTABLE, None).unwrap();
    store.seek_to(&open, 5, Whence::Start).unwrap();
    assert_eq!(refused(store.write_next(who, &open, b"12345")), Errno::EPERM);
    assert_eq!(store.position(&open), 5);
    store.set_flags(who, open.file, 0, None).unwrap();
    // Data and holes.
    assert_eq!(store.seek_to(&open, 0, Whence::Hole).unwrap(), PAGE);
    assert_eq!(
        (store.position(&open), store.seek_to(&open, 10, Whence::Data).unwrap()),
        (PAGE, 10)
    );
    assert_eq!(store.seek_to(&open, PAGE as i64, Whence::Data).unwrap(), 2 * PAGE);
    for bad in [most as i64, -1] {
        assert_eq!(refused(store.seek_to(&open, bad, Whence::Data)), Errno::ENXIO);
    }
    store.close(&open).unwrap();
}

#[test]
fn who_appends_writes_at_the_end() {
    let store = types();
    let who = &root_user();
    let open = store.open_path(who, "f", O_RDWR | O_APPEND).unwrap();
    assert_eq!(store.write_next(who, &open, b"ab").unwrap(), 2);
    assert_eq!(store.position(&open), 12);
    store.seek_to(&open, 0, Whence::Start).unwrap();
    assert_eq!(store.write_at(who, &open, 0, b"cd").unwrap(), 2);
    assert_eq!(store.position(&open), 0);
    assert_eq!(store.get(open.file), b"0123456789abcd");
    store.close(&open).unwrap();
}

/// Reads a few bytes of `f`, opened so.
fn look(store: &Store, flags: i32) {
    let open = store.open_path(&root_user(), "f", flags).unwrap();
    store.read_at(&open, 0, &mut [0; 4]).unwrap();
    store.close(&open).unwrap();
}

#[test]
fn listing_a_directory_is_a_look() {
    let store = types();
    let atime = || store.stat(store.root()).unwrap().atime;
    let room = &mut [0; 4096];
    let [listed, spared, named] = [O_RDONLY, O_RDONLY | O_NOATIME, O_PATH]
        .map(|flags| store.open_path(&root_user(), ".", flags));
    let [listed, spared, named] = [listed.unwrap(), spared.unwrap(), named.unwrap()];
    store.pass(SECOND);
    let old = atime();
    store.list_open(&spared, 0, room).unwrap();
    assert_eq!(atime(), old);
    assert_eq!(refused(store.list_open(&named, 0, room)), Errno::EBADF);
    assert!(store.list_open(&listed, 0, room).unwrap().any(|entry| entry.name == b"f"));
    let noted = atime();
    assert!(noted > old);
    store.pass(SECOND);
    store.list_open(&listed, 0, room).unwrap();
    assert_eq!(atime(), noted);
    [listed, spared, named].iter().for_each(|open| store.close(open).unwrap());
}

#[test]
fn a_look_is_noted_after_a_change_or_a_day() {
    let store = types();
    let who = &root_user();
    let file = store.find_name("f");
    let atime = || store.stat(file).unwrap().atime;
    let look = |flags| look(&store, flags);
    store.pass(SECOND);
    let [.., change] = store.stamps(file);
    // Not by who asks not to be noted, nor where nobody is.
    let old = atime();
    look(O_RDONLY | O_NOATIME);
    assert_eq!(atime(), old);
    store.set_flags(who, file, flag::NOATIME, None).unwrap();
    look(O_RDONLY);
    assert_eq!(atime(), old);
    store.set_flags(who, file, 0, None).unwrap();
    look(O_RDONLY);
    assert!(atime() > old && atime() - store.now() < 10);
    assert_eq!(store.stamps(file)[2], change + 2);
    let noted = atime();
    store.pass(SECOND);
    look(O_RDONLY);
    assert_eq!(atime(), noted);
    // After a change of the bytes, or of the inode; also if the clock has not moved on.
    for change in [&|| store.put(file, 0, b"x"), &|| store.set_mode(who, file, 0o600).unwrap()]
        as [&dyn Fn(); 2]
    {
        change();
        let changed = store.stat(file).unwrap().ctime;
        look(O_RDONLY);
        assert!(atime() > changed);
        let noted = atime();
        store.pass(SECOND);
        look(O_RDONLY);
        assert_eq!(atime(), noted);
    }
    // After a day, by who has opened it then: once.
    let noted = atime();
    store.pass(DAY - 2 * SECOND);
    look(O_RDONLY);
    assert_eq!(atime(), noted);
    store.pass(2 * SECOND);
    let open = store.open_path(who, "f", O_RDONLY).unwrap();
    store.read_at(&open, 0, &mut [0; 4]).unwrap();
    assert_eq!(atime(), store.now());
    store.pass(SECOND);
    store.read_at(&open, 0, &mut [0; 4]).unwrap();
    assert_eq!(atime(), store.now() - SECOND);
    store.close(&open).unwrap();
    // A day is enough, to the nanosecond.
    store.pass(atime() + DAY - store.now());
    look(O_RDONLY);
    assert_eq!(atime(), store.now());
    // A look at no bytes is none.
    store.put(file, 0, b"y");
    let noted = atime();
    let open = store.open_path(who, "f", O_RDONLY).unwrap();
    store.read_at(&open, 0, &mut []).unwrap();
    assert_eq!(atime(), noted);
    store.close(&open).unwrap();
}

#[test]
fn a_look_comes_after_what_is_of_the_same_moment() {
    let store = types();
    let who = &root_user();
    let file = store.find_name("f");
    let atime = || store.stat(file).unwrap().atime;
    let look = |flags| look(&store, flags);
    let later = store.now() + DAY;
    store.set_times(who, file, SetTime::At(later), SetTime::At(later)).unwrap();
    look(O_RDONLY);
    assert_eq!(atime(), later + 1);
    store.pass(SECOND);
    let present = store.now();
    store.set_times(who, file, SetTime::At(present), SetTime::At(5)).unwrap();
    look(O_RDONLY);
    assert_eq!(atime(), present + 1);
}

#[test]
fn closing_gives_back_what_was_allocated_ahead() {
    let store = types();
    let who = &root_user();
    let file = store.make("g", New::Regular, 0o644);
    let grow = || {
        store.truncate(who, file, 0).unwrap();
        for _ in 0..9 {
            store.write(who, file, WriteAt::End, &[1; PAGE as usize]).unwrap();
        }
        assert_eq!(store.pages(file), 10);
    };
    // Not by who only reads.
    for (flags, pages) in [(O_RDONLY, 10), (O_PATH, 10), (O_WRONLY, 9), (O_RDWR, 9)] {
        grow();
        let open = store.open_path(who, "g", flags).unwrap();
        store.close(&open).unwrap();
        assert_eq!(store.pages(file), pages);
    }
    let other = store.open_path(who, "d", O_RDONLY).unwrap();
    store.close(&other).unwrap();
    // What has no name goes as a whole, when the last one closes it.
    let before = store.core().pages_used();
    let [first, second] = [0; 2].map(|_| store.open_path(who, "g", O_RDWR).unwrap());
    store.allocate(who, file, Allocate::Space { keeps_size: false }, 0, 50 * PAGE).unwrap();
    store.remove(who, store.root(), b"g", Removal::File).unwrap();
    store.close(&first).unwrap();
    assert_eq!(store.stat(file).unwrap().size, 50 * PAGE);
    store.examine();
    store.close(&second).unwrap();
    assert_eq!(refused(store.stat(file)), Errno::ESTALE);
    assert!(store.core().pages_used() <= before);
    store.examine();
}

#[test]
fn a_file_without_a_name_gets_one_by_its_descriptor() {
    let store = types();
    let who = &root_user();
    let base = &Base::new(store.root(), store.root());
    let open = store.open_path(&user(7), ".", O_TMPFILE | O_RDWR).unwrap();
    let stat = store.stat(open.file).unwrap();
    assert_eq!((stat.links, stat.uid, stat.mode), (0, 7, libc::S_IFREG | 0o666));
    store.write_next(&user(7), &open, b"some").unwrap();
    assert_eq!(refused(store.link_open(who, &open, path(base, "f"))), Errno::EEXIST);
    assert_eq!(refused(store.link_open(who, &open, path(base, "x/"))), Errno::ENOENT);
    assert_eq!(refused(store.link_open(who, &open, path(base, "d/."))), Errno::EEXIST);
    store.link_open(who, &open, path(base, "d/x")).unwrap();
    store.close(&open).unwrap();
    assert_eq!(store.stat(open.file).unwrap().links, 1);
    assert_eq!(store.get(open.file), b"some");
    // One that gets none goes when it is closed.
    let open = store.open_path(who, "d", O_TMPFILE | O_RDWR).unwrap();
    store.write_next(who, &open, &[1; 5000]).unwrap();
    store.examine();
    store.close(&open).unwrap();
    assert_eq!(refused(store.stat(open.file)), Errno::ESTALE);
    store.examine();
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let whole = |flags: i32, mode| How::from_openat2(flags as u32, mode);
    let refused = Err(Errno::EINVAL);
    for flags in [
        O_TMPFILE | O_RDONLY,
        (O_TMPFILE & !O_DIRECTORY) | O_RDWR,
        O_CREAT | O_DIRECTORY,
        O_PATH | O_RDWR,
        O_PATH | O_CREAT,
        O_PATH | O_APPEND,
        O_PATH | libc::O_NONBLOCK,
        1 << 30,
    ] {
        assert_eq!(whole(flags, 0), refused, "{flags:o}");
    }
    for (flags, mode) in [(O_RDONLY, 1), (O_CREAT, 0o10000), (O_PATH, 0o600)] {
        assert_eq!(whole(flags, mode), refused, "{flags:o} {mode:o}");
    }
    // A descriptor that only names is asked for neither.
    assert_eq!(How::from_open((O_PATH | O_RDWR | O_CREAT | O_TRUNC) as u32, 0o644), {
        How::from_openat2(O_PATH as u32, 0)
    });
    let how = whole(O_PATH | O_DIRECTORY | O_NOFOLLOW | libc::O_CLOEXEC, 0).unwrap();
    assert!(how.path_only && how.directory && how.no_follow && !how.open.read && !how.open.write);
    let plain = whole(O_RDONLY, 0).unwrap();
    assert_eq!(plain, How { open: plain.open, ..How::default() });
    assert!(plain.open.read && !plain.open.write && !plain.open.append && !plain.open.truncate);
    assert!(!plain.open.no_access_time);
    let writer = whole(O_WRONLY | O_APPEND | O_TRUNC | O_NOATIME, 0).unwrap().open;
    assert!(!writer.read && writer.write && writer.append && writer.truncate);
    assert!(writer.no_access_time);
    // 3 is for reading and writing both, as far as rights go.
    let both = whole(3, 0).unwrap().open;
    assert!(both.read && both.write);
    let both = whole(O_RDWR, 0).unwrap().open;
    assert!(both.read && both.write);
    let maker = whole(O_CREAT | O_WRONLY, 0o7777).unwrap();
    assert_eq!((maker.create, maker.exclusive, maker.no_follow), (Some(0o7777), false, false));
    let maker = whole(O_CREAT | O_EXCL, 0).unwrap();
    assert_eq!((maker.create, maker.exclusive, maker.no_follow), (Some(0), true, true));
    let odd = whole(O_EXCL, 0).unwrap();
    assert_eq!((odd.create, odd.exclusive, odd.no_follow), (None, true, false));
    let nameless = whole(O_TMPFILE | O_WRONLY, 0o600).unwrap();
    assert!(nameless.temporary && nameless.directory && nameless.create == Some(0o600));
    assert!(!nameless.exclusive);
    assert!(whole(libc::O_SYNC, 0).unwrap().sync && whole(libc::O_DSYNC, 0).unwrap().sync);
    assert!(!plain.sync);
    // Old programs ask for much that nobody knows.
    let old = How::from_open((1 << 30 | O_RDONLY) as u32, 0o644).unwrap();
    assert_eq!(old, plain);
    assert_eq!(How::from_open((O_CREAT | O_WRONLY) as u32, 0o170_644).unwrap().create, Some(0o644));
}
