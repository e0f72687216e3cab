//! `conquest destroy`.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use conquest::Store;

use crate::copy::ask;
use crate::place;
use crate::reason::Reason;
use crate::report::Report;

/// Longest wait for others that attach or detach.
const PATIENCE: Duration = Duration::from_secs(10);

/// Destroy stores, with everything in them.
///
/// Removes the core, which takes memory as long as it is there, and the directory, if nothing else
/// is in it. A store that processes have attached is left alone.
#[derive(Args)]
#[command(after_help = "Example:
  conquest destroy --yes store")]
pub(crate) struct Destroy {
    /// Do not ask. Needed where nobody can be asked.
    #[arg(short, long)]
    yes: bool,
    /// The stores: directories.
    #[arg(required = true)]
    stores: Vec<OsString>,
}

pub(crate) fn run(args: &Destroy) -> ExitCode {
    let report = Report::new("destroy");
    for store in &args.stores {
        let directory = place::store(store);
        let label = place::host_label(&directory);
        let question = format!("conquest: destroy: {label}: destroy it, with everything in it? ");
        if !args.yes && !std::io::stdin().is_terminal() {
            report.fail(label, &Reason::rule("nobody can be asked (use --yes)"));
        } else if args.yes || ask(&question) {
            report.take_plain(Store::destroy(&directory, PATIENCE).map_err(Reason::from));
        }
    }
    report.code()
}
