//! `conform programs`: real programs at work, and what they leave compared with what they leave on
//! ext4.

mod cases;
mod manifest;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::options::Options;
use super::room::Room;
use super::target::Target;
use super::{data, step, watch};
use crate::Failure;
use crate::packages::Need;
use crate::tally::Tally;

use cases::{CASES, Case};

/// Longest time for one case on one file system.
const LIMIT: Duration = Duration::from_secs(900);
/// How much a case does, in its short variant and in full.
const QUICK: &str = "1";
const FULL: &str = "10";
/// Lines of a difference that are shown.
const LINES: usize = 5;

/// What the cases that were asked for need.
pub(super) fn needed(options: &Options) -> Vec<Need> {
    // What makes the scripts work at all.
    let mut needed = vec![("bash", "bash"), ("awk", "gawk"), ("tar", "tar")];
    needed.extend(wanted(options).flat_map(|case| case.needed));
    needed
}

fn wanted(options: &Options) -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| options.wants(case.name))
}

/// Runs it.
pub(super) fn run(room: &Room, options: &Options) -> Result<Tally, Failure> {
    super::compared(room, options, |target, reference| {
        let mut tally = Tally::default();
        for case in wanted(options) {
            let start = Instant::now();
            let outcome = one(room, options, case, target, reference);
            match &outcome {
                Ok(times) => {
                    let [found, expected] = times.map(|time| time.as_secs_f64());
                    println!("{}: passed, {found:.1} s, {expected:.1} s on ext4", case.name);
                }
                Err(failure) => {
                    let seconds = start.elapsed().as_secs_f64();
                    println!("{}: FAILED, {seconds:.1} s: {}", case.name, failure.text());
                }
            }
            tally += Tally::one(outcome.is_ok());
        }
        Ok(tally)
    })
}

/// Runs `case` on both, and removes what it leaves: how long it took on each.
fn one(
    room: &Room,
    options: &Options,
    case: &Case,
    target: &mut dyn Target,
    reference: &mut dyn Target,
) -> Result<[Duration; 2], Failure> {
    let places = [&*target, &*reference].map(|of| of.directory().join("case"));
    let outcome = compared(room, options, case, target, &places);
    for place in places.iter().filter(|place| place.exists()) {
        let removed = watch::within(LIMIT, || std::fs::remove_dir_all(place));
        // Why the case failed says more.
        if outcome.is_ok() {
            removed.map_err(|e| Failure::system("can't remove what is left in", place, &e))?;
        }
    }
    outcome
}

fn compared(
    room: &Room,
    options: &Options,
    case: &Case,
    target: &mut dyn Target,
    [on_target, on_reference]: &[PathBuf; 2],
) -> Result<[Duration; 2], Failure> {
    let scale = if options.is_quick { QUICK } else { FULL };
    let log = |of: &str| room.logs.join(format!("{}.{of}", case.name));
    let take = |name: &str, directory: &Path| {
        let lines = watch::within(LIMIT, || manifest::take(&directory.join("tree")))?;
        let path = log(name);
        std::fs::write(&path, lines.join("\n"))
            .map_err(|e| Failure::system("can't write", &path, &e))?;
        Ok(lines)
    };
    let timed = |directory: &Path, name: &str| {
        let start = Instant::now();
        play(room, case, scale, directory, &log(name)).map(|()| start.elapsed())
    };
    let of_target = timed(on_target, "log")?;
    let found = take("found", on_target)?;
    target.remount()?;
    let kept = take("kept", on_target)?;
    let of_reference = timed(on_reference, "ext4.log")
        .map_err(|failure| Failure::Broken(format!("on ext4, not before: {}", failure.text())))?;
    let expected = take("ext4", on_reference)?;
    compare("another tree than on ext4", &expected, &found)?;
    compare("another tree after unmounting and mounting", &found, &kept)?;
    Ok([of_target, of_reference])
}

/// Runs the script of `case` in the new directory `directory`.
fn play(
    room: &Room,
    case: &Case,
    scale: &str,
    directory: &Path,
    log: &Path,
) -> Result<(), Failure> {
    let system = |action: &str, path: &Path, result: std::io::Result<()>| {
        result.map_err(|e| Failure::system(action, path, &e))
    };
    // One that a failed case has left is not used again.
    let scratch = room.directory.join("scratch");
    if scratch.exists() {
        system("can't remove", &scratch, std::fs::remove_dir_all(&scratch))?;
    }
    room.make("scratch")?;
    let cache = room.make("cache")?;
    system("can't make", directory, std::fs::create_dir(directory))?;
    let scripts = data("programs");
    let mut command = Command::new("bash");
    command.arg(scripts.join(case.script)).args(case.arguments).current_dir(directory);
    command.env("DATA", &scripts).env("SCRATCH", &scratch).env("SCALE", scale);
    command.env("CACHE", &cache);
    let ended = watch::run_logged(&mut command, LIMIT, log)?;
    if !ended.is_well() {
        let text = std::fs::read(log).unwrap_or_default();
        return Err(Failure::Broken(format!(
            "{ended}: {}",
            reason(&String::from_utf8_lossy(&text))
        )));
    }
    system("can't remove", &scratch, std::fs::remove_dir_all(&scratch))
}

/// Why a script failed, from its log: what it says itself, or else what was said last.
fn reason(log: &str) -> String {
    let said = log.lines().find_map(|line| line.strip_prefix("FAILED: "));
    said.map_or_else(|| step::tail(log, LINES), str::to_owned)
}

/// An error that says `what` and shows the first lines that differ, if any does.
fn compare(what: &str, expected: &[String], found: &[String]) -> Result<(), Failure> {
    let only = |sign: char, of: &[String], without: &[String]| {
        let without: std::collections::HashSet<&String> = without.iter().collect();
        let lines = of.iter().filter(|line| !without.contains(line));
        lines.take(LINES).map(|line| format!("\n  {sign} {line}")).collect::<String>()
    };
    let difference = only('-', expected, found) + &only('+', found, expected);
    if difference.is_empty() {
        return Ok(());
    }
    Err(Failure::Broken(format!("{what}:{difference}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_script_and_every_script_its_case() {
        let directory = data("programs");
        let mut scripts: Vec<String> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".sh") && name != "lib.sh")
            .collect();
        scripts.sort();
        let mut listed: Vec<&str> = CASES.iter().map(|case| case.script).collect();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(scripts, listed);
    }

    #[test]
    fn a_script_gives_its_reason() {
        assert_eq!(reason("one\nFAILED: because\nKilled\n"), "because");
        assert_eq!(reason("one\n\ntwo\n"), "one; two");
    }

    #[test]
    fn a_difference_is_shown() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (one, other) = (lines("a b c"), lines("a x c"));
        compare("different", &one, &one).unwrap();
        let Err(Failure::Broken(what)) = compare("different", &one, &other) else {
            panic!("no difference");
        };
        assert_eq!(what, "different:\n  - b\n  + x");
    }

    #[test]
    fn manifests_tell_trees_apart() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = std::env::temp_dir().join(format!("xtask-manifest-{}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        let file = root.join("file");
        std::fs::write(&file, "content").unwrap();
        let mut last = manifest::take(&root).unwrap();
        assert_eq!(last, manifest::take(&root).unwrap());
        let changes: [&dyn Fn(); 5] = [
            &|| std::fs::write(&file, "another").unwrap(),
            &|| std::fs::set_permissions(&file, PermissionsExt::from_mode(0o4711)).unwrap(),
            &|| std::fs::hard_link(&file, root.join("again")).unwrap(),
            &|| symlink("nowhere", root.join("link")).unwrap(),
            &|| std::fs::create_dir(root.join("directory")).unwrap(),
        ];
        for change in changes {
            change();
            let next = manifest::take(&root).unwrap();
            assert_ne!(last, next);
            last = next;
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
