//! Measuring volumes: each experiment at its smallest, and what is left behind.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{LIMIT, Scratch, command, finish, need_root, printed, refused, text};

/// Those with volumes, each with the targets that it is done on.
const VOLUMES: [(&str, &str); 4] = [
    ("volume-reads", "disk,loop"),
    ("volume-writes", "disk,loop"),
    ("volume-amplification", "memory"),
    ("volume-opening", "memory"),
];

/// Each is listed, with its targets.
#[test]
fn experiments_with_volumes_are_listed() {
    let listed = printed(["bench", "list"]);
    for (experiment, on) in VOLUMES {
        let (_, behind) = listed.split_once(&format!("\n  {experiment} ")).unwrap();
        let (_, said) = behind.split_once(" on: ").unwrap();
        assert!(said.starts_with(&format!("{on}\n")), "{experiment}: {listed}");
    }
}

/// Loop devices, by the files that they are on.
fn loop_devices() -> String {
    let devices = finish(Command::new("losetup").args(["-a", "-n"]).stdout(Stdio::piped()));
    text(&devices.stdout)
}

/// Each experiment with volumes, on the targets that are its own; nothing is said of its figures.
#[test]
fn volumes_are_measured() {
    need_root();
    let scratch = Scratch::new();
    let (json, html) = (scratch.join("volumes.json"), scratch.join("volumes.html"));
    for (experiment, on) in VOLUMES {
        let mut bench = command(None);
        bench.args(["bench", experiment, "--size", "smoke", "--rounds", "5", "--json"]).arg(&json);
        bench.arg("--html").arg(&html).arg("--disk").arg(scratch.path());
        let output = finish(bench.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}");
        let text_of = std::fs::read_to_string(&json).unwrap();
        let found: Value = serde_json::from_str(&text_of).unwrap();
        let targets = found["targets"].as_array().unwrap().len();
        assert_eq!(targets, on.split(',').count(), "{said}");
        for result in found["results"].as_array().unwrap() {
            let name = format!("{experiment}: {result}");
            let is_amount = matches!(result["unit"].as_str(), Some("s" | "for each"));
            assert_eq!(result["higher_is_better"], !is_amount, "{name}");
            assert_eq!(result["metric"], if is_amount { "amount" } else { "rate" }, "{name}");
            let is_difference = result["phase"].as_str().unwrap().starts_with("added-");
            assert!(is_difference || result["median"].as_f64().unwrap() > 0.0, "{name}");
        }
        // Devices are not compared with each other, but with the volumes on them.
        assert_eq!(found["comparisons"].as_array().unwrap().len(), 0, "{said}");
        let pairs = found["pairs"].as_array().unwrap().len();
        let is_on_device = on == "disk,loop";
        assert_eq!(pairs, if is_on_device { 6 } else { 0 }, "{said}");
        assert_eq!(said.contains("; aim 0.90: "), experiment == "volume-writes", "{said}");
        let page = std::fs::read_to_string(&html).unwrap();
        assert_eq!(page.contains("<caption>pairs</caption>"), is_on_device);
        let schema = scratch.join("schema.json");
        std::fs::write(&schema, printed(["bench", "schema"])).unwrap();
        let mut judge = Command::new("jsonschema");
        judge.arg("-i").arg(&json).arg(&schema);
        let judged = finish(judge.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert!(judged.status.success(), "{}{}", text(&judged.stdout), text(&judged.stderr));
        assert!(!said.contains(scratch.path().to_str().unwrap()), "{said}");
    }
    let left = std::fs::read_dir(scratch.path()).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

/// Devices go with who is killed while he measures on them; and files are for other experiments.
#[test]
fn devices_of_volumes_are_for_them_alone_and_go_with_the_program() {
    need_root();
    let scratch = Scratch::new();
    let disk = scratch.path().to_str().unwrap();
    let on = |experiment: &str, on: &str| {
        let bench = ["bench", experiment, "--size", "smoke", "--rounds", "1", "--on", on];
        refused(1, bench)
    };
    let said = on("sprite-small", "disk,loop");
    assert!(said.contains("sprite-small on loop: left out: it is a device"), "{said}");
    let said = on("volume-reads", "ramfs");
    assert!(said.contains("volume-reads on ramfs: left out: it is no device"), "{said}");
    let said = on("volume-opening", "ramfs");
    assert!(said.contains("left out: its volume is in memory"), "{said}");
    let before = loop_devices();
    let mut bench = command(None);
    bench.args(["bench", "volume-writes", "--on", "loop", "--rounds", "1", "--disk", disk]);
    let mut bench = bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Its file has no name, in a directory that others may have too.
    let is_new = |line: &str| line.contains("/loop/#") && !before.contains(line);
    let is_there = || loop_devices().lines().any(is_new);
    let begin = Instant::now();
    while !is_there() && begin.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_there(), "{}", loop_devices());
    kill_process(Pid::from_child(&bench), Signal::KILL).unwrap();
    bench.wait().unwrap();
    let begin = Instant::now();
    while is_there() && begin.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!is_there(), "{}", loop_devices());
}
