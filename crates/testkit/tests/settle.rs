//! A process dies at each store, write-back and fence of an operation, another one settles what it
//! left, and then the power fails: what the survivor made visible must have been durable before.

use conquest_testkit::scenario::Plan;
use conquest_testkit::shelf::Op;
use conquest_testkit::{Options, explore};

/// Steps of attaching and of the operation that dies, at most.
const STEPS: u64 = 200;
/// Interleavings tried for each.
const SEEDS: u64 = 3;
/// States after each death at most.
const STATES: usize = 250;

#[test]
fn what_a_survivor_settles_is_durable_before_it_is_visible() {
    let mut states = 0;
    for (step, seed) in (1..=STEPS).flat_map(|step| (0..SEEDS).map(move |seed| (step, seed))) {
        let push = |id| Op::Push { list: 0, id, pages: id - 1 };
        let plan = Plan {
            scripts: vec![vec![push(2)], vec![Op::Touch { list: 0 }; 2]],
            earlier: vec![push(1)],
            dies_at: Some(step),
            ..Plan::random(step * SEEDS + seed, 2, 0, true)
        };
        let scenario = plan.record().unwrap();
        let events = &scenario.recording.events;
        let death = events.iter().rposition(|event| event.actor == 0).unwrap_or(0);
        let options =
            Options { first: death, states: STATES, depth: 0, death: false, ..Options::default() };
        let found =
            explore(&scenario.recording, &options, |memory, point| scenario.judge(memory, point));
        assert_eq!(found.failed, 0, "death at step {step}, seed {seed}: {found}");
        states += found.states;
    }
    println!("{states} states");
}
