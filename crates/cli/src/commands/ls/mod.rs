//! `conquest ls`.

mod columns;
mod long;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use conquest::{FileId, Stat};
use serde::Serialize;

use super::{entry, places};
use crate::json::{self, Name};
use crate::output::{self, Output};
use crate::place::Inside;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::tree::{FileType, Inner, Tree};
use conquest::quote;

/// List directories of stores.
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Names are sorted by their bytes. On a terminal, names that a shell or the terminal
would take for something else are quoted; in a pipe they are what they are.

Examples:
  conquest ls store:/
  conquest ls -la store:/etc
  conquest ls -R --json store:/src"
)]
pub(crate) struct Ls {
    /// Mode, links, owner, size, time and name of each file.
    #[arg(short)]
    long: bool,
    /// Names that begin with a dot too.
    #[arg(short, long)]
    all: bool,
    /// The same without . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Directories themselves, not what is in them.
    #[arg(short, long)]
    directory: bool,
    /// What is in directories below, too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// One name a line.
    #[arg(short = '1')]
    one: bool,
    /// Inode numbers too.
    #[arg(short, long)]
    inode: bool,
    /// Owners as numbers (with -l, which it implies).
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// Sizes with units (with -l).
    #[arg(short, long)]
    human_readable: bool,
    /// In the order of the directory, unsorted.
    #[arg(short = 'U')]
    unsorted: bool,
    /// Latest modification first.
    #[arg(short)]
    time: bool,
    /// Largest first.
    #[arg(short = 'S')]
    size: bool,
    /// In reverse order.
    #[arg(short, long)]
    reverse: bool,
    /// For programs: schema conquest.ls.
    #[arg(long)]
    json: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    /// Files and directories: STORE:/path.
    #[arg(required = true)]
    files: Vec<OsString>,
}

/// A name, and the file that it names.
struct Item {
    name: Vec<u8>,
    stat: Stat,
}

#[derive(Serialize)]
struct Listing {
    path: Name,
    entries: Vec<entry::Entry>,
}

#[derive(Serialize, Default)]
struct Listings {
    listings: Vec<Listing>,
}

/// A run of the command.
struct Run<'a> {
    args: &'a Ls,
    report: &'a Report,
    output: Output,
    long: long::Long,
    listings: Listings,
    /// Whether names of directories stand above what is in them.
    has_titles: bool,
    is_first: bool,
    is_terminal: bool,
}

pub(crate) fn run(args: &Ls) -> ExitCode {
    let report = Report::new("ls");
    let mut session = Session::default();
    let mut run = Run {
        args,
        report: &report,
        long: long::Long::new(args.numeric_uid_gid, args.human_readable),
        // JSON goes out as a whole, at the end.
        output: Output::new(),
        listings: Listings::default(),
        has_titles: args.recursive || args.files.len() > 1,
        is_first: true,
        is_terminal: output::is_terminal(),
    };
    let places = places(&mut session, &report, &args.files);
    let mut directories = Vec::new();
    let mut plain = Vec::new();
    for (at, inside) in places {
        let Some(files) = session.files(at) else {
            continue;
        };
        let found = look(&files, &inside, !args.directory && !args.long);
        if let Some(stat) = report.take(inside.label(), found) {
            match entry::type_of(&stat) {
                FileType::Directory if !args.directory => directories.push((at, inside, stat.file)),
                _ => plain.push((at, inside, stat)),
            }
        }
    }
    run.files(&session, plain);
    for (at, inside, node) in directories {
        if let Some(files) = session.files(at) {
            run.tree(&files, inside, node);
        }
    }
    let listings = core::mem::take(&mut run.listings);
    report.take("standard output", run.output.finish().map_err(Reason::from));
    if args.json {
        report.take("standard output", json::print("ls", &listings).map_err(Reason::from));
    }
    report.take_plain(session.close());
    if report.failures() == 0 { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

/// What an operand names. A link to a directory stands for it, where that is what gets listed.
fn look(files: &Inner, inside: &Inside, follow: bool) -> Result<Stat> {
    let node = files.find(&inside.path, false)?;
    let stat = files.stat(node)?;
    if follow
        && entry::type_of(&stat) == FileType::Symlink
        && let Ok(end) = files.find(&inside.path, true)
    {
        let end = files.stat(end)?;
        if entry::type_of(&end) == FileType::Directory {
            return Ok(end);
        }
    }
    Ok(stat)
}

impl Run<'_> {
    /// Operands that are no directories: listed first, together, under their full names.
    fn files(&mut self, session: &Session, found: Vec<(usize, Inside, Stat)>) {
        let mut groups: Vec<(usize, Inside, Vec<Item>)> = Vec::new();
        for (at, inside, stat) in found {
            let mut name = inside.store.as_os_str().as_encoded_bytes().to_vec();
            name.push(b':');
            name.extend(&inside.path);
            let item = Item { name, stat };
            match groups.last_mut() {
                Some((last, _, items)) if *last == at => items.push(item),
                _ => groups.push((at, inside, vec![item])),
            }
        }
        for (at, inside, mut items) in groups {
            if let Some(files) = session.files(at) {
                self.sort(&mut items);
                self.show(&files, &inside, &items, None);
            }
        }
    }

    /// A directory, and on request those below it.
    fn tree(&mut self, files: &Inner, inside: Inside, node: FileId) {
        let mut left = vec![(inside, node)];
        while let Some((inside, node)) = left.pop() {
            let Some(items) = self.report.take(inside.label(), self.items(files, node)) else {
                continue;
            };
            let title = self.has_titles.then(|| inside.label());
            self.show(files, &inside, &items, Some(title));
            if self.args.recursive {
                // The last one goes first from a stack.
                for item in items.iter().rev().filter(|item| !is_dots(&item.name)) {
                    if entry::type_of(&item.stat) == FileType::Directory {
                        left.push((inside.join(&item.name), item.stat.file));
                    }
                }
            }
        }
    }

    /// What is listed of a directory.
    fn items(&self, files: &Inner, node: FileId) -> Result<Vec<Item>> {
        let mut names = files.names(&node)?;
        let shows_all = self.args.all || self.args.almost_all;
        names.retain(|name| shows_all || !name.starts_with(b"."));
        if self.args.all {
            names.splice(0..0, [b".".to_vec(), b"..".to_vec()]);
        }
        let mut items = Vec::with_capacity(names.len());
        for name in names {
            // What was removed meanwhile is not there.
            if let Ok(file) = files.child(&node, &name)
                && let Ok(stat) = files.stat(file)
            {
                items.push(Item { name, stat });
            }
        }
        self.sort(&mut items);
        Ok(items)
    }

    fn sort(&self, items: &mut [Item]) {
        if !self.args.unsorted {
            items.sort_by(|a, b| a.name.cmp(&b.name));
        }
        if self.args.time {
            items.sort_by_key(|item| core::cmp::Reverse(item.stat.mtime));
        }
        if self.args.size {
            items.sort_by_key(|item| core::cmp::Reverse(item.stat.size));
        }
        if self.args.reverse && !self.args.unsorted {
            items.reverse();
        }
    }

    /// Shows items; `title` is given for a directory, with its name if that is to be shown.
    fn show(
        &mut self,
        files: &Inner,
        inside: &Inside,
        items: &[Item],
        title: Option<Option<String>>,
    ) {
        let shown = match self.args.json {
            true => self.keep(files, inside, items),
            false => self.print(files, items, title),
        };
        self.report.take(inside.label(), shown);
    }

    fn keep(&mut self, files: &Inner, inside: &Inside, items: &[Item]) -> Result<()> {
        let mut entries = Vec::new();
        for item in items {
            entries.push(entry::Entry::of(files, &item.name, &item.stat)?);
        }
        self.listings.listings.push(Listing { path: Name::new(&inside.path), entries });
        Ok(())
    }

    fn print(
        &mut self,
        files: &Inner,
        items: &[Item],
        title: Option<Option<String>>,
    ) -> Result<()> {
        if !core::mem::replace(&mut self.is_first, false) {
            writeln!(self.output)?;
        }
        if let Some(Some(title)) = &title {
            writeln!(self.output, "{title}:")?;
        }
        let mut names = Vec::with_capacity(items.len());
        for item in items {
            let mut text = Vec::new();
            if self.args.inode {
                text.extend(format!("{} ", item.stat.file.number).bytes());
            }
            match self.is_terminal {
                true => text.extend(quote::name(&item.name).bytes()),
                false => text.extend(&item.name),
            }
            names.push(text);
        }
        if self.args.long || self.args.numeric_uid_gid {
            return self.print_long(files, items, &names, title.is_some());
        }
        if self.is_terminal && !self.args.one {
            return Ok(columns::print(&mut self.output, &names, columns::width())?);
        }
        for name in names {
            self.output.write_all(&name)?;
            self.output.write_all(b"\n")?;
        }
        Ok(())
    }

    fn print_long(
        &mut self,
        files: &Inner,
        items: &[Item],
        names: &[Vec<u8>],
        is_directory: bool,
    ) -> Result<()> {
        if is_directory {
            // Blocks are told in units of 1024 bytes, as other tools do.
            let blocks: u64 = items.iter().map(|item| item.stat.blocks).sum::<u64>().div_ceil(2);
            let total = match self.args.human_readable {
                true => crate::size::human(blocks * 1024),
                false => blocks.to_string(),
            };
            writeln!(self.output, "total {total}")?;
        }
        let lines = self.long.lines(files, items.iter().map(|item| &item.stat));
        for ((line, name), item) in lines.iter().zip(names).zip(items) {
            self.output.write_all(line.as_bytes())?;
            self.output.write_all(name)?;
            if entry::type_of(&item.stat) == FileType::Symlink {
                let target = files.target(&item.stat.file)?;
                self.output.write_all(b" -> ")?;
                match self.is_terminal {
                    true => self.output.write_all(quote::name(&target).as_bytes())?,
                    false => self.output.write_all(&target)?,
                }
            }
            self.output.write_all(b"\n")?;
        }
        Ok(())
    }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
