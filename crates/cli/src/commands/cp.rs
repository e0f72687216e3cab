//! `conquest cp`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use conquest::Errno;

use crate::copy::between::{Copies, To, is_directory, with_trees};
use crate::copy::{Existing, Keep, Options};
use crate::place::Place;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::stop;

/// Copy files between the host and stores, and inside stores.
#[derive(Args)]
#[command(
    after_help = "A file has its name only once the copy is complete: whoever interrupts a copy
leaves no half file. A file that is replaced gets a new inode.

Examples:
  conquest cp notes.txt store:/
  conquest cp -a store:/src store:/src.old
  conquest cp -r store:/results ."
)]
pub(crate) struct Cp {
    /// Directories too, with what is in them. Symbolic links are copied as links then.
    #[arg(short, visible_short_alias = 'R', long)]
    recursive: bool,
    /// Everything as it is: -r, and mode, owner, times, links, attributes and flags.
    #[arg(short, long)]
    archive: bool,
    /// Keep mode, owner and times.
    #[arg(short)]
    preserve: bool,
    /// Copy symbolic links as links.
    #[arg(short = 'P', visible_short_alias = 'd', long)]
    no_dereference: bool,
    /// Leave alone what is there already.
    #[arg(short, long, overrides_with_all = ["interactive", "force"])]
    no_clobber: bool,
    /// Ask before replacing a file.
    #[arg(short, long, overrides_with_all = ["no_clobber"])]
    interactive: bool,
    /// Replace what is there, whatever its mode. (So it is anyway: a copy takes the place.)
    #[arg(short, long)]
    force: bool,
    /// Take the last operand for a name even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Not into directories that something else is mounted on.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Tell each file copied.
    #[arg(short, long)]
    verbose: bool,
    /// SOURCE... then DESTINATION; at least one of them STORE:/path.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    operands: Vec<OsString>,
}

impl Cp {
    fn options(&self) -> Options {
        let keep = match (self.archive, self.preserve) {
            (true, _) => Keep::ALL,
            (_, true) => {
                Keep { mode: true, owner: true, times: true, lists: true, ..Keep::default() }
            }
            _ => Keep::default(),
        };
        let existing = match (self.no_clobber, self.interactive) {
            (true, _) => Existing::Keep,
            (_, true) => Existing::Ask,
            _ => Existing::Replace,
        };
        Options {
            recursive: self.recursive || self.archive,
            keep,
            existing,
            one_file_system: self.one_file_system,
            delete: false,
            same_tree: false,
            verbose: self.verbose,
            threads: 1,
        }
    }
}

pub(crate) fn run(args: &Cp) -> ExitCode {
    let report = Report::with("cp", Progress::counting("copied"));
    let mut session = Session::default();
    let done = stop::listen().and_then(|()| copy(args, &report, &mut session));
    report.take_plain(done);
    report.take_plain(session.close());
    let code = report.code();
    stop::end_by_signal();
    code
}

fn copy(args: &Cp, report: &Report, session: &mut Session) -> Result<()> {
    let Some((last, sources)) = args.operands.split_last() else {
        return Ok(());
    };
    let target = Place::parse(last);
    let sources: Vec<Place> = sources.iter().map(|it| Place::parse(it)).collect();
    crate::who::am_i().map(drop)?;
    let to = destination(session, &sources, target.clone(), args.no_target_directory)?;
    let options = args.options();
    let follow = !(options.recursive || args.no_dereference);
    // Sources of one tree are copied together: so files with several names are recognised.
    for group in sources.chunk_by(same_tree) {
        let Some(first) = group.first() else {
            continue;
        };
        let copies = Copies { sources: group, to: &to, follow, options, report };
        match with_trees(session, first, &target, copies) {
            Err(Reason::Stopped) => return Err(Reason::Stopped),
            done => report.take_plain(done),
        };
    }
    Ok(())
}

fn same_tree(one: &Place, other: &Place) -> bool {
    match (one, other) {
        (Place::Host(_), Place::Host(_)) => true,
        (Place::Inside(one), Place::Inside(other)) => one.store == other.store,
        _ => false,
    }
}

/// Where copies of `sources` go that were to go to `target`.
///
/// # Errors
/// `ENOTDIR` if several go to what is no directory.
pub(super) fn destination(
    session: &mut Session,
    sources: &[Place],
    target: Place,
    is_name: bool,
) -> Result<To> {
    let named = |reason: Reason| match reason {
        Reason::Store(_) => reason,
        reason => Reason::rule(format!("{}: {reason}", target.label())),
    };
    if !is_name && is_directory(session, &target).map_err(named)? {
        return Ok(To::Directory(target));
    }
    if sources.len() > 1 {
        return Err(named(Errno::ENOTDIR.into()));
    }
    Ok(To::Name(target))
}
