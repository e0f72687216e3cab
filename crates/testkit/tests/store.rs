//! A slice of the power cuts of stores; all of them: `cargo xtask explore store`.
#![allow(clippy::unwrap_used, clippy::panic)]

use conquest_testkit::cuts::{Tally, Way};
use conquest_testkit::store::explore::{explore, replay};

#[test]
fn what_a_power_cut_leaves_is_what_the_first_operations_have_made() {
    let mut total = Tally::default();
    // Of one process and of several, of threads, on a device with FUA, and a row of cuts.
    for seed in [2, 3, 4, 6, 11] {
        total += explore(seed, 40);
    }
    assert!(total.failures.is_empty(), "{:#?}", total.failures);
    assert!(total.cuts > 60 && total.used > 5, "{total}");
    let inside = ["epochs", "checkpoints", "restarts", "trims"];
    assert!(inside.iter().all(|name| total.inside[name] > 1), "{total}");
}

#[test]
fn one_thread_does_the_same_again() {
    let (one, other) = (explore(5, 100), explore(5, 100));
    assert_eq!((one.cuts, one.states, one.inside), (other.cuts, other.states, other.inside));
    assert_eq!(one.outcomes, other.outcomes);
    replay(&Way { seed: 5, cuts: Vec::new() }, &mut |_| {}).unwrap();
}
