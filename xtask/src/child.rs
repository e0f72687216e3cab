//! Running other programs, each with a time limit.
//!
//! A child leads a process group of its own. The whole group is killed when the time is up, and
//! when the child has failed, so that nothing it started stays behind.

use core::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// With exit code 0.
    Well,
    /// With this status.
    Badly(ExitStatus),
    /// Killed, because the time was up.
    TimedOut,
}

impl Ended {
    /// Whether it ended well.
    pub(crate) fn is_well(self) -> bool {
        self == Ended::Well
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Well => write!(f, "ended well"),
            Ended::Badly(status) => write!(f, "{status}"),
            Ended::TimedOut => write!(f, "out of time"),
        }
    }
}

/// How long to wait for output that the child's own children still hold open.
const GRACE: Duration = Duration::from_secs(2);
/// How often a child is looked at.
const POLL: Duration = Duration::from_millis(5);

/// Runs `command` for at most `limit`. Each line of its standard output is given to `line`, and
/// passed on if that says so.
pub(crate) fn run_shown(
    command: &mut Command,
    limit: Duration,
    mut line: impl FnMut(&str) -> bool,
) -> Result<Ended, Failure> {
    let deadline = Instant::now() + limit;
    let mut child = spawn(command.stdout(Stdio::piped()))?;
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        // The thread ends when the output does; should something keep that open, it is left alone.
        thread::spawn(move || {
            for text in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
    }
    let mut ended: Option<(Ended, Instant)> = None;
    loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                if line(&text) {
                    println!("{text}");
                }
                if Instant::now() < deadline {
                    continue;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if ended.is_none() {
            ended = poll(&mut child, deadline)?.map(|how| (how, Instant::now()));
        }
        if ended.is_some_and(|(_, when)| when.elapsed() > GRACE) {
            break;
        }
    }
    match ended {
        Some((how, _)) => Ok(how),
        None => wait(&mut child, deadline),
    }
}

/// Runs `command` for at most `limit`, with all its output in the file `log`.
pub(crate) fn run_logged(
    command: &mut Command,
    limit: Duration,
    log: &Path,
) -> Result<Ended, Failure> {
    let deadline = Instant::now() + limit;
    let system = |e: std::io::Error| Failure::system("can't write", log, &e);
    let file = File::create(log).map_err(system)?;
    command.stdout(file.try_clone().map_err(system)?);
    command.stderr(file);
    wait(&mut spawn(command)?, deadline)
}

fn spawn(command: &mut Command) -> Result<Child, Failure> {
    let started = command.stdin(Stdio::null()).process_group(0).spawn();
    let program = Path::new(command.get_program());
    started.map_err(|error| Failure::system("can't run", program, &error))
}

fn wait(child: &mut Child, deadline: Instant) -> Result<Ended, Failure> {
    loop {
        if let Some(how) = poll(child, deadline)? {
            return Ok(how);
        }
        thread::sleep(POLL);
    }
}

fn poll(child: &mut Child, deadline: Instant) -> Result<Option<Ended>, Failure> {
    let waited = |error: std::io::Error| Failure::Broken(format!("can't wait: {error}"));
    if let Some(status) = child.try_wait().map_err(waited)? {
        if status.success() {
            return Ok(Some(Ended::Well));
        }
        kill_group(child.id());
        return Ok(Some(Ended::Badly(status)));
    }
    if Instant::now() < deadline {
        return Ok(None);
    }
    kill_group(child.id());
    // Should the group's leader have left its group, this ends it all the same.
    let _ = child.kill();
    child.wait().map_err(waited)?;
    Ok(Some(Ended::TimedOut))
}

fn kill_group(leader: u32) {
    // The shell's own `kill` is always there; an empty group is no error worth telling.
    let _ = Command::new("sh")
        .args(["-c", "kill -s KILL -- -\"$1\"", "sh", &leader.to_string()])
        .stderr(Stdio::null())
        .status();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_is_passed_on_and_the_status_told() {
        let mut lines = Vec::new();
        let ended =
            run_shown(&mut shell("echo one; echo two; exit 3"), Duration::from_secs(60), |line| {
                lines.push(line.to_owned());
                true
            });
        assert_eq!(lines, ["one", "two"]);
        assert!(matches!(ended.unwrap(), Ended::Badly(status) if status.code() == Some(3)));
    }

    #[test]
    fn a_hanging_child_is_killed_with_its_children() {
        let log = std::env::temp_dir().join(format!("xtask-child-{}", std::process::id()));
        let start = Instant::now();
        let mut command = shell("sleep 60 & echo $!; wait");
        let ended = run_logged(&mut command, Duration::from_millis(200), &log).unwrap();
        assert_eq!(ended, Ended::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(30));
        let sleeper = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        let stat = Path::new("/proc").join(sleeper.trim()).join("stat");
        let gone = || match std::fs::read_to_string(&stat) {
            Ok(text) => text.contains(") Z "),
            Err(_) => true,
        };
        while !gone() {
            assert!(start.elapsed() < Duration::from_secs(30));
            thread::sleep(POLL);
        }
    }
}
