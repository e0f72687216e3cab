//! An interruption reaches the reply that is kept, whichever of the two comes first.

use std::collections::BTreeSet;

use crate::kernel::{Answer, Kernel, options};

const INTR: i32 = 4;

fn started() -> Kernel {
    Kernel::started(options())
}

#[test]
fn who_is_kept_is_interrupted() {
    let kernel = started();
    kernel.look_up(4, "keep");
    kernel.look_up(6, "keep");
    kernel.handler.wait_kept(2);
    kernel.interrupt(4);
    assert_eq!(kernel.answer(), Answer::error(4, INTR));
    kernel.is_silent();
    kernel.handler.answer_kept();
    assert_eq!(kernel.answer(), Answer { unique: 6, error: 0, body: Vec::new() });
}

#[test]
fn who_is_about_to_be_kept_is_interrupted() {
    let kernel = started();
    kernel.look_up(4, "gate, keep");
    kernel.handler.wait_for(1);
    kernel.interrupt(4);
    // What comes after it is answered: by then it was read.
    kernel.look_up(6, "now");
    assert_eq!(kernel.answer().unique, 6);
    kernel.is_silent();
    kernel.handler.open_gate(1);
    assert_eq!(kernel.answer(), Answer::error(4, INTR));
}

#[test]
fn an_interruption_that_is_read_before_its_request_is_not_lost() {
    let kernel = started();
    kernel.interrupt(4);
    kernel.interrupt(6);
    kernel.is_silent();
    kernel.look_up(6, "now");
    assert_eq!(kernel.answer().error, 0);
    kernel.look_up(4, "keep");
    assert_eq!(kernel.answer(), Answer::error(4, INTR));
    // It was answered, so it is forgotten: a number that is used again has nothing of it.
    kernel.look_up(4, "keep");
    kernel.look_up(6, "keep");
    kernel.handler.wait_kept(2);
    kernel.is_silent();
}

#[test]
fn who_does_not_wait_is_not_disturbed() {
    let kernel = started();
    kernel.look_up(4, "gate");
    kernel.handler.wait_for(1);
    kernel.interrupt(4);
    kernel.interrupt(4);
    kernel.is_silent();
    kernel.handler.open_gate(1);
    assert_eq!(kernel.answer().error, 0);
    kernel.interrupt(4);
    kernel.is_silent();
    let (result, reports) = kernel.unmount();
    assert!(result.is_ok() && reports.is_empty(), "{result:?} {reports:?}");
}

/// Requests and their interruptions in both orders, close to each other, on several threads: each
/// is answered once, as interrupted.
#[test]
fn no_interruption_is_lost_in_any_order() {
    const ROUNDS: u64 = 300;
    const AT_ONCE: u64 = 16;
    let kernel = started();
    for round in 0..ROUNDS {
        let uniques: BTreeSet<u64> = (0..AT_ONCE).map(|n| 4 + 2 * (round * AT_ONCE + n)).collect();
        for unique in &uniques {
            match (round + unique / 2) % 3 {
                0 => {
                    kernel.interrupt(*unique);
                    kernel.look_up(*unique, "keep");
                }
                1 => {
                    kernel.look_up(*unique, "keep");
                    kernel.interrupt(*unique);
                }
                _ => kernel.look_up(*unique, "keep"),
            }
        }
        for unique in uniques.iter().filter(|unique| (round + *unique / 2) % 3 == 2) {
            kernel.interrupt(*unique);
        }
        let answers = uniques.iter().map(|_| kernel.answer());
        let answered: BTreeSet<u64> =
            answers.inspect(|answer| assert_eq!(answer.error, INTR)).map(|a| a.unique).collect();
        assert_eq!(answered, uniques);
    }
    kernel.is_silent();
}
