//! Mounting stores by the program, each time in a mount namespace of its own: this test program
//! again, which runs the one test that plays a part.
//!
//! Needs root, mount namespaces, FUSE and fusermount3; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::{FileType, Mode, makedev, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind};
use rustix::process::{Pid, Signal, kill_process};
use support::mounted::{await_that, ended, mounts, server};
use support::scene::{own_part, play};
use support::{USER, assert_quiet, conquest, conquest_as, finish, refused, text};

/// Bytes to which the stores of these tests may grow.
const SIZE: &str = "64M";

/// A part; nothing when tests are run.
#[test]
fn plays_a_part() {
    let Some((part, place)) = own_part() else { return };
    let place = Place::new(&place);
    match part.as_str() {
        "background" => background(&place),
        "names" => names(&place),
        "system" => system(&place),
        "foreground" => foreground(&place),
        "busy" => busy(&place),
        "killed" => killed(&place),
        "twice" => twice(&place),
        "locks" => locks(&place),
        "apart" => apart(&place),
        "strangers" => strangers(&place),
        "ordinary user" => ordinary_user(&place),
        other => panic!("no part {other}"),
    }
    place.end();
}

/// A store, and a directory to mount it at.
struct Place {
    root: PathBuf,
    store: String,
    point: String,
}

impl Place {
    fn new(root: &Path) -> Place {
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let (store, point) = (text("store"), text("mnt"));
        assert_quiet(&conquest(["mkfs", "-q", "--size-max", SIZE, &store]));
        Place { root: root.to_owned(), store, point }
    }

    fn mount(&self, options: &str) {
        assert_quiet(&conquest(["mount", "-o", options, &self.store, &self.point]));
    }

    fn umount(&self) {
        assert_quiet(&conquest(["umount", &self.point]));
        assert!(mounts(&self.point).is_empty());
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.point).join(name)
    }

    /// Nothing was lost, and nothing is left.
    fn end(&self) {
        assert!(mounts(&self.point).is_empty(), "still mounted");
        let checked = conquest(["fsck", "-n", &self.store]);
        assert!(checked.status.success(), "{checked:?}");
        assert_quiet(&conquest(["destroy", "--yes", &self.store]));
    }
}

#[test]
fn a_store_is_mounted_when_the_command_returns_and_gone_after_umount() {
    play("background");
}

fn background(place: &Place) {
    std::fs::write(place.file("beneath"), b"").unwrap();
    assert_quiet(&conquest(["mount", &place.store, &place.point]));
    let [source, kind, flags] = &mounts(&place.point)[0];
    assert_eq!([source, kind], [&place.store, "fuse.conquest"]);
    assert_eq!(flags, "rw,nosuid,nodev,relatime");
    // What was there is covered, as mount(8) does it.
    assert!(!place.file("beneath").exists());
    std::fs::write(place.file("file"), b"written").unwrap();
    let serving = server(&place.point);
    assert_eq!(text(&conquest(["cat", &format!("{}:/file", place.store)]).stdout), "written");
    let process = format!("/proc/{}", serving.as_raw_nonzero());
    place.umount();
    // Whoever has to bury it may take a while.
    assert!(std::fs::read_link(format!("{process}/exe")).is_err(), "the server is gone");
    assert!(place.file("beneath").exists() && !place.file("file").exists());
    std::fs::remove_file(place.file("beneath")).unwrap();
    let said = refused(1, ["mount", &place.store, "/nowhere"]);
    assert!(said.contains("/nowhere"), "{said}");
    let said = refused(1, ["mount", "/nowhere", &place.point]);
    assert!(said.contains("/nowhere"), "{said}");
}

#[test]
fn names_come_through_as_they_are() {
    play("names");
}

fn names(place: &Place) {
    for (option, shown) in [
        ("fsname=a\\,b c\\\\d", "a,b\\040c\\134d"),
        ("fsname=\"x,y\",noatime", "x,y"),
        ("fsname=\"two\nlines\"", "two\\012lines"),
    ] {
        place.mount(option);
        assert_eq!(mounts(&place.point)[0][0], shown);
        place.umount();
    }
}

#[test]
fn mount_and_umount_of_the_system_know_it() {
    play("system");
}

fn system(place: &Place) {
    // mount(8) looks for its helper in /sbin: one is put there, in this namespace.
    let sbin = std::fs::canonicalize("/sbin").unwrap();
    let [over, upper, work] = ["over", "over/upper", "over/work"].map(|name| place.root.join(name));
    std::fs::create_dir(&over).unwrap();
    mount("none", &over, "tmpfs", MountFlags::empty(), None).unwrap();
    [&upper, &work].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    let layers = [("lowerdir", &sbin), ("upperdir", &upper), ("workdir", &work)];
    let layers = layers.map(|(key, path)| format!("{key}={}", path.display())).join(",");
    let layers = std::ffi::CString::new(layers).unwrap();
    mount("none", &sbin, "overlay", MountFlags::empty(), Some(layers.as_c_str())).unwrap();
    let program = env!("CARGO_BIN_EXE_conquest");
    for name in ["mount.conquest", "mount.fuse.conquest"] {
        std::os::unix::fs::symlink(program, sbin.join(name)).unwrap();
    }
    let run = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        finish(command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let quiet = |words: &[&str]| assert_quiet(&run(words));
    let (store, point) = (place.store.as_str(), place.point.as_str());
    quiet(&["mount", "-t", "conquest", "-o", "noatime,nofail,x-systemd.automount", store, point]);
    assert_eq!(mounts(point)[0][1..], ["fuse.conquest", "rw,nosuid,nodev,noatime"]);
    std::fs::write(place.file("file"), b"").unwrap();
    quiet(&["mount", "-o", "remount,ro", point]);
    let refused = std::fs::write(place.file("file"), b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    quiet(&["umount", point]);
    await_that("the end of the mount", || mounts(point).is_empty());
    // As fstab(5) has it.
    let table = place.root.join("fstab");
    std::fs::write(&table, format!("{store} {point} conquest ro,allow_suid 0 0\n")).unwrap();
    quiet(&["mount", "-T", table.to_str().unwrap(), point]);
    assert_eq!(mounts(point)[0][2], "ro,nodev,relatime");
    quiet(&["umount", point]);
    let refused = run(&["mount", "-t", "conquest", "-o", "noatme", store, point]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("noatime"), "{refused:?}");
    rustix::mount::unmount(&sbin, UnmountFlags::DETACH).unwrap();
    rustix::mount::unmount(&over, UnmountFlags::DETACH).unwrap();
    // Whoever has served has detached by now, or soon.
    await_that("the store", || conquest(["fsck", "-n", store]).status.success());
}

#[test]
fn in_the_foreground_it_serves_until_it_is_asked_to_end() {
    play("foreground");
}

fn start(place: &Place, options: &[&str]) -> Child {
    let mut command = support::command(None);
    command.args(["mount", "-f"]).args(options).args([&place.store, &place.point]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    await_that("the mount", || !mounts(&place.point).is_empty());
    child
}

fn ask_to_end(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn foreground(place: &Place) {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let child = start(place, &[]);
        std::fs::write(place.file("secret"), b"x").unwrap();
        ask_to_end(&child, signal);
        let said = ended(child);
        assert!(said.contains("is mounted at") && said.contains("is unmounted"), "{said}");
        assert!(!said.contains("secret"), "{said}");
        assert!(mounts(&place.point).is_empty());
    }
}

#[test]
fn who_uses_it_is_waited_for_named_and_left_alone_at_first() {
    play("busy");
}

fn busy(place: &Place) {
    let child = start(place, &["--log-level", "debug"]);
    std::fs::write(place.file("open"), b"bytes").unwrap();
    let mut open = std::fs::File::open(place.file("open")).unwrap();
    ask_to_end(&child, Signal::TERM);
    await_that("the lazy unmounting", || mounts(&place.point).is_empty());
    // Who has it open has it still.
    let mut bytes = String::new();
    open.read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "bytes");
    // Asked again, it ends at once.
    ask_to_end(&child, Signal::TERM);
    let said = ended(child);
    let own = format!("process {}", std::process::id());
    assert!(said.contains(&own) && said.contains("/open"), "{said}");
    assert!(open.metadata().is_err() || open.read(&mut [0]).is_ok());
}

#[test]
fn what_was_acknowledged_survives_the_server() {
    play("killed");
}

fn killed(place: &Place) {
    place.mount("rw");
    std::fs::write(place.file("kept"), vec![7; 100_000]).unwrap();
    let serving = server(&place.point);
    kill_process(serving, Signal::KILL).unwrap();
    await_that("the end of the server", || {
        let refused = std::fs::metadata(place.file("kept"));
        refused.is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
    });
    place.umount();
    place.mount("rw");
    assert_eq!(std::fs::read(place.file("kept")).unwrap(), vec![7; 100_000]);
    place.umount();
}

#[test]
fn two_mounts_show_the_same() {
    play("twice");
}

fn twice(place: &Place) {
    let other = place.root.join("other");
    std::fs::create_dir(&other).unwrap();
    let second = other.to_str().unwrap();
    place.mount("rw");
    assert_quiet(&conquest(["mount", &place.store, second]));
    for round in 0..50 {
        let name = format!("f{round}");
        std::fs::write(place.file(&name), b"one").unwrap();
        assert_eq!(std::fs::read(other.join(&name)).unwrap(), b"one");
        std::fs::write(other.join(&name), b"three").unwrap();
        assert_eq!(std::fs::read(place.file(&name)).unwrap(), b"three");
        std::fs::remove_file(other.join(&name)).unwrap();
        assert!(!place.file(&name).exists());
    }
    assert_quiet(&conquest(["umount", second]));
    place.umount();
}

#[test]
fn locks_are_all_users_or_the_mounts_alone() {
    play("locks");
}

fn locks(place: &Place) {
    let is_listed = |number: u64| {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains(&format!(":{number} ")))
    };
    let store = conquest::Store::attach(Path::new(&place.store), &Default::default()).unwrap();
    let files = store.files().unwrap();
    for (options, is_local) in [("rw", false), ("local_locks", true)] {
        place.mount(options);
        let held = std::fs::File::create(place.file("locked")).unwrap();
        held.lock().unwrap();
        let other = std::fs::File::open(place.file("locked")).unwrap();
        assert!(other.try_lock().is_err(), "{options}");
        let by_library = files.open("/locked").unwrap();
        assert_eq!(by_library.try_lock().is_ok(), is_local, "{options}");
        assert_eq!(is_listed(held.metadata().unwrap().ino()), is_local, "{options}");
        by_library.close().unwrap();
        drop((held, other));
        place.umount();
    }
    drop(files);
    store.detach().unwrap();
}

#[test]
fn servers_in_pid_namespaces_of_their_own_share_a_core() {
    play("apart");
}

/// A server in a pid namespace of its own, where it is process 1. It is killed with its parent.
fn start_apart(place: &Place, point: &str) -> Child {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child=KILL", env!("CARGO_BIN_EXE_conquest")]);
    command.args(["mount", "-f", &place.store, point]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_that("the mount", || !mounts(point).is_empty());
    child
}

fn apart(place: &Place) {
    let other = place.root.join("other");
    std::fs::create_dir(&other).unwrap();
    let second = other.to_str().unwrap();
    let mut children = [start_apart(place, &place.point), start_apart(place, second)];
    std::fs::write(place.file("file"), b"one").unwrap();
    assert_eq!(std::fs::read(other.join("file")).unwrap(), b"one");
    std::fs::write(other.join("file"), b"two").unwrap();
    let held = std::fs::File::open(place.file("file")).unwrap();
    let waiting = std::fs::File::open(other.join("file")).unwrap();
    held.lock().unwrap();
    assert!(waiting.try_lock().is_err());
    // Each is process 1 where it is. That one is dead, the other one knows by the kernel.
    children[0].kill().unwrap();
    children[0].wait().unwrap();
    waiting.lock().unwrap();
    assert_eq!(std::fs::read(other.join("file")).unwrap(), b"two");
    for number in 0..100 {
        std::fs::write(other.join(number.to_string()), b"more").unwrap();
    }
    drop((held, waiting));
    assert_quiet(&conquest(["umount", &place.point]));
    assert_quiet(&conquest(["umount", second]));
    assert!(children[1].wait().unwrap().success());
}

#[test]
fn strangers_who_write_the_core_make_no_files_that_count() {
    play("strangers");
}

fn strangers(place: &Place) {
    let core = std::fs::canonicalize(Path::new(&place.store).join("core")).unwrap();
    let mode = |mode| std::fs::set_permissions(&core, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o666);
    for option in ["suid", "dev", "allow_other"] {
        let said = refused(1, ["mount", "-o", option, &place.store, &place.point]);
        assert!(said.contains(option) && said.contains("everybody can write it"), "{said}");
    }
    place.mount("rw");
    place.umount();
    mode(0o600);
    place.mount("suid,dev,allow_other");
    assert_eq!(mounts(&place.point)[0][2], "rw,relatime");
    place.umount();
}

#[test]
fn ordinary_users_mount_what_is_theirs() {
    play("ordinary user");
}

fn as_user(args: &[&str]) -> Output {
    conquest_as(Some(USER), args)
}

fn ordinary_user(place: &Place) {
    // Most machines let everybody open the device.
    let device = place.root.join("fuse");
    let mode = Mode::from_raw_mode(0o666);
    mknodat(rustix::fs::CWD, &device, FileType::CharacterDevice, mode, makedev(10, 229)).unwrap();
    std::fs::set_permissions(&device, PermissionsExt::from_mode(0o666)).unwrap();
    mount_bind(&device, "/dev/fuse").unwrap();
    let home = place.root.join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(USER), Some(USER)).unwrap();
    let [store, point] = ["store", "mnt"].map(|name| home.join(name).to_str().unwrap().to_owned());
    std::fs::create_dir(&point).unwrap();
    std::os::unix::fs::chown(&point, Some(USER), Some(USER)).unwrap();
    assert_quiet(&as_user(&["mkfs", "-q", "--size-max", SIZE, &store]));
    for option in ["suid", "dev"] {
        let refused = as_user(&["mount", "-o", option, &store, &point]);
        assert!(!refused.status.success() && text(&refused.stderr).contains(option), "{refused:?}");
    }
    assert_quiet(&as_user(&["mount", &store, &point]));
    let [source, kind, flags] = &mounts(&point)[0];
    assert_eq!([source, kind], [&store, "fuse.conquest"]);
    assert_eq!(flags, "rw,nosuid,nodev,relatime");
    // Nobody else gets in, not even root.
    let refused = std::fs::metadata(Path::new(&point).join("x")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    let mut touch = Command::new("setpriv");
    let user = USER.to_string();
    touch.args(["--reuid", &user, "--regid", &user, "--clear-groups", "touch"]);
    touch.arg(Path::new(&point).join("x"));
    assert_quiet(&finish(touch.stdout(Stdio::piped()).stderr(Stdio::piped())));
    assert_quiet(&as_user(&["umount", &point]));
    assert!(mounts(&point).is_empty());
    let listed = as_user(&["ls", &format!("{store}:/")]);
    assert_eq!(text(&listed.stdout), "x\n");
    assert_eq!(std::fs::metadata(&store).unwrap().uid(), USER);
    assert_quiet(&as_user(&["destroy", "--yes", &store]));
    rustix::mount::unmount("/dev/fuse", UnmountFlags::empty()).unwrap();
}
