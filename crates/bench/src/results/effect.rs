//! Whether the effects of the companion paper are there on a machine, and in the corrected
//! benchmark.

use super::{Found, Row};
use crate::experiment::{self, Effect};
use crate::parameters::Parameters;
use crate::statistics::{self, Interval, MARGIN, Verdict};

/// How an effect shows on one target.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Which.
    pub effect: &'static Effect,
    /// The experiment's name.
    pub experiment: &'static str,
    /// With what.
    pub parameters: Parameters,
    /// The target, as it stands in reports.
    pub target: String,
    /// How many times as fast the first phase of the original pair is as the second one.
    pub original: Interval,
    /// The same of the corrected pair.
    pub corrected: Interval,
    /// How many times as large the first ratio is as the second one of the same round: what the one
    /// thing does that is wrong, whatever else makes the phases differ.
    pub change: Interval,
}

impl Shown {
    /// Whether the effect is there.
    #[must_use]
    pub fn is_present(&self) -> bool {
        match Verdict::of(&self.change) {
            Verdict::Faster => self.effect.is_gain,
            Verdict::Slower => !self.effect.is_gain,
            Verdict::NotSignificant => false,
        }
    }

    /// Whether the corrected pair does not differ, or less.
    #[must_use]
    pub fn is_mended(&self) -> bool {
        let far = |ratio: &Interval| ratio.value.ln().abs();
        let Interval { low, high, .. } = self.corrected;
        let contains_one = low <= 1.0 + MARGIN && high >= 1.0 - MARGIN;
        contains_one || far(&self.corrected) < far(&self.original)
    }

    /// All effects that phases found with one set of parameters show.
    #[must_use]
    pub fn all(found: &[Found]) -> Vec<Shown> {
        let Some(first) = found.first() else {
            return Vec::new();
        };
        let effects = experiment::find(first.experiment).map_or(&[][..], |one| one.effects());
        let rows =
            |phase: &str| found.iter().find(|one| one.phase.id == phase).map(|one| &one.rows);
        let row = |phase: &str, target: &str| -> Option<&Row> {
            rows(phase)?.iter().find(|row| row.target == target)
        };
        let ratios = |[one, other]: [&str; 2], target: &str| {
            Some(ratios(row(one, target)?, row(other, target)?))
        };
        let shown = |effect: &'static Effect, target: &Row| {
            let original = ratios(effect.original, &target.target)?;
            let corrected = ratios(effect.corrected, &target.target)?;
            let each = original.iter().zip(&corrected);
            let change: Vec<_> = each.map(|(one, other)| Some((*one)? / (*other)?)).collect();
            Some(Shown {
                effect,
                experiment: first.experiment,
                parameters: first.parameters.clone(),
                target: target.target.clone(),
                original: of_known(&original)?,
                corrected: of_known(&corrected)?,
                change: of_known(&change)?,
            })
        };
        let of = |effect| first.rows.iter().filter_map(move |target| shown(effect, target));
        effects.iter().flat_map(of).collect()
    }
}

/// Of each round, how many times as fast `one` is as `other`.
pub(super) fn ratios(one: &Row, other: &Row) -> Vec<Option<f64>> {
    let pairs = one.samples.iter().zip(&other.samples);
    pairs.map(|(one, other)| Some(one.as_ref()?.rate / other.as_ref()?.rate)).collect()
}

/// The interval of those that there are.
pub(super) fn of_known(ratios: &[Option<f64>]) -> Option<Interval> {
    statistics::of_ratio(&ratios.iter().flatten().copied().collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Phase, Unit};
    use crate::results::Sample;
    use crate::target::Survives;

    fn found(phase: &'static str, rate: f64) -> Found {
        let sample =
            |more: u32| Some(Sample { rate: rate + f64::from(more), mark: None, whole: None });
        Found {
            experiment: "effects",
            phase: Phase { id: phase, unit: Unit::Bytes, part: 0 },
            parameters: Parameters::default(),
            rows: vec![Row {
                target: "ramfs".into(),
                survives: Survives::Process,
                samples: (0..8).map(sample).collect(),
                counted: Vec::new(),
            }],
        }
    }

    #[test]
    fn effects_show_between_phases() {
        let phases = [
            ("read-after-write", 800.0),
            ("read-again", 1000.0),
            ("read-clean", 990.0),
            ("read-clean-again", 990.0),
            ("random", 900.0),
            ("sequential", 990.0),
            ("random-unaligned", 900.0),
            ("random-reused", 900.0),
            ("sequential-reused", 900.0),
            ("sequential-without-seek", 900.0),
        ];
        let all: Vec<Found> = phases.iter().map(|(phase, rate)| found(phase, *rate)).collect();
        let shown = Shown::all(&all);
        let names: Vec<&str> = shown.iter().map(|one| one.effect.id).collect();
        assert_eq!(names, ["after-write", "unaligned", "reuse", "extra-call"]);
        assert!((shown[0].change.value - 0.8).abs() < 0.01);
        assert!(shown[0].is_present() && shown[0].is_mended());
        assert!((shown[0].original.value - 0.8).abs() < 0.01);
        // As far from 1 as before.
        assert!(!shown[1].is_present() && !shown[1].is_mended());
        // What was read is read at random as fast as in order, though random is slower.
        assert!(shown[2].is_present() && !shown[2].is_mended());
        assert!((shown[2].change.value - 1.1).abs() < 0.01);
        // One call less does not make it slower.
        assert!(!shown[3].is_present());
        // Those of whose phases one is missing are left out.
        assert_eq!(Shown::all(&all[..7]).len(), 2);
        assert!(Shown::all(&[]).is_empty() && Shown::all(&all[..1]).is_empty());
    }
}
