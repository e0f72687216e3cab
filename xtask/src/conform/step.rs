//! Commands that are no test, but must end well for a test to make sense.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::watch;
use crate::Failure;

/// How long a command takes that only prepares something.
pub(super) const LIMIT: Duration = Duration::from_secs(120);
/// Lines of output that say why it failed.
const LINES: usize = 6;

/// Runs `command` for at most `limit`, with its output in `log`; it must end well.
pub(super) fn must(command: &mut Command, limit: Duration, log: &Path) -> Result<(), Failure> {
    let ended = watch::run_logged(command, limit, log)?;
    if ended.is_well() {
        return Ok(());
    }
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    Err(Failure::Broken(format!("{}: {ended}: {}", describe(command), tail(&text, LINES))))
}

/// The command and its arguments.
fn describe(command: &Command) -> String {
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    let program = command.get_program().to_string_lossy();
    core::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// The last `count` lines of `text` that are not empty, in one.
pub(super) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    lines.get(from..).unwrap_or_default().join("; ")
}

/// A command with its arguments.
pub(super) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_run_and_what_it_said() {
        let log = std::env::temp_dir().join(format!("xtask-step-{}", std::process::id()));
        let mut shell = command("sh", &["-c", "echo one; echo; echo two >&2; exit 3"]);
        let Err(Failure::Broken(what)) = must(&mut shell, LIMIT, &log) else {
            panic!("no failure");
        };
        assert!(what.starts_with("sh -c"), "{what}");
        assert!(what.ends_with("one; two"), "{what}");
        must(&mut command("true", &[]), LIMIT, &log).unwrap();
        std::fs::remove_file(&log).unwrap();
    }
}
