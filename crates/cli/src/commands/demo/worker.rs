//! Processes that work on a store and are killed.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;

use super::model::{Op, World};
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::rng::Rng;
use crate::tree::{Bits, Inner, New, Tree};

/// Longest wait for a worker to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// Work on a store until killed, for the demonstration.
#[derive(Args)]
pub(crate) struct Worker {
    /// The store.
    store: PathBuf,
    /// What the operations follow from.
    seed: u64,
    /// Make what was done durable now and then, and acknowledge that too.
    #[arg(long)]
    sync: bool,
}

/// What a worker has acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Operations.
    pub(super) operations: u64,
    /// Those of them that were durable.
    pub(super) synced: u64,
}

/// What a worker writes for an operation that is done, and when all are durable.
const ACKNOWLEDGED: u8 = b'.';
const DURABLE: u8 = b'!';
/// Operations after which a worker makes them durable.
const SYNC_EVERY: u64 = 20;

/// The directory in which a worker of `seed` works.
pub(super) fn directory_name(seed: u64) -> String {
    format!("work-{seed:016x}")
}

/// Works until it is killed, or nobody reads what it acknowledges.
pub(crate) fn run(args: &Worker) -> ExitCode {
    let report = Report::new("demo-worker");
    report.take_plain(work(args));
    report.code()
}

/// Does operations. For each one that is done, a byte is written, at once, and another one when
/// they were made durable.
fn work(args: &Worker) -> Result<()> {
    let store = crate::session::attach(&args.store)?;
    let files = Inner::new(&store)?;
    let directory = files.child(&files.root(), directory_name(args.seed).as_bytes())?;
    let mut world = World::default();
    let mut rng = Rng::new(args.seed);
    let mut output = std::io::stdout().lock();
    // Standard output keeps what is no line, so it is told to let go.
    let mut say = |byte| output.write_all(&[byte]).and_then(|()| output.flush());
    for number in 1.. {
        let op = Op::next(&mut rng, &world);
        op.perform(&files, &directory)?;
        op.apply(&mut world);
        if say(ACKNOWLEDGED).is_err() {
            break;
        }
        if args.sync && number % SYNC_EVERY == 0 {
            store.sync()?;
            if say(DURABLE).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// A worker, and who counts what it acknowledges.
struct Member {
    child: Child,
    counter: Option<JoinHandle<Done>>,
}

/// Workers, killed at the latest when this goes.
pub(super) struct Crew(Vec<Member>);

impl Crew {
    /// One worker for each of `seeds`, all of which have begun; they `sync` if that is asked.
    ///
    /// # Errors
    /// What the system says, or that they did not begin in time.
    pub(super) fn start(store: &Path, seeds: &[u64], sync: bool) -> Result<Crew> {
        prepare(store, seeds)?;
        let program = std::env::current_exe()?;
        let mut crew = Crew(Vec::new());
        let (begun, first_bytes) = std::sync::mpsc::channel();
        for seed in seeds {
            let mut command = Command::new(&program);
            command.arg("demo-worker").arg(store).arg(seed.to_string());
            command.args(sync.then_some("--sync"));
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let output = child.stdout.take();
            let begun = begun.clone();
            let counter = std::thread::spawn(move || {
                output
                    .map_or(Done::default(), |mut output| count(&mut output, || _ = begun.send(())))
            });
            crew.0.push(Member { child, counter: Some(counter) });
        }
        let deadline = Instant::now() + PATIENCE;
        for _ in seeds {
            let left = deadline.saturating_duration_since(Instant::now());
            if first_bytes.recv_timeout(left).is_err() {
                return Err(Reason::rule("a worker did not begin to work (see its message)"));
            }
        }
        Ok(crew)
    }

    /// Kills all of them: what each has acknowledged.
    ///
    /// # Errors
    /// What the system says; that one had ended by itself.
    pub(super) fn kill(mut self) -> Result<Vec<Done>> {
        let mut counts = Vec::new();
        for member in &mut self.0 {
            if let Some(status) = member.child.try_wait()? {
                let text = format!("a worker ended by itself, with {status}");
                return Err(Reason::Rule(text));
            }
            member.child.kill()?;
            member.child.wait()?;
            let counter = member.counter.take();
            let counted = counter.map_or(Ok(Done::default()), JoinHandle::join);
            counts.push(counted.map_err(|_| Reason::rule("what a worker did was not counted"))?);
        }
        Ok(counts)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.0 {
            // Whoever is dead already can't be killed again.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

/// What `output` acknowledges, to its end; calls `begun` at the first byte.
fn count(output: &mut impl Read, begun: impl FnOnce()) -> Done {
    let mut begun = Some(begun);
    let mut buffer = [0; 4096];
    let mut done = Done::default();
    loop {
        match output.read(&mut buffer) {
            Ok(0) => return done,
            Ok(len) => {
                for &byte in buffer.iter().take(len) {
                    match byte {
                        DURABLE => done.synced = done.operations,
                        _ => done.operations += 1,
                    }
                }
                if let Some(begun) = begun.take() {
                    begun();
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return done,
        }
    }
}

/// Makes the directories in which they work.
fn prepare(store: &Path, seeds: &[u64]) -> Result<()> {
    let store = crate::session::attach(store)?;
    let files = Inner::new(&store)?;
    for seed in seeds {
        let name = directory_name(*seed);
        files.make(&files.root(), name.as_bytes(), New::Directory, Bits::Exact(0o700))?;
    }
    Ok(store.detach()?)
}
