//! Measuring volumes: each experiment at its smallest, and what is left behind.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
/// Amounts that are differences, are to be nothing, or may be so in a short run.
const MAY_BE_NONE: [&str; 6] = [
    "added-",
    "mirrored-not-",
    "alone-not-",
    "refused-without-damage",
    "wrong-bytes",
    "least-erased",
];

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
            "volume-reads" => 10,
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

/// The exporter, loop devices and what is mounted on them go with who is killed meanwhile, alone
/// or with all who work for him, and with who is asked to end.
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
        // The exporter shows the space; the one file system is mounted; both are, or are used.
        let moments = [("/shown - fuse", 0), ("/volume", 0), ("/device", 0), ("/device", 700)];
        for (mounted, later) in moments {
            let bench = Measuring::begin(target, disk, mounted);
            std::thread::sleep(Duration::from_millis(later));
            kill_process(bench.pid(), Signal::KILL).unwrap();
            bench.leaves_nothing(scratch.path());
        }
        let bench = Measuring::begin(target, disk, "/device");
        for pid in bench.all() {
            // Who has ended by itself is not there.
            let _ = kill_process(pid, Signal::KILL);
        }
        bench.leaves_nothing(scratch.path());
    }
    let bench = Measuring::begin("volume-ext3", disk, "/device");
    kill_process(bench.pid(), Signal::TERM).unwrap();
    bench.leaves_nothing(scratch.path());
}

/// The program, while it measures file systems on volumes.
struct Measuring {
    child: Child,
    /// Its mounts.
    namespace: PathBuf,
    /// Loop devices that were there before.
    before: String,
}

impl Measuring {
    /// Lets it measure on `target`, until what `mounted` says is mounted: a directory, and how.
    #[track_caller]
    fn begin(target: &str, disk: &str, mounted: &str) -> Measuring {
        let before = loop_devices();
        let mut bench = command(None);
        // Many small rounds: it is at work until it is killed.
        bench.args(["bench", "volume-filesystems", "--on", target, "--size", "smoke"]);
        bench.args(["--rounds", "100", "--disk", disk]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = bench.spawn().unwrap();
        let (directory, kind) = mounted.split_once(" - ").unwrap_or((mounted, ""));
        let is_it = |line: &str| {
            let is_there = line.split(' ').nth(4).is_some_and(|point| point.ends_with(directory));
            is_there && line.contains(&format!(" - {kind}"))
        };
        let mounts = format!("/proc/{}/mountinfo", child.id());
        await_that(|| {
            let text = std::fs::read_to_string(&mounts).unwrap();
            text.lines().any(|line| line.contains(target) && is_it(line))
        });
        let namespace = std::fs::read_link(format!("/proc/{}/ns/mnt", child.id())).unwrap();
        Measuring { child, namespace, before }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// All processes that have its mounts, or were told one of its files.
    fn all(&self) -> Vec<Pid> {
        let file = format!("/proc/{}/fd/", self.child.id());
        let is_of_it = |place: &Path| {
            let mounts = std::fs::read_link(place.join("ns/mnt"));
            let words = std::fs::read(place.join("cmdline")).unwrap_or_default();
            mounts.is_ok_and(|mounts| mounts == self.namespace) || text(&words).contains(&file)
        };
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let own = processes.filter(|entry| is_of_it(&entry.path()));
        let numbers = own.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    }

    /// It ends, and all that it has made goes.
    #[track_caller]
    fn leaves_nothing(mut self, disk: &Path) {
        support::wait(&mut self.child);
        await_that(|| self.all().is_empty());
        for word in ["/shown/space", disk.to_str().unwrap()] {
            await_that(|| new_devices(&self.before, word) == 0);
        }
        assert_eq!(std::fs::read_dir(disk).unwrap().count(), 0);
    }
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
    support::wait(&mut bench);
    await_that(|| new_devices(&before, word) == 0);
}
