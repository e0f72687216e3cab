//! Phases of one target that are compared with each other.

use super::Found;
use super::effect::{of_known, ratios};
use crate::experiment::{self, Pair};
use crate::parameters::Parameters;
use crate::statistics::Interval;

/// How two phases compare on one target.
#[derive(Clone, Debug)]
pub struct Paired {
    /// Which.
    pub pair: &'static Pair,
    /// The experiment's name.
    pub experiment: &'static str,
    /// With what.
    pub parameters: Parameters,
    /// The target, as it stands in reports.
    pub target: String,
    /// How many times as fast the first phase is as the second one, from the ratios of each round.
    pub ratio: Interval,
}

impl Paired {
    /// What was aimed at on this target.
    #[must_use]
    pub fn aim(&self) -> Option<f64> {
        self.pair.aim_on(&self.target)
    }

    /// Whether it is what was aimed at, with all of its interval; none if nothing was.
    #[must_use]
    pub fn is_reached(&self) -> Option<bool> {
        self.aim().map(|aim| self.ratio.low >= aim)
    }

    /// All pairs of phases found with one set of parameters, of those that there are enough samples
    /// of.
    #[must_use]
    pub fn all(found: &[Found]) -> Vec<Paired> {
        let Some(first) = found.first() else {
            return Vec::new();
        };
        let pairs = experiment::find(first.experiment).map_or(&[][..], |one| one.pairs());
        let row = |phase: &str, target: &str| {
            let rows = &found.iter().find(|one| one.phase.id == phase)?.rows;
            rows.iter().find(|row| row.target == target)
        };
        let paired = |pair: &'static Pair, target: &str| {
            let [one, other] = pair.phases;
            let ratios = ratios(row(one, target)?, row(other, target)?);
            Some(Paired {
                pair,
                experiment: first.experiment,
                parameters: first.parameters.clone(),
                target: target.to_owned(),
                ratio: of_known(&ratios)?,
            })
        };
        let of = |pair| first.rows.iter().filter_map(move |row| paired(pair, &row.target));
        pairs.iter().flat_map(of).collect()
    }
}
