//! What write amplification has to be, by theory.
//!
//! Segments are written in turn, each unit of `live / all` of them is overwritten with the same
//! chance, and the oldest segment is cleaned: a segment that comes to be cleaned was written when
//! all had been written once since, so of its units the share `x` is left that fulfils
//! `x = exp(-(1 - x) all / live)`, and 1 / (1 - x) units are written for each (P. Desnoyers,
//! *Analytic Models of SSD Write Performance*, ACM Transactions on Storage 10 (2), 2014).

/// So often the equation is put into itself: where much is free it comes to rest in a few steps,
/// where little is, in hundreds.
const STEPS: usize = 2000;
/// Ways to share free space that are tried.
const SHARES: u32 = 2000;

/// Units that are written for each that is asked for, if `share` of all units are live and all are
/// overwritten alike.
#[must_use]
pub fn uniform(share: f64) -> f64 {
    // A large share has as many left, a small one none.
    let left = (0..STEPS).fold(0.0_f64, |left, _| (-(1.0 - left) / share).exp());
    1.0 / (1.0 - left)
}

/// The same if `hot` of the live units get `often` of the writes, and each of the two kinds has
/// segments of its own, with the best share of the free space.
#[must_use]
pub fn separated(share: f64, hot: f64, often: f64) -> f64 {
    let free = 1.0 - share;
    let kind = |live: f64, free: f64| uniform(live / (live + free));
    let sum = |part: u32| {
        let part = free * f64::from(part) / f64::from(SHARES);
        often * kind(share * hot, part) + (1.0 - often) * kind(share * (1.0 - hot), free - part)
    };
    (1..SHARES).map(sum).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theory_is_as_published() {
        assert!((uniform(0.8) - 2.69).abs() < 0.005, "{}", uniform(0.8));
        assert!((uniform(0.5) - 1.255).abs() < 0.005, "{}", uniform(0.5));
        let both = separated(0.8, 0.1, 0.9);
        assert!((both - 1.48).abs() < 0.005, "{both}");
        // Who writes all alike gains nothing.
        assert!((separated(0.8, 0.5, 0.5) - uniform(0.8)).abs() < 0.01);
    }
}
