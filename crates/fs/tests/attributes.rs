//! What is known of a file, and what changes it: flags, projects, capabilities, times, attributes.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_access::{
    Access, Capabilities, Capability, Credentials, IdMap, IdRange, UserNamespace, flag,
};
use conquest_format::PAGE;
use conquest_fs::Errno;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::names::{New, Removal};
use conquest_fs::open::How;
use conquest_fs::xattr::{NAMES_MAX, Setting};
use conquest_testkit::files::root_user;
use store::{SECOND, Store, refused, user};

const CAPABILITY: &[u8] = b"security.capability";

#[test]
fn flags_are_set_by_the_owner() {
    let store = Store::new(2);
    let file = store.file("f", b"some");
    store.set_owner(&root_user(), file, Some(7), None).unwrap();
    store.pass(SECOND);
    let before = store.stat(file).unwrap();
    store.set_flags(&user(7), file, flag::NODUMP | flag::NOATIME, None).unwrap();
    let after = store.stat(file).unwrap();
    assert_eq!((before.flags, after.flags), (0, flag::NODUMP | flag::NOATIME));
    assert_eq!((after.ctime, after.mtime), (store.now(), before.mtime));
    assert!(after.change > before.change);
    store.set_flags(&user(7), file, flag::NODUMP, None).unwrap();
    assert_eq!(store.stat(file).unwrap().flags, flag::NODUMP);
    // Who may not is told so, whatever he asks for.
    for flags in [0, flag::NODUMP, flag::IMMUTABLE, 1] {
        assert_eq!(refused(store.set_flags(&user(8), file, flags, None)), Errno::EPERM);
    }
    for flags in [flag::IMMUTABLE, flag::APPEND] {
        assert_eq!(refused(store.set_flags(&user(7), file, flags, None)), Errno::EPERM);
    }
    // Flags that nobody knows, that only directories have, that are not for users.
    for flags in [1, flag::DIRSYNC, 0x40_0000, 0x80_0000] {
        assert_eq!(refused(store.set_flags(&user(7), file, flags, None)), Errno::EOPNOTSUPP);
    }
    assert_eq!(store.stat(file).unwrap().flags, flag::NODUMP);
}

#[test]
fn a_project_is_set_with_the_flags() {
    let store = Store::new(2);
    let who = &root_user();
    let directory = store.make("d", New::Directory, 0o755);
    store.set_flags(who, directory, flag::PROJINHERIT, Some(5)).unwrap();
    let heir = store.make("d/f", New::Regular, 0o644);
    let stranger = store.make("f", New::Regular, 0o644);
    assert_eq!([heir, stranger].map(|file| store.stat(file).unwrap().project), [5, 0]);
    store.set_flags(who, heir, 0, Some(6)).unwrap();
    store.set_flags(who, heir, flag::IMMUTABLE, None).unwrap();
    assert_eq!(store.stat(heir).unwrap().project, 6);
    // What is immutable stays in its project.
    store.set_flags(who, heir, flag::IMMUTABLE, Some(6)).unwrap();
    assert_eq!(refused(store.set_flags(who, heir, flag::IMMUTABLE, Some(7))), Errno::EPERM);
    assert_eq!(store.stat(heir).unwrap().project, 6);
    // Without the flag, nothing is inherited.
    store.set_flags(who, directory, 0, None).unwrap();
    let other = store.make("d/g", New::Regular, 0o644);
    assert_eq!(store.stat(other).unwrap().project, 0);
}

#[test]
fn flags_that_nobody_is_told_of_stay_when_others_are_set() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", b"some");
    store.allocate(who, file, Allocate::Space { keeps_size: true }, 0, 8 * PAGE).unwrap();
    store.set_flags(who, file, flag::NODUMP, None).unwrap();
    store.trim(file).unwrap();
    assert_eq!(store.pages(file), 8);
    // A file without a name can still get one.
    let open = store.open_path(who, ".", libc::O_TMPFILE | libc::O_RDWR).unwrap();
    store.set_flags(who, open.file, flag::NODUMP, None).unwrap();
    store.link(who, open.file, store.root(), b"named").unwrap();
    assert_eq!(store.stat(open.file).unwrap().flags, flag::NODUMP);
    store.close(&open).unwrap();
    store.examine();
}

#[test]
fn capabilities_go_when_somebody_else_could_use_them() {
    let store = Store::new(2);
    let who = &root_user();
    let value = [1, 0, 0, 2].repeat(5);
    let give = |name: &str| {
        let file = store.file(name, b"program");
        store.set_mode(who, file, 0o777).unwrap();
        store.set_attribute(who, file, CAPABILITY, &value, Setting::Any).unwrap();
        store.set_attribute(who, file, b"user.some", b"value", Setting::Any).unwrap();
        assert_eq!(store.attribute(who, file, CAPABILITY).unwrap(), value);
        file
    };
    let names = |file| store.attributes(who, file).unwrap();
    let both = [CAPABILITY.to_vec(), b"user.some".to_vec()];
    let stays = give("stays");
    store.set_mode(who, stays, 0o700).unwrap();
    store.set_times(who, stays, SetTime::Now, SetTime::Now).unwrap();
    assert_eq!(names(stays), both);
    let chowned = give("chowned");
    store.set_owner(who, chowned, Some(7), None).unwrap();
    let written = give("written");
    store.write(&user(7), written, WriteAt::End, b"more").unwrap();
    let cut = give("cut");
    store.truncate(&user(7), cut, 1).unwrap();
    let allocated = give("allocated");
    let how = Allocate::Space { keeps_size: false };
    store.allocate(&user(7), allocated, how, 0, PAGE).unwrap();
    for file in [chowned, written, cut, allocated] {
        assert_eq!(names(file), [b"user.some"]);
    }
    store.examine();
}

#[test]
fn set_id_bits_go_when_a_stranger_writes() {
    let store = Store::new(2);
    let file = store.file("f", &[1; 100]);
    let stranger = &user(7);
    let works: [&dyn Fn(); 5] = [
        &|| _ = store.write(stranger, file, WriteAt::Offset(0), b"x").unwrap(),
        &|| store.truncate(stranger, file, 50).unwrap(),
        &|| store.truncate_open(stranger, file, 60).unwrap(),
        &|| store.allocate(stranger, file, Allocate::Hole, 0, 1).unwrap(),
        &|| {
            let how = Allocate::Space { keeps_size: true };
            store.allocate(stranger, file, how, 0, 1).unwrap();
        },
    ];
    for work in works {
        store.set_mode(&root_user(), file, 0o6777).unwrap();
        work();
        assert_eq!(store.stat(file).unwrap().mode & 0o7777, 0o777);
    }
    // Who may keep them does.
    let capabilities = Capabilities::NONE.with(Capability::Fsetid);
    store.set_mode(&root_user(), file, 0o6777).unwrap();
    let able = &Credentials { capabilities, ..user(7) };
    store.write(able, file, WriteAt::Offset(0), b"x").unwrap();
    assert_eq!(store.stat(file).unwrap().mode & 0o7777, 0o6777);
}

#[test]
fn times_are_set_one_by_one() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", b"");
    let times = || {
        let stat = store.stat(file).unwrap();
        (stat.atime, stat.mtime, stat.ctime)
    };
    store.pass(SECOND);
    store.set_times(who, file, SetTime::At(5), SetTime::At(6)).unwrap();
    assert_eq!(times(), (5, 6, store.now()));
    let changed = store.now();
    store.pass(SECOND);
    store.set_times(&user(9), file, SetTime::Omit, SetTime::Omit).unwrap();
    assert_eq!(times(), (5, 6, changed));
    store.set_times(who, file, SetTime::Now, SetTime::Omit).unwrap();
    assert_eq!(times(), (store.now(), 6, store.now()));
    store.set_times(who, file, SetTime::Omit, SetTime::Now).unwrap();
    assert_eq!(times().1, store.now());
    // Who may write may set both to the present, and no more.
    store.set_mode(who, file, 0o666).unwrap();
    store.set_times(&user(9), file, SetTime::Now, SetTime::Now).unwrap();
    for other in [SetTime::Omit, SetTime::At(1)] {
        assert_eq!(refused(store.set_times(&user(9), file, SetTime::Now, other)), Errno::EPERM);
    }
    store.set_mode(who, file, 0o644).unwrap();
    let present = store.set_times(&user(9), file, SetTime::Now, SetTime::Now);
    assert_eq!(refused(present), Errno::EACCES);
}

#[test]
fn what_is_known_of_a_file_is_its_own() {
    let store = Store::new(4);
    let device = store.make("c", New::Character(3, 70_000), 0o600);
    let stat = store.stat(device).unwrap();
    assert_eq!((stat.device, stat.size, stat.blocks), ((3, 70_000), 0, 0));
    // Space is counted in units of 512 bytes: that of packed content, of pages.
    let file = store.file("f", b"x");
    assert_eq!((store.stat(file).unwrap().size, store.stat(file).unwrap().blocks), (1, 1));
    store.put(file, 0, &[1; 2000]);
    assert_eq!(store.stat(file).unwrap().blocks, 4);
    store.put(file, 0, &[1; 2049]);
    assert_eq!(store.stat(file).unwrap().blocks, 8);
    assert_eq!(store.stat(file).unwrap().device, (0, 0));
    // A directory's size is that of its buckets.
    let directory = store.make("d", New::Directory, 0o755);
    assert_eq!(store.stat(directory).unwrap().size, 0);
    store.file("d/f", b"");
    assert_eq!(store.stat(directory).unwrap().size, PAGE);
    assert_eq!(refused(store.may(&user(7), device, Access::READ)), Errno::EACCES);
    store.may(&user(7), file, Access::READ).unwrap();
    assert_eq!(refused(store.may(&user(7), file, Access::WRITE)), Errno::EACCES);
    assert_eq!(refused(store.read_link(file)), Errno::EINVAL);
    store.remove(&root_user(), store.root(), b"f", Removal::File).unwrap();
    assert_eq!(refused(store.stat(file)), Errno::ESTALE);
}

#[test]
fn attributes_have_names_and_values_within_bounds() {
    let store = Store::new(4);
    let who = &root_user();
    let file = store.file("f", b"");
    let set = |name: &[u8], value: &[u8], how| store.set_attribute(who, file, name, value, how);
    let long = [b"user.".as_slice(), &[b'n'; 250]].concat();
    set(&long, b"1", Setting::Any).unwrap();
    assert_eq!(store.attribute(who, file, &long).unwrap(), b"1");
    for bad in [&b""[..], &[&long[..], b"n"].concat()] {
        assert_eq!(refused(set(bad, b"1", Setting::Any)), Errno::ERANGE);
        assert_eq!(refused(store.attribute(who, file, bad)), Errno::ERANGE);
        assert_eq!(refused(store.remove_attribute(who, file, bad)), Errno::ERANGE);
    }
    set(b"user.large", &[1; 65_536], Setting::Any).unwrap();
    assert_eq!(store.attribute(who, file, b"user.large").unwrap(), [1; 65_536]);
    assert_eq!(refused(set(b"user.large", &[1; 65_537], Setting::Any)), Errno::E2BIG);
    assert_eq!(refused(set(b"user.large", b"", Setting::Create)), Errno::EEXIST);
    assert_eq!(refused(set(b"user.none", b"", Setting::Replace)), Errno::ENODATA);
    assert_eq!(refused(store.attribute(who, file, b"user.none")), Errno::ENODATA);
    assert_eq!(refused(store.remove_attribute(who, file, b"user.none")), Errno::ENODATA);
    // All of a file's have 2 MiB at most.
    let full = (0..40).find_map(|number| {
        set(format!("user.{number}").as_bytes(), &[2; 65_536], Setting::Any).err()
    });
    assert_eq!(full.unwrap().errno(), Errno::ENOSPC);
    assert_eq!(store.attribute(who, file, &long).unwrap(), b"1");
    store.examine();
    for name in store.attributes(who, file).unwrap() {
        store.remove_attribute(who, file, &name).unwrap();
    }
    assert!(store.attributes(who, file).unwrap().is_empty());
    store.examine();
}

#[test]
fn the_change_of_nothing_is_none() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", b"");
    store.set_attribute(who, file, b"user.a", b"1", Setting::Any).unwrap();
    store.pass(SECOND);
    let before = store.stamps(file);
    store.set_attribute(who, file, b"user.a", b"1", Setting::Replace).unwrap();
    assert_eq!(store.stamps(file), before);
    store.set_attribute(who, file, b"user.a", b"2", Setting::Any).unwrap();
    assert_eq!(store.stamps(file), [before[0], store.now(), before[2] + 1]);
    // An access list that says what the mode says already.
    let list = conquest_access::Acl::from_mode(0o644).to_xattr();
    let before = store.stamps(file);
    store.set_attribute(who, file, b"system.posix_acl_access", &list, Setting::Any).unwrap();
    assert_eq!(store.stamps(file), before);
    let list = conquest_access::Acl::from_mode(0o640).to_xattr();
    store.set_attribute(who, file, b"system.posix_acl_access", &list, Setting::Any).unwrap();
    assert_eq!(store.stat(file).unwrap().mode & 0o777, 0o640);
    assert!(store.stamps(file)[2] > before[2]);
    assert_eq!(refused(store.set_attribute(&user(7), file, b"user.b", b"", Setting::Any)), {
        Errno::EACCES
    });
    assert_eq!(refused(store.remove_attribute(&user(7), file, b"user.a")), Errno::EACCES);
    let stamps = store.stamps(file);
    store.pass(SECOND);
    store.remove_attribute(who, file, b"user.a").unwrap();
    assert_eq!(store.stamps(file), [stamps[0], store.now(), stamps[2] + 1]);
}

#[test]
fn attributes_take_as_little_space_as_they_can() {
    let store = Store::new(8);
    let who = &root_user();
    // Header, item and name take 30 bytes.
    let give = |name: &str, total: usize| {
        let file = store.file(name, b"");
        let value = vec![1; total - 30];
        store.set_attribute(who, file, b"user.a", &value, Setting::Any).unwrap();
        file
    };
    give("first", 2048);
    let pages = store.core().pages_used();
    give("second", 2048);
    assert_eq!(store.core().pages_used(), pages, "there is room in the slab");
    give("third", 2049);
    assert_eq!(store.core().pages_used(), pages + 1);
    // All of a file's together take 2 MiB at most.
    let file = give("large", 65_536);
    for number in 10..40 {
        let name = format!("user.{number}");
        store.set_attribute(who, file, name.as_bytes(), &vec![1; 65_521], Setting::Any).unwrap();
    }
    let left = (2 << 20) - 65_536 - 30 * 65_536;
    let last =
        |len: u64| store.set_attribute(who, file, b"user.z", &vec![1; len as usize], Setting::Any);
    assert_eq!(refused(last(left - 14 + 1)), Errno::ENOSPC);
    last(left - 14).unwrap();
    store.examine();
}

#[test]
fn values_and_names_are_told_to_who_has_room() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", b"");
    for (name, value) in [(&b"user.a"[..], &b"12345"[..]), (b"user.long", b"")] {
        store.set_attribute(who, file, name, value, Setting::Any).unwrap();
    }
    let files: &store::Files = &store;
    let mut room = [0xFF; 20];
    for (len, expected) in [(0, Ok(5)), (4, Err(Errno::ERANGE)), (5, Ok(5)), (6, Ok(5))] {
        let told = files.attribute(who, file, b"user.a", &mut room[..len]);
        assert_eq!(told.map_err(|error| error.errno()), expected);
    }
    assert_eq!(room[..6], *b"12345\xFF");
    let mut room = [0xFF; 20];
    for (len, expected) in [(0, Ok(17)), (16, Err(Errno::ERANGE)), (17, Ok(17)), (20, Ok(17))] {
        let told = files.attributes(who, file, &mut room[..len]);
        assert_eq!(told.map_err(|error| error.errno()), expected);
    }
    assert_eq!(room, *b"user.a\0user.long\0\xFF\xFF\xFF");
    // More names than any call can tell.
    for number in 0..NAMES_MAX / 255 + 1 {
        let name = format!("user.{number:0>250}");
        store.set_attribute(who, file, name.as_bytes(), b"", Setting::Any).unwrap();
    }
    let mut room = vec![0; 2 * NAMES_MAX];
    assert_eq!(refused(files.attributes(who, file, &mut room)), Errno::E2BIG);
    assert_eq!(refused(files.attributes(who, file, &mut room[..NAMES_MAX])), Errno::E2BIG);
    assert_eq!(refused(files.attributes(who, file, &mut room[..NAMES_MAX - 1])), Errno::ERANGE);
    assert!(files.attributes(who, file, &mut []).unwrap() > NAMES_MAX);
    store.examine();
}

/// Ids in access lists are told as the caller's namespace knows them; capabilities need room.
#[test]
fn values_are_told_as_the_caller_knows_them() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", b"");
    let acl = b"system.posix_acl_access";
    let list = |id: u32| {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, id) in [(1, u32::MAX), (2, id), (4, u32::MAX), (16, u32::MAX), (32, u32::MAX)] {
            bytes.extend([tag, 0, 6, 0]);
            bytes.extend(id.to_le_bytes());
        }
        bytes
    };
    store.set_attribute(who, file, acl, &list(1007), Setting::Any).unwrap();
    let ranges = [IdRange { inside: 0, outside: 1000, count: 100 }];
    let (users, groups) = (IdMap(&ranges), IdMap(&ranges));
    let namespace = UserNamespace { users, groups };
    let inside = &Credentials { namespace: Some(namespace), ..user(1000) };
    assert_eq!(store.attribute(who, file, acl).unwrap(), list(1007));
    assert_eq!(store.attribute(inside, file, acl).unwrap(), list(7));
    let capability = [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let name = b"security.capability";
    store.set_attribute(who, file, name, &capability, Setting::Any).unwrap();
    assert_eq!(store.attribute(who, file, name).unwrap(), capability);
    let files: &store::Files = &store;
    let mut room = [0; 19];
    assert_eq!(refused(files.attribute(who, file, name, &mut room)), Errno::ERANGE);
}

#[test]
fn a_file_is_found_by_its_number_as_long_as_it_has_a_name() {
    let store = Store::new(2);
    let file = store.file("f", b"some");
    assert_eq!(store.by_number(file.number).unwrap(), file);
    assert_eq!(store.by_number(store.root().number).unwrap(), store.root());
    let open = store.open_file(&root_user(), file, &How::from_open(0, 0).unwrap()).unwrap();
    store.remove(&root_user(), store.root(), b"f", Removal::File).unwrap();
    for number in [file.number, 0, 1, file.number + 1, u64::MAX] {
        assert_eq!(refused(store.by_number(number)), Errno::ESTALE, "{number}");
    }
    store.close(&open).unwrap();
    assert_eq!(refused(store.by_number(file.number)), Errno::ESTALE);
}
