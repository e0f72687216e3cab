//! `cargo xtask conform SUITE`: others' suites and real programs judge a mounted file system.
//!
//! Invariants:
//! - a suite runs in a *room*, namespaces of its own in memory of its own: nothing of it is seen
//!   outside, and nothing is left of it, however it ends. Only logs are kept;
//! - how a file system comes about stands behind [`target::Target`]: suites know only directories.

mod conquest;
mod cuts;
mod fsx;
mod options;
mod pjdfstest;
mod programs;
mod room;
mod smoke;
mod step;
mod stress;
mod target;
mod tools;
mod volume;
mod watch;
mod xfstests;

use std::path::PathBuf;
use std::time::Duration;

use crate::packages::{self, Need};
use crate::tally::Tally;
use crate::{Failure, harness, tree};

use options::Options;
use room::Room;
use target::{Kind, Target};

/// The hidden command that continues inside the room.
pub(crate) const INSIDE: &str = "conform-inside";

/// What every suite needs.
const NEEDED: [Need; 6] = [
    ("mount", "mount"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("losetup", "mount"),
];

/// A suite.
struct Suite {
    name: &'static str,
    /// Commands that it needs beside [`NEEDED`].
    needed: fn(&Options) -> Vec<Need>,
    /// A program of the crate registry that it needs: name and version.
    tool: Option<(&'static str, &'static str)>,
    /// Longest time for all of it.
    limit: Duration,
    /// Runs it inside the room.
    run: fn(&Room, &Options) -> Result<Tally, Failure>,
}

/// The suite that makes its own stores.
const CUTS: &str = "cuts";
const HOUR: Duration = Duration::from_secs(3600);

const SUITES: [Suite; 7] = [
    Suite { name: "smoke", needed: |_| Vec::new(), tool: None, limit: HOUR, run: smoke::run },
    Suite {
        name: "pjdfstest",
        needed: |_| Vec::new(),
        tool: Some(pjdfstest::TOOL),
        limit: HOUR,
        run: pjdfstest::run,
    },
    Suite {
        name: "fsx",
        needed: |_| Vec::new(),
        tool: Some(fsx::TOOL),
        limit: HOUR.saturating_mul(6),
        run: fsx::run,
    },
    Suite {
        name: "programs",
        needed: programs::needed,
        tool: None,
        limit: HOUR.saturating_mul(4),
        run: programs::run,
    },
    Suite {
        name: "stress",
        needed: |_| stress::NEEDED.to_vec(),
        tool: None,
        limit: HOUR.saturating_mul(6),
        run: stress::run,
    },
    Suite {
        name: "xfstests",
        needed: |_| xfstests::NEEDED.to_vec(),
        tool: None,
        limit: HOUR.saturating_mul(8),
        run: xfstests::run,
    },
    Suite {
        name: CUTS,
        needed: cuts::needed,
        tool: None,
        limit: HOUR.saturating_mul(8),
        run: cuts::run,
    },
];

fn find(name: &str) -> Result<&'static Suite, Failure> {
    let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
    SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| {
        Failure::Usage(format!("conform: no suite {name:?}; there is: {}", names.join(", ")))
    })
}

/// Runs `cargo xtask conform`.
pub(crate) fn run(arguments: &[String]) -> Result<Tally, Failure> {
    let options = Options::parse(arguments)?;
    let suite = find(&options.suite)?;
    if options.on == Kind::Space && suite.name != fsx::TOOL.0 {
        let what = format!("conform {}: the space of a volume is one file; fsx can", suite.name);
        return Err(Failure::Usage(what));
    }
    if suite.name == CUTS && options.on != Kind::Conquest {
        return Err(Failure::Usage("conform cuts: only a store that root mounts is cut".into()));
    }
    if !packages::is_root() {
        return Err(Failure::Broken(format!(
            "conform {}: only root may mount file systems and change users; run it as root",
            suite.name
        )));
    }
    let mut needed = NEEDED.to_vec();
    needed.extend(options.on.needed());
    needed.extend((suite.needed)(&options));
    packages::provide(&format!("conform {}", suite.name), &needed)?;
    if let Some((name, version)) = suite.tool {
        tools::provide(name, version)?;
    }
    if options.on.takes_program() && options.program.is_none() {
        conquest::build()?;
    }
    if suite.name == CUTS {
        harness::build(cuts::PROGRAM, "release")?;
    }
    room::enter(arguments, suite.limit)
}

/// Continues inside the room: `conform-inside NAMESPACE ARGUMENT...`.
pub(crate) fn run_inside(arguments: &[String]) -> Result<Tally, Failure> {
    let Some((outside, arguments)) = arguments.split_first() else {
        return Err(Failure::Usage(format!("{INSIDE} is called by conform only")));
    };
    let options = Options::parse(arguments)?;
    let suite = find(&options.suite)?;
    let room = Room::furnish(outside, &format!("{}-{}", suite.name, options.on.name()))?;
    let tally = (suite.run)(&room, &options)?;
    if tally.failed > 0 {
        println!("logs: {}", room.logs.display());
    }
    Ok(tally)
}

/// Lets `suite` judge a new file system, as `options` say. That it can be unmounted, and that it is
/// consistent then, counts as well.
fn judged(
    room: &Room,
    options: &Options,
    suite: impl FnOnce(&mut dyn Target) -> Result<Tally, Failure>,
) -> Result<Tally, Failure> {
    let mut target = options.on.target(room, options, options.on.name())?;
    target.make()?;
    // Whatever has happened, the end may tell more.
    let mut tally = suite(target.as_mut()).unwrap_or_else(|failure| {
        println!("FAILED: {}", failure.text());
        Tally::one(false)
    });
    tally += ended(target.as_mut());
    Ok(tally)
}

/// Lets `suite` compare a new file system, as `options` say, with a new ext4. The ends of both
/// count as well.
fn compared(
    room: &Room,
    options: &Options,
    suite: impl FnOnce(&mut dyn Target, &mut dyn Target) -> Result<Tally, Failure>,
) -> Result<Tally, Failure> {
    judged(room, options, |target| {
        let mut reference = Kind::Ext4.target(room, options, "reference")?;
        reference.make()?;
        let mut tally = suite(target, reference.as_mut())?;
        tally += ended(reference.as_mut());
        Ok(tally)
    })
}

/// Unmounts and checks a file system: one case.
fn ended(target: &mut dyn Target) -> Tally {
    let destroyed = target.destroy();
    if let Err(failure) = &destroyed {
        println!("the end of {}: FAILED: {}", target.directory().display(), failure.text());
    }
    Tally::one(destroyed.is_ok())
}

/// A file of the suites' own, in the clone.
fn data(name: &str) -> PathBuf {
    tree::root().join("xtask/conform").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_does_not_exist_is_refused() {
        let asked = ["no-such-suite".to_owned()];
        assert!(matches!(run(&asked), Err(Failure::Usage(what)) if what.contains("pjdfstest")));
        assert!(matches!(run(&[]), Err(Failure::Usage(_))));
    }
}
