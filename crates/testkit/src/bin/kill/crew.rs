//! Sharing work out to processes: they fork, so they can't be threads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kill::tally::Tally;
use crate::os::child::{Child, End};
use crate::os::memory::Shared;

/// Word of the shared memory: the first job that nobody has taken.
const NEXT: usize = 0;
/// The first of the words that say at which job each worker is.
const AT: usize = 1;
/// Workers at most.
const WORKERS_MAX: usize = 256;

/// Does all `jobs`, each by one of `workers` processes, until one of them fails; `what` and the
/// job say where that was. Which worker does a job depends on chance, so what comes of a job must
/// not depend on the worker.
pub(crate) fn share(
    tally: &Tally,
    workers: usize,
    what: &str,
    jobs: &[u64],
    work: impl Fn(u64) -> Result<(), String>,
) {
    let words = match Shared::new() {
        Ok(words) => words,
        Err(error) => return tally.fail(&error),
    };
    let workers: Vec<_> = words[AT..]
        .iter()
        .take(workers.clamp(1, WORKERS_MAX).min(jobs.len()))
        .map(|at| {
            let child = Child::fork(|| {
                while let Some(job) = take(jobs, &words[NEXT], at) {
                    if let Err(error) = work(job) {
                        tally.fail(&format!("{what} {job}: {error}"));
                        // Nobody begins another one.
                        words[NEXT].store(jobs.len() as u64, Ordering::SeqCst);
                    }
                }
                Ok(())
            });
            (child, at)
        })
        .collect();
    for (child, at) in workers {
        match child.and_then(|mut child| child.wait()) {
            Ok(End::Exit(0)) => {}
            Ok(end) => {
                let job = at.load(Ordering::SeqCst);
                let why = if end == End::Signal(libc::SIGALRM) { "took too long" } else { "ended" };
                tally.fail(&format!("{what} {job}: the worker {why}: {end:?}"));
            }
            Err(error) => tally.fail(&format!("{what}: no worker: {error}")),
        }
    }
}

/// Takes the next job, and says so in `at`.
fn take(jobs: &[u64], next: &AtomicU64, at: &AtomicU64) -> Option<u64> {
    let job = *jobs.get(next.fetch_add(1, Ordering::SeqCst) as usize)?;
    at.store(job, Ordering::SeqCst);
    Some(job)
}
