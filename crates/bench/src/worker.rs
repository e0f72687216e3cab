//! A process that does one part of an experiment on one target: it is told on standard input what
//! to do, and tells on standard output what it measured.
//!
//! Each part has a process of its own, so that nothing is left in memory of the part before: what
//! one process created, another one reads, and each pays for itself what attaching costs.

use std::io::{BufRead, Write};

use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::calls::{Answering, Source};
use crate::experiment::{self, Beside, Measured, Run};
use crate::parameters::Parameters;
use crate::turns::Turn;

/// What a process is started for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Its time is measured.
    #[default]
    Time,
    /// What it does to the memory of a store is counted.
    Memory,
    /// Its system calls are counted by who has started it.
    Calls,
    /// Its instructions are counted, in a simulated processor.
    Instructions,
}

/// What a process has to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// By whom its calls are answered.
    pub answering: Answering,
    /// The experiment's name.
    pub experiment: String,
    /// Which part of it.
    pub part: usize,
    /// If it works beside others: in which phase, and when it begins.
    #[serde(default)]
    pub beside: Option<Beside>,
    /// Whether it takes turns with others (see [`crate::turns`]).
    #[serde(default)]
    pub takes_turns: bool,
    /// With what.
    pub parameters: Parameters,
    /// Where random numbers begin.
    pub seed: u64,
    /// As whom: user and group; as who started it if there is none.
    pub user: Option<(u32, u32)>,
    /// On which processor; on any if there is none.
    pub processor: Option<usize>,
    /// Bytes that are walked through before each phase, so that it begins with clean caches.
    pub sweep: u64,
    /// A share of the time by which everything is made slower: a test of the method.
    pub delay: f64,
    /// What for.
    pub purpose: Purpose,
}

/// What it tells.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// All went well.
    Done {
        /// What was measured, phase by phase.
        measured: Vec<Measured>,
    },
    /// It failed, in words.
    Failed(String),
}

/// Does what standard input says. The answer goes to standard output, so nothing is returned but
/// whether that could be done.
///
/// # Errors
/// If nobody reads it.
pub fn work() -> std::io::Result<()> {
    end_with_parent();
    let answer = match told().and_then(|request| done(&request)) {
        Ok(answer) => answer,
        Err(error) => Answer::Failed(error.to_string()),
    };
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &answer)?;
    out.flush()
}

/// Whoever started this process is waiting for it; without them there is nothing to do.
fn end_with_parent() {
    // Kernels that can't leave a process to its limit.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

fn told() -> Result<Request, Error> {
    // One line: turns come behind it.
    let mut text = String::new();
    std::io::stdin().lock().read_line(&mut text).map_err(Error::system("standard input"))?;
    serde_json::from_str(&text).map_err(|error| Error::Request(error.to_string()))
}

/// Does one part.
fn done(request: &Request) -> Result<Answer, Error> {
    let experiment = experiment::find(&request.experiment)
        .ok_or_else(|| Error::Request(format!("no experiment {:?}", request.experiment)))?;
    if let Some(processor) = request.processor {
        stay_on(processor)?;
    }
    if let Some((user, group)) = request.user {
        become_user(user, group)?;
        // The kernel forgets it when somebody becomes somebody else.
        end_with_parent();
    }
    let turn = request.takes_turns.then(Turn::first);
    let source = match (experiment.reaches(), request.purpose) {
        (true, _) => Source::Later(request.answering.clone()),
        (false, Purpose::Memory) => Source::count(&request.answering)?,
        (false, Purpose::Time | Purpose::Calls | Purpose::Instructions) => {
            Source::reach(&request.answering)?
        }
    };
    let mut run = Run::new(&source, request, turn);
    match request.beside {
        Some(beside) => {
            beside.wait();
            experiment.beside(beside, &mut run)?;
        }
        None => experiment.run(request.part, &mut run)?,
    }
    let measured = run.finish();
    source.leave()?;
    Ok(Answer::Done { measured })
}

fn stay_on(processor: usize) -> Result<(), Error> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| Error::system(&format!("processor {processor}"))(error.into()))
}

/// Gives up what root has, for good.
fn become_user(user: u32, group: u32) -> Result<(), Error> {
    let named = |error: rustix::io::Errno| Error::system(&format!("user {user}"))(error.into());
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    rustix::thread::set_thread_groups(&[]).map_err(named)?;
    rustix::thread::set_thread_res_gid(group, group, group).map_err(named)?;
    rustix::thread::set_thread_res_uid(user, user, user).map_err(named)
}
