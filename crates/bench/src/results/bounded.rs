//! Amounts that were not to be more than so much.

use super::Found;
use crate::experiment::{self, Bound};
use crate::parameters::Parameters;
use crate::statistics::Interval;

/// How an amount on one target compares with what it was not to be more than.
#[derive(Clone, Debug)]
pub struct Bounded {
    /// What was wanted.
    pub bound: Bound,
    /// The experiment's name.
    pub experiment: &'static str,
    /// With what.
    pub parameters: Parameters,
    /// The target, as it stands in reports.
    pub target: String,
    /// The unit of the phase.
    pub unit: experiment::Unit,
    /// What was found: the median. Its interval is that of the samples, or from the least to the
    /// greatest if there are too few of them for one.
    pub found: Interval,
}

impl Bounded {
    /// Whether all of the interval is within the bound.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.found.high <= self.bound.most
    }

    /// All bounds on phases found with one set of parameters, of which there are samples.
    #[must_use]
    pub fn all(found: &[Found]) -> Vec<Bounded> {
        let Some(first) = found.first() else {
            return Vec::new();
        };
        let bounds = experiment::find(first.experiment)
            .map_or_else(Vec::new, |one| one.bounds(&first.parameters));
        let of = |bound: Bound| {
            let phase = found.iter().find(|one| one.phase.id == bound.phase);
            let rows =
                phase.into_iter().flat_map(|one| one.rows.iter().map(|row| (one.phase, row)));
            rows.filter(move |(_, row)| bound.is_of(&row.target)).filter_map(move |(phase, row)| {
                Some(Bounded {
                    bound,
                    experiment: first.experiment,
                    parameters: first.parameters.clone(),
                    target: row.target.clone(),
                    unit: phase.unit,
                    found: interval(row.median(), &row.rates())?,
                })
            })
        };
        bounds.into_iter().flat_map(of).collect()
    }
}

/// The interval of a median, or all that `samples` cover; none if there are none.
fn interval((value, interval): (f64, Option<Interval>), samples: &[f64]) -> Option<Interval> {
    let ends = || Interval {
        value,
        low: samples.iter().copied().fold(f64::INFINITY, f64::min),
        high: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    };
    (!samples.is_empty()).then(|| interval.unwrap_or_else(ends))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Phase, Unit};
    use crate::results::{Row, Sample};
    use crate::target::Survives;

    fn found(target: &str, amounts: &[f64]) -> Found {
        let sample = |rate: &f64| Some(Sample { rate: *rate, mark: None, whole: None });
        Found {
            experiment: "volume-reads",
            phase: Phase { id: "added-processor-time", unit: Unit::Seconds, part: 0 },
            parameters: Parameters::default(),
            rows: vec![Row {
                target: target.into(),
                survives: Survives::Process,
                samples: amounts.iter().map(sample).collect(),
                counted: Vec::new(),
            }],
        }
    }

    #[test]
    fn bounds_are_met_by_the_whole_interval() {
        let met = |amounts: &[f64]| {
            let all = Bounded::all(&[found("loop", amounts)]);
            all.first().map(Bounded::is_met)
        };
        assert_eq!(met(&[1e-6; 6]), Some(true));
        assert_eq!(met(&[-1e-6, 1.9e-6]), Some(true));
        // Too few for an interval: the worst one counts.
        assert_eq!(met(&[1e-6, 1e-6, 2.1e-6]), Some(false));
        assert_eq!(met(&[]), None);
        assert!(Bounded::all(&[found("disk", &[1.0])]).is_empty());
        assert!(Bounded::all(&[]).is_empty());
    }
}
