//! Programs of the system: those that make targets, and those that are measured.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Longest time for one of them.
const LIMIT: Duration = Duration::from_secs(120);

/// Directories in which programs of the system are, whatever `PATH` says.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Whether there is such a program.
#[must_use]
pub fn exists(name: &str) -> bool {
    path().split(':').any(|place| std::path::Path::new(place).join(name).exists())
}

/// Where programs are looked for.
pub(crate) fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:{}", PLACES.join(":"))
}

/// A program that waits for the end of its standard input; it has ended when this is dropped.
pub(crate) struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        // This ends its standard input. What it was for has been done.
        let _ = self.0.wait();
    }
}

/// Starts a program with these arguments that says one line, which is returned, and then waits
/// until its standard input ends. No signal that is meant for this process reaches it.
///
/// # Errors
/// If it can't be started, ends without a line or takes too long: what it said last.
pub(crate) fn until_told(name: &str, arguments: &[&OsStr]) -> Result<(String, Waiting)> {
    let failed = |reason: String| Error::Target { target: name.to_owned(), reason };
    let mut command = Command::new(name);
    command.args(arguments).env("PATH", path()).env("LC_ALL", "C").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let (to, said) = channel();
    if let Some(from) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut line = String::new();
            // What can't be read is not there; and whoever asked may have given up.
            let _ = BufReader::new(from).read_line(&mut line);
            let _ = to.send(line.trim().to_owned());
        });
    }
    match said.recv_timeout(LIMIT) {
        Ok(line) if !line.is_empty() => Ok((line, Waiting(child))),
        Ok(_) => {
            let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
            Err(failed(last_words(&output)))
        }
        // It ends by itself when it can, as its standard input does now.
        Err(_) => Err(failed(format!("not done after {} s", LIMIT.as_secs()))),
    }
}

/// What a program said last, or how it ended.
fn last_words(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    said.lines().last().map_or(output.status.to_string(), str::to_owned)
}

/// Runs it to its end, with these arguments: what it printed.
///
/// # Errors
/// If it can't be run, ends badly or not in time: what it said last.
pub(crate) fn run(name: &str, arguments: &[&str]) -> Result<String> {
    let failed = |reason: String| Error::Target { target: name.to_owned(), reason };
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("PATH", path()).env("LC_ALL", "C");
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let begin = Instant::now();
    loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(_) => break,
            None if begin.elapsed() > LIMIT => {
                // It may end at this moment.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("not done after {} s", LIMIT.as_secs())));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    // They say little: it fits into the pipes.
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(failed(last_words(&output)))
}
