//! `conquest mount`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::log::Level;
use crate::mount::failure::Failure;
use crate::mount::server;
use crate::mount::start::{Role, Wanted, start};
use crate::place;
use crate::report::Report;

/// Make a store a part of the host's file tree.
#[derive(Args)]
#[command(
    after_help = "The command returns when the store is mounted; a process in the background serves
it until it is unmounted (conquest umount). SIGTERM, SIGINT and SIGHUP ask that
process to unmount: it waits some seconds for those who use the mount, and leaves
those who stay what they have; a second signal ends it at once. It logs to the
journal or the system's log, in the foreground to standard error.

Options, as of mount(8); the last one of its kind counts:
  ro, rw                            change nothing through it; or do
  nosuid, suid, nodev, dev          what set-user-id bits and device files do;
                                    only root can ask for suid and dev, and
                                    in fstab(5) by allow_suid and allow_dev
  exec, noexec                      whether programs can be executed
  relatime, noatime, strictatime, nodiratime
                                    when reading changes access times
  async, sync, dirsync              what is durable when a call returns
  allow_other                       others than who mounts may use it
  local_locks                       locks are this mount's alone: faster, and told
                                    by lslocks(8), but unknown to the library
                                    and to other mounts of the store
  fsname=NAME                       what it is said to be a mount of
  threads=NUMBER                    threads that serve, at most
  log-level=LEVEL                   as --log-level
  remount                           change the flags of a mount that is there
Those for mount(8) and the service manager are ignored: auto, nofail, _netdev,
user, x-..., comment=... A comma in a value is written \\, or within \"quotes\".

Examples:
  conquest mount store ~/files
  conquest mount -o noatime,allow_other /srv/store /mnt
  conquest mount -f --log-level debug store ~/files"
)]
pub(crate) struct Mount {
    /// Serve in this process, and end when it is unmounted.
    #[arg(short, long)]
    foreground: bool,
    /// Options, with commas between them.
    #[arg(short = 'o', value_name = "OPTION,...")]
    options: Vec<OsString>,
    /// What is logged: error, warn, info, debug; names of files only with debug [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<Level>,
    /// Ignore options that are not known.
    #[arg(long)]
    sloppy: bool,
    /// This process was started to serve.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    serving: bool,
    /// The store: its directory.
    store: OsString,
    /// The mount point: a directory, which need not be empty.
    directory: PathBuf,
}

pub(crate) fn run(args: &Mount) -> ExitCode {
    let report = Report::new("mount");
    let role = Role::of(args.foreground, args.serving);
    let wanted = Wanted {
        store: place::store(&args.store),
        point: args.directory.clone(),
        options: args.options.clone(),
        log_level: args.log_level,
        is_sloppy: args.sloppy,
    };
    ended(start(&wanted, role, server::server), role, &report)
}

/// The exit code of a mount in the role `role`, with what `report` has to say of it.
pub(super) fn ended(
    outcome: core::result::Result<(), Failure>,
    role: Role,
    report: &Report,
) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    // Whoever started this process reports what it was told.
    if role != Role::Serving {
        report.note(failure.reason());
    }
    ExitCode::from(match failure {
        Failure::Usage(_) => 2,
        Failure::Failed(_) => 1,
    })
}
