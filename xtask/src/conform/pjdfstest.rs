//! `conform pjdfstest`: every system call on names and attributes, one case after the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::options::Options;
use super::room::Room;
use super::target::Kind;
use super::{data, judged, tools, watch};
use crate::Failure;
use crate::tally::Tally;

/// Name and version in the crate registry.
pub(super) const TOOL: (&str, &str) = ("pjdfstest", "0.2.2");
/// Longest time for all cases.
const LIMIT: Duration = Duration::from_secs(2400);
/// Cases that an unprivileged mount may fail, each with its reason.
const ALLOWED: &str = "pjd-unprivileged.txt";

/// What came of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    /// With the reason.
    Skipped(String),
    Failed(String),
}

/// The fewest cases that have to pass. The others: thirteen would mount the file system
/// read-only in between, which the configuration does not let them, and the one that makes as many
/// links of a file as there may be is skipped where nobody says how many.
const PASSED_MIN: usize = 384;
/// The most that may be skipped.
const SKIPPED_MAX: usize = 14;

/// Runs it.
pub(super) fn run(room: &Room, options: &Options) -> Result<Tally, Failure> {
    let allowed = match options.on {
        Kind::ConquestUnprivileged => read_allowed(&data(ALLOWED))?,
        _ => BTreeMap::new(),
    };
    let other = room.make("other")?;
    judged(room, options, |target| {
        let directory = target.directory().join("dir");
        std::fs::create_dir(&directory)
            .map_err(|e| Failure::system("can't make", &directory, &e))?;
        let log = room.logs.join("pjdfstest.log");
        let mut command = Command::new(tools::path(TOOL.0, TOOL.1));
        command.arg("-c").arg(data("pjd.toml")).arg("-s").arg(&other).arg("-p").arg(directory);
        command.args(&options.only);
        let ended = watch::run_logged(&mut command, LIMIT, &log)?;
        let text =
            std::fs::read_to_string(&log).map_err(|e| Failure::system("can't read", &log, &e))?;
        let outcomes = parse(&text);
        let mut tally = count(&outcomes, &allowed);
        if !text.contains("Summary: ") {
            println!("pjdfstest did not come to its end: {ended}");
            tally.failed += 1;
        }
        if options.only.is_empty() {
            tally.failed += u64::from(!reaches(&outcomes, (PASSED_MIN, SKIPPED_MAX), &allowed));
        }
        Ok(tally)
    })
}

/// Cases in the output, in its order.
fn parse(text: &str) -> Vec<(String, Outcome)> {
    let mut found: Vec<(String, Outcome)> = Vec::new();
    for line in text.lines() {
        if let Some(reason) = line.strip_prefix('\t') {
            if let Some((_, Outcome::Skipped(why) | Outcome::Failed(why))) = found.last_mut() {
                if !why.is_empty() {
                    why.push_str("; ");
                }
                why.push_str(reason.trim());
            }
            continue;
        }
        let Some((name, end)) = line.split_once(char::is_whitespace) else { continue };
        let outcome = match end.trim() {
            "ok" => Outcome::Passed,
            "skipped" => Outcome::Skipped(String::new()),
            "FAILED" => Outcome::Failed(String::new()),
            _ => continue,
        };
        found.push((name.to_owned(), outcome));
    }
    found
}

/// Counts cases and tells of those that did not pass. What may fail is not counted as failed.
fn count(outcomes: &[(String, Outcome)], allowed: &BTreeMap<String, String>) -> Tally {
    let mut tally = Tally::default();
    for (name, outcome) in outcomes {
        match (outcome, allowed.get(name)) {
            (Outcome::Passed, None) => tally.passed += 1,
            (Outcome::Passed, Some(_)) => {
                println!("{name}: passed, but {ALLOWED} says that it can't");
                tally.failed += 1;
            }
            (Outcome::Skipped(why), _) => println!("{name}: skipped: {why}"),
            (Outcome::Failed(_), Some(why)) => println!("{name}: failed, as it may: {why}"),
            (Outcome::Failed(what), None) => {
                println!("{name}: FAILED: {what}");
                tally.failed += 1;
            }
        }
    }
    tally
}

/// Whether enough cases passed and not too many were skipped.
fn reaches(
    outcomes: &[(String, Outcome)],
    (passed_min, skipped_max): (usize, usize),
    allowed: &BTreeMap<String, String>,
) -> bool {
    let number = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, o)| is(o)).count();
    let passed = number(|outcome| *outcome == Outcome::Passed);
    let skipped = number(|outcome| matches!(outcome, Outcome::Skipped(_)));
    println!("{} cases: {passed} passed, {skipped} skipped", outcomes.len());
    if passed + allowed.len() >= passed_min && skipped <= skipped_max {
        return true;
    }
    println!("expected: at least {passed_min} passed, at most {skipped_max} skipped");
    false
}

/// The list of deviations: lines `CASE REASON`; `#` begins a comment.
fn read_allowed(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|e| Failure::system("can't read", path, &e))?;
    let mut allowed = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let Some((name, why)) = line.split_once(' ').filter(|(_, why)| !why.trim().is_empty())
        else {
            let what = format!("{}: {line:?}: a case and a reason", path.display());
            return Err(Failure::Broken(what));
        };
        allowed.insert(name.to_owned(), why.trim().to_owned());
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
unlink::type::file                                                            ok
unlink::erofs                                                            skipped
\tremounts are not allowed
chmod::ctime                                                              FAILED
\tassertion failed
Backtrace:
   0: somewhere

Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total
";

    #[test]
    fn outcomes_are_read_with_their_reasons() {
        let outcomes = parse(OUTPUT);
        let expected = [
            ("unlink::type::file", Outcome::Passed),
            ("unlink::erofs", Outcome::Skipped("remounts are not allowed".into())),
            ("chmod::ctime", Outcome::Failed("assertion failed".into())),
        ];
        assert_eq!(outcomes, expected.map(|(name, outcome)| (name.to_owned(), outcome)));
        assert_eq!(count(&outcomes, &BTreeMap::new()), Tally { passed: 1, failed: 1 });
    }

    #[test]
    fn only_what_is_listed_may_fail_and_it_must() {
        let list = |name: &str| BTreeMap::from([(name.to_owned(), "why".to_owned())]);
        let outcomes = parse(OUTPUT);
        assert_eq!(count(&outcomes, &list("chmod::ctime")), Tally { passed: 1, failed: 0 });
        assert_eq!(count(&outcomes, &list("unlink::type::file")).failed, 2);
    }

    #[test]
    fn the_floor_is_held() {
        let outcomes = parse(OUTPUT);
        let none = BTreeMap::new();
        assert!(reaches(&outcomes, (1, 1), &none));
        assert!(!reaches(&outcomes, (2, 1), &none));
        assert!(!reaches(&outcomes, (1, 0), &none));
    }

    #[test]
    fn the_list_of_deviations_can_be_read() {
        read_allowed(&data(ALLOWED)).unwrap();
    }
}
