//! Explores the crashes of random operations on a small region, by one actor and by two.

use std::collections::HashMap;
use std::process::ExitCode;

use conquest_testkit::scenario::Plan;
use conquest_testkit::shelf::Op;
use conquest_testkit::{Options, Summary, explore, replay};

/// Scenarios that a slice has at least.
const SCENARIOS: usize = 12;
/// Images of one scenario at most, those of crashes during recovery not counted.
const STATES_EACH: usize = 8_000;

fn main() -> ExitCode {
    let mut states = 1_000_000;
    let mut seed = 1;
    let mut state = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next();
        let number = value.as_deref().and_then(|value| value.parse().ok());
        match (argument.as_str(), number) {
            ("--states", Some(number)) => states = number,
            ("--seed", Some(number)) => seed = number as u64,
            ("--replay", _) => state = value,
            _ => {
                eprintln!("usage: explore-pm [--states N] [--seed S] [--replay STATE]");
                return ExitCode::from(2);
            }
        }
    }
    match state {
        Some(state) => replay_one(seed, &state),
        None => explore_all(seed, states),
    }
}

/// The plan of scenario `seed`: in turn one actor, two, and two of which one dies on the way.
fn plan(seed: u64) -> Plan {
    match seed % 3 {
        0 => Plan::random(seed, 2, 4, true),
        1 => Plan::random(seed, 1, 6, false),
        _ => Plan::random(seed, 2, 4, false),
    }
}

fn explore_all(first: u64, states: usize) -> ExitCode {
    let mut total = Summary::default();
    let mut mix = HashMap::new();
    let mut scenarios = 0;
    let begin = std::time::Instant::now();
    for seed in first.. {
        if total.states + total.inner_states >= states {
            break;
        }
        let plan = plan(seed);
        count(&mut mix, &plan);
        let budget = (states / SCENARIOS / 3).clamp(1, STATES_EACH);
        match plan.record() {
            Ok(scenario) => {
                let options = Options {
                    seed,
                    states: budget,
                    inner_states: 2 * budget,
                    ..Options::default()
                };
                let found = explore(&scenario.recording, &options, |memory, point| {
                    scenario.judge(memory, point)
                });
                for failure in &found.failures {
                    println!("FAILED --seed {seed} --replay '{failure}'");
                }
                total += found;
            }
            Err(error) => {
                println!("FAILED --seed {seed}: {error}");
                total.failed += 1;
                total.states += 1;
            }
        }
        scenarios += 1;
        if total.failed > 20 {
            break;
        }
    }
    total.elapsed = begin.elapsed();
    println!("{scenarios} scenarios, operations: {}", sorted(&mix));
    println!("{total}");
    ExitCode::from(u8::from(total.failed > 0))
}

fn replay_one(seed: u64, state: &str) -> ExitCode {
    let result = plan(seed).record().and_then(|scenario| {
        println!("{:#?}", scenario.plan);
        replay(&scenario.recording, &Options::default(), state, |memory, point| {
            println!("{point:?}");
            scenario.judge(memory, point)
        })
    });
    match result {
        Ok(_) => {
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn count(mix: &mut HashMap<&'static str, u64>, plan: &Plan) {
    for op in plan.scripts.iter().flatten() {
        let name = match op {
            Op::Push { pages: 0, .. } => "push",
            Op::Push { .. } => "push with pages",
            Op::PushMany { .. } => "push many",
            Op::Pop { .. } => "pop",
            Op::Move { .. } => "move",
            Op::Touch { .. } => "touch",
            Op::Clear { .. } => "clear",
        };
        *mix.entry(name).or_default() += 1;
    }
}

fn sorted(mix: &HashMap<&'static str, u64>) -> String {
    let mut mix: Vec<_> = mix.iter().collect();
    mix.sort();
    let parts: Vec<String> = mix.iter().map(|(name, count)| format!("{count} {name}")).collect();
    parts.join(", ")
}
