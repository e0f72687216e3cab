//! What was counted, by all processes together.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use crate::os::memory::Shared;

/// Words of the shared memory: checks passed, and failed.
const PASSED: usize = 0;
const FAILED: usize = 1;

/// Failures that are described.
const DESCRIBED: u64 = 10;

/// Passed and failed; children that are forked count into the same.
#[derive(Debug)]
pub(crate) struct Tally(Shared);

/// Runs `run`, which counts; the program's exit code.
pub(crate) fn counted(run: impl FnOnce(&Tally) -> Result<(), String>) -> ExitCode {
    let tally = match Tally::new() {
        Ok(tally) => tally,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = run(&tally) {
        tally.fail(&error);
    }
    ExitCode::from(u8::from(!tally.close()))
}

impl Tally {
    fn new() -> Result<Tally, String> {
        Shared::new().map(Tally)
    }

    /// Counts a check that passed.
    pub(crate) fn pass(&self) {
        self.0[PASSED].fetch_add(1, Ordering::SeqCst);
    }

    /// Counts one that failed.
    pub(crate) fn fail(&self, error: &str) {
        if self.0[FAILED].fetch_add(1, Ordering::SeqCst) < DESCRIBED {
            println!("FAILED {error}");
        }
    }

    /// Checks passed so far.
    pub(crate) fn passed(&self) -> u64 {
        self.0[PASSED].load(Ordering::SeqCst)
    }

    /// The last line, and whether all passed.
    fn close(&self) -> bool {
        let failed = self.0[FAILED].load(Ordering::SeqCst);
        println!("{} passed, {failed} failed", self.passed());
        failed == 0
    }
}
