//! Lines, each with a ratio, an interval, and whether the ratio is near enough to 1.

use std::fmt;

use conquest_bench::statistics;

/// What a ratio of our rate to another one may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Bound {
    /// Neither side is faster by more than this share.
    Within(f64),
    /// Ours is slower by no more than this share: the other side does work of its own in its time.
    NotSlower(f64),
}

impl Bound {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Bound::Within(share) => (1.0 - share..=1.0 / (1.0 - share)).contains(&ratio),
            Bound::NotSlower(share) => ratio >= 1.0 - share,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Within(share) => write!(f, "{:.2} to {:.2}", 1.0 - share, 1.0 / (1.0 - share)),
            Bound::NotSlower(share) => write!(f, "at least {:.2}", 1.0 - share),
        }
    }
}

/// What was judged so far.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Judgement {
    passed: u64,
    failed: u64,
}

impl Judgement {
    /// Prints and judges the ratios that were found in pairs, ours to another's.
    pub(crate) fn line(&mut self, name: &str, ratios: &[f64], bound: Bound) {
        let (good, words) = verdict(ratios, bound);
        println!("  {name:<34} {words}");
        self.count(good);
    }

    /// Prints something that has no ratio, and counts whether it is so.
    pub(crate) fn claim(&mut self, what: &str, good: bool) {
        println!("  {what}: {}", if good { "met" } else { "FAILED" });
        self.count(good);
    }

    fn count(&mut self, good: bool) {
        self.passed += u64::from(good);
        self.failed += u64::from(!good);
    }

    /// Something that has no ratio failed.
    pub(crate) fn fail(&mut self) {
        self.failed += 1;
    }

    /// Whether nothing failed.
    pub(crate) fn is_good(self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

fn verdict(ratios: &[f64], bound: Bound) -> (bool, String) {
    let pairs = ratios.len();
    let Some(ratio) = statistics::of_ratio(ratios) else {
        return (false, format!("only {pairs} pairs: FAILED"));
    };
    let (value, low, high) = (ratio.value, ratio.low, ratio.high);
    let good = bound.holds(value);
    let words = match (good, bound.holds(low) && bound.holds(high)) {
        (true, true) => "met",
        (true, false) => "met, but its interval is wider",
        (false, _) => "FAILED",
    };
    let text = format!("{value:.3} [{low:.3}, {high:.3}] of {pairs} pairs, {bound}: {words}");
    (good, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_judged() {
        let bound = Bound::Within(0.05);
        assert_eq!(bound.to_string(), "0.95 to 1.05");
        let words = |ratio: f64, bound| verdict(&[ratio; 5], bound);
        for (ratio, good) in [(0.949, false), (0.951, true), (1.052, true), (1.054, false)] {
            assert_eq!(words(ratio, bound).0, good, "{ratio}");
        }
        assert!(words(1.0, bound).1.ends_with("of 5 pairs, 0.95 to 1.05: met"));
        assert!(!words(0.89, Bound::NotSlower(0.1)).0);
        assert!(words(3.0, Bound::NotSlower(0.1)).0);
        assert!(!verdict(&[1.0; 4], bound).0);
        let wide = verdict(&[0.5, 1.0, 1.0, 1.0, 2.0], bound);
        assert!(wide.0 && wide.1.contains("wider"), "{}", wide.1);
        let mut judged = Judgement::default();
        judged.line("a", &[1.0; 5], bound);
        assert!(judged.is_good());
        judged.line("b", &[2.0; 5], bound);
        judged.fail();
        assert_eq!(judged.to_string(), "1 passed, 2 failed");
    }
}
