//! `conquest bench`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use conquest_bench::experiment::{self, Experiment, On, Size};
use conquest_bench::machine::caches::Caches;
use conquest_bench::machine::description::Description;
use conquest_bench::parameters::Parameters;
use conquest_bench::report::json::{self, Document};
use conquest_bench::report::{compare, html, table};
use conquest_bench::results::Found;
use conquest_bench::runner::{self, Follow, Plan, Wanted, Watcher};
use conquest_bench::simulation::SIMULATOR;
use conquest_bench::target::{Making, Name, ROOT_MOUNTS, Room};

use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::stop;

/// Who is nobody in particular on every system.
const NOBODY: u32 = 65_534;
/// So often a run that was disturbed is repeated.
const REPEATS: usize = 2;

/// Compare file systems: the same experiments on each, in turn, in one run.
#[derive(Args)]
#[command(
    after_help = "Every target is made anew for every run, and removed. Targets are compared with
the first one, by the runs of the same round; `not significant` means that the 90 % interval of
the ratio does not leave out 1. A target's name with +5% behind it is made slower by as much; with
@PROGRAM behind it (a path with a slash) it is measured by that program instead of our own loop.
Both are tests of the method.

Examples:
  conquest bench list
  conquest bench sprite-small
  conquest bench sprite-small --on ext4,/home/me/files,conquest
  conquest bench sprite-large --set bytes=1048576 --on ramfs,tmpfs"
)]
pub(crate) struct Bench {
    /// Targets, separated by commas: names that `list` shows, or paths of directories [default:
    /// ramfs,tmpfs,ext4,conquest,fuse; of experiments with volumes, those that `list` shows].
    #[arg(long, value_delimiter = ',', value_name = "TARGET")]
    on: Vec<String>,
    /// How large.
    #[arg(long, value_enum, default_value_t = HowLarge::Short)]
    size: HowLarge,
    /// Samples of each phase on each target.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Another number for a parameter of the experiments.
    #[arg(long, value_name = "NAME=NUMBER", value_parser = setting)]
    set: Vec<(String, u64)>,
    /// As which user calls are made, if root measures [default: who called sudo, or nobody].
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// On which processor; on any by default.
    #[arg(long)]
    processor: Option<usize>,
    /// What the caches hold when a phase begins.
    #[arg(long, value_enum, default_value_t = CachesAre::Clean)]
    caches: CachesAre,
    /// How targets in memory follow each other.
    #[arg(long, value_enum, default_value_t = FollowBy::Turns)]
    follow: FollowBy,
    /// Count instructions of the library and misses of caches too, in a simulated processor; slow.
    #[arg(long)]
    instructions: bool,
    /// Where random numbers begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where devices of file systems are kept: a directory on a disk.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    disk: PathBuf,
    /// Longest time for a part of an experiment, in seconds.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Keep what was found in this file, as JSON (`schema` describes it).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep it in this file as a page for a browser.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Experiments, or `all`; or `list`, `schema`, or `compare` and two files with reports.
    #[arg(required = true)]
    experiments: Vec<String>,
}

/// How large experiments are.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HowLarge {
    /// Only to see that everything works.
    Smoke,
    /// A minute or two.
    Short,
    /// As in the papers, and at all sizes of this machine's caches.
    Full,
}

/// What the caches hold when a phase begins.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CachesAre {
    /// Nothing that has to be written back.
    Clean,
    /// What the phase before has left.
    AsLeft,
}

/// How targets in memory follow each other.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FollowBy {
    /// All are there at once, and each works for some milliseconds in turn.
    Turns,
    /// One after the other.
    Runs,
}

fn setting(text: &str) -> core::result::Result<(String, u64), String> {
    let (name, number) = text.split_once('=').ok_or("expected NAME=NUMBER")?;
    let number = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    Ok((name.to_owned(), number))
}

pub(crate) fn run(args: &Bench) -> ExitCode {
    let report = Report::new("bench");
    let words: Vec<&str> = args.experiments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["list"] => list(),
        ["schema"] => output(json::SCHEMA_TEXT),
        ["compare", before, after] => compare(before, after),
        ["compare", ..] => Err(Reason::rule("compare takes two files with reports")),
        _ => measure(args, &report),
    };
    report.take_plain(done);
    stop::end_by_signal();
    report.code()
}

/// What a process does that measures.
pub(crate) fn work() -> ExitCode {
    match conquest_bench::worker::work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Serve a mount as long as standard input does not end.
#[derive(Args)]
pub(crate) struct Guardian {
    /// Longest time, in seconds.
    limit: u64,
    /// What serves it.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// What a process does that starts and ends one that serves a mount.
pub(crate) fn guard(args: &Guardian) -> ExitCode {
    match conquest_bench::guardian::guard(Duration::from_secs(args.limit), &args.command) {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            Report::new("bench").note(format_args!("what serves a mount: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn list() -> Result<()> {
    let mut out = String::from("experiments:\n");
    for experiment in experiment::ALL {
        out.push_str(&format!("  {:<24}{}\n", experiment.id(), experiment.about()));
        let phases: Vec<&str> = experiment.phases().iter().map(|phase| phase.id).collect();
        out.push_str(&format!("  {:<24}phases: {}\n", "", phases.join(", ")));
        if experiment.on() != On::Files {
            out.push_str(&format!("  {:<24}on: {}\n", "", experiment.on().usual().join(",")));
        }
    }
    out.push_str("\ntargets:\n");
    for name in Name::ALL.iter().chain([&Name::Directory(PathBuf::new())]) {
        let word = if matches!(name, Name::Directory(_)) { "a path".into() } else { name.id() };
        out.push_str(&format!("  {word:<24}{}\n", name.about()));
        if let Some(lack) = name.lack() {
            out.push_str(&format!("  {:<24}not here: {lack}\n", ""));
        }
    }
    output(&out)
}

fn output(text: &str) -> Result<()> {
    Ok(crate::output::all(text.as_bytes())?)
}

/// Shows how the report in the file `after` compares with the one in `before`.
fn compare(before: &str, after: &str) -> Result<()> {
    let read = |path: &str| {
        let named = |reason: String| Reason::Rule(format!("{path}: {reason}"));
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| named(crate::reason::words(&error)))?;
        Document::parse(&text).map_err(named)
    };
    output(&compare::compare(&read(before)?, &read(after)?))
}

/// Writes the report to the files that were asked for.
fn keep(args: &Bench, document: &Document) -> Result<()> {
    let write = |path: &Path, text: String| {
        let named =
            |error| Reason::Rule(format!("{}: {}", path.display(), crate::reason::words(&error)));
        std::fs::write(path, text).map_err(named)
    };
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(document);
        write(path, text.map_err(|error| Reason::rule(error.to_string()))? + "\n")?;
    }
    match &args.html {
        Some(path) => write(path, html::page(document)),
        None => Ok(()),
    }
}

fn measure(args: &Bench, report: &Report) -> Result<()> {
    let (simulator, package) = SIMULATOR;
    if args.instructions && !conquest_bench::program::exists(simulator) {
        let reason = format!("there is no {simulator} (install the package {package})");
        return Err(Reason::Rule(format!("--instructions: {reason}")));
    }
    let caches = Caches::visible().unwrap_or_default();
    let experiments = chosen(args, &caches, report)?;
    let mut targets = targets(args, &experiments, report)?;
    let program = std::env::current_exe()?;
    let mut used = vec![program.clone(), std::env::current_dir()?, args.disk.clone()];
    used.extend(targets.iter().filter_map(|target| match &target.name {
        Name::Directory(path) => std::fs::canonicalize(path).ok(),
        _ => None,
    }));
    let workers = targets.iter().filter_map(|target| target.worker.as_ref());
    used.extend(workers.filter_map(|path| std::fs::canonicalize(path).ok()));
    let room = room(&mut targets, &used, report)?;
    let is_root = rustix::process::geteuid().is_root();
    let plan = Plan {
        experiments,
        targets,
        rounds: args.rounds,
        repeats: if args.size == HowLarge::Smoke { 0 } else { REPEATS },
        follow: match args.follow {
            FollowBy::Turns => Follow::Turns,
            FollowBy::Runs => Follow::Runs,
        },
        simulates: args.instructions,
        seed: args.seed,
        user: is_root.then(|| user(args)),
        processor: args.processor,
        sweep: match (args.caches, args.size) {
            (CachesAre::AsLeft, _) | (_, HowLarge::Smoke) => 0,
            (CachesAre::Clean, _) => 2 * caches.last(),
        },
        making: Making { program, disk: args.disk.clone() },
        limit: Duration::from_secs(args.limit),
    };
    stop::listen()?;
    let most = if args.size == HowLarge::Smoke { 1 << 20 } else { 4 * caches.last() };
    let machine = Description::look(most);
    let mut told = Told { progress: Progress::share("measuring"), report };
    let outcome = runner::run(&plan, room.as_ref(), &mut told);
    drop(told);
    let outcome = outcome.map_err(|error| Reason::rule(error.to_string()))?;
    keep(args, &Document::new(&plan, &outcome, machine))?;
    if !outcome.failures.is_empty() {
        let count = outcome.failures.len();
        return Err(Reason::Rule(format!("{count} of the targets failed")));
    }
    if stop::requested() {
        return Err(Reason::rule("interrupted; what was measured until then is in the report"));
    }
    match outcome.found.iter().flat_map(|found| &found.rows).any(|row| !row.rates().is_empty()) {
        true => Ok(()),
        false => Err(Reason::rule("nothing was measured")),
    }
}

/// A mount namespace for the targets. Ordinary users get one, for file systems in memory, where the
/// system lets them; stores can't be mounted in it, as the program that does it for them can't.
fn room(targets: &mut Vec<Wanted>, used: &[PathBuf], report: &Report) -> Result<Option<Room>> {
    if rustix::process::geteuid().is_root() {
        return Room::enter(used).map(Some).map_err(|error| Reason::rule(error.to_string()));
    }
    let is_mounted = |name: &Name| matches!(name, Name::Fuse | Name::HybridFuse);
    let is_kernel = |name: &Name| matches!(name, Name::Kernel(_));
    let has = |is_one: fn(&Name) -> bool| targets.iter().any(|target| is_one(&target.name));
    if has(is_mounted) && !has(is_kernel) {
        return Ok(None);
    }
    match Room::enter(used) {
        Ok(room) => {
            let why = "beside file systems in memory, mounting a store needs root";
            leave_out(targets, is_mounted, why, report).map(|()| Some(room))
        }
        Err(error) => {
            let why = format!("{ROOT_MOUNTS}; {error}");
            leave_out(targets, is_kernel, &why, report).map(|()| None)
        }
    }
}

/// Takes targets away, and says why.
fn leave_out(
    targets: &mut Vec<Wanted>,
    is_left_out: fn(&Name) -> bool,
    why: &str,
    report: &Report,
) -> Result<()> {
    for target in targets.extract_if(.., |target| is_left_out(&target.name)) {
        report.note(format_args!("{}: left out: {why}", target.label));
    }
    match targets.is_empty() {
        true => Err(Reason::rule("no target is left")),
        false => Ok(()),
    }
}

/// As whom root measures.
fn user(args: &Bench) -> (u32, u32) {
    let number = |name: &str| std::env::var(name).ok().and_then(|word| word.parse().ok());
    match args.user {
        Some(user) => (user, user),
        None => (number("SUDO_UID").unwrap_or(NOBODY), number("SUDO_GID").unwrap_or(NOBODY)),
    }
}

type Chosen = Vec<(&'static dyn Experiment, Vec<Parameters>)>;

/// The experiments that are named. Of all there are, those whose programs are not here are left
/// out.
fn named(args: &Bench, report: &Report) -> Result<Vec<&'static dyn Experiment>> {
    let lack = |experiment: &dyn Experiment| {
        let (program, package) = experiment.program()?;
        let is_here = conquest_bench::program::exists(program);
        (!is_here).then(|| format!("there is no {program} (install the package {package})"))
    };
    let mut named: Vec<&'static dyn Experiment> = Vec::new();
    for word in &args.experiments {
        if word == "all" {
            for experiment in experiment::ALL {
                let elsewhere = || {
                    let is_usual = !args.on.is_empty() || experiment.on() == On::Files;
                    let on = experiment.on().usual().join(",");
                    (!is_usual).then(|| format!("it is done on {on}; name it"))
                };
                match lack(experiment).or_else(elsewhere) {
                    Some(lack) => {
                        report.note(format_args!("{}: left out: {lack}", experiment.id()))
                    }
                    None => named.push(experiment),
                }
            }
            continue;
        }
        let experiment = experiment::find(word).ok_or_else(|| {
            Reason::Rule(format!("no experiment {word:?} (`conquest bench list` shows all)"))
        })?;
        match lack(experiment) {
            Some(lack) => return Err(Reason::Rule(format!("{word}: {lack}"))),
            None => named.push(experiment),
        }
    }
    Ok(named)
}

/// The experiments, with their parameters.
fn chosen(args: &Bench, caches: &Caches, report: &Report) -> Result<Chosen> {
    let size = match args.size {
        HowLarge::Smoke => Size::Smoke,
        HowLarge::Short => Size::Short,
        HowLarge::Full => Size::Full,
    };
    let mut chosen = Vec::new();
    for experiment in named(args, report)? {
        let mut points = Vec::new();
        for mut point in experiment.points(size, caches) {
            for (name, number) in &args.set {
                // Other experiments may have it.
                point = point.clone().with(name, *number).unwrap_or(point);
            }
            points.push(point);
        }
        points.dedup();
        chosen.push((experiment, points));
    }
    for (name, _) in &args.set {
        let all = chosen.iter().flat_map(|(_, points)| points);
        if !all.flat_map(Parameters::iter).any(|(known, _)| known == name) {
            return Err(Reason::Rule(format!("none of the experiments has a parameter {name:?}")));
        }
    }
    Ok(chosen)
}

/// The targets, without those that can't be had here, of which it is said how to get them.
fn targets(args: &Bench, experiments: &Chosen, report: &Report) -> Result<Vec<Wanted>> {
    let mut words: Vec<&str> = args.on.iter().map(String::as_str).collect();
    if words.is_empty() {
        for word in experiments.iter().flat_map(|(experiment, _)| experiment.on().usual()) {
            if !words.contains(word) {
                words.push(word);
            }
        }
    }
    let mut targets: Vec<Wanted> = Vec::new();
    for word in words {
        let mut wanted = Wanted::parse(word).ok_or_else(|| {
            let advice = "`conquest bench list` shows all; a directory needs a slash";
            Reason::Rule(format!("no target {word:?} ({advice})"))
        })?;
        if let Some(lack) = wanted.name.lack() {
            report.note(format_args!("{word}: left out: {lack}"));
            continue;
        }
        let same = targets.iter().filter(|other| other.name == wanted.name).count();
        if targets.iter().any(|other| other.label == wanted.label) {
            wanted.label = format!("{}#{}", wanted.label, same + 1);
        }
        targets.push(wanted);
    }
    match targets.is_empty() {
        true => Err(Reason::rule("no target is left")),
        false => Ok(targets),
    }
}

/// The terminal.
struct Told<'r> {
    progress: Progress,
    report: &'r Report,
}

impl Watcher for Told<'_> {
    fn progress(&mut self, done: usize, total: usize) {
        self.progress.set(done as u64, total as u64);
    }

    fn note(&mut self, text: &str) {
        self.progress.line(&format!("conquest: {}: {text}", self.report.command()));
    }

    fn found(&mut self, found: &[Found]) {
        let text = table::table(found);
        // Whoever does not read it any more has ended this process.
        self.progress.suspend(|| drop(crate::output::all(text.as_bytes())));
    }

    fn is_stopped(&self) -> bool {
        stop::requested()
    }
}
