//! A slice of the power cuts of stores; all of them: `cargo xtask explore store`.
#![allow(clippy::unwrap_used, clippy::panic)]

use conquest_testkit::cuts::{Tally, Way};
use conquest_testkit::store::explore::{explore, replay};

#[test]
fn what_a_power_cut_leaves_is_what_the_first_operations_have_made() {
    let mut total = Tally::default();
    // Of one process and of several, of threads, on a device with FUA, with a core that stays, and
    // a row of cuts.
    for seed in [2, 3, 4, 6, 11, 12] {
        total += explore(seed, 40);
    }
    assert!(total.failures.is_empty(), "{:#?}", total.failures);
    assert!(total.cuts > 60 && total.used > 5, "{total}");
    let inside = ["epochs", "checkpoints", "restarts", "trims", "runs with a core that stays"];
    assert!(inside.iter().all(|name| total.inside[name] > 1), "{total}");
}

#[test]
fn one_thread_does_the_same_again() {
    for seed in [5, 10] {
        let (one, other) = (explore(seed, 100), explore(seed, 100));
        assert_eq!((one.cuts, one.states, one.inside), (other.cuts, other.states, other.inside));
        assert_eq!(one.outcomes, other.outcomes);
        replay(&Way { seed, cuts: Vec::new() }, &mut |_| {}).unwrap();
    }
}
