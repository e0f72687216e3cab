//! `conquest import`, and what it shares with `conquest export`.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use conquest::Errno;
use serde::Serialize;

use crate::copy::between::{Visit, with_trees};
use crate::copy::{Compared, Existing, Job, Keep, Note, Options, Side, Totals, compare};
use crate::json::{self, Name};
use crate::place::Place;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::size::{grouped, human};
use crate::stop;
use crate::tree::{Bits, New, Tree};

/// Options of `import` and `export`.
#[derive(Args)]
pub(crate) struct Transfer {
    /// Remove from the destination what the source does not have.
    #[arg(long)]
    delete: bool,
    /// Compare both sides afterwards, byte for byte.
    #[arg(long)]
    verify: bool,
    /// Not into directories that something else is mounted on.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Threads.
    #[arg(short, long, value_name = "THREADS", value_parser = threads_parser())]
    jobs: Option<u16>,
    /// Tell each file.
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
    /// For programs: schema conquest.transfer.
    #[arg(long)]
    json: bool,
}

fn threads_parser() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=1024)
}

/// Bring a tree of files into a store, unchanged.
#[derive(Args)]
#[command(
    after_help = "What is in TREE is then in STORE:/path, which is made if it is missing: types,
modes, owners, times, hard links, holes, attributes, access lists and flags. Run again, it
leaves alone what is equal by size, time of modification and mode. Whoever interrupts
it leaves no half file; the next import into the same place goes on and cleans up.

Examples:
  conquest import ~/src store:/src
  conquest import --delete --verify /usr/include store:/include"
)]
pub(crate) struct Import {
    #[command(flatten)]
    transfer: Transfer,
    /// Directory on the host.
    tree: OsString,
    /// Directory in a store: STORE:/path.
    place: OsString,
}

pub(crate) fn run(args: &Import) -> ExitCode {
    let report = Report::with("import", Progress::counting("files"));
    let places = [Place::parse(&args.tree), Place::parse(&args.place)];
    let wrong = match &places {
        [Place::Host(_), Place::Inside(_)] => None,
        [Place::Inside(_), _] => Some((0, "is in a store (import takes a directory on the host)")),
        [_, Place::Host(_)] => Some((1, "is on the host (write STORE:/path)")),
    };
    transfer(&report, &args.transfer, &places, wrong)
}

/// Copies what is in the first place to the second one, and reports.
pub(super) fn transfer(
    report: &Report,
    args: &Transfer,
    places: &[Place; 2],
    wrong: Option<(usize, &str)>,
) -> ExitCode {
    if let Some((at, what)) = wrong {
        let label = places.get(at).map_or(String::new(), Place::label);
        report.fail(label, &Reason::rule(what));
        return ExitCode::from(2);
    }
    let [source, target] = places;
    let mut session = Session::default();
    let step = Step { args, report, places: [source, target] };
    let done = stop::listen()
        .and_then(|()| crate::who::am_i().map(drop))
        .and_then(|()| with_trees(&mut session, source, target, step));
    report.take_plain(done);
    report.take_plain(session.close());
    let code = report.code();
    stop::end_by_signal();
    code
}

struct Step<'a> {
    args: &'a Transfer,
    report: &'a Report,
    places: [&'a Place; 2],
}

/// What `--json` tells.
#[derive(Serialize)]
struct Answer<'n> {
    source: Name,
    target: Name,
    #[serde(flatten)]
    totals: Totals,
    seconds: f64,
    failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<u64>,
    notes: &'n [Note],
}

impl Visit for Step<'_> {
    fn visit<S: Tree, T: Tree>(self, source: &S, target: &T, same: bool) -> Result<()> {
        let begin = Instant::now();
        let [from, to] = self.places;
        let name = |place: &Place, reason| Reason::rule(format!("{}: {reason}", place.label()));
        let node = source.find(from.path(), true).map_err(|reason| name(from, reason))?;
        if !source.meta(&node)?.is_directory() {
            let what = "is no directory (use cp for single files)";
            return Err(name(from, Reason::rule(what)));
        }
        let into = directory(target, to).map_err(|reason| name(to, reason))?;
        let options = Options {
            recursive: true,
            keep: Keep::ALL,
            existing: Existing::Update,
            one_file_system: self.args.one_file_system,
            delete: self.args.delete,
            same_tree: same,
            verbose: self.args.verbose,
            threads: self.args.jobs.map_or_else(threads, usize::from),
        };
        let sides = (
            Side { tree: source, node, label: from.plain() },
            Side { tree: target, node: into, label: to.plain() },
        );
        let job = Job::of_directories(sides.0, sides.1, options, self.report)
            .map_err(|reason| name(from, reason))?;
        let (totals, notes) = job.run()?;
        let verified = match self.args.verify {
            true => Some(self.verify(source, target)?),
            false => None,
        };
        self.tell(totals, &notes, verified, begin.elapsed().as_secs_f64())
    }
}

impl Step<'_> {
    fn verify<S: Tree, T: Tree>(&self, source: &S, target: &T) -> Result<Compared> {
        let [from, to] = self.places;
        let one = (source, source.find(from.path(), true)?);
        let other = (target, target.find(to.path(), true)?);
        compare(one, other, &mut |trail, what| {
            let place = to.join(&trail.path());
            self.report.fail(place.label(), &Reason::rule(format!("differs: {what}")));
        })
    }

    fn tell(
        &self,
        totals: Totals,
        notes: &[Note],
        verified: Option<Compared>,
        seconds: f64,
    ) -> Result<()> {
        if let Some(progress) = self.report.progress() {
            progress.finish();
        }
        if self.args.json {
            let [source, target] = self.places.map(|place| Name::new(&place.plain()));
            return Ok(json::print(
                "transfer",
                &Answer {
                    source,
                    target,
                    totals,
                    seconds,
                    failures: self.report.failures(),
                    verified_files: verified.map(|it| it.files),
                    differences: verified.map(|it| it.differences),
                    notes,
                },
            )?);
        }
        let mut text = format!(
            "{} files ({}), {} directories, {} links, {} others; {} unchanged, {} removed\n",
            grouped(totals.files),
            human(totals.bytes),
            grouped(totals.directories),
            grouped(totals.hard_links),
            grouped(totals.others),
            grouped(totals.unchanged),
            grouped(totals.removed),
        );
        let all = totals.files + totals.directories + totals.hard_links + totals.others;
        let rate = (all as f64 / seconds.max(1e-9)) as u64;
        text += &format!("{seconds:.2} s, {} a second\n", grouped(rate));
        if let Some(done) = verified {
            text += &format!(
                "compared {} files ({}): {} differences\n",
                grouped(done.files),
                human(done.bytes),
                done.differences
            );
        }
        Ok(crate::output::all(text.as_bytes())?)
    }
}

/// Threads, if nothing else is asked for.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(8))
}

/// The directory at `place`, made if there is nothing.
fn directory<T: Tree>(tree: &T, place: &Place) -> Result<T::Node> {
    let node = match tree.find(place.path(), true) {
        Err(reason) if reason.is(Errno::ENOENT) => {
            let (above, name) = place.above()?;
            let above = tree.find(above.path(), true)?;
            return tree.make(&above, &name, New::Directory, Bits::Masked(0o777));
        }
        found => found?,
    };
    if tree.meta(&node)?.is_directory() { Ok(node) } else { Err(Errno::ENOTDIR.into()) }
}
