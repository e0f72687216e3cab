//! Programs of the system: those that make targets, and those that are measured.

use std::process::{Command, Stdio};
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
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(said.lines().last().map_or(output.status.to_string(), str::to_owned)))
}
