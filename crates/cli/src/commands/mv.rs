//! `conquest mv`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use conquest::{Errno, Renaming};

use super::cp::destination;
use crate::copy::between::{Copies, To, Visit, with_trees};
use crate::copy::{Existing, Keep, Options, ask};
use crate::place::Place;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::stop;
use crate::tree::{FileType, Inner, Tree, remove_all};

/// Rename files in stores; move them between stores and the host.
#[derive(Args)]
#[command(
    after_help = "Inside a store a file is renamed, in one step. Otherwise it is copied as by cp -a
and then removed; what could not be copied stays.

Examples:
  conquest mv store:/a store:/b
  conquest mv store:/a store:/b store:/directory/
  conquest mv results store:/results"
)]
pub(crate) struct Mv {
    /// Leave alone what is there already.
    #[arg(short, long, overrides_with_all = ["interactive", "force"])]
    no_clobber: bool,
    /// Ask before replacing a file.
    #[arg(short, long, overrides_with_all = ["no_clobber", "force"])]
    interactive: bool,
    /// Replace what is there without asking. (So it is unless -i or -n is given.)
    #[arg(short, long, overrides_with_all = ["no_clobber", "interactive"])]
    force: bool,
    /// Take the last operand for a name even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Tell each file moved.
    #[arg(short, long)]
    verbose: bool,
    /// SOURCE... then DESTINATION; at least one of them STORE:/path.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    operands: Vec<OsString>,
}

pub(crate) fn run(args: &Mv) -> ExitCode {
    let report = Report::with("mv", Progress::counting("moved"));
    let mut session = Session::default();
    let done = stop::listen().and_then(|()| move_all(args, &report, &mut session));
    report.take_plain(done);
    report.take_plain(session.close());
    let code = report.code();
    stop::end_by_signal();
    code
}

fn move_all(args: &Mv, report: &Report, session: &mut Session) -> Result<()> {
    let Some((last, sources)) = args.operands.split_last() else {
        return Ok(());
    };
    let target = Place::parse(last);
    let sources: Vec<Place> = sources.iter().map(|it| Place::parse(it)).collect();
    crate::who::am_i().map(drop)?;
    // A directory is renamed over an empty one only where that is asked for.
    let to = destination(session, &sources, target.clone(), args.no_target_directory)?;
    for source in &sources {
        let moved = one(args, report, session, source, &to);
        match moved {
            Err(Reason::Stopped) => return Err(Reason::Stopped),
            Err(reason @ Reason::Store(_)) => _ = report.take_plain::<()>(Err(reason)),
            Err(reason) => report.fail(source.label(), &reason),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn one(args: &Mv, report: &Report, session: &mut Session, source: &Place, to: &To) -> Result<()> {
    let new = match to {
        To::Name(place) => place.clone(),
        To::Directory(place) => {
            let name = source.last_name().ok_or(Errno::EBUSY)?;
            place.join(&name)
        }
    };
    if let (Place::Inside(from), Place::Inside(into)) = (source, &new) {
        let (one, other) = (session.open(&from.store)?, session.open(&into.store)?);
        if one == other {
            let files = session.files(one).ok_or(Errno::ENOENT)?;
            return rename(args, report, &files, [source, &new]);
        }
    }
    let step = Across { args, report, source, new: &new };
    with_trees(session, source, &new, step)
}

/// Renames inside a store.
fn rename(args: &Mv, report: &Report, files: &Inner, places: [&Place; 2]) -> Result<()> {
    let [old, new] = places;
    let (from, to) = (old.path(), new.path());
    let node = files.find(from, false)?;
    if let Ok(target) = files.find(to, false) {
        if target == node {
            return Err(Reason::rule(format!("is the same file as {}", new.label())));
        }
        if args.no_clobber {
            return Ok(());
        }
        let question = format!("conquest: mv: overwrite {}? ", new.label());
        if args.interactive && !ask(&question) {
            return Ok(());
        }
    }
    let how = if args.no_clobber { Renaming::NoReplace } else { Renaming::Replace };
    files.rename_path(from, to, how).map_err(|reason| match files.meta(&node) {
        Ok(meta) if meta.is_directory() && reason.is(Errno::EINVAL) => {
            Reason::rule(format!("cannot move to a subdirectory of itself, {}", new.label()))
        }
        _ => Reason::rule(format!("cannot move to {}: {reason}", new.label())),
    })?;
    report.advance(1);
    if args.verbose {
        crate::output::all(format!("renamed {} -> {}\n", old.label(), new.label()).as_bytes())?;
    }
    Ok(())
}

/// A move between two trees: a copy, then a removal.
struct Across<'a> {
    args: &'a Mv,
    report: &'a Report,
    source: &'a Place,
    new: &'a Place,
}

impl Visit for Across<'_> {
    fn visit<S: Tree, T: Tree>(self, source: &S, target: &T, same: bool) -> Result<()> {
        let node = source.find(self.source.path(), false)?;
        let meta = source.meta(&node)?;
        if let Ok(old) = target.find(self.new.path(), false) {
            let old = target.meta(&old)?;
            let question = format!("conquest: mv: overwrite {}? ", self.new.label());
            if self.args.no_clobber || self.args.interactive && !ask(&question) {
                return Ok(());
            }
            if old.is_directory() != meta.is_directory() {
                let kind = if old.is_directory() { "directory" } else { "non-directory" };
                let text = format!("cannot overwrite {kind} {}", self.new.label());
                return Err(Reason::Rule(text));
            }
            if old.is_directory() {
                // As renaming would: only an empty directory makes room.
                let (above, name) = self.new.above()?;
                let above = target.find(above.path(), true)?;
                target.remove(&above, &name, true)?;
            } else if old.file_type == FileType::Symlink {
                let (above, name) = self.new.above()?;
                target.remove(&target.find(above.path(), true)?, &name, false)?;
            }
        }
        let failures = self.report.failures();
        let options = Options {
            recursive: true,
            keep: Keep::ALL,
            existing: Existing::Replace,
            one_file_system: false,
            delete: false,
            same_tree: same,
            verbose: self.args.verbose,
            threads: 1,
        };
        let to = To::Name(self.new.clone());
        let sources = core::slice::from_ref(self.source);
        let report = self.report;
        Copies { sources, to: &to, follow: false, options, report }.visit(source, target, same)?;
        if report.failures() != failures {
            return Err(Reason::rule("not removed, because not all of it could be copied"));
        }
        let (above, name) = self.source.above()?;
        let above = source.find(above.path(), true)?;
        if !meta.is_directory() {
            return source.remove(&above, &name, false);
        }
        remove_all(source, &above, &name, &mut |_, _| {}, &mut |trail, reason| {
            let place = trail.names().into_iter().fold(self.source.clone(), |at, it| at.join(it));
            report.fail(place.label(), reason);
        })
    }
}
