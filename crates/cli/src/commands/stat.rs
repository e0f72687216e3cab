//! `conquest stat`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use conquest::{Form, Stat as Known, Stays, flag};
use serde::Serialize;

use super::{entry, places};
use crate::clock::Clock;
use crate::json::{self, Name};
use crate::people::People;
use crate::place::Inside;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::tree::{FileType, Inner, Tree};
use conquest::quote;

/// Tell everything about files in stores.
#[derive(Args)]
#[command(after_help = "Examples:
  conquest stat store:/etc/hosts
  conquest stat --json store:/ store:/etc")]
pub(crate) struct Stat {
    /// Follow a symbolic link at the end of a path.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// For programs: schema conquest.stat.
    #[arg(long)]
    json: bool,
    /// Files: STORE:/path.
    #[arg(required = true)]
    files: Vec<OsString>,
}

/// An attribute.
#[derive(Serialize)]
struct Attribute {
    #[serde(flatten)]
    name: Name,
    value_base64: String,
}

/// A file.
#[derive(Serialize)]
struct File {
    path: Name,
    #[serde(flatten)]
    entry: entry::Entry,
    change: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<Placement>,
    attributes: Vec<Attribute>,
}

/// Where a regular file's content is kept.
#[derive(Serialize)]
struct Placement {
    form: &'static str,
    program: bool,
    in_core_because: &'static str,
}

impl Placement {
    /// Of the file of `stat`, if it is a regular one, in a store with this threshold.
    fn of(files: &Inner, stat: &Known, threshold: u64) -> Result<Option<Placement>> {
        if entry::type_of(stat) != FileType::Regular {
            return Ok(None);
        }
        let placed = files.placement(stat.file, threshold)?;
        let form = match placed.form {
            Form::None => "none",
            Form::Packed => "packed",
            Form::Extent => "extent",
            Form::Tree => "tree",
            Form::Large => "large",
        };
        let in_core_because = match placed.stays {
            Stays::Small => "small",
            Stays::Program => "program",
            Stays::NoVolume => "no-volume",
            Stays::Unwritten => "unwritten",
            Stays::OnVolume => "on-volume",
        };
        Ok(Some(Placement { form, program: placed.is_program, in_core_because }))
    }

    /// In words.
    fn words(&self) -> String {
        let is_program = if self.program { ", a program" } else { "" };
        let reason = match self.in_core_because {
            "on-volume" => return format!("{} content{is_program}; on the volume", self.form),
            "small" => "it is small",
            "program" => "programs stay there",
            "unwritten" => "nothing was written since it was made so long",
            _ => "there is no volume",
        };
        format!("{} content{is_program}; in the core because {reason}", self.form)
    }
}

#[derive(Serialize, Default)]
struct Files {
    files: Vec<File>,
}

pub(crate) fn run(args: &Stat) -> ExitCode {
    let report = Report::new("stat");
    let mut session = Session::default();
    let mut found = Files::default();
    let (clock, mut people) = (Clock::new(), People::default());
    for (at, inside) in places(&mut session, &report, &args.files) {
        let Some(files) = session.files(at) else {
            continue;
        };
        let threshold = session.threshold(at);
        let told = match args.json {
            true => tell(args, &files, &inside, threshold).map(|file| found.files.push(file)),
            false => print(args, &files, &inside, threshold, &clock, &mut people),
        };
        report.take(inside.label(), told);
    }
    if args.json {
        report.take("standard output", json::print("stat", &found).map_err(Reason::from));
    }
    report.take_plain(session.close());
    report.code()
}

fn tell(args: &Stat, files: &Inner, inside: &Inside, threshold: u64) -> Result<File> {
    let node = files.find(&inside.path, args.dereference)?;
    let stat = files.stat(node)?;
    let name = inside.split().map_or(b"/".to_vec(), |(_, name)| name.to_vec());
    let attributes = files.attributes(&node)?.into_iter().map(|(name, value)| Attribute {
        name: Name::new(&name),
        value_base64: json::base64(&value),
    });
    Ok(File {
        path: Name::new(&inside.path),
        entry: entry::Entry::of(files, &name, &stat)?,
        change: stat.change,
        placement: Placement::of(files, &stat, threshold)?,
        attributes: attributes.collect(),
    })
}

fn print(
    args: &Stat,
    files: &Inner,
    inside: &Inside,
    threshold: u64,
    clock: &Clock,
    people: &mut People,
) -> Result<()> {
    let node = files.find(&inside.path, args.dereference)?;
    let stat = files.stat(node)?;
    let file_type = entry::type_of(&stat);
    let mut text = format!("  File: {}", inside.label());
    if file_type == FileType::Symlink {
        text += &format!(" -> {}", quote::always(&files.target(&node)?));
    }
    let (user, group) = (people.user(stat.uid).to_owned(), people.group(stat.gid));
    let letters = entry::letters(file_type, stat.mode);
    text += &format!(
        "\n  Size: {:<15} Blocks: {:<10} {}\n Inode: {:<14} Generation: {:<7} Links: {}",
        stat.size,
        stat.blocks,
        entry::words(file_type, stat.size),
        stat.file.number,
        stat.file.generation,
        stat.links,
    );
    if matches!(file_type, FileType::Character | FileType::Block) {
        text += &format!(" Device type: {},{}", stat.device.0, stat.device.1);
    }
    text += &format!(
        "\nAccess: ({:04o}/{letters})  Uid: ({:>5}/{user:>8})   Gid: ({:>5}/{group:>8})\n",
        stat.mode & 0o7777,
        stat.uid,
        stat.gid,
    );
    for (what, time) in [
        ("Access", stat.atime),
        ("Modify", stat.mtime),
        ("Change", stat.ctime),
        (" Birth", stat.btime),
    ] {
        text += &format!("{what}: {}\n", clock.long(time));
    }
    if let Some(placement) = Placement::of(files, &stat, threshold)? {
        text += &format!(" Place: {}\n", placement.words());
    }
    text += &extras(files, &stat)?;
    crate::output::all(text.as_bytes())?;
    Ok(())
}

/// Flags, project and attributes, as far as there are any.
fn extras(files: &Inner, stat: &Known) -> Result<String> {
    let mut text = String::new();
    let names: Vec<&str> = [
        (flag::IMMUTABLE, "immutable"),
        (flag::APPEND, "append-only"),
        (flag::NODUMP, "no-dump"),
        (flag::NOATIME, "no-atime"),
        (flag::SYNC, "sync"),
        (flag::DIRSYNC, "dirsync"),
        (flag::PROJINHERIT, "project-inherit"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (stat.flags & bit != 0).then_some(name))
    .collect();
    if !names.is_empty() {
        text += &format!(" Flags: {}\n", names.join(" "));
    }
    if stat.project != 0 {
        text += &format!("Project: {}\n", stat.project);
    }
    for (name, value) in files.attributes(&stat.file)? {
        text += &format!("  Attr: {} = {}\n", quote::name(&name), quote::always(&value));
    }
    Ok(text)
}
