//! A process of its own with a file system of its own, and nothing left of either.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::sys::{self, call};

/// How long a test of ordinary length may take.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of the device below ext4.
const DEVICE_BYTES: u64 = 64 << 20;

/// A file system to compare with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Memory.
    Tmpfs,
    /// On a loop device in memory.
    Ext4,
}

/// An empty directory to mount at, removed at the end.
struct MountPoint(PathBuf);

impl Drop for MountPoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Runs `work` in a process of its own, in the root of a new file system that nobody else sees,
/// mounted somewhere in the directory `directory`, and that goes with the process. Fails as `work`
/// fails, and returns what it says.
///
/// # Panics
/// If `work` does, if it takes longer than `limit`, and if the machine lacks what is needed.
pub fn run(
    kind: Kind,
    directory: &Path,
    limit: Duration,
    work: impl FnOnce(&File) -> String,
) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("peer-{kind:?}-{}-{number}", std::process::id());
    let at = MountPoint(directory.join(name));
    std::fs::create_dir_all(&at.0).unwrap();
    let path = CString::new(at.0.to_str().unwrap()).unwrap();
    in_child(limit, || work(&mount(kind, &path)))
}

/// Runs `work` in a process of its own. Fails as `work` fails, and returns what it says.
///
/// # Panics
/// If `work` does, and if it takes longer than `limit`.
pub fn in_child(limit: Duration, work: impl FnOnce() -> String) -> String {
    let mut ends = [0; 2];
    call!(SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC).unwrap();
    // SAFETY: both descriptors are new, and ours.
    let (from, to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: the child has the one thread that called; what it uses of the standard library holds
    // no lock over a fork, and the allocator's are handled by libc.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        drop(from);
        child(to, limit, work);
    }
    drop(to);
    let said = listen(pid, from, limit);
    let mut status = 0;
    // SAFETY: a number of our own; the child has ended, or was killed.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert!(status == 0, "{said}");
    said
}

/// The child: says what came of `work`, and ends.
fn child(mut to: File, limit: Duration, work: impl FnOnce() -> String) -> ! {
    // SAFETY: no memory is passed. The child ends even if its parent was killed; a living parent is
    // quicker, and says what happened.
    unsafe { libc::alarm(limit.as_secs() as u32 + 10) };
    let (said, code) = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(said) => (said, 0),
        Err(reason) => {
            let text = reason.downcast_ref::<String>().cloned();
            let text = text.or(reason.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            (text.unwrap_or_default(), 101)
        }
    };
    let _ = to.write_all(said.as_bytes());
    // SAFETY: ends the child at once.
    unsafe { libc::_exit(code) }
}

/// What the child says until it ends; kills it if that takes too long.
fn listen(pid: i32, mut from: File, limit: Duration) -> String {
    let start = Instant::now();
    let mut said = Vec::new();
    loop {
        let mut poll = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let left = limit.saturating_sub(start.elapsed()).as_millis() as i32;
        // SAFETY: one structure of our own.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left) };
        let mut piece = [0; 4096];
        match ready {
            1 => match from.read(&mut piece).unwrap() {
                0 => break,
                length => said.extend_from_slice(&piece[..length]),
            },
            _ if left > 0 => {}
            _ => {
                // SAFETY: no memory is passed; the child is ours and not yet buried.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                said.extend_from_slice(b"the child did not end in time");
                break;
            }
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn refused(what: &str, error: i32) -> ! {
    let error = std::io::Error::from_raw_os_error(error);
    panic!("this test needs to {what}, as root, and the machine refuses: {error}")
}

/// From now on this process has mounts of its own.
///
/// # Panics
/// If the machine refuses.
pub fn unshare_mounts() {
    let none = core::ptr::null::<libc::c_char>();
    let must = |what: &str, result: sys::Outcome<libc::c_long>| {
        result.unwrap_or_else(|error| refused(what, error))
    };
    must("make a mount namespace", call!(SYS_unshare, libc::CLONE_NEWNS));
    let slave = libc::MS_REC | libc::MS_PRIVATE;
    must("make mounts private", call!(SYS_mount, none, c"/".as_ptr(), none, slave, none));
}

/// The root directory of a new file system.
fn mount(kind: Kind, at: &CStr) -> File {
    let must = |what: &str, result: sys::Outcome<libc::c_long>| {
        result.unwrap_or_else(|error| refused(what, error))
    };
    unshare_mounts();
    let (device, name, options) = match kind {
        Kind::Tmpfs => (None, c"tmpfs", c"mode=755,size=64m"),
        Kind::Ext4 => (Some(make_ext4()), c"ext4", c""),
    };
    let path = device.as_ref().map_or(c"none", |(_, path)| path.as_c_str());
    let (path, to, options) = (path.as_ptr(), at.as_ptr(), options.as_ptr());
    must("mount", call!(SYS_mount, path, to, name.as_ptr(), 0, options));
    sys::open(sys::HERE, at, libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap()
}

/// From now on this process, which has one thread, is in a user namespace of its own, which has
/// these maps: lines as in `/proc/PID/uid_map`. `proc` is the directory `/proc`.
///
/// # Panics
/// If the machine refuses.
pub fn enter_user_namespace(proc: &File, users: &str, groups: &str) {
    let own = std::process::id();
    let mut ends = [0; 2];
    call!(SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC).unwrap();
    // SAFETY: both descriptors are new, and ours.
    let (mut from, to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: as the caller says, there is one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // Only who is outside may write maps of several lines: once the namespace is there.
        drop(to);
        let _ = from.read(&mut [0]);
        let write = |name: &str, map: &str| {
            let name = CString::new(format!("{own}/{name}")).unwrap();
            let mut file = sys::open(proc.as_raw_fd(), &name, libc::O_WRONLY, 0)?;
            file.write_all(map.as_bytes()).map_err(|_| sys::errno())
        };
        let written = write("uid_map", users).and_then(|()| write("gid_map", groups));
        // SAFETY: ends the helper at once.
        unsafe { libc::_exit(written.err().unwrap_or(0)) };
    }
    drop(from);
    let made = call!(SYS_unshare, libc::CLONE_NEWUSER);
    drop(to);
    let mut status = 0;
    // SAFETY: a number of our own, and our own child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    made.unwrap_or_else(|error| refused("make a user namespace", error));
    if status != 0 {
        refused("write the maps of a user namespace", libc::WEXITSTATUS(status));
    }
}

/// From now on this process has mounts of its own, and its children are in a process namespace of
/// their own, in which the first one is process 1.
///
/// # Panics
/// If the machine refuses.
pub fn unshare_processes() {
    let made = call!(SYS_unshare, libc::CLONE_NEWPID | libc::CLONE_NEWNS);
    made.unwrap_or_else(|error| refused("make a process namespace", error));
}

const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_AUTOCLEAR: u32 = 4;

/// What `LOOP_CONFIGURE` is told: `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    descriptor: u32,
    block_size: u32,
    /// `struct loop_info64` up to its flags.
    info: [u64; 5],
    numbers: [u32; 4],
    rest: [u8; 176],
    reserved: [u64; 8],
}

/// A loop device with an empty ext4 in memory, gone when it is neither open nor mounted.
fn make_ext4() -> (File, CString) {
    let image = sys::memory_file(c"ext4");
    let image = File::from(image.unwrap_or_else(|error| refused("make a file in memory", error)));
    image.set_len(DEVICE_BYTES).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd());
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", &path]).output();
    let made = made.unwrap_or_else(|error| panic!("this test needs mkfs.ext4: {error}"));
    assert!(made.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr));
    let control = sys::open(sys::HERE, c"/dev/loop-control", libc::O_RDWR, 0);
    let control = control.unwrap_or_else(|error| refused("use /dev/loop-control", error));
    let mut last = 0;
    // Somebody else may be quicker to take a free device.
    for _ in 0..100 {
        let number = call!(SYS_ioctl, control.as_raw_fd(), LOOP_CTL_GET_FREE, 0);
        let number = number.unwrap_or_else(|error| refused("get a loop device", error));
        let path = CString::new(format!("/dev/loop{number}")).unwrap();
        let attached = sys::open(sys::HERE, &path, libc::O_RDWR, 0).and_then(|device| {
            let config = LoopConfig {
                descriptor: image.as_raw_fd() as u32,
                block_size: 0,
                info: [0; 5],
                numbers: [0, 0, 0, LOOP_AUTOCLEAR],
                rest: [0; 176],
                reserved: [0; 8],
            };
            call!(SYS_ioctl, device.as_raw_fd(), LOOP_CONFIGURE, &raw const config)?;
            Ok(device)
        });
        match attached {
            Ok(device) => return (device, path),
            Err(error) => last = error,
        }
    }
    refused("configure a loop device", last)
}
