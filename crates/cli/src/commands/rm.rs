//! `conquest rm`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use conquest::{Errno, Last};

use super::places;
use crate::copy::ask;
use crate::place::Inside;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::tree::{Inner, Trail, Tree, remove_all};

/// Remove files and directories from stores.
#[derive(Args)]
#[command(after_help = "Examples:
  conquest rm store:/a.o store:/b.o
  conquest rm -r store:/build")]
pub(crate) struct Rm {
    /// Directories too, with all that is in them.
    #[arg(short, visible_short_alias = 'R', long)]
    recursive: bool,
    /// No error if there is no such file, and no questions.
    #[arg(short, long, overrides_with = "interactive")]
    force: bool,
    /// Empty directories too.
    #[arg(short = 'd', long = "dir")]
    directories: bool,
    /// Ask before each operand.
    #[arg(short, long, overrides_with = "force")]
    interactive: bool,
    /// Tell what was removed.
    #[arg(short, long)]
    verbose: bool,
    /// Files to remove: STORE:/path.
    #[arg(required_unless_present = "force")]
    files: Vec<OsString>,
}

pub(crate) fn run(args: &Rm) -> ExitCode {
    let report = Report::new("rm");
    let mut session = Session::default();
    for (at, inside) in places(&mut session, &report, &args.files) {
        let Some(files) = session.files(at) else {
            continue;
        };
        match remove(args, &report, &files, &inside) {
            Err(reason)
                if args.force && (reason.is(Errno::ENOENT) || reason.is(Errno::ENOTDIR)) => {}
            removed => {
                report.take(inside.label(), removed);
            }
        }
    }
    report.take_plain(session.close());
    report.code()
}

fn remove(args: &Rm, report: &Report, files: &Inner, inside: &Inside) -> Result<()> {
    let (directory, last) = files.parent(&inside.path)?;
    let (name, slash) = match last {
        Last::Name { name, slash } => (name, slash),
        _ if !args.recursive => return Err(Errno::EISDIR.into()),
        Last::Root => {
            return Err(Reason::rule(
                "refusing to remove the root directory (make the store anew with mkfs --force)",
            ));
        }
        Last::Dot | Last::DotDot => {
            return Err(Reason::rule("refusing to remove '.' or '..' directory: skipping"));
        }
    };
    let node = files.child(&directory, name)?;
    let is_directory = files.meta(&node)?.is_directory();
    if slash && !is_directory {
        return Err(Errno::ENOTDIR.into());
    }
    if is_directory && !args.recursive && !args.directories {
        return Err(Errno::EISDIR.into());
    }
    let question = format!("conquest: rm: remove {}? ", inside.label());
    if args.interactive && !ask(&question) {
        return Ok(());
    }
    if !is_directory || !args.recursive {
        files.remove(&directory, name, is_directory)?;
        say(args, inside, &Trail::root(), is_directory);
        return Ok(());
    }
    remove_all(
        files,
        &directory,
        name,
        &mut |trail, is_directory| say(args, inside, trail, is_directory),
        &mut |trail, reason| report.fail(below(inside, trail).label(), reason),
    )
}

fn below(inside: &Inside, trail: &Trail) -> Inside {
    trail.names().into_iter().fold(inside.clone(), |place, name| place.join(name))
}

fn say(args: &Rm, inside: &Inside, trail: &Trail, is_directory: bool) {
    if args.verbose {
        let kind = if is_directory { "directory " } else { "" };
        let line = format!("removed {kind}{}\n", below(inside, trail).label());
        // If nobody reads it, the program ends.
        let _ = crate::output::all(line.as_bytes());
    }
}
