//! What commands do and say where no common tool is a model.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::os::unix::ffi::OsStrExt;

use support::{Scratch, assert_quiet, conquest, need_root, printed, refused, text};

#[test]
fn wrong_places_are_named_with_what_to_do() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    let said = refused(1, ["cat", "plain"]);
    assert_eq!(
        said,
        "conquest: cat: plain: not a place in a store (write STORE:/path, not beginning with ./)\n"
    );
    let said = refused(1, ["cp", "one", "two"]);
    assert!(said.contains("both are on the host"), "{said}");
    let said = refused(2, ["import", "x", "y"]);
    assert!(said.contains("y: is on the host (write STORE:/path)"), "{said}");
    let none = scratch.join("none");
    let said = refused(2, ["ls", &format!("{}:/", none.display())]);
    assert!(said.contains("not a store"), "{said}");
    let said = refused(1, ["mkfs", &store]);
    assert!(said.contains("holds a store already") && said.contains("--force"), "{said}");
    for usage in [&["nonsense"][..], &["ls"], &["cp", "a"], &["mkfs", "--size-max", "1Q", "x"]] {
        assert_eq!(conquest(usage).status.code(), Some(2), "{usage:?}");
    }
}

#[test]
fn a_part_of_the_space_is_set_aside_for_root() {
    let scratch = Scratch::new();
    let store = scratch.join("store").to_str().unwrap().to_owned();
    printed(["mkfs", "--size-max", "64M", "--reserve", "25", &store]);
    let told: serde_json::Value = serde_json::from_str(&printed(["df", "--json", &store])).unwrap();
    let number = |field: &str| told["stores"][0][field].as_u64().unwrap();
    assert_eq!(number("total_bytes"), 64 << 20);
    assert_eq!(number("free_bytes") - number("available_bytes"), 16 << 20);
    let lines = printed(["df", &store]);
    let row: Vec<&str> = lines.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row[2], (number("available_bytes") / 1024).to_string());
    let (used, available) = (number("used_bytes"), number("available_bytes"));
    assert_eq!(row[3], format!("{}%", (used * 100).div_ceil(used + available)));
    let said = refused(2, ["mkfs", "--reserve", "51", "other"]);
    assert!(said.contains("51 is not in 0..=50"), "{said}");
    printed(["destroy", "--yes", &store]);
}

#[test]
fn a_store_is_destroyed_only_if_that_is_meant() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    let said = refused(1, ["destroy", &store]);
    assert!(said.contains("(use --yes)"), "{said}");
    assert_eq!(printed(["ls", &format!("{store}:/")]), "");
    assert_quiet(&conquest(["destroy", "--yes", &store]));
    assert!(!scratch.join("store").exists());
    let said = refused(1, ["destroy", "--yes", &store]);
    assert!(said.contains("not a store"), "{said}");
}

#[test]
fn names_with_colons_are_written_with_a_dot() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    std::fs::create_dir(scratch.join("a:")).unwrap();
    std::fs::write(scratch.join("a:/b"), "on the host").unwrap();
    let inside = format!("{store}:/copy");
    let mut command = support::command(None);
    let output = command.current_dir(scratch.path()).args(["cp", "./a:/b", &inside]).output();
    assert_quiet(&output.unwrap());
    assert_eq!(printed(["cat", &inside]), "on the host");
}

#[test]
fn names_are_bytes_and_are_quoted_only_for_people() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    let odd = b"a\nb\xFF";
    let mut path = format!("{store}:/").into_bytes();
    path.extend(odd);
    let operand = std::ffi::OsStr::from_bytes(&path);
    assert_quiet(&conquest([std::ffi::OsStr::new("mkdir"), operand]));
    let root = format!("{store}:/");
    let output = conquest(["ls", &root]);
    assert_eq!(output.stdout, b"a\nb\xFF\n");
    let again = conquest([std::ffi::OsStr::new("mkdir"), operand]);
    let said = text(&again.stderr);
    assert!(said.contains("'$'\\n''b'$'\\377': File exists"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&printed(["ls", "--json", &root])).unwrap();
    assert_eq!(json["listings"][0]["entries"][0]["name_base64"], "YQpi/w==");
}

#[test]
fn long_listings_look_like_those_of_ls() {
    need_root();
    let scratch = Scratch::new();
    let store = scratch.store("store");
    let file = scratch.join("file");
    std::fs::write(&file, "12345").unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(86_400 * 365);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
    printed(["cp", "-p", file.to_str().unwrap(), &format!("{store}:/file")]);
    printed(["ln", "-s", "file", &format!("{store}:/link")]);
    printed(["mkdir", &format!("{store}:/directory")]);
    let listed = printed(["ls", "-l", &format!("{store}:/")]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("total "), "{listed}");
    assert!(lines[1].starts_with("drwxr-xr-x 2 root root "), "{listed}");
    assert_eq!(lines[2], "-rw-r--r-- 1 root root 5 Jan  1  1971 file");
    assert!(lines[3].starts_with("lrwxrwxrwx 1 root root 4 "), "{listed}");
    assert!(lines[3].ends_with(" link -> file"), "{listed}");
    let told = printed(["stat", &format!("{store}:/file")]);
    assert!(told.contains("Modify: 1971-01-01 00:00:00.000000000 +0000"), "{told}");
    assert!(told.contains("Access: (0644/-rw-r--r--)"), "{told}");
    let drawn = printed(["tree", &format!("{store}:/")]);
    assert_eq!(
        drawn,
        format!("{store}:/\n|-- directory\n|-- file\n`-- link -> file\n\n1 directory, 2 files\n")
    );
}

#[test]
fn files_move_between_the_host_and_stores() {
    let scratch = Scratch::new();
    let (one, other) = (scratch.store("one"), scratch.store("other"));
    let tree = scratch.join("tree");
    std::fs::create_dir_all(tree.join("d/e")).unwrap();
    std::fs::write(tree.join("d/f"), "moved").unwrap();
    let plain = tree.to_str().unwrap();
    printed(["mv", plain, &format!("{one}:/tree")]);
    assert!(!tree.exists());
    printed(["mv", &format!("{one}:/tree"), &format!("{other}:/")]);
    assert_eq!(printed(["ls", &format!("{one}:/")]), "");
    printed(["mv", &format!("{other}:/tree"), plain]);
    assert_eq!(std::fs::read_to_string(tree.join("d/f")).unwrap(), "moved");
    assert_eq!(printed(["ls", &format!("{other}:/")]), "");
    let said = refused(1, ["ln", &format!("{one}:/x"), &format!("{other}:/y")]);
    assert!(said.contains("nvalid cross-device link"), "{said}");
}

#[test]
fn a_store_is_saved_checked_and_restored() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    let saved = scratch.join("saved").to_str().unwrap().to_owned();
    std::fs::write(scratch.join("file"), "kept").unwrap();
    printed(["cp", scratch.join("file").to_str().unwrap(), &format!("{store}:/file")]);
    assert!(printed(["save", &store, &saved]).starts_with("saved "));
    let said = refused(1, ["save", &store, &saved]);
    assert!(said.contains("exists already"), "{said}");
    printed(["rm", &format!("{store}:/file")]);
    let said = refused(1, ["restore", &saved, &store]);
    assert!(said.contains("has changed since the copy was saved"), "{said}");
    printed(["restore", "--force", &saved, &store]);
    assert_eq!(printed(["cat", &format!("{store}:/file")]), "kept");
    assert!(printed(["fsck", "-n", &store]).ends_with("\nconsistent\n"));
    assert_eq!(conquest(["fsck", &store]).status.code(), Some(16));
    assert_eq!(conquest(["fsck", "-n", "/no/store"]).status.code(), Some(8));
    // Damage is found: an inode is not what its checksum says.
    let dump = printed(["debug", "dump", &format!("{store}:/file")]);
    let at = dump.split_whitespace().nth(3).unwrap().trim_end_matches(',');
    let at = u64::from_str_radix(at.trim_start_matches("0x"), 16).unwrap();
    let core = std::fs::File::options().write(true).open(format!("{store}/core")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&core, &[9], at + 8).unwrap();
    let output = conquest(["fsck", "-n", &store]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("error[inode-") && said.contains("NOT consistent"), "{said}");
    let output = conquest(["fsck", "-n", "--json", &store]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["consistent"], false);
    let said = refused(1, ["debug", "dump", &format!("{store}:/file")]);
    assert!(said.contains("inode at offset") && said.contains("check the store"), "{said}");
}

#[test]
fn an_attached_store_is_not_checked() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    // A process that waits for an answer has the store attached.
    printed(["mkdir", &format!("{store}:/d")]);
    let mut command = support::command(None);
    let (input, keep) = std::io::pipe().unwrap();
    command.args(["rm", "-i", "-r", &format!("{store}:/d")]).stdin(input);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut question = [0; 10];
    std::io::Read::read_exact(child.stderr.as_mut().unwrap(), &mut question).unwrap();
    let said = refused(8, ["fsck", "-n", &store]);
    assert!(said.contains("somebody has it attached"), "{said}");
    let told = printed(["info", &store]);
    assert!(told.contains(&format!("attached by  process {}", child.id())), "{told}");
    drop(keep);
    assert!(support::wait(&mut child).success());
    printed(["fsck", "-n", &store]);
}

#[test]
fn manuals_and_completions_are_written() {
    let scratch = Scratch::new();
    let pages = scratch.join("man");
    printed(["man", pages.to_str().unwrap()]);
    let page = std::fs::read_to_string(pages.join("conquest-import.1")).unwrap();
    assert!(page.contains("Bring a tree of files into a store"), "{page}");
    assert!(pages.join("conquest.1").exists());
    assert!(!pages.join("conquest-demo-worker.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        assert!(printed(["completions", shell]).contains("import"), "{shell}");
    }
}

#[test]
fn the_machine_is_examined() {
    let told = conquest(["doctor"]);
    assert_eq!(text(&told.stderr), "");
    let told = text(&told.stdout);
    for check in ["kernel", "shared RAM", "huge pages", "trial", "FUSE"] {
        assert!(told.contains(check), "{told}");
    }
    assert!(told.contains("ok    trial"), "{told}");
}
