//! What the tests of the program share: places that are gone at the end, and running it.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

pub mod exported;
pub mod fuse;
pub mod mounted;
pub mod nasty;
pub mod scene;
pub mod snapshot;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for anything.
pub const LIMIT: Duration = Duration::from_secs(300);
/// A user without privileges.
pub const USER: u32 = 65534;

/// A directory in shared RAM that is gone at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/conquest-test-{}-{number}", std::process::id());
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        Scratch(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new store in it, and how to name files in that.
    pub fn store(&self, name: &str) -> String {
        self.store_of(name, None)
    }

    /// The same, made by `user`.
    pub fn store_of(&self, name: &str, user: Option<u32>) -> String {
        let path = self.join(name).to_str().unwrap().to_owned();
        let made = conquest_as(user, ["mkfs", "-q", "--size-max", "512M", &path]);
        assert_quiet(&made);
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Flags and modes of what tests make keep it from being removed by the plain way.
        let _ = Command::new("chattr").args(["-R", "-f", "-i", "-a"]).arg(&self.0).output();
        let gone = std::fs::remove_dir_all(&self.0);
        if !std::thread::panicking() {
            gone.unwrap();
        }
    }
}

/// The program, ready to run as `user`, or as who runs the tests.
pub fn command(user: Option<u32>) -> Command {
    let program = env!("CARGO_BIN_EXE_conquest");
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").env("TZ", "UTC").stdin(Stdio::null());
    if let Some(user) = user {
        // Being root lets the system drop the groups of root as well.
        command.uid(user).gid(user);
    }
    command
}

/// Runs the program to its end.
pub fn conquest<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> Output {
    conquest_as(None, args)
}

/// Runs the program to its end, as `user`.
pub fn conquest_as<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
    user: Option<u32>,
    args: I,
) -> Output {
    finish(command(user).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Runs a command to its end, which has to come in time.
pub fn finish(command: &mut Command) -> Output {
    let child = command.spawn().unwrap();
    let id = rustix::process::Pid::from_child(&child);
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || done.send(child.wait_with_output()));
        match wait.recv_timeout(LIMIT) {
            Ok(output) => output.unwrap(),
            Err(_) => {
                rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
                panic!("{command:?} did not end in {LIMIT:?}");
            }
        }
    })
}

/// Waits for a child, which has to end in time.
pub fn wait(child: &mut Child) -> std::process::ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(begin.elapsed() < LIMIT, "a child did not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// It did what it was asked for, without a word to standard error.
#[track_caller]
pub fn assert_quiet(output: &Output) {
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success(), "{output:?}");
}

/// What it printed, without complaints.
#[track_caller]
pub fn printed<const N: usize>(args: [&str; N]) -> String {
    let output = conquest(args);
    assert_quiet(&output);
    text(&output.stdout)
}

/// It failed with this exit code; what it said.
#[track_caller]
pub fn refused<const N: usize>(code: i32, args: [&str; N]) -> String {
    let output = conquest(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    text(&output.stderr)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Tests of privileges and owners are run as root, which CI is.
pub fn need_root() {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root, "this test gives files to others and makes devices: run it as root");
}
