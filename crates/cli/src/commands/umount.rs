//! `conquest umount`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use conquest::Errno;

use crate::mount::detach::detach;
use crate::mount::servers::Server;
use crate::mount::table;
use crate::mount::users::Users;
use crate::place;
use crate::reason::{Reason, Result};
use crate::report::Report;

/// Longest wait for the end of the mount and of its server.
const LIMIT: Duration = Duration::from_secs(30);

/// Take away what `conquest mount` made.
#[derive(Args)]
#[command(
    after_help = "The command returns when the process that served the mount has ended, so the store
is detached then. If somebody uses the mount, nothing is done, and they are named.

Example:
  conquest umount ~/files"
)]
pub(crate) struct Umount {
    /// Take it away at once; those who use it keep it until they end, and nothing is waited for.
    #[arg(short, long)]
    lazy: bool,
    /// The mount point. A symbolic link at its end is not followed.
    directory: PathBuf,
}

pub(crate) fn run(args: &Umount) -> ExitCode {
    let report = Report::new("umount");
    report.take_plain(umount(&args.directory, args.lazy));
    report.code()
}

/// Takes away the mount at `directory`. The reason names the object.
fn umount(directory: &Path, is_lazy: bool) -> Result<()> {
    let begin = Instant::now();
    let label = place::host_label(directory);
    let named = |reason: Reason| Reason::Rule(format!("{label}: {reason}"));
    let point = resolved(directory).map_err(named)?;
    let mount = table::conquest_at(&point)?;
    // Where this process stands is no use of it.
    std::env::set_current_dir("/")?;
    // They can't be told any more once it is gone.
    let servers = if is_lazy { Vec::new() } else { Server::of(&mount) };
    match detach(&point, is_lazy, LIMIT) {
        Err(reason) if reason.is(Errno::EBUSY) => {
            let users = Users::of(&mount)?;
            return Err(named(Reason::Rule(format!(
                "in use (end its users, or use --lazy to take it away nevertheless){users}"
            ))));
        }
        done => done?,
    }
    let is_elsewhere = |other: &table::Mount| other.device == mount.device;
    if let Some(other) = table::read()?.into_iter().find(is_elsewhere) {
        // Who takes away a part knows of the whole.
        if mount.root == Path::new("/") {
            let there = place::host_label(&other.directory);
            Report::new("umount").note(format_args!("{label}: it is still mounted at {there}"));
        }
        return Ok(());
    }
    for server in servers {
        if !server.wait(LIMIT.saturating_sub(begin.elapsed())) {
            return Err(named(Reason::Rule(format!(
                "unmounted, but process {}, which served it, has not ended after {} s (it may be \
                 mounted in another namespace, or kept by who uses it: kill {0} asks it to end)",
                server.number(),
                LIMIT.as_secs()
            ))));
        }
    }
    Ok(())
}

/// `directory` from the root and without links, except that its last component is not looked at:
/// a mount whose server has ended can't be.
fn resolved(directory: &Path) -> Result<PathBuf> {
    let Some(name) = directory.file_name() else {
        // `/`, or it ends in `..`.
        return Ok(std::fs::canonicalize(directory)?);
    };
    let above = match directory.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let path = std::fs::canonicalize(above)?.join(name);
    match std::fs::read_link(&path) {
        Ok(target) => {
            let target = place::host_label(&target);
            Err(Reason::Rule(format!("a symbolic link (name the directory: {target})")))
        }
        Err(_) => Ok(path),
    }
}
