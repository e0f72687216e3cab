//! `conquest volume export`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::Members;
use crate::commands::mount::ended;
use crate::log::Level;
use crate::mount::failure::Failure;
use crate::mount::options::MountOptions;
use crate::mount::space::Exported;
use crate::mount::start::{Plan, Role};
use crate::mount::{point, serving};
use crate::place;
use crate::reason::Result;
use crate::report::Report;
use crate::size;

/// Show the space of a volume as a file, on which a loop device can be.
#[derive(Args)]
#[command(
    after_help = "The file is DIRECTORY/space. It is sparse: space is taken by writing, and given
back by punching holes, which fstrim(8) and discards of a loop device come to. It
can be read and written at any byte, past the page cache; fsync(2), and a flush of
a loop device, flush the volume. It can't become longer or shorter.

Unless --size says otherwise, it is as long as the volume can hold, which stays the
same: a file system of that size never runs out of space before it says so. With a
longer file, writing may fail with ENOSPC while a file system on it takes itself to
have space. Whoever asks for a size has to do so each time, or a file system on it
seems to be cut off.

The command returns when the file is there; a process in the background serves it
until DIRECTORY is unmounted (conquest umount). SIGTERM, SIGINT and SIGHUP ask that
process to unmount, as with conquest mount. If it is killed, nothing is lost that
was acknowledged, but the loop device is: unmount what is on it, detach it, run
conquest umount, and export again.

Several processes may have the volume open, but no more than one may mount a file
system of the kernel on it.

Examples:
  conquest volume export --fuse mnt disk
  losetup --find --show --direct-io=on --sector-size 4096 mnt/space
  mkfs.ext4 /dev/loop0 && mount -o discard /dev/loop0 /srv
  umount /srv && losetup -d /dev/loop0 && conquest umount mnt"
)]
pub(super) struct Export {
    /// Where to show it, through FUSE: a directory.
    #[arg(long, value_name = "DIRECTORY")]
    fuse: PathBuf,
    /// Bytes of the file: whole units [default: what the volume can hold].
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    size: Option<u64>,
    /// Nothing can be written through the file. (The volume itself is opened for writing.)
    #[arg(short, long)]
    read_only: bool,
    /// Serve in this process, and end when it is unmounted.
    #[arg(short, long)]
    foreground: bool,
    /// What is logged: error, warn, info, debug [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<Level>,
    /// This process was started to serve.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    serving: bool,
    #[command(flatten)]
    volume: Members,
}

pub(super) fn run(args: &Export) -> ExitCode {
    let report = Report::new("volume export");
    let role = Role::of(args.foreground, args.serving);
    ended(export(args, role), role, &report)
}

fn export(args: &Export, role: Role) -> core::result::Result<(), Failure> {
    let parent = role.parent()?;
    let plan = match plan(args) {
        Ok(plan) => plan,
        Err(reason) => return Err(serving::tell_failure(reason.into(), parent)),
    };
    let Asked { plan, devices, index } = plan;
    let opening = conquest_flash::OpenOptions { directory: index, ..args.volume.options() };
    let size = args.size;
    plan.carry_out(role, parent, || Ok(Box::new(Exported::new(devices, opening, size))))
}

/// What is asked for, with paths from the root.
struct Asked {
    plan: Plan,
    devices: Vec<PathBuf>,
    index: PathBuf,
}

fn plan(args: &Export) -> Result<Asked> {
    let point = point::named(&args.fuse)?;
    let all = args.volume.devices.iter();
    let devices = all.map(|path| place::resolved(path)).collect::<Result<Vec<_>>>()?;
    let index = place::resolved(&args.volume.index)?;
    let mut options = MountOptions { read_only: args.read_only, ..MountOptions::default() };
    options.log_level = args.log_level.unwrap_or(options.log_level);
    let mut source = OsString::new();
    for (number, device) in devices.iter().enumerate() {
        if number > 0 {
            source.push("+");
        }
        source.push(device);
    }
    let arguments = arguments(args, &devices, &index, &point);
    let plan = Plan { arguments, source, point, options };
    Ok(Asked { plan, devices, index })
}

/// The arguments by which the program serves it.
fn arguments(args: &Export, devices: &[PathBuf], index: &Path, point: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = ["volume", "export", "--serving"].map(OsString::from).into();
    if let Some(size) = args.size {
        all.extend(["--size".into(), size.to_string().into()]);
    }
    if args.read_only {
        all.push("--read-only".into());
    }
    if let Some(level) = args.log_level {
        all.extend(["--log-level".into(), level.name().into()]);
    }
    if args.volume.degraded {
        all.push("--degraded".into());
    }
    all.extend(["--index".into(), index.into()]);
    // They are from the root: none is taken for an option.
    all.extend(devices.iter().map(OsString::from));
    all.extend(["--fuse".into(), point.into()]);
    all
}
