//! Taking mounts away. What is mounted is a file system of FUSE of the test's, in a mount namespace
//! of its own: this test program again, which runs the one test that plays a part.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::ffi::CStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};
use support::scene::{own_part, part, play};
use support::{LIMIT, USER, assert_quiet, conquest, finish, refused, text};

/// How long a server takes to end, in the part that is slow.
const SLOW: Duration = Duration::from_millis(1500);

/// A part; nothing when tests are run.
#[test]
fn plays_a_part() {
    let Some((part, place)) = own_part() else { return };
    match part.as_str() {
        "server" => support::fuse::serve(&place.join("mnt"), &place.join("ready")),
        "slow server" => {
            support::fuse::serve(&place.join("mnt"), &place.join("ready"));
            std::thread::sleep(SLOW);
        }
        "waiting" => waiting(&place),
        "busy" => busy(&place),
        "dead" => dead(&place),
        "twice" => twice(&place),
        "remount" => remount(&place),
        "ordinary user" => ordinary_user(&place),
        other => panic!("no part {other}"),
    }
}

/// A mount at `mnt`, and who serves it.
struct Mounted {
    server: Child,
    point: String,
}

impl Mounted {
    fn new(place: &Path, server: &str) -> Mounted {
        let mut command = part(&[], server, place);
        let mut server = command.stdout(Stdio::null()).spawn().unwrap();
        let point = place.join("mnt");
        let ready = place.join("ready");
        let begin = Instant::now();
        while !ready.exists() {
            assert!(begin.elapsed() < LIMIT && server.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(2));
        }
        std::fs::remove_file(ready).unwrap();
        Mounted { server, point: point.to_str().unwrap().to_owned() }
    }

    fn has_ended(&mut self) -> bool {
        self.server.try_wait().unwrap().is_some()
    }

    fn is_there(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().any(|line| line.split(' ').nth(4) == Some(&self.point))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A process that does nothing in `directory`.
fn user_in(directory: &str) -> Child {
    Command::new("sleep").arg("300").current_dir(directory).spawn().unwrap()
}

#[test]
fn it_returns_when_the_server_has_ended() {
    play("waiting");
}

fn waiting(place: &Path) {
    let mut mounted = Mounted::new(place, "slow server");
    let begin = Instant::now();
    let mut command = support::command(None);
    command.args(["umount", "."]).current_dir(&mounted.point);
    assert_quiet(&finish(command.stdout(Stdio::piped()).stderr(Stdio::piped())));
    assert!(begin.elapsed() >= SLOW, "{:?}", begin.elapsed());
    assert!(!mounted.is_there() && mounted.has_ended());
    let said = refused(1, ["umount", &mounted.point]);
    assert_eq!(said, format!("conquest: umount: {}: not a mount point\n", mounted.point));
}

#[test]
fn users_are_named() {
    play("busy");
}

fn busy(place: &Path) {
    let mut mounted = Mounted::new(place, "server");
    let mut user = user_in(&mounted.point);
    let open = std::fs::File::open(&mounted.point).unwrap();
    let own = std::process::id();
    let said = refused(1, ["umount", &mounted.point]);
    let point = &mounted.point;
    let head = format!("{point}: in use (end its users, or use --lazy");
    let line = format!("\n  process {} (sleep, of root): working directory {point}\n", user.id());
    assert!(said.contains(&head) && said.contains(&line), "{said}");
    assert!(said.contains(&format!("process {own} (")), "{said}");
    assert!(said.contains(&format!("): open file {point}\n")), "{said}");
    assert!(mounted.is_there());
    drop(open);
    let beneath = format!("{point}/beneath");
    let none = MountFlags::empty();
    rustix::mount::mount("none", beneath.as_str(), "tmpfs", none, None::<&CStr>).unwrap();
    let said = refused(1, ["umount", point]);
    assert!(said.contains(&format!("\n  a mount beneath it: {beneath}\n")), "{said}");
    rustix::mount::unmount(beneath.as_str(), UnmountFlags::empty()).unwrap();
    assert_quiet(&conquest(["umount", "--lazy", point]));
    assert!(!mounted.is_there() && !mounted.has_ended());
    user.kill().unwrap();
    user.wait().unwrap();
    support::wait(&mut mounted.server);
}

#[test]
fn mounts_without_a_server_are_taken_away() {
    play("dead");
}

fn dead(place: &Path) {
    let mut mounted = Mounted::new(place, "server");
    let file = place.join("file");
    std::fs::write(&file, "").unwrap();
    let link = place.join("link");
    std::os::unix::fs::symlink("mnt", &link).unwrap();
    mounted.server.kill().unwrap();
    mounted.server.wait().unwrap();
    let said = refused(1, ["mount", place.to_str().unwrap(), &mounted.point]);
    assert!(said.contains("has lost its server (conquest umount it first)"), "{said}");
    for (path, part) in [
        ("link", "a symbolic link (name the directory: mnt)"),
        ("file", "not a mount point"),
        ("none", "No such file or directory"),
    ] {
        let said = refused(1, ["umount", place.join(path).to_str().unwrap()]);
        assert!(said.contains(part), "{said}");
    }
    let said = refused(1, ["umount", "/proc"]);
    assert!(said.contains("/proc: a mount of proc, not of Conquest (use umount(8))"), "{said}");
    assert_quiet(&conquest(["umount", &format!("{}/", mounted.point)]));
    assert!(!mounted.is_there());
}

#[test]
fn only_the_topmost_mount_is_taken_away() {
    play("twice");
}

fn twice(place: &Path) {
    let mut first = Mounted::new(place, "server");
    let mut second = Mounted::new(place, "server");
    let other = place.join("other");
    std::fs::create_dir(&other).unwrap();
    rustix::mount::mount_bind(second.point.as_str(), &other).unwrap();
    let output = conquest(["umount", &second.point]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains(&format!("still mounted at {}", other.display())), "{said}");
    assert!(first.is_there() && !second.has_ended());
    assert_quiet(&conquest(["umount", other.to_str().unwrap()]));
    assert!(second.has_ended() && !first.has_ended());
    assert_quiet(&conquest(["umount", &first.point]));
    assert!(first.has_ended() && !first.is_there());
}

#[test]
fn flags_of_a_mount_are_changed() {
    play("remount");
}

fn remount(place: &Path) {
    let mounted = Mounted::new(place, "server");
    let flags = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains(&mounted.point)).unwrap();
        line.split(' ').nth(5).unwrap().to_owned()
    };
    assert_eq!(flags(), "rw,relatime");
    assert_quiet(&conquest(["mount", "-o", "remount,ro,noatime", "store", &mounted.point]));
    assert_eq!(flags(), "ro,nosuid,nodev,noatime");
    assert_quiet(&conquest(["mount", "-o", "remount,rw,suid", "store", &mounted.point]));
    assert_eq!(flags(), "rw,nodev,relatime");
    assert_quiet(&conquest(["umount", &mounted.point]));
}

#[test]
fn ordinary_users_unmount_by_fusermount() {
    play("ordinary user");
}

fn ordinary_user(place: &Path) {
    let mounted = Mounted::new(place, "server");
    let programs = place.join("programs");
    std::fs::create_dir(&programs).unwrap();
    let unmount = || {
        let mut command = support::command(Some(USER));
        command.env("PATH", format!("{}:/bin:/usr/bin", programs.display()));
        if !programs.join("fusermount3").exists() {
            command.env("PATH", &programs);
        }
        command.args(["umount", &mounted.point]);
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let said = unmount();
    assert!(said.contains("install the package fuse3"), "{said}");
    let helper = |script: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = programs.join("fusermount3");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\nexit 1\n")).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    };
    helper("echo \"got $*\" >&2");
    let said = unmount();
    assert!(said.contains(&format!("fusermount3 refuses: got -u -- {}", mounted.point)), "{said}");
    helper("echo 'fusermount3: failed to unmount: Device or resource busy' >&2");
    let said = unmount();
    assert!(said.contains("in use (end its users"), "{said}");
    assert!(said.contains("perhaps processes of others, which only root may look into"), "{said}");
    assert_quiet(&conquest(["umount", &mounted.point]));
}
