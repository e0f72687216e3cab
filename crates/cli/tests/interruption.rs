//! Whoever interrupts a copy, or kills it, leaves complete files; run again, it ends as if nothing
//! had happened.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use conquest_testkit::Rng;
use rustix::process::{Pid, Signal, kill_process};
use support::snapshot::{assert_equal, take};
use support::{Scratch, command, conquest, printed, text, wait};

const FILES: usize = 1500;
/// Copies that are interrupted.
const INTERRUPTIONS: u32 = 5;
/// Copies that are begun for that, at most.
const ROUNDS_MAX: u32 = 60;

/// Files of different sizes, all of them larger than nothing; some with two names.
fn make_tree(path: &Path) {
    for directory in 0..30 {
        let below = path.join(format!("d{directory:02}"));
        fs::create_dir_all(&below).unwrap();
        for file in 0..FILES / 30 {
            let bytes = vec![file as u8 | 1; 3_000 + file * 317];
            fs::write(below.join(format!("f{file:02}")), bytes).unwrap();
        }
        fs::hard_link(below.join("f00"), below.join("link")).unwrap();
    }
    fs::write(path.join("large"), vec![5; 12 << 20]).unwrap();
}

/// Random times before a signal; shorter ones after one that came too late, as machines differ.
struct Times {
    rng: Rng,
    /// Microseconds.
    most: u64,
}

impl Times {
    fn new(seed: u64) -> Times {
        Times { rng: Rng::new(seed), most: 400_000 }
    }

    fn next(&mut self) -> Duration {
        Duration::from_micros(self.rng.below(self.most))
    }
}

/// Starts a copy, and sends it `signal` after a random time; whether that was before its end.
fn interrupt(args: &[&str], signal: Signal, times: &mut Times) -> bool {
    let was_before = send_signal(args, signal, times);
    if !was_before {
        times.most = (times.most * 3 / 4).max(2_000);
    }
    was_before
}

fn send_signal(args: &[&str], signal: Signal, times: &mut Times) -> bool {
    let mut command = command(None);
    let mut child =
        command.args(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(times.next());
    // Whoever has ended is not reaped yet, so the number is still its own.
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = wait(&mut child);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    match status.signal() {
        Some(number) => {
            assert_eq!(number, signal.as_raw(), "{said}");
            if signal == Signal::INT && !said.is_empty() {
                assert!(said.contains("interrupted; run the same command again"), "{said}");
            }
            true
        }
        None => {
            assert!(status.success(), "{status} {said}");
            false
        }
    }
}

/// Every file under its own name is complete.
fn assert_nothing_half(tree: &Path, copy: &Path) {
    if !copy.exists() {
        return;
    }
    let (whole, part) = (take(tree), take(copy));
    for (path, file) in &part {
        if text(path).contains("/.conquest-") {
            continue;
        }
        let original = whole.get(path).unwrap_or_else(|| panic!("{:?} is new", text(path)));
        assert_eq!(file.size, original.size, "{:?}", text(path));
        assert!(file.bytes == original.bytes, "{:?}", text(path));
    }
}

fn rounds(signal: Signal, seed: u64) {
    let scratch = Scratch::new();
    let (tree, out) = (scratch.join("tree"), scratch.join("out"));
    make_tree(&tree);
    let store = scratch.store("store");
    let inside = format!("{store}:/tree");
    let plain = tree.to_str().unwrap();
    let mut times = Times::new(seed);
    let mut interrupted = 0;
    for round in 0.. {
        let was_before = interrupt(&["import", plain, &inside], signal, &mut times);
        interrupted += u32::from(was_before);
        let exported = conquest(["export", &inside, out.to_str().unwrap()]);
        if exported.status.success() {
            assert_nothing_half(&tree, &out);
            fs::remove_dir_all(&out).unwrap();
        } else {
            assert!(text(&exported.stderr).contains("No such file"), "{exported:?}");
        }
        assert!(printed(["fsck", "-n", &store]).ends_with("\nconsistent\n"));
        if interrupted == INTERRUPTIONS {
            break;
        }
        assert!(round < ROUNDS_MAX, "only {interrupted} copies were interrupted in time");
        if !was_before || times.rng.below(3) == 0 {
            printed(["rm", "-rf", &inside]);
        }
    }
    printed(["import", "--verify", plain, &inside]);
    let listed = printed(["ls", "-AR", &inside]);
    assert!(!listed.contains(".conquest-"), "{listed}");
    // In the other direction.
    for _ in 0..6 {
        let args = ["export", &inside, out.to_str().unwrap()];
        interrupt(&args, signal, &mut times);
        assert_nothing_half(&tree, &out);
    }
    printed(["export", &inside, out.to_str().unwrap()]);
    assert_equal(&take(&tree), &take(&out));
}

#[test]
fn an_interrupted_copy_can_be_run_again() {
    rounds(Signal::INT, 1);
}

#[test]
fn a_killed_copy_can_be_run_again() {
    rounds(Signal::KILL, 2);
}

#[test]
fn an_interrupted_copy_of_one_file_leaves_nothing() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    let large = scratch.join("large");
    fs::write(&large, vec![7; 100 << 20]).unwrap();
    let inside = format!("{store}:/large");
    let mut times = Times::new(3);
    for _ in 0..6 {
        let was = interrupt(&["cp", large.to_str().unwrap(), &inside], Signal::INT, &mut times);
        let listed = printed(["ls", "-A", &format!("{store}:/")]);
        assert!(listed.is_empty() || listed == "large\n", "{was} {listed}");
        if !listed.is_empty() {
            let told = printed(["stat", "--json", &inside]);
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            assert_eq!(told["files"][0]["size"], 100 << 20);
            printed(["rm", &inside]);
        }
    }
}
