//! What `/proc/self/mountinfo` says.

#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use std::path::Path;

use conquest_fuse::mounts::{self, MountEntry, parse, topmost};

fn parsed(lines: &[&str]) -> Vec<MountEntry> {
    parse(lines.join("\n").as_bytes()).unwrap()
}

fn id(mounts: &[MountEntry], directory: &str) -> Option<u64> {
    topmost(mounts, Path::new(directory)).map(|mount| mount.id)
}

#[test]
fn lines_are_taken_apart() {
    let mounts = parsed(&[
        concat!(
            r"36 35 98:1048575 /sub\040dir /mnt\0112\134\012 rw,noatime master:1 shared:2 - ",
            r"fuse.a\054b \043x\377\ rw,user_id=0",
        ),
        "37 36 0:5 / / ro - fuse  rw",
        "38 36 0:6 / /x ro - ext4 /dev/sda rw",
    ]);
    let first = &mounts[0];
    assert_eq!((first.id, first.parent, first.device), (36, 35, (98, 1_048_575)));
    assert_eq!(first.root, Path::new("/sub dir"));
    assert_eq!(first.directory, Path::new("/mnt\t2\\\n"));
    assert_eq!(
        (first.options.to_str(), first.kind.to_str()),
        (Some("rw,noatime"), Some("fuse.a,b"))
    );
    assert_eq!(first.source.as_encoded_bytes(), b"#x\xFF\\");
    assert_eq!(first.super_options, "rw,user_id=0");
    assert_eq!(first.subtype(), Some(&b"a,b"[..]));
    assert_eq!(first.connection(), Some(1_048_575));
    assert_eq!((mounts[1].subtype(), mounts[1].source.len()), (Some(&b""[..]), 0));
    assert_eq!((mounts[2].subtype(), mounts[2].connection()), (None, None));
}

#[test]
fn what_is_no_line_is_an_error_that_shows_it() {
    for line in [
        "x",
        "36 35 98:0 / /mnt rw",
        "36 35 98 / /mnt rw - ext4 x rw",
        "36 -1 98:0 / /mnt rw - ext4 x rw",
        "36 35 98:0 / /mnt rw - ext4 x",
        "36 35 98:0 / /mnt rw master:1 ext4 x rw",
    ] {
        let said = parse(line.as_bytes()).unwrap_err().to_string();
        assert!(said.contains("mountinfo") && said.contains(line), "{said}");
    }
    assert_eq!(parse(b"").unwrap(), []);
}

#[test]
fn the_topmost_mount_is_the_one_that_is_seen() {
    // Two at /a, the later one listed first, as when one is put beneath another.
    let mounts = parsed(&[
        "1 9 0:1 / / rw - ext4 x rw",
        "12 11 0:3 / /a rw - fuse.x above rw",
        "11 1 0:2 / /a rw - fuse.x below rw",
        "13 12 0:4 / /a/b rw - tmpfs x rw",
    ]);
    assert_eq!(id(&mounts, "/a"), Some(12));
    assert_eq!(id(&mounts, "/a/b"), Some(13));
    assert_eq!(id(&mounts, "/"), Some(1));
    assert_eq!(id(&mounts, "/a/b/c"), None);
    assert_eq!(id(&mounts, "/ab"), None);
    // What is mounted over the way to it hides it.
    let mounts = parsed(&[
        "1 9 0:1 / / rw - ext4 x rw",
        "11 1 0:2 / /a/b rw - fuse.x hidden rw",
        "12 1 0:3 / /a rw - tmpfs x rw",
    ]);
    assert_eq!(id(&mounts, "/a/b"), None);
    assert_eq!(id(&mounts, "/a"), Some(12));
    // In a root directory that is no mount.
    let mounts = parsed(&["11 7 0:2 / /a rw - fuse.x x rw"]);
    assert_eq!(id(&mounts, "/a"), Some(11));
    // A list that makes no sense ends nevertheless.
    let mounts = parsed(&["1 2 0:1 / / rw - a x rw", "2 1 0:1 / / rw - a x rw"]);
    assert_eq!(id(&mounts, "/"), None);
    let mounts = parsed(&["1 1 0:1 / / rw - a x rw"]);
    assert_eq!(id(&mounts, "/"), Some(1));
}

#[test]
fn paths_are_resolved_up_to_their_last_name() {
    let place = std::env::temp_dir().join(format!("conquest-mounts-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let place = std::fs::canonicalize(&place).unwrap();
    std::fs::create_dir(place.join("d")).unwrap();
    std::os::unix::fs::symlink("d", place.join("link")).unwrap();
    std::os::unix::fs::symlink(&place, place.join("d/up")).unwrap();
    let resolve = |path: &str| mounts::resolve(&place.join(path)).ok();
    assert_eq!(resolve("d"), Some(place.join("d")));
    assert_eq!(resolve("link"), Some(place.join("d")));
    assert_eq!(resolve("link/up/d/"), Some(place.join("d")));
    assert_eq!(resolve("d/."), Some(place.join("d")));
    assert_eq!(resolve("d/.."), Some(place.clone()));
    // What is at the end is not looked at: it may be dead.
    assert_eq!(resolve("d/none"), Some(place.join("d/none")));
    assert_eq!(resolve("none/d"), None);
    assert_eq!(mounts::resolve(Path::new("/")).unwrap(), Path::new("/"));
    let here = std::env::current_dir().unwrap();
    assert_eq!(mounts::resolve(Path::new("src")).unwrap(), here.join("src"));
    assert_eq!(mounts::resolve(Path::new(".")).unwrap(), here);
    std::fs::remove_dir_all(&place).unwrap();
}
