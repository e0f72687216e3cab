//! `conquest save`.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conquest::{SaveOptions, Saved};
use serde::Serialize;

use crate::json::{self, Name};
use crate::place;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::size::human;
use crate::stop;

/// Save a store to a file on a disk.
#[derive(Args)]
#[command(
    after_help = "Nobody else may have the store attached. The file has its name only once it is
complete and durable; run again after an interruption, saving goes on where it was. What the store's
volume has of large files is saved too.

Example:
  conquest save store /backup/store.save"
)]
pub(crate) struct Save {
    /// Replace an older file of that name, once the new one is complete.
    #[arg(short, long)]
    force: bool,
    /// For programs: schema conquest.save.
    #[arg(long)]
    json: bool,
    /// The store: its directory.
    store: OsString,
    /// The file.
    file: PathBuf,
}

#[derive(Serialize)]
struct Answer {
    file: Name,
    file_bytes: u64,
    bytes: u64,
    large_bytes: u64,
    resumed_bytes: u64,
    store: String,
    attach_generation: u64,
}

pub(crate) fn run(args: &Save) -> ExitCode {
    let report = Report::with("save", Progress::bytes("saving", 0));
    let done = stop::listen().and_then(|()| save(args, &report));
    report.take_plain(done);
    let code = report.code();
    stop::end_by_signal();
    code
}

fn save(args: &Save, report: &Report) -> Result<()> {
    let directory = place::store(&args.store);
    let mut told = |done, total| step(report, done, total);
    let options = SaveOptions { force: args.force, progress: Some(&mut told) };
    let saved = conquest::save(&directory, &args.file, options).map_err(ended)?;
    if let Some(progress) = report.progress() {
        progress.finish();
    }
    tell(args, &saved)
}

fn tell(args: &Save, saved: &Saved) -> Result<()> {
    if args.json {
        return Ok(json::print(
            "save",
            &Answer {
                file: Name::new(saved.file.as_os_str().as_encoded_bytes()),
                file_bytes: saved.len,
                bytes: saved.bytes,
                large_bytes: saved.large_bytes,
                resumed_bytes: saved.resumed,
                store: saved.store.to_string(),
                attach_generation: saved.attach_generation,
            },
        )?);
    }
    let mut text = format!(
        "saved {} to {} ({})\n",
        human(saved.bytes + saved.large_bytes),
        place::host_label(&saved.file),
        human(saved.len)
    );
    if saved.resumed > 0 {
        text += &format!("{} of it had been saved before\n", human(saved.resumed));
    }
    Ok(crate::output::all(text.as_bytes())?)
}

/// Shows how far it is; whether to go on.
pub(super) fn step(report: &Report, done: u64, total: u64) -> ControlFlow<()> {
    if let Some(progress) = report.progress() {
        progress.set(done, total);
    }
    if stop::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// What stopped it, in this program's words.
pub(super) fn ended(error: conquest::Error) -> Reason {
    match error {
        conquest::Error::Cancelled => Reason::Stopped,
        error => Reason::Store(error),
    }
}
