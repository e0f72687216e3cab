//! `conquest ln`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Args;
use conquest::{Errno, FileId, Last};

use crate::copy::temporary;
use crate::place::{Inside, Place};
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::tree::{Bits, Inner, New, Tree};

/// Make links in a store.
#[derive(Args)]
#[command(after_help = "With -s the target is text and is stored as it is: it is a path inside the
store, from the link's directory on, or from the store's root if it begins with /.

Examples:
  conquest ln store:/a store:/b          a second name for a file
  conquest ln -s ../lib store:/src/lib   a symbolic link
  conquest ln -sf new store:/current     in place of an old one")]
pub(crate) struct Ln {
    /// Make symbolic links.
    #[arg(short, long)]
    symbolic: bool,
    /// Replace what has the name, unless it is a directory.
    #[arg(short, long)]
    force: bool,
    /// Take the last operand for a name even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Tell each link made.
    #[arg(short, long)]
    verbose: bool,
    /// TARGET... then LINK or DIRECTORY (STORE:/path).
    #[arg(required = true, num_args = 2.., value_names = ["TARGET", "LINK"])]
    operands: Vec<OsString>,
}

pub(crate) fn run(args: &Ln) -> ExitCode {
    let report = Report::new("ln");
    let Some((last, targets)) = args.operands.split_last() else {
        return ExitCode::from(2);
    };
    let label = last.to_string_lossy();
    let Some(link) = report.take(&*label, Place::inside(last)) else {
        return report.code();
    };
    let mut session = Session::default();
    if let Some(at) = report.take_plain(session.open(&link.store))
        && let Some(files) = session.files(at)
    {
        into(args, &report, &files, targets, &link);
    }
    report.take_plain(session.close());
    report.code()
}

fn into(args: &Ln, report: &Report, files: &Inner, targets: &[OsString], link: &Inside) {
    let found = files.find(&link.path, true).and_then(|node| files.meta(&node));
    let is_directory = !args.no_target_directory && found.is_ok_and(|meta| meta.is_directory());
    if targets.len() > 1 && !is_directory {
        report.fail(link.label(), &Errno::ENOTDIR.into());
        return;
    }
    for target in targets {
        let place = match is_directory {
            true => match Place::parse(target).last_name() {
                Some(name) => link.join(&name),
                None => link.clone(),
            },
            false => link.clone(),
        };
        let made = make(args, files, target, &place);
        if report.take(place.label(), made).is_some() && args.verbose {
            let arrow = if args.symbolic { "->" } else { "=>" };
            let target = conquest::quote::always(target.as_bytes());
            let line = format!("{} {arrow} {target}\n", place.label());
            // If nobody reads it, the program ends.
            let _ = crate::output::all(line.as_bytes());
        }
    }
}

fn make(args: &Ln, files: &Inner, target: &OsStr, place: &Inside) -> Result<()> {
    let (directory, last) = files.parent(&place.path)?;
    let Last::Name { name, slash: false } = last else {
        return Err(Errno::EEXIST.into());
    };
    let original = match args.symbolic {
        true => None,
        false => Some(original(files, target, place)?),
    };
    let first = put(files, &directory, name, target, original);
    match first {
        Err(reason) if args.force && reason.is(Errno::EEXIST) => {
            replace(files, &directory, name, target, original)
        }
        made => made,
    }
}

/// The file that is to get a second name.
fn original(files: &Inner, target: &OsStr, place: &Inside) -> Result<FileId> {
    let Place::Inside(inside) = Place::parse(target) else {
        return Err(Reason::rule(format!(
            "{}: is on the host (name a file of the same store, or use -s)",
            conquest::quote::message(target.as_bytes())
        )));
    };
    let is_same = inside.store == place.store
        || std::fs::canonicalize(&inside.store).ok() == std::fs::canonicalize(&place.store).ok();
    if !is_same {
        return Err(Reason::System(rustix::io::Errno::XDEV.into()));
    }
    let found = files.find(&inside.path, false);
    let node = found.map_err(|reason| Reason::rule(format!("{}: {reason}", inside.label())))?;
    if files.meta(&node)?.is_directory() {
        return Err(Reason::rule(format!(
            "{}: hard link not allowed for directory",
            inside.label()
        )));
    }
    Ok(node)
}

fn put(
    files: &Inner,
    directory: &FileId,
    name: &[u8],
    target: &OsStr,
    original: Option<FileId>,
) -> Result<()> {
    match original {
        Some(node) => files.link(&node, directory, name),
        None => {
            let new = New::Symlink(target.as_bytes());
            files.make(directory, name, new, Bits::Exact(0o777)).map(drop)
        }
    }
}

/// Puts the link in the place of what has the name, which is never missing meanwhile.
fn replace(
    files: &Inner,
    directory: &FileId,
    name: &[u8],
    target: &OsStr,
    original: Option<FileId>,
) -> Result<()> {
    let old = files.child(directory, name)?;
    if files.meta(&old)?.is_directory() {
        return Err(Reason::rule("cannot overwrite directory"));
    }
    if original == Some(old) {
        return Err(Reason::rule("is the same file already"));
    }
    let temporary = temporary::new_name();
    put(files, directory, &temporary, target, original)?;
    let renamed = files.rename(directory, &temporary, name);
    if renamed.is_err() {
        // The error to report is the first one.
        let _ = files.remove(directory, &temporary, false);
    }
    renamed
}
