//! `mount.conquest`, which mount(8) calls for `mount -t conquest` and for fstab(5):
//! `mount.conquest SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE.SUBTYPE]`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use conquest::Errno;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::say;
use crate::mount::failure::Failure;
use crate::mount::server;
use crate::mount::start::{Role, Wanted, start};
use crate::place;
use crate::reason::{Reason, Result};

/// Exit codes of mount(8): wrong usage, or no permission.
pub(super) const USAGE: u8 = 1;
/// Something is wrong with the system.
const SYSTEM: u8 = 2;
/// Not mounted.
const FAILED: u8 = 32;

/// Mount a store, for mount(8).
///
/// Others use `conquest mount`, which takes the same options.
#[derive(Parser, Debug)]
#[command(
    name = "mount.conquest",
    version,
    max_term_width = 100,
    after_help = "In /etc/fstab:
  /srv/store  /mnt  conquest  noatime,nofail  0  0

Exit codes, as of mount(8): 0 mounted, 1 wrong usage or no permission, 2 an error of the
system, 32 not mounted."
)]
pub(super) struct Args {
    /// The store: its directory.
    spec: OsString,
    /// The mount point.
    directory: PathBuf,
    /// Ignore options that are not known.
    #[arg(short)]
    sloppy: bool,
    /// Only look whether it could be done.
    #[arg(short)]
    fake: bool,
    /// Write no /etc/mtab; none is written in any case.
    #[arg(short)]
    no_mtab: bool,
    /// Say what is done.
    #[arg(short)]
    verbose: bool,
    /// Mount in this mount namespace: a process id, or a file as /proc/PID/ns/mnt.
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
    /// Options, as of conquest mount.
    #[arg(short = 'o', value_name = "OPTION,...")]
    options: Vec<OsString>,
    /// The type: conquest, or conquest with a subtype, which says nothing.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
}

pub(super) fn run(args: &Args) -> u8 {
    if let Some(kind) = args.kind.as_deref().filter(|kind| !is_ours(kind)) {
        say("mount.conquest", format_args!("type {kind}: not ours (it is conquest)"));
        return USAGE;
    }
    if let Err(reason) = args.namespace.as_deref().map_or(Ok(()), enter) {
        let name = args.namespace.as_deref().map(place::host_label).unwrap_or_default();
        say("mount.conquest", format_args!("namespace {name}: {reason}"));
        return SYSTEM;
    }
    let wanted = wanted(args);
    let role = if args.fake { Role::Rehearsal } else { Role::Asked };
    if args.verbose {
        let (store, point) = (place::host_label(&wanted.store), place::host_label(&wanted.point));
        say("mount.conquest", format_args!("mounting the store {store} at {point}"));
    }
    match start(&wanted, role, server::server) {
        Ok(()) => 0,
        Err(failure) => {
            say("mount.conquest", failure.reason());
            code(&failure)
        }
    }
}

/// Whether `kind` is `conquest`, as mount(8) may say it.
fn is_ours(kind: &str) -> bool {
    let kind = kind.strip_prefix("fuse.").unwrap_or(kind);
    kind == "conquest" || kind.starts_with("conquest.")
}

fn wanted(args: &Args) -> Wanted {
    Wanted {
        store: place::store(&args.spec),
        point: args.directory.clone(),
        options: args.options.clone(),
        log_level: None,
        is_sloppy: args.sloppy,
    }
}

fn code(failure: &Failure) -> u8 {
    match failure {
        Failure::Usage(_) => USAGE,
        Failure::Failed(reason) if reason.is(Errno::EPERM) => USAGE,
        Failure::Failed(_) => FAILED,
    }
}

/// Moves this process into the mount namespace `name`. It has one thread still.
fn enter(name: &std::path::Path) -> Result<()> {
    let is_number = name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let path = match is_number {
        true => PathBuf::from(format!("/proc/{}/ns/mnt", name.display())),
        false => name.to_owned(),
    };
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    use std::os::fd::AsFd;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(Reason::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Args {
        Args::try_parse_from(text.split(' ')).unwrap()
    }

    #[test]
    fn arguments_stand_as_mount_gives_them() {
        let args = of("mount.conquest /srv/store: /mnt -sfnv -o ro,noatime -t conquest.x -N 1");
        assert!(args.sloppy && args.fake && args.no_mtab && args.verbose);
        assert_eq!(args.namespace, Some("1".into()));
        let args = of("/sbin/mount.conquest s:/ d -o ro -o user=me,threads=2");
        let wanted = wanted(&args);
        assert_eq!((wanted.store, wanted.point), ("s".into(), "d".into()));
        assert_eq!(wanted.options, ["ro", "user=me,threads=2"]);
        assert!(!wanted.is_sloppy);
        assert!(Args::try_parse_from(["mount.conquest", "spec"]).is_err());
        assert!(Args::try_parse_from(["mount.conquest", "spec", "dir", "-r"]).is_err());
    }

    #[test]
    fn types_and_codes() {
        assert!(is_ours("conquest") && is_ours("conquest.sub") && is_ours("fuse.conquest"));
        assert!(!is_ours("tmpfs") && !is_ours("conquests"));
        assert_eq!(code(&Failure::Usage(Reason::rule("x"))), 1);
        assert_eq!(code(&Failure::Failed(Errno::EPERM.into())), 1);
        assert_eq!(code(&Failure::Failed(Errno::EIO.into())), 32);
    }
}
