//! `conquest volume rescue`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use conquest::{Id, LargeFile, RescueOptions, Rescued};
use serde::Serialize;

use super::{Members, name};
use crate::commands::save::{ended, step};
use crate::json::{self, Name};
use crate::place::host_label;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::size::{grouped, human};
use crate::stop;

/// Rescue what a volume has of a store whose core and directory are lost.
///
/// If the core was in ordinary RAM (medium logged), that is all that was durable: DIR becomes a
/// store with it, and with the volume, which stays where it is. If the core was on persistent
/// memory or on a battery, it is the data of large files: each of them becomes a file of DIR,
/// called by its inode number. Their names, owners and times were in the core, and so were small
/// files: these are not on the volume.
#[derive(Args)]
#[command(after_help = "Nobody else may have the volume open. It is opened, which recovers it, and
otherwise only read; but if a store is made, no older core of it can be made
durable on the volume any more. If anything fails, DIR is as it was.

Of large files: inode numbers are those that ls -i told. What can't be read is
zeros in its place. If two chunks of the volume say that they have the data of
the same inode, both are rescued, as INODE-chunk-CHUNK: one of them is of a file
that was removed. What was changed last may be missing, as far as it was in the
core only. Bytes that were cut off last may be at the end of a file, and what was
being written behind its end, or to a hole, when the writer was killed.

Exit codes: 0 all that the volume has is there; 1 nothing was rescued, or some of
it can't be read, or nothing says whose it is, which is told; 2 wrong usage.

Examples:
  conquest volume rescue --to found /dev/sdx
  conquest volume rescue --to found --degraded /dev/sdy")]
pub(super) struct Rescue {
    /// The directory to rescue it to: not there yet, or empty.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// For programs: schema conquest.volume-rescue.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    volume: Members,
}

/// What `--json` tells.
#[derive(Serialize)]
struct Answer {
    kind: &'static str,
    whole: bool,
    directory: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unlabelled_chunks: Option<Vec<u64>>,
}

#[derive(Serialize)]
struct Row {
    path: Name,
    inode: u64,
    generation: u64,
    chunk: u64,
    bytes: u64,
    lost_bytes: u64,
}

pub(super) fn run(args: &Rescue) -> ExitCode {
    let report = Report::with("volume rescue", Progress::bytes("rescuing", 0));
    let done = stop::listen().and_then(|()| rescue(args, &report));
    report.take_plain(done);
    let code = report.code();
    stop::end_by_signal();
    code
}

fn rescue(args: &Rescue, report: &Report) -> Result<()> {
    let mut told = |done, total| step(report, done, total);
    let options = RescueOptions {
        index: args.volume.index.clone(),
        degraded: args.volume.degraded,
        progress: Some(&mut told),
    };
    let rescued = conquest::rescue(&args.volume.devices, &args.to, options);
    let rescued = rescued.map_err(|error| match error {
        conquest::Error::Cancelled => Reason::rule("interrupted; nothing was left behind"),
        error => ended(error),
    })?;
    if let Some(progress) = report.progress() {
        progress.finish();
    }
    match args.json {
        true => json::print("volume-rescue", &answer(&rescued))?,
        false => crate::output::all(text(args, &rescued).as_bytes())?,
    }
    tell_losses(args, &rescued, report);
    Ok(())
}

/// Says what is missing, each of which is a failure.
fn tell_losses(args: &Rescue, rescued: &Rescued, report: &Report) {
    let Rescued::Files { files, unlabelled, .. } = rescued else {
        return;
    };
    for file in files.iter().filter(|file| file.lost > 0) {
        let lost = grouped(file.lost);
        let why = format!("{lost} bytes can't be read; there are zeros in their place");
        report.fail(host_label(&file.path), &Reason::Rule(why));
    }
    if unlabelled.is_empty() {
        return;
    }
    let numbers: Vec<String> = unlabelled.iter().map(u64::to_string).collect();
    let why = format!(
        "{} chunks have something, and no label that says whose it is, so that is on the volume \
         only: {} (conquest volume export shows it, in the space from the number times the size of \
         a chunk on)",
        grouped(unlabelled.len() as u64),
        numbers.join(", ")
    );
    let device = args.volume.devices.first().map_or(Path::new(""), PathBuf::as_path);
    report.fail(host_label(device), &Reason::Rule(why));
}

fn row(file: &LargeFile) -> Row {
    Row {
        path: name(&file.path),
        inode: file.inode,
        generation: file.generation,
        chunk: file.chunk,
        bytes: file.bytes,
        lost_bytes: file.lost,
    }
}

fn answer(rescued: &Rescued) -> Answer {
    let whole = rescued.is_whole();
    let none = |kind, directory: &Path| Answer {
        kind,
        whole,
        directory: name(directory),
        store: None,
        core: None,
        files: None,
        unlabelled_chunks: None,
    };
    match rescued {
        Rescued::Store { directory, store, core, .. } => Answer {
            store: Some(store.to_string()),
            core: Some(name(core)),
            ..none("store", directory)
        },
        Rescued::Files { directory, files, unlabelled, .. } => Answer {
            files: Some(files.iter().map(row).collect()),
            unlabelled_chunks: Some(unlabelled.clone()),
            ..none("files", directory)
        },
        _ => none("other", Path::new("")),
    }
}

fn text(args: &Rescue, rescued: &Rescued) -> String {
    match rescued {
        Rescued::Store { directory, store, .. } => of_store(args, directory, *store),
        Rescued::Files { directory, files, .. } => of_files(directory, files),
        _ => String::new(),
    }
}

fn of_store(args: &Rescue, directory: &Path, store: Id) -> String {
    let mut text = format!("rescued all as store {store} in {}\n", host_label(directory));
    for device in &args.volume.devices {
        text += &format!("its volume is on {}\n", host_label(device));
    }
    text
}

fn of_files(directory: &Path, files: &[LargeFile]) -> String {
    let line = |columns: [String; 5], file: &str| {
        let [bytes, lost, inode, generation, chunk] = columns;
        format!("{bytes:>14} {lost:>8} {inode:>10} {generation:>16} {chunk:>8} {file}\n")
    };
    let titles = ["Bytes", "Lost", "Inode", "Generation", "Chunk"].map(str::to_owned);
    let mut text = line(titles, "File");
    for file in files {
        let numbers = [file.bytes, file.lost, file.inode, file.generation, file.chunk];
        let path = file.path.strip_prefix(directory).unwrap_or(&file.path);
        text += &line(numbers.map(|number| number.to_string()), &host_label(path));
    }
    let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
    let (count, bytes) = (grouped(files.len() as u64), human(bytes));
    text + &format!("rescued {count} large files of {bytes} to {}\n", host_label(directory))
}
