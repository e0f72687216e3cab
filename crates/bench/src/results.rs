//! What was found.

mod bounded;
mod effect;
mod pair;

use serde::Serialize;

use crate::experiment::{self, Measured, On, Phase, Whole};
use crate::parameters::Parameters;
use crate::statistics::{self, Interval, Verdict, steady_from};
use crate::stopwatch::{BATCH, Batch};
use crate::target::Survives;

pub use bounded::Bounded;
pub use effect::Shown;
pub use pair::Paired;

/// A sample: what one run of a phase gave.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// Units per second; what was found, if that is no rate.
    pub rate: f64,
    /// Why it is not to be trusted, if it is not.
    pub mark: Option<&'static str>,
    /// What is known of the whole phase.
    pub whole: Option<Whole>,
}

impl Sample {
    /// Of what was measured, without its warm-up; none if nothing was done.
    #[must_use]
    pub fn of(measured: &Measured) -> Option<Sample> {
        if let Some(amount) = measured.amount {
            let mark = measured.disturbance.mark();
            return Some(Sample { rate: amount, mark, whole: None });
        }
        let costs: Vec<f64> = measured.batches.iter().map(Batch::cost).collect();
        let steady = measured.batches.get(steady_from(&costs)..).unwrap_or_default();
        let units: u64 = steady.iter().map(|batch| batch.units).sum();
        let nanoseconds: u64 = steady.iter().map(|batch| batch.nanoseconds).sum();
        if units == 0 || nanoseconds == 0 {
            return None;
        }
        let is_short = u128::from(nanoseconds) < BATCH.as_nanos();
        let mark = if is_short { Some("short") } else { measured.disturbance.mark() };
        let rate = units as f64 * 1e9 / nanoseconds as f64;
        Some(Sample { rate, mark, whole: measured.whole })
    }
}

/// The samples of one phase on one target.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The target, as it stands in reports.
    pub target: String,
    /// What it survives.
    pub survives: Survives,
    /// One sample a round; none where there was none.
    pub samples: Vec<Option<Sample>>,
    /// What was counted in runs that were not timed.
    pub counted: Vec<Whole>,
}

impl Row {
    /// The rates that there are.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.samples.iter().flatten().map(|sample| sample.rate).collect()
    }

    /// How many samples are not to be trusted.
    #[must_use]
    pub fn marked(&self) -> usize {
        self.samples.iter().flatten().filter(|sample| sample.mark.is_some()).count()
    }

    /// What disturbed most of them that are not to be trusted.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        let marks = || self.samples.iter().flatten().filter_map(|sample| sample.mark);
        marks().max_by_key(|mark| marks().filter(|other| other == mark).count())
    }

    /// Its median, with an interval if there are enough samples.
    #[must_use]
    pub fn median(&self) -> (f64, Option<Interval>) {
        let rates = self.rates();
        (statistics::median(&rates), statistics::of_median(&rates))
    }

    /// How many times `other`'s rate it has, from the samples that were taken in the same rounds.
    #[must_use]
    pub fn against(&self, other: &Row) -> Option<(Interval, Verdict)> {
        let pairs = self.samples.iter().zip(&other.samples);
        let ratios: Vec<f64> = pairs
            .filter_map(|(own, other)| Some(own.as_ref()?.rate / other.as_ref()?.rate))
            .collect();
        let ratio = statistics::of_ratio(&ratios)?;
        Some((ratio, Verdict::of(&ratio)))
    }
}

/// What was found of one phase with one set of parameters.
#[derive(Clone, Debug)]
pub struct Found {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The phase.
    pub phase: Phase,
    /// With what.
    pub parameters: Parameters,
    /// One row a target, in the order in which they were named.
    pub rows: Vec<Row>,
}

impl Found {
    /// Whether its targets are compared: devices and twins are not, of which each has its own
    /// measure in it.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        let on = experiment::find(self.experiment).map(|one| one.on());
        !matches!(on, Some(On::Device | On::Twins))
    }

    /// How `row` compares with `base`, if that means anything.
    #[must_use]
    pub fn compared(&self, row: &Row, base: &Row) -> Option<(Interval, Verdict)> {
        if !self.is_compared() {
            return None;
        }
        let (ratio, verdict) = row.against(base)?;
        Some((ratio, verdict.in_unit(self.phase.unit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::disturbance::Disturbance;

    fn measured(batches: &[(u64, u64)]) -> Measured {
        let batch = |&(units, nanoseconds): &(u64, u64)| Batch { units, nanoseconds };
        Measured {
            phase: "create".into(),
            began: 0,
            batches: batches.iter().map(batch).collect(),
            disturbance: Disturbance::default(),
            whole: None,
            amount: None,
        }
    }

    #[test]
    fn samples_are_rates_without_the_warm_up() {
        let mut batches = vec![(1000, 1_000_000); 20];
        batches[0].1 = 50_000_000;
        let sample = Sample::of(&measured(&batches)).unwrap();
        assert_eq!((sample.rate, sample.mark), (1e6, None));
        assert_eq!(Sample::of(&measured(&[])), None);
        assert_eq!(Sample::of(&measured(&[(5, 1000)])).unwrap().mark, Some("short"));
        let amount = Measured { amount: Some(2.5), ..measured(&[]) };
        assert_eq!(Sample::of(&amount).unwrap().rate, 2.5);
        let mut disturbed = measured(&batches);
        disturbed.disturbance.reclaim = 1;
        assert_eq!(Sample::of(&disturbed).unwrap().mark, Some("reclaim"));
    }

    fn row(rates: &[f64]) -> Row {
        let sample =
            |rate: &f64| (*rate > 0.0).then_some(Sample { rate: *rate, mark: None, whole: None });
        Row {
            target: "ramfs".into(),
            survives: Survives::Process,
            samples: rates.iter().map(sample).collect(),
            counted: Vec::new(),
        }
    }

    /// What changes over time changes both, and does not count.
    #[test]
    fn rounds_are_compared_one_by_one() {
        let slow = row(&[10.0, 20.0, 40.0, 10.0, 5.0, 0.0, 9.0]);
        let fast = row(&[12.0, 24.0, 48.0, 12.0, 6.0, 7.0, 0.0]);
        let (ratio, verdict) = fast.against(&slow).unwrap();
        assert!((ratio.value - 1.2).abs() < 1e-9 && ratio.width() < 1e-9);
        assert_eq!(verdict, Verdict::Faster);
        assert_eq!(slow.against(&fast).unwrap().1, Verdict::Slower);
        assert!(fast.median().1.unwrap().width() > 0.5);
        assert_eq!(row(&[1.0, 2.0]).against(&slow), None);
    }
}
