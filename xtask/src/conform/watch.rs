//! Limits that hold even if the server of a mount hangs.
//!
//! Who waits for an answer of a FUSE server can't be killed, so neither can the suite be that it is
//! a part of. Once the time is up, the connections of the mounts are aborted: then every call on
//! them fails.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::target::SOURCE;
use crate::Failure;
use crate::child::{self, Ended};

/// Where the kernel lets connections be aborted, each in a directory of its number.
pub(super) const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// How much later than it is killed a program may end that is not stuck.
const GRACE: Duration = Duration::from_secs(10);

/// Does `work`. If it takes longer than `limit`, the connections of all mounts that this process
/// sees are aborted.
pub(super) fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    let watcher = thread::spawn(move || {
        if is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            abort();
        }
    });
    let result = work();
    drop(done);
    // It can't have failed in any way that matters now.
    let _ = watcher.join();
    result
}

/// Runs `command` for at most `limit`, with all its output in the file `log`.
pub(super) fn run_logged(
    command: &mut Command,
    limit: Duration,
    log: &Path,
) -> Result<Ended, Failure> {
    within(limit + GRACE, || child::run_logged(command, limit, log))
}

fn abort() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for number in connections(&mounts) {
        let file = Path::new(CONNECTIONS).join(&number).join("abort");
        match std::fs::write(&file, "1") {
            Ok(()) => println!("a FUSE server hangs: its connection {number} was aborted"),
            Err(e) => println!("a FUSE server hangs, and {} can't be written: {e}", file.display()),
        }
    }
}

/// The numbers of the connections of our FUSE mounts in the text of `/proc/self/mountinfo`: the
/// minor numbers of their devices. Mounts of the machine are there as well, but called otherwise.
fn connections(mounts: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let device = before.split(' ').nth(2).and_then(|device| device.split_once(':'));
        let mut kind_and_source = after.split(' ');
        let is_fuse = kind_and_source.next().is_some_and(|kind| kind.starts_with("fuse"));
        let is_ours = kind_and_source.next().is_some_and(|source| source.ends_with(SOURCE));
        if let (true, true, Some((_, minor))) = (is_fuse, is_ours, device) {
            found.push(minor.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_fuse_mounts_are_found() {
        let mounts = "\
36 35 98:0 / /mnt rw,noatime - ext4 /dev/root rw\n\
40 35 0:53 / /media/a rw,nosuid shared:4 - fuse.conquest a-source rw,user_id=0\n\
41 35 0:54 / /media/b rw - fuse b-source rw\n\
43 35 0:56 / /home/a rw - fuse.sshfs a rw\n\
42 35 0:55 / /sys/fs/fuse/connections rw - fusectl none rw\n";
        assert_eq!(connections(mounts), ["53", "54"]);
    }

    #[test]
    fn what_is_done_in_time_is_let_alone() {
        assert_eq!(within(Duration::from_secs(60), || 7), 7);
    }
}
