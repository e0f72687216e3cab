//! Every request that takes a reply gets one.

use conquest_fuse::wire::Opcode;

use crate::kernel::{Answer, Kernel, options, with_unique};
use crate::scripted::{BAD, MAX_WRITE, NODE, wait_until};
use crate::support::{Bytes, at, request};

fn started() -> Kernel {
    Kernel::started(options())
}

#[test]
fn requests_are_answered_at_once_later_and_elsewhere() {
    let kernel = started();
    for (unique, name) in [(4, "now"), (6, "elsewhere")] {
        kernel.look_up(unique, name);
        let answer = kernel.answer();
        assert_eq!((answer.unique, answer.error, answer.body.len()), (unique, 0, 128));
        assert_eq!(u64::from_ne_bytes(at(&answer.body, 0)), NODE);
    }
    kernel.look_up(8, "other");
    assert_eq!(kernel.answer(), Answer::error(8, 2));
    kernel.look_up(10, "keep");
    kernel.handler.wait_kept(1);
    kernel.look_up(12, "now");
    assert_eq!(kernel.answer().unique, 12);
    kernel.handler.answer_kept();
    assert_eq!(kernel.answer(), Answer { unique: 10, error: 0, body: Vec::new() });
    kernel.ask(Opcode::Destroy, 14, &Bytes::new());
    assert_eq!(kernel.answer(), Answer { unique: 14, error: 0, body: Vec::new() });
    let (result, reports) = kernel.unmount();
    assert!(result.is_ok() && reports.is_empty(), "{result:?} {reports:?}");
}

#[test]
fn the_longest_write_fits() {
    let kernel = started();
    let fields = Bytes::new().u64(3).u64(0).u32(MAX_WRITE).u32(0).u64(0).u32(0).u32(0);
    kernel.ask(Opcode::Write, 4, &fields.zeros(MAX_WRITE as usize));
    let answer = kernel.answer();
    assert_eq!((answer.error, u32::from_ne_bytes(at(&answer.body, 0))), (0, MAX_WRITE));
}

#[test]
fn pieces_are_put_together_however_many() {
    let kernel = started();
    kernel.look_up(4, "pieces");
    assert_eq!(kernel.answer().body, (0..200).collect::<Vec<u8>>());
    for (name, count) in [("63 pieces", 63), ("64 pieces", 64)] {
        kernel.look_up(6, name);
        assert_eq!(kernel.answer().body, vec![b'x'; count]);
    }
    kernel.look_up(8, "ioctl");
    let body = kernel.answer().body;
    assert_eq!((i32::from_ne_bytes(at(&body, 0)), &body[16..]), (7, &b"out"[..]));
}

#[test]
fn a_reply_that_is_dropped_is_an_error() {
    let kernel = started();
    kernel.look_up(4, "drop");
    assert_eq!(kernel.answer(), Answer::error(4, 5));
}

#[test]
fn what_takes_no_reply_gets_none() {
    let kernel = started();
    for unique in [4, 6, 8] {
        kernel.ask(Opcode::Forget, unique, &Bytes::new().u64(1));
    }
    wait_until("nodes are forgotten", || kernel.handler.forgets() == 3);
    kernel.is_silent();
    assert!(kernel.unmount().1.is_empty());
}

#[test]
fn a_panic_is_an_error_of_its_request_only() {
    let kernel = started();
    for unique in (4..40).step_by(2) {
        kernel.look_up(unique, "panic");
        assert_eq!(kernel.answer(), Answer::error(unique, 5));
        kernel.look_up(unique, "answer and panic");
        assert_eq!(kernel.answer().error, 0);
    }
    kernel.interrupt(BAD);
    kernel.look_up(44, "now");
    assert_eq!(kernel.answer().error, 0);
    kernel.is_silent();
    let (result, reports) = kernel.unmount();
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(reports.len(), 37);
    // Workers report at once: in any order.
    for reason in ["as it was asked to", "too late"] {
        let said = format!("request 4 (LOOKUP) made the server panic: {reason}; report it");
        assert!(reports.contains(&said), "{reports:?}");
    }
    assert!(reports.iter().any(|said| said.contains("INTERRUPT")), "{reports:?}");
}

#[test]
fn malformed_requests_are_refused_and_reported() {
    let kernel = started();
    kernel.ask(Opcode::Lookup, 4, &Bytes::new().raw(b"endless"));
    assert_eq!(kernel.answer(), Answer::error(4, 5));
    let mut wrong = with_unique(request(Opcode::Statfs as u32, &Bytes::new(), &Bytes::new()), 6);
    wrong[0] += 1;
    kernel.send(&wrong);
    assert_eq!(kernel.answer(), Answer::error(6, 5));
    // Too short for a number.
    kernel.send(&[1, 2, 3]);
    // Nobody waits for an answer.
    kernel.ask(Opcode::Forget, 8, &Bytes::new());
    kernel.is_silent();
    kernel.ask(Opcode::Statfs, 10, &Bytes::new());
    assert_eq!(kernel.answer(), Answer::error(10, 38));
    // Of a newer protocol.
    kernel.send(&with_unique(request(4000, &Bytes::new().u64(1), &Bytes::new()), 12));
    assert_eq!(kernel.answer(), Answer::error(12, 38));
    let (result, reports) = kernel.unmount();
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(reports.len(), 4, "{reports:?}");
}

#[test]
fn a_reply_that_is_refused_becomes_an_error_and_is_reported() {
    let kernel = started();
    kernel.look_up(4, "too long");
    assert_eq!(kernel.answer(), Answer::error(4, 5));
    kernel.look_up(6, "now");
    assert_eq!(kernel.answer().error, 0);
    let (result, reports) = kernel.unmount();
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(reports.len(), 1);
    let said = &reports[0];
    assert!(said.contains("request 4") && said.contains("4194304 bytes"), "{said}");
}
