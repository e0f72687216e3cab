//! INIT.

use conquest_fuse::InitFlags;
use conquest_fuse::wire::{Agreed, Opcode};

use crate::kernel::{Answer, Kernel, options};
use crate::support::{Bytes, at};

fn new() -> Kernel {
    Kernel::new(options())
}

#[test]
fn a_newer_kernel_is_told_our_version_and_comes_again() {
    let kernel = new();
    kernel.init(8, 1);
    let answer = kernel.answer();
    assert_eq!((answer.error, u32::from_ne_bytes(at(&answer.body, 0))), (0, 7));
    kernel.init(7, 99);
    let answer = kernel.answer();
    let version = [0, 4].map(|offset| u32::from_ne_bytes(at(&answer.body, offset)));
    assert_eq!((answer.error, version), (0, [7, 45]));
    kernel.look_up(4, "now");
    assert_eq!(kernel.answer().error, 0);
    let (result, reports) = kernel.unmount();
    assert!(result.is_ok() && reports.is_empty(), "{result:?} {reports:?}");
}

#[test]
fn an_older_kernel_is_refused_by_versions() {
    let kernel = new();
    kernel.init(7, 30);
    assert_eq!(kernel.answer(), Answer::error(2, 71));
    let said = kernel.unmount().0.unwrap_err().to_string();
    assert!(said.contains("7.30") && said.contains("7.31") && said.contains("Linux"), "{said}");
}

#[test]
fn what_does_not_begin_with_init_is_refused() {
    let kernel = new();
    kernel.look_up(4, "now");
    assert_eq!(kernel.answer(), Answer::error(4, 5));
    let said = kernel.unmount().0.unwrap_err().to_string();
    assert!(said.contains("not INIT"), "{said}");

    let kernel = new();
    kernel.ask(Opcode::Init, 2, &Bytes::new().u32(7));
    assert_eq!(kernel.answer(), Answer::error(2, 5));
    let said = kernel.unmount().0.unwrap_err().to_string();
    assert!(said.contains("INIT") && said.contains("bytes"), "{said}");
}

#[test]
fn a_panic_in_init_is_an_error() {
    let kernel = new();
    kernel.init(7, 33);
    assert_eq!(kernel.answer(), Answer::error(2, 5));
    let said = kernel.unmount().0.unwrap_err().to_string();
    assert!(said.contains("not this one"), "{said}");
}

#[test]
fn what_ends_before_it_begins_ends_well() {
    let (result, reports) = new().unmount();
    assert!(result.is_ok() && reports.is_empty(), "{result:?} {reports:?}");
}

#[test]
fn a_session_goes_on_where_another_process_has_left_it() {
    let agreed = Agreed { minor: 45, flags: InitFlags::HAS_RESEND };
    let kernel = Kernel::with(options(), |session| session.resumed(agreed, 4096));
    let resent = 1 << 63 | 4;
    kernel.look_up(resent, "now");
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (resent, 0));
    assert!(kernel.unmount().0.is_ok());
}

#[test]
fn a_second_init_is_refused_and_the_session_goes_on() {
    let kernel = Kernel::started(options());
    kernel.init(7, 45);
    assert_eq!(kernel.answer(), Answer::error(2, 5));
    kernel.look_up(4, "now");
    assert_eq!(kernel.answer().error, 0);
    assert!(kernel.unmount().0.is_ok());
}
