//! What `cargo xtask conform` is asked for.

use std::path::PathBuf;

use super::target::Kind;
use crate::Failure;

/// Operations of each run of fsx.
const OPERATIONS: u64 = 100_000;
/// Runs of fsx.
const SEEDS: u64 = 10;
/// Seconds for each stressor, and for programs at work before the power is cut.
const SECONDS: u64 = 20;
/// Power cuts of each case.
const CUTS: u64 = 200;

/// What was asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) suite: String,
    /// The file system that is judged.
    pub(super) on: Kind,
    pub(super) seeds: u64,
    pub(super) operations: u64,
    pub(super) seconds: u64,
    /// Power cuts of each case, and what says where.
    pub(super) cuts: u64,
    pub(super) seed: u64,
    /// One cut that has failed: where its record is, and which it was.
    pub(super) replay: Option<String>,
    /// Seconds for which the smoke test leaves the file system mounted, to be looked at.
    pub(super) hold: u64,
    /// Whether the short variant is enough.
    pub(super) is_quick: bool,
    /// Parts of names of cases, one of which a case has; all cases if empty.
    pub(super) only: Vec<String>,
    /// Options of `conquest mount`, added to those that suites need.
    pub(super) mount: Vec<String>,
    /// A built tree of xfstests.
    pub(super) xfstests: Option<PathBuf>,
    /// The program `conquest` to judge; the workspace's own is built if none is named.
    pub(super) program: Option<PathBuf>,
}

impl Options {
    /// Understands `arguments`: a suite and options.
    pub(super) fn parse(arguments: &[String]) -> Result<Options, Failure> {
        let mut options = Options {
            suite: String::new(),
            on: Kind::Conquest,
            seeds: SEEDS,
            operations: OPERATIONS,
            seconds: SECONDS,
            cuts: CUTS,
            seed: 1,
            replay: None,
            hold: 0,
            is_quick: false,
            only: Vec::new(),
            mount: Vec::new(),
            xfstests: None,
            program: None,
        };
        let usage = |what: String| Failure::Usage(format!("conform: {what}"));
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                let value = rest.next().cloned();
                value.ok_or_else(|| usage(format!("{argument} needs a value")))
            };
            let number = |value: String| match value.parse::<u64>() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(usage(format!("{argument}: {value:?} is no positive number"))),
            };
            match argument.as_str() {
                "--on" => options.on = Kind::parse(&value()?)?,
                "--seeds" => options.seeds = number(value()?)?,
                "--operations" => options.operations = number(value()?)?,
                "--seconds" => options.seconds = number(value()?)?,
                "--cuts" => options.cuts = number(value()?)?,
                "--seed" => options.seed = number(value()?)?,
                "--replay" => options.replay = Some(value()?),
                "--hold" => options.hold = number(value()?)?,
                "--quick" => options.is_quick = true,
                "--only" => options.only.push(value()?),
                "--mount-option" => options.mount.push(value()?),
                "--program" => options.program = Some(value()?.into()),
                "--xfstests" => options.xfstests = Some(value()?.into()),
                other if options.suite.is_empty() && !other.starts_with('-') => {
                    other.clone_into(&mut options.suite);
                }
                other => return Err(usage(format!("unexpected argument {other:?}"))),
            }
        }
        Ok(options)
    }

    /// Whether the case `name` was asked for.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_are_understood() {
        let options = parse("fsx --on ext4 --seeds 3 --quick --only git --only tar").unwrap();
        assert_eq!((options.suite.as_str(), options.on), ("fsx", Kind::Ext4));
        assert_eq!((options.seeds, options.operations), (3, OPERATIONS));
        assert!(options.is_quick);
        assert!(options.wants("a git case"));
        assert!(!options.wants("sqlite"));
        assert!(parse("fsx").unwrap().wants("anything"));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["fsx --seeds", "fsx --seeds none", "fsx --on ramfs", "fsx --what", "fsx fsx"] {
            assert!(matches!(parse(line), Err(Failure::Usage(_))), "{line}");
        }
    }
}
