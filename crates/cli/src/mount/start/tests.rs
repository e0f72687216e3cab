//! What is asked for, and what the process that serves is told of it.

use clap::Parser;

use super::*;
use crate::args::Program;

fn wanted(store: &str, point: &str, options: &[&str]) -> Wanted {
    Wanted {
        store: store.into(),
        point: point.into(),
        options: options.iter().map(OsString::from).collect(),
        log_level: None,
        is_sloppy: false,
    }
}

/// Whether `wanted` would be served; what is in the way otherwise.
fn rehearsed(wanted: &Wanted) -> core::result::Result<(), Failure> {
    start(wanted, Role::Rehearsal, |_| Err(Reason::rule("nothing is served in a rehearsal")))
}

#[test]
fn what_is_in_the_way_is_named() {
    rehearsed(&wanted("/proc", "/proc", &["ro"])).unwrap();
    let failure = rehearsed(&wanted("/proc", "/proc", &["noatme"])).unwrap_err();
    assert!(matches!(failure, Failure::Usage(_)));
    let said = |wanted: Wanted| match rehearsed(&wanted).unwrap_err() {
        Failure::Failed(reason) => reason.to_string(),
        Failure::Usage(reason) => panic!("{reason}"),
    };
    let text = "/none: No such file or directory (make the mount point first: mkdir)";
    assert_eq!(said(wanted("/proc", "/none", &[])), text);
    assert_eq!(said(wanted("/none", "/proc", &[])), "/none: No such file or directory");
    let text = "/proc: a mount of proc, not of Conquest (use umount(8))";
    assert_eq!(said(wanted("/none", "/proc", &["remount,ro"])), text);
}

#[test]
fn the_process_that_serves_understands_its_arguments() {
    let mut wanted = wanted("-store", "-point", &["ro,fsname=\"a,b\"", "-x"]);
    wanted.log_level = Some(Level::Debug);
    wanted.is_sloppy = true;
    let arguments = wanted.arguments();
    assert_eq!(arguments.last(), Some(&"-point".into()));
    let all = std::iter::once("conquest".into()).chain(arguments);
    assert!(Program::try_parse_from(all).is_ok());
}

#[test]
fn the_level_of_the_log_is_said_twice_and_the_argument_counts() {
    let mut wanted = wanted("s", "p", &["log-level=error"]);
    assert_eq!(wanted.parse().unwrap().log_level, Level::Error);
    wanted.log_level = Some(Level::Debug);
    assert_eq!(wanted.parse().unwrap().log_level, Level::Debug);
}
