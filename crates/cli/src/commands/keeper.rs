//! `conquest keeper`, which no user calls: the process that makes durable what nobody waits for.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::Args;

use crate::reason::{Reason, Result};
use crate::report::Report;

/// Keep a store with a volume, as long as others have it attached.
#[derive(Args)]
pub(crate) struct Keeper {
    /// Start a process that does it, and end.
    #[arg(long)]
    start: bool,
    /// The store: its directory.
    store: PathBuf,
}

pub(crate) fn run(args: &Keeper) -> ExitCode {
    let report = Report::new("keeper");
    let done = match args.start {
        true => start(args),
        false => keep(args),
    };
    report.take_plain(done);
    report.code()
}

fn start(args: &Keeper) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("keeper").arg("--").arg(&args.store);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It is nobody's child when this process has ended, and this process ends now.
    command.current_dir("/").spawn()?;
    Ok(())
}

fn keep(args: &Keeper) -> Result<()> {
    // No terminal that goes takes it along. It may lead a session already.
    let (Ok(_) | Err(_)) = rustix::process::setsid();
    conquest::keep(&args.store).map_err(Reason::from)
}
