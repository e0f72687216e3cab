//! Our loop and the one in plain C (`crates/bench/comparators/loop.c`), by the whole method: random
//! order, warm-up, clean caches, and disturbed runs repeated.

use std::path::PathBuf;

use conquest_bench::parameters::Parameters;
use conquest_bench::results::Found;
use conquest_bench::runner::{self, Plan, Wanted, Watcher};
use conquest_bench::target::{Kind, Name, Room};
use conquest_bench::{Result, experiment};

use crate::Settings;
use crate::judgement::{Bound, Judgement};

const BOUND: Bound = Bound::Within(0.05);

/// The experiments, in phases of ten milliseconds and more.
fn experiments() -> [(&'static str, Vec<Parameters>); 2] {
    let sprite = Parameters::of(&[("files", 20_000), ("bytes", 1024), ("directories", 200)]);
    let transfers =
        [(1 << 10, 2), (4 << 10, 4), (64 << 10, 4), (1 << 20, 4)].map(|(size, passes)| {
            Parameters::of(&[
                ("request", size),
                ("threads", 1),
                ("bytes", 64 << 20),
                ("passes", passes),
                ("look", 1),
            ])
        });
    [("sprite-small", vec![sprite]), ("throughput", transfers.to_vec())]
}

/// Compares them.
pub(crate) fn compare(settings: &Settings, room: &Room, judged: &mut Judgement) -> Result<()> {
    let chosen = experiments().into_iter().filter(|(name, _)| settings.wants(name));
    let experiments: Vec<_> =
        chosen.filter_map(|(name, points)| Some((experiment::find(name)?, points))).collect();
    if experiments.is_empty() {
        return Ok(());
    }
    let name = Name::Kernel(Kind::Ramfs);
    let by = |worker: Option<&PathBuf>, label: &str| Wanted {
        name: name.clone(),
        delay: 0.0,
        worker: worker.cloned(),
        label: label.to_owned(),
    };
    let targets = vec![by(Some(&settings.plain), "plain C"), by(None, "ours")];
    let plan = Plan { experiments, targets, ..settings.plan() };
    println!("our rate to that of plain C, on ramfs, {} rounds:", plan.rounds);
    let outcome = runner::run(&plan, Some(room), &mut Told { judged })?;
    for failure in &outcome.failures {
        println!("  {failure}");
        judged.fail();
    }
    Ok(())
}

/// Judges each experiment when it is done.
struct Told<'j> {
    judged: &'j mut Judgement,
}

impl Watcher for Told<'_> {
    fn progress(&mut self, _: usize, _: usize) {}

    fn note(&mut self, text: &str) {
        println!("  {text}");
    }

    fn found(&mut self, all: &[Found]) {
        if let Some(first) = all.first() {
            println!(" {}: {}", first.experiment, first.parameters);
        }
        for found in all {
            if let [plain, ours] = found.rows.as_slice() {
                let pairs = ours.samples.iter().zip(&plain.samples);
                let ratios: Vec<f64> = pairs
                    .filter_map(|(ours, plain)| Some(ours.as_ref()?.rate / plain.as_ref()?.rate))
                    .collect();
                self.judged.line(found.phase.id, &ratios, BOUND);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        false
    }
}
