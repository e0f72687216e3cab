//! Rooms, in which suites run: nothing is left of them, however they end. Needs root, a loop device
//! and `mkfs.ext4`.

// Helpers of tests: they fail as tests do.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest wait for something to be gone.
const LIMIT: Duration = Duration::from_secs(60);

fn smoke(on: &str, hold: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["conform", "smoke", "--on", on, "--hold", &hold.to_string()]);
    command
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mounts").unwrap()
}

/// Loop devices with a file called `name`: each with the number of the file system that has it.
fn loops(name: &str) -> Vec<String> {
    let mut list = Command::new("losetup");
    list.args(["--list", "--noheadings", "--output", "NAME,BACK-MAJ:MIN,BACK-FILE"]);
    let said = list.output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    said.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}

/// Whether a process has `argument` among its arguments.
fn is_running(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap();
    processes.flatten().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    })
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// For one room at a time: each has a loop device with a file of the same name.
static ROOM: Mutex<()> = Mutex::new(());

#[test]
fn a_room_is_not_seen_outside() {
    let _one = ROOM.lock();
    let before = mounts();
    for on in ["tmpfs", "ext4"] {
        let output = smoke(on, 1).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{on}: {said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.ends_with("5 passed, 0 failed\n"), "{on}: {said}");
        assert_eq!(mounts(), before, "{on}");
    }
}

/// Kills it as soon as it is mounted: processes and loop devices go.
#[test]
fn a_room_goes_with_who_entered_it() {
    let _one = ROOM.lock();
    // A number that nobody else waits for.
    let hold = 1_000_000 + std::process::id();
    let mut child = smoke("ext4", hold).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mounted = lines.next().unwrap().unwrap();
    let place = mounted.strip_prefix("mounted at ").unwrap();
    assert!(is_running(&hold.to_string()));
    let image = format!("{place}.ext4");
    let devices = loops(&image);
    assert!(!devices.is_empty(), "no loop device has {image}");
    assert!(!Path::new(&image).exists(), "{image} is seen outside");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("processes are left", || !is_running(&hold.to_string()));
    // Others may be those of other rooms.
    let is_left = |device: &String| loops(&image).contains(device);
    wait_until("a loop device is left", || !devices.iter().all(is_left));
}
