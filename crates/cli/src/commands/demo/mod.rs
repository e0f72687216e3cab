//! `conquest demo`: shows on this machine what a store does, and checks it.

mod model;
mod scratch;
mod sources;
pub(crate) mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use conquest::{NewStore, Store};

use crate::copy::{Compared, Existing, Job, Keep, Options, Side, Totals, compare};
use crate::place;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::rng::Rng;
use crate::size::{grouped, human};
use crate::stop;
use crate::tree::{Bits, Host, Inner, New, Tree};
use model::{Op, World};
use scratch::Scratch;
use sources::Source;
use worker::Crew;

/// Show what a store does: a real tree in, processes killed, everything compared.
///
/// Makes a store in RAM and throws it away at the end. A tree of files is brought in; processes
/// that work on the store are killed in the middle of it; what they had acknowledged is compared
/// with what is there, the store is checked, and the tree is brought out again and compared with
/// the original. Needs no privileges. The exit code is 1 if anything differs.
#[derive(Args)]
#[command(after_help = "Example:
  conquest demo --tree ~/src --rounds 20")]
pub(crate) struct Demo {
    /// Tree of files to bring in [default: Rust sources if there are any, or part of /usr].
    #[arg(long, value_name = "DIRECTORY")]
    tree: Option<PathBuf>,
    /// Times that processes are killed.
    #[arg(long, default_value_t = 12)]
    rounds: u32,
    /// Processes that work, and are killed, at the same time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    processes: u32,
    /// Random numbers begin with this [default: the clock].
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Demo) -> ExitCode {
    let report = Report::new("demo");
    let begin = Instant::now();
    let shown = stop::listen().and_then(|()| show(args, &report));
    let differences = match report.take_plain(shown) {
        Some(differences) => differences,
        None => {
            stop::end_by_signal();
            return report.code();
        }
    };
    if differences > 0 || report.failures() > 0 {
        tell(format_args!("NOT as it should be: {differences} differences, see above"));
        return ExitCode::from(1);
    }
    tell(format_args!("all as it should be, {:.1} s", begin.elapsed().as_secs_f64()));
    report.code()
}

/// One line of what was seen.
fn tell(line: core::fmt::Arguments<'_>) {
    // If nobody reads it, the program ends.
    let _ = crate::output::all(format!("{line}\n").as_bytes());
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// The demonstration; how many differences there were.
fn show(args: &Demo, report: &Report) -> Result<u64> {
    crate::who::am_i().map(drop)?;
    let source = Source::choose(args.tree.as_deref())?;
    tell(format_args!(
        "the tree: {} in {}, {}",
        source.what(),
        place::host_label(&source.root),
        human(source.bytes)
    ));
    let scratch = Scratch::new()?;
    let directory = scratch.path().join("store");
    let room = source.bytes.saturating_mul(2) + source.files.saturating_mul(1024) + (256 << 20);
    let begin = Instant::now();
    let new = NewStore { size_max: room.next_multiple_of(2 << 20), ..NewStore::default() };
    Store::make(&directory, &new)?;
    tell(format_args!(
        "made a store for {} in {}, {}",
        human(new.size_max),
        place::host_label(&scratch.core()),
        milliseconds(begin.elapsed())
    ));
    bring_in(&directory, &source, report)?;
    let mut differences = kill(args, &directory, report)?;
    differences += bring_out(&directory, &source, scratch.path(), report)?;
    let begin = Instant::now();
    scratch.remove()?;
    tell(format_args!("removed everything, {}", milliseconds(begin.elapsed())));
    Ok(differences)
}

const WHOLE: Options = Options {
    recursive: true,
    keep: Keep::ALL,
    existing: Existing::Update,
    one_file_system: false,
    delete: false,
    same_tree: false,
    verbose: false,
    threads: 2,
};

fn rate(totals: &Totals, time: Duration) -> String {
    let all = totals.files + totals.directories + totals.hard_links + totals.others;
    format!(
        "{} files and directories, {}, {:.2} s: {} a second",
        grouped(all),
        human(totals.bytes),
        time.as_secs_f64(),
        grouped((all as f64 / time.as_secs_f64().max(1e-9)) as u64)
    )
}

fn bring_in(directory: &Path, source: &Source, report: &Report) -> Result<()> {
    let store = crate::session::attach(directory)?;
    let files = Inner::new(&store)?;
    let begin = Instant::now();
    let root = files.root();
    let node = files.make(&root, b"tree", New::Directory, Bits::Exact(0o755))?;
    let side = Side { tree: &files, node, label: b"store:/tree".to_vec() };
    let job = Job::new(&Host, side, WHOLE, report);
    for part in &source.parts {
        let path = part.as_os_str().as_encoded_bytes();
        job.add(Host.find(path, true)?, path, &name_of(part));
    }
    let (totals, _) = job.run()?;
    tell(format_args!("brought it in: {}", rate(&totals, begin.elapsed())));
    let usage = store.usage();
    tell(format_args!("the store uses {} for it", human(usage.used)));
    Ok(store.detach()?)
}

fn name_of(part: &Path) -> Vec<u8> {
    part.file_name().map_or(b"tree".to_vec(), |name| name.as_encoded_bytes().to_vec())
}

/// Kills processes at work, round by round; how many differences there were.
fn kill(args: &Demo, directory: &Path, report: &Report) -> Result<u64> {
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
    let seed = args.seed.unwrap_or(clock);
    tell(format_args!(
        "killing {} processes at work, {} times (--seed {seed}):",
        args.processes, args.rounds
    ));
    let mut rng = Rng::new(seed);
    let mut differences = 0;
    let (mut acknowledged, mut slowest) = (0, Duration::ZERO);
    for round in 1..=args.rounds {
        stop::check()?;
        let seeds: Vec<u64> = (0..args.processes).map(|_| rng.next()).collect();
        let crew = Crew::start(directory, &seeds)?;
        std::thread::sleep(Duration::from_millis(20 + rng.below(400)));
        let done = crew.kill()?;
        let begin = Instant::now();
        let store = crate::session::attach(directory)?;
        let took = begin.elapsed();
        let mut line = Vec::new();
        for (seed, count) in seeds.iter().zip(&done) {
            line.push(grouped(*count));
            acknowledged += count;
            let wrong = examine(&store, *seed, *count)?;
            differences += wrong.len() as u64;
            wrong.iter().for_each(|what| report.note(format_args!("round {round}: {what}")));
        }
        differences += check_inside(&store, report)?;
        clear(&store, &seeds)?;
        store.detach()?;
        let checked = super::fsck::check(directory, None)?;
        for found in
            checked.findings.iter().filter(|it| it.severity() != conquest_fsck::Severity::Note)
        {
            differences += 1;
            report.note(format_args!("round {round}: {found}"));
        }
        slowest = slowest.max(took);
        tell(format_args!(
            "  {round}: killed after {} operations; attached again in {}, checked",
            line.join(" and "),
            milliseconds(took)
        ));
    }
    tell(format_args!(
        "{} acknowledged operations, all looked for: {differences} differences; attaching took {} \
         at most, whatever the store holds",
        grouped(acknowledged),
        milliseconds(slowest)
    ));
    Ok(differences)
}

/// What is wrong with what a worker of `seed` has left after `done` operations.
fn examine(store: &Store, seed: u64, done: u64) -> Result<Vec<String>> {
    let files = Inner::new(store)?;
    let mut expected = World::default();
    let mut rng = Rng::new(seed);
    for _ in 0..done {
        Op::next(&mut rng, &expected).apply(&mut expected);
    }
    let in_flight = Op::next(&mut rng, &expected);
    let name = worker::directory_name(seed);
    let found = World::read(&files, &files.child(&files.root(), name.as_bytes())?)?;
    Ok(found.differences(&expected, &in_flight))
}

/// What the file system itself finds wrong.
fn check_inside(store: &Store, report: &Report) -> Result<u64> {
    let census = store.fs().check().map_err(conquest::Error::from)?;
    census.findings.iter().for_each(|found| report.note(found));
    Ok(census.findings.len() as u64)
}

/// Removes what workers have left.
fn clear(store: &Store, seeds: &[u64]) -> Result<()> {
    let files = Inner::new(store)?;
    let mut first = Ok(());
    for seed in seeds {
        let name = worker::directory_name(*seed);
        crate::tree::remove_all(
            &files,
            &files.root(),
            name.as_bytes(),
            &mut |_, _| {},
            &mut |_, reason| first = Err(Reason::rule(format!("{name}: {reason}"))),
        )?;
    }
    first
}

/// Brings the tree out and compares it with the original; how many differences there were.
fn bring_out(directory: &Path, source: &Source, to: &Path, report: &Report) -> Result<u64> {
    let store = crate::session::attach(directory)?;
    let files = Inner::new(&store)?;
    let out = to.join("out");
    let begin = Instant::now();
    let above = Host.find(to.as_os_str().as_encoded_bytes(), true)?;
    let node = Host.make(&above, b"out", New::Directory, Bits::Exact(0o700))?;
    let side = Side { tree: &Host, node, label: out.as_os_str().as_encoded_bytes().to_vec() };
    let job = Job::new(&files, side, WHOLE, report);
    let tree = files.find(b"/tree", false)?;
    for part in &source.parts {
        let name = name_of(part);
        job.add(files.child(&tree, &name)?, &name, &name);
    }
    let (totals, _) = job.run()?;
    store.detach()?;
    tell(format_args!("brought it out: {}", rate(&totals, begin.elapsed())));
    let begin = Instant::now();
    let mut all = Compared::default();
    for part in &source.parts {
        let copy = out.join(part.file_name().unwrap_or("tree".as_ref()));
        let one = (&Host, Host.find(part.as_os_str().as_encoded_bytes(), true)?);
        let other = (&Host, Host.find(copy.as_os_str().as_encoded_bytes(), false)?);
        let done = compare(one, other, &mut |trail, what| {
            let place = place::Place::Host(part.clone()).join(&trail.path());
            report.note(format_args!("{}: differs: {what}", place.label()));
        })?;
        all.files += done.files;
        all.bytes += done.bytes;
        all.differences += done.differences;
    }
    tell(format_args!(
        "compared with the original: {} files, {}, {:.2} s: {} differences",
        grouped(all.files),
        human(all.bytes),
        begin.elapsed().as_secs_f64(),
        all.differences
    ));
    Ok(all.differences)
}
