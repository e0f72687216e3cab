//! The six metadata phases of Bonnie++ (MB 7): empty files in many directories, made, looked at and
//! deleted, by the calls that the program makes, as strace shows them.
//!
//! Files are made one directory after the other, with the number of each in its name. In order, it
//! stands at the beginning, and whoever looks at files or deletes them lists their directory first;
//! at random, letters stand before it, and an order of its own goes through all directories.
//!
//! Left out, because no file system is asked about a file by it: the program goes into a directory
//! instead of naming it in each path, reads the clock for each file, and ends creation and deletion
//! by sync(2), which is about all file systems of the machine.

use std::ffi::CString;
use std::hint::black_box;

use rustix::fs::OFlags;

use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError, Calls};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;

/// The experiment.
pub(super) struct Bonnie;

pub(super) const PHASES: [Phase; 6] = [
    Phase { id: "create-seq", unit: Unit::Files, part: 0 },
    Phase { id: "stat-seq", unit: Unit::Files, part: 0 },
    Phase { id: "delete-seq", unit: Unit::Files, part: 0 },
    Phase { id: "create-random", unit: Unit::Files, part: 0 },
    Phase { id: "stat-random", unit: Unit::Files, part: 0 },
    Phase { id: "delete-random", unit: Unit::Files, part: 0 },
];

impl Experiment for Bonnie {
    fn id(&self) -> &'static str {
        "bonnie"
    }

    fn about(&self) -> &'static str {
        "empty files, made, looked at and deleted, in order and at random: Bonnie++ (MB 7)"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let (files, directories) = match size {
            Size::Smoke => (256, 16),
            Size::Short | Size::Full => (16 << 10, 1024),
        };
        vec![Parameters::of(&[("files", files), ("directories", directories)])]
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let files = in_range(parameters, "files", 1..=1 << 32)?;
        let directories = in_range(parameters, "directories", 1..=1 << 24)?;
        Ok(Need { bytes: 0, files: files + 2 * directories, ..Need::default() })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let number = |name: &str| run.parameters.get(name);
        let (files, directories) = (number("files"), number("directories").min(number("files")));
        let directories: Vec<CString> =
            (0..directories).map(|at| calls::path(&format!("{at:05}"))).collect();
        for directory in &directories {
            run.calls.mkdir(directory)?;
        }
        for is_random in [false, true] {
            let names = Names::new(&directories, files, is_random, &mut run.random);
            for phase in PHASES.iter().filter(|one| one.id.ends_with("random") == is_random) {
                let [create, look] = ["create", "stat"].map(|start| phase.id.starts_with(start));
                // What is found by luck is found by all alike: each phase has an order of its own.
                let orders = names.orders(is_random && !create, &mut run.random);
                let mut watch = run.begin();
                let calls = &mut *run.calls;
                for (directory, paths) in &orders {
                    if let Some(directory) = directory.filter(|_| !create) {
                        black_box(calls.list(directory)?);
                    }
                    for path in paths {
                        match (create, look) {
                            (true, _) => make(calls, path)?,
                            (_, true) => {
                                black_box(calls.stat(path)?);
                            }
                            _ => calls.unlink(path)?,
                        }
                        watch.did(1);
                    }
                }
                run.end(phase.id, watch);
            }
        }
        Ok(())
    }
}

fn make(calls: &mut dyn Calls, path: &CString) -> Result<(), CallError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = calls.open(path, flags)?;
    calls.close(file)
}

/// Paths of files, by directory.
struct Names<'d>(Vec<(&'d CString, Vec<CString>)>);

/// Paths in the order in which they are used; with a directory, that is listed before.
type Orders<'n> = Vec<(Option<&'n CString>, Vec<&'n CString>)>;

/// At most so many letters stand in a name.
const LETTERS_MAX: u64 = 12;
/// Letters of names.
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

impl<'d> Names<'d> {
    /// Of so many files, shared out evenly, with their letters first if they are used at random.
    fn new(
        directories: &'d [CString],
        files: u64,
        is_random: bool,
        random: &mut Random,
    ) -> Names<'d> {
        let count = directories.len() as u64;
        let first = |at: usize| (u128::from(files) * at as u128).div_ceil(u128::from(count)) as u64;
        let of = |(at, directory): (usize, &'d CString)| {
            let place = directory.to_string_lossy();
            let path = |file: u64| {
                let letters = letters(random);
                calls::path(&match is_random {
                    true => format!("{place}/{letters}{file:010x}"),
                    false => format!("{place}/{file:010x}{letters}"),
                })
            };
            (directory, (first(at)..first(at + 1)).map(path).collect())
        };
        Names(directories.iter().enumerate().map(of).collect())
    }

    /// The order of a phase.
    fn orders(&self, is_shuffled: bool, random: &mut Random) -> Orders<'_> {
        let by_directory = self.0.iter().map(|(place, paths)| (Some(*place), paths.iter()));
        if !is_shuffled {
            return by_directory.map(|(place, paths)| (place, paths.collect())).collect();
        }
        let mut all: Vec<&CString> = by_directory.flat_map(|(_, paths)| paths).collect();
        random.shuffle(&mut all);
        vec![(None, all)]
    }
}

fn letters(random: &mut Random) -> String {
    let letter = |number: u64| LETTERS.get(number as usize).copied().map_or('x', char::from);
    (0..random.below(LETTERS_MAX + 1)).map(|_| letter(random.below(LETTERS.len() as u64))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_used_once_in_each_order() {
        let directories: Vec<CString> = ["00000", "00001", "00002"].map(calls::path).into();
        let mut random = Random::new(7);
        let names = Names::new(&directories, 100, true, &mut random);
        assert_eq!(names.0.iter().map(|(_, paths)| paths.len()).sum::<usize>(), 100);
        for (directory, paths) in &names.0 {
            assert!((33..=34).contains(&paths.len()));
            let is_in = |path: &CString| path.to_bytes().starts_with(directory.to_bytes());
            assert!(paths.iter().all(is_in));
        }
        let [plain, shuffled] = [false, true].map(|is_shuffled| {
            let orders = names.orders(is_shuffled, &mut random);
            let all: Vec<&CString> = orders.iter().flat_map(|(_, paths)| paths.clone()).collect();
            (orders.len(), all)
        });
        assert_eq!((plain.0, shuffled.0), (3, 1));
        assert_ne!(plain.1, shuffled.1);
        let sorted = |all: Vec<&'_ CString>| -> std::collections::BTreeSet<CString> {
            all.into_iter().cloned().collect()
        };
        assert_eq!(sorted(plain.1.clone()).len(), 100);
        assert_eq!(sorted(plain.1), sorted(shuffled.1));
        // At the beginning there are letters, and the number behind them.
        let name = names.0[2].1[33 - 1].to_str().unwrap();
        assert!(name.ends_with("0000000063"), "{name}");
    }
}
