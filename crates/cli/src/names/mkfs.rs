//! `mkfs.conquest`, which mkfs(8) calls for `mkfs -t conquest`.

use std::path::Path;

use clap::Parser;

use super::say;
use crate::commands::mkfs::{self, Mkfs};
use crate::place;
use crate::reason::{Reason, Result};
use crate::report::Report;

/// Exit code for whatever goes wrong.
pub(super) const FAILED: u8 = 1;

/// Make a store, for mkfs(8).
///
/// Others use `conquest mkfs`, whose options this takes as well.
#[derive(Parser)]
#[command(
    name = "mkfs.conquest",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 made, 1 not."
)]
pub(super) struct Args {
    /// A label; stores have none, their directories have names.
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<String>,
    /// An identity; stores get a random one.
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Only look whether it could be done.
    #[arg(short = 'n')]
    dry_run: bool,
    /// Say what is done, as is done without -q.
    #[arg(short = 'v')]
    verbose: bool,
    #[command(flatten)]
    mkfs: Mkfs,
}

pub(super) fn run(args: &Args) -> u8 {
    let made = check(args).and_then(|()| match args.dry_run {
        true => rehearse(args),
        false => {
            let report = Report::new("mkfs");
            mkfs::make(&report, &args.mkfs);
            Ok(report.failures() == 0)
        }
    });
    match made {
        Ok(true) => 0,
        Ok(false) => FAILED,
        Err(reason) => {
            say("mkfs.conquest", reason);
            FAILED
        }
    }
}

/// Refuses what stores don't have.
fn check(args: &Args) -> Result<()> {
    if args.label.is_some() {
        return Err(Reason::rule("-L: stores have no labels (leave it out; name the directory)"));
    }
    match &args.uuid {
        Some(uuid) if uuid != "random" => Err(Reason::rule(
            "-U: the identity of a store can't be chosen (leave it out, or say random)",
        )),
        _ => Ok(()),
    }
}

/// Whether a store could be made, as far as one sees without making anything.
fn rehearse(args: &Args) -> Result<bool> {
    let directory = args.mkfs.directory();
    let named =
        |text: &str| Err(Reason::Rule(format!("{}: {text}", place::host_label(&directory))));
    let is_store = directory.join("store.toml").exists();
    match std::fs::read_dir(&directory).map(Iterator::count) {
        Ok(_) if is_store && args.mkfs.force => Ok(true),
        Ok(_) if is_store => named("holds a store already (use -f to replace it)"),
        Ok(0) => Ok(true),
        Ok(_) => named("Directory not empty"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let above = directory.parent().filter(|above| !above.as_os_str().is_empty());
            match above.unwrap_or(Path::new(".")).is_dir() {
                true => Ok(true),
                false => named("the directory that it is to be in is not there"),
            }
        }
        Err(error) => named(&crate::reason::words(&error)),
    }
}
