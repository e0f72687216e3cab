//! What the tests of media share: files that vanish, children with a time limit, private mounts.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use conquest_format::Geometry;
use conquest_format::geometry::Shape;
use conquest_pm::media::{Medium, OsHost, Source};

/// How long anything may take.
pub const LIMIT: Duration = Duration::from_secs(20);

/// A small region's layout.
pub fn geometry() -> Geometry {
    let shape = Shape { max_groups: 4, lanes: 4, slots: 8, locks: 64, chunks: 4, log: 0 };
    Geometry::new(shape).unwrap()
}

/// A path that nobody else uses, removed at the end.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn on(directory: &str) -> Temporary {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conquest-test-{}-{number}", std::process::id());
        Temporary(Path::new(directory).join(name))
    }

    pub fn shm() -> Temporary {
        Temporary::on("/dev/shm")
    }

    /// On a file system of a disk.
    pub fn disk() -> Temporary {
        Temporary::on(env!("CARGO_TARGET_TMPDIR"))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub fn memfd(flags: libc::c_uint) -> OwnedFd {
    let name = c"conquest-test";
    // SAFETY: the name is a string; the new descriptor is ours.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), flags | libc::MFD_CLOEXEC) };
    assert!(raw >= 0, "memfd_create: {}", std::io::Error::last_os_error());
    // SAFETY: as above.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

pub fn create(source: impl Into<Source>) -> Arc<Medium> {
    Arc::new(Medium::create(source.into(), 0o600).unwrap())
}

pub fn host(medium: &Arc<Medium>) -> OsHost {
    OsHost::new(Arc::clone(medium), &geometry()).unwrap()
}

/// Waits until `done`, and says `what` if that takes too long.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A forked child; killed and buried when dropped.
pub struct Child {
    pub pid: i32,
    said: File,
    status: Option<i32>,
}

/// What a child can tell its parent.
pub struct Parent(File);

impl Parent {
    pub fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }
}

/// Runs `work` in a forked child, which exits with 0 unless it panics. The child has one thread.
pub fn fork(work: impl FnOnce(&mut Parent)) -> Child {
    let mut ends = [0; 2];
    // SAFETY: an array of two of our own; the descriptors are ours.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0);
    // SAFETY: as above.
    let (from, to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: the child runs on with the one thread that called; what it uses of the standard
    // library holds no lock over a fork (the allocator's are handled by libc).
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        drop(from);
        // A test that fails leaves nobody behind.
        // SAFETY: no memory is passed.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let mut parent = Parent(to);
        let work = std::panic::AssertUnwindSafe(|| work(&mut parent));
        let code = match std::panic::catch_unwind(work) {
            Ok(()) => 0,
            Err(reason) => {
                let text = reason.downcast_ref::<String>().cloned();
                let text = text.or(reason.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                // A zero byte tells a failure from what the test says.
                let _ = parent.0.write_all(format!("\0{}", text.unwrap_or_default()).as_bytes());
                101
            }
        };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    Child { pid, said: from, status: None }
}

impl Child {
    pub fn signal(&self, signal: i32) {
        // SAFETY: no memory is passed; the child is ours and not yet buried.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }

    /// Waits until the child has stopped itself.
    pub fn await_stop(&self) {
        let stat = format!("/proc/{}/stat", self.pid);
        until("the child stops", || {
            std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
    }

    /// Waits for so many bytes from the child.
    pub fn hear(&mut self, bytes: usize) -> String {
        let mut poll = libc::pollfd { fd: self.said.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut text = vec![0; bytes];
        let mut read = 0;
        while read < bytes {
            // SAFETY: one structure of our own.
            let ready = unsafe { libc::poll(&raw mut poll, 1, LIMIT.as_millis() as i32) };
            assert_eq!(ready, 1, "the child said nothing");
            let more = self.said.read(&mut text[read..]).unwrap();
            assert_ne!(more, 0, "the child ended");
            read += more;
            if text[0] == 0 {
                let mut rest = String::new();
                let _ = self.said.read_to_string(&mut rest);
                let start = String::from_utf8_lossy(&text[1..read]);
                panic!("the child failed: {start}{rest}");
            }
        }
        String::from_utf8(text).unwrap()
    }

    /// The child's wait status.
    pub fn wait(&mut self) -> i32 {
        let start = Instant::now();
        while self.status.is_none() {
            let mut status = 0;
            // SAFETY: a number of our own.
            let found = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) };
            match found {
                0 => {
                    assert!(
                        start.elapsed() < LIMIT,
                        "the child does not end: {}",
                        self.whereabouts()
                    );
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => self.status = Some(status),
            }
        }
        self.status.unwrap()
    }

    /// Where the child is, as far as the kernel tells.
    fn whereabouts(&self) -> String {
        let read = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/{}/{name}", self.pid));
            format!("{name}: {}", text.unwrap_or_else(|error| error.to_string()).trim())
        };
        ["stat", "wchan", "syscall", "stack"].map(read).join("\n")
    }

    /// Waits for the child and fails as it failed.
    pub fn join(mut self) {
        let status = self.wait();
        let mut text = String::new();
        let _ = self.said.read_to_string(&mut text);
        assert_eq!(status, 0, "child: {text}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            // SAFETY: no memory is passed; the child is ours and not yet buried.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, core::ptr::null_mut(), 0);
            }
        }
    }
}

/// Sleeps until killed; ends by itself long after any test would have.
pub fn sleep_for_ever() -> ! {
    std::thread::sleep(2 * LIMIT);
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(99) };
}

/// In a forked child: a file system of type `kind` mounted where nobody else sees it.
pub fn mount_privately(kind: &str, options: &str, at: &Path) {
    std::fs::create_dir_all(at).unwrap();
    let text = |text: &str| CString::new(text).unwrap();
    let (kind, options, at) = (text(kind), text(options), text(at.to_str().unwrap()));
    // SAFETY: no memory is passed.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    let refused = |what: &str| {
        let error = std::io::Error::last_os_error();
        panic!("this test needs to {what}, as root, and the machine refuses: {error}")
    };
    if result != 0 {
        refused("make a mount namespace");
    }
    let slow = libc::MS_REC | libc::MS_PRIVATE;
    let none = core::ptr::null();
    // SAFETY: the strings end with a zero byte and outlive the calls.
    let results = unsafe {
        [
            libc::mount(none, c"/".as_ptr(), none, slow, core::ptr::null()),
            libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()),
        ]
    };
    if results != [0, 0] {
        refused("mount");
    }
}

pub fn thread_id() -> i32 {
    // SAFETY: no memory is passed.
    unsafe { libc::gettid() }
}

pub fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: a sigaction is plain data; the handler lives as long as the program.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &raw const action, core::ptr::null_mut()), 0);
    }
}

pub extern "C" fn ignore(_: libc::c_int) {}
