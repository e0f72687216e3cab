//! What an exploration found.

use core::fmt;
use std::collections::HashSet;
use std::time::Duration;

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Different crash points with their marks and images that were checked.
    pub states: usize,
    /// Images checked that a crash during recovery left.
    pub inner_states: usize,
    /// Digests that the check returned.
    pub outcomes: HashSet<u64>,
    /// Failed checks.
    pub failed: usize,
    /// The first failures, each with its replay string in front.
    pub failures: Vec<String>,
    /// Places in the log where a crash was put.
    pub crash_points: usize,
    /// Crash points where only a part of the possible images was tried.
    pub sampled_points: usize,
    /// Images not checked again because an equal one had been.
    pub duplicates: usize,
    /// Time taken.
    pub elapsed: Duration,
}

impl Summary {
    /// Checks that passed.
    #[must_use]
    pub const fn passed(&self) -> usize {
        (self.states + self.inner_states).saturating_sub(self.failed)
    }
}

/// Adds the counts of another exploration. Its failures and its time are told elsewhere.
impl core::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.states += other.states;
        self.inner_states += other.inner_states;
        self.outcomes.extend(other.outcomes);
        self.failed += other.failed;
        self.crash_points += other.crash_points;
        self.sampled_points += other.sampled_points;
        self.duplicates += other.duplicates;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "FAILED {failure}")?;
        }
        if self.failed > self.failures.len() {
            writeln!(f, "... and {} more", self.failed - self.failures.len())?;
        }
        writeln!(
            f,
            "{} states at {} crash points ({} sampled), {} during recovery, {} duplicates skipped, \
             {} distinct outcomes, {:.2} s",
            self.states,
            self.crash_points,
            self.sampled_points,
            self.inner_states,
            self.duplicates,
            self.outcomes.len(),
            self.elapsed.as_secs_f64(),
        )?;
        write!(f, "{} passed, {} failed", self.passed(), self.failed)
    }
}
