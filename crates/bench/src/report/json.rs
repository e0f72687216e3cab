//! What was found, as JSON: `schema.json` beside this file describes it.

use serde::{Deserialize, Serialize};

use crate::machine::description::Description;
use crate::operation::PerOperation;
use crate::parameters::Parameters;
use crate::results::{Bounded, Found, Paired, Row, Shown};
use crate::runner::{Follow, Outcome, Plan};
use crate::statistics::{Interval, Verdict};
use crate::target::Survives;

/// What the documents are.
pub const SCHEMA: &str = "conquest-bench";
/// Counts changes after which older readers would misunderstand.
pub const VERSION: u32 = 1;
/// The commit of which this program is; empty if that is not known.
pub const COMMIT: &str = env!("CONQUEST_COMMIT");

/// A document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub schema_version: u32,
    /// The experiments, in order, with spaces between them.
    pub experiment: String,
    /// The commit of the program that measured.
    pub commit: String,
    /// Where.
    pub machine: Description,
    /// How.
    pub method: Method,
    /// On what.
    pub targets: Vec<TargetEntry>,
    /// What was found.
    pub results: Vec<ResultEntry>,
    /// How targets compare with the first one.
    pub comparisons: Vec<Comparison>,
    /// Effects of the companion paper, where an experiment looks for them.
    pub effects: Vec<EffectEntry>,
    /// Phases that were compared with each other.
    #[serde(default)]
    pub pairs: Vec<PairEntry>,
    /// Amounts that were not to be more than so much.
    #[serde(default)]
    pub bounds: Vec<BoundEntry>,
    /// What was not tried, as it makes no sense, in words.
    pub left_out: Vec<String>,
    /// What failed, in words.
    pub failures: Vec<String>,
}

/// How it was measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Method {
    /// Samples of each phase on each target.
    pub rounds: usize,
    /// How targets in memory followed each other.
    pub follow: Follow,
    /// Where random numbers began.
    pub seed: u64,
    /// Bytes that were walked through before each phase.
    pub sweep: u64,
    /// Whether calls were made by an ordinary user.
    pub by_a_user: bool,
    /// On which processor, if not on any.
    pub processor: Option<usize>,
}

/// A target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetEntry {
    /// Its name.
    pub target: String,
    /// What it was made with.
    pub options: Vec<String>,
    /// What it survives.
    pub survives: Survives,
}

/// One phase on one target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResultEntry {
    /// The experiment.
    pub experiment: String,
    /// The target.
    pub target: String,
    /// The phase.
    pub phase: String,
    /// With what it was done.
    pub parameters: Parameters,
    /// What was measured: `rate`, or `amount`.
    pub metric: String,
    /// In what.
    pub unit: String,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The median of the samples; none if all failed.
    pub median: Option<f64>,
    /// Its interval; none if there are fewer than five samples.
    pub ci90: Option<[f64; 2]>,
    /// One a round; none where it failed.
    pub samples: Vec<Option<f64>>,
    /// How many of them were disturbed in spite of repetitions.
    pub disturbed: usize,
    /// What the target survives.
    pub survives: Survives,
    /// What an operation costs besides time; none if it is not known how many there were.
    pub per_operation: Option<PerOperation>,
}

/// How a target compares with the first one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The experiment.
    pub experiment: String,
    /// The phase.
    pub phase: String,
    /// With what it was done.
    pub parameters: Parameters,
    /// The target.
    pub target: String,
    /// The one that it is compared with.
    pub against: String,
    /// How many times its rate.
    pub ratio: f64,
    /// Its interval.
    pub ci90: [f64; 2],
    /// What follows.
    pub verdict: Verdict,
    /// Whether both survive the same.
    pub same_class: bool,
}

/// An effect on one target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EffectEntry {
    /// The experiment.
    pub experiment: String,
    /// The effect.
    pub effect: String,
    /// With what it was looked for.
    pub parameters: Parameters,
    /// The target.
    pub target: String,
    /// How many times as fast the first of two phases is as the second one, with one thing wrong.
    pub original: Interval,
    /// The same in the corrected benchmark.
    pub corrected: Interval,
    /// How many times as large the first ratio is as the second one of the same round.
    pub change: Interval,
    /// Whether the effect is there, by that.
    pub present: bool,
    /// Whether the corrected benchmark shows none, or less.
    pub mended: bool,
}

/// Two phases on one target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PairEntry {
    /// The experiment.
    pub experiment: String,
    /// The pair.
    pub pair: String,
    /// With what it was done.
    pub parameters: Parameters,
    /// The target.
    pub target: String,
    /// How many times as fast the first phase is as the second one.
    pub ratio: Interval,
    /// What was aimed at, if anything was.
    pub aim: Option<f64>,
    /// Whether the lower end of the interval is not below that.
    pub reached: Option<bool>,
}

/// An amount that was not to be more than so much, on one target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BoundEntry {
    /// The experiment.
    pub experiment: String,
    /// The phase that found it.
    pub phase: String,
    /// With what it was done.
    pub parameters: Parameters,
    /// The target.
    pub target: String,
    /// The phase's unit.
    pub unit: String,
    /// What was found; from the least to the greatest of the samples if they are too few for an
    /// interval.
    pub found: Interval,
    /// What it was not to be more than.
    pub most: f64,
    /// Whether the upper end is not above that.
    pub met: bool,
}

/// The schema that documents keep to.
pub const SCHEMA_TEXT: &str = include_str!("schema.json");

impl Document {
    /// Of what was found.
    #[must_use]
    pub fn new(plan: &Plan, outcome: &Outcome, machine: Description) -> Document {
        let names: Vec<&str> = plan.experiments.iter().map(|(one, _)| one.id()).collect();
        let survives = |target: &str| {
            let mut rows = outcome.found.iter().flat_map(|found| &found.rows);
            rows.find(|row| row.target == target).map_or(Survives::Nothing, |row| row.survives)
        };
        let entry = |(wanted, options): (&crate::runner::Wanted, &Vec<String>)| TargetEntry {
            target: wanted.label.clone(),
            options: options.clone(),
            survives: survives(&wanted.label),
        };
        let of = |found: &Found| -> Vec<ResultEntry> {
            found.rows.iter().map(|row| ResultEntry::of(found, row)).collect()
        };
        Document {
            schema: SCHEMA.to_owned(),
            schema_version: VERSION,
            experiment: names.join(" "),
            commit: COMMIT.to_owned(),
            machine,
            method: Method {
                rounds: plan.rounds,
                follow: plan.follow,
                seed: plan.seed,
                sweep: plan.sweep,
                by_a_user: plan.user.is_some_and(|(user, _)| user != 0),
                processor: plan.processor,
            },
            targets: plan.targets.iter().zip(&outcome.options).map(entry).collect(),
            results: outcome.found.iter().flat_map(of).collect(),
            comparisons: outcome.found.iter().flat_map(Comparison::all).collect(),
            effects: points(&outcome.found).flat_map(Shown::all).map(EffectEntry::of).collect(),
            pairs: points(&outcome.found).flat_map(Paired::all).map(PairEntry::of).collect(),
            bounds: points(&outcome.found).flat_map(Bounded::all).map(BoundEntry::of).collect(),
            left_out: outcome.left_out.clone(),
            failures: outcome.failures.clone(),
        }
    }

    /// Of a file's text.
    ///
    /// # Errors
    /// If it is none, or of a version that this program does not know: in words.
    pub fn parse(text: &str) -> Result<Document, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let of = |key: &str| value.get(key);
        if of("schema").and_then(serde_json::Value::as_str) != Some(SCHEMA) {
            return Err("not a report of conquest bench".to_owned());
        }
        match of("schema_version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            version => {
                let found = version.map_or("none".to_owned(), |version| version.to_string());
                return Err(format!("a report of version {found}; this program reads {VERSION}"));
            }
        }
        serde_json::from_value(value).map_err(|error| format!("a damaged report: {error}"))
    }
}

/// What was found with each set of parameters.
fn points(found: &[Found]) -> impl Iterator<Item = &[Found]> {
    found.chunk_by(|one, next| {
        (one.experiment, &one.parameters) == (next.experiment, &next.parameters)
    })
}

fn ends(interval: Interval) -> [f64; 2] {
    [interval.low, interval.high]
}

impl ResultEntry {
    /// Of one row.
    #[must_use]
    pub fn of(found: &Found, row: &Row) -> ResultEntry {
        let (median, interval) = row.median();
        ResultEntry {
            experiment: found.experiment.to_owned(),
            target: row.target.clone(),
            phase: found.phase.id.to_owned(),
            parameters: found.parameters.clone(),
            metric: if found.phase.unit.is_rate() { "rate" } else { "amount" }.to_owned(),
            unit: found.phase.unit.name().to_owned(),
            higher_is_better: found.phase.unit.is_rate(),
            median: median.is_finite().then_some(median),
            ci90: interval.map(ends),
            samples: row.samples.iter().map(|sample| sample.map(|sample| sample.rate)).collect(),
            disturbed: row.marked(),
            survives: row.survives,
            per_operation: PerOperation::of(row, found.phase.unit),
        }
    }
}

impl EffectEntry {
    fn of(shown: Shown) -> EffectEntry {
        EffectEntry {
            present: shown.is_present(),
            mended: shown.is_mended(),
            experiment: shown.experiment.to_owned(),
            effect: shown.effect.id.to_owned(),
            parameters: shown.parameters,
            target: shown.target,
            original: shown.original,
            corrected: shown.corrected,
            change: shown.change,
        }
    }
}

impl PairEntry {
    fn of(paired: Paired) -> PairEntry {
        PairEntry {
            aim: paired.aim(),
            reached: paired.is_reached(),
            experiment: paired.experiment.to_owned(),
            pair: paired.pair.id.to_owned(),
            parameters: paired.parameters,
            target: paired.target,
            ratio: paired.ratio,
        }
    }
}

impl BoundEntry {
    fn of(bounded: Bounded) -> BoundEntry {
        BoundEntry {
            met: bounded.is_met(),
            experiment: bounded.experiment.to_owned(),
            phase: bounded.bound.phase.to_owned(),
            parameters: bounded.parameters,
            target: bounded.target,
            unit: bounded.unit.name().to_owned(),
            found: bounded.found,
            most: bounded.bound.most,
        }
    }
}

impl Comparison {
    /// All of one phase.
    #[must_use]
    pub fn all(found: &Found) -> Vec<Comparison> {
        let Some((base, others)) = found.rows.split_first() else {
            return Vec::new();
        };
        let compared = others.iter().filter_map(|row| {
            let (ratio, verdict) = found.compared(row, base)?;
            Some(Comparison {
                experiment: found.experiment.to_owned(),
                phase: found.phase.id.to_owned(),
                parameters: found.parameters.clone(),
                target: row.target.clone(),
                against: base.target.clone(),
                ratio: ratio.value,
                ci90: ends(ratio),
                verdict,
                same_class: row.survives == base.survives,
            })
        });
        compared.collect()
    }
}
