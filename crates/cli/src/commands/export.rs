//! `conquest export`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use super::import::{Transfer, transfer};
use crate::place::Place;
use crate::progress::Progress;
use crate::report::Report;

/// Bring a tree of files out of a store, unchanged.
#[derive(Args)]
#[command(
    after_help = "The counterpart of import: what is in STORE:/path is then in TREE, which is made
if it is missing. Who is not root keeps what is permitted; what was not is told.

Examples:
  conquest export store:/src ~/src
  conquest export --delete --verify store:/ /srv/copy"
)]
pub(crate) struct Export {
    #[command(flatten)]
    transfer: Transfer,
    /// Directory in a store: STORE:/path.
    place: OsString,
    /// Directory on the host.
    tree: OsString,
}

pub(crate) fn run(args: &Export) -> ExitCode {
    let report = Report::with("export", Progress::counting("files"));
    let places = [Place::parse(&args.place), Place::parse(&args.tree)];
    let wrong = match &places {
        [Place::Inside(_), Place::Host(_)] => None,
        [Place::Host(_), _] => Some((0, "is on the host (write STORE:/path)")),
        [_, Place::Inside(_)] => Some((1, "is in a store (export makes a directory on the host)")),
    };
    transfer(&report, &args.transfer, &places, wrong)
}
