//! The programs of the test kit: crash explorers, kill tests, measurements, fuzz targets.
//!
//! A program `KIND-NAME` exists if its source does: a file or a folder of its name in
//! `crates/testkit/src/bin`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::child::{self, Ended};
use crate::tally::Tally;
use crate::{Failure, tree};

/// How long a build may take.
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// How long a program may run that was started by hand.
const HAND_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How long a fuzz target may take to stop after its time.
const FUZZ_GRACE: Duration = Duration::from_secs(120);
/// Seconds that a fuzz target runs unless told otherwise.
const FUZZ_SECONDS: u64 = 60;

/// Names of the programs of `kind` in the workspace at `root`.
pub(crate) fn names(root: &Path, kind: &str) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(entries) = std::fs::read_dir(root.join("crates/testkit/src/bin")) else {
        return names;
    };
    for entry in entries.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let stem = file.strip_suffix(".rs").unwrap_or(&file);
        let name = stem.strip_prefix(kind);
        if let Some(name) = name.and_then(|n| n.strip_prefix('-')) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    names
}

/// Crates in the workspace at `root` that have loom models: tests whose names begin with `loom_`.
pub(crate) fn models(root: &Path) -> Vec<String> {
    let mut crates: Vec<String> = tree::paths(&root.join("crates"))
        .unwrap_or_default()
        .iter()
        .filter_map(|path| path.split_once("/tests/loom_"))
        .filter(|(_, rest)| !rest.contains('/'))
        .map(|(name, _)| name.to_owned())
        .collect();
    crates.sort();
    crates.dedup();
    crates
}

/// Runs `cargo xtask KIND ARGUMENTS`.
pub(crate) fn run(kind: &str, arguments: &[String]) -> Result<Tally, Failure> {
    let known = names(&tree::root(), kind);
    let list = if known.is_empty() {
        format!("there is no {kind} program yet")
    } else {
        format!("there is: {}", known.join(", "))
    };
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::Usage(format!("{kind}: of what? {list}")));
    };
    if !known.contains(name) {
        return Err(Failure::Usage(format!("{kind}: no {name:?}; {list}")));
    }
    let mut passed_on = rest.to_vec();
    let mut limit = HAND_LIMIT;
    let is_counted = passed_on.iter().any(|argument| argument == "--cases");
    if kind == "fuzz" && !is_counted {
        let seconds = fuzz_seconds(&mut passed_on)?;
        limit = Duration::from_secs(seconds) + FUZZ_GRACE;
    }
    run_one(kind, name, &passed_on, limit)
}

/// The `--seconds` in `arguments`, added if it is missing.
fn fuzz_seconds(arguments: &mut Vec<String>) -> Result<u64, Failure> {
    let Some(at) = arguments.iter().position(|a| a == "--seconds") else {
        arguments.extend(["--seconds".to_owned(), FUZZ_SECONDS.to_string()]);
        return Ok(FUZZ_SECONDS);
    };
    let value = arguments.get(at + 1).and_then(|value| value.parse().ok());
    value.ok_or_else(|| Failure::Usage("--seconds needs a number".into()))
}

/// How programs of `kind` are built.
pub(crate) fn profile(kind: &str) -> &'static str {
    if kind == "fuzz" { "fuzz" } else { "release" }
}

/// Builds `program` of the test kit.
pub(crate) fn build(program: &str, profile: &str) -> Result<(), Failure> {
    let mut build = Command::new("cargo");
    build.args(["build", "--profile", profile, "-p", "conquest-testkit", "--bin", program]);
    if child::run_shown(build.current_dir(tree::root()), BUILD_LIMIT, |_| true)?.is_well() {
        return Ok(());
    }
    Err(Failure::Broken(format!("{program} does not build")))
}

/// Builds program `KIND-NAME` and runs it with `arguments` for at most `limit`.
pub(crate) fn run_one(
    kind: &str,
    name: &str,
    arguments: &[String],
    limit: Duration,
) -> Result<Tally, Failure> {
    let program = format!("{kind}-{name}");
    let profile = profile(kind);
    build(&program, profile)?;
    let selection = ["--profile", profile, "-p", "conquest-testkit", "--bin", &program];
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet"]).args(selection).arg("--");
    command.args(arguments).current_dir(tree::root());
    counted(&mut command, limit, &program)
}

/// Runs `command`, which is called `name`, for at most `limit`: what it counts.
pub(crate) fn counted(
    command: &mut Command,
    limit: Duration,
    name: &str,
) -> Result<Tally, Failure> {
    let mut counted = None;
    let ended = child::run_shown(command, limit, |line| {
        let tally = Tally::from_line(line);
        counted = tally.or(counted);
        // The count is told once, at the end, by whoever called.
        tally.is_none()
    })?;
    if let Ended::Badly(status) = ended {
        println!("{name}: {status}");
    } else if ended == Ended::TimedOut {
        println!("{name}: killed after {} s", limit.as_secs());
    }
    Ok(judge(ended, counted))
}

/// What a child that ended so and counted so adds up to: a child that ends badly has at least one
/// failure, whatever it counted; one that counted nothing is itself what is counted.
pub(crate) fn judge(ended: Ended, counted: Option<Tally>) -> Tally {
    let mut tally = counted.unwrap_or(Tally::one(ended.is_well()));
    if !ended.is_well() && tally.failed == 0 {
        tally.failed = 1;
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_end_is_a_failure_whatever_was_counted() {
        let good = Tally { passed: 7, failed: 0 };
        assert_eq!(judge(Ended::Well, Some(good)), good);
        assert_eq!(judge(Ended::Well, None), Tally::one(true));
        assert_eq!(judge(Ended::TimedOut, Some(good)).failed, 1);
        assert_eq!(judge(Ended::TimedOut, None), Tally::one(false));
    }

    #[test]
    fn a_program_without_source_is_refused() {
        let asked = ["no-such-crate".to_owned()];
        assert!(matches!(run("explore", &asked), Err(Failure::Usage(_))));
        assert!(matches!(run("kill", &[]), Err(Failure::Usage(_))));
    }

    #[test]
    fn fuzzing_ends_by_itself() {
        let mut arguments = vec!["--seed".to_owned(), "3".to_owned()];
        assert_eq!(fuzz_seconds(&mut arguments).unwrap(), FUZZ_SECONDS);
        assert_eq!(arguments.len(), 4);
        assert_eq!(fuzz_seconds(&mut arguments).unwrap(), FUZZ_SECONDS);
        assert!(fuzz_seconds(&mut vec!["--seconds".into(), "x".into()]).is_err());
    }
}
