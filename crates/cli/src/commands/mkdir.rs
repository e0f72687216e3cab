//! `conquest mkdir`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use conquest::{Errno, FileId, Last};

use super::{mode, places};
use crate::place::Inside;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::tree::{Bits, Inner, New, Tree};

/// Make directories in stores.
#[derive(Args)]
#[command(after_help = "Examples:
  conquest mkdir store:/src
  conquest mkdir -p store:/a/b/c
  conquest mkdir -m 1777 store:/tmp")]
pub(crate) struct Mkdir {
    /// Make missing parents too; no error if a directory is there already.
    #[arg(short, long)]
    parents: bool,
    /// Mode of the new directories, as for chmod, instead of what the mask leaves.
    #[arg(short, long)]
    mode: Option<String>,
    /// Tell each directory made.
    #[arg(short, long)]
    verbose: bool,
    /// Directories to make: STORE:/path.
    #[arg(required = true)]
    directories: Vec<OsString>,
}

pub(crate) fn run(args: &Mkdir) -> ExitCode {
    let report = Report::new("mkdir");
    let bits = match &args.mode {
        None => None,
        Some(text) => match mode::apply(text, 0o777) {
            Ok(mode) => Some(mode),
            Err(error) => {
                report.note(error);
                return ExitCode::from(2);
            }
        },
    };
    let mut session = Session::default();
    for (at, inside) in places(&mut session, &report, &args.directories) {
        if let Some(files) = session.files(at) {
            report.take(inside.label(), make(args, &files, &inside, bits));
        }
    }
    report.take_plain(session.close());
    report.code()
}

fn make(args: &Mkdir, files: &Inner, inside: &Inside, mode: Option<u32>) -> Result<()> {
    let bits = mode.map_or(Bits::Masked(0o777), Bits::Exact);
    if !args.parents {
        let (directory, name) = place_of(files, &inside.path)?;
        files.make(&directory, name, New::Directory, bits)?;
        say(args, &inside.label());
        return Ok(());
    }
    let mut at = files.root();
    let names: Vec<&[u8]> =
        inside.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let mut so_far = Inside { store: inside.store.clone(), path: b"/".to_vec() };
    for (nth, name) in names.iter().enumerate() {
        so_far = so_far.join(name);
        at = match descend(files, &at, &so_far.path, name) {
            Ok(node) => node,
            Err(reason) if reason.is(Errno::ENOENT) => {
                let is_last = nth + 1 == names.len();
                let made = make_step(files, &at, name, if is_last { Some(bits) } else { None });
                match made {
                    // Somebody else was faster.
                    Err(reason) if reason.is(Errno::EEXIST) => {
                        descend(files, &at, &so_far.path, name)?
                    }
                    made => {
                        say(args, &so_far.label());
                        made?
                    }
                }
            }
            Err(reason) => return Err(reason),
        };
    }
    Ok(())
}

/// The directory called `name` in `at`, which is at `path`; links are followed.
fn descend(files: &Inner, at: &FileId, path: &[u8], name: &[u8]) -> Result<FileId> {
    let mut node = files.child(at, name)?;
    let mut meta = files.meta(&node)?;
    if meta.file_type == crate::tree::FileType::Symlink {
        node = files.find(path, true)?;
        meta = files.meta(&node)?;
    }
    if meta.is_directory() { Ok(node) } else { Err(Errno::ENOTDIR.into()) }
}

/// Makes a directory: with `bits`, or as one on the way, in which its owner can go on.
fn make_step(files: &Inner, at: &FileId, name: &[u8], bits: Option<Bits>) -> Result<FileId> {
    let Some(bits) = bits else {
        let node = files.make(at, name, New::Directory, Bits::Masked(0o777))?;
        let mode = files.meta(&node)?.mode;
        if mode & 0o300 != 0o300 {
            files.set_mode(&node, mode | 0o300)?;
        }
        return Ok(node);
    };
    files.make(at, name, New::Directory, bits)
}

/// The directory and the name of something new.
fn place_of<'p>(files: &Inner, path: &'p [u8]) -> Result<(FileId, &'p [u8])> {
    let (directory, last) = files.parent(path)?;
    match last {
        Last::Name { name, .. } => Ok((directory, name)),
        _ => Err(Reason::from(Errno::EEXIST)),
    }
}

fn say(args: &Mkdir, label: &str) {
    if args.verbose {
        // If nobody reads it, the program ends.
        let _ = crate::output::all(format!("created directory {label}\n").as_bytes());
    }
}
