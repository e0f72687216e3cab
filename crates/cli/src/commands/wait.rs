//! `conquest wait`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::place;
use crate::reason::Reason;
use crate::report::Report;
use crate::session;

/// Wait until what was done in stores is durable.
///
/// That is what sync(1) does for other file systems: all that was done in a store before, by
/// whatever process, survives a power failure when this returns. A store without a volume has
/// nothing to wait for.
#[derive(Args)]
#[command(after_help = "Example:
  conquest wait --durable store")]
pub(crate) struct Wait {
    /// Until it is durable. (It has to be said.)
    #[arg(long, required = true)]
    durable: bool,
    /// The stores: their directories.
    #[arg(required = true)]
    stores: Vec<OsString>,
}

pub(crate) fn run(args: &Wait) -> ExitCode {
    let report = Report::new("wait");
    for store in &args.stores {
        let directory = place::store(store);
        let Some(store) = report.take_plain(session::attach(&directory)) else {
            continue;
        };
        let synced = store.sync().map_err(Reason::from);
        report.take(place::host_label(&directory), synced);
        report.take_plain(store.detach().map_err(Reason::from));
    }
    report.code()
}
