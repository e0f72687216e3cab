//! Kills and stops real processes on a real region: before every store of every operation, during
//! recovery, and at random under load. Nothing acknowledged may be lost, nothing leaked, nothing
//! half done.

mod arena;
mod case;
mod every_store;
#[path = "../kill/mod.rs"]
mod kill;
#[path = "../os/mod.rs"]
#[allow(dead_code, reason = "other programs use the rest")]
mod os;
mod random;

use std::process::ExitCode;

use kill::tally::{Tally, counted};

const USAGE: &str = "\
usage: kill-pm [--kills N] [--seed S] [--step N]
  --kills N  random kills, 10000 unless told otherwise
  --seed S   decides every random choice, 1 unless told otherwise
  --step N   a thin slice: deaths and stops at every N-th store only, and deaths in recovery at
             every N-th store of every N-th death. Without it every store is looked at; all pairs
             of a store and one of its recovery are if there are at least 10000 random kills, else
             every 23rd of both";

/// From so many random kills on, all pairs of stores are looked at.
const FULL: u64 = 10_000;
/// The step between stores in pairs of them below.
const THIN: u64 = 23;

/// What to do.
struct Plan {
    kills: u64,
    seed: u64,
    step: Option<u64>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Plan> {
    let mut plan = Plan { kills: FULL, seed: 1, step: None };
    while let Some(argument) = arguments.next() {
        let number = arguments.next()?.parse().ok()?;
        match argument.as_str() {
            "--kills" => plan.kills = number,
            "--seed" => plan.seed = number,
            "--step" if number > 0 => plan.step = Some(number),
            _ => return None,
        }
    }
    Some(plan)
}

fn run(plan: &Plan, tally: &Tally) -> Result<(), String> {
    let workers = os::processors::processors().len();
    let cases = case::cases()?;
    let single = plan.step.unwrap_or(1);
    let double = plan.step.unwrap_or(if plan.kills >= FULL { 1 } else { THIN });
    every_store::death_at_every_store(tally, workers, &cases, single);
    every_store::stop_at_every_store(tally, workers, &cases, single);
    every_store::death_in_recovery(tally, workers, &cases, double);
    random::kill_at_random(tally, workers, plan.kills, plan.seed)
}

fn main() -> ExitCode {
    let Some(plan) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    counted(|tally| run(&plan, tally))
}
