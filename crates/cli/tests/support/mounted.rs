//! What is mounted, and who serves it.

use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::{LIMIT, wait};

/// What is mounted at `point`, the topmost last: source, type and flags.
pub fn mounts(point: &str) -> Vec<[String; 3]> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines = table.lines().filter(|line| line.split(' ').nth(4) == Some(point));
    let fields = lines.map(|line| {
        let (before, after) = line.split_once(" - ").unwrap();
        let mut after = after.split(' ');
        let [kind, source] = [(); 2].map(|()| after.next().unwrap().to_owned());
        [source, kind, before.split(' ').nth(5).unwrap().to_owned()]
    });
    fields.collect()
}

/// The process that serves what is mounted at `point`: the one in `/proc` with these arguments.
pub fn server(point: &str) -> Pid {
    let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        let is_it = words.contains(&&b"--serving"[..]) && words.contains(&point.as_bytes());
        is_it.then(|| Pid::from_raw(pid).unwrap())
    });
    let pids: Vec<Pid> = pids.collect();
    assert_eq!(pids.len(), 1, "{pids:?}");
    pids[0]
}

/// Waits until that is so, which has to come in time.
pub fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What `child` has said, which has ended well.
pub fn ended(mut child: Child) -> String {
    let status = wait(&mut child);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success(), "{status}: {said}");
    said
}
