//! Processes that do parts of experiments.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::worker::{Answer, Request};
use crate::{Error, Result};

/// The program's argument that makes a process one of them.
pub const ARGUMENT: &str = "bench-worker";
/// So often it is asked whether all should end.
const LOOK: Duration = Duration::from_millis(100);

/// Lets a process of `program` do what `request` says, for at most `limit`; it is ended when
/// `is_stopped` says so.
///
/// # Errors
/// If it can't be started, fails, or does not end in time.
pub fn run(
    program: &Path,
    request: &Request,
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Answer> {
    let named = || Error::system(&program.display().to_string());
    let text = serde_json::to_vec(request).map_err(|error| Error::Request(error.to_string()))?;
    let mut command = Command::new(program);
    command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ended(command.spawn().map_err(named())?);
    if let Some(mut to) = child.0.stdin.take() {
        // If it has ended, its answer tells why.
        let _ = to.write_all(&text);
    }
    let said = heard(&mut child.0, limit, is_stopped)?;
    let misunderstood = match serde_json::from_slice(&said) {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let status = child.0.wait().map_err(named())?;
    let mut words = String::new();
    if let Some(mut from) = child.0.stderr.take() {
        // What can't be read is not told.
        let _ = from.read_to_string(&mut words);
    }
    let reason = match words.trim() {
        "" => format!("its answer is not understood: {misunderstood}"),
        words => words.to_owned(),
    };
    let target = program.display().to_string();
    Err(Error::Target { target, reason: format!("measured nothing ({status}): {reason}") })
}

/// All that `child` says.
fn heard(child: &mut Child, limit: Duration, is_stopped: &dyn Fn() -> bool) -> Result<Vec<u8>> {
    let Some(mut from) = child.stdout.take() else {
        return Ok(Vec::new());
    };
    let (to, all) = channel();
    // It ends with the process, which closes the pipe.
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let done = from.read_to_end(&mut said).map(|_| said);
        // Whoever asked may have given up.
        let _ = to.send(done);
    });
    let end = Instant::now() + limit;
    loop {
        match all.recv_timeout(LOOK) {
            Ok(said) => return said.map_err(Error::system("a process that measures")),
            Err(RecvTimeoutError::Timeout) if is_stopped() => return Err(Error::Stopped),
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(_) => return Err(Error::Slow(limit)),
        }
    }
}

/// A process that does not outlive this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
