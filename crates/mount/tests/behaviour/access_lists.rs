//! Access lists: who may do what by them, and what becomes of them.

use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;

use conquest::{Acl, AclEntry, Qualifier};
use conquest_peers::sys::{self, HERE};

use crate::support::bench::Bench;
use crate::support::{ALICE, BOB, as_user, both, done, told};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// Somebody of no list.
const CAROL: u32 = 1002;
/// A group.
const STAFF: u32 = 2000;

fn list(entries: &[(Qualifier, u16)]) -> Vec<u8> {
    let entries = entries.iter().map(|(qualifier, permissions)| AclEntry {
        qualifier: *qualifier,
        permissions: *permissions,
    });
    Acl::new(entries).unwrap().to_xattr()
}

/// A list for Bob and the staff.
fn both_named(mask: u16) -> Vec<u8> {
    list(&[
        (Qualifier::Owner, 6),
        (Qualifier::User(BOB), 6),
        (Qualifier::OwningGroup, 4),
        (Qualifier::Group(STAFF), 5),
        (Qualifier::Mask, mask),
        (Qualifier::Other, 0),
    ])
}

fn mode(name: &str) -> u32 {
    std::fs::metadata(name).unwrap().mode()
}

/// Who may read, write and execute.
fn say_access(bench: &Bench, name: &CStr) {
    for (user, groups) in [
        (ALICE, &[ALICE][..]),
        (BOB, &[BOB]),
        (CAROL, &[CAROL]),
        (CAROL, &[CAROL, STAFF]),
        (0, &[0]),
    ] {
        let can = as_user(user, groups, || {
            let access = [4, 2, 1, 5, 6].map(|what| done(sys::access(name, what)));
            let open =
                [libc::O_RDONLY, libc::O_RDWR].map(|how| done(sys::open(HERE, name, how, 0)));
            format!("{access:?} {open:?}")
        });
        bench.say(&format!("user {user} of {groups:?}"), can);
    }
}

#[test]
fn named_users_and_groups_have_what_the_list_gives() {
    both(|bench| {
        std::fs::write("file", "content").unwrap();
        sys::chown(c"file", Some(ALICE), Some(ALICE), 0).unwrap();
        say_access(bench, c"file");
        for mask in [7, 6, 4, 0] {
            bench.say("set", done(sys::set_xattr(c"file", ACCESS, &both_named(mask), 0)));
            bench.say("mode", mode("file"));
            bench.say("list", told(sys::get_xattr(c"file", ACCESS)));
            say_access(bench, c"file");
        }
        for permissions in [0o670, 0o604, 0o777] {
            sys::chmod(c"file", permissions, 0).unwrap();
            bench.say("list after chmod", told(sys::get_xattr(c"file", ACCESS)));
            bench.say("mode", mode("file"));
            say_access(bench, c"file");
        }
        bench.say("names", told(sys::list_xattrs(c"file")));
        let by = |user: u32| {
            as_user(user, &[user], || done(sys::set_xattr(c"file", ACCESS, &both_named(7), 0)))
        };
        bench.say("set by the owner", by(ALICE));
        bench.say("set by another one", by(BOB));
        bench.say("removed", done(sys::remove_xattr(c"file", ACCESS)));
        bench.say("again", done(sys::remove_xattr(c"file", ACCESS)));
        bench.say("mode", mode("file"));
        // A list that says no more than a mode is none.
        let plain = [(Qualifier::Owner, 7), (Qualifier::OwningGroup, 5), (Qualifier::Other, 1)];
        bench.say("plain", done(sys::set_xattr(c"file", ACCESS, &list(&plain), 0)));
        bench.say("mode", (mode("file"), told(sys::get_xattr(c"file", ACCESS))));
        bench.say("default of a file", done(sys::set_xattr(c"file", DEFAULT, &list(&plain), 0)));
        bench.say("nonsense", done(sys::set_xattr(c"file", ACCESS, b"\x02\0\0\0nonsense", 0)));
        bench.say("nothing", done(sys::set_xattr(c"file", ACCESS, b"", 0)));
    });
}

#[test]
fn default_lists_are_inherited_and_the_umask_is_not() {
    both(|bench| {
        std::fs::create_dir("directory").unwrap();
        sys::chmod(c"directory", 0o777, 0).unwrap();
        bench.say("set", done(sys::set_xattr(c"directory", DEFAULT, &both_named(7), 0)));
        bench.say("mode", (mode("directory"), told(sys::list_xattrs(c"directory"))));
        sys::umask(0o077);
        let flags = libc::O_WRONLY | libc::O_CREAT;
        sys::open(HERE, c"directory/file", flags, 0o666).unwrap();
        sys::open(HERE, c"directory/less", flags, 0o620).unwrap();
        sys::make_directory(HERE, c"directory/inner", 0o777).unwrap();
        sys::make_node(HERE, c"directory/fifo", libc::S_IFIFO | 0o664, 0).unwrap();
        sys::make_link(c"file", HERE, c"directory/link").unwrap();
        let temporary = sys::open(HERE, c"directory", libc::O_TMPFILE | libc::O_RDWR, 0o666);
        sys::link_open(&temporary.unwrap(), HERE, c"directory/temporary").unwrap();
        sys::open(HERE, c"directory/inner/deep", flags, 0o666).unwrap();
        sys::umask(0);
        let of_user = as_user(ALICE, &[ALICE], || {
            sys::umask(0o077);
            done(sys::open(HERE, c"directory/of alice", flags, 0o666))
        });
        bench.say("by a user", of_user);
        for name in [
            c"directory/file",
            c"directory/less",
            c"directory/inner",
            c"directory/fifo",
            c"directory/temporary",
            c"directory/inner/deep",
            c"directory/of alice",
        ] {
            bench.say("mode", (name, mode(name.to_str().unwrap())));
            bench.say("access list", told(sys::get_xattr(name, ACCESS)));
            bench.say("default list", told(sys::get_xattr(name, DEFAULT)));
        }
        bench.say("of the link", told(sys::get_xattr(c"directory/link", ACCESS)));
        // Without a list, the umask counts.
        sys::umask(0o027);
        sys::open(HERE, c"plain", flags, 0o666).unwrap();
        sys::make_directory(HERE, c"plain directory", 0o777).unwrap();
        sys::umask(0);
        bench.say("plain", (mode("plain"), mode("plain directory")));
        bench.say("removed", done(sys::remove_xattr(c"directory", DEFAULT)));
        sys::open(HERE, c"directory/without", flags, 0o666).unwrap();
        bench.say("without", (mode("directory/without"), told(sys::list_xattrs(c"directory"))));
    });
}

#[test]
fn directories_are_searched_by_their_lists() {
    both(|bench| {
        std::fs::create_dir("directory").unwrap();
        std::fs::write("directory/file", "content").unwrap();
        sys::chown(c"directory", Some(ALICE), Some(ALICE), 0).unwrap();
        sys::chmod(c"directory/file", 0o666, 0).unwrap();
        bench.say("set", done(sys::set_xattr(c"directory", ACCESS, &both_named(7), 0)));
        for (user, groups) in
            [(ALICE, &[ALICE][..]), (BOB, &[BOB]), (CAROL, &[CAROL]), (CAROL, &[CAROL, STAFF])]
        {
            let can = as_user(user, groups, || {
                let flags = libc::O_WRONLY | libc::O_CREAT;
                let found = [
                    done(sys::open(HERE, c"directory", libc::O_RDONLY, 0)),
                    done(sys::open(HERE, c"directory/file", libc::O_RDWR, 0)),
                    done(sys::open(HERE, c"directory/new", flags, 0o600)),
                    done(sys::remove(HERE, c"directory/new", false)),
                ];
                format!("{found:?}")
            });
            bench.say(&format!("user {user} of {groups:?}"), can);
        }
    });
}
