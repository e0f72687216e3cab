//! `conquest tree`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use conquest::FileId;
use serde::Serialize;

use super::{entry, places};
use crate::json::{self, Name};
use crate::output::{self, Output};
use crate::place::Inside;
use crate::reason::Result;
use crate::report::Report;
use crate::session::Session;
use crate::tree::{FileType, Inner, Tree as _};
use conquest::quote;

/// Show what is below directories of stores.
#[derive(Args)]
#[command(after_help = "Examples:
  conquest tree store:/
  conquest tree -L 2 -a store:/src")]
pub(crate) struct Tree {
    /// Names that begin with a dot too.
    #[arg(short, long)]
    all: bool,
    /// Directories only.
    #[arg(short, long)]
    directories: bool,
    /// Not deeper than this.
    #[arg(short = 'L', long, value_parser = clap::value_parser!(u64).range(1..))]
    level: Option<u64>,
    /// For programs: schema conquest.tree.
    #[arg(long)]
    json: bool,
    /// Directories: STORE:/path.
    #[arg(required = true)]
    directory: Vec<OsString>,
}

/// A file for programs: its path below the operand, and how deep it is.
#[derive(Serialize)]
struct Row {
    path: Name,
    depth: u64,
    #[serde(flatten)]
    entry: entry::Entry,
}

#[derive(Serialize, Default)]
struct Answer {
    rows: Vec<Row>,
    directories: u64,
    files: u64,
}

/// A directory whose entries are being shown.
struct Level {
    names: std::vec::IntoIter<Vec<u8>>,
    node: FileId,
    path: Vec<u8>,
}

/// A run of the command.
struct Run<'a> {
    args: &'a Tree,
    report: &'a Report,
    output: Output,
    is_terminal: bool,
    answer: Answer,
}

pub(crate) fn run(args: &Tree) -> ExitCode {
    let report = Report::new("tree");
    let mut session = Session::default();
    let (output, is_terminal) = (Output::new(), output::is_terminal());
    let mut run = Run { args, report: &report, output, is_terminal, answer: Answer::default() };
    for (at, inside) in places(&mut session, &report, &args.directory) {
        if let Some(files) = session.files(at) {
            report.take(inside.label(), run.show(&files, &inside));
        }
    }
    let ended = run.end();
    report.take("standard output", ended);
    report.take_plain(session.close());
    report.code()
}

impl Run<'_> {
    fn end(mut self) -> Result<()> {
        if self.args.json {
            self.output.finish()?;
            return Ok(json::print("tree", &self.answer)?);
        }
        let plural = |count: u64, one: &str, many: &str| {
            format!("{count} {}", if count == 1 { one } else { many })
        };
        let directories = plural(self.answer.directories, "directory", "directories");
        match self.args.directories {
            true => writeln!(self.output, "\n{directories}")?,
            false => {
                let files = plural(self.answer.files, "file", "files");
                writeln!(self.output, "\n{directories}, {files}")?;
            }
        }
        Ok(self.output.finish()?)
    }

    fn show(&mut self, files: &Inner, inside: &Inside) -> Result<()> {
        let node = files.find(&inside.path, true)?;
        if !files.meta(&node)?.is_directory() {
            return Err(conquest::Errno::ENOTDIR.into());
        }
        if !self.args.json {
            writeln!(self.output, "{}", inside.label())?;
        }
        let mut levels = vec![self.level(files, node, Vec::new())?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            let mut path = level.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(&name);
            // What was removed meanwhile is not there.
            let Ok(child) = files.child(&level.node, &name) else {
                continue;
            };
            let is_directory = self.row(files, &levels, &name, &path, child)?;
            let is_deep = self.args.level.is_some_and(|most| levels.len() as u64 >= most);
            if is_directory && !is_deep {
                let place = inside.join(&path);
                let found = self.level(files, child, path);
                levels.extend(self.report.take(place.label(), found));
            }
        }
        Ok(())
    }

    /// What is to be shown of a directory.
    fn level(&self, files: &Inner, node: FileId, path: Vec<u8>) -> Result<Level> {
        let mut names = files.names(&node)?;
        names.retain(|name| self.args.all || !name.starts_with(b"."));
        if self.args.directories {
            names.retain(|name| {
                files
                    .child(&node, name)
                    .and_then(|child| files.meta(&child))
                    .is_ok_and(|meta| meta.is_directory())
            });
        }
        names.sort_unstable();
        Ok(Level { names: names.into_iter(), node, path })
    }

    /// Shows one file; whether it is a directory.
    fn row(
        &mut self,
        files: &Inner,
        levels: &[Level],
        name: &[u8],
        path: &[u8],
        node: FileId,
    ) -> Result<bool> {
        let stat = files.stat(node)?;
        let file_type = entry::type_of(&stat);
        match file_type {
            FileType::Directory => self.answer.directories += 1,
            _ => self.answer.files += 1,
        }
        if self.args.json {
            let entry = entry::Entry::of(files, name, &stat)?;
            let depth = levels.len() as u64;
            self.answer.rows.push(Row { path: Name::new(path), depth, entry });
            return Ok(file_type == FileType::Directory);
        }
        let last = levels.len().saturating_sub(1);
        for (depth, level) in levels.iter().enumerate() {
            let goes_on = level.names.len() > 0;
            let line = match (depth == last, goes_on) {
                (true, true) => "|-- ",
                (true, false) => "`-- ",
                (false, true) => "|   ",
                (false, false) => "    ",
            };
            self.output.write_all(line.as_bytes())?;
        }
        self.text(name)?;
        if file_type == FileType::Symlink {
            self.output.write_all(b" -> ")?;
            self.text(&files.target(&node)?)?;
        }
        self.output.write_all(b"\n")?;
        Ok(file_type == FileType::Directory)
    }

    fn text(&mut self, name: &[u8]) -> Result<()> {
        match self.is_terminal {
            true => self.output.write_all(quote::name(name).as_bytes())?,
            false => self.output.write_all(name)?,
        }
        Ok(())
    }
}
