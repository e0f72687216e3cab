//! How a check is done.

use core::fmt;

use crate::MOST_FINDINGS;

/// How a check is done.
#[derive(Clone, Copy)]
pub struct Options<'p> {
    /// Told which part of the work is done, from 0 to 1, in steps that never go back. Only known
    /// work counts: it is told often in passes over many inodes, seldom in others.
    pub progress: Option<&'p (dyn Fn(f64) + Sync)>,
    /// Most findings of one code that are kept.
    pub most_findings: usize,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { progress: None, most_findings: MOST_FINDINGS }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("most_findings", &self.most_findings)
            .finish_non_exhaustive()
    }
}

/// Calls of the callback in one pass, at most.
const STEPS: u64 = 256;

impl Options<'_> {
    /// Tells that `done` of `all` steps of pass `pass` are done, when that is some progress.
    /// `shares` says how many percent of the work are done before each pass.
    pub(crate) fn tell<const N: usize>(&self, shares: [u64; N], pass: usize, done: u64, all: u64) {
        let Some(progress) = self.progress else { return };
        if !done.is_multiple_of(all.div_ceil(STEPS).max(1)) {
            return;
        }
        let share = |pass: usize| shares.get(pass).copied().unwrap_or(100) as f64 / 100.0;
        let part = done as f64 / all.max(1) as f64;
        progress(share(pass) + (share(pass + 1) - share(pass)) * part);
    }
}
