//! What was counted.

/// Passed and failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    described: u64,
}

/// Failures that are described.
const DESCRIBED: u64 = 10;
/// Failures after which there is no point in going on.
const ENOUGH: u64 = 50;

impl Tally {
    /// Counts one check; what it returned, none if it failed.
    pub(crate) fn count<T>(&mut self, check: impl FnOnce() -> Result<T, String>) -> Option<T> {
        match check() {
            Ok(value) => {
                self.passed += 1;
                Some(value)
            }
            Err(error) => {
                self.failed += 1;
                if self.described < DESCRIBED {
                    self.described += 1;
                    println!("FAILED {error}");
                }
                None
            }
        }
    }

    /// Says something.
    pub(crate) fn note(&self, text: String) {
        println!("{text}");
    }

    /// Whether so much has failed that the rest tells nothing new.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.failed >= ENOUGH
    }

    /// The last line, and whether all passed.
    pub(crate) fn close(&self) -> bool {
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}
