//! `conform stress`: the stressors of stress-ng that are about file systems. None may fail that
//! passes on ext4.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::options::Options;
use super::room::Room;
use super::{compared, step, watch};
use crate::Failure;
use crate::child::Ended;
use crate::packages::Need;
use crate::tally::Tally;

/// Commands that it needs.
pub(super) const NEEDED: [Need; 1] = [("stress-ng", "stress-ng")];

/// The class of stressors. Which there are, the program says.
const CLASS: &str = "filesystem";
/// Stressors of the class that have nothing to do with the file system that they run on.
const LEFT_OUT: [&str; 6] = ["bind-mount", "binderfs", "eventfd", "ioprio", "procfs", "verity"];
/// Stressors of other classes that work on a file.
const MORE: [&str; 4] = ["aio", "readahead", "seek", "sendfile"];
/// Processes of each stressor.
const WORKERS: &str = "2";
/// How long a stressor may take to end after its time: some have much to remove.
const GRACE: Duration = Duration::from_secs(180);

/// What came of a stressor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    /// It says itself that it can't run here.
    Skipped,
    Failed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Skipped => "skipped",
            Outcome::Failed => "FAILED",
        }
    }
}

/// Runs it: a case is a stressor.
pub(super) fn run(room: &Room, options: &Options) -> Result<Tally, Failure> {
    compared(room, options, |target, reference| {
        let mut tally = Tally::default();
        for name in stressors()?.iter().filter(|name| options.wants(name)) {
            let log = |of: &str| room.logs.join(format!("{name}.{of}"));
            let found = one(name, options.seconds, target.directory(), &log("log"))?;
            let expected = one(name, options.seconds, reference.directory(), &log("ext4.log"))?;
            println!("{name}: {}, on ext4 {}", found.word(), expected.word());
            if found == Outcome::Failed {
                println!("  {}", complaints(&read(&log("log"))));
            }
            tally += judge(found, expected);
        }
        Ok(tally)
    })
}

/// What the outcomes count for: what fails on ext4, too, says nothing, and neither does what was
/// skipped.
fn judge(found: Outcome, expected: Outcome) -> Tally {
    match (found, expected) {
        (Outcome::Passed, _) => Tally::one(true),
        (Outcome::Failed, Outcome::Passed | Outcome::Skipped) => Tally::one(false),
        (Outcome::Skipped, _) | (Outcome::Failed, Outcome::Failed) => Tally::default(),
    }
}

/// The names of all stressors to run.
fn stressors() -> Result<Vec<String>, Failure> {
    let mut list = Command::new("stress-ng");
    // The question mark belongs to the name of the class.
    list.args(["--class", &format!("{CLASS}?")]);
    let said =
        list.output().map_err(|e| Failure::system("can't run", Path::new("stress-ng"), &e))?;
    let text = [said.stdout, said.stderr].concat();
    let names = names(&String::from_utf8_lossy(&text));
    if names.is_empty() {
        return Err(Failure::Broken(format!("stress-ng knows no class {CLASS}")));
    }
    Ok(names)
}

/// The names in a line `class 'CLASS' stressors: NAME NAME ...`, without those that are left out,
/// and those that are added.
fn names(text: &str) -> Vec<String> {
    let Some((_, list)) = text.split_once(" stressors: ") else { return Vec::new() };
    let mut names: Vec<&str> = list.split_whitespace().collect();
    names.retain(|name| !LEFT_OUT.contains(name));
    names.extend(MORE);
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(str::to_owned).collect()
}

fn one(name: &str, seconds: u64, directory: &Path, log: &Path) -> Result<Outcome, Failure> {
    let mut command = Command::new("stress-ng");
    command.args([&format!("--{name}"), WORKERS, "--verify", "--timeout"]);
    command.arg(format!("{seconds}s")).arg("--temp-path").arg(directory);
    command.current_dir(directory);
    let ended = watch::run_logged(&mut command, Duration::from_secs(seconds) + GRACE, log)?;
    Ok(outcome(ended, &read(log)))
}

/// What an end and the output mean. The exit code is 0 also if nothing was done.
fn outcome(ended: Ended, text: &str) -> Outcome {
    /// The exit code of a stressor that the machine does not have.
    const NOT_IMPLEMENTED: i32 = 4;
    match ended {
        Ended::Well if text.contains("skipping stress") => Outcome::Skipped,
        Ended::Well => Outcome::Passed,
        Ended::Badly(status) if status.code() == Some(NOT_IMPLEMENTED) => Outcome::Skipped,
        Ended::Badly(_) | Ended::TimedOut => Outcome::Failed,
    }
}

fn read(log: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
}

/// What stress-ng complains of.
fn complaints(text: &str) -> String {
    let is_complaint = |line: &&str| line.contains("fail:") || line.contains("error:");
    let lines: Vec<&str> = text.lines().filter(is_complaint).collect();
    if lines.is_empty() { step::tail(text, 3) } else { step::tail(&lines.join("\n"), 3) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn the_list_is_read() {
        let found = names("class 'filesystem' stressors: access procfs xattr\n");
        assert!(found.contains(&"access".to_owned()) && found.contains(&"seek".to_owned()));
        assert!(!found.contains(&"procfs".to_owned()));
        assert!(names("unknown class").is_empty());
    }

    #[test]
    fn outcomes_are_told_apart() {
        let badly = |code: i32| Ended::Badly(ExitStatus::from_raw(code << 8));
        assert_eq!(outcome(Ended::Well, "successful run"), Outcome::Passed);
        assert_eq!(outcome(Ended::Well, "no privilege, skipping stressor"), Outcome::Skipped);
        assert_eq!(outcome(badly(4), ""), Outcome::Skipped);
        assert_eq!(outcome(badly(2), ""), Outcome::Failed);
        assert_eq!(outcome(Ended::TimedOut, ""), Outcome::Failed);
    }

    #[test]
    fn only_what_ext4_passes_counts_as_failed() {
        let (good, bad) = (Tally::one(true), Tally::one(false));
        assert_eq!(judge(Outcome::Passed, Outcome::Failed), good);
        assert_eq!(judge(Outcome::Failed, Outcome::Passed), bad);
        assert_eq!(judge(Outcome::Failed, Outcome::Skipped), bad);
        assert_eq!(judge(Outcome::Failed, Outcome::Failed), Tally::default());
        assert_eq!(judge(Outcome::Skipped, Outcome::Passed), Tally::default());
    }
}
