//! `conquest volume replace`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conquest_flash::replace_at;

use super::{Members, Open};
use crate::place::host_label;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::stop;

/// Put a device in the place of a missing member of a mirror.
///
/// All that the others have is copied to it. It has failed until that is done; if it is
/// interrupted, `conquest volume scrub` goes on with it.
#[derive(Args)]
#[command(
    after_help = "Nobody may have the volume open when this begins, and as soon as the device
is a member, others may use the volume again, by all of its devices. What was on
the device is lost.

Example:
  conquest volume replace --by /dev/sdz /dev/sdx"
)]
pub(super) struct Replace {
    /// The device: as large as what is in use of the others.
    #[arg(long, value_name = "PATH")]
    by: PathBuf,
    /// Also a device that is part of a volume already.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    volume: Members,
}

pub(super) fn run(args: &Replace) -> ExitCode {
    let report = Report::with("volume replace", Progress::share("copying"));
    let done = stop::listen().and_then(|()| replace(args, &report));
    report.take_plain(done);
    let code = report.code();
    stop::end_by_signal();
    code
}

fn replace(args: &Replace, report: &Report) -> Result<()> {
    let options = args.volume.options();
    replace_at(&args.volume.devices, &args.by, &options, args.force)?;
    let mut devices = args.volume.devices.clone();
    devices.push(args.by.clone());
    let volume = Open::open(&devices, &options)?;
    let mut progress = |done: u64, total: u64| {
        if let Some(progress) = report.progress() {
            progress.set(done, total.max(1));
        }
        !stop::requested()
    };
    let restored = volume.restore(&mut progress)?;
    volume.close()?;
    stop::check().map_err(|_| {
        Reason::rule("interrupted; the device is a member, and conquest volume scrub goes on")
    })?;
    if restored == 0 {
        return Err(Reason::rule("the volume has no member that was to be brought up to date"));
    }
    if let Some(progress) = report.progress() {
        progress.finish();
    }
    let text = format!("{} has all that the others have\n", host_label(&args.by));
    Ok(crate::output::all(text.as_bytes())?)
}
