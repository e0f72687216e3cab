//! Processes that do parts of experiments.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::calls::Answering;
use crate::experiment::Whole;
use crate::simulation::Simulation;
use crate::trace::Traced;
use crate::worker::{Answer, Purpose, Request};
use crate::{Error, Result};

/// The program's argument that makes a process one of them.
pub const ARGUMENT: &str = "bench-worker";
/// So often it is asked whether all should end.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Lets a process of `program` do what `request` says, for at most `limit`; it is ended when
/// `is_stopped` says so.
///
/// # Errors
/// If it can't be started, fails, or does not end in time; if its system calls are to be counted,
/// and the system does not let it be traced.
pub fn run(
    program: &Path,
    request: &Request,
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Answer> {
    match request.purpose {
        Purpose::Time | Purpose::Memory => {
            follow(Command::new(program), request, limit, is_stopped)
        }
        Purpose::Calls => trace(program, request, limit, is_stopped),
        Purpose::Instructions => simulate(program, request, limit, is_stopped),
    }
}

/// Lets a process do what `request` says that `command` starts.
fn follow(
    command: Command,
    request: &Request,
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Answer> {
    let program = PathBuf::from(command.get_program());
    let mut child = start(command)?;
    drop(tell(&mut child.0, request)?);
    let said = heard(listen(&mut child.0), limit, is_stopped)?;
    answer(&program, &mut child.0, &said)
}

/// The same, in a simulated processor.
fn simulate(
    program: &Path,
    request: &Request,
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Answer> {
    // Where stores are, what is left by who is killed goes.
    let directory = match &request.answering {
        Answering::Store { path } => path.with_extension("simulation"),
        _ => std::env::temp_dir().join(format!("conquest-simulation-{}", std::process::id())),
    };
    let simulation = Simulation::new(directory, request.user)?;
    let mut answered = follow(simulation.command(program), request, limit, is_stopped)?;
    // Each of them was marked when it was kept.
    for (whole, counted) in wholes(&mut answered).zip(simulation.counts()) {
        whole.simulated = counted;
    }
    Ok(answered)
}

/// What is known of whole phases, in order.
fn wholes(answer: &mut Answer) -> impl Iterator<Item = &mut Whole> {
    let measured = match answer {
        Answer::Done { measured } => measured.as_mut_slice(),
        Answer::Failed(_) => &mut [],
    };
    measured.iter_mut().filter_map(|one| one.whole.as_mut())
}

/// The same, with its system calls counted.
fn trace(
    program: &Path,
    request: &Request,
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Answer> {
    let mut child = start(Command::new(program))?;
    let traced = Traced::begin(&child.0)?;
    drop(tell(&mut child.0, request)?);
    let said = listen(&mut child.0);
    let calls = traced.follow(limit, is_stopped)?;
    let said = heard(said, limit, is_stopped)?;
    let mut answered = answer(program, &mut child.0, &said)?;
    // Each of them was marked when it was kept.
    wholes(&mut answered).zip(calls).for_each(|(whole, calls)| whole.system_calls = Some(calls));
    Ok(answered)
}

fn named() -> impl FnOnce(std::io::Error) -> Error {
    Error::system("a process that measures")
}

/// Starts one, which then waits to be told what to do.
pub(crate) fn start(mut command: Command) -> Result<Ended> {
    command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Signals of the terminal are for who started it, who tells what it has until then; and who is
    // traced can be waited for with all of its threads, and nobody else.
    command.process_group(0);
    let child = command.spawn();
    let program = command.get_program().to_string_lossy();
    Ok(Ended(child.map_err(Error::system(&program))?))
}

/// Tells one what to do; through what is returned more can be told.
pub(crate) fn tell(child: &mut Child, request: &Request) -> Result<Option<ChildStdin>> {
    let text = serde_json::to_string(request).map_err(|error| Error::Request(error.to_string()))?;
    let mut to = child.stdin.take();
    if let Some(to) = &mut to {
        // If it has ended, its answer tells why.
        let _ = to.write_all((text + "\n").as_bytes());
    }
    Ok(to)
}

/// All that it says, at its end.
fn listen(child: &mut Child) -> Receiver<std::io::Result<Vec<u8>>> {
    let (to, all) = channel();
    if let Some(mut from) = child.stdout.take() {
        // It ends with the process, which closes the pipe.
        std::thread::spawn(move || {
            let mut said = Vec::new();
            let done = from.read_to_end(&mut said).map(|_| said);
            // Whoever asked may have given up.
            let _ = to.send(done);
        });
    }
    all
}

/// What it has said when it has said all.
fn heard(
    all: Receiver<std::io::Result<Vec<u8>>>,
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<u8>> {
    let end = Instant::now() + limit;
    loop {
        match all.recv_timeout(LOOK) {
            Ok(said) => return said.map_err(named()),
            Err(RecvTimeoutError::Timeout) if is_stopped() => return Err(Error::Stopped),
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(_) => return Err(Error::Slow(limit)),
        }
    }
}

pub(crate) fn answer(program: &Path, child: &mut Child, said: &[u8]) -> Result<Answer> {
    let misunderstood = match serde_json::from_slice(said) {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let status = child.wait().map_err(named())?;
    let mut words = String::new();
    if let Some(mut from) = child.stderr.take() {
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

/// A process that does not outlive this value.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
