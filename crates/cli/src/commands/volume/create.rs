//! `conquest volume create`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use conquest::Id;
use conquest_flash::device::{Device, FileDevice};
use conquest_flash::{NewVolume, create_at, open_device};
use conquest_format::volume::{Arrangement, UNIT};

use super::{Common, info};
use crate::place::host_label;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::size;
use crate::stop;

/// Bytes at both ends of a device that have to be zeros for it to be empty.
const ENDS: u64 = 65536;

/// Make a volume of files, which are made if they are missing, and block devices.
#[derive(Args)]
#[command(after_help = "Examples:
  conquest volume create --size 4G disk
  conquest volume create --mirror /dev/sdx /dev/sdy")]
pub(super) struct Create {
    /// Bytes of each file that is made. All of it is written.
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    size: Option<u64>,
    /// Keep all of it on each of several devices.
    #[arg(long, conflicts_with = "stripe")]
    mirror: bool,
    /// Spread it over several devices.
    #[arg(long)]
    stripe: bool,
    /// Bytes of a segment, which is cleaned as a whole [default: by the size].
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    segment: Option<u64>,
    /// Use devices that are not empty. What is on them is lost.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    common: Common,
}

/// Files that were made, and are removed again unless the volume comes to be.
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            // The error to tell is the one that led here.
            let _ = std::fs::remove_file(path);
        }
    }
}

pub(super) fn run(args: &Create) -> ExitCode {
    let report = Report::with("volume create", Progress::bytes("making", 0));
    let done = stop::listen().and_then(|()| create(args, &report));
    report.take_plain(done);
    let code = report.code();
    stop::end_by_signal();
    code
}

fn create(args: &Create, report: &Report) -> Result<()> {
    let paths = &args.common.volume.devices;
    if paths.len() > 1 && !args.mirror && !args.stripe {
        return Err(Reason::rule("several devices: say --mirror or --stripe"));
    }
    if paths.len() == 1 && (args.mirror || args.stripe) {
        return Err(Reason::rule("--mirror and --stripe take two devices or more"));
    }
    let mut made = Made(Vec::new());
    let mut unit = UNIT;
    let missing: Vec<bool> = paths.iter().map(|path| is_missing(path)).collect();
    for (path, is_missing) in paths.iter().zip(&missing) {
        let device = match is_missing {
            true => {
                let device = make(path, args.size, &missing, report)?;
                made.0.push(path.clone());
                device
            }
            false => open_device(path)?,
        };
        if !is_missing && !args.force {
            check_empty(path, &device)?;
        }
        unit = unit.max(device.limits().physical.into());
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let new = NewVolume {
        uuid: Id::random()?.0,
        created: since.as_nanos() as u64,
        arrangement: if args.mirror { Arrangement::Mirrored } else { Arrangement::Striped },
        segment: args.segment.map(|bytes| bytes / unit),
    };
    if args.segment.is_some_and(|bytes| !bytes.is_multiple_of(unit)) {
        return Err(Reason::rule(format!("--segment: no multiple of {unit} bytes")));
    }
    stop::check()?;
    create_at(paths, &new, args.force)?;
    made.0.clear();
    if let Some(progress) = report.progress() {
        progress.finish();
    }
    info::show(&args.common)
}

fn is_missing(path: &Path) -> bool {
    std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Makes the file at `path`, one of those that are `missing`.
fn make(path: &Path, size: Option<u64>, missing: &[bool], report: &Report) -> Result<FileDevice> {
    let label = host_label(path);
    let size = size
        .ok_or_else(|| Reason::rule(format!("{label}: it is not there (say --size to make it)")))?;
    if !size.is_multiple_of(UNIT) || size == 0 {
        return Err(Reason::rule(format!("{label}: --size: no multiple of {UNIT} bytes")));
    }
    let total =
        size.saturating_mul(missing.iter().filter(|is_missing| **is_missing).count() as u64);
    let mut before = 0;
    let mut told = |done: u64| {
        if let Some(progress) = report.progress() {
            progress.length(total);
            progress.add(done - before);
        }
        before = done;
    };
    let made = FileDevice::create(path, size, 0o600, &mut told);
    made.map_err(|error| Reason::rule(format!("{label}: {}", Reason::from(error))))
}

/// Refuses a device that may hold something.
fn check_empty(path: &Path, device: &FileDevice) -> Result<()> {
    let label = || host_label(path);
    let len = ENDS.min(device.len());
    let mut bytes = vec![0; len as usize];
    for at in [0, device.len() - len] {
        let read = device.read(at, &mut bytes);
        read.map_err(|error| Reason::rule(format!("{}: {}", label(), Reason::from(error))))?;
        if bytes.iter().any(|&byte| byte != 0) {
            let text = format!("{}: it is not empty (use --force, and all on it is lost)", label());
            return Err(Reason::rule(text));
        }
    }
    Ok(())
}
