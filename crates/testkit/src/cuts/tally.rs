//! What was gone through.

use core::fmt;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::way::Way;

/// Failures of a scenario that are told, and after which it ends.
pub(crate) const FAILURES: usize = 20;

/// What was gone through.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Scenarios, and runs that went on from what a cut had left.
    pub runs: usize,
    /// Of those, the latter.
    pub continued: usize,
    /// Points of logs.
    pub cuts: usize,
    /// How many of them were inside of what was being done, by names of that.
    pub inside: BTreeMap<&'static str, usize>,
    /// Media that were opened.
    pub states: usize,
    /// Of those, the ones that were written to, and opened once more.
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
    /// Counts a cut, and for each of `doing` whether it was inside of that.
    pub(crate) fn enter<const N: usize>(&mut self, doing: [(&'static str, bool); N]) {
        self.cuts += 1;
        for (name, is_in) in doing {
            *self.inside.entry(name).or_default() += usize::from(is_in);
        }
    }

    /// Counts a state as failed, at the last cut of `way`.
    pub(crate) fn fail(&mut self, way: &Way, what: &str) {
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
        self.cuts += other.cuts;
        for (name, count) in other.inside {
            *self.inside.entry(name).or_default() += count;
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
        let inside: Vec<String> =
            self.inside.iter().map(|(name, count)| format!("{count} in {name}")).collect();
        writeln!(
            f,
            "{} runs ({} on what a cut had left), {} cuts ({}), {} states, {} of them used again, \
             {} distinct, {:.1} s",
            self.runs,
            self.continued,
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
