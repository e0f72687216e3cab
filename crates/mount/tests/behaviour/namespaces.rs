//! Users in other namespaces, and mounts that map ids: whose files are, and what one may do.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use conquest::{Acl, AclEntry, Qualifier};
use conquest_peers::machine::{enter_user_namespace, in_child, unshare_processes};
use conquest_peers::mounts::{mount_mapped, unmount};
use conquest_peers::sys::{self, HERE, Privileges, Record};

use crate::support::actor::Actor;
use crate::support::{ALICE, SOON, as_user, both, done, io, told};

/// Where ids 0 to 999 of the namespace are outside.
const BASE: u32 = 100_000;

fn owner(name: &str) -> String {
    io(std::fs::symlink_metadata(name).map(|found| (found.uid(), found.gid())))
}

/// Does `work` as root and process 1 of namespaces of its own.
fn as_root_inside(work: impl FnOnce() -> String) -> String {
    in_child(SOON, || {
        let map = format!("0 {BASE} 1000\n");
        enter_user_namespace(&File::open("/proc").unwrap(), &map, &map);
        unshare_processes();
        in_child(SOON, || {
            assert_eq!(std::process::id(), 1);
            Privileges::take().become_root();
            work()
        })
    })
}

fn new_file(name: &str) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(name).unwrap()
}

#[test]
fn root_of_a_user_namespace_owns_what_is_mapped() {
    both(|bench| {
        sys::chmod(c".", 0o777, 0).unwrap();
        for (name, owner) in [("outer", 0), ("mapped", BASE + 5), ("mine", BASE)] {
            std::fs::write(name, name).unwrap();
            std::os::unix::fs::chown(name, Some(owner), Some(owner)).unwrap();
        }
        let inside = as_root_inside(|| {
            let chown = |name, uid| done(sys::chown(name, Some(uid), None, 0));
            let mut said = vec![owner("outer"), owner("mapped"), owner("mine")];
            std::fs::write("new", "content").unwrap();
            std::fs::create_dir("new directory").unwrap();
            said.extend([owner("new"), owner("new directory")]);
            said.extend([chown(c"mine", 7), chown(c"mapped", 8), chown(c"new", 5000)]);
            said.extend([chown(c"outer", 0), chown(c"outer", 7)]);
            said.push(done(sys::chmod(c"mapped", 0o604, 0)));
            said.push(done(sys::chmod(c"outer", 0o666, 0)));
            said.push(io(std::fs::write("outer", "changed")));
            said.push(io(std::fs::write("mapped", "changed")));
            said.push(done(sys::set_xattr(c"mine", "trusted.name", b"", 0)));
            said.push(done(sys::set_xattr(c"mine", "user.name", b"value", 0)));
            said.push(done(sys::make_node(HERE, c"device", libc::S_IFCHR | 0o600, 0x103)));
            said.push(done(sys::make_node(HERE, c"fifo", libc::S_IFIFO | 0o600, 0)));
            let list = [
                (Qualifier::Owner, 6),
                (Qualifier::User(5), 6),
                (Qualifier::OwningGroup, 4),
                (Qualifier::Mask, 7),
                (Qualifier::Other, 0),
            ]
            .map(|(qualifier, permissions)| AclEntry { qualifier, permissions });
            let list = Acl::new(list).unwrap().to_xattr();
            let name = "system.posix_acl_access";
            said.push(done(sys::set_xattr(c"mine", name, &list, 0)));
            assert_eq!(sys::get_xattr(c"mine", name), Ok(list));
            said.join("\n")
        });
        bench.say("inside", inside);
        let names = ["outer", "mapped", "mine", "new", "new directory", "fifo"];
        bench.say("outside", names.map(owner));
        bench.say("list outside", told(sys::get_xattr(c"mine", "system.posix_acl_access")));
        let mode = |name: &str| std::fs::metadata(name).unwrap().mode();
        bench.say("modes", names.map(mode));
        assert_eq!(owner("new"), format!("{:?}", (BASE, BASE)));
    });
}

#[test]
fn who_has_no_number_inside_is_who_he_is_outside() {
    both(|bench| {
        sys::chmod(c".", 0o777, 0).unwrap();
        sys::set_xattr(c".", "trusted.secret", b"", 0).unwrap();
        sys::set_xattr(c".", "user.open", b"", 0).unwrap();
        let said = in_child(SOON, || {
            // Its own user is mapped to nothing.
            let map = format!("1 {BASE} 1000\n");
            enter_user_namespace(&File::open("/proc").unwrap(), &map, &map);
            let made = sys::open(HERE, c"file", libc::O_WRONLY | libc::O_CREAT, 0o600);
            let directory = sys::make_directory(HERE, c"directory", 0o700);
            format!("{} {} {}", done(made), done(directory), told(sys::list_xattrs(c".")))
        });
        bench.say("inside", said);
        assert_eq!(["file", "directory"].map(owner), ["(0, 0)", "(0, 0)"]);
    });
}

/// A process that locks a part of a file when it is told, and keeps it.
fn holder(name: &'static str, record: Record) -> Actor {
    let mut kept = Vec::new();
    Actor::new(move |_| {
        let file = new_file(name);
        let locked = done(sys::record(&file, libc::F_SETLK, record));
        kept.push(file);
        locked
    })
}

#[test]
fn holders_of_locks_are_told_by_the_numbers_of_who_asks() {
    both(|bench| {
        sys::chmod(c".", 0o777, 0).unwrap();
        let write = Record { kind: libc::F_WRLCK, offset: 5, len: 1 };
        let test = Record { kind: libc::F_WRLCK, offset: 0, len: 0 };
        let outer = holder("locked", write);
        bench.say("locked", outer.ask(""));
        let inside = as_root_inside(|| {
            // A process of its own, whose number is known inside.
            let inner = holder("other", write);
            sys::umask(0);
            let locked = inner.ask("");
            let other = new_file("other");
            let found = told(sys::record(&other, libc::F_GETLK, test));
            format!("{locked} {found}")
        });
        bench.say("inside", inside);
        let read = sys::open(HERE, c"locked", libc::O_RDWR, 0).unwrap();
        let (_, pid) = sys::record(&read, libc::F_GETLK, test).unwrap().unwrap();
        assert_eq!(pid.cast_unsigned(), outer.number());
        let asked = as_root_inside(|| {
            let file = sys::open(HERE, c"locked", libc::O_RDONLY, 0).unwrap();
            told(sys::record(&file, libc::F_GETLK, test))
        });
        bench.say("one who is not seen inside", asked);
    });
}

#[test]
fn a_mount_with_mapped_ids_has_them() {
    both(|bench| {
        // The namespace whose maps are used: what is 1000 here is 2000 there.
        let keeper = Actor::new(|_| {
            let map = "0 0 1\n1000 2000 10\n";
            enter_user_namespace(&File::open("/proc").unwrap(), map, map);
            "done".into()
        });
        keeper.ask("");
        let ids = File::open(format!("/proc/{}/ns/user", keeper.number())).unwrap();
        std::fs::create_dir_all("tree/directory").unwrap();
        sys::chmod(c"tree", 0o777, 0).unwrap();
        std::fs::create_dir("mapped").unwrap();
        for (name, owner) in [("tree/of alice", ALICE), ("tree/of root", 0), ("tree/of none", 7)] {
            std::fs::write(name, "").unwrap();
            std::os::unix::fs::chown(name, Some(owner), Some(owner)).unwrap();
        }
        let here = std::env::current_dir().unwrap();
        let at = here.join("mapped");
        bench.say("mount", mount_mapped(Path::new("tree"), &at, &ids));
        bench.say(
            "seen",
            ["of alice", "of root", "of none"].map(|name| owner(&format!("mapped/{name}"))),
        );
        for user in [2000, 2001, ALICE, 0] {
            let made = as_user(user, &[user], || {
                let name = format!("mapped/by {user}");
                let made = std::fs::write(&name, "").map(drop);
                let directory = std::fs::create_dir(format!("{name} directory"));
                let opened = File::options().write(true).open("mapped/of alice").map(drop);
                format!("{} {} {} {}", io(made), io(directory), io(opened), owner(&name))
            });
            bench.say(&format!("by {user}"), made);
            bench.say("is of", owner(&format!("tree/by {user}")));
            bench.say("directory", owner(&format!("tree/by {user} directory")));
        }
        let given = |id| done(sys::chown(c"mapped/of root", Some(id), Some(id), 0));
        bench.say("given", [given(2005), given(1005)]);
        bench.say("is of", owner("tree/of root"));
        let temporary = as_user(2000, &[2000], || {
            let made = sys::open(HERE, c"mapped", libc::O_TMPFILE | libc::O_RDWR, 0o600);
            io(made.unwrap().metadata().map(|found| (found.uid(), found.gid())))
        });
        bench.say("a temporary file", temporary);
        assert_eq!(owner("mapped/of alice"), "(2000, 2000)");
        assert_eq!(owner("tree/by 2000"), "(1000, 1000)");
        assert_eq!(unmount(&at, false), Ok(()));
    });
}
