//! Stores in other containers, of other users, and where there is no space.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use conquest::{Attach, Error, NewStore, SaveOptions, Store, restore, save};
use support::{
    Temporary, attach, check, child, core_of, ends_well, filled, forced, names, private, roles,
    small, text, tree,
};

/// Nobody's number on every system.
const NOBODY: u32 = 65_534;

#[test]
fn as_child() {
    roles::as_child();
}

// --- containers ----------------------------------------------------------------------------------

/// A child with `role` in a mount namespace of its own, after the shell commands `first`.
fn after(first: &str, role: &[&str]) -> Child {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(format!("{first} && exec \"$0\" \"$@\""));
    let inner = child(role);
    command.arg(inner.get_program());
    like(command, &inner).spawn().unwrap()
}

/// The command with arguments, environment and output like those of `inner`.
fn like(mut command: Command, inner: &Command) -> Command {
    command.args(inner.get_args()).stdout(Stdio::null());
    for (name, value) in inner.get_envs() {
        command.env(name, value.unwrap());
    }
    command
}

/// A child with `role` in a container whose `/dev/shm` is another one.
fn in_container(role: &[&str]) -> Child {
    after("mount -t tmpfs -o size=64m tmpfs /dev/shm", role)
}

#[test]
fn another_container_with_a_memory_of_its_own_gets_no_second_core() {
    let place = Temporary::on_disk("container");
    let directory = place.path().join("store");
    let before = filled(&directory);
    assert!(ends_well(in_container(&["gone", text(&directory)])));
    assert_eq!(tree(attach(&directory).fs()), before);
    // One that was made there is unknown here.
    let theirs = place.path().join("theirs");
    assert!(ends_well(in_container(&["make", text(&theirs)])));
    let gone = Store::attach(&theirs, &Attach::default()).unwrap_err();
    assert!(matches!(gone, Error::CoreGone { .. }), "{gone}");
    assert!(ends_well(in_container(&["gone", text(&theirs)])));
}

#[test]
fn a_core_at_the_same_path_of_another_container_is_foreign() {
    let place = Temporary::on_disk("same-path");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    filled(&directory);
    let core = core_of(&directory);
    std::fs::copy(&core, &copy).unwrap();
    let first = format!(
        "mount -t tmpfs -o size=64m tmpfs /dev/shm && mkdir -m 700 {} && cp {} {}",
        private().display(),
        copy.display(),
        core.display(),
    );
    assert!(ends_well(after(&first, &["foreign", text(&directory)])));
    check(attach(&directory).fs());
}

// --- other users ---------------------------------------------------------------------------------

/// A child with `role` that is nobody.
fn as_nobody(place: &Temporary, role: &[&str]) -> Child {
    as_user(place, NOBODY, NOBODY, role)
}

/// A child with `role` that is this user, of this group only.
fn as_user(place: &Temporary, user: u32, group: u32, role: &[&str]) -> Child {
    // Wherever this program is, nobody may not be allowed to go there.
    let program = place.path().join("program");
    if !program.exists() {
        // Copied by another process: a child that another test makes just then would have the file
        // open for writing, and it could not be executed.
        let mut copy = Command::new("cp");
        copy.arg(std::env::current_exe().unwrap()).arg(&program);
        assert!(copy.status().unwrap().success());
        open_to_all(place.path());
    }
    let mut command = like(Command::new(program), &child(role));
    command.uid(user).gid(group).spawn().unwrap()
}

/// The private directory of a user whom only one test knows: gone at the end, however that is.
struct Private(PathBuf);

impl Private {
    fn of(user: u32) -> Private {
        Private(PathBuf::from(format!("/dev/shm/conquest-{user}")))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o1777)).unwrap();
}

#[test]
fn an_ordinary_user_has_stores_of_his_own_and_none_of_others() {
    let place = Temporary::on_disk("user");
    let _private = Private::of(NOBODY);
    open_to_all(place.path());
    let (theirs, mine) = (place.path().join("theirs"), place.path().join("mine"));
    Store::make(&mine, &small()).unwrap();
    assert!(ends_well(as_nobody(&place, &["denied", text(&mine)])));
    assert!(ends_well(as_nobody(&place, &["make", text(&theirs)])));
    assert!(ends_well(as_nobody(&place, &["write", text(&theirs), "file"])));
    let copy = place.path().join("copy");
    assert!(ends_well(as_nobody(&place, &["save", text(&theirs), text(&copy)])));
    assert!(ends_well(as_nobody(&place, &["restore", text(&copy), text(&theirs)])));
    // Root may do everything, and takes nothing away by it.
    let store = attach(&theirs);
    assert_eq!(names(store.fs()), ["file"]);
    store.detach().unwrap();
    restore(&copy, &theirs, forced()).unwrap();
    assert!(ends_well(as_nobody(&place, &["write", text(&theirs), "more"])));
    assert_eq!(names(attach(&theirs).fs()).len(), 2);
}

#[test]
fn who_is_of_a_stores_group_shares_it_if_it_is_shared() {
    use std::os::unix::fs::MetadataExt;
    let place = Temporary::on_disk("group");
    open_to_all(place.path());
    // Users whom no other test knows.
    let (owner, member, group) = (NOBODY - 11, NOBODY - 12, NOBODY - 13);
    let private = Private::of(owner);
    let (shared, own) = (place.path().join("shared"), place.path().join("own"));
    for (directory, mode) in [(&own, 0o600), (&shared, 0o660)] {
        let new = NewStore { owner: Some((owner, group)), mode, ..small() };
        Store::make(directory, &new).unwrap();
        assert!(ends_well(as_user(&place, owner, group, &["write", text(directory), "mine"])));
    }
    assert_eq!(std::fs::metadata(&private.0).unwrap().mode() & 0o777, 0o710);
    assert!(ends_well(as_user(&place, member, group, &["write", text(&shared), "ours"])));
    assert!(ends_well(as_user(&place, member, group, &["denied", text(&own)])));
    assert!(ends_well(as_user(&place, member, NOBODY, &["denied", text(&shared)])));
    assert_eq!(names(attach(&shared).fs()).len(), 2);
}

#[test]
fn a_private_directory_that_is_not_private_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Temporary::on_disk("untrusted");
    open_to_all(place.path());
    let directory = place.path().join("store");
    // The number of nobody's neighbour, so that no other test meets this.
    let user = NOBODY - 7;
    let guard = Private::of(user);
    let private = &guard.0;
    let make = |what: &str| {
        let new = NewStore { owner: Some((user, user)), ..small() };
        let error = Store::make(&directory, &new).unwrap_err();
        assert!(matches!(error, Error::NoPlace { .. }), "{what}: {error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
        assert!(!directory.exists());
    };
    // Somebody else's.
    std::fs::create_dir(private).unwrap();
    make("belongs to user 0");
    // His own, but open.
    std::os::unix::fs::chown(private, Some(user), Some(user)).unwrap();
    std::fs::set_permissions(private, std::fs::Permissions::from_mode(0o777)).unwrap();
    make("let others");
    std::fs::remove_dir(private).unwrap();
    // A link to a directory that would be right.
    let right = place.path().join("right");
    std::fs::create_dir(&right).unwrap();
    std::os::unix::fs::chown(&right, Some(user), Some(user)).unwrap();
    std::fs::set_permissions(&right, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&right, private).unwrap();
    make("no directory");
    std::fs::remove_file(private).unwrap();
    assert_eq!(std::fs::read_dir(&right).unwrap().count(), 0);
}

// --- no space ------------------------------------------------------------------------------------

/// A child with `role`, for which there is a file system of `size` at `at`.
fn with_space(at: &Path, size: &str, role: &[&str]) -> Child {
    std::fs::create_dir_all(at).unwrap();
    after(&format!("mount -t tmpfs -o size={size} tmpfs {}", at.display()), role)
}

#[test]
fn without_space_nothing_half_is_left() {
    let place = Temporary::on_disk("full");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let before = filled(&directory);
    let small = place.path().join("small");
    let role = ["full save", text(&directory), text(&small)];
    assert!(ends_well(with_space(&small, "3m", &role)));
    let role = ["full make", text(&small)];
    assert!(ends_well(with_space(&small, "3m", &role)));
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let role = ["full restore", text(&copy), text(&directory), text(&small)];
    assert!(ends_well(with_space(&small, "3m", &role)));
    assert_eq!(tree(attach(&directory).fs()), before);
    let role = ["full store", text(&small)];
    assert!(ends_well(with_space(&small, "8m", &role)));
}
