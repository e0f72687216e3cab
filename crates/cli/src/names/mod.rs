//! The names by which mount(8), mkfs(8) and fsck(8) call the program: a link to it called
//! `mount.conquest`, `mount.fuse.conquest`, `mkfs.conquest` or `fsck.conquest` takes the arguments,
//! and gives the exit codes, that they expect.

mod fsck;
mod mkfs;
mod mount;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

/// Runs the program under the name by which it was called, if that is one of those.
pub(crate) fn run() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let name = Path::new(arguments.first()?).file_name()?;
    match name.to_str()? {
        // mount(8) asks for the second one when it mounts again what is mounted: its type is that.
        "mount.conquest" | "mount.fuse.conquest" => {
            Some(under(arguments, mount::USAGE, |args| mount::run(&args)))
        }
        "mkfs.conquest" => Some(under(arguments, mkfs::FAILED, |args| mkfs::run(&args))),
        "fsck.conquest" => {
            Some(under(fsck::prepared(arguments), fsck::USAGE, |args| fsck::run(&args)))
        }
        _ => None,
    }
}

/// Parses `arguments` and does `work`; `usage` is the exit code if they are wrong.
fn under<P: Parser>(arguments: Vec<OsString>, usage: u8, work: impl FnOnce(P) -> u8) -> ExitCode {
    ExitCode::from(match P::try_parse_from(arguments) {
        Ok(args) => work(args),
        Err(error) => {
            // If nobody reads it, nothing else can be done.
            let _ = error.print();
            if error.use_stderr() { usage } else { 0 }
        }
    })
}

/// Prints `text` as a message of the program called `name`.
fn say(name: &str, text: impl std::fmt::Display) {
    eprintln!("{name}: {text}");
}

/// The bytes of `argument` after `prefix`, if it begins with that.
fn after<'a>(argument: &'a OsStr, prefix: &str) -> Option<&'a str> {
    argument.to_str()?.strip_prefix(prefix)
}
