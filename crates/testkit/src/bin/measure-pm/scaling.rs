//! Whether two processes on one region are as fast as on a region each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use conquest_format::Offset;
use conquest_pm::persist::Request;
use conquest_pm::{Mode, Ptr, Region};
use conquest_testkit::Rng;

use crate::Plan;
use crate::arena::{Arena, Middle, PAGES, lock, root, text};
use crate::os::child::Child;
use crate::os::memory::Shared;
use crate::os::processors;
use crate::report::{Report, Value, named};
use crate::stats::{mean_interval, summary};

/// How long a run is.
const RUN: Duration = Duration::from_millis(100);
/// Pairs of runs made by the same two processes on the same regions.
const ROUND: u64 = 5;
/// Groups of each region: 32 MiB.
const GROUPS: u64 = 16;
/// What two processes on one region reach at least, of what they reach on two.
const TARGET: f64 = 0.9;
/// Operations between two looks at the clock.
const GLANCE: u64 = 32;
/// Objects that each process has at any time.
const OBJECTS: u64 = 8;
/// One object in so many has a run of pages too.
const RUNS: u64 = 8;

// Words that the processes share, each in a line of its own.
const COMMAND: usize = 0;
const NUMBER: usize = 16;
const READY: usize = 32;
const RESULTS: usize = 64;

const QUIT: u64 = 1;
const ON_ONE: u64 = 2;
const ON_TWO: u64 = 3;
const ALONE: u64 = 4;

/// A process at work: allocates and frees on its regions, as commanded.
struct Worker {
    actor: u32,
    /// The region that both use, and its own.
    regions: [Arc<Region>; 2],
    /// What it has allocated there.
    held: [Vec<(Ptr<Middle>, Option<Offset>)>; 2],
    turn: u64,
}

impl Worker {
    fn operate(&mut self, which: usize) -> conquest_pm::Result<()> {
        self.turn += 1;
        let (core, held) = (&self.regions[which], &mut self.held[which]);
        let index = self.turn % OBJECTS;
        if held.len() as u64 == OBJECTS {
            let (object, run) = held.remove(0);
            core.run(|tx| {
                tx.lock(lock(self.actor, 0), Mode::Exclusive)?;
                if let Some(run) = run {
                    tx.free_run(run, 1, PAGES)?;
                }
                tx.free(object)
            })?;
        }
        let with_run = self.turn.is_multiple_of(RUNS);
        let made = core.run(|tx| {
            tx.lock(lock(self.actor, 0), Mode::Exclusive)?;
            let fresh = tx.alloc::<Middle>()?;
            tx.fill_word(&fresh, 0, index)?;
            let object = tx.seal(fresh);
            let mut run = None;
            if with_run {
                let fresh = tx.alloc_run(PAGES, 1, None)?;
                run = Some(tx.finish_run(fresh));
            }
            tx.set(root(self.actor, index), object.word())?;
            Ok((object, run))
        })?;
        held.push(made);
        Ok(())
    }

    /// Operations a second during one run.
    fn work(&mut self, which: usize) -> Result<f64, String> {
        let since = Instant::now();
        let mut done = 0;
        loop {
            for _ in 0..GLANCE {
                self.operate(which).map_err(text)?;
            }
            done += GLANCE;
            let elapsed = since.elapsed();
            if elapsed >= RUN {
                return Ok(done as f64 / elapsed.as_secs_f64());
            }
        }
    }

    fn serve(&mut self, words: &Shared) -> Result<(), String> {
        let mut seen = 0;
        // Warm: slabs, leases and page tables are there before the first run.
        self.work(0)?;
        self.work(1)?;
        loop {
            words[READY].fetch_add(1, Ordering::SeqCst);
            while words[NUMBER].load(Ordering::SeqCst) == seen {
                std::hint::spin_loop();
            }
            seen = words[NUMBER].load(Ordering::SeqCst);
            let rate = match words[COMMAND].load(Ordering::SeqCst) {
                QUIT => return Ok(()),
                ON_ONE => self.work(0)?,
                ON_TWO => self.work(1)?,
                _ if self.actor == 0 => self.work(0)?,
                _ => {
                    // Not even spinning: the other has the machine for itself.
                    std::thread::sleep(RUN);
                    0.0
                }
            };
            words[RESULTS + 16 * self.actor as usize].store(rate.to_bits(), Ordering::SeqCst);
        }
    }
}

/// Two processes with their regions.
struct Round<'a> {
    words: &'a Shared,
    children: Vec<Child>,
}

impl<'a> Round<'a> {
    fn begin(words: &'a Shared, processors: [usize; 2]) -> Result<Round<'a>, String> {
        for word in words.iter() {
            word.store(0, Ordering::SeqCst);
        }
        let arenas =
            [Arena::new(GROUPS, GROUPS)?, Arena::new(GROUPS, GROUPS)?, Arena::new(GROUPS, GROUPS)?];
        let mut children = Vec::new();
        for (actor, cpu) in processors.into_iter().enumerate() {
            let attach = |arena: &Arena| {
                let core = arena.attach(Request::ByMedium)?;
                core.memory().populate(0..core.geometry().len()).map_err(text)?;
                Ok::<_, String>(core)
            };
            children.push(Child::fork(|| {
                processors::pin(&[cpu])?;
                let regions = [attach(&arenas[0])?, attach(&arenas[1 + actor])?];
                let held = [Vec::new(), Vec::new()];
                Worker { actor: actor as u32, regions, held, turn: 0 }.serve(words)
            })?);
        }
        let round = Round { words, children };
        round.wait_until_ready()?;
        Ok(round)
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        let since = Instant::now();
        while self.words[READY].load(Ordering::SeqCst) < self.children.len() as u64 {
            if since.elapsed() > Duration::from_secs(30) {
                return Err("the processes do not get ready".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Operations a second, of both together.
    fn run(&self, command: u64) -> Result<f64, String> {
        self.words[READY].store(0, Ordering::SeqCst);
        self.words[COMMAND].store(command, Ordering::SeqCst);
        self.words[NUMBER].fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(RUN);
        self.wait_until_ready()?;
        let rate =
            |actor: usize| f64::from_bits(self.words[RESULTS + 16 * actor].load(Ordering::SeqCst));
        Ok(rate(0) + rate(1))
    }

    fn end(self) -> Result<(), String> {
        self.words[COMMAND].store(QUIT, Ordering::SeqCst);
        self.words[NUMBER].fetch_add(1, Ordering::SeqCst);
        self.children.into_iter().try_for_each(Child::finish)
    }
}

/// What was measured.
#[derive(Default)]
struct Found {
    one: Vec<f64>,
    two: Vec<f64>,
    alone: Vec<f64>,
}

impl Found {
    /// Logarithms of the ratios of the pairs.
    fn ratios(&self) -> Vec<f64> {
        self.one.iter().zip(&self.two).map(|(one, two)| (one / two).ln()).collect()
    }

    /// The ratio, and where it is with 90 % confidence.
    fn verdict(&self) -> (f64, f64, f64) {
        let (mean, low, high) = mean_interval(&self.ratios());
        (mean.exp(), low.exp(), high.exp())
    }

    fn add_round(&mut self, rng: &mut Rng, words: &Shared, cpus: [usize; 2]) -> Result<(), String> {
        let round = Round::begin(words, cpus)?;
        for _ in 0..ROUND {
            let one_first = rng.chance(1, 2);
            for one in [one_first, !one_first] {
                let rate = round.run(if one { ON_ONE } else { ON_TWO })?;
                if one { self.one.push(rate) } else { self.two.push(rate) }
            }
        }
        self.alone.push(round.run(ALONE)?);
        round.end()
    }
}

fn huge_pages() -> Result<String, String> {
    let core = Arena::new(GROUPS, GROUPS)?.attach(Request::ByMedium)?;
    core.memory().populate(0..core.geometry().len()).map_err(text)?;
    Ok(core.memory().huge_pages().to_string())
}

/// Runs the experiment.
pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let &[first, second, ..] = plan.processors.as_slice() else {
        return Err(format!("two processors are needed, {} may be used", plan.processors.len()));
    };
    let huge = huge_pages()?;
    report.say(&format!("huge pages: {huge}"));
    report.keep("huge pages", huge.as_str());
    let words = &Shared::new()?;
    let mut rng = Rng::stream(plan.seed, 2);
    let mut found = Found::default();
    let pairs = if plan.quick { 10 } else { 30 };
    // While the interval holds the target, there is no verdict: more pairs, up to four times.
    while found.one.len() < pairs
        || (found.one.len() < 4 * pairs && {
            let (_, low, high) = found.verdict();
            low < TARGET && high >= TARGET
        })
    {
        found.add_round(&mut rng, words, [first, second])?;
    }
    let (ratio, low, high) = found.verdict();
    let [one, two, alone] = [&found.one, &found.two, &found.alone].map(|values| summary(values));
    for (name, rates) in [
        ("two processes on one region", one),
        ("two processes on two regions", two),
        ("one process", alone),
    ] {
        report.say(&format!(
            "{name}: {:.0} operations a second ({:.0}-{:.0}, {} runs of {} ms)",
            rates.median,
            rates.low,
            rates.high,
            rates.count,
            RUN.as_millis()
        ));
        let entry = named([
            ("median operations a second", rates.median.into()),
            ("5 % quantile", rates.low.into()),
            ("95 % quantile", rates.high.into()),
            ("runs", (rates.count as u64).into()),
        ]);
        report.keep(name, entry);
    }
    let ratios: Vec<Value> = found.ratios().iter().map(|ratio| ratio.exp().into()).collect();
    report.keep("ratios of the pairs", ratios);
    let verdict = named([("mean", ratio.into()), ("low", low.into()), ("high", high.into())]);
    report.keep("ratio with its 90 % interval", verdict);
    let because = format!(
        "{ratio:.3}, with 90 % confidence {low:.3} to {high:.3}, by {} pairs",
        found.one.len()
    );
    let target = "two processes on one region reach 0.9 of what they reach on two";
    report.judge(target, low >= TARGET, &because);
    Ok(())
}
