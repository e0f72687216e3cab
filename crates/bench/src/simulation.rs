//! Counting the instructions of a process that measures, and what misses the caches, in a simulated
//! processor: by callgrind, where no processor counts them for us. Never timed.
//!
//! The process says what belongs to a phase by *marks*, as it does to who counts its system calls
//! (see [`crate::trace`]); here they are functions that are called. What the process's memory holds
//! is what it would hold otherwise, but it runs some fifty times as slowly.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::machine::caches::Caches;
use crate::{Error, Result, program};

/// The simulator, and the Debian package that has it.
pub const SIMULATOR: (&str, &str) = ("valgrind", "valgrind");
/// Functions that are marks: the counts begin with the first one, are told at the second one, and
/// told once more, to be forgotten, at the third one.
const MARKS: [&str; 3] = ["trace::mark_begin", "trace::mark_end", "trace::mark_kept"];
/// Bytes of a line, and lines of a set, of the simulated last cache.
const LAST: [u64; 2] = [64, 16];

/// What was done in a simulated processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Simulated {
    /// Instructions outside of the kernel.
    pub instructions: u64,
    /// Loads and stores that the first cache did not hold.
    pub first_misses: u64,
    /// Those of them that the last one did not hold either.
    pub last_misses: u64,
}

/// A directory for what it tells, which goes with this value.
pub(crate) struct Simulation {
    directory: PathBuf,
}

impl Simulation {
    /// In the new directory `directory`, which is `owner`'s, as who it works then.
    ///
    /// # Errors
    /// If there is no such simulator; what the system says.
    pub(crate) fn new(directory: PathBuf, owner: Option<(u32, u32)>) -> Result<Simulation> {
        let (name, package) = SIMULATOR;
        if !program::exists(name) {
            let reason = format!("it is not installed (install the package {package})");
            return Err(Error::Target { target: name.into(), reason });
        }
        let named = || Error::system(&directory.display().to_string());
        std::fs::create_dir(&directory).map_err(named())?;
        let simulation = Simulation { directory: directory.clone() };
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(&directory, Some(user), Some(group)).map_err(named())?;
        }
        Ok(simulation)
    }

    /// What runs `program` in it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        // Compilers may add to their names.
        let [begin, end, kept] = MARKS.map(|mark| format!("*{mark}*"));
        let last = Caches::visible().unwrap_or_default().last();
        // It takes powers of two only.
        let last = (last / 2 + 1).next_power_of_two().max(LAST[0] * LAST[1]);
        let mut command = Command::new(SIMULATOR.0);
        command.env("PATH", program::path());
        // Its pipes for debuggers would be left behind by who gives up what root has.
        command.args(["-q", "--vgdb=no", "--tool=callgrind", "--cache-sim=yes"]);
        command.arg(format!("--LL={last},{},{}", LAST[1], LAST[0]));
        command.arg(format!("--zero-before={begin}"));
        command.args([end, kept].map(|mark| format!("--dump-before={mark}")));
        command.arg(format!("--callgrind-out-file={}", self.told(0).display()));
        command.arg(program);
        command
    }

    /// Where its part `part` is told; the last one has no number.
    fn told(&self, part: usize) -> PathBuf {
        match part {
            0 => self.directory.join("told"),
            part => self.directory.join(format!("told.{part}")),
        }
    }

    /// What was counted of each phase, in order; none of phases that several threads worked in,
    /// each of which would forget what the others did.
    pub(crate) fn counts(&self) -> Vec<Option<Simulated>> {
        let mut phases = Vec::new();
        let mut open = Vec::new();
        for part in 1.. {
            let Ok(text) = std::fs::read_to_string(self.told(part)) else { break };
            match Part::of(&text) {
                Some(Part::End(counted)) => open.push(counted),
                Some(Part::Kept) => {
                    phases.push(if let [one] = open.as_slice() { Some(*one) } else { None });
                    open.clear();
                }
                None => {}
            }
        }
        phases
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // Nobody is left who could be told.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What it tells at a mark.
#[derive(PartialEq, Debug)]
enum Part {
    End(Simulated),
    Kept,
}

impl Part {
    fn of(text: &str) -> Option<Part> {
        let line = |head: &str| text.lines().find_map(|line| line.strip_prefix(head));
        let is_of = |mark: &str| line("desc: Trigger: ").is_some_and(|why| why.contains(mark));
        if is_of(MARKS[2]) {
            return Some(Part::Kept);
        }
        let names: Vec<&str> = line("events: ")?.split(' ').collect();
        // Zeros at its end are left out.
        let mut numbers: Vec<u64> =
            line("summary: ")?.split(' ').filter_map(|word| word.parse().ok()).collect();
        numbers.resize(names.len(), 0);
        let sum = |wanted: &[&str]| {
            let counted = names.iter().zip(&numbers).filter(|(name, _)| wanted.contains(name));
            counted.map(|(_, number)| number).sum()
        };
        let counted = Simulated {
            instructions: sum(&["Ir"]),
            first_misses: sum(&["D1mr", "D1mw"]),
            last_misses: sum(&["DLmr", "DLmw"]),
        };
        is_of(MARKS[1]).then_some(Part::End(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n";

    fn part(mark: &str, summary: &str) -> String {
        let why = format!("desc: Trigger: --dump-before=conquest_bench::{mark}");
        format!("part: 1\n{why}\n{EVENTS}summary: {summary}\n")
    }

    #[test]
    fn what_it_tells_is_understood() {
        let all = part(MARKS[1], "65554 4 16387 1 7 16385 1 3 16384");
        let counted = Simulated { instructions: 65_554, first_misses: 16_392, last_misses: 16_387 };
        assert_eq!(Part::of(&all), Some(Part::End(counted)));
        let short = Simulated { instructions: 402, first_misses: 0, last_misses: 0 };
        assert_eq!(Part::of(&part(MARKS[1], "402 81 80")), Some(Part::End(short)));
        assert_eq!(Part::of(&part(MARKS[2], "1 2")), Some(Part::Kept));
        let end = format!("desc: Trigger: Program termination\n{EVENTS}summary: 1\n");
        assert_eq!((Part::of(&end), Part::of("")), (None, None));
    }

    #[test]
    fn phases_of_several_threads_are_not_counted() {
        let directory = std::env::temp_dir().join(format!("simulation-{}", std::process::id()));
        let simulation = Simulation { directory: directory.clone() };
        std::fs::create_dir(&directory).unwrap();
        let (end, kept) = (part(MARKS[1], "5"), part(MARKS[2], "1"));
        for (number, text) in
            [&end, &kept, &end, &end, &kept, &kept, &end, &kept].iter().enumerate()
        {
            std::fs::write(simulation.told(number + 1), text).unwrap();
        }
        let instructions: Vec<Option<u64>> =
            simulation.counts().iter().map(|one| one.map(|one| one.instructions)).collect();
        assert_eq!(instructions, [Some(5), None, None, Some(5)]);
        drop(simulation);
        assert!(!directory.exists());
    }
}
