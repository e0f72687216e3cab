//! Measures `conquest-pm` on this machine: what its operations cost, whether two processes on one
//! region get in each other's way, what long use does to the heap, how wear spreads, how long
//! attaching takes. Each experiment states its target and whether it was met.

mod ageing;
mod arena;
mod attach;
mod chart;
mod costs;
mod facts;
mod files;
#[path = "../os/mod.rs"]
#[allow(dead_code, reason = "other programs use the rest")]
mod os;
mod report;
mod rotation;
mod scaling;
mod stats;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use os::processors;
use report::Report;

const USAGE: &str = "\
usage: measure-pm [--quick] [--only NAME] [--json FILE] [--svg FILE] [--seed S]
  --quick      a slice: fewer and smaller runs, throughput over time is not judged
  --only NAME  one experiment: costs, scaling, ageing, rotation or attach
  --json FILE  writes all figures there
  --svg FILE   draws the ageing there";

/// What to do.
pub(crate) struct Plan {
    /// A slice only.
    pub(crate) quick: bool,
    /// Decides every random choice.
    pub(crate) seed: u64,
    /// Processors that it may run on; an experiment may keep to one.
    pub(crate) processors: Vec<usize>,
    only: Option<String>,
    json: Option<PathBuf>,
    svg: Option<PathBuf>,
}

/// An experiment: says what it finds and judges it.
type Experiment = fn(&Plan, &mut Report) -> Result<(), String>;

const EXPERIMENTS: [(&str, Experiment); 5] = [
    ("costs", costs::run),
    ("scaling", scaling::run),
    ("ageing", ageing::run),
    ("rotation", rotation::run),
    ("attach", attach::run),
];

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Plan> {
    let processors = processors::processors();
    let mut plan = Plan { quick: false, seed: 1, processors, only: None, json: None, svg: None };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => plan.quick = true,
            "--seed" => plan.seed = arguments.next()?.parse().ok()?,
            "--json" => plan.json = Some(arguments.next()?.into()),
            "--svg" => plan.svg = Some(arguments.next()?.into()),
            "--only" => {
                let name = arguments.next()?;
                EXPERIMENTS.iter().find(|(known, _)| *known == name)?;
                plan.only = Some(name);
            }
            _ => return None,
        }
    }
    Some(plan)
}

fn write(path: &PathBuf, text: &str) -> bool {
    let written = std::fs::write(path, text);
    if let Err(error) = &written {
        eprintln!("can't write {}: {error}", path.display());
    }
    written.is_ok()
}

fn main() -> ExitCode {
    let Some(plan) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut report = Report::new();
    facts::state(&plan, &mut report);
    for (name, experiment) in EXPERIMENTS {
        if plan.only.as_deref().is_none_or(|only| only == name) {
            report.begin(name);
            let run =
                processors::pin(&plan.processors).and_then(|()| experiment(&plan, &mut report));
            if let Err(error) = run {
                report.judge("it runs to its end", false, &error);
            }
            report.end();
        }
    }
    let mut written = true;
    if let Some(path) = &plan.json {
        written &= write(path, &report.json());
    }
    if let Some(path) = &plan.svg {
        written &= match report.drawing() {
            Some(drawing) => write(path, drawing),
            None => {
                eprintln!("nothing was drawn: the drawing is of the ageing");
                false
            }
        };
    }
    let met = report.close();
    ExitCode::from(u8::from(!(met && written)))
}
