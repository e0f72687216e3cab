//! Which of two targets is faster, if that can be said.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Interval;
use crate::experiment::Unit;

/// Ratios closer to 1 than this are not told apart from it: two runs of the very same program
/// differ by as much by where their memory happens to be.
pub const MARGIN: f64 = 0.01;

/// How one target compares with another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval of the ratio lies above 1.
    Faster,
    /// It lies below 1.
    Slower,
    /// It does not leave out 1, or hardly.
    NotSignificant,
}

impl Verdict {
    /// From the ratio of rates, of which more is better.
    #[must_use]
    pub fn of(ratio: &Interval) -> Verdict {
        if ratio.low > 1.0 + MARGIN {
            Verdict::Faster
        } else if ratio.high < 1.0 - MARGIN {
            Verdict::Slower
        } else {
            Verdict::NotSignificant
        }
    }

    /// What follows from a ratio of numbers of `unit`, of which fewer may be better.
    #[must_use]
    pub fn in_unit(self, unit: Unit) -> Verdict {
        match self {
            Verdict::Faster if !unit.is_rate() => Verdict::Slower,
            Verdict::Slower if !unit.is_rate() => Verdict::Faster,
            verdict => verdict,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NotSignificant => "not significant",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_decides() {
        let verdict =
            |low, high| Verdict::of(&Interval { value: f64::midpoint(low, high), low, high });
        assert_eq!(verdict(1.02, 1.3), Verdict::Faster);
        assert_eq!(verdict(1.02, 1.3).in_unit(Unit::Seconds), Verdict::Slower);
        assert_eq!(verdict(1.02, 1.3).in_unit(Unit::Bytes), Verdict::Faster);
        assert_eq!(verdict(0.5, 0.98), Verdict::Slower);
        assert_eq!(verdict(0.9, 1.3), Verdict::NotSignificant);
        assert_eq!(verdict(1.001, 1.3), Verdict::NotSignificant);
        assert_eq!(verdict(0.5, 0.999), Verdict::NotSignificant);
    }
}
