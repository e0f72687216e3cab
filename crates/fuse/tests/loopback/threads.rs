//! How many threads there are.

use std::time::Duration;

use conquest_fuse::SessionOptions;

use crate::kernel::Kernel;
use crate::scripted::wait_until;

fn started(threads_max: usize, idle_max: usize, idle_time: Duration) -> Kernel {
    let options = SessionOptions { threads_max, idle_max, idle_time, ..SessionOptions::default() };
    Kernel::started(options)
}

const LONG: Duration = Duration::from_secs(60);

/// A thread that has answered may still be on the way back when the next request comes, so there
/// may be some more for a while.
#[test]
fn one_client_keeps_no_more_than_a_few() {
    let kernel = started(10, 2, Duration::from_millis(30));
    for unique in 2..200 {
        kernel.look_up(2 * unique, "now");
        assert_eq!(kernel.answer().error, 0);
    }
    wait_until("the surplus has ended", || kernel.handler.threads() <= 3);
}

#[test]
fn threads_grow_to_the_limit_while_all_are_busy() {
    let kernel = started(4, 2, LONG);
    for unique in 0..4 {
        kernel.look_up(4 + 2 * unique, "gate");
        kernel.handler.wait_for(unique as usize + 1);
    }
    assert_eq!(kernel.handler.threads(), 4);
    kernel.look_up(100, "now");
    kernel.is_silent();
    kernel.handler.open_gate(1);
    assert_eq!(kernel.answer().error, 0);
    assert_eq!(kernel.answer().unique, 100);
    kernel.handler.open_gate(3);
    for _ in 0..3 {
        assert_eq!(kernel.answer().error, 0);
    }
    assert_eq!(kernel.handler.threads(), 4, "parked ones stay for a while");
    // They are called when they are needed again.
    for unique in 0..4 {
        kernel.look_up(4 + 2 * unique, "gate");
        kernel.handler.wait_for(unique as usize + 5);
    }
    assert_eq!(kernel.handler.threads(), 4);
    kernel.handler.open_gate(4);
    for _ in 0..4 {
        assert_eq!(kernel.answer().error, 0);
    }
    assert!(kernel.unmount().0.is_ok());
}

#[test]
fn what_is_kept_takes_no_thread() {
    let kernel = started(2, 1, LONG);
    for unique in 0..100 {
        kernel.look_up(4 + 2 * unique, "keep");
    }
    kernel.handler.wait_kept(100);
    kernel.look_up(1000, "now");
    assert_eq!(kernel.answer().unique, 1000);
    kernel.handler.answer_kept();
    for _ in 0..100 {
        assert_eq!(kernel.answer().error, 0);
    }
}

#[test]
fn idle_threads_end_after_a_while_and_come_back() {
    let kernel = started(8, 2, Duration::from_millis(30));
    for round in 0..3 {
        for unique in 0..8 {
            kernel.look_up(4 + 2 * unique, "gate");
            kernel.handler.wait_for(round * 8 + unique as usize + 1);
        }
        assert_eq!(kernel.handler.threads(), 8);
        kernel.handler.open_gate(8);
        for _ in 0..8 {
            assert_eq!(kernel.answer().error, 0);
        }
        // The session's own thread stays.
        wait_until("the surplus has ended", || kernel.handler.threads() <= 3);
    }
    let (result, reports) = kernel.unmount();
    assert!(result.is_ok(), "{result:?}");
    // A socket is no device that could be cloned, which is said once.
    assert_eq!(reports.len(), 1, "{reports:?}");
}

#[test]
fn all_threads_end_with_the_connection() {
    let kernel = started(6, 3, LONG);
    let handler = std::sync::Arc::clone(&kernel.handler);
    for unique in 0..6 {
        kernel.look_up(4 + 2 * unique, "gate");
        handler.wait_for(unique as usize + 1);
    }
    kernel.look_up(100, "keep");
    handler.open_gate(6);
    for _ in 0..6 {
        assert_eq!(kernel.answer().error, 0);
    }
    handler.wait_kept(1);
    assert!(kernel.unmount().0.is_ok());
    // What is a thread's own goes a moment after its work has ended.
    wait_until("all threads have ended", || handler.threads() == 0);
}
