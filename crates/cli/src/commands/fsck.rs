//! `conquest fsck`: the offline checker.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use conquest::Store;
use conquest_format::Offset;
use conquest_fsck::{Finding as Found, Options, Report as Checked, Severity, View};
use conquest_pm::host::Host;
use conquest_pm::media::{MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::memory::Memory;
use serde::Serialize;

use super::raw::Raw;
use crate::json::{self, Name};
use crate::place;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::size::grouped;
use conquest::quote;

/// Exit codes, as fsck(8) has them: errors were left as they are.
const UNCORRECTED: u8 = 4;
/// Longest wait for the keeper of a store with a volume.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a keeper may come in between: one that was on its way when the one before it left.
const TRIES: u32 = 3;
/// The check could not be done.
pub(crate) const OPERATIONAL: u8 = 8;
/// Wrong arguments.
pub(crate) const USAGE: u8 = 16;

/// Check a store that nobody has attached.
#[derive(Args)]
#[command(
    after_help = "Nothing is changed. Exit codes, as of fsck(8): 0 consistent, 4 not, 8 not checked,
16 wrong usage.

Example:
  conquest fsck -n store"
)]
pub(crate) struct Fsck {
    /// Only look: repair nothing. Required, because nothing else can be done yet.
    #[arg(short = 'n', long, required = true)]
    no_changes: bool,
    /// For programs: schema conquest.fsck.
    #[arg(long)]
    json: bool,
    /// The store: its directory.
    store: OsString,
}

/// A core that is mapped for reading.
struct Core {
    memory: Mapped,
    len: u64,
}

impl View for Core {
    fn len(&self) -> u64 {
        self.len
    }

    fn load(&self, at: Offset) -> u64 {
        let is_inside = at.bytes().checked_add(8).is_some_and(|end| end <= self.len);
        if is_inside { self.memory.load(at, Ordering::Relaxed) } else { 0 }
    }

    fn copy(&self, at: Offset, out: &mut [u8]) {
        let there = self.len.saturating_sub(at.bytes()).min(out.len() as u64) as usize;
        let (inside, past) = out.split_at_mut(there);
        self.memory.read(at, inside);
        past.fill(0);
    }
}

/// A finding, for programs.
#[derive(Serialize)]
struct Row {
    code: &'static str,
    severity: &'static str,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Name>,
    expected: String,
    found: String,
    repair: &'static str,
}

/// What `--json` tells.
#[derive(Serialize)]
struct Answer {
    consistent: bool,
    clean: bool,
    errors: u64,
    leaks: u64,
    notes: u64,
    files: u64,
    directories: u64,
    symlinks: u64,
    others: u64,
    damaged: u64,
    entries: u64,
    pages_used: u64,
    pages_free: u64,
    objects: u64,
    records_pending: u64,
    intents_pending: u64,
    findings: Vec<Row>,
}

pub(crate) fn run(args: &Fsck) -> ExitCode {
    let report = Report::with("fsck", Progress::share("checking"));
    let directory = place::store(&args.store);
    let told = |part: f64| {
        if let Some(progress) = report.progress() {
            progress.set((part * 1e6) as u64, 1_000_000);
        }
    };
    ExitCode::from(check_and_tell(&report, &directory, args.json, &told))
}

/// Checks the store in `directory`, and says to `told` how far it is, and at the end what was
/// found; the exit code.
pub(crate) fn check_and_tell(
    report: &Report,
    directory: &Path,
    json: bool,
    told: &(dyn Fn(f64) + Sync),
) -> u8 {
    let checked = check(directory, Some(told));
    if let Some(progress) = report.progress() {
        progress.finish();
    }
    let Some(checked) = report.take(place::host_label(directory), checked) else {
        return OPERATIONAL;
    };
    let shown = match json {
        true => json::print("fsck", &answer(&checked)),
        false => crate::output::all(text(&checked).as_bytes()),
    };
    report.take("standard output", shown.map_err(Reason::from));
    match (checked.is_consistent(), report.failures()) {
        (false, _) => UNCORRECTED,
        (true, 0) => 0,
        (true, _) => 1,
    }
}

/// Checks the store in `directory`, and keeps others from attaching it meanwhile.
///
/// # Errors
/// If it can't be checked, or somebody has it attached.
pub(super) fn check(directory: &Path, told: Option<&(dyn Fn(f64) + Sync)>) -> Result<Checked> {
    let since = Instant::now();
    for _ in 0..TRIES {
        Store::quiet(directory, PATIENCE)?;
        if let Some(checked) = check_alone(directory, told)? {
            return Ok(checked);
        }
        // It waited for others.
        if since.elapsed() >= PATIENCE {
            break;
        }
    }
    Err(Reason::rule("somebody has it attached (let them detach first)"))
}

/// [`check`], unless somebody has it attached: then there is nothing.
fn check_alone(directory: &Path, told: Option<&(dyn Fn(f64) + Sync)>) -> Result<Option<Checked>> {
    let failed = |error: conquest_pm::Error| Reason::rule(error.to_string());
    let raw = Raw::open(directory)?;
    let path = std::fs::canonicalize(directory.join("core"))?;
    let medium = Arc::new(Medium::open(Source::Path(path)).map_err(failed)?);
    let host = OsHost::new(Arc::clone(&medium), &raw.geometry).map_err(failed)?;
    let Some(_door) = host.claim_attach().map_err(failed)? else {
        return Ok(None);
    };
    // If it is being loaded, somebody else has brought it back since.
    if host.is_anyone_attached().map_err(failed)? || raw.is_loading {
        return Ok(None);
    }
    let len = medium.len().map_err(failed)?;
    let whole = raw.geometry.len().max(len).next_multiple_of(medium.kind().granularity());
    let options = MapOptions { read_only: Some(raw.geometry.volatile()), ..MapOptions::default() };
    let memory = Mapped::map(&medium, whole, &options).map_err(failed)?;
    let core = Core { memory, len };
    let options = Options { progress: told, ..Options::default() };
    let checked = conquest_fsck::check(&core, &options);
    let checked = checked.map_err(|error| Reason::rule(error.to_string()))?;
    match core.memory.failed() {
        None => Ok(Some(checked)),
        Some(reason) => Err(Reason::rule(format!("the core could not be read: {reason}"))),
    }
}

fn answer(checked: &Checked) -> Answer {
    let counts = checked.counts;
    let row = |found: &Found| Row {
        code: found.code.name(),
        severity: found.severity().name(),
        offset: found.offset.bytes(),
        inode: found.file.as_ref().map(|file| file.number),
        path: found.file.as_ref().and_then(|file| file.path.as_deref()).map(Name::new),
        expected: found.expected.clone(),
        found: found.found.clone(),
        repair: found.repair(),
    };
    Answer {
        consistent: checked.is_consistent(),
        clean: checked.clean,
        errors: checked.count_of(Severity::Error),
        leaks: checked.count_of(Severity::Leak),
        notes: checked.count_of(Severity::Note),
        files: counts.files,
        directories: counts.directories,
        symlinks: counts.symlinks,
        others: counts.others,
        damaged: counts.damaged,
        entries: counts.entries,
        pages_used: counts.pages_used,
        pages_free: counts.pages_free,
        objects: counts.objects,
        records_pending: counts.records_pending,
        intents_pending: counts.intents_pending,
        findings: checked.findings.iter().map(row).collect(),
    }
}

fn text(checked: &Checked) -> String {
    let mut out = String::new();
    for found in &checked.findings {
        out += &format!("{}[{}]", found.severity().name(), found.code.name());
        if let Some(path) = found.file.as_ref().and_then(|file| file.path.as_deref()) {
            out += &format!(" {}", quote::name(path));
        }
        if let Some(file) = &found.file {
            out += &format!(" (inode {})", file.number);
        }
        out += &format!(
            " at {}: {}: expected {}, found {}; repair: {}\n",
            found.offset,
            found.code.meaning(),
            found.expected,
            found.found,
            found.repair()
        );
    }
    let kept = checked.findings.len() as u64;
    let all: u64 = checked.codes().map(|(_, count)| count).sum();
    if all > kept {
        out += &format!("{} more findings of the same codes\n", grouped(all - kept));
    }
    let counts = checked.counts;
    out += &format!(
        "{} files, {} directories, {} links, {} others; {} pages used, {} free\n",
        grouped(counts.files),
        grouped(counts.directories),
        grouped(counts.symlinks),
        grouped(counts.others),
        grouped(counts.pages_used),
        grouped(counts.pages_free),
    );
    let (errors, leaks) = (checked.count_of(Severity::Error), checked.count_of(Severity::Leak));
    out += &match checked.is_consistent() {
        true => "consistent\n".to_owned(),
        false => format!("NOT consistent: {errors} errors, {leaks} leaks; nothing was changed\n"),
    };
    out
}
