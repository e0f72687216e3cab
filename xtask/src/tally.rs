//! What was counted: passed and failed.

use core::fmt;
use core::ops::AddAssign;

/// A count of what passed and what failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// How many passed.
    pub(crate) passed: u64,
    /// How many failed.
    pub(crate) failed: u64,
}

impl Tally {
    /// The count of one thing.
    pub(crate) fn one(passed: bool) -> Tally {
        Tally { passed: passed.into(), failed: (!passed).into() }
    }

    /// The count in a line `N passed, N failed`.
    pub(crate) fn from_line(line: &str) -> Option<Tally> {
        let (passed, rest) = line.trim().split_once(" passed, ")?;
        Some(Tally {
            passed: passed.parse().ok()?,
            failed: rest.strip_suffix(" failed")?.parse().ok()?,
        })
    }

    /// The count in a line `test result: ok. N passed; N failed; ...` of a test binary.
    pub(crate) fn from_test_result(line: &str) -> Option<Tally> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = counts.split("; ");
        Some(Tally {
            passed: counts.next()?.strip_suffix(" passed")?.parse().ok()?,
            failed: counts.next()?.strip_suffix(" failed")?.parse().ok()?,
        })
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_back() {
        let tally = Tally { passed: 12, failed: 3 };
        assert_eq!(Tally::from_line(&tally.to_string()), Some(tally));
        assert_eq!(Tally::from_line("12 passed, some failed"), None);
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured";
        assert_eq!(Tally::from_test_result(line), Some(tally));
        assert_eq!(Tally::from_test_result("12 passed; 3 failed"), None);
    }
}
