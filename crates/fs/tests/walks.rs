//! Walks along paths: how far they go, how long they may be, and what `Base` keeps them from.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_fs::dir::FileType;
use conquest_fs::names::{New, Removal, Renaming};
use conquest_fs::open::How;
use conquest_fs::paths::Path;
use conquest_fs::walk::{Base, LINKS_MAX, Last, PATH_MAX};
use conquest_fs::{Credentials, Errno, FileId};
use conquest_testkit::files::root_user;
use store::{Store, path, refused, user};

fn walk(store: &Store, base: &Base, path: &str, follow: bool) -> Result<FileId, Errno> {
    let found = store.walk(&root_user(), base, path.as_bytes(), follow);
    found.map(|(file, _)| file).map_err(|error| error.errno())
}

#[test]
fn paths_have_a_length() {
    let store = Store::new(2);
    let base = &Base::new(store.root(), store.root());
    let file = store.file("f", b"");
    let longest = format!("{}f", "/".repeat(PATH_MAX - 1));
    let longer = format!("/{longest}");
    assert_eq!(walk(&store, base, &longest, true), Ok(file));
    assert_eq!(walk(&store, base, &longer, true), Err(Errno::ENAMETOOLONG));
    assert_eq!(walk(&store, base, "", true), Err(Errno::ENOENT));
    let who = &root_user();
    for (bad, errno) in [("", Errno::ENOENT), (&*longer, Errno::ENAMETOOLONG)] {
        let at = path(base, bad);
        assert_eq!(refused(store.create_at(who, at, New::Regular, 0)), errno);
        assert_eq!(
            refused(store.create_at(who, path(base, "l"), New::Symlink(at.bytes), 0)),
            errno
        );
        assert_eq!(refused(store.remove_at(who, at, Removal::File)), errno);
        assert_eq!(refused(store.walk_to_parent(who, base, at.bytes)), errno);
        assert_eq!(refused(store.open_at(who, at, &How::from_open(0, 0).unwrap())), errno);
        assert_eq!(refused(store.rename_at(who, at, path(base, "x"), Renaming::Replace)), errno);
    }
}

#[test]
fn a_walk_follows_forty_links() {
    let store = Store::new(2);
    let base = &Base::new(store.root(), store.root());
    let file = store.file("0", b"");
    for number in 1..=LINKS_MAX + 1 {
        let target = (number - 1).to_string();
        store.make(&number.to_string(), New::Symlink(target.as_bytes()), 0o777);
    }
    let who = &root_user();
    let open = |name: &str, flags| store.open_path(who, name, flags);
    assert_eq!(walk(&store, base, "40", true), Ok(file));
    assert_eq!(walk(&store, base, "41", true), Err(Errno::ELOOP));
    assert_eq!(walk(&store, base, "41", false), Ok(store.find_name("41")));
    let opened = open("40", libc::O_RDONLY).unwrap();
    assert_eq!(opened.file, file);
    store.close(&opened).unwrap();
    assert_eq!(open("41", libc::O_RDONLY).unwrap_err(), Errno::ELOOP);
    // In the middle of a path they count together.
    store.make("d", New::Directory, 0o755);
    store.make("d/l", New::Symlink(b"../20"), 0o777);
    store.make("m", New::Symlink(b"d"), 0o777);
    assert_eq!(walk(&store, base, "m/l", true), Ok(file));
    assert_eq!(walk(&store, base, "m/../19", true), Ok(file));
}

#[test]
fn links_may_be_refused() {
    let store = Store::new(2);
    let file = store.file("f", b"");
    let directory = store.make("d", New::Directory, 0o755);
    let link = store.make("l", New::Symlink(b"f"), 0o777);
    store.make("m", New::Symlink(b"d"), 0o777);
    let base = &Base { no_links: true, ..Base::new(store.root(), store.root()) };
    assert_eq!(walk(&store, base, "f", true), Ok(file));
    assert_eq!(walk(&store, base, "d/..//f", true), Ok(file));
    assert_eq!(walk(&store, base, "l", false), Ok(link));
    assert_eq!(walk(&store, base, "l", true), Err(Errno::ELOOP));
    assert_eq!(walk(&store, base, "m/.", true), Err(Errno::ELOOP));
    assert_eq!(walk(&store, base, "d/.", true), Ok(directory));
}

#[test]
fn a_walk_stays_beneath_where_it_began() {
    let store = Store::new(2);
    let start = store.make("d", New::Directory, 0o755);
    let inner = store.make("d/e", New::Directory, 0o755);
    let file = store.file("d/f", b"");
    store.make("d/out", New::Symlink(b"../d/f"), 0o777);
    store.make("d/root", New::Symlink(b"/d/f"), 0o777);
    store.make("d/in", New::Symlink(b"e/../f"), 0o777);
    let base = &Base { beneath: true, ..Base::new(store.root(), start) };
    assert_eq!(walk(&store, base, "f", true), Ok(file));
    assert_eq!(walk(&store, base, "e/../f", true), Ok(file));
    assert_eq!(walk(&store, base, "in", true), Ok(file));
    assert_eq!(walk(&store, base, "e/..", true), Ok(start));
    assert_eq!(walk(&store, base, "e/.", true), Ok(inner));
    for bad in ["..", "../d/f", "/d/f", "/", "out", "root", "e/../../d/f"] {
        assert_eq!(walk(&store, base, bad, true), Err(Errno::EXDEV), "{bad}");
    }
    let who = &root_user();
    let parent = store.walk_to_parent(who, base, b"e/../f").unwrap();
    assert_eq!((parent.directory, parent.last), (start, Last::Name { name: b"f", slash: false }));
    assert_eq!(refused(store.walk_to_parent(who, base, b"/f")), Errno::EXDEV);
    // Without that, `..` leads up, and stays where it is at the root.
    let base = &Base::new(store.root(), start);
    assert_eq!(walk(&store, base, "../d/f", true), Ok(file));
    assert_eq!(walk(&store, base, "../../../d/f", true), Ok(file));
    assert_eq!(walk(&store, base, "root", true), Ok(file));
    // With another root, too.
    let base = &Base::new(start, inner);
    assert_eq!(walk(&store, base, "../../..", true), Ok(start));
    assert_eq!(walk(&store, base, "/f", true), Ok(file));
    assert_eq!(walk(&store, base, "/d", true), Err(Errno::ENOENT));
}

#[test]
fn slashes_at_the_end_mean_a_directory() {
    let store = Store::new(2);
    let who = &root_user();
    let base = &Base::new(store.root(), store.root());
    let directory = store.make("d", New::Directory, 0o755);
    store.file("f", b"");
    store.make("to_d", New::Symlink(b"d"), 0o777);
    store.make("to_f", New::Symlink(b"f"), 0o777);
    store.make("to_x", New::Symlink(b"x"), 0o777);
    for found in ["d", "d/", "d//", "to_d/", "/d/", "d/.", "./d/../d", "f/../d"] {
        let expected = if found == "f/../d" { Err(Errno::ENOTDIR) } else { Ok(directory) };
        assert_eq!(walk(&store, base, found, false), expected, "{found}");
    }
    for bad in ["f/", "to_f/", "f/x"] {
        assert_eq!(walk(&store, base, bad, false), Err(Errno::ENOTDIR), "{bad}");
    }
    for bad in ["x", "x/", "to_x/", "d/x", "x/y"] {
        assert_eq!(walk(&store, base, bad, false), Err(Errno::ENOENT), "{bad}");
    }
    let make = |name, what| refused(store.create_at(who, path(base, name), what, 0o755));
    for (name, regular, directory) in [
        ("x/", Errno::ENOENT, None),
        ("f/", Errno::EEXIST, Some(Errno::EEXIST)),
        ("d/", Errno::EEXIST, Some(Errno::EEXIST)),
        ("d/.", Errno::EEXIST, Some(Errno::EEXIST)),
        ("d/..", Errno::EEXIST, Some(Errno::EEXIST)),
        ("/", Errno::EEXIST, Some(Errno::EEXIST)),
        ("f/x", Errno::ENOTDIR, Some(Errno::ENOTDIR)),
    ] {
        assert_eq!(make(name, New::Regular), regular, "{name}");
        if let Some(errno) = directory {
            assert_eq!(make(name, New::Directory), errno, "{name}");
        }
        let linked = store.link_at(who, path(base, "f"), false, path(base, name));
        assert_eq!(refused(linked), regular, "{name}");
    }
    store.create_at(who, path(base, "x/"), New::Directory, 0o755).unwrap();
}

#[test]
fn slashes_at_the_end_of_what_is_removed_or_renamed_mean_a_directory() {
    let store = Store::new(2);
    let who = &root_user();
    let base = &Base::new(store.root(), store.root());
    for name in ["d", "x"] {
        store.make(name, New::Directory, 0o755);
    }
    store.file("f", b"");
    let remove = |name, how| refused(store.remove_at(who, path(base, name), how));
    use Removal::{Directory, File};
    for (name, how, errno) in [
        ("f/", File, Errno::ENOTDIR),
        ("d/", File, Errno::EISDIR),
        ("y/", File, Errno::ENOENT),
        ("d/.", File, Errno::EISDIR),
        ("d/..", File, Errno::EISDIR),
        ("/", File, Errno::EISDIR),
        ("d/.", Directory, Errno::EINVAL),
        ("d/..", Directory, Errno::ENOTEMPTY),
        ("/", Directory, Errno::EBUSY),
        ("f/", Directory, Errno::ENOTDIR),
    ] {
        assert_eq!(remove(name, how), errno, "{name} {how:?}");
    }
    let rename =
        |old, new, how| refused(store.rename_at(who, path(base, old), path(base, new), how));
    for (old, new, how, errno) in [
        ("f/", "g", Renaming::Replace, Errno::ENOTDIR),
        ("f", "g/", Renaming::Replace, Errno::ENOTDIR),
        ("f/", "d", Renaming::Exchange, Errno::ENOTDIR),
        ("d", "f/", Renaming::Exchange, Errno::ENOTDIR),
        ("d/.", "g", Renaming::Replace, Errno::EBUSY),
        ("d", "d/..", Renaming::Replace, Errno::EBUSY),
        ("d", "/", Renaming::Exchange, Errno::EBUSY),
        ("d", ".", Renaming::NoReplace, Errno::EEXIST),
        ("d", ".", Renaming::WhiteoutNoReplace, Errno::EEXIST),
        ("/", "g", Renaming::Replace, Errno::EBUSY),
    ] {
        assert_eq!(rename(old, new, how), errno, "{old} {new} {how:?}");
    }
    store.rename_at(who, path(base, "f"), path(base, "d/"), Renaming::Exchange).unwrap();
    store.rename_at(who, path(base, "f/"), path(base, "d"), Renaming::Exchange).unwrap();
    store.rename_at(who, path(base, "x/"), path(base, "z/"), Renaming::Replace).unwrap();
    store.remove_at(who, path(base, "z/"), Removal::Directory).unwrap();
    store.examine();
}

#[test]
fn the_last_component_is_told_apart() {
    let store = Store::new(2);
    let who = &root_user();
    let base = &Base::new(store.root(), store.root());
    let directory = store.make("d", New::Directory, 0o700);
    let last = |text: &'static str| {
        let parent = store.walk_to_parent(who, base, text.as_bytes()).unwrap();
        (parent.directory, parent.last)
    };
    let name = |name, slash| Last::Name { name, slash };
    let root = store.root();
    assert_eq!(last("x"), (root, name(b"x", false)));
    assert_eq!(last("x///"), (root, name(b"x", true)));
    assert_eq!(last("//d//x"), (directory, name(b"x", false)));
    assert_eq!(last("d/."), (directory, Last::Dot));
    assert_eq!(last("d/../"), (directory, Last::DotDot));
    assert_eq!(last("///"), (root, Last::Root));
    // The directory has to be one that may be searched, but for the path `/`.
    let told = |who: &Credentials<'_>, text: &'static str| {
        store.walk_to_parent(who, base, text.as_bytes())
    };
    assert_eq!(refused(told(&user(7), "d/x")), Errno::EACCES);
    store.file("f", b"");
    assert_eq!(refused(told(who, "f/x")), Errno::ENOTDIR);
    store.set_mode(who, root, 0o700).unwrap();
    assert_eq!(refused(told(&user(7), "x")), Errno::EACCES);
    assert_eq!(told(&user(7), "/").unwrap().last, Last::Root);
    let found = store.walk(who, base, b"d/.", true).unwrap();
    assert_eq!(found, (directory, FileType::Directory));
    let at = Path { base, bytes: b"d" };
    assert_eq!(store.stat_at(who, at, true).unwrap().file, directory);
}

/// A directory is moved out and back in all the time, while others go down into it and up again.
#[test]
fn nobody_gets_out_while_directories_are_moved() {
    const MOVES: usize = 30_000;
    let store = Store::new(4);
    let who = &root_user();
    let inside = store.make("in", New::Directory, 0o755);
    let outside = store.make("out", New::Directory, 0o755);
    store.make("in/d", New::Directory, 0o755);
    store.file("out/secret", b"");
    let all = &Base::new(store.root(), store.root());
    let beneath = &Base { beneath: true, ..Base::new(store.root(), inside) };
    let below = &Base::new(inside, inside);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for number in 0..MOVES {
                let (from, to) =
                    if number % 2 == 0 { (inside, outside) } else { (outside, inside) };
                store.rename(who, from, b"d", to, b"d", Renaming::Replace).unwrap();
            }
        });
        let how = How::from_open(libc::O_RDONLY as u32, 0).unwrap();
        while !mover.is_finished() {
            for base in [beneath, below] {
                let path = path(base, "d/../secret");
                assert!(store.walk(who, base, path.bytes, true).is_err());
                assert!(store.open_at(who, path, &how).is_err());
                if let Ok(parent) = store.walk_to_parent(who, base, path.bytes) {
                    assert_eq!(parent.directory, inside);
                }
            }
            // Who may go everywhere does not have to try again.
            for path in ["in/d/../../out/secret", "in/d/../secret"].map(|name| path(all, name)) {
                let found = [
                    store.walk(who, all, path.bytes, true).map(drop),
                    store.walk_to_parent(who, all, path.bytes).map(drop),
                    store.open_at(who, path, &how).and_then(|open| store.close(&open)),
                ];
                for error in found.into_iter().filter_map(Result::err) {
                    assert_eq!(error.errno(), Errno::ENOENT);
                }
            }
        }
    });
    store.examine();
}
