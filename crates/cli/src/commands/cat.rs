//! `conquest cat`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use conquest::Errno;

use super::places;
use crate::output::Output;
use crate::place::Inside;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::tree::{Inner, Tree};

/// Bytes read at a time.
const CHUNK: usize = 1 << 18;

/// Write the bytes of files in stores to standard output.
#[derive(Args)]
#[command(after_help = "Example:
  conquest cat store:/etc/hosts")]
pub(crate) struct Cat {
    /// Files: STORE:/path.
    #[arg(required = true)]
    files: Vec<OsString>,
}

pub(crate) fn run(args: &Cat) -> ExitCode {
    let report = Report::new("cat");
    let mut session = Session::default();
    let mut output = Output::new();
    for (at, inside) in places(&mut session, &report, &args.files) {
        if let Some(files) = session.files(at) {
            report.take(inside.label(), show(&files, &inside, &mut output));
        }
    }
    report.take("standard output", output.finish().map_err(Reason::from));
    report.take_plain(session.close());
    report.code()
}

fn show(files: &Inner, inside: &Inside, output: &mut Output) -> Result<()> {
    let node = files.find(&inside.path, true)?;
    let meta = files.meta(&node)?;
    if meta.is_directory() {
        return Err(Errno::EISDIR.into());
    }
    if !meta.is_regular() {
        return Err(Reason::rule("not a regular file: in a store only those have bytes"));
    }
    files.open(&node)?;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let len = files.read(&node, at, &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        output.write_all(buffer.get(..len).unwrap_or_default())?;
        at += len as u64;
    }
}
