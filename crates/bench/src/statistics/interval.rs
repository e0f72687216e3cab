//! Medians and ratios, with intervals of at least 90 % confidence.

use serde::{Deserialize, Serialize};

/// Chance that the truth is outside of an interval.
const OUTSIDE: f64 = 0.1;
/// With fewer samples there is no interval: the widest one, from the least to the greatest of four,
/// has a confidence of 87.5 %.
pub const SAMPLES_MIN: usize = 5;

/// A value and the interval in which the truth lies.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Interval {
    /// How wide it is, as a share of the value; 0 if it is that value only.
    #[must_use]
    pub fn width(&self) -> f64 {
        let width = self.high - self.low;
        if width == 0.0 { 0.0 } else { width / self.value }
    }

    /// With each of the three numbers changed by a function that grows.
    fn map(self, function: impl Fn(f64) -> f64) -> Interval {
        Interval { value: function(self.value), low: function(self.low), high: function(self.high) }
    }
}

/// The middle of `values`, or the mean of the two in the middle; not a number if there are none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    let upper = sorted.get(half).copied().unwrap_or(f64::NAN);
    match sorted.len() % 2 {
        0 => (sorted.get(half.wrapping_sub(1)).copied().unwrap_or(f64::NAN) + upper) / 2.0,
        _ => upper,
    }
}

/// The median of what `samples` are samples of: each of them is above or below it by the toss of a
/// coin. None if there are fewer than [`SAMPLES_MIN`].
#[must_use]
pub fn of_median(samples: &[f64]) -> Option<Interval> {
    let count = samples.len();
    if count < SAMPLES_MIN {
        return None;
    }
    // The chance that `number` of them fall below the median.
    let mut chance = 0.5_f64.powi(count as i32);
    let mut number = 0;
    let left_out = left_out(std::iter::from_fn(|| {
        let this = chance;
        number += 1;
        chance *= (count + 1).saturating_sub(number) as f64 / number as f64;
        Some(this)
    }));
    ends(samples, left_out)
}

/// The ratio of two targets, from the ratios that were found in pairs: Hodges' and Lehmann's
/// estimate, and the interval of Wilcoxon's signed ranks, both of the logarithms. The pairs may
/// scatter however they like, as long as they do so to both sides alike. None if there are fewer
/// than [`SAMPLES_MIN`], or one is no positive number.
#[must_use]
pub fn of_ratio(ratios: &[f64]) -> Option<Interval> {
    let count = ratios.len();
    if count < SAMPLES_MIN || !ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0) {
        return None;
    }
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mut means = Vec::with_capacity(count * (count + 1) / 2);
    for (at, one) in logarithms.iter().enumerate() {
        means.extend(logarithms.iter().skip(at).map(|other| (one + other) / 2.0));
    }
    ends(&means, left_out(rank_sums(count).into_iter())).map(|interval| interval.map(f64::exp))
}

/// The ratio of two targets that were not measured in pairs: the median of the ratios of all
/// samples of one to all of the other, and the interval of Mann's and Whitney's test. None if there
/// are fewer than [`SAMPLES_MIN`] of either, or one is no positive number.
#[must_use]
pub fn of_unpaired_ratio(samples: &[f64], others: &[f64]) -> Option<Interval> {
    let all = || samples.iter().chain(others);
    let is_few = samples.len().min(others.len()) < SAMPLES_MIN;
    if is_few || !all().all(|sample| sample.is_finite() && *sample > 0.0) {
        return None;
    }
    let ratios: Vec<f64> =
        samples.iter().flat_map(|one| others.iter().map(move |other| one / other)).collect();
    ends(&ratios, left_out(wins(samples.len(), others.len()).into_iter()))
}

/// The chance of each number of pairs, one of `ones` and one of `others`, in which the first is the
/// greater one, if all are drawn alike.
fn wins(ones: usize, others: usize) -> Vec<f64> {
    // With so many of the others, by how many of the ones there are. The greatest of all is one of
    // the ones, and wins against all others, or it is one of the others.
    let mut chances: Vec<Vec<f64>> = vec![vec![1.0]; ones + 1];
    for others in 1..=others {
        let mut next = vec![vec![1.0]];
        for ones in 1..=ones {
            let share = ones as f64 / (ones + others) as f64;
            let fewer = next.get(ones - 1).map_or(&[][..], Vec::as_slice);
            let same = chances.get(ones).map_or(&[][..], Vec::as_slice);
            let at = |from: &[f64], at: Option<usize>| {
                at.and_then(|at| from.get(at)).copied().unwrap_or(0.0)
            };
            let chance = |count: usize| {
                share * at(fewer, count.checked_sub(others)) + (1.0 - share) * at(same, Some(count))
            };
            next.push((0..=ones * others).map(chance).collect());
        }
        chances = next;
    }
    chances.pop().unwrap_or_default()
}

/// The chance of each sum of the positive ranks, from 0 on, if all signs are tossed.
fn rank_sums(count: usize) -> Vec<f64> {
    let mut chances = vec![0.0_f64; count * (count + 1) / 2 + 1];
    if let Some(none) = chances.first_mut() {
        *none = 1.0;
    }
    for rank in 1..=count {
        let before = chances.clone();
        for (sum, chance) in chances.iter_mut().enumerate() {
            let with = sum.checked_sub(rank).and_then(|rest| before.get(rest));
            *chance = f64::midpoint(*chance, with.copied().unwrap_or(0.0));
        }
    }
    chances
}

/// How many values lie outside of an interval at each end, if `chances` says how likely it is that
/// 0, 1, 2 ... of them lie below the truth.
fn left_out(chances: impl Iterator<Item = f64>) -> usize {
    let mut below = 0.0;
    let few = chances.take_while(|chance| {
        below += chance;
        below <= OUTSIDE / 2.0
    });
    few.count().saturating_sub(1)
}

/// The median of `values`, and the interval that leaves out `left_out` at each end.
fn ends(values: &[f64], left_out: usize) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let low = *sorted.get(left_out)?;
    let high = *sorted.get(sorted.len().checked_sub(left_out + 1)?)?;
    Some(Interval { value: middle(&sorted), low, high })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The tables in textbooks: how many are left out at 90 %.
    #[test]
    fn as_many_are_left_out_as_in_the_tables() {
        // Wilcoxon's T for a two-sided 10 %: the greatest sum that is significant.
        for (count, table) in [(5, 0), (6, 2), (7, 3), (8, 5), (10, 10), (20, 60), (30, 151)] {
            assert_eq!(left_out(rank_sums(count).into_iter()), table, "{count}");
        }
        // Mann's and Whitney's U for a two-sided 10 %.
        for (ones, others, table) in [(5, 5, 4), (8, 10, 20), (10, 10, 27), (20, 20, 138)] {
            let chances = wins(ones, others);
            assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert_eq!(left_out(chances.into_iter()), table, "{ones}, {others}");
        }
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let interval = of_median(&values).unwrap();
        assert_eq!((interval.low, interval.value, interval.high), (6.0, 10.5, 15.0));
        let five = of_median(&[3.0, 1.0, 5.0, 2.0, 4.0]).unwrap();
        assert_eq!((five.low, five.value, five.high), (1.0, 3.0, 5.0));
        assert_eq!(of_median(&[1.0; 4]), None);
        assert_eq!(of_ratio(&[1.0; 4]), None);
        assert_eq!(of_ratio(&[1.0, 1.0, 1.0, 1.0, 0.0]), None);
        assert_eq!(of_unpaired_ratio(&[1.0; 4], &[1.0; 5]), None);
    }

    /// With long tails, and with few samples too.
    #[test]
    fn the_truth_is_in_nine_of_ten_intervals() {
        let mut random = Random::new(7);
        for count in [5, 8, 13, 30] {
            let (mut medians, mut ratios, mut unpaired) = (0, 0, 0);
            for _ in 0..4000 {
                // Of median 1; a tenth of them is disturbed, to either side.
                let mut draw = || -> Vec<f64> {
                    let one = |_| {
                        let spread = if random.below(10) == 0 { 1.0 } else { 0.05 };
                        (spread * (random.share() - 0.5)).exp()
                    };
                    (0..count).map(one).collect()
                };
                let (samples, others) = (draw(), draw());
                let holds = |of: Option<Interval>| {
                    let of = of.unwrap();
                    assert!(of.low <= of.value && of.value <= of.high);
                    usize::from(of.low <= 1.0 && 1.0 <= of.high)
                };
                medians += holds(of_median(&samples));
                ratios += holds(of_ratio(&samples));
                unpaired += holds(of_unpaired_ratio(&samples, &others));
            }
            // Three deviations of 4,000 tosses are 57.
            for good in [medians, ratios, unpaired] {
                assert!(good >= 3543, "{count}: {medians}, {ratios}, {unpaired}");
            }
            // And no wider than few samples make them.
            assert!(count < 13 || ratios < 3760, "{count}: {ratios}");
        }
    }

    #[test]
    fn ratios_are_estimated() {
        let interval = of_ratio(&[1.9, 2.0, 2.1, 2.0, 2.0, 2.0, 40.0]).unwrap();
        assert!((interval.value - 2.0).abs() < 0.06, "{interval:?}");
        assert!(interval.low > 1.9 && interval.width() > 0.0, "{interval:?}");
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0, 1.0]), 2.0);
    }
}
