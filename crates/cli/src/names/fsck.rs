//! `fsck.conquest`, which fsck(8) calls for stores in fstab(5), and administrators with the options
//! of other checkers.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

use clap::Parser;

use super::{after, say};
pub(super) use crate::commands::fsck::USAGE;
use crate::commands::fsck::{OPERATIONAL, check_and_tell};
use crate::place;
use crate::progress::Progress;
use crate::report::Report;

/// Check stores, for fsck(8).
///
/// Others use `conquest fsck`. Nothing is repaired: -a, -p and -y check as -n does, and what is
/// wrong is left to whoever reads the exit code.
#[derive(Parser, Debug)]
#[command(
    name = "fsck.conquest",
    version,
    max_term_width = 100,
    after_help = "Exit codes, as of fsck(8), added up for several stores: 0 consistent, 4 not,
8 not checked, 16 wrong usage."
)]
pub(super) struct Args {
    /// Repair without asking.
    #[arg(short = 'a')]
    automatic: bool,
    /// Repair without asking what is safe to repair.
    #[arg(short = 'p')]
    preen: bool,
    /// Repair nothing.
    #[arg(short = 'n', conflicts_with_all = ["yes", "automatic", "preen"])]
    no_changes: bool,
    /// Repair all.
    #[arg(short = 'y', conflicts_with_all = ["automatic", "preen"])]
    yes: bool,
    /// Ask before each repair.
    #[arg(short = 'r')]
    interactive: bool,
    /// Check even if a store is clean; that is done in any case.
    #[arg(short = 'f')]
    force: bool,
    /// Say what is done.
    #[arg(short = 'v')]
    verbose: bool,
    /// Show how far it is: as a bar, or in lines for programs on descriptor FD (-CFD).
    #[arg(long = "progress", value_name = "FD", num_args = 0..=1, require_equals = true,
          default_missing_value = "0", hide = true)]
    progress: Option<u32>,
    /// The stores: their directories.
    #[arg(required = true)]
    stores: Vec<OsString>,
}

/// `arguments` with `-C` and `-CFD`, which has its value attached or none, as a long option.
pub(super) fn prepared(arguments: Vec<OsString>) -> Vec<OsString> {
    let long = |argument: OsString| match after(&argument, "-C") {
        Some("") => "--progress".into(),
        Some(number) => format!("--progress={number}").into(),
        None => argument,
    };
    arguments.into_iter().map(long).collect()
}

pub(super) fn run(args: &Args) -> u8 {
    let lines = match args.progress {
        None | Some(0) => None,
        Some(number) => match File::options().write(true).open(format!("/proc/self/fd/{number}")) {
            Ok(file) => Some(file),
            Err(error) => {
                let words = crate::reason::words(&error);
                say("fsck.conquest", format_args!("-C{number}: {words} (name an open descriptor)"));
                return USAGE;
            }
        },
    };
    args.stores.iter().map(|store| check(args, store, lines.as_ref())).fold(0, |all, one| all | one)
}

/// Checks one store; the exit code.
fn check(args: &Args, store: &OsString, lines: Option<&File>) -> u8 {
    let directory = place::store(store);
    let label = place::host_label(&directory);
    if args.verbose {
        say("fsck.conquest", format_args!("checking {label}; nothing is repaired"));
    }
    let report = match args.progress {
        Some(0) => Report::with("fsck", Progress::share("checking")),
        _ => Report::new("fsck"),
    };
    let shown = Mutex::new(None);
    let told = |part: f64| {
        let percent = (part.clamp(0.0, 1.0) * 100.0) as u32;
        if let Some(progress) = report.progress() {
            progress.set(percent.into(), 100);
        }
        let mut shown = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(mut lines) = lines.filter(|_| shown.replace(percent) != Some(percent)) {
            // As of e2fsck(8): pass, done, of how much, what. Who reads no more needs no more.
            let _ = writeln!(lines, "1 {percent} 100 {label}");
        }
    };
    let code = check_and_tell(&report, &directory, false, &told);
    if code == OPERATIONAL && args.verbose {
        say("fsck.conquest", format_args!("{label} was not checked"));
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(prepared(text.split(' ').map(OsString::from).collect()))
    }

    #[test]
    fn arguments_stand_as_fsck_gives_them() {
        let args = of("fsck.conquest -a -f -v -C7 /srv/one /srv/two").unwrap();
        assert!(args.automatic && args.force && args.verbose);
        assert_eq!(args.progress, Some(7));
        assert_eq!(args.stores, ["/srv/one", "/srv/two"]);
        assert_eq!(of("fsck.conquest -C store").unwrap().progress, Some(0));
        assert_eq!(of("fsck.conquest -p store").unwrap().progress, None);
        assert!(of("fsck.conquest -pfv store").is_ok());
        for wrong in ["fsck.conquest", "fsck.conquest -n -y s", "fsck.conquest -Cx s"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
