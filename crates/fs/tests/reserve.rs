//! What is reserved: no operation of an ordinary user takes from it, each of a privileged one may.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_access::{Capability, Credentials};
use conquest_format::PAGE;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::names::{New, Renaming};
use conquest_fs::xattr::Setting;
use conquest_fs::{Errno, Error, NewFileSystem};
use conquest_testkit::files::root_user;
use libc::{O_CREAT, O_RDWR, O_TMPFILE};
use store::{NEW, Store, user};

/// More than fit into the pages that slabs have already.
const MANY: u32 = 6000;

/// The uses of space: what they are called, and number so many of them.
type Use<'u> = (&'u str, &'u dyn Fn(&Store, &Credentials<'_>, u32) -> Result<(), Error>);

fn long(number: u32) -> Vec<u8> {
    format!("{number:0>255}").into_bytes()
}

/// A directory that anybody may write to.
fn directory(store: &Store, name: &str) {
    let made = store.make(name, New::Directory, 0o777);
    store.set_mode(&root_user(), made, 0o777).unwrap();
}

/// A store half of which is reserved, whose other half an ordinary user has used up.
fn used_up() -> Store {
    let store = Store::with(2, &NewFileSystem { reserve: 50, ..NEW });
    for name in ["names", "links", "moves", "nameless"] {
        directory(&store, name);
    }
    let file = store.file("file", b"some");
    store.set_owner(&root_user(), file, Some(7), Some(7)).unwrap();
    for number in 0..MANY / 4 {
        store.make(&format!("moved-{number}"), New::Regular, 0o666);
    }
    let filler = store.file("filler", b"");
    store.set_mode(&root_user(), filler, 0o666).unwrap();
    let errno = loop {
        let written = store.write(&user(7), filler, WriteAt::End, &[1; PAGE as usize]);
        if let Err(error) = written {
            break error.errno();
        }
    };
    assert_eq!(errno, Errno::ENOSPC);
    assert_eq!(store.statfs(0, u64::MAX).available, 0);
    store
}

#[test]
fn only_the_privileged_take_from_what_is_reserved() {
    let find = |store: &Store, name: &str| store.find_name(name);
    let at = |store: &Store| store.root();
    let uses: [Use<'_>; 8] = [
        ("write", &|store, who, number| {
            let at = WriteAt::Offset(u64::from(number) * PAGE);
            store.write(who, find(store, "file"), at, &[2; PAGE as usize]).map(drop)
        }),
        ("allocate", &|store, who, number| {
            let space = Allocate::Space { keeps_size: number.is_multiple_of(2) };
            store.allocate(who, find(store, "file"), space, u64::from(number) * PAGE, PAGE)
        }),
        ("attribute", &|store, who, number| {
            let name = format!("user.{}", number % 8);
            let value = vec![3; 1000 + 50 * number as usize % 3000];
            store.set_attribute(who, find(store, "file"), name.as_bytes(), &value, Setting::Any)
        }),
        ("make", &|store, who, number| {
            store.create(who, find(store, "names"), &long(number), New::Regular, 0o600).map(drop)
        }),
        ("make a directory", &|store, who, number| {
            store.create(who, find(store, "names"), &long(number), New::Directory, 0o700).map(drop)
        }),
        ("make and open", &|store, who, number| {
            let open = store.open_path(who, &format!("names/{number:0>250}"), O_CREAT | O_RDWR)?;
            store.close(&open)
        }),
        ("link", &|store, who, number| {
            store.link(who, find(store, "file"), find(store, "links"), &long(number))
        }),
        ("rename", &|store, who, number| {
            let name = format!("moved-{}", number % (MANY / 4));
            let to = find(store, "moves");
            store.rename(who, at(store), name.as_bytes(), to, &long(number), Renaming::Replace)
        }),
    ];
    for (name, how) in uses {
        let store = used_up();
        let reserved = store.statfs(0, u64::MAX).free;
        let refused = (0..MANY).find_map(|number| how(&store, &user(7), number).err());
        assert_eq!(refused.map(|error| error.errno()), Some(Errno::ENOSPC), "{name}");
        assert!(store.statfs(0, u64::MAX).free >= reserved, "{name} took from what is reserved");
        let mut privileged = root_user();
        privileged.capabilities = privileged.capabilities.with(Capability::SysResource);
        for number in MANY / 8..MANY / 8 + 40 {
            let done = how(&store, &privileged, number);
            // Those of the user are there.
            let errno = done.err().map(|error| error.errno());
            assert!(matches!(errno, None | Some(Errno::EEXIST)), "{name}: {errno:?}");
        }
        assert!(store.statfs(0, u64::MAX).free < reserved, "{name}");
        store.examine();
    }
}

/// Files without a name are kept while they are open, and there are only so many of these.
#[test]
fn files_without_a_name_are_no_way_around_it() {
    let store = used_up();
    let reserved = store.statfs(0, u64::MAX).free;
    let mut opened = Vec::new();
    let errno = loop {
        match store.open_path(&user(7), "nameless", O_TMPFILE | O_RDWR) {
            Ok(open) => opened.push(open),
            Err(errno) => break errno,
        }
    };
    assert!(matches!(errno, Errno::ENOSPC | Errno::ENFILE), "{errno:?}");
    assert!(store.statfs(0, u64::MAX).free >= reserved);
    for open in &opened {
        store.close(open).unwrap();
    }
    store.examine();
}
