//! Descriptions that have several holdings: their flags, parcels that can't be packed or opened,
//! and what is left when one of several descriptions of a file ends.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_access::{Capabilities, Capability, flag};
use conquest_format::PAGE;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::Allocate;
use conquest_fs::locks::{Mode, Owner, Record, Wait};
use conquest_fs::names::Removal;
use conquest_fs::open::share::Status;
use conquest_fs::open::{OpenFile, Whence};
use conquest_fs::{Credentials, Errno, FileId};
use conquest_testkit::files::root_user;
use libc::{O_APPEND, O_NOATIME, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};
use store::{SECOND, Store, refused, user};

const NONE: Status = Status { append: false, no_access_time: false, direct: false };
const APPEND: Status = Status { append: true, ..NONE };
const SKIP: Status = Status { no_access_time: true, ..NONE };
const DIRECT: Status = Status { direct: true, ..NONE };

fn open(store: &Store, name: &str, flags: i32) -> OpenFile {
    store.open_path(&root_user(), name, flags).unwrap()
}

/// What others get who are given `files`.
fn pass_on(store: &Store, files: &[&OpenFile]) -> Vec<OpenFile> {
    let parcel = store.core().parcel().unwrap();
    let packed: Vec<u32> = files.iter().map(|open| store.pack(&parcel, open).unwrap()).collect();
    let mut inside = store.unpack(parcel).unwrap();
    inside.sort_by_key(|(number, _)| packed.iter().position(|packed| packed == number));
    inside.into_iter().map(|(_, open)| open).collect()
}

/// The holdings that there are.
fn holdings(store: &Store) -> usize {
    let core = store.core();
    let all = (0..).map_while(|number| core.holding(number));
    all.filter(|holding| core.look_at(*holding).is_some()).count()
}

#[test]
fn flags_are_of_the_description_and_for_those_who_may() {
    let store = Store::new(4);
    let file = store.file("f", b"0123456789");
    let who = &root_user();
    let open = |flags| open(&store, "f", flags);
    let first = open(O_RDWR | O_APPEND);
    let second = pass_on(&store, &[&first]).pop().unwrap();
    assert_eq!(second.how, first.how);
    assert_eq!((store.status(&first), store.status(&second)), (APPEND, APPEND));
    store.set_status(who, &second, SKIP).unwrap();
    assert_eq!((store.status(&first), store.status(&second)), (SKIP, SKIP));
    // What is opened from it then has them; and the flags that stay are left.
    let third = pass_on(&store, &[&first]).pop().unwrap();
    assert_eq!(store.status(&third), SKIP);
    assert!(third.how.open.read && third.how.open.write && !third.how.open.append);
    for open in [&first, &second, &third] {
        store.close(open).unwrap();
    }
    // By one who is neither the owner nor has the power: what was set may stay, or go.
    let stranger = &user(7);
    let plain = open(O_RDWR);
    assert_eq!(refused(store.set_status(stranger, &plain, SKIP)), Errno::EPERM);
    assert_eq!(store.status(&plain), NONE);
    store.set_status(stranger, &plain, APPEND).unwrap();
    store.set_status(who, &plain, SKIP).unwrap();
    store.set_status(stranger, &plain, SKIP).unwrap();
    store.set_status(stranger, &plain, DIRECT).unwrap();
    assert_eq!(store.status(&plain), DIRECT);
    store.set_status(stranger, &plain, NONE).unwrap();
    let capabilities = Capabilities::NONE.with(Capability::Fowner);
    let powerful = Credentials { capabilities, ..user(7) };
    store.set_status(&powerful, &plain, SKIP).unwrap();
    store.set_status(who, &plain, NONE).unwrap();
    let capabilities = Capabilities::NONE;
    let owner = Credentials { capabilities, ..root_user() };
    store.set_status(&owner, &plain, SKIP).unwrap();
    store.close(&plain).unwrap();
    // Where one can only append, that stays as it is; the other flag does not.
    store.set_flags(who, file, flag::APPEND, None).unwrap();
    let reader = open(O_RDONLY);
    assert_eq!(refused(store.set_status(who, &reader, APPEND)), Errno::EPERM);
    store.set_status(who, &reader, SKIP).unwrap();
    assert_eq!(store.status(&reader), SKIP);
    store.close(&reader).unwrap();
    let appender = open(O_WRONLY | O_APPEND | O_NOATIME);
    assert_eq!(refused(store.set_status(who, &appender, SKIP)), Errno::EPERM);
    store.set_status(who, &appender, APPEND).unwrap();
    store.close(&appender).unwrap();
    let name = open(O_PATH);
    assert_eq!(refused(store.set_status(who, &name, NONE)), Errno::EBADF);
    store.close(&name).unwrap();
    assert_eq!(holdings(&store), 0);
}

#[test]
fn what_is_passed_on_is_what_was_opened() {
    let store = Store::new(4);
    store.file("f", b"0123456789");
    let who = &root_user();
    for flags in [O_RDONLY, O_WRONLY, O_RDWR, O_PATH, O_RDWR | libc::O_DSYNC] {
        let first = open(&store, "f", flags);
        let second = pass_on(&store, &[&first]).pop().unwrap();
        assert_eq!((second.file, second.file_type), (first.file, first.file_type));
        assert_eq!(second.how, first.how, "{flags:o}");
        if flags != O_PATH {
            store.seek_to(&first, 4, Whence::Start).unwrap();
            assert_eq!(store.position(&second), 4);
        }
        store.close(&first).unwrap();
        // Without the first, the second goes on, and can be passed on.
        let third = pass_on(&store, &[&second]).pop().unwrap();
        store.close(&second).unwrap();
        if flags & libc::O_ACCMODE != O_RDONLY {
            store.write_next(who, &third, b"xy").unwrap();
            assert_eq!(store.position(&third), 6);
        }
        store.close(&third).unwrap();
        assert_eq!(holdings(&store), 0);
    }
}

#[test]
fn what_is_not_open_is_not_packed() {
    let store = Store::new(4);
    store.file("f", b"");
    let closed = open(&store, "f", O_RDONLY);
    store.close(&closed).unwrap();
    let parcel = store.core().parcel().unwrap();
    assert_eq!(refused(store.pack(&parcel, &closed)), Errno::EBADF);
    assert_eq!(store.unpack(parcel).unwrap(), []);
    assert_eq!(holdings(&store), 0);
}

/// One of the files can't be read any more: nothing of the parcel is opened.
#[test]
fn a_parcel_is_opened_as_a_whole_or_not_at_all() {
    let store = Store::new(4);
    let files: [FileId; 3] = ["a", "b", "c"].map(|name| store.file(name, b"0123456789"));
    for damaged in files {
        let opened = ["a", "b", "c"].map(|name| open(&store, name, O_RDWR));
        let parcel = store.core().parcel().unwrap();
        for open in &opened {
            store.pack(&parcel, open).unwrap();
        }
        // A word of the inode that only loading looks at.
        let at = conquest_format::inode::offset_of(damaged.number).unwrap();
        let place = at.plus(conquest_format::inode::word::SIZE);
        let memory = store.core().memory();
        flip(memory, place);
        assert_eq!(refused(store.unpack(parcel)), Errno::EIO);
        flip(memory, place);
        assert_eq!(holdings(&store), 3);
        for open in &opened {
            store.close(open).unwrap();
        }
        assert_eq!(holdings(&store), 0);
        store.examine();
    }
}

fn flip(memory: &impl conquest_pm::memory::Memory, place: conquest_format::Offset) {
    let word = memory.load(place, core::sync::atomic::Ordering::Relaxed);
    memory.put(place, word ^ 1 << 20, core::sync::atomic::Ordering::Relaxed);
}

/// Two descriptions of one file, one of which is shared, in every order of closing: each has its
/// locks as long as somebody has it, and no longer.
#[test]
fn locks_end_with_their_description_and_not_with_another() {
    for order in 0..27 {
        let store = Store::new(4);
        store.file("f", b"0123456789");
        let watch = open(&store, "f", O_RDWR);
        let first = open(&store, "f", O_RDWR);
        let second = pass_on(&store, &[&first]).pop().unwrap();
        let other = open(&store, "f", O_RDWR);
        let all = [&first, &second, &other];
        let write = |offset| Record::new(offset, 1, Some(Mode::Exclusive)).unwrap();
        store.set_record(&first, Owner::Open, write(0), Wait::No).unwrap();
        store.set_record(&second, Owner::Open, write(2), Wait::No).unwrap();
        store.set_record(&other, Owner::Open, write(4), Wait::No).unwrap();
        store.flock(&second, Some(Mode::Shared), Wait::No).unwrap();
        store.flock(&other, Some(Mode::Shared), Wait::No).unwrap();
        let [one, two, three] = [order / 9, order / 3 % 3, order % 3];
        if one == two || two == three || one == three {
            continue;
        }
        let mut open = [true; 3];
        for index in [one, two, three] {
            store.close(all[index]).unwrap();
            open[index] = false;
            let shared = open[0] || open[1];
            for (offset, is_free) in [(0, !shared), (2, !shared), (4, !open[2])] {
                let record = write(offset);
                let set = store.set_record(&watch, Owner::Open, record, Wait::No);
                assert_eq!(set.is_ok(), is_free, "{one} {two} {three}: {offset}");
                let gone = Record::new(offset, 1, None).unwrap();
                store.set_record(&watch, Owner::Open, gone, Wait::No).unwrap();
            }
            let flocked = store.flock(&watch, Some(Mode::Exclusive), Wait::No);
            assert_eq!(flocked.is_ok(), !shared && !open[2], "{one} {two} {three}");
            store.flock(&watch, None, Wait::No).unwrap();
        }
        store.close(&watch).unwrap();
        assert_eq!(holdings(&store), 0, "{one} {two} {three}");
    }
}

/// A shared description keeps what it keeps until its last holder is gone: the file without a
/// name, and nothing allocated ahead that nobody can write to.
#[test]
fn a_file_goes_with_the_last_who_has_it() {
    let store = Store::new(8);
    let who = &root_user();
    for keep in [0, 1] {
        for is_named in [true, false] {
            let file = store.file("f", &[1; 3 * PAGE as usize]);
            let first = open(&store, "f", O_RDWR);
            let second = pass_on(&store, &[&first]).pop().unwrap();
            let all = [&first, &second];
            if !is_named {
                store.remove(who, store.root(), b"f", Removal::File).unwrap();
            }
            store.close(all[1 - keep]).unwrap();
            assert_eq!(store.stat(file).unwrap().size, 3 * PAGE);
            store.pass(SECOND);
            store.set_times(who, file, SetTime::Omit, SetTime::At(store.now())).unwrap();
            // Appending allocates ahead.
            store.seek_to(all[keep], 0, Whence::End).unwrap();
            for _ in 0..2 {
                store.write_next(who, all[keep], &[2; PAGE as usize]).unwrap();
            }
            store.examine();
            store.close(all[keep]).unwrap();
            assert_eq!(holdings(&store), 0);
            if is_named {
                assert_eq!(store.pages(file), 5, "what was allocated ahead is left");
                store.remove(who, store.root(), b"f", Removal::File).unwrap();
            }
            assert_eq!(refused(store.stat(file)), Errno::ESTALE);
            store.examine();
        }
    }
    // What somebody asked for past the end stays.
    let file = store.file("kept", b"");
    let open = open(&store, "kept", O_RDWR);
    store.allocate(who, file, Allocate::Space { keeps_size: true }, 0, 5 * PAGE).unwrap();
    let again = pass_on(&store, &[&open]).pop().unwrap();
    store.close(&open).unwrap();
    store.close(&again).unwrap();
    assert_eq!(store.pages(file), 5);
    store.examine();
}
