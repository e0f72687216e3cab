//! Whether the method errs: targets that are the same, and one that is made slower.
//!
//! Each trial compares a ramfs with another ramfs, and with one whose every batch is made longer by
//! doing nothing. How often the first two are called different, and how often the third one is not,
//! is what the method is worth with these settings on this machine.

use conquest_bench::parameters::Parameters;
use conquest_bench::results::Found;
use conquest_bench::runner::{self, Plan, Wanted, Watcher};
use conquest_bench::statistics::Verdict;
use conquest_bench::target::Room;
use conquest_bench::{Result, experiment};

use crate::Settings;
use crate::judgement::Judgement;

/// Comparisons of targets that are the same, and of one that is slower.
const SAME: usize = 100;
const SLOWER: usize = 50;
/// So many of the first may be called different: the interval leaves a tenth outside.
const FALSE_MAX: usize = 10;
/// So many of the others have to be.
const FOUND_MIN: usize = 45;
/// By how much they are slower.
const SLOWED: &str = "ramfs+5%";
/// Rounds of a trial, unless told otherwise: with so many 5 % are found.
const ROUNDS: usize = 24;
const EXPERIMENT: &str = "sprite-small";
/// So many files that the shortest phase lasts for some turns.
const FILES: u64 = 20_000;

/// Tries it.
pub(crate) fn compare(settings: &Settings, room: &Room, judged: &mut Judgement) -> Result<()> {
    if !settings.wants("trial") {
        return Ok(());
    }
    let Some(experiment) = experiment::find(EXPERIMENT) else { return Ok(()) };
    let parameters = Parameters::of(&[("files", FILES), ("bytes", 1024), ("directories", 200)]);
    let rounds = settings.rounds.unwrap_or(ROUNDS);
    println!("trials of the method: {EXPERIMENT}, {parameters}, {rounds} rounds:");
    let (mut same, mut slower) = (Vec::new(), Vec::new());
    for seed in 1.. {
        if same.len() >= SAME && slower.len() >= SLOWER {
            break;
        }
        let wanted = |word: &str| Wanted::parse(word);
        let mut targets: Vec<Wanted> = ["ramfs", "ramfs"].into_iter().filter_map(wanted).collect();
        if let Some(second) = targets.get_mut(1) {
            second.label = "ramfs#2".into();
        }
        if slower.len() < SLOWER {
            targets.extend(wanted(SLOWED));
        }
        let plan = Plan {
            experiments: vec![(experiment, vec![parameters.clone()])],
            targets,
            rounds,
            seed,
            ..settings.plan()
        };
        let outcome = runner::run(&plan, Some(room), &mut Silent)?;
        for found in &outcome.found {
            count(found, &mut same, &mut slower);
        }
    }
    same.truncate(SAME);
    slower.truncate(SLOWER);
    let different = |verdicts: &[Verdict]| {
        verdicts.iter().filter(|verdict| **verdict != Verdict::NotSignificant).count()
    };
    let wrong = different(&same);
    let seen = slower.iter().filter(|verdict| **verdict == Verdict::Slower).count();
    judged.claim(
        &format!("{wrong} of {SAME} of the same kind called different, at most {FALSE_MAX}"),
        wrong <= FALSE_MAX,
    );
    judged.claim(
        &format!("{seen} of {SLOWER} that are 5 % slower called slower, at least {FOUND_MIN}"),
        seen >= FOUND_MIN,
    );
    Ok(())
}

/// The verdicts of one phase, each with a line.
fn count(found: &Found, same: &mut Vec<Verdict>, slower: &mut Vec<Verdict>) {
    let Some((base, others)) = found.rows.split_first() else { return };
    for row in others {
        let Some((ratio, verdict)) = row.against(base) else { continue };
        let [value, low, high] = [ratio.value, ratio.low, ratio.high];
        let (phase, target) = (found.phase.id, &row.target);
        println!("  {phase:<8}{target:<10}{value:.3} [{low:.3}, {high:.3}] {verdict}");
        match target == SLOWED {
            true => slower.push(verdict),
            false => same.push(verdict),
        }
    }
}

struct Silent;

impl Watcher for Silent {
    fn progress(&mut self, _: usize, _: usize) {}

    fn note(&mut self, text: &str) {
        println!("  {text}");
    }

    fn found(&mut self, _: &[Found]) {}

    fn is_stopped(&self) -> bool {
        false
    }
}
