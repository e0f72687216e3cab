//! Mounted by root.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conquest_fuse::wire::{Agreed, MINOR};
use conquest_fuse::{AccessTimes, Device, Errno, Notice, Root, Session, SessionOptions, Stopped};
use conquest_fuse::{mount, mounts, unmount};
use conquest_peers::{child, process::Process};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::memory::{DIRECTORY, FLAGS, Memory, REGULAR};
use crate::place::{NOBODY, directory, in_place, plain, serve, wait_until};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn empty() -> Memory {
    Memory::new(DIRECTORY, SECOND)
}

/// The error number of something that has to fail.
fn error<T>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.err().unwrap()).unwrap()
}

fn names(directory: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn files_are_made_written_read_listed_and_removed() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), empty());
        let odd = OsString::from_vec(b"a \n\\\xFF*,\"'".to_vec());
        fs::write(at.join(&odd), vec![7; 1_000_000]).unwrap();
        assert_eq!(fs::read(at.join(&odd)).unwrap(), vec![7; 1_000_000]);
        fs::create_dir(at.join("d")).unwrap();
        fs::rename(at.join(&odd), at.join("d").join(&odd)).unwrap();
        std::os::unix::fs::symlink("d", at.join("l")).unwrap();
        assert_eq!(names(&at), ["d", "l"]);
        assert_eq!(names(&at.join("l")), [odd.as_os_str()]);
        fs::hard_link(at.join("d").join(&odd), at.join("again")).unwrap();
        assert_eq!(fs::metadata(at.join("again")).unwrap().nlink(), 2);
        assert_eq!(error(fs::remove_dir(at.join("d"))), Errno::NOTEMPTY);
        fs::remove_file(at.join("d").join(&odd)).unwrap();
        fs::remove_dir(at.join("d")).unwrap();
        assert_eq!(error(fs::metadata(at.join("d"))), Errno::NOENT);
        // The oldest shell there is sees the same.
        let listed = Command::new("ls").arg(&at).output().unwrap();
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), "again\nl\n");
        served.unmount();
        assert_eq!(names(&at).len(), 0, "still mounted");
    });
}

#[test]
fn names_of_any_bytes_are_shown_as_they_are() {
    in_place(|place| {
        let long = "x".repeat(2000);
        for (subtype, source) in [
            ("memory", "a,b c\\d\ne#f\tg,fd=3,"),
            ("with,comma and\\more\n", "\u{fc}\\054\\,"),
            ("", "x"),
            ("x", long.as_str()),
        ] {
            let at = directory(place, "a b\\\n");
            let mut options = plain();
            (options.subtype, options.source) = (subtype.into(), source.into());
            let served = serve(&at, &options, empty());
            let mounts = mounts::list().unwrap();
            let found = mounts::topmost(&mounts, &at).unwrap();
            assert_eq!(found.source, source);
            assert_eq!(found.subtype(), Some(subtype.as_bytes()));
            assert_eq!(found.directory, at);
            assert_eq!(found.connection(), Some(served.mounted.connection().number()));
            assert!(fs::metadata(&at).unwrap().is_dir());
            served.unmount();
            fs::remove_dir(&at).unwrap();
        }
    });
}

#[test]
fn a_file_is_mounted_over_a_file_only() {
    in_place(|place| {
        let at = place.join("f");
        fs::write(&at, "below").unwrap();
        let mut options = plain();
        let said = mount(&at, &options).unwrap_err().to_string();
        assert!(said.contains("Not a directory") && said.contains("a file at a file"), "{said}");
        options.root = Root::File;
        let served = serve(&at, &options, Memory::new(REGULAR, SECOND));
        fs::write(&at, "above").unwrap();
        assert_eq!(fs::read(&at).unwrap(), b"above");
        served.unmount();
        assert_eq!(fs::read(&at).unwrap(), b"below");
        let said = mount(place, &options).unwrap_err().to_string();
        assert!(said.contains("Not a directory"), "{said}");
        let said = mount(&place.join("none"), &options).unwrap_err().to_string();
        assert!(said.contains("No such file") && said.contains("make the mount point"), "{said}");
    });
}

#[test]
fn options_reach_the_kernel() {
    in_place(|place| {
        let at = directory(place, "m");
        let mut options = plain();
        options.read_only = true;
        options.exec = false;
        options.access_times = AccessTimes::Never;
        options.directory_access_times = false;
        options.synchronous = true;
        options.synchronous_directories = true;
        options.allow_other = true;
        options.default_permissions = true;
        options.max_read = Some(8192);
        options.owner = Some((3, 4));
        let served = serve(&at, &options, empty());
        let mounts = mounts::list().unwrap();
        let found = mounts::topmost(&mounts, &at).unwrap();
        assert_eq!(found.options, "ro,nosuid,nodev,noexec,noatime,nodiratime");
        let words = "ro,sync,dirsync,user_id=3,group_id=4,default_permissions,allow_other,";
        assert_eq!(found.super_options.to_str().unwrap(), format!("{words}max_read=8192"));
        assert_eq!(error(File::create(at.join("x"))), Errno::ROFS);
        served.unmount();
        let mut options = plain();
        (options.suid, options.dev) = (true, true);
        options.access_times = AccessTimes::Strict;
        let served = serve(&at, &options, empty());
        let mounts = mounts::list().unwrap();
        assert_eq!(mounts::topmost(&mounts, &at).unwrap().options, "rw");
        served.unmount();
    });
}

#[test]
fn others_come_in_only_if_allowed() {
    use std::os::unix::process::CommandExt;
    in_place(|place| {
        let at = directory(place, "m");
        for is_allowed in [false, true] {
            let mut options = plain();
            options.allow_other = is_allowed;
            let served = serve(&at, &options, empty());
            let listed = Command::new("ls").arg(&at).uid(NOBODY.0).gid(NOBODY.1).output().unwrap();
            assert_eq!(listed.status.success(), is_allowed, "{listed:?}");
            served.unmount();
        }
    });
}

#[test]
fn who_waits_for_a_lock_is_interrupted_by_signals() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), empty());
        let holder = File::create(at.join("f")).unwrap();
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let other = File::open(at.join("f")).unwrap();
        assert_eq!(
            flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap_err(),
            Errno::AGAIN
        );
        let thread = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                thread.store(child::thread(), Ordering::SeqCst);
                flock(&other, FlockOperation::LockExclusive)
            });
            wait_until("somebody waits", || served.memory.waiting() == 1);
            // The call is begun again after each signal.
            let is_done = || served.memory.interrupted.load(Ordering::SeqCst) >= 20;
            child::interrupt(thread.load(Ordering::SeqCst), is_done);
            wait_until("somebody waits again", || served.memory.waiting() == 1);
            flock(&holder, FlockOperation::Unlock).unwrap();
            waiter.join().unwrap().unwrap();
        });
        // A signal that kills.
        let mut waiter = Command::new("flock").arg(at.join("f")).arg("true").spawn().unwrap();
        wait_until("a process waits", || served.memory.waiting() == 1);
        waiter.kill().unwrap();
        assert!(!waiter.wait().unwrap().success());
        wait_until("nobody waits", || served.memory.waiting() == 0);
        drop((holder, other));
        served.unmount();
    });
}

#[test]
fn a_killed_server_leaves_a_dead_mount_that_can_be_unmounted() {
    in_place(|place| {
        let at = directory(place, "m");
        let (device, mounted) = mount(&at, &plain()).unwrap();
        // The child has the only descriptor.
        let mut device = Some(device);
        let server = child::fork(|| {
            let options = SessionOptions::default();
            Session::new(device.take().unwrap(), empty(), options).run().unwrap();
        });
        drop(device);
        fs::write(at.join("x"), "x").unwrap();
        let open = File::open(at.join("x")).unwrap();
        let holder = File::open(at.join("x")).unwrap();
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| flock(&open, FlockOperation::LockExclusive));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waiter.is_finished());
            Process::find(server.number()).kill();
            let error = waiter.join().unwrap().unwrap_err();
            assert!([Errno::CONNABORTED, Errno::NOTCONN].contains(&error), "{error:?}");
        });
        assert_eq!(error(fs::metadata(at.join("y"))), Errno::NOTCONN);
        assert_eq!(error(fs::read_dir(&at)), Errno::NOTCONN);
        drop((open, holder));
        assert!(mounted.connection().is_there().unwrap());
        unmount(&at, false).unwrap();
        assert!(!mounted.connection().is_there().unwrap());
        assert_eq!(names(&at).len(), 0);
    });
}

/// The device of a server that was killed is still open elsewhere: who has it goes on, and who
/// waits notices nothing.
#[test]
fn another_process_goes_on_with_the_connection() {
    in_place(|place| {
        let at = directory(place, "m");
        let (device, mounted) = mount(&at, &plain()).unwrap();
        let kept = device.as_fd().try_clone_to_owned().unwrap();
        let memory = Arc::new(empty());
        memory.fill([b"f".to_vec()].into_iter());
        let mut device = Some(device);
        let server = child::fork(|| {
            let options = SessionOptions { clone_device: false, ..SessionOptions::default() };
            let memory = Arc::clone(&memory);
            Session::new(device.take().unwrap(), memory, options).run().unwrap();
        });
        drop(device);
        let [holder, other] = [(); 2].map(|()| File::open(at.join("f")).unwrap());
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let waiter = std::thread::spawn(move || flock(&other, FlockOperation::LockExclusive));
        std::thread::sleep(Duration::from_millis(50));
        Process::find(server.number()).kill();
        let agreed = Agreed { minor: MINOR, flags: FLAGS };
        let options = SessionOptions::default();
        let session = Session::new(Device::from(kept), Arc::clone(&memory), options);
        let session = session.resumed(agreed, 256 << 10);
        let notifier = session.notifier();
        let served = std::thread::spawn(move || session.run());
        assert!(!waiter.is_finished(), "the request ended with its server");
        notifier.send(&Notice::Resend).unwrap();
        // The new server knows nothing of the other one's locks.
        waiter.join().unwrap().unwrap();
        assert_eq!(names(&at), ["f"]);
        drop(holder);
        mounted.unmount(false).unwrap();
        served.join().unwrap().unwrap();
    });
}

#[test]
fn what_is_busy_is_unmounted_lazily_only() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), empty());
        fs::write(at.join("f"), "bytes").unwrap();
        let open = File::open(at.join("f")).unwrap();
        let said = unmount(&at, false).unwrap_err().to_string();
        assert!(said.contains("busy") && said.contains("lazily"), "{said}");
        // Over a link, and relative to the working directory.
        std::os::unix::fs::symlink(&at, place.join("link")).unwrap();
        unmount(&place.join("link"), true).unwrap();
        assert_eq!(names(&at).len(), 0);
        assert_eq!(std::io::read_to_string(&open).unwrap(), "bytes");
        assert!(!served.stopper.wait(Duration::from_millis(50)), "ended under an open file");
        drop(open);
        served.ends();
        let said = unmount(&at, false).unwrap_err().to_string();
        assert!(said.contains("nothing is mounted"), "{said}");
    });
}

#[test]
fn aborting_ends_all_requests_and_the_session() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), empty());
        let holder = File::create(at.join("f")).unwrap();
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let other = File::open(at.join("f")).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| flock(&other, FlockOperation::LockExclusive));
            wait_until("somebody waits", || served.memory.waiting() == 1);
            served.mounted.connection().abort().unwrap();
            let error = waiter.join().unwrap().unwrap_err();
            assert!([Errno::CONNABORTED, Errno::NOTCONN].contains(&error), "{error:?}");
        });
        assert_eq!(error(File::open(at.join("g"))), Errno::NOTCONN);
        drop((holder, other));
        served.mounted.unmount(false).unwrap();
        let connection = served.mounted.connection();
        served.ends();
        connection.abort().unwrap();
    });
}

#[test]
fn a_stopper_waits_for_users_and_then_aborts() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), empty());
        fs::write(at.join("f"), "bytes").unwrap();
        assert_eq!(served.stopper.stop(10 * SECOND).unwrap(), Stopped::Unused);
        served.ends();

        let served = serve(&at, &plain(), empty());
        let mut open = File::create(at.join("f")).unwrap();
        let stopped = served.stopper.stop(Duration::from_millis(50)).unwrap();
        assert_eq!(stopped, Stopped::Aborted);
        assert_eq!(error(std::io::Write::write(&mut open, b"x")), Errno::NOTCONN);
        assert_eq!(names(&at).len(), 0);
        served.ends();

        // Somebody else unmounts.
        let served = serve(&at, &plain(), empty());
        assert!(Command::new("umount").arg(&at).status().unwrap().success());
        assert_eq!(served.stopper.stop(10 * SECOND).unwrap(), Stopped::Unused);
        served.ends();
    });
}

#[test]
fn mounts_beside_and_above_each_other_are_told_apart() {
    in_place(|place| {
        let (at, beside) = (directory(place, "m"), directory(place, "n"));
        let below = serve(&at, &plain(), empty());
        let other = serve(&beside, &plain(), empty());
        fs::write(at.join("below"), "").unwrap();
        fs::write(beside.join("other"), "").unwrap();
        let above = serve(&at, &plain(), empty());
        assert_eq!((names(&at).len(), names(&beside)), (0, vec!["other".into()]));
        let said = below.mounted.unmount(false).unwrap_err().to_string();
        assert!(said.contains("fuse.memory") && said.contains("on top"), "{said}");
        above.unmount();
        assert_eq!(names(&at), ["below"]);
        let numbers = [&below, &other].map(|served| served.mounted.connection().number());
        assert_ne!(numbers[0], numbers[1]);
        below.unmount();
        assert_eq!(names(&beside), ["other"]);
        other.unmount();
    });
}

#[test]
fn notices_make_the_kernel_look_again() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), Memory::new(DIRECTORY, HOUR));
        let file = at.join("f");
        fs::write(&file, "first").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), 5);
        let node = served.memory.node(b"f");
        served.memory.put(node, b"longer than before");
        assert_eq!(fs::metadata(&file).unwrap().len(), 5, "nothing was cached");
        let inode = |node| Notice::InvalidateInode { node, offset: 0, length: 0 };
        served.notifier.send(&inode(node)).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), 18);
        assert_eq!(fs::read(&file).unwrap(), b"longer than before");

        served.memory.take(b"f");
        assert!(fs::metadata(&file).is_ok(), "nothing was cached");
        let entry = |name| Notice::InvalidateEntry { parent: 1, name, expired: false };
        served.notifier.send(&entry(b"f")).unwrap();
        assert_eq!(error(fs::metadata(&file)), Errno::NOENT);
        served.memory.fill([b"f".to_vec()].into_iter());
        assert_eq!(error(fs::metadata(&file)), Errno::NOENT, "that it is not there was cached");
        served.notifier.send(&entry(b"f")).unwrap();
        assert!(fs::metadata(&file).is_ok());

        // What the kernel does not know.
        served.notifier.send(&inode(12345)).unwrap();
        served.notifier.send(&entry(b"never")).unwrap();
        let unknown = Notice::InvalidateEntry { parent: 777, name: b"x", expired: false };
        served.notifier.send(&unknown).unwrap();
        // What it can't take.
        let too_long = Notice::InvalidateEntry { parent: 1, name: &[b'x'; 5000], expired: false };
        assert!(served.notifier.send(&too_long).is_err());
        let notifier = served.notifier.clone();
        served.unmount();
        notifier.send(&inode(node)).unwrap();
    });
}

#[test]
fn a_reply_that_the_kernel_refuses_is_an_error_and_reported() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), Memory::new(DIRECTORY, Duration::ZERO));
        fs::write(at.join("f"), "bytes").unwrap();
        served.memory.overflows.store(true, Ordering::SeqCst);
        served.notifier.send(&Notice::InvalidateInode { node: 2, offset: 0, length: 0 }).unwrap();
        assert_eq!(error(fs::read(at.join("f"))), Errno::IO);
        let reports = served.reports();
        assert!(!reports.is_empty());
        for said in reports {
            assert!(said.contains("refuses the reply") && said.contains("Invalid"), "{said}");
        }
        served.memory.overflows.store(false, Ordering::SeqCst);
        assert_eq!(fs::read(at.join("f")).unwrap(), b"bytes");
        served.unmount();
    });
}

#[test]
fn files_without_names_are_made() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), empty());
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(&at, flags, Mode::from_raw_mode(0o600)).unwrap();
        rustix::io::write(&file, b"bytes").unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        assert_eq!((stat.st_size, stat.st_nlink, stat.st_mode), (5, 0, REGULAR | 0o600));
        assert_eq!(names(&at).len(), 0);
        drop(file);
        served.unmount();
    });
}

#[test]
fn a_large_directory_is_listed_whole_with_attributes() {
    in_place(|place| {
        let at = directory(place, "m");
        let memory = empty();
        let wanted: Vec<_> =
            (0..10_000).map(|number| OsString::from(format!("name-{number:05}"))).collect();
        memory.fill(wanted.iter().map(|name| name.clone().into_vec()));
        let served = serve(&at, &plain(), memory);
        assert_eq!(names(&at), wanted);
        // With the two dots; what did not fit was asked for again.
        assert!(served.memory.listed_plus.load(Ordering::SeqCst) >= 10_002);
        served.unmount();
    });
}

#[test]
fn several_clients_at_once_are_served() {
    in_place(|place| {
        let at = directory(place, "m");
        let served = serve(&at, &plain(), empty());
        std::thread::scope(|scope| {
            for client in 0..8 {
                let at = at.join(client.to_string());
                scope.spawn(move || {
                    fs::create_dir(&at).unwrap();
                    for round in 0..50_u32 {
                        let file = at.join(round.to_string());
                        let bytes = vec![round as u8; 5000 * (client + 1)];
                        fs::write(&file, &bytes).unwrap();
                        assert_eq!(fs::read(&file).unwrap(), bytes);
                        fs::remove_file(&file).unwrap();
                    }
                    assert_eq!(names(&at).len(), 0);
                });
            }
        });
        wait_until("nodes are forgotten", || {
            served.memory.forgotten.load(Ordering::Relaxed) >= 400
        });
        served.unmount();
    });
}
