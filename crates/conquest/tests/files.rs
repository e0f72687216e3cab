//! The files of a store, side by side with a directory of the host: whatever is done to both, by
//! the same calls, comes to the same, error numbers and kinds included.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::ffi::OsStr;
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use conquest::{
    Acl, AclEntry, AclKind, Capabilities, CorePlace, Dir, Files, NewStore, Qualifier, Setting,
    Store,
};
use conquest_peers::sys;
use support::host::{Failure, Host, Opened, Outcome, Place, SECOND, Show, Space};
use support::{Temporary, attach, ends_well, small, start, text};

/// Both sides: empty directories.
struct Both {
    ours: Files,
    host: Host,
    store: Store,
}

impl Both {
    /// In `place`, as this process.
    fn new(place: &Path) -> Both {
        let directory = place.join("store");
        // Nobody's core stays where others' are removed.
        let core = CorePlace::Path(place.join("core"));
        Store::make(&directory, &NewStore { core, ..small() }).unwrap();
        let store = attach(&directory);
        let host = Host(place.join("host"));
        std::fs::create_dir(&host.0).unwrap();
        let ours = store.files().unwrap();
        // Both begin with the same mode.
        ours.set_permissions("/", 0o755).unwrap();
        host.set_permissions(".", 0o755).unwrap();
        Both { ours, host, store }
    }

    fn end(self) {
        support::check(self.store.fs());
        drop(self.ours);
        self.store.detach().unwrap();
    }
}

/// Does the same on both sides: what it comes to has to be the same.
macro_rules! both {
    ($both:expr, $files:ident => $work:expr) => {{
        let ours = (|| -> Outcome {
            let $files = &$both.ours;
            Ok($work?.show())
        })();
        let theirs = (|| -> Outcome {
            let $files = &$both.host;
            Ok($work?.show())
        })();
        assert_eq!(ours, theirs, "ours, theirs: {}", stringify!($work));
        ours
    }};
}

/// The same, whatever it comes to.
macro_rules! agree {
    ($($work:tt)*) => {
        let (Ok(_) | Err(_)) = both!($($work)*);
    };
}

/// The same for some work of several steps, which ends with an outcome.
macro_rules! both_do {
    ($both:expr, $files:ident => $work:block) => {{
        let ours = (|| -> Outcome {
            let $files = &$both.ours;
            $work
        })();
        let theirs = (|| -> Outcome {
            let $files = &$both.host;
            $work
        })();
        assert_eq!(ours, theirs, "ours, theirs: {}", stringify!($work));
        ours
    }};
}

/// Whether the outcome is this error number.
fn is(outcome: &Outcome, errno: i32) {
    assert_eq!(outcome.as_ref().map_err(|failure| failure.errno), Err(errno), "{outcome:?}");
}

fn names(both: &Both) {
    both!(both, it => it.create_dir("a")).unwrap();
    is(&both!(both, it => it.create_dir("a")), libc::EEXIST);
    is(&both!(both, it => it.create_dir("no/a")), libc::ENOENT);
    is(&both!(both, it => it.create_dir("")), libc::ENOENT);
    both!(both, it => it.write("a/f", b"seven 7")).unwrap();
    is(&both!(both, it => it.create_dir("a/f/g")), libc::ENOTDIR);
    is(&both!(both, it => it.remove_dir("a")), libc::ENOTEMPTY);
    is(&both!(both, it => it.remove_file("a")), libc::EISDIR);
    is(&both!(both, it => it.remove_dir("a/f")), libc::ENOTDIR);
    is(&both!(both, it => it.open("a/g")), libc::ENOENT);
    is(&both!(both, it => it.open("a/f/")), libc::ENOTDIR);
    is(&both!(both, it => it.open("n".repeat(256))), libc::ENAMETOOLONG);
    is(&both!(both, it => it.open("n/".repeat(2100))), libc::ENAMETOOLONG);
    both!(both, it => it.open("a/../a/./f")).unwrap();
    both!(both, it => it.hard_link("a/f", "a/g")).unwrap();
    is(&both!(both, it => it.hard_link("a/f", "a/g")), libc::EEXIST);
    is(&both!(both, it => it.hard_link("a", "b")), libc::EPERM);
    both!(both, it => it.metadata("a/g")).unwrap();
    both!(both, it => it.symlink("f", "a/link")).unwrap();
    both!(both, it => it.symlink("nowhere", "a/dangling")).unwrap();
    both!(both, it => it.symlink("loop", "a/loop")).unwrap();
    is(&both!(both, it => it.symlink("", "a/empty")), libc::ENOENT);
    both!(both, it => it.read_link("a/link")).unwrap();
    is(&both!(both, it => it.read_link("a/f")), libc::EINVAL);
    both!(both, it => it.metadata("a/link")).unwrap();
    both!(both, it => it.symlink_metadata("a/link")).unwrap();
    is(&both!(both, it => it.metadata("a/dangling")), libc::ENOENT);
    is(&both!(both, it => it.metadata("a/loop")), libc::ELOOP);
    both!(both, it => it.fifo("a/pipe")).unwrap();
    both!(both, it => it.symlink_metadata("a/pipe")).unwrap();
    both!(both, it => it.names("a")).unwrap();
    is(&both!(both, it => it.names("a/f")), libc::ENOTDIR);
    is(&both!(both, it => it.names("no")), libc::ENOENT);
}

fn renaming(both: &Both) {
    both!(both, it => it.create_dir("r")).unwrap();
    both!(both, it => it.create_dir("r/full")).unwrap();
    both!(both, it => it.create_dir("r/empty")).unwrap();
    both!(both, it => it.write("r/full/f", b"1")).unwrap();
    both!(both, it => it.write("r/g", b"22")).unwrap();
    is(&both!(both, it => it.rename("r/no", "r/new")), libc::ENOENT);
    is(&both!(both, it => it.rename("r/g", "r/empty")), libc::EISDIR);
    is(&both!(both, it => it.rename("r/empty", "r/g")), libc::ENOTDIR);
    is(&both!(both, it => it.rename("r/empty", "r/full")), libc::ENOTEMPTY);
    is(&both!(both, it => it.rename("r/full", "r/full/in")), libc::EINVAL);
    is(&both!(both, it => it.rename_new("r/g", "r/full/f")), libc::EEXIST);
    is(&both!(both, it => it.exchange("r/g", "r/no")), libc::ENOENT);
    both!(both, it => it.exchange("r/g", "r/full")).unwrap();
    both!(both, it => it.names("r")).unwrap();
    both!(both, it => it.rename("r/full", "r/full")).unwrap();
    both!(both, it => it.rename("r/g/f", "r/full")).unwrap();
    both!(both, it => it.rename("r/g", "r/empty")).unwrap();
    both!(both, it => it.names("r")).unwrap();
    both!(both, it => it.read("r/full")).unwrap();
    for path in ["r/full", "r/empty"] {
        let removed = both!(both, it => it.remove_file(path));
        if removed.is_err() {
            both!(both, it => it.remove_dir(path)).unwrap();
        }
    }
    both!(both, it => it.remove_dir("r")).unwrap();
    is(&both!(both, it => it.remove_dir("r")), libc::ENOENT);
}

/// All combinations of options, on whatever can be at a path.
fn opening(both: &Both) {
    both!(both, it => it.create_dir("o")).unwrap();
    for bits in 0..64 {
        both!(both, it => it.write("o/file", b"something")).unwrap();
        both!(both, it => it.symlink("file", "o/link")).unwrap();
        both!(both, it => it.symlink("target", "o/dangling")).unwrap();
        both!(both, it => it.create_dir("o/dir")).unwrap();
        for path in ["o/file", "o/link", "o/dangling", "o/dir", "o/new", "o/no/new", "o/file/"] {
            agree!(both, it => it.open_bits(path, bits));
        }
        both!(both, it => it.names("o")).unwrap();
        for path in ["o/file", "o/target", "o/new"] {
            agree!(both, it => it.read(path));
            agree!(both, it => it.remove_file(path));
        }
        both!(both, it => it.remove_file("o/link")).unwrap();
        both!(both, it => it.remove_file("o/dangling")).unwrap();
        both!(both, it => it.remove_dir("o/dir")).unwrap();
    }
    both!(both, it => it.remove_dir("o")).unwrap();
}

fn bytes(both: &Both) {
    let long: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    both_do!(both, it => {
        let mut file = it.create("bytes")?;
        file.write_all(b"0123456789")?;
        let parts = [&long[..5000], b"", &long[..2_000_000]].map(IoSlice::new);
        let written = file.write_vectored(&parts)?;
        let position = file.stream_position()?;
        file.seek(SeekFrom::Start(3))?;
        file.write_all(b"abc")?;
        file.write_all_at(b"end", 2_005_010)?;
        let refused = file.read(&mut [0; 4]).map_err(Failure::from);
        let before = file.seek(SeekFrom::Current(-100)).map_err(Failure::from);
        Ok(format!("{written} {position} {refused:?} {before:?}"))
    })
    .unwrap();
    both!(both, it => it.read("bytes")).unwrap();
    both_do!(both, it => {
        let mut file = it.open("bytes")?;
        let mut start = [0; 8];
        file.read_exact(&mut start)?;
        let mut rest = vec![7; 4_000_000];
        let mut len = 0;
        loop {
            match file.read(&mut rest[len..])? {
                0 => break,
                read => len += read,
            }
        }
        let mut past = [0; 10];
        let at_end = file.read_at(&mut past, 2_005_008)?;
        let far = file.read_at(&mut past, (u64::MAX >> 1) - 10)?;
        let farther = file.read_at(&mut past, (u64::MAX >> 1) - 9).map_err(Failure::from);
        let short = file.read_exact_at(&mut past, 2_005_008).map_err(|error| error.kind());
        let refused = file.write(b"x").map_err(Failure::from);
        let cut = file.set_len(1).map_err(Failure::from);
        let past_end = file.seek(SeekFrom::End(5))?;
        Ok(format!(
            "{start:?} {len} {at_end} {far} {farther:?} {short:?} {refused:?} {cut:?} {past_end} \
             {:?}",
            rest.iter().map(|byte| u64::from(*byte)).sum::<u64>()
        ))
    })
    .unwrap();
    both_do!(both, it => {
        let file = it.open("bytes")?;
        file.sync_all()?;
        file.sync_data()?;
        Ok(String::new())
    })
    .unwrap();
    is(&both!(both, it => it.read(".")), libc::EISDIR);
    both!(both, it => it.truncate_path("bytes", 10)).unwrap();
    is(&both!(both, it => it.truncate_path(".", 10)), libc::EISDIR);
    both!(both, it => it.read("bytes")).unwrap();
}

fn appending(both: &Both) {
    let append = {
        let mut options = std::fs::OpenOptions::new();
        options.append(true).read(true);
        options
    };
    let ours = {
        let mut options = conquest::OpenOptions::new();
        options.append(true).read(true);
        options
    };
    both!(both, it => it.write("log", b"one ")).unwrap();
    let theirs = both.host.open_with("log", &append).unwrap();
    let ours = both.ours.open_with("log", &ours).unwrap();
    macro_rules! both_files {
        ($file:ident => $work:expr) => {{
            let mine = {
                #[allow(unused_mut)]
                let mut $file = &ours;
                $work
            };
            let other = {
                #[allow(unused_mut)]
                let mut $file = &theirs;
                $work
            };
            assert_eq!(mine, other, "{}", stringify!($work));
        }};
    }
    both_files!(file => file.write(b"two ").unwrap());
    both_files!(file => file.stream_position().unwrap());
    both_files!(file => file.write_at(b"three ", 0).unwrap());
    both_files!(file => file.seek(SeekFrom::Start(2)).unwrap());
    both_files!(file => file.write(b"four ").unwrap());
    both_files!(file => file.stream_position().unwrap());
    both!(both, it => it.read("log")).unwrap();
    ours.close().unwrap();
}

fn space(both: &Both) {
    both!(both, it => it.write("s", [1; 100_000])).unwrap();
    let ours = both.ours.open_with("s", conquest::OpenOptions::new().read(true).write(true));
    let theirs = std::fs::File::options().read(true).write(true).open(both.host.0.join("s"));
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    for (range, how) in [
        (8192..20_000, Space::Punch),
        (50_000..50_010, Space::Punch),
        (60_000..70_000, Space::Zero),
        (99_000..120_000, Space::Zero),
        (200_000..300_000, Space::AllocateBehind),
        (120_000..130_000, Space::Allocate),
        (5..5, Space::Allocate),
        (5..5, Space::Punch),
        (0..1 << 63, Space::Allocate),
    ] {
        assert_eq!(ours.space(range.clone(), how), theirs.space(range.clone(), how), "{range:?}");
        both!(both, it => it.metadata("s")).unwrap();
        both!(both, it => it.read("s")).unwrap();
    }
    for from in [0, 8191, 8192, 12_000, 16_384, 50_000, 129_999, 130_000, 200_000] {
        for data in [true, false] {
            assert_eq!(ours.next(from, data), theirs.next(from, data), "{from} {data}");
        }
    }
    let (ours, theirs) = (both.ours.open("s").unwrap(), both.host.open("s").unwrap());
    for how in [Space::Allocate, Space::Zero, Space::Punch] {
        is(&ours.space(0..10, how), libc::EBADF);
        is(&theirs.space(0..10, how), libc::EBADF);
        is(&ours.space(5..5, how), libc::EINVAL);
        is(&theirs.space(5..5, how), libc::EINVAL);
    }
}

fn several_buffers_and_copies(both: &Both) {
    both!(both, it => it.write("v", b"0123456789")).unwrap();
    let ours = both.ours.open_with("v", conquest::OpenOptions::new().read(true).write(true));
    let theirs = std::fs::File::options().read(true).write(true).open(both.host.0.join("v"));
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    let many = vec![&b"x"[..]; 1025];
    for at in [Some(2), None, Some(1 << 63)] {
        for parts in [&[&b"ab"[..], b"", b"cde"][..], &[], &many[..1024]] {
            for flags in [0, libc::RWF_APPEND.cast_unsigned(), 1 << 20] {
                assert_eq!(
                    ours.vector(at, parts, flags),
                    theirs.vector(at, parts, flags),
                    "{at:?} {} {flags}",
                    parts.len()
                );
            }
        }
    }
    // The host's calls leave out what is too much before they ask the kernel.
    is(&ours.vector(None, &many, 0), libc::EINVAL);
    both!(both, it => it.read("v")).unwrap();
    both!(both, it => it.write("to", [7; 50_000])).unwrap();
    let options = conquest::OpenOptions::new().read(true).write(true).clone();
    let our_target = both.ours.open_with("to", &options).unwrap();
    let options = std::fs::OpenOptions::new().read(true).write(true).clone();
    let their_target = options.open(both.host.0.join("to")).unwrap();
    for (from, to, len) in [
        (Some(3), Some(10), 5),
        (None, Some(0), 4),
        (Some(0), None, 100),
        (Some(u64::MAX), None, 1),
    ] {
        assert_eq!(
            ours.copy(from, &our_target, to, len),
            theirs.copy(from, &their_target, to, len),
            "{from:?} {to:?} {len}"
        );
    }
    assert_eq!(ours.copy(Some(0), &ours, Some(2), 5), theirs.copy(Some(0), &theirs, Some(2), 5));
    both!(both, it => it.read("to")).unwrap();
    both!(both, it => it.remove_file("to")).unwrap();
}

fn attributes(both: &Both) {
    both!(both, it => it.write("t", b"x")).unwrap();
    both!(both, it => it.set_permissions("t", 0o640)).unwrap();
    both!(both, it => it.metadata("t")).unwrap();
    is(&both!(both, it => it.set_permissions("no", 0o640)), libc::ENOENT);
    both!(both, it => it.set_owner("t", None, None)).unwrap();
    both!(both, it => it.times("t", 5 * SECOND + 7, -3 * SECOND - 1)).unwrap();
    for bits in 0..8 {
        agree!(both, it => it.may("t", bits));
    }
    let [any, create, replace] = [Setting::Any, Setting::Create, Setting::Replace];
    is(&both!(both, it => it.attribute("t", "user.a")), libc::ENODATA);
    is(&both!(both, it => it.set_attribute("t", "user.a", b"1", replace)), libc::ENODATA);
    both!(both, it => it.set_attribute("t", "user.a", b"1", create)).unwrap();
    is(&both!(both, it => it.set_attribute("t", "user.a", b"1", create)), libc::EEXIST);
    both!(both, it => it.set_attribute("t", "user.a", b"23", any)).unwrap();
    both!(both, it => it.attribute("t", "user.a")).unwrap();
    is(&both!(both, it => it.attribute("t", "none")), libc::EOPNOTSUPP);
    both_do!(both, it => { it.open("t")?.value(OsStr::new("user.a")) }).unwrap();
    both_do!(both, it => { it.open("t")?.mode(0o600) }).unwrap();
    both_do!(both, it => { it.open("t")?.owner(None, None) }).unwrap();
    both!(both, it => it.metadata("t")).unwrap();
    both!(both, it => it.remove_attribute("t", "user.a")).unwrap();
    is(&both!(both, it => it.remove_attribute("t", "user.a")), libc::ENODATA);
}

/// Access lists, which the host takes as attributes only.
fn access_lists(both: &Both) {
    let entry = |qualifier, permissions| AclEntry { qualifier, permissions };
    let list = Acl::new(vec![
        entry(Qualifier::Owner, 6),
        entry(Qualifier::User(1234), 4),
        entry(Qualifier::OwningGroup, 5),
        entry(Qualifier::Mask, 4),
        entry(Qualifier::Other, 0),
    ])
    .unwrap();
    let files = &both.ours;
    both!(both, it => it.create_dir("lists")).unwrap();
    both!(both, it => it.write("lists/f", b"x")).unwrap();
    let [file, dir] = ["lists/f", "lists"].map(|path| files.find(path, true).unwrap());
    assert_eq!(file.access_list(AclKind::Access).unwrap(), None);
    file.set_access_list(AclKind::Access, Some(&list)).unwrap();
    dir.set_access_list(AclKind::Default, Some(&list)).unwrap();
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    let value = list.to_xattr();
    both.host.set_attribute("lists/f", access, &value, Setting::Any).unwrap();
    both.host.set_attribute("lists", default, &value, Setting::Any).unwrap();
    both!(both, it => it.attribute("lists/f", access)).unwrap();
    both!(both, it => it.metadata("lists/f")).unwrap();
    both!(both, it => it.attribute("lists", default)).unwrap();
    both!(both, it => it.write("lists/new", b"x")).unwrap();
    both!(both, it => it.attribute("lists/new", access)).unwrap();
    both!(both, it => it.metadata("lists/new")).unwrap();
    assert_eq!(file.access_list(AclKind::Access).unwrap(), Some(list.clone()));
    let refused = file.set_access_list(AclKind::Default, Some(&list)).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EACCES);
    file.set_access_list(AclKind::Access, None).unwrap();
    both.host.remove_attribute("lists/f", access).unwrap();
    both!(both, it => it.metadata("lists/f")).unwrap();
    is(&both!(both, it => it.attribute("lists/f", access)), libc::ENODATA);
}

fn named_only(both: &Both) {
    both!(both, it => it.write("p", b"x")).unwrap();
    let flags = libc::O_PATH;
    let ours = conquest::OpenOptions::new().read(true).custom_flags(flags).clone();
    let ours = both.ours.open_with("p", &ours).unwrap();
    let theirs = std::fs::File::options().read(true).custom_flags(flags).clone();
    let theirs = both.host.open_with("p", &theirs).unwrap();
    assert_eq!(ours.show(), theirs.show());
    let mut byte = [0];
    for outcome in [
        ours.mode(0o600),
        theirs.mode(0o600),
        ours.value(OsStr::new("user.a")),
        theirs.value(OsStr::new("user.a")),
        ours.space(0..1, Space::Allocate),
        theirs.space(0..1, Space::Allocate),
        ours.read_at(&mut byte, 0).map(|len| len.show()).map_err(Into::into),
        theirs.read_at(&mut byte, 0).map(|len| len.show()).map_err(Into::into),
        ours.sync_all().map(|()| String::new()).map_err(Into::into),
        theirs.sync_all().map(|()| String::new()).map_err(Into::into),
        ours.try_lock().map(|()| String::new()).map_err(Into::into),
        theirs.try_lock().map(|()| String::new()).map_err(Into::into),
    ] {
        is(&outcome, libc::EBADF);
    }
}

fn temporary(both: &Both) {
    both!(both, it => it.create_dir("tmp")).unwrap();
    both_do!(both, it => {
        let mut file = it.create_temporary("tmp")?;
        file.write_all(b"not yet")?;
        let before = it.names("tmp")?;
        Ok(format!("{before} {}", file.show()))
    })
    .unwrap();
    both!(both, it => it.names("tmp")).unwrap();
    is(&both!(both, it => it.create_temporary("tmp/no")), libc::ENOENT);
    // The host asks for a capability to give an open file a name: ours does as if it were there.
    let mut file = both.ours.create_temporary("tmp").unwrap();
    file.write_all(b"now").unwrap();
    both.ours.link_file(&file, "tmp/named").unwrap();
    file.close().unwrap();
    assert_eq!(both.ours.read("tmp/named").unwrap(), b"now");
}

fn unlinked_but_open(both: &Both) {
    both_do!(both, it => {
        it.write("gone", b"still here")?;
        let mut file = it.open("gone")?;
        it.remove_file("gone")?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(format!("{text} {}", file.show()))
    })
    .unwrap();
}

fn whole_file_locks(both: &Both) {
    both!(both, it => it.write("lock", b"")).unwrap();
    both_do!(both, it => {
        let (one, other) = (it.open("lock")?, it.open("lock")?);
        one.lock()?;
        let refused = other.try_lock_shared().map_err(Failure::from);
        one.lock_shared()?;
        let shared = other.try_lock_shared().map_err(Failure::from);
        let alone = other.try_lock().map_err(Failure::from);
        one.unlock()?;
        other.lock()?;
        drop(other);
        one.try_lock()?;
        Ok(format!("{refused:?} {shared:?} {alone:?}"))
    })
    .unwrap();
}

fn resolution(both: &Both) {
    both!(both, it => it.create_dir("d")).unwrap();
    both!(both, it => it.create_dir("d/e")).unwrap();
    both!(both, it => it.write("d/e/f", b"f")).unwrap();
    both!(both, it => it.write("d/g", b"gg")).unwrap();
    both!(both, it => it.symlink("../g", "d/e/up")).unwrap();
    both!(both, it => it.symlink("/f", "d/e/absolute")).unwrap();
    both!(both, it => it.symlink("f", "d/e/near")).unwrap();
    let paths =
        ["f", "near", "up", "absolute", "../g", "../../d/e/f", ".", "..", "e", "near/", "no", ""];
    for path in paths {
        for bits in 0..0x40 {
            // Without a bit the host's root directory is another one.
            let is_confined = bits & (libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT) != 0;
            // What the kernel has in its caches is its own business.
            let is_cached = bits & libc::RESOLVE_CACHED != 0;
            if !is_cached && (is_confined || path != "absolute") {
                agree!(both, it => it.resolve("d/e", path, libc::O_RDONLY, bits));
            }
        }
        agree!(both, it => it.resolve("d/e", path, libc::O_RDONLY, 1 << 20));
    }
    let makes = libc::O_RDWR | libc::O_CREAT;
    is(&both!(both, it => it.resolve("d/e", "new", makes, libc::RESOLVE_CACHED)), libc::EAGAIN);
    is(&both!(both, it => it.resolve("d/e", "f", 1 << 30, 0)), libc::EINVAL);
}

/// Directories that paths begin at, wherever they are moved.
fn directories(files: &Files) {
    files.create_dir("from").unwrap();
    files.write("from/f", b"f").unwrap();
    let dir = files.open_dir("from").unwrap();
    files.create_dir("to").unwrap();
    files.rename("from", "to/moved").unwrap();
    assert_eq!(dir.files().read("f").unwrap(), b"f");
    assert_eq!(
        dir.open_at("f", conquest::OpenOptions::new().read(true)).unwrap().id(),
        files.metadata("to/moved/f").unwrap().id()
    );
    assert!(dir.files().metadata("../moved").unwrap().is_dir());
    assert_eq!(files.from_dir(&dir).read("/to/moved/f").unwrap(), b"f");
    let opened = files.open_flags("to", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
    let to = Dir::from_file(files, opened).unwrap();
    assert_eq!(to.files().read("moved/f").unwrap(), b"f");
    let refused = Dir::from_file(files, dir.files().open("f").unwrap()).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::ENOTDIR);
    // In a root of its own, there is nothing above.
    let jail = files.with_root(&dir);
    for path in ["/f", "f", "../f", "/../../f"] {
        assert_eq!(jail.read(path).unwrap(), b"f", "{path}");
    }
    // Entries that were there throughout come once, whatever is removed meanwhile.
    for number in 0..2000 {
        dir.files().write(format!("n{number}"), b"").unwrap();
    }
    let mut seen = 0;
    for entry in dir.entries() {
        let entry = entry.unwrap();
        assert_eq!(dir.files().metadata(entry.file_name()).unwrap().id().number, entry.ino());
        dir.files().remove_file(entry.file_name()).unwrap();
        seen += 1;
    }
    assert_eq!((seen, dir.entries().count()), (2001, 0));
    assert_eq!(dir.list(0, &mut [0; 1000]).unwrap().count(), 2);
    let name = files.name_dir("to").unwrap();
    assert!(name.files().open_dir("moved").is_ok());
    let refused = name.entries().next().unwrap().unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EBADF);
}

fn everything(place: &Path) {
    let both = Both::new(place);
    for part in [
        names,
        renaming,
        opening,
        bytes,
        appending,
        space,
        several_buffers_and_copies,
        attributes,
        access_lists,
        named_only,
        temporary,
        unlinked_but_open,
        whole_file_locks,
        resolution,
    ] {
        part(&both);
        agree!(both, it => it.names("."));
    }
    directories(&both.ours);
    both.end();
}

#[test]
fn files_are_like_those_of_the_host() {
    everything(Temporary::on_disk("files").path());
}

/// Everything as an ordinary user, and what is refused to one.
fn everything_as_nobody(directory: &str) {
    let (fsuid, fsgid) = (65_534, 65_534);
    let none = Capabilities::NONE;
    let who = conquest_access::Credentials {
        fsuid,
        fsgid,
        groups: &[],
        capabilities: none,
        umask: 0o027,
        namespace: None,
    };
    sys::Privileges::take().become_user(&who);
    let directory = Path::new(directory);
    everything(directory);
    let store = attach(&directory.join("store"));
    let files = store.files().unwrap();
    assert_eq!((files.credentials().fsuid, files.credentials().umask), (65_534, 0o027));
    let root = files.acting_as(conquest::Credentials {
        fsuid: 0,
        fsgid: 0,
        groups: Vec::new(),
        capabilities: Capabilities::ALL,
        umask: 0,
        namespace: conquest::OwnNamespace::default(),
    });
    root.write("others", b"secret").unwrap();
    root.set_permissions("others", 0o600).unwrap();
    let refused = files.open("others").unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EACCES);
    assert_eq!(refused.to_string(), "others: Permission denied");
    let refused = files.set_owner("t", Some(0), None).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EPERM);
}

#[test]
fn as_child() {
    let Some(role) = support::role() else { return };
    everything_as_nobody(&role[0]);
}

#[test]
fn files_of_an_ordinary_user_are_like_those_of_the_host() {
    let place = Temporary::on_disk("user-files");
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(ends_well(start(&[text(place.path())])));
}

#[test]
fn errors_name_the_file_as_it_was_given() {
    let place = Temporary::on_disk("names");
    let both = Both::new(place.path());
    let files = &both.ours;
    let words = |error: conquest::Error| error.to_string();
    let missing = files.open("no/such\nfile").unwrap_err();
    assert_eq!(words(missing), "'no/such'$'\\n''file': No such file or directory");
    let two = files.rename("old", "a b").unwrap_err();
    assert_eq!(words(two), "old -> 'a b': No such file or directory");
    let long = "d/".repeat(40);
    let missing = files.metadata(&long).unwrap_err();
    assert_eq!(words(missing), format!("{long}: No such file or directory"));
    let file = files.create("file").unwrap();
    let refused = file.read(&mut [0]).unwrap_err();
    assert_eq!(refused.to_string(), "file: Bad file descriptor");
    let unknown = files.node(files.metadata("file").unwrap().id()).set_flags(1 << 31, None);
    let unknown = unknown.unwrap_err();
    assert!(words(unknown).starts_with("inode "), "the file is named by its number");
    let io = std::io::Error::from(files.open("none").unwrap_err());
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(io.downcast::<conquest::Error>().unwrap().raw_os_error(), libc::ENOENT);
    let nul = files.open("a\0b").unwrap_err();
    assert_eq!(nul.kind(), both.host.open("a\0b").unwrap_err().kind());
    // A store with open files is not detached.
    let Both { store, .. } = both;
    let busy = store.detach().unwrap_err();
    assert_eq!(busy.raw_os_error(), libc::EBUSY, "{busy}");
    drop(file);
}
