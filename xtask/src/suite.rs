//! `cargo xtask test`: everything that a change must pass.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::child;
use crate::harness::{self, judge};
use crate::packages::{self, Need};
use crate::tally::Tally;
use crate::{Failure, conform, tidy, tree};

/// Commands that tests use, and the Debian package that has each.
const NEEDED: [Need; 18] = [
    ("cc", "gcc"),
    ("mount", "mount"),
    ("unshare", "util-linux"),
    ("losetup", "mount"),
    ("fstrim", "util-linux"),
    ("mkfs.ext3", "e2fsprogs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_repair", "xfsprogs"),
    ("fusermount3", "fuse3"),
    ("jsonschema", "python3-jsonschema"),
    ("postmark", "postmark"),
    ("bonnie++", "bonnie++"),
    ("fio", "fio"),
    ("dbench", "dbench"),
    ("fs_mark", "fsmark"),
    ("valgrind", "valgrind"),
];

/// How long one step may take.
const STEP_LIMIT: Duration = Duration::from_secs(3600);
/// How long a slice of an explorer or a kill test may take.
const SLICE_LIMIT: Duration = Duration::from_secs(900);
/// The slices: a kind of program and its arguments.
const SLICES: [(&str, [&str; 2]); 3] = [
    ("explore", ["--states", "30000"]),
    ("kill", ["--kills", "300"]),
    ("fuzz", ["--seconds", "10"]),
];

/// Slices whose arguments are not those of their kind: the kind, the name, and the arguments.
const OTHER_SLICES: [(&str, &str, [&str; 2]); 1] = [("explore", "store", ["--cuts", "6000"])];

/// What judges mounted stores and volumes: arguments of `conform`.
const JUDGES: [&[&str]; 9] = [
    &["pjdfstest", "--on", "conquest"],
    &["pjdfstest", "--on", "conquest-unprivileged"],
    &["fsx", "--on", "conquest", "--seeds", "1", "--operations", "5000"],
    &["fsx", "--on", "volume", "--seeds", "1", "--operations", "5000", "--only", "fsx-1"],
    &["fsx", "--on", "volume-ext3", "--seeds", "1", "--operations", "5000", "--only", "fsx-1"],
    &["fsx", "--on", "volume-xfs", "--seeds", "1", "--operations", "5000", "--only", "fsx-1"],
    &["fsx", "--on", "space", "--seeds", "1", "--operations", "5000"],
    &["programs", "--on", "conquest", "--quick"],
    &["cuts", "--cuts", "4", "--seconds", "3"],
];

/// How long the models of one crate under weak memory orders may take, built included.
const MODELS_LIMIT: Duration = Duration::from_secs(600);

/// An environment variable to set: name and value.
type Variable = Option<(&'static str, &'static str)>;
/// Steps that are one command of cargo: name, arguments, variable.
const STEPS: [(&str, &[&str], Variable); 4] = [
    ("format", &["fmt", "--all", "--", "--check"], None),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], None),
    ("tests", &["test", "--workspace", "--no-fail-fast"], None),
    (
        "documentation",
        &["doc", "--workspace", "--no-deps", "--document-private-items"],
        Some(("RUSTDOCFLAGS", "-D warnings")),
    ),
];

/// Runs `cargo xtask test`.
pub(crate) fn run() -> Result<Tally, Failure> {
    packages::provide("cargo xtask test", &NEEDED)?;
    let mut total = Tally::default();
    let mut times: Vec<(String, Tally, Duration)> = Vec::new();
    let mut step = |name: String, work: &mut dyn FnMut() -> Result<Tally, Failure>| {
        println!("== {name}");
        let start = Instant::now();
        let tally = work().unwrap_or_else(|failure| {
            println!("{name}: {}", failure.text());
            Tally::one(false)
        });
        println!("== {name}: {tally}, {:.1} s\n", start.elapsed().as_secs_f64());
        total += tally;
        times.push((name, tally, start.elapsed()));
    };
    for (name, arguments, variable) in STEPS {
        if name == "tests" {
            step("tidy".into(), &mut tidy::run);
        }
        step(name.into(), &mut || cargo(arguments, variable));
    }
    for name in harness::models(&tree::root()) {
        step(format!("models {name}"), &mut || models(&name));
    }
    for (kind, usual) in SLICES {
        for name in harness::names(&tree::root(), kind) {
            let other = OTHER_SLICES.iter().find(|(of, it, _)| *of == kind && *it == name);
            let arguments = other.map_or(usual, |(_, _, arguments)| *arguments).map(str::to_owned);
            step(format!("{kind} {name} {}", arguments.join(" ")), &mut || {
                harness::run_one(kind, &name, &arguments, SLICE_LIMIT)
            });
        }
    }
    for words in JUDGES {
        let arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        step(format!("conform {}", words.join(" ")), &mut || conform::run(&arguments));
    }
    println!("{} steps:", times.len());
    for (name, tally, time) in &times {
        println!("  {:>7.1} s  {name}: {tally}", time.as_secs_f64());
    }
    Ok(total)
}

fn cargo(arguments: &[&str], variable: Variable) -> Result<Tally, Failure> {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(tree::root());
    command.envs(variable);
    counted(&mut command, STEP_LIMIT)
}

/// Runs the loom models of crate `name`. They have a target directory of their own, because the
/// flag makes everything compile anew.
fn models(name: &str) -> Result<Tally, Failure> {
    let root = tree::root();
    let mut command = Command::new("cargo");
    command.args(["test", "--release", "--no-fail-fast", "--test", "loom_*", "--package"]);
    command.arg(format!("conquest-{name}")).current_dir(&root);
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("CARGO_TARGET_DIR", root.join("target/loom"));
    counted(&mut command, MODELS_LIMIT)
}

fn counted(command: &mut Command, limit: Duration) -> Result<Tally, Failure> {
    let mut counted = None;
    let ended = child::run_shown(command, limit, |line| {
        if let Some(tally) = Tally::from_test_result(line) {
            *counted.get_or_insert(Tally::default()) += tally;
        }
        true
    })?;
    Ok(judge(ended, counted))
}
