//! Our experiments and the programs that they are after, with the same numbers, in turn.
//!
//! Programs tell one rate for all of a phase, so ours is that of all of it, too: no warm-up is left
//! out, and the caches are what they are.

use conquest_bench::experiment::Measured;
use conquest_bench::parameters::Parameters;
use conquest_bench::process;
use conquest_bench::random::Random;
use conquest_bench::target::{Kind, Making, Name, Room, Target, target};
use conquest_bench::worker::{Answer, Purpose, Request};
use conquest_bench::{Error, Result, experiment, program};

use crate::judgement::{Bound, Judgement};
use crate::{LIMIT, Settings, USER};

const BOUND: f64 = 0.1;

/// An experiment with its parameters.
struct Side {
    experiment: &'static str,
    parameters: Parameters,
}

/// Ours and theirs.
struct Pair {
    about: String,
    ours: Side,
    theirs: Side,
    bound: Bound,
}

/// PostMark: so many transactions that starting it and making directories is nothing, and so few
/// files that its table of them, which it probes at random, is in the caches.
///
/// With the C library's streams it makes two calls more for most files than ours.
fn postmark(buffering: u64) -> Pair {
    let numbers = [("files", 2000), ("transactions", 100_000), ("low", 512), ("high", 16 << 10)];
    let (how, bound) = match buffering {
        1 => ("streams of the C library", Bound::NotSlower(BOUND)),
        _ => ("plain calls", Bound::Within(BOUND)),
    };
    Pair {
        about: format!("all, {how}"),
        ours: Side { experiment: "postmark", parameters: Parameters::of(&numbers) },
        theirs: Side {
            experiment: "program-postmark",
            parameters: Parameters::of(&[&numbers[..], &[("buffering", buffering)]].concat()),
        },
        bound,
    }
}

/// Bonnie++: so many files that a phase takes some tenths of a second.
fn bonnie() -> Pair {
    const KIBIFILES: u64 = 256;
    let numbers = |files| Parameters::of(&[files, ("directories", 1024)]);
    Pair {
        about: String::new(),
        ours: Side { experiment: "bonnie", parameters: numbers(("files", KIBIFILES << 10)) },
        theirs: Side {
            experiment: "program-bonnie",
            parameters: numbers(("kibifiles", KIBIFILES)),
        },
        bound: Bound::Within(BOUND),
    }
}

/// fio, by its rate, or by how long it says that a transfer took.
fn fio(request: u64, latency: u64, bound: Bound) -> Pair {
    let numbers = [("request", request), ("threads", 1), ("bytes", 64 << 20), ("passes", 20)];
    let with = |more: &[(&str, u64)]| Parameters::of(&[&numbers[..], more].concat());
    let by = if latency == 1 { ", by its latency" } else { "" };
    Pair {
        about: format!("{} KiB{by}", request >> 10),
        ours: Side { experiment: "throughput", parameters: with(&[("look", 0)]) },
        theirs: Side {
            experiment: "program-fio",
            parameters: with(&[("latency", latency), ("mapped", 0)]),
        },
        bound,
    }
}

fn all() -> Vec<Pair> {
    let within = Bound::Within(BOUND);
    // A fifth of fio's time is its own there, and what it does in between makes calls slower.
    let faster = Bound::NotSlower(BOUND);
    vec![
        postmark(0),
        postmark(1),
        bonnie(),
        fio(1 << 20, 0, within),
        fio(64 << 10, 0, within),
        fio(4 << 10, 1, faster),
        fio(4 << 10, 0, faster),
    ]
}

/// Compares all that are wanted.
pub(crate) fn compare(settings: &Settings, room: &Room, judged: &mut Judgement) -> Result<()> {
    let making = Making { program: settings.program.clone(), disk: "/var/tmp".into() };
    let mut ramfs = target(&Name::Kernel(Kind::Ramfs), &making, LIMIT, Some(room))?;
    let mut is_first = true;
    for pair in all().iter().filter(|pair| settings.wants(pair.theirs.experiment)) {
        if std::mem::take(&mut is_first) {
            println!("our rate to that of a program, on ramfs, {} rounds:", settings.rounds());
        }
        println!(" {}: {}", pair.theirs.experiment, pair.theirs.parameters);
        if let Err(error) = pair.judge(settings, &mut *ramfs, judged) {
            println!("  {error}");
            judged.fail();
        }
    }
    Ok(())
}

impl Pair {
    /// All rounds; the first one is for warming up.
    fn judge(
        &self,
        settings: &Settings,
        ramfs: &mut dyn Target,
        judged: &mut Judgement,
    ) -> Result<()> {
        let mut rounds = Vec::new();
        for round in 0..=settings.rounds() as u64 {
            let is_ours_first = Random::new(round).below(2) == 0;
            let mut first = [&self.ours, &self.theirs];
            if !is_ours_first {
                first.reverse();
            }
            let mut done = Vec::new();
            for side in first {
                done.push(side.rates(settings, ramfs, round)?);
            }
            if !is_ours_first {
                done.reverse();
            }
            if let (1.., [ours, theirs]) = (round, done.as_slice()) {
                rounds.push((ours.clone(), theirs.clone()));
            }
        }
        let theirs = self.theirs.find()?;
        for phase in theirs.phases() {
            let of =
                |rates: &Rates| rates.iter().find(|(name, _)| name == phase.id).map(|one| one.1);
            let ratios: Vec<f64> =
                rounds.iter().filter_map(|(ours, theirs)| Some(of(ours)? / of(theirs)?)).collect();
            let name = if self.about.is_empty() || phase.id == "all" {
                format!("{}{}", self.about, if phase.id == "all" { "" } else { phase.id })
            } else {
                format!("{}, {}", phase.id, self.about)
            };
            judged.line(&name, &ratios, self.bound);
        }
        Ok(())
    }
}

/// Rates by phases.
type Rates = Vec<(String, f64)>;

impl Side {
    fn find(&self) -> Result<&'static dyn experiment::Experiment> {
        let found = experiment::find(self.experiment);
        let failed = |reason: String| Error::Target { target: self.experiment.into(), reason };
        let found = found.ok_or_else(|| failed("no such experiment".into()))?;
        match found.program() {
            Some((name, package)) if !program::exists(name) => {
                Err(failed(format!("there is no {name} (install the package {package})")))
            }
            _ => Ok(found),
        }
    }

    /// One run on a file system of its own.
    fn rates(&self, settings: &Settings, ramfs: &mut dyn Target, round: u64) -> Result<Rates> {
        let need = self
            .find()?
            .need(&self.parameters)
            .map_err(|reason| Error::Target { target: self.experiment.into(), reason })?;
        // Bonnie++ calls sync(2) within its phases: what others have left is none of its work.
        rustix::fs::sync();
        ramfs.make(need, Some(USER))?;
        let request = Request {
            answering: ramfs.answering(),
            experiment: self.experiment.into(),
            part: 0,
            beside: None,
            takes_turns: false,
            parameters: self.parameters.clone(),
            seed: round,
            user: Some(USER),
            processor: settings.processor,
            sweep: 0,
            delay: 0.0,
            purpose: Purpose::Time,
        };
        let done = process::run(&settings.program, &request, LIMIT, &|| false);
        ramfs.remove()?;
        match done? {
            Answer::Done { measured, .. } => Ok(rates(&measured)),
            Answer::Failed(reason) => Err(Error::Target { target: self.experiment.into(), reason }),
        }
    }
}

/// The rate of each phase, with nothing left out; and of all, if it is a PostMark of ours.
fn rates(measured: &[Measured]) -> Rates {
    let sums = |one: &Measured| {
        let units: u64 = one.batches.iter().map(|batch| batch.units).sum();
        let nanoseconds: u64 = one.batches.iter().map(|batch| batch.nanoseconds).sum();
        (units as f64, nanoseconds as f64)
    };
    let each = measured.iter().map(|one| {
        let (units, nanoseconds) = sums(one);
        (one.phase.clone(), units * 1e9 / nanoseconds)
    });
    let of = |phase: &str| measured.iter().find(|one| one.phase == phase).map(sums);
    let whole = || {
        let [created, changed, deleted] = [of("create")?, of("transactions")?, of("delete")?];
        Some(("all".to_owned(), changed.0 * 1e9 / (created.1 + changed.1 + deleted.1)))
    };
    each.chain(whole()).collect()
}

#[cfg(test)]
mod tests {
    use conquest_bench::machine::disturbance::Disturbance;
    use conquest_bench::stopwatch::Batch;

    use super::*;

    #[test]
    fn pairs_name_experiments_and_phases_that_there_are() {
        for pair in all() {
            for side in [&pair.ours, &pair.theirs] {
                let found = experiment::find(side.experiment).unwrap();
                found.need(&side.parameters).unwrap();
                let points = found.points(experiment::Size::Smoke, &Default::default());
                let names = |all: &Parameters| all.iter().map(|one| one.0.to_owned()).collect();
                let (wanted, has): (Vec<String>, Vec<String>) =
                    (names(&side.parameters), names(&points[0]));
                assert_eq!(wanted, has, "{}", side.experiment);
            }
        }
    }

    #[test]
    fn rates_are_of_all_that_was_done() {
        let phase = |phase: &str, units, nanoseconds| Measured {
            phase: phase.into(),
            began: 0,
            batches: vec![Batch { units, nanoseconds }; 2],
            disturbance: Disturbance::default(),
            whole: None,
            amount: None,
        };
        let found = rates(&[
            phase("create", 10, 1_000_000_000),
            phase("transactions", 40, 2_000_000_000),
            phase("read", 7, 2_000_000_000),
            phase("delete", 10, 1_000_000_000),
        ]);
        assert_eq!(found.first(), Some(&("create".to_owned(), 10.0)));
        assert_eq!(found.last(), Some(&("all".to_owned(), 10.0)));
        assert_eq!(rates(&[phase("read-seq", 5, 1_000_000_000)]).len(), 1);
    }
}
