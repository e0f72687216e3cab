//! `conform cuts`: real programs work on a mounted store, whose power is cut at many places of what
//! they did; whatever they had acknowledged has to be there.
//!
//! The work is that of the test kit's program `cut-programs`, for each case in a directory of its
//! own.

use std::process::Command;
use std::time::Duration;

use super::conquest::installed;
use super::options::Options;
use super::room::Room;
use super::watch;
use crate::packages::Need;
use crate::tally::Tally;
use crate::{Failure, harness, tree};

/// The program of the test kit.
pub(super) const PROGRAM: &str = "cut-programs";

/// What is cut, and what that needs.
const CASES: [(&str, &[Need]); 3] = [
    ("sqlite", &[("sqlite3", "sqlite3"), ("stdbuf", "coreutils")]),
    ("postgresql", &[("psql", "postgresql"), ("pgbench", "postgresql"), ("stdbuf", "coreutils")]),
    ("spool", &[]),
];

/// How long setting up and recording may take, and each cut: beyond what is ever seen.
const BEGIN_LIMIT: Duration = Duration::from_secs(1800);
const CUT_LIMIT: Duration = Duration::from_secs(600);

fn wanted(options: &Options) -> impl Iterator<Item = &'static (&'static str, &'static [Need])> {
    CASES.iter().filter(|(name, _)| options.wants(name))
}

/// What the cases that were asked for need.
pub(super) fn needed(options: &Options) -> Vec<Need> {
    wanted(options).flat_map(|(_, needed)| needed.iter().copied()).collect()
}

/// Runs it.
pub(super) fn run(room: &Room, options: &Options) -> Result<Tally, Failure> {
    let program = installed(room, options)?;
    // One that is built anew meanwhile is not taken for it.
    let (built, own) =
        (tree::output().join("release").join(PROGRAM), program.with_file_name(PROGRAM));
    std::fs::copy(&built, &own).map_err(|e| Failure::system("can't copy", &built, &e))?;
    let mut tally = Tally::default();
    for (name, _) in wanted(options) {
        let mut command = Command::new(&own);
        command.arg(name).arg("--program").arg(&program);
        command.arg("--place").arg(room.make(name)?);
        command.arg("--keep").arg(tree::output().join("cuts"));
        command.args(["--cuts", &options.cuts.to_string(), "--seed", &options.seed.to_string()]);
        command.args(["--seconds", &options.seconds.to_string()]);
        if let Some(replay) = &options.replay {
            command.args(["--replay", replay]);
        }
        let cuts = u32::try_from(options.cuts).unwrap_or(u32::MAX);
        let limit = BEGIN_LIMIT.saturating_add(CUT_LIMIT.saturating_mul(cuts));
        tally += watch::within(limit, || harness::counted(&mut command, limit, name))?;
    }
    if tally == Tally::default() {
        return Err(Failure::Usage("conform cuts: no case has such a name".into()));
    }
    Ok(tally)
}
