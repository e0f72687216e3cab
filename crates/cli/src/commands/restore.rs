//! `conquest restore`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conquest::{CorePlace, Medium, RestoreOptions, Restored, SyncMode, VolumePlace};
use serde::Serialize;

use super::mkfs::volume;
use super::save::{ended, step};
use crate::clock::Clock;
use crate::json::{self, Name};
use crate::place;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::size::human;
use crate::stop;

/// Bring a saved store back.
#[derive(Args)]
#[command(
    after_help = "The file is checked as a whole before anything is touched. A store that has
changed since it was saved is not overwritten unless --force says so.

A store that is there keeps its volume's place, and that volume is made anew; one that is not gets
a volume if the saved one had one: a file of the same size. Large files need one.

Examples:
  conquest restore /backup/store.save store
  conquest restore --volume 8G /backup/store.save store"
)]
pub(crate) struct Restore {
    /// File or device for the core [default: where it was].
    #[arg(long, value_name = "PATH")]
    core: Option<PathBuf>,
    /// A volume on which the core outlives a power failure, and large files are: a file of SIZE in
    /// the store's directory, or devices [default: as it was].
    #[arg(long, value_name = "SIZE|PATH")]
    volume: Vec<OsString>,
    /// Keep all of the volume on each of several devices.
    #[arg(long, requires = "volume")]
    mirror: bool,
    /// When what was done is durable on the volume: after a time at the latest, when somebody asks
    /// for it (fsync), or always before an operation returns [default: as it was].
    #[arg(long, value_name = "interval=TIME|fsync|always")]
    sync: Option<SyncMode>,
    /// What the core is kept on: auto, ram, battery, dax, disk, logged. Without a volume: any but
    /// auto and logged.
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
    volume: Vec<Name>,
    store: String,
    bytes: u64,
    large_bytes: u64,
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
        volume: wanted(args)?,
        sync: args.sync,
        force: args.force,
        new_identity: args.new_identity,
        progress: Some(&mut told),
        ..RestoreOptions::default()
    };
    let done = conquest::restore(&args.file, &directory, options).map_err(ended)?;
    if let Some(progress) = report.progress() {
        progress.finish();
    }
    tell(args, &done)
}

/// The volume that `args` ask for; none for one as it was.
fn wanted(args: &Restore) -> Result<Option<VolumePlace>> {
    if args.volume.is_empty() {
        return Ok(None);
    }
    let without = "--volume none: say what else the core is to be kept on, as --medium ram";
    volume(&args.volume, args.mirror)?.map(Some).ok_or_else(|| Reason::rule(without))
}

fn tell(args: &Restore, done: &Restored) -> Result<()> {
    let name = |path: &PathBuf| Name::new(path.as_os_str().as_encoded_bytes());
    if args.json {
        return Ok(json::print(
            "restore",
            &Answer {
                directory: name(&done.directory),
                core: name(&done.core),
                volume: done.volume.iter().map(name).collect(),
                store: done.store.to_string(),
                bytes: done.bytes,
                large_bytes: done.large_bytes,
                saved_at_ns: done.saved_at,
                attach_generation: done.attach_generation,
            },
        )?);
    }
    let saved = Clock::new().long(i64::try_from(done.saved_at).unwrap_or(i64::MAX));
    let mut text = format!(
        "restored {} to {}, as it was saved at {saved}\n",
        human(done.bytes + done.large_bytes),
        place::host_label(&done.directory)
    );
    for device in &done.volume {
        text += &format!("its volume is on {}\n", place::host_label(device));
    }
    Ok(crate::output::all(text.as_bytes())?)
}
