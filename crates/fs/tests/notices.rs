//! Which notices each operation tells.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod feed_support;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use conquest_access::Removal;
use conquest_format::feed::{BATCH_HEADER, BatchHeader};
use conquest_format::inode::flag;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::feed::{Follower, NameBuffer, NoticeKind, Told};
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::How;
use conquest_fs::paths::Path;
use conquest_fs::walk::Base;
use conquest_fs::xattr::Setting;
use conquest_fs::{Errno, Error, FileId, Result};
use conquest_pm::media::{Mapped, OsHost};
use conquest_pm::memory::Memory;
use conquest_testkit::files::root_user;
use feed_support::{Files, store};

/// A store, and what is told of it.
struct Scene {
    files: Files,
    follower: Follower<Mapped, OsHost>,
    /// Files by what they were called when they were told of first.
    names: BTreeMap<FileId, String>,
}

impl Scene {
    fn new() -> Scene {
        let files = store();
        let follower = files.follow();
        let names = BTreeMap::from([(files.root(), String::new())]);
        Scene { files, follower, names }
    }

    /// What was told since the last call: kind, file, and place of the name.
    fn told(&mut self) -> Vec<String> {
        let mut buffer: NameBuffer = [0; 255];
        let mut told = Vec::new();
        let mut cookies: BTreeMap<FileId, u64> = BTreeMap::new();
        while let Some(next) = self.follower.next(&mut buffer).unwrap() {
            let Told::Notice(notice) = next else { panic!("nothing is lost") };
            let name = String::from_utf8_lossy(&buffer[..notice.name_len]).into_owned();
            let place = notice.directory.map(|directory| {
                let directory = self.names.get(&directory).map_or("?", String::as_str);
                format!(" {directory}/{name}")
            });
            let called = self.names.entry(notice.file).or_insert(name);
            let slash = if notice.is_directory { "/" } else { "" };
            let place = place.unwrap_or_default();
            told.push(format!("{:?} {called}{slash}{place}", notice.kind));
            match notice.kind {
                NoticeKind::MovedFrom => _ = cookies.insert(notice.file, notice.cookie),
                NoticeKind::MovedTo => {
                    assert_eq!(cookies.remove(&notice.file), Some(notice.cookie));
                    assert_ne!(notice.cookie, 0);
                }
                _ => {}
            }
            let is_ours = notice.slot.is_some();
            assert_eq!(self.follower.is_own(&notice), is_ours);
        }
        assert!(cookies.is_empty(), "{cookies:?}");
        told
    }

    fn find(&self, path: &str) -> FileId {
        let base = &Base::new(self.files.root(), self.files.root());
        self.files.find(&root_user(), Path { base, bytes: path.as_bytes() }, false).unwrap()
    }

    /// Does `act` and looks at what is told.
    #[track_caller]
    fn expect<T>(&mut self, expected: &[&str], act: impl FnOnce(&Files, &Scene) -> Result<T>) -> T {
        let done = act(&self.files, self).unwrap();
        assert_eq!(self.told(), expected);
        done
    }

    /// Makes `name` in the root directory, without a look at what is told.
    fn make(&mut self, name: &str, what: New<'_>) -> FileId {
        let root = self.files.root();
        let file = self.files.create(&root_user(), root, name.as_bytes(), what, 0o644).unwrap();
        self.told();
        file
    }
}

#[test]
fn names() {
    let who = &root_user();
    let mut scene = Scene::new();
    let root = scene.files.root();
    for (name, what) in [
        ("file", New::Regular),
        ("link", New::Symlink(b"nowhere")),
        ("fifo", New::Fifo),
        ("socket", New::Socket),
        ("character", New::Character(1, 3)),
        ("block", New::Block(7, 0)),
    ] {
        scene.expect(&[&format!("Created {name} /{name}")], |files, _| {
            files.create(who, root, name.as_bytes(), what, 0o644)
        });
    }
    let dir = scene.expect(&["Created dir/ /dir"], |files, _| {
        files.create(who, root, b"dir", New::Directory, 0o755)
    });
    let long = "l".repeat(255);
    scene.expect(&[&format!("Created {long} dir/{long}")], |files, _| {
        files.create(who, dir, long.as_bytes(), New::Regular, 0o644)
    });
    scene.expect(&["Linked file dir/more"], |files, scene| {
        files.link(who, scene.find("file"), dir, b"more")
    });
    scene.expect(&["Removed file dir/more"], |files, _| {
        files.remove(who, dir, b"more", Removal::File)
    });
    scene.expect(&["Removed fifo /fifo", "Gone fifo"], |files, _| {
        files.remove(who, root, b"fifo", Removal::File)
    });
    scene.make("empty", New::Directory);
    scene.expect(&["Removed empty/ /empty", "Gone empty/"], |files, _| {
        files.remove(who, root, b"empty", Removal::Directory)
    });
    // What is refused, or changes nothing, is not told.
    scene.expect(&[], |files, scene| {
        assert!(files.create(who, root, b"file", New::Regular, 0).is_err());
        assert!(files.remove(who, root, b"dir", Removal::Directory).is_err());
        files.link(who, scene.find("file"), root, b"file").unwrap_err();
        files.rename(who, root, b"file", root, b"file", Renaming::Replace)?;
        let how = How::from_open(libc::O_RDONLY as u32, 0)?;
        let open = files.open_file(who, scene.find("file"), &how)?;
        files.read_at(&open, 0, &mut [0; 10])?;
        files.close(&open)?;
        files.list(root, 0, &mut [0; 1000]).map(Iterator::count)
    });
}

/// A directory's bucket that is split changes what `stat` tells of the directory.
#[test]
fn room_for_names() {
    let who = &root_user();
    let mut scene = Scene::new();
    let root = scene.files.root();
    let mut splits = 0;
    for number in 0..40 {
        let name = format!("{number:0>255}");
        scene.files.create(who, root, name.as_bytes(), New::Regular, 0o644).unwrap();
        let told = scene.told();
        splits += u64::from(told[0] == "Attributes /");
        assert_eq!(told.last().unwrap(), &format!("Created {name} /{name}"));
    }
    assert!(splits > 1, "{splits}");
}

#[test]
fn renamings() {
    let who = &root_user();
    let mut scene = Scene::new();
    let root = scene.files.root();
    for name in ["a", "b"] {
        scene.make(name, New::Regular);
    }
    let dir = scene.make("dir", New::Directory);
    let rename = |files: &Files, old: (FileId, &str), new: (FileId, &str), how| {
        files.rename(who, old.0, old.1.as_bytes(), new.0, new.1.as_bytes(), how)
    };
    scene.expect(&["MovedFrom a /a", "MovedTo a /c"], |files, _| {
        rename(files, (root, "a"), (root, "c"), Renaming::NoReplace)
    });
    scene.expect(&["MovedFrom a /c", "MovedTo a dir/a"], |files, _| {
        rename(files, (root, "c"), (dir, "a"), Renaming::Replace)
    });
    scene.expect(&["Gone b", "MovedFrom a dir/a", "MovedTo a /b"], |files, _| {
        rename(files, (dir, "a"), (root, "b"), Renaming::Replace)
    });
    scene.make("x", New::Regular);
    scene.files.link(who, scene.find("x"), root, b"y").unwrap();
    scene.told();
    scene.expect(&["Attributes x", "MovedFrom a /b", "MovedTo a /x"], |files, _| {
        rename(files, (root, "b"), (root, "x"), Renaming::Replace)
    });
    scene.expect(
        &["MovedFrom dir/ /dir", "MovedFrom a /x", "MovedTo dir/ /x", "MovedTo a /dir"],
        |files, _| rename(files, (root, "dir"), (root, "x"), Renaming::Exchange),
    );
    scene.expect(
        &["MovedFrom a /dir", "MovedFrom x /y", "MovedTo a /y", "MovedTo x /dir"],
        |files, _| rename(files, (root, "dir"), (root, "y"), Renaming::Exchange),
    );
    scene.expect(&["MovedFrom a /y", "MovedTo a dir/a", "Created y /y"], |files, _| {
        rename(files, (root, "y"), (dir, "a"), Renaming::Whiteout)
    });
    // The directory that was exchanged is called x now.
    scene.make("sub", New::Directory);
    scene.expect(
        &["MovedFrom sub/ /sub", "MovedTo sub/ dir/sub", "Created sub /sub"],
        |files, _| rename(files, (root, "sub"), (dir, "sub"), Renaming::WhiteoutNoReplace),
    );
}

#[test]
fn attributes() {
    let who = &root_user();
    let mut scene = Scene::new();
    let file = scene.make("a", New::Regular);
    let dir = scene.make("dir", New::Directory);
    let told = &["Attributes a"][..];
    scene.expect(told, |files, _| files.set_mode(who, file, 0o4755));
    scene.expect(told, |files, _| files.set_owner(who, file, Some(7), None));
    scene.expect(told, |files, _| files.set_times(who, file, SetTime::Now, SetTime::At(9)));
    scene.expect(told, |files, _| files.set_times(who, file, SetTime::At(5), SetTime::Omit));
    scene.expect(told, |files, _| files.set_flags(who, file, flag::NODUMP, Some(3)));
    scene.expect(&["Attributes dir/"], |files, _| files.set_mode(who, dir, 0o700));
    let told = &["ExtendedAttributes a"][..];
    let set = |files: &Files, value: &[u8]| {
        files.set_attribute(who, file, b"user.some", value, Setting::Any)
    };
    scene.expect(told, |files, _| set(files, b"one"));
    scene.expect(&[], |files, _| set(files, b"one"));
    scene.expect(told, |files, _| set(files, &[7; 5000]));
    scene.expect(told, |files, _| files.remove_attribute(who, file, b"user.some"));
    // A list that is no more than a mode, and one that changes the mode, too.
    let mut list = vec![2, 0, 0, 0];
    for (tag, permissions, id) in [
        (1_u16, 7_u16, u32::MAX),
        (2, 7, 9),
        (4, 5, u32::MAX),
        (16, 2, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    scene.expect(&["ExtendedAttributes a", "Attributes a"], |files, _| {
        files.set_attribute(who, file, b"system.posix_acl_access", &list, Setting::Any)
    });
}

#[test]
fn contents() {
    let who = &root_user();
    let nobody = &conquest_fs::Credentials { fsuid: 9, ..root_user() };
    let mut scene = Scene::new();
    let file = scene.make("a", New::Regular);
    let told = &["Content a"][..];
    let write = |files: &Files, at, bytes: &[u8]| files.write(who, file, at, bytes);
    scene.expect(told, |files, _| write(files, WriteAt::Offset(0), &[1; 100]));
    scene.expect(told, |files, _| write(files, WriteAt::Offset(5), &[2; 10]));
    scene.expect(told, |files, _| write(files, WriteAt::End, &[3; 9000]));
    scene.expect(&["Size a"], |files, _| files.truncate(who, file, 10));
    scene.expect(&["Size a"], |files, _| files.truncate(who, file, 100_000));
    for how in [
        Allocate::Space { keeps_size: true },
        Allocate::Space { keeps_size: false },
        Allocate::Zeros { keeps_size: false },
        Allocate::Hole,
    ] {
        let kinds = {
            scene.files.allocate(who, file, how, 5000, 20_000).unwrap();
            scene.told()
        };
        assert!(!kinds.is_empty() && kinds.iter().all(|kind| kind == "Content a"), "{kinds:?}");
    }
    // Set-id bits go with a write of somebody who may not have them.
    scene.files.set_mode(who, file, 0o6777).unwrap();
    scene.told();
    let nobody =
        &conquest_fs::Credentials { capabilities: conquest_access::Capabilities::NONE, ..*nobody };
    scene.expect(&["Content a", "Attributes a"], |files, _| {
        files.write(nobody, file, WriteAt::Offset(0), b"x")
    });
    scene.expect(&["Size a"], |files, _| {
        let how = How::from_open((libc::O_TRUNC | libc::O_WRONLY) as u32, 0)?;
        let open = files.open_file(who, file, &how)?;
        files.close(&open)
    });
    // A write of several records is told with each.
    scene.files.write(who, file, WriteAt::Offset(8 << 20), &vec![1; 5 << 20]).unwrap();
    let kinds = scene.told();
    assert!(kinds.len() > 1 && kinds.iter().all(|kind| kind == "Content a"), "{kinds:?}");
    // So is the freeing of much.
    scene.files.truncate(who, file, 0).unwrap();
    let kinds = scene.told();
    assert_eq!(kinds[0], "Size a");
    assert!(kinds[1..].iter().all(|kind| kind == "Attributes a"), "{kinds:?}");
}

#[test]
fn open_files() {
    let who = &root_user();
    let mut scene = Scene::new();
    let root = scene.files.root();
    let base = &Base::new(root, root);
    let open = |files: &Files, name: &str, flags: i32| {
        let how = How::from_open((flags | libc::O_RDWR) as u32, 0o644)?;
        files.open_at(who, Path { base, bytes: name.as_bytes() }, &how)
    };
    let kept = scene.expect(&["Created a /a"], |files, _| open(files, "a", libc::O_CREAT));
    scene.expect(&["Content a"], |files, _| files.write_next(who, &kept, &[1; 10]));
    scene.expect(&["Removed a /a"], |files, _| files.remove(who, root, b"a", Removal::File));
    scene.expect(&["Content a"], |files, _| files.write_next(who, &kept, &[1; 10]));
    scene.expect(&["Size a"], |files, _| files.truncate_through(who, &kept, 5));
    scene.expect(&["Gone a"], |files, _| files.close(&kept));
    // A file without a name is told of as soon as there is something to tell.
    let kept = scene.expect(&[], |files, _| open(files, ".", libc::O_TMPFILE));
    scene.expect(&["Linked b /b"], |files, _| {
        files.link_open(who, &kept, Path { base, bytes: b"b" })
    });
    scene.expect(&[], |files, _| files.close(&kept));
    // What was allocated ahead goes when the file is closed.
    let kept = open(&scene.files, "b", 0).unwrap();
    for _ in 0..9 {
        scene.files.write_next(who, &kept, &[1; 3000]).unwrap();
    }
    scene.told();
    scene.expect(&["Attributes b"], |files, _| files.close(&kept));
    let missing = scene.files.remove(who, root, b"a", Removal::File);
    assert!(matches!(missing, Err(Error::Refused(_))));
}

#[test]
fn waiting_ends_when_there_is_more_to_take() {
    let who = &root_user();
    let mut scene = Scene::new();
    let root = scene.files.root();
    for name in [b"a", b"b"] {
        scene.files.create(who, root, name, New::Regular, 0o600).unwrap();
    }
    scene.told();
    let mut name: NameBuffer = [0; 255];
    assert!(!scene.follower.wait(Duration::from_millis(1)).unwrap());
    scene.files.rename(who, root, b"a", root, b"b", Renaming::Exchange).unwrap();
    let mut told = 0;
    // All of it came at once, and is given one by one.
    while scene.follower.wait(Duration::ZERO).unwrap() {
        let next = scene.follower.next(&mut name).unwrap();
        let Some(Told::Notice(notice)) = next else { panic!("{next:?}") };
        assert_ne!(notice.cookie >> 48, 0);
        told += 1;
    }
    assert_eq!((told, scene.follower.next(&mut name).unwrap()), (4, None));
}

/// A notice that makes no sense is an error, once; what comes after it is told.
#[test]
fn damage_is_passed_over() {
    let who = &root_user();
    let mut scene = Scene::new();
    let root = scene.files.root();
    let mut name: NameBuffer = [0; 255];
    let make = |files: &Files, name: &[u8]| {
        files.create(who, root, name, New::Regular, 0o600).unwrap();
    };
    make(&scene.files, b"a");
    let Ok(Some(Told::Notice(first))) = scene.follower.next(&mut name) else { panic!("nothing") };
    make(&scene.files, b"b");
    make(&scene.files, b"c");
    // Where the second batch begins is not told: the header shows it.
    let (lane, from) = ((first.cookie >> 48) as u32 - 1, first.cookie & ((1 << 48) - 1));
    let (geometry, memory) = (scene.files.core().geometry(), scene.files.core().memory());
    let word = |position| memory.load(geometry.ring_word(lane, position), Ordering::Relaxed);
    let is_batch = |&position: &u64| {
        BatchHeader::unpack([word(position), word(position + 1)], position).is_some()
    };
    let second = (from + 1..from + 64).find(is_batch).unwrap();
    memory.put(geometry.ring_word(lane, second + BATCH_HEADER), 0, Ordering::Relaxed);
    let told = scene.follower.next(&mut name).unwrap_err();
    assert_eq!(told.errno(), Errno::EIO);
    let Ok(Some(Told::Notice(third))) = scene.follower.next(&mut name) else { panic!("nothing") };
    assert_eq!(&name[..third.name_len], b"c");
    assert_eq!(scene.follower.next(&mut name).unwrap(), None);
}
