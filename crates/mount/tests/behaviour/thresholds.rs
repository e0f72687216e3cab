//! Thresholds of files' own, by setxattr(2) and its like.

use conquest::{Attach, Form, KeeperProgram, NewStore, Placement, Store, VolumePlace};
use conquest_peers::sys;

use crate::support::mount::{Mount, mounted_as, small};
use crate::support::{ALICE, as_user, mounted};

/// What the attribute is called.
const NAME: &str = "user.conquest.threshold";
/// Bytes above which files are large, of the store.
const STORES: u64 = 64 << 10;

/// A store with a volume.
fn hybrid() -> NewStore {
    NewStore {
        volume: Some(VolumePlace::Size(128 << 20)),
        placement: Placement { threshold: STORES, ..Placement::default() },
        ..small()
    }
}

/// How the content of `path` is kept.
fn form(mount: &Mount, path: &str) -> Form {
    let how = Attach { keeper: KeeperProgram::None, ..Attach::default() };
    let store = Store::attach(&mount.store(), &how).unwrap();
    let id = store.files().unwrap().metadata(path).unwrap().id();
    store.fs().placement(id, STORES).unwrap().form
}

#[test]
fn a_directory_says_which_files_go_to_the_volume() {
    mounted_as(hybrid(), |mount| {
        for (path, name, value) in [("low", c"low", "8K"), ("core", c"core", "core")] {
            std::fs::create_dir(path).unwrap();
            sys::set_xattr(name, NAME, value.as_bytes(), 0).unwrap();
        }
        std::fs::create_dir("low/below").unwrap();
        for (path, len, wanted) in [
            ("low/8192", 8192, Form::Extent),
            ("low/8193", 8193, Form::Large),
            ("low/below/8193", 8193, Form::Large),
            ("core/file", 1 << 20, Form::Extent),
            ("65536", 65536, Form::Extent),
            ("65537", 65537, Form::Large),
        ] {
            std::fs::write(path, vec![7; len]).unwrap();
            assert_eq!(form(mount, path), wanted, "{path}");
            assert!(std::fs::read(path).unwrap() == vec![7; len], "{path}");
        }
        assert_eq!(sys::get_xattr(c"low/below", NAME).unwrap(), b"8192");
        assert_eq!(sys::list_xattrs(c"low/8193").unwrap(), b"user.conquest.threshold\0");
        assert_eq!(sys::list_xattrs(c"65537").unwrap(), b"");
        std::fs::rename("low/8193", "moved").unwrap();
        assert_eq!(sys::get_xattr(c"moved", NAME).unwrap(), b"8192");
        sys::remove_xattr(c"moved", NAME).unwrap();
        assert_eq!(form(mount, "moved"), Form::Large);
        mount.stop();
        mount.start();
        assert_eq!(sys::get_xattr(c"moved", NAME), Err(libc::ENODATA));
        assert_eq!(sys::get_xattr(c"core/file", NAME).unwrap(), b"core");
        String::new()
    });
}

#[test]
fn what_can_be_no_threshold_is_refused() {
    let set = |value: &str| sys::set_xattr(c"file", NAME, value.as_bytes(), 0);
    mounted_as(hybrid(), |_| {
        std::fs::write("file", "").unwrap();
        for value in ["", "much", "-1", "9E", "64k"] {
            assert_eq!(set(value), Err(libc::EINVAL), "{value}");
        }
        let as_alice = as_user(ALICE, &[ALICE], || format!("{:?}", set("64K")));
        assert_eq!(as_alice, format!("{:?}", Err::<(), i32>(libc::EACCES)));
        assert_eq!(set("64K"), Ok(()));
        String::new()
    });
    mounted(|_| {
        std::fs::write("file", "").unwrap();
        assert_eq!(set("64K"), Err(libc::EOPNOTSUPP));
        String::new()
    });
}
