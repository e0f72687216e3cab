//! `conquest restore`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conquest::{CorePlace, Medium, RestoreOptions};
use serde::Serialize;

use super::save::{ended, step};
use crate::clock::Clock;
use crate::json::{self, Name};
use crate::place;
use crate::progress::Progress;
use crate::reason::Result;
use crate::report::Report;
use crate::size::human;
use crate::stop;

/// Bring a saved store back.
#[derive(Args)]
#[command(
    after_help = "The file is checked as a whole before anything is touched. A store that has
changed since it was saved is not overwritten unless --force says so.

Example:
  conquest restore /backup/store.save store"
)]
pub(crate) struct Restore {
    /// File or device for the core [default: where it was].
    #[arg(long, value_name = "PATH")]
    core: Option<PathBuf>,
    /// What the core is kept on: auto, ram, battery, dax, disk.
    #[arg(long, default_value_t = Medium::Auto)]
    medium: Medium,
    /// Make another store with the same files, instead of the same store again.
    #[arg(long)]
    new_identity: bool,
    /// Lose what is in the way: a newer core, or another store.
    #[arg(short, long)]
    force: bool,
    /// For programs: schema conquest.restore.
    #[arg(long)]
    json: bool,
    /// The file that `conquest save` made.
    file: PathBuf,
    /// The store: its directory.
    store: OsString,
}

#[derive(Serialize)]
struct Answer {
    directory: Name,
    core: Name,
    store: String,
    bytes: u64,
    saved_at_ns: u64,
    attach_generation: u64,
}

pub(crate) fn run(args: &Restore) -> ExitCode {
    let report = Report::with("restore", Progress::bytes("restoring", 0));
    let done = stop::listen().and_then(|()| restore(args, &report));
    report.take_plain(done);
    let code = report.code();
    stop::end_by_signal();
    code
}

fn restore(args: &Restore, report: &Report) -> Result<()> {
    let directory = place::store(&args.store);
    let mut told = |done, total| step(report, done, total);
    let options = RestoreOptions {
        core: args.core.clone().map_or(CorePlace::Default, CorePlace::Path),
        medium: args.medium,
        force: args.force,
        new_identity: args.new_identity,
        progress: Some(&mut told),
        ..RestoreOptions::default()
    };
    let done = conquest::restore(&args.file, &directory, options).map_err(ended)?;
    if let Some(progress) = report.progress() {
        progress.finish();
    }
    if args.json {
        return Ok(json::print(
            "restore",
            &Answer {
                directory: Name::new(done.directory.as_os_str().as_encoded_bytes()),
                core: Name::new(done.core.as_os_str().as_encoded_bytes()),
                store: done.store.to_string(),
                bytes: done.bytes,
                saved_at_ns: done.saved_at,
                attach_generation: done.attach_generation,
            },
        )?);
    }
    let saved = Clock::new().long(i64::try_from(done.saved_at).unwrap_or(i64::MAX));
    let text = format!(
        "restored {} to {}, as it was saved at {saved}\n",
        human(done.bytes),
        place::host_label(&done.directory)
    );
    Ok(crate::output::all(text.as_bytes())?)
}
