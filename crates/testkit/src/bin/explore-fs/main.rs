//! Explores the crashes of operations on a small tree of files: every one, and every pair, one
//! after the other by one process and interleaved by two.

mod scenario;

use std::collections::HashMap;
use std::process::ExitCode;

use conquest_testkit::files::{ON_FULL, OPERATIONS, Op};
use conquest_testkit::{Options, Summary, explore, replay};
use scenario::{Plan, Scenario};

fn main() -> ExitCode {
    let mut states = 1_000_000;
    let mut seed = 1;
    let mut state = None;
    let mut only = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next();
        let number = value.as_deref().and_then(|value| value.parse().ok());
        match (argument.as_str(), number) {
            ("--states", Some(number)) => states = number,
            ("--seed", Some(number)) => seed = number as u64,
            ("--plan", Some(number)) => only = Some(number),
            ("--replay", _) => state = value,
            _ => {
                eprintln!("usage: explore-fs [--states N] [--seed S] [--plan P [--replay STATE]]");
                return ExitCode::from(2);
            }
        }
    }
    let plans = plans();
    match (only.and_then(|only| plans.get(only)), state) {
        (Some(plan), Some(state)) => replay_one(plan, seed, &state),
        (Some(plan), None) => explore_all(&[(only.unwrap_or(0), plan.clone())], seed, states),
        (None, _) => explore_all(&chosen(plans, seed, states), seed, states),
    }
}

/// Every operation, every pair in turn, and every pair at once; and the same on a full store.
fn plans() -> Vec<Plan> {
    [plans_of(&OPERATIONS, false), plans_of(&ON_FULL, true)].concat()
}

fn plans_of(operations: &[Op], is_full: bool) -> Vec<Plan> {
    let pairs = || operations.iter().flat_map(|&one| operations.iter().map(move |&two| [one, two]));
    let alone = operations.iter().map(|&op| vec![vec![op]]);
    let in_turn = pairs().map(|pair| vec![pair.to_vec()]);
    let at_once = pairs().map(|[one, other]| vec![vec![one], vec![other]]);
    let all = alone.chain(in_turn).chain(at_once);
    all.map(|scripts| Plan { scripts, is_full }).collect()
}

/// All plans, if there are states enough; otherwise every so many-th.
fn chosen(plans: Vec<Plan>, seed: u64, states: usize) -> Vec<(usize, Plan)> {
    let most = (states / STATES_LEAST).max(1);
    let step = plans.len().div_ceil(most);
    plans.into_iter().enumerate().skip(seed as usize % step).step_by(step).collect()
}

/// States that a plan gets at least, those of crashes during recovery included.
const STATES_LEAST: usize = 400;

/// Explores the plans, again with another seed until there are states enough.
fn explore_all(plans: &[(usize, Plan)], first: u64, states: usize) -> ExitCode {
    let mut total = Summary::default();
    let mut mix: HashMap<&'static str, u64> = HashMap::new();
    let mut scenarios = 0;
    let begin = std::time::Instant::now();
    for seed in first.. {
        for (index, (number, plan)) in plans.iter().enumerate() {
            // What earlier plans have left is for the later ones.
            let left = states.saturating_sub(total.states + total.inner_states);
            if left == 0 || total.failed > 20 {
                break;
            }
            let budget = left.div_ceil(plans.len() - index).div_ceil(3);
            for op in plan.scripts.iter().flatten() {
                *mix.entry(op.name()).or_default() += 1;
            }
            scenarios += 1;
            explore_one(&mut total, plan, *number, seed, budget);
        }
        if total.states + total.inner_states >= states || total.failed > 20 {
            break;
        }
    }
    total.elapsed = begin.elapsed();
    println!("{scenarios} scenarios, operations: {}", sorted(&mix));
    println!("{total}");
    ExitCode::from(u8::from(total.failed > 0))
}

fn explore_one(total: &mut Summary, plan: &Plan, number: usize, seed: u64, budget: usize) {
    match plan.record(seed) {
        Ok(scenario) => {
            let options =
                Options { seed, states: budget, inner_states: 2 * budget, ..Options::default() };
            let found = explore(&scenario.recording, &options, |memory, point| {
                scenario.judge(memory, point)
            });
            for failure in &found.failures {
                println!("FAILED --seed {seed} --plan {number} --replay '{failure}'");
            }
            *total += found;
        }
        Err(error) => {
            println!("FAILED --seed {seed} --plan {number}: {error}");
            total.failed += 1;
            total.states += 1;
        }
    }
}

fn replay_one(plan: &Plan, seed: u64, state: &str) -> ExitCode {
    let judge = |scenario: Scenario| {
        println!("{:?}", plan.scripts);
        replay(&scenario.recording, &Options::default(), state, |memory, point| {
            println!("{point:?}");
            scenario.judge(memory, point)
        })
    };
    match plan.record(seed).and_then(judge) {
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

fn sorted(mix: &HashMap<&'static str, u64>) -> String {
    let mut mix: Vec<_> = mix.iter().collect();
    mix.sort();
    let parts: Vec<String> = mix.iter().map(|(name, count)| format!("{count} {name}")).collect();
    parts.join(", ")
}
