//! Mounted by an ordinary user, with `fusermount3`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use conquest_fuse::{AccessTimes, mount, mounts, unmount};
use conquest_peers::process::become_user;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::mount_bind;

use crate::memory::{DIRECTORY, Memory};
use crate::place::{NOBODY, directory, in_place, plain, serve};

const SECOND: Duration = Duration::from_secs(1);

/// The number of the device: major and minor.
const DEVICE: (u32, u32) = (10, 229);

/// As [`in_place`], as an ordinary user, on a machine where the device has `mode`, and there are
/// `rules` in `/etc/fuse.conf`.
fn as_nobody(rules: &str, mode: u32, work: impl FnOnce(&Path)) {
    in_place(|place| {
        let of_machine = place.join("fuse.conf");
        fs::write(&of_machine, rules).unwrap();
        mount_bind(&of_machine, "/etc/fuse.conf").unwrap();
        let device = place.join("fuse");
        let number = rustix::fs::makedev(DEVICE.0, DEVICE.1);
        mknodat(CWD, &device, FileType::CharacterDevice, Mode::empty(), number).unwrap();
        fs::set_permissions(&device, fs::Permissions::from_mode(mode)).unwrap();
        mount_bind(&device, "/dev/fuse").unwrap();
        fs::create_dir(place.join("root's")).unwrap();
        become_user(NOBODY.0, NOBODY.1);
        work(place);
    });
}

fn empty() -> Memory {
    Memory::new(DIRECTORY, SECOND)
}

#[test]
fn users_mount_and_unmount() {
    as_nobody("", 0o666, |place| {
        for source in ["plain", "a,b c\\d\ne#f\tg,fd=3,"] {
            let at = place.join("m, \\n\n");
            fs::create_dir(&at).unwrap();
            let mut options = plain();
            options.source = source.into();
            options.access_times = AccessTimes::Never;
            options.max_read = Some(65536);
            let served = serve(&at, &options, empty());
            fs::write(at.join("f"), vec![3; 300_000]).unwrap();
            assert_eq!(fs::read(at.join("f")).unwrap(), vec![3; 300_000]);
            let mounts = mounts::list().unwrap();
            let found = mounts::topmost(&mounts, &at).unwrap();
            assert_eq!(found.source, source);
            assert_eq!(found.subtype(), Some(&b"memory"[..]));
            assert_eq!(found.options, "rw,nosuid,nodev,noatime");
            let words = "rw,user_id=65534,group_id=65534,max_read=65536";
            assert_eq!(found.super_options, words);
            served.unmount();
            assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "still mounted");
            fs::remove_dir(&at).unwrap();
        }
    });
}

#[test]
fn users_unmount_lazily_what_is_busy() {
    as_nobody("", 0o666, |place| {
        let at = place.join("m");
        fs::create_dir(&at).unwrap();
        let served = serve(&at, &plain(), empty());
        let open = fs::File::create(at.join("f")).unwrap();
        let said = unmount(&at, false).unwrap_err().to_string();
        assert!(said.contains("busy") && said.contains("lazily"), "{said}");
        unmount(&at, true).unwrap();
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "still mounted");
        assert!(!served.stopper.wait(Duration::from_millis(50)), "ended under an open file");
        drop(open);
        served.ends();
    });
}

#[test]
fn refusals_name_the_remedy() {
    as_nobody("", 0o666, |place| {
        let at = place.join("m");
        fs::create_dir(&at).unwrap();
        let mut options = plain();
        options.allow_other = true;
        let said = mount(&at, &options).unwrap_err().to_string();
        assert!(said.contains("user_allow_other") && said.contains("/etc/fuse.conf"), "{said}");
        let said = mount(&place.join("root's"), &plain()).unwrap_err().to_string();
        assert!(said.contains("a directory of your own"), "{said}");
        let said = unmount(&at, false).unwrap_err().to_string();
        assert!(said.contains("nothing is mounted"), "{said}");
        let said = unmount(place, false).unwrap_err().to_string();
        assert!(said.contains("fusermount3 refuses"), "{said}");
    });
}

#[test]
fn others_come_in_if_root_has_allowed_it() {
    as_nobody("user_allow_other\n", 0o666, |place| {
        let at = directory(place, "m");
        let mut options = plain();
        options.allow_other = true;
        let served = serve(&at, &options, empty());
        let mounts = mounts::list().unwrap();
        let found = mounts::topmost(&mounts, &at).unwrap();
        assert!(found.super_options.to_str().unwrap().contains("allow_other"), "{found:?}");
        served.unmount();
    });
}

#[test]
fn a_device_that_users_may_not_open_is_named() {
    as_nobody("", 0o600, |place| {
        let at = directory(place, "m");
        let said = mount(&at, &plain()).unwrap_err().to_string();
        assert!(said.contains("chmod 666 /dev/fuse"), "{said}");
    });
}
