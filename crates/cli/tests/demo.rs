//! The demonstration, in short.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Scratch, command, finish, text, wait};

fn small_tree(scratch: &Scratch) -> String {
    let tree = scratch.join("tree");
    std::fs::create_dir_all(tree.join("below")).unwrap();
    for nth in 0..50 {
        std::fs::write(tree.join(format!("below/{nth}")), vec![nth as u8; nth * 100]).unwrap();
    }
    tree.to_str().unwrap().to_owned()
}

#[test]
fn everything_is_shown_and_nothing_is_left() {
    let scratch = Scratch::new();
    let tree = small_tree(&scratch);
    let own = scratch.join("tmp");
    std::fs::create_dir(&own).unwrap();
    let mut demo = command(None);
    demo.args(["demo", "--rounds", "3", "--seed", "1", "--tree", &tree]).env("TMPDIR", &own);
    let output = finish(demo.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    for part in [
        "brought it in: 52 files",
        "3: killed after ",
        "all looked for: 0 differences",
        "compared with the original: 52 files",
        "all as it should be",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0);
}

#[test]
fn an_interrupted_demonstration_leaves_nothing() {
    let scratch = Scratch::new();
    let tree = small_tree(&scratch);
    let own = scratch.join("tmp");
    std::fs::create_dir(&own).unwrap();
    for delay in [50, 400, 900] {
        let mut demo = command(None);
        demo.args(["demo", "--tree", &tree, "--rounds", "100"]).env("TMPDIR", &own);
        let mut child = demo.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let status = wait(&mut child);
        assert!(!status.success(), "{status}");
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0, "after {delay} ms");
    }
}
