//! Trees come in and go out unchanged.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use support::snapshot::{assert_equal, take};
use support::{
    Scratch, USER, assert_quiet, conquest, conquest_as, nasty, need_root, printed, refused, text,
};

#[test]
fn everything_comes_in_and_goes_out_as_root() {
    need_root();
    let scratch = Scratch::new();
    let (tree, out) = (scratch.join("tree"), scratch.join("out"));
    nasty::make(&tree, None);
    let before = take(&tree);
    let store = scratch.store("store");
    let inside = format!("{store}:/a tree");
    let (tree, out) = (tree.to_str().unwrap(), out.to_str().unwrap());
    printed(["import", "--verify", tree, &inside]);
    assert_equal(&before, &take(tree.as_ref()));
    printed(["export", "--verify", &inside, out]);
    assert_equal(&before, &take(out.as_ref()));
    // Holes are holes.
    let sparse = fs::metadata(scratch.join("out/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "{} blocks", sparse.blocks());
    assert!(printed(["df", &store]).contains("524288"));
    assert!(printed(["fsck", "-n", &store]).ends_with("\nconsistent\n"));
    // Again, with nothing to do.
    let again = printed(["import", "--json", tree, &inside]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    for nothing in ["files", "bytes", "hard_links", "others", "removed", "failures"] {
        assert_eq!(again[nothing], 0, "{nothing}: {again}");
    }
    printed(["export", &inside, out]);
    assert_equal(&before, &take(out.as_ref()));
}

#[test]
fn everything_that_is_permitted_comes_in_and_goes_out_as_a_user() {
    need_root();
    let scratch = Scratch::new();
    let (tree, out) = (scratch.join("tree"), scratch.join("out"));
    nasty::make(&tree, Some(USER));
    let before = take(&tree);
    let store = scratch.store_of("store", Some(USER));
    let inside = format!("{store}:/tree");
    let (tree, out) = (tree.to_str().unwrap(), out.to_str().unwrap());
    assert_quiet(&conquest_as(Some(USER), ["import", "--verify", tree, &inside]));
    assert_quiet(&conquest_as(Some(USER), ["export", "--verify", &inside, out]));
    assert_equal(&before, &take(out.as_ref()));
}

#[test]
fn a_user_is_told_once_what_could_not_be_kept() {
    need_root();
    let scratch = Scratch::new();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(tree.join(name), name).unwrap();
        fs::set_permissions(tree.join(name), PermissionsExt::from_mode(0o4755)).unwrap();
    }
    fs::write(tree.join("closed"), "secret").unwrap();
    fs::set_permissions(tree.join("closed"), PermissionsExt::from_mode(0o000)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.join("device"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    let store = scratch.store_of("store", Some(USER));
    let inside = format!("{store}:/tree");
    let output = conquest_as(Some(USER), ["import", tree.to_str().unwrap(), &inside]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert_eq!(said.matches("owner not kept").count(), 1, "{said}");
    assert!(said.contains("note: owner not kept: 4 files, first "), "{said}");
    assert!(said.contains("tree/closed: Permission denied"), "{said}");
    assert!(said.contains("tree/device: Operation not permitted"), "{said}");
    // Who does not get the owner does not get the owner's rights.
    let listed = conquest_as(Some(USER), ["ls", "-l", &format!("{inside}/a")]);
    assert!(text(&listed.stdout).starts_with("-rwxr-xr-x 1 "), "{listed:?}");
}

#[test]
fn what_has_changed_is_brought_up_to_date() {
    let scratch = Scratch::new();
    let (tree, out) = (scratch.join("tree"), scratch.join("out"));
    fs::create_dir_all(tree.join("d/e")).unwrap();
    for name in ["same", "longer", "newer", "mode", "gone", "d/e/f", "becomes-a-directory"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::create_dir_all(tree.join("becomes-a-file/x/y")).unwrap();
    fs::hard_link(tree.join("same"), tree.join("linked")).unwrap();
    let store = scratch.store("store");
    let inside = format!("{store}:/tree");
    let paths = [tree.to_str().unwrap(), out.to_str().unwrap()];
    printed(["import", paths[0], &inside]);

    fs::write(tree.join("longer"), "longer than it was").unwrap();
    fs::write(tree.join("newer"), "NEWER").unwrap();
    fs::set_permissions(tree.join("mode"), PermissionsExt::from_mode(0o711)).unwrap();
    fs::remove_file(tree.join("gone")).unwrap();
    fs::remove_file(tree.join("linked")).unwrap();
    fs::write(tree.join("linked"), "no more").unwrap();
    fs::remove_file(tree.join("becomes-a-directory")).unwrap();
    fs::create_dir(tree.join("becomes-a-directory")).unwrap();
    fs::remove_dir_all(tree.join("becomes-a-file")).unwrap();
    fs::write(tree.join("becomes-a-file"), "now").unwrap();

    // A directory is not given up for a file unless that is asked for.
    let said = refused(1, ["import", paths[0], &inside]);
    assert!(said.contains("cannot overwrite directory") && said.contains("--delete"), "{said}");
    printed(["import", "--delete", "--verify", paths[0], &inside]);
    printed(["export", &inside, paths[1]]);
    assert_equal(&take(&tree), &take(&out));
    // In the other direction too.
    fs::write(out.join("stray"), "").unwrap();
    fs::create_dir_all(out.join("d/stray/x")).unwrap();
    printed(["export", "--delete", &inside, paths[1]]);
    assert_equal(&take(&tree), &take(&out));
}

#[test]
fn files_that_are_linked_only_in_the_copy_are_taken_apart() {
    let scratch = Scratch::new();
    let (tree, out) = (scratch.join("tree"), scratch.join("out"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "same").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    let store = scratch.store("store");
    let inside = format!("{store}:/tree");
    printed(["import", tree.to_str().unwrap(), &inside]);
    // The same bytes and times, but two files now.
    let old = fs::metadata(tree.join("a")).unwrap().modified().unwrap();
    fs::remove_file(tree.join("b")).unwrap();
    fs::write(tree.join("b"), "same").unwrap();
    fs::File::options().write(true).open(tree.join("b")).unwrap().set_modified(old).unwrap();
    printed(["import", tree.to_str().unwrap(), &inside]);
    printed(["export", &inside, out.to_str().unwrap()]);
    let ino = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    assert_ne!(ino("a"), ino("b"));
}

#[test]
fn one_file_becomes_two_with_two_names_each() {
    let scratch = Scratch::new();
    let (tree, out) = (scratch.join("tree"), scratch.join("out"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "same").unwrap();
    for name in ["b", "c", "d"] {
        fs::hard_link(tree.join("a"), tree.join(name)).unwrap();
    }
    let store = scratch.store("store");
    let inside = format!("{store}:/tree");
    printed(["import", tree.to_str().unwrap(), &inside]);
    let old = fs::metadata(tree.join("a")).unwrap().modified().unwrap();
    for name in ["c", "d"] {
        fs::remove_file(tree.join(name)).unwrap();
    }
    fs::write(tree.join("c"), "same").unwrap();
    fs::File::options().write(true).open(tree.join("c")).unwrap().set_modified(old).unwrap();
    fs::hard_link(tree.join("c"), tree.join("d")).unwrap();
    printed(["import", "--verify", tree.to_str().unwrap(), &inside]);
    printed(["export", &inside, out.to_str().unwrap()]);
    let ino = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    assert_eq!((ino("a"), ino("c")), (ino("b"), ino("d")));
    assert_ne!(ino("a"), ino("c"));
}

#[test]
fn wide_trees_need_few_descriptors() {
    let scratch = Scratch::new();
    let (tree, out) = (scratch.join("tree"), scratch.join("out"));
    for nth in 0..600 {
        fs::create_dir_all(tree.join(format!("{:02}/{nth}/x", nth % 10))).unwrap();
    }
    let store = scratch.store("store");
    let program = env!("CARGO_BIN_EXE_conquest");
    let (tree, out) = (tree.to_str().unwrap(), out.to_str().unwrap());
    let script = format!(
        "ulimit -n 64 && {program} import --verify {tree} {store}:/tree && \
         {program} export --verify {store}:/tree {out}"
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_quiet(&output);
    assert_equal(&take(tree.as_ref()), &take(out.as_ref()));
}

#[test]
fn mount_points_are_left_out_where_that_is_asked_for() {
    need_root();
    let scratch = Scratch::new();
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("mounted")).unwrap();
    fs::write(tree.join("own"), "x").unwrap();
    let store = scratch.store("store");
    let program = env!("CARGO_BIN_EXE_conquest");
    let script = format!(
        "mount -t tmpfs none '{0}/mounted' && echo y > '{0}/mounted/theirs' && \
         {program} import -x '{0}' '{store}:/without' && {program} import '{0}' '{store}:/with'",
        tree.display()
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("content left out: 1 file") && said.contains("mounted"), "{said}");
    assert_eq!(printed(["ls", "-1", &format!("{store}:/without/mounted")]), "");
    assert_eq!(printed(["ls", "-1", &format!("{store}:/with/mounted")]), "theirs\n");
}

#[test]
fn a_file_that_changes_all_the_time_is_reported() {
    let scratch = Scratch::new();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("log"), vec![1; 64 << 20]).unwrap();
    let store = scratch.store("store");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write;
            let mut log = fs::File::options().append(true).open(tree.join("log")).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                log.write_all(b"more").unwrap();
            }
        });
        let inside = format!("{store}:/tree");
        let output = conquest(["import", tree.to_str().unwrap(), &inside]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("log: changed while it was read, three times"), "{said}");
    });
    // At rest, it is brought up to date.
    let inside = format!("{store}:/tree");
    printed(["import", "--verify", tree.to_str().unwrap(), &inside]);
}

#[test]
fn a_full_store_is_said_once() {
    let scratch = Scratch::new();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    for nth in 0..200 {
        fs::write(tree.join(format!("{nth:03}")), vec![nth as u8; 100_000]).unwrap();
    }
    let store = scratch.join("small").to_str().unwrap().to_owned();
    printed(["mkfs", "-q", "--size-max", "8M", &store]);
    let inside = format!("{store}:/tree");
    let output = conquest(["import", "-j", "2", tree.to_str().unwrap(), &inside]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert_eq!(said.matches("no space left").count(), 1, "{said}");
    assert!(printed(["fsck", "-n", &store]).ends_with("\nconsistent\n"));
    // Nothing half is there.
    let listed = printed(["ls", "-lA", &inside]);
    let sizes = listed.lines().skip(1).map(|line| line.split_whitespace().nth(4).unwrap());
    assert!(sizes.clone().all(|size| size == "100000"), "{listed}");
    assert!(sizes.count() > 10, "{listed}");
}

#[test]
fn thresholds_go_with_directories_and_decide_where_copies_are() {
    let scratch = Scratch::new();
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("low/below")).unwrap();
    fs::write(tree.join("low/below/file"), vec![7; 9000]).unwrap();
    let name = "user.conquest.threshold";
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(tree.join("low"), name, b"8192", set).unwrap();
    rustix::fs::setxattr(tree.join("low/below"), name, b"8192", set).unwrap();
    let made = |name: &str| {
        let store = scratch.join(name).to_str().unwrap().to_owned();
        printed(["mkfs", "-q", "--size-max", "16M", "--volume", "96M", &store]);
        store
    };
    let [one, other] = ["one", "other"].map(made);
    let (tree, out) = (tree.to_str().unwrap(), scratch.join("out"));
    printed(["import", "--verify", tree, &format!("{one}:/tree")]);
    printed(["cp", "-a", &format!("{one}:/tree"), &format!("{other}:/tree")]);
    for store in [&one, &other] {
        let shown = printed(["stat", &format!("{store}:/tree/low/below/file")]);
        assert!(shown.contains("large content; on the volume"), "{shown}");
        for path in ["low", "low/below/file"] {
            let shown = printed(["stat", &format!("{store}:/tree/{path}")]);
            assert!(shown.contains("Attr: user.conquest.threshold = '8192'"), "{shown}");
        }
    }
    printed(["export", &format!("{other}:/tree"), out.to_str().unwrap()]);
    let mut value = [0; 9];
    let len = rustix::fs::getxattr(out.join("low/below"), name, &mut value).unwrap();
    assert_eq!(&value[..len], b"8192");
    // Where there is no volume it is left behind, and noted.
    let store = scratch.store("store");
    let output = conquest(["import", tree, &format!("{store}:/tree")]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stderr);
    assert_eq!(said.matches("attribute not kept").count(), 1, "{said}");
    for store in [one, other] {
        printed(["destroy", "--yes", &store]);
    }
}
