//! What was gone through.

use core::fmt;
use std::collections::HashSet;
use std::time::Duration;

use super::phases::Phases;
use crate::flash::explore::Way;

/// Failures of a scenario that are told, and after which it ends.
pub(super) const FAILURES: usize = 20;

/// What was being done, in the order of [`Tally::inside`].
pub const INSIDE: [&str; 6] = ["epochs", "checkpoints", "restarts", "trims", "cleaning", "reuse"];

/// What was gone through.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Scenarios, and runs that went on from what a cut had left.
    pub runs: usize,
    /// Of those, the latter.
    pub continued: usize,
    /// Runs in which one was stopped in a sync, and another one came first.
    pub stopped: usize,
    /// Points of logs.
    pub cuts: usize,
    /// Cuts inside each of [`INSIDE`].
    pub inside: [usize; INSIDE.len()],
    /// Media from which a store was brought back.
    pub states: usize,
    /// Of those, the ones that were written to, and brought back once more.
    pub used: usize,
    /// What they held.
    pub outcomes: HashSet<u64>,
    /// What went wrong, with the way to it.
    pub failures: Vec<String>,
    /// Failed states.
    pub failed: usize,
    /// States until the first one of them, it included.
    pub first_failed: Option<usize>,
    /// Time taken.
    pub elapsed: Duration,
}

impl Tally {
    pub(super) fn enter(&mut self, phases: Phases) {
        let Phases { epoch, checkpoint, restart, trim, volume } = phases;
        self.cuts += 1;
        let all = [epoch, checkpoint, restart, trim, volume.cleaning, volume.reuse];
        for (count, is_in) in self.inside.iter_mut().zip(all) {
            *count += usize::from(is_in);
        }
    }

    pub(super) fn fail(&mut self, way: &Way, what: &str) {
        self.failed += 1;
        self.first_failed.get_or_insert(self.states);
        if self.failures.len() < FAILURES {
            self.failures.push(format!("--replay {way}: {what}"));
        }
    }
}

impl core::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        let first = other.first_failed.map(|states| self.states + states);
        self.first_failed = self.first_failed.or(first);
        self.runs += other.runs;
        self.continued += other.continued;
        self.stopped += other.stopped;
        self.cuts += other.cuts;
        for (count, more) in self.inside.iter_mut().zip(other.inside) {
            *count += more;
        }
        self.states += other.states;
        self.used += other.used;
        self.outcomes.extend(other.outcomes);
        self.failures.extend(other.failures);
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside: Vec<String> = INSIDE
            .iter()
            .zip(self.inside)
            .map(|(name, count)| format!("{count} in {name}"))
            .collect();
        writeln!(
            f,
            "{} runs ({} on what a cut had left, {} with one stopped in a sync), {} cuts ({}), {} \
             states, {} of them used again, {} distinct, {:.1} s",
            self.runs,
            self.continued,
            self.stopped,
            self.cuts,
            inside.join(", "),
            self.states,
            self.used,
            self.outcomes.len(),
            self.elapsed.as_secs_f64(),
        )?;
        if let Some(states) = self.first_failed {
            writeln!(f, "the first failure came with state {states}")?;
        }
        write!(f, "{} passed, {} failed", self.states.saturating_sub(self.failed), self.failed)
    }
}
