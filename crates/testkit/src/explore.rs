//! The crash explorer: every image that a crash may leave, each recovered and checked.
//!
//! From a [`Recording`] it builds, for both kinds of [`crate::Failure`], the images that the crash
//! model allows, within the bounds of [`Options`], and calls a check on each. The check recovers
//! the region through the memory it is given, compares what it finds with what the marks passed so
//! far promise, and returns a digest of it. Then the check's own log, up to
//! [`crate::Mark::Recovered`], is explored by the same rules: crashes during recovery.
//!
//! After the death of all processes what was in flight stays in flight: if the power fails during
//! the recovery that follows, words that the dead stored may be lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::inflight::InFlight;
use crate::plan::{Scope, plan};
use crate::worker::{Worker, bases, panic_message};
use crate::{CrashPoint, Options, Recording, RecordingMemory, Summary};

/// States that a thread takes at a time.
const CHUNK: usize = 64;

/// Explores the crashes of `recording`.
///
/// `check` gets a memory that holds one image, and where the crash was. It must leave nothing
/// behind outside of the memory and depend on nothing else. A panic of it is a failure; so is an
/// access out of bounds.
pub fn explore<C>(recording: &Recording, options: &Options, check: C) -> Summary
where
    C: Fn(&RecordingMemory, &CrashPoint<'_>) -> Result<u64, String> + Sync,
{
    let begin = Instant::now();
    let scope = Scope {
        options,
        power: recording.needs_write_back,
        volatile: !recording.volatile.is_empty(),
        budget: options.states,
        first: options.first,
        start_known: false,
    };
    let plan = plan(&InFlight::default(), &recording.events, scope);
    let bases = bases(recording, options.seed);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut worker = Worker::new(recording, options, &bases, &check, plan.states.len());
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= plan.states.len() {
                return (worker.found, worker.failures);
            }
            let end = plan.states.len().min(first + CHUNK);
            for (number, state) in (first..).zip(&plan.states[first..end]) {
                worker.visit(number, state);
            }
        }
    };
    let parts = std::thread::scope(|scope| {
        let others: Vec<_> = (1..options.threads).map(|_| scope.spawn(work)).collect();
        let mut parts = vec![Ok(work())];
        parts.extend(others.into_iter().map(std::thread::ScopedJoinHandle::join));
        parts
    });
    let mut summary = Summary {
        crash_points: plan.cuts,
        sampled_points: plan.sampled,
        duplicates: plan.duplicates,
        ..Summary::default()
    };
    let mut failures = Vec::new();
    for part in parts {
        match part {
            Ok((found, more)) => {
                summary.states += found.states;
                summary.inner_states += found.inner_states;
                summary.duplicates += found.duplicates;
                summary.failed += found.failed;
                summary.outcomes.extend(found.outcomes);
                failures.extend(more);
            }
            Err(payload) => {
                summary.failed += 1;
                failures.push((0, format!("explorer {}", panic_message(payload.as_ref()))));
            }
        }
    }
    failures.sort_by_key(|&(number, _)| number);
    failures.truncate(options.described);
    summary.failures = failures.into_iter().map(|(_, text)| text).collect();
    summary.elapsed = begin.elapsed();
    summary
}

/// Checks the one state that `name` stands for: what stood before the colon and blank of a failure.
/// `options` only matters for its bound on steps.
///
/// # Errors
/// What the check says, or that `name` is no state of this recording.
pub fn replay<C>(
    recording: &Recording,
    options: &Options,
    name: &str,
    check: C,
) -> Result<u64, String>
where
    C: Fn(&RecordingMemory, &CrashPoint<'_>) -> Result<u64, String> + Sync,
{
    let name = name.split(": ").next().unwrap_or(name);
    let (seed, steps) =
        crate::replay::parse(name).ok_or_else(|| format!("{name:?} is no replay string"))?;
    let options = Options { seed, ..options.clone() };
    let bases = bases(recording, seed);
    Worker::new(recording, &options, &bases, &check, 1).replay(&steps)
}
