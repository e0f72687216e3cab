//! `conquest volume`: sparse spaces of blocks on files and block devices.

mod create;
mod export;
mod info;
mod replace;
mod rescue;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use conquest_flash::{OpenOptions, Volume as Opened};
use conquest_pm::media::{Mapped, OsHost};

use crate::json::Name;
use crate::reason::{Reason, Result};

/// A volume that this process has open.
type Open = Opened<Mapped, OsHost>;

/// Make, examine, export and rescue volumes: sparse spaces of blocks on files and block devices.
#[derive(Args)]
pub(crate) struct Volume {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Create(create::Create),
    Export(export::Export),
    Info(info::Info),
    Replace(replace::Replace),
    Rescue(rescue::Rescue),
    Check(verify::Check),
    Scrub(verify::Scrub),
}

/// What all that report take.
#[derive(Args)]
struct Common {
    /// For programs: the schema is conquest.volume-info, or conquest.volume-check.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    volume: Members,
}

/// Which volume is meant.
#[derive(Args)]
struct Members {
    /// Where the volume's index is while it is open: a directory in memory.
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    index: PathBuf,
    /// Go without members of a mirror that are not named. They have failed from then on, and what
    /// only they have is lost: name those that are newest.
    #[arg(long)]
    degraded: bool,
    /// The devices of the volume, all of them: files or block devices.
    #[arg(required = true, value_name = "PATH")]
    devices: Vec<PathBuf>,
}

impl Common {
    /// Opens the volume.
    fn open(&self) -> Result<Open> {
        Ok(Open::open(&self.volume.devices, &self.volume.options())?)
    }
}

impl Members {
    /// How the volume is to be opened.
    fn options(&self) -> OpenOptions {
        let (directory, degraded) = (self.index.clone(), self.degraded);
        OpenOptions { directory, degraded, ..OpenOptions::default() }
    }
}

impl From<conquest_flash::Error> for Reason {
    /// All of them name their objects.
    fn from(error: conquest_flash::Error) -> Reason {
        Reason::Rule(error.to_string())
    }
}

/// A path, for programs.
fn name(path: &Path) -> Name {
    Name::new(path.as_os_str().as_encoded_bytes())
}

pub(crate) fn run(args: &Volume) -> ExitCode {
    match &args.what {
        What::Create(args) => create::run(args),
        What::Export(args) => export::run(args),
        What::Info(args) => info::run(args),
        What::Replace(args) => replace::run(args),
        What::Rescue(args) => rescue::run(args),
        What::Check(args) => verify::check(args),
        What::Scrub(args) => verify::scrub(args),
    }
}
