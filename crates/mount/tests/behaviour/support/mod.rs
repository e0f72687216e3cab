//! What the tests of the mount share: a store that is mounted for one test, and a file system of
//! the kernel's beside it.
//!
//! Invariants:
//! - a test is a process of its own with mounts of its own, in a file system in memory that goes
//!   with it; the server is its child, and dies with it;
//! - every wait has a limit;
//! - at the end of a test nobody uses the mount, the server ends well, and the store is consistent.

pub(crate) mod actor;
pub(crate) mod bench;
pub(crate) mod listing;
pub(crate) mod mount;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use conquest_access::{Capabilities, Credentials};
use conquest_peers::machine::in_child;
use conquest_peers::sys::Privileges;

pub(crate) use bench::both;
pub(crate) use mount::mounted;

/// The longest wait for something that is to happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// An ordinary user.
pub(crate) const ALICE: u32 = 1000;
/// Another one.
pub(crate) const BOB: u32 = 1001;

/// Does `work` in a process of its own, as an ordinary user of these groups, the first of which is
/// his own: what it says.
pub(crate) fn as_user(user: u32, groups: &[u32], work: impl FnOnce() -> String) -> String {
    in_child(SOON, || {
        let who = Credentials {
            fsuid: user,
            fsgid: groups[0],
            groups: &groups[1..],
            capabilities: Capabilities::NONE,
            umask: 0o022,
            namespace: None,
        };
        Privileges::take().become_user(&who);
        work()
    })
}

/// An outcome in words.
pub(crate) fn told<T: Debug>(outcome: Result<T, i32>) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(error) => name(error),
    }
}

/// Whether there was an error, and which one.
pub(crate) fn done<T>(outcome: Result<T, i32>) -> String {
    outcome.map_or_else(name, |_| "done".to_owned())
}

/// What the standard library says, in words.
pub(crate) fn io<T: Debug>(outcome: std::io::Result<T>) -> String {
    told(outcome.map_err(|error| error.raw_os_error().unwrap()))
}

/// An error number in words.
pub(crate) fn name(error: i32) -> String {
    std::io::Error::from_raw_os_error(error).to_string()
}

/// Waits until `is_so`, and fails if it is not soon.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
