//! `conquest demo`: shows on this machine what a store does, and checks it.

mod large;
mod model;
mod power;
mod scratch;
mod sources;
pub(crate) mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use conquest::{Id, NewStore, Store};
use conquest_format::GROUP;
use conquest_fsck::Finding;

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
use worker::{Crew, Done};

/// Show what a store does: a real tree in, processes killed, the power cut, everything compared.
///
/// Makes a store like those of `conquest mkfs`, and throws it away at the end. A tree of files is
/// brought in, and a large file; processes that work on the store are killed in the middle of it,
/// and what they had acknowledged is compared with what is there. Then all that the store has in
/// RAM is taken away, too, as a power failure does: what was synced must come back, and what else
/// does must be what was done first. The store is checked, and the tree is brought out again and
/// compared with the original. Needs no privileges. The exit code is 1 if anything differs.
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
    /// Times that the power is cut.
    #[arg(long, default_value_t = 4)]
    power_cuts: u32,
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
    let took = begin.elapsed();
    let volume = describe(&directory, &scratch, took)?;
    bring_in(&directory, &source, report)?;
    let mut rng = Rng::new(seed(args));
    large::make(&directory)?;
    let mut differences = kill(args, &mut rng, &directory, report)?;
    match volume {
        Some(volume) => differences += cut_power(args, &mut rng, &scratch, volume, report)?,
        None => tell(format_args!("no power is cut: a store in RAM alone does not outlive that")),
    }
    differences += large::compare(&directory, report)?;
    differences += bring_out(&directory, &source, scratch.path(), report)?;
    let begin = Instant::now();
    scratch.remove()?;
    tell(format_args!("removed everything, {}", milliseconds(begin.elapsed())));
    Ok(differences)
}

/// Says what was made: the identity of the store's volume, if it has one.
fn describe(directory: &Path, scratch: &Scratch, took: Duration) -> Result<Option<Id>> {
    let store = crate::session::attach(directory)?;
    let info = store.info();
    tell(format_args!(
        "made a store in {}, {}\n  its core, for up to {} of metadata and small files, is {}",
        place::host_label(scratch.path()),
        milliseconds(took),
        human(info.shape.max_groups * GROUP),
        place::host_label(&scratch.core()),
    ));
    if let Some(volume) = info.volume.as_ref().and_then(|volume| volume.devices.first()) {
        let bytes = std::fs::metadata(volume).map_or(0, |found| found.len());
        tell(format_args!(
            "  its volume, for large files and what makes the core durable, is {}, {}",
            place::host_label(volume),
            human(bytes)
        ));
    }
    store.detach()?;
    Ok(info.volume.map(|volume| volume.uuid))
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

/// What random numbers begin with, which is told.
fn seed(args: &Demo) -> u64 {
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
    let seed = args.seed.unwrap_or(clock);
    tell(format_args!("random numbers begin with --seed {seed}"));
    seed
}

/// Kills processes at work, round by round; how many differences there were.
fn kill(args: &Demo, rng: &mut Rng, directory: &Path, report: &Report) -> Result<u64> {
    tell(format_args!("killing {} processes at work, {} times:", args.processes, args.rounds));
    let mut differences = 0;
    let (mut acknowledged, mut slowest) = (0, Duration::ZERO);
    for round in 1..=args.rounds {
        stop::check()?;
        let seeds: Vec<u64> = (0..args.processes).map(|_| rng.next()).collect();
        let crew = Crew::start(directory, &seeds, false)?;
        std::thread::sleep(Duration::from_millis(20 + rng.below(400)));
        let done = crew.kill()?;
        let begin = Instant::now();
        let store = crate::session::attach(directory)?;
        let took = begin.elapsed();
        let mut line = Vec::new();
        for (seed, done) in seeds.iter().zip(&done) {
            line.push(grouped(done.operations));
            acknowledged += done.operations;
            // Whoever was killed, all that was done is there.
            let done = Done { synced: done.operations, ..*done };
            differences += examine(&store, *seed, done, report)?.is_err() as u64;
        }
        differences += check_and_clear(store, &seeds, directory, report)?;
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

/// Cuts the power of processes at work, again and again; how many differences there were.
fn cut_power(
    args: &Demo,
    rng: &mut Rng,
    scratch: &Scratch,
    volume: Id,
    report: &Report,
) -> Result<u64> {
    let directory = scratch.path().join("store");
    tell(format_args!(
        "cutting the power, {} times: all processes are killed, also the store's keeper, and all \
         that the store has in RAM is removed:",
        args.power_cuts
    ));
    let (mut synced, mut slowest, mut differences) = (0, Duration::ZERO, 0);
    for round in 1..=args.power_cuts {
        stop::check()?;
        let seeds: Vec<u64> = (0..args.processes).map(|_| rng.next()).collect();
        let crew = Crew::start(&directory, &seeds, true)?;
        std::thread::sleep(Duration::from_millis(20 + rng.below(1500)));
        let done = power::cut(scratch, volume, crew)?;
        let begin = Instant::now();
        let store = crate::session::attach(&directory)?;
        let took = begin.elapsed();
        let mut line = Vec::new();
        for (seed, done) in seeds.iter().zip(&done) {
            synced += done.synced;
            let found = match examine(&store, *seed, *done, report)? {
                Ok(count) => grouped(count),
                Err(Differs) => {
                    differences += 1;
                    "none of these".to_owned()
                }
            };
            let (all, durable) = (grouped(done.operations), grouped(done.synced));
            line.push(format!("{all} ({durable} synced): {found} are there"));
        }
        differences += check_and_clear(store, &seeds, &directory, report)?;
        slowest = slowest.max(took);
        let (line, took) = (line.join("; "), milliseconds(took));
        tell(format_args!("  {round}: operations {line}; back in {took}, checked"));
    }
    tell(format_args!(
        "{} operations were synced, all looked for: {differences} differences; the core was back \
         in {} at most",
        grouped(synced),
        milliseconds(slowest)
    ));
    Ok(differences)
}

/// What a worker has left is not what it can have left.
struct Differs;

/// How many operations of a worker of `seed` are there, which has `done` some: at least those that
/// were synced, and of all others the first ones.
fn examine(
    store: &Store,
    seed: u64,
    done: Done,
    report: &Report,
) -> Result<core::result::Result<u64, Differs>> {
    let files = Inner::new(store)?;
    let name = worker::directory_name(seed);
    let found = World::read(&files, &files.child(&files.root(), name.as_bytes())?)?;
    let mut expected = World::default();
    let mut rng = Rng::new(seed);
    let mut wrong = Vec::new();
    for count in 0..=done.operations {
        let next = Op::next(&mut rng, &expected);
        if count >= done.synced {
            wrong = found.differences(&expected, &next);
            if wrong.is_empty() {
                return Ok(Ok(count));
            }
        }
        next.apply(&mut expected);
    }
    wrong.iter().for_each(|what| report.note(format_args!("{name}: {what}")));
    Ok(Err(Differs))
}

/// What the file system and the checker find wrong. Removes what workers of `seeds` have left.
fn check_and_clear(store: Store, seeds: &[u64], directory: &Path, report: &Report) -> Result<u64> {
    let mut differences = check_inside(&store, report)?;
    clear(&store, seeds)?;
    store.detach()?;
    let checked = super::fsck::check(directory, None)?;
    let is_wrong = |found: &&Finding| found.severity() != conquest_fsck::Severity::Note;
    for found in checked.findings.iter().filter(is_wrong) {
        differences += 1;
        report.note(found);
    }
    Ok(differences)
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
