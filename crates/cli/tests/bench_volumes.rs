//! Measuring volumes: each experiment at its smallest, and what is left behind.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{LIMIT, Scratch, command, finish, need_root, printed, refused, text};

/// Those with volumes, each with the targets that it is done on.
const VOLUMES: [(&str, &str); 6] = [
    ("volume-reads", "disk,loop"),
    ("volume-writes", "disk,loop"),
    ("volume-amplification", "memory"),
    ("volume-opening", "memory"),
    ("volume-wear", "memory"),
    ("volume-filesystems", "volume-ext3,volume-ext4,volume-xfs"),
];
/// Amounts that are differences, or are to be nothing.
const MAY_BE_NONE: [&str; 5] =
    ["added-", "mirrored-not-", "alone-not-", "refused-without-damage", "wrong-bytes"];

/// Amounts of an experiment, at its smallest, that are not to be more than so much.
fn bounds(experiment: &str) -> &'static [&'static str] {
    match experiment {
        "volume-reads" => &["added-processor-time", "added-processor-time-32"],
        "volume-amplification" => &["amplification"],
        "volume-wear" => &["mirrored-not-corrected", "alone-not-detected", "wrong-bytes"],
        _ => &[],
    }
}

/// All that are to be there are, and those of damage are met.
#[track_caller]
fn check_bounds(experiment: &str, found: &[Value]) {
    let wanted = bounds(experiment);
    assert_eq!(found.is_empty(), wanted.is_empty(), "{experiment}: {found:?}");
    for phase in wanted {
        let all: Vec<_> = found.iter().filter(|one| one["phase"] == *phase).collect();
        let is_of_damage = experiment == "volume-wear";
        let is_right = |one: &&Value| one["met"] == true || !is_of_damage && one["met"] == false;
        assert!(!all.is_empty() && all.iter().all(is_right), "{experiment}: {found:?}");
    }
}

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

/// File systems on volumes have loop devices by whose names they can't be told apart: tests of
/// them come one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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
    let _alone = alone();
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
            let phase = result["phase"].as_str().unwrap();
            let may_be_none = MAY_BE_NONE.iter().any(|word| phase.starts_with(word));
            assert!(may_be_none || result["median"].as_f64().unwrap() > 0.0, "{name}");
        }
        // Devices are not compared with each other, but with the volumes on them.
        assert_eq!(found["comparisons"].as_array().unwrap().len(), 0, "{said}");
        let pairs = found["pairs"].as_array().unwrap();
        let count = match experiment {
            "volume-filesystems" => 27,
            _ if on == "disk,loop" => 6,
            _ => 0,
        };
        assert_eq!(pairs.len(), count, "{said}");
        let aims: BTreeSet<String> =
            pairs.iter().map(|pair| format!("{} {}", pair["target"], pair["aim"])).collect();
        if experiment == "volume-reads" {
            // 4 KiB and 1 MiB.
            let wanted = ["disk 0.95", "disk 0.97", "loop 0.9", "loop 0.97"];
            assert_eq!(aims, wanted.map(|aim| format!("\"{}", aim.replace(' ', "\" "))).into());
            assert!(said.contains("; aim 0.95: ") && said.contains("; aim 0.90: "), "{said}");
        }
        check_bounds(experiment, found["bounds"].as_array().unwrap());
        if experiment == "volume-filesystems" {
            assert!(said.contains("volume-ext3: both: mounted ext3 "), "{said}");
            assert!(said.contains("what was synced survives power"), "{said}");
        }
        let page = std::fs::read_to_string(&html).unwrap();
        assert_eq!(page.contains("<caption>pairs</caption>"), count > 0);
        assert_eq!(page.contains("<caption>bounds</caption>"), !bounds(experiment).is_empty());
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
    // Their files have no names, in directories that others may have too.
    dies_with_its_devices("volume-writes", "loop", "/loop/#", disk);
}

/// The exporter, the loop devices and what is mounted on them go with who is killed meanwhile, and
/// with who is asked to end.
#[test]
fn nothing_is_left_of_file_systems_on_volumes() {
    need_root();
    let _alone = alone();
    let scratch = Scratch::new();
    let disk = scratch.path().to_str().unwrap();
    let said = refused(1, ["bench", "sprite-small", "--size", "smoke", "--on", "volume-ext4"]);
    assert!(said.contains("left out: it is two file systems"), "{said}");
    let said = refused(1, ["bench", "volume-filesystems", "--size", "smoke", "--on", "ext4"]);
    assert!(said.contains("left out: it is not on a volume"), "{said}");
    for target in ["volume-ext4", "volume-xfs"] {
        dies_with_its_devices("volume-filesystems", target, "/shown/space", disk);
    }
    let mut bench = command(None);
    bench.args(["bench", "volume-filesystems", "--on", "volume-ext3", "--disk", disk]);
    let mut bench = bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let of_it = |before: &str| new_devices(before, "/volume-ext3/shown/space");
    await_that(|| of_it("") > 0);
    kill_process(Pid::from_child(&bench), Signal::TERM).unwrap();
    bench.wait().unwrap();
    await_that(|| of_it("") == 0);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// How many loop devices there are on files whose names contain `word`, and were not `before`.
fn new_devices(before: &str, word: &str) -> usize {
    let devices = loop_devices();
    devices.lines().filter(|line| line.contains(word) && !before.contains(line)).count()
}

#[track_caller]
fn await_that(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() && begin.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_so(), "{}", loop_devices());
}

/// Kills the program while it does `experiment` on `target`, whose loop devices are on files with
/// names that contain `word`.
#[track_caller]
fn dies_with_its_devices(experiment: &str, target: &str, word: &str, disk: &str) {
    let before = loop_devices();
    let mut bench = command(None);
    bench.args(["bench", experiment, "--on", target, "--rounds", "1", "--disk", disk]);
    let mut bench = bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_that(|| new_devices(&before, word) > 0);
    kill_process(Pid::from_child(&bench), Signal::KILL).unwrap();
    bench.wait().unwrap();
    await_that(|| new_devices(&before, word) == 0);
}
