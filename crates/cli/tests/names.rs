//! The program under the names by which mount(8), mkfs(8) and fsck(8) call it.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::{Scratch, assert_quiet, conquest, finish, need_root, text};

/// Runs the program as `name`, with `args`, in `scratch`.
fn called(scratch: &Scratch, name: &str, args: &[&str]) -> Output {
    let link = scratch.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_conquest"), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.args(args).current_dir(scratch.path()).stdin(Stdio::null());
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// It ended with exit code `code`; what it said.
#[track_caller]
fn ended(code: i32, output: &Output) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    text(&output.stderr)
}

fn destroy(store: &Path) {
    assert_quiet(&conquest(["destroy", "--yes", store.to_str().unwrap()]));
}

#[test]
fn stores_are_made_for_mkfs() {
    let scratch = Scratch::new();
    let mkfs = |args: &[&str]| called(&scratch, "mkfs.conquest", args);
    let store = scratch.join("store");
    assert_quiet(&mkfs(&["-n", "store"]));
    assert!(!store.exists());
    for (args, part) in [
        (&["-L", "name", "store"][..], "stores have no labels"),
        (&["-U", "5b0b", "store"], "can't be chosen"),
        (&["-n", "none/store"], "none/store: the directory that it is to be in is not there"),
        (&["-n", "."], ".: Directory not empty"),
        (&["-Q", "store"], "unexpected argument"),
        (&[], "required"),
    ] {
        let said = ended(1, &mkfs(args));
        assert!(said.contains(part), "{args:?}: {said}");
        assert!(!store.exists());
    }
    assert_quiet(&mkfs(&["-q", "-U", "random", "--size-max", "64M", "store"]));
    for args in [&["store"][..], &["-n", "store"]] {
        let said = ended(1, &mkfs(args));
        assert!(said.contains("holds a store already"), "{said}");
    }
    assert_quiet(&mkfs(&["-nf", "store"]));
    assert_quiet(&mkfs(&["-fq", "--size-max", "64M", "store"]));
    destroy(&store);
}

#[test]
fn stores_are_checked_for_fsck() {
    let scratch = Scratch::new();
    let fsck = |args: &[&str]| called(&scratch, "fsck.conquest", args);
    let (one, two) = (scratch.store("one"), scratch.store("two"));
    for args in [&["-a", "one"][..], &["-pfv", "-C0", "one"], &["-y", "one", "two"], &["-n", "two"]]
    {
        let output = fsck(args);
        ended(0, &output);
        assert!(text(&output.stdout).ends_with("consistent\n"), "{output:?}");
    }
    let said = ended(8, &fsck(&["-a", "none", "one"]));
    assert!(said.contains("none: "), "{said}");
    ended(16, &fsck(&["-a", "-n", "one"]));
    ended(16, &fsck(&[]));
    let said = ended(16, &fsck(&["-C77", "one"]));
    assert!(said.contains("name an open descriptor"), "{said}");
    let lines = scratch.join("lines");
    let script = "exec ./fsck.conquest -C3 one 3>lines";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(scratch.path());
    ended(0, &finish(command.stdout(Stdio::piped()).stderr(Stdio::piped())));
    let lines = std::fs::read_to_string(lines).unwrap();
    assert!(lines.lines().all(|line| line.starts_with("1 ") && line.ends_with(" 100 one")));
    assert!(lines.contains("1 100 100 one\n"), "{lines}");
    destroy(one.as_ref());
    destroy(two.as_ref());
}

#[test]
fn what_mount_asks_for_is_looked_at_first() {
    let scratch = Scratch::new();
    let mount = |args: &[&str]| called(&scratch, "mount.conquest", args);
    let store = scratch.store("store");
    std::fs::create_dir(scratch.join("dir")).unwrap();
    assert_quiet(&mount(&["store", "dir", "-f", "-n", "-o", "rw,noatime,user=me,x-a=b"]));
    assert_quiet(&mount(&["store:/", "dir", "-sf", "-o", "compress", "-t", "conquest"]));
    let said = ended(0, &mount(&["store", "dir", "-fv"]));
    assert_eq!(said, "mount.conquest: mounting the store store at dir\n");
    for (code, args, part) in [
        (1, &["store", "dir", "-f", "-o", "noatme"][..], "unknown (did you mean noatime?)"),
        (1, &["store", "dir", "-f", "-t", "tmpfs"], "type tmpfs: not ours"),
        (1, &["store"], "required"),
        (2, &["store", "dir", "-f", "-N", "none"], "namespace none: No such file or directory"),
        (32, &["store", "none", "-f"], "none: No such file or directory (make the mount point"),
        (32, &["store", "mount.conquest", "-f"], "not a directory"),
        (32, &["none", "dir", "-f"], "none: No such file or directory"),
    ] {
        let said = ended(code, &mount(args));
        assert!(said.contains(part), "{args:?}: {said}");
    }
    destroy(store.as_ref());
}

#[test]
fn mounts_are_made_in_another_namespace() {
    need_root();
    let scratch = Scratch::new();
    let store = scratch.store("store");
    std::fs::create_dir(scratch.join("dir")).unwrap();
    let script = "mount -t tmpfs none dir && mkdir dir/point && echo there && exec sleep 300";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).current_dir(scratch.path()).stdout(Stdio::piped());
    let mut other = command.spawn().unwrap();
    let mut there = [0; 6];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut there).unwrap();
    let point = scratch.join("dir/point").to_str().unwrap().to_owned();
    let number = other.id().to_string();
    let inside = called(&scratch, "mount.conquest", &[&store, &point, "-f", "-N", &number]);
    let outside = called(&scratch, "mount.conquest", &[&store, &point, "-f"]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_quiet(&inside);
    ended(32, &outside);
    destroy(store.as_ref());
}

#[test]
fn help_is_no_failure() {
    let scratch = Scratch::new();
    for name in ["mount.conquest", "mount.fuse.conquest", "mkfs.conquest", "fsck.conquest"] {
        let output = called(&scratch, name, &["--help"]);
        assert_quiet(&output);
        assert!(text(&output.stdout).contains(&format!("Usage: {name}")), "{output:?}");
    }
}
